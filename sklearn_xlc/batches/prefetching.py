"""Batches that a thread prepares while an accelerator computes, and their copies to it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

#: Types of devices whose steps take the processors that cut batches: there nothing is prepared.
IN_PLACE = {"cpu"}
#: Items that are prepared, or under way, beside the one in use.
_AHEAD = 2
_END: Any = object()


def prepares_ahead(device: torch.device) -> bool:
    """Whether batches for a device are prepared in the background."""
    return device.type not in IN_PLACE


def prefetched(items: Generator[Item], device: torch.device) -> Generator[Item]:
    """Yield the items of a generator, which one background thread asks for in advance.

    An exception of the generator is raised here, in its turn and with its traceback. The thread
    ends with the last item, or when this one is closed: what is then under way is waited for, and
    the generator is closed, too.

    Parameters
    ----------
    items : generator
        Nobody else may use it meanwhile.
    device : torch.device
        Device of the caller; the thread has the same current one.

    Yields
    ------
    object
        The items, in order.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.batches.prefetching import prefetched
    >>> list(prefetched((letter for letter in "abc"), torch.device("cpu")))
    ['a', 'b', 'c']
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
        finally:  # also where the caller stops early: no item more is begun
            thread.shutdown(cancel_futures=True)


def _current(device: torch.device) -> tuple[int, ...]:
    """Number of the GPU of the caller, if there is one."""
    if device.type != "cuda":
        return ()
    return (torch.cuda.current_device() if device.index is None else device.index,)


def _enter(*number: int) -> None:
    # A thread begins with the first GPU, where memory that it pins would open a second context.
    if number:
        torch.cuda.set_device(*number)


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; nobody waits for a copy to a GPU.

    Kernels that read it follow in the same stream. Pinned memory is not used anew before it is
    read: torch's allocator notes the event. Other memory is staged before the call returns.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")
