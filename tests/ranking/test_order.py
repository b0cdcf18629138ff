"""One order and one probability of listed and of all other labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.ranking import (
    among_all,
    class_probabilities,
    listed_probabilities,
    with_unlisted,
)

N_ROWS, N_LABELS = 6, 9


@st.composite
def lists(draw):
    """Scores of a network, and ranked lists of different lengths."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    below = rng.normal(size=(N_ROWS, N_LABELS)).astype(np.float32)
    if draw(st.booleans()):
        below = below.round()  # ties
    width = draw(st.integers(1, N_LABELS))
    labels = np.argsort(rng.random(below.shape), axis=1)[:, :width]
    scores = -np.sort(-rng.normal(0, 3, labels.shape), axis=1).astype(np.float32)
    empty = np.arange(width) >= rng.integers(0, width + 1, (N_ROWS, 1))
    return np.where(empty, -np.inf, scores).astype(np.float32), np.where(empty, -1, labels), below


def by_hand(scores, labels, below):
    """Labels of each sample, best first: of the list, then by the network, then by number."""
    found = []
    for of_list, of_network in zip(labels, below):
        listed = [label for label in of_list if label >= 0]
        rest = [label for label in range(N_LABELS) if label not in listed]
        found.append(listed + sorted(rest, key=lambda label: (-of_network[label], label)))
    return np.array(found)


@given(lists(), st.integers(1, N_LABELS))
def test_listed_labels_come_first_and_all_others_as_in_the_network(lists, k):
    scores, labels, below = lists
    expected = by_hand(*lists)
    others = np.argsort(-below, axis=1, kind="stable")
    ranked = np.take_along_axis(below, others, axis=1)
    best, found = with_unlisted(scores, labels, ranked, others, k)
    every = among_all(*lists)
    np.testing.assert_array_equal(best, np.take_along_axis(every, found, axis=1))
    # Where two scores become equal by rounding, the smaller label comes first.
    order = np.argsort(-every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found, order)
    differs = (found != expected[:, :k]).any()
    assert not differs or len(np.unique(every)) < every.size
    n_listed = (labels >= 0).sum(axis=1)
    for row, n in enumerate(n_listed):
        np.testing.assert_array_equal(every[row, labels[row, :n]], scores[row, :n])
        if 0 < n < N_LABELS:
            assert every[row, expected[row, n:]].max() < scores[row, n - 1]


@given(lists())
def test_few_labels_of_the_network_suffice(lists):
    scores, labels, below = lists
    others = np.argsort(-below, axis=1, kind="stable")
    k = most = 3
    ranked = np.take_along_axis(below, others, axis=1)
    whole = with_unlisted(scores, labels, ranked, others, k)
    part = with_unlisted(scores, labels, ranked[:, :most], others[:, :most], k)
    np.testing.assert_array_equal(part, whole)


@given(lists())
def test_probabilities_of_classes(lists):
    scores, labels, below = lists
    every = among_all(*lists)
    p = class_probabilities(scores, labels, every, floor=0.3)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    for row in range(N_ROWS):
        listed = labels[row][labels[row] >= 0]
        rest = np.setdiff1d(np.arange(N_LABELS), listed)
        if not len(listed):
            continue
        odds = np.exp(scores[row, : len(listed)].astype(np.float64))
        others = min(1, len(rest) * odds.min())
        np.testing.assert_allclose(p[row, listed], odds / (others + odds.sum()), rtol=1e-4)
        np.testing.assert_allclose(p[row, rest].sum(), others / (others + odds.sum()), rtol=1e-4)
        if len(rest):
            assert p[row, rest].max() <= p[row, listed].min() * (1 + 1e-5)
            order = np.argsort(-every[row], kind="stable")
            assert (np.diff(p[row, order]) <= 1e-6).all()


def test_what_is_left_is_shared_by_the_other_classes():
    scores, labels = np.log([[3.0, 1.0]]), np.array([[2, 0]])
    every = among_all(scores, labels, np.array([[0.0, 0.0, 0.0, np.log(5), 0.0, 0.0]]))
    p = class_probabilities(scores, labels, every)  # 3 + 1 + 1 for all others
    np.testing.assert_allclose(p, [[0.2, 0.025, 0.6, 0.125, 0.025, 0.025]])
    p = class_probabilities(scores, labels, every, floor=0.5)
    np.testing.assert_allclose(p, [[0.2, 0.0375, 0.6, 0.0875, 0.0375, 0.0375]])


def test_no_other_class_is_more_likely_than_the_worst_listed_one():
    lists = np.log([[3.0, 0.2]]), np.array([[2, 0]])
    below = np.log([[1.0, 16.0, 1.0, 2.0, 1.0, 1.0]])
    p = class_probabilities(*lists, among_all(*lists, below)) * 4  # 0.8 for all others
    np.testing.assert_allclose(p, [[0.2, 0.2, 3.0, 0.2, 0.2, 0.2]])
    lists = np.log([[3.0, 0.5]]), lists[1]  # 1 for all others: 0.8, 0.1, 0.05, 0.05
    p = class_probabilities(*lists, among_all(*lists, below)) * 4.5
    drawn = 0.25 + (np.array([0.8, 0.1, 0.05, 0.05]) - 0.25) * 0.25 / 0.55
    np.testing.assert_allclose(p, [[0.5, drawn[0], 3.0, *drawn[1:]]])
    np.testing.assert_allclose(listed_probabilities(*lists, 6)[0] * 4.5, [[3.0, 0.5]])


def test_a_row_without_a_list_keeps_the_network():
    below = np.array([[0.5, 2.0, -1.0]])
    none = np.array([[-np.inf]]), np.array([[-1]])
    np.testing.assert_array_equal(among_all(*none, below), below)
    p = class_probabilities(*none, below)
    np.testing.assert_allclose(p, np.exp(below) / np.exp(below).sum())


def test_odds_too_small_for_a_float_keep_their_order():
    scores, labels = np.array([[-800.0, -801.0], [1.0, 0.0]]), np.array([[0, 1], [0, 1]])
    p = class_probabilities(scores, labels, among_all(scores, labels, np.full((2, 3), -900.0)))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (np.diff(p, axis=1) <= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_of_the_network_is_kept(dtype):
    below = np.zeros((1, 3), dtype=dtype)
    lists = np.array([[-4.0]], dtype=dtype), np.array([[1]])
    assert among_all(*lists, below).dtype == dtype
    assert with_unlisted(*lists, below, np.array([[0, 1, 2]]), 2)[0].dtype == dtype
