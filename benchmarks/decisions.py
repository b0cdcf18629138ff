"""What the default decision and calibration give, and what they cost.

    python benchmarks/decisions.py glosses DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1 2

One row for each data set and way to decide: P@1/3/5, RP@5, nDCG@5, micro-F1 of `predict`, samples
without label, the expected calibration error at ranks 1, 3 and 5, and the CPU seconds of the fit.
"all samples" holds none out and predicts labels with a probability above one half. "counts of now"
is "auto" where trees read counts of labels as they are after the fit, not as if no more samples
were known than when the trees were learnt. "ETF" and "ETF,
divergence" are `ETFNeuralCollapseClassifier` with its defaults and with the decision "divergence".
``--left-out 8000`` draws so many training samples, and judges on a fifth of them, in place of the
test samples.
"""

import argparse
import time

import numpy as np
import scipy.sparse as sp
from _measure import load_part
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc import ETFNeuralCollapseClassifier, MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.metrics import (
    expected_calibration_error,
    label_set_score,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
)


class CountsOfNow(MultiHeadClassifier):
    """Its trees read counts of labels that have grown since they were learnt."""

    def fit(self, X, y):
        super().fit(X, y).ranker_.n_known_ = 0
        return self


WAYS = {
    "auto": (MultiHeadClassifier, {}),
    "all samples": (
        MultiHeadClassifier,
        {"decision": Threshold(0.0, scale="score"), "ranker": None},
    ),
    "counts of now": (CountsOfNow, {}),
    "ETF": (ETFNeuralCollapseClassifier, {}),
    "ETF, divergence": (ETFNeuralCollapseClassifier, {"decision": "divergence"}),
}
SETS = ("f1_micro", "f1_macro", "f1_samples", "subset_accuracy")


def load_glosses():
    """Embedded glosses as in the quick start of the README."""
    bunch = load_wordnet_glosses()
    train, test = bunch.train_indices, bunch.test_indices
    texts = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X, X_test = texts.fit_transform(bunch.data[train]), texts.transform(bunch.data[test])
    Y = sp.csr_matrix(bunch.target)
    return X, Y[train], X_test, Y[test]


def load(folder):
    if folder == "glosses":
        return load_glosses()
    return [*load_part(folder, "trn"), *load_part(folder, "tst")]


def left_out(data, n_rows, seed):
    """Samples drawn from the training part, four fifths to fit and one to judge on."""
    X, Y, *_ = data
    drawn = np.random.default_rng(seed).permutation(X.shape[0])[:n_rows]
    train, test = np.split(drawn, [int(0.8 * len(drawn))])
    return X[train], Y[train], X[test], Y[test]


def measure(data, seed, kind, params):
    """P@1/3/5, RP@5, nDCG@5, scores of sets, empty sets, errors at ranks 1, 3, 5, CPU seconds."""
    X, Y, X_test, Y_test = data
    start = time.process_time()
    clf = kind(random_state=seed, **params).fit(X, Y)
    seconds = time.process_time() - start
    labels, p = clf.predict_topk(X_test, 5, proba=True)
    sets = clf.predict(X_test)
    found = [100 * precision_at_k(Y_test, labels, k) for k in (1, 3, 5)]
    found += [100 * metric(Y_test, labels, k=5) for metric in (r_precision_at_k, ndcg_at_k)]
    found += [label_set_score(Y_test > 0, sets > 0, name) for name in SETS]
    found += [np.mean(np.diff(sets.indptr) == 0)]
    return [*found, *expected_calibration_error(Y_test, labels, p)[[0, 2, 4]], seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", help='data set folders, or "glosses"')
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS)[:2])
    parser.add_argument("--left-out", type=int, metavar="ROWS", help="judge on training samples")
    arguments = parser.parse_args()
    print(
        "| data | | P@1/3/5 | RP@5 | nDCG@5 | F1 micro/macro/samples | subset accuracy "
        "| without label | ECE@1/3/5 | fit, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for folder in arguments.folders:
        data, name = load(folder), folder.rstrip("/").rpartition("/")[2]
        for way in arguments.ways:
            runs = []
            for seed in arguments.seeds:
                part = left_out(data, arguments.left_out, seed) if arguments.left_out else data
                runs.append(measure(part, seed, *WAYS[way]))
            runs = np.array(runs)
            p, five, f1, exact, empty, ece, seconds = np.split(
                runs.mean(axis=0), [3, 5, 8, 9, 10, 13]
            )
            print(
                f"| {name} | {way} | {'/'.join(f'{x:.1f}' for x in p)} "
                f"| {five[0]:.1f} | {five[1]:.1f} | {'/'.join(f'{x:.3f}' for x in f1)} "
                f"| {exact[0]:.3f} "
                f"| {empty[0]:.1%} | {'/'.join(f'{x:.3f}' for x in ece)} | {seconds[0]:.1f} |",
                flush=True,
            )
            if len(runs) > 1:
                error = runs.std(axis=0, ddof=1) / len(runs) ** 0.5
                print(f"<!-- standard errors: {np.array2string(error, precision=3)} -->")


if __name__ == "__main__":
    main()
