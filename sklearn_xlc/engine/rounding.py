"""Round weights to a few bits: integers with a scale for each block of a row.

A block is rounded to multiples of its scale; the largest number of the block is kept. Scales have
few digits, so multiples are exact. Rounding twice therefore equals rounding once, and integers and
scales can be recovered from the rounded numbers alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklearn_xlc._csr import row_blocks

#: Numbers rounded at a time.
_CHUNK = 2**18
#: Blocks with a smaller largest number become zero: their scales would have too few digits.
_TINY = np.float32(2.0**-100)


class Grid(NamedTuple):
    """Format of rounded numbers: bits of an integer, and size of a block."""

    bits: int
    block: int
    #: Type of the stored scales: float32 with 16 significant bits, or its upper half.
    scales: np.dtype

    @property
    def levels(self) -> int:
        """The largest integer; the smallest is its negative."""
        return 2 ** (self.bits - 1) - 1

    @property
    def group(self) -> tuple[int, int]:
        """Least count of numbers in whole bytes, and the count of bytes."""
        bits = math.lcm(self.bits, 8)
        return bits // self.bits, bits // 8

    @property
    def numbers(self) -> str:
        return "int8" if self.bits == 8 else "uint8"


#: Storages from the coarsest to the finest. "int4" has short blocks: a large bias within a row (as
#: in tables of a cascade) then costs only its own block digits.
GRIDS: dict[str, Grid | None] = {
    "int4": Grid(4, 64, np.dtype(np.uint16)),
    "int6": Grid(6, 128, np.dtype(np.uint16)),
    "int8": Grid(8, 256, np.dtype(np.float32)),
    "float16": None,
}
#: Values of the parameter `storage`.
STORAGES = ("float32", *reversed(GRIDS))


def check_storage(storage: str) -> None:
    """Raise ValueError if `storage` is not the name of a storage."""
    if storage not in STORAGES:
        raise ValueError(f"storage must be one of {', '.join(STORAGES)}, got {storage!r}")


Shape = tuple[int, ...]


def layout(
    n_rows: int, length: int, storage: str
) -> tuple[tuple[Shape, np.dtype], tuple[Shape, np.dtype]]:
    """Return shapes and types of the stored numbers and of the scales."""
    grid = GRIDS[storage]
    if grid is None:
        return ((n_rows, length), np.dtype(np.float16)), ((n_rows, 0), np.dtype(np.float32))
    together, n_bytes = grid.group
    of_numbers = (n_rows, -(-length // together) * n_bytes)
    of_scales = (n_rows, -(-length // grid.block))
    return (of_numbers, np.dtype(grid.numbers)), (of_scales, grid.scales)


def chunks(n_rows: int, length: int) -> list[slice]:
    """Return slices of rows to round one after the other."""
    return row_blocks(n_rows, length, _CHUNK)


def scales_of(rows: np.ndarray, storage: str) -> np.ndarray:
    """Compute the scale of each block; "float16" has no blocks.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, length)
        Finite numbers, in float32 or float64.
    storage : {"float16", "int8", "int6", "int4"}
        Storage to round to.

    Returns
    -------
    scales : ndarray of shape (n_rows, n_blocks)
        In the stored type.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.engine.rounding import numbers_of, scales_of, values_of
    >>> rows = np.array([[0.1, -0.2, 1.27]], dtype=np.float32)
    >>> scales = scales_of(rows, "int8")
    >>> numbers = numbers_of(rows, scales, "int8")
    >>> numbers
    array([[ 10, -20, 127]], dtype=int8)
    >>> values_of(numbers, scales, "int8", 3, rows.dtype).round(3)
    array([[ 0.1 , -0.2 ,  1.27]], dtype=float32)
    """
    grid = GRIDS[storage]
    if grid is None:
        return np.zeros((len(rows), 0), np.float32)
    starts = np.arange(0, rows.shape[1], grid.block)
    # Rounding the largest number to float32 does not change its integer.
    peak = np.maximum.reduceat(np.abs(rows), starts, axis=1).astype(np.float32)
    unused = np.uint32(2**16 - 1 if grid.scales.itemsize == 2 else 2**8 - 1)
    bits = (peak / np.float32(grid.levels)).view(np.uint32) + unused  # round up: none exceeds
    bits &= ~unused
    bits[peak < _TINY] = 0
    return (bits >> 16).astype(np.uint16) if grid.scales.itemsize == 2 else bits.view(np.float32)


def numbers_of(rows: np.ndarray, scales: np.ndarray, storage: str) -> np.ndarray:
    """Compute the stored numbers of rows: float16, int8, or packed bytes of shorter integers.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, length)
        As in :func:`scales_of`.
    scales : ndarray of shape (n_rows, n_blocks)
        Result of :func:`scales_of`.
    storage : {"float16", "int8", "int6", "int4"}
        Storage to round to.

    Returns
    -------
    numbers : ndarray of shape (n_rows, length) or (n_rows, n_bytes)
        Shape and type as in :func:`layout`.
    """
    grid = GRIDS[storage]
    if grid is None:
        return rows.astype(np.float16)
    spread = _spread(scales, rows.shape[1], grid, rows.dtype)
    numbers = np.divide(rows, spread, out=np.zeros_like(rows), where=spread > 0)
    integers = np.rint(numbers, out=numbers).astype(np.int8)
    return _packed(integers, grid)


def values_of(
    numbers: np.ndarray, scales: np.ndarray, storage: str, length: int, dtype: np.dtype
) -> np.ndarray:
    """Compute rounded rows; the inverse of :func:`numbers_of`.

    Parameters
    ----------
    numbers, scales : ndarray
        Results of :func:`numbers_of` and :func:`scales_of`.
    storage : {"float16", "int8", "int6", "int4"}
        Storage of the rows.
    length : int
        Number of columns.
    dtype : dtype
        Type of the rows.

    Returns
    -------
    rows : ndarray of shape (n_rows, length)
    """
    grid = GRIDS[storage]
    if grid is None:
        return numbers.astype(dtype)
    numbers = _integers(numbers, length, grid)
    return numbers * _spread(scales, length, grid, dtype)


def _packed(integers: np.ndarray, grid: Grid) -> np.ndarray:
    """Pack rows of integers into bytes, first integer in the lowest bits; keep int8 as it is."""
    if grid.bits == 8:
        return integers
    together, n_bytes = grid.group
    n_rows, length = integers.shape
    n_words = -(-length // together)
    # Unsigned bytes; the bits of a group of them fill whole bytes.
    unsigned = np.full((n_rows, n_words * together), grid.levels + 1, np.uint8)
    unsigned[:, :length] += integers.view(np.uint8)
    words = unsigned.view(f"<u{together}")
    packed = np.zeros_like(words)
    for place, mask in enumerate(_masks(grid)):
        packed |= (words >> place * (8 - grid.bits)) & mask
    by_byte = packed.view(np.uint8).reshape(n_rows, n_words, together)
    return by_byte[:, :, :n_bytes].reshape(n_rows, n_words * n_bytes)


def _integers(packed: np.ndarray, length: int, grid: Grid) -> np.ndarray:
    """Unpack rows of bytes into integers; the inverse of :func:`_packed`."""
    if grid.bits == 8:
        return packed
    together, n_bytes = grid.group
    n_words = packed.shape[1] // n_bytes
    by_byte = np.zeros((len(packed), n_words, together), np.uint8)
    by_byte[:, :, :n_bytes] = packed.reshape(len(packed), n_words, n_bytes)
    words = by_byte.reshape(len(packed), n_words * together).view(f"<u{together}")
    integers = np.zeros_like(words)
    for place, mask in enumerate(_masks(grid)):
        integers |= (words & mask) << place * (8 - grid.bits)
    return integers.view(np.int8)[:, :length] - np.int8(grid.levels + 1)


def _masks(grid: Grid) -> list[int]:
    """Return the bit mask of each packed number in a word."""
    return [(2**grid.bits - 1) << place * grid.bits for place in range(grid.group[0])]


def _spread(scales: np.ndarray, length: int, grid: Grid, dtype: np.dtype) -> np.ndarray:
    """Return the scale of each number, of shape (n_rows, length)."""
    if grid.scales.itemsize == 2:
        scales = (scales.astype(np.uint32) << 16).view(np.float32)
    return np.repeat(scales.astype(dtype), grid.block, axis=1)[:, :length]


def rounded(rows: np.ndarray, storage: str) -> np.ndarray:
    """Round rows to a storage, in their own type."""
    scales = scales_of(rows, storage)
    return values_of(numbers_of(rows, scales, storage), scales, storage, rows.shape[1], rows.dtype)


def is_rounded(rows: np.ndarray, storage: str) -> bool:
    """Return whether a storage holds the rows exactly; false for rows with infinity or NaN."""
    bits = np.dtype(f"u{rows.dtype.itemsize}")
    with np.errstate(all="ignore"):  # beyond float16
        return bool(
            np.isfinite(rows).all()
            and np.array_equal(rows.view(bits), rounded(rows, storage).view(bits))
        )
