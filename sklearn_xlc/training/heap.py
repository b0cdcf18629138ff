"""Keep freed memory for the next step or prediction."""

import contextlib
import ctypes
import functools

#: Options of glibc's `mallopt`, ``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD``, and the largest
#: values to which glibc itself raises them as a process allocates and frees.
_OPTIONS = {-3: 2**25, -1: 2**26}


@functools.cache
def keep_memory() -> None:
    """Keep up to 64 MB of freed memory in this process from now on.

    Every step and every batch allocates and frees the same temporaries of megabytes. By default
    glibc returns them to the system, which then fills each page with zeros. Without glibc nothing
    happens.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS.items():
            mallopt(option, value)
