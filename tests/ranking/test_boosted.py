"""BoostedRanker: what is listed, in which order, with which odds; degenerate cases; parameters."""

import copy
import functools
import io
import multiprocessing
import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import skops.io
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import expected_calibration_error, propensities
from sklearn_xlc.ranking import (
    BoostedRanker,
    CooccurringLabels,
    LabelCentroids,
    NearestSamples,
    Retriever,
    boosted,
    log_shares,
)
from sklearn_xlc.ranking.boosted import check_loaded
from sklearn_xlc.ranking.calibration import identity
from sklearn_xlc.ranking.search import integer_rows

N_LABELS = 12


def make_data(rng, n=900, is_sparse=True):
    """Samples whose first columns tell their labels, and a network that knows a part of it."""
    share = 0.06 if is_sparse else 0.9
    X = np.where(rng.random((n, 60)) < share, rng.random((n, 60)), 0)
    Y = (X[:, :N_LABELS] > np.quantile(X[:, :N_LABELS], 0.96)).astype(int)
    scores = rng.normal(size=Y.shape) + Y - 2
    labels = np.argsort(-scores, axis=1)[:, :8]
    return sp.csr_array(X), sp.csr_array(Y), np.take_along_axis(scores, labels, 1), labels


def fitted(ranker, X, Y, scores, labels, n=400, **beside):
    ranker.remember({"input": X[:n]}, Y[:n])
    return ranker.fit(scores[n:], Y[n:], labels[n:], {"input": X[n:]}, **beside)


class Same(ClassifierMixin, BaseEstimator):
    """All labels are equally likely."""

    def fit(self, numbers, y, sample_weight=None):
        self.classes_ = np.array([False, True])
        return self

    def decision_function(self, numbers):
        return np.zeros(len(numbers))


class Listed(Retriever):
    """Lists the same labels for all samples."""

    reads = ()

    def __init__(self, labels=(3, 1)):
        self.labels = labels

    def get_feature_names_out(self, input_features=None):
        return np.array([])

    def search(self, samples, scores, labels):
        return len(scores)

    def candidates(self, found):
        return np.tile(self.labels, (found, 1))

    def numbers(self, found, rows, labels):
        assert (np.diff(rows * 1000 + labels) > 0).all()
        return np.empty((len(rows), 0))


def strictly_falls(odds, ranked):
    with np.errstate(invalid="ignore"):
        steps = np.diff(odds, axis=1)
    return ((steps < 0) | (ranked[:, 1:] < 0)).all() and (np.isneginf(odds) == (ranked < 0)).all()


def check_lists(odds, ranked, n, dtype):
    assert odds.shape == ranked.shape
    assert len(odds) == n
    assert odds.dtype == dtype
    assert strictly_falls(odds, ranked)
    for row in ranked:
        listed = row[row >= 0].tolist()
        assert len(set(listed)) == len(listed)


def test_ties_follow_the_network_then_the_id(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = BoostedRanker([("some", Listed((7, 0, 5, 3)))], 3, Same(), tail_order=0.0)
    fitted(ranker, X, Y, scores, labels)
    scores = np.array([[1.0, 1.0, 0.5, 0.4], [2.0, 1.0, -np.inf, -np.inf]])
    labels = np.array([[9, 5, 2, 1], [0, 3, 4, -1]])
    odds, ranked = ranker.rank(scores, labels, {"input": X[:2]})
    # The fourth label of the network is beyond n_candidates.
    assert ranked.tolist() == [[5, 9, 2, 0, 3, 7], [0, 3, 5, 7, -1, -1]]
    check_lists(odds, ranked, 2, np.float64)
    assert np.ptp(odds[0]) > 0.1  # the network adds its own scores
    ranker.network_share_ = 0.0
    odds, equal = ranker.rank(scores, labels, {"input": X[:2]})
    assert equal.tolist() == ranked.tolist()
    assert np.ptp(odds[0]) < 1e-14


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_hold_the_network_and_the_retrievers(dtype, rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(n_candidates=4), X, Y, scores, labels)
    new = make_data(rng, 60)
    odds, ranked = ranker.rank(new[2].astype(dtype), new[3], {"input": new[0]})
    check_lists(odds, ranked, 60, dtype)
    for i, row in enumerate(ranked):
        expected = set(new[3][i, :4].tolist())
        for _, retriever in ranker.retrievers_:
            found = retriever.search({"input": new[0][[i]]}, new[2][[i], :4], new[3][[i], :4])
            expected |= set(retriever.candidates(found).ravel().tolist())
        assert set(row[row >= 0].tolist()) == expected - {-1}


@pytest.mark.integration
@pytest.mark.parametrize("is_sparse", [False, True])
def test_ranking_beats_the_network_and_is_calibrated(is_sparse, rng, all_trees):
    X, Y, scores, labels = make_data(rng, 6000, is_sparse)
    ranker = BoostedRanker().remember({"input": X[:3000]}, Y[:3000])
    part = slice(3000, 5000)
    ranker.fit(scores[part], Y[part], labels[part], {"input": X[part]})
    odds, ranked = ranker.rank(scores[5000:], labels[5000:], {"input": X[5000:]})
    true = Y[5000:].toarray()

    def precision(best):
        return true[np.arange(1000), best].mean()

    assert precision(ranked[:, 0]) > precision(labels[5000:, 0]) + 0.03
    by_label = np.full(true.shape, -np.inf)
    listed = ranked >= 0
    by_label[np.nonzero(listed)[0], ranked[listed]] = odds[listed]
    # The line is learnt from the five best labels. They are true some 430 times in its samples, and
    # in these: three standard errors.
    five = np.arange(1000)[:, None], ranked[:, :5]
    n_true = true[five].sum()
    assert abs(expit(by_label[five]).sum() / n_true - 1) < 3 * (2 / n_true) ** 0.5
    assert expected_calibration_error(true, ranked[:, :1], expit(odds[:, :1]))[0] < 0.08


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.usefixtures("ten_trees")
def test_parts_equal_the_whole_and_forms_of_X_agree(is_sparse, rng, monkeypatch):
    X, Y, scores, labels = make_data(rng, is_sparse=is_sparse)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    dense = fitted(BoostedRanker(), X.toarray(), Y, scores, labels)
    with monkeypatch.context() as patched:
        patched.setattr("sklearn_xlc.ranking.describing._ROWS", 31)
        in_parts = fitted(BoostedRanker(), X, Y, scores, labels)
    X, scores, labels = X[300:600], scores[300:600], labels[300:600]
    odds, ranked = ranker.rank(scores, labels, {"input": X})
    for X_form, each in ((X.toarray(), ranker), (X, dense), (sp.csr_matrix(X), ranker)):
        found = each.rank(scores, labels, {"input": X_form})
        np.testing.assert_array_equal(found[0], odds)
        np.testing.assert_array_equal(found[1], ranked)
    for part in (slice(0, 1), slice(5, 6), slice(100, 223)):
        some = ranker.rank(scores[part], labels[part], {"input": X[part]})
        width = some[0].shape[1]
        np.testing.assert_array_equal(some[0], odds[part, :width])
        np.testing.assert_array_equal(some[1], ranked[part, :width])
        assert (ranked[part, width:] == -1).all()
    monkeypatch.setattr("sklearn_xlc.ranking.describing._ROWS", 7)
    np.testing.assert_array_equal(in_parts.rank(scores, labels, {"input": X})[0], odds)
    none = ranker.rank(scores[:0], labels[:0], {"input": X[:0]})
    assert none[0].shape[0] == none[1].shape[0] == 0


@pytest.mark.usefixtures("ten_trees")
@pytest.mark.parametrize("n", [400, 897])
def test_learnt_and_ranked_at_once(n, rng):
    """Too few pairs teach no trees: the network's lists, calibrated."""
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels, n)
    other = clone(ranker).remember({"input": X[:n]}, Y[:n])
    held = scores[n:], Y[n:], labels[n:], {"input": X[n:]}
    found = other.fit_rank(*held, sample_weight=None, link="sigmoid")
    assert (ranker.trees_ is None) == (n == 897)
    for one, expected in zip(found, ranker.rank(scores[n:], labels[n:], {"input": X[n:]})):
        np.testing.assert_array_equal(one, expected)


