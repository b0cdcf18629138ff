"""Fixed directions: the Gram matrix where a simplex exists, coherence where none does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.geometry import coherence, simplex_etf, welch_bound

#: No simplex; the frame is cyclic or made of polynomial phases.
FRAMES = [(9, 2), (10, 2), (7, 3), (8, 3), (50, 7), (120, 118), (200, 128), (500, 16)]
FRAMES += [(1000, 33), (1000, 128), (3000, 64), (10_000, 128)]


def gram(n_classes):
    """Equation 6 of the paper."""
    n = n_classes
    return n / (n - 1) * (np.eye(n) - np.ones((n, n)) / n)


@pytest.mark.parametrize("random_state", [None, 0])
def test_simplex_is_equation_6(random_state):
    for n_classes in (*range(2, 41), 100, 200):
        for n_features in range(n_classes - 1, n_classes + 6):
            W = simplex_etf(n_classes, n_features, random_state)
            assert W.shape == (n_classes, n_features)
            assert np.abs(W @ W.T - gram(n_classes)).max() < 1e-12


def test_embeddings_that_need_no_seed():
    W = simplex_etf(4, 6)
    np.testing.assert_allclose(W[:, :4], gram(4) * math.sqrt(3 / 4), atol=1e-15)
    assert not W[:, 4:].any()
    np.testing.assert_array_equal(simplex_etf(4, 3), simplex_etf(4, 3))


@pytest.mark.parametrize("n_classes, n_features", [(6, 9), (6, 5), (60, 8), (1000, 64)])
def test_seeds_turn_the_rows(n_classes, n_features):
    first = simplex_etf(n_classes, n_features, 0)
    np.testing.assert_array_equal(first, simplex_etf(n_classes, n_features, 0))
    np.testing.assert_array_equal(
        first, simplex_etf(n_classes, n_features, np.random.RandomState(0))
    )
    second = simplex_etf(n_classes, n_features, 1)
    assert np.abs(first - second).max() > 0.1
    # All features share the energy of the rows, also those that are zero without a turn.
    seeds = range(200 if n_classes < 1000 else 20)
    energy = np.mean([(simplex_etf(n_classes, n_features, s) ** 2).sum(0) for s in seeds], 0)
    np.testing.assert_allclose(energy, n_classes / n_features, rtol=0.25)


@pytest.mark.parametrize("n_classes, n_features", FRAMES)
@pytest.mark.parametrize("random_state", [None, 3])
def test_frames_are_unit_and_centred(n_classes, n_features, random_state):
    W = simplex_etf(n_classes, n_features, random_state)
    assert W.shape == (n_classes, n_features)
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), 1, rtol=1e-12)
    assert np.linalg.norm(W.sum(axis=0)) < math.sqrt(n_features) + 1e-9


@pytest.mark.parametrize(
    "n_classes, n_features",
    [
        pytest.param(*case, marks=pytest.mark.slow if case[0] > 3000 else ())
        for case in FRAMES
        if case[1] > 2
    ],
)
def test_frames_are_less_coherent_than_random_rows(n_classes, n_features):
    rng = np.random.default_rng(0)
    found = coherence(simplex_etf(n_classes, n_features))
    assert welch_bound(n_classes, n_features) <= found
    assert found < 0.9 * coherence(rng.standard_normal((n_classes, n_features)))


@pytest.mark.parametrize(
    "n_classes, n_features, prime, degree",
    [(1000, 128, 61, 2), (7442, 128, 61, 2), (2000, 100, 47, 2), (9000, 256, 127, 2)],
)
def test_polynomial_frames_keep_the_bound_of_weil(n_classes, n_features, prime, degree):
    W = simplex_etf(n_classes, n_features)
    assert coherence(W.astype(np.float32)) <= (degree - 1) / math.sqrt(prime) + 1e-6
    block = W[2 * prime : 4 * prime]
    np.testing.assert_allclose(block @ block.T, np.eye(2 * prime)[: len(block)], atol=1e-12)


def test_polynomials_of_degree_three_stay_below_their_bound():
    # Degree 3 begins with row 2 p^2; the rows around it hold polynomials of both degrees.
    prime = 127
    W = simplex_etf(100_000, 256)
    around = W[2 * prime**2 - 1000 : 2 * prime**2 + 1000]
    assert 1 / math.sqrt(prime) < coherence(around) <= 2 / math.sqrt(prime) + 1e-12
    assert np.linalg.norm(W.sum(axis=0)) < 16


@pytest.mark.parametrize("n_classes, n_features", [(9, 2), (8, 3), (50, 8), (64, 31), (200, 128)])
def test_cyclic_frames_are_tight_and_depend_on_differences(n_classes, n_features):
    W = simplex_etf(n_classes, n_features)
    np.testing.assert_allclose(
        W.T @ W, n_classes / n_features * np.eye(n_features), atol=1e-10 * n_classes
    )
    cosines = W @ W.T
    np.testing.assert_allclose(cosines[1:, 1:], cosines[:-1, :-1], atol=1e-12)


def test_in_the_plane_the_frame_is_a_regular_polygon():
    W = simplex_etf(7, 2)
    angles = np.arange(7) * 2 * np.pi / 7
    np.testing.assert_allclose(W, np.column_stack([np.cos(angles), np.sin(angles)]), atol=1e-12)


def test_one_feature_separates_two_classes_only():
    np.testing.assert_allclose(simplex_etf(2, 1), [[1 / 1.0], [-1.0]], atol=1e-15)
    assert set(simplex_etf(5, 1).ravel()) == {-1.0, 1.0}


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 1000))
def test_coherence_by_its_definition(n_classes, n_features, seed):
    frame = np.random.default_rng(seed).standard_normal((n_classes, n_features))
    unit = frame / np.linalg.norm(frame, axis=1, keepdims=True)
    cosines = np.abs(unit @ unit.T)
    np.fill_diagonal(cosines, 0)
    assert coherence(frame) == pytest.approx(cosines.max(), abs=1e-14)
    assert welch_bound(n_classes, n_features) <= cosines.max() + 1e-12


def test_coherence_in_blocks(rng, monkeypatch):
    frame = rng.standard_normal((30, 5))
    whole = coherence(frame)
    for block in (1, 60, 100):
        monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", block)
        assert coherence(frame) == pytest.approx(whole, rel=1e-14)


def test_frames_in_blocks(monkeypatch):
    whole = [simplex_etf(1000, 128), simplex_etf(40, 9)]
    monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", 1000)
    np.testing.assert_array_equal(simplex_etf(1000, 128), whole[0])
    np.testing.assert_array_equal(simplex_etf(40, 9), whole[1])


def test_welch_bound_is_attained_by_the_simplex():
    assert welch_bound(7, 6) == pytest.approx(1 / 6, rel=1e-15)
    assert coherence(simplex_etf(7, 6)) == pytest.approx(1 / 6, rel=1e-14)
    assert welch_bound(5, 5) == welch_bound(1, 3) == 0
    assert welch_bound(1000, 128) == pytest.approx(0.0826, abs=5e-5)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: simplex_etf(1, 3), ValueError, "n_classes must be .*, got 1"),
        (lambda: simplex_etf(3, 0), ValueError, "n_features must be .*, got 0"),
        (lambda: simplex_etf(3.0, 3), TypeError, "n_classes must be an integer"),
        (lambda: simplex_etf(3, 3, "a"), ValueError, "cannot be used to seed"),
        (lambda: welch_bound(0, 3), ValueError, "n_classes must be .*, got 0"),
        (lambda: coherence([[1.0, 0.0], [0.0, 0.0]]), ValueError, "got one in row 1"),
        (lambda: coherence([1.0, 2.0]), ValueError, "Expected 2D array"),
        (lambda: coherence([[np.nan]]), ValueError, "frame contains NaN"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
