"""Label statistics of training samples: counts, frequencies, weights with mean one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sklearn_xlc._csr import FEW_ENTRIES, row_blocks

#: Label frequencies are not taken to be below this when a head starts from them.
RARE = 1e-6


def frequency(Y: Any, sample_weight: np.ndarray | None) -> torch.Tensor:
    """Weighted share of the samples that hold each label, of shape (n_labels,)."""
    weight = _weights(Y) if sample_weight is None else mean_one(sample_weight)
    share = _sums_by_label(Y, weight, total=weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def label_counts(Y: Any, sample_weight: np.ndarray | None) -> tuple[torch.Tensor, float]:
    """Weighted number of the samples that hold each label, (n_labels,), and of all samples."""
    weight = _weights(Y) if sample_weight is None else sample_weight
    # Bags may count labels; soft labels are below one.
    counts = _sums_by_label(Y, weight, at_most=1)
    return torch.from_numpy(counts), float(weight.sum())


def _weights(Y: Any) -> np.ndarray:
    """A one for each sample, in the memory of one of them."""
    return np.broadcast_to(np.float64(1), Y.shape[0])


def _sums_by_label(
    Y: Any, weight: np.ndarray, total: float = 1.0, at_most: float = np.inf
) -> np.ndarray:
    """Sum over samples of weight / total times entry, block by block and in the order of rows."""
    sums = np.zeros(Y.shape[1])
    for rows in row_blocks(Y.shape[0], 1 + Y.nnz // max(1, Y.shape[0]), FEW_ENTRIES):
        bounds = Y.indptr[rows.start : rows.stop + 1]
        part = slice(bounds[0], bounds[-1])
        of_entry = np.repeat(weight[rows] / total, np.diff(bounds))
        # Not a sum of blocks, which would be rounded in another way than one pass.
        of_entry *= np.minimum(Y.data[part], at_most)
        np.add.at(sums, Y.indices[part].astype(np.intp), of_entry)
    return sums


def mean_one(sample_weight: np.ndarray) -> np.ndarray:
    """Positive weights in float64, scaled to a mean of one.

    The scale of weights does not matter, so neither does the range of float32: scaled first and
    converted then, weights of 1e37 or 1e-40 train as ones do.
    """
    relative = sample_weight.astype(np.float64) / sample_weight.max()
    return relative / relative.mean()
