"""Order of the samples in a pass: shuffled, near each other where there are very many entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from sklearn_xlc._csr import joined_ranges

#: Numbers, or stored entries, of X from which on samples are shuffled by blocks: 2 GB as CSR.
MANY_ENTRIES = 2**28
#: Entries of a block of samples that lie together, 128 KB of CSR: what a disk reads at once.
_BLOCK = 2**14
#: Blocks whose samples are mixed: they are read once if 256 MB of them stay in memory.
_TOGETHER = 2**11


def is_by_blocks(n_entries: int) -> bool:
    """Whether samples of so many entries are shuffled by blocks."""
    return n_entries >= MANY_ENTRIES


def shuffled(n_samples: int, n_entries: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Samples in random order, in pieces.

    A pure function of the generator and of the sizes, so that the same matrix in memory, or mapped
    from a file, is read in the same order. A file that is larger than the memory would be read once
    for every few samples if they were drawn from all of it. So beyond `MANY_ENTRIES` blocks of
    neighbours are drawn, and the samples of each 2048 blocks are mixed.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    n_entries : int
        Number of numbers, or stored entries, that they have.
    rng : numpy Generator
        Generator. Everything is drawn from it before the first piece.

    Yields
    ------
    ndarray of int64
        A piece of the order; together they hold every sample once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.batches.order import shuffled
    >>> [piece.tolist() for piece in shuffled(5, 20, np.random.default_rng(0))]
    [[2, 4, 3, 0, 1]]
    """
    if not is_by_blocks(n_entries):
        yield rng.permutation(n_samples)
        return
    size = max(1, _BLOCK * n_samples // n_entries)
    starts = rng.permutation(np.arange(0, n_samples, size))
    rng = np.random.default_rng(rng.integers(2**63))
    for first in range(0, len(starts), _TOGETHER):
        some = starts[first : first + _TOGETHER]
        yield rng.permutation(joined_ranges(some, np.minimum(size, n_samples - some)))


def regrouped(pieces: Iterator[np.ndarray], sizes: Iterable[int]) -> Iterator[np.ndarray]:
    """The same indices in pieces of other sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.batches.order import regrouped
    >>> [piece.tolist() for piece in regrouped(iter([np.arange(3), np.arange(2)]), [2, 3])]
    [[0, 1], [2, 0, 1]]
    """
    left = np.zeros(0, np.int64)
    for size in sizes:
        while len(left) < size:
            left = np.concatenate([left, next(pieces)]) if len(left) else next(pieces)
        yield left[:size]
        left = left[size:]
