"""Batch of CSR rows, in the form that encoders read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


class Transpose(NamedTuple):
    """Batch by column: row i in CSR form belongs to column ``columns[i]`` of X."""

    columns: Tensor
    indptr: Tensor
    indices: Tensor
    data: Tensor


@dataclass
class SparseRows:
    """Batch of CSR rows.

    Parameters
    ----------
    indptr, indices, data : tensors of shape (n_samples + 1,), (nnz,), (nnz,)
        The rows in CSR form; `indices` are column numbers of X.
    n_features : int
        Number of columns of X.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sklearn_xlc.batches import SparseRows
    >>> rows = SparseRows.from_csr(sp.csr_matrix([[0, 2.0, 0], [1.0, 3.0, 0]]))
    >>> len(rows), rows.indices
    (2, tensor([1, 0, 1]))
    >>> rows.transpose.columns, rows.transpose.indices
    (tensor([0, 1]), tensor([1, 0, 1]))
    """

    indptr: Tensor
    indices: Tensor
    data: Tensor
    n_features: int

    @classmethod
    def from_csr(cls, X: Any) -> SparseRows:
        """Convert a SciPy sparse matrix to tensors, which share its memory if types allow."""
        X = sp.csr_matrix(X)
        return cls(
            indptr=torch.from_numpy(X.indptr.astype(np.int64)),
            indices=torch.from_numpy(X.indices.astype(np.int64)),
            data=torch.from_numpy(X.data),
            n_features=X.shape[1],
        )

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def to(self, device: torch.device) -> SparseRows:
        """Copy to `device`."""
        return SparseRows(
            self.indptr.to(device), self.indices.to(device), self.data.to(device), self.n_features
        )

    @cached_property
    def transpose(self) -> Transpose:
        """Batch by column, for the backward pass; computed once, on first access."""
        n_entries, device = len(self.indices), self.indices.device
        # One sort of joint keys (column, entry) is several times faster than a stable sort.
        keys = self.indices * max(1, n_entries) + torch.arange(n_entries, device=device)
        keys = torch.from_numpy(np.sort(keys.numpy())) if keys.is_cpu else keys.sort().values
        column_of_entry = keys // max(1, n_entries)
        order = keys - column_of_entry * n_entries
        columns, counts = torch.unique_consecutive(column_of_entry, return_counts=True)
        indptr = counts.new_zeros(len(columns) + 1)
        torch.cumsum(counts, 0, out=indptr[1:])
        samples = torch.repeat_interleave(
            torch.arange(len(self), device=device), self.indptr.diff(), output_size=n_entries
        )
        return Transpose(columns, indptr, samples[order], self.data[order])
