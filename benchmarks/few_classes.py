"""Accuracy, log loss and calibration error of a few classes, with lists and without.

    python benchmarks/few_classes.py --data DATA_FOLDER --seeds 0 1 --peers
    python benchmarks/few_classes.py --data DATA_FOLDER --seeds 0 1 --stream 500 --by-class

Sets of scikit-learn, and parts of training parts in DATA_FOLDER, if given: digits of ``mnist``, and
samples of ``debtags``, ``eurlex57k`` and ``icd10cm`` by the rarest of their labels among the
frequent ones, as words and as 100 components. A third of each set is left out for the test. Prints
a row of a table for each set and model. Streams come in random order, or sorted by class.
"""

import argparse
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from _measure import load_part
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_moons
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import expected_calibration_error

#: Classes of `make_classification`: samples, features, separation, share of random labels.
MADE = {
    2: (3000, 20, 1.0, 0.05),
    3: (4000, 20, 0.8, 0.0),
    20: (6000, 30, 1.0, 0.0),
    50: (10_000, 40, 1.0, 0.05),
}
#: Number of most frequent labels that are classes.
FREQUENT = {"debtags": 40, "eurlex57k": 30, "icd10cm": 60}
MODELS = {
    "lists": lambda seed: MultiHeadClassifier(random_state=seed),
    "calibration": lambda seed: MultiHeadClassifier(
        ranker="calibration", validation_fraction="refit", random_state=seed
    ),
}
PEERS = {
    "logistic regression": lambda seed: LogisticRegression(max_iter=1000),
    "neighbours": lambda seed: KNeighborsClassifier(),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "boosted trees": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}


def scaled(make):
    """Return what makes a model behind standardised columns."""
    return lambda seed: make_pipeline(StandardScaler(), make(seed))


def streamed(size, ranker, by_class):
    """Return what makes a classifier that is fitted in batches of `size` samples, each once."""

    def make(seed):
        model = MultiHeadClassifier(ranker=ranker, random_state=seed)

        def fit(X, y):
            order = np.argsort(y, kind="stable") if by_class else np.arange(len(y))
            for start in range(0, len(y), size):
                batch = order[start : start + size]
                model.partial_fit(X[batch], y[batch], classes=np.unique(y))
            return model

        return SimpleNamespace(fit=fit)

    return make


def made_sets():
    """Yield sets of scikit-learn by name."""
    yield "digits", *load_digits(return_X_y=True)
    X, y = load_digits(return_X_y=True)
    rng = np.random.RandomState(0)
    noisy = np.where(rng.random_sample(len(y)) < 0.4, rng.randint(10, size=len(y)), y)
    yield "digits, 40% random", X, noisy
    yield "breast cancer", *load_breast_cancer(return_X_y=True)
    yield "moons", *make_moons(2000, noise=0.25, random_state=0)
    for n_classes, (n, width, separation, share) in MADE.items():
        X, y = make_classification(
            n,
            width,
            n_informative=width // 2,
            n_redundant=width // 4,
            n_classes=n_classes,
            class_sep=separation,
            flip_y=share,
            random_state=n_classes,
        )
        yield f"made, {n_classes}", X, y


def real_sets(folder):
    """Yield sets of a folder by name."""
    digits = np.load(folder / "mnist" / "mnist.npz")
    X, y = digits["X_train"].reshape(-1, 784) / np.float32(255), digits["y_train"]
    yield "MNIST", X[:12_000], y[:12_000]
    yield "MNIST, even or odd", X[:6000], y[:6000] % 2
    for name, n_classes in FREQUENT.items():
        X, Y = load_part(folder / name, "trn")
        counts = np.asarray(Y.sum(axis=0)).ravel()
        kept = np.argsort(-counts, kind="stable")[:n_classes]
        of_kept = Y[:, kept].toarray() > 0
        y = np.where(of_kept, np.arange(n_classes), -1).max(axis=1)
        rows = np.random.RandomState(0).permutation(np.flatnonzero(y >= 0))[:6000]
        yield name, X[rows], y[rows]
        yield (
            f"{name}, components",
            TruncatedSVD(100, random_state=0).fit_transform(X[rows]),
            y[rows],
        )


def judge(model, X, y):
    """Return accuracy in percent, log loss and calibration error of a fitted model."""
    P = model.predict_proba(X).astype(np.float64)
    truth = y[:, None] == model.classes_
    best = P.argmax(axis=1)[:, None]
    error = expected_calibration_error(
        truth.astype(np.int8), best, np.take_along_axis(P, best, axis=1)
    )[0]
    loss = log_loss(y, P / P.sum(axis=1, keepdims=True), labels=model.classes_)
    return 100 * np.take_along_axis(truth, best, axis=1).mean(), loss, error


def measure(make, X, y, seed, n_samples):
    """Fit a model to two thirds, or fewer, and return what `judge` does, and CPU seconds."""
    order = np.random.RandomState(seed).permutation(len(y))
    train, test = order[len(y) // 3 :][:n_samples], order[: len(y) // 3]
    test = test[np.isin(y[test], y[train])]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(seed).fit(X[train], y[train])
    seconds = time.process_time() - start
    return *judge(model, X[test], y[test]), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    parser.add_argument("--samples", type=int, help="samples of a fit; default: two thirds")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--stream", type=int, help="samples of a batch; streams alone")
    parser.add_argument("--by-class", action="store_true", help="sort streams by class")
    args = parser.parse_args()
    models = {**MODELS, **(PEERS if args.peers else {})}
    if args.stream:
        models = {
            f"stream of {args.stream}, {name}": streamed(args.stream, ranker, args.by_class)
            for name, ranker in (("lists", "auto"), ("network alone", None))
        }
    print("| data | classes | model | accuracy | log loss | calibration error | fit CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name, X, y in [*made_sets(), *(real_sets(args.data) if args.data else ())]:
        if args.sets and name not in args.sets:
            continue
        for model, make in models.items():
            is_dense = isinstance(X, np.ndarray)
            if model == "boosted trees" and not is_dense:
                continue
            if model in PEERS and is_dense:
                make = scaled(make)
            accuracy, loss, error, seconds = np.mean(
                [measure(make, X, y, seed, args.samples) for seed in args.seeds], axis=0
            )
            print(
                f"| {name} | {len(np.unique(y))} | {model} | {accuracy:.1f} | {loss:.3f} | "
                f"{error:.3f} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
