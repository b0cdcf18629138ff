"""Validation of X and y, and roll-back of an estimator when `fit` raises."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.utils import check_array, check_random_state, column_or_1d

from sklearn_xlc._bounds import check_real
from sklearn_xlc._compat import validate_data, weights_of_sklearn
from sklearn_xlc._csr import FEW_ENTRIES, canonical, row_blocks, row_of
from sklearn_xlc._labels import check_objects, exact_array, plain

#: Types of samples that stay as they are.
DTYPES = (np.float64, np.float32)
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_NO_INDICATOR = (
    "for one label per sample pass a 1-D y, for label ids use "
    "sklearn.preprocessing.MultiLabelBinarizer"
)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Restore the attributes of an estimator if the block raises or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = before  # one assignment: a second interrupt finds no half of it
        raise


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of an argument before a message of scikit-learn's checks that lacks it."""
    try:
        yield
    except (OverflowError, TypeError, ValueError) as error:
        if re.search(rf"\b{re.escape(name)}\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error


def check_equal(what: str, **numbers: Any) -> None:
    """Raise ValueError unless arguments have equally many of something, such as rows."""
    if len(set(numbers.values())) > 1:
        raise ValueError(
            f"{' and '.join(numbers)} must have equally many {what}, got "
            f"{' and '.join(map(str, numbers.values()))}"
        )


def check_numbers(values: Any, name: str, **options: Any) -> Any:
    """Validate an array by :func:`sklearn.utils.check_array`; all messages have its name.

    The arrays of a sparse matrix are validated before, by :func:`check_sparse`.
    """
    if sp.issparse(values) and "accept_sparse" in options:
        values = check_sparse(values, name)
    with naming(name):
        return check_array(values, input_name=name, **options)


def check_sample_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """Check weights of samples as scikit-learn does; older versions let all of them be zero."""
    refuse_no_values(sample_weight, "sample_weight")
    if isinstance(sample_weight, Number):  # scikit-learn lets it be NaN
        sample_weight = check_real(sample_weight, "sample_weight", 0)
    with naming("sample_weight"), config_context(assume_finite=True):  # it names no row
        weight = weights_of_sklearn(sample_weight, X, dtype=np.float64)
        if len(weight) and not weight.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
    wrong = ~((weight >= 0) & (weight < np.inf))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"sample_weight must be finite and at least 0, got {weight[row]} in row {row}"
        )
    return weight


def check_seed(random_state: Any) -> np.random.RandomState:
    """Return the generator of a `random_state` of scikit-learn."""
    with naming("random_state"):
        return check_random_state(random_state)


def refuse_no_values(values: Any, name: str) -> None:
    """Raise ValueError for a query of polars, which has no values yet, and for masked values."""
    if type(values).__name__ == "LazyFrame":
        raise ValueError(f"{name} is a polars LazyFrame; give {name}.collect()")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):  # not of pandas
        place = ", ".join(str(each[0]) for each in np.nonzero(np.ma.getmaskarray(values)))
        raise ValueError(
            f"{name} is a masked array without a value at [{place}]: fill it, such as by "
            f"{name}.filled(0), or leave such rows out"
        )


def is_indicator(y: Any) -> bool:
    """Return whether y is an indicator of labels rather than one label per sample."""
    if sp.issparse(y):
        return True
    array = _as_array(y)
    return array.ndim == 2 and array.shape[1] > 1


def _as_array(y: Any) -> np.ndarray:
    """Convert a dense y to an array of one or two dimensions, with sortable labels."""
    if y is None:
        raise ValueError("this requires y to be passed, but the target y is None")
    is_listed = isinstance(y, list | tuple)
    array = np.asarray(y, dtype=object) if is_listed else exact_array(y)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise ValueError(
            "y must be class labels of shape (n_samples,) or an indicator of shape "
            f"(n_samples, n_labels), got shape {array.shape}"
        )
    _refuse_fields(array, "y")
    if array.dtype == object and array.ndim == 1:
        check_objects(array)
    return exact_array(y) if is_listed else array


