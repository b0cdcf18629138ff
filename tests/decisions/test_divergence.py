"""Divergence: the nearest uniform distribution among all label sets."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from sklearn.metrics import f1_score

from sklearn_xlc._ranking import rank_rows
from sklearn_xlc.decisions import Divergence

N_LABELS = 6
SETS = [
    np.array(chosen) for m in range(1, 5) for chosen in itertools.combinations(range(N_LABELS), m)
]


def search(log_p):
    """Divergence of every sample from every set."""
    return np.stack([-np.log(len(s)) - log_p[:, s].mean(axis=1) for s in SETS], axis=1)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    link=st.sampled_from(["exp", "softmax", "sigmoid", None]),
)
def test_nearest_uniform_distribution_of_all_sets(seed, temperature, link):
    scores = 2 * np.random.default_rng(seed).normal(size=(8, N_LABELS))
    if link == "exp":
        scores = log_softmax(scores, axis=1)
    logits = np.log(expit(scores)) if link == "sigmoid" else scores
    expected = search(log_softmax(logits / temperature, axis=1))
    decision = Divergence(temperature, max_labels=4).fit(None, np.eye(N_LABELS), link=link)
    sets = decision.decode(scores)
    for row, best in enumerate(expected.argmin(axis=1)):
        np.testing.assert_array_equal(sets[row].indices, SETS[best])
    least = np.sort(expected, axis=1)[:, :2]
    np.testing.assert_allclose(decision.distances(scores), least, rtol=1e-9, atol=1e-9)
    if decision.distances_read == "ranked":
        assert link == "exp"
        best, labels = rank_rows(scores, 5)
        np.testing.assert_allclose(decision.distances(best, labels), least, atol=1e-9)


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    Y = (rng.random((200, 15)) < 0.2).astype(int)
    Y[:, 0] |= Y.sum(axis=1) == 0
    return log_softmax(2.0 * Y + rng.normal(size=Y.shape), axis=1), Y


def test_auto_temperature_is_the_best_of_those_tried(noisy):
    scores, Y = noisy
    decision = Divergence("tuned", max_labels=6)
    assert decision.fitted_on == "held"
    decision.fit(scores, Y, link="exp")

    def quality(temperature):
        sets = Divergence(temperature, 6).fit(None, Y, link="exp").decode(scores)
        return f1_score(Y, sets.toarray(), average="samples")

    tried = 10.0 ** (np.arange(-50, 51, 5) / 50)
    assert quality(decision.temperature_) >= max(map(quality, tried)) - 1e-12
    assert decision.temperature_ != 1.0
    best, labels = rank_rows(scores, 7)
    few = Divergence("tuned", max_labels=6).fit(best, Y, labels=labels, link="exp")
    assert few.temperature_ == decision.temperature_


def test_most_labels_are_those_of_nearly_all_training_samples():
    sizes = np.r_[np.full(993, 3), np.full(7, 9)]
    Y = np.eye(20)
    assert Divergence().fit(None, Y, sizes=sizes).max_labels_ == 3
    assert Divergence(max_labels=5).fit(None, Y, sizes=sizes).max_labels_ == 5
    assert Divergence().fit(None, np.zeros((3, 20))).max_labels_ == 1


def test_partial_fit_keeps_what_was_chosen(noisy):
    scores, Y = noisy
    decision = Divergence("tuned").fit(scores, Y, link="exp")
    tuned, most = decision.temperature_, decision.max_labels_
    decision.partial_fit(None, Y[:3], sizes=np.array([1, 1, 1]), link="exp")
    assert (decision.temperature_, decision.max_labels_) == (tuned, most)
    decision.set_params(temperature=0.5).partial_fit(None, np.ones((2, 15)))
    assert (decision.temperature_, decision.max_labels_) == (0.5, 15)


def test_nothing_held_out_is_no_temperature(noisy):
    assert Divergence("tuned").fit(None, noisy[1]).temperature_ == 1.0
    assert Divergence().fitted_on is None


@pytest.mark.parametrize(
    "params, message",
    [
        ({"temperature": 0}, "'temperature' parameter of Divergence must be"),
        ({"temperature": "warm"}, "'temperature' parameter of Divergence must be"),
        ({"max_labels": 0}, "'max_labels' parameter of Divergence must be"),
        ({"max_labels": 21}, "max_labels=21 is more than the 20 labels of y"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        Divergence(**params).check_labels(sp.csr_matrix(np.eye(20)))
