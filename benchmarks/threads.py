"""What threads cost and save: training steps and predictions of one row, alone and beside others.

    python benchmarks/threads.py
    python benchmarks/threads.py --data DATA_FOLDER [DATA_FOLDER ...]

With ``--data``: seconds of a default fit and of predictions of all test samples, on one thread and
on all. The first command needs no data and, on purpose, no environment variable. The package
computes little work on one thread (`sklearn_xlc.batches.threads.MANY`); "one" and "all" are steps
with that rule switched off.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import Rows, threads
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.trainer import Trainer
from sklearn_xlc.engine.validation import TrainingData

#: Head, hidden units and labels.
STEPS = [("flat", 64, 100), ("flat", 256, 200), ("flat", 512, 500), ("flat", 512, 1000)]
STEPS += [("flat", 512, 4000), ("flat", 1024, 8000), ("cascade", 1024, 4000)]
ROWS = [("flat", 512, 1000), ("flat", 512, 4000), ("cascade", 1024, 4000)]


def fitted(head, width, n_labels):
    """A classifier after one epoch, its net and the samples."""
    rng, n = np.random.default_rng(0), 1536
    X = sp.random(n, 5000, 0.004, format="csr", dtype=np.float32, random_state=0)
    ids = rng.integers(n_labels, size=3 * n)
    Y = sp.csr_matrix((np.ones(3 * n, np.int8), (np.repeat(np.arange(n), 3), ids)), (n, n_labels))
    Y.data[:] = 1
    params = {"encoder": MLP((width,)), "batch_size": 256, "max_epochs": 1}
    clf = MultiHeadClassifier(head, warm_start=True, random_state=0, **params)
    return clf.fit(X, Y), X, Y


def step_times(clf, X, Y, n_threads, least, seconds=1.0):
    """Milliseconds of training steps with that number of threads, `least` work for which counts."""
    net = clf.net_
    plan = Plan(clf, TrainingData(Rows(X, Y), clf._code), going_on=True)
    rows = Trainer(plan).prepared(Rows(X, Y), net.module_)
    batches = list(net.get_iterator(rows, training=True))[:4]
    before, times = torch.get_num_threads(), []
    torch.set_num_threads(n_threads)
    with mock.patch.object(threads, "MANY", least):
        for batch in batches:
            net.train_step(batch)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for batch in batches:
                start = time.perf_counter()
                net.train_step(batch)
                times.append(1e3 * (time.perf_counter() - start))
    torch.set_num_threads(before)
    return np.array(times)


def row_times(clf, X, n_calls=600):
    """Milliseconds of predictions of one row."""
    rows, times = [X[i] for i in range(200)], []
    for i in range(n_calls + 20):
        start = time.perf_counter()
        clf.predict_topk(rows[i % 200], k=5)
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times[20:])


@contextlib.contextmanager
def busy(n_processes):
    """So many other processes that compute without end."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def seconds_of(function, n_calls=1):
    """Result, and medians of the seconds of a call by the clock and of its CPU seconds."""
    spent = []
    for _ in range(n_calls):
        start = time.perf_counter(), time.process_time()
        result = function()
        spent.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return result, *np.median(spent, axis=0)


def whole(folder, n_threads):
    """Seconds of a default fit and of predictions with that number of threads."""
    (X, Y), (X_test, _) = load_part(folder, "trn"), load_part(folder, "tst")
    torch.set_num_threads(n_threads)
    MultiHeadClassifier(max_epochs=1, random_state=0).fit(X[:1500], Y[:1500])  # loads torch
    clf, *fit = seconds_of(lambda: MultiHeadClassifier(random_state=0).fit(X, Y))
    _, *ranked = seconds_of(lambda: clf.predict_topk(X_test), 3)
    _, *predicted = seconds_of(lambda: clf.predict(X_test), 3)
    return fit, ranked, predicted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[])
    folders, n_threads = parser.parse_args().data, torch.get_num_threads()
    if not folders:
        synthetic(n_threads)
        return
    print("| data | | one thread, s (CPU) | all | times as fast |\n|---|---|---|---|---|")
    for folder in folders:
        found = [whole(folder, n) for n in (1, n_threads)]
        for name, one, many in zip(("fit", "predict_topk", "predict"), *found):
            cells = " | ".join(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in (one, many))
            print(f"| {folder.name} | {name} | {cells} | {one[0] / many[0]:.2f} |", flush=True)


def synthetic(n_threads):
    """Print the times of steps and of single rows, alone and beside another process."""
    print(f"{n_threads} threads; milliseconds\n")
    print("| step of 256 rows | multiply-adds | other processes | one | all | as decided |")
    print("|---|---|---|---|---|---|")
    for case in STEPS:
        clf, X, Y = fitted(*case)
        work = clf.net_._work(X[:256], 256) / 2**20
        for n_others in (0, 1):
            with busy(n_others):
                settings = [(1, 0), (n_threads, 0), (n_threads, threads.MANY)]
                found = [step_times(clf, X, Y, *setting) for setting in settings]
            medians = " | ".join(f"{np.median(times):.1f}" for times in found)
            print(f"| {case} | {work:.0f} Mi | {n_others} | {medians} |", flush=True)
    print("\n| one row | other processes | p50 | p99 |\n|---|---|---|---|")
    for case in ROWS:
        clf, X, _ = fitted(*case)
        for n_others in (0, 1):
            with busy(n_others):
                times = row_times(clf, X)
            print(
                f"| {case} | {n_others} | {np.median(times):.2f} | {np.quantile(times, 0.99):.2f} |"
            )


if __name__ == "__main__":
    main()
