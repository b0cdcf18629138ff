"""Probabilities of labels in place of an indicator, for classifiers of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp


@dataclass(frozen=True)
class SoftLabels:
    """Soft targets of `fit`: the probability that a sample carries a label.

    Losses read the probabilities; what only counts or tunes labels reads those above one half.

    Parameters
    ----------
    probabilities : canonical csr_matrix of shape (n_samples, n_labels) and dtype float32
        Probabilities in (0, 1].
    like : {ndarray, sparse matrix} of shape (any, n_labels)
        Indicator in the form in which to predict.
    """

    probabilities: sp.csr_matrix
    like: Any
