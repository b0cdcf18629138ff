"""The processor: what it can do, how many threads a computation takes, and parts side by side."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from threadpoolctl import OpenBLASController, ThreadpoolController

from sklearn_xlc.batches.randomness import GLOBAL_LOCK

Part = TypeVar("Part")
Result = TypeVar("Result")

#: Multiply-adds of a pass above which torch computes with several threads. They synchronise many
#: times a pass; on a busy machine each time may wait for a time slice (docs/performance.md).
MANY = 2**31
#: Multiply-adds for each thread, from which on batches of a prediction are computed side by side.
ENOUGH = 2**26
#: The same for parts of a step, after each of which threads meet. With drawn negatives most of a
#: step is outside of its products, and threads take more time (docs/performance.md).
OF_STEP = 2**28


class _OfThread(threading.local):
    is_known = False


_THIS = _OfThread()
#: Numbers of threads to restore, one for each caller inside `threads_for`.
_LIMITED: dict[object, int] = {}


def instructions() -> dict[str, Any]:
    """Return what the processor can do.

    Returns
    -------
    dict
        Names of instructions, and whether they are there. Empty with an older release of torch,
        which does not say it.
    """
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return found


def usual_threads() -> int:
    """Return torch's number of threads outside of :func:`threads_for`, and set it here."""
    n_threads = torch.get_num_threads()
    if _LIMITED and not _THIS.is_known:
        # Torch gives a new thread of Python the number that was set last: here or by another.
        n_threads = max(_LIMITED.values())
        torch.set_num_threads(n_threads)
    _THIS.is_known = True
    return n_threads


@contextlib.contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Compute on one thread for few multiply-adds (`work`), then restore the number of threads.

    The choice depends on the work and on the number of threads, not on the clock. Equal fits stay
    equal to the last bit.
    """
    n_threads = usual_threads()
    if n_threads == 1 or work >= MANY:
        yield
        return
    token = object()
    try:
        _LIMITED[token] = n_threads
        torch.set_num_threads(1)
        yield
    finally:
        if token in _LIMITED:  # not in a child that was forked meanwhile
            torch.set_num_threads(n_threads)
            del _LIMITED[token]


# --- side by side -------------------------------------------------------------------------------


class Threads:
    """Threads that compute parts side by side; `n`: how many, 1 for the caller's alone.

    Examples
    --------
    >>> from sklearn_xlc.batches.threads import Threads
    >>> list(Threads(2).map(abs, [-1, -2, -3]))
    [1, 2, 3]
    """

    def __init__(self, n: int = 1) -> None:
        self.n = n

    @classmethod
    def for_work(cls, work: float, in_step: bool = False) -> Threads:
        """Return threads for multiply-adds of a prediction or a step, at most the caller's."""
        enough = OF_STEP if in_step else ENOUGH
        return cls(max(1, min(usual_threads(), int(work // enough))))

    def map(
        self, function: Callable[[Part], Result], parts: Iterable[Part]
    ) -> Generator[Result, None, None]:
        """Yield the result of each part, in order; no more than `n` are in memory.

        Each result is computed by one thread. What `function` changes must differ between parts.
        """
        if self.n == 1:
            yield from map(function, parts)
            return
        pool, coming = _pool(self.n), deque[Future[Result]]()
        try:
            for part in parts:
                coming.append(pool.submit(function, part))
                if len(coming) == self.n:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:  # also after an error: nothing goes on behind the caller's back
            wait([each for each in coming if not each.cancel()])


@contextlib.contextmanager
def beside(
    function: Callable[[], Result], cancel: Callable[[], None]
) -> Iterator[Callable[[], Result]]:
    """Call a function on another thread while the block runs; yield what returns its result.

    The thread computes with one thread of torch. Leaving the block waits for it. `cancel` is called
    where an error or the user ends the block: the function shall then return soon.
    """
    pool = _new_pool(1)  # not one of all callers: functions would wait for each other
    coming = pool.submit(function)
    try:
        yield coming.result
        wait([coming])
    except BaseException:
        cancel()
        wait([coming])
        raise
    finally:
        pool.shutdown()


#: The caller's thread alone.
ONE_THREAD = Threads()


def _new_pool(n: int) -> ThreadPoolExecutor:
    """Start a pool of `n` threads, each with one thread of torch."""
    one_thread_after_fork()
    with GLOBAL_LOCK:
        started, before = threading.Barrier(n + 1), torch.get_num_threads()
        pool = ThreadPoolExecutor(n, "sklearn_xlc", _begin_thread, (started,))
        for _ in range(n):
            pool.submit(int)
        started.wait()
        torch.set_num_threads(before)  # new threads of Python get the number that was set last
        return pool


#: Pool of all callers by number of threads. Two threads that ask first may start one each: that of
#: the slower one ends with its use.
_pool = functools.cache(_new_pool)


def _begin_thread(started: threading.Barrier) -> None:
    _THIS.is_known = True
    torch.get_num_threads()  # else torch would take the number set last when it computes first
    torch.set_num_threads(1)
    started.wait()


class _Blas:
    """Limit of one thread on the linear algebra of NumPy and SciPy, while anybody asks for it."""

    #: Not `GLOBAL_LOCK`, which another thread may hold for a step of its training.
    lock = threading.Lock()
    n_callers = 0
    limit: Any = None

    @staticmethod
    @functools.cache
    def libraries() -> Any:
        """Return the libraries that this process has loaded."""
        return ThreadpoolController().select(user_api="blas")

    @classmethod
    def is_limited(cls) -> bool:
        """Return whether the limit holds: one of another thread may have ended since, with ours."""
        return any(each.num_threads == 1 for each in cls.libraries().lib_controllers)

    @staticmethod
    def give_back() -> None:
        """Let any thread set the next limit: our last caller may be another than the first.

        From threadpoolctl 3.8 on the thread that sets a limit of OpenBLAS keeps all others from it.
        """
        getattr(OpenBLASController, "clear_controlling_thread", int)()


@contextlib.contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Let NumPy multiply on the caller's thread.

    Between many small products a second thread would spin, beside threads that compute.
    """
    with _Blas.lock:
        if not _Blas.n_callers:
            _Blas.limit = _Blas.libraries().limit(limits=1)
            _Blas.give_back()
        _Blas.n_callers += 1
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.n_callers -= 1
            if not _Blas.n_callers:
                if _Blas.is_limited():
                    _Blas.limit.restore_original_limits()
                _Blas.give_back()


# --- forks --------------------------------------------------------------------------------------


@functools.cache
def one_thread_after_fork() -> None:
    """Give every process forked from now on a single thread of torch.

    A fork does not copy torch's worker threads, but the child would wait for them.
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
    _LIMITED.clear()
    _pool.cache_clear()
    # Other threads of the parent, which may have held it, are not here.
    _Blas.lock, _Blas.n_callers = threading.Lock(), 0
    torch.set_num_threads(1)