def test_classes_are_ranked_by_shares_of_what_the_list_has(rng):
    X, Y, scores, labels = make_data(rng)
    ids = np.where(X.toarray().any(axis=1), X.toarray()[:, :N_LABELS].argmax(axis=1), labels[:, 0])
    Y = sp.csr_array((np.ones(len(ids)), ids, np.arange(len(ids) + 1)), Y.shape)
    ranker = BoostedRanker("words").remember({"input": X[:400]}, Y[:400])
    held = scores[400:], Y[400:], labels[400:], {"input": X[400:]}
    found = ranker.fit_rank(*held, link="softmax")
    moved = scores[400:] + rng.normal(size=(len(scores) - 400, 1)).astype(scores.dtype)
    for one, other in zip(found, ranker.rank(log_shares(moved), labels[400:], held[3])):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_a_subclass_ranks_as_it_learns(rng):
    class Blind(BoostedRanker):
        def fit(self, scores, Y, labels=None, samples=None, sample_weight=None, link="sigmoid"):
            return super().fit(0 * scores, Y, labels, samples, sample_weight, link)

    X, Y, scores, labels = make_data(rng)
    ranker = Blind().remember({"input": X[:400]}, Y[:400])
    odds, _ = ranker.fit_rank(scores[400:], Y[400:], labels[400:], {"input": X[400:]})
    expected, _ = ranker.rank(scores[400:], labels[400:], {"input": X[400:]})
    np.testing.assert_array_equal(odds, expected)


