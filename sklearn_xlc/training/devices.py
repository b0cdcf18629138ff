"""Types, devices and threads of torch."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc.batches.randomness import GLOBAL_LOCK
from sklearn_xlc.distributed.processes import ALONE, Alone

#: Multiply-adds of a pass above which several threads are faster than one. Threads synchronise many
#: times a pass; on a busy machine each time may wait for a time slice (docs/performance.md).
MANY = 2**31
TORCH_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


def numpy_dtype(module: nn.Module) -> np.dtype:
    """Return the NumPy type of the parameters of a module."""
    return np.dtype(str(next(module.parameters()).dtype).removeprefix("torch."))


def resolve_device(device: Any, processes: Alone = ALONE) -> str:
    """Return the name of the device to use; without the requested GPU, warn and use the CPU."""
    if str(device) == "auto":
        if not torch.cuda.is_available():
            return "cpu"
        return processes.gpu()
    try:
        resolved = torch.device(device)
        if resolved.type == "cuda" and not torch.cuda.is_available():
            warnings.warn(
                f"device={device!r} needs a GPU, but there is none; using the CPU", stacklevel=2
            )
            return "cpu"
        torch.ones((), device=resolved).item()
    except RuntimeError as error:
        raise ValueError(
            f"device={device!r} is neither 'auto' nor a torch device of this machine: {error}"
        ) from error
    return str(resolved)


@functools.cache
def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 matrices faster than float32 ones."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= (8, 0)
    found = torch.cpu.get_capabilities()
    return bool(found.get("amx_bf16") or found.get("avx512_bf16") or found.get("sve_bf16"))


class _AsIfWritable:
    """Array interface with the memory described as writable, even if it is read-only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # kept alive by arrays and tensors that share the memory
        where = (array.__array_interface__["data"][0], False)
        self.__array_interface__ = {**array.__array_interface__, "data": where}


def shared_tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor on the memory of an array.

    A memory-mapped array is read-only, and torch would warn. Nobody writes into the tensor:
    training copies the weights first.
    """
    return torch.from_numpy(np.asarray(_AsIfWritable(array)))


# --- threads ----------------------------------------------------------------------------------


class _OfThread(threading.local):
    is_known = False


_THIS = _OfThread()
#: Numbers of threads to restore, one for each caller inside `threads_for`.
_LIMITED: dict[object, int] = {}


@contextlib.contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Compute on one thread for few multiply-adds (`work`), then restore the number of threads.

    The choice depends on the work and on the number of threads, not on the clock. Equal fits stay
    equal to the last bit.
    """
    n_threads = torch.get_num_threads()
    if _LIMITED and not _THIS.is_known:
        # Torch gives a new thread of Python the number that was set last: here or by another.
        n_threads = max(_LIMITED.values())
        torch.set_num_threads(n_threads)
    _THIS.is_known = True
    if n_threads == 1 or work >= MANY:
        yield
        return
    token = object()
    try:
        _LIMITED[token] = n_threads
        torch.set_num_threads(1)
        yield
    finally:
        if token in _LIMITED:  # not in a child that was forked meanwhile
            torch.set_num_threads(n_threads)
            del _LIMITED[token]


@functools.cache
def one_thread_after_fork() -> None:
    """Give every process forked from now on a single thread of torch.

    A fork does not copy torch's worker threads, but the child would wait for them.
    """
    if hasattr(os, "register_at_fork"):
        # Held, so that the child gets torch's global generator and default type as they should be.
        os.register_at_fork(
            before=GLOBAL_LOCK.acquire,
            after_in_parent=GLOBAL_LOCK.release,
            after_in_child=_begin_child,
        )


def _begin_child() -> None:
    GLOBAL_LOCK.release()
    _LIMITED.clear()
    torch.set_num_threads(1)
