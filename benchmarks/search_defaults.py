"""Change one default of a classifier at a time, on multi-label data sets or their classes.

    python benchmarks/search_defaults.py DATA_FOLDER [DATA_FOLDER ...] --threads 1
    python benchmarks/search_defaults.py DATA_FOLDER [DATA_FOLDER ...] --classes
    python benchmarks/search_defaults.py DATA_FOLDER [DATA_FOLDER ...] --classifier etf --sets
    python benchmarks/search_defaults.py DATA_FOLDER [DATA_FOLDER ...] --bags 10
    python benchmarks/search_defaults.py DATA_FOLDER [DATA_FOLDER ...] --dense --peers

Prints P@1/3/5 and CPU seconds of the fit for the defaults and for each change, and writes them to
``search_defaults.md`` in the folder of results. With ``--classes`` the rarest label of a sample is
its class, and P@k the share of samples whose class is among the best k. With ``--sets`` example-F1
and subset accuracy of the predicted label sets follow P@5. With ``--bags`` samples are dealt into
bags at random, and `MIMLClassifier` learns which labels occur in a bag: P@1/3/5 of bags, then of
single samples. ``--labels`` keeps the most frequent ones. With ``--dense`` X holds vectors of the
texts (``trn.jsonl.gz``), or 300 components of a singular value decomposition; ``--peers`` adds
classifiers of scikit-learn. Everything is judged on samples of the training part that were left
out. Every fit runs in a process of its own.
"""

import argparse
import gzip
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import Clock, add_device, device, fresh_process, load_part, rarest_labels

from sklearn_xlc.engine import plan
from sklearn_xlc.engine.resolve import resolve_model, resolve_training
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import NearestSamples, retrieving, trees, vectors

#: Changes, each with the parameters that make it; "rate" and "dropout" are factors of "auto".
CHANGES = {
    "defaults": {},
    "all negatives": {"head": "flat", "head__n_negatives": None},
    "50 negatives": {"head": "flat", "head__n_negatives": 50},
    "100 negatives": {"head": "flat", "head__n_negatives": 100},
    "250 negatives": {"head": "flat", "head__n_negatives": 250},
    "500 negatives": {"head": "flat", "head__n_negatives": 500},
    "1000 negatives": {"head": "flat", "head__n_negatives": 1000},
    "2000 negatives": {"head": "flat", "head__n_negatives": 2000},
    "calibration": {"ranker": "calibration"},
    "columns as they are": {"standardises": False},
    "width 512": {"encoder": "mlp", "encoder__hidden_layer_sizes": (512,)},
    "width 832, all negatives": {
        "encoder": "mlp",
        "encoder__hidden_layer_sizes": (832,),
        "head": "flat",
        "head__n_negatives": None,
    },
    "width 384": {"encoder": "mlp", "encoder__hidden_layer_sizes": (384,)},
    "width 256": {"encoder": "mlp", "encoder__hidden_layer_sizes": (256,)},
    "width 1024": {"encoder": "mlp", "encoder__hidden_layer_sizes": (1024,)},
    "a third of the epochs": {"epochs": 0.34},
    "half the epochs": {"epochs": 0.5},
    "three quarters of the epochs": {"epochs": 0.75},
    "twice the epochs": {"epochs": 2.0},
    "half as many epochs again": {"epochs": 1.5},
    "no dropout": {"encoder": "mlp", "encoder__dropout": 0.0},
    "dropout 0.35": {"encoder": "mlp", "encoder__dropout": 0.35},
    "dropout less 0.2": {"dropout": -0.2},
    "dropout plus 0.2": {"dropout": 0.2},
    "batches of 128": {"batch_size": 128},
    "batches of 512": {"batch_size": 512},
    "encoder's rate halved": {"rates": (0.5, 1.0)},
    "encoder's rate doubled": {"rates": (2.0, 1.0)},
    "head's rate halved": {"rates": (1.0, 0.5)},
    "head's rate doubled": {"rates": (1.0, 2.0)},
    "Adam throughout": {"optimizer": "adam"},
    "ReLU": {"slope": 0.0},
    "slope 0.3": {"slope": 0.3},
    "float32": {"precision": "float32"},
    "momentum of rows": {"momentum": True},
    "cascade": {"head": "cascade"},
    "flat": {"head": "flat"},
    "product": {"head": "product"},
    "beam 5": {"head": "cascade", "head__beam_width": 5},
    "values of other data": {"searched": False},
    "values of other data, dropout .8": {"searched": False, "dropout": 0.1},
    "words alone": {"axes": 0},
    "32 axes": {"axes": 32},
    "128 axes": {"axes": 128},
    "20 neighbours": {"neighbors": (3, 10, 20)},
    "50 neighbours": {"neighbors": (3, 10, 50)},
    "all false pairs": {"false_share": 1.0},
    "a fifth of the false pairs": {"false_share": 0.2},
    "three members": {"head": "flat", "encoder": "mlp", "encoder__n_members": 3},
}
#: Classes and parameters.
CLASSIFIERS = {
    "multihead": ("MultiHeadClassifier", {}),
    "product": ("MultiHeadClassifier", {"head": "product"}),
    "etf": ("ETFNeuralCollapseClassifier", {}),
    "miml": ("MIMLClassifier", {}),
}
#: Classifiers of scikit-learn for dense X.
PEERS = ["LogisticRegression", "MLPClassifier", "KNeighborsClassifier", "ExtraTreesClassifier"]
#: Left out of the training part with ``--dense``, at most, and components without texts.
N_LEFT_OUT, N_COMPONENTS = 3000, 300


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--classifier", choices=CLASSIFIERS, default="multihead")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--classes", action="store_true", help="one class a sample")
    parser.add_argument("--samples", type=int, default=0, help="train on so many; default: all")
    parser.add_argument(
        "--labels", type=int, default=0, help="the most frequent ones; default: all"
    )
    parser.add_argument("--sets", action="store_true", help="measure label sets, too")
    parser.add_argument("--bags", type=int, default=0, help="samples of a bag; default: no bags")
    parser.add_argument("--dense", action="store_true", help="dense X, judged on training samples")
    parser.add_argument("--peers", action="store_true", help="with --dense: scikit-learn, too")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a fit may take")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    options = parser.parse_args()
    if options.bags:
        options.classifier = "miml"
    return options


