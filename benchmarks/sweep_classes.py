"""Sweep the number of classes and compare the output layers with the flat one.

    python benchmarks/sweep_classes.py --classes 1000 10000 100000 1000000

The counterpart of Fig. 7 of the Multi-Head Encoding paper: for every head and number of
classes, in a fresh process, the time of one training step (forward, backward, optimiser), the time
of ``predict_topk`` for one batch, and the peak memory of a short fit.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _measure import (
    add_device,
    describe_machine,
    device,
    fresh_process,
    memory,
    peak_above,
    reset_peak,
    wait,
    yield_memory,
)

HEADS = ("flat", "product", "cascade", "sampling")
#: Output layers of other classifiers.
OTHERS = ("dft", "etf")
MEASURES = {"step": "step_s", "top-5": "topk_s", "peak memory": "peak_bytes"}
N_FEATURES = 2000
WARM_UP = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", nargs="+", type=int, default=[10**e for e in (3, 4, 5, 6)])
    parser.add_argument("--heads", nargs="+", choices=HEADS + OTHERS, default=HEADS)
    parser.add_argument("--optimizer", default="adam", help="optimizer of MultiHeadClassifier")
    parser.add_argument("--width", type=int, default=512, help="features that enter the head")
    parser.add_argument("--batch", type=int, default=256, help="rows a step")
    parser.add_argument("--steps", type=int, default=5, help="timed steps; the median is kept")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a process may take")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


def make_classifier(head, width, **params):
    """Unfitted classifier with the output layer of that name."""
    import sklearn_xlc
    from sklearn_xlc.encoders import MLP

    params |= {"encoder": MLP((width,)), "device": device(), "random_state": 0}
    if head == "dft":
        return sklearn_xlc.DFTSigmoidClassifier(**params)
    if head == "etf":
        return sklearn_xlc.ETFNeuralCollapseClassifier(feature_dim=width, **params)
    return sklearn_xlc.MultiHeadClassifier(head, **params)


def measure_cell(head, n_classes, optimizer, width, batch, steps):
    """Median step and prediction seconds, and peak bytes, of one head; runs in the child."""
    import numpy as np
    from sklearn.base import clone

    from sklearn_xlc.datasets import make_extreme_multiclass

    yield_memory()
    n_samples = batch * (WARM_UP + steps)
    X, y = make_extreme_multiclass(n_samples, N_FEATURES, n_classes, random_state=0)
    classifier = make_classifier(head, width, optimizer=optimizer, batch_size=batch)
    # A first tiny fit loads what the libraries load lazily: that is no memory of the method.
    clone(classifier).partial_fit(X[:batch], y[:batch] % 100, classes=np.arange(100))
    level = memory("VmRSS")
    reset_peak()
    warm = slice(0, batch * WARM_UP)
    classifier.partial_fit(X[warm], y[warm], classes=np.arange(n_classes))
    peak = peak_above(level)
    starts = range(batch * WARM_UP, n_samples, batch)
    parts = [slice(start, start + batch) for start in starts]
    classifier.predict_topk(X[parts[0]], k=5)
    return {
        "status": "ok",
        "lengths": getattr(getattr(classifier, "head_", None), "lengths", None),
        "n_parameters": classifier.n_parameters_,
        "step_s": _median_seconds(_steps(classifier, X, y, parts)),
        "topk_s": _median_seconds(
            lambda part=part: classifier.predict_topk(X[part], k=5) for part in parts
        ),
        "peak_bytes": peak,
    }


def _steps(classifier, X, y, parts):
    """One training step on each part: of the net, because `partial_fit` also validates."""
    import scipy.sparse as sp
    import torch

    from sklearn_xlc.batches import Rows, make_batch

    net = classifier.net_
    n_classes = len(classifier.classes_)
    for part in parts:
        targets = sp.csr_matrix(
            ([1] * len(y[part]), y[part], range(len(y[part]) + 1)),
            shape=(len(y[part]), n_classes),
        )
        batch = make_batch(Rows(X[part], targets, sparse=True))
        batch = batch.to(torch.device(net.device))
        yield lambda batch=batch: net.train_step(batch)


def _median_seconds(calls):
    seconds = []
    for call in calls:
        start = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def markdown(cells, classes, heads):
    """One table a measure: a row for each number of classes, a column for each head."""
    lines = []
    for title, key in MEASURES.items():
        unit, scale = ("MiB", 2**-20) if key.endswith("bytes") else ("ms", 1e3)
        lines += [f"**{title}, {unit}** (flat / this)", ""]
        lines += [
            "| classes | " + " | ".join(heads) + " |",
            "|---" * (1 + len(heads)) + "|",
        ]
        for n_classes in classes:
            row = {name: cells[n_classes, name] for name in heads}
            shown = [_cell(row[name], row.get("flat"), key, scale) for name in heads]
            lines.append(f"| {n_classes:,} | " + " | ".join(shown) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(result, flat, key, scale):
    """A value and how many times it goes into the flat one."""
    if result["status"] != "ok":
        return result["status"]
    text = f"{result[key] * scale:,.1f}"
    if flat is None or flat is result or flat["status"] != "ok":
        return text
    return f"{text} ({flat[key] / result[key]:.1f}x)"


def main():
    options = parse_arguments()
    settings = [options.optimizer, options.width, options.batch, options.steps]
    cells = {}
    for n_classes in options.classes:
        for head in options.heads:
            with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
                result = fresh_process(
                    [__file__, "--cell", scratch, head, n_classes, *settings],
                    scratch,
                    threads=options.threads,
                    limit=options.limit,
                )
            cells[n_classes, head] = result
            print(n_classes, head, result, flush=True)
    report = {
        "environment": describe_machine(options.threads),
        "optimizer": options.optimizer,
        "width": options.width,
        "batch": options.batch,
        "results": [{"n_classes": n, "head": head, **cells[n, head]} for n, head in cells],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    Path(options.out, "sweep_classes.json").write_text(json.dumps(report, indent=1) + "\n")
    tables = markdown(cells, options.classes, options.heads)
    Path(options.out, "sweep_classes.md").write_text(tables)
    print("\n" + tables)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        folder, name, *numbers = sys.argv[2:]
        count, rule, *sizes = numbers
        outcome = measure_cell(name, int(count), rule, *map(int, sizes))
        Path(folder, "report.json").write_text(json.dumps(outcome))
    else:
        main()
