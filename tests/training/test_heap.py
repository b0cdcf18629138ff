"""Freed memory stays with the process, for the next step or prediction."""

import os
import subprocess
import sys

import pytest

from _factories import make_learnable, quick
from sklearn_xlc.engine import predictor
from sklearn_xlc.training import heap, net

FAULTS = """
import resource, torch
from sklearn_xlc.training.heap import keep_memory
def steps():
    for _ in range(10):
        torch.ones(2**22).add(1.0)  # two temporaries of 16 MiB
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def faults_of_later_steps():
    steps()
    before = faults()
    steps()
    return faults() - before
print(faults_of_later_steps())
keep_memory()
print(faults_of_later_steps())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_temporaries_of_later_steps_need_no_new_pages():
    # 64 kB at the end of the heap are kept, as by workers of dask.
    command = [sys.executable, "-c", FAULTS]
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    # A temporary has 2**12 pages; one of the twenty may still find no place in the heap.
    usual, kept = map(int, run.stdout.split())
    assert kept < 4 * 2**12 <= usual


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())
    heap.keep_memory.__wrapped__()


def test_fits_and_predictions_keep_memory(monkeypatch):
    calls = []
    for module in (net, predictor):
        monkeypatch.setattr(module, "keep_memory", lambda name=module: calls.append(name))
    X, y = make_learnable(False)
    model = quick("flat", max_epochs=1).fit(X, y)
    assert calls[0] is net
    calls.clear()
    model.predict_topk(X)
    assert set(calls) == {predictor}
