"""Extreme sizes: the defaults up to a million rows, memory bounds, latency, and how costs grow.

    python benchmarks/extreme_sizes.py --parts defaults
    python benchmarks/extreme_sizes.py --parts defaults --sizes 10000000 --labels-of-sizes 10000
    python benchmarks/extreme_sizes.py --parts million latency growth
    python benchmarks/extreme_sizes.py --parts closure --data FOLDER

Every fit runs in a fresh process. Memory is that of the process beyond imports and a first tiny
fit; X and Y are mapped from files, and their pages count where they are resident. The bound of a
fit is three times its parameters plus 2 GB.
"""

import argparse
import ctypes
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import (
    Clock,
    MemoryWatch,
    add_device,
    describe_machine,
    device,
    fresh_process,
    load_part,
    memory,
    on_cuda,
    peak_above,
    yield_memory,
)

#: Settings of the fit of a million rows and labels: one pass, made for a single core.
MILLION = {
    "head": "cascade",
    "head__n_heads": 3,
    "head__embedding_dim": 64,
    "head__beam_width": 5,
    "encoder": "mlp",
    "encoder__hidden_layer_sizes": [256],
    "encoder__dropout": 0.1,
    "optimizer": "adagrad",
    "learning_rate": 0.05,
    "batch_size": 2048,
    "max_epochs": 1,
    "precision": "bfloat16",
}
#: Settings of the fits whose growth is measured: the defaults, narrow.
NARROW = {"encoder": "mlp", "encoder__hidden_layer_sizes": [128], "max_epochs": 1}
#: The head of these fits, and the head where there are more labels than the number.
FEW, MANY = {"head": "flat"}, {"head": "cascade", "head__embedding_dim": 32}
MANY_LABELS = 300_000
BASE = {"n_rows": 16_000, "n_features": 50_000, "n_labels": 40_000, "per_label": 10}
#: What grows, and through which values.
SERIES = {
    "rows": ("n_rows", [8000, 16_000, 32_000, 64_000, 128_000]),
    "non-zeros a row": ("per_label", [5, 10, 20, 40, 80]),
    "labels": ("n_labels", [2500, 10_000, 40_000, 160_000, 640_000]),
}
#: Rows, and labels for each ten of them, of the fits by default parameters.
SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000]
ROWS_PER_LABEL = 10
PARTS = ("defaults", "million", "closure", "latency", "growth")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=["million", "latency", "growth"]
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="rows of the defaults")
    parser.add_argument(
        "--labels-of-sizes", type=int, help="labels of the defaults, default a tenth of the rows"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the million")
    parser.add_argument("--steps", type=int, help="end the network of the defaults after so many")
    parser.add_argument("--test-rows", type=int, default=5000, help="rows that defaults predict")
    parser.add_argument("--labels", nargs="+", type=int, default=[10**4, 10**5, 10**6])
    parser.add_argument("--data", type=Path, help="folder of wordnet_noun_closure, for closure")
    parser.add_argument("--runs", type=int, default=1, help="runs of each fit of the growth")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds a process may take")
    parser.add_argument("--docs", type=Path, help="folder docs, for data and figure of defaults")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


# --- in a process of its own --------------------------------------------------------------------


def make(settings):
    from sklearn_xlc import MultiHeadClassifier

    return MultiHeadClassifier(device=device(), random_state=0).set_params(**settings)


def head_of(clf):
    """Name and lengths of the head in use."""
    kind, lengths = type(clf.head_).__name__.lower(), getattr(clf.head_, "lengths", None)
    return {"head": kind, "lengths": lengths or (len(clf.classes_),)}


def warm_up():
    """A first tiny fit loads what the libraries load lazily: that is no memory of the fit."""
    from _synthetic import ZipfData

    X, Y = ZipfData(50, 2000).block(600, 0)
    clf = make({"max_epochs": 1, "encoder": "mlp", "encoder__hidden_layer_sizes": [8]})
    clf.fit(X, Y).predict_topk(X)


def settled_memory():
    """Memory held now, without what was freed and not given back: a fit would take that first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory("VmRSS")


def fit_and_watch(clf, X, Y):
    """Fit, and what it took."""
    level = settled_memory()
    with Clock() as clock, MemoryWatch() as watch:
        clf.fit(X, Y)
    weights = clf.n_parameters_ * 4
    return {
        "status": "ok",
        **head_of(clf),
        "steps": clf.t_,
        "n_parameters": clf.n_parameters_,
        "fit_wall_s": clock.wall,
        "fit_cpu_s": clock.cpu,
        "peak_bytes": clock.peak - level,
        "device_bytes": peak_above(level) if on_cuda() else 0,
        "anonymous_bytes": watch.anonymous,
        "bound_bytes": 3 * weights + 2 * 10**9,
    }


def measure_fit(task):
    """Fit synthetic data of given sizes; precision on rows that were not trained on."""
    from _synthetic import ZipfData

    from sklearn_xlc.metrics import precision_at_k

    warm_up()
    sizes = dict(task["sizes"])
    n_rows = sizes.pop("n_rows")
    data = ZipfData(**sizes)
    X, Y = data.mapped(n_rows)
    clf = make(task["settings"])
    report = fit_and_watch(clf, X, Y)
    X_test, Y_test = data.test_rows(5000)
    start = time.perf_counter()
    ids = clf.predict_topk(X_test, 5)[0]
    report["predict_s"] = time.perf_counter() - start
    report["precision"] = [float(precision_at_k(Y_test, ids, k=k)) for k in (1, 3, 5)]
    report["nnz_per_row"], report["labels_per_row"] = X.nnz / n_rows, Y.nnz / n_rows
    report["data_bytes"] = X.data.nbytes + X.indices.nbytes + Y.data.nbytes + Y.indices.nbytes
    return report


def measure_closure(task):
    """One pass of the defaults over a real data set: memory is that of any number of passes."""
    X, Y = load_part(task["folder"], "trn")
    warm_up()
    return fit_and_watch(make({"max_epochs": 1}), X, Y)


def measure_latency(task):
    """Milliseconds of `predict_topk` for one row and for a thousand."""
    from _synthetic import ZipfData

    data = ZipfData(50_000, task["n_labels"])
    X, Y = data.block(2000, 0)
    settings = {"encoder": "mlp", "encoder__hidden_layer_sizes": [256]}
    clf = make({"max_epochs": 1, "batch_size": 500, **settings})
    clf.fit(X, Y)
    report = {"status": "ok", **head_of(clf)}
    for n_rows, repeats in ((1, 300), (1000, 20)):
        X, _ = data.test_rows(n_rows * 20)
        seconds, cpu = [], []
        for i in range(repeats + 3):
            rows = X[i % 20 * n_rows : (i % 20 + 1) * n_rows]
            start = time.perf_counter(), time.process_time()
            clf.predict_topk(rows, 5)
            seconds.append(time.perf_counter() - start[0])
            cpu.append(time.process_time() - start[1])
        quantiles = [np.quantile(times[3:], [0.5, 0.99]) for times in (seconds, cpu)]
        report[str(n_rows)] = (1e3 * np.concatenate(quantiles)).tolist()
    return report


def collection(task):
    from _synthetic import Documents

    return Documents(task["n_rows"], task["n_labels"])


def stop_after(n_steps):
    """Return a callback that ends training after a number of steps, as Ctrl-C does.

    `times` has the CPU seconds at the end of each step.
    """
    from skorch.callbacks import Callback

    class Stop(Callback):
        times = []

        def on_batch_end(self, net, training=False, **rest):
            self.times.append(time.process_time())
            if len(self.times) == n_steps:
                raise KeyboardInterrupt

    return Stop()


def measure_defaults(task):
    """Fit by default parameters and save, stage by stage.

    With a number of steps the network ends after them, and those that are left are counted as long
    as a later half of them.
    """
    import joblib
    from _stages import FIT, Stages

    import sklearn_xlc

    warm_up()
    n_rows, folder = task["n_rows"], Path(task["folder"])
    X, Y = collection(task).mapped(n_rows)
    clf = sklearn_xlc.MultiHeadClassifier(random_state=0)
    if task["steps"] is not None:
        stop = stop_after(task["steps"])
        clf.set_params(callbacks=[stop])
    level = settled_memory()
    with Clock() as clock, Stages(FIT) as stages:
        clf.fit(X, Y)
    clf.set_params(callbacks=None)  # which a file would hold
    n_steps = clf.settings_["max_epochs"] * -(-n_rows // clf.settings_["batch_size"])
    done = n_steps
    if task["steps"] is not None:
        done = len(stop.times)
        later = stop.times[done // 2 :]
        stages.cpu["network"] += (n_steps - done) * (later[-1] - later[0]) / (len(later) - 1)
    report = {
        "status": "ok",
        "n_labels": task["n_labels"],
        **head_of(clf),
        "n_parameters": clf.n_parameters_,
        "epochs": clf.settings_["max_epochs"],
        "steps": n_steps,
        "steps_done": done,
        "settings": {name: value for name, value in clf.settings_.items() if "ranker" in name},
        "nnz_per_row": X.nnz / n_rows,
        "labels_per_row": Y.nnz / n_rows,
        "data_bytes": sum(A.nbytes for M in (X, Y) for A in (M.data, M.indices, M.indptr)),
        "fit_wall_s": clock.wall,
        "fit_cpu_s": sum(stages.cpu.values()),
        "peak_bytes": clock.peak - level,
        "fit": {"cpu_s": stages.cpu, "anonymous_bytes": stages.peak},
    }
    for name, write in (
        ("saved", lambda path: sklearn_xlc.save(clf, path)),
        ("dumped", lambda path: joblib.dump(clf, path)),
    ):
        level = settled_memory()
        with Clock() as clock:
            write(folder / name)
        report[name] = {"cpu_s": clock.cpu, "peak_bytes": clock.peak - level}
        report[name]["disk_bytes"] = (folder / name).stat().st_size
    return report


def measure_predictions(task):
    """Load what `measure_defaults` wrote, rounded or mapped; predict in bulk and row by row."""
    import joblib
    from _stages import PREDICT, Stages

    import sklearn_xlc
    from sklearn_xlc.metrics import precision_at_k

    warm_up()
    folder, is_mapped = Path(task["folder"]), task["mapped"]
    X, Y = collection(task).test_rows(task["n_test"])
    level = settled_memory()
    with Clock() as clock, MemoryWatch() as watch:
        if is_mapped:
            clf = joblib.load(folder / "dumped", mmap_mode="r")
        else:
            clf = sklearn_xlc.load(folder / "saved")
        clf.predict_topk(X[:1])
    report = {
        "status": "ok",
        "n_test": X.shape[0],
        "load": {"cpu_s": clock.cpu, "wall_s": clock.wall, "anonymous_bytes": watch.anonymous},
    }
    with Clock() as clock, MemoryWatch() as watch, Stages(PREDICT) as stages:
        ids = clf.predict_topk(X, 5)[0]
    report["bulk"] = {"cpu_s": stages.cpu, "cpu_ms_a_row": 1e3 * clock.cpu / X.shape[0]}
    report["bulk"]["anonymous_bytes"] = watch.anonymous
    report["precision"] = [float(precision_at_k(Y, ids, k=k)) for k in (1, 3, 5)]
    times = []
    for row in range(min(300, X.shape[0])):
        one, start = X[row], (time.perf_counter(), time.process_time())
        clf.predict_topk(one, 5)
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    quantiles = np.quantile(np.array(times[10:]) * 1e3, [0.5, 0.99], axis=0)
    report["one_row_ms"], report["one_row_cpu_ms"] = quantiles.T.tolist()
    report["peak_bytes"] = memory("VmHWM") - level
    return report


MEASURES = {
    "defaults": measure_defaults,
    "predictions": measure_predictions,
    "fit": measure_fit,
    "closure": measure_closure,
    "latency": measure_latency,
}


# --- in this process ----------------------------------------------------------------------------


def run(task, options):
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
        Path(scratch, "task.json").write_text(json.dumps(task))
        result = fresh_process(
            [__file__, "--cell", scratch],
            scratch,
            threads=options.threads,
            limit=options.limit,
        )
    print(json.dumps(task), result, flush=True)
    return result


def run_defaults(options):
    """Fit, save and predict at each size; a fit and each way to load have their own process.

    Sizes measured before, in the same file, stay as they are.
    """
    data_file = Path(options.docs or options.out, *["data"] * bool(options.docs), "scaling.json")
    known = json.loads(data_file.read_text())["sizes"] if data_file.exists() else {}
    cells = {int(n_rows): cell for n_rows, cell in known.items()}
    for n_rows in options.sizes:
        with tempfile.TemporaryDirectory(prefix="xlc-models-") as folder:
            task = {"kind": "defaults", "n_rows": n_rows, "folder": folder}
            task["steps"] = options.steps
            task["n_labels"] = options.labels_of_sizes or n_rows // ROWS_PER_LABEL
            cells[n_rows] = run(task, options)
            cells[n_rows]["environment"] = describe_machine(options.threads)
            if cells[n_rows]["status"] != "ok":
                continue
            task = {**task, "kind": "predictions", "n_test": options.test_rows}
            for name, is_mapped in (("loaded", False), ("mapped", True)):
                cells[n_rows][name] = run({**task, "mapped": is_mapped}, options)
            cells[n_rows]["served"] = served(task)
        cells = dict(sorted(cells.items()))
        data_file.write_text(json.dumps({"sizes": cells}, indent=1) + "\n")
    figures = Path(options.docs, "figures") if options.docs else options.out
    if finished(cells):
        draw_defaults(finished(cells), figures / "scaling.png")
    return cells


def served(task):
    """Median and 99th percentile of an answer over HTTP in ms: one connection, and eight."""
    from serving import Server, free_port, load, requests_of

    messages, port = requests_of(collection(task).test_rows(300)[0]), free_port()
    command = [sys.executable, "-m", "sklearn_xlc", "serve", Path(task["folder"]) / "saved"]
    with Server([*command, "--port", port], port) as server:
        load(server, messages, 1, 1.0)  # the first requests load parts of torch
        return [load(server, messages, n, 10.0)[:2] for n in (1, 8)]


def run_million(options):
    sizes = {"n_rows": options.rows, "n_features": 200_000, "n_labels": 1_000_000}
    return run({"kind": "fit", "sizes": sizes, "settings": MILLION}, options)


def run_closure(options):
    if options.data is None:
        return {"status": "skipped", "reason": "name the folder of the data set with --data"}
    return run({"kind": "closure", "folder": str(options.data)}, options)


def run_latency(options):
    return {n: run({"kind": "latency", "n_labels": n}, options) for n in options.labels}


def run_growth(options):
    """Every fit of the three series; the fastest of the runs counts, as other load only adds."""
    cells = {}
    for name, (key, values) in SERIES.items():
        for value in values:
            sizes = {**BASE, key: value}
            head = MANY if sizes["n_labels"] > MANY_LABELS else FEW
            task = {"kind": "fit", "sizes": sizes, "settings": {**NARROW, **head}}
            results = [run(task, options) for _ in range(options.runs)]
            fits = [result for result in results if result["status"] == "ok"]
            best = min(fits, key=lambda fit: fit["fit_cpu_s"], default=results[0])
            cells.setdefault(name, {})[value] = best
    return cells


RUNS = {
    "defaults": run_defaults,
    "million": run_million,
    "closure": run_closure,
    "latency": run_latency,
    "growth": run_growth,
}


# --- tables and figure --------------------------------------------------------------------------


def fit_table(name, result):
    if result["status"] != "ok":
        return f"{name}: {result['status']}. {result.get('reason', '')}\n"
    gib = 2**-30
    quality = "/".join(f"{100 * p:.1f}" for p in result.get("precision", [])) or "-"
    return (
        f"**{name}**: {result['head']} {tuple(result['lengths'])}, {result['steps']:,} "
        "steps\n\n"
        "| parameters | fit s (CPU) | peak GiB | without mapped files | bound | P@1/3/5 |\n"
        "|---|---|---|---|---|---|\n"
        f"| {result['n_parameters'] / 1e6:.1f} M | {result['fit_wall_s']:.0f} "
        f"({result['fit_cpu_s']:.0f}) | {result['peak_bytes'] * gib:.2f} | "
        f"{result['anonymous_bytes'] * gib:.2f} | {result['bound_bytes'] * gib:.2f} | {quality} |\n"
    )


def latency_table(cells):
    lines = [
        "**Latency of `predict_topk`, ms** (median, 99th percentile; the same of CPU time)\n",
        "| labels | head | one row | 1 000 rows |",
        "|---|---|---|---|",
    ]
    for n_labels, cell in cells.items():
        if cell["status"] != "ok":
            lines.append(f"| {n_labels:,} | {cell['status']} | | |")
            continue
        shown = " | ".join("{:.1f}, {:.1f}; {:.1f}, {:.1f}".format(*cell[n]) for n in ("1", "1000"))
        lines.append(f"| {n_labels:,} | {cell['head']} | {shown} |")
    return "\n".join(lines) + "\n"


def slope(values, costs):
    """Exponent of growth: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(values), np.log(costs), 1)[0])


