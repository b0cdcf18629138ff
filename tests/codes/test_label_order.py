"""Label orders are permutations, and clustering puts like labels under one parent."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.codes import MixedRadix, head_lengths, label_order
from sklearn_xlc.codes import _label_order as module


def planted(rng, n_clusters, cluster_size, n_features=64, rows_per_label=6):
    """Labels whose rows lie near their cluster's direction, and the cluster of each label."""
    n_labels = n_clusters * cluster_size
    cluster = rng.permutation(np.repeat(np.arange(n_clusters), cluster_size))
    directions = np.linalg.qr(rng.normal(size=(n_features, n_clusters)))[0].T
    labels = np.repeat(np.arange(n_labels), rows_per_label)
    X = directions[cluster[labels]] + 0.02 * rng.normal(size=(len(labels), n_features))
    Y = np.zeros((len(labels), n_labels), dtype=int)
    Y[np.arange(len(labels)), labels] = 1
    return np.abs(X), Y, cluster


def random_problem(rng, n_samples, n_features, n_labels):
    X = sp.random_array((n_samples, n_features), density=0.2, random_state=rng, format="csr")
    Y = sp.random_array((n_samples, n_labels), density=0.05, random_state=rng, format="csr")
    return X, Y


def assert_permutation(positions, n_labels):
    assert positions.dtype == np.int64
    np.testing.assert_array_equal(np.sort(positions), np.arange(n_labels))


@pytest.mark.parametrize("n_labels", [1, 2, 17])
def test_given_is_the_identity(n_labels):
    np.testing.assert_array_equal(label_order("given", n_labels), np.arange(n_labels))


def test_random_is_a_seeded_permutation():
    positions = label_order("random", 1000, random_state=3)
    assert_permutation(positions, 1000)
    np.testing.assert_array_equal(positions, label_order("random", 1000, random_state=3))
    assert not np.array_equal(positions, label_order("random", 1000, random_state=4))
    assert not np.array_equal(positions, np.arange(1000))


@pytest.mark.parametrize("container", [list, tuple, np.array, lambda x: np.array(x, np.uint8)])
def test_permutation_of_the_user(container):
    positions = label_order(container([2, 0, 3, 1]), 4)
    assert positions.dtype == np.int64
    assert positions.tolist() == [2, 0, 3, 1]


def test_labels_given_with_duplicates_stay_as_they_are():
    Y = sp.csr_matrix((np.ones(4), [1, 0, 1, 2], [0, 3, 4]), shape=(2, 3))
    positions = label_order("clustered", 3, X=np.eye(2), Y=Y, random_state=0)
    assert_permutation(positions, 3)
    assert Y.indices.tolist() == [1, 0, 1, 2]
    assert Y.data.tolist() == [1, 1, 1, 1]


