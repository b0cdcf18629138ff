"""Types, devices and seeds of torch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

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


@contextlib.contextmanager
def seeded(rng: np.random.RandomState) -> Iterator[None]:
    """Seed torch within a block, and restore the caller's generator after it."""
    with torch.random.fork_rng():
        torch.manual_seed(rng.randint(2**31 - 1))
        yield
