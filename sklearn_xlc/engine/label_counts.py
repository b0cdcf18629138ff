"""Label statistics of training samples: counts and frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sklearn_xlc._csr import FEW_ENTRIES, row_blocks

#: Lower bound of label frequencies in the first scores of a head.
RARE = 1e-6


def frequency(Y: Any, sample_weight: np.ndarray | None) -> torch.Tensor:
    """Compute the weighted frequency of each label, of shape (n_labels,)."""
    weight = _weights(Y) if sample_weight is None else mean_one(sample_weight)
    share = _sums_by_label(Y, weight, total=weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def label_counts(Y: Any, sample_weight: np.ndarray | None) -> tuple[torch.Tensor, float]:
    """Count the samples with each label, (n_labels,), and all samples, by weight."""
    weight = _weights(Y) if sample_weight is None else sample_weight
    # Bags may count labels; soft labels are below one.
    counts = _sums_by_label(Y, weight, at_most=1)
    return torch.from_numpy(counts), float(weight.sum())


def _weights(Y: Any) -> np.ndarray:
    """Return ones for all samples, in the memory of a single number."""
    return np.broadcast_to(np.float64(1), Y.shape[0])


def _sums_by_label(
    Y: Any, weight: np.ndarray, total: float = 1.0, at_most: float = np.inf
) -> np.ndarray:
    """Sum weight / total times entry over samples, block by block in the order of rows."""
    sums = np.zeros(Y.shape[1])
    for rows in row_blocks(Y.shape[0], 1 + Y.nnz // max(1, Y.shape[0]), FEW_ENTRIES):
        bounds = Y.indptr[rows.start : rows.stop + 1]
        part = slice(bounds[0], bounds[-1])
        of_entry = np.repeat(weight[rows] / total, np.diff(bounds))
        # One pass: a sum of sums by block would be rounded differently.
        of_entry *= np.minimum(Y.data[part], at_most)
        np.add.at(sums, Y.indices[part].astype(np.intp), of_entry)
    return sums


def mean_one(sample_weight: np.ndarray) -> np.ndarray:
    """Scale positive weights to a mean of one, in float64.

    Weights of 1e37 or 1e-40 then train as ones do: they are scaled before they become float32.
    """
    relative = sample_weight.astype(np.float64) / sample_weight.max()
    return relative / relative.mean()
