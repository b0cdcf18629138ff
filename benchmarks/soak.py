"""The service under load: its model is replaced beneath it, and it loses a core halfway.

    python benchmarks/soak.py --seconds 1800

`sklearn-xlc serve` answers several connections, each with a pause between two requests, while
another process saves two models in turn to its file. Every answer must be that of one of the two
models. In the second half all threads of the service have one core. Seconds of an answer by half;
neither memory nor open files may grow.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from serving import Server, free_port

import sklearn_xlc
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.serving import read_model

#: Most bytes by which resident memory may grow within a half.
BOUND = 16 * 2**20
#: Seconds from an answer to the next request of the same connection.
PAUSE = 0.1
#: Part of each half that warms up.
WARM_UP = 0.2
K = 5


def make_models(folder, n_samples=1500, n_labels=300):
    """Samples, and the files of two models that answer them otherwise: with lists, and classes."""
    X, Y = make_extreme_multilabel(n_samples, 500, n_labels, random_state=0)
    y = make_extreme_multiclass(n_samples, 500, n_labels, random_state=1)[1]
    files = [Path(folder, name) for name in ("labels.skops", "classes.skops")]
    for target, file in zip((Y, y), files):
        sklearn_xlc.save(sklearn_xlc.MultiHeadClassifier(random_state=0).fit(X, target), file)
    return X[:300], files


def replace(files, path, period, ready, stop):
    """Save the models in turn to the same file until told to stop."""
    models = [sklearn_xlc.load(file) for file in files]
    ready.set()
    turn = 0
    while not stop.wait(period):
        turn += 1
        sklearn_xlc.save(models[turn % len(models)], path)


class Clients:
    """Threads that send requests of one to seven samples and check the answers."""

    def __init__(self, port, X, files):
        self.port, self.errors, self.stop = port, [], threading.Event()
        answers = [read_model(file).answer for file in files]
        self.requests, self.right = [], []
        for row in range(0, X.shape[0], 3):
            part = X[row : row + 1 + row % 7]
            bounds = zip(part.indptr, part.indptr[1:])
            sparse = [(part.indices[a:b].tolist(), part.data[a:b].tolist()) for a, b in bounds]
            samples = [{"columns": columns, "values": values} for columns, values in sparse]
            self.requests.append(json.dumps({"samples": samples, "k": K}).encode())
            self.right.append([answer(sparse, K) for answer in answers])

    def which(self, number, answer):
        """Return which model gave an answer."""
        for model, (labels, p) in enumerate(self.right[number]):
            same = np.array_equal(labels, answer["labels"])
            if same and np.allclose(p, answer["probabilities"], rtol=1e-4, atol=1e-6):
                return model
        raise ValueError("an answer of neither model")

    def send(self, seed, found):
        """Send requests at random; append the model, the time and the seconds of each answer."""
        rng, connection = np.random.default_rng(seed), None
        while not self.stop.wait(PAUSE):
            number = int(rng.integers(len(self.requests)))
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port)
                start = time.perf_counter()
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/predict", self.requests[number], headers)
                response = connection.getresponse()
                body = response.read()
                seconds = time.perf_counter() - start
                if response.status != 200:
                    raise ValueError(f"status {response.status}: {body[:200]}")
                found.append((self.which(number, json.loads(body)), start, seconds))
            except Exception as error:
                self.errors.append(f"request {number}: {error!r}")
                connection = None


def usage(pid):
    """Bytes of resident memory, and number of open files."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def limit_cores(pid, n_cores):
    """Give all threads of a process so many cores."""
    cores = sorted(os.sched_getaffinity(0))[:n_cores]
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def watch(pid, seconds):
    """Sample the usage of a process; growth from one half of the samples to the other."""
    time.sleep(WARM_UP * seconds)
    until, samples = time.monotonic() + (1 - WARM_UP) * seconds, [usage(pid)]
    while time.monotonic() < until:
        time.sleep(min(5.0, 0.1 * seconds))
        samples.append(usage(pid))
    # Reloads hold two models for a moment: medians.
    half = len(samples) // 2
    before, after = (np.median(part, axis=0) for part in (samples[:half], samples[half:]))
    return {"MB": before[0] / 1e6, "MB_more": (after - before)[0] / 1e6} | {
        "files_more": int((after - before)[1])
    }


def soak(seconds, n_threads, period):
    """Run the service for that long; returns what was seen in each half, and errors."""
    with tempfile.TemporaryDirectory() as folder:
        X, files = make_models(folder)
        path, port = Path(folder, "model.skops"), free_port()
        path.write_bytes(files[0].read_bytes())
        context = multiprocessing.get_context("spawn")
        ready, stop = context.Event(), context.Event()
        writer = context.Process(target=replace, args=(files, path, period, ready, stop))
        writer.start()
        ready.wait(120)
        command = [sys.executable, "-m", "sklearn_xlc", "serve", path, "--port", port]
        with Server(command, port) as server:
            clients = Clients(port, X, files)
            found = [[] for _ in range(n_threads)]
            threads = [threading.Thread(target=clients.send, args=job) for job in enumerate(found)]
            for thread in threads:
                thread.start()
            halves, pid = [], server.process.pid
            for n_cores in (len(os.sched_getaffinity(0)), 1):
                limit_cores(pid, n_cores)
                start = time.perf_counter()
                halves.append({"cores": n_cores, **watch(pid, seconds / 2)})
                halves[-1]["between"] = start, time.perf_counter()
            clients.stop.set()
            stop.set()
            for worker in [*threads, writer]:
                worker.join(60)
            metrics = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    models, at, taken = np.concatenate([part for part in found if part]).T
    for half in halves:
        first, last = half.pop("between")
        of_half = 1e3 * taken[(first <= at) & (at < last)]
        half |= {"answers": len(of_half), "worst_ms": of_half.max()}
        half |= {f"p{share}_ms": np.percentile(of_half, share) for share in (50, 99, 99.9)}
    loads = [line for line in metrics.splitlines() if line.startswith("xlc_model_loads_total")]
    return {
        "seconds": seconds,
        "connections": n_threads,
        "answers": np.bincount(models.astype(int), minlength=2).tolist(),
        "halves": halves,
        "loads": loads,
        "errors": clients.errors[:20],
        "n_errors": len(clients.errors),
        "hanging": sum(worker.is_alive() for worker in [*threads, writer]),
        "writer": writer.exitcode,
    }


def faults_of(result):
    """What is wrong with the result of a run."""
    faults = list(result["errors"])
    if result["hanging"] or result["writer"] != 0:
        faults.append(f"hanging: {result['hanging']}, the writer ended with {result['writer']}")
    for half in result["halves"]:
        if 1e6 * half["MB_more"] > BOUND or half["files_more"] > 0:
            faults.append(f"{half['cores']} cores: memory or open files grow: {half}")
    if min(result["answers"]) == 0:
        faults.append("one of the two models was never asked")
    return faults


def main():
    """Run for as long as told, print the result as JSON, and exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--period", type=float, default=3.0, help="seconds between two saves")
    args = parser.parse_args()
    result = soak(args.seconds, args.connections, args.period)
    result["faults"] = faults_of(result)
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["faults"]))


if __name__ == "__main__":
    main()
