"""Background preparation of batches while an accelerator computes, and copies to it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

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


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; copies to a GPU are asynchronous.

    Kernels reading the copy follow in the same stream. torch's allocator does not reuse pinned
    memory before it is read; other memory is staged before the call returns.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")
