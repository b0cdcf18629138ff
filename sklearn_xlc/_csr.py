"""Matrices in CSR form: canonical ones, and whether a matrix is mostly zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

#: Matrices whose share of non-zeros is below this are cheaper to multiply as sparse ones.
SPARSE_SHARE = 0.1


def is_mostly_zeros(X: Any) -> bool:
    """Whether X is mostly zeros, however it is stored: dense and CSR then take the same path."""
    n_nonzero = X.count_nonzero() if sp.issparse(X) else np.count_nonzero(X)
    return bool(n_nonzero < SPARSE_SHARE * X.shape[0] * X.shape[1])


def canonical(X: Any) -> Any:
    """X with ascending, distinct columns and no stored zeros: the sums of a dense row, in order."""
    if sp.issparse(X) and not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X