def as_array(values: Any, name: str) -> np.ndarray:
    """Convert values to an array; raise ValueError for ragged nesting."""
    refuse_no_values(values, name)
    try:
        array = exact_array(values)
    except (ValueError, TypeError, RuntimeError) as error:  # also of unreadable tensors
        raise ValueError(f"{name} must be a rectangular array or a sparse matrix") from error
    _refuse_fields(array, name)
    return array


def _refuse_fields(array: np.ndarray, name: str) -> None:
    """Raise ValueError for a structured array."""
    if names := array.dtype.names:
        raise ValueError(
            f"{name} is a structured array of {len(names)} fields: give one of them, "
            f"{name}[{names[0]!r}]"
        )


def check_sparse(matrix: Any, name: str) -> Any:
    """Validate the arrays of a sparse matrix, without copying them.

    Parameters
    ----------
    matrix : sparse matrix
        Matrix in any format.
    name : str
        Name of the argument, for messages.

    Returns
    -------
    sparse matrix
        For COO, CSR, CSC and BSR, a new object without SciPy's cached flags about the order of the
        entries, which may be outdated. Its arrays are plain ndarrays sharing memory, also of mapped
        files. For other formats, the argument.

    Raises
    ------
    ValueError
        If the matrix does not hold numbers, pointers decrease or point beyond the entries, an index
        is out of range, or sizes or types do not match. SciPy would read or write out of bounds.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc._checks import check_sparse
    >>> broken = csr_array([[1.0, 0.0], [0.0, 2.0]])
    >>> broken.indices[1] = 7
    >>> check_sparse(broken, "X")
    Traceback (most recent call last):
    ...
    ValueError: X is not a valid CSR matrix: indices must be < 2; build it anew...
    """
    if matrix.dtype.kind not in "biufc":
        raise ValueError(f"{name} must hold numbers, got a sparse matrix of {matrix.dtype}")
    try:
        return _anew(matrix)
    except ValueError as error:
        raise ValueError(
            f"{name} is not a valid {matrix.format.upper()} matrix: {error}; build it anew, for "
            "instance by scipy.sparse.csr_matrix((data, (rows, columns)), shape)"
        ) from error


def _anew(matrix: Any) -> Any:
    """Return a matrix of the same arrays, which SciPy has checked."""
    if matrix.format not in ("coo", "csr", "csc", "bsr"):
        return matrix
    kind, is_coo = type(matrix), matrix.format == "coo"
    indices = matrix.coords if is_coo else (matrix.indices, matrix.indptr)
    if wrong := [part.dtype for part in indices if part.dtype.kind != "i"]:
        raise ValueError(f"indices and pointers must be integers, got dtype {wrong[0]}")
    if is_coo:
        return kind((matrix.data, indices), shape=matrix.shape)
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():  # SciPy looks only if there are entries
        raise ValueError("pointers must not decrease")
    # The constructor of arrays would copy 64-bit indices wherever 32 bits would do.
    blocks = {"blocksize": matrix.blocksize} if matrix.format == "bsr" else {}
    made = kind(matrix.shape, dtype=matrix.dtype, **blocks)
    made.data, made.indices, made.indptr = map(np.asarray, (matrix.data, *indices))
    made.check_format()
    return made


