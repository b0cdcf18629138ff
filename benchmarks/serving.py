"""Single samples over HTTP: seconds of an answer, answers a second, and memory of workers.

    python benchmarks/serving.py DATA_FOLDER [DATA_FOLDER ...] --python pecos=pecos-env/bin/python
    python benchmarks/serving.py --memory

Each model is fitted by its defaults in a process of its own, which then serves it on the loopback
by the application of `sklearn_xlc.serving`: all models have the same requests, batches and threads.
Every request is one test sample and asks for five labels. 1, 8 or 64 connections send the next
one as soon as they have the answer to the last. "CPU" is that of the server.

With ``--memory``: resident memory of 1, 2 and 4 workers that serve one file of a large model, read
into the memory of each, or mapped. PSS divides a page among the processes that have it.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import joblib
import numpy as np
from _measure import THREAD_VARIABLES, describe_machine, load_part

MODELS = ("multihead-auto", "omikuji", "pecos")
K = 5
#: Folder of the file of a large model, for the applications of workers.
_FOLDER = "SKLEARN_XLC_BENCH_FOLDER"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--runs", type=int, default=3, help="measurements; the median is shown")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="put the server and its clients before all other processes (needs root)",
    )
    parser.add_argument("--python", action="append", default=[], metavar="MODEL=INTERPRETER")
    parser.add_argument("--memory", action="store_true", help="measure workers instead")
    parser.add_argument("--labels", type=int, default=100_000, help="of the large model")
    parser.add_argument("--serve", nargs=3, metavar=("MODEL", "SCRATCH", "PORT"))
    return parser.parse_args()


# --- servers -----------------------------------------------------------------------------------


def serve(name, folder, scratch, port):
    """Fit a model of `peers.py` and serve it until terminated."""
    import uvicorn
    from peers import ADAPTERS

    from sklearn_xlc.serving import Model, as_input, create_app, read_model

    X, Y = load_part(folder, "trn")
    adapter = ADAPTERS[name](1, scratch)
    adapter.prepare(X, Y)
    adapter.fit(X, Y)
    if name.startswith("multihead"):
        from sklearn_xlc import save

        path, read = Path(scratch, "model.skops"), read_model
        save(adapter.model, path, exact=True)
    else:

        def answer(samples, k):
            labels = adapter.predict_topk(as_input(samples, X.shape[1]), k)
            return labels.tolist(), np.zeros(labels.shape).tolist()

        path, read = scratch, lambda path: Model(answer, name)
    uvicorn.run(create_app(path, read), port=port, access_log=False, log_level="warning")


class Server:
    """A process that answers on a port, from its first answer to the end of the block."""

    def __init__(self, command, port, **environment):
        self.command, self.port, self.environment = command, port, environment

    def __enter__(self):
        threads = dict.fromkeys(THREAD_VARIABLES, "1")
        environment = {**os.environ, **threads, "OMP_WAIT_POLICY": "PASSIVE", **self.environment}
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            list(map(str, self.command)), env=environment, stdout=self.log, stderr=self.log
        )
        while True:
            try:
                urlopen(f"http://127.0.0.1:{self.port}/health").close()
                return self
            except URLError:
                if self.process.poll() is not None:
                    self.log.seek(0)
                    reason = self.log.read()[-2000:]
                    raise RuntimeError(f"the server has ended: {reason}") from None
                time.sleep(0.2)

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()

    def wait_for(self, line, times):
        """Wait until a line has been logged so many times."""
        while os.pread(self.log.fileno(), 2**20, 0).count(line.encode()) < times:
            time.sleep(0.2)

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def put_first(pid):
    """Let the threads of a process run before those of other processes, where these are many."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))


# --- load --------------------------------------------------------------------------------------


