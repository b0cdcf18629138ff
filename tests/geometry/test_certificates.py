"""Proofs are exact: integers stand for floats without rounding, and near misses are refused."""

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.geometry import _certificates as module
from sklearn_xlc.geometry._certificates import (
    OutOfTimeError,
    encloses_certificate,
    exact_certificate,
    find_conflict,
    integer_row,
    is_certificate,
    is_witness,
    prove_conflict,
)
from sklearn_xlc.geometry._validation import LinearLayer

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)


def layer_of(rows, intercept=None):
    rows = np.array(rows, dtype=float)
    biases = np.zeros(len(rows)) if intercept is None else np.array(intercept, dtype=float)
    return LinearLayer(rows, biases)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=6))
def test_integer_row_is_the_row_times_a_positive_number(values):
    integers = integer_row(np.array(values))
    nonzero = [i for i, value in enumerate(values) if value]
    assert all(integers[i] == 0 for i in range(len(values)) if i not in nonzero)
    factors = {Fraction(integers[i]) / Fraction(values[i]) for i in nonzero}
    assert len(factors) <= 1
    assert all(factor > 0 for factor in factors)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(FLOATS, FLOATS, FLOATS), min_size=1, max_size=5),
    st.tuples(FLOATS, FLOATS),
    st.booleans(),
)
def test_witness_check_equals_fractions(rows, x, biased):
    table = np.array(rows)
    layer = LinearLayer(np.ascontiguousarray(table[:, :2]), table[:, 2] * biased)
    logits = [
        sum((Fraction(a) * Fraction(b) for a, b in zip(row[:2], x)), Fraction(row[2]) * biased)
        for row in rows
    ]
    signs = np.array([1.0 if logit > 0 else -1.0 for logit in logits])
    assert is_witness(layer, signs, np.array(x)) == all(logit != 0 for logit in logits)
    signs[0] = -signs[0]
    assert not is_witness(layer, signs, np.array(x))


def test_witness_check_sees_what_floats_round_away():
    x = np.array([1.0, 1.0, 1.0])
    layer = layer_of([[1.0, 1e-30, -1.0]])
    assert layer.coef @ x == 0
    assert is_witness(layer, np.array([1.0]), x)
    assert not is_witness(layer, np.array([-1.0]), x)


def test_ties_and_points_at_infinity_are_no_witness():
    layer = layer_of([[1.0, -1.0]])
    for sign in (1.0, -1.0):
        assert not is_witness(layer, np.array([sign]), np.array([2.0, 2.0]))
        assert not is_witness(layer, np.array([sign]), np.array([0.0, 0.0]))
        assert not is_witness(layer, np.array([sign]), np.array([np.inf, 0.0]))
        assert not is_witness(layer, np.array([sign]), np.array([np.nan, 0.0]))


def test_witness_check_runs_over_blocks(monkeypatch, rng):
    layer = layer_of(rng.normal(size=(50, 3)))
    x = rng.normal(size=3)
    signs = np.sign(layer.coef @ x)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 12)
    assert is_witness(layer, signs, x)
    signs[37] = -signs[37]
    assert not is_witness(layer, signs, x)


def test_certificate_check():
    rows = [[1, 0], [-1, 2], [0, -1]]
    assert is_certificate(rows, [1, 1, 2])
    assert not is_certificate(rows, [1, 1, 1])
    assert not is_certificate(rows, [-1, -1, -2])
    assert not is_certificate(rows, [0, 0, 0])
    assert not is_certificate(rows, [1, 1])


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(1, 6), st.data())
def test_exact_certificate_finds_a_planted_one(length, data):
    entries = st.lists(st.integers(-9, 9), min_size=length, max_size=length)
    rows = data.draw(st.lists(entries, min_size=length, max_size=length))
    weights = data.draw(st.lists(st.integers(1, 9), min_size=length, max_size=length))
    rows.append([-sum(w * a for w, a in zip(weights, column)) for column in zip(*rows)])
    found = exact_certificate(rows)
    if np.linalg.matrix_rank(np.array(rows)) == length:
        scale = Fraction(found[-1])
        assert [Fraction(w) / scale for w in found] == [*map(Fraction, weights), Fraction(1)]
    else:
        assert found is None or is_certificate(rows, found)