def change_rules(change):
    """Change what "auto" stands for in this process; factors apply to what the rules find."""

    def changed_model(params, facts):
        found = resolve_model(params, facts)
        if "encoder__dropout" in found:
            dropout = found["encoder__dropout"] + change.get("dropout", 0.0)
            found["encoder__dropout"] = min(0.9, max(0.0, dropout))
        if "encoder__negative_slope" in found:
            found["encoder__negative_slope"] = change.get("slope", found["encoder__negative_slope"])
        return found

    def changed_training(params, facts):
        found, epochs = resolve_training(params, facts), {}
        if "max_epochs" in found:  # rates follow from them
            epochs["max_epochs"] = max(1, round(found["max_epochs"] * change.get("epochs", 1.0)))
            found = resolve_training({**params, **epochs}, facts) | epochs
        factors = change.get("rates", (1.0, 1.0))
        found["optimizer__learning_rate"] *= factors[0]
        found["optimizer__head_learning_rate"] *= factors[1]
        if "momentum" in change:
            found["optimizer__row_momentum"] = change["momentum"]
        return found

    def changed(settings, facts):
        given = settings.flat(), facts
        return settings.replaced(changed_model(*given) | changed_training(*given))

    plan.resolve = changed
    if "neighbors" in change:
        retrieving.NearestSamples = partial(NearestSamples, change["neighbors"])
    if change.get("axes") == 0:
        retrieving.leading_axes = lambda features: np.empty((0, 0))
    vectors._AXES = change.get("axes", vectors._AXES)
    trees.FALSE_SHARE = change.get("false_share", trees.FALSE_SHARE)
    if not change.get("searched", True):
        plan.Facts.is_searched = property(lambda facts: False)
    if not change.get("standardises", True):
        plan.Plan._standardises = lambda self, sparse: False