def requests_of(X):
    """Bytes of a request for each of some samples."""
    messages = []
    for row in range(min(X.shape[0], 2000)):
        part = slice(X.indptr[row], X.indptr[row + 1])
        values = [float(f"{value:.6g}") for value in X.data[part]]
        sample = {"columns": X.indices[part].tolist(), "values": values}
        body = json.dumps({"samples": [sample], "k": K}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        messages.append(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return messages


async def _send(port, messages, first, end, seconds):
    """Send one request after the other through a connection, and note how long answers take."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = first
    while (start := time.perf_counter()) < end:
        writer.write(messages[number % len(messages)])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        await reader.readexactly(size)
        seconds.append(time.perf_counter() - start)
        number += 1
    writer.close()


def load(server, messages, n_connections, length):
    """Median and 99th percentile in milliseconds, answers a second, and CPU milliseconds of one."""

    async def send_all():
        end = time.perf_counter() + length
        firsts = range(0, n_connections * 31, 31)
        await asyncio.gather(
            *(_send(server.port, messages, first, end, seconds) for first in firsts)
        )

    seconds, before, start = [], server.cpu_seconds(), time.perf_counter()
    asyncio.run(send_all())
    n_seconds, cpu = time.perf_counter() - start, server.cpu_seconds() - before
    middle, late = 1e3 * np.quantile(seconds, [0.5, 0.99])
    return middle, late, len(seconds) / n_seconds, 1e3 * cpu / len(seconds)


def measure_load(options):
    pythons = dict(pair.split("=", 1) for pair in options.python)
    print("| data | model | connections | p50, ms | p99, ms | answers a second | CPU, ms |")
    print("|---|---|---|---|---|---|---|")
    for folder in options.folders:
        messages = requests_of(load_part(folder, "tst")[0])
        for name in options.models:
            with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
                port = free_port()
                command = [pythons.get(name, sys.executable), __file__, folder]
                with Server([*command, "--serve", name, scratch, port], port) as server:
                    for n_connections, figures in loads(server, messages, options):
                        middle, late, rate, cpu = figures
                        print(
                            f"| {folder.name} | {name} | {n_connections} | {middle:.2f} "
                            f"| {late:.2f} | {rate:.0f} | {cpu:.2f} |",
                            flush=True,
                        )


def loads(server, messages, options):
    """Numbers of connections, and the medians of what `load` measures with each."""
    load(server, messages, 8, 1.0)  # the first requests load parts of torch
    if options.alone:
        put_first(server.process.pid)
        put_first(os.getpid())
    for n_connections in options.connections:
        runs = [load(server, messages, n_connections, options.seconds) for _ in range(options.runs)]
        yield n_connections, np.median(runs, axis=0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


# --- memory ------------------------------------------------------------------------------------


def create_mapping():
    """Application whose workers map the file."""
    return _application(mmap=True)


def create_reading():
    """Application whose workers read the file into memory of their own."""
    return _application(mmap=False)


def _application(mmap):
    import sklearn_xlc
    from sklearn_xlc.serving import Model, as_input, create_app

    def read(path):
        estimator = joblib.load(f"{path}.joblib", mmap_mode="r") if mmap else sklearn_xlc.load(path)

        def answer(samples, k):
            X = as_input(samples, N_COLUMNS)
            labels, probabilities = sklearn_xlc.predict_topk(estimator, X, k, proba=True)
            return labels.tolist(), probabilities.tolist()

        return Model(answer, "large")

    return create_app(Path(os.environ[_FOLDER], "model.skops"), read)


N_COLUMNS, N_FEATURES = 30_000, 512


def save_large(path, n_labels):
    """Save a model of many labels; what it has learnt does not matter here."""
    import scipy.sparse as sp

    from sklearn_xlc import MultiHeadClassifier, save
    from sklearn_xlc.encoders import MLP

    rng = np.random.default_rng(0)
    X = sp.random(64, N_COLUMNS, 0.001, format="csr", dtype=np.float32, random_state=rng)
    model = MultiHeadClassifier("flat", encoder=MLP((N_FEATURES,)), random_state=0)
    model.partial_fit(X, rng.integers(0, n_labels, 64), classes=np.arange(n_labels))
    save(model, path, exact=True)
    joblib.dump(model, f"{path}.joblib")
    return X, 4 * model.n_parameters_


def workers_of(server, n_workers):
    """Processes that answer: the one that was started, or its children."""
    if n_workers == 1:
        return [server.process.pid]
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            # multiprocessing starts a child that keeps its books, too.
            if b"spawn_main" in (folder / "cmdline").read_bytes():
                parents[int(folder.name)] = int(fields[1])
        except OSError:  # it has ended
            continue
    return [process for process, parent in parents.items() if parent == server.process.pid]


def memory_of(processes):
    """Resident, proportional and private MiB of each process."""
    found = []
    for process in processes:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
        private = sizes["Private_Clean"] + sizes["Private_Dirty"]
        found.append((sizes["Rss"], sizes["Pss"], private))
    return np.array(found).reshape(-1, 3)


def measure_memory(options):
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as folder:
        X, n_bytes = save_large(Path(folder, "model.skops"), options.labels)
        messages = requests_of(X)
        print(f"weights: {n_bytes / 2**20:.0f} MiB")
        print("| workers | file | RSS, MiB | PSS, MiB | private, MiB |")
        print("|---|---|---|---|---|")
        for n_workers in (1, 2, 4):
            for way in ("reading", "mapping"):
                port = free_port()
                command = [sys.executable, "-m", "uvicorn", f"serving:create_{way}", "--factory"]
                command += ["--app-dir", Path(__file__).parent, "--workers", n_workers]
                command += ["--port", port, "--no-access-log"]
                with Server(command, port, **{_FOLDER: folder}) as server:
                    server.wait_for("Application startup complete", n_workers)
                    load(server, messages, 64, 5.0)
                    found = memory_of(workers_of(server, n_workers)).sum(axis=0)
                cells = " | ".join(f"{value:.0f}" for value in found)
                print(f"| {n_workers} | {way} | {cells} |", flush=True)


def main():
    options = parse_arguments()
    if options.serve is not None:
        name, scratch, port = options.serve
        serve(name, options.folders[0], scratch, int(port))
        return
    print(describe_machine(1))
    if options.memory:
        measure_memory(options)
    if options.folders:
        measure_load(options)


if __name__ == "__main__":
    main()
