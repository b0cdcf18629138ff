"""Products of samples and label vectors for (sample, label) pairs, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import IntArray, pointers_of, row_blocks
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs

#: Entries of samples gathered at once. A label with more has a block of its own and is summed in
#: pieces of this size, whatever the memory limit: sums must not depend on the limit.
PIECE = 2**23
#: Label vectors of d numbers are dense only where at least d / SPARSITY entries reach them.
SPARSITY = 16


def split_labels(data: Aggregation, X: Any, n_extra: int, n_jobs: int = 1) -> list[tuple[int, int]]:
    """Split the labels into ranges, so that `n_jobs` jobs together stay within `working_memory`.

    There is at least one range for each job, if there are enough labels. A pair takes the entries
    of its sample (a value, an index and a copy of it) and `n_extra` numbers.
    """
    groups = data.groups
    n_entries = np.diff(X.indptr) if sp.issparse(X) else np.full(len(X), X.shape[1])
    indptr = pointers_of(n_entries[groups.samples])[groups.indptr]
    entries = data.per_label(np.diff(indptr))
    item = X.dtype.itemsize
    size = entries * (item + 16) + data.n_pairs * (2 * item * n_extra + 100)
    size = size + 3 * item * X.shape[1]
    limit = max(1, min(memory_limit() // n_jobs, int(size.sum()) // n_jobs + 1))
    large = entries > PIECE
    block = np.cumsum(size) // limit + np.cumsum(large) + pointers_of(large)[:-1]
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    return [(int(a), int(b)) for a, b in zip(starts, [*starts[1:], data.n_labels])]


class Gathered:
    """Sums and products of the samples of a block's pairs.

    The label vectors of a block are one flat array, label after label; :meth:`to_rows` reshapes it.
    """

    def __init__(self, X: Any, pairs: Pairs) -> None:
        self.X, self.pairs = X, pairs
        self.n_features = X.shape[1]
        self.bounds = self._pieces()
        self._kept: Any = None
        self._used: IntArray | None = None

    def _pieces(self) -> list[tuple[int, int]]:
        """Split the pairs of a large single label into ranges of about PIECE entries."""
        n_pairs = len(self.pairs.samples)
        if self.pairs.n_labels > 1 or not n_pairs:
            return [(0, n_pairs)]
        if sp.issparse(self.X):
            entries = np.cumsum(np.diff(self.X.indptr)[self.pairs.samples])
        else:
            entries = np.arange(1, n_pairs + 1) * self.n_features
        piece = np.maximum(entries - 1, 0) // PIECE
        starts = np.flatnonzero(np.diff(piece, prepend=-1)).tolist()
        return list(zip(starts, [*starts[1:], n_pairs]))

    def _matrices(self) -> Iterator[tuple[slice, Any]]:
        """Yield each piece as a matrix with one row per pair; cache a single piece."""
        for start, stop in self.bounds:
            if self._kept is not None:
                yield slice(start, stop), self._kept
                continue
            rows = self.X[self.pairs.samples[start:stop]]
            if sp.issparse(rows):
                rows = self._shifted(rows, self.pairs.labels[start:stop])
            if len(self.bounds) == 1:
                self._kept = rows
            yield slice(start, stop), rows

    def _shifted(self, rows: sp.csr_array, labels: IntArray) -> sp.csr_array:
        """Shift the columns of each row to its label's position in the flat label vectors."""
        size = self.pairs.n_labels * self.n_features
        index = np.int64 if size > np.iinfo(np.int32).max else np.int32
        moved = np.repeat((labels * self.n_features).astype(index), np.diff(rows.indptr))
        moved += rows.indices
        if len(self.bounds) == 1 and SPARSITY * len(moved) < size:
            self._used, moved = np.unique(moved, return_inverse=True)
            size = len(self._used)
        return sp.csr_array((rows.data, moved, rows.indptr), shape=(rows.shape[0], size))

    def sums(self, weights: FloatArray) -> FloatArray:
        """Compute flat label vectors: the weighted sums of the samples of each label."""
        total: Any = None
        for part, rows in self._matrices():
            if sp.issparse(rows):
                added = rows.T @ weights[part]
            elif len(self.bounds) == 1:
                added = (self.pairs.weighting(weights) @ rows).ravel()
            else:
                added = weights[part] @ rows
            total = added if total is None else total + added
        return total

    def scores(self, vectors: FloatArray) -> FloatArray:
        """Multiply each pair's sample with its label's vector; of shape (n_pairs,)."""
        out = np.empty(len(self.pairs.samples), dtype=self.X.dtype)
        for part, rows in self._matrices():
            if sp.issparse(rows):
                if self._used is not None and len(vectors) != rows.shape[1]:
                    vectors = vectors[self._used]
                out[part] = rows @ vectors
            else:
                table = vectors.reshape(-1, self.n_features)
                out[part] = dot_rows(rows, table, self.pairs.labels[part])
        return out

    def to_rows(self, vectors: FloatArray) -> Any:
        """Reshape label vectors to (n_labels, n_features); CSR if X is sparse."""
        shape = (self.pairs.n_labels, self.n_features)
        if not sp.issparse(self.X):
            return vectors.reshape(shape)
        if self._used is None:
            used = np.flatnonzero(vectors)
            vectors = vectors[used]
        else:
            used = self._used
        indptr = np.searchsorted(used, np.arange(shape[0] + 1) * np.int64(self.n_features))
        return sp.csr_array((vectors, used % self.n_features, indptr), shape=shape)


def tie_bound(best: FloatArray) -> FloatArray:
    """Return the smallest cosine counted as a tie with the best.

    Exact ties are common: both samples of a label's only group are equally similar to their sum.
    Rounding must not decide between them.
    """
    return best - 100 * np.finfo(best.dtype).eps


def dot_rows(rows: FloatArray, table: FloatArray, which: IntArray) -> FloatArray:
    """Multiply row i with row ``which[i]`` of `table`."""
    out = np.empty(len(rows), dtype=rows.dtype)
    for part in row_blocks(len(rows), rows.shape[1], 2**20):
        out[part] = np.einsum("ij,ij->i", rows[part], table[which[part]])
    return out
