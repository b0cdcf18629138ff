"""Sparse matrices: canonical CSR, positions of entries, unit rows, and blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

INT32_MAX = np.iinfo(np.int32).max
#: Share of non-zeros below which sparse products are cheaper than dense ones.
SPARSE_SHARE = 0.1
#: Number of entries of a block of temporaries: about 32 MB of float64.
BLOCK_ENTRIES = 2**22
#: Number of entries of a block for cheap operations: fits into a processor's cache.
FEW_ENTRIES = 2**16
#: Entries that NumPy takes of a matrix, at most: SciPy's call takes longer, and copies faster.
_FEW_TAKEN = 2**12


def is_mostly_zeros(X: Any, share: float = SPARSE_SHARE) -> bool:
    """Return whether X is mostly zeros, for dense and sparse X alike."""
    n_nonzero = X.count_nonzero() if sp.issparse(X) else np.count_nonzero(X)
    return bool(n_nonzero < share * X.shape[0] * X.shape[1])


def canonical(X: Any, keep_zeros: bool = False) -> Any:
    """Return canonical CSR or CSC (sorted, distinct indices) without modifying the argument.

    Parameters
    ----------
    X : {ndarray, CSR or CSC matrix}
        Returned as is if it is dense or canonical, else copied.
    keep_zeros : bool, default=False
        Whether to keep stored zeros. Without them, sums of a row equal the sums of a dense row.

    Returns
    -------
    {ndarray, CSR or CSC matrix}
        The same matrix, of the same type.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import canonical, ones_at
    >>> untidy = csr_array(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 4]), shape=(1, 3))
    >>> canonical(untidy).indices, canonical(untidy, keep_zeros=True).indices
    (array([1, 2]), array([0, 1, 2]))
    """
    if sp.issparse(X) and not (X.has_canonical_format and (keep_zeros or X.data.all())):
        X = X.copy()
        X.sum_duplicates()
        if not keep_zeros:
            X.eliminate_zeros()
    return X


def pointers_of(sizes: Any) -> npt.NDArray[Any]:
    """Return where rows of these sizes begin, and the last one ends: `indptr` of a CSR matrix.

    Examples
    --------
    >>> from sklearn_xlc._csr import pointers_of
    >>> pointers_of([2, 0, 1])
    array([0, 2, 2, 3])
    """
    return np.concatenate([[0], np.cumsum(sizes)])


def row_numbers(indptr: npt.NDArray[Any]) -> IntArray:
    """Return the row of every stored entry (the column, for a CSC matrix).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import row_numbers
    >>> row_numbers(np.array([0, 2, 2, 3]))
    array([0, 0, 2])
    """
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def places_of(ids: npt.NDArray[Any], n: int) -> IntArray:
    """Return where each of the numbers 0, ..., n - 1 is in an array of ids; -1: nowhere.

    Each number occurs once at most; an id of -1 is none.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import places_of
    >>> places_of(np.array([2, -1, 0]), 4)
    array([ 2, -1,  0, -1])
    """
    places, known = np.full(n, -1), np.flatnonzero(ids >= 0)
    places[ids[known]] = known
    return places


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array; arrays unchanged."""
    return X.toarray() if sp.issparse(X) else X


def kept_entries(X: Any, mask: npt.NDArray[Any]) -> Any:
    """Keep the marked stored entries of a CSR or CSC matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import kept_entries
    >>> kept_entries(csr_array([[1, 2], [0, 3]]), np.array([True, False, True])).toarray()
    array([[1, 0],
           [0, 3]])
    """
    ends, is_after = np.zeros_like(X.indptr), X.indptr > 0
    ends[is_after] = np.cumsum(mask, dtype=ends.dtype)[X.indptr[is_after] - 1]
    return type(X)((X.data[mask], X.indices[mask], ends), shape=X.shape)


def moved_columns(X: Any, origin: npt.NDArray[Any]) -> Any:
    """Return CSR whose column i is the column ``origin[i]`` of X; -1: a column without entries.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import moved_columns
    >>> moved_columns(csr_array([[1, 2], [0, 3]]), np.array([1, -1])).toarray()
    array([[2, 0],
           [3, 0]])
    """
    wider = type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], X.shape[1] + 1))
    found = wider[:, origin]  # -1: the last column, which is empty
    found.sort_indices()
    return found


