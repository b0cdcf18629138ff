"""Assignment against plain enumeration, and what it promises."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context

from _factories import make_groups
from sklearn_xlc.aggregation import (
    aggregation,
    assign_by_scores,
    assign_labels,
    expected_samples,
    learn_embeddings,
    make_background,
    unit_rows,
)

SETTINGS = settings(derandomize=True, max_examples=25, deadline=None)


def brute(scores, membership, labels, counts):
    out = np.zeros(scores.shape, dtype=int)
    for group, label in zip(*np.nonzero(labels)):
        rows = np.flatnonzero(membership[:, group])
        order = rows[np.argsort(-scores[rows, label], kind="stable")]
        out[order[: labels[group, label] if counts else 1], label] = 1
    return out


@SETTINGS
@given(st.integers(0, 10**6), st.booleans())
def test_every_group_gives_each_label_to_its_best_rows(seed, counts):
    X, membership, labels = make_groups(seed, 24, 7, 6, most=3)
    data = aggregation(membership, labels)
    embeddings = learn_embeddings(X, data, n_iter=3)
    # Rounding is cut off, so that rows that tie in theory tie in the enumeration as well.
    scores = np.round(X @ embeddings.block(0, 6).T, 12)
    found = assign_labels(X, data, embeddings, use_counts=counts)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.toarray(), brute(scores, membership, labels, counts))
    candidates = membership @ labels > 0
    assert not (found.toarray() > candidates).any()


def test_groups_of_one_give_y_back(rng):
    X = unit_rows(rng.normal(size=(30, 6)))
    Y = (rng.random((30, 8)) < 0.3).astype(int)
    data = aggregation(np.eye(30), Y)
    background = make_background(X, 3, 0.01, np.random.RandomState(0))
    for kwargs in ({}, {"background": background, "temperature": 0.3, "step_size": None}):
        embeddings = learn_embeddings(X, data, **kwargs)
        for sharing in (
            {},
            {"totals": expected_samples(data)},
            {"quantile": 0.0},
            {"use_counts": True},
        ):
            found = assign_labels(X, data, embeddings, **sharing)
            np.testing.assert_array_equal(found.toarray(), Y)


def test_first_row_wins_a_tie():
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    data = aggregation(np.ones((3, 1)), [[1]])
    embeddings = learn_embeddings(X, data, n_iter=5)
    assert assign_labels(X, data, embeddings).toarray().ravel().tolist() == [0, 1, 0]
    # Two rows of one group are equally like their sum, whatever rounding says.
    for seed in range(20):
        X = unit_rows(np.random.default_rng(seed).normal(size=(2, 7)))
        data = aggregation(np.ones((2, 1)), [[1]])
        found = assign_labels(X, data, learn_embeddings(X, data, n_iter=0))
        assert found.toarray().ravel().tolist() == [1, 0]
        found = assign_labels(X, data, learn_embeddings(X, data, n_iter=0), quantile=1.0)
        assert found.toarray().ravel().tolist() == [1, 1]
        # Also beside a label that counts: then they tie for the second place behind their sum.
        X = unit_rows(np.vstack([X, X.sum(axis=0)]))
        data = aggregation(np.ones((3, 1)), [[1, 2]])
        found = assign_labels(X, data, learn_embeddings(X, data, n_iter=0), use_counts=True)
        assert found.toarray().tolist() == [[0, 1], [0, 0], [1, 1]]


def test_empty_rows_are_chosen_only_where_there_is_nothing_else():
    X = np.array([[0.0, 0.0], [0.6, 0.8], [0.0, 0.0], [0.0, 0.0]])
    data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1, 0], [1, 1]])
    found = assign_labels(X, data, learn_embeddings(X, data))
    assert found.toarray().tolist() == [[0, 0], [1, 0], [1, 1], [0, 0]]


def test_a_row_in_several_groups_keeps_the_union():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    data = aggregation([[1, 1], [1, 0], [0, 1]], [[1, 1, 0], [1, 0, 1]])
    found = assign_labels(X, data, learn_embeddings(X, data)).toarray()
    assert found[0, 0] == 1
    np.testing.assert_array_equal(found.sum(axis=0) > 0, True)
    assert set(np.unique(found)) <= {0, 1}


@pytest.mark.parametrize("total", [0, 5, 9.4, 1000])
def test_totals_go_to_the_next_best_rows(rng, total):
    X = unit_rows(rng.normal(size=(40, 4)))
    membership = np.kron(np.eye(10), np.ones((4, 1)))
    labels = np.zeros((10, 2), dtype=int)
    labels[:6, 0] = labels[4:, 1] = 1
    data = aggregation(membership, labels)
    embeddings = learn_embeddings(X, data)
    scores = X @ embeddings.block(0, 2).T
    best = assign_labels(X, data, embeddings).toarray()
    found = assign_labels(X, data, embeddings, totals=np.full(2, float(total))).toarray()
    candidates = membership @ labels > 0
    for label in range(2):
        n_more = max(0, round(min(total, 24)) - 6)
        rest = np.flatnonzero(candidates[:, label] & (best[:, label] == 0))
        expected = best[:, label].copy()
        expected[rest[np.argsort(-scores[rest, label])[:n_more]]] = 1
        np.testing.assert_array_equal(found[:, label], expected)


@pytest.mark.parametrize("with_background", [False, True])
def test_a_label_of_every_group_does_not_go_to_opposite_rows(with_background):
    rng = np.random.default_rng(0)
    X = unit_rows(np.repeat([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.1]], 8, axis=0))
    X += 0.01 * rng.normal(size=X.shape)
    X = unit_rows(X[np.arange(24).reshape(3, 8).T.ravel()])  # each group has one row of each kind
    data = aggregation(np.kron(np.eye(8), np.ones((3, 1))), np.ones((8, 1)))
    background = make_background(X, 0, 0.1, np.random.RandomState(0)) if with_background else None
    embeddings = learn_embeddings(X, data, background=background, n_iter=20)
    scores = X @ embeddings.block(0, 1)[0]
    found = assign_labels(X, data, embeddings, totals=np.full(1, 1000.0)).toarray().ravel()
    mean = X.mean(axis=0) @ embeddings.block(0, 1)[0] if with_background else 0.0
    best = scores.reshape(8, 3).max(axis=1).mean()
    np.testing.assert_array_equal(found, scores > mean - (best - mean) / 2)
    assert 8 < found.sum() < 24


@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_quantile_shares_with_rows_as_similar(rng, quantile):
    X = unit_rows(rng.normal(size=(40, 4)))
    membership = np.kron(np.eye(10), np.ones((4, 1)))
    labels = (rng.random((10, 3)) < 0.6).astype(int)
    data = aggregation(membership, labels)
    embeddings = learn_embeddings(X, data)
    scores = X @ embeddings.block(0, 3).T
    best = assign_labels(X, data, embeddings).toarray()
    found = assign_labels(X, data, embeddings, quantile=quantile).toarray()
    for label in range(3):
        winners = np.sort(scores[best[:, label] > 0, label])
        bound = winners[min(int(quantile * len(winners)), len(winners) - 1)]
        candidates = (membership @ labels)[:, label] > 0
        expected = (best[:, label] > 0) | (candidates & (scores[:, label] >= bound - 1e-12))
        np.testing.assert_array_equal(found[:, label], expected)
    assert (found >= best).all()
    if quantile == 1:
        np.testing.assert_array_equal(found, best)


@pytest.mark.parametrize("sharing", [{}, {"quantile": 0.5}, {"use_counts": True}, {"totals": 9.0}])
def test_same_in_any_block_storage_and_number_of_jobs(sharing):
    X, membership, labels = make_groups(2, 60, 15, 9, most=3)
    if "totals" in sharing:
        sharing = {"totals": np.full(9, sharing["totals"])}
    data = aggregation(membership, labels)
    expected = assign_labels(X, data, learn_embeddings(X, data), **sharing).toarray()
    for rows in (X, sp.csr_array(X)):
        embeddings = learn_embeddings(rows, data)
        for limit, n_jobs in ((1, None), (2000, 2), (10**8, 2)):
            with config_context(working_memory=limit / 2**20):
                found = assign_labels(rows, data, embeddings, n_jobs=n_jobs, **sharing)
            np.testing.assert_array_equal(found.toarray(), expected)


def test_nothing_to_assign():
    X = np.eye(3)
    data = aggregation(np.zeros((3, 2)), np.ones((2, 4)))
    for sharing in (
        {},
        {"quantile": 0.5},
        {"totals": expected_samples(data)},
        {"use_counts": True},
    ):
        found = assign_labels(X, data, learn_embeddings(X, data), **sharing)
        assert found.shape == (3, 4)
        assert found.nnz == 0


@pytest.mark.parametrize("seed", range(20))
def test_assignment_by_scores_is_a_loop(seed):
    rng = np.random.default_rng(seed)
    membership = rng.random((30, 8)) < 0.2
    of_groups = (rng.random((8, 5)) < 0.5).astype(int)
    open_pairs = (membership.astype(int) @ of_groups) > 0
    dense = np.where(open_pairs, rng.normal(size=(30, 5)), 0)
    scores = sp.csr_array((dense[open_pairs], np.nonzero(open_pairs)), shape=(30, 5))
    expected = np.zeros((30, 5), dtype=np.int8)
    for group in range(8):
        rows = np.flatnonzero(membership[:, group])
        for label in np.flatnonzero(of_groups[group]):
            if len(rows):
                expected[rows[dense[rows, label].argmax()], label] = 1
    data = aggregation(membership, of_groups)
    np.testing.assert_array_equal(assign_by_scores(data, scores).toarray(), expected)
    totals = expected.sum(axis=0) + 2
    more = assign_by_scores(data, scores, totals=totals).toarray()
    for label in range(5):
        rest = np.flatnonzero(open_pairs[:, label] & (expected[:, label] == 0))
        added = rest[np.argsort(-dense[rest, label])[:2]]
        column = expected[:, label].copy()
        column[added] = 1
        np.testing.assert_array_equal(more[:, label], column)


def test_assignment_by_scores_misses_none():
    data = aggregation([[1], [1]], [[1]])
    with pytest.raises(ValueError, match="none for label 0 of row 1"):
        assign_by_scores(data, sp.csr_array([[1.0], [0.0]]))


def test_scores_that_are_close_are_no_ties():
    data = aggregation([[1], [1], [1]], [[1]])
    assigned = assign_by_scores(data, sp.csr_array([[1e-20], [1e-15], [1e-16]]))
    np.testing.assert_array_equal(assigned.toarray().ravel(), [0, 1, 0])


def test_scores_that_are_no_numbers_are_refused():
    data = aggregation([[1, 0], [1, 0], [0, 1]], [[0, 1], [1, 0]])
    scores = sp.csr_array(np.array([[0.0, 1.0], [0.0, np.nan], [1.0, 0.0]]))
    with pytest.raises(ValueError, match="none for label 1 of row 1"):
        assign_by_scores(data, scores)


def test_blocks_of_labels_make_no_difference(monkeypatch):
    rng = np.random.default_rng(0)
    membership = sp.random_array((200, 60), density=0.03, random_state=rng).astype(bool).astype(int)
    of_groups = sp.random_array((60, 40), density=0.2, random_state=rng).astype(bool).astype(int)
    scores = sp.csr_array(membership @ of_groups, dtype=float)
    scores.data = rng.normal(size=scores.nnz)
    data = aggregation(membership, of_groups)
    totals = 2.0 * np.diff(data.labels.indptr)
    whole = assign_by_scores(data, scores, totals=totals)
    monkeypatch.setattr("sklearn_xlc.aggregation._pairs.BLOCK", 10)
    assert (assign_by_scores(data, scores, totals=totals) != whole).nnz == 0
