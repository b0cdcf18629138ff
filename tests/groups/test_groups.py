"""Groups in every accepted form, and labels that must agree inside a group."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sklearn_xlc.groups._groups import check_groups, encode_groups, group_labels


@pytest.mark.parametrize(
    "ids",
    [
        [7, 3, 7, 9],
        np.array([7, 3, 7, 9], dtype=np.uint8),
        [0.5, -1.0, 0.5, np.inf],
        ["b", "a", "b", "c"],
        np.array(["b", "a", "b", "c"], dtype=object),
        pd.Series([7, 3, 7, 9]),
        pd.Series(["b", "a", "b", "c"]),
    ],
    ids=repr,
)
def test_ids(ids):
    membership, group_of = check_groups(ids, 4)
    assert group_of.tolist() == [1, 0, 1, 2]
    assert membership.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_no_groups_are_rows():
    membership, group_of = check_groups(None, 3)
    np.testing.assert_array_equal(membership.toarray(), np.eye(3))
    assert group_of.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "make",
    [np.asarray, lambda a: np.array(a, bool), sparse.csc_matrix, lambda a: np.array(a, float)],
)
def test_membership(make):
    matrix = [[1, 1], [0, 0], [0, 1]]
    membership, group_of = check_groups(make(matrix), 3)
    assert group_of is None
    assert membership.toarray().tolist() == matrix


def test_stored_zeros_and_the_argument():
    parts = (np.array([0.0, 1.0]), ([0, 1], [0, 1]))
    given = sparse.coo_matrix(parts, shape=(2, 2)).tocsr()
    membership, _ = check_groups(given, 2)
    assert membership.nnz == 1
    assert given.nnz == 2


def test_labels_of_groups():
    Y = sparse.csr_array(np.array([[0, 2], [1, 0], [0, 2], [0, 0]]))
    membership, group_of = check_groups([5, 1, 5, 7], 4)
    assert group_labels(Y, membership, group_of).toarray().tolist() == [[1, 0], [0, 2], [0, 0]]
    membership, group_of = check_groups(np.ones((3, 4)), 3)
    assert group_labels(Y, membership, group_of) is Y


@pytest.mark.parametrize(
    "groups, message",
    [
        ([1, 2], r"one id for each of the 3 rows.*got shape \(2,\)"),
        (np.zeros((3, 1, 1)), r"got shape \(3, 1, 1\)"),
        ([1.0, np.nan, 2.0], "groups holds nan for row 1"),
        (["a", "b", None], "groups holds None for row 2"),
        (np.array([float("nan"), "a", "b"], dtype=object), "groups holds nan for row 0"),
        (np.array([1, "a", 2], dtype=object), "ids of one type"),
        (np.ones((2, 3)), r"must have 3 rows.*got shape \(2, 3\)"),
        ([[1, 0], [2, 0], [0, 1]], "0 and 1 only, got 2 in row 1"),
        (sparse.csr_array([[0.0, 1], [1, 0], [0, -1]]), r"got -1.0 in row 2"),
        ([[1.0, 0], [0, np.nan], [0, 1]], "got nan in row 1"),
        ([["a"], ["b"], ["c"]], "numbers 0 and 1, got dtype"),
    ],
)
def test_bad_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        check_groups(groups, 3)


@pytest.mark.parametrize(
    "row, label, value, message",
    [
        (4, 0, 1, "row 4 differs from row 1 of the same group"),
        (4, 1, 2, "row 4 differs from row 1"),
        (3, 2, 0, "row 3 differs from row 0"),
        (2, 1, 1, "row 2 differs from row 0"),
    ],
)
def test_labels_that_differ_inside_a_group(row, label, value, message):
    Y = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 1, 0]])
    groups = ["x", "y", "x", "x", "y", "y"]
    membership, group_of = check_groups(groups, 6)
    assert group_labels(sparse.csr_array(Y), membership, group_of).toarray().tolist() == [
        [0, 0, 1],
        [0, 1, 0],
    ]
    Y[row, label] = value
    with pytest.raises(ValueError, match="y must hold .*" + message):
        group_labels(sparse.csr_array(Y), membership, group_of)


def test_wrong_number_of_label_rows():
    Y = sparse.csr_array(np.ones((4, 2)))
    with pytest.raises(ValueError, match="target must have 3 rows, one for each row of X, got 4"):
        group_labels(Y, *check_groups([1, 1, 2], 3), "target")
    with pytest.raises(ValueError, match="y must have 2 rows, one for each group of the member"):
        group_labels(Y, *check_groups(np.ones((3, 2)), 3))


def test_encoding_is_int64():
    assert encode_groups(["b", "a"], 2).dtype == np.int64


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        np.array(["a", pd.NA, "b"], dtype=object),
        np.array(["a", np.nan, "b"], dtype=object),
        pd.Series([1, None, 2], dtype="Int64"),
    ],
    ids=["string", "object", "nan", "Int64"],
)
def test_missing_ids_of_every_kind_are_named(ids):
    with pytest.raises(ValueError, match="for row 1; every row needs an id"):
        check_groups(ids, 3)


def test_a_column_of_ids_is_no_membership_matrix():
    with pytest.raises(ValueError, match="give ids as a 1-D array"):
        check_groups(pd.DataFrame({"page": [0, 1, 0]}), 3)
    membership, _ = check_groups(sparse.csr_array([[0], [1], [0]]), 3)
    assert membership.nnz == 1
