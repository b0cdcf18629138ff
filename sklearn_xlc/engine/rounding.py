"""Weights rounded to a few bits, as integers with a scale for each block of a row.

A block is rounded to the multiples of its scale, and the largest of them is the largest number of
the block. Scales have so few digits that multiples are exact: what was rounded once is not changed
by rounding it again, so integers and scales are found again from the rounded numbers alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklearn_xlc._csr import row_blocks

#: Numbers that are rounded at a time.
_CHUNK = 2**18
#: Blocks whose largest number is smaller become zero: their scales would have too few digits.
_TINY = np.float32(2.0**-100)


class Grid(NamedTuple):
    """Integers from `-levels` to `levels`, with a scale for each block."""

    levels: int
    block: int
    #: Type of the stored scales: float32, of which 16 digits (bits) are used, or its upper half.
    scales: np.dtype

    @property
    def per_byte(self) -> int:
        return 2 if self.levels < 8 else 1

    @property
    def numbers(self) -> str:
        return "int8" if self.per_byte == 1 else "uint8"


#: Storages from the coarsest to the finest. The block of "int4" is short, so that a bias within a
#: row (as in tables of a cascade) leaves the other numbers of the row their digits.
GRIDS: dict[str, Grid | None] = {
    "int4": Grid(7, 64, np.dtype(np.uint16)),
    "int8": Grid(127, 256, np.dtype(np.float32)),
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
    of_numbers = (n_rows, -(-length // grid.per_byte))
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
    storage : {"float16", "int8", "int4"}
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
    """Stored numbers of rows: float16, int8, or two integers of four bits in a byte.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, length)
        As in :func:`scales_of`.
    scales : ndarray of shape (n_rows, n_blocks)
        Result of :func:`scales_of`.
    storage : {"float16", "int8", "int4"}
        What to round to.

    Returns
    -------
    numbers : ndarray of shape (n_rows, length) or (n_rows, (length + 1) // 2)
    """
    grid = GRIDS[storage]
    if grid is None:
        return rows.astype(np.float16)
    spread = _spread(scales, rows.shape[1], grid, rows.dtype)
    numbers = np.divide(rows, spread, out=np.zeros_like(rows), where=spread > 0)
    integers = np.rint(numbers, out=numbers).astype(np.int8)
    if grid.per_byte == 1:
        return integers
    if integers.shape[1] % 2:
        integers = np.pad(integers, ((0, 0), (0, 1)))
    nibbles = (integers + 8).view(np.uint8)
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4


def values_of(
    numbers: np.ndarray, scales: np.ndarray, storage: str, length: int, dtype: np.dtype
) -> np.ndarray:
    """Rounded rows, of shape (n_rows, length): the reverse of :func:`numbers_of`.

    Parameters
    ----------
    numbers, scales : ndarray
        Results of :func:`numbers_of` and :func:`scales_of`.
    storage : {"float16", "int8", "int4"}
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
    if grid.per_byte == 2:
        halves = np.stack([numbers & 15, numbers >> 4], axis=2)
        halves = halves.reshape(len(numbers), 2 * numbers.shape[1])
        numbers = halves[:, :length].view(np.int8) - np.int8(8)
    return numbers * _spread(scales, length, grid, dtype)


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
