"""Precision at k of groups: pooled by hand, in all forms, and of groups of one."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.metrics import aggregated_precision_at_k, precision_at_k

SETTINGS = settings(derandomize=True, max_examples=25, deadline=None)


def problem(seed, n=15, n_groups=4, n_labels=6):
    rng = np.random.default_rng(seed)
    membership = (rng.random((n, n_groups)) < 0.3).astype(int)
    labels = (rng.random((n_groups, n_labels)) < 0.4).astype(int)
    scores = rng.permuted(np.tile(np.arange(n * n_labels).reshape(n, -1) - 30.0, 1), axis=1)
    return membership, labels, rng.permutation(scores.ravel()).reshape(n, n_labels)


@SETTINGS
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_scores_pool_to_their_maximum(seed, k):
    membership, labels, scores = problem(seed)
    if not membership.any():
        membership[0, 0] = 1
    hits = []
    for group in range(4):
        rows = np.flatnonzero(membership[:, group])
        if len(rows):
            top = np.argsort(-scores[rows].max(axis=0), kind="stable")[:k]
            hits.append(labels[group, top].sum() / k)
    stored = sp.coo_array((scores.ravel(), np.indices(scores.shape).reshape(2, -1)), scores.shape)
    for y_pred in (scores, stored, stored.tocsc()):
        for groups in (membership, sp.csc_array(membership)):
            found = aggregated_precision_at_k(labels, y_pred, groups, k)
            assert found == pytest.approx(np.mean(hits), rel=1e-14)


@SETTINGS
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_ids_pool_by_place_and_votes(seed, k):
    membership, labels, scores = problem(seed)
    ids = np.argsort(-scores, axis=1)[:, :4]
    ids[0, 2:] = -1
    membership[0, 0] = 1
    hits = []
    for group in range(4):
        rows = np.flatnonzero(membership[:, group])
        if not len(rows):
            continue
        named = [tuple(x) for x in np.argwhere(ids[rows, :k] >= 0)]
        ranks, votes = {}, {}
        for row, rank in named:
            label = ids[rows[row], rank]
            ranks[label] = min(rank, ranks.get(label, rank))
            votes[label] = votes.get(label, 0) + 1
        top = sorted(ranks, key=lambda label: (ranks[label], -votes[label], label))[:k]
        hits.append(labels[group, top].sum() / k)
    found = aggregated_precision_at_k(labels, ids, membership, k)
    assert found == pytest.approx(np.mean(hits), rel=1e-14)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_groups_of_one_are_precision_at_k(rng, k):
    y = rng.random((20, 7)) < 0.3
    scores = rng.random((20, 7))
    expected = precision_at_k(y, scores, k)
    for groups in (np.arange(20), rng.permutation(20), np.eye(20)):
        assert aggregated_precision_at_k(y, scores, groups, k) == pytest.approx(expected, rel=1e-14)
    ids = np.argsort(-scores, axis=1)[:, :5]
    assert aggregated_precision_at_k(y, ids, np.arange(20), k) == pytest.approx(expected, rel=1e-14)


def test_row_aligned_labels_are_those_of_the_groups(rng):
    _, labels, scores = problem(0)
    groups = rng.integers(4, size=15)
    groups[:4] = range(4)
    expected = aggregated_precision_at_k(labels, scores, np.eye(4)[groups], 3)
    names = np.array(["a", "b", "c", "d"])[groups]
    for y in (labels[groups], sp.csr_matrix(labels[groups])):
        assert aggregated_precision_at_k(y, scores, names, 3) == expected


def test_ties_do_not_go_to_true_labels():
    best, groups = [["a"], ["b"]], [0, 0]
    for truth in ("a", "b"):
        expected = float(truth == "a")  # ties by order of the labels
        tags = [[truth], [truth]]
        indicator = pd.DataFrame({"a": [truth == "a"] * 2, "b": [truth == "b"] * 2}).astype(int)
        assert aggregated_precision_at_k(tags, best, groups, k=1) == expected
        assert aggregated_precision_at_k(indicator, best, groups, k=1) == expected
        ids = [[0], [1]]
        assert aggregated_precision_at_k(indicator.to_numpy(), ids, groups, k=1) == expected


def test_labels_no_row_ranks_are_not_predicted():
    labels = np.array([[1, 1, 0]])
    scores = np.array([[-np.inf, -np.inf, 0.5], [-np.inf, -np.inf, 0.7]])
    assert aggregated_precision_at_k(labels, scores, np.ones((2, 1)), 2) == 0
    assert (
        aggregated_precision_at_k(labels, np.array([[0, -1], [-1, -1]]), np.ones((2, 1)), 2) == 0.5
    )


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ({"k": 0}, ValueError, "k must be an integer >= 1"),
        ({"groups": [0, 1]}, ValueError, "each of the 3 samples"),
        ({"groups": [0, np.nan, 1]}, ValueError, "groups holds nan for row 1"),
        ({"groups": [0, 0, 1]}, ValueError, "y_group must be the same .*row 1 differs from row 0"),
        (
            {"y_group": np.eye(2)},
            ValueError,
            "y_group and y_pred must have equally many labels, got 2 and 3",
        ),
        ({"y_group": np.eye(4)[:, :3]}, ValueError, r"y_group must have length 3 \(the samples"),
        ({"y_group": 2 * np.eye(3)}, ValueError, "y_group must hold 0 and 1 only, got 2"),
        ({"y_pred": np.array([[0, 5]] * 3)}, ValueError, "label id 5 in row 0"),
    ],
)
def test_bad_input(wrong, error, message):
    valid = {"y_group": np.eye(3), "y_pred": np.eye(3), "groups": [0, 1, 2], "k": 2}
    with pytest.raises(error, match=message):
        aggregated_precision_at_k(**{**valid, **wrong})
