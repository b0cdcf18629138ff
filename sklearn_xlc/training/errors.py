"""Errors of torch: raise them in the name of the failing module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

#: Parts of the messages of torch's allocators, for the CPU and for GPUs, if memory runs out.
_ALLOCATORS = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad_alloc"),
    "could not create a primitive",  # of oneDNN
)


def is_of_an_allocator(error: BaseException) -> bool:
    """Return whether torch, NumPy or the interpreter ran out of memory."""
    if isinstance(error, MemoryError):
        # NumPy's own subclass; the interpreter's MemoryError and that of C++ have no text.
        return type(error) is not MemoryError or not error.args or "bad_alloc" in str(error)
    return any(text in str(error) for text in _ALLOCATORS)


@contextlib.contextmanager
def failure_of(what: str) -> Iterator[None]:
    """Turn RuntimeError and IndexError of the block into a ValueError with the name of a module.

    Errors of an allocator are raised unchanged.
    """
    try:
        yield
    except (RuntimeError, IndexError) as error:
        if is_of_an_allocator(error):
            raise
        raise ValueError(f"{what} failed: {error}") from error
