"""Exact search: the items with the largest cosine to each sample, of sparse or dense vectors.

A sample's result does not depend on the samples beside it, and ties go to the smaller id.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import (
    BLOCK_ENTRIES,
    FEW_ENTRIES,
    IntArray,
    as_dense,
    canonical,
    evenly_spaced,
    is_mostly_zeros,
    joined_ranges,
    kept_entries,
    pointers_of,
    row_blocks,
    row_lengths,
    row_numbers,
    rows_in,
    taken_rows,
    uneven_blocks,
    unit_rows,
)
from sklearn_xlc._ranking import NO_KEY, keys_of_floats, largest_keys, rank_rows
from sklearn_xlc.ranking.base import Array, Samples
from sklearn_xlc.ranking.memory import joined_rows

#: Dense items that are all searched, at most, and those of a list from which its center is learnt.
_FEW_ITEMS, _ITEMS_OF_LIST = 8192, 40
#: Factor by which more lists would be made before centers are learnt anew: of twice as many items.
_MOST_LISTS = 1.5
#: Largest mean size of the lists of all items, in that of equal lists, with centers learnt before.
#: Centers learnt of the items have some 1.5.
_UNEVEN = 3
#: Items with a feature, at least, before a largest share of them applies.
_FREQUENT = 50
#: Largest integer of eight bits whose negative is one, too.
_LARGEST = 127
#: Share of the lists that are searched, and number of items in them, roughly, at most.
_SHARE, _ITEMS = 0.05, 20_000
#: Share of the items that have an entry in common with a query, above which sums are dense, and the
#: same for more items than a cache holds: a term of a sparse sum then takes 20 to 40 ns.
_MANY, _MANY_BEYOND, _IN_CACHE = 0.15, 0.05, 2**16
#: Blocks of dense sums whose best items are ranked together.
_TOGETHER = 16
#: Number of entries of a table of a few samples and all labels.
_TABLE = 8 * FEW_ENTRIES
#: Less than one by more than rounding: what is below may become a tie, and have a smaller id.
_NEARLY = np.float32(1 - 2**-20)
#: Smallest positive cosine.
_TINY = np.nextafter(np.float32(0), np.float32(1))


class Spaces(dict[str, Any]):
    """Samples by space, and their unit vectors, computed once for all retrievers.

    Parameters
    ----------
    samples : dict of str to {ndarray, CSR matrix}
        Samples in each space.
    """

    def __init__(self, samples: Samples) -> None:
        super().__init__(samples)
        self._units: dict[tuple[str, int, bool], Any] = {}

    def __missing__(self, space: str) -> Any:
        raise KeyError(f"the ranker reads the space {space!r}, got {sorted(self)}")

    def is_sparse(self, space: str) -> bool:
        """Return whether vectors of a space are best kept as CSR: the same for CSR and dense."""
        key = (space, 0, True)
        if key not in self._units:
            self._units[key] = space != "features" and is_mostly_zeros(self[space])
        return bool(self._units[key])

    def unit(self, space: str, n_heaviest: int, is_sparse: bool) -> Any:
        """Return CSR of the heaviest entries, of norm one, or dense :func:`integer_rows`."""
        key = (space, n_heaviest if is_sparse else -1, is_sparse)
        if key not in self._units:
            X = self[space]
            if is_sparse:
                self._units[key] = unit_rows(heaviest(as_csr(X), n_heaviest))
                self._units[key] = self._units[key].astype(np.float32, copy=False)
            else:
                self._units[key] = integer_rows(np.asarray(as_dense(X)))
        return self._units[key]


def as_spaces(samples: Samples) -> Spaces:
    """Return samples with their unit vectors; a result of this function as it is."""
    return samples if isinstance(samples, Spaces) else Spaces(samples)


def as_csr(X: Any) -> Any:
    """Return canonical CSR of floats."""
    X = sp.csr_array(X)
    return canonical(X if X.dtype.kind == "f" else X.astype(np.float64))


def heaviest(X: Any, n: int) -> Any:
    """Keep the n entries of largest magnitude of each row, sorted; of equal ones the leftmost.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking.search import heaviest
    >>> heaviest(csr_array([[1.0, -3.0, 2.0], [0.0, 5.0, 0.0]]), 2).toarray()
    array([[ 0., -3.,  2.],
           [ 0.,  5.,  0.]])
    """
    lengths = np.diff(X.indptr)
    least = _least(np.abs(X.data), X.indptr, n)
    if least.any():  # fewer to sort
        X = kept_entries(X, np.abs(X.data) >= np.repeat(least, lengths))
    X, lengths = X.sorted_indices(), np.diff(X.indptr)
    if lengths.max(initial=0) <= n:
        return X
    kept = np.zeros(X.nnz, dtype=bool)
    for part in uneven_blocks(lengths + 1, BLOCK_ENTRIES):
        indptr = X.indptr[part.start : part.stop + 1]
        inside = slice(indptr[0], indptr[-1])
        ids = np.arange(inside.start, inside.stop)
        best = best_entries(np.abs(X.data[inside]), ids, indptr - indptr[0], n)[1]
        kept[best[best >= 0]] = True
    return kept_entries(X, kept)


def only_columns(X: Any, columns: IntArray) -> Any:
    """Return some ascending columns of a CSR matrix, in a time independent of their number.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking.search import only_columns
    >>> only_columns(csr_array([[1, 2, 3], [0, 5, 0]]), np.array([0, 2])).toarray()
    array([[1, 3],
           [0, 0]])
    """
    at = np.searchsorted(columns, X.indices)
    kept = np.concatenate([columns, [-1]])[at] == X.indices
    found, indices = kept_entries(X, kept), at[kept].astype(X.indices.dtype)
    return sp.csr_array((found.data, indices, found.indptr), shape=(X.shape[0], len(columns)))


def transposed(X: Any) -> Any:
    """Return the transpose of a CSR matrix as canonical CSR."""
    return sp.csr_array(X.T.tocsr())


def sparse_index(items: Any, max_df: float) -> Any:
    """Index CSR rows: their transpose, without features that more than the share `max_df` have.

    Features of a few rows stay in any case.
    """
    counts = np.bincount(items.indices, minlength=items.shape[1])
    searched = counts <= max(max_df * items.shape[0], _FREQUENT)
    return transposed(kept_entries(items, searched[items.indices]))


def integer_rows(X: Any, dtype: Any = np.float32) -> Array:
    """Scale dense rows to integers: their products in float32 are exact, in any shape and order.

    Only directions are kept. An entry has as many bits as the sum of a product of two rows leaves
    to it in 24, or as `dtype` has. Rows of int8 are integers already.
    """
    if X.dtype == np.int8:
        return X.astype(dtype)
    most = int(np.sqrt(2**24 / max(1, X.shape[1])))
    if dtype == np.int8:
        most = min(most, _LARGEST)
    out = np.empty(X.shape, dtype=dtype)
    for part in row_blocks(len(X), X.shape[1]):
        largest = np.abs(X[part]).max(axis=1, keepdims=True, initial=0)
        out[part] = np.rint(X[part] * (most / np.where(largest > 0, largest, 1)))
    return out


def inverse_norms(X: Array) -> Array:
    """Return the inverse norms of rows in float32; 0 for a zero row."""
    norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def dense_index(items: Array, centers: Any = None) -> dict[str, Array]:
    """Index :func:`integer_rows`; many rows in lists of similar ones, to search only some.

    The index has items as `vectors`, and the inverse of their norms as `scale`. Of many also their
    `ids` and the `places` of items in it, and for list i, ``vectors[starts[i]:starts[i + 1]]``, the
    mean direction ``centers[i]``. `centers`: those of an index of some of the items, which serve
    again unless there are far more now, or others, which would fill a few lists.
    """
    scale = inverse_norms(items)
    if len(items) < _FEW_ITEMS:
        return {"vectors": items, "scale": scale}
    with threadpool_limits(1):
        nearest = None if centers is None else _lists_of_known(items, scale, centers)
        if nearest is None:
            centers = _centers(items, scale)
            nearest = _lists(items, scale, centers)
    ids = np.argsort(nearest, kind="stable")
    starts = pointers_of(np.bincount(nearest, minlength=len(centers)))
    in_lists = {"ids": ids, "places": np.argsort(ids), "starts": starts, "centers": centers}
    return {"vectors": items[ids], "scale": scale[ids], **in_lists}


def _lists_of_known(items: Array, scale: Array, centers: Any) -> IntArray | None:
    """Return the list of each item; None if centers of an earlier index do not serve."""
    if centers.shape[1] != items.shape[1] or len(centers) * _MOST_LISTS < _n_lists(items):
        return None
    nearest = _lists(items, scale, centers)
    sizes = np.bincount(nearest)
    return nearest if sizes @ sizes * len(centers) <= _UNEVEN * len(items) ** 2 else None


def _lists(items: Array, scale: Array, centers: Any) -> IntArray:
    """Return the list of each item: that of the nearest center."""
    of_lists = centers.T.astype(np.float32)
    blocks = row_blocks(len(items), len(centers), BLOCK_ENTRIES)
    return np.concatenate(
        [((items[part] * scale[part, None]) @ of_lists).argmax(axis=1) for part in blocks]
    )


def _n_lists(items: Array) -> int:
    return int(2 * np.sqrt(len(items)))


def _centers(items: Array, scale: Array) -> Array:
    """Return mean directions of lists of similar items; float16, as they are saved."""
    n_lists = _n_lists(items)
    some = evenly_spaced(len(items), _ITEMS_OF_LIST * n_lists)
    means = KMeans(n_lists, init="random", n_init=1, max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal items
        means.fit(items[some] * scale[some, None])
    return unit_rows(means.cluster_centers_).astype(np.float16)


def with_items(index: dict[str, Array], items: Array) -> dict[str, Array]:
    """Return a :func:`dense_index` of more items; all that are in no list are searched."""
    n_before = len(index["vectors"])
    more = {"vectors": items, "scale": inverse_norms(items)}
    if "ids" in index:
        more["ids"] = more["places"] = np.arange(n_before, n_before + len(items))
    return index | {name: joined_rows(index[name], each) for name, each in more.items()}


def best_items(queries: Any, index: Any, n: int) -> tuple[IntArray, Array]:
    """Find the n items with the largest positive cosine to each query, (n_queries, n).

    The index holds items as the columns of a CSR matrix, for queries of norm one, or is a result of
    :func:`dense_index`, for results of :func:`integer_rows`. Items are nearest first, ties by the
    smaller id; after the last one with a positive cosine come -1 and cosine 0.
    """
    items = np.full((queries.shape[0], n), -1, dtype=np.int64)
    cosines = np.zeros(items.shape, dtype=np.float32)
    if sp.issparse(index):
        blocks = _sparse_blocks
    else:
        blocks = _listed_blocks if "ids" in index else _dense_blocks
    for part, values, ids, indptr in blocks(queries, index, n):
        items[part], cosines[part] = positive_entries(values, ids, indptr, n)
    return items, cosines


def best_of_both(
    found: tuple[IntArray, Array], later: tuple[IntArray, Array], n_before: int
) -> tuple[IntArray, Array]:
    """Return the best of two results of :func:`best_items`; items of the second one come later."""
    ids = np.concatenate([found[0], later[0] + n_before], axis=1)
    cosines = np.concatenate([found[1], later[1]], axis=1)  # zeros where there is no item
    ends = np.arange(len(ids) + 1) * ids.shape[1]
    return positive_entries(cosines.ravel(), ids.ravel(), ends, found[0].shape[1])


#: Queries, and the values, items and pointers of their entries as in CSR.
_Blocks = Iterator[tuple[slice, Array, IntArray, IntArray]]


def _sparse_blocks(queries: Any, index: Any, n: int) -> _Blocks:
    """Yield cosines of blocks of queries, by sparse products.

    If queries like the items have entries in common with many items, dense sums are faster. They
    are the same, and the index alone decides.
    """
    n_items, lengths = index.shape[1], row_lengths(index.indptr, queries.indices)
    steps = np.bincount(
        row_numbers(queries.indptr), lengths.astype(np.float64), minlength=queries.shape[0]
    ).astype(np.int64)
    if known_of(index, "has_many_in_common", _has_many_in_common):
        yield from _summed_blocks(queries, index, n, steps)
        return
    sizes = 1 + np.minimum(steps, n_items)
    for part in uneven_blocks(sizes, min(BLOCK_ENTRIES, memory_limit() // 32)):
        product = rows_in(queries, part) @ index
        yield part, product.data, product.indices, product.indptr


def _has_many_in_common(index: Any) -> bool:
    n_items, lengths = index.shape[1], np.diff(index.indptr).astype(np.float64)
    many = _MANY if n_items <= _IN_CACHE else _MANY_BEYOND
    return bool(lengths @ lengths > many * n_items**2)


def known_of(matrix: Any, name: str, find: Callable[[Any], Any]) -> Any:
    """Return what `find` finds of a matrix that does not change; the matrix keeps it by this name.

    Of millions of hashed columns it takes longer to find than all else about a sample alone.
    """
    if not hasattr(matrix, name):
        setattr(matrix, name, find(matrix))
    return getattr(matrix, name)


def _summed_blocks(queries: Any, index: Any, n: int, steps: IntArray) -> _Blocks:
    """Yield the largest cosines of blocks of queries, of sums in dense rows.

    `steps`: number of terms of the sums of each query.
    """
    n_items, limit = index.shape[1], min(BLOCK_ENTRIES // 4, memory_limit() // 32)
    blocks = uneven_blocks(n_items + 2 * steps, limit)
    table = np.empty((max((each.stop - each.start for each in blocks), default=0), n_items), "f4")
    for first in range(0, len(blocks), _TOGETHER):
        some, parts = blocks[first : first + _TOGETHER], []
        for part in some:
            indptr = queries.indptr[part.start : part.stop + 1]
            inside = slice(indptr[0], indptr[-1])
            lengths, columns, terms = taken_rows(index, queries.indices[inside])
            terms *= np.repeat(queries.data[inside], lengths)
            sums = table[: part.stop - part.start]
            ends = pointers_of(lengths)[indptr - indptr[0]].astype(columns.dtype)  # else all widen
            sp.csr_array((terms, columns, ends), shape=sums.shape).toarray(out=sums)
            parts.append(largest_of_rows(sums, n))
        values, ids, counts = (np.concatenate(column) for column in zip(*parts))
        indptr = pointers_of(counts)
        yield slice(some[0].start, some[-1].stop), values, ids, indptr


def largest_of_rows(values: Array, n: int) -> tuple[Array, IntArray, IntArray]:
    """Return positive entries of dense rows, the n largest of each among them.

    Returns
    -------
    values, columns : ndarray
        Entries and their columns, row by row.
    counts : ndarray of shape (n_rows,)
        Number of entries of each row.
    """
    least = np.maximum(_least_of_rows(values, n), _TINY)
    kept = np.flatnonzero(values >= least[:, None])
    rows, columns = np.divmod(kept, values.shape[1])
    return values.reshape(-1)[kept], columns, np.bincount(rows, minlength=len(values))


def _dense_blocks(queries: Any, index: Any, n: int) -> _Blocks:
    """Yield the cosines of blocks of queries with a chance to be among the best."""
    vectors, scale = index["vectors"], index["scale"]
    for part in row_blocks(len(queries), len(vectors), min(BLOCK_ENTRIES, memory_limit() // 32)):
        cosines = queries[part] @ vectors.T
        cosines *= scale
        cosines *= inverse_norms(queries[part])[:, None]
        values, ids, counts = largest_of_rows(cosines, n)
        yield part, values, ids, pointers_of(counts)


def _listed_blocks(queries: Any, index: Any, n: int) -> _Blocks:
    """Yield cosines of blocks of queries to items of the lists nearest to each of them.

    Of items below the n-th best of the nearest list none is written down.
    """
    centers, starts = index["centers"].T.astype(np.float64), index["starts"]
    n_lists, n_listed, n_items = len(starts) - 1, starts[-1], len(index["vectors"])
    n_probes = int(np.ceil(min(_SHARE, _ITEMS / n_listed) * n_lists))
    row_size = max(n_lists, int(n_probes * n_listed / n_lists)) + n_items - n_listed
    for part in row_blocks(len(queries), row_size, min(BLOCK_ENTRIES, memory_limit() // 64)):
        block = queries[part]
        # In double precision, and rounded: all but ties is the same in any shape.
        near = (block.astype(np.float64) @ centers).astype(np.float32)
        probes = rank_rows(near, n_probes)[1]
        least = np.full(len(block), _TINY)
        for rows, _, products in _of_lists(block, probes[:, :1], starts, index):
            if products.shape[1] >= n:
                nth = np.partition(products, -n, axis=1)[:, -n]
                least[rows] = np.maximum(nth * _NEARLY, _TINY)
        found, probes = [], np.pad(probes, ((0, 0), (0, 1)), constant_values=n_lists)
        for rows, start, products in _of_lists(block, probes, np.append(starts, n_items), index):
            kept = np.flatnonzero(products >= least[rows, None])
            at, item = np.divmod(kept, products.shape[1])
            found.append((rows[at], start + item, products.ravel()[kept]))
        rows, items, values = (np.concatenate(column) for column in zip(*found))
        order = np.argsort(rows, kind="stable")
        rows, ids = rows[order], index["ids"][items[order]]
        cosines = values[order] * inverse_norms(block)[rows]
        yield part, cosines, ids, np.searchsorted(rows, np.arange(len(block) + 1))


def _of_lists(
    block: Array, probes: IntArray, starts: Array, index: Any
) -> Iterator[tuple[IntArray, int, Array]]:
    """Yield queries with a list among their probes, its first item, and products with its items."""
    vectors, scale = index["vectors"], index["scale"]
    order = np.argsort(probes, axis=None, kind="stable")
    ends = np.searchsorted(probes.ravel()[order], np.arange(len(starts)))
    for probed in np.flatnonzero(np.diff(ends)):
        rows = order[ends[probed] : ends[probed + 1]] // probes.shape[1]
        inside = slice(starts[probed], starts[probed + 1])
        yield rows, inside.start, (block[rows] @ vectors[inside].T) * scale[inside]


def positive_entries(values: Array, ids: Array, indptr: Array, n: int) -> tuple[IntArray, Array]:
    """Find ids and values of :func:`best_entries` above zero; then come -1 and zeros."""
    values, ids = best_entries(values, ids, indptr, n)
    return np.where(values > 0, ids, -1), np.where(values > 0, values, 0)


def best_entries(values: Array, ids: Array, indptr: Array, n: int) -> tuple[Array, IntArray]:
    """Find the n largest entries of each row, ties by the smaller id; (n_rows, n).

    Row i has the entries ``indptr[i]`` to ``indptr[i + 1]``: numbers that are not NaN, and ids,
    distinct in a row. Some numbers below zero may be left out. Where a row has fewer entries, the
    value is minus infinity and the id -1.
    """
    least, lengths = _least(values, indptr, n), np.diff(indptr)
    if least.any():
        kept = np.flatnonzero(values >= np.repeat(least, lengths))
        values, ids, indptr = values[kept], ids[kept], np.searchsorted(kept, indptr)
        lengths = np.diff(indptr)
    best = np.full((len(lengths), n), -np.inf, dtype=values.dtype)
    best_ids = np.full(best.shape, -1, dtype=np.int64)
    if len(lengths) == 1:  # of a sample alone, in a third of the time
        first = np.lexsort((ids, -values))[:n]
        best[0, : len(first)], best_ids[0, : len(first)] = values[first] + 0, ids[first]
        return best, best_ids
    is_short = values.dtype == np.float32 and ids.max(initial=0) < 2**32 - 1
    keys = keys_of_floats(values, ids) if is_short else None
    order = np.argsort(lengths, kind="stable")  # rows of a block are about as long
    for part in uneven_blocks(lengths[order] + 1, FEW_ENTRIES):
        rows = order[part]
        width = max(1, lengths[rows[-1]])
        inside = np.arange(width) < lengths[rows, None]
        entries, to = joined_ranges(indptr[rows], lengths[rows]), slice(min(n, width))
        if keys is not None:
            side_by_side = np.full(inside.shape, NO_KEY)
            side_by_side[inside] = keys[entries]
            ranked = largest_keys(side_by_side, n)
        else:
            of_entries = np.full(inside.shape, -1, dtype=np.int64)
            of_entries[inside] = ids[entries]
            side_by_side = np.full(inside.shape, -np.inf, dtype=values.dtype)
            side_by_side[inside] = values[entries]
            ranked = rank_rows(side_by_side, n, of_entries)
        best[rows, to], best_ids[rows, to] = ranked
    return best, best_ids


def _least(values: Array, indptr: Array, n: int) -> Array:
    """Return a positive lower bound of the n-th largest entry of each row, or zero.

    The bound is the n-th largest of the maxima of groups of entries: a selection among all of them
    takes ten times as long.
    """
    least, n_groups = np.zeros(len(indptr) - 1, dtype=values.dtype), 4 * n
    lengths = np.diff(indptr)
    long = np.flatnonzero(lengths > 2 * n_groups)
    if len(long):
        cuts = indptr[long, None] + lengths[long, None] * np.arange(n_groups + 1) // n_groups
        cuts = cuts.ravel()
        inside = cuts[cuts < len(values)]  # without the end of all, if it is that of the last row
        largest = np.zeros(len(cuts), dtype=values.dtype)
        largest[: len(inside)] = np.maximum.reduceat(values, inside)
        largest = largest.reshape(len(long), -1)[:, :-1]
        nth = np.partition(largest, n_groups - n, axis=1)[:, n_groups - n]
        least[long] = np.maximum(nth, 0)
    return least


def _least_of_rows(values: Array, n: int) -> Array:
    """Return a positive lower bound of the n-th largest entry of each row, or zero."""
    n_groups, n_rows = 4 * n, len(values)
    for width in (8 * n_groups, n_groups):  # wide rows are faster
        size = values.shape[1] // width
        if size > 1:
            values = values[:, : size * width].reshape(n_rows, size, width).max(axis=1)
    if values.shape[1] != n_groups:
        return np.zeros(n_rows, dtype=values.dtype)
    return np.maximum(np.partition(values, n_groups - n, axis=1)[:, n_groups - n], 0)


def pair_cosines(left: Any, right: Any, rows: IntArray, items: IntArray) -> Array:
    """Return cosines of pairs of rows: float32.

    `left` and `right` are results of :func:`integer_rows`, or canonical CSR of norm one.
    """
    if sp.issparse(right):
        return sparse_pair_products(left, right, rows, items)
    cosines = np.empty(len(rows), dtype=np.float32)
    for part in row_blocks(len(rows), left.shape[1]):
        a, b = left[rows[part]], right[items[part]]
        cosines[part] = np.einsum("ij,ij->i", a, b) * inverse_norms(b) * inverse_norms(a)
    return cosines


def sparse_pair_products(left: Any, right: Any, rows: IntArray, items: IntArray) -> Array:
    """Return products of pairs of rows of two canonical CSR matrices: float32, sums in float64."""
    if left.shape[0] == 1:  # of a sample alone, in a third of the time
        lengths, columns, values = taken_rows(right, items)
        values *= left.toarray()[0][columns]
        of_pair = np.repeat(np.arange(len(items)), lengths)
        return np.bincount(of_pair, values, len(items)).astype(np.float32)
    products, ones = np.empty(len(rows), dtype=np.float32), np.ones(left.shape[1])
    sizes = row_lengths(left.indptr, rows) + row_lengths(right.indptr, items)
    for part in uneven_blocks(1 + sizes.astype(np.int64), BLOCK_ENTRIES // 16):
        products[part] = left[rows[part]].multiply(right[items[part]]) @ ones
    return products


# --- pairs of a sample and a label ----------------------------------------------------------------


def find_pairs(
    rows: IntArray, labels: IntArray, shape: tuple[int, int], indptr: Array, of_entries: Array
) -> tuple[IntArray, IntArray]:
    """Find the entries of sparse rows whose labels are asked for, in tables of a few rows.

    Parameters
    ----------
    rows, labels : ndarray of shape (n_pairs,)
        Distinct pairs; rows ascend.
    shape : tuple of int
        Numbers of rows and labels.
    indptr, of_entries : ndarray
        Row i has the entries ``indptr[i]`` to ``indptr[i + 1]``, of these labels.

    Returns
    -------
    entries, pairs : ndarray of shape (n_found,)
        Entries, ascending, and the pair of each.
    """
    n_rows, n_labels = shape
    step = max(1, _TABLE // max(1, n_labels))
    table = np.full(min(step, n_rows) * n_labels, -1, dtype=np.int32)
    starts = list(range(0, max(1, n_rows), step))
    cuts: list[int] = np.searchsorted(rows, [*starts, n_rows]).tolist()
    parts: list[Any] = []
    for start, first, last in zip(starts, cuts, cuts[1:]):
        stop = min(start + step, n_rows)
        wanted = (rows[first:last] - start) * n_labels + labels[first:last]
        table[wanted] = np.arange(last - first)
        inside = slice(indptr[start], indptr[stop])
        of_rows = np.arange(stop - start) * n_labels
        at = np.repeat(of_rows, np.diff(indptr[start : stop + 1])) + of_entries[inside]
        found = table[at]
        table[wanted] = -1
        entries = np.flatnonzero(found >= 0)
        parts.append((entries + inside.start, found[entries] + first))
    entries, pairs = (np.concatenate(column) for column in zip(*parts))
    return entries, pairs


def distinct(keys: IntArray) -> IntArray:
    """Return distinct integers, ascending; `np.unique` takes several times as long."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]
