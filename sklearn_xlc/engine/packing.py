"""Weights on their way into a file: rounded where asked, and packed where they are rounded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from sklearn_xlc._files import Streamed
from sklearn_xlc.engine.memory import available_memory, refuse_beyond
from sklearn_xlc.engine.rounding import (
    GRIDS,
    check_storage,
    chunks,
    is_rounded,
    layout,
    numbers_of,
    rounded,
    scales_of,
    values_of,
)

#: Arrays of fewer numbers are never rounded: there is nothing to gain.
SMALL = 4096
_DTYPES = ("float32", "float64")
#: What `storing` rounds to.
_storage: ContextVar[str] = ContextVar("storage", default="float32")


@contextlib.contextmanager
def storing(storage: str) -> Iterator[None]:
    """Round the weights of what is copied or described within the block.

    Parameters
    ----------
    storage : {"float32", "float16", "int8", "int6", "int4"}
        What weights are rounded to; "float32" leaves them as they are.

    Raises
    ------
    ValueError
        If there is no such storage.
    """
    check_storage(storage)
    token = _storage.set(storage)
    try:
        yield
    finally:
        _storage.reset(token)


class RowForm(NamedTuple):
    """Number of numbers in a row, and which of them is a bias, that stays exact (None: none)."""

    length: int
    bias: int | None = None

    def rounded_part(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows that are rounded."""
        return rows if self.bias is None else np.delete(rows, self.bias, axis=1)

    def whole(self, rounded_part: np.ndarray, biases: np.ndarray) -> np.ndarray:
        """Rows, of their rounded numbers and their biases."""
        if self.bias is None:
            return rounded_part
        return np.insert(rounded_part, self.bias, biases, axis=1)


def prepared(name: str, weight: np.ndarray, form: RowForm | None = None) -> Any:
    """Weight as a state holds it: packed if it is rounded already, or is to be; else as it is.

    Parameters
    ----------
    name : str
        Name of the weight, for messages.
    weight : ndarray
        Weight.
    form : RowForm, default=None
        What a row is. None: all that has the same first index.

    Returns
    -------
    ndarray or PackedWeight

    Raises
    ------
    ValueError
        If the weight cannot be rounded, because of numbers that are not finite or too large.
    """
    if weight.ndim < 2 or weight.size < SMALL or weight.dtype.name not in _DTYPES:
        return weight
    form = form or RowForm(math.prod(weight.shape[1:]))
    storage = _storage.get()
    # What has been rounded to fewer bits stays so; what `compress` has rounded is seen by itself.
    coarser = list(GRIDS)[: list(GRIDS).index(storage)] if storage in GRIDS else GRIDS
    rows = weight.reshape(-1, form.length)
    for found in coarser:
        # A few rows tell of almost every weight that it is not rounded.
        parts = (form.rounded_part(rows[part]) for part in [slice(16), *chunks(*rows.shape)])
        if all(is_rounded(part, found) for part in parts):
            return PackedWeight(name, weight, found, form)
    return weight if storage == "float32" else PackedWeight(name, weight, storage, form)


class PackedWeight:
    """Weight that pickles and saves as integers and scales, without its rows of zeros.

    Nothing is rounded before it is written, and then a few rows at a time. A deep copy is a plain
    array, rounded.

    Parameters
    ----------
    name : str
        Name of the weight, for messages.
    weight : ndarray
        At least two-dimensional.
    storage : {"float16", "int8", "int6", "int4"}
        What to round to.
    form : RowForm
        What a row is.

    Attributes
    ----------
    weight : ndarray
        The weight, not rounded.
    """

    def __init__(self, name: str, weight: np.ndarray, storage: str, form: RowForm) -> None:
        self.weight, self._storage, self._form = weight, storage, form
        self._rows = weight.reshape(-1, form.length)
        self._chunks = chunks(*self._rows.shape)
        self._used = np.concatenate([self._rows[part].any(axis=1) for part in self._chunks])
        if not self._used.any():
            self._used[:] = True  # a file of few bytes must not stand for many
        self._scales = np.concatenate([self._checked_scales(name, part) for part in self._chunks])

    @property
    def version(self) -> int:
        """Format of a model that holds such a weight; without packed weights it is 1."""
        return 3 if self._storage == "int6" else 2

    def _numbers(self, part: slice) -> np.ndarray:
        """The numbers that are rounded, of the rows that are stored."""
        return self._form.rounded_part(self._rows[part][self._used[part]])

    def _checked_scales(self, name: str, part: slice) -> np.ndarray:
        numbers = self._numbers(part)
        limit = np.finfo(np.float16 if self._storage == "float16" else np.float32).max
        if not (np.abs(numbers) <= limit).all():
            raise ValueError(
                f"{name} holds numbers that {self._storage} cannot hold: NaN, infinite, or above "
                f"{limit:.3g}; use storage='float32', which keeps weights as they are"
            )
        return scales_of(numbers, self._storage)

    def parts(self) -> dict[str, Any]:
        """What is written; :func:`unpacked` makes the weight of it."""
        length, bias = self._form
        of_numbers, _ = layout(len(self._scales), length - (bias is not None), self._storage)
        parts: dict[str, Any] = {
            "storage": self._storage,
            "dtype": self.weight.dtype.name,
            "shape": list(self.weight.shape),
            "length": length,
            "scales": self._scales,
            "numbers": Streamed(*of_numbers, self._blocks),
        }
        if bias is not None:
            biases = [self._rows[part][self._used[part], bias] for part in self._chunks]
            parts |= {"bias": bias, "biases": np.concatenate(biases)}
        if not self._used.all():
            parts["used"] = np.packbits(self._used)
        return parts

    def _blocks(self) -> Iterator[np.ndarray]:
        done = 0
        for part in self._chunks:
            numbers = self._numbers(part)
            scales = self._scales[done : done + len(numbers)]
            yield numbers_of(numbers, scales, self._storage)
            done += len(numbers)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        parts = self.parts()
        return dict, (parts | {"numbers": parts["numbers"].array()},)

    def __deepcopy__(self, memo: dict[int, Any]) -> np.ndarray:
        copied = np.empty(self._rows.shape, self._rows.dtype)
        for part in self._chunks:
            numbers = self._form.rounded_part(self._rows[part])
            biases = self._rows[part, self._form.bias or 0]
            copied[part] = self._form.whole(rounded(numbers, self._storage), biases)
        return copied.reshape(self.weight.shape)


