"""CUDA devices: every output layer, real data, the scale of Amazon-670K, saved models, batches
prepared ahead, and one process a device where there are several.

    python benchmarks/gpu.py --device cuda
    python benchmarks/gpu.py --device cpu --quick

Runs unattended within `--minutes`, ten by default: what would not fit into the memory or into the
time is named in the tables. SKLEARN_XLC_DATA names the folder that holds `eurlex57k`.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _gpu_fits import (
    AHEAD,
    ahead_table,
    measure_ahead,
    numbers_of_processes,
    together_table,
)
from _measure import (
    Clock,
    add_device,
    describe_machine,
    device,
    fresh_process,
    load_part,
    memory,
    on_cuda,
    peak_above,
    use,
    yield_memory,
)
from sweep_classes import HEADS as OWN_HEADS
from sweep_classes import OTHERS, measure_cell

HEADS = OWN_HEADS + OTHERS
WIDTH, BATCH = 512, 256
#: Amazon-670K: rows, features, labels, labels a row; 14 features a label give 75 non-zeros a row.
AMAZON = {
    "n_rows": 490_449,
    "n_features": 135_909,
    "n_labels": 670_091,
    "labels_per_row": 5.45,
    "per_label": 14,
}
#: Classes whose weights processes share.
SHARED = 1_000_000
#: Models at this scale. The published ones fine-tune a transformer below an output layer whose
#: negatives are all labels.
SCALE = {
    "flat, all labels as negatives": {"head": "flat", "head__n_negatives": None},
    "flat, 250 drawn negatives": {"head": "flat", "head__n_negatives": 250},
    "cascade": {"head": "cascade"},
}
PUBLISHED = {"ELMO (FP8)": (3.6, 4 + 5 / 60), "Renee": (11.9, 7 + 14 / 60)}
#: Most that scores of the same model may differ between devices.
TOLERANCE = 1e-3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--classes", nargs="+", type=int, default=[10**e for e in (4, 5, 6, 7)])
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=HEADS)
    parser.add_argument("--steps", type=int, default=10, help="timed steps; the median is kept")
    parser.add_argument("--minutes", type=float, default=10.0, help="no part starts after this")
    parser.add_argument("--quick", action="store_true", help="all parts, a hundredth of the size")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    options = parser.parse_args()
    if options.quick:
        options.classes, options.steps = [count // 100 for count in options.classes[:2]], 2
    options.shared = SHARED // 100 if options.quick else SHARED
    return options


# --- in a process of its own --------------------------------------------------------------------


def make(**settings):
    from sklearn_xlc import MultiHeadClassifier

    return MultiHeadClassifier(**settings, device=device(), random_state=0)


def fitted(clf, X, Y, X_test, Y_test):
    """Fit a classifier: what it took, and its precision."""
    from sklearn_xlc.metrics import precision_at_k

    level = memory("VmRSS")
    with Clock() as fit:
        clf.fit(X, Y)
    peak = peak_above(level)
    with Clock() as predict:
        ids = clf.predict_topk(X_test, k=5)[0]
    return {
        "status": "ok",
        "fit_s": fit.wall,
        "predict_s": predict.wall,
        "epochs": clf.n_iter_,
        "peak_bytes": peak,
        "n_parameters": clf.n_parameters_,
        "precision": [100 * float(precision_at_k(Y_test, ids, k=k)) for k in (1, 3, 5)],
    }


def warm_up():
    """A first tiny fit loads what the libraries load lazily, and opens the device."""
    from sklearn_xlc.encoders import MLP

    rng = np.random.default_rng(0)
    make(max_epochs=1, encoder=MLP((8,))).fit(rng.random((50, 9)), np.arange(50) % 5)


def measure_head(task):
    return measure_cell(task["head"], task["n_classes"], "adam", WIDTH, BATCH, task["steps"])


def measure_real(task):
    from sklearn_xlc.encoders import MLP

    warm_up()
    parts = (*load_part(task["folder"], "trn"), *load_part(task["folder"], "tst"))
    short = {"max_epochs": 1, "encoder": MLP((64,))} if task["quick"] else {}
    return fitted(make(**short, ranker=task["ranker"]), *parts)


def measure_scale(task):
    """One epoch of the network on synthetic data of the size of Amazon-670K."""
    from _synthetic import ZipfData

    from sklearn_xlc.encoders import MLP

    warm_up()
    sizes = dict(AMAZON)
    if task["quick"]:
        sizes |= {"n_rows": 2000, "n_labels": 6700, "n_features": 5000}
    n_rows = sizes.pop("n_rows")
    data = ZipfData(**sizes)
    clf = make(
        max_epochs=1,
        encoder=MLP((WIDTH,), dropout=0.1),
        optimizer="adagrad",
        batch_size=1024,
        learning_rate=0.02,
        precision="bfloat16",
        decision="topk",
        ranker=None,
    ).set_params(**SCALE[task["model"]])
    return fitted(clf, *data.mapped(n_rows), *data.test_rows(2000))


def measure_save(task):
    """Save a model of each head on the device; another process loads them on a CPU."""
    from sweep_classes import make_classifier

    import sklearn_xlc
    from sklearn_xlc.datasets import make_extreme_multiclass

    X, y = make_extreme_multiclass(1500, 300, 200, random_state=0)
    np.savez(Path(task["folder"], "X.npz"), X=X.toarray())
    for head in HEADS:
        clf = make_classifier(head, 32, max_epochs=3).fit(X, y)
        sklearn_xlc.save(clf, Path(task["folder"], f"{head}.skops"), exact=True)
        labels, scores = clf.predict_topk(X, k=5)
        np.savez(Path(task["folder"], f"{head}.npz"), labels=labels, scores=scores)
    return {"status": "ok"}


def measure_load(task):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is loaded: a machine without a GPU
    import sklearn_xlc

    X = np.load(Path(task["folder"], "X.npz"))["X"]
    report = {"status": "ok"}
    for head in HEADS:
        labels, scores = sklearn_xlc.load(Path(task["folder"], f"{head}.skops")).predict_topk(
            X, k=5
        )
        saved = np.load(Path(task["folder"], f"{head}.npz"))
        difference = np.abs(scores - saved["scores"]) / np.maximum(1, np.abs(scores))
        equal = labels == saved["labels"]
        # Labels may change places where their scores are equal within rounding.
        swapped = np.abs(np.diff(scores, axis=1, append=-np.inf)) <= TOLERANCE
        swapped[:, 1:] |= swapped[:, :-1]
        report[head] = {
            "difference": float(difference.max()),
            "same_labels": float(equal.mean()),
            "equal": bool(difference.max() <= TOLERANCE and (equal | swapped | _last(equal)).all()),
        }
    return report


def _last(equal):
    """Mask of the last column: its label may be one of several with the same score."""
    mask = np.zeros_like(equal)
    mask[:, -1] = True
    return mask


MEASURES = {
    "head": measure_head,
    "real": measure_real,
    "scale": measure_scale,
    "save": measure_save,
    "load": measure_load,
    "ahead": measure_ahead,
}


# --- in this process ----------------------------------------------------------------------------


class Runner:
    """Run tasks in processes of their own until the time is up."""

    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + 60 * options.minutes

    def __call__(self, kind, **task):
        return self._run(lambda scratch: [__file__, "--cell", scratch], 1, kind=kind, **task)

    def together(self, n_processes, **task):
        """Run a task in several processes, which train together."""
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", n_processes]
        program = str(Path(__file__).with_name("_gpu_fits.py"))
        return self._run(lambda scratch: [*launch, program, scratch], n_processes, **task)

    def _run(self, arguments, n_processes, **task):
        left = self.end - time.monotonic()
        if left < 5:
            return {"status": "no time left", "reason": "raise --minutes"}
        threads = max(1, self.options.threads // n_processes)
        with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
            Path(scratch, "task.json").write_text(json.dumps({"limit": left, **task}))
            result = fresh_process(arguments(scratch), scratch, threads=threads, limit=left)
        print(task, f"processes: {n_processes}", result, flush=True)
        return result


def run_saved(run, options):
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as folder:
        report = run("save", folder=folder)
        report = run("load", folder=folder) if report["status"] == "ok" else report
    return report, saved_line(report)


def run_scale(run, options):
    cells = {name: run("scale", model=name, quick=options.quick) for name in SCALE}
    return cells, scale_table(cells, options.quick)


def run_heads(run, options):
    cells = {}
    for n_classes in options.classes:  # the largest last: they may take what time is left
        for head in options.heads:
            cells[n_classes, head] = run(
                "head", head=head, n_classes=n_classes, steps=options.steps
            )
    report = [{"n_classes": n, "head": head, **cell} for (n, head), cell in cells.items()]
    return report, head_table(cells, options)


def run_real(run, options):
    folder = Path(os.environ.get("SKLEARN_XLC_DATA", ""), "eurlex57k")
    if not folder.is_dir():
        return [], "**eurlex57k**: skipped: SKLEARN_XLC_DATA names no folder with eurlex57k\n"
    cells = [
        {"device": place, "ranker": ranker}
        | run("real", folder=str(folder), quick=options.quick, device=place, ranker=ranker)
        for place in dict.fromkeys((device(), "cpu"))
        for ranker in ("auto", None)
    ]
    return cells, real_table(cells, options.quick)


def run_ahead(run, options):
    sizes = (300, 10) if options.quick else (20_000, 100)
    task = {"width": WIDTH, "batch": BATCH, "n_labels": sizes[0], "n_steps": sizes[1]}
    cells = {head: run("ahead", head=head, n_runs=3, **task) for head in AHEAD}
    return cells, ahead_table(cells, BATCH)


def run_together(run, options):
    task = {"width": WIDTH, "batch": BATCH, "steps": options.steps, "n_classes": options.shared}
    cells = {n: run.together(n, **task) for n in numbers_of_processes()}
    return cells, together_table(cells, options.shared, BATCH)


#: Parts of this benchmark, in the order that they run in by default.
PARTS = {
    "saved": run_saved,
    "scale": run_scale,
    "heads": run_heads,
    "real": run_real,
    "ahead": run_ahead,
    "together": run_together,
}


# --- tables -------------------------------------------------------------------------------------


def head_table(cells, options):
    lines = [
        f"**Output layers**: {WIDTH} features, batches of {BATCH}, adam (flat / this)\n",
        "| classes | head | step ms | rows a second | top-5 ms | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    for (n_classes, head), cell in cells.items():
        if cell["status"] != "ok":
            lines.append(f"| {n_classes:,} | {head} | {cell['status']} | | | |")
            continue
        flat = cells.get((n_classes, "flat"), {})
        shown = [f"{n_classes:,}", head]
        for key, scale in (("step_s", 1e3), (None, 1), ("topk_s", 1e3), ("peak_bytes", 2**-20)):
            if key is None:
                shown.append(f"{BATCH / cell['step_s']:,.0f}")
                continue
            ratio = f" ({flat[key] / cell[key]:.1f}x)" if key in flat and head != "flat" else ""
            shown.append(f"{cell[key] * scale:,.1f}{ratio}")
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def scale_table(cells, quick):
    size = "A hundredth of Amazon-670K's" if quick else "Amazon-670K's"
    lines = [
        f"**{size} scale, synthetic**: one epoch of the network, batches of 1024, adagrad, "
        "bfloat16; peak of the device's memory\n",
        "| model | minutes an epoch | peak GiB | parameters | P@1/3/5 |",
        "|---|---|---|---|---|",
    ]
    for name, cell in cells.items():
        if cell["status"] != "ok":
            lines.append(f"| {name} | {cell['status']} | | | |")
            continue
        precision = "/".join(f"{p:.1f}" for p in cell["precision"])
        lines.append(
            f"| {name} | {cell['fit_s'] / 60:.2f} | {cell['peak_bytes'] / 2**30:.2f} | "
            f"{cell['n_parameters'] / 1e6:.0f} M | {precision} |"
        )
    for name, (gib, minutes) in PUBLISHED.items():
        lines.append(f"| {name}, published, with a transformer | {minutes:.2f} | {gib} | | |")
    return "\n".join(lines) + "\n"


def real_table(cells, quick):
    what = "a narrow layer, one epoch" if quick else "default parameters"
    lines = [
        f"**eurlex57k**, {what}; a ranker computes on the CPU\n",
        "| device | ranker | fit s | predict s | peak MiB | P@1/3/5 |",
        "|---|---|---|---|---|---|",
    ]
    for cell in cells:
        if cell["status"] != "ok":
            lines.append(f"| {cell['device']} | {cell['ranker']} | {cell['status']} | | | |")
            continue
        precision = "/".join(f"{p:.1f}" for p in cell["precision"])
        lines.append(
            f"| {cell['device']} | {cell['ranker']} | {cell['fit_s']:.1f} | "
            f"{cell['predict_s']:.2f} | {cell['peak_bytes'] / 2**20:,.0f} | {precision} |"
        )
    return "\n".join(lines) + "\n"


def saved_line(report):
    if report["status"] != "ok":
        return f"**Saved and loaded**: {report['status']}: {report['reason']}\n"
    shown = [
        f"{head} {'equal' if found['equal'] else 'DIFFERENT'} ({found['difference']:.1e})"
        for head, found in report.items()
        if head != "status"
    ]
    return (
        f"**Saved on {device()}, loaded without a GPU**, largest relative difference of scores: "
        + ", ".join(shown)
        + "\n"
    )


def main():
    options = parse_arguments()
    if not on_cuda():
        print("No CUDA device is used: these are figures of the CPU. Give --device cuda.\n")
    run, lines = Runner(options), []
    results = {"environment": describe_machine(options.threads)}
    for part in options.parts:
        results[part], shown = PARTS[part](run, options)
        lines.append(shown)
    text = "\n".join(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    Path(options.out, "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    Path(options.out, "gpu.md").write_text(text)
    print("\n" + text)
    loaded = [found for found in results.get("saved", {}).values() if isinstance(found, dict)]
    if not all(found["equal"] for found in loaded):
        sys.exit("a loaded model does not predict what the saved one did")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        (cell_folder,) = sys.argv[2:]
        yield_memory()
        job = json.loads(Path(cell_folder, "task.json").read_text())
        use(job.get("device", device()))
        outcome = MEASURES[job["kind"]](job)
        Path(cell_folder, "report.json").write_text(json.dumps(outcome))
    else:
        main()
