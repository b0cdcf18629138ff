"""Decoders agree with a search through every label set, ties and runners-up included."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, logsumexp

from sklearn_xlc.geometry import (
    divergence_label_sets,
    greedy_label_sets,
    label_sets_to_csr,
    nearest_label_sets,
    simplex_etf,
)

SIZES = [(K, M) for K in range(2, 13) for M in range(1, min(K, 6) + 1)]


def all_sets(n_labels, max_labels):
    """Indicator of all label sets: fewest labels first, lowest ids first."""
    rows = [
        np.isin(np.arange(n_labels), chosen)
        for m in range(1, max_labels + 1)
        for chosen in itertools.combinations(range(n_labels), m)
    ]
    return np.array(rows, dtype=float)


def two_least(distances, tolerance=1e-9):
    """Index of the least distance (the first of equal ones), and the two least distances."""
    ordered = np.sort(np.column_stack([distances, np.full(len(distances), np.inf)]), axis=1)
    best = np.argmax(distances <= ordered[:, :1] + tolerance, axis=1)
    return best, ordered[:, :2]


def random_logits(rng, n_samples, n_labels):
    """Centred logits, half of them with many ties."""
    logits = 2 * rng.standard_normal((n_samples, n_labels))
    logits[::2] = np.round(logits[::2])
    return logits - logits.mean(axis=1, keepdims=True)


def features_of(logits, W):
    """The features whose products with the simplex are these centred logits."""
    return (len(W) - 1) / len(W) * logits @ W


@pytest.mark.parametrize("n_labels, max_labels", SIZES)
def test_nearest_is_the_nearest_prototype_of_all(n_labels, max_labels, rng):
    W = simplex_etf(n_labels, n_labels + 1, random_state=0)
    logits = random_logits(rng, 250, n_labels)  # 250 rows for 57 sizes: 14 250 cases
    features = features_of(logits, W)
    np.testing.assert_allclose(features @ W.T, logits, atol=1e-12)
    scales = rng.uniform(0.3, 2.5, max_labels + 2)
    sets = all_sets(n_labels, max_labels)
    prototypes = scales[sets.sum(axis=1).astype(int) - 1, None] * (sets @ W)
    squared = ((features[:, None] - prototypes) ** 2).sum(axis=2)
    best, expected = two_least(squared)

    norms = (features**2).sum(axis=1)
    sizes, distances = nearest_label_sets(logits, scales, max_labels, squared_norms=norms)
    np.testing.assert_array_equal(sizes, sets[best].sum(axis=1))
    np.testing.assert_allclose(distances, expected, atol=1e-10)
    np.testing.assert_array_equal(label_sets_to_csr(logits, sizes).toarray(), sets[best])
    relative = nearest_label_sets(logits, scales, max_labels)[1]
    np.testing.assert_allclose(relative + norms[:, None], expected, atol=1e-10)


@pytest.mark.parametrize("n_labels", [3, 5, 9])
def test_nearest_breaks_ties_between_sizes_by_fewest_labels(n_labels, rng):
    # With a power of two in the denominator all distances are exact, and equal ones are equal.
    logits = rng.integers(-8, 9, (2000, n_labels)) / 4
    scales = np.array([1, 1, 1, 0.5, 0.5, 2])
    max_labels = min(6, n_labels)
    sets = all_sets(n_labels, max_labels)
    m = sets.sum(axis=1)
    C = scales[m.astype(int) - 1]
    squared = C**2 * m * (n_labels - m) / (n_labels - 1) - 2 * C * (logits @ sets.T)
    best, expected = two_least(squared, tolerance=0)
    sizes, distances = nearest_label_sets(logits, scales)
    np.testing.assert_array_equal(distances, expected)
    np.testing.assert_array_equal(label_sets_to_csr(logits, sizes).toarray(), sets[best])
    tied = expected[:, 0] == expected[:, 1]
    between = [len(set(m[row == row.min()])) > 1 for row in squared]
    assert tied.any()
    assert np.any(between)


def test_scale_zero_puts_all_sets_of_a_size_at_the_origin():
    sizes, distances = nearest_label_sets([[2.0, -1.0, -1.0]], [0.0, 5.0])
    assert sizes.tolist() == [1]
    assert distances.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("n_labels, max_labels", SIZES)
def test_divergence_is_the_least_of_all_sets(n_labels, max_labels, rng):
    logits = random_logits(rng, 100, n_labels)
    temperature = float(rng.uniform(0.3, 2))
    sets = all_sets(n_labels, max_labels)
    uniform = sets / sets.sum(axis=1, keepdims=True)
    entropy = -np.log(sets.sum(axis=1))
    log_p = log_softmax(logits / temperature, axis=1)
    best, expected = two_least(entropy - log_p @ uniform.T)

    normalizers = logsumexp(logits / temperature, axis=1)
    sizes, distances = divergence_label_sets(
        logits, temperature, max_labels, log_normalizers=normalizers
    )
    np.testing.assert_array_equal(sizes, sets[best].sum(axis=1))
    np.testing.assert_allclose(distances, expected, atol=1e-10)
    np.testing.assert_array_equal(label_sets_to_csr(logits, sizes).toarray(), sets[best])
    assert distances.min() > -1e-10
    # Log-probabilities, logits and shifted logits are the same to it.
    shifted = divergence_label_sets(logits + 7.5, temperature, max_labels)
    np.testing.assert_array_equal(shifted[0], sizes)
    np.testing.assert_allclose(
        divergence_label_sets(log_p * temperature, temperature, max_labels)[1], expected, atol=1e-10
    )


def test_divergence_reads_back_what_the_loss_asks_for(rng):
    Y = rng.random((50, 30)) < 0.2
    Y[:, 0] |= ~Y.any(axis=1)
    logits = np.log(np.where(Y, 1.0, 1e-6) / Y.sum(axis=1, keepdims=True))
    for temperature in (0.5, 1.0, 1.5):
        sizes, _ = divergence_label_sets(logits, temperature)
        np.testing.assert_array_equal(label_sets_to_csr(logits, sizes).toarray(), Y)


def test_nearest_reads_back_prototypes(rng):
    W = simplex_etf(40, 39)
    scales = np.array([3.0, 2.2, 1.7, 1.5])
    sizes = rng.integers(1, 5, 200)
    Y = np.array([np.isin(np.arange(40), rng.permutation(40)[:m]) for m in sizes])
    features = scales[sizes - 1, None] * (Y @ W)
    found, distances = nearest_label_sets(
        features @ W.T, scales, squared_norms=(features**2).sum(axis=1)
    )
    np.testing.assert_array_equal(label_sets_to_csr(features @ W.T, found).toarray(), Y)
    np.testing.assert_allclose(distances[:, 0], 0, atol=1e-12)


def test_the_largest_logits_are_enough(rng):
    logits = rng.standard_normal((60, 200)).astype(np.float32)
    scales = rng.uniform(0.5, 1, 4)
    ids = np.argsort(-logits, axis=1)[:, :9]
    top = np.take_along_axis(logits, rng.permuted(ids, axis=1), axis=1)
    for whole, part in [
        (nearest_label_sets(logits, scales), nearest_label_sets(top, scales, n_labels=200)),
        (nearest_label_sets(logits, scales, 3), nearest_label_sets(top, scales, 3, n_labels=200)),
        (
            divergence_label_sets(logits, 0.4, 8),
            divergence_label_sets(top, 0.4, 8, n_labels=200),
        ),
    ]:
        np.testing.assert_array_equal(whole[0], part[0])
        np.testing.assert_array_equal(whole[1], part[1])
    sizes = divergence_label_sets(logits, 0.4, 8)[0]
    assert len(set(sizes)) > 2
    from_logits = label_sets_to_csr(logits, sizes)
    from_ids = label_sets_to_csr(ids.astype(np.int32), sizes, n_labels=200)
    np.testing.assert_array_equal(from_logits.toarray(), from_ids.toarray())


def test_one_set_alone_has_no_runner_up():
    sizes, distances = divergence_label_sets([[3.0]])
    assert sizes.tolist() == [1]
    assert distances.tolist() == [[-3.0, np.inf]]
    # Two labels, both or the larger one: three sets of at most two labels.
    assert divergence_label_sets([[1.0, 0.0]])[0].tolist() == [2]
    assert divergence_label_sets([[2.0, 0.0]])[0].tolist() == [1]


def test_indicator_form(rng):
    logits = rng.integers(0, 3, (20, 8)).astype(float)
    sizes = rng.integers(0, 9, 20)
    sets = label_sets_to_csr(logits, sizes)
    assert isinstance(sets, sp.csr_array)
    assert sets.dtype == np.int8
    assert sets.has_canonical_format
    np.testing.assert_array_equal(sets.sum(axis=1), sizes)
    assert label_sets_to_csr(logits, np.zeros(20)).nnz == 0


def test_arguments_are_not_changed(rng):
    logits, sizes = rng.standard_normal((10, 6)), rng.integers(1, 5, 10)
    before = logits.copy(), sizes.copy()
    nearest_label_sets(logits, np.ones(3))
    divergence_label_sets(logits, max_labels=2)
    label_sets_to_csr(logits, sizes)
    np.testing.assert_array_equal(logits, before[0])
    np.testing.assert_array_equal(sizes, before[1])


Z = np.zeros((2, 3))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: nearest_label_sets(Z, [1.0, -1.0]),
            ValueError,
            "Negative values in data passed to scales",
        ),
        (lambda: nearest_label_sets(Z, [[1.0]]), ValueError, "scales must be 1-D"),
        (lambda: nearest_label_sets(Z, [np.nan]), ValueError, "scales contains NaN"),
        (lambda: nearest_label_sets(Z, [1.0], 2), ValueError, "max_labels must be .*, got 2"),
        (lambda: nearest_label_sets(Z, [1.0], 1.0), TypeError, "max_labels must be an integer"),
        (lambda: nearest_label_sets(Z[:, :1], [1.0]), ValueError, "at least 2 labels, got 1"),
        (
            lambda: nearest_label_sets(Z, [1.0], n_labels=2),
            ValueError,
            "n_labels must be .*, got 2",
        ),
        (lambda: nearest_label_sets(Z, np.ones(3), n_labels=9), ValueError, "the 4 largest of 9"),
        (lambda: nearest_label_sets(Z + np.inf, [1.0]), ValueError, "logits contains infinity"),
        (
            lambda: nearest_label_sets(Z, [1.0], squared_norms=[1.0]),
            ValueError,
            r"squared_norms and logits must have equally many",
        ),
        (lambda: divergence_label_sets(Z, 0.0), ValueError, "temperature must be .*, got 0.0"),
        (lambda: divergence_label_sets(Z, np.inf), ValueError, "temperature must be finite"),
        (lambda: divergence_label_sets(Z, "1"), TypeError, "temperature must be finite"),
        (
            lambda: divergence_label_sets(Z, max_labels=4),
            ValueError,
            "max_labels must be .*, got 4",
        ),
        (lambda: label_sets_to_csr(Z, [1, 4]), ValueError, "got 4 in row 1"),
        (lambda: label_sets_to_csr(Z, [0.5, 1]), ValueError, "got 0.5 in row 0"),
        (lambda: label_sets_to_csr(Z, [1]), ValueError, r"sizes and logits must have equally many"),
        (lambda: label_sets_to_csr(Z[0], [1]), ValueError, "ranked must be 2-D"),
        (lambda: label_sets_to_csr([[1], [1, 2]], [1]), ValueError, "ranked must be a rectangular"),
        (
            lambda: label_sets_to_csr(Z, [1, 1], 5),
            ValueError,
            "n_labels and logits must have",
        ),
        (lambda: label_sets_to_csr([[0, 1]], [1]), ValueError, "n_labels must be given"),
        (lambda: label_sets_to_csr([[0, 2]], [2], 2), ValueError, "between 0 and 1, got 2"),
        (lambda: label_sets_to_csr([[-1, 1]], [1], 2), ValueError, "between 0 and 1, got -1"),
        (lambda: label_sets_to_csr([[1, 1]], [2], 2), ValueError, "name a label twice"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- greedy, for weights that are no simplex ----------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_greedy_equals_nearest_on_a_simplex(seed):
    rng = np.random.default_rng(seed)
    W = simplex_etf(7, 9, seed)
    features, scales = rng.normal(size=(50, 9)), rng.uniform(0.2, 2.0, size=4)
    sizes, distances = greedy_label_sets(features @ W.T, W, scales)
    expected, others = nearest_label_sets(features @ W.T, scales)
    np.testing.assert_array_equal(sizes, expected)
    np.testing.assert_allclose(distances[:, 0], others[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_greedy_distances_are_those_of_the_sets_it_names(seed):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(8, 3)) + 2.0
    centred = W - W.mean(axis=0)
    features, scales = rng.normal(size=(30, 3)), rng.uniform(0.2, 2.0, size=5)
    sizes, distances = greedy_label_sets(features @ W.T, W, scales, max_labels=4)
    order = np.argsort(-(features @ W.T), axis=1)
    for row, h in enumerate(features):
        every = [
            np.sum((h - scales[m - 1] * centred[order[row, :m]].sum(axis=0)) ** 2) - h @ h
            for m in range(1, 5)
        ]
        assert sizes[row] == 1 + np.argmin(every)
        np.testing.assert_allclose(distances[row], np.sort(every)[:2], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "logits, weights, scales, message",
    [
        (
            np.ones((2, 3)),
            np.ones((4, 2)),
            [1.0],
            "logits and weights must have equally many labels, got 3 and 4",
        ),
        (np.ones((2, 3)), np.ones((3, 2)), [-1.0], "Negative values in data passed to scales"),
        (np.ones(3), np.ones((3, 2)), [1.0], "Expected 2D array"),
    ],
)
def test_greedy_refuses(logits, weights, scales, message):
    with pytest.raises(ValueError, match=message):
        greedy_label_sets(logits, weights, scales)
