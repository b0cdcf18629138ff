"""Rounding keeps what it promises: how near, how small, and the same when it is done again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.engine.rounding import (
    GRIDS,
    check_storage,
    is_rounded,
    layout,
    numbers_of,
    rounded,
    scales_of,
    values_of,
)

STORAGES = list(GRIDS)


@st.composite
def matrices(draw):
    """Rows of any magnitude, some with an outlier, some of zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, length = draw(st.integers(1, 30)), draw(st.integers(1, 600))
    exponents = rng.integers(*draw(st.sampled_from([(-1, 1), (-60, 30), (-4, 4)])), (n_rows, 1))
    rows = rng.normal(size=(n_rows, length)) * 10.0**exponents
    rows[rng.random(n_rows) < 0.2] *= np.where(rng.random(length) < 0.05, 100.0, 1.0)
    rows[rng.random(n_rows) < 0.2] = 0.0
    return rows.astype(draw(st.sampled_from([np.float32, np.float64])))


@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=60, deadline=None)
@given(rows=matrices())
def test_rounding_again_changes_nothing(storage, rows):
    if storage == "float16":
        rows = np.clip(rows, -6e4, 6e4)
    once = rounded(rows, storage)
    assert once.dtype == rows.dtype
    np.testing.assert_array_equal(rounded(once, storage), once)
    assert is_rounded(once, storage)
    scales = scales_of(once, storage)
    numbers = numbers_of(once, scales, storage)
    of_numbers, of_scales = layout(*rows.shape, storage)
    assert (numbers.shape, numbers.dtype) == of_numbers
    assert (scales.shape, scales.dtype) == of_scales
    np.testing.assert_array_equal(
        values_of(numbers, scales, storage, rows.shape[1], rows.dtype), once
    )


@pytest.mark.parametrize("storage", ["int8", "int6", "int4"])
@settings(max_examples=60, deadline=None)
@given(rows=matrices())
def test_the_error_is_half_a_step_of_the_block(storage, rows):
    grid = GRIDS[storage]
    error = np.abs(rounded(rows, storage).astype(float) - rows)
    for start in range(0, rows.shape[1], grid.block):
        block = slice(start, start + grid.block)
        peak = np.abs(rows[:, block]).max(axis=1).astype(float)
        # Scales are rounded up, by less than one part in 128.
        step = np.maximum(peak / grid.levels * (1 + 2**-7), 1e-29)
        assert (error[:, block].max(axis=1) <= step / 2 * (1 + 1e-6)).all()


def test_an_outlier_spoils_its_own_block_only():
    rows = np.random.default_rng(0).normal(size=(1, 600)).astype(np.float32)
    rows[0, 0] = 1e4
    for storage in ("int8", "int6", "int4"):
        error, block = np.abs(rounded(rows, storage) - rows)[0], GRIDS[storage].block
        assert error[1:block].max() > 1 > error[block:].max() * 3


def test_integers_of_four_bits_share_bytes():
    rows = np.array([[7, -7, 3, 0, -1]], np.float32)
    scales = scales_of(rows, "int4")
    numbers = numbers_of(rows, scales, "int4")
    np.testing.assert_array_equal(numbers, [[15 | 1 << 4, 11 | 8 << 4, 7 | 8 << 4]])
    np.testing.assert_array_equal(values_of(numbers, scales, "int4", 5, rows.dtype), rows)


def test_four_integers_of_six_bits_share_three_bytes():
    rows = np.array([[31, -31, 3, 0, -1]], np.float32)
    scales = scales_of(rows, "int6")
    numbers = numbers_of(rows, scales, "int6")
    words = [63 | 1 << 6 | 35 << 12 | 32 << 18, 31 | 32 << 6 | 32 << 12 | 32 << 18]
    assert numbers.tobytes() == b"".join(word.to_bytes(3, "little") for word in words)
    np.testing.assert_array_equal(values_of(numbers, scales, "int6", 5, rows.dtype), rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.0, 1e-3])
def test_what_is_not_rounded_is_seen(bad):
    """Not-a-number, infinity and minus zero are no multiples of a scale."""
    for storage in STORAGES:
        rows = rounded(np.random.default_rng(0).normal(size=(3, 300)).astype(np.float32), storage)
        assert is_rounded(rows, storage)
        rows[2, 299] = bad
        assert is_rounded(rows, storage) == (storage == "float16" and bad == 0)


def test_no_rows_are_rounded():
    for storage in STORAGES:
        assert rounded(np.zeros((0, 4)), storage).shape == (0, 4)


def test_other_storages_are_refused():
    known = "float32, float16, int8, int6, int4"
    for storage in ("int5", "", None):
        with pytest.raises(ValueError, match=f"storage must be one of {known}, got {storage!r}"):
            check_storage(storage)
