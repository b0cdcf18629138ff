"""Heads of which each process holds the weights of some labels.

Each process reads the features of all samples of a batch, and computes what the labels that it
holds add to the loss and to the gradient of the features. Loss and gradient are then summed, and
equal in all processes; so are the gradients of what each process has all of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklearn_xlc.batches.processes import Processes, training_processes
from sklearn_xlc.batches.targets import Targets
from sklearn_xlc.heads._base import Head
from sklearn_xlc.heads.losses import Labels
from sklearn_xlc.heads.ranking import topk_by_position


class Shard(NamedTuple):
    """Rows of a head's tables that this process holds: one a label, or one a group of labels.

    Parameters
    ----------
    processes : Processes
        Those that hold the head together.
    n_labels : int
        Number of labels of all processes.
    unit : int, default=1
        Number of neighbouring labels that share a row; the last one may have fewer.

    Examples
    --------
    >>> from sklearn_xlc.batches.processes import Processes
    >>> from sklearn_xlc.heads.sharding import Shard
    >>> shard = Shard(Processes(rank=1, size=3), n_labels=10)
    >>> shard.start, shard.stop, shard.own(slice(4, 6))
    (3, 6, slice(1, 3, None))
    """

    processes: Processes
    n_labels: int
    unit: int = 1

    @classmethod
    def of_fit(cls, n_labels: int, unit: int = 1) -> Shard | None:
        """Shard of a head that is built in a fit over processes; None in any other."""
        processes = training_processes()
        if processes is None:
            return None
        shard = cls(processes, n_labels, unit)
        if shard.n_rows < processes.size:
            raise ValueError(
                f"{processes.size} processes cannot share {shard.n_rows} labels, or groups of "
                "labels: start fewer, or set distributed=False"
            )
        return shard

    @property
    def n_rows(self) -> int:
        """Number of rows of all processes."""
        return -(-self.n_labels // self.unit)

    @property
    def start(self) -> int:
        return self.processes.part(self.n_rows).start

    @property
    def stop(self) -> int:
        return self.processes.part(self.n_rows).stop

    @property
    def n_held(self) -> int:
        """Number of rows that this process holds."""
        return self.stop - self.start

    @property
    def labels(self) -> slice:
        """Labels whose weights this process holds."""
        return slice(self.start * self.unit, min(self.stop * self.unit, self.n_labels))

    def own(self, rows: Labels) -> Labels:
        """Where rows, which are own ones, lie in the table of this process."""
        start = self.start
        if isinstance(rows, slice) and rows.start is None:
            self.refuse_part()
        if isinstance(rows, slice):
            return slice(rows.start - start, rows.stop - start)
        return rows - start

    def refuse_part(self) -> None:
        """Raise ValueError where some labels are not enough."""
        raise ValueError(
            f"this needs the weights of all labels, and each of {self.processes.size} processes "
            "holds some of them: sklearn_xlc.distributed.gather(estimator) joins them"
        )

    def holds(self, rows: Tensor) -> Tensor:
        """Mask of the rows that this process holds."""
        return (rows >= self.start) & (rows < self.stop)

    def select(self, targets: Targets) -> tuple[Targets, Tensor]:
        """Positives whose labels this process holds, and the mask of them among all positives."""
        held = self.holds(targets.ids)
        rows = targets.rows[held]
        starts = torch.arange(len(targets) + 1, device=rows.device)
        values = None if targets.values is None else targets.values[held]
        part = Targets(torch.searchsorted(rows, starts), targets.ids[held], values)
        part.rows = rows
        return part, held

    def joined(self, part: Tensor) -> Tensor:
        """A table of all rows, of which `part` has those of this process."""
        return self.processes.joined_parts(part, self.n_rows)

    def joined_columns(self, own: Tensor) -> Tensor:
        """Columns of all labels, of which `own` has those of this process."""
        edges = [min(row * self.unit, self.n_labels) for row in self.processes.edges(self.n_rows)]
        sizes = [b - a for a, b in zip(edges, edges[1:])]
        return self.processes.joined(own.T.contiguous(), sizes).T.contiguous()

    def merged(self, scores: Tensor, positions: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best labels of all processes; each gives its best, equal scores by position."""
        missing = k - scores.shape[1]
        if missing:  # all send alike
            scores = nn.functional.pad(scores, (0, missing), value=-torch.inf)
            positions = nn.functional.pad(positions, (0, missing), value=self.n_labels)
        sizes = [k] * self.processes.size
        scores = self.processes.joined(scores.T.contiguous(), sizes).T
        positions = self.processes.joined(positions.T.contiguous(), sizes).T
        return topk_by_position(scores.contiguous(), k, positions.contiguous())


