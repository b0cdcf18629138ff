"""Errors of torch: raise them in the name of the failing module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

#: Parts of the messages of torch's allocators, for the CPU and for GPUs, if memory runs out.
_ALLOCATORS = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")


def is_of_an_allocator(error: BaseException) -> bool:
    """Return whether torch, NumPy or the interpreter ran out of memory."""
    if isinstance(error, MemoryError):
        # NumPy's own subclass; the interpreter's MemoryError and that of C++ have no text.
        return type(error) is not MemoryError or not error.args or "bad_alloc" in str(error)
    return any(text in str(error) for text in _ALLOCATORS)


@contextlib.contextmanager
def failure_of(what: str) -> Iterator[None]:
    """Turn an error of torch in the block into a ValueError with the name of a module.

    Errors of an allocator are raised unchanged.

    Parameters
    ----------
    what : str
        Name of the module in the message, such as "the encoder Net".

    Raises
    ------
    ValueError
        If the block raises RuntimeError or IndexError; the original is the cause.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.training.errors import failure_of
    >>> with failure_of("the encoder Linear"):
    ...     torch.nn.Linear(3, 2)(torch.zeros(5, 4))
    Traceback (most recent call last):
    ...
    ValueError: the encoder Linear failed: mat1 and mat2 shapes cannot be multiplied (5x4 and 3x2)
    """
    try:
        yield
    except (RuntimeError, IndexError) as error:
        if is_of_an_allocator(error):
            raise
        raise ValueError(f"{what} failed: {error}") from error
