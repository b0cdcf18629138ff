"""Copy a module and its optimiser with labels added or removed."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from sklearn_xlc.distributed import as_kind_of
from sklearn_xlc.heads import WHOLE, losses_of, origins
from sklearn_xlc.training.optimizer import RowOptimizer


def with_room(module: Any, n_labels: int, optimizer: RowOptimizer) -> tuple[Any, RowOptimizer]:
    """Copy a module and its optimiser, with zero rows for `n_labels` labels in all."""
    head = module.head
    n_more = n_labels - head.n_labels
    rows = dict(head.room_for(n_labels)) if n_more else {}
    if n_more:
        for buffer in (each for loss in losses_of(head) for each in loss.buffers(recurse=False)):
            if buffer.shape[:1] == (head.n_labels,):  # with an entry for each label
                rows[buffer] = origins(len(buffer), n_more, buffer.device)
    memo = {id(old): as_kind_of(old, _moved(old, of)) for old, of in rows.items()}
    made = copy.deepcopy(module, memo)
    device = next(head.parameters(), torch.zeros(())).device
    free = torch.zeros(head.n_labels, dtype=torch.bool, device=device)
    free = free if head.free is None else head.free
    made.head.set_n_labels(n_labels)
    made.head.set_free(torch.cat([free, free.new_ones(n_more)]))

    def state(parameter: Tensor, value: Tensor) -> Tensor:
        is_by_row = parameter in rows and value.ndim and len(value) == len(parameter)
        return _moved(value, rows[parameter]) if is_by_row else value.clone()

    return made, optimizer.moved(module, made, state)


def without_labels(
    module: Any, positions: Tensor, optimizer: RowOptimizer
) -> tuple[Any, RowOptimizer]:
    """Copy a head and its optimiser, without labels at `positions` (n,); share other tensors."""
    head = module.head
    widths = dict(head.label_rows())
    shards = head.sharded_parameters()
    held = {
        old: shards.get(old, WHOLE).positions(positions, old, width)
        for old, width in widths.items()
    }
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*head.parameters(), *head.buffers())}
    for old, width in widths.items():
        memo[id(old)] = as_kind_of(old, _cleared(old, width, held[old]))
    made = copy.copy(module)
    made._modules = {**module._modules, "head": copy.deepcopy(head, memo)}
    made.head.set_free(~head._others(positions))

    def state(parameter: Tensor, value: Tensor) -> Tensor:
        width = widths.get(parameter)
        if width is not None and value.shape == parameter.shape:
            return _cleared(value, width, held[parameter])
        if width is not None and value.ndim and width * len(value) == parameter.numel():
            return _cleared(value, 1, held[parameter])  # a number for each row
        return value

    return made, optimizer.moved(module, made, state)


@torch.no_grad()
def _moved(values: Tensor, rows: Tensor) -> Tensor:
    """Return the rows of a tensor at `rows`; zeros for -1."""
    moved = values.detach().index_select(0, rows.clamp(min=0))
    moved[rows < 0] = 0
    return moved


@torch.no_grad()
def _cleared(values: Tensor, width: int, positions: Tensor) -> Tensor:
    cleared = values.detach().clone(memory_format=torch.contiguous_format)
    cleared.view(-1, width)[positions] = 0
    return cleared
