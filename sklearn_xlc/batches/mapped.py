"""Prefetching of rows from memory-mapped files, for reading in random order."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


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
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            return array._mmap  # type: ignore[attr-defined]
        array = array.base
    return None


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
