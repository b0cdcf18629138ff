"""Numbers that a user gives, and the size of dense outputs, within bounds."""

from numbers import Integral, Real

import numpy as np
import pytest

import sklearn_xlc
from sklearn_xlc._bounds import check_dense_size, check_integer, check_real, check_scalar


@pytest.mark.parametrize("value", [True, np.True_, float("nan"), 2**63, 10**400, "2", None])
def test_scalars_that_are_no_numbers_of_64_bits(value):
    with pytest.raises((TypeError, ValueError), match="k must be"):
        check_scalar(value, "k", Real, min_val=1)
    with pytest.raises((TypeError, ValueError), match="k must be"):
        check_integer(value, "k")


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2)])
def test_integers_of_numpy_are_integers(value):
    assert check_scalar(value, "k", Integral, min_val=1) == check_integer(value, "k") == 2


@pytest.mark.parametrize(
    "value, error", [(0, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)]
)
def test_integer(value, error):
    assert check_integer(np.int32(2), "k") == 2
    assert check_integer(0, "depth", 0) == 0
    with pytest.raises(error, match="k must be an integer >= 1, got"):
        check_integer(value, "k")


@pytest.mark.parametrize(
    "value, error",
    [
        (-0.1, ValueError),
        (1.1, ValueError),
        (np.nan, ValueError),
        (True, TypeError),
        (1j, TypeError),
    ],
)
def test_real(value, error):
    assert check_real(np.float32(0.5), "noise", 0, 1) == 0.5
    with pytest.raises(error, match=r"noise must be finite and in \[0, 1\], got"):
        check_real(value, "noise", 0, 1)


def test_real_without_upper_bound():
    assert check_real(7, "exponent", 0) == 7
    with pytest.raises(ValueError, match="exponent must be finite and at least 0, got inf"):
        check_real(np.inf, "exponent", 0)


def test_dense_size():
    with sklearn_xlc.config_context(dense_limit=240):
        check_dense_size((10, 3), np.float64, "top_k")
        with pytest.raises(MemoryError, match=r"\(10, 4\) takes 320 bytes.*240; use top_k, or"):
            check_dense_size((10, 4), np.float64, "top_k")
    # Sizes beyond 64 bits are sizes all the same.
    with pytest.raises(MemoryError):
        check_dense_size((2**40, 2**40), np.float64, "top_k")
