"""Pairs of a sample and a label, and entries of sparse matrices at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc._csr import FEW_ENTRIES, IntArray
from sklearn_xlc.ranking.base import Array

#: Number of entries of a table of a few samples and all labels.
_TABLE = 8 * FEW_ENTRIES


class Pairs:
    """Look-ups at pairs of a row and a label, in tables of a few rows at a time.

    Parameters
    ----------
    rows, labels : ndarray of shape (n_pairs,)
        Distinct pairs; rows ascend.
    shape : tuple of int
        Numbers of rows and labels.
    """

    def __init__(self, rows: IntArray, labels: IntArray, shape: tuple[int, int]) -> None:
        self.rows, self.labels, self.shape = rows, labels, shape
        self._step = max(1, _TABLE // max(1, shape[1]))

    def find(self, indptr: Array, labels: Array) -> tuple[IntArray, IntArray]:
        """Find the entries of all rows whose labels are listed: ascending, with their pairs.

        Row i has the entries ``indptr[i]`` to ``indptr[i + 1]``, of these `labels`.
        """
        n_rows, n_labels = self.shape
        table = np.full(min(self._step, n_rows) * n_labels, -1, dtype=np.int32)
        starts = list(range(0, n_rows, self._step))
        cuts: list[int] = np.searchsorted(self.rows, [*starts, n_rows]).tolist()
        parts: list[Any] = []
        for start, first, last in zip(starts, cuts, cuts[1:]):
            stop = min(start + self._step, n_rows)
            wanted = (self.rows[first:last] - start) * n_labels + self.labels[first:last]
            table[wanted] = np.arange(last - first)
            inside = slice(indptr[start], indptr[stop])
            of_rows = np.arange(stop - start) * n_labels
            at = np.repeat(of_rows, np.diff(indptr[start : stop + 1])) + labels[inside]
            found = table[at]
            table[wanted] = -1
            entries = np.flatnonzero(found >= 0)
            parts.append((entries + inside.start, found[entries] + first))
        if not parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        entries, pairs = (np.concatenate(column) for column in zip(*parts))
        return entries, pairs

    def entries(self, indptr: Array, labels: Array, values: Array) -> Array:
        """Return values of entries, as in :meth:`find`, at pairs: 0 where there is none.

        Of several entries of a row with one label the last one counts.
        """
        found = np.zeros(len(self.rows), dtype=values.dtype)
        entries, pairs = self.find(indptr, labels)
        found[pairs] = values[entries]
        return found


def distinct(keys: IntArray) -> IntArray:
    """Return distinct integers, ascending; `np.unique` takes several times as long."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]
