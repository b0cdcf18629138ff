"""Keep the memory of a step for the next one, until the fit ends."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

#: Options of glibc's `mallopt`. A fit returns to `_USUAL`, the largest values to which glibc itself
#: raises them as a process allocates and frees.
_TRIM, _MMAP = -1, -3
_USUAL = {_MMAP: 2**25, _TRIM: 2**26}
_KEEP = {_MMAP: 2**30, _TRIM: 2**31 - 1}

_LOCK = threading.Lock()
_users = 0


@functools.cache
def _glibc() -> Any:
    """Return glibc, or None on a system with another library."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            _ = library.gnu_get_libc_version, library.mallopt, library.malloc_trim
            return library
    return None


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Keep freed memory for the next step instead of returning it to the system.

    Every step allocates and frees the same temporaries of many megabytes. By default glibc maps
    them anew each time, and the system then fills each page with zeros. This takes half of the time
    of a step and more. At the end of the block (of the last, if several threads are inside) the
    memory returns to the system. Without glibc nothing happens.
    """
    global _users
    library = _glibc()
    if library is None:
        yield
        return
    with _LOCK:
        _users += 1
        _set(library, _KEEP)
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if not _users:
                _set(library, _USUAL)
                library.malloc_trim(0)


@functools.cache
def memory_reused() -> None:
    """Keep up to 64 MB of freed memory from now on, for the next prediction.

    After a fit a process does so already. Otherwise glibc returns the memory of each batch to the
    system, up to a third of the time of a prediction.
    """
    library = _glibc()
    with _LOCK:
        if library is not None and not _users:
            _set(library, _USUAL)


def _set(library: Any, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
