"""A server under load: threads answer while the file of its model is replaced and reloaded.

One process answers from several threads; another saves two models in turn to the file that the
server reloads. Every answer must be that of one of the two models, to the bit, and neither memory
nor open files may grow.

    python benchmarks/soak.py --seconds 600
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _measure import add_device, device

import sklearn_xlc
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade

#: Most bytes by which resident memory may grow after the first part of the run.
BOUND = 16 * 2**20
#: Seconds from an answer to the next request of the same thread.
PAUSE = 0.02
#: Part of the run that warms up.
WARM_UP = 0.2


def make_models(n_samples=300, n_labels=2000):
    """Samples and two models that answer them otherwise, of different heads and sizes."""
    X, Y = make_extreme_multilabel(n_samples, 500, n_labels, random_state=0)
    y = make_extreme_multiclass(n_samples, 500, n_labels, random_state=1)[1]
    params = {"encoder": MLP((64,)), "max_epochs": 2, "random_state": 0, "device": device()}
    first = sklearn_xlc.MultiHeadClassifier(Cascade(embedding_dim=32), **params).fit(X, Y)
    return X, [first, sklearn_xlc.MultiHeadClassifier("flat", **params).fit(X, y)]


def answer(model, X):
    """Bytes of the best labels of X and of their scores."""
    return b"".join(part.tobytes() for part in model.predict_topk(X, k=5))


def replace(models, path, period, stop):
    """Save the models in turn to the same file until told to stop."""
    turn = 0
    while not stop.wait(period):
        turn += 1
        sklearn_xlc.save(models[turn % len(models)], path)


class Server:
    """Threads that answer from the current model, and one that reloads it when its file changes.

    Parameters
    ----------
    path : path-like
        File of the model.
    X : sparse matrix of shape (n_samples, n_features)
        Samples to answer for.
    models : list
        Models that may be in the file.
    """

    def __init__(self, path, X, models):
        self.path, self.X = Path(path), X
        self.requests = [X[row : row + 1 + row % 7] for row in range(0, X.shape[0], 3)]
        self.right = [[answer(model, part) for model in models] for part in self.requests]
        self.model, self.reloads, self.errors = sklearn_xlc.load(path), 0, []
        self.stop = threading.Event()

    def serve(self, number, counts):
        """Answer requests at random; count the answers of each model."""
        rng = np.random.default_rng(number)
        while not self.stop.wait(PAUSE):
            which = rng.integers(len(self.requests))
            try:
                given = answer(self.model, self.requests[which])
                counts[self.right[which].index(given)] += 1
            except Exception as error:  # the answer of neither model is no element of the list
                self.errors.append(f"request {which}: {error!r}")

    def reload(self):
        """Load the file again whenever it has changed."""
        seen = None
        while not self.stop.wait(0.05):
            try:
                status = self.path.stat()
                if seen != (seen := (status.st_ino, status.st_mtime_ns)):
                    self.model = sklearn_xlc.load(self.path)
                    self.reloads += 1
            except Exception as error:
                self.errors.append(f"reload {self.reloads}: {error!r}")


def usage():
    """Bytes of resident memory, and number of open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))


def soak(seconds, n_threads, period):
    """Run server and writer for that long; returns counts, errors and growth."""
    X, models = make_models()
    models = [sklearn_xlc.compress(model) for model in models]  # as `save` stores them
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.skops"
        sklearn_xlc.save(models[0], path)
        server = Server(path, X, models)
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        writer = context.Process(target=replace, args=(models, path, period, stop))
        writer.start()
        counts = [[0] * len(models) for _ in range(n_threads)]
        threads = [threading.Thread(target=server.reload)]
        threads += [threading.Thread(target=server.serve, args=job) for job in enumerate(counts)]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        time.sleep(WARM_UP * seconds)
        samples = [usage()]
        while time.monotonic() - start < seconds:
            time.sleep(min(5.0, 0.2 * seconds))
            samples.append(usage())
        server.stop.set()
        stop.set()
        for worker in [*threads, writer]:
            worker.join(60)
        hanging = sum(worker.is_alive() for worker in [*threads, writer])
    memory, files = np.array(samples).T
    # Reloads hold two models for a moment: the median of each half of the run.
    half = len(memory) // 2
    return {
        "seconds": seconds,
        "threads": n_threads,
        "answers": np.sum(counts, axis=0).tolist(),
        "reloads": server.reloads,
        "errors": server.errors[:20],
        "n_errors": len(server.errors),
        "hanging": hanging,
        "writer": writer.exitcode,
        "memory": int(np.median(memory)),
        "memory_growth": int(np.median(memory[half:]) - np.median(memory[: half or 1])),
        "files_growth": int(np.median(files[half:]) - np.median(files[: half or 1])),
    }


def faults_of(result):
    """What is wrong with the result of a run."""
    faults = list(result["errors"])
    if result["hanging"] or result["writer"] != 0:
        faults.append(f"hanging: {result['hanging']}, the writer ended with {result['writer']}")
    if result["memory_growth"] > BOUND or result["files_growth"] > 0:
        faults.append(
            f"memory grows by {result['memory_growth']:,} bytes, open files by "
            f"{result['files_growth']}"
        )
    if result["reloads"] < 2 or min(result["answers"]) == 0:
        faults.append("one of the two models was never asked")
    return faults


def main():
    """Run for as long as told, print the result as JSON, and exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--period", type=float, default=3.0, help="seconds between two saves")
    add_device(parser)
    args = parser.parse_args()
    result = soak(args.seconds, args.threads, args.period)
    result["faults"] = faults_of(result)
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["faults"]))


if __name__ == "__main__":
    main()