def moved_rows(X: Any, origin: npt.NDArray[Any]) -> Any:
    """Return what has row ``origin[i]`` of CSR or an array as row i; -1: zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import moved_rows
    >>> moved_rows(np.array([[1, 2], [0, 3]]), np.array([1, -1]))
    array([[0, 3],
           [0, 0]])
    """
    if isinstance(X, np.ndarray):
        found = X[origin]
        found[origin < 0] = 0
        return found
    ends = np.append(X.indptr, X.indptr[-1])  # -1: the last row, which is empty
    return type(X)((X.data, X.indices, ends), shape=(X.shape[0] + 1, X.shape[1]))[origin]


def evenly_spaced(n: int, most: int) -> IntArray:
    """Return positions among n at equal distances: at most `most` of them, all of fewer.

    Examples
    --------
    >>> from sklearn_xlc._csr import evenly_spaced
    >>> evenly_spaced(9, 3), evenly_spaced(2, 3)
    (array([0, 4, 8]), array([0, 1]))
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def row_of(matrix: Any, position: int) -> int:
    """Return the row of the stored entry at `position` of a CSR matrix."""
    return int(np.searchsorted(matrix.indptr, position, side="right")) - 1


def row_lengths(indptr: npt.NDArray[Any], rows: npt.NDArray[Any] | slice) -> npt.NDArray[Any]:
    """Return the number of stored entries of rows: ``np.diff(indptr)[rows]``, for a few of many.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import row_lengths
    >>> row_lengths(np.array([0, 3, 3, 5]), np.array([2, 0]))
    array([2, 3])
    """
    return indptr[1:][rows] - indptr[:-1][rows]


def joined_ranges(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> IntArray:
    """Concatenate the ranges ``start, ..., start + length - 1``.

    With ``starts = indptr[rows]`` and ``lengths = row_lengths(indptr, rows)``, these are the
    positions of the stored entries of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import joined_ranges
    >>> joined_ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    n_entries = int(ends[-1]) if len(ends) else 0
    return np.arange(n_entries) + np.repeat(starts - ends + lengths, lengths)


def rows_in(X: Any, part: slice) -> Any:
    """Return the rows of a slice of a matrix; of all rows the matrix itself, without a copy.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import rows_in
    >>> X = np.eye(2)
    >>> rows_in(X, slice(0, 2)) is X, rows_in(X, slice(1, 2))
    (True, array([[0., 1.]]))
    """
    return X if (part.start, part.stop) == (0, X.shape[0]) else X[part]


