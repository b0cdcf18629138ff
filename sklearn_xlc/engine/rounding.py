"""Weights rounded to a few bits, as integers with a scale for each block of a row.

A block is rounded to the multiples of its scale, and the largest of them is the largest number of
the block. Scales have so few digits that multiples are exact: what was rounded once is not changed
by rounding it again, so integers and scales are found again from the rounded numbers alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklearn_xlc._csr import row_blocks

#: Numbers that are rounded at a time.
_CHUNK = 2**18
#: Blocks whose largest number is smaller become zero: their scales would have too few digits.
_TINY = np.float32(2.0**-100)


class Grid(NamedTuple):
    """Integers of some bits, with a scale for each block."""

    bits: int
    block: int
    #: Type of the stored scales: float32, of which 16 digits (bits) are used, or its upper half.
    scales: np.dtype

    @property
    def levels(self) -> int:
        """The largest integer; the smallest is its negative."""
        return 2 ** (self.bits - 1) - 1

    @property
    def group(self) -> tuple[int, int]:
        """Numbers that fill whole bytes together, and how many bytes."""
        bits = math.lcm(self.bits, 8)
        return bits // self.bits, bits // 8

    @property
    def numbers(self) -> str:
        return "int8" if self.bits == 8 else "uint8"


#: Storages from the coarsest to the finest. The block of "int4" is short, so that a bias within a
#: row (as in tables of a cascade) leaves the other numbers of the row their digits.
GRIDS: dict[str, Grid | None] = {
    "int4": Grid(4, 64, np.dtype(np.uint16)),
    "int6": Grid(6, 128, np.dtype(np.uint16)),
    "int8": Grid(8, 256, np.dtype(np.float32)),
    "float16": None,
}
#: Values of the parameter `storage`.
STORAGES = ("float32", *reversed(GRIDS))


def check_storage(storage: str) -> None:
    """Raise ValueError unless `storage` is one that weights can be rounded to, or "float32"."""
    if storage not in STORAGES:
        raise ValueError(f"storage must be one of {', '.join(STORAGES)}, got {storage!r}")


Shape = tuple[int, ...]


def layout(
    n_rows: int, length: int, storage: str
) -> tuple[tuple[Shape, np.dtype], tuple[Shape, np.dtype]]:
    """Shapes and types of the numbers and of the scales of rows."""
    grid = GRIDS[storage]
    if grid is None:
        return ((n_rows, length), np.dtype(np.float16)), ((n_rows, 0), np.dtype(np.float32))
    together, n_bytes = grid.group
    of_numbers = (n_rows, -(-length // together) * n_bytes)
    of_scales = (n_rows, -(-length // grid.block))
    return (of_numbers, np.dtype(grid.numbers)), (of_scales, grid.scales)


def chunks(n_rows: int, length: int) -> list[slice]:
    """Rows that are rounded at a time."""
    return row_blocks(n_rows, length, _CHUNK)


def scales_of(rows: np.ndarray, storage: str) -> np.ndarray:
    """Scale of each block, of shape (n_rows, n_blocks); without blocks ("float16") none.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, length)
        Finite numbers, in float32 or float64.
    storage : {"float16", "int8", "int6", "int4"}
        What to round to.

    Returns
    -------
    scales : ndarray of shape (n_rows, n_blocks)
        In the type that is stored.

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
    # The largest number as float32, rounded to nearest: its integer is the largest all the same.
    peak = np.maximum.reduceat(np.abs(rows), starts, axis=1).astype(np.float32)
    unused = np.uint32(2**16 - 1 if grid.scales.itemsize == 2 else 2**8 - 1)
    bits = (peak / np.float32(grid.levels)).view(np.uint32) + unused  # up, so that none exceeds
    bits &= ~unused
    bits[peak < _TINY] = 0
    return (bits >> 16).astype(np.uint16) if grid.scales.itemsize == 2 else bits.view(np.float32)


def numbers_of(rows: np.ndarray, scales: np.ndarray, storage: str) -> np.ndarray:
    """Stored numbers of rows: float16, int8, or bytes in which shorter integers lie end to end.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, length)
        As in :func:`scales_of`.
    scales : ndarray of shape (n_rows, n_blocks)
        Result of :func:`scales_of`.
    storage : {"float16", "int8", "int6", "int4"}
        What to round to.

    Returns
    -------
    numbers : ndarray of shape (n_rows, length) or (n_rows, n_bytes)
        As :func:`layout` says.
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
    """Rounded rows, of shape (n_rows, length): the reverse of :func:`numbers_of`.

    Parameters
    ----------
    numbers, scales : ndarray
        Results of :func:`numbers_of` and :func:`scales_of`.
    storage : {"float16", "int8", "int6", "int4"}
        What the rows are rounded to.
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
    """Bytes of rows of integers, the first in the lowest bits; of eight bits, the integers."""
    if grid.bits == 8:
        return integers
    together, n_bytes = grid.group
    n_rows, length = integers.shape
    n_words = -(-length // together)
    # Unsigned bytes, of which so many are one word that their bits fill bytes.
    unsigned = np.full((n_rows, n_words * together), grid.levels + 1, np.uint8)
    unsigned[:, :length] += integers.view(np.uint8)
    words = unsigned.view(f"<u{together}")
    packed = np.zeros_like(words)
    for place, mask in enumerate(_masks(grid)):
        packed |= (words >> place * (8 - grid.bits)) & mask
    by_byte = packed.view(np.uint8).reshape(n_rows, n_words, together)
    return by_byte[:, :, :n_bytes].reshape(n_rows, n_words * n_bytes)


def _integers(packed: np.ndarray, length: int, grid: Grid) -> np.ndarray:
    """Integers of rows of bytes: the reverse of :func:`_packed`."""
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
    """Where in a word the bits of each number lie that is packed with others."""
    return [(2**grid.bits - 1) << place * grid.bits for place in range(grid.group[0])]


def _spread(scales: np.ndarray, length: int, grid: Grid, dtype: np.dtype) -> np.ndarray:
    """Scale of each number, of shape (n_rows, length)."""
    if grid.scales.itemsize == 2:
        scales = (scales.astype(np.uint32) << 16).view(np.float32)
    return np.repeat(scales.astype(dtype), grid.block, axis=1)[:, :length]


def rounded(rows: np.ndarray, storage: str) -> np.ndarray:
    """Rows rounded to what a storage holds, in their own type."""
    scales = scales_of(rows, storage)
    return values_of(numbers_of(rows, scales, storage), scales, storage, rows.shape[1], rows.dtype)


def is_rounded(rows: np.ndarray, storage: str) -> bool:
    """Whether a storage holds the rows to the last bit; rows that are not finite it does not."""
    bits = np.dtype(f"u{rows.dtype.itemsize}")
    with np.errstate(all="ignore"):  # beyond float16
        return bool(
            np.isfinite(rows).all()
            and np.array_equal(rows.view(bits), rounded(rows, storage).view(bits))
        )
