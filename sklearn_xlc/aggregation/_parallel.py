"""Parallel tasks through joblib: on threads, or on the backend of a joblib context (dask)."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

Result = TypeVar("Result")
#: Number of attempts at a task when workers die, as in dask.
ATTEMPTS = 4


class Shared:
    """Arguments shared by all tasks of a call.

    joblib's backend for dask sends large arguments to a worker once, and small ones with each task.
    It reads the size from ``__sizeof__``, which by default does not count arrays.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __sizeof__(self) -> int:
        buffers: list[pickle.PickleBuffer] = []  # arrays, which are not copied
        rest = pickle.dumps(self.values, protocol=5, buffer_callback=buffers.append)
        return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)


def count_jobs(n_jobs: int | None) -> int:
    """Return the number of concurrent tasks.

    Within a task of dask it is 1, unless `n_jobs` asks for more: the other workers are busy with
    the search that started the task, and waiting tasks would hold memory.
    """
    if n_jobs is None and _is_dask_task():
        return 1
    return effective_n_jobs(n_jobs)


def run_tasks(
    function: Callable[..., Result],
    shared: tuple[Any, ...],
    tasks: Sequence[tuple[Any, ...]],
    n_jobs: int | None,
    prefer: str | None = "threads",
) -> list[Result]:
    """Return ``function(*shared, *task)`` of each task, in order."""
    if count_jobs(n_jobs) == 1 or len(tasks) == 1:
        return [function(*shared, *task) for task in tasks]
    held = Shared(shared)

    def run_all() -> list[Result]:
        calls = (delayed(_run)(function, held, task) for task in tasks)
        return list(Parallel(n_jobs=n_jobs, prefer=prefer)(calls))

    # dask runs the tasks of a dead worker again. But if the worker had the only copy of the shared
    # arguments, the tasks are cancelled, and the arguments must be sent again.
    for _ in range(ATTEMPTS - 1):
        with suppress(CancelledError):
            return run_all()
    return run_all()


def _run(function: Callable[..., Result], shared: Shared, task: tuple[Any, ...]) -> Result:
    return function(*shared.values, *task)


def _is_dask_task() -> bool:
    """Return whether this thread runs a task of dask."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
