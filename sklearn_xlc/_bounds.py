"""Validation of numbers and words, and the limit of dense outputs."""

from __future__ import annotations

import math
import os
from numbers import Integral
from typing import Any

import numpy as np

from sklearn_xlc._compat import is_number
from sklearn_xlc._config import get_config


def checked_k(k: Any, n_labels: int, what: str = "labels", default: int = 5) -> int:
    """Validate a number of labels to list; None: the default, or all of fewer."""
    if k is None:
        return min(default, n_labels)
    if check_integer(k, "k") > n_labels:
        raise ValueError(f"k={k} must be at most the number of {what}, {n_labels}")
    return int(k)


def check_integer(value: Any, name: str, low: int = 1, high: int = 2**63 - 1) -> int:
    """Validate an integer within bounds; raise TypeError for other types, else ValueError."""
    bounds = f">= {low}" if high == 2**63 - 1 else f"from {low} to {high}"
    message = f"{name} must be an integer {bounds}, got {value!r}"
    if not is_number(value, Integral):
        raise TypeError(f"{message} of type {type(value).__name__}")
    if int(value) >= 2**63:
        raise ValueError(f"{name} must be less than 2**63, got {value}")
    if not low <= int(value) <= high:
        raise ValueError(message)
    return int(value)


def check_real(
    value: Any, name: str, low: float, high: float = np.inf, closed: bool = True
) -> float:
    """Validate a finite number within bounds, which are excluded unless `closed`."""
    bounds = f"{'at least' if closed else 'above'} {low}"
    if high < np.inf:
        bounds = f"in [{low}, {high}]" if closed else f"in ({low}, {high})"
    message = f"{name} must be finite and {bounds}, got {value!r}"
    if not is_number(value):
        raise TypeError(f"{message} of type {type(value).__name__}")
    number = np.inf if isinstance(value, int) and value.bit_length() > 1023 else float(value)
    is_inside = low <= number <= high if closed else low < number < high
    if not (is_inside and np.isfinite(number)):
        raise ValueError(message)
    return number


def is_word(value: Any, *words: str) -> bool:
    """Return whether a value, which may be an array, is one of these words."""
    return isinstance(value, str) and value in words


def is_path(value: Any) -> bool:
    """Return whether a value names a file."""
    return isinstance(value, str | os.PathLike)


def check_flag(value: Any, name: str) -> bool:
    """Validate True or False; raise TypeError for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_option(value: Any, name: str, *options: str) -> str:
    """Validate one of a few words."""
    if not is_word(value, *options):
        raise ValueError(f"{name} must be {' or '.join(map(repr, options))}, got {value!r}")
    return value


def check_dense_size(shape: tuple[int, ...], dtype: Any, remedy: str, temporaries: int = 0) -> None:
    """Raise MemoryError for a dense output above ``get_config()["dense_limit"]``.

    Parameters
    ----------
    shape, dtype : tuple of int, dtype
        Shape and type of the output.
    remedy : str
        Alternative for the message, such as "predict_topk, which gives the best labels".
    temporaries : int, default=0
        Bytes of other arrays held during the computation of the output.

    Examples
    --------
    >>> import sklearn_xlc
    >>> from sklearn_xlc._bounds import check_dense_size
    >>> with sklearn_xlc.config_context(dense_limit=1000):
    ...     check_dense_size((100, 3), "float32", "top_k")
    Traceback (most recent call last):
    ...
    MemoryError: a dense result of shape (100, 3) takes 1,200 bytes, more than ...
    """
    size, limit = math.prod(shape) * np.dtype(dtype).itemsize, get_config()["dense_limit"]
    if size + temporaries > limit:
        beside = f" and {temporaries:,} bytes while it is computed" if temporaries else ""
        raise MemoryError(
            f"a dense result of shape {tuple(shape)} takes {size:,} bytes{beside}, more than "
            f"dense_limit={limit:,}; use {remedy}, or raise the limit with "
            "sklearn_xlc.set_config(dense_limit=...)"
        )
