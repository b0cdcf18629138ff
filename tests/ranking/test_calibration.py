"""Calibration: recovers odds that were changed, keeps the order, and can be undone."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from sklearn_xlc.ranking import Calibration, class_probabilities
from sklearn_xlc.ranking.calibration import fit_line


def make_data(rng, n_samples=3000, n_labels=7):
    odds = rng.normal(size=(n_samples, n_labels)) * 2 - 1
    return odds, (rng.random(odds.shape) < expit(odds)).astype(int)


def ranked(scores, k):
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, labels, 1), labels


def test_it_finds_the_odds_again(rng):
    odds, Y = make_data(rng)
    calibration = Calibration().fit((odds - 0.5) / 0.4, Y)
    assert calibration.slope_ == pytest.approx(0.4, abs=0.05)
    assert calibration.offset_ == pytest.approx(0.5, abs=0.15)


def test_it_is_a_logistic_regression_on_the_best_labels(rng):
    odds, Y = make_data(rng)
    scores, labels = ranked(2 * odds + 1, 5)
    hits = np.take_along_axis(Y, labels, 1)
    weights = np.tile(1 / np.arange(1, 6), (len(Y), 1))
    peer = LogisticRegression(C=1e9, tol=1e-8).fit(
        scores.reshape(-1, 1), hits.ravel(), sample_weight=weights.ravel()
    )
    found = Calibration().fit(scores, Y, labels)
    assert found.slope_ == pytest.approx(peer.coef_[0, 0], rel=0.01)
    assert found.offset_ == pytest.approx(peer.intercept_[0], abs=0.01)
    whole = Calibration().fit(2 * odds + 1, Y)
    assert (whole.slope_, whole.offset_) == (found.slope_, found.offset_)


@pytest.mark.parametrize("n_ranks", ["auto", 5, 40])
def test_ranks_at_which_labels_are_true_are_calibrated(rng, n_ranks):
    # About 40 of 200 labels are true. The network is too sure of its first labels, and not sure
    # enough of those below, as a line is that was fitted to other ranks.
    odds = rng.normal(size=(800, 200)) - 1.6
    Y = (rng.random(odds.shape) < expit(odds)).astype(int)
    scores = np.where(odds > 0, 3 * odds, 0.5 * odds - 2)
    calibration = Calibration(n_ranks).fit(scores, Y)
    best, labels = ranked(scores, 40)
    hits = np.take_along_axis(Y, labels, 1)[:, 25:].mean()
    error = abs(expit(calibration(best))[:, 25:].mean() - hits)
    assert (error > 0.1) == (n_ranks == 5)
    assert (error < 0.06) == (n_ranks != 5)  # a line misses two slopes: .040 to .045 on three seeds


def test_few_samples_change_little_and_hits_alone_are_no_certainty():
    scores, Y = np.array([[2.0, -1.0]]), np.array([[1, 0]])
    calibration = Calibration().fit(scores, Y)
    np.testing.assert_allclose(calibration(scores), scores, atol=0.5)
    sure = Calibration().fit(np.full((50, 1), 3.0), np.ones((50, 1)))
    assert np.isfinite([sure.slope_, sure.offset_]).all()


def test_scores_that_tell_the_opposite_keep_their_order(rng):
    odds, Y = make_data(rng)
    calibration = Calibration().fit(-odds, Y)
    assert calibration.slope_ > 0


def test_order_and_the_slope_below(rng):
    odds, Y = make_data(rng)
    calibration = Calibration().fit(3 * odds, Y)
    scores = np.linspace(-30, 20, 500)
    found = calibration(scores)
    assert (np.diff(found) > 0).all()
    below = scores < calibration.start_
    np.testing.assert_allclose(np.diff(found[below]), np.diff(scores[below]))
    above = scores > calibration.start_
    np.testing.assert_allclose(
        found[above], calibration.slope_ * scores[above] + calibration.offset_
    )
    assert isinstance(calibration(0.5), float)


def test_arrays_and_tensors_give_the_same_numbers_in_their_own_type(rng):
    odds, Y = make_data(rng, 200)
    calibration = Calibration().fit(odds, Y)
    scores = np.linspace(-9, 9, 50, dtype=np.float32)
    tensor = calibration(torch.from_numpy(scores))
    assert tensor.dtype == torch.float32
    assert calibration(scores).dtype == np.float32
    np.testing.assert_allclose(tensor.numpy(), calibration(scores), rtol=1e-6, atol=1e-6)


def test_a_beam_may_give_fewer_labels():
    scores = np.array([[2.0, -np.inf], [1.0, -1.0]])
    calibration = Calibration().fit(scores, np.eye(2, dtype=int), np.array([[0, 1], [1, 0]]))
    assert np.isfinite([calibration.slope_, calibration.offset_, calibration.start_]).all()


def drawn(p, rng):
    """Indicator of one class a row, drawn by its probabilities; the last column is no class."""
    true = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    Y = sp.csr_array((np.ones(len(p)), (np.arange(len(p)), true)), shape=p.shape)
    return Y[:, :-1]


def test_a_share_of_wrong_classes_is_found():
    rng = np.random.default_rng(0)
    scores = log_softmax(6 * rng.normal(size=(4000, 12)), axis=1)
    p = 0.7 * softmax(scores / 2, axis=1) + 0.3 / 12
    Y = drawn(np.hstack([p, np.zeros((4000, 1))]), rng)
    found = Calibration().fit(scores, Y, link="softmax")
    assert found.slope_ == pytest.approx(0.5, abs=0.05)
    assert found.floor_ == pytest.approx(0.3, abs=0.02)
    order = np.argsort(-scores, axis=1)[:, :5]  # of the others is known what they share
    best = np.take_along_axis(scores, order, axis=1)
    part = Calibration().fit(best, Y, order, link="softmax")
    assert part.floor_ == pytest.approx(0.3, abs=0.02)
    assert found(scores) == pytest.approx(found.slope_ * scores)  # in the probabilities alone


def test_classes_that_are_never_wrong_have_no_share(rng):
    scores = log_softmax(3 * rng.normal(size=(2000, 6)), axis=1)
    Y = drawn(np.hstack([softmax(scores, axis=1), np.zeros((2000, 1))]), rng)
    found = Calibration().fit(scores, Y, link="softmax")
    assert found.slope_ == pytest.approx(1, abs=0.06)
    assert found.floor_ < 0.01


@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.parametrize("steep", [1, 8, 20, 30, 100])
def test_the_best_slope_and_share_are_found_however_steep_the_scores(n_classes, steep):
    rng = np.random.default_rng(steep)
    logits = rng.normal(size=(300, n_classes))
    true = rng.integers(n_classes, size=300)
    logits[np.arange(300), true] += 3
    scores = log_softmax(steep * logits, axis=1)
    Y = sp.csr_array((np.ones(300), (np.arange(300), true)), shape=scores.shape)
    found = Calibration().fit(scores, Y, link="softmax")

    def loss(slope, floor):
        shares = softmax(slope * scores, axis=1)[np.arange(300), true]
        prior = (slope - 1) ** 2 / 2 - np.log1p(-floor)
        return prior - np.log((1 - floor) * shares + floor / n_classes + 1e-300).sum()

    grid = [loss(a, e) for a in np.geomspace(0.01, 4, 40) for e in (0, 0.001, 0.01, 0.03, 0.1, 0.3)]
    assert loss(found.slope_, found.floor_) <= min(grid) + 0.01


def of_classes(scores, labels, Y):
    """The line of scores to which those of the network add nothing."""
    lists = labels, scores, np.zeros_like(scores)
    line, share = fit_line(lists, Y, np.ones(len(labels)), "softmax")
    assert share == 0
    return line


def test_odds_of_classes_are_found_again(rng):
    odds = 2 * rng.normal(size=(4000, 5)) - 1
    p = np.exp(odds) / (1 + np.exp(odds).sum(axis=1, keepdims=True))
    rest = np.repeat((1 - p.sum(axis=1, keepdims=True)) / 500, 500, axis=1)  # in no list
    Y = drawn(np.hstack([p, rest, np.zeros((4000, 1))]), rng)
    lists = (odds - 0.5) / 0.4, np.tile(np.arange(5), (4000, 1))
    line = of_classes(*lists, Y)
    assert line.slope_ == pytest.approx(0.4, abs=0.03)
    assert line.offset_ == pytest.approx(0.5, abs=0.1)
    found = class_probabilities(
        line(lists[0]), lists[1], np.hstack([odds, rest - 99])
    )  # none rises above the list
    assert np.abs(found[:, :5] - p).mean() < 0.01
    pads = np.full((4000, 2), -np.inf), np.full((4000, 2), -1)
    padded = of_classes(*map(np.hstack, zip(lists, pads)), Y)
    assert (padded.slope_, padded.offset_) == pytest.approx((line.slope_, line.offset_), rel=1e-6)


def test_places_of_no_class_do_not_change_the_temperature():
    rng = np.random.default_rng(0)
    scores = log_softmax(3 * rng.normal(size=(200, 4)), axis=1)
    true = np.array([rng.choice(4, p=softmax(row / 2)) for row in scores])
    Y = sp.csr_array((np.ones(200), (np.arange(200), true)), shape=(200, 4))
    order = np.argsort(-scores, axis=1)
    ranked = np.take_along_axis(scores, order, axis=1)
    expected = Calibration().fit(ranked, Y, order, link="softmax").slope_
    pads = np.full((200, 6), -np.inf), np.full((200, 6), -1)
    padded = (np.hstack([each, pad]) for each, pad in zip((ranked, order), pads))
    scores, labels = padded
    found = Calibration().fit(scores, Y, labels, link="softmax").slope_
    assert found == expected
    assert found < 0.9  # the scores are too sure


def test_a_list_of_all_classes_leaves_nothing_to_others(rng):
    scores = 2 * rng.normal(size=(4000, 4))
    start = np.quantile(scores, 0.05)  # below, the slope is one
    odds = 0.5 * np.maximum(scores, start) + np.minimum(scores - start, 0)
    Y = drawn(np.hstack([softmax(odds, axis=1), np.zeros((4000, 1))]), rng)
    line = of_classes(scores, np.tile(np.arange(4), (4000, 1)), Y)
    assert line.slope_ == pytest.approx(0.5, abs=0.03)
    assert line.offset_ == pytest.approx(0, abs=1e-6)  # it says nothing where no class is left


@pytest.mark.parametrize("link", ["sigmoid", "softmax"])
@pytest.mark.parametrize("share", [0.7, 0.0, -0.7], ids=lambda share: f"share={share}")
def test_what_the_network_adds_is_found_again(link, share, rng):
    scores = -np.sort(-rng.normal(size=(6000, 4)), axis=1)
    network = 2 * rng.normal(size=scores.shape)
    odds = 0.5 * scores + share * network - 1
    if link == "softmax":
        p = np.exp(np.hstack([odds, np.zeros((6000, 1))]))  # the last class is in no list
        Y = drawn(np.hstack([p / p.sum(axis=1, keepdims=True), np.zeros((6000, 1))]), rng)
    else:
        Y = sp.csr_array(rng.random(odds.shape) < 1 / (1 + np.exp(-odds)), dtype=int)
    labels = np.tile(np.arange(4), (6000, 1))
    weights = np.ones(6000)
    line, found = fit_line([labels, scores, network], Y, weights, link)
    if share >= 0:
        assert found == pytest.approx(share / (0.5 + share), abs=0.04)
        expected = line(scores + found * (network - scores))
        assert np.median(np.abs(expected - odds)) < 0.1
    else:
        assert found == 0  # never against the network
    line, found = fit_line([labels, scores, network], Y, 0 * weights, link)
    assert (line.slope_, line.offset_, found) == (1, 0, 0)  # nothing is known


@pytest.mark.parametrize("link", ["sigmoid", "softmax"])
def test_a_weight_of_three_is_a_sample_three_times(link, rng):
    scores = np.sort(rng.normal(size=(300, 5)))[:, ::-1]
    labels = np.argsort(rng.random((300, 5)))
    Y = sp.csr_array(np.eye(5, dtype=int)[labels[np.arange(300), rng.integers(5, size=300)]])
    weights = np.where(scores[:, 0] > 1, 3, 1)
    rows = np.repeat(np.arange(300), weights)
    weighted = Calibration().fit(scores, Y, labels, sample_weight=weights, link=link)
    repeated = Calibration().fit(scores[rows], Y[rows], labels[rows], link=link)
    assert weighted.start_ == repeated.start_
    np.testing.assert_allclose(weighted(scores), repeated(scores), rtol=1e-4)
    line, repeated = (
        fit_line([labels[at], scores[at], scores[at]], Y[at], weight.astype(float), link)[0]
        for at, weight in ((np.arange(300), weights), (rows, np.ones(len(rows))))
    )
    assert line.start_ == pytest.approx(repeated.start_, abs=1e-6)