def shape_of(saved: Any) -> tuple[int, ...]:
    """Shape of the weight that :func:`unpacked` makes."""
    if isinstance(saved, PackedWeight):
        return saved.weight.shape
    return tuple(saved["shape"]) if isinstance(saved, dict) else saved.shape


def unpacked(saved: Any) -> np.ndarray:
    """Weight of a state: an array, or what :meth:`PackedWeight.parts` gave.

    Parameters
    ----------
    saved : ndarray, PackedWeight or dict
        Weight.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError
        If the parts do not fit together.
    MemoryError
        If there is no memory for the weight, which may have many rows of zeros.
    """
    if isinstance(saved, PackedWeight):
        return saved.weight
    if not isinstance(saved, dict):
        return saved
    form, used = _checked_form(saved)
    storage, shape, dtype = saved["storage"], saved["shape"], np.dtype(saved["dtype"])
    size = math.prod(shape)
    if len(used) * form.length < size:  # a small file may stand for a large weight
        needed = size * dtype.itemsize
        refuse_beyond(needed, available_memory(), "the saved model", "a machine with more memory")
    weight = np.zeros((size // form.length, form.length), dtype)
    for part in chunks(len(used), form.length):
        numbers, scales = saved["numbers"][part], saved["scales"][part]
        n_rounded = form.length - (form.bias is not None)
        numbers = values_of(numbers, scales, storage, n_rounded, dtype)
        biases = saved["biases"][part] if form.bias is not None else scales
        weight[used[part]] = form.whole(numbers, biases)
    return weight.reshape(shape)


def _checked_form(saved: dict[str, Any]) -> tuple[RowForm, np.ndarray]:
    """Form of rows, and those stored; ValueError if the parts of a weight do not fit together."""
    storage, dtype, shape = saved.get("storage"), saved.get("dtype"), saved.get("shape")
    if storage not in GRIDS or dtype not in _DTYPES or not _is_shape(shape):
        raise ValueError(f"a packed weight of storage {storage}, type {dtype}, shape {shape}")
    form = _checked_row(saved.get("length"), saved.get("bias"), shape)
    length, bias = form
    n_rows = math.prod(shape) // length
    bits = saved.get("used")
    if bits is None:
        used = np.arange(n_rows)
    elif _fits(bits, (-(-n_rows // 8),), np.uint8):
        used = np.flatnonzero(np.unpackbits(bits, count=n_rows))
    else:
        raise ValueError(f"a packed weight of {n_rows} rows does not say which ones are stored")
    of_numbers, of_scales = layout(len(used), length - (bias is not None), storage)
    parts = {"numbers": of_numbers, "scales": of_scales}
    parts |= {} if bias is None else {"biases": ((len(used),), np.dtype(dtype))}
    if not all(_fits(saved.get(name), *expected) for name, expected in parts.items()):
        raise ValueError(f"a packed weight of shape {shape} has parts of other shapes or types")
    return form, used


def _checked_row(length: Any, bias: Any, shape: list[int]) -> RowForm:
    is_length = type(length) is int and length > 0 and math.prod(shape) % length == 0
    if not is_length or not (bias is None or (type(bias) is int and 0 <= bias < length)):
        raise ValueError(f"a packed weight of shape {shape} has rows of {length}, bias {bias}")
    return RowForm(length, bias)


def _is_shape(shape: Any) -> TypeGuard[list[int]]:
    is_list = isinstance(shape, list) and len(shape) > 1
    return is_list and all(type(size) is int and size > 0 for size in shape)


def _fits(array: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    return isinstance(array, np.ndarray) and array.shape == shape and array.dtype == dtype
