"""Held-out samples: their labels, and how many are used."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import ones_at
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.resolve import LEAST_HELD, Facts


def is_enough(held: Rows | None, facts: Facts) -> bool:
    """Return whether held-out samples suffice for a ranker and a tuned threshold."""
    is_apart = facts.pointwise or facts.one_softmax
    return held is not None and held.Y.nnz > 0 and len(held) >= LEAST_HELD and is_apart


def n_candidates(set_sizes: np.ndarray) -> int:
    """Return how many labels of a sample may be true: twice the most of a training sample.

    `set_sizes`: number of training samples by their number of labels.
    """
    return 2 * max(1, len(set_sizes) - 1)


def labels_of(code: LabelCode, samples: Rows) -> sp.csr_matrix:
    """Return the indicator of the samples' labels, with one column a label id."""
    Y = code.from_positions(samples.Y)
    if Y.dtype.kind == "f":  # soft labels, or counts
        Y = sp.csr_matrix(Y > 0.5, dtype=np.int8)
    if (Y.data != 1).any():  # bags may count their labels
        Y = ones_at(Y.indices, Y.indptr, Y.shape[1])
    return Y


def subsample(samples: Rows, width: int, labelled: bool = False) -> Rows:
    """Return evenly spaced samples, only labelled ones if asked, within `working_memory`."""
    n_rows = max(1, memory_limit() // (16 * width))
    if n_rows >= len(samples):
        return samples
    pool = np.arange(len(samples))
    if labelled and samples.Y.nnz:
        pool = np.flatnonzero(np.diff(samples.Y.indptr))
    n_rows = min(n_rows, len(pool))
    return samples.select(pool[np.linspace(0, len(pool) - 1, n_rows).astype(np.int64)])
