"""Posterior of samples' labels: against sums over all label vectors, limits, and bad input."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from sklearn_xlc.aggregation import _pairs as module
from sklearn_xlc.aggregation import aggregation, group_log_likelihood, noisy_or_posterior


def by_enumeration(q, membership, has_label):
    """Posterior of one label, and the probability of what groups have, over all assignments."""
    total, carried = 0.0, np.zeros(len(q))
    for labels in itertools.product([0, 1], repeat=len(q)):
        labels = np.array(labels)
        if ((membership.T @ labels > 0) == has_label).all():
            weight = np.where(labels, q, 1 - q).prod()
            total += weight
            carried += weight * labels
    return carried / total, total


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
def test_posterior_and_likelihood_of_disjoint_groups_are_exact(seed):
    q, labels = problem(seed, DISJOINT)
    data, given = aggregation(DISJOINT, labels), candidates(q, DISJOINT, labels)
    found = noisy_or_posterior(data, given)
    logarithm = 0.0
    for label in range(4):
        # Samples of groups without the label do not carry it.
        expected, total = by_enumeration(q[:, label], DISJOINT, labels[:, label] > 0)
        np.testing.assert_allclose(found.toarray()[:, label], expected, atol=1e-12)
        logarithm += np.log(total)
    likelihood = group_log_likelihood(data, given, np.log(1 - q).sum(axis=1))
    assert likelihood == pytest.approx(logarithm / 4)


def test_a_sample_of_two_groups_gets_the_evidence_of_both():
    q, _ = problem(0, TREE, 1)
    data = aggregation(TREE, np.ones((3, 1)))
    found = noisy_or_posterior(data, candidates(q, TREE, np.ones((3, 1)))).toarray().ravel()
    both = by_enumeration(q[:3, 0], TREE[:3, :2], np.array([True, True]))[0]
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
    assert np.isfinite(group_log_likelihood(data, q, np.zeros(6)))


@pytest.mark.parametrize("value", [None, np.nan])
def test_a_missing_probability_is_named(value):
    data = aggregation([[1], [1]], [[1, 0]])
    q = sparse.csr_matrix([[0.5, 0], [0.5 if value is None else value, 0]])
    if value is None:
        q = sparse.csr_matrix([[0.5, 0], [0, 0]])
    with pytest.raises(ValueError, match="probabilities must hold a number .* label 0 of row 1"):
        noisy_or_posterior(data, q)