def check_X(estimator: Any, X: Any, reset: bool, model_dtype: Any = None) -> Any:
    """Validate X: a dense array or canonical CSR of numbers small enough to be squared.

    Parameters
    ----------
    estimator : estimator
        Estimator; `n_features_in_` and `feature_names_in_` are set or checked.
    X : {array-like, sparse matrix, dataframe, torch tensor} of shape (n_samples, n_features)
        Samples; those of other types than :data:`DTYPES` are converted to the first.
    reset : bool
        Whether to set the attributes of the estimator, rather than check them.
    model_dtype : dtype, default=None
        Type of the estimator's computations. None: the type of X.

    Returns
    -------
    {ndarray, CSR matrix} of shape (n_samples, n_features)

    Raises
    ------
    ValueError
        If X is invalid, holds strings, or holds a number with an overflowing square.
    """
    refuse_no_values(X, "X")
    X = without_tensor(X, "X")
    if sp.issparse(X):
        X = check_sparse(X, "X")
    elif is_text(X):
        raise ValueError(
            f"X holds strings, but {type(estimator).__name__} reads rows of numbers; vectorize the "
            "strings, for instance by a TfidfVectorizer in a Pipeline"
        )
    like = _frame_dtype(X)
    dtype = like if like in DTYPES else DTYPES
    try:
        checked = validate_data(estimator, X, accept_sparse="csr", dtype=dtype, reset=reset)
    except TypeError:  # of NumPy, which finds no type for dates and numbers
        _refuse_dates(X)
        raise
    X = canonical(checked)
    _check_magnitude(X, np.dtype(model_dtype or X.dtype))
    return X


def _refuse_dates(X: Any) -> None:
    """Raise ValueError for a frame of pandas with a column of dates, times or durations."""
    for place, dtype in enumerate(X.dtypes if hasattr(X, "iloc") else ()):
        name, kind = plain(X.columns[place]), str(dtype)
        column = f"X[{name!r}]"
        if kind == "object":
            value = next(iter(X.iloc[:, place].dropna()), None)
            kind = type(value).__name__ if isinstance(value, _DATES) else kind
            column = f"pd.to_datetime({column})"
        is_duration = kind.lower().startswith(("timedelta", "duration"))
        numbers = ".dt.total_seconds()" if is_duration else ".dt.year and .dt.dayofyear"
        if is_duration or kind.lower().startswith(("date", "time", "period")):
            raise ValueError(
                f"column {name!r} of X holds {kind}, and numbers are read: give numbers of it, "
                f"such as {column}{numbers}, or leave it out"
            ) from None


def is_text(X: Any) -> bool:
    """Return whether X is one-dimensional and holds a string."""
    if getattr(X, "ndim", 1) != 1 or hasattr(X, "columns"):
        return False
    if isinstance(getattr(X, "dtype", None), np.dtype) and X.dtype.kind in "biufcSmMV":
        return False
    return hasattr(X, "__iter__") and any(isinstance(sample, str) for sample in X)


def without_tensor(values: Any, name: str) -> Any:
    """Convert a torch tensor to an array, from any device, with or without a gradient.

    Other values stay as they are. Torch is not loaded for this.
    """
    if not hasattr(values, "detach"):
        return values
    if str(values.layout) != "torch.strided":
        raise ValueError(
            f"{name} is a torch tensor of layout {values.layout}; give a dense tensor, or a SciPy "
            "CSR matrix"
        )
    tensor = values.detach().cpu()
    is_low = str(tensor.dtype) in ("torch.float16", "torch.bfloat16")  # NumPy lacks the second
    return (tensor.float() if is_low else tensor).numpy()


def _frame_dtype(X: Any) -> np.dtype | None:
    """Return the common type of the columns of a data frame without a dtype, as in polars."""
    if hasattr(X, "dtype") or not (hasattr(X, "columns") and hasattr(X, "head")):
        return None
    return np.asarray(X.head(0)).dtype


def _check_magnitude(X: Any, dtype: np.dtype) -> None:
    """Raise ValueError for numbers with overflowing squares: features would be NaN or wrong."""
    if can_be_squared(X, dtype):
        return
    values, limit = X.data if sp.issparse(X) else X, math.sqrt(np.finfo(dtype).max)
    position = int(np.argmax(~(np.abs(values) <= limit)))  # also NaN, with assume_finite=True
    if sp.issparse(X):
        row, column = row_of(X, position), X.indices[position]
    else:
        row, column = divmod(position, X.shape[1])
    raise ValueError(
        f"X holds {values.flat[position]:.3g} in row {row}, column {column}: numbers above "
        f"{limit:.1e} in magnitude overflow in {dtype}; scale X, for instance by "
        "sklearn.preprocessing.MaxAbsScaler, and mark missing values in another way"
    )


