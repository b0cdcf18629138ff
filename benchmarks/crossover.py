"""Costs of "flat" and "cascade" by the number of labels, counted and measured.

    python benchmarks/crossover.py
    python benchmarks/crossover.py --classes
    python benchmarks/crossover.py --data DATA_FOLDER

Counted are the multiply-adds by which ``head="auto"`` chooses (`sklearn_xlc.engine.resolve`);
measured are CPU microseconds a sample of one pass of training, and of `predict_topk`, encoder
included, and those of predicting one sample alone. The data are synthetic (Zipf's law), or those of
a folder. Every cell runs in a process of its own.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import add_device, device, fresh_process, load_part, rarest_labels

MEASURED = ("training", "prediction", "single")
LABELS = [1000, 4000, 16_000, 64_000, 256_000]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    parser.add_argument("--classes", action="store_true", help="one class a sample: the rarest")
    parser.add_argument("--data", type=Path, help="folder of a data set, in place of --labels")
    parser.add_argument("--rows", type=int, default=6400)
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800.0)
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


def cpu_seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def counted_costs(code):
    """Multiply-adds of both heads for labels such as these, and the one that "auto" takes."""
    from sklearn_xlc.engine import resolve

    task = resolve.Task(code.n_labels, code.labels_per_sample, resolve.ALONE)
    facts = resolve.Facts(n_samples=0, n_labels=code.n_labels, multilabel=code.multilabel)
    drawn = resolve.resolve_model({"head__n_negatives": "auto"}, facts)["head__n_negatives"]
    cascade = resolve.cascade_cost(task, code.multilabel)
    costs = {"flat": resolve.flat_cost(task, drawn), "cascade": cascade}
    return costs, resolve.choose_head(task, code.multilabel)


def measure(task):
    """Microseconds a sample of a pass of training, of a batch and of one prediction."""
    from _synthetic import ZipfData

    from sklearn_xlc import MultiHeadClassifier

    if task["data"]:
        X, Y = (part[: task["rows"]] for part in load_part(task["data"], "trn"))
    else:
        X, Y = ZipfData(50_000, task["n_labels"]).block(task["rows"], 0)
    classes = None
    if task["classes"]:
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        (rows, Y), classes = rarest_labels(Y, counts), np.arange(Y.shape[1])
        X = X[rows]
    clf = MultiHeadClassifier(task["head"], ranker=None, random_state=0, device=device())
    clf.partial_fit(X, Y, classes=classes)  # makes the weights, too; a ranker would list X first
    clf.predict_topk(X[:256], k=5)
    passes = [cpu_seconds(lambda: clf.partial_fit(X, Y)) for _ in range(task["runs"])]
    clf.predict_topk(X[:256], k=5)
    test = X[:2048]
    batches = [cpu_seconds(lambda: clf.predict_topk(test, k=5)) for _ in range(task["runs"])]
    single = [cpu_seconds(lambda i=i: clf.predict_topk(X[i], k=5)) for i in range(50)]
    counted, auto = counted_costs(clf._code)
    return {
        "status": "ok",
        "training_us": float(np.median(passes)) / X.shape[0] * 1e6,
        "prediction_us": float(np.median(batches)) / test.shape[0] * 1e6,
        "single_us": float(np.median(single)) * 1e6,
        "counted": [float(cost) for cost in counted[task["head"]]],
        "auto": auto,
    }


def main():
    options = parse_arguments()
    lines = [
        "| labels | head | training, M | prediction, M | training, us | prediction, us | "
        'one alone, us | "auto" |',
        "|---" * 8 + "|",
    ]
    print("\n".join(lines), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for n_labels in [None] if options.data else options.labels:
        for head in ("flat", "cascade"):
            task = {"n_labels": n_labels, "head": head, "rows": options.rows}
            task |= {"classes": options.classes, "runs": options.runs}
            task["data"] = str(options.data) if options.data else None
            with tempfile.TemporaryDirectory(prefix="xlc-crossover-") as scratch:
                arguments = [__file__, "--one", scratch, json.dumps(task)]
                found = fresh_process(
                    arguments, scratch, threads=options.threads, limit=options.limit
                )
            cells = [f"{n_labels:,}" if n_labels else options.data.name, head]
            if found["status"] == "ok":
                cells += [f"{cost / 1e6:.1f}" for cost in found["counted"]]
                cells += [f"{found[f'{what}_us']:.0f}" for what in MEASURED]
                cells.append(found["auto"])
            else:
                cells += [found["status"], "", "", "", "", ""]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            (options.out / "crossover.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        scratch, task = sys.argv[2:]
        Path(scratch, "report.json").write_text(json.dumps(measure(json.loads(task))))
    else:
        main()
