"""Labels of a batch, as tensors for heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from sklearn_xlc.batches.prefetching import Movable


@dataclass
class Targets(Movable):
    """Positive labels of a batch in CSR form: row pointers and label positions.

    In multi-class, every row has exactly one label.

    Parameters
    ----------
    indptr : tensor of shape (n_rows + 1,), int64
        Row i owns ``ids[indptr[i]:indptr[i + 1]]``.
    ids : tensor of shape (n_positives,), int64
        Positions of the positive labels, unique within a row.
    values : tensor of shape (n_positives,), default=None
        Soft targets in (0, 1], or counts of labels (:class:`~sklearn_xlc.heads.MIMLHead`), one per
        positive label. None: all are 1.
    """

    indptr: Tensor
    ids: Tensor
    values: Tensor | None = None

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def split(self, sizes: Sequence[int]) -> list[Targets]:
        """Split into targets of these numbers of rows, sharing memory."""
        edges = [0, *accumulate(sizes)]
        starts = self.indptr[edges].tolist()
        parts = []
        for a, b, first, last in zip(edges, edges[1:], starts, starts[1:]):
            values = None if self.values is None else self.values[first:last]
            part = Targets(self.indptr[a : b + 1] - first, self.ids[first:last], values)
            part.rows = self.rows[first:last] - a
            parts.append(part)
        return parts

    @cached_property
    def rows(self) -> Tensor:
        """Row of each positive label, of shape (n_positives,)."""
        return torch.repeat_interleave(self.indptr.diff(), output_size=len(self.ids))

    def values_like(self, like: Tensor) -> Tensor:
        """Return the target of each positive label, with the dtype and device of `like`."""
        return like.new_ones(len(self.ids)) if self.values is None else self.values.to(like)

    def repeated(self, n: int) -> Targets:
        """Repeat all rows n times, one copy after the other."""
        starts = torch.arange(n, device=self.ids.device)[:, None] * len(self.ids)
        indptr = torch.cat([self.indptr[:1], (self.indptr[1:] + starts).flatten()])
        values = None if self.values is None else self.values.repeat(n)
        return Targets(indptr, self.ids.repeat(n), values)
