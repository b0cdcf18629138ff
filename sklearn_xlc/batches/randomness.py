"""Random generators and torch settings of a fit, separate from the caller's.

Layers and heads draw from :func:`generator_for`, the fit's own generator during training. Code of
the user may draw from torch's global generator and runs inside :func:`as_global`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

#: Generators of one fit: of the CPU, then of the net's device unless it is the CPU.
Generators = tuple[torch.Generator, ...]

#: Held while torch's global generator or default dtype is replaced.
GLOBAL_LOCK = threading.RLock()


class _Thread(threading.local):
    """Generators and drawn rows of this thread."""

    drawn_from: Generators = ()
    rows: tuple[slice, int] | None = None
    as_global: Generators | None = None


_THREAD = _Thread()


def new_generators(seed: int) -> Generators:
    """Return a seeded CPU generator for a fit."""
    return (torch.Generator().manual_seed(seed),)


def with_device(generators: Generators, device: torch.device) -> Generators:
    """Add a generator of the same seed for `device`, unless it is the CPU."""
    if not generators or device.type == "cpu":
        return generators
    numbered = torch.empty(0, device=device).device  # "cuda:0" of "cuda", as tensors say it
    return (*generators, torch.Generator(numbered).manual_seed(generators[0].initial_seed()))


def generator_for(device: torch.device) -> torch.Generator | None:
    """Return the generator for a random tensor on `device`.

    Parameters
    ----------
    device : torch.device
        Device of the tensor.

    Returns
    -------
    torch.Generator or None
        Generator of this thread's fit. None outside of a fit: torch then uses its global generator.

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


def rows_drawn(n_rows: int) -> tuple[slice, int]:
    """Return the rows to keep, and the number of rows to draw, for an input of `n_rows` rows.

    A layer draws for the whole batch and keeps its rows, so that random numbers do not depend on
    the number of processes.
    """
    return _THREAD.rows or (slice(None), n_rows)


@contextlib.contextmanager
def _within(**values: Any) -> Iterator[None]:
    """Set values of this thread in the block."""
    before = {name: getattr(_THREAD, name) for name in values}
    vars(_THREAD).update(values)
    try:
        yield
    finally:
        vars(_THREAD).update(before)


def drawing_rows(own: slice, n_rows: int) -> contextlib.AbstractContextManager[None]:
    """Let :func:`rows_drawn` return the rows `own` of a batch of `n_rows` in this thread."""
    return _within(rows=(own, n_rows))


def drawing_from(generators: Generators) -> contextlib.AbstractContextManager[None]:
    """Let :func:`generator_for` return one of `generators` in this thread."""
    return _within(drawn_from=generators)


@contextlib.contextmanager
def as_global(generators: Generators) -> Iterator[None]:
    """Replace torch's global generators by `generators`, and its default dtype by float32.

    Only one thread at a time enters the block. At the end the caller's generators and dtype are
    restored; `generators` keep their state.
    """
    if _THREAD.as_global is generators:
        yield
        return
    mine = _within(drawn_from=(), as_global=generators)
    with GLOBAL_LOCK, mine, contextlib.ExitStack() as undo:
        if torch.get_default_dtype() != torch.float32:
            undo.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        for generator in generators:
            undo.enter_context(_in_place_of_global(generator))
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
    """Return whether a class or function is part of this package."""
    return code.__module__.startswith("sklearn_xlc.")


def usual_modes(training: bool) -> contextlib.AbstractContextManager[None]:
    """Reset the thread's torch settings: gradient (or inference) mode, autocast, default device."""
    autocast = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    # The device of an empty tensor is ten times faster than `torch.get_default_device`.
    if not autocast and torch.empty(0).is_cpu:
        return torch.inference_mode(not training)
    return _usual_modes(training, autocast)


@contextlib.contextmanager
def _usual_modes(training: bool, autocast: list[str]) -> Iterator[None]:
    with torch.inference_mode(not training), torch.device("cpu"), contextlib.ExitStack() as undo:
        for kind in autocast:
            undo.enter_context(torch.autocast(kind, enabled=False))
        yield