def in_parts(head: Head) -> bool:
    """Whether each of several processes computes the loss of some labels of a head."""
    return head.shard is not None or bool(head.sharded_parameters())


def rows_held(shard: Shard | None, n_rows: int) -> int:
    """Number of rows that this process holds of a table of `n_rows`."""
    return n_rows if shard is None else shard.n_held


@torch.no_grad()
def draw_normal(table: Tensor, std: float, shard: Shard | None) -> None:
    """Fill a table with normal numbers: the rows that a process holds have those of the whole.

    All rows are drawn, block by block: as much work in each process as for the whole table, once a
    fit, and no memory. Blocks of 16 rows begin where torch's kernel begins a vector.
    """
    if shard is None:
        table.normal_(std=std)
        return
    first, size = 0, 16 * max(1, 2**16 * len(table) // table.numel())
    start, stop, n_rows = shard.start, shard.stop, shard.n_rows
    while first < n_rows:
        last = first + size if first + size + 16 <= n_rows else n_rows
        block = table.new_empty(last - first, *table.shape[1:]).normal_(std=std)
        a, b = max(first, start), min(last, stop)
        if a < b:
            table[a - start : b - start] = block[a - first : b - first]
        first = last


def summed(shard: Shard | None, *tensors: Tensor) -> Sequence[Tensor]:
    """Sum tensors of one type over the processes, in one message."""
    return tensors if shard is None else shard.processes.sum_together(tensors)


def logsumexp_of_all(shard: Shard | None, held: Tensor) -> Tensor:
    """Log-sum-exp over the processes of each number in a tensor."""
    if shard is None:
        return held
    sizes = [1] * shard.processes.size
    return shard.processes.joined(held[None], sizes).logsumexp(0)


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


def read_by_all(shard: Shard | None, tensor: Tensor) -> Tensor:
    """A tensor, equal in all processes, that each reads for the labels that it holds.

    Each finds its own part of the gradient; all then go on with the sum.
    """
    return tensor if shard is None else _ReadByAll.apply(tensor, shard.processes)


def sum_of_all(shard: Shard | None, own: Tensor) -> Tensor:
    """Sum over the processes of what each has found for its labels; differentiable."""
    return own if shard is None else _Summed.apply(own.clone(), shard.processes)


def joined_sum(shard: Shard | None, own: Tensor, held: Labels, n_rows: int) -> Tensor:
    """Rows of which each process has found those at `held`, in all processes; differentiable."""
    if not isinstance(held, Tensor):
        return own
    return sum_of_all(shard, own.new_zeros(n_rows, *own.shape[1:]).index_copy(0, held, own))


class _Normalisers(torch.autograd.Function):
    """Log-sum-exp over the processes of each row, and the sum of a number, in one message."""

    @staticmethod
    def forward(ctx: Any, held: Tensor, found: Tensor, shard: Shard) -> tuple[Tensor, Tensor]:
        sizes = [1] * shard.processes.size
        of_each = shard.processes.joined(torch.cat([held, found[None]])[None], sizes)
        total = of_each[:, :-1].logsumexp(0)
        ctx.save_for_backward((held - total).exp())
        return total, of_each[:, -1].sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return grad_outputs[0] * ctx.saved_tensors[0], grad_outputs[1], None


def shared_cross_entropy(
    shard: Shard, logits: Tensor, at: tuple[Tensor, Tensor], share: Tensor
) -> Tensor:
    """Softmax cross-entropy over the columns of all processes.

    Parameters
    ----------
    shard : Shard
        What this process holds.
    logits : tensor of shape (n_rows, n_held)
        Logits of the own columns.
    at : pair of tensors
        Rows and columns of the true labels that are held here.
    share : tensor of shape (n_rows,)
        Weight of each row, which has one true label.

    Returns
    -------
    tensor of shape ()
        Loss of all processes; its gradient is that of the own logits.
    """
    found = share[at[0]] @ logits[at]
    normaliser, total = _Normalisers.apply(logits.logsumexp(1), found, shard)
    return share @ normaliser - total
