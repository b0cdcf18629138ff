"""Assignment by given scores: against a loop over groups."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.aggregation import aggregation, assign_by_scores


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
    monkeypatch.setattr("sklearn_xlc.aggregation._scored.BLOCK", 10)
    assert (assign_by_scores(data, scores, totals=totals) != whole).nnz == 0
