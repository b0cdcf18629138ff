"""A batch of CSR rows, as an encoder reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass
class SparseRows:
    """A batch of CSR rows, with its transpose, over the columns that occur in it.

    The transpose travels along because the backward pass reads the batch by column, and
    because building it in NumPy while the batch is cut costs a tenth of what sorting the
    gradient would.

    Parameters
    ----------
    indptr, indices, data : tensors of shape (n_rows + 1,), (nnz,), (nnz,)
        The rows in CSR form; `indices` are the original column numbers.
    columns : tensor of shape (n_columns,)
        The distinct columns of the batch, ascending.
    t_indptr, t_indices, t_data : tensors of shape (n_columns + 1,), (nnz,), (nnz,)
        The same entries by column: row t of the transpose belongs to ``columns[t]``.
    n_features : int
        Number of columns of the whole matrix.
    """

    indptr: Tensor
    indices: Tensor
    data: Tensor
    columns: Tensor
    t_indptr: Tensor
    t_indices: Tensor
    t_data: Tensor
    n_features: int

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def to(self, device: torch.device) -> SparseRows:
        """Copy to `device`."""
        tensors: dict[str, Any] = {
            k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)
        }
        return replace(self, **tensors)
