"""CPU time of predictions of a default multi-label fit: many samples at once, and one at a time.

    python benchmarks/prediction.py DATA_FOLDER [DATA_FOLDER ...]
    python benchmarks/prediction.py DATA_FOLDER [DATA_FOLDER ...] --ranker calibration

Each default fit predicts the five best labels of all test samples on one thread, with the search by
products of eight bits (`heads/screening.py`) and without it, in turn; medians. "Products" are those
of X with the input layer and of features with the output layer alone, in eight bits where the
search is used: the least of as many runs. Then single samples arrive, one every few milliseconds as
requests do: median and 99th percentile of their CPU time, and of the time on the clock, in which a
busy machine makes them wait. With ``--ranker calibration`` the network ranks alone, without lists.
"""

import argparse
import contextlib
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import torch
from _measure import describe_machine, load_part
from torch.nn import functional

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import SparseRows
from sklearn_xlc.engine.predictor import PREDICT_BATCH
from sklearn_xlc.heads.screening import Screening


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--ranker", choices=("auto", "calibration"), default="auto")
    parser.add_argument("--runs", type=int, default=5, help="predictions of all test samples")
    parser.add_argument("--requests", type=int, default=1000, help="single samples")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between two of them")
    parser.add_argument("--keep", type=Path, help="folder of fitted models, to use or to fill")
    return parser.parse_args()


def fitted(folder, ranker, keep):
    """Fit with that ranker to the training samples of a folder, or the one that was kept."""
    path = None if keep is None else keep / f"{folder.name}-{ranker}.joblib"
    if path is not None and path.exists():
        return joblib.load(path)
    model = MultiHeadClassifier(ranker=ranker, random_state=0).fit(*load_part(folder, "trn"))
    if path is not None:
        keep.mkdir(parents=True, exist_ok=True)
        joblib.dump(model, path)
    return model


def all_logits():
    """Context without the search."""
    return mock.patch.object(Screening, "suits", return_value=False)


def measure_batches(model, X, n_runs):
    """CPU seconds of all samples on one thread, with the search and without."""
    seconds, labels, n_threads = ([], []), [None, None], torch.get_num_threads()
    torch.set_num_threads(1)
    for run in range(n_runs + 1):  # the first builds the search
        for way, context in enumerate((contextlib.nullcontext, all_logits)):
            with context():
                start = time.process_time()
                labels[way], _ = model.predict_topk(X, 5)
                if run:
                    seconds[way].append(time.process_time() - start)
    torch.set_num_threads(n_threads)
    agreeing = (labels[0] == labels[1]).all(axis=1).mean()
    print(f"samples whose five labels are the same: {100 * agreeing:.2f}%", file=sys.stderr)
    return [statistics.median(each) for each in seconds]


def measure_products(model, X, n_runs):
    """CPU seconds of the products of all samples with both layers, at the precision in use."""
    module, n_rows, seconds = model.net_.module_, PREDICT_BATCH, []
    parts = [X[start : start + n_rows] for start in range(0, X.shape[0], n_rows)]
    layer, head = module.encoder.input, module.head
    with torch.inference_mode():
        batches = [SparseRows.from_csr(part) for part in parts]
        features = [torch.rand(len(rows), head.n_features) for rows in batches]
        search = Screening(head.weight, head.bias)
        rounded = [search._rounded(part)[0] for part in features]
        is_searched = [Screening.suits(part, head.weight, 5) for part in features]
        for _ in range(n_runs):
            start = time.process_time()
            for rows, part, number, searched in zip(batches, features, rounded, is_searched):
                layer(rows)
                if searched:
                    search._layer.steps(number, -10.0, 0.1)
                else:
                    functional.linear(part, head.weight, head.bias)
            seconds.append(time.process_time() - start)
    return min(seconds)


def measure_requests(model, X, n_requests, pause):
    """Milliseconds of single samples: median and 99th percentile of CPU and of wall time."""
    cpu, wall = [], []
    for number in range(n_requests):
        row = X[number % X.shape[0]]
        time.sleep(pause)
        start = time.process_time(), time.perf_counter()
        model.predict_topk(row, 5)
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return [1e3 * np.quantile(times, [0.5, 0.99]) for times in (cpu, wall)]


def main():
    options = parse_arguments()
    print(describe_machine(None))
    print("| data (labels) | samples | all, s | without search | products | one, ms | clock, ms |")
    print("|---|---|---|---|---|---|---|")
    for folder in options.folders:
        model = fitted(folder, options.ranker, options.keep)
        X, Y = load_part(folder, "tst")
        search, plain = measure_batches(model, X, options.runs)
        products = measure_products(model, X, options.runs)
        times = measure_requests(model, X, options.requests, options.pause)
        cpu, wall = (f"{middle:.1f}, {late:.1f}" for middle, late in times)
        print(
            f"| {folder.name} ({Y.shape[1]}) | {X.shape[0]} | {search:.3f} | {plain:.3f} "
            f"| {products:.3f} | {cpu} | {wall} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
