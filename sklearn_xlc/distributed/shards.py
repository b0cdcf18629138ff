"""Heads with the weights of some labels in each process.

Each process reads the features of all samples of a batch, and computes what the labels that it
holds add to the loss and to the gradient of the features. Loss and gradient are then summed, and
equal in all processes; so are the gradients of what each process has all of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.heads import Head, Labels, ShardOf, Whole, topk_by_position, whole


@dataclass(frozen=True)
class Shard(Whole):
    """Rows of a head's tables in one of several processes; `unit` neighbouring labels share one."""

    processes: Processes
    n_labels: int
    unit: int = 1
    is_part = True

    @property
    def n_rows(self) -> int:
        """Number of rows of all processes."""
        return -(-self.n_labels // self.unit)

    @property
    def start(self) -> int:  # type: ignore[override]
        """First row of this process."""
        return self.processes.part(self.n_rows).start

    @property
    def stop(self) -> int:
        """Row after the last one of this process."""
        return self.processes.part(self.n_rows).stop

    # --- rows and labels ------------------------------------------------------------------

    def n_held(self, n_rows: int = 0) -> int:
        return self.stop - self.start

    def labels(self, n_labels: int = 0) -> slice:
        return slice(self.start * self.unit, min(self.stop * self.unit, self.n_labels))

    def own(self, rows: Labels) -> Labels:
        start = self.start
        if not isinstance(rows, slice):
            return rows - start
        if rows.start is None:
            self.refuse_part()
        return slice(rows.start - start, rows.stop - start)

    def holds(self, rows: Tensor) -> Tensor:
        return (rows >= self.start) & (rows < self.stop)

    def chosen(self, labels: Tensor, *values: Tensor, unit: int = 1) -> tuple[Tensor, ...]:
        held = self.holds(labels // unit)
        return labels[held], *(each[held] for each in values)

    def positions(self, labels: Tensor, table: Tensor, width: int) -> Tensor:
        own = labels - self.start * (table[:1].numel() // width)
        return own[(own >= 0) & (own < table.numel() // width)]

    def of(self, parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, Any]:
        return dict.fromkeys(parameters, self)

    def refuse_part(self) -> NoReturn:
        raise ValueError(
            f"this needs the weights of all labels, and each of {self.processes.size} processes "
            "holds some of them: sklearn_xlc.distributed.gather(estimator) joins them"
        )

    # --- tables ---------------------------------------------------------------------------

    def joined(self, part: Tensor) -> Tensor:
        return self.processes.joined_parts(part, self.n_rows)

    def rows_at(self, table: Tensor, labels: Tensor, unit: int = 1) -> Tensor:
        found = table.new_zeros(*labels.shape, *table.shape[1:])
        held = self.holds(labels // unit)
        found[held] = table.detach()[labels[held] - self.start * unit]
        return self.processes.sum(found)

    @torch.no_grad()
    def draw_normal(self, table: Tensor, std: float) -> None:
        # All rows are drawn, block by block: as much work in each process as for the whole table,
        # once a fit, and no memory. Blocks of 16 rows begin where torch's kernel begins a vector.
        first, size = 0, 16 * max(1, 2**16 * len(table) // table.numel())
        start, stop, n_rows = self.start, self.stop, self.n_rows
        while first < n_rows:
            last = first + size if first + size + 16 <= n_rows else n_rows
            block = table.new_empty(last - first, *table.shape[1:]).normal_(std=std)
            a, b = max(first, start), min(last, stop)
            if a < b:
                table[a - start : b - start] = block[a - first : b - first]
            first = last

    # --- losses ---------------------------------------------------------------------------

    def sum(self, *tensors: Tensor) -> Sequence[Tensor]:
        return self.processes.sum_together(tensors)

    def read_by_all(self, tensor: Tensor) -> Tensor:
        return _ReadByAll.apply(tensor, self.processes)

    def sum_of_all(self, own: Tensor) -> Tensor:
        return _Summed.apply(own.clone(), self.processes)

    def joined_sum(self, own: Tensor, held: Any, n_rows: int) -> Tensor:
        rows = held.nonzero()[:, 0]
        return self.sum_of_all(own.new_zeros(n_rows, *own.shape[1:]).index_copy(0, rows, own))

    def logsumexp(self, held: Tensor) -> Tensor:
        return self.processes.stacked(held).logsumexp(0)

    def surprises(self, logits: Tensor, at: tuple[Any, Tensor]) -> Tensor:
        true = logits.new_zeros(len(logits)).index_put((at[0],), logits[at])
        own = torch.stack([logits.logsumexp(1), true])  # in one message
        of_each = Joined.apply(own[None], self.processes, self.processes.size)
        return of_each[:, 0].logsumexp(0) - of_each[:, 1].sum(0)

    def normalisers(
        self, negative: Tensor, highest: Tensor, rows: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        ones = torch.zeros_like(negative).index_add(0, rows, (logits - highest[rows]).exp())
        of_positives = (highest + ones.log()).clamp_min(torch.finfo(negative.dtype).min / 4)
        negative, of_positives = self.logsumexp(torch.stack([negative, of_positives]))
        return negative, torch.logaddexp(negative, of_positives)

    # --- rankings -------------------------------------------------------------------------

    def merged(self, scores: Tensor, positions: Tensor, k: int) -> tuple[Tensor, Tensor]:
        missing = k - scores.shape[1]
        if missing:  # all send alike
            scores = nn.functional.pad(scores, (0, missing), value=-torch.inf)
            positions = nn.functional.pad(positions, (0, missing), value=self.n_labels)
        sizes = [k] * self.processes.size
        scores = self.processes.joined(scores.T.contiguous(), sizes).T
        positions = self.processes.joined(positions.T.contiguous(), sizes).T
        return topk_by_position(scores.contiguous(), k, positions.contiguous())

    def joined_columns(self, own: Tensor) -> Tensor:
        edges = [min(row * self.unit, self.n_labels) for row in self.processes.edges(self.n_rows)]
        sizes = [b - a for a, b in zip(edges, edges[1:])]
        return self.processes.joined(own.T.contiguous(), sizes).T.contiguous()


def sharding(processes: Any) -> ShardOf:
    """Return the function to make shards of heads for `processes`."""
    if processes.size == 1:
        return whole

    def shard_of(n_labels: int, unit: int = 1) -> Shard:
        shard = Shard(processes, n_labels, unit)
        if shard.n_rows < processes.size:
            raise ValueError(
                f"{processes.size} processes cannot share {shard.n_rows} labels, or groups of "
                "labels: start fewer, or set distributed=False"
            )
        return shard

    return shard_of


def in_parts(head: Head) -> bool:
    """Return whether each of several processes computes the loss of some labels of a head."""
    return head.shard.is_part or bool(head.sharded_parameters())


class _ReadByAll(torch.autograd.Function):
    """The same tensor; its gradient is summed over the processes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return tensor.view_as(tensor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.processes.sum_together(grad_outputs), None


class _Summed(torch.autograd.Function):
    """Sum over the processes, in place; all of them have the same gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: Processes) -> Tensor:
        ctx.mark_dirty(tensor)
        return processes.sum(tensor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return grad_outputs[0], None


class Joined(torch.autograd.Function):
    """Rows of all processes, with the gradient of this one's from that of all."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, processes: Processes, n_rows: int) -> Tensor:
        ctx.part = processes.part(n_rows)
        return processes.joined_parts(own, n_rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return grad_outputs[0][ctx.part], None, None
