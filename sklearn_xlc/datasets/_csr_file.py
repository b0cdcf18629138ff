"""Files of CSR matrices for memory mapping, written at once or in blocks of rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr, check_sparse
from sklearn_xlc._csr import canonical, index_dtype
from sklearn_xlc._files import DTYPES, read_mapped, write

#: Kind of the files. Their arrays are named ``<number of the matrix>.<part>``.
KIND = "CSR matrix"
_PARTS = ("data", "indices", "indptr")
# Number of indices converted at a time.
_BLOCK = 2**22


def save_csr(path: str | os.PathLike[str], X: Any, *, dtype: Any = None) -> None:
    """Write one or several CSR matrices to a file for `open_csr`.

    The file is a safetensors container with a format number and a digest of its content. It gets
    its name when it is complete: an interrupted call leaves an existing file, and processes reading
    it, undisturbed.

    Parameters
    ----------
    path : str or os.PathLike
        File to write.
    X : {sparse matrix, ndarray}, tuple of such, or iterable of such blocks of rows
        Matrix of numbers. A tuple, such as ``(X, Y)`` of features and labels, holds matrices with
        the same number of rows. A list, generator or other iterable yields blocks of rows, each a
        matrix or a tuple of matrices, for data larger than the memory: one block is held at a time,
        and 8 bytes a row. Writing blocks takes twice their size on the disk. Repeated entries are
        summed, and stored zeros dropped.
    dtype : dtype or tuple of dtype, default=None
        Type of the entries, or of the entries of each matrix in a tuple. None: the type of X, or of
        the first block. Classifiers compute in float32; they convert X of another type as a whole.

    Raises
    ------
    ValueError
        If X is not a matrix of numbers, there is no block, or shapes do not match.
    OSError
        If the file cannot be written.

    See Also
    --------
    open_csr : Maps such a file.
    load_xmc_file : Reads a text file, and writes such a file with `out`.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets import open_csr, save_csr
    >>> blocks = (csr_matrix([[0.0, i], [1.0, 0.0]]) for i in range(1, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "X.csr")
    ...     save_csr(path, blocks, dtype="float32")
    ...     X = open_csr(path)
    >>> X.shape, X.data
    ((6, 2), memmap([1., 1., 2., 1., 3., 1.], dtype=float32))
    """
    path = _check_path(path)
    if sp.issparse(X) or isinstance(X, np.ndarray | tuple):
        block = _Block(X, dtype, "X")
        parts = [_narrow({name: getattr(m, name) for name in _PARTS}, m) for m in block.matrices]
        write_matrices(path, parts, block.widths, block.is_tuple)
        return
    try:
        blocks = iter(X)
    except TypeError:
        raise ValueError(
            f"X must be a matrix, a tuple of matrices, or an iterable of blocks of rows, got "
            f"{type(X).__name__}"
        ) from None
    # Before any file is made: errors of the first block are raised as they are.
    first = _Block(next(blocks, None), dtype, "block 0 of X")
    with temporary_files(path) as new_file:
        grown = [
            GrowingCSR(new_file, width, matrix.dtype)
            for width, matrix in zip(first.widths, first.matrices)
        ]
        rest = (
            _Block(block, dtype, f"block {number} of X", first)
            for number, block in enumerate(blocks, start=1)
        )
        for block in itertools.chain([first], rest):
            for matrix, part in zip(grown, block.matrices):
                matrix.append(part)
        write_matrices(path, [matrix.arrays() for matrix in grown], first.widths, first.is_tuple)


def open_csr(path: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Map the CSR matrices of a file into memory.

    Entries are read from the file when they are used, so the file may be larger than the memory.
    Processes share the mapped memory. Classifiers train and predict batch by batch.

    Parameters
    ----------
    path : str or os.PathLike
        File written by :func:`save_csr` or ``load_xmc_file(..., out=path)``. It may be replaced by
        these, but not modified: truncating it would kill the processes reading it.
    verify : bool, default=True
        Whether to read all entries once and check their digest. If False, only header, file size
        and row pointers are checked; `fit` and `predict` still raise for indices out of range.

    Returns
    -------
    csr_matrix of shape (n_rows, n_columns), or tuple of such
        Saved matrices in canonical format, with read-only arrays.

    Raises
    ------
    ValueError
        If the file is damaged or truncated, was not written by :func:`save_csr`, or has the format
        of a later version.
    OSError
        If there is no such file, or it cannot be opened.

    Warns
    -----
    UserWarning
        If `verify` is set and another version of this package wrote the file.

    See Also
    --------
    save_csr : Writes such a file.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets import open_csr, save_csr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.csr")
    ...     save_csr(path, (csr_matrix([[0.5, 0.0], [0.0, 1.5]]), csr_matrix([[0, 1], [1, 0]])))
    ...     X, Y = open_csr(path)
    >>> X.data, Y.indices, X.data.flags.writeable
    (memmap([0.5, 1.5]), memmap([1, 0], dtype=int32), False)
    """
    path = _check_path(path)
    if not isinstance(verify, bool | np.bool_):
        raise TypeError(f"verify must be a bool, got {verify!r}")
    document, matrices = read_matrices(path, bool(verify))
    return tuple(matrices) if document["is_tuple"] else matrices[0]


class GrowingCSR:
    """CSR matrix on disk, extended by blocks of rows; only the row pointers are in memory.

    Parameters
    ----------
    new_file : callable
        Function without arguments; returns a new binary file, open for writing and reading.
    n_columns : int
        Number of columns.
    dtype : dtype
        Type of the entries.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets._csr_file import GrowingCSR
    >>> with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as indices:
    ...     matrix = GrowingCSR(iter([data, indices]).__next__, 3, "int32")
    ...     matrix.append(csr_matrix([[0, 5, 6], [7, 0, 0]]))
    ...     matrix.append(csr_matrix([[0, 0, 8]]))
    ...     matrix.arrays()
    {'data': memmap([5, 6, 7, 8], dtype=int32),
     'indices': memmap([1, 2, 0, 2], dtype=int32),
     'indptr': array([0, 2, 3, 4], dtype=int32)}
    """

    def __init__(self, new_file: Callable[[], Any], n_columns: int, dtype: Any) -> None:
        self.new_file, self.n_columns, self.dtype = new_file, n_columns, np.dtype(dtype)
        # 32 bits if the columns allow it: the number of entries is not known yet.
        self._narrow = index_dtype(n_columns)
        self._data, self._indices = new_file(), new_file()
        self._ends = [np.zeros(1, dtype=np.int64)]

    def append(self, block: Any) -> None:
        """Add the rows of a CSR matrix with sorted indices."""
        self._data.write(block.data.astype(self.dtype, copy=False).data)
        self._indices.write(block.indices.astype(self._narrow, copy=False).data)
        self._ends.append(block.indptr[1:] + self._ends[-1][-1])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the matrix, with SciPy's index type."""
        indptr = np.concatenate(self._ends)
        dtype = _index_dtype(indptr, self.n_columns)
        indices = _mapped(self._indices, self._narrow)
        if dtype != self._narrow:
            wide = self.new_file()
            for start in range(0, len(indices), _BLOCK):
                wide.write(indices[start : start + _BLOCK].astype(dtype).data)
            indices = _mapped(wide, dtype)
        data = _mapped(self._data, self.dtype)
        return {"data": data, "indices": indices, "indptr": indptr.astype(dtype, copy=False)}


def _index_dtype(indptr: np.ndarray, n_columns: int) -> np.dtype:
    return index_dtype(int(indptr[-1]), len(indptr) - 1, n_columns)


def _narrow(parts: dict[str, np.ndarray], matrix: Any) -> dict[str, np.ndarray]:
    """Convert indices to SciPy's index type, to avoid copies later."""
    dtype = _index_dtype(matrix.indptr, matrix.shape[1])
    return {
        name: part if name == "data" else part.astype(dtype, copy=False)
        for name, part in parts.items()
    }


def _mapped(file: Any, dtype: np.dtype) -> np.ndarray:
    file.flush()
    size = os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
    return np.memmap(file, dtype, mode="r") if size else np.zeros(0, dtype)


class _Block:
    """Validated matrices of a block: canonical, with equal numbers of rows and storable types."""

    def __init__(self, given: Any, dtype: Any, name: str, first: _Block | None = None) -> None:
        if given is None:
            raise ValueError("X has no block of rows; give at least one, of 0 rows if need be")
        self.is_tuple = isinstance(given, tuple)
        together = given if isinstance(given, tuple) else (given,)
        names = [f"{name}[{i}]" if self.is_tuple else name for i in range(len(together))]
        dtypes = _dtypes(dtype, len(together), self.is_tuple)
        if first is not None and dtype is None:
            dtypes = [matrix.dtype for matrix in first.matrices]
        self.matrices: list[Any] = [
            _as_dtype(_checked(matrix, of), wanted, of, first is not None and dtype is None)
            for matrix, wanted, of in zip(together, dtypes, names)
        ]
        self.widths = [matrix.shape[1] for matrix in self.matrices]
        heights = [matrix.shape[0] for matrix in self.matrices]
        if not heights or len(set(heights)) > 1:
            raise ValueError(
                f"matrices of a tuple must have the same number of rows, {name} has {heights}"
            )
        if first is not None and (self.is_tuple, self.widths) != (first.is_tuple, first.widths):
            raise ValueError(
                f"{name} has {self._shown()}, but block 0 has {first._shown()}; all blocks must "
                "have the same"
            )

    def _shown(self) -> str:
        what = "a tuple of matrices" if self.is_tuple else "a matrix"
        return f"{what} of {' and '.join(map(str, self.widths))} columns"


def _dtypes(dtype: Any, n: int, is_tuple: bool) -> list[Any]:
    """Return the type of each of n matrices; None keeps the matrix's own type."""
    given = list(dtype) if isinstance(dtype, tuple | list) else [dtype] * n
    if len(given) != n:
        raise ValueError(f"dtype must be one type or {n}, a type for each matrix, got {dtype!r}")
    return [_number_type(each) for each in given]


def _number_type(dtype: Any) -> np.dtype | None:
    try:
        made = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError):
        raise ValueError(f"dtype must be a type of numbers or None, got {dtype!r}") from None
    if made is not None and (made.kind not in "biuf" or not _is_storable(made)):
        raise ValueError(f"dtype must be a type of numbers that SciPy knows, got {dtype!r}")
    return made


