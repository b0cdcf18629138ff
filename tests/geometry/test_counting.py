"""Counts agree with enumeration, with closed forms and with the numbers of the paper."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.geometry import count_argmaxable, count_sign_changes


def brute_changes(y):
    return sum(a != b for a, b in zip(y, [*y[1:], y[0]]))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=12))
def test_sign_changes_of_one_assignment(y):
    changes = count_sign_changes(y)
    assert isinstance(changes, int)
    assert changes == brute_changes(y)
    assert changes <= 2 * sum(y)
    # Without the pair of last and first label one change may be missing, never across a bound 2k.
    linear = sum(a != b for a, b in zip(y, y[1:]))
    assert changes == linear + linear % 2


@pytest.mark.parametrize("container", [np.array, sp.csr_array, sp.coo_matrix, list])
def test_sign_changes_of_all_assignments(container):
    Y = np.array(list(itertools.product([0, 1], repeat=7)))
    changes = count_sign_changes(container(Y.tolist()) if container is list else container(Y))
    assert changes.dtype == np.int64
    np.testing.assert_array_equal(changes, [brute_changes(y.tolist()) for y in Y])


def test_sparse_input_is_left_alone():
    Y = sp.csr_matrix((np.array([1, 0, 1]), np.array([3, 2, 0]), np.array([0, 3])), (1, 4))
    before = Y.data.copy(), Y.indices.copy()
    assert count_sign_changes(Y).tolist() == [2]
    np.testing.assert_array_equal(Y.data, before[0])
    np.testing.assert_array_equal(Y.indices, before[1])


@pytest.mark.parametrize(
    "n_labels, max_active, count",
    [(8, 1, 58), (8, 2, 198), (8, 3, 254), (9, 3, 494), (10, 2, 512)],
)
def test_known_counts(n_labels, max_active, count):
    assert count_argmaxable(n_labels, 2 * max_active + 1) == count


def test_count_of_the_small_figure():
    assert count_argmaxable(3, 2) == 6
    assert count_argmaxable(3, 2, intercept=True) == 7
    assert count_argmaxable(3, 3) == 8


@pytest.mark.parametrize("n_labels", range(1, 14))
def test_counts_by_their_recursion_and_by_alternation(n_labels):
    for d in range(1, n_labels + 2):
        count = count_argmaxable(n_labels, d)
        assert count == 2 * sum(math.comb(n_labels - 1, i) for i in range(d))
        # A new plane through the origin cuts as many regions as it has itself (Cover).
        if d > 1 and n_labels > 1:
            previous = n_labels - 1
            assert count == count_argmaxable(previous, d) + count_argmaxable(previous, d - 1)
        # With biases: half of the cones of one label more in one dimension more.
        assert 2 * count_argmaxable(n_labels, d, intercept=True) == count_argmaxable(
            n_labels + 1, d + 1
        )
        if d % 2:
            even = range(0, d, 2)
            assert count == 2 * sum(math.comb(n_labels, i) for i in even)


def test_large_counts_are_exact_integers():
    count = count_argmaxable(5000, 101)
    assert isinstance(count, int)
    assert count == 2 * sum(math.comb(4999, i) for i in range(101))
    assert count_argmaxable(1000, 1000) == count_argmaxable(1000, 10**9) == 2**1000


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: count_argmaxable(0, 1), ValueError, "n_labels must be .*, got 0"),
        (lambda: count_argmaxable(3, 0), ValueError, "n_features must be .*, got 0"),
        (lambda: count_argmaxable(3.0, 1), TypeError, "n_labels must be an integer"),
        (lambda: count_argmaxable(3, 1, intercept=1), TypeError, "intercept must be True or"),
        (lambda: count_sign_changes([0, -1]), ValueError, "y must hold 0 and 1 only, got -1"),
        (lambda: count_sign_changes([[0, 1], [0.5, 1]]), ValueError, "got 0.5 in row 1, column 0"),
        (lambda: count_sign_changes([np.nan, 1.0]), ValueError, "got nan in row 0"),
        (
            lambda: count_sign_changes(["a", "b"]),
            ValueError,
            "matrix of numbers.* dtype <U1",
        ),
        (lambda: count_sign_changes([]), ValueError, "at least one label"),
        (
            lambda: count_sign_changes(np.zeros((2, 2, 2))),
            ValueError,
            "y must be a two-dimensional",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
