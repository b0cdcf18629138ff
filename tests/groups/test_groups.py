"""Groups in every accepted form, against loops over ids; values that must agree in a group."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from sklearn_xlc import (
    AggregatedLabelClassifier,
    EAGLETransformer,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.groups import check_groups, warn_of_group_order
from sklearn_xlc.groups._groups import cap_counts, check_group_counts, split_counts


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
    groups = check_groups(ids, 4)
    assert groups.group_of.tolist() == [1, 0, 1, 2]
    assert groups.membership().toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert not groups.overlap


def test_without_groups_every_sample_is_one():
    groups = check_groups(None, 3)
    np.testing.assert_array_equal(groups.membership().toarray(), np.eye(3))
    assert groups.group_of.tolist() == [0, 1, 2]
    assert len(check_groups(None, 0)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_groups_are_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 8, size=30) * 3 - 5
    groups = check_groups(ids, 30)
    names = np.unique(ids)
    X = rng.normal(size=(30, 2))
    assert len(groups) == len(names)
    for number, name in enumerate(names):
        part = slice(groups.indptr[number], groups.indptr[number + 1])
        np.testing.assert_array_equal(groups.samples[part], np.flatnonzero(ids == name))
        np.testing.assert_array_equal(groups.gather(X)[part], X[ids == name])
    np.testing.assert_array_equal(names[groups.group_of], ids)
    np.testing.assert_array_equal(groups.sizes, [np.sum(ids == name) for name in names])
    for index in (rng.integers(len(names), size=9), slice(1, 4), names > 0):
        taken = groups.take(index)
        expected = [np.flatnonzero(ids == name) for name in names[index]]
        np.testing.assert_array_equal(taken.samples, np.concatenate(expected))
        np.testing.assert_array_equal(taken.sizes, [len(samples) for samples in expected])


def test_samples_may_be_in_many_groups():
    groups = check_groups(np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]]), 3)
    np.testing.assert_array_equal(groups.samples, [0, 2, 2, 0, 2])
    np.testing.assert_array_equal(groups.indptr, [0, 2, 3, 5])
    assert groups.group_of is None
    assert groups.overlap


def test_samples_in_order_are_not_copied():
    X = np.ones((4, 2))
    assert check_groups([3, 3, 7, 8], 4).gather(X) is X
    assert check_groups(None, 4).gather(X) is X
    assert check_groups([3, 7, 3, 8], 4).gather(X) is not X
    assert check_groups(sp.csr_matrix([[1], [0], [1], [1]]), 4).gather(X).shape == (3, 2)


def test_groups_are_groups():
    groups = check_groups([1, 0, 1], 3)
    assert check_groups(groups, 3) is groups
    with pytest.raises(ValueError, match="groups and X must have equally many samples"):
        check_groups(groups, 4)


def test_empty_groups_are_refused_on_request():
    assert check_groups([[1, 0], [1, 0]], 2).sizes.tolist() == [2, 0]
    with pytest.raises(ValueError, match="column 1 of groups is a group without samples"):
        check_groups([[1, 0], [1, 0]], 2, allow_empty=False)


@pytest.mark.parametrize(
    "make",
    [np.asarray, lambda a: np.array(a, bool), sp.csc_matrix, lambda a: np.array(a, float)],
)
def test_membership(make):
    matrix = [[1, 1], [0, 0], [0, 1]]
    groups = check_groups(make(matrix), 3)
    assert groups.group_of is None
    assert groups.membership().toarray().tolist() == matrix


def test_stored_zeros_and_the_argument():
    parts = (np.array([0.0, 1.0]), ([0, 1], [0, 1]))
    given = sp.coo_matrix(parts, shape=(2, 2)).tocsr()
    assert check_groups(given, 2).samples.tolist() == [1]
    assert given.nnz == 2


def test_labels_of_groups():
    Y = sp.csr_array(np.array([[0, 2], [1, 0], [0, 2], [0, 0]]))
    groups = check_groups([5, 1, 5, 7], 4)
    of_groups = groups.per_group(Y, "y")
    assert of_groups.toarray().tolist() == [[1, 0], [0, 2], [0, 0]]
    assert groups.per_group(of_groups, "y") is of_groups
    assert check_groups(np.ones((3, 4)), 3).per_group(Y, "y") is Y


def test_one_value_per_group():
    groups = check_groups([1, 0, 1, 0], 4)
    values = np.array(["a", "b"])
    assert groups.per_group(values, "y") is values
    np.testing.assert_array_equal(groups.per_group(values[[1, 0, 1, 0]], "y"), values)
    with pytest.raises(ValueError, match="z must be the same .* row 2 differs from row 0 of the"):
        groups.per_group(np.array([4, 1, 5, 1]), "z")


def test_as_many_groups_as_samples_are_aligned_with_samples():
    values = np.array([3, 1, 2])
    np.testing.assert_array_equal(check_groups([9, 7, 8], 3).per_group(values, "y"), [1, 2, 3])
    np.testing.assert_array_equal(check_groups(np.eye(3), 3).per_group(values, "y"), values)


@pytest.mark.parametrize(
    "groups, message",
    [
        ([1, 2], r"one id for each of the 3 samples.*got shape \(2,\)"),
        (np.zeros((3, 1, 1)), r"got shape \(3, 1, 1\)"),
        ([1.0, np.nan, 2.0], "groups holds nan for row 1"),
        (["a", "b", None], "groups holds None for row 2"),
        (np.array([float("nan"), "a", "b"], dtype=object), "groups holds nan for row 0"),
        (np.array([1, "a", 2], dtype=object), "ids of one type"),
        ([frozenset([1]), frozenset([2]), frozenset([1])], "can be sorted: frozenset.* holds"),
        (np.ones((2, 3)), r"X must have equally many rows, got 2 and 3"),
        ([[1, 0], [2, 0], [0, 1]], "0 and 1 only, got 2 in row 1"),
        (sp.csr_array(([1, 1], [0, 0], [0, 2, 2, 2])), "more than once, got 2 in row 0"),
        (sp.csr_array([[0.0, 1], [1, 0], [0, -1]]), r"got -1.0 in row 2"),
        ([[1.0, 0], [0, np.nan], [0, 1]], "got nan in row 1"),
        ([["a"], ["b"], ["c"]], "matrix of numbers, got shape .* dtype"),
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
    groups = check_groups(groups, 6)
    of_groups = groups.per_group(sp.csr_array(Y), "y").toarray()
    assert of_groups.tolist() == [[0, 0, 1], [0, 1, 0]]
    Y[row, label] = value
    with pytest.raises(ValueError, match="y must be the same .*" + message):
        groups.per_group(sp.csr_array(Y), "y")


def test_wrong_number_of_values():
    Y = sp.csr_array(np.ones((4, 2)))
    message = r"target must have length 3 \(the samples of X\) or 2 \(the groups\), got 4"
    with pytest.raises(ValueError, match=message):
        check_groups([1, 1, 2], 3).per_group(Y, "target")
    with pytest.raises(ValueError, match=r"y must have length 2 \(the groups\), got 4"):
        check_groups(np.ones((3, 2)), 3).per_group(Y, "y")


def test_dtypes_are_int64():
    for given in (["b", "a"], np.eye(2, dtype=np.int8), None):
        groups = check_groups(given, 2)
        assert groups.samples.dtype == groups.indptr.dtype == np.int64


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
    warn_of_group_order(ids, [[1], [0]])  # before the check, in scorers
    with pytest.raises(ValueError, match="for row 1; every sample needs an id"):
        check_groups(ids, 3)


@pytest.mark.parametrize("form", [pd.Series, pd.DataFrame])
def test_both_remedies_for_the_order_of_groups_end_its_warnings(form):
    ids = np.array(["b", "b", "a"])
    y = form([0, 1], index=["b", "a"])
    with pytest.warns(UserWarning, match=r"y.loc\[np.unique\(groups\)\], or y.set_axis\(np.uni"):
        warn_of_group_order(ids, y)
    warn_of_group_order(ids, y.loc[np.unique(ids)])
    warn_of_group_order(ids, y.set_axis(np.unique(ids)))


def test_a_column_of_ids_is_no_membership_matrix():
    with pytest.raises(ValueError, match="give ids as a 1-D array"):
        check_groups(pd.DataFrame({"page": [0, 1, 0]}), 3)
    assert check_groups(sp.csr_array([[0], [1], [0]]), 3).samples.tolist() == [1]


@pytest.mark.parametrize(
    "ids, n_groups",
    [
        ([2**63, 2**63 + 1, -1, -1], 3),  # NumPy would make floats of them
        ([2**53 + 1, 2**53, 0.5, 0.5], 3),
        ([2**70, 2**70 + 1, 2**70, 0], 3),
        (np.array([0.0, 1.0, 0.5, -np.inf]), 4),
        (["a", "b", "a", "c"], 3),
        ([b"a", b"b", b"a", b"a"], 2),
        (np.array([0, 2**64 - 1, 0, 1], dtype=np.uint64), 3),
    ],
)
def test_ids_of_any_type_and_size(ids, n_groups):
    assert len(check_groups(ids, 4)) == n_groups


@pytest.mark.parametrize(
    "ids, message",
    [
        (["1", 1, 2, 2], "groups must hold ids of one type"),
        (["a", np.nan, "a", "a"], "groups holds nan for row 1"),
        (["a", None, "a", "a"], "groups holds None for row 1"),
        ([0.0, np.nan, 1.0, 1.0], "groups holds nan for row 1"),
        (np.ma.array([0, 0, 1, 1], mask=[0, 0, 1, 0]), "groups is masked in row 2"),
        ([0, 1, 1], "groups must hold one id for each of the 4 samples"),
        (5, "groups must hold one id for each of the 4 samples"),
        ("abcd", "groups must hold one id for each of the 4 samples"),
        ([[0, np.nan]] * 4, "groups as a membership matrix must hold 0 and 1 only, got nan"),
        ([[1, 0]] * 3, "groups as a membership matrix and X must have equally many rows"),
        ([[1, 0], [1], [0, 1], [1, 0]], "groups must be a rectangular array"),
    ],
)
def test_ids_that_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        check_groups(ids, 4)


def test_forgotten_groups_warn():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 5)), np.eye(4, dtype=int)[np.arange(20) % 4]
    small = {"max_epochs": 1, "random_state": 0}
    eagle = EAGLETransformer(n_components=2)
    fits = [
        eagle.fit,
        MIMLClassifier(**small).fit,
        MIMLClassifier(**small).partial_fit,
        AggregatedLabelClassifier(
            MultiHeadClassifier(**small), EAGLETransformer(n_components=2)
        ).fit,
        make_pipeline(MaxAbsScaler(), MIMLClassifier(**small)).fit,
    ]
    for fit in fits:
        with pytest.warns(
            UserWarning, match="no groups were given: every sample is a group of its"
        ):
            fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MIMLClassifier(**small).fit(X, Y, np.arange(20) % 4)


# --- counts of labels in groups, against their definition ----------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.float16, ">i4", ">f8"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.coo_array, np.ndarray.tolist])
def test_counts_and_their_indicator(form, dtype):
    counts = np.array([[0, 3, 1], [2, 0, 0]], dtype if form is np.asarray else np.int64)
    indicator, found = split_counts(form(counts))
    dense = indicator.toarray() if sp.issparse(indicator) else indicator
    np.testing.assert_array_equal(dense, counts > 0)
    np.testing.assert_array_equal(found.toarray(), counts)
    assert sp.issparse(indicator) == sp.issparse(form(counts))


@pytest.mark.parametrize(
    "y",
    [
        np.array([[0, 1], [1, 1]]),
        np.array([[False, True]]),
        np.array([[0, 1]], np.float16),
        np.array([[0, 1]], ">i4"),
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
    with pytest.raises(ValueError, match=f"y must hold counts .*got {float(value)} in row 1"):
        split_counts(y)


def test_more_samples_with_a_label_than_the_group_has_are_refused():
    groups = check_groups([5, 5, 4, 4, 4], 5)
    counts = sp.csr_matrix([[3, 0], [0, 2]])
    assert check_group_counts(counts, groups) is counts
    message = "label 1 occurs 3 times in the group of row 0, .* 2 sample"
    with pytest.raises(ValueError, match=message):
        check_group_counts(sp.csr_matrix([[3, 0], [0, 3]]), groups)


def test_counts_are_limited_to_the_samples_of_the_group():
    counts = cap_counts(sp.csr_matrix([[9, 2], [1, 10**9]]), check_groups([5, 5, 4, 4, 4], 5))
    np.testing.assert_array_equal(counts.toarray(), [[3, 2], [1, 2]])
