"""CSR rows of a batch shared by several processes: the own rows, and the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sklearn_xlc.batches.sparse_rows import SparseRows


@dataclass
class SharedRows(SparseRows):
    """Rows of a batch read by this process: `shares` of the rows of `whole`, in order of processes.

    An input layer may append its outputs to `outputs`, as leaves of the graph, instead of computing
    the gradient of its weights. Processes then exchange the gradients of these outputs, which are
    smaller: they have one row per sample, the gradient of the weights one row per column in use.
    """

    whole: SparseRows
    shares: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.outputs: list[tuple[Any, Tensor]] = []

    @classmethod
    def of_batch(cls, whole: SparseRows, own: slice, shares: Sequence[int]) -> SharedRows:
        """Select the rows `own` of a batch."""
        part = whole.split([own.start, own.stop - own.start, len(whole) - own.stop])[1]
        return cls(part.indptr, part.indices, part.data, part.n_features, whole, shares)

    def through(self, layer: Any) -> Tensor:
        is_plain = torch.is_grad_enabled() and layer.is_plain() and not self.data.requires_grad
        if not is_plain:
            return super().through(layer)
        outputs = layer.constant(self).requires_grad_()
        self.outputs.append((layer, outputs))
        return outputs

    def transpose_now(self) -> None:
        """Compute and cache the transpose of the whole batch, also for copies."""
        self.whole.transpose_now()

    def _changed(self, change: Callable[[Tensor], Tensor]) -> SharedRows:
        own, whole = super()._changed(change), self.whole._changed(change)
        return SharedRows(own.indptr, own.indices, own.data, own.n_features, whole, self.shares)
