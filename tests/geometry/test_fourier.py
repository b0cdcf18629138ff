"""The Fourier matrix is orthonormal, its transforms agree with it, and its witnesses hold."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.geometry import (
    count_sign_changes,
    fourier_adjoint,
    fourier_forward,
    fourier_matrix,
    fourier_witness,
    witness_margin,
)

SMALL = [(n, k) for n in range(1, 13) for k in range((n - 1) // 2 + 1)]
# Odd, even, prime.
LARGE = [(8192, 30), (4096, 5), (4097, 80), (9999, 40), (10_007, 12), (100_000, 10), (99_991, 10)]


@pytest.mark.parametrize("n_labels, max_active", [*SMALL, (1000, 80), (997, 498)])
def test_columns_are_orthonormal(n_labels, max_active):
    W = fourier_matrix(n_labels, max_active)
    assert W.shape == (n_labels, 2 * max_active + 1)
    assert W.dtype == np.float64
    np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-12)


def test_entries_by_hand():
    s = np.sqrt(0.5)
    expected = [[0.5, s, 0], [0.5, 0, s], [0.5, -s, 0], [0.5, 0, -s]]
    np.testing.assert_allclose(fourier_matrix(4, 1), expected, atol=1e-15)


def test_maximal_minors_have_one_sign():
    """Lemma 2: each is the same positive number times sines of half the differences of angles."""
    for n_labels, max_active in SMALL:
        W = fourier_matrix(n_labels, max_active)
        rows = np.array(list(itertools.combinations(range(n_labels), W.shape[1])))
        first, second = np.triu_indices(W.shape[1], k=1)
        sines = np.sin(np.pi * (rows[:, second] - rows[:, first]) / n_labels).prod(axis=1)
        # The Vandermonde determinant of exp(i t), in sines and cosines.
        factor = 2.0 ** (2 * max_active**2) * n_labels**-0.5 * (2 / n_labels) ** max_active
        assert (sines > 0).all()
        np.testing.assert_allclose(np.linalg.det(W[rows]), factor * sines, rtol=1e-6)


@pytest.mark.parametrize("n_labels, max_active", [*SMALL[::3], *LARGE])
def test_transforms_agree_and_are_adjoint(n_labels, max_active, rng):
    x = rng.normal(size=(2, 2 * max_active + 1))
    g = rng.normal(size=(2, n_labels))
    W = fourier_matrix(n_labels, max_active)
    forward = fourier_forward(x, n_labels)
    adjoint = fourier_adjoint(g, max_active)
    np.testing.assert_allclose(forward, x @ W.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(adjoint, g @ W, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.sum(forward * g), np.sum(x * adjoint), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fourier_adjoint(forward, max_active), x, atol=1e-10)


def test_transforms_of_vectors_and_of_higher_axes(rng):
    x = rng.normal(size=(2, 3, 5))
    z = fourier_forward(x, 9)
    assert z.shape == (2, 3, 9)
    np.testing.assert_allclose(fourier_forward(x[1, 2], 9), z[1, 2], atol=1e-14)
    np.testing.assert_allclose(fourier_adjoint(z[1, 2], 2), x[1, 2], atol=1e-14)


def test_initial_bias_gives_equal_logits():
    logit = np.log(3 / (1000 - 3))
    coefficients = np.zeros(7)
    coefficients[0] = np.sqrt(1000) * logit
    np.testing.assert_allclose(fourier_forward(coefficients, 1000), logit, rtol=1e-12)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=24), st.data())
def test_witness_has_the_wanted_signs(y, data):
    y = np.array(y, dtype=int)
    n_labels, least = len(y), count_sign_changes(y) // 2
    most = (n_labels - 1) // 2
    if least > most:
        return
    max_active = data.draw(st.integers(least, most))
    x = fourier_witness(y, max_active)
    assert x.shape == (2 * max_active + 1,)
    assert np.linalg.norm(x) == pytest.approx(1)
    np.testing.assert_array_equal(fourier_matrix(n_labels, max_active) @ x > 0, y > 0)
    assert witness_margin(n_labels, x, y) > 1e-12


@pytest.mark.parametrize("y", [[1, 0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 1, 0]])
def test_witness_is_a_product_of_sines_with_roots_halfway_between_labels(y):
    y = np.array(y)
    n, k = len(y), count_sign_changes(y) // 2
    t = 2 * np.pi * np.arange(n) / n
    roots = t[y != np.roll(y, -1)] + np.pi / n
    expected = np.prod(np.sin((t[:, None] - roots) / 2), axis=1)
    expected *= np.sign(expected[0]) * (1 if y[0] else -1)
    logits = fourier_matrix(n, k) @ fourier_witness(y, k)
    np.testing.assert_allclose(logits, expected / np.linalg.norm(expected), atol=1e-13)


@pytest.mark.parametrize("n_labels, block", [(1000, 10), (30_000, 10), (30_000, 29_000)])
def test_witness_of_a_block_of_neighbours(n_labels, block):
    y = np.zeros(n_labels, dtype=int)
    y[7 : 7 + block] = 1
    x = fourier_witness(y, 10)
    np.testing.assert_array_equal(fourier_matrix(n_labels, 10) @ x > 0, y > 0)


def test_witness_survives_products_below_the_range_of_floats():
    # A product of 2000 sines whose geometric mean is 1/2 is near 10^-600 at every label.
    y = np.append(np.tile([1, 0], 1000), 0)
    logits = fourier_forward(fourier_witness(y, 1000), 2001)
    np.testing.assert_array_equal(logits > 0, y > 0)


def test_witness_below_the_precision_of_floats_warns():
    y = np.zeros(1000, dtype=int)
    y[:20:2] = 1
    with pytest.warns(RuntimeWarning, match="within the rounding error"):
        x = fourier_witness(y, 10)
    assert witness_margin(1000, x, y) < 1e-14


def test_witness_refuses_too_many_sign_changes():
    with pytest.raises(ValueError, match="6 cyclic sign changes.*max_active=2 allows at most 4"):
        fourier_witness([1, 0, 1, 0, 1, 0, 0], 2)


def test_witness_takes_one_sparse_row():
    y = np.array([[0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(fourier_witness(sp.csr_array(y), 2), fourier_witness(y[0], 2))


def test_margin_is_the_smallest_signed_logit(rng):
    W, x = rng.normal(size=(9, 4)), rng.normal(size=4)
    y = (W @ x > 0).astype(int)
    exact = min(abs(sum(Fraction(a) * Fraction(b) for a, b in zip(row, x))) for row in W)
    assert witness_margin(W, x, y) == pytest.approx(float(exact), abs=1e-15)
    y[3] = 1 - y[3]
    assert witness_margin(W, x, y) == pytest.approx(-abs(W[3] @ x))


def test_margin_of_a_fourier_layer_needs_no_matrix(rng):
    x = rng.normal(size=7)
    y = (fourier_matrix(5000, 3) @ x > 0).astype(int)
    assert witness_margin(5000, x, y) == witness_margin(fourier_matrix(5000, 3), x, y)


@pytest.mark.parametrize("n_labels, max_active", [(4, 2), (5, 3), (1, 1), (10, 5)])
def test_full_rank_is_refused_with_the_reason(n_labels, max_active):
    with pytest.raises(ValueError, match="plain full-rank layer.*already represents every"):
        fourier_matrix(n_labels, max_active)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: fourier_matrix(0, 0), ValueError, "n_labels must be .*, got 0"),
        (lambda: fourier_matrix(5, -1), ValueError, "max_active must be .*, got -1"),
        (lambda: fourier_matrix(5.0, 1), TypeError, "n_labels must be an integer"),
        (lambda: fourier_matrix(5, "1"), TypeError, "max_active must be an integer"),
        (lambda: fourier_forward([1.0, 2.0], 5), ValueError, "odd last axis.*got 2"),
        (lambda: fourier_forward(np.ones(7), 6), ValueError, "full-rank"),
        (lambda: fourier_forward(1.0, 6), ValueError, "coefficients must have at least one axis"),
        (lambda: fourier_forward([np.nan], 6), ValueError, "coefficients contains NaN"),
        (lambda: fourier_adjoint(np.ones(4), 2), ValueError, "full-rank"),
        (lambda: fourier_witness([0, 2, 0], 1), ValueError, "0 and 1 only, got 2 in row 0"),
        (lambda: fourier_witness(np.eye(3), 1), ValueError, "one assignment, got 3 rows"),
        (
            lambda: witness_margin(5, [1.0, 2.0], [0] * 5),
            ValueError,
            "odd number of .*, got 2",
        ),
        (lambda: witness_margin(5, [1.0], [0] * 4), ValueError, "y has 4 labels.*layer has 5"),
        (lambda: witness_margin(np.eye(3), [1.0], [0] * 3), ValueError, "x has 1 entries.*3 col"),
        (lambda: witness_margin(np.eye(3), np.eye(3), [0] * 3), ValueError, "x must have shape"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_more_logits_than_the_limit_are_refused():
    with pytest.raises(MemoryError, match="dense result of shape .35184372088832,."):
        fourier_forward([1.0, 0.0, 0.0], 2**45)
