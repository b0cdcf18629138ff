"""Posterior of samples' labels: against sums over all label vectors, limits, and bad input."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from sklearn_xlc.aggregation import _pairs as module
from sklearn_xlc.aggregation import (
    aggregation,
    draw_labels,
    expected_precision,
    label_rates,
    noisy_or_posterior,
)


def by_enumeration(q, membership, has_label):
    """Posterior of one label given what groups have, over all assignments."""
    total, carried = 0.0, np.zeros(len(q))
    for labels in itertools.product([0, 1], repeat=len(q)):
        labels = np.array(labels)
        if ((membership.T @ labels > 0) == has_label).all():
            weight = np.where(labels, q, 1 - q).prod()
            total += weight
            carried += weight * labels
    return carried / total


def problem(seed, membership, n_labels=4):
    rng = np.random.default_rng(seed)
    q = rng.uniform(0.02, 0.9, size=(len(membership), n_labels))
    return q, (rng.random((membership.shape[1], n_labels)) < 0.6).astype(int)


def candidates(q, membership, labels):
    """Stored entries for the labels of the samples' groups, zeros included."""
    rows, columns = np.nonzero(membership @ labels)
    return sparse.csr_matrix((q[rows, columns], (rows, columns)), shape=q.shape)


DISJOINT = np.eye(4, dtype=int)[[0, 1, 2, 0, 1, 0, 3]]
#: Groups that share one sample: a tree.
TREE = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("seed", range(5))
def test_posterior_of_disjoint_groups_is_exact(seed):
    q, labels = problem(seed, DISJOINT)
    data, given = aggregation(DISJOINT, labels), candidates(q, DISJOINT, labels)
    found = noisy_or_posterior(data, given)
    for label in range(4):
        # Samples of groups without the label do not carry it.
        expected = by_enumeration(q[:, label], DISJOINT, labels[:, label] > 0)
        np.testing.assert_allclose(found.toarray()[:, label], expected, atol=1e-12)


def test_a_sample_of_two_groups_gets_the_evidence_of_both():
    q, _ = problem(0, TREE, 1)
    data = aggregation(TREE, np.ones((3, 1)))
    found = noisy_or_posterior(data, candidates(q, TREE, np.ones((3, 1)))).toarray().ravel()
    both = by_enumeration(q[:3, 0], TREE[:3, :2], np.array([True, True]))
    alone = noisy_or_posterior(
        aggregation(TREE[:3, :2], np.ones((2, 1))), sparse.csr_matrix(q[:3])
    ).toarray()
    assert found[1] > q[1, 0] / (1 - np.prod(1 - q[:2, 0]))
    np.testing.assert_allclose(alone[1], both[1])
    assert found[5] == 0


