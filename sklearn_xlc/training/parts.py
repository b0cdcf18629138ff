"""Modules, and the states of their optimisers, of which processes come to hold parts."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sklearn_xlc.training.optimizer import RowOptimizer


@torch.no_grad()
def share_out(module: Any, optimizer: RowOptimizer | None = None) -> None:
    """Let the processes of the fit under way hold a whole module in parts, in place.

    Each keeps its rows of the head's tables, with their moments, and drops the others; they are
    those of the first process. Where optimisers have stepped, all else becomes that of the first,
    too. Nothing changes in a fit of one process, or where processes hold the module in parts
    already.

    Parameters
    ----------
    module : EncoderHead
        Encoder and head.
    optimizer : RowOptimizer, default=None
        Optimiser of the module's parameters. None: it has no state.

    Raises
    ------
    ValueError
        If there are more processes than rows.
    """
    head = module.head
    if head.sharded_parameters():
        return
    head.take_shards()
    shards = head.sharded_parameters()
    states = {} if optimizer is None else optimizer.state
    for parameter in module.parameters():
        shard, state = shards.get(parameter), states.get(parameter, {})
        if shard is not None:
            parameter.grad = None
            parameter.data = shard.processes.part_of_first(parameter.data)
            for key, value in state.items():
                if value.ndim:
                    state[key] = shard.processes.part_of_first(value)
        elif shards and states:
            for tensor in (parameter, *state.values()):
                next(iter(shards.values())).processes.take_first(tensor)


def copied(module: Any) -> Any:
    """Copy a module to train it, without the rows of tables that other processes will hold.

    The rows are taken from the first process. In a fit of one process it is a plain copy.
    """
    tensors = [*module.parameters(), *module.buffers()]
    made = copy.deepcopy(module, {id(tensor): _alias(tensor) for tensor in tensors})
    share_out(made)
    cut = {} if module.head.sharded_parameters() else made.head.sharded_parameters()
    for tensor in [*made.parameters(), *made.buffers()]:
        if tensor not in cut:
            tensor.data = tensor.data.clone()
    return made


def _alias(tensor: Tensor) -> Tensor:
    """A tensor, or parameter, of its own that reads the same memory."""
    values = tensor.detach()
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(values, tensor.requires_grad) if is_parameter else values
