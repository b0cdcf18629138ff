"""Counts of labels in groups, against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.groups import check_groups
from sklearn_xlc.groups._counts import (
    cap_counts,
    check_group_counts,
    split_counts,
)


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
