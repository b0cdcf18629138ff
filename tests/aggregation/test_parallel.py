"""Tasks through joblib: in order, on any backend, and with the size of what they share."""

import sys
import types
from concurrent.futures import CancelledError

import joblib
import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.aggregation import _parallel as module
from sklearn_xlc.aggregation._parallel import Shared, count_jobs, run_tasks


def weighted(values, factor, first, last):
    return values[first:last] * factor


@pytest.mark.parametrize("backend", ["sequential", "threading"])
@pytest.mark.parametrize("n_jobs", [None, 1, 2, -1])
def test_results_come_in_the_order_of_the_tasks(backend, n_jobs):
    tasks = [(start, start + 3) for start in range(0, 30, 3)]
    with joblib.parallel_config(backend):
        found = run_tasks(weighted, (np.arange(30.0), 2), tasks, n_jobs)
    np.testing.assert_array_equal(np.concatenate(found), 2 * np.arange(30.0))
    assert run_tasks(weighted, (np.arange(30.0), 2), [], n_jobs) == []


def test_the_size_of_an_object_counts_the_arrays_within(rng):
    dense, matrix = rng.random((50, 20)), sp.random(40, 30, 0.5, format="csr")
    parts = [dense, matrix.data, matrix.indices, matrix.indptr]
    n_bytes = sum(part.nbytes for part in parts)
    nested = types.SimpleNamespace(X=matrix, names={"weights": dense}, rest=None)
    assert n_bytes < sys.getsizeof(Shared((nested, "given"))) < n_bytes + 2000
    assert sys.getsizeof(nested) < 2000  # which dask would send with each task


@pytest.mark.parametrize("n_losses", [1, 3, 4])
def test_what_a_worker_took_with_it_is_sent_again(monkeypatch, n_losses):
    losses = iter(range(n_losses))

    class Losing(joblib.Parallel):
        def __call__(self, tasks):
            if next(losses, None) is not None:
                raise CancelledError
            return super().__call__(tasks)

    monkeypatch.setattr(module, "Parallel", Losing)
    tasks = [(0, 1), (1, 3)]
    if n_losses == 4:
        with pytest.raises(CancelledError):
            run_tasks(weighted, (np.arange(3), 2), tasks, 2)
    else:
        found = run_tasks(weighted, (np.arange(3), 2), tasks, 2)
        assert np.concatenate(found).tolist() == [0, 2, 4]


def test_a_task_of_dask_computes_on_its_own(monkeypatch):
    distributed = types.ModuleType("distributed")
    distributed.get_worker = lambda: "tcp://somewhere"
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    with joblib.parallel_config("threading", n_jobs=3):
        assert [count_jobs(n_jobs) for n_jobs in (None, 1, 2)] == [1, 1, 2]

        def raises():
            raise ValueError("No worker found")

        distributed.get_worker = raises
        assert [count_jobs(n_jobs) for n_jobs in (None, 1, 2)] == [3, 1, 2]
    monkeypatch.delitem(sys.modules, "distributed")
    assert count_jobs(None) == 1
    monkeypatch.setattr(module, "Parallel", None)
    assert run_tasks(weighted, (np.arange(3), 1), [(0, 1), (1, 3)], None)[1].tolist() == [1, 2]
