"""Store weights in six bits a number: integers with a scale for each block of a row.

A block is rounded to multiples of its scale; the largest number of the block is kept. Scales have
16 significant bits, so multiples are exact: rounding twice equals rounding once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sklearn_xlc._csr import row_blocks
from sklearn_xlc.engine.memory import refuse_beyond

#: Arrays of fewer numbers are never rounded: there is nothing to gain.
SMALL = 4096
#: Largest integer; the smallest is its negative.
_LEVELS = 31
#: Numbers with a common scale.
_BLOCK = 128
#: Numbers rounded at a time.
_CHUNK = 2**18
#: Blocks with a smaller largest number become zero: their scales would have too few digits.
_TINY = np.float32(2.0**-100)
#: Scale of one: the upper half of a float32.
_ONE = np.uint16(0x3F80)
_DTYPES = ("float32", "float64")


def pack(weight: np.ndarray, length: int, bias: int | None = None) -> dict[str, Any]:
    """Round rows of `length` numbers to six bits each; drop rows of zeros, keep `bias` exact."""
    rows = weight.reshape(-1, length)
    used = rows.any(axis=1)
    if not used.any():
        used = np.ones(len(rows), bool)  # a file of few bytes must not stand for many
    kept, n_rounded = np.flatnonzero(used), length - (bias is not None)
    numbers = np.empty((len(kept), _n_bytes(n_rounded)), np.uint8)
    scales = np.empty((len(kept), -(-n_rounded // _BLOCK)), np.uint16)
    biases = np.empty(0 if bias is None else len(kept), weight.dtype)
    for part in row_blocks(len(kept), length, _CHUNK):
        of_part = rows[kept[part]]
        if bias is not None:
            biases[part] = of_part[:, bias]
            of_part = np.delete(of_part, bias, axis=1)
        scales[part] = _scales_of(of_part)
        numbers[part] = _bytes_of(of_part, scales[part])
    return {
        "dtype": weight.dtype.name,
        "shape": list(weight.shape),
        "length": length,
        "bias": -1 if bias is None else bias,
        "used": np.packbits(used),
        "numbers": numbers,
        "scales": scales,
        "biases": biases,
    }


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """Return the rounded weight of the result of :func:`pack`; ValueError if parts do not fit."""
    length, bias, used = _checked(packed)
    shape, dtype = packed["shape"], np.dtype(packed["dtype"])
    size = math.prod(shape)
    if len(used) * length < size:
        refuse_beyond(size * dtype.itemsize, "the saved model", "a machine with more memory")
    weight = np.zeros((size // length, length), dtype)
    for part in row_blocks(len(used), length, _CHUNK):
        scales = _spread(packed["scales"][part], length - (bias >= 0), dtype)
        rows = _integers_of(packed["numbers"][part], scales.shape[1]).astype(dtype)
        rows *= scales
        if bias >= 0:
            rows = np.insert(rows, bias, packed["biases"][part], axis=1)
        weight[used[part]] = rows
    return weight.reshape(shape)


def _checked(packed: dict[str, Any]) -> tuple[int, int, np.ndarray]:
    """Return length and bias of a row, and the rows stored; raise if parts do not fit together."""
    found: Any = [packed.get(key) for key in ("shape", "dtype", "length", "bias")]
    shape, dtype, length, bias = found
    is_shape = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
    sizes_fit = is_shape and type(length) is int and length > 0 and not math.prod(shape) % length
    if not (sizes_fit and dtype in _DTYPES and type(bias) is int and -1 <= bias < length):
        raise ValueError(f"a rounded weight of shape {shape}, rows of {length}, type {dtype}")
    n_rows = math.prod(shape) // length
    _check_part(packed, "used", (-(-n_rows // 8),), np.uint8)
    used = np.flatnonzero(np.unpackbits(packed["used"], count=n_rows))
    n_rounded, n_used = length - (bias >= 0), len(used)
    _check_part(packed, "numbers", (n_used, _n_bytes(n_rounded)), np.uint8)
    _check_part(packed, "scales", (n_used, -(-n_rounded // _BLOCK)), np.uint16)
    _check_part(packed, "biases", (n_used if bias >= 0 else 0,), np.dtype(dtype))
    return length, bias, used


def _check_part(packed: dict[str, Any], name: str, shape: tuple[int, ...], dtype: Any) -> None:
    part = packed.get(name)
    if not (isinstance(part, np.ndarray) and part.shape == shape and part.dtype == dtype):
        raise ValueError(f"a rounded weight of shape {packed['shape']} has other {name}")


def _scales_of(rows: np.ndarray) -> np.ndarray:
    """Compute the scale of each block: the upper half of a float32, rounded up."""
    starts = np.arange(0, rows.shape[1], _BLOCK)
    peak = np.maximum.reduceat(np.abs(rows), starts, axis=1)
    if not (peak <= np.finfo(np.float32).max).all():
        raise ValueError("numbers that are NaN, infinite or too large")
    # Rounding the largest number to float32 does not change its integer.
    peak = peak.astype(np.float32)
    bits = (peak / np.float32(_LEVELS)).view(np.uint32) + np.uint32(2**16 - 1)
    bits[peak < _TINY] = 0
    return (bits >> 16).astype(np.uint16)


def _spread(scales: np.ndarray, length: int, dtype: np.dtype) -> np.ndarray:
    """Return the scale of each number, of shape (n_rows, length)."""
    values = (scales.astype(np.uint32) << 16).view(np.float32).astype(dtype)
    return np.repeat(values, _BLOCK, axis=1)[:, :length]


def _n_bytes(length: int) -> int:
    """Return the bytes of a row: three for each four numbers."""
    return 3 * -(-length // 4)


def _bytes_of(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Round rows to integers, four to three bytes, the first in the lowest bits."""
    # Numbers of a block without a scale are rounded to zero.
    spread = _spread(np.where(scales, scales, _ONE), rows.shape[1], rows.dtype)
    numbers = rows / spread
    padded = np.full((len(rows), 4 * -(-rows.shape[1] // 4)), _LEVELS + 1, np.uint8)
    padded[:, : rows.shape[1]] += np.rint(numbers, out=numbers).astype(np.int8).view(np.uint8)
    four = padded.view("<u4")
    three = four & 63 | four >> 2 & 63 << 6 | four >> 4 & 63 << 12 | four >> 6 & 63 << 18
    found = np.empty((*three.shape, 3), np.uint8)
    _copy_bytes(three.astype("<u4", copy=False)[:, :, None].view(np.uint8), found)
    return found.reshape(len(rows), -1)


def _integers_of(packed: np.ndarray, length: int) -> np.ndarray:
    """Return the integers of rows of bytes; the inverse of :func:`_bytes_of`."""
    padded = np.zeros((len(packed), packed.shape[1] // 3, 4), np.uint8)
    _copy_bytes(packed.reshape(len(packed), -1, 3), padded)
    three = padded.view("<u4")[:, :, 0]
    four = three & 63 | (three & 63 << 6) << 2 | (three & 63 << 12) << 4 | (three & 63 << 18) << 6
    return four.astype("<u4", copy=False).view(np.int8)[:, :length] - np.int8(_LEVELS + 1)


def _copy_bytes(source: np.ndarray, target: np.ndarray) -> None:
    """Copy the first three entries of the last axis; one by one, which is four times as fast."""
    for i in range(3):
        target[:, :, i] = source[:, :, i]
