"""What the experiments of EAGLE on data sets share: methods, learner and measures."""

import os
import sys
import time
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from _experiment import WIDTH
from _measure import load_part
from aggregated_labels import CUTOFFS, EAGLE, Parabel
from matplotlib import pyplot as plt

from sklearn_xlc import EAGLETransformer
from sklearn_xlc._csr import unit_rows
from sklearn_xlc.aggregation import aggregation, grlr_objective
from sklearn_xlc.groups import check_groups
from sklearn_xlc.metrics import precision_at_k

#: What gives labels to samples, and its name in the tables and figures.
METHODS = {
    "baseline": "all labels of the group",
    "EAGLE-0": "EAGLE-0",
    "EAGLE": "EAGLE (contrast=None)",
    "ours": "EAGLETransformer()",
}
COLOURS = {"baseline": "tab:gray", "EAGLE-0": "tab:orange", "EAGLE": "tab:red", "ours": "tab:blue"}
MARKERS = {"baseline": "s", "EAGLE-0": "^", "EAGLE": "v", "ours": "o"}


class Bench:
    """One data set, and one tree of omikuji (Parabel, as in the paper) trained on given labels."""

    def __init__(self, folder, scratch, n_rows=None, n_test=None):
        self.X, self.Y = _some(load_part(folder, "trn"), n_rows)
        self.Y.data[:] = 1
        self.X_test, self.Y_test = _some(load_part(folder, "tst"), n_test)
        self.learner = Parabel(1, scratch)

    def row(self, method, Y_grouped, groups):
        """Measures of a method on groups: precision at k, and what was assigned how well."""
        start = time.process_time()
        record = {"method": method}
        if method == "baseline":
            assigned = Y_grouped
        else:
            eagle = EAGLETransformer(**EAGLE[method], random_state=0)
            assigned = eagle.fit(self.X, Y_grouped, groups).assign(self.X, Y_grouped, groups)
            if eagle.contrast is None:
                record["eq_2"] = self.mean_best(eagle.label_embeddings_, Y_grouped, groups)
        return {**record, **self.trained_on(assigned), "cpu_s": time.process_time() - start}

    def trained_on(self, assigned):
        """Precision of the learner trained on an indicator, and the indicator's own."""
        assigned = sp.csr_matrix(assigned, dtype=np.float32)
        true = assigned.multiply(self.Y).nnz
        self.learner.prepare(self.X, assigned)
        with _silence():
            self.learner.fit(self.X, assigned)
        top = self.learner.predict_topk(self.X_test, max(CUTOFFS))
        return {
            **{f"P@{k}": 100 * precision_at_k(self.Y_test, top, k=k) for k in CUTOFFS},
            "assigned are true": true / assigned.nnz,
            "true are assigned": true / self.Y.nnz,
        }

    def mean_best(self, embeddings, Y_grouped, groups):
        """Eq. 2 of the paper over the number of (group, label) pairs: a mean of best cosines."""
        groups = check_groups(groups, self.X.shape[0])
        data = aggregation(groups, groups.per_group(Y_grouped, "y"))
        return grlr_objective(unit_rows(self.X), data, embeddings).sum() / data.labels.nnz

    def true_embeddings(self):
        """Sums of the samples that carry a label."""
        return sp.csr_matrix(self.Y.T @ unit_rows(self.X))


@contextmanager
def _silence():
    """Drop what omikuji, which is no Python, writes about each of its steps."""
    sys.stdout.flush()
    streams = [(number, os.dup(number)) for number in (1, 2)]
    with open(os.devnull, "w") as nowhere:
        for number, _ in streams:
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        for number, kept in streams:
            os.dup2(kept, number)
            os.close(kept)


def _some(pair, n_rows):
    """The first of the rows in random order; all where `n_rows` is None."""
    if n_rows is None or n_rows >= pair[0].shape[0]:
        return pair
    rows = np.sort(np.random.default_rng(0).permutation(pair[0].shape[0])[:n_rows])
    return [matrix[rows] for matrix in pair]


def panels(rows, parts, title=None):
    """Figure of precisions: one line of panels a part, one column a cutoff.

    A part is its name in the rows, the label of its axis x, and whether each value has a tick on
    that axis: at "even" distances, on a "log" scale, or None.
    """
    figure, axes = plt.subplots(
        len(parts), len(CUTOFFS), figsize=(WIDTH, 2.3 * len(parts) + 0.5), squeeze=False
    )
    for line, (part, label, ticks) in zip(axes, parts):
        own = [row for row in rows if row.get("part", part) == part]
        for axis, k in zip(line, CUTOFFS):
            _curves(axis, own, f"P@{k}")
            axis.set(xlabel=label, ylabel=f"P@{k} [%]")
            values = sorted({row["x"] for row in own if "x" in row})
            if ticks == "log":
                axis.set_xscale("log", base=2)
            if ticks is not None:
                axis.set_xticks(values, [f"{value:.2g}" for value in values])
                axis.minorticks_off()
    figure.suptitle(title)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure


def _curves(axis, rows, measure):
    """A curve for each method, and the precision of the true labels."""
    (truth,) = (row[measure] for row in rows if row["method"] == "truth" and measure in row)
    axis.axhline(truth, color="black", linestyle="--", label="the truth")
    for method, name in METHODS.items():
        own = [row for row in rows if row["method"] == method]
        axis.plot(
            [row["x"] for row in own],
            [row[measure] for row in own],
            color=COLOURS[method],
            marker=MARKERS[method],
            markersize=4,
            label=name,
        )
