"""Split modules and states of nets into parts of processes, and join the parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sklearn_xlc.distributed.processes import Alone
from sklearn_xlc.distributed.shards import sharding

if TYPE_CHECKING:
    from sklearn_xlc.training import RowOptimizer


@torch.no_grad()
def share_out(module: Any, processes: Alone, optimizer: RowOptimizer | None = None) -> None:
    """Split a module into parts of processes, in place; ValueError for fewer rows than processes.

    Each keeps its rows of the head's tables, with their moments, and drops the others; they are
    those of the first process. Where optimisers have stepped, all else becomes that of the first,
    too. Nothing changes in a fit of one process, or where processes hold the module in parts
    already.
    """
    head = module.head
    if head.sharded_parameters():
        return
    head.take_shards(sharding(processes))
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


def joined(module: Any, optimizer: RowOptimizer) -> tuple[Any, RowOptimizer]:
    """Copy a module, and its optimiser, with the rows of all processes.

    All processes call this function. What is whole is shared with the copies; where nothing is in
    parts, the given ones are returned.
    """
    shards = module.head.sharded_parameters()
    if not shards:
        return module, optimizer
    memo: dict[int, Any] = {id(each): each for each in (*module.parameters(), *module.buffers())}
    whole: dict[int, Tensor] = {}  # of parts by their id, in the same order in all processes
    for parameter in module.parameters():
        if parameter in shards:
            values = shards[parameter].joined(parameter.detach())
            memo[id(parameter)] = nn.Parameter(values, parameter.requires_grad)
            for part in optimizer.state.get(parameter, {}).values():
                if part.ndim:
                    whole[id(part)] = shards[parameter].joined(part)
    made = copy.deepcopy(module, memo)
    made.head.forget_shards()
    return made, optimizer.moved(module, made, lambda _, part: whole.get(id(part), part))


def copied(module: Any, processes: Alone) -> Any:
    """Copy a module for training, without the table rows of other processes.

    The rows are taken from the first process. In a fit of one process it is a plain copy.
    """
    tensors = [*module.parameters(), *module.buffers()]
    made = copy.deepcopy(module, {id(old): as_kind_of(old, old.detach()) for old in tensors})
    share_out(made, processes)
    cut = {} if module.head.sharded_parameters() else made.head.sharded_parameters()
    for tensor in [*made.parameters(), *made.buffers()]:
        if tensor not in cut:
            tensor.data = tensor.data.clone()
    return made


def as_kind_of(old: Tensor, values: Tensor) -> Tensor:
    """Return the values, as a parameter on the same memory if `old` is one."""
    return nn.Parameter(values, old.requires_grad) if isinstance(old, nn.Parameter) else values


# --- states of a net in training ----------------------------------------------------------------


def whole_on_first(net: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a net as of one process, in the first process.

    All processes call this function; in the others the state says nothing. "callbacks" may hold
    copies of weights by their names. Tables are whole, and on the CPU.
    """
    return _changed(net, state, _on_first)


def module_on_first(module: Any) -> dict[str, Any]:
    """Return the state of a module as of one process, in the first process."""
    return _by_name(module, module_state(module), _on_first)


def _on_first(shard: Any, part: Tensor) -> Tensor:
    whole = shard.joined(part.detach())
    return whole.cpu() if shard.processes.is_first else part


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return parameters, buffers and other declared state of a module."""
    state = dict(module.state_dict())
    others = {name: buffer for name, buffer in module.named_buffers() if name not in state}
    return {"state_dict": state, "buffers": others}


def held_of_whole(net: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Cut the rows of this process from a state of whole tables; check their size."""

    def own_rows(shard: Any, whole: Tensor) -> Tensor:
        if len(whole) != shard.n_rows:
            raise ValueError(f"a table has {len(whole)} rows, not {shard.n_rows}")
        return whole[shard.start : shard.stop].to(net.device, copy=True)

    return _changed(net, state, own_rows)


def _changed(
    net: Any, state: dict[str, Any], change: Callable[[Any, Tensor], Any]
) -> dict[str, Any]:
    """Apply a function to the tensors of sharded parameters in a state."""
    shards = net.module_.head.sharded_parameters()
    if not shards:
        return state
    numbers = {
        number: shards[p] for number, p in enumerate(net.optimizer_.parameters()) if p in shards
    }
    moments = dict(state["optimizer"]["state"])
    for number in sorted(numbers.keys() & moments.keys()):
        moments[number] = {
            key: change(numbers[number], value) if value.ndim else value
            for key, value in moments[number].items()
        }
    return {
        **state,
        "module": _by_name(net.module_, state["module"], change),
        "optimizer": {**state["optimizer"], "state": moments},
        "callbacks": _by_name(net.module_, state["callbacks"], change),
    }


def _by_name(module: Any, state: Any, change: Callable[[Any, Tensor], Any]) -> Any:
    """Apply a function to sharded parameters in a state, found by name in its dicts."""
    shards = module.head.sharded_parameters()
    names = {name: shards[p] for name, p in module.named_parameters() if p in shards}

    def changed(value: Any, name: Any = None) -> Any:
        if isinstance(value, dict):
            return type(value)((key, changed(item, key)) for key, item in value.items())
        is_weight = name in names and isinstance(value, Tensor)
        return change(names[name], value) if is_weight else value

    return changed(state)
