"""Parts of `gpu.py` that time the steps of whole fits: batches prepared ahead, several processes.

Under ``torch.distributed.run`` this file is one of the processes that train together.
"""

import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import device, memory, on_cuda, peak_above, reset_peak, wait, yield_memory
from sweep_classes import N_FEATURES, make_classifier

#: Heads whose steps are timed with batches prepared ahead and when asked for.
AHEAD = ("flat", "cascade")
FORMS = ("CSR", "CSR, mapped from a file", "dense")
#: Heads that processes share.
TOGETHER = ("flat", "etf", "sampling", "cascade")
#: First steps of a fit, which are not timed.
WARM_UP = 5


def measure_ahead(task):
    """Seconds a step of a head with batches prepared ahead or when asked for, by form of X."""
    from sklearn_xlc.datasets import make_extreme_multilabel, open_csr, save_csr

    n_rows = task["n_steps"] * task["batch"]
    X, Y = make_extreme_multilabel(n_rows, 50_000, task["n_labels"], random_state=0)
    X, found = X.astype(np.float32), {}
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as folder:
        save_csr(Path(folder, "X"), X)
        dense = X[:, :N_FEATURES].toarray()
        dense[dense == 0] = 0.01  # X with many zeros is read as CSR
        for form, data in zip(FORMS, (X, open_csr(Path(folder, "X")), dense), strict=True):
            found[form] = _in_turns(data, Y, task)
    return {"status": "ok", "forms": found}


def _in_turns(X, Y, task):
    """Seconds a step of one fit, whose epochs take turns."""
    from skorch.callbacks import Callback

    import sklearn_xlc
    from sklearn_xlc.batches import prefetching
    from sklearn_xlc.encoders import MLP

    class Turns(Callback):
        def on_train_begin(self, net, **kwargs):
            self.seconds = {True: [], False: []}

        def on_epoch_begin(self, net, **kwargs):
            self.ahead = len(net.history) % 2 == 0
            prefetching.IN_PLACE = set() if self.ahead else {"cpu", "cuda"}
            self.start = time.perf_counter(), time.process_time()

        def on_epoch_end(self, net, **kwargs):
            wait()
            ends = time.perf_counter(), time.process_time()
            if len(net.history) > 2:
                self.seconds[self.ahead].append(np.subtract(ends, self.start))

    clf = sklearn_xlc.MultiHeadClassifier(
        task["head"],
        encoder=MLP((task["width"],)),
        batch_size=task["batch"],
        max_epochs=2 + 2 * task["n_runs"],
        decision="topk",
        ranker=None,
        callbacks=[("turns", Turns())],
        device=device(),
        random_state=0,
    ).fit(X, Y)
    seconds = dict(clf.net_.callbacks_)["turns"].seconds
    found = {}
    for ahead, name in ((True, "ahead"), (False, "in_place")):
        wall, cpu = np.median(seconds[ahead], axis=0) / task["n_steps"]
        found |= {f"{name}_s": float(wall), f"{name}_cpu_s": float(cpu)}
    return found


def share(folder):
    """Steps of all heads in one of several processes; the first one reports."""
    from skorch.callbacks import Callback

    import sklearn_xlc
    from sklearn_xlc.datasets import make_extreme_multiclass

    task = json.loads(Path(folder, "task.json").read_text())
    signal.alarm(int(task["limit"]) + 1)  # whoever has started this one may be killed
    yield_memory()
    rank, n_processes = sklearn_xlc.distributed.init(timeout=60)

    class Clock(Callback):
        def on_train_begin(self, net, **kwargs):
            self.seconds = []

        def on_batch_begin(self, net, **kwargs):
            wait()
            self.start = time.perf_counter()

        def on_batch_end(self, net, **kwargs):
            wait()
            self.seconds.append(time.perf_counter() - self.start)

    n_classes, batch = task["n_classes"], task["batch"]
    n_samples = batch * (WARM_UP + task["steps"])
    X, y = make_extreme_multiclass(n_samples, N_FEATURES, n_classes, random_state=0)
    report = {"status": "ok", "n_processes": n_processes, "heads": {}}
    for head in TOGETHER:
        clf = make_classifier(head, task["width"], batch_size=batch)
        clf.set_params(callbacks=[("clock", Clock())], device="auto" if on_cuda() else "cpu")
        level = memory("VmRSS")
        reset_peak()
        clf.partial_fit(X, y, classes=np.arange(n_classes))
        net = clf.net_
        report["heads"][head] = {
            "step_s": statistics.median(dict(net.callbacks_)["clock"].seconds[WARM_UP:]),
            "weights": sum(p.numel() for p in net.module_.head.parameters()),
            "peak_bytes": peak_above(level),
        }
        del clf, net
    if rank == 0:
        Path(folder, "report.json").write_text(json.dumps(report))


def numbers_of_processes():
    """One, two, four, ... processes, one a GPU; on a CPU two show that it works."""
    if not on_cuda():
        return [1, 2]
    import torch

    n = torch.cuda.device_count()
    return sorted({*(2**e for e in range(n.bit_length())), n}) if n > 1 else []


def ahead_table(cells, batch):
    lines = [
        f"**Batches of {batch} prepared ahead**, pinned on a GPU (when asked for): a step\n",
        "| head | X | ms | CPU ms |",
        "|---|---|---|---|",
    ]
    for head, cell in cells.items():
        if cell["status"] != "ok":
            lines.append(f"| {head} | {cell['status']} | | |")
            continue
        for form, found in cell["forms"].items():
            wall, cpu = (
                f"{1e3 * found[f'ahead{kind}']:.2f} ({1e3 * found[f'in_place{kind}']:.2f})"
                for kind in ("_s", "_cpu_s")
            )
            lines.append(f"| {head} | {form} | {wall} | {cpu} |")
    return "\n".join(lines) + "\n"


def together_table(cells, n_classes, batch):
    if not cells:
        return "**One process a GPU**: skipped, there is one device\n"
    what = "One process a GPU" if on_cuda() else "Processes on one CPU, which share its cores"
    lines = [
        f"**{what}**: {n_classes:,} classes, batches of {batch}, ms a step (M weights each)\n",
        "| processes | " + " | ".join(TOGETHER) + " |",
        "|---" * (1 + len(TOGETHER)) + "|",
    ]
    for n_processes, cell in cells.items():
        shown = [cell["status"]] + [""] * (len(TOGETHER) - 1)
        if cell["status"] == "ok":
            found = [cell["heads"][head] for head in TOGETHER]
            shown = [f"{1e3 * f['step_s']:.2f} ({f['weights'] / 1e6:.2f})" for f in found]
        lines.append(f"| {n_processes} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    share(sys.argv[1])
