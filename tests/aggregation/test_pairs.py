"""Groups, labels and pairs as the kernels read them, against plain enumeration."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from _factories import make_groups
from sklearn_xlc.aggregation import (
    aggregation,
    assign_labels,
    grlr_objective,
    learn_embeddings,
    make_background,
    sharing_rates,
)
from sklearn_xlc.aggregation._pairs import make_pairs
from sklearn_xlc.groups import check_groups

SETTINGS = settings(derandomize=True, max_examples=25, deadline=None)


@SETTINGS
@given(st.integers(0, 10**6))
def test_pairs_are_all_candidates_in_order(seed):
    _, membership, labels = make_groups(seed, 8, 4, 5, most=3)
    expected = [
        (row, label, group, labels[group, label])
        for label in range(5)
        for group in range(4)
        for row in range(8)
        if labels[group, label] and membership[row, group]
    ]
    data = aggregation(membership, sp.csr_matrix(labels))
    found = []
    for first, last in ((0, 2), (2, 3), (3, 5)):
        pairs = make_pairs(data, first, last)
        assert pairs.n_labels == last - first
        np.testing.assert_array_equal(
            np.diff(pairs.indptr), np.bincount(pairs.labels, minlength=last - first)
        )
        sizes = np.diff(pairs.segments, append=len(pairs.samples))
        assert (sizes > 0).all()
        np.testing.assert_array_equal(pairs.segment_of, np.repeat(np.arange(len(sizes)), sizes))
        np.testing.assert_array_equal(pairs.labels, pairs.label_of_segment[pairs.segment_of])
        counts = pairs.counts[pairs.segment_of]
        found += list(zip(pairs.samples, pairs.labels + first, counts))
    assert found == [(row, label, count) for row, label, _, count in expected]


@SETTINGS
@given(st.integers(0, 10**6))
def test_sums_over_labels_and_segments(seed):
    _, membership, labels = make_groups(seed, 8, 4, 5, most=3)
    data = aggregation(membership, labels)
    pairs = make_pairs(data, 0, 5)
    values = np.random.default_rng(seed).normal(size=len(pairs.samples))
    by_label = [values[pairs.labels == label].sum() for label in range(5)]
    np.testing.assert_allclose(pairs.label_sum(values), by_label, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pairs.weighting(values) @ np.ones(len(values)), by_label, atol=1e-12)
    parts = [values[pairs.segment_of == segment] for segment in range(len(pairs.segments))]
    np.testing.assert_allclose(
        pairs.segment_sum(values), [part.sum() for part in parts], atol=1e-12
    )
    np.testing.assert_array_equal(pairs.segment_max(values), [part.max() for part in parts])
    np.testing.assert_array_equal(data.n_pairs, np.diff(pairs.indptr))


def test_empty_groups_and_stored_zeros_are_left_out():
    membership = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 1]]))
    labels = sp.csr_matrix((np.array([1, 0, 2, 1]), ([0, 0, 1, 2], [0, 1, 0, 1])), shape=(3, 2))
    data = aggregation(membership, labels)
    assert data.labels.indices.tolist() == [0, 2]
    assert data.labels.indptr.tolist() == [0, 1, 2]
    assert data.groups.sizes.tolist() == [2, 0, 1]
    assert labels.nnz == 4


def test_nothing_at_all():
    data = aggregation(np.zeros((3, 2)), np.ones((2, 4)))
    pairs = make_pairs(data, 0, 4)
    assert (data.n_labels, data.groups.n_samples, len(pairs.samples)) == (4, 3, 0)
    assert len(pairs.segment_max(np.zeros(0))) == len(pairs.segment_sum(np.zeros(0))) == 0


@pytest.mark.parametrize("make", [np.asarray, sp.csc_array, sp.coo_matrix, lambda a: a.tolist()])
def test_any_container(make):
    _, membership, labels = make_groups(3, 8, 4, 5, most=3)
    expected = aggregation(membership, labels)
    data = aggregation(make(membership), make(labels))
    for name in ("samples", "indptr"):
        found = getattr(data.groups, name)
        np.testing.assert_array_equal(found, getattr(expected.groups, name))
    for name in ("indices", "indptr", "data"):
        found = getattr(data.labels, name)
        np.testing.assert_array_equal(found, getattr(expected.labels, name))


def test_groups_of_ids():
    expected = aggregation([[0, 1], [1, 0], [0, 1]], np.eye(2)).groups
    groups = aggregation(check_groups([7, 3, 7], 3), np.eye(2)).groups
    np.testing.assert_array_equal(groups.samples, expected.samples)
    np.testing.assert_array_equal(groups.indptr, expected.indptr)


def test_labels_of_some_groups():
    data = aggregation(np.eye(3), [[1, 0], [2, 1], [0, 3]])
    part = data.of_groups(np.array([False, True, True]))
    assert part.labels.toarray().tolist() == [[0, 0], [2, 1], [0, 3]]
    assert part.groups is data.groups


def test_identical_labels_have_the_same_groups():
    labels = np.array([[1, 1, 0, 2, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0]])
    data = aggregation(np.eye(3), labels)
    assert data.n_identical_before.tolist() == [0, 1, 0, 2, 0]
    assert len(set(data.signatures[[0, 1, 3]])) == 1
    assert len(set(data.signatures)) == 3


def test_as_many_rows_of_labels_as_groups():
    with pytest.raises(ValueError, match="equally many groups, got 2 and 3"):
        aggregation(np.eye(2), np.ones((3, 1)))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda X, data: learn_embeddings(X, data),
        lambda X, data: sharing_rates(X, data),
        lambda X, data: grlr_objective(X, data, np.eye(3, 6)),
        lambda X, data: assign_labels(X, data, learn_embeddings(np.eye(6), data)),
    ],
    ids=["learn_embeddings", "sharing_rates", "grlr_objective", "assign_labels"],
)
def test_kernels_refuse_corrupt_samples(kernel):
    data = aggregation(np.kron(np.eye(3), [[1], [1]]), np.eye(3))
    broken = sp.csr_array(np.eye(6))
    broken.indices[1] = 10**6
    with pytest.raises(ValueError, match="X is not a valid CSR matrix"):
        kernel(broken, data)
    with pytest.raises(ValueError, match="X and groups must have equally many samples"):
        kernel(np.eye(6)[:4], data)


def test_the_background_refuses_corrupt_samples():
    broken = sp.csr_array(np.eye(6))
    broken.indptr[3] = 10**6
    with pytest.raises(ValueError, match="X is not a valid CSR matrix"):
        make_background(broken, 2, 0.1, np.random.RandomState(0))
