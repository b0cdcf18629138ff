"""A retriever of one's own, written with public names only: labels of the rarest shared feature.

Two texts that share a rare word, such as a name, are often about the same thing.
"""

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from _strangers import QUICK, hit_rate
from sklearn.base import clone

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.ranking import BoostedRanker, CooccurringLabels, Retriever

QUICK = {**QUICK, "max_epochs": 3, "learning_rate": 0.01}


class RarestFeature(Retriever):
    """List the labels of the training samples with the rarest feature that a sample shares.

    Parameters
    ----------
    n_labels : int, default=5
        Number of labels to list.
    """

    reads = ("input",)
    monotonic = (1,)

    def __init__(self, n_labels=5):
        self.n_labels = n_labels

    def get_feature_names_out(self, input_features=None):
        return np.array(["share"])

    def fit(self, samples, Y, sample_weight=None):
        has = sp.csr_array(samples["input"])
        has.data = np.ones_like(has.data, dtype=np.float32)
        counts = has.sum(axis=0)
        self.rarity_ = np.where(counts > 0, 1 / np.maximum(counts, 1), 0).astype(np.float32)
        shares = sp.csr_array(has.T @ Y.astype(np.float32))
        shares.data *= np.repeat(self.rarity_, np.diff(shares.indptr))
        self.shares_ = shares  # of the samples with a feature, those with a label
        return self

    def search(self, samples, scores, labels):
        has = sp.csr_array(samples["input"])
        has.data = self.rarity_[has.indices]
        rows = np.flatnonzero(np.diff(has.indptr))
        rarest = np.asarray(has[rows].argmax(axis=1)).ravel()
        found = sp.lil_array((has.shape[0], self.shares_.shape[1]), dtype=np.float32)
        found[rows] = self.shares_[rarest].tolil()
        return sp.csr_array(found)

    def candidates(self, found):
        listed = np.full((found.shape[0], self.n_labels), -1)
        for row, (start, stop) in enumerate(zip(found.indptr, found.indptr[1:])):
            order = np.argsort(-found.data[start:stop], kind="stable")[: self.n_labels]
            listed[row, : len(order)] = found.indices[start:stop][order]
        return listed

    def numbers(self, found, rows, labels):
        return np.asarray(found[rows, labels]).reshape(-1, 1)


@pytest.fixture(scope="module")
def data():
    """Every label has words of its own, rare ones, among many that say nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 300, 3000)
    words = np.concatenate(
        [2 * y[:, None] + rng.integers(0, 2, (3000, 1)), 600 + rng.integers(0, 40, (3000, 6))],
        axis=1,
    )
    ones = np.ones(words.size, dtype=np.float32)
    X = sp.csr_matrix((ones, words.ravel(), np.arange(0, words.size + 1, 7)), shape=(3000, 640))
    X.sum_duplicates()
    return X, sp.csr_matrix(np.eye(300, dtype=np.int8)[y])


def ranker(**params):
    named = [("rarest", RarestFeature(**params)), ("together", CooccurringLabels())]
    return BoostedRanker(retrievers=named)


@pytest.mark.integration
def test_it_finds_labels_that_the_network_does_not(data, tmp_path):
    X, Y = data
    network = MultiHeadClassifier(ranker=None, **QUICK).fit(X[:2500], Y[:2500])
    ranked = MultiHeadClassifier(ranker=ranker(), **QUICK).fit(X[:2500], Y[:2500])
    one, other = (hit_rate(clf, X[2500:], Y[2500:]) for clf in (network, ranked))
    assert other > one + 0.1
    scores = ranked.decision_function(X[2500:])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(ranked.predict_topk(X[2500:], 5)[0], best)
    joblib.dump(ranked, tmp_path / "model.joblib")
    np.testing.assert_array_equal(
        joblib.load(tmp_path / "model.joblib").decision_function(X[2500:]), scores
    )
    sklearn_xlc.save(ranked, tmp_path / "model.skops", exact=True)
    trusted = [f"{__name__}.RarestFeature"]
    loaded = sklearn_xlc.load(tmp_path / "model.skops", trusted=trusted)
    np.testing.assert_array_equal(loaded.predict_topk(X[2500:], 5)[0], best)


def test_its_parameters_are_nested():
    clf = MultiHeadClassifier(ranker=ranker(), **QUICK).set_params(ranker__rarest__n_labels=2)
    assert clone(clf).get_params()["ranker__rarest__n_labels"] == 2
