"""How many rows of a group carry its labels: against loops, against the truth, and edge cases."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context

from sklearn_xlc.aggregation import _sharing as module
from sklearn_xlc.aggregation import (
    aggregation,
    expected_samples,
    learn_embeddings,
    make_background,
    sharing_rates,
    unit_rows,
)


def shared_labels(rate, seed=0, n_groups=600, size=6, n_labels=5, n_features=40, noise=0.15):
    """Groups with a label that one row carries, and each other row with probability `rate`."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), size)
    label = np.repeat(rng.integers(n_labels, size=n_groups), size)
    carries = rng.random(len(group)) < rate
    carries[::size] = True
    Y = np.eye(n_labels, dtype=int)[label] * carries[:, None]
    directions = np.eye(n_labels, n_features)
    X = unit_rows(Y @ directions + noise * rng.normal(size=(len(group), n_features)))
    data = aggregation(
        np.eye(n_groups, dtype=int)[group], np.eye(n_labels, dtype=int)[label[::size]]
    )
    return X, Y, data


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("contrast", [False, True])
def test_rates_are_those_of_the_data(rate, contrast):
    X, Y, data = shared_labels(rate)
    background = make_background(X, 0, 0.01, np.random.RandomState(0)) if contrast else None
    found = sharing_rates(X, data, background=background)
    np.testing.assert_allclose(found, rate, atol=0.06)
    np.testing.assert_allclose(expected_samples(data, found).sum(), max(Y.sum(), 600), rtol=0.1)


def test_random_groups_have_few_rows_a_label():
    # One seed: estimates of single labels scatter by .012 around the truth.
    rng = np.random.default_rng(0)
    Y = rng.random((4000, 20)) < 0.02
    X = unit_rows(Y @ rng.normal(size=(20, 50)) + 0.3 * rng.normal(size=(4000, 50)))
    membership = np.eye(800, dtype=int)[np.repeat(np.arange(800), 5)]
    data = aggregation(membership, membership.T @ Y > 0)
    found = sharing_rates(X, data)
    np.testing.assert_allclose(found, 0.02, atol=0.02)
    np.testing.assert_allclose(expected_samples(data, found), Y.sum(axis=0), rtol=0.15)


def by_loops(X, membership, labels, seed):
    """The definition: one row, one group and one label at a time."""
    random = np.random.default_rng(seed)
    mask = random.permutation(membership.shape[1]) % 2 == 0
    counts, told = np.zeros((4, labels.shape[1])), np.ones(labels.shape[1])
    has_label = membership @ labels > 0
    vectors = learn_embeddings(X, aggregation(membership, labels * ~mask[:, None]), n_iter=0)
    vectors = vectors.block(0, labels.shape[1])
    rows = np.flatnonzero(membership[:, mask].any(axis=1))
    others = random.choice(rows, min(module.N_OTHERS, len(rows)), replace=False)
    for label, vector in enumerate(vectors):
        free = [row for row in others if not has_label[row, label]]
        told[label] = len(free) > 0
        if not vector.any() or not free:
            continue
        rank = int(np.ceil(module.TAIL * len(free)))
        bound = sorted((X[free] @ vector).tolist())[-rank]
        chance = rank / (len(free) + 1)
        for group in np.flatnonzero(mask & (labels[:, label] > 0)):
            members = np.flatnonzero(membership[:, group])
            if not len(members):
                continue
            scores = X[members] @ vector
            best = scores.argmax()
            counts[0, label] += 1
            counts[1, label] += (scores[best] > bound) - chance
            counts[2, label] += len(members) - 1
            counts[3, label] += (np.delete(scores, best) > bound).sum()
            counts[3, label] -= chance * (len(members) - 1)

    def drawn(found, number):
        pooled = found.sum() / max(1, number.sum())
        return (found + module.STRENGTH * pooled) / (number + module.STRENGTH)

    power = np.maximum(drawn(counts[1], counts[0]), 10 * module.TAIL)
    return told * np.clip(drawn(counts[3], counts[2]) / power, 0, 1)