def can_be_squared(X: Any, dtype: Any) -> bool:
    """Return whether the squares of all numbers are finite; False for NaN."""
    values, limit = X.data if sp.issparse(X) else X, math.sqrt(np.finfo(dtype).max)
    return not values.size or (float(values.max()) <= limit and float(values.min()) >= -limit)


def check_csr(matrix: Any, name: str) -> sp.csr_array:
    """Validate a matrix of real numbers; return CSR, sharing the arrays of a CSR argument.

    Repeated entries are kept.

    Raises
    ------
    ValueError
        If the matrix is ragged, is not two-dimensional, or holds anything but numbers and bool.
    """
    if not sp.issparse(matrix):
        matrix = as_array(matrix, name)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        remedy = f"; numbers? call {name}.astype(float)" if matrix.dtype == object else ""
        raise ValueError(
            f"{name} must be a two-dimensional matrix of numbers, got shape {matrix.shape} and "
            f"dtype {matrix.dtype}{remedy}"
        )
    if not sp.issparse(matrix):  # SciPy supports neither half precision nor foreign byte orders
        least = np.float32 if matrix.dtype.kind == "f" else np.bool_
        return sp.csr_array(matrix.astype(np.promote_types(matrix.dtype, least), copy=False))
    matrix = check_sparse(matrix, name)
    if matrix.format != "coo":
        return sp.csr_array(matrix)
    # Otherwise SciPy sums repeated entries in their own dtype, where 256 ones may be 0.
    matrix.has_canonical_format = True
    csr = sp.csr_array(matrix)
    csr.sort_indices()
    return csr


def raise_for_entries(
    matrix: sp.csr_array, wrong: np.ndarray, rule: str, remedy: str = "", start: int = 0
) -> None:
    """Raise ValueError for the first stored entry marked by `wrong`, if any.

    Parameters
    ----------
    matrix : CSR matrix
        Matrix to check.
    wrong : ndarray of bool of shape (n_entries,)
        Mask of the wrong entries, from entry `start` on.
    rule, remedy : str
        First part of the message, such as "y must hold 0 and 1 only", and its last part. Value, row
        and column of the entry are named between them.
    start : int, default=0
        Entry at which the mask starts.
    """
    if wrong.any():
        position = start + int(wrong.argmax())
        value, column = plain(matrix.data[position]), matrix.indices[position]
        raise ValueError(
            f"{rule}, got {value} in row {row_of(matrix, position)}, column {column}"
            + (remedy and f"; {remedy}")
        )


def check_indicator(matrix: Any, name: str, remedy: str = "") -> sp.csr_array:
    """Validate an indicator; return canonical CSR of int8 ones, without stored zeros.

    Parameters
    ----------
    matrix : {array-like, sparse matrix} of shape (n_rows, n_columns)
        Zeros and ones, numbers or bool; not modified.
    name : str
        Name of the argument, for messages.
    remedy : str, default=""
        Last part of the message about a value other than 0 and 1.

    Returns
    -------
    csr_array of shape (n_rows, n_columns)
        Indicator; it may share the indices of a canonical CSR argument.

    Raises
    ------
    ValueError
        If the matrix does not hold numbers, holds a value other than 0 and 1, or has repeated
        entries.

    Examples
    --------
    >>> from sklearn_xlc._checks import check_indicator
    >>> check_indicator([[1.0, 0.0], [0.0, 2.0]], "y")
    Traceback (most recent call last):
    ...
    ValueError: y must hold 0 and 1 only, got 2.0 in row 1, column 1
    """
    given = check_csr(matrix, name)
    for part in row_blocks(given.nnz, 1, FEW_ENTRIES):
        wrong = (given.data[part] != 0) & (given.data[part] != 1)  # NaN is neither
        raise_for_entries(given, wrong, f"{name} must hold 0 and 1 only", remedy, part.start)
    if not (given.has_canonical_format and given.data.all()):
        # Repeated entries are summed in int32, because int8 would wrap around.
        ones = given.data.astype(np.int32)
        given = canonical(sp.csr_array((ones, given.indices, given.indptr), shape=given.shape))
        rule = f"{name} holds an entry of the sparse indicator more than once"
        raise_for_entries(given, given.data != 1, rule)
    parts = (np.ones(given.nnz, np.int8), given.indices, given.indptr)
    return sp.csr_array(parts, shape=given.shape)


