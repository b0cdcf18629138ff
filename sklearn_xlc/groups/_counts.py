"""Counts of labels in groups: how many samples of a group carry each label."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_counts, check_sparse, is_indicator
from sklearn_xlc._csr import row_of
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
    if matrix.dtype.kind not in "iuf" or not (sp.csr_matrix(matrix).data > 1).any():
        return y, None
    counts = sp.csr_matrix(check_counts(matrix, "y"))
    indicator = counts.astype(bool).astype(np.int8)
    return (indicator if sp.issparse(y) else indicator.toarray()), counts


def check_group_counts(counts: sp.csr_matrix, groups: Groups) -> sp.csr_matrix:
    """Raise ValueError if a group has more of a label than samples."""
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
    """Limit counts to the number of samples of the group."""
    data = np.minimum(counts.data, _sizes(counts, groups))
    return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def _sizes(counts: sp.csr_matrix, groups: Groups) -> np.ndarray:
    """Size of the group of each stored count."""
    return np.repeat(groups.sizes, np.diff(counts.indptr))
