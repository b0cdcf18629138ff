"""Labels of groups, and label counts: the number of a group's samples with each label."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d

from sklearn_xlc._checks import (
    check_counts,
    check_csr,
    check_numbers,
    check_objects,
    check_sparse,
    is_indicator,
    refuse_continuous,
)
from sklearn_xlc._csr import one_per_row, row_of
from sklearn_xlc.groups._groups import Groups


def split_counts(y: Any) -> tuple[Any, sp.csr_matrix | None]:
    """Split a y of label counts into indicator and counts; return any other y with None.

    Raises
    ------
    ValueError
        If y holds numbers above one, and also negative or fractional numbers.
    """
    if y is None or not is_indicator(y):
        return y, None
    matrix = check_sparse(y, "y") if sp.issparse(y) else np.asarray(y)
    if matrix.dtype.kind not in "iuf" or not (check_csr(matrix, "y").data > 1).any():
        return y, None
    counts = sp.csr_matrix(check_counts(matrix, "y"))
    indicator = counts.astype(bool).astype(np.int8)
    return (indicator if sp.issparse(y) else indicator.toarray()), counts


def check_group_counts(counts: sp.csr_matrix, groups: Groups) -> sp.csr_matrix:
    """Raise ValueError if a label count exceeds the size of the group."""
    wrong = np.flatnonzero(counts.data > _sizes(counts, groups))
    if len(wrong):
        group, label = row_of(counts, wrong[0]), counts.indices[wrong[0]]
        raise ValueError(
            f"y says that label {label} occurs {counts.data[wrong[0]]} times in the group of row "
            f"{groups.samples[groups.indptr[group]]}, which has {groups.sizes[group]} sample(s); "
            "a sample has a label at most once; if the numbers are not counts, set "
            "multiplicity='ignore'"
        )
    return counts


def cap_counts(counts: sp.csr_matrix, groups: Groups) -> sp.csr_matrix:
    """Limit counts to the size of the group."""
    data = np.minimum(counts.data, _sizes(counts, groups))
    return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def _sizes(counts: sp.csr_matrix, groups: Groups) -> np.ndarray:
    """Return the size of the group of each stored count."""
    return np.repeat(groups.sizes, np.diff(counts.indptr))


def labels_of_groups(y: Any, classes: np.ndarray | None) -> tuple[sp.csr_array, np.ndarray | None]:
    """Return label counts as canonical CSR, and the classes of a 1-D y."""
    if not sp.issparse(y):
        y = check_numbers(y, "y", ensure_2d=False, dtype=None, ensure_min_samples=0)
        if y.ndim == 1 or y.shape[1] == 1 and y.dtype.kind not in "biuf":
            y = column_or_1d(y)
            if y.dtype == object:
                check_objects(y)
            return _check_classes(y, classes)
    if 0 in y.shape[1:]:
        raise ValueError(f"y must have a column for each label, got shape {y.shape}")
    return check_counts(y, "y"), None


def _check_classes(y: np.ndarray, classes: np.ndarray | None) -> tuple[sp.csr_array, np.ndarray]:
    """Return the indicator of a 1-D y, and its classes."""
    refuse_continuous(y)
    known, ids = np.unique(y, return_inverse=True)
    if classes is not None:
        unknown = np.flatnonzero(~np.isin(y, classes))
        if len(unknown):
            raise ValueError(
                f"y holds the label {y[unknown[0]]} in row {unknown[0]}, which did not occur in fit"
            )
        known, ids = classes, np.searchsorted(classes, y)
    return one_per_row(ids, len(known), np.int32), known
