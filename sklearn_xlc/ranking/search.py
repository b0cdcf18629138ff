"""Exact search: the items with the largest cosine to each sample, of sparse or dense vectors.

A sample's result does not depend on the samples beside it, and ties go to the smaller id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import (
    BLOCK_ENTRIES,
    FEW_ENTRIES,
    IntArray,
    canonical,
    is_mostly_zeros,
    joined_ranges,
    row_blocks,
    row_numbers,
    uneven_blocks,
    unit_rows,
)
from sklearn_xlc._ranking import rank_rows
from sklearn_xlc.ranking.base import Array, Samples

#: Rounding error of a float32 number, relative to it.
_EPSILON = float(np.finfo(np.float32).eps)


class Spaces(Mapping[str, Any]):
    """Samples by space, and their unit vectors, computed once for all retrievers.

    Parameters
    ----------
    samples : dict of str to {ndarray, CSR matrix}
        Samples in each space.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._units: dict[tuple[str, int, bool], Any] = {}

    def __getitem__(self, space: str) -> Any:
        if space not in self._samples:
            raise KeyError(f"the ranker reads the space {space!r}, got {sorted(self._samples)}")
        return self._samples[space]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def is_sparse(self, space: str) -> bool:
        """Return whether vectors of a space are best kept as CSR: the same for CSR and dense."""
        key = (space, 0, True)
        if key not in self._units:
            self._units[key] = space == "input" and is_mostly_zeros(self[space])
        return bool(self._units[key])

    def unit(self, space: str, n_heaviest: int, is_sparse: bool) -> Any:
        """Return unit vectors, float32: CSR of the heaviest entries, or a dense array of all."""
        key = (space, n_heaviest if is_sparse else -1, is_sparse)
        if key not in self._units:
            X = self[space]
            if is_sparse:
                self._units[key] = unit_rows(heaviest(as_csr(X), n_heaviest)).astype(np.float32)
            else:
                dense = X.toarray() if sp.issparse(X) else np.asarray(X)
                self._units[key] = unit_rows(dense).astype(np.float32)
        return self._units[key]


def as_spaces(samples: Samples) -> Spaces:
    """Return samples with their unit vectors; a result of this function as it is."""
    return samples if isinstance(samples, Spaces) else Spaces(samples)


def as_csr(X: Any) -> Any:
    """Return canonical CSR of floats."""
    X = sp.csr_array(X)
    return canonical(X if X.dtype.kind == "f" else X.astype(np.float64))


def heaviest(X: Any, n: int) -> Any:
    """Keep the n entries of largest magnitude of each row; of equal ones those on the left.

    Parameters
    ----------
    X : canonical CSR matrix
        Matrix; not modified.
    n : int
        Number of entries to keep.

    Returns
    -------
    csr_array
        Canonical CSR.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking.search import heaviest
    >>> heaviest(csr_array([[1.0, -3.0, 2.0], [0.0, 5.0, 0.0]]), 2).toarray()
    array([[ 0., -3.,  2.],
           [ 0.,  5.,  0.]])
    """
    lengths = np.diff(X.indptr)
    if lengths.max(initial=0) <= n:
        return X
    kept = np.zeros(X.nnz, dtype=bool)
    for part in uneven_blocks(lengths + 1, BLOCK_ENTRIES):
        indptr = X.indptr[part.start : part.stop + 1]
        inside = slice(indptr[0], indptr[-1])
        ids = np.arange(inside.start, inside.stop)
        best = best_entries(np.abs(X.data[inside]), ids, indptr - indptr[0], n)[1]
        kept[best[best >= 0]] = True
    ends = np.cumsum(np.minimum(lengths, n))
    indptr = np.concatenate([[0], ends]).astype(X.indptr.dtype)
    return sp.csr_array((X.data[kept], X.indices[kept], indptr), shape=X.shape)


def transposed(X: Any) -> Any:
    """Return the transpose of a CSR matrix as canonical CSR."""
    return sp.csr_array(X.T.tocsr())


def best_items(queries: Any, index: Any, n: int) -> tuple[IntArray, Array]:
    """Find the n items with the largest positive cosine to each query.

    Parameters
    ----------
    queries : {csr_array, ndarray} of shape (n_queries, n_features), float32
        Unit rows; CSR if `index` is sparse.
    index : csr_array of shape (n_features, n_items), or ndarray of shape (n_items, n_features)
        Items, in float32: columns of a sparse index, or unit rows of a dense one.
    n : int
        Number of items.

    Returns
    -------
    items : ndarray of shape (n_queries, n)
        Items, nearest first, ties by the smaller id; -1 after the last one with a positive cosine.
    cosines : ndarray of the same shape, float32
        Cosines; 0 after the last item.
    """
    items = np.full((queries.shape[0], n), -1, dtype=np.int64)
    cosines = np.zeros(items.shape, dtype=np.float32)
    blocks = _sparse_blocks if sp.issparse(index) else _dense_blocks
    for part, values, ids, indptr in blocks(queries, index, n):
        values, ids = best_entries(values, ids, indptr, n)
        items[part] = np.where(values > 0, ids, -1)
        cosines[part] = np.where(values > 0, values, 0)
    return items, cosines


