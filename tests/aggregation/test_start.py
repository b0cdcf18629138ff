"""Labels whose rows sum to zero part: each starts from a row of its own."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.aggregation import aggregation
from sklearn_xlc.aggregation._pairs import make_pairs
from sklearn_xlc.aggregation._start import start_pairs

BOTH = pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])


def starts(X, data, labels, seed):
    pairs = make_pairs(data, 0, data.n_labels)
    return pairs.samples[start_pairs(X, data, pairs, np.asarray(labels), seed)]


@BOTH
@pytest.mark.parametrize("seed", range(30))
def test_identical_labels_start_from_opposite_rows(convert, seed):
    x = np.array([1.0, 2.0, 0.0])
    X = convert(np.array([x, -x, x, -x, x, -x]))
    data = aggregation(np.kron(np.eye(3), np.ones((2, 1))), np.ones((3, 2)))
    first, second = starts(X, data, [0, 1], seed)
    assert first // 2 == second // 2
    assert first != second


def test_the_seed_reaches_every_row():
    data = aggregation(np.kron(np.eye(2), np.ones((2, 1))), np.ones((2, 1)))
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    assert {int(starts(X, data, [0], seed)[0]) for seed in range(50)} == {0, 1, 2, 3}


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_later_twins_take_what_is_less_like_the_first(convert, seed):
    angles = np.array([0.0, 0.5, 3.0, 1.5])
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    data = aggregation(np.ones((4, 1)), np.ones((1, 6)))
    rows = starts(convert(X), data, np.arange(6), seed)
    order = [rows[0], *sorted({0, 1, 2, 3} - {rows[0]}, key=lambda row: X[row] @ X[rows[0]])]
    assert rows.tolist() == [*order, *order[:2]]


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_empty_rows_are_never_picked(convert, seed):
    X = convert(np.array([[0.0], [1.0], [0.0], [-1.0], [0.0]]))
    membership = [[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]]
    data = aggregation(membership, np.array([[1, 1, 0], [0, 0, 1]]))
    assert sorted(starts(X, data, [0, 1], seed)) == [1, 3]
    assert len(starts(X, data, [2], seed)) == 0
    assert len(starts(X, data, [0, 1, 2], seed)) == 2
