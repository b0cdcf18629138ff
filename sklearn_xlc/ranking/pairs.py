"""Entries of sparse matrices at listed pairs of a sample and a label."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc._csr import FEW_ENTRIES, IntArray, row_numbers
from sklearn_xlc.ranking.base import Array

#: Number of entries of a table of a few samples and all labels.
_TABLE = 16 * FEW_ENTRIES


class Pairs:
    """Look-ups at pairs of a row and a label, in tables of a few rows at a time.

    Parameters
    ----------
    rows, labels : ndarray of shape (n_pairs,)
        Pairs; rows ascend.
    shape : tuple of int
        Numbers of rows and labels.
    """

    def __init__(self, rows: IntArray, labels: IntArray, shape: tuple[int, int]) -> None:
        self.rows, self.labels, self.shape = rows, labels, shape
        self._step = max(1, _TABLE // max(1, shape[1]))

    def entries(self, indptr: Array, labels: Array, values: Array) -> Array:
        """Return values at pairs, 0 where there is none.

        Parameters
        ----------
        indptr : ndarray of shape (n_rows + 1,)
            Row i has the entries ``indptr[i]`` to ``indptr[i + 1]``.
        labels, values : ndarray of shape (n_entries,)
            Entries. Of several entries of a row with one label the last one counts.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Values.
        """
        found = np.zeros(len(self.rows), dtype=values.dtype)
        for inside, own, positions, wanted, size in self._tables(indptr, labels):
            table = np.zeros(size, dtype=values.dtype)
            table[positions] = values[inside]
            found[own] = table[wanted]
        return found

    def sums(self, indptr: Array, labels: Array, values: Array) -> Array:
        """Return sums, in float64, of the values of all entries at each pair."""
        found = np.zeros(len(self.rows))
        for inside, own, positions, wanted, size in self._tables(indptr, labels):
            found[own] = np.bincount(positions, values[inside], size)[wanted]
        return found

    def _tables(self, indptr: Array, labels: Array) -> Any:
        """Yield entries and pairs of some rows, their positions in a table, and its size."""
        for start in range(0, self.shape[0], self._step):
            stop = min(start + self._step, self.shape[0])
            first, last = np.searchsorted(self.rows, [start, stop])
            inside, own = slice(indptr[start], indptr[stop]), slice(first, last)
            entry_rows = row_numbers(indptr[start : stop + 1])
            positions = entry_rows * self.shape[1] + labels[inside]
            wanted = (self.rows[own] - start) * self.shape[1] + self.labels[own]
            yield inside, own, positions, wanted, (stop - start) * self.shape[1]
