"""Columns of sparse X in units of their own: precision of the default, and of omikuji, if there.

    python benchmarks/column_units.py DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1 2

Each set is read as it is; with three columns beside it, a year, a price from a log-normal
distribution, and a flag, none of which says anything about the labels; with five columns about six
times as large as the others, which say nothing either; with each column times a factor of its own,
log-normal with a deviation of .7 or 2; and divided by 1000. Of the training samples, 8000 at most
and drawn anew for each seed, an eighth is left out and predicted. Prints P@1/3/5, means over seeds,
and their mean over sets, forms and cutoffs.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part
from peers import Omikuji

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.engine import columns
from sklearn_xlc.metrics import precision_at_k

CUTOFFS = (1, 3, 5)
SAMPLES = 8000


def with_numbers(X, rng):
    year, flag = 1990 + rng.randint(30, size=X.shape[0]), rng.randint(2, size=X.shape[0])
    price = np.exp(rng.normal(5, 2, X.shape[0]))
    return sp.csr_matrix(sp.hstack([X, np.stack([year, price, flag], axis=1)]))


def with_large_numbers(X, rng):
    size = np.sqrt(X.multiply(X).sum() / X.nnz)
    numbers = 6 * size * np.abs(rng.normal(1, 0.3, (X.shape[0], 5)))
    return sp.csr_matrix(sp.hstack([X, numbers]))


def in_units(X, rng, deviation=2):
    return sp.csr_matrix(X @ sp.diags(np.exp(rng.normal(0, deviation, X.shape[1]))))


FORMS = {
    "as it is": lambda X, rng: X,
    "three numbers beside": with_numbers,
    "five large ones beside": with_large_numbers,
    "a unit for each column": in_units,
    "a unit, deviation of .7": partial(in_units, deviation=0.7),
    "divided by 1000": lambda X, rng: X / 1000,
}


def by_default(X, Y, samples, seed):
    return MultiHeadClassifier(random_state=seed).fit(X, Y).predict_topk(samples, max(CUTOFFS))[0]


def by_omikuji(X, Y, samples, seed):
    with tempfile.TemporaryDirectory() as folder:
        peer = Omikuji(1, folder)
        peer.prepare(X, Y)
        peer.fit(X, Y)
        return peer.predict_topk(samples, max(CUTOFFS))


def is_installed(peer):
    try:
        peer(1, ".")
    except ModuleNotFoundError:
        return False
    return True


def precision(X, Y, seed, change, predict):
    rng = np.random.RandomState(seed + 50)
    drawn = rng.permutation(X.shape[0])[:SAMPLES]
    X, Y = sp.csr_matrix(change(X[drawn], rng), dtype=np.float32), Y[drawn]
    n_test = len(drawn) // 8
    labels = predict(X[n_test:], Y[n_test:], X[:n_test], seed)
    return [100 * precision_at_k(Y[:n_test], labels, k=k) for k in CUTOFFS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--limits", nargs=2, type=float, help="other shares of squares and of non-zeros; no peer"
    )
    args = parser.parse_args()
    models = {"default": by_default}
    if args.limits:
        columns._LOUD, columns._MIXED = args.limits[0], (args.limits[1], 0.03)
    elif is_installed(Omikuji):
        models["omikuji"] = by_omikuji
    print("| set | columns | " + " | ".join(models) + " |", flush=True)
    print("|---|---|" + len(models) * "---|", flush=True)
    overall = {name: [] for name in models}
    for folder in args.folders:
        X, Y = load_part(folder, "trn")
        for name, change in FORMS.items():
            cells = []
            for model, predict in models.items():
                found = [precision(X, Y, seed, change, predict) for seed in args.seeds]
                cells.append("/".join(f"{value:.1f}" for value in np.mean(found, axis=0)))
                overall[model].append(np.mean(found))
            print(f"| {folder.name} | {name} | " + " | ".join(cells) + " |", flush=True)
    print(
        "| all | all | " + " | ".join(f"{np.mean(found):.1f}" for found in overall.values()) + " |"
    )


if __name__ == "__main__":
    main()
