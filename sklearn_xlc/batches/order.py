"""Order of the samples in an epoch: for large data in blocks, fetched from mapped files."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import joined_ranges

#: Size of X, in numbers or stored entries, from which samples are shuffled in blocks: 2 GB as CSR.
MANY_ENTRIES = 2**28
#: Entries of a block of neighbouring samples: 128 KB of CSR, one read of a disk.
_BLOCK = 2**14
#: Number of blocks shuffled together: they are read once if 256 MB fit into memory.
_TOGETHER = 2**11


def is_by_blocks(n_entries: int) -> bool:
    """Return whether `n_entries` entries are shuffled in blocks."""
    return n_entries >= MANY_ENTRIES


def shuffled(n_samples: int, n_entries: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of samples in random order, in pieces.

    The order depends on the generator and the sizes only: a matrix in memory and its mapped file
    are read in the same order. Beyond `MANY_ENTRIES` numbers or stored entries, blocks of
    neighbouring samples are drawn, and the samples of 2048 blocks are shuffled together: drawing
    single samples would read a file larger than the memory many times. Everything is drawn from
    `rng` before the first piece.
    """
    if not is_by_blocks(n_entries):
        yield rng.permutation(n_samples)
        return
    size = max(1, _BLOCK * n_samples // n_entries)
    starts = rng.permutation(np.arange(0, n_samples, size))
    rng = np.random.default_rng(rng.integers(2**63))
    for first in range(0, len(starts), _TOGETHER):
        drawn = starts[first : first + _TOGETHER]
        yield rng.permutation(joined_ranges(drawn, np.minimum(size, n_samples - drawn)))


def regrouped(pieces: Iterator[np.ndarray], sizes: Iterable[int]) -> Iterator[np.ndarray]:
    """Yield the same indices in pieces of other sizes."""
    left = np.zeros(0, np.int64)
    for size in sizes:
        while len(left) < size:
            left = np.concatenate([left, next(pieces)]) if len(left) else next(pieces)
        yield left[:size]
        left = left[size:]


# --- rows of memory-mapped files -----------------------------------------------------------------


def is_mapped(array: Any) -> bool:
    """Return whether an array, or its base, is mapped from a file."""
    return _mapping(array) is not None


def fetched(
    pieces: Iterator[np.ndarray], X: Any, rows_of: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """Yield the pieces of an order of samples, prefetching each piece's rows of X.

    Operating systems read up to megabytes ahead around each row of a mapped file. With rows in
    random order this is wasted, and evicts needed pages: with memory for a quarter of it, a file of
    5 GiB was read more than fifty times in one pass. So read-ahead is switched off until the last
    piece, and each piece requests its own pages; `rows_of` maps samples to rows of X. Nothing is
    prefetched unless X is mapped and the system supports ``madvise``.
    """
    arrays = [X.data, X.indices] if sp.issparse(X) else [X]
    arrays = [array for array in arrays if is_mapped(array) and array.flags.c_contiguous]
    if not arrays or not hasattr(mmap.mmap, "madvise"):
        yield from pieces
        return
    _advise_whole(arrays, mmap.MADV_RANDOM)
    try:
        for piece in pieces:
            rows = np.sort(rows_of(piece))
            for array in arrays:
                _fetch(array, X.indptr if sp.issparse(X) else None, rows)
            yield piece
    finally:
        _advise_whole(arrays, mmap.MADV_NORMAL)


def _mapping(array: Any) -> Any:
    """Return the memory map of an array, or None."""
    while array is not None and getattr(array, "_mmap", None) is None:
        array = getattr(array, "base", None)
    return getattr(array, "_mmap", None)


def _advise_whole(arrays: list[np.ndarray], advice: int) -> None:
    for mapping in map(_mapping, arrays):
        _advise(mapping, advice, 0, len(mapping))


def _fetch(array: np.ndarray, indptr: np.ndarray | None, rows: np.ndarray) -> None:
    """Request the pages of ascending rows, merging adjacent ranges."""
    mapping = _mapping(array)
    begin = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    if indptr is None:
        starts, stops = rows * array.strides[0], (rows + 1) * array.strides[0]
    else:
        starts, stops = (indptr[rows + end].astype(np.int64) * array.itemsize for end in (0, 1))
    page = mmap.PAGESIZE
    starts, stops = (begin + starts) // page * page, -((begin + stops) // -page) * page
    is_first = np.concatenate([[True], starts[1:] > stops[:-1]])
    firsts = np.flatnonzero(is_first)
    lasts = np.concatenate([firsts[1:], [len(rows)]]) - 1
    for start, stop in zip(starts[firsts].tolist(), stops[lasts].tolist()):
        _advise(mapping, mmap.MADV_WILLNEED, start, min(stop, len(mapping)) - start)


def _advise(mapping: Any, advice: int, start: int, length: int) -> None:
    if length:
        mapping.madvise(advice, start, length)
