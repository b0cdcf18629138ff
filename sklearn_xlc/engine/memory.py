"""Estimate needed and available memory, and raise before a model is too large."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from sklearn_xlc.batches import GLOBAL_LOCK
from sklearn_xlc.training import RULES, input_parameters, is_of_an_allocator, row_parameters

Method = TypeVar("Method", bound=Callable[..., Any])

#: Smaller sizes in bytes are not checked: asking the system would take longer.
SMALL = 2**26


# --- available --------------------------------------------------------------------------------


def available_memory(device: Any = "cpu") -> float:
    """Return the bytes available to this process on a device; infinite without a limit."""
    device = torch.device(device)
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    return min(_physical_memory(), _address_space(), _control_groups())


def _physical_memory(root: Path = Path("/")) -> float:
    """Return the available memory of the machine: free, in caches, or in swap space."""
    with contextlib.suppress(OSError, KeyError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        kib = {line.split()[0]: int(line.split()[1]) for line in lines}
        return (kib["MemAvailable:"] + kib.get("SwapFree:", 0)) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no such call on Windows
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf


def _address_space(root: Path = Path("/")) -> float:
    """Return the bytes left below the address limit of the process (``ulimit -v``)."""
    if sys.platform == "win32":
        return math.inf
    import resource  # on Unix only

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return math.inf
    with contextlib.suppress(OSError):
        pages = int((root / "proc/self/statm").read_text().split()[0])
        return max(0, limit - pages * resource.getpagesize())
    return limit


def _control_groups(root: Path = Path("/")) -> float:
    """Return the bytes left in the control groups of the process (container, batch job)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    left = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        # Limits of parents hold too; inside a container only the mount itself may be visible.
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            left = min(left, _left_in_group(folder, *names))
            if folder == mount:
                break
    return left


def _left_in_group(folder: Path, limit: str, usage: str, prefix: str) -> float:
    """Return the bytes left in one control group, its file cache included."""
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        if most == "max":
            return math.inf
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return math.inf
    cached = sum(int(stat.get(f"{prefix}{age}_file", 0)) for age in ("inactive", "active"))
    return max(0, int(most) - used + cached)


# --- needed -----------------------------------------------------------------------------------


class _NoDraws(TorchFunctionMode):
    """Skip random initialisation of tensors without values.

    There is nothing to fill, but torch would load its compiler for seconds.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in ("rand", "randn"):
            return torch.empty(*args, **kwargs)
        if name in ("normal_", "uniform_", "trunc_normal_", "bernoulli_", "exponential_"):
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def without_weights(build: Callable[[], nn.Module]) -> nn.Module | None:
    """Build a module on the meta device, without memory for weights; None on failure.

    The true build draws the random numbers again, and gives its warnings and errors.
    """
    quiet, kept = warnings.catch_warnings(), torch.random.fork_rng(devices=[])
    # Restore the gradient mode even if an error interrupts the exit of `no_grad`. The lock guards
    # the global generator: a thread that reads it holds a mutex of torch, and another one that
    # waits for that holds the interpreter's lock, without which the first cannot go on.
    with GLOBAL_LOCK, quiet, kept, torch.enable_grad(), torch.device("meta"), _NoDraws():
        warnings.simplefilter("ignore")
        try:
            return build()
        except Exception:  # whatever a user's module raises on tensors without values
            return None


def training_bytes(
    encoder: nn.Module, head: Any, itemsize: int, optimizer: Any, copies: int = 0
) -> tuple[int, int]:
    """Bytes of weights still to allocate, and of gradients, optimiser state and copies beside them.

    Weights on the meta device are not yet allocated. `copies` of the weights are kept in training.
    """
    dense_rule, input_rule = RULES[optimizer.rule]
    fused = set() if head is None else set(head.fused_parameters())
    weights = beside = 0
    for part, row_rule in ((encoder, input_rule), (head, dense_rule)):
        if part is None:
            continue
        by_rows, inputs = row_parameters(part), input_parameters(part)
        for tensor in part.buffers():
            weights += tensor.numel() * tensor.element_size() * tensor.is_meta
        for parameter in part.parameters():
            size = parameter.numel() * itemsize
            weights += size * parameter.is_meta
            beside += size * copies
            if parameter.requires_grad:
                own_rule = row_rule if parameter in inputs else dense_rule
                n_rows = parameter.shape[0] if parameter.ndim else 1
                state = {"adam": 2 * size, "adagrad": n_rows * itemsize, "scaled": itemsize}
                state["sgd"] = size if optimizer.momentum else 0
                beside += state.get(own_rule, 0)
                beside += 0 if parameter in fused or parameter in by_rows else size
    return weights, beside


# --- refused ----------------------------------------------------------------------------------


def refuse_beyond(needed: float, what: str, remedy: str, device: Any = "cpu") -> float:
    """Raise MemoryError, with a remedy, if a device lacks bytes; return the available ones."""
    available = available_memory(device)
    if needed > available:
        raise MemoryError(
            f"{what} takes about {int(needed):,} bytes, of which {int(available):,} are available; "
            f"use {remedy}"
        )
    return available


def check_room(classifier: Any, n_bytes: float, what: str) -> None:
    """Raise MemoryError if a fitted classifier would not fit into memory with larger tensors."""
    if n_bytes > SMALL:
        refuse_beyond(n_bytes, what, classifier._smaller_model(), classifier.net_.device)


def memory_explained(what: str, remedy: Callable[[Any], str]) -> Callable[[Method], Method]:
    """Decorate a method: a MemoryError of torch or NumPy names the step and a remedy."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def explained(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except (MemoryError, RuntimeError) as error:
                if not is_of_an_allocator(error):
                    raise
                left = f": {int(available_memory()):,} bytes are left"
                if isinstance(error, torch.OutOfMemoryError):  # whose own text says what is left
                    left = " on the GPU"
                raise MemoryError(
                    f"there is not enough memory for {what}{left}; use {remedy(self)}"
                ) from error

        return cast(Method, explained)

    return decorate
