"""Rounding keeps what it promises: how near, how small, and the same when it is done again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.engine import memory, rounding
from sklearn_xlc.engine.rounding import pack, unpack


@st.composite
def matrices(draw):
    """Rows of any magnitude, some with an outlier, some of zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, length = draw(st.integers(1, 30)), draw(st.integers(2, 600))
    exponents = rng.integers(*draw(st.sampled_from([(-1, 1), (-60, 30), (-4, 4)])), (n_rows, 1))
    rows = rng.normal(size=(n_rows, length)) * 10.0**exponents
    rows[rng.random(n_rows) < 0.2] *= np.where(rng.random(length) < 0.05, 100.0, 1.0)
    rows[rng.random(n_rows) < 0.2] = 0.0
    return rows.astype(draw(st.sampled_from([np.float32, np.float64])))


@settings(max_examples=25, deadline=None)
@given(rows=matrices(), with_bias=st.booleans())
def test_a_round_trip_is_near_and_the_same_when_done_again(rows, with_bias):
    bias = rows.shape[1] // 2 if with_bias else None
    packed = pack(rows, rows.shape[1], bias)
    once = unpack(packed)
    assert (once.dtype, once.shape) == (rows.dtype, rows.shape)
    np.testing.assert_array_equal(unpack(pack(once, rows.shape[1], bias)), once)
    assert len(packed["numbers"]) == max(np.any(rows, axis=1).sum(), 0) or not rows.any()
    if with_bias:
        np.testing.assert_array_equal(once[:, bias], rows[:, bias])
        rows, once = (np.delete(each, bias, axis=1) for each in (rows, once))
    for start in range(0, rows.shape[1], 128):
        part = slice(start, start + 128)
        peak = np.abs(rows[:, part]).max(axis=1, keepdims=True)
        # Half a step, and the step is rounded up to eight bits; tiny blocks become zero.
        bound = np.maximum(peak / 31 / 2 * (1 + 2.0**-7), 2.0**-100)
        assert (np.abs(once[:, part].astype(float) - rows[:, part]) <= bound).all()


def test_the_size_is_three_quarters_of_a_byte_a_number():
    rows = np.random.default_rng(0).normal(size=(1000, 512)).astype(np.float32)
    packed = pack(rows, 512)
    assert packed["numbers"].nbytes == 0.75 * rows.size
    assert packed["scales"].nbytes == 2 * rows.size / 128


def test_a_small_part_at_a_time_is_the_whole(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(70, 30))
    whole = pack(rows, 30, 29)
    monkeypatch.setattr(rounding, "_CHUNK", 100)
    for name, part in pack(rows, 30, 29).items():
        np.testing.assert_array_equal(part, whole[name])
    np.testing.assert_array_equal(unpack(whole).shape, rows.shape)


@pytest.mark.parametrize("number", [np.nan, np.inf, -1e300])
def test_numbers_beyond_float32_are_refused(number):
    with pytest.raises(ValueError, match="NaN, infinite or too large"):
        pack(np.array([[1.0, number]]), 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [3, 0]}, {"shape": "x"}, {"length": 0}, {"length": 7}, {"bias": 4},
        {"dtype": "object"}, {"used": np.zeros(9, np.uint8)}, {"numbers": np.zeros((3, 2))},
        {"scales": None}, {"biases": np.zeros(5)}, {"shape": [2**40, 4]},
    ],
    ids=str,
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(changes):
    packed = pack(np.ones((3, 4), np.float32), 4)
    with pytest.raises(ValueError, match="a rounded weight of shape"):
        unpack({**packed, **changes})


def test_rows_of_zeros_beyond_the_memory_are_refused(monkeypatch):
    rows = np.zeros((100, 4), np.float32)
    rows[3] = 1
    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match="the saved model takes about 1,600 bytes"):
        unpack(pack(rows, 4))
