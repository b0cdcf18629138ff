"""Nearest prototypes agree with the full table of distances, however hard the case."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context

from sklearn_xlc.geometry import seen_label_sets


def brute(features, prototypes):
    """Nearest prototype (the first of equal ones) and two least squared distances."""
    gaps = np.asarray(features, dtype=float)[:, None] - np.asarray(prototypes, dtype=float)
    squared = (gaps**2).sum(axis=2)
    padded = np.column_stack([squared, np.full(len(squared), np.inf)])
    return np.argmin(squared, axis=1), np.sort(padded, axis=1)[:, :2]


def assert_exact(features, prototypes, **kwargs):
    indices, distances = seen_label_sets(features, prototypes, **kwargs)
    expected, least = brute(features, prototypes)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances, least, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_sets", [1, 2, 3, 500])
def test_nearest_of_random_prototypes(n_sets, dtype, rng):
    prototypes = rng.standard_normal((n_sets, 20)).astype(dtype)
    assert_exact(rng.standard_normal((100, 20)).astype(dtype), prototypes)


def test_mixed_precision(rng):
    prototypes = rng.standard_normal((50, 6))
    assert_exact(rng.standard_normal((40, 6)).astype(np.float32), prototypes)
    assert_exact(rng.standard_normal((40, 6)), prototypes.astype(np.float32))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 30), st.integers(1, 5), st.integers(0, 10**6), st.booleans()
)
def test_ties_go_to_the_first(n_samples, n_sets, n_features, seed, single):
    rng = np.random.default_rng(seed)
    dtype = np.float32 if single else np.float64
    features = rng.integers(-2, 3, (n_samples, n_features)).astype(dtype)
    prototypes = rng.integers(-2, 3, (n_sets, n_features)).astype(dtype)
    indices, distances = seen_label_sets(features, prototypes)
    expected, least = brute(features, prototypes)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(distances, least)


def test_differences_below_single_precision_decide(rng):
    base = rng.standard_normal(10)
    prototypes = base + 1e-9 * rng.standard_normal((40, 10))
    features = base + 1e-9 * rng.standard_normal((30, 10))
    assert_exact(features, prototypes)
    # A point far away makes single precision useless for all the rest.
    far = np.vstack([prototypes, np.full(10, 1e6)])
    assert_exact(features, far)


def test_a_common_offset_costs_no_digits(rng):
    assert_exact(1e7 + rng.standard_normal((50, 8)), 1e7 + rng.standard_normal((60, 8)))


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_any_unit(unit, rng):
    prototypes, features = rng.standard_normal((60, 8)), rng.standard_normal((50, 8))
    indices, distances = seen_label_sets(unit * features, unit * prototypes)
    expected, least = seen_label_sets(features, prototypes)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances / unit**2, least, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-310, 1e-45])
@pytest.mark.parametrize("n_sets", [2, 8])
def test_prototypes_much_closer_together_than_samples(n_sets, unit, rng):
    prototypes, features = unit * rng.standard_normal((n_sets, 5)), rng.standard_normal((30, 5))
    assert_exact(features, prototypes)


def test_all_prototypes_alike():
    indices, distances = seen_label_sets(np.ones((3, 4)), np.zeros((200, 4)))
    assert indices.tolist() == [0, 0, 0]
    assert np.all(distances == 4)


@pytest.mark.parametrize("n_bytes", [1, 3000, 50_000])
def test_working_memory_changes_nothing(n_bytes, rng):
    features, prototypes = rng.standard_normal((70, 5)), rng.standard_normal((40, 5))
    prototypes[20:] = prototypes[:20]
    with config_context(working_memory=n_bytes / 2**20):
        assert_exact(features, prototypes)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: seen_label_sets([[1.0]], [[1.0, 2.0]]),
            ValueError,
            "equally many columns, got 1 and 2",
        ),
        (lambda: seen_label_sets([[np.nan]], [[1.0]]), ValueError, "features contains NaN"),
        (lambda: seen_label_sets([[1.0]], np.zeros((0, 1))), ValueError, "minimum of 1"),
        (lambda: seen_label_sets([1.0], [[1.0]]), ValueError, "Expected 2D array"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_squares_that_overflow_are_refused():
    with pytest.raises(ValueError, match="features holds numbers above .* squares overflow"):
        seen_label_sets([[1e300, 0.0]], [[0.0, 1.0]])