def test_exact_certificate_refuses():
    assert exact_certificate([[1, 0], [0, 1]]) is None  # independent
    assert exact_certificate([[1, 0], [2, 0]]) is None  # dependent, with opposite signs
    assert exact_certificate([[1, 0], [-1, 0], [0, 1], [0, -1]]) is None  # two dependencies
    assert exact_certificate([[1, 0], [-2, 0], [0, 1]]) == [2, 1, 0]


def test_exact_certificate_of_one_zero_row():
    assert exact_certificate([[0, 0]]) == [1]


def test_out_of_time(rng):
    layer = layer_of(rng.normal(size=(6, 5)))
    with pytest.raises(OutOfTimeError):
        prove_conflict(layer, np.ones(6), np.arange(6), deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTimeError):
        is_witness(layer, np.ones(6), np.zeros(5), deadline=time.monotonic() - 1)


def simplex_rows(rng, length):
    """One more random row than columns, with a positive combination to (nearly) zero."""
    rows = rng.normal(size=(length + 1, length))
    rows[-1] = -rng.uniform(0.5, 2, size=length) @ rows[:-1]
    return rows


@pytest.mark.parametrize("length", [1, 2, 10, 60, 200])
def test_enclosure_proves_what_is_true(length, rng):
    rows = simplex_rows(rng, length)
    assert encloses_certificate(rows)
    assert encloses_certificate(rows * np.ldexp(1.0, rng.integers(-40, 40, length + 1))[:, None])
    rows[0] = -rows[0]
    assert not encloses_certificate(rows)


@pytest.mark.parametrize("seed", range(30))
def test_enclosure_never_contradicts_integers(seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, 8))
    rows = simplex_rows(rng, length)
    # Weights of all sizes down to rounding error, of both signs.
    shift = 10.0 ** -rng.uniform(0, 18) * rng.choice([-1, 1])
    rows[0] = -(rng.uniform(0.5, 2, length - 1) @ rows[1:-1] + rows[-1]) + shift * rows[0]
    if encloses_certificate(rows):
        assert exact_certificate([integer_row(row) for row in rows]) is not None


def test_enclosure_refuses_what_it_cannot_prove():
    assert not encloses_certificate(np.ones((3, 3)))
    assert not encloses_certificate(np.array([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]))
    assert not encloses_certificate(np.array([[1e300, 1e-300], [-1e300, 1.0], [1.0, -1.0]]))


def test_large_conflicts_are_enclosed(rng):
    length = module.MAX_EXACT_ROWS + 6
    layer = layer_of(simplex_rows(rng, length))
    labels = np.arange(length + 1)
    np.testing.assert_array_equal(prove_conflict(layer, np.ones(length + 1), labels), labels)
    signs = np.ones(length + 1)
    signs[3] = -1
    assert prove_conflict(layer, signs, labels) is None


def test_conflict_from_approximate_weights():
    layer = layer_of([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    signs = np.ones(4)
    weights = np.array([0.5, 0.5, 1e-15, 0.0])
    np.testing.assert_array_equal(find_conflict(layer, signs, weights), [0, 1])
    # A larger stray weight is dropped at a later threshold.
    weights = np.array([0.5, 0.5, 1e-6, 1e-9])
    np.testing.assert_array_equal(find_conflict(layer, signs, weights), [0, 1])
    assert find_conflict(layer, -signs, weights * [0, 0, 1, 1]) is None
    assert find_conflict(layer, signs, np.zeros(4)) is None


def test_biases_decide_between_parallel_planes():
    # x > 1 and x < b: contradictory up to b = 1.
    for b, proven in [(0.5, True), (1.0, True), (1.0 + 2**-52, False), (2.0, False)]:
        layer = layer_of([[1.0], [-1.0]], [-1.0, b])
        conflict = prove_conflict(layer, np.ones(2), np.arange(2))
        assert (conflict is not None) == proven
