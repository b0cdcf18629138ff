"""Rank with a number more: a linear regression of each label on all columns of X.

    python benchmarks/linear_retriever.py DATA_FOLDER --samples 2000 5000 --ways default svm exact

Samples are drawn from the training part, and up to 3000 others of it are predicted: no test sample
is read. Ways: the defaults ("default"), one-vs-all linear support vector machines ("svm"), the
defaults with the regression solved exactly ("exact"), or by leading directions of X and the sizes
of columns beside them ("400": as many directions). "exact-32" and "400-32" read the 32 heaviest
columns of a sample. Prints P@1/3/5 and PSP@1/5 in per cent, the calibration error of the best
label, and CPU seconds of the fit, means over the seeds. With `--classes` the rarest label of a
sample is its class, and in place of P@1/3/5 are shares of samples whose class is among the best.
"""

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import Clock, load_classes, load_part
from scipy.linalg import cho_factor, cho_solve
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from sklearn.utils.extmath import randomized_svd

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import (
    expected_calibration_error,
    precision_at_k,
    propensities,
    psp_at_k,
)
from sklearn_xlc.ranking import BoostedRanker, Retriever
from sklearn_xlc.ranking.search import heaviest

N_OTHERS, N_PAIRS = 3000, 5000


class ExactRidge(Retriever):
    """Ridge regression of all labels on all columns, by the products of samples.

    Parameters
    ----------
    alpha : float, default=0.3
        Penalty, where samples have norm one.
    n_words : int, default=0
        Columns of largest magnitude that are read of a sample. 0: all.
    """

    reads, monotonic, refits = ("input",), (1,), True

    def __init__(self, alpha=0.3, n_words=0):
        self.alpha = alpha
        self.n_words = n_words

    def get_feature_names_out(self, input_features=None):
        return np.array(["value"])

    def unit(self, samples):
        X = samples["input"]
        return normalize(heaviest(X, self.n_words) if self.n_words else X)

    def fit(self, samples, Y, sample_weight=None):
        self.X_, self.Y_ = self.unit(samples), sp.csr_matrix(Y, dtype=np.float32)
        products = (self.X_ @ self.X_.T).toarray()
        products[np.diag_indices_from(products)] += self.alpha
        self.factor_ = cho_factor(products, lower=True, overwrite_a=True)
        return self

    def search(self, samples, scores, labels):
        near = (self.X_ @ self.unit(samples).T).toarray()
        return (self.Y_.T @ cho_solve(self.factor_, near)).T

    def candidates(self, found):
        return np.empty((len(found), 0), dtype=int)  # it describes the labels of others

    def numbers(self, found, rows, labels):
        return found[rows, labels, None]


class Directions(ExactRidge):
    """The same, with leading directions of the samples, and beside them a size for each column.

    Parameters
    ----------
    alpha : float, default=1.0
        Penalty.
    n_words : int, default=0
        As above.
    rank : int, default=400
        Number of directions.
    """

    def __init__(self, alpha=1.0, n_words=0, rank=400):
        super().__init__(alpha, n_words)
        self.rank = rank

    def fit(self, samples, Y, sample_weight=None):
        X = self.unit(samples)
        rank = min(self.rank, *X.shape) - 1
        _, sizes, V = randomized_svd(X, rank, n_iter=1, random_state=0)
        squares = np.asarray(X.multiply(X).sum(axis=0)).ravel()
        rest = np.maximum(squares - np.square(sizes[:, None] * V).sum(axis=0), 0) + self.alpha
        # Woodbury: the inverse of V.T S V + diag(rest), where S are the squared sizes.
        self.rest_, self.directions_ = rest, V / rest
        inner = np.linalg.inv(np.diag(sizes**-2.0) + self.directions_ @ V.T)
        self.sums_ = sp.csr_matrix(Y, dtype=np.float32).T @ X
        self.of_labels_ = (self.sums_ @ self.directions_.T) @ inner
        return self

    def search(self, samples, scores, labels):
        X = self.unit(samples)
        return sp.csr_matrix(X.multiply(1 / self.rest_)), X @ self.directions_.T

    def candidates(self, found):
        return np.empty((found[0].shape[0], 0), dtype=int)

    def numbers(self, found, rows, labels):
        values = np.empty((len(rows), 1))
        for start in range(0, len(rows), N_PAIRS):
            part = slice(start, start + N_PAIRS)
            at, of = rows[part], labels[part]
            near = found[0][at].multiply(self.sums_[of]).sum(axis=1)
            common = np.einsum("ij,ij->i", found[1][at], self.of_labels_[of])
            values[part, 0] = np.asarray(near).ravel() - common
        return values