def _is_storable(dtype: np.dtype) -> bool:
    return dtype.name in DTYPES and dtype != np.float16  # not supported by SciPy's matrices


def _checked(matrix: Any, name: str) -> Any:
    """Validate a matrix; return canonical CSR, sharing its arrays if possible."""
    if not (sp.issparse(matrix) or isinstance(matrix, np.ndarray)):
        raise ValueError(f"{name} must be a sparse matrix or an array, got {type(matrix).__name__}")
    checked = canonical(check_csr(matrix, name))
    if not _is_storable(checked.dtype):
        raise ValueError(f"{name} holds {checked.dtype}; a file holds bool, integers and floats")
    return checked


def _as_dtype(matrix: Any, dtype: np.dtype | None, name: str, is_first_type: bool) -> Any:
    """Convert the entries to a type; raise ValueError if it cannot hold them."""
    if dtype is None or matrix.dtype == dtype:
        return matrix
    if is_first_type:
        raise ValueError(
            f"{name} holds {matrix.dtype}, but block 0 holds {dtype}; give the type as dtype"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        made = matrix.astype(dtype)
    same = made.data == matrix.data if dtype.kind != "f" else np.isfinite(made.data)
    if not (same | ~np.isfinite(matrix.data) & (dtype.kind == "f")).all():
        raise ValueError(f"{name} holds numbers that {dtype} cannot hold; give another dtype")
    return canonical(made)  # of small numbers some have become 0


@contextlib.contextmanager
def temporary_files(path: str | os.PathLike[str]) -> Iterator[Callable[[], Any]]:
    """Yield a function for temporary files in the folder of `path`, deleted at the end.

    The files have no names: a killed process leaves nothing behind.
    """
    folder = os.path.dirname(os.path.realpath(path))
    with contextlib.ExitStack() as files:
        yield lambda: files.enter_context(tempfile.TemporaryFile(dir=folder))


def write_matrices(
    path: str | os.PathLike[str],
    matrices: Iterable[Mapping[str, np.ndarray]],
    widths: Iterable[int],
    is_tuple: bool,
    source: Any = None,
) -> None:
    """Write the arrays of canonical matrices to a file; `source` is stored in its document."""
    matrices = list(matrices)
    shapes = [[len(parts["indptr"]) - 1, width] for parts, width in zip(matrices, widths)]
    arrays = {f"{i}.{name}": parts[name] for i, parts in enumerate(matrices) for name in _PARTS}
    write(path, {"shapes": shapes, "is_tuple": is_tuple, "source": source}, arrays, kind=KIND)


def read_matrices(
    path: str | os.PathLike[str], verify: bool
) -> tuple[dict[str, Any], list[sp.csr_matrix]]:
    """Map a file of :func:`write_matrices`; return its document and matrices.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If it is damaged or not such a file. Indices and entries are checked with `verify` only.
    """
    document, arrays = read_mapped(path, kind=KIND, verify=verify)
    try:
        shapes, _, _ = document["shapes"], document["is_tuple"], document["source"]
        matrices = [
            _matrix([arrays[f"{i}.{name}"] for name in _PARTS], tuple(shape), verify)
            for i, shape in enumerate(shapes)
        ]
        if not matrices:
            raise ValueError("it holds no matrix")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"cannot read {os.fsdecode(path)}: it is damaged ({error})") from error
    return document, matrices


def _matrix(parts: list[np.ndarray], shape: tuple[int, ...], verify: bool) -> sp.csr_matrix:
    data, indices, indptr = parts
    n_rows, n_columns = shape
    if indptr.shape != (n_rows + 1,) or not data.shape == indices.shape == (indptr[-1],):
        raise ValueError("its arrays do not fit together")
    if indices.dtype != indptr.dtype or indptr.dtype != _index_dtype(indptr, n_columns):
        raise ValueError("its indices have the wrong type")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any() or data.dtype.kind not in "biuf":
        raise ValueError("its row pointers or entries are wrong")
    # The constructor would read all 64-bit indices.
    matrix = sp.csr_matrix(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    if verify and not check_sparse(matrix, "X").has_canonical_format:
        raise ValueError("its indices are not sorted")
    matrix.has_canonical_format = True  # as written; SciPy would read all entries to check
    return matrix


def _check_path(path: Any) -> str | os.PathLike[str]:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or os.PathLike, got {type(path).__name__}")
    return path
