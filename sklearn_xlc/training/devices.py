"""Types and devices of torch, and its threads after a fork."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc.batches.randomness import GLOBAL_LOCK

DTYPES = (np.float64, np.float32)
TORCH_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


def numpy_dtype(module: nn.Module) -> np.dtype:
    """NumPy type of the parameters of a module."""
    return np.dtype(str(next(module.parameters()).dtype).removeprefix("torch."))


def resolve_device(device: Any) -> str:
    """Name of the device to use; without the requested GPU, warn and use the CPU.

    Raises
    ------
    ValueError
        If `device` is neither "auto" nor a torch device of this machine.
    """
    if str(device) == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
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


class _AsIfWritable:
    """Memory of an array that may be read-only, described as writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # kept alive by arrays and tensors that share the memory
        where = (array.__array_interface__["data"][0], False)
        self.__array_interface__ = {**array.__array_interface__, "data": where}


def shared_tensor(array: np.ndarray) -> torch.Tensor:
    """Tensor that shares the memory of an array.

    A memory-mapped array is read-only, which torch warns of; nobody writes into the tensor:
    training copies the weights first.
    """
    return torch.from_numpy(np.asarray(_AsIfWritable(array)))


@functools.cache
def one_thread_after_fork() -> None:
    """Give every process forked from now on a single thread of torch.

    Of the threads that compute for torch a fork copies none, but the child would wait for them.
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
    torch.set_num_threads(1)
