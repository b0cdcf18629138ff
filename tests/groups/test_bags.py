"""Bags of rows against loops over ids, and counts of labels against their definition."""

import numpy as np
import pytest
from scipy import sparse

from sklearn_xlc.groups._bags import bag_index, capped, check_counts, repeat_labels, split_counts


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_bags_are_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 8, size=30) * 3 - 5
    bags = bag_index(ids, 30)
    names = np.unique(ids)
    X = rng.normal(size=(30, 2))
    assert len(bags) == len(names)
    for number, name in enumerate(names):
        rows = slice(bags.indptr[number], bags.indptr[number + 1])
        np.testing.assert_array_equal(bags.rows[rows], np.flatnonzero(ids == name))
        np.testing.assert_array_equal(bags.gather(X)[rows], X[ids == name])
    np.testing.assert_array_equal(names[bags.bag_of], ids)


def test_rows_may_be_in_many_bags():
    matrix = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    bags = bag_index(matrix, 3)
    np.testing.assert_array_equal(bags.rows, [0, 2, 2, 0, 2])
    np.testing.assert_array_equal(bags.indptr, [0, 2, 3, 5])
    assert bags.bag_of is None


def test_rows_in_order_are_not_copied():
    X = np.ones((4, 2))
    assert bag_index([3, 3, 7, 8], 4).gather(X) is X
    assert bag_index(None, 4).gather(X) is X
    assert bag_index([3, 7, 3, 8], 4).gather(X) is not X
    assert bag_index(sparse.csr_matrix([[1], [0], [1], [1]]), 4).gather(X).shape == (3, 2)


def test_one_value_a_bag():
    bags = bag_index([1, 0, 1, 0], 4)
    values = np.array(["a", "b"])
    assert bags.per_bag(values, "y") is values
    np.testing.assert_array_equal(bags.per_bag(values[[1, 0, 1, 0]], "y"), values)
    Y = sparse.csr_matrix([[0, 1], [1, 1]])
    assert bags.per_bag(Y, "y") is Y
    assert (bags.per_bag(Y[[1, 0, 1, 0]], "y") != Y).nnz == 0
    with pytest.raises(ValueError, match="z must be the same .* row 2 has 5 and row 0 .* has 4"):
        bags.per_bag(np.array([4, 1, 5, 1]), "z")
    with pytest.raises(ValueError, match="row 2 differs from row 0"):
        bags.per_bag(Y[[1, 0, 0, 0]], "y")
    with pytest.raises(ValueError, match=r"z must have length 4 \(the rows of X\) or 2"):
        bags.per_bag(np.ones(3), "z")


def test_as_many_bags_as_rows_are_aligned_with_rows():
    values = np.array([3, 1, 2])
    np.testing.assert_array_equal(bag_index([9, 7, 8], 3).per_bag(values, "y"), [1, 2, 3])
    np.testing.assert_array_equal(bag_index(np.eye(3), 3).per_bag(values, "y"), values)


def test_empty_bags_are_refused():
    with pytest.raises(ValueError, match="column 1 of groups is a bag without rows"):
        bag_index([[1, 0], [1, 0]], 2)


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, sparse.coo_array, np.ndarray.tolist]
)
def test_counts_and_their_indicator(form):
    counts = np.array([[0, 3, 1], [2, 0, 0]])
    indicator, found = split_counts(form(counts))
    dense = indicator.toarray() if sparse.issparse(indicator) else indicator
    np.testing.assert_array_equal(dense, counts > 0)
    np.testing.assert_array_equal(found.toarray(), counts)
    assert sparse.issparse(indicator) == sparse.issparse(form(counts))


@pytest.mark.parametrize(
    "y",
    [
        np.array([[0, 1], [1, 1]]),
        np.array([[False, True]]),
        np.array([5, 7]),
        np.array(["a", "b"]),
        np.array([[0.0, np.nan]]),
        np.array([[-1, 0]]),
    ],
    ids=str,
)
def test_what_counts_nothing_is_left_alone(y):
    same, counts = split_counts(y)
    assert same is y
    assert counts is None


@pytest.mark.parametrize("value", [-1, 0.5, np.nan, np.inf])
def test_no_counts(value):
    y = np.array([[2.0, 0.0], [0.0, value]])
    with pytest.raises(ValueError, match=f"row 1 holds {value}"):
        split_counts(y)


def test_labels_repeated_as_often_as_they_count():
    counts = sparse.csr_matrix([[0, 3, 1], [0, 0, 0], [2, 0, 0]])
    repeated = repeat_labels(counts)
    np.testing.assert_array_equal(repeated.indices, [1, 1, 1, 2, 0, 0])
    np.testing.assert_array_equal(repeated.indptr, [0, 4, 4, 6])
    np.testing.assert_array_equal(repeated.toarray(), counts.toarray())


def test_more_rows_with_a_label_than_rows_are_refused():
    bags = bag_index([5, 5, 4, 4, 4], 5)
    counts = sparse.csr_matrix([[3, 0], [0, 2]])
    assert check_counts(counts, bags) is counts
    with pytest.raises(ValueError, match="label 1 occurs 3 times in the bag of row 0, .* 2 row"):
        check_counts(sparse.csr_matrix([[3, 0], [0, 3]]), bags)


def test_capped_at_the_rows_of_the_bag():
    counts = capped(sparse.csr_matrix([[9, 2], [1, 10**9]]), bag_index([5, 5, 4, 4, 4], 5))
    np.testing.assert_array_equal(counts.toarray(), [[3, 2], [1, 2]])
