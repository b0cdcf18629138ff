"""Rows of matrices that are mapped from files, fetched before they are read in random order."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


def is_mapped(array: Any) -> bool:
    """Whether an array, or one that it is a part of, is mapped from a file."""
    return _mapping(array) is not None


def fetched(
    pieces: Iterator[np.ndarray], X: Any, rows_of: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """The pieces of an order of samples; the rows of X of each are fetched before it is read.

    Systems read a mapped file ahead, up to megabytes about each row. Of rows in random order that
    is read for nothing, and takes the place of what is needed: a file of 5 GiB was read more than
    fifty times over before a pass had ended, where memory held a quarter of it. So that is switched
    off until the last piece, and each piece asks for its own pages.

    Parameters
    ----------
    pieces : iterator of ndarray
        Samples, each piece few enough to stay in memory.
    X : CSR matrix or ndarray of shape (n_rows, ...)
        Matrix. Nothing is done if it is not mapped, or the system takes no advice.
    rows_of : callable
        Rows of X of samples.

    Yields
    ------
    ndarray
        The same pieces.
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
    """The map that an array lies in, or None."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            return array._mmap  # type: ignore[attr-defined]
        array = array.base
    return None


def _advise_whole(arrays: list[np.ndarray], advice: int) -> None:
    for mapping in {id(found): found for found in map(_mapping, arrays)}.values():
        _advise(mapping, advice, 0, len(mapping))


def _fetch(array: np.ndarray, indptr: np.ndarray | None, rows: np.ndarray) -> None:
    """Ask for the pages of rows in rising order, neighbours at once."""
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
