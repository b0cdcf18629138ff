"""Tables 2 and 5 of EAGLE: classifiers trained on labels that are known for groups of rows only.

    python benchmarks/aggregated_labels.py DATA_FOLDER --sizes 4 10 --seeds 0 1 2

Rows of a data set are put into groups, at random or by clustering, and a group keeps the set of
its rows' labels. A method gives these labels back to rows, and one and the same learner is trained
on the result: "parabel", one tree of omikuji as in the paper, or "multihead", this package's
`MultiHeadClassifier` with default parameters. Methods: "oracle" knows the labels of the rows (it is
the same for all groups), "baseline" gives every row all labels of its group, "EAGLE-0" and "EAGLE"
are the paper's, "ours" is `EAGLETransformer` with its defaults, and "ours, rounds" weighs its
labels anew by cross-fitted `MultiHeadClassifier`s (`AggregatedLabelClassifier` with its defaults):
"parabel" gets `assigned_`, "multihead" is the classifier that was fitted. The names after that
change one of these. ``--labels 60`` keeps the 60 most frequent labels, a dense label space.

Measured: precision at k on the test rows, the share of assigned labels that are true, the share of
true labels that are assigned, and CPU seconds. Writes ``NAME.json`` and ``NAME.md``. A run that was
interrupted goes on where it stopped: rows measured with the same options are read back.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import add_device, describe_machine, device, load_part
from peers import Omikuji

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated
from sklearn_xlc.metrics import precision_at_k

CUTOFFS = (1, 3, 5)
EAGLE = {
    "EAGLE-0": {"contrast": None, "n_iter": 0},
    "EAGLE": {"contrast": None},
    "EAGLE, sums as given": {"contrast": None, "normalize": "similarities"},
    "EAGLE, samples as given": {"contrast": None, "normalize": False},
    "ours": {},
    "ours, sharing=None": {"sharing": None},
    "ours, sharing=0.9": {"sharing": 0.9},
    "ours, sharing=0.5": {"sharing": 0.5},
    "ours, sharing=0.1": {"sharing": 0.1},
    "ours, n_iter=0": {"n_iter": 0},
    "ours, n_components=0": {"n_components": 0},
    "ours, temperature=0": {"temperature": 0.0},
}
ROUNDS = {"ours, rounds": "auto", "ours, 2 rounds": 2, "ours, 3 rounds": 3}
METHODS = ("oracle", "baseline", *EAGLE, *ROUNDS)
DEFAULT = ("oracle", "baseline", "EAGLE-0", "EAGLE", "ours")
KEYS = ("downstream", "grouping", "size", "method", "seed")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--sizes", nargs="+", type=int, default=[4, 10], help="rows a group")
    parser.add_argument("--groupings", nargs="+", choices=("random", "cluster"), default=["random"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=DEFAULT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--downstream", nargs="+", choices=("parabel", "multihead"), default=["parabel"]
    )
    parser.add_argument("--labels", type=int, help="keep the most frequent labels only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


class Parabel(Omikuji):
    """One tree, trained on the same rows again and again: they are turned into text once."""

    rows = None

    def prepare(self, X, Y):
        if self.rows is None:
            super().prepare(X, sp.csr_matrix(Y.shape))
            with open(self.data_file) as stream:
                next(stream)
                self.rows = [line.lstrip() for line in stream]
        filled = np.flatnonzero(np.diff(X.indptr))
        with open(self.data_file, "w") as stream:
            print(len(filled), X.shape[1], Y.shape[1], file=stream)
            for row, text in zip(filled, self.rows):
                labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
                stream.write(",".join(map(str, labels)) + " " + text)

    def fit(self, X, Y):
        parameters = self.module.Model.default_hyper_param()
        parameters.n_trees = 1
        self.model = self.module.Model.train_on_data(
            str(self.data_file), parameters, n_threads=self.threads
        )
        self.model.init_prediction_thread_pool(self.threads)


class MultiHead:
    """Default parameters, but the seed."""

    def __init__(self, seed):
        self.model = MultiHeadClassifier(device=device(), random_state=seed)

    def prepare(self, X, Y):
        pass

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def predict_topk(self, X, k):
        return np.asarray(self.model.predict_topk(X, k=k)[0])


def most_frequent(Y, Y_test, n_labels):
    """Columns of the labels that most training rows have."""
    frequency = np.asarray(Y.sum(axis=0)).ravel()
    kept = np.sort(np.argsort(-frequency, kind="stable")[:n_labels])
    return Y[:, kept], Y_test[:, kept]


def assigned_labels(method, X, Y, grouping, size, seed, threads):
    """Labels of the training rows according to a method, and a classifier if it trains one."""
    if method == "oracle":
        return Y, None
    grouped, groups = make_aggregated(Y, size, X, grouping, random_state=seed)
    if method == "baseline":
        return grouped, None
    eagle = EAGLETransformer(**EAGLE.get(method, {}), n_jobs=threads, random_state=seed)
    if method in ROUNDS:
        scorer = MultiHeadClassifier(device=device(), random_state=seed)
        wrapped = AggregatedLabelClassifier(scorer, eagle, n_rounds=ROUNDS[method])
        wrapped.fit(X, grouped, groups)
        return wrapped.assigned_, wrapped.estimator_
    return eagle.fit(X, grouped, groups).assign(X, grouped, groups), None


def measure(key, data, learners, threads):
    """One row of the results."""
    X, Y, X_test, Y_test = data
    downstream, grouping, size, method, seed = key
    start = time.process_time()
    assigned, trained = assigned_labels(method, X, Y, grouping, size, seed, threads)
    assign_cpu = time.process_time() - start
    assigned = sp.csr_matrix(assigned, dtype=np.float32)
    true = assigned.multiply(Y).nnz
    learner = MultiHead(seed) if downstream == "multihead" else learners["parabel"]
    start = time.process_time()
    if downstream == "multihead" and trained is not None:
        learner.model = trained
    else:
        learner.prepare(X, assigned)
        start = time.process_time()
        learner.fit(X, assigned)
    fit_cpu = time.process_time() - start
    top = learner.predict_topk(X_test, max(CUTOFFS))
    return {
        **dict(zip(KEYS, key)),
        **{f"p{k}": precision_at_k(Y_test, top, k=k) for k in CUTOFFS},
        "assigned_true": true / assigned.nnz,
        "true_assigned": true / Y.nnz,
        "assign_cpu_s": assign_cpu,
        "fit_cpu_s": fit_cpu,
    }


def asked(arguments):
    """Keys of the rows that the options ask for."""
    for seed in arguments.seeds:
        for downstream in arguments.downstream:
            if "oracle" in arguments.methods:
                yield downstream, "none", 1, "oracle", seed
            for grouping in arguments.groupings:
                for size in arguments.sizes:
                    for method in arguments.methods:
                        if method != "oracle":
                            yield downstream, grouping, size, method, seed


def table(rows):
    """Means over seeds, and spreads, as Markdown."""
    lines = [
        "| learner | groups | method | seeds | P@1 | P@3 | P@5 | assigned are true | true are "
        "assigned | assign CPU s | fit CPU s |",
        "|---" * 11 + "|",
    ]
    places = sorted({tuple(row[key] for key in KEYS[:3]) for row in rows})
    for place in places:
        own = [row for row in rows if tuple(row[key] for key in KEYS[:3]) == place]
        for method in METHODS:
            chosen = [row for row in own if row["method"] == method]
            if chosen:
                lines.append(_line(place, method, chosen))
    return "\n".join(lines) + "\n"


def _line(place, method, chosen):
    def mean(name, scale=1.0, digits=1, spread=False):
        values = scale * np.array([row[name] for row in chosen])
        tail = f" ± {values.std():.{digits}f}" if spread and len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{tail}"

    downstream, grouping, size = place
    cells = (
        downstream,
        "" if method == "oracle" else f"{grouping}, {size}",
        method,
        len(chosen),
        *(mean(f"p{k}", 100, 2, spread=True) for k in CUTOFFS),
        mean("assigned_true", digits=3),
        mean("true_assigned", digits=3),
        mean("assign_cpu_s"),
        mean("fit_cpu_s"),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    arguments = parse_arguments()
    X, Y = load_part(arguments.folder, "trn")
    Y.data[:] = 1
    X_test, Y_test = load_part(arguments.folder, "tst")
    name = arguments.folder.resolve().name
    if arguments.labels is not None:
        Y, Y_test = most_frequent(Y, Y_test, arguments.labels)
        name += f"_{arguments.labels}_labels"
    data = X, Y, X_test, Y_test
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = arguments.out / f"aggregated_{name}"
    rows = []
    if stem.with_suffix(".json").exists():
        rows = json.loads(stem.with_suffix(".json").read_text())["rows"]
    done = {tuple(row[key] for key in KEYS) for row in rows}
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
        learners = {}
        if "parabel" in arguments.downstream:
            learners["parabel"] = Parabel(arguments.threads, scratch)
        for key in asked(arguments):
            if key in done:
                continue
            rows.append(measure(key, data, learners, arguments.threads))
            print(rows[-1], flush=True)
            report = {"machine": describe_machine(arguments.threads), "rows": rows}
            stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
            stem.with_suffix(".md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
