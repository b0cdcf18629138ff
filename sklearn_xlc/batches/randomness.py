"""Random numbers and torch's settings: each fit has its own, and callers keep theirs.

Layers and heads draw from :func:`generator_for`, which is the fit's own generator while the thread
trains. Code that may draw from torch's global generator (functions and modules of the user) runs
inside :func:`as_global`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

#: Generators of one fit: the CPU's first, then, where it is not the CPU, that of the net's device.
Generators = tuple[torch.Generator, ...]

#: Held while torch's global generator or default type is not the caller's.
GLOBAL_LOCK = threading.RLock()


class _Thread(threading.local):
    """Generators from which this thread draws, and those it has put in place of the global ones."""

    drawn_from: Generators = ()
    as_global: Generators | None = None


_THREAD = _Thread()


def new_generators(seed: int) -> Generators:
    """Seed the generator of a fit, on the CPU."""
    return (torch.Generator().manual_seed(seed),)


def with_device(generators: Generators, device: torch.device) -> Generators:
    """Add a generator of the same seed for `device`, unless it is the CPU."""
    if not generators or device.type == "cpu":
        return generators
    return (*generators, torch.Generator(device).manual_seed(generators[0].initial_seed()))


def generator_for(device: torch.device) -> torch.Generator | None:
    """Find the generator for a random tensor on `device`.

    Parameters
    ----------
    device : torch.device
        Device of the tensor.

    Returns
    -------
    torch.Generator or None
        The generator of the fit that trains in this thread; None outside of a fit: functions of
        torch then draw from the global generator.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.batches import generator_for
    >>> order = torch.randperm(5, generator=generator_for(torch.device("cpu")))
    """
    for generator in _THREAD.drawn_from:
        if generator.device == device:
            return generator
    return None


@contextlib.contextmanager
def drawing_from(generators: Generators) -> Iterator[None]:
    """Let :func:`generator_for` return one of `generators` in this thread."""
    before, _THREAD.drawn_from = _THREAD.drawn_from, generators
    try:
        yield
    finally:
        _THREAD.drawn_from = before


@contextlib.contextmanager
def as_global(generators: Generators) -> Iterator[None]:
    """Put generators in place of torch's global ones, and float32 for the default type.

    Only one thread at a time is inside. The caller's generators and type are put back at the end;
    `generators` are then where the block has left them.
    """
    if _THREAD.as_global is generators:
        yield
        return
    with GLOBAL_LOCK, contextlib.ExitStack() as undo, drawing_from(()):
        undo.callback(setattr, _THREAD, "as_global", _THREAD.as_global)
        if torch.get_default_dtype() != torch.float32:
            undo.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        for generator in generators:
            undo.enter_context(_in_place_of_global(generator))
        _THREAD.as_global = generators
        yield


@contextlib.contextmanager
def _in_place_of_global(generator: torch.Generator) -> Iterator[None]:
    get: Callable[[], torch.Tensor] = torch.get_rng_state
    put: Callable[[torch.Tensor], None] = torch.set_rng_state
    if generator.device.type != "cpu":
        of_device = torch.get_device_module(generator.device)
        get = partial(of_device.get_rng_state, generator.device)
        put = partial(of_device.set_rng_state, device=generator.device)
    callers = get()
    try:  # at once: an interrupt in the next line must not leave the caller with our state
        put(generator.get_state())
        yield
    finally:
        generator.set_state(get())
        put(callers)


def is_ours(code: Any) -> bool:
    """Whether a class or function is of this package: it draws from the fit's generators."""
    return code.__module__.startswith("sklearn_xlc.")


def usual_modes(training: bool) -> contextlib.AbstractContextManager[None]:
    """Switch off what the caller has set for the thread: gradient mode, autocast, default device.

    Parameters
    ----------
    training : bool
        Whether gradients are recorded; otherwise tensors of the block are inference tensors.
    """
    autocast = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    # An empty tensor says the default device ten times faster than `torch.get_default_device`.
    if not autocast and torch.empty(0).is_cpu:
        return torch.inference_mode(not training)
    return _usual_modes(training, autocast)


@contextlib.contextmanager
def _usual_modes(training: bool, autocast: list[str]) -> Iterator[None]:
    with torch.inference_mode(not training), torch.device("cpu"), contextlib.ExitStack() as undo:
        for kind in autocast:
            undo.enter_context(torch.autocast(kind, enabled=False))
        yield
