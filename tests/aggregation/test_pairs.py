"""Groups and labels as the kernels read them, against plain enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sklearn_xlc.aggregation import aggregation
from sklearn_xlc.aggregation._pairs import make_pairs

SETTINGS = settings(derandomize=True, max_examples=60, deadline=None)


def random_data(seed, n_rows=8, n_groups=4, n_labels=5):
    rng = np.random.default_rng(seed)
    membership = (rng.random((n_rows, n_groups)) < 0.4).astype(int)
    labels = rng.integers(0, 4, size=(n_groups, n_labels)) * (
        rng.random((n_groups, n_labels)) < 0.5
    )
    return membership, labels


@SETTINGS
@given(st.integers(0, 10**6))
def test_pairs_are_all_candidates_in_order(seed):
    membership, labels = random_data(seed)
    expected = [
        (row, label, group, labels[group, label])
        for label in range(5)
        for group in range(4)
        for row in range(8)
        if labels[group, label] and membership[row, group]
    ]
    data = aggregation(membership, sparse.csr_matrix(labels))
    found = []
    for first, last in ((0, 2), (2, 3), (3, 5)):
        pairs = make_pairs(data, first, last)
        assert pairs.n_labels == last - first
        np.testing.assert_array_equal(
            np.diff(pairs.ends), np.bincount(pairs.labels, minlength=last - first)
        )
        sizes = np.diff(pairs.segments, append=len(pairs.rows))
        assert (sizes > 0).all()
        np.testing.assert_array_equal(pairs.segment_of, np.repeat(np.arange(len(sizes)), sizes))
        np.testing.assert_array_equal(pairs.labels, pairs.label_of_segment[pairs.segment_of])
        counts = pairs.counts[pairs.segment_of]
        found += list(zip(pairs.rows, pairs.labels + first, counts))
    assert found == [(row, label, count) for row, label, _, count in expected]


@SETTINGS
@given(st.integers(0, 10**6))
def test_sums_over_labels_and_segments(seed):
    membership, labels = random_data(seed)
    data = aggregation(membership, labels)
    pairs = make_pairs(data, 0, 5)
    values = np.random.default_rng(seed).normal(size=len(pairs.rows))
    by_label = [values[pairs.labels == label].sum() for label in range(5)]
    np.testing.assert_allclose(pairs.label_sum(values), by_label, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pairs.weighting(values) @ np.ones(len(values)), by_label, atol=1e-12)
    parts = [values[pairs.segment_of == segment] for segment in range(len(pairs.segments))]
    np.testing.assert_allclose(
        pairs.segment_sum(values), [part.sum() for part in parts], atol=1e-12
    )
    np.testing.assert_array_equal(pairs.segment_max(values), [part.max() for part in parts])
    np.testing.assert_array_equal(data.per_label(data.sizes), np.diff(pairs.ends))


def test_empty_groups_and_stored_zeros_are_left_out():
    membership = sparse.csr_matrix(np.array([[1, 0, 0], [1, 0, 1]]))
    labels = sparse.csr_matrix((np.array([1, 0, 2, 1]), ([0, 0, 1, 2], [0, 1, 0, 1])), shape=(3, 2))
    data = aggregation(membership, labels)
    assert data.groups.tolist() == [0, 2]
    assert data.group_ends.tolist() == [0, 1, 2]
    assert data.sizes.tolist() == [2, 0, 1]
    assert labels.nnz == 4


def test_nothing_at_all():
    data = aggregation(np.zeros((3, 2)), np.ones((2, 4)))
    pairs = make_pairs(data, 0, 4)
    assert (data.n_labels, data.n_rows, len(pairs.rows)) == (4, 3, 0)
    assert len(pairs.segment_max(np.zeros(0))) == len(pairs.segment_sum(np.zeros(0))) == 0


@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csc_array, sparse.coo_matrix, lambda a: a.tolist()]
)
def test_any_container(make):
    membership, labels = random_data(3)
    expected = aggregation(membership, labels)
    data = aggregation(make(membership), make(labels))
    for name in ("rows", "row_ends", "groups", "group_ends", "counts"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))


def test_twins_are_labels_with_the_same_groups():
    labels = np.array([[1, 1, 0, 2, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0]])
    data = aggregation(np.eye(3), labels)
    assert data.twins_before.tolist() == [0, 1, 0, 2, 0]
    assert len(set(data.signatures[[0, 1, 3]])) == 1
    assert len(set(data.signatures)) == 3