def check_counts(matrix: Any, name: str) -> sp.csr_array:
    """Validate label counts; return canonical CSR of int32, without stored zeros.

    Parameters
    ----------
    matrix : {array-like, sparse matrix} of shape (n_rows, n_columns)
        Non-negative whole numbers of any dtype; not modified. Repeated entries are summed.
    name : str
        Name of the argument, for messages.

    Returns
    -------
    csr_array of shape (n_rows, n_columns)
        Counts; it may share the indices of a canonical CSR argument.

    Raises
    ------
    ValueError
        If the matrix does not hold numbers, or a number is fractional, negative, or 2**31 or more.

    Examples
    --------
    >>> from sklearn_xlc._checks import check_counts
    >>> check_counts([[2.0, 0.0]], "y").toarray()
    array([[2, 0]], dtype=int32)
    """
    given = check_csr(matrix, name)
    rule = f"{name} must hold counts of labels, whole numbers from 0 on"
    with np.errstate(invalid="ignore"):
        right = (given.data >= 0) & (given.data == np.floor(given.data)) & (given.data < 2**31)
    raise_for_entries(given, ~right, rule)
    parts = (given.data.astype(np.int64), given.indices, given.indptr)
    counts = canonical(sp.csr_array(parts, shape=given.shape))
    raise_for_entries(counts, counts.data >= 2**31, rule)  # after summing repeated entries
    return counts.astype(np.int32)


def check_y(y: Any) -> Any:
    """Validate y; return 1-D labels as an ndarray, an indicator as canonical CSR of int8.

    Raises
    ------
    ValueError
        If y is missing, holds NaN or infinity, is continuous, or is an indicator with values other
        than 0 and 1.
    """
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    if sp.issparse(y):
        if y.ndim != 2 or y.shape[1] == 0:
            raise ValueError(f"a sparse y must have shape (n_samples, n_labels), got {y.shape}")
        return sp.csr_matrix(check_indicator(y, "y", _NO_INDICATOR))
    y = check_array(_as_array(y), ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    if y.ndim == 2 and y.shape[1] > 1:
        return sp.csr_matrix(check_indicator(y, "y", _NO_INDICATOR))
    _check_classes(y)
    return column_or_1d(y, warn=True)


def _check_classes(y: np.ndarray) -> None:
    """Raise ValueError for continuous or unknown targets.

    scikit-learn's `check_classification_targets` would warn about few samples per class, which are
    usual here; and filters of warnings are shared by all threads.
    """
    refuse_continuous(y)
    if y.dtype.kind in "mM" and np.isnat(y).any():
        raise ValueError(f"y[{int(np.isnat(y).argmax())}] is NaT: every sample needs a class label")
    if y.dtype.kind == "S" or (y.dtype == object and y.size and not isinstance(y.flat[0], str)):
        kind = "bytes" if y.dtype.kind == "S" else type(y.flat[0]).__name__
        is_whole = kind == "int" and all(-(2**63) <= label < 2**63 for label in y.flat)
        remedy = "call y.astype(int)" if is_whole else "convert them to str or int"
        if kind == "int" and not is_whole:
            remedy = "64 bits cannot hold all of these integers; convert them to str"
        raise ValueError(f"Unknown label type: y holds objects of type {kind}; {remedy}")


def refuse_continuous(y: np.ndarray) -> None:
    """Raise ValueError if y holds fractional numbers, or larger than integers: no classes."""
    if y.dtype.kind != "f":
        return
    y = y.astype(np.promote_types(y.dtype, np.float32), copy=False)  # float16 ends before 2**63
    if not ((y == np.floor(y)) & (np.abs(y) < 2.0**63)).all():
        raise ValueError(
            "Unknown label type: y holds continuous numbers; a 1-D y holds one class label per row"
        )
