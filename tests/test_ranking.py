"""Ranking of rows against sorting by score and id in plain Python."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklearn_xlc._ranking import rank_rows, rank_stored

EXAMPLES = settings(derandomize=True, max_examples=40, deadline=None)
#: Few values, so that ties are common.
SCORES = arrays(
    st.sampled_from([np.float32, np.float64]),
    st.tuples(st.integers(1, 5), st.integers(1, 9)),
    elements=st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 2.0]),
)


def ranked(scores, ids, k):
    """Ids by score, then by id, row by row."""
    order = [sorted(zip(-row, name))[:k] for row, name in zip(scores, ids)]
    return np.array([[name for _, name in row] for row in order])


@EXAMPLES
@given(SCORES, st.integers(1, 10))
def test_rows_by_column(scores, k):
    best, ids = rank_rows(scores, k)
    columns = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    np.testing.assert_array_equal(ids, ranked(scores, columns, k))
    np.testing.assert_array_equal(best, np.take_along_axis(scores, ids, axis=1))
    assert best.dtype == scores.dtype


@EXAMPLES
@given(SCORES, st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_rows_by_ids_of_their_own(scores, k, seed):
    rng = np.random.default_rng(seed)
    ids = rng.permuted(np.tile(np.arange(5, 5 + scores.shape[1]), (len(scores), 1)), axis=1)
    best, found = rank_rows(scores, k, ids)
    np.testing.assert_array_equal(found, ranked(scores, ids, k))
    np.testing.assert_array_equal(best, -np.sort(-scores, axis=1)[:, :k])


@EXAMPLES
@given(SCORES, st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_stored_entries(scores, k, seed):
    stored = np.random.default_rng(seed).random(scores.shape) < 0.6
    indptr = np.r_[0, np.cumsum(stored.sum(axis=1))]
    positions = rank_stored(scores[stored], indptr, k)
    for row in range(len(scores)):
        data = scores[stored][indptr[row] : indptr[row + 1]]
        expected = indptr[row] + np.argsort(-data, kind="stable")[:k]
        np.testing.assert_array_equal(positions[row], np.r_[expected, [-1] * k][:k])


def test_dense_and_stored_agree(rng):
    scores = rng.integers(4, size=(50, 20)) / 2 + 0.5
    matrix = sp.csr_array(scores)
    ids = matrix.indices[rank_stored(matrix.data, matrix.indptr, 7)]
    np.testing.assert_array_equal(ids, rank_rows(scores, 7)[1])


@pytest.mark.parametrize("n_rows, n_columns", [(0, 4), (3, 1)])
def test_edges(n_rows, n_columns):
    best, ids = rank_rows(np.zeros((n_rows, n_columns)), 2)
    assert best.shape == ids.shape == (n_rows, min(2, n_columns))
    assert rank_stored(np.zeros(0), np.zeros(n_rows + 1, dtype=int), 2).shape == (n_rows, 2)
