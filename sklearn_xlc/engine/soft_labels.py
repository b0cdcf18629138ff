"""Probabilities of labels as targets of `fit`, in place of an indicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp


@dataclass(frozen=True)
class SoftLabels:
    """Soft targets of `fit`: probabilities of labels.

    Losses read the probabilities. Counts and decisions take labels above one half as true.

    Parameters
    ----------
    probabilities : canonical csr_matrix of shape (n_samples, n_labels) and dtype float32
        Probabilities in (0, 1].
    like : {ndarray, sparse matrix} of shape (any, n_labels)
        Indicator in the form of predictions.
    """

    probabilities: sp.csr_matrix
    like: Any