def growth_table(cells):
    lines = [
        "**Growth of a fit** (slope in logarithms; of the last two points)\n",
        "| grows | from, to | CPU s | slope | peak MiB | slope |",
        "|---|---|---|---|---|---|",
    ]
    for name, of_name in cells.items():
        fits = {value: fit for value, fit in of_name.items() if fit["status"] == "ok"}
        values, row = list(fits), [name, f"{min(of_name):,}, {max(of_name):,}"]
        if len(fits) < 2:
            continue
        for key, scale in (("fit_cpu_s", 1), ("peak_bytes", 2**-20)):
            costs = [fit[key] for fit in fits.values()]
            row.append(", ".join(f"{cost * scale:.{0 if scale < 1 else 1}f}" for cost in costs))
            row.append(f"{slope(values, costs):.2f}; {slope(values[-2:], costs[-2:]):.2f}")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def draw_growth(cells, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    titles = {"fit_cpu_s": "CPU seconds of a fit", "peak_bytes": "peak memory of a fit, bytes"}
    for axes, (key, title) in zip(figure.subplots(1, 2), titles.items()):
        for (name, of_name), marker in zip(cells.items(), "os^"):
            fits = {v: f[key] for v, f in of_name.items() if f["status"] == "ok"}
            values, costs = np.array(list(fits)), np.array(list(fits.values()))
            if len(fits) > 1:
                label = f"{name}: slope {slope(values, costs):.2f}"
                axes.loglog(values / values[0], costs, marker=marker, label=label)
        axes.set_xlabel("times the smallest size")
        axes.set_title(title)
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=130)