class Lists(BoostedRanker):
    """The default lists, and a retriever more."""

    added = None

    def _named(self, space="input"):
        return [*super()._named(space), ("linear", self.added)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=["default", "svm", "exact", "400"])
    parser.add_argument("--classes", action="store_true", help="one class a sample")
    return parser.parse_args()


def ranked(way, X, Y, others, seed, classes):
    """Five labels of others, their probabilities or None, and CPU seconds of the fit."""
    if way == "svm":
        scores = np.full((others.shape[0], Y.shape[1]), -np.inf)
        columns = Y.tocsc()
        with Clock() as spent:
            for label in np.unique(Y.indices):
                y = columns[:, [label]].toarray().ravel()
                if 0 < y.sum() < len(y):
                    scores[:, label] = LinearSVC().fit(X, y).decision_function(others)
        return np.argsort(-scores, axis=1, kind="stable")[:, :5], None, spent.cpu
    ranker = "auto" if way == "default" else Lists()
    kind, _, n_words = way.partition("-")
    if kind == "exact":
        Lists.added = ExactRidge(n_words=int(n_words or 0))
    elif way != "default":
        Lists.added = Directions(n_words=int(n_words or 0), rank=int(kind))
    model = MultiHeadClassifier(ranker=ranker, random_state=seed)
    with Clock() as spent:
        model.fit(X, Y.indices if classes else Y)
    return *model.predict_topk(others, k=5, proba=True), spent.cpu


def measure(way, X, Y, n_samples, seed, classes):
    """Scores in per cent, calibration error and CPU seconds of one fit."""
    order = np.random.default_rng(100 + seed).permutation(X.shape[0])
    n_others = min(X.shape[0] // 5, N_OTHERS)
    others, rows = order[:n_others], order[n_others:][:n_samples]
    best, chances, cpu = ranked(way, X[rows], Y[rows], X[others], seed, classes)
    truth, weights = Y[others], propensities(Y[rows])
    scores = [precision_at_k(truth, best, k=k) * (k if classes else 1) for k in (1, 3, 5)]
    scores += [psp_at_k(truth, best, k=k, propensities=weights) for k in (1, 5)]
    error = np.nan
    if chances is not None:
        error = expected_calibration_error(truth, best, chances)[0]
    return [*(100 * float(score) for score in scores), float(error), cpu]


def main():
    options = parse_arguments()
    warnings.simplefilter("ignore")
    print("| set, samples | | P@1/3/5 | PSP@1/5 | calibration error | CPU s |")
    print("|---|---|---|---|---|---|", flush=True)
    for folder in options.folders:
        X, Y = (load_classes if options.classes else load_part)(folder, "trn")
        for n_samples in options.samples:
            for way in options.ways:
                fixed = way, X, Y, n_samples
                runs = [measure(*fixed, seed, options.classes) for seed in options.seeds]
                *means, error, cpu = map(statistics.mean, zip(*runs))
                means = [f"{mean:.1f}" for mean in means]
                cells = [
                    way,
                    "/".join(means[:3]),
                    "/".join(means[3:]),
                    f"{error:.3f}",
                    f"{cpu:.1f}",
                ]
                name = f"{folder.resolve().name}, {min(n_samples, X.shape[0])}"
                print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