#: Queries, and the values, items and pointers of their entries as in CSR.
_Blocks = Iterator[tuple[slice, Array, IntArray, IntArray]]


def _sparse_blocks(queries: Any, index: Any, n: int) -> _Blocks:
    """Yield cosines of blocks of queries, by sparse products."""
    steps = np.diff(index.indptr)[queries.indices]
    steps = np.bincount(row_numbers(queries.indptr), steps, minlength=queries.shape[0])
    sizes = 1 + np.minimum(steps, index.shape[1]).astype(np.int64)
    for part in uneven_blocks(sizes, min(BLOCK_ENTRIES, memory_limit() // 32)):
        is_all = part == slice(0, len(sizes))
        product = (queries if is_all else queries[part]) @ index
        yield part, product.data, product.indices, product.indptr


def _dense_blocks(queries: Any, index: Any, n: int) -> _Blocks:
    """Yield cosines of blocks of queries: rough ones by products, exact ones of the best.

    The last bits of a product of matrices depend on their shapes. So those that may be among the
    best are computed again, one by one.
    """
    n_items, n_features = index.shape
    error = 4 * (n_features + 4) * _EPSILON  # of two products, for unit rows
    for part in row_blocks(len(queries), n_items, min(BLOCK_ENTRIES, memory_limit() // 32)):
        rough = queries[part] @ index.T
        indptr = np.arange(len(rough) + 1) * n_items
        least = _least(rough.reshape(-1), indptr, n) - np.float32(error)
        rows, ids = np.nonzero(rough >= least[:, None])
        exact = pair_products(queries[part], index, rows, ids)
        yield part, exact, ids, np.searchsorted(rows, np.arange(len(rough) + 1))


def best_entries(values: Array, ids: Array, indptr: Array, n: int) -> tuple[Array, IntArray]:
    """Find the n largest entries of each row, ties by the smaller id.

    Parameters
    ----------
    values, ids : ndarray of shape (n_entries,)
        Entries: numbers that are not NaN, and ids, distinct in a row. Some of those below zero may
        be left out.
    indptr : ndarray of shape (n_rows + 1,)
        Row i has the entries ``indptr[i]`` to ``indptr[i + 1]``.
    n : int
        Number of entries.

    Returns
    -------
    values : ndarray of shape (n_rows, n)
        Largest values, largest first; minus infinity where a row has fewer entries.
    ids : ndarray of the same shape, int64
        Ids; -1 where a row has fewer entries.
    """
    kept = np.flatnonzero(values >= np.repeat(_least(values, indptr, n), np.diff(indptr)))
    values, ids, indptr = values[kept], ids[kept], np.searchsorted(kept, indptr)
    lengths = np.diff(indptr)
    best = np.full((len(lengths), n), -np.inf, dtype=values.dtype)
    best_ids = np.full(best.shape, -1, dtype=np.int64)
    order = np.argsort(lengths, kind="stable")  # rows of a block are about as long
    for part in uneven_blocks(lengths[order] + 1, FEW_ENTRIES):
        rows = order[part]
        inside = np.arange(max(1, lengths[rows[-1]])) < lengths[rows, None]
        entries = joined_ranges(indptr[rows], lengths[rows])
        side_by_side = np.full(inside.shape, -np.inf, dtype=values.dtype)
        side_by_side[inside] = values[entries]
        of_entries = np.full(inside.shape, -1, dtype=np.int64)
        of_entries[inside] = ids[entries]
        ranked = rank_rows(side_by_side, n, of_entries)
        best[rows, : ranked[0].shape[1]], best_ids[rows, : ranked[0].shape[1]] = ranked
    return best, best_ids


def _least(values: Array, indptr: Array, n: int) -> Array:
    """Return for each row a bound, not below zero, that n of its entries reach if it is above zero.

    The bound is the n-th largest of the maxima of groups of entries: a selection among all of them
    takes ten times as long.
    """
    least, n_groups = np.zeros(len(indptr) - 1, dtype=values.dtype), 4 * n
    lengths = np.diff(indptr)
    long = np.flatnonzero(lengths > 2 * n_groups)
    if len(long):
        cuts = indptr[long, None] + lengths[long, None] * np.arange(n_groups + 1) // n_groups
        cuts = cuts.ravel()
        inside = cuts[
            cuts < len(values)
        ]  # but for the end of the last row, if it is the end of all
        largest = np.zeros(len(cuts), dtype=values.dtype)
        largest[: len(inside)] = np.maximum.reduceat(values, inside)
        largest = largest.reshape(len(long), -1)[:, :-1]
        nth = np.partition(largest, n_groups - n, axis=1)[:, n_groups - n]
        least[long] = np.maximum(nth, 0)
    return least


def pair_products(left: Array, right: Array, rows: IntArray, items: IntArray) -> Array:
    """Return products of pairs of rows of two dense arrays: float32, summed in float64."""
    products = np.empty(len(rows), dtype=np.float32)
    for part in row_blocks(len(rows), left.shape[1]):
        a, b = left[rows[part]].astype(np.float64), right[items[part]]
        products[part] = np.einsum("ij,ij->i", a, b)
    return products
