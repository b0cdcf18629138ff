"""Labels of a batch, as a head reads them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Targets:
    """Ragged positives of a batch: row pointers and label places, as in CSR.

    Multi-class is the case of exactly one place a row.

    Parameters
    ----------
    indptr : tensor of shape (n_rows + 1,), int64
        Row i owns ``ids[indptr[i]:indptr[i + 1]]``.
    ids : tensor of shape (n_positives,), int64
        Places of the positive labels, unique within a row.
    """

    indptr: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def rows(self) -> Tensor:
        """Row of each positive, of shape (n_positives,)."""
        counts = self.indptr.diff()
        return torch.repeat_interleave(
            torch.arange(len(self), device=self.ids.device), counts, output_size=len(self.ids)
        )

    def to(self, device: torch.device) -> Targets:
        """Copy to `device`."""
        return Targets(self.indptr.to(device), self.ids.to(device))
