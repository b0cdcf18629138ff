"""Probabilities of labels as targets of `fit`, in place of an indicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp


@dataclass(frozen=True)
class SoftLabels:
    """Soft targets of `fit`: probabilities in (0, 1], canonical float32 CSR (n_samples, n_labels).

    Losses read the probabilities. Counts and decisions take labels above one half as true. `like`
    is an indicator in the form of predictions.
    """

    probabilities: sp.csr_matrix
    like: Any
