"""Leaks: memory and file handles stay as they are over thousands of calls."""

import gc
import os
import tempfile
from pathlib import Path

import joblib

import sklearn_xlc
from attack._fits import data_of, fitted, model_of
from attack._processes import counted

#: Resident memory may grow by so much after warm-up: the allocator's own habits, no leak.
BOUND = 8 * 2**20
SOME = ["flat", "cascade", "dft", "etf", "bags"]


def resident():
    """Bytes of resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles():
    """Number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))


def growth(call, n_calls, warm_up):
    """Growth of memory and handles over that many calls, after some more to warm up."""
    for number in range(warm_up):
        call(number)
    memory, files = resident(), handles()
    for number in range(n_calls):
        call(number)
    return resident() - memory, handles() - files


def repeated(names, n_predictions, n_fits, n_loads):
    """Failures among calls that are repeated, where memory or open files grow."""
    models = {name: fitted(name) for name in names}
    data = {name: data_of(name) for name in names}

    def predict(number):
        name = names[number % len(names)]
        X = data[name][0]
        row = number % X.shape[0]
        getattr(models[name], ["predict", "predict_topk"][number // 7 % 2])(X[row : row + 1])

    def fit(number):
        name = names[number % len(names)]
        model_of(name, seed=number, max_epochs=1).fit(*data[name])

    def train_on(number):
        name = names[number % len(names)]
        models[name].partial_fit(*data[name])

    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name) for name in names}

        def load(number):
            name = names[number % len(names)]
            saved, dumped = paths[name] + ".skops", paths[name] + ".joblib"
            sklearn_xlc.save(models[name], saved)
            sklearn_xlc.load(saved).predict(data[name][0][:2])
            joblib.dump(models[name], dumped)
            mapped = joblib.load(dumped, mmap_mode="r" if number % 2 else None)
            mapped.predict(data[name][0][:2])

        calls = {
            "predictions": (predict, n_predictions),
            "fits": (fit, n_fits),
            "partial fits": (train_on, n_fits),
            "saves and loads": (load, n_loads),
        }
        grown = {
            name: growth(call, n_calls, max(5, n_calls // 5))
            for name, (call, n_calls) in calls.items()
        }
    failures = [
        f"{name}: memory grows by {memory:,} bytes, open files by {files}"
        for name, (memory, files) in grown.items()
        if memory > BOUND or files > 0
    ]
    return n_predictions + 2 * n_fits + n_loads, failures


test_leaks = counted(
    "leaks", repeated, small=(["flat"], 50, 2, 2), whole=(SOME, 60_000, 200, 200), limit=3600
)