FIT_STAGES = ("network", "index", "search", "trees", "decision", "rest")
PREDICTED = ("network", "candidates", "numbers", "trees", "rest")


def finished(cells):
    return {n: cell for n, cell in cells.items() if "status" in cell.get("mapped", ())}


def in_series(cells):
    """Sizes with ten rows for each label, which tell how costs grow."""
    return {n: cell for n, cell in cells.items() if cell["n_labels"] == n // ROWS_PER_LABEL}


def defaults_table(cells):
    lines = [
        "**Defaults, fit** (CPU seconds; memory beyond the data, disk; * some steps counted)\n",
        f"| samples, labels | head | {' | '.join(FIT_STAGES)} | fit | GiB | save | MiB | load "
        "| mapped |",
        "|---" * (len(FIT_STAGES) + 8) + "|",
    ]
    done = finished(cells)
    for n, cell in done.items():
        stages = [f"{cell['fit']['cpu_s'][stage]:.1f}" for stage in FIT_STAGES]
        if cell.get("steps_done", 0) < cell.get("steps", 0):
            stages[0] += "*"
        row = [f"{n:,}, {cell['n_labels']:,}", cell["head"], *stages]
        row += [f"{cell['fit_cpu_s']:.0f}", f"{cell['peak_bytes'] / 2**30:.2f}"]
        row += [f"{cell['saved']['cpu_s']:.1f}", f"{cell['saved']['disk_bytes'] / 2**20:.0f}"]
        row += [f"{cell[name]['load']['cpu_s']:.1f}" for name in ("loaded", "mapped")]
        lines.append(f"| {' | '.join(row)} |")
    lines += [
        "\n**Defaults, predictions** by the loaded file (CPU ms a row, a single one's median; over "
        "HTTP p50 and p99 of an answer in ms, one connection and 8)\n",
        f"| samples, labels | {' | '.join(PREDICTED)} | in bulk | one row | HTTP | 8 | GiB "
        "| mapped | P@1/3/5 |",
        "|---" * (len(PREDICTED) + 8) + "|",
    ]
    for n, cell in done.items():
        of = cell["loaded"]
        stages = [1e3 * of["bulk"]["cpu_s"][stage] / of["n_test"] for stage in PREDICTED]
        row = [f"{n:,}, {cell['n_labels']:,}", *(f"{each:.3f}" for each in stages)]
        row += [f"{of['bulk']['cpu_ms_a_row']:.2f}", f"{of['one_row_cpu_ms'][0]:.1f}"]
        row += ["{:.1f}, {:.1f}".format(*each) for each in cell.get("served", ())] or ["", ""]
        row += [f"{bytes_held(cell[name]) / 2**30:.2f}" for name in ("loaded", "mapped")]
        row.append("/".join(f"{100 * p:.1f}" for p in of["precision"]))
        lines.append(f"| {' | '.join(row)} |")
    done = in_series(done)
    if len(done) > 1:
        lines.append("\n**Exponents** of growth with samples, over all sizes; over the last two\n")
        for name, costs in curves(done).items():
            n, costs = np.array(list(done)), np.array(costs)
            last = slope(n[-2:], costs[-2:])
            lines.append(f"- {name}: {slope(n, costs):.2f}; {last:.2f}")
    return "\n".join(lines) + "\n"


def bytes_held(cell):
    """Peak of loading and of predictions."""
    return max(cell["peak_bytes"], cell["load"]["anonymous_bytes"])


def curves(cells):
    """Costs of each size, by name."""
    every = list(cells.values())
    found = {f"fit, {s}": [c["fit"]["cpu_s"][s] for c in every] for s in FIT_STAGES[:-1]}
    found["fit"] = [c["fit_cpu_s"] for c in every]
    found["save"] = [c["saved"]["cpu_s"] for c in every]
    found["load"] = [c["loaded"]["load"]["cpu_s"] for c in every]
    for stage in PREDICTED[:-1]:
        found[f"a row, {stage}"] = [
            1e3 * c["loaded"]["bulk"]["cpu_s"][stage] / c["loaded"]["n_test"] for c in every
        ]
    found["a row in bulk"] = [c["loaded"]["bulk"]["cpu_ms_a_row"] for c in every]
    found["one row alone"] = [c["loaded"]["one_row_cpu_ms"][0] for c in every]
    found["memory of the fit"] = [c["peak_bytes"] / 2**30 for c in every]
    found["memory of predictions"] = [bytes_held(c["loaded"]) / 2**30 for c in every]
    found["memory of predictions, mapped"] = [bytes_held(c["mapped"]) / 2**30 for c in every]
    found["file"] = [c["saved"]["disk_bytes"] / 2**30 for c in every]
    return found


def draw_defaults(cells, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.3), layout="constrained")
    series, others = in_series(cells), {n: c for n, c in cells.items() if n not in in_series(cells)}
    n = np.array(list(series))
    groups = {
        "CPU seconds of a fit": [*(f"fit, {s}" for s in FIT_STAGES[:-1]), "save", "load"],
        "CPU ms of a prediction": [*(f"a row, {s}" for s in PREDICTED[:-1]), "one row alone"],
        "GiB beyond the data": [name for name in curves(cells) if "memory" in name] + ["file"],
    }
    for axes, (title, names) in zip(figure.subplots(1, 3), groups.items()):
        for name, marker in zip(names, "os^vDP*X"):
            label = name.removeprefix("fit, ").removeprefix("a row, ").replace("memory of ", "")
            costs = curves(series)[name]
            (drawn,) = axes.loglog(n, costs, marker=marker, markersize=4, label=label)
            style = {"color": drawn.get_color(), "markerfacecolor": "none", "linestyle": ""}
            axes.loglog(list(others), curves(others)[name], marker=marker, markersize=5, **style)
        start = min(curves(series)[name][0] for name in names)
        line = n * np.log(n) / (n[0] * np.log(n[0]))
        axes.loglog(n, start * line, color="gray", linestyle=":", label="n log n")
        axes.set(title=title, xlabel="samples (ten for each label; hollow: more)")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7, ncol=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.savefig(path, dpi=130)


TABLES = {
    "defaults": defaults_table,
    "million": lambda result: fit_table("A million labels", result),
    "closure": lambda result: fit_table("wordnet_noun_closure, defaults, one pass", result),
    "latency": latency_table,
    "growth": growth_table,
}


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"environment": describe_machine(options.threads)}
    tables = []
    for part in options.parts:
        results[part] = RUNS[part](options)
        tables.append(TABLES[part](results[part]))
        # After every part, so that an interrupt loses nothing.
        text = json.dumps(results, indent=1)
        Path(options.out, "extreme_sizes.json").write_text(text + "\n")
        Path(options.out, "extreme_sizes.md").write_text("\n".join(tables))
        if part == "growth":
            draw_growth(results[part], Path(options.out, "growth.png"))
    print("\n" + "\n".join(tables))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        (folder,) = sys.argv[2:]
        yield_memory()
        job = json.loads(Path(folder, "task.json").read_text())
        outcome = MEASURES[job["kind"]](job)
        Path(folder, "report.json").write_text(json.dumps(outcome))
    else:
        main()