def classifier(kind, change, seed):
    """Classifier with one change, which holds for all others of this process."""
    import sklearn_xlc

    if kind in PEERS:
        return Peer(kind, seed)
    change_rules(change)
    name, params = CLASSIFIERS[kind]
    ours = {"searched", "standardises", "epochs", "dropout", "rates", "momentum", "slope"}
    ours |= {"neighbors", "axes", "false_share"}
    params = params | {name: value for name, value in change.items() if name not in ours}
    return getattr(sklearn_xlc, name)(random_state=seed, device=device()).set_params(**params)


class Peer:
    """A classifier of scikit-learn with the method `predict_topk`."""

    def __init__(self, name, seed):
        from sklearn import ensemble, linear_model, neighbors, neural_network

        rooms = (ensemble, linear_model, neighbors, neural_network)
        kind = next(getattr(room, name) for room in rooms if hasattr(room, name))
        own = {"random_state": seed} if "random_state" in kind().get_params() else {}
        self.model, self.columns = kind(**own), None

    def fit(self, X, Y):
        """Fit to classes, or to those columns of an indicator that are not constant."""
        if sp.issparse(Y):
            from sklearn.multiclass import OneVsRestClassifier

            counts = np.asarray((Y > 0).sum(axis=0)).ravel()
            self.columns = np.flatnonzero((counts > 0) & (counts < Y.shape[0]))
            Y = Y[:, self.columns].toarray().astype(int)
            if hasattr(self.model, "C"):
                self.model = OneVsRestClassifier(self.model)
        self.model.fit(X, Y)

    def predict_topk(self, X, k):
        """Return the k labels of largest probability, and the probabilities."""
        p = self.model.predict_proba(X)
        if isinstance(p, list):  # of each column, those of both its values
            p = np.column_stack([each[:, 1] for each in p])
        best = np.argsort(-p, axis=1, kind="stable")[:, :k]
        names = self.model.classes_ if self.columns is None else self.columns
        return names[best], np.take_along_axis(p, best, axis=1)


def as_dense(folder, X, rows):
    """Vectors of the texts, or components of X that are learnt from `rows`."""
    if Path(folder, "trn.jsonl.gz").exists():
        from sklearn_xlc import SentenceVectorizer

        with gzip.open(Path(folder, "trn.jsonl.gz"), "rt", encoding="utf-8") as lines:
            X = SentenceVectorizer().fit_transform([json.loads(line)["text"] for line in lines])
    else:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfTransformer

        X = TfidfTransformer().fit(X[rows]).transform(X)
        X = TruncatedSVD(N_COMPONENTS, random_state=0).fit(X[rows]).transform(X)
    return X.astype(np.float32)


