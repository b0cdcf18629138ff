"""Order of the samples in an epoch: shuffled, for large data in blocks of neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

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