def test_permutation_of_the_user_is_copied():
    given_positions = np.array([1, 0])
    positions = label_order(given_positions, 2)
    positions[0] = 7
    assert given_positions.tolist() == [1, 0]


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**31), st.booleans())
def test_clustered_is_a_permutation(n_labels, n_heads, seed, dense):
    rng = np.random.default_rng(seed)
    X, Y = random_problem(rng, 40, 12, n_labels)
    lengths = head_lengths(n_labels, n_heads)
    X = X.toarray() if dense else X
    assert_permutation(label_order("clustered", n_labels, X, Y, lengths, seed), n_labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse_x", [False, True])
@pytest.mark.parametrize("lengths", [(8, 5), (2, 4, 5)])
def test_planted_clusters_share_their_leading_digits(rng, dtype, sparse_x, lengths):
    X, Y, cluster = planted(rng, 8, 5)
    X = sp.csr_array(X.astype(dtype)) if sparse_x else X.astype(dtype)
    for seed in range(5):
        positions = label_order("clustered", 40, X, sp.csr_array(Y), lengths, seed)
        parents = MixedRadix(40, lengths).encode(positions)[:, :-1]
        # As many different (parent, cluster) pairs as clusters: one parent each.
        pairs = np.unique(np.column_stack([parents, cluster]), axis=0)
        assert len(pairs) == 8


def test_hierarchy_of_clusters_is_followed(rng):
    # Two worlds of two clusters: the first digit separates worlds, the second clusters.
    world = np.repeat([0, 0, 1, 1], 3)
    cluster = np.repeat([0, 1, 2, 3], 3)
    shuffle = rng.permutation(12)
    world, cluster = world[shuffle], cluster[shuffle]
    X = 3.0 * np.eye(2)[world] @ np.eye(2, 6) + np.eye(4)[cluster] @ np.eye(4, 6, k=2)
    X = X + 0.01 * rng.random(X.shape)
    for seed in range(10):
        digits = MixedRadix(12, (2, 2, 3)).encode(
            label_order("clustered", 12, X, np.eye(12), (2, 2, 3), seed)
        )
        assert len(set(zip(digits[:, 0], world))) == 2
        assert len(set(zip(digits[:, 0], digits[:, 1], cluster))) == 4


def test_default_groups_hold_sixteen(rng):
    X, Y, cluster = planted(rng, 4, 16)
    positions = label_order("clustered", 64, X, Y, random_state=0)
    assert len(set(zip(positions // 16, cluster))) == 4


def test_dense_equals_sparse(rng):
    X, Y = random_problem(rng, 80, 30, 50)
    expected = label_order("clustered", 50, X.toarray(), Y.toarray(), (10, 5), 0)
    for convert in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array):
        positions = label_order("clustered", 50, convert(X), convert(Y), (10, 5), 0)
        np.testing.assert_array_equal(positions, expected)


def test_scale_of_rows_and_stored_zeros_do_not_matter(rng):
    X, Y = random_problem(rng, 80, 30, 50)
    expected = label_order("clustered", 50, X, Y, (10, 5), 0)
    # Powers of two scale without rounding.
    scaled = sp.csr_array(sp.diags_array(2.0 ** rng.integers(-3, 4, size=80)) @ X)
    padded = sp.csr_array(Y.astype(bool).astype(float))
    padded = sp.vstack([padded, sp.csr_array(np.ones((1, 50)))]).tocsr()
    padded.data[padded.indptr[-2] :] = 0.0
    scaled = sp.vstack([scaled, sp.csr_array(np.ones((1, 30)))]).tocsr()
    positions = label_order("clustered", 50, scaled, padded, (10, 5), 0)
    np.testing.assert_array_equal(positions, expected)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_labels_without_rows_come_last_in_their_order(rng, convert):
    X, Y, _ = planted(rng, 4, 5)
    unseen = [0, 7, 19]
    Y[:, unseen] = 0
    positions = label_order("clustered", 20, convert(X), convert(Y), (4, 5), 0)
    assert_permutation(positions, 20)
    assert positions[unseen].tolist() == [17, 18, 19]


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_no_label_seen_at_all(convert):
    X, Y = convert(np.ones((3, 2))), convert(np.zeros((3, 4)))
    np.testing.assert_array_equal(label_order("clustered", 4, X, Y, (2, 2), 0), np.arange(4))


def test_identical_labels_do_not_break_the_balance():
    X, Y = np.ones((40, 3)), np.eye(40)
    assert_permutation(label_order("clustered", 40, X, Y, (8, 5), 0), 40)


def test_clustered_is_deterministic(rng):
    X, Y = random_problem(rng, 200, 40, 120)
    first = label_order("clustered", 120, X, Y, (24, 5), 1)
    np.testing.assert_array_equal(first, label_order("clustered", 120, X, Y, (24, 5), 1))
    state = np.random.RandomState(1)
    np.testing.assert_array_equal(first, label_order("clustered", 120, X, Y, (24, 5), state))


def test_input_is_left_alone(rng):
    X, Y = random_problem(rng, 40, 12, 20)
    copies = X.copy(), Y.copy()
    label_order("clustered", 20, X, Y, (5, 4), 0)
    for array, copy in zip((X, Y), copies):
        np.testing.assert_array_equal(array.toarray(), copy.toarray())
    dense = X.toarray()
    label_order("clustered", 20, dense, Y, (5, 4), 0)
    np.testing.assert_array_equal(dense, X.toarray())


def test_centroids_by_hand():
    X = sp.csr_array(np.array([[3.0, 4.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 5.0]]))
    Y = sp.csr_array(np.array([[1.0, 0, 1], [1.0, 0, 0], [0.0, 0, 1]]))
    expected = np.array([[0.6, 1.8, 0.0], [0, 0, 0], [0.6, 0.8, 1.0]])
    expected[[0, 2]] /= np.linalg.norm(expected[[0, 2]], axis=1, keepdims=True)
    for data in (X, X.toarray()):
        centroids = module._label_centroids(data, Y)
        dense = centroids.toarray() if sp.issparse(centroids) else centroids
        np.testing.assert_allclose(dense, expected, rtol=1e-12)


def test_centroids_in_blocks_equal_centroids_at_once(rng, monkeypatch):
    X, Y = random_problem(rng, 60, 20, 30)
    Y = sp.csr_array(Y != 0)
    expected = module._label_centroids(X, Y).toarray()
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 7)
    np.testing.assert_array_equal(module._label_centroids(X, Y).toarray(), expected)


def test_long_centroids_keep_their_largest_entries(monkeypatch):
    monkeypatch.setattr(module, "MAX_CENTROID_ENTRIES", 2)
    matrix = sp.csr_array(
        np.array([[1.0, -3.0, 2.0, 0.0], [0.0, 0, 0, 0], [0.0, 5, 0, 0], [1.0, 1, 1, 1]])
    )
    expected = [[0, -3, 2, 0], [0, 0, 0, 0], [0, 5, 0, 0], [1, 1, 0, 0]]
    assert module._trim_rows(matrix).toarray().tolist() == expected


def test_the_most_cohesive_of_all_starts_is_taken(rng, monkeypatch):
    vectors = rng.random((30, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def cohesion(left):  # every row's similarity to the unit centre of its half
        sums = [vectors[mask].sum(axis=0) for mask in (left, ~left)]
        centres = [total / np.linalg.norm(total) for total in sums]
        return (vectors[left] @ centres[0]).sum() + (vectors[~left] @ centres[1]).sum()

    monkeypatch.setattr(module, "N_STARTS", 200)  # enough to try every row as a start
    best = module.balanced_split(vectors, 10, np.random.RandomState(0))
    splits = [module._two_means(vectors, 10, start) for start in range(30)]
    np.testing.assert_allclose([split[1] for split in splits], [cohesion(s[0]) for s in splits])
    assert best.sum() == 10
    assert cohesion(best) == pytest.approx(max(cohesion(left) for left, _ in splits), rel=1e-12)
    assert cohesion(best) > min(cohesion(left) for left, _ in splits) + 1e-6


@pytest.mark.parametrize(
    "n_labels, sizes, expected",
    [
        (40, (5,), 20),
        (35, (5,), 20),  # 3.5 groups round to the even 4
        (6, (5,), 5),
        (11, (10, 2), 10),
        (10, (10, 2), 4),  # 2.5 groups of 2 round to the even 2
        (2, (1,), 1),
    ],
)
def test_left_size_is_whole_groups(n_labels, sizes, expected):
    assert module._left_size(n_labels, sizes) == expected


@pytest.mark.parametrize(
    "order, message",
    [
        ("sorted", "order must be one of .*'sorted'"),
        ([0, 1], r"permutation of 0, ..., 2 of shape \(3,\), got shape \(2,\)"),
        ([[0, 1, 2]], r"got shape \(1, 3\)"),
        ([0.0, 1.0, 2.0], "hold integers, got dtype float64"),
        ([0, 1, 3], "got position 3 for label 2"),
        ([0, -1, 2], "got position -1 for label 1"),
        ([0, 2, 2], "position 2 is given more than once, 1 never"),
        (None, r"got shape \(\)"),
        ([[1], [1, 2]], "order must be a rectangular array"),
    ],
)
def test_bad_order(order, message):
    with pytest.raises(ValueError, match=message):
        label_order(order, 3)


@pytest.mark.parametrize("order", ["given", "random", "clustered"])
def test_more_labels_than_memory_are_refused(order):
    with pytest.raises(MemoryError, match="more than dense_limit.*fewer labels"):
        label_order(order, 2**45)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"n_labels": 0}, ValueError, "n_labels"),
        ({"n_labels": 3.0}, TypeError, "n_labels"),
        ({"X": None}, ValueError, "needs X and Y"),
        ({"Y": None}, ValueError, "needs X and Y"),
        ({"Y": np.eye(4)}, ValueError, "X and Y must have equally many rows, got 3 and 4"),
        (
            {"Y": np.ones((3, 2))},
            ValueError,
            "equally many labels, got 3 and 2",
        ),
        ({"X": np.array([[np.nan], [0], [0]])}, ValueError, "X contains NaN"),
        ({"lengths": (2, 0)}, ValueError, r"lengths\[1\]"),
        ({"random_state": "seed"}, ValueError, "seed"),
    ],
)
def test_bad_input_of_clustered(arguments, error, message):
    valid = {"order": "clustered", "n_labels": 3, "X": np.ones((3, 1)), "Y": np.eye(3)}
    with pytest.raises(error, match=message):
        label_order(**{**valid, **arguments})
