"""Background preparation of batches while an accelerator computes, and copies to it."""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

#: Devices without background preparation: their steps use the same processors.
IN_PLACE = {"cpu"}
#: Number of items prepared in advance.
_AHEAD = 2
_END: Any = object()


def prepares_ahead(device: torch.device) -> bool:
    """Return whether batches for a device are prepared in the background."""
    return device.type not in IN_PLACE


def prefetched(items: Generator[Item], device: torch.device) -> Generator[Item]:
    """Yield the items of a generator, computed in advance by a background thread.

    An exception of the generator is raised here, in its turn and with its traceback. The thread
    ends with the last item. Closing the returned generator waits for the item in progress and
    closes `items`, too. `device` is the current device of the thread.
    """
    with (
        contextlib.closing(items),
        ThreadPoolExecutor(1, "sklearn_xlc-batches", _enter, _current(device)) as thread,
    ):
        coming: deque[Future[Item]] = deque()
        try:
            coming.extend(thread.submit(next, items, _END) for _ in range(_AHEAD))
            while (item := coming.popleft().result()) is not _END:
                coming.append(thread.submit(next, items, _END))
                yield item
        finally:  # also if the caller stops early: no further item is started
            thread.shutdown(cancel_futures=True)


def _current(device: torch.device) -> tuple[int, ...]:
    """Return the index of the caller's GPU, if any."""
    if device.type != "cuda":
        return ()
    return (torch.cuda.current_device() if device.index is None else device.index,)


def _enter(*number: int) -> None:
    # A new thread uses the first GPU; pinning memory there would open a second context.
    if number:
        torch.cuda.set_device(*number)


def to_device(inputs: Any, device: torch.device) -> Any:
    """Copy the result of `collate` to a device; copies to a GPU are asynchronous.

    Kernels reading a copy follow in the same stream. torch's allocator does not reuse pinned memory
    before it is read; other memory is staged before the call returns.

    Parameters
    ----------
    inputs : object
        Tensors, objects with a method `to`, and mappings, lists and tuples of these; other objects
        are returned unchanged.
    device : torch.device
        Device of the copies.

    Returns
    -------
    object
        Copies, in the same containers.
    """

    def moved(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device, non_blocking=device.type == "cuda")
        return part.to(device)

    return _changed(inputs, "to", moved)


def pinned(inputs: Any) -> Any:
    """Copy the result of `collate` to pinned memory, for asynchronous copies to a GPU.

    Objects with a method `pin_memory` are copied by it, as in :class:`torch.utils.data.DataLoader`.
    """
    return _changed(inputs, "pin_memory", lambda part: part.pin_memory())


def _changed(inputs: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to all objects with a given method, in nested containers."""
    if hasattr(inputs, method):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {name: _changed(value, method, change) for name, value in inputs.items()}
    if isinstance(inputs, (list, tuple)):
        parts = [_changed(value, method, change) for value in inputs]
        return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)
    return inputs


class Movable:
    """Base class of what travels: objects whose attributes are copied to a device together."""

    def to(self, device: torch.device) -> Self:
        """Copy to `device`."""
        return self._changed(partial(to_device, device=device))

    def pin_memory(self) -> Self:
        """Copy to pinned memory, for asynchronous copies to a GPU."""
        return self._changed(pinned)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        made = copy.copy(self)
        vars(made).update({name: change(value) for name, value in vars(self).items()})
        return made
