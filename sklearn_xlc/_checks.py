"""Checks of what a user gives, and the roll-back of an estimator whose `fit` raises."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Put the attributes of an estimator back if the block raises or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def is_indicator(y: Any) -> bool:
    """Whether y is an indicator of labels rather than one label a row."""
    if sp.issparse(y):
        return True
    array = _as_array(y)
    return array.ndim == 2 and array.shape[1] > 1


def _as_array(y: Any) -> np.ndarray:
    """Dense y as an array of one or two dimensions, whose labels sort."""
    array = np.asarray(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise ValueError(
            "y must be class labels of shape (n_samples,) or an indicator of shape "
            f"(n_samples, n_labels), got shape {array.shape}"
        )
    if array.dtype == object and array.ndim == 1:
        _check_objects(array)
    return np.asarray(y)


def _check_objects(labels: np.ndarray) -> None:
    """Refuse Python objects that are no labels, or do not sort together."""
    for row, label in enumerate(labels):
        if label is None:
            raise ValueError(f"y[{row}] is None: every row needs a class label")
        if isinstance(label, (list, tuple, set, frozenset, np.ndarray)):
            raise ValueError(
                f"y[{row}] is a {type(label).__name__} of labels; turn several labels a row into "
                "an indicator with sklearn.preprocessing.MultiLabelBinarizer(sparse_output=True)"
            )
    if len({isinstance(label, str) for label in labels}) > 1:
        raise ValueError(
            "y mixes labels of different types (such as str and int); convert them to one type"
        )


def plain(label: Any) -> Any:
    """The Python value of a NumPy scalar, to be read in a message."""
    return label.item() if isinstance(label, np.generic) else label


def _check_indicator(y: Any) -> sp.csr_matrix:
    if sp.issparse(y) and (y.ndim != 2 or y.shape[1] == 0):
        raise ValueError(f"a sparse y must have shape (n_samples, n_labels), got {y.shape}")
    if y.dtype.kind not in "biuf":
        raise ValueError(
            f"a 2-D y must be an indicator of zeros and ones, numbers or bool, got dtype {y.dtype}"
        )
    Y = sp.csr_matrix(y)
    values = Y.data
    wrong = ~np.isin(values, (0, 1))
    if wrong.any():
        row = int(np.searchsorted(Y.indptr, np.flatnonzero(wrong)[0], side="right")) - 1
        raise ValueError(
            f"a 2-D y must be an indicator of zeros and ones, but row {row} holds "
            f"{plain(values[wrong][0])!r}; for one label a row give a 1-D y, for label ids use "
            "sklearn.preprocessing.MultiLabelBinarizer"
        )
    # A copy: what follows works in place, and the arrays are the caller's.
    Y = sp.csr_matrix((values.astype(np.int8), Y.indices, Y.indptr), shape=Y.shape, copy=True)
    if not Y.has_canonical_format:
        Y.sum_duplicates()
        if (Y.data > 1).any():
            raise ValueError("y holds an entry of the sparse indicator more than once")
    Y.eliminate_zeros()
    return Y


def check_y(y: Any) -> Any:
    """Validate y: 1-D labels as an ndarray, an indicator as canonical CSR of int8.

    Raises
    ------
    ValueError
        If y is missing, holds NaN or infinity, is continuous, or is an indicator with values other
        than 0 and 1.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if sp.issparse(y):
        return _check_indicator(y)
    y = check_array(_as_array(y), ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    if y.ndim == 2 and y.shape[1] > 1:
        return _check_indicator(y)
    with warnings.catch_warnings():
        # Few rows a class are what this package is for.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        check_classification_targets(y)
    return column_or_1d(y, warn=True)
