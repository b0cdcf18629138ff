"""Tasks through joblib: on threads, or on the backend of a joblib context, such as dask."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

Result = TypeVar("Result")
#: How often tasks are started when workers die, as often as dask tries a task.
ATTEMPTS = 4


class Shared:
    """What all tasks of a call read, as one object.

    joblib's backend for dask sends large arguments to a worker once, and small ones with each task.
    It asks an object for its size, and an object of Python that holds arrays calls itself small.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __sizeof__(self) -> int:
        buffers: list[pickle.PickleBuffer] = []  # arrays, which are not copied
        rest = pickle.dumps(self.values, protocol=5, buffer_callback=buffers.append)
        return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)


def count_jobs(n_jobs: int | None) -> int:
    """Number of tasks that run at once.

    A task of dask computes on its own unless `n_jobs` says more: what started it, such as a search,
    has the other workers busy, and tasks that wait for tasks would all be in memory at once.
    """
    if n_jobs == 1 or (n_jobs is None and _is_within_a_task()):
        return 1
    return effective_n_jobs(n_jobs)


def run_tasks(
    function: Callable[..., Result],
    shared: tuple[Any, ...],
    tasks: Sequence[tuple[Any, ...]],
    n_jobs: int | None,
    prefer: str | None = "threads",
) -> list[Result]:
    """Results of ``function(*shared, *task)`` for each task, in their order."""
    if count_jobs(n_jobs) == 1 or len(tasks) == 1:
        return [function(*shared, *task) for task in tasks]
    held = Shared(shared)

    def run_all() -> list[Result]:
        calls = (delayed(_run)(function, held, task) for task in tasks)
        return list(Parallel(n_jobs=n_jobs, prefer=prefer)(calls))

    # Where a worker of dask dies, dask runs its tasks again; but if it had the only copy of what
    # they share, they are cancelled, and that must be sent again.
    for _ in range(ATTEMPTS - 1):
        with suppress(CancelledError):
            return run_all()
    return run_all()


def _run(function: Callable[..., Result], shared: Shared, task: tuple[Any, ...]) -> Result:
    return function(*shared.values, *task)


def _is_within_a_task() -> bool:
    """Whether this thread runs a task of dask."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