def test_more_of_a_number_never_lowers_a_label(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    described = ranker._describing.pairs(scores, labels, {"input": X}).numbers
    names = ranker.get_feature_names_out()
    assert described.shape[1] == len(names)
    free = 0
    for column, name in enumerate(names):
        changed = described.copy()
        changed[:, column] += np.abs(rng.normal(size=len(changed)))
        change = ranker._scored(changed) - ranker._scored(described)
        free += change.min() < 0
        if name != "count":
            assert change.min() >= 0, name
    assert free <= 1


def test_equal_fits_are_equal_and_the_index_can_be_replaced(rng):
    X, Y, scores, labels = make_data(rng)
    one, two = (fitted(BoostedRanker(), X, Y, scores, labels) for _ in range(2))
    new = scores[300:500], labels[300:500], {"input": X[300:500]}
    before = one.rank(*new)
    np.testing.assert_array_equal(before[0], two.rank(*new)[0])
    trees = pickle.dumps(one.trees_)
    one.remember({"input": X}, Y)
    assert pickle.dumps(one.trees_) == trees
    assert one.retrievers_[0][1].labels_.shape[0] == X.shape[0]
    after = one.rank(*new)
    assert not np.array_equal(before[0], after[0])


@pytest.mark.integration
@pytest.mark.parametrize("tail_weight", [0.0, 0.5])
def test_trees_are_not_believed_more_than_they_know(tail_weight, rng, all_trees):
    """Labels are true at random: what trees make of few samples is hardly true of others."""
    X, _, scores, labels = make_data(rng, 3000)
    Y = sp.csr_array((rng.random((3000, N_LABELS)) < np.linspace(0.05, 0.5, N_LABELS)).astype(int))
    ranker = BoostedRanker(tail_weight=tail_weight).remember({"input": X[:400]}, Y[:400])
    held, new = slice(400, 900), slice(900, None)
    ranker.fit(scores[held], Y[held], labels[held], {"input": X[held]})
    losses = []
    for line in (ranker.line_, identity()):
        ranker.line_ = line
        odds, best = ranker.rank(scores[new], labels[new], {"input": X[new]})
        true = np.take_along_axis(Y[new].toarray(), best[:, :3], axis=1)
        losses.append(np.logaddexp(0, np.where(true, -1, 1) * odds[:, :3]).mean())
    assert losses[0] < losses[1]


def test_samples_without_weight_count_for_nothing(rng):
    X, Y, scores, labels = make_data(rng)
    weights = np.where(rng.random(900) < 0.3, 0.0, rng.random(900) + 0.5)
    weights[400:] = np.where(rng.random(500) < 0.3, 0.0, 1.0)
    ranker = BoostedRanker().remember({"input": X[:400]}, Y[:400], weights[:400])
    ranker.fit(scores[400:], Y[400:], labels[400:], {"input": X[400:]}, weights[400:])
    old, new = np.flatnonzero(weights[:400]), 400 + np.flatnonzero(weights[400:])
    other = BoostedRanker().remember({"input": X[old]}, Y[old], weights[old])
    other.fit(scores[new], Y[new], labels[new], {"input": X[new]}, weights[new])
    few = scores[:300], labels[:300], {"input": X[:300]}
    np.testing.assert_array_equal(ranker.rank(*few)[0], other.rank(*few)[0])


@pytest.mark.integration
def test_the_tail_rises_with_its_weight(rng, all_trees):
    X, Y, scores, labels = make_data(rng, 3000)
    rare = rng.random(3000) < 0.8  # the first labels become rare, whatever the features say
    Y = Y.toarray()
    Y[rare, :6] = 0
    Y = sp.csr_array(Y)
    true_ranks, shares, sums = [], [], []
    for weight in (0.0, 1.0):
        ranker = fitted(BoostedRanker(tail_weight=weight), X, Y, scores, labels, 1500)
        odds, ranked = ranker.rank(scores[1500:], labels[1500:], {"input": X[1500:]})
        is_rare = (ranked >= 0) & (ranked < 6)
        is_true = np.take_along_axis(Y[1500:].toarray(), np.maximum(ranked, 0), axis=1) > 0
        true_ranks.append(np.nonzero(is_rare & is_true)[1].mean())
        shares.append(expit(odds)[is_rare].sum())
        sums.append(expit(odds).sum())
    assert true_ranks[1] <= true_ranks[0]
    assert shares[1] > 1.05 * shares[0]
    assert sums[1] == pytest.approx(sums[0], rel=0.05)  # both are calibrated


def test_rare_labels_come_first_by_probability_over_a_power_of_the_propensity(rng):
    X, Y, scores, labels = make_data(rng)
    Y[:, :6] = Y[:, :6].multiply(rng.random((900, 1)) < 0.2)
    ranker = fitted(BoostedRanker(tail_order=0.0), X, sp.csr_array(Y), scores, labels)
    new = scores[400:], labels[400:], {"input": X[400:]}
    odds, plain = ranker.rank(*new)
    ranker.tail_order = 0.3
    shown, ranked = ranker.rank(*new)
    propensity = propensities(Y[:400])
    for row in range(500):
        n = np.count_nonzero(plain[row] >= 0)
        quotient = expit(odds[row, :n]) / propensity[plain[row, :n]] ** 0.3
        expected = plain[row, np.argsort(-quotient, kind="stable")]
        np.testing.assert_array_equal(ranked[row, :n], expected)
        of = dict(zip(plain[row, :n], odds[row, :n]))
        own = np.array([of[label] for label in expected])
        for place, value in enumerate(shown[row, :n]):
            # Between the least log odds up to the place and the largest from there on.
            middle = (own[: place + 1].min() + own[place:].max()) / 2
            assert value == pytest.approx(middle, abs=1e-5)
    assert (ranked != plain).any()


# --- degenerate cases -------------------------------------------------------------------------


def test_before_there_are_enough_samples_it_is_a_calibration(rng):
    X, Y, scores, labels = make_data(rng)
    few = BoostedRanker().remember({"input": X[:400]}, Y[:400])
    few.fit(scores[400:410], Y[400:410], labels[400:410], {"input": X[400:410]})
    odds, ranked = few.rank(scores[:5], labels[:5], {"input": X[:5]})
    np.testing.assert_array_equal(ranked, labels[:5])
    np.testing.assert_allclose(odds, few(scores[:5]), rtol=1e-12)
    none = BoostedRanker().remember({"input": X}, Y)
    none.fit(scores[:0], Y[:0], labels[:0], {"input": X[:0]})
    assert none.rank(scores[:2], labels[:2], {"input": X[:2]})[1].shape == (2, 8)
    with pytest.raises(ValueError, match="call remember first"):
        BoostedRanker().fit(scores, Y, labels, {"input": X})


@pytest.mark.parametrize("value", [0, 1])
def test_all_true_or_all_false(value, rng):
    X, _, scores, labels = make_data(rng)
    Y = sp.csr_array(np.full((900, N_LABELS), value))
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    odds, ranked = ranker.rank(scores, labels, {"input": X})
    check_lists(odds, ranked, 900, np.float64)
    assert ranker.trees_ is None


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.usefixtures("ten_trees")
def test_odd_samples(is_sparse, rng):
    """Empty rows, labels of nobody, short beams, few labels, one sample to remember."""
    X, Y, scores, labels = make_data(rng, n=600, is_sparse=is_sparse)
    X = X.toarray()
    X[::7] = 0
    Y = Y.toarray()
    Y[:, 4] = 0
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    scores[::5, 3:], labels[::3, 6:] = -np.inf, -1
    scores[::3, 6:] = -np.inf
    scores[11], labels[11] = -np.inf, -1
    ranker = fitted(BoostedRanker(n_candidates=30), X, Y, scores, labels)
    assert ranker.n_listed(N_LABELS) == N_LABELS
    check_lists(*ranker.rank(scores, labels, {"input": X}), 600, np.float64)
    one = BoostedRanker().remember({"input": X[1:2]}, Y[1:2])
    one.fit(scores[400:], Y[400:], labels[400:], {"input": X[400:]})
    check_lists(*one.rank(scores, labels, {"input": X}), 600, np.float64)
    empty = sp.csr_array((600, 60))
    nothing = fitted(BoostedRanker(), empty, Y, scores, labels)
    check_lists(*nothing.rank(scores, labels, {"input": empty}), 600, np.float64)
    no_labels = BoostedRanker().remember({"input": X}, sp.csr_array((600, N_LABELS), dtype=int))
    no_labels.fit(scores[400:], Y[400:], labels[400:], {"input": X[400:]})
    check_lists(*no_labels.rank(scores, labels, {"input": X}), 600, np.float64)


def test_all_scores_at_once_equal_their_ranks(rng):
    X, Y, _, _ = make_data(rng)
    scores = rng.normal(size=Y.shape)
    order = np.argsort(-scores, axis=1)
    ranked = np.take_along_axis(scores, order, 1)
    new = ranked[:50], order[:50], {"input": X[:50]}
    by_label = fitted(BoostedRanker(n_candidates=5), X, Y, scores, order)  # labels are ids
    by_label.fit(scores[400:], Y[400:], None, {"input": X[400:]})
    by_rank = fitted(BoostedRanker(n_candidates=5), X, Y, ranked, order)
    np.testing.assert_array_equal(by_label.rank(*new)[0], by_rank.rank(*new)[0])


def test_what_the_ranker_does_not_know_is_named(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    with pytest.raises(ValueError, match="label 12, but only 12 labels are remembered"):
        ranker.rank(scores[:1], np.array([[3, 12, 0, 1, 2, 4, 5, 6]]), {"input": X[:1]})
    with pytest.raises(KeyError, match=r"space 'input'.*\['features'\]"):
        ranker.rank(scores[:1], labels[:1], {"features": X[:1]})


# --- samples that are remembered ----------------------------------------------------------------


def ids_of(ranker):
    return ranker.memory_["samples"]["ids"].tolist()


def test_ids_are_positions_unless_given(rng):
    X, Y, _, _ = make_data(rng)
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    ranker = BoostedRanker().remember({"input": X[:4]}, Y[:4], weights)
    ranker.remember_more({"input": X[4:6]}, Y[4:6])
    ranker.remember_more({"input": X[6:8], "ids": ["a", "b"]}, Y[6:8])
    ranker.remember_more({"input": X[8:9]}, Y[8:9])
    assert ids_of(ranker) == [0, 2, 3, 4, 5, "a", "b", 8]
    assert ids_of(ranker.remember({"input": X[:2]}, Y[:2])) == [0, 1]
    spread = BoostedRanker(max_samples=3).remember({"input": X[:9]}, Y[:9])
    assert ids_of(spread) == [0, 4, 8]
    assert ids_of(spread.remember_more({"input": X[:2]}, Y[:2])) == [8, 9, 10]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_forgotten_samples_leave_no_trace_in_the_index(is_sparse, rng):
    X, Y, scores, labels = make_data(rng, is_sparse=is_sparse)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    new = scores[50:300], labels[50:300], {"input": X[50:300]}
    before = ranker.rank(*new)[0]
    changed = ranker.forget(range(100, 200))
    kept = np.r_[:100, 200:400]
    expected = copy.copy(ranker).remember({"input": X[kept]}, Y[kept])
    np.testing.assert_array_equal(
        changed.rank(*new)[0],
        expected.rank(*new)[0],
    )
    assert ids_of(changed) == kept.tolist()
    np.testing.assert_array_equal(ranker.rank(*new)[0], before)
    near = changed.examples({"input": X[100:101]}, labels[100:101], 50)[0]
    assert not {*range(100, 200)} & set(near.ravel().tolist())
    with pytest.raises(ValueError, match=r"not remembered: \[150, 900, 'x'\]"):
        changed.forget([3, 150, "x", 900])
    assert ids_of(changed.forget([])) == kept.tolist()


def test_without_samples_it_is_its_calibration(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    assert ranker.forget() is ranker.calibration_
    assert ranker.forget(range(400)) is ranker.calibration_


def test_an_index_follows_the_last_samples(rng):
    X, Y, _, _ = make_data(rng)
    ranker = BoostedRanker(max_samples=100).remember({"input": X[:100]}, Y[:100])
    for start in range(100, 900, 50):
        ranker.remember_more({"input": X[start : start + 50]}, Y[start : start + 50])
    assert ids_of(ranker) == list(range(800, 900))
    label = int(np.argmax(Y[800:].sum(axis=0)))
    ids = ranker.examples({"input": X[800:]}, np.full((100, 1), label), 9)[0].ravel().tolist()
    assert {each for each in ids if each is not None} <= set(range(800, 900))


def part_of(samples, rows):
    return {space: X[rows] for space, X in samples.items()}


class OwnNearest(NearestSamples):
    """A subclass may keep more of labels than its base does."""


@pytest.mark.parametrize("retrievers", ["auto", "counts", [("near", OwnNearest())]])
@pytest.mark.parametrize("kind", ["sparse", "dense", "few centroids"])
def test_an_index_of_changed_labels_is_as_one_made_anew(kind, retrievers, rng, monkeypatch):
    if kind == "sparse":  # centroids are not a table
        monkeypatch.setattr("sklearn_xlc.ranking.retrievers._FEW_CENTROIDS", 0)
    X, Y, scores, labels = make_data(rng, is_sparse=kind != "dense")
    samples = {"input": X, "features": told(rng, Y), "given": X}
    ranker = BoostedRanker(retrievers).remember(part_of(samples, slice(400)), Y[:400])
    ranker.fit(scores[400:], Y[400:], labels[400:], part_of(samples, slice(400, None)))
    origin = np.array([3, 0, 1, -1, 2, 11, 10, 9])  # labels go, come, and move
    changed = ranker.for_labels(origin)
    assert (changed.retrievers_ is None) == isinstance(retrievers, list)
    anew = copy.copy(changed)
    anew.retrievers_ = None
    listed = np.argsort(rng.random((300, 8)), axis=1)[:, :3]
    new = scores[:300, :3], listed, part_of(samples, slice(300))
    for a, b in zip(changed.rank(*new), anew.rank(*new)):
        np.testing.assert_array_equal(a, b)
    for name in ("n_labels_", "log_counts_", "propensities_"):
        np.testing.assert_array_equal(getattr(changed, name), getattr(anew, name))
    ids = [each.examples(samples, labels[:, :2] % 8, 3)[0] for each in (changed, anew)]
    np.testing.assert_array_equal(*ids)
    assert ranker.n_labels_ == N_LABELS
    again = pickle.loads(pickle.dumps(changed))
    np.testing.assert_array_equal(again.rank(*new)[0], changed.rank(*new)[0])


def test_counts_are_read_as_if_as_many_samples_were_known_as_when_trees_were_learnt(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    new = scores[:300], labels[:300], {"input": X[:300]}
    learnt = ranker._describing.pairs(*new)
    counts = np.asarray(Y[:400].sum(axis=0))[learnt.labels]
    np.testing.assert_allclose(learnt.numbers[:, 2], np.log1p(counts), rtol=1e-6)
    older = copy.copy(ranker)  # as from a file of before: counts are as they are
    del older.n_known_, older.n_counted_
    again = copy.copy(older).fit(scores[400:], Y[400:], labels[400:], {"input": X[400:]})
    np.testing.assert_array_equal(again.rank(*new)[0], ranker.rank(*new)[0])
    thrice = {"input": sp.vstack([X[:400]] * 3).tocsr()}, sp.vstack([Y[:400]] * 3).tocsr()
    share = 3 * counts / (3 * counts + 10)  # of few samples, counts are as they are
    for each, expected in (
        (ranker, (3 * counts + 1) / 3**share),
        (older, 3 * counts + 1),
    ):
        pairs = each.remember(*thrice)._describing.pairs(*new)
        same = np.isin(learnt.rows * N_LABELS + learnt.labels, pairs.rows * N_LABELS + pairs.labels)
        both = np.isin(pairs.rows * N_LABELS + pairs.labels, learnt.rows * N_LABELS + learnt.labels)
        np.testing.assert_allclose(np.exp(pairs.numbers[both, 2]), expected[same], rtol=1e-5)


def test_counts_of_now_are_learnt_from_whatever_was_known_before(rng):
    X, Y, scores, labels = make_data(rng)
    Y = sp.csr_array(Y.multiply(rng.random(Y.shape) < np.linspace(0.1, 1, N_LABELS)))
    half = fitted(BoostedRanker(), X, Y, scores, labels, 100)
    again, anew = (fitted(each, X, Y, scores, labels) for each in (half, BoostedRanker()))
    new = scores[:300], labels[:300], {"input": X[:300]}
    np.testing.assert_array_equal(again.rank(*new)[0], anew.rank(*new)[0])


def test_an_index_knows_a_new_label_from_its_first_samples(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    changed = ranker.for_labels(np.append(np.arange(N_LABELS), -1))
    first = sp.csr_array(np.eye(N_LABELS + 1, dtype=int)[[N_LABELS] * 8])
    changed.partial_fit(scores[400:408], first, labels[400:408], {"input": X[400:408]})
    changed.prepare()
    assert changed.log_counts_[N_LABELS] > 0
    assert dict(changed.retrievers_)["centroids"].centroids_[[N_LABELS]].nnz


def test_lists_of_dense_samples_serve_the_next_index(rng, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.ranking.search._FEW_ITEMS", 100)
    X, Y, scores, labels = make_data(rng, is_sparse=False)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    new = scores[:300], labels[:300], {"input": X[:300]}

    def centers(each):
        each.rank(*new)
        return each.retrievers_[0][1].index_["centers"]

    first = centers(ranker)
    ranker.remember_more({"input": X[400:600]}, Y[400:600])
    assert ranker.retrievers_ is None
    assert centers(ranker) is first
    again = pickle.loads(pickle.dumps(ranker))  # its index is made of what it remembers
    for a, b in zip(again.rank(*new), ranker.rank(*new)):
        np.testing.assert_array_equal(a, b)
    changed = ranker.forget(range(50))
    assert len(centers(changed)) != len(first)  # means of samples hold something of each
    ranker.remember_more({"input": X[100:900]}, Y[100:900])
    assert len(centers(ranker)) > 1.5 * len(first)
    assert ranker.is_threadsafe


def test_examples_need_a_retriever_of_samples(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker([("mean", LabelCentroids())]), X, Y, scores, labels)
    with pytest.raises(ValueError, match="no retriever NearestSamples"):
        ranker.examples({"input": X}, labels, 3)


# --- parameters and state ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        HistGradientBoostingClassifier(
            max_iter=5, max_leaf_nodes=100, min_samples_leaf=1, max_bins=16
        ),
        HistGradientBoostingClassifier(max_iter=5, max_bins=16),  # bins by weight take long
        # These take no sample_weight.
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=str,
)
def test_other_classifiers(estimator, rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(estimator=estimator), X, Y, scores, labels)
    check_lists(*ranker.rank(scores, labels, {"input": X}), 900, np.float64)
    assert ranker.estimator is estimator
    assert not hasattr(estimator[-1] if hasattr(estimator, "steps") else estimator, "classes_")


def test_probabilities_alone_will_do(rng):
    class OnlyProbabilities(Same):
        decision_function = None

        def __getattribute__(self, name):
            if name == "decision_function":
                raise AttributeError(name)
            return super().__getattribute__(name)

        def predict_proba(self, numbers):
            p = (numbers[:, 0] > 0).astype(float)
            return np.stack([1 - p, p], axis=1)

    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(estimator=OnlyProbabilities()), X, Y, scores, labels)
    check_lists(*ranker.rank(scores, labels, {"input": X}), 900, np.float64)


def through_joblib(ranker, path):
    joblib.dump(ranker, path / "ranker.joblib")
    return joblib.load(path / "ranker.joblib", mmap_mode="r")


def through_skops(ranker, path):
    data = skops.io.dumps(ranker)
    found = skops.io.get_untrusted_types(data=data)
    assert all(name.startswith("sklearn_xlc.ranking.") for name in found)
    return skops.io.loads(data, trusted=found)


@functools.cache
def fitted_once(seed, is_sparse):
    """A ranker that nothing may change, samples, and what it answers."""
    X, Y, scores, labels = make_data(np.random.default_rng(seed), is_sparse=is_sparse)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    new = scores[300:600], labels[300:600], {"input": X[300:600]}
    return ranker, new, ranker.rank(*new)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "carry",
    [lambda ranker, path: pickle.load(io.BytesIO(pickle.dumps(ranker))), through_joblib,
     through_skops, lambda ranker, path: copy.deepcopy(ranker)],
    ids=["pickle", "joblib", "skops", "copy"],
)  # fmt: skip
def test_a_copy_ranks_the_same(carry, is_sparse, global_random_seed, tmp_path):
    ranker, new, expected = fitted_once(global_random_seed, is_sparse)
    for a, b in zip(carry(ranker, tmp_path).rank(*new), expected):
        np.testing.assert_array_equal(a, b)


class Counted(Listed):
    """Has a fit that gives another result each time."""

    n_fits = 0

    def fit(self, samples, Y, sample_weight=None):
        Counted.n_fits += 1
        self.labels_ = [Counted.n_fits]
        return self


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("carry", [through_joblib, through_skops], ids=["joblib", "skops"])
@pytest.mark.usefixtures("ten_trees")
def test_a_state_leaves_out_what_the_memory_tells(carry, weights, rng, tmp_path):
    X, Y, scores, labels = make_data(rng)
    weight = rng.integers(1, 3, 400) if weights else None
    ranker = BoostedRanker().remember({"input": X[:400]}, Y[:400], weight)
    ranker.fit(scores[400:], Y[400:], labels[400:], {"input": X[400:]})
    state = ranker.__getstate__()
    assert all(not hasattr(each, "index_") for _, each in state["retrievers_"])
    assert (state["memory_"]["weights"] is None) != weights
    assert hasattr(ranker.retrievers_[0][1], "index_")
    # Other parameters hold from the next index on.
    ranker.set_params(retrievers=[("near", NearestSamples(n_neighbors=(2,)))])
    copied = carry(ranker, tmp_path)
    new = scores[:200], labels[:200], {"input": X[:200]}
    for a, b in zip(*(each.rank(*new) for each in (ranker, copied))):
        np.testing.assert_array_equal(a, b)
    for name, each in copied.retrievers_:
        for key, value in vars(dict(ranker.retrievers_)[name]).items():
            found = getattr(each, key)
            assert (abs(found - value).nnz == 0) if sp.issparse(value) else np.all(found == value)
    np.testing.assert_array_equal(copied.memory_["weights"], ranker.memory_["weights"])
    assert copy.copy(ranker).retrievers_ is ranker.retrievers_


@pytest.mark.parametrize("max_samples", [10**6, 400])
def test_a_state_keeps_an_index_that_is_older_than_the_memory(max_samples, rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(max_samples=max_samples), X, Y, scores, labels)
    ranker.remember_more({"input": X[400:406]}, Y[400:406])
    assert ranker.memory_["labels"].shape[0] == min(406, max_samples)
    copied = pickle.loads(pickle.dumps(ranker))
    new = scores[300:500], labels[300:500], {"input": X[300:500]}
    for a, b in zip(*(each.rank(*new) for each in (ranker, copied))):
        np.testing.assert_array_equal(a, b)
    for each in (ranker, copied):
        each._index()
    again = pickle.loads(pickle.dumps(copied))
    for a, b in zip(*(each.rank(*new) for each in (ranker, again))):
        np.testing.assert_array_equal(a, b)


def test_an_index_of_an_earlier_version_is_made_anew(rng):
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    ranker.prepare()
    ranker.partial_fit(scores[400:402], Y[400:402], labels[400:402], {"input": X[400:402]})
    older = copy.copy(ranker)
    older.retrievers_ = [(name, copy.copy(each)) for name, each in ranker.retrievers_]
    del dict(older.retrievers_)["centroids"].weights_
    loaded = pickle.loads(pickle.dumps(older))
    assert loaded.retrievers_ is None
    anew = copy.copy(ranker)
    anew.retrievers_ = None
    new = scores[300:500], labels[300:500], {"input": X[300:500]}
    for a, b in zip(*(each.rank(*new) for each in (loaded, anew))):
        np.testing.assert_array_equal(a, b)


class KeptCentroids(LabelCentroids):
    refits = False


def test_an_older_retriever_in_a_state_beside_others_is_made_anew(rng):
    X, Y, scores, labels = make_data(rng)
    named = [("near", NearestSamples()), ("centroids", KeptCentroids())]
    ranker = fitted(BoostedRanker(named), X, Y, scores, labels)
    ranker.prepare()
    del dict(ranker.retrievers_)["centroids"].weights_
    assert pickle.loads(pickle.dumps(ranker)).retrievers_ is None


def test_a_state_keeps_retrievers_that_may_not_be_fitted_again(rng):
    X, Y, scores, labels = make_data(rng)
    named = [("counted", Counted()), ("near", NearestSamples())]
    ranker = fitted(BoostedRanker(named), X, Y, scores, labels)
    before = Counted.n_fits
    copied = pickle.loads(pickle.dumps(ranker))
    assert Counted.n_fits == before
    assert copied.retrievers_[0][1].labels_ == ranker.retrievers_[0][1].labels_
    assert copied.retrievers_[1][1].index_.nnz == ranker.retrievers_[1][1].index_.nnz
    changed = ranker.for_labels(np.arange(N_LABELS - 1))  # without an index yet
    copied = pickle.loads(pickle.dumps(changed))
    new = scores[:, :3], np.minimum(labels[:, :3], N_LABELS - 2), {"input": X}
    np.testing.assert_array_equal(copied.rank(*new)[0], changed.rank(*new)[0])


def _rank_in_child(ranker, arguments, queue):
    queue.put(ranker.rank(*arguments)[0])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_of_a_parent_with_threads_ranks(rng):
    """OpenMP of scikit-learn's trees would wait for threads that the child does not have."""
    X, Y, scores, labels = make_data(rng)
    ranker = fitted(BoostedRanker(), X, Y, scores, labels)
    with threadpool_limits(2):
        HistGradientBoostingClassifier(max_iter=3).fit(rng.random((5000, 3)), np.arange(5000) % 2)
    context = multiprocessing.get_context("fork")
    queue, arguments = context.Queue(), (scores[:9], labels[:9], {"input": X[:9]})
    child = context.Process(target=_rank_in_child, args=(ranker, arguments, queue))
    child.start()
    try:
        np.testing.assert_array_equal(queue.get(timeout=60), ranker.rank(*arguments)[0])
    finally:
        child.kill()
        child.join()


# --- labels without training samples ------------------------------------------------------------


class Told(Retriever):
    """Lists labels by a column of the samples for each of them, whoever has them."""

    reads = ("features",)
    fitted_to = ("labels",)
    monotonic = (1,)

    def get_feature_names_out(self, input_features=None):
        return np.array(["told"])

    def fit(self, samples, Y, sample_weight=None):
        assert samples["labels"].shape == (Y.shape[1],)
        return self

    def search(self, samples, scores, labels):
        return samples["features"]

    def candidates(self, found):
        return np.argsort(-found, axis=1)[:, :3]

    def numbers(self, found, rows, labels):
        return found[rows, labels][:, None]


def told(rng, Y):
    """A number for each label that is larger for true ones."""
    return (rng.random(Y.shape) + 0.5 * Y.toarray()).astype(np.float32)


NAMES = np.array([f"label {i}" for i in range(N_LABELS)], dtype=object)


def test_withheld_labels_are_described_as_without_samples(rng, monkeypatch):
    monkeypatch.setattr(boosted, "_WITHHELD", 0.6)
    X, Y, scores, labels = make_data(rng)
    features = told(rng, Y)
    named = [("near", NearestSamples()), ("told", Told()), ("together", CooccurringLabels())]
    ranker = BoostedRanker(named)
    some = {"input": X[:400], "features": features[:400], "labels": NAMES}
    ranker.remember(some, Y[:400])
    rows, listed, _, numbers = ranker._withheld(
        scores[400:], labels[400:], {"input": X[400:], "features": features[400:]}
    )
    withheld = np.unique(listed)
    assert 2 <= len(withheld) < 8
    assert ranker.log_counts_.min() > 0  # in the ranker itself nothing has changed
    of = dict(zip(ranker.get_feature_names_out(), numbers.T))
    for name in ("count", "near__votes_of_30", "near__nearest_with_label", "together__companions"):
        assert not of[name].any()
    in_bits = integer_rows(features[400:], np.int8)  # as features are compared
    np.testing.assert_array_equal(of["told__told"], in_bits[rows, listed])
    assert (of["near__nearest"] > 0).any()
    is_left = ~np.isin(labels[400:], withheld)
    left = np.where(is_left, scores[400:], np.nan)
    np.testing.assert_allclose(of["score"], np.nanmin(left, axis=1)[rows] - 1, rtol=1e-5)
    best = np.nanmax(left, axis=1)[rows]
    np.testing.assert_allclose(of["below_best"], of["score"] - best, rtol=1e-5, atol=1e-6)
    best = np.argsort(-in_bits, axis=1)[:, :3]
    expected = {(row, label) for row, of in enumerate(best) for label in of if label in withheld}
    assert set(zip(rows.tolist(), listed.tolist())) == expected


def odds_without_samples(rng):
    """Median log odds of a true label that is neither remembered nor held out."""
    X, Y, scores, labels = make_data(rng, n=3000)
    has = Y[:, [0]].toarray().ravel() > 0
    order = np.argsort(has, kind="stable")
    n_left = np.count_nonzero(~has)
    scores = np.where(labels == 0, -np.inf, scores)
    X, Y, scores, labels = X[order], Y[order], scores[order], labels[order]
    samples = {"input": X, "features": told(rng, Y)}
    some, held, test = (
        {name: value[part] for name, value in samples.items()}
        for part in (slice(1200), slice(1200, n_left), slice(n_left, None))
    )
    ranker = BoostedRanker([("near", NearestSamples()), ("told", Told())])
    ranker.remember({**some, "labels": NAMES}, Y[:1200])
    ranker.fit(scores[1200:n_left], Y[1200:n_left], labels[1200:n_left], held)
    found, ranked = ranker.rank(scores[n_left:], labels[n_left:], test)
    return np.median(np.where(ranked == 0, found, -99).max(axis=1))


@pytest.mark.parametrize("score", [-40.0, 0.0, 40.0])
def test_the_network_says_nothing_of_a_label_that_no_sample_has(score, rng):
    X, Y, scores, labels = make_data(rng)
    Y = Y.tolil()
    Y[:, 0] = 0
    Y = sp.csr_array(Y)
    features = told(rng, Y)
    ranker = BoostedRanker([("near", NearestSamples()), ("told", Told())])
    ranker.remember({"input": X[:400], "features": features[:400], "labels": NAMES}, Y[:400])
    held = {"input": X[400:], "features": features[400:]}
    ranker.fit(scores[400:], Y[400:], labels[400:], held)
    silent, other = (np.where(labels[400:] == 0, each, scores[400:]) for each in (-np.inf, score))
    for found, expected in zip(
        ranker.rank(other, labels[400:], held), ranker.rank(silent, labels[400:], held)
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_trees_trust_a_label_that_no_sample_has(rng, monkeypatch):
    seeds, means = rng.integers(2**31, size=5), []
    for share in (0.0, 0.6):  # without withheld labels it is chance what trees say of such a label
        monkeypatch.setattr(boosted, "_WITHHELD", share)
        found = [odds_without_samples(np.random.default_rng(seed)) for seed in seeds]
        means.append(np.mean(found))
    assert means[1] > means[0]


def test_labels_follow_their_names(rng):
    X, Y, scores, labels = make_data(rng)
    features = told(rng, Y)
    ranker = BoostedRanker([("told", Told())])
    for wrong in ({}, {"labels": NAMES[:5]}):
        with pytest.raises(ValueError, match="give an array of 12 as 'labels', got shape"):
            ranker.remember({"features": features, **wrong}, Y)
    ranker.remember({"features": features[:400], "labels": NAMES}, Y[:400])
    changed = ranker.for_labels(np.array([3, -1, 0]))
    assert changed.names_.tolist() == ["label 3", None, "label 0"]
    assert ranker.names_ is NAMES
    more = {"features": features[400:], "labels": np.array(["label 3", "new", "label 0"])}
    changed.remember_more(more, Y[400:, :3])
    assert changed.names_.tolist() == ["label 3", "new", "label 0"]


class NearWithNames(NearestSamples):
    """Reads labels, too, and knows later samples at once."""

    reads, fitted_to = ("input",), ("input", "labels")


def test_a_retriever_of_samples_and_names_counts_the_first_samples_of_a_label_once(rng):
    X, Y, _, _ = make_data(rng)
    ranker = BoostedRanker([("near", NearWithNames())])
    ranker.remember({"input": X[:400], "labels": NAMES}, Y[:400])
    ranker = ranker.for_labels(np.append(np.arange(N_LABELS), -1))
    ranker.prepare()
    has = sp.hstack([Y[400:402], [[1], [1]]], "csr")
    lists = np.empty((2, 0)), has, np.empty((2, 0), dtype=int)
    ranker.partial_fit(*lists, {"input": X[400:402], "labels": np.append(NAMES, "new")})
    ((_, near),) = ranker.retrievers_
    assert len(near.ids_) == len(ranker.memory_["weights"]) == 402


# --- a loaded ranker that would rank wrong is refused when its state is set ----------------------


UNSURE = identity()
UNSURE.slope_ = np.nan


@pytest.fixture(scope="module")
def ranker():
    rng = np.random.default_rng(0)
    X = sp.random(300, 40, 0.1, "csr", random_state=rng)
    Y = sp.csr_array((X[:, :10] > 0.5).astype(int))
    scores, labels = rng.normal(size=(300, 5)), np.tile(np.arange(5), (300, 1))
    fitted = BoostedRanker().remember({"input": X[:150]}, Y[:150])
    samples = {"input": X[150:]}
    return fitted.fit(-np.sort(-scores[150:]), Y[150:], labels[150:], samples)


def test_what_was_fitted_passes(ranker):
    check_loaded(ranker)
    assert pickle.loads(pickle.dumps(ranker)).trees_ is not None


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("line_", UNSURE, "log odds that are not finite"),
        ("network_share_", np.nan, "log odds that are not finite"),
        ("network_share_", 1.5, "log odds that are not finite"),
        ("network_share_", -1.0, "log odds that are not finite"),
        ("n_labels_", 10.0, "n_labels_ of a saved ranker is no number"),
        ("n_known_", -1, "n_known_ of a saved ranker is no number"),
        ("n_known_", 10**400, "n_known_ of a saved ranker is no number"),
        ("link_", np.array(["softmax", "sigmoid"]), "link_ of a saved ranker is no name"),
        ("log_counts_", np.zeros(9), "log_counts_ of a saved ranker are no 10 numbers"),
        ("propensities_", np.full(10, 2.0), "propensities_ of a saved ranker are no 10 numbers"),
        ("indexes_", {"near": {"rows": np.array([150])}}, "samples that are not remembered"),
        (
            "indexes_",
            {"near": {"centers": np.full((2, 40), np.inf)}},
            "centers that are not finite",
        ),
        ("tail_order", 7.0, "tail_order"),
        ("axes_", np.eye(3), "features on other axes"),
        ("axes_", None, "features on other axes"),
        ("axes_", np.full((5, 0), np.nan)[0], "features on other axes"),
    ],
)
def test_what_would_rank_wrong_is_refused(ranker, name, value, message):
    changed = copy.copy(ranker)
    setattr(changed, name, value)
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(changed))