def taken_rows(X: Any, rows: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Return the lengths of rows of a CSR matrix, and copies of their columns and values.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import taken_rows
    >>> found = taken_rows(csr_array([[0, 5, 6], [7, 0, 0]]), np.array([1, 0]))
    >>> [each.tolist() for each in found]
    [[1, 2], [0, 1, 2], [7, 5, 6]]
    """
    lengths = row_lengths(X.indptr, rows)
    if lengths.sum() > _FEW_TAKEN:
        taken = X[rows]
        return lengths, taken.indices, taken.data
    entries = joined_ranges(X.indptr[:-1][rows], lengths)
    return lengths, X.indices[entries], X.data[entries]


def index_dtype(*sizes: int) -> np.dtype[Any]:
    """Return SciPy's index type for the given sizes.

    Examples
    --------
    >>> from sklearn_xlc._csr import index_dtype
    >>> index_dtype(5, 2**31 - 1), index_dtype(5, 2**31)
    (dtype('int32'), dtype('int64'))
    """
    return np.dtype(np.int32 if max(sizes) <= INT32_MAX else np.int64)


def one_per_row(columns: npt.NDArray[Any], n_columns: int, dtype: Any = np.int8) -> sp.csr_array:
    """Build a CSR matrix with a one in each row, at the given column.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import one_per_row
    >>> one_per_row(np.array([2, 0]), 3).toarray()
    array([[0, 0, 1],
           [1, 0, 0]], dtype=int8)
    """
    n_rows = len(columns)
    indptr = np.arange(n_rows + 1, dtype=index_dtype(n_rows, n_columns))
    parts = (np.ones(n_rows, dtype=dtype), columns, indptr)
    return sp.csr_array(parts, shape=(n_rows, n_columns))


def ones_at(
    columns: npt.NDArray[Any], indptr: npt.NDArray[Any], n_columns: int, dtype: Any = np.int8
) -> sp.csr_matrix:
    """Build a CSR matrix of ones from the columns of each row, which it may sort in place.

    Parameters
    ----------
    columns, indptr : ndarray of int
        Columns of all rows, in any order within a row, and where each row begins and ends.
    n_columns : int
        Number of columns.
    dtype : dtype, default=int8
        Type of the ones.
    """
    ones = np.ones(len(columns), dtype=dtype)
    found = sp.csr_matrix((ones, columns, indptr), shape=(len(indptr) - 1, n_columns))
    found.sort_indices()
    return found


def filled_rows(X: Any) -> BoolArray:
    """Return a mask of the rows of X, dense or canonical CSR, with an entry other than zero."""
    return np.asarray(np.diff(X.indptr) > 0 if sp.issparse(X) else X.any(axis=1))


def occurring_columns(X: Any) -> BoolArray:
    """Return a mask of the columns of X, dense or CSR, with a non-zero entry.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import occurring_columns
    >>> occurring_columns(csr_array([[0, 5, 0], [7, 0, 0]]))
    array([ True,  True, False])
    """
    found = np.zeros(X.shape[1], dtype=bool)
    if sp.issparse(X):
        for part in row_blocks(X.nnz, 1, FEW_ENTRIES):
            found[X.indices[part][X.data[part] != 0]] = True
    else:
        for part in row_blocks(len(X), X.shape[1], FEW_ENTRIES):
            found |= (X[part] != 0).any(axis=0)
    return found


def find_entries(matrix: Any, rows: Any, columns: Any) -> IntArray:
    """Find the positions of the stored entries at pairs of a row and a column.

    Parameters
    ----------
    matrix : canonical CSR matrix
        Matrix to search. For a canonical CSC matrix: ``find_entries(csc.T, columns, rows)``.
    rows, columns : array-like of int
        Pairs, broadcast against each other. A negative column matches no entry.

    Returns
    -------
    ndarray of the shape of the pairs, int64
        Positions in ``matrix.data``; -1 where no entry is stored.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import find_entries
    >>> find_entries(csr_array([[0, 5, 6], [7, 0, 0]]), [[0], [1]], [[2, 0], [0, -1]])
    array([[ 1, -1],
           [ 2, -1]])
    """
    # Rows and columns ascend in canonical CSR, and so do their joint keys.
    n_columns = np.int64(matrix.shape[1])
    keys = row_numbers(matrix.indptr) * n_columns + matrix.indices
    columns = np.asarray(columns)
    wanted = np.where(columns >= 0, np.asarray(rows) * n_columns + columns, -1)
    positions = np.searchsorted(keys, wanted)
    found = np.append(keys, -2)[positions] == wanted  # -2: beyond the last key, never wanted
    return np.where(found, positions, -1)


def distinct_rows(matrix: Any) -> tuple[IntArray, IntArray]:
    """Find the first row of every distinct set of columns, and the index of each row's set.

    Parameters
    ----------
    matrix : canonical CSR matrix
        Matrix, such as an indicator of label sets.

    Returns
    -------
    first : ndarray of shape (n_sets,)
        First row of each set, ascending.
    inverse : ndarray of shape (n_rows,)
        Index into `first`: row i has the same columns as row ``first[inverse[i]]``.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._csr import distinct_rows
    >>> distinct_rows(csr_array([[1, 0], [1, 1], [1, 0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(matrix.shape[0], dtype=np.int64)
    for row, (start, stop) in enumerate(zip(matrix.indptr[:-1], matrix.indptr[1:])):
        inverse[row] = numbers.setdefault(matrix.indices[start:stop].tobytes(), len(numbers))
        if inverse[row] == len(first):
            first.append(row)
    return np.array(first, dtype=np.int64), inverse


def unit_rows(X: Any) -> Any:
    """Scale rows to Euclidean norm one; rows of zeros stay zero.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_rows, n_columns)
        Matrix.

    Returns
    -------
    {ndarray, csr_array} of shape (n_rows, n_columns)
        A copy with scaled rows; float64 unless X is floating.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import unit_rows
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    X = _as_floating(X)
    if not sp.issparse(X):
        return _unit_values(X)
    values = np.empty_like(X.data)
    for part in uneven_blocks(np.diff(X.indptr) + 1, 2**18):
        values[X.indptr[part.start] : X.indptr[part.stop]] = _unit_values(rows_in(X, part))
    return _with_values(X, values)


def _unit_values(X: Any) -> Any:
    """Return the entries of X divided by the norms of their rows; X stays as it is."""
    is_sparse = sp.issparse(X)
    values = X.data if is_sparse else X
    row: Any = row_numbers(X.indptr) if is_sparse else (slice(None), None)
    norms = _row_norms(X, values)
    # Squares that overflow or underflow in float64.
    extreme = ~((norms > 1e-140) & (norms < np.inf))
    if is_sparse:
        extreme &= np.diff(X.indptr) > 0  # rows without entries are common, and maxima slow
    if extreme.any():
        largest = np.zeros(len(norms)) if is_sparse else abs(X).max(axis=1, initial=0)
        if is_sparse:
            np.maximum.at(largest, row, np.abs(values))
        scales = np.where(extreme & (largest > 0), largest, 1.0)
        values = values / scales[row].astype(values.dtype)
        norms = _row_norms(X, values)
    return (values / np.where(norms > 0, norms, 1)[row]).astype(X.dtype)


def bounded_rows(X: Any) -> Any:
    """Divide all rows by the largest of their norms; float64 unless X is floating.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import bounded_rows
    >>> bounded_rows(np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[0.6, 0.8],
           [0. , 0.2]])
    """
    X = _as_floating(X)
    values = X.data if sp.issparse(X) else X
    largest = np.abs(values).max(initial=0)
    if largest > 0:
        values = values / largest  # no square overflows
        values = values / _row_norms(X, values).max().astype(values.dtype)
    return _with_values(X, values)


def _as_floating(X: Any) -> Any:
    # Sums and products of rows are reproducible to the bit in C order only.
    X = sp.csr_array(X) if sp.issparse(X) else np.asarray(X, order="C")
    if X.dtype.kind != "f":
        return X.astype(np.float64)
    return X


def _row_norms(X: Any, values: npt.NDArray[Any]) -> FloatArray:
    """Return the norms of the rows of X with other values in place of its own."""
    with np.errstate(over="ignore"):
        if sp.issparse(X):
            squares = values.astype(np.float64) ** 2
            return np.sqrt(np.bincount(row_numbers(X.indptr), squares, minlength=X.shape[0]))
        return np.linalg.norm(values.astype(np.float64, copy=False), axis=1)


def _with_values(X: Any, values: npt.NDArray[Any]) -> Any:
    return sp.csr_array((values, X.indices, X.indptr), shape=X.shape) if sp.issparse(X) else values


def row_blocks(n_rows: int, row_size: int, n_entries: int | None = None) -> list[slice]:
    """Cut rows into slices of at most `n_entries` entries, and at least one row.

    None for `n_entries` means `BLOCK_ENTRIES`.

    Examples
    --------
    >>> from sklearn_xlc._csr import row_blocks
    >>> row_blocks(5, 3, n_entries=6)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, (n_entries or BLOCK_ENTRIES) // max(1, row_size))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def weighted_quantile(values: FloatArray, weights: npt.NDArray[Any], q: float) -> float:
    """Return the first value, in their order, up to which a share of q of the weights lies.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import weighted_quantile
    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([5, 1, 1]), 0.5)
    3.0
    """
    if (is_held := weights > 0).any():  # of hashed columns most are empty
        values, weights = values[is_held], weights[is_held]
    order = np.argsort(values)
    upto = weights[order].cumsum()
    return float(values[order][np.searchsorted(upto, q * upto[-1])])


def uneven_blocks(sizes: npt.NDArray[Any], n_entries: int) -> list[slice]:
    """Cut rows of different sizes into slices of about `n_entries` entries.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._csr import uneven_blocks
    >>> uneven_blocks(np.array([2, 1, 2, 9, 1]), n_entries=4)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    number = np.cumsum(sizes) // n_entries
    starts = [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist()][: len(sizes)]
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(sizes)])]


def mix_bits(words: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Hash 64-bit counters by the finaliser of SplitMix64 [1]_.

    Every bit of the hash depends on all bits of the counter.

    References
    ----------
    .. [1] G. L. Steele Jr., D. Lea, C. H. Flood. Fast Splittable Pseudorandom Number Generators.
       OOPSLA 2014.
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
