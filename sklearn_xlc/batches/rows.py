"""Cutting batches from arrays: rows stay sparse, labels stay ragged, nothing is collated by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sklearn_xlc.batches.bags import Bags
from sklearn_xlc.batches.sparse_rows import SparseRows
from sklearn_xlc.batches.targets import Targets


@dataclass
class Rows:
    """Samples with, where they are known, their labels and weights.

    A sample is a row of X or, with `bags`, several: they travel together.

    Parameters
    ----------
    X : CSR matrix or ndarray of shape (n_samples, n_features), or of (n_instances, n_features)
    Y : CSR matrix of shape (n_samples, n_labels), or None
        Indicator of the places of the labels.
    sample_weight : ndarray of shape (n_samples,), or None
    sparse : bool
        Whether batches of X are handed on as :class:`~sklearn_xlc.batches.SparseRows`, or dense.
    bags : ndarray of shape (n_samples + 1,), or None
        Sample i owns the rows ``bags[i], ..., bags[i + 1] - 1`` of X, at least one.
    """

    X: Any
    Y: Any = None
    sample_weight: np.ndarray | None = None
    sparse: bool = False
    bags: np.ndarray | None = None

    def __len__(self) -> int:
        return self.X.shape[0] if self.bags is None else len(self.bags) - 1

    def take(self, index: np.ndarray | slice) -> Rows:
        """Samples of `index`."""
        rows, bags = index, None
        if self.bags is not None:
            rows, bags = _rows_of_bags(self.bags, index)
        return Rows(
            self.X[rows],
            None if self.Y is None else self.Y[index],
            None if self.sample_weight is None else self.sample_weight[index],
            self.sparse,
            bags,
        )


@dataclass
class Batch:
    """What a training step sees: inputs, targets, weights."""

    inputs: Tensor | SparseRows | Bags
    targets: Targets | None
    sample_weight: Tensor | None

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> Batch:
        """Copy to `device`."""
        if device.type == "cpu":
            return self
        return Batch(
            self.inputs.to(device),
            None if self.targets is None else self.targets.to(device),
            None if self.sample_weight is None else self.sample_weight.to(device),
        )


class BatchIterator:
    """Iterate over batches of `rows`, whole arrays at a time.

    Parameters
    ----------
    rows : Rows
    batch_size : int
    rng : numpy Generator or None
        Shuffles the rows anew in every pass; None keeps their order.
    device : torch.device
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        rng: np.random.Generator | None,
        device: torch.device,
    ) -> None:
        self.rows, self.batch_size, self.rng, self.device = rows, batch_size, rng, device

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        n_samples = len(self.rows)
        order = None if self.rng is None else self.rng.permutation(n_samples)
        for start in range(0, n_samples, self.batch_size):
            stop = min(start + self.batch_size, n_samples)
            index = slice(start, stop) if order is None else order[start:stop]
            yield make_batch(self.rows.take(index)).to(self.device)


def make_batch(rows: Rows) -> Batch:
    """Tensors of a few rows."""
    inputs: Any = _sparse_inputs(rows.X) if rows.sparse else _dense_inputs(rows.X)
    if rows.bags is not None:
        inputs = Bags(inputs, torch.from_numpy(rows.bags.astype(np.int64)))
    targets = None
    if rows.Y is not None:
        indptr = torch.from_numpy(rows.Y.indptr.astype(np.int64))
        values = torch.from_numpy(rows.Y.data) if rows.Y.dtype.kind == "f" else None
        targets = Targets(indptr, torch.from_numpy(rows.Y.indices.astype(np.int64)), values)
    weight = None if rows.sample_weight is None else torch.from_numpy(rows.sample_weight)
    return Batch(inputs, targets, weight)


def _rows_of_bags(bags: np.ndarray, index: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the bags of `index`, bag after bag, and the pointers of these bags into them."""
    starts, sizes = bags[:-1][index], np.diff(bags)[index]
    pointers = np.concatenate([[0], np.cumsum(sizes)])
    return np.repeat(starts - pointers[:-1], sizes) + np.arange(pointers[-1]), pointers


def _dense_inputs(X: Any) -> Tensor:
    dense = X.toarray() if sp.issparse(X) else np.ascontiguousarray(X)
    # A slice still is the caller's array: it may be read-only, and no encoder may write to it.
    return torch.from_numpy(dense if dense.flags.owndata else dense.copy())


def _sparse_inputs(X: Any) -> SparseRows:
    X = sp.csr_matrix(X)
    columns, position = np.unique(X.indices, return_inverse=True)
    compact = sp.csr_matrix((X.data, position, X.indptr), shape=(X.shape[0], len(columns)))
    transposed = compact.T.tocsr()
    as_tensor = torch.from_numpy
    return SparseRows(
        indptr=as_tensor(X.indptr.astype(np.int64)),
        indices=as_tensor(X.indices.astype(np.int64)),
        data=as_tensor(X.data),
        columns=as_tensor(columns.astype(np.int64)),
        t_indptr=as_tensor(transposed.indptr.astype(np.int64)),
        t_indices=as_tensor(transposed.indices.astype(np.int64)),
        t_data=as_tensor(transposed.data),
        n_features=X.shape[1],
    )