def test_retrievers_of_other_labels_are_refused(ranker):
    changed = copy.copy(ranker)
    changed.retrievers_ = [(name, copy.copy(each)) for name, each in ranker.retrievers_]
    centroids = next(each for name, each in changed.retrievers_ if name == "centroids")
    centroids.centroids_ = centroids.centroids_[:9]
    with pytest.raises(ValueError, match="knows other labels than its ranker"):
        check_loaded(changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"left_out": []},
        {"left_out": ["near"]},
        {"left_out": ["centroids", "near", "none", "together", "votes"]},
        {"left_out": [["near"]]},
        {"left_out": None},
        {"n_indexed_": 0, "left_out": []},
        {"retrievers_": None},
        {"retrievers_": [1]},
        {"memory_": None},
        {"memory_": 3},
    ],
)
def test_retrievers_are_left_out_if_they_are_fitted_again(ranker, changes):
    state = ranker.__getstate__()
    assert state["left_out"] == ["centroids", "near", "together", "votes"]
    object.__new__(BoostedRanker).__setstate__(copy.deepcopy(state))
    with pytest.raises(ValueError, match="saved"):
        object.__new__(BoostedRanker).__setstate__(state | changes)


@pytest.mark.integration
def test_classes_are_ordered_by_probability_over_a_power_of_the_propensity():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 40, 6000)
    y = words + 40 * (rng.random(6000) < 0.2)  # two classes have the same words
    X = np.zeros((6000, 160))
    for _ in range(3):
        X[np.arange(6000), words * 4 + rng.integers(0, 4, 6000)] = 1
    X = sp.csr_matrix(X)
    few = {"encoder": MLP(64), "random_state": 0}
    plain, tail = (
        MultiHeadClassifier(ranker=BoostedRanker(tail_order=order), **few).fit(X[:4000], y[:4000])
        for order in (0.0, 0.1)
    )
    p = plain.predict_proba(X[4000:])
    place = np.log(p) - 0.1 * np.log(tail.ranker_.propensities_)
    expected = plain.classes_[place.argmax(axis=1)]
    assert np.mean(tail.predict(X[4000:]) == expected) > 0.99
    true = np.searchsorted(plain.classes_, y[4000:])
    losses = [
        -np.log(each.predict_proba(X[4000:])[np.arange(2000), true]).mean()
        for each in (plain, tail)
    ]
    assert losses[1] < losses[0] + 0.02
