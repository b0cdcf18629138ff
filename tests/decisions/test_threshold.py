"""Threshold: given or tuned, for all labels or each, on the scale that is named."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score

from sklearn_xlc.decisions import Threshold

CRITERIA = ["micro_f1", "macro_f1", "example_f1", "subset_accuracy", "f1_at_k"]


def make_data(seed, n_samples=40, n_labels=6, digits=1):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, n_labels)) < 0.3).astype(int)
    Y[0] = 0
    scores = np.round(2.0 * Y - 1.0 + rng.normal(size=Y.shape), digits)
    return scores, Y


def quality(criterion, Y, sets, k=3):
    if criterion == "subset_accuracy":
        return accuracy_score(Y, sets)
    if criterion == "f1_at_k":
        hits = (Y * sets).sum(axis=1)
        precision = np.mean(hits / np.maximum(sets.sum(axis=1), 1))
        recall = np.mean(hits / np.maximum(Y.sum(axis=1), 1))
        return 2 * precision * recall / (precision + recall) if precision else 0.0
    average = {"micro_f1": "micro", "macro_f1": "macro", "example_f1": "samples"}[criterion]
    return f1_score(Y, sets, average=average, zero_division=0)


def sets_above(criterion, scores, cut, k=3):
    taken = scores > cut
    if criterion == "f1_at_k":
        rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
        taken &= rank < k
    return taken.astype(int)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("seed", range(4))
def test_tuned_threshold_is_the_best_of_all(criterion, seed):
    scores, Y = make_data(seed)
    decision = Threshold(criterion=criterion, k=3).fit(scores, Y)
    assert decision.fitted_on == "held"
    sets = decision.decode(scores).toarray()
    np.testing.assert_array_equal(sets, sets_above(criterion, scores, decision.cut_))
    cuts = np.r_[np.unique(scores) - 0.05, scores.max() + 1]
    best = max(quality(criterion, Y, sets_above(criterion, scores, cut)) for cut in cuts)
    assert quality(criterion, Y, sets) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("criterion", ["micro_f1", "macro_f1"])
def test_thresholds_of_labels_are_the_best_of_all(criterion, seed):
    scores, Y = make_data(seed, n_samples=25, n_labels=3)
    decision = Threshold(criterion=criterion, per_label=True).fit(scores, Y)
    assert decision.cut_.shape == decision.threshold_.shape == (3,)
    sets = decision.decode(scores).toarray()
    np.testing.assert_array_equal(sets, scores > decision.cut_)
    hits, taken = [], []
    for label, score in zip(Y.T, scores.T):
        above = score > np.r_[np.unique(score) - 0.05, score.max() + 1][:, None]
        hits.append((above & (label == 1)).sum(axis=1))
        taken.append(above.sum(axis=1))
    if criterion == "macro_f1":
        own = zip(hits, taken, Y.sum(axis=0))
        best = np.mean([np.max(2 * h / np.maximum(t + n, 1)) for h, t, n in own])
    else:  # over all combinations of three cuts
        best = np.max(2 * sum(np.ix_(*hits)) / (sum(np.ix_(*taken)) + Y.sum()))
    assert quality(criterion, Y, sets) == pytest.approx(best)


def test_a_label_that_is_not_held_out_takes_the_common_threshold():
    scores, Y = make_data(0)
    Y[:, 2], scores[:, 2] = 0, -5.0
    common = Threshold().fit(scores, Y).cut_
    assert Threshold(criterion="macro_f1", per_label=True).fit(scores, Y).cut_[2] == common
    scores[7, 2] = 9.0
    cut = Threshold(criterion="macro_f1", per_label=True).fit(scores, Y).cut_[2]
    assert cut == 9.0


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
def test_a_given_threshold_is_a_probability(threshold):
    scores, Y = make_data(0, digits=8)
    decision = Threshold(threshold).fit(None, Y)
    assert decision.threshold_ == pytest.approx(threshold)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expit(scores) > threshold)
    shares = scores - np.log(np.exp(scores).sum(axis=1))[:, None]
    decision = Threshold(threshold).fit(None, Y, link="exp")
    np.testing.assert_array_equal(decision.decode(shares).toarray(), np.exp(shares) > threshold)


def test_a_given_threshold_may_be_a_score():
    scores, Y = make_data(0)
    for link in ("sigmoid", "exp", None):
        decision = Threshold(-0.3, scale="score").fit(None, Y, link=link)
        assert decision.cut_ == -0.3
        np.testing.assert_array_equal(decision.decode(scores).toarray(), scores > -0.3)
    assert decision.threshold_ == -0.3


def test_a_threshold_for_each_label():
    scores, Y = make_data(0, digits=8)
    thresholds = np.linspace(0.1, 0.9, 6)
    decision = Threshold(thresholds).fit(None, Y)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expit(scores) > thresholds)
    np.testing.assert_allclose(decision.threshold_, thresholds)
    ranked = np.sort(scores, axis=1)[:, ::-1]
    assert decision.needs_more(ranked[:, :2])
    assert not decision.needs_more(np.full((3, 2), -9.0))


def test_nothing_held_out():
    Y = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert Threshold().fit(None, Y).threshold_ == 0.5
    assert Threshold().fit(None, Y, link="exp").threshold_ == pytest.approx(0.5 / 3)
    few = Threshold().fit(None, Y, link="exp", sizes=np.array([0, 0, 1]))
    assert few.threshold_ == pytest.approx(0.5)


def test_partial_fit_keeps_a_tuned_threshold_and_takes_a_new_one():
    scores, Y = make_data(0)
    decision = Threshold().fit(scores, Y)
    tuned = decision.cut_
    assert decision.partial_fit(None, Y[:2]).cut_ == tuned
    assert decision.set_params(threshold=0.5).partial_fit(None, Y).cut_ == 0.0


def test_at_most_k_labels():
    scores, Y = make_data(0)
    decision = Threshold(criterion="f1_at_k", k=2).fit(scores, Y)
    assert decision.n_candidates(6) == 2
    assert np.diff(decision.decode(scores).indptr).max() <= 2
    assert not decision.needs_more(scores)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"threshold": 0.0}, r"threshold=0.0 must be between 0 and 1, both excluded"),
        ({"threshold": 1.0}, r"threshold=1.0 must be between 0 and 1"),
        ({"threshold": np.nan, "scale": "score"}, r"a float in the range \(-inf, inf\)"),
        ({"threshold": [np.nan] * 3, "scale": "score"}, "must be between -inf and inf"),
        ({"threshold": [0.5, 0.5]}, "one for each of the 3 labels of y, got shape"),
        ({"threshold": "best"}, "'threshold' parameter of Threshold must be"),
        ({"criterion": "auc"}, "'criterion' parameter of Threshold must be"),
        ({"k": 0}, "'k' parameter of Threshold must be"),
        ({"scale": "odds"}, "'scale' parameter of Threshold must be"),
        ({"criterion": "subset_accuracy", "per_label": True}, "per_label=True needs criterion="),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        Threshold(**params).check_labels(sp.csr_matrix(np.eye(3)))


def test_a_probability_needs_scores_that_have_one():
    Y = sp.csr_matrix(np.eye(3))
    with pytest.raises(ValueError, match="this classifier's scores have none; use scale='score'"):
        Threshold(0.3).check_head(Y, link=None, n_features=2)
    Threshold(0.3, scale="score").check_head(Y, link=None, n_features=2)
    Threshold().check_head(Y, link=None, n_features=2)


@pytest.mark.parametrize("min_labels", [1, 2, 4])
@pytest.mark.parametrize("params", [{"threshold": 0.9}, {}, {"per_label": True}])
def test_so_many_best_labels_are_predicted_at_least(min_labels, params):
    scores, Y = make_data(1, digits=8)
    decision = Threshold(min_labels=min_labels, **params).fit(scores, Y)
    assert decision.min_labels_ == min_labels
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    expected = (scores > decision.cut_) | (rank < min_labels)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expected)
    labels = np.argsort(-scores, axis=1, kind="stable")
    best = np.take_along_axis(scores, labels, axis=1)
    np.testing.assert_array_equal(decision.decode(best, labels).toarray(), expected)
    assert (decision.n_candidates(6) or 2) >= min_labels


def test_a_label_for_every_sample_if_every_training_sample_has_one():
    scores, Y = make_data(0)
    assert Threshold(0.5, min_labels="auto").fit(scores, Y).min_labels_ == 0
    some = Threshold(0.999, min_labels="auto").fit(scores, Y, sizes=np.array([1, 3, 2]))
    assert some.min_labels_ == 1
    assert (some.decode(scores).sum(axis=1) >= 1).all()
    assert Threshold(0.5).fit(scores, Y, sizes=np.array([1, 3, 2])).min_labels_ == 0


def test_one_sample_without_labels_in_any_call_allows_empty_sets():
    full, empty = np.array([1, 2]), np.array([1, 0])
    for params in ({}, {"threshold": 0.0, "scale": "score"}):
        decision = Threshold(min_labels="auto", **params).fit(None, np.eye(2), sizes=full)
        found = []
        for sizes in (full, empty, full):
            decision.partial_fit(None, np.eye(2), sizes=sizes)
            found.append(decision.min_labels_)
        assert found == [1, 0, 0]
        assert decision.set_params(min_labels=2).partial_fit(None, np.eye(2)).min_labels_ == 2


def test_min_labels_must_suit_the_labels():
    Y = sp.csr_matrix(np.eye(3, dtype=int))
    with pytest.raises(ValueError, match="min_labels=4 is more than the 3 labels of y"):
        Threshold(min_labels=4).check_labels(Y)
    with pytest.raises(ValueError, match="min_labels=3 is more than k=2"):
        Threshold(min_labels=3, k=2, criterion="f1_at_k").check_labels(Y)
