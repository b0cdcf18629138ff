"""Posterior of samples' labels: against sums over all label vectors, limits, and bad input."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from sklearn_xlc.aggregation import _pairs as module
from sklearn_xlc.aggregation import (
    aggregation,
    draw_labels,
    group_log_likelihood,
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
    least, most = np.floor(n_draws * dense - 1e-9), np.ceil(n_draws * dense + 1e-9)
    for seed in range(1000):
        drawn = draw_labels(p, n_draws, seed).toarray().reshape(n_draws, 6, 5)
        total += drawn
        share = drawn.sum(axis=0)
        # No draw is wasted: as many as the probability says, rounded.
        assert (share >= least).all()
        assert (share <= most).all()
    np.testing.assert_allclose(total / 1000, np.broadcast_to(dense, total.shape), atol=0.07)
    np.testing.assert_allclose(total.mean(axis=0) / 1000, dense, atol=0.06 / n_draws)


def test_draws_of_labels_of_a_sample_are_not_alike():
    p = sparse.csr_matrix(np.full((2000, 2), 0.5))
    drawn = draw_labels(p, 4).toarray()
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05
    assert (draw_labels(p, 4, 1) != draw_labels(p, 4, 0)).nnz > 0
    assert (draw_labels(p, 4) != draw_labels(p, 4)).nnz == 0


@pytest.mark.parametrize("membership", [DISJOINT, TREE[:5]])
@pytest.mark.parametrize("seed", range(2))
def test_likelihood_of_groups_is_the_best_of_all_offsets_and_slopes(membership, seed):
    """Each group by itself, against sums over the labels of all its samples."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(3, 2, size=(len(membership), 4))
    labels = (rng.random((membership.shape[1], 4)) < 0.5).astype(int)
    labels[np.arange(2), 0] = [0, 1]

    def by_sums(offset, slope):
        q, found = 1 / (1 + np.exp(-offset - slope * scores)), np.zeros(membership.shape[1])
        for group, label in np.ndindex(labels.shape):
            own = q[membership[:, group] > 0, label]
            carried = [
                np.where(y, own, 1 - own).prod()
                for y in itertools.product([0, 1], repeat=len(own))
                if any(y) == labels[group, label]
            ]
            found[group] += np.log(sum(carried))
        return found

    best = minimize(
        lambda at: -by_sums(*at).sum(),
        (-1.0, 0.1),
        method="Nelder-Mead",
        bounds=[(None, None), (0, None)],
        options={"xatol": 1e-5, "fatol": 1e-7},
    )
    found = group_log_likelihood(
        aggregation(membership, labels), np.arange(len(membership)), scores
    )
    np.testing.assert_allclose(found.sum(), -best.fun, atol=1e-5)
    np.testing.assert_allclose(found, by_sums(*best.x), atol=1e-2)


def test_likelihood_asks_for_order_and_distances_of_scores_only():
    rng = np.random.default_rng(0)
    membership = np.eye(30, dtype=int)[rng.permutation(120) // 4]
    scores = rng.normal(size=(120, 5))
    labels = (membership.T @ (scores > 1) > 0).astype(int)
    data, everyone = aggregation(membership, labels), np.arange(120)
    found = group_log_likelihood(data, everyone, scores)
    np.testing.assert_allclose(group_log_likelihood(data, everyone, 900 * scores + 7), found)
    # Scores of others, and scores in the wrong order, say nothing.
    shuffled = group_log_likelihood(data, everyone, scores[rng.permutation(120)])
    reversed_, none = (group_log_likelihood(data, everyone, s) for s in (-scores, 0 * scores))
    assert found.sum() > shuffled.sum() + 50
    np.testing.assert_allclose(reversed_.sum(), none.sum(), rtol=1e-3)
    # Only the groups of these samples are judged, in the order given or in another.
    part = np.flatnonzero(membership[:, :10].any(axis=1))
    other = rng.permutation(part)
    of_part = group_log_likelihood(data, part, scores[part])
    np.testing.assert_array_equal(np.flatnonzero(of_part), np.arange(10))
    np.testing.assert_allclose(group_log_likelihood(data, other, scores[other]), of_part, rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_few_groups_tell_a_better_classifier_from_a_worse_one(seed):
    rng = np.random.default_rng(seed)
    membership = np.eye(120, dtype=int)[np.arange(480) // 4]
    truth = rng.normal(size=(480, 20))
    labels = (membership.T @ (truth > np.linspace(0, 1.5, 20)) > 0).astype(int)
    data = aggregation(membership, labels)
    good, equally_good, worse = (
        group_log_likelihood(data, np.arange(480), truth + noise * rng.normal(size=truth.shape))
        for noise in (0.5, 0.5, 1.0)
    )

    def z(gain):
        return gain.sum() / np.sqrt((gain**2).sum())

    assert z(good - worse) > 4
    assert z(equally_good - worse) > 4
    assert abs(z(good - equally_good)) < 2.5