def overlapping(seed):
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.normal(size=(60, 5)))
    membership = (rng.random((60, 17)) < 0.15).astype(int)
    labels = (rng.random((17, 6)) < 0.3).astype(int)
    X[:40] += 2 * (membership @ labels)[:40, :5]
    return unit_rows(X), membership, labels


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("tail", [0.005, 0.3])
def test_rates_are_what_the_definition_says(seed, tail, monkeypatch):
    monkeypatch.setattr(module, "TAIL", tail)
    X, membership, labels = overlapping(seed)
    found = sharing_rates(X, aggregation(membership, labels), seed=seed)
    np.testing.assert_allclose(found, by_loops(X, membership, labels, seed), atol=1e-12)
    assert (found > 0).any() or tail == 0.3


def test_dense_and_sparse_blocks_and_jobs_agree():
    X, _, data = shared_labels(0.4, n_groups=200)
    expected = sharing_rates(X, data)
    found = sharing_rates(sp.csr_array(X), data)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for limit, n_jobs in ((2**-8, None), (2**-6, 2)):
        with config_context(working_memory=limit):
            np.testing.assert_array_equal(sharing_rates(X, data, n_jobs=n_jobs), expected)
            blocks = sharing_rates(sp.csr_array(X), data, n_jobs=n_jobs)
        np.testing.assert_array_equal(blocks, found)
    assert not np.array_equal(sharing_rates(X, data, seed=1), expected)


def test_another_score_exceeds_the_bound_by_the_chance_that_is_stated():
    # One seed: the mean of so many draws scatters by two per cent.
    rng = np.random.default_rng(0)
    above, stated = [], []
    for _ in range(100):
        rows, vectors = rng.normal(size=(300, 4)), rng.normal(size=(30, 4))
        has_label = sp.csc_array((rng.random((300, 30)) < 0.3).astype(np.int32))
        bound, chance = module._bounds(rows, vectors, has_label, 2**14)
        above.append((rng.normal(size=(500, 4)) @ vectors.T > bound).mean())
        stated.append(chance.mean())
    assert np.mean(above) == pytest.approx(np.mean(stated), rel=0.05)
    assert max(stated) < 2 / 200


def test_nothing_is_told_of_a_label_that_every_group_has():
    X, _, data = shared_labels(0.7, n_groups=200)
    labels = np.hstack([data.labels.toarray(), np.ones((200, 1))])
    found = sharing_rates(X, aggregation(data.groups, labels))
    assert found[-1] == 0
    np.testing.assert_allclose(found[:-1], 0.7, atol=0.1)


@pytest.mark.parametrize("as_given", [np.asarray, sp.csr_array])
def test_nothing_to_tell(as_given):
    X = as_given(unit_rows(np.arange(1.0, 13).reshape(6, 2)))
    alone = aggregation(np.eye(6), np.eye(6)[:, :3])
    everywhere = aggregation(np.repeat(np.eye(2), 3, axis=0), np.ones((2, 3)))
    one_group = aggregation(np.ones((6, 1)), np.ones((1, 3)))
    nowhere = aggregation(np.repeat(np.eye(2), 3, axis=0), np.zeros((2, 3)))
    nobody = aggregation(np.zeros((6, 2)), np.ones((2, 3)))
    for data in (alone, everywhere, one_group, nowhere, nobody):
        np.testing.assert_array_equal(sharing_rates(X, data), np.zeros(3))


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
def test_expected_samples_of_independent_labels(rate):
    rng = np.random.default_rng(0)
    Y = rng.random((40_000, 4)) < rate
    membership = sp.kron(sp.eye_array(10_000), np.ones((4, 1))).tocsr()
    labels = Y.reshape(10_000, 4, 4).any(axis=1)
    np.testing.assert_allclose(
        expected_samples(aggregation(membership, labels)), Y.sum(axis=0), rtol=0.05
    )


def test_expected_samples_of_groups_of_one_are_the_groups(rng):
    Y = rng.random((50, 4)) < [0.1, 0.5, 1.0, 0.0]
    np.testing.assert_allclose(
        expected_samples(aggregation(np.eye(50), Y)), Y.sum(axis=0), rtol=1e-12
    )
