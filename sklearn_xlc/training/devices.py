"""Types and devices of torch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc._warn import warn
from sklearn_xlc.batches import instructions
from sklearn_xlc.distributed import ALONE, Alone

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
            warn(f"device={device!r} needs a GPU, but there is none; using the CPU")
            return "cpu"
        torch.ones((), device=resolved).item()
    except (AssertionError, ImportError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r} is neither 'auto' nor a torch device of this machine: {error}"
        ) from error
    return str(resolved)


def device_of_loaded(device: Any) -> str:
    """Return the device of a loaded model; where this machine lacks it, warn and use the CPU."""
    try:
        return resolve_device(device)
    except ValueError as error:
        try:
            torch.device(device)
        except (RuntimeError, TypeError):
            raise error from None  # no device of any machine
        warn(f"{str(error).splitlines()[0]}; using the CPU")
        return "cpu"


@functools.cache
def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 matrices faster than float32 ones."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if not device.startswith("cpu"):
        return False  # not known
    found = instructions()
    # Without AMX (in many virtual machines it is masked), Intel's products of bfloat16 have the
    # throughput of float32, and packing for them doubles the time.
    by_vectors = found.get("avx512_bf16") and "Intel" not in str(found.get("cpu_name"))
    return bool(found.get("amx_bf16") or by_vectors or found.get("sve_bf16"))


class _AsIfWritable:
    """Array interface with the memory described as writable, even if it is read-only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # kept alive by arrays and tensors that share the memory
        where = (array.__array_interface__["data"][0], False)
        self.__array_interface__ = {**array.__array_interface__, "data": where}


def shared_tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor on the memory of an array, or of a copy where an axis runs backwards.

    A memory-mapped array is read-only, and torch would warn. Nobody writes into the tensor:
    training copies the weights first.
    """
    if min(array.strides, default=0) < 0:  # torch has no such strides
        array = array.copy()
    return torch.from_numpy(np.asarray(_AsIfWritable(array)))