@pytest.mark.parametrize("block", [1, 3, 2**22])
def test_sums_reach_one_and_entries_stay(block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    rng = np.random.default_rng(0)
    membership = np.eye(30, dtype=int)[rng.integers(30, size=100)]
    q, labels = problem(1, membership, 7)
    given = candidates(q**8, membership, labels)
    found = noisy_or_posterior(aggregation(membership, labels), given)
    np.testing.assert_array_equal(found.indptr, given.indptr)
    np.testing.assert_array_equal(found.indices, given.indices)
    assert found.has_canonical_format
    assert found.dtype == np.float64
    assert (found.data >= given.data - 1e-9).all()
    assert found.data.max() <= 1
    sums = (membership.T @ found.toarray())[labels * membership.any(axis=0)[:, None] > 0]
    assert (sums >= 1 - 1e-9).all()


def test_limits():
    membership = np.eye(3, dtype=int)[[0, 0, 1, 1, 1, 2]]
    data = aggregation(membership, np.ones((3, 1)))
    q = sparse.csr_matrix((np.array([1.0, 0, 0, 0, 0, 0]), (range(6), [0] * 6)), shape=(6, 1))
    found = noisy_or_posterior(data, q).toarray().ravel()
    np.testing.assert_allclose(found, [1, 0, 1 / 3, 1 / 3, 1 / 3, 1], atol=2e-6)


@pytest.mark.parametrize("value", [None, np.nan])
def test_a_missing_probability_is_named(value):
    data = aggregation([[1], [1]], [[1, 0]])
    q = sparse.csr_matrix([[0.5, 0], [0.5 if value is None else value, 0]])
    if value is None:
        q = sparse.csr_matrix([[0.5, 0], [0, 0]])
    with pytest.raises(ValueError, match="probabilities must hold a number .* label 0 of row 1"):
        noisy_or_posterior(data, q)


# --- draws, and the precision that labels of groups tell --------------------------------------


@pytest.mark.parametrize("n_draws", [1, 2, 4])
def test_draws_are_exact_in_expectation(n_draws):
    dense = np.random.default_rng(0).random((6, 5)) * (np.arange(30) % 3 > 0).reshape(6, 5)
    dense[2] = 1.0
    p = sparse.csr_matrix(dense)
    total = np.zeros((n_draws, 6, 5))
    for seed in range(1000):
        drawn = draw_labels(p, n_draws, seed).toarray().reshape(n_draws, 6, 5)
        total += drawn
        share = drawn.sum(axis=0)
        # No draw is wasted: as many as the probability says, rounded.
        assert (share >= np.floor(n_draws * p.toarray() - 1e-9)).all()
        assert (share <= np.ceil(n_draws * p.toarray() + 1e-9)).all()
    np.testing.assert_allclose(total / 1000, np.broadcast_to(p.toarray(), total.shape), atol=0.07)
    np.testing.assert_allclose(total.mean(axis=0) / 1000, p.toarray(), atol=0.06 / n_draws)


def test_draws_of_labels_of_a_sample_are_not_alike():
    p = sparse.csr_matrix(np.full((2000, 2), 0.5))
    drawn = draw_labels(p, 4).toarray()
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05
    assert (draw_labels(p, 4, 1) != draw_labels(p, 4, 0)).nnz > 0
    assert (draw_labels(p, 4) != draw_labels(p, 4)).nnz == 0


def random_groups(n_groups, size, rates, seed=0):
    rng = np.random.default_rng(seed)
    Y = rng.random((n_groups * size, len(rates))) < rates
    groups = rng.permutation(n_groups * size) // size
    membership = np.eye(n_groups, dtype=int)[groups]
    return Y, aggregation(membership, (membership.T @ Y > 0).astype(int))


@pytest.mark.parametrize("size", [1, 3, 10])
def test_rates_in_random_groups(size):
    rates = np.array([0.02, 0.1, 0.25])
    _, data = random_groups(2000, size, rates)
    np.testing.assert_allclose(label_rates(data), rates, atol=0.02)


@pytest.mark.parametrize("share_right", [0.0, 0.5, 1.0])
def test_expected_precision_is_that_of_the_samples(share_right):
    """Labels are chosen by a look at the truth, more or less often, frequent ones more often."""
    rates = np.array([0.05, 0.2, 0.35])
    Y, data = random_groups(3000, 4, rates)
    rng = np.random.default_rng(1)
    chosen = rng.choice(3, size=len(Y), p=[0.2, 0.3, 0.5])
    right = (rng.random(len(Y)) < share_right) & Y.any(axis=1)
    chosen[right] = Y[right].argmax(axis=1)
    found = expected_precision(data, np.arange(len(Y)), chosen)
    assert found.max() <= 1
    assert found.mean() == pytest.approx(Y[np.arange(len(Y)), chosen].mean(), abs=0.02)


def test_a_label_of_all_groups_tells_nothing():
    membership = np.eye(50, dtype=int)[np.arange(200) // 4]
    data = aggregation(membership, np.column_stack([np.ones(50), np.arange(50) < 20]))
    rate = label_rates(data)[0]
    assert (1 - rate) * 2 == pytest.approx((1 / 50) ** 0.25)
    found = expected_precision(data, np.arange(200), np.zeros(200, dtype=int))
    np.testing.assert_allclose(found, rate)
