"""Bulk prediction by workers of dask: seconds of all partitions, and memory of each worker.

    python benchmarks/dask_prediction.py DATA_FOLDER

A default classifier is fitted and saved, and the test samples, repeated, are written into a file
from which workers read their partitions (`datasets.open_csr`). `predict_topk(path, partitions, 5)`
is then computed by workers of one thread, which load the model, and by the same workers with the
model sent to them. "In one process" is the same loop over partitions without dask. The
first computation of workers loads the package and the model, and is shown beside the later ones.
PSS divides a page of memory among the processes that have it; the largest is shown, and what a
worker has for itself at that time.
"""

import argparse
import logging
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import THREAD_VARIABLES, describe_machine, load_part

K = 5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=120_000, help="samples to predict")
    parser.add_argument("--partition", type=int, default=4000, help="samples of a partition")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--epochs", default="auto", type=lambda text: text if text == "auto" else int(text)
    )
    parser.add_argument("--runs", type=int, default=3, help="computations; the median is shown")
    return parser.parse_args()


def rows_of(path, start, stop):
    from sklearn_xlc.datasets import open_csr

    return open_csr(path, verify=False)[start:stop]


class Memory:
    """Largest mean PSS of some processes, and what each has for itself, in MiB, within a block."""

    def __init__(self, processes):
        self.files = [Path(f"/proc/{process}/smaps_rollup") for process in processes]
        self.largest, self.ended = (0, 0), threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.ended.wait(0.1):
            self.largest = max(
                self.largest, tuple(np.mean(list(map(self.read, self.files)), axis=0))
            )

    def read(self, file):
        lines = file.read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
        return sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended.set()
        self.thread.join()


def cpu_seconds():
    return time.process_time()


def timed(function, runs):
    """Seconds of the first call and the median of later ones, and what the last returned."""
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        found = function()
        seconds.append(time.perf_counter() - start)
    return seconds[0], np.median(seconds[1:]), found


def in_one_process(model, file, bounds, runs):
    from sklearn_xlc import predict_topk

    def rank():
        before.append(cpu_seconds())
        parts = [predict_topk(model, rows_of(file, *bound), K) for bound in bounds]
        return np.concatenate([labels for labels, _ in parts])

    before = []
    first, later, labels = timed(rank, runs)
    return first, later, labels, (cpu_seconds() - before[1]) / runs


def by_workers(n_workers, model, file, bounds, shape, runs):
    """Seconds, labels, CPU seconds of a computation, and memory of each worker."""
    import dask.array as da
    from dask import delayed
    from dask.distributed import Client, LocalCluster

    from sklearn_xlc import predict_topk

    read = delayed(rows_of, pure=False)
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        blocks = [
            da.from_delayed(
                read(str(file), start, stop),
                (stop - start, shape[1]),
                meta=sp.csr_matrix((0, shape[1]), dtype=np.float32),
            )
            for start, stop in bounds
        ]
        samples, before = da.concatenate(blocks), []

        def rank():
            before.append(sum(client.run(cpu_seconds).values()))
            return predict_topk(model, samples, K).compute().labels

        with Memory(client.run(os.getpid).values()) as memory:
            first, later, labels = timed(rank, runs)
        cpu = (sum(client.run(cpu_seconds).values()) - before[1]) / runs
        return first, later, labels, cpu, memory.largest


def main():
    options = parse_arguments()
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from sklearn_xlc import MultiHeadClassifier, load, save
    from sklearn_xlc.datasets import save_csr

    print(describe_machine(1))
    model = MultiHeadClassifier(max_epochs=options.epochs, random_state=0)
    model.fit(*load_part(options.folder, "trn"))
    X, _ = load_part(options.folder, "tst")
    n_rows = options.rows
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as folder:
        path, file = Path(folder, "model.skops"), Path(folder, "samples.csr")
        save(model, path, exact=True)
        save_csr(
            file,
            (X[np.arange(i, min(i + 10**4, n_rows)) % X.shape[0]] for i in range(0, n_rows, 10**4)),
        )
        starts = range(0, n_rows, options.partition)
        bounds = [(i, min(i + options.partition, n_rows)) for i in starts]
        weights = sum(p.nbytes for p in model.net_.module_.parameters()) / 2**20
        print(f"{n_rows} samples in {len(bounds)} partitions; weights of {weights:.0f} MiB")
        print("| | model | first, s | later, s | CPU, s | PSS a worker, MiB | private, MiB |")
        print("|---|---|---|---|---|---|---|")
        first, later, expected, cpu = in_one_process(load(path), file, bounds, options.runs)
        print(f"| one process | loaded | {first:.1f} | {later:.1f} | {cpu:.1f} | | |", flush=True)
        for n_workers in options.workers:
            for name, given in (("loaded", path), ("sent", model)):
                first, later, labels, cpu, sizes = by_workers(
                    n_workers, given, file, bounds, X.shape, options.runs
                )
                assert (labels == expected).mean() > 0.9999
                pss, private = (f"{size:.0f}" for size in sizes)
                print(
                    f"| {n_workers} workers | {name} | {first:.1f} | {later:.1f} | {cpu:.1f} "
                    f"| {pss} | {private} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