def load(folder, is_classes, n_samples, is_dense, n_labels):
    """X and Y of `n_samples` training samples (0: all but those left out), and of some left out."""
    X, Y = load_part(folder, "trn")
    if n_labels:
        order = np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")
        Y = Y[:, np.sort(order[:n_labels])]
        X, Y = X[np.diff(Y.indptr) > 0], Y[np.diff(Y.indptr) > 0]
    order = np.random.default_rng(0).permutation(X.shape[0])
    n_left_out = min(N_LEFT_OUT, X.shape[0] // 6)
    left_out, rows = np.sort(order[:n_left_out]), np.sort(order[n_left_out:])
    X = as_dense(folder, X, rows) if is_dense else X
    parts = [[X[rows], Y[rows]], [X[left_out], Y[left_out]]]
    if n_samples:
        chosen = np.random.default_rng(0).permutation(parts[0][0].shape[0])[:n_samples]
        parts[0] = [matrix[np.sort(chosen)] for matrix in parts[0]]
    if is_classes:
        counts = np.bincount(parts[0][1].indices, minlength=parts[0][1].shape[1])
        for number, (X, Y) in enumerate(parts):
            rows, labels = rarest_labels(Y, counts)
            parts[number] = X[rows], labels
    return parts


def deal(Y, size):
    """Bag of each sample, drawn at random, and the labels that occur in each bag."""
    bags = np.random.default_rng(0).permutation(Y.shape[0]) // size
    members = sp.csr_matrix((np.ones(len(bags)), (bags, np.arange(len(bags)))))
    return bags, (members @ Y > 0).astype(int)


def precision(Y, best, k):
    """Precision of the best k labels, or share of the samples whose class is among them."""
    if Y.ndim == 1:
        return float((best[:, :k] == Y[:, None]).any(1).mean())
    return precision_at_k(Y, best, k=k)


def quality_of_sets(truth, predicted):
    """Example-F1 and subset accuracy; F1 is zero where there is no label."""
    truth, predicted = (sp.csr_matrix(Y) > 0 for Y in (truth, predicted))
    right, *sizes = (
        np.asarray(Y.sum(axis=1)).ravel() for Y in (truth.multiply(predicted), truth, predicted)
    )
    f1 = 2 * right / np.maximum(1, sum(sizes))
    return float(f1.mean()), float(np.mean((right == sizes[0]) & (right == sizes[1])))


def of_samples(model, data, sets):
    """CPU seconds of a fit, and its scores on other samples."""
    (X, Y), (X_test, Y_test) = data
    with Clock() as spent:
        model.fit(X, Y)
    labels, _ = model.predict_topk(X_test, k=5)
    scores = [precision(Y_test, labels, k) for k in (1, 3, 5)]
    return spent.cpu, [*scores, *(quality_of_sets(Y_test, model.predict(X_test)) if sets else ())]


def of_bags(model, data, size):
    """CPU seconds of a fit on bags, and its scores on other bags and samples."""
    (X, Y), (X_test, Y_test) = data
    (bags, Y_bags), (test_bags, Y_test_bags) = deal(Y, size), deal(Y_test, size)
    with Clock() as spent:
        model.fit(X, Y_bags, bags)
    singles = np.arange(len(test_bags))
    scores = []
    for groups, truth in ((test_bags, Y_test_bags), (singles, Y_test)):
        labels, _ = model.predict_topk(X_test, groups=groups, k=5)
        scores += [precision(truth, labels, k) for k in (1, 3, 5)]
    return spent.cpu, scores


def measure_one(
    folder, kind, name, seed, is_classes, n_samples, sets, size, is_dense, n_labels, scratch
):
    """Fit and score in this process, and leave a report."""
    kind = name if name in PEERS else kind
    data = load(folder, is_classes, n_samples, is_dense, n_labels)
    model = classifier(kind, CHANGES.get(name, {}), seed)
    seconds, scores = of_bags(model, data, size) if size else of_samples(model, data, sets)
    report = {"status": "ok", "precision": [100 * score for score in scores], "cpu_s": seconds}
    Path(scratch, "report.json").write_text(json.dumps(report))


def cell(reports):
    """Mean precision and CPU seconds over the seeds, or why there are none."""
    wrong = [report["status"] for report in reports if report["status"] != "ok"]
    if wrong:
        return wrong[0]
    means = [statistics.mean(values) for values in zip(*(r["precision"] for r in reports))]
    seconds = statistics.mean(report["cpu_s"] for report in reports)
    quality = ["/".join(f"{mean:.1f}" for mean in part) for part in (means[:3], means[3:]) if part]
    return ", ".join([*quality, f"{seconds:.1f}"])


def main():
    options = parse_arguments()
    names = [folder.resolve().name for folder in options.folders]
    lines = [f"| change | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    print("\n".join(lines), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [*options.changes, *(PEERS if options.peers else [])]:
        cells = []
        for folder in options.folders:
            reports = []
            for seed in options.seeds:
                with tempfile.TemporaryDirectory(prefix="xlc-search-") as scratch:
                    arguments = [__file__, "--one", folder, options.classifier, name, seed]
                    arguments += [int(options.classes), options.samples, int(options.sets)]
                    arguments += [options.bags, int(options.dense), options.labels, scratch]
                    reports.append(
                        fresh_process(
                            arguments, scratch, threads=options.threads, limit=options.limit
                        )
                    )
            cells.append(cell(reports))
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        (options.out / "search_defaults.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        folder, kind, name, *numbers, scratch = sys.argv[2:]
        measure_one(Path(folder), kind, name, *map(int, numbers), scratch)
    else:
        main()
