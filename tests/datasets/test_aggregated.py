"""Aggregated data sets: groups partition the rows, and carry the labels of their rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel

SETTINGS = settings(derandomize=True, max_examples=25, deadline=None)


@SETTINGS
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from(["set", "list"]),
    st.sampled_from(["random", "cluster"]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 10**6),
)
def test_groups_carry_the_labels_of_their_rows(n, size, merge, method, noise, seed):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, 5)) < 0.3).astype(float)
    X = rng.random((n, 3))
    grouped, groups = make_aggregated(Y, size, X, method, merge, noise=noise, random_state=seed)
    assert grouped.shape == Y.shape
    assert grouped.dtype == np.int32
    assert grouped.has_sorted_indices
    assert groups.shape == (n,)
    np.testing.assert_array_equal(np.unique(groups), np.arange(groups.max() + 1))
    assert np.bincount(groups).max() <= size
    for row in range(n):
        counts = Y[groups == groups[row]].sum(axis=0)
        expected = counts > 0 if merge == "set" else counts
        np.testing.assert_array_equal(grouped[[row]].toarray()[0], expected)


def test_labels_given_with_duplicates_stay_as_they_are():
    Y = sp.csr_matrix((np.ones(4), [1, 0, 1, 2], [0, 3, 4]), shape=(2, 3))
    grouped, _ = make_aggregated(Y, group_size=2, random_state=0)
    assert Y.indices.tolist() == [1, 0, 1, 2]
    assert Y.data.tolist() == [1, 1, 1, 1]
    assert grouped.toarray().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_random_groups_are_full_but_one():
    _, groups = make_aggregated(np.ones((103, 1)), 10, random_state=0)
    assert sorted(np.bincount(groups)) == [3, *[10] * 10]


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_clusters_are_found(convert):
    centres = np.array([[9.0, 1, 1], [8, 2, 1], [1, 9, 1], [1, 8, 3]]) * 10
    X, cluster = make_blobs(64, centers=centres, cluster_std=0.1, random_state=0)
    Y = np.eye(4)[cluster]
    for seed in range(5):
        grouped, groups = make_aggregated(
            Y, X=convert(X), method="cluster", depth=2, random_state=seed
        )
        assert np.bincount(groups).tolist() == [16] * 4
        np.testing.assert_array_equal(grouped.toarray(), Y)


def test_depth_and_group_size():
    X = np.random.default_rng(0).random((100, 4))
    for depth in range(5):
        _, groups = make_aggregated(
            np.ones((100, 1)), X=X, method="cluster", depth=depth, random_state=0
        )
        sizes = np.bincount(groups)
        assert len(sizes) == 2**depth
        assert sizes.max() - sizes.min() <= 1
    _, groups = make_aggregated(np.ones((100, 1)), 10, X=X, method="cluster", random_state=0)
    assert len(np.bincount(groups)) == 16


@pytest.mark.integration
def test_noise_moves_from_clustered_to_random():
    X, Y = make_extreme_multilabel(600, 100, 30, random_state=0)

    def labels_a_group(**kwargs):
        grouped, groups = make_aggregated(Y, 10, X, random_state=0, **kwargs)
        return np.mean(np.diff(grouped.indptr))

    clustered = [labels_a_group(method="cluster", noise=noise) for noise in (0, 0.3, 0.6, 1)]
    assert (np.diff(clustered) > 0).all()
    sizes = [
        sorted(
            np.bincount(
                make_aggregated(Y, 10, X, "cluster", noise=noise, random_state=0)[1]
            ).tolist()
        )
        for noise in (0, 1)
    ]
    assert sizes[0] == sizes[1]


def test_same_seed_same_groups():
    Y, X = np.ones((50, 2)), np.random.default_rng(0).random((50, 3))
    for method in ("random", "cluster"):
        first, second, other = (
            make_aggregated(Y, 5, X, method, noise=0.2, random_state=seed)[1] for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()


def test_input_is_left_alone():
    Y = sp.csr_array(np.array([[3.0, 0.0], [0.0, 2.0]]))
    X = np.array([[2.0, 0.0], [0.0, 5.0]])
    make_aggregated(Y, 1, X, "cluster", random_state=0)
    assert Y.data.tolist() == [3, 2]
    assert X.tolist() == [[2, 0], [0, 5]]


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ({"group_size": 0}, ValueError, "group_size must be an integer >= 1, got 0"),
        ({"group_size": 2.0}, TypeError, "group_size must be an integer >= 1, got 2.0"),
        ({"method": "tree"}, ValueError, "method must be '.*got 'tree'"),
        ({"merge": None}, ValueError, "merge must be '.*got None"),
        ({"merge": np.arange(3)}, ValueError, "merge must be '"),
        ({"method": np.empty(0)}, ValueError, "method must be '"),
        ({"method": "cluster"}, ValueError, "needs X"),
        ({"method": "cluster", "X": np.ones((3, 1))}, ValueError, "equally many rows, got 3 and 4"),
        ({"method": "cluster", "X": np.ones((4, 1)), "depth": 3}, ValueError, "at least 8 samples"),
        ({"depth": -1}, ValueError, "depth must be an integer >= 0"),
        ({"depth": True}, TypeError, "depth must be an integer >= 0"),
        ({"noise": 1.5}, ValueError, r"noise must be finite and in \[0, 1\], got 1.5"),
        ({"noise": "some"}, TypeError, "noise must be .* of type str"),
        ({"Y": [[1, np.nan]]}, ValueError, "Y contains NaN"),
        ({"Y": [["a"], ["a", "b"]]}, ValueError, "Y must be a rectangular array"),
        ({"Y": ["a", "b"]}, ValueError, r"Y must be an indicator of shape .*, got \(2,\)"),
    ],
)
def test_bad_input(wrong, error, message):
    with pytest.raises(error, match=message):
        make_aggregated(**{"Y": np.ones((4, 2)), **wrong})


def test_broken_sparse_matrices_are_refused():
    X, Y = sp.csr_matrix(np.eye(4)), sp.csr_matrix(np.eye(4, dtype=int))
    X.indices[1] = Y.indices[1] = 10**6
    with pytest.raises(ValueError, match="Y is not a valid CSR matrix: indices must be <"):
        make_aggregated(Y, 2)
    with pytest.raises(ValueError, match="X is not a valid CSR matrix: indices must be <"):
        make_aggregated(np.eye(4, dtype=int), 2, X, method="cluster")
