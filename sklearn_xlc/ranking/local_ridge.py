"""Ridge regression among the neighbours of each sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import (
    FEW_ENTRIES,
    IntArray,
    row_blocks,
    row_lengths,
    rows_in,
    taken_rows,
    uneven_blocks,
)
from sklearn_xlc.ranking.base import Array
from sklearn_xlc.ranking.search import inverse_norms

#: Integer that stands for one in sparse rows of norm one: a product of two rows is below 2 ** 24,
#: and its sum exact in float32, in any order.
_ONE = 4000
#: Entries of a block of neighbours: they and their products fit into a cache.
_BLOCK = 2 * FEW_ENTRIES
#: Features are counted, each for each query of a block, if they are fewer than so many times the
#: entries of a query and its neighbours; blocks have few queries, then.
_MOST_COUNTED, _FEW_QUERIES, _MOST_QUERIES = 32, 64, 2048


def ridge_weights(queries: Any, vectors: Any, items: IntArray, penalties: Array) -> Array:
    """Solve ``(N N.T + diag(penalties)) w = N x`` for each query x with the neighbours N.

    Ridge regression that is fitted to the neighbours of a query alone predicts for it the sum of
    their targets times w.

    Parameters
    ----------
    queries, vectors : {csr_array, ndarray} of shape (n, n_features)
        Queries and all samples: canonical CSR of norm one, or results of
        :func:`~sklearn_xlc.ranking.search.integer_rows`. Zero rows may be among them.
    items : ndarray of shape (n_queries, n_neighbors)
        Neighbours of each query; -1: none.
    penalties : ndarray of shape (n_queries, n_neighbors)
        Penalties of the neighbours, above zero.

    Returns
    -------
    ndarray of shape (n_queries, n_neighbors)
        Weights, the same whatever queries are beside; 0 where there is no neighbour.

    Examples
    --------
    Of two equal neighbours each counts half:

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking.local_ridge import ridge_weights
    >>> vectors, query = csr_array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), csr_array([[0.6, 0.8]])
    >>> ridge_weights(query, vectors, np.array([[2, 0, 1]]), np.full((1, 3), 0.1)).round(2)
    array([[0.73, 0.29, 0.29]])
    """
    weights, diagonal = np.zeros(items.shape), np.arange(items.shape[1])
    if not vectors.shape[0]:
        return weights
    products = _sparse_products if sp.issparse(vectors) else _dense_products
    for part, cosines in products(queries, vectors, items):
        if (items[part] < 0).any():
            is_none = np.pad(items[part] < 0, ((0, 0), (0, 1)))
            cosines[is_none[:, :, None] | is_none[:, None, :]] = 0
        cosines[:, diagonal, diagonal] += penalties[part]
        weights[part] = np.linalg.solve(cosines[:, :-1, :-1], cosines[:, :-1, -1:])[..., 0]
    return weights


#: Queries, and cosines of the pairs of their neighbours and, last, themselves.
_Products = Iterator[tuple[slice, Array]]


def _dense_products(queries: Array, vectors: Array, items: IntArray) -> _Products:
    size, n_features = items.shape[1] + 1, vectors.shape[1]
    for part in row_blocks(len(items), size * n_features, 2 * _BLOCK):
        rows = np.concatenate([vectors[items[part]], queries[part, None]], axis=1)
        scale = inverse_norms(rows.reshape(-1, n_features)).reshape(-1, size)
        cosines = (rows @ rows.transpose(0, 2, 1)).astype(np.float64)
        cosines *= scale[:, :, None]
        cosines *= scale[:, None, :]
        yield part, cosines


def _sparse_products(queries: Any, vectors: Any, items: IntArray) -> _Products:
    """Multiply dense rows of the features common to a query and its neighbours."""
    size, n_features = items.shape[1] + 1, vectors.shape[1]
    sizes = row_lengths(vectors.indptr, items).sum(axis=1) + np.diff(queries.indptr)
    counts = n_features * len(sizes) < _MOST_COUNTED * sizes.sum()
    least = _BLOCK // (_FEW_QUERIES if counts else _MOST_QUERIES)
    for part in uneven_blocks(np.maximum(sizes, max(size**2, least)), _BLOCK):
        own, n_queries = rows_in(queries, part), part.stop - part.start
        near = taken_rows(vectors, items[part].ravel())
        lengths, indices, values = map(
            np.concatenate, zip(near, (np.diff(own.indptr), own.indices, own.data))
        )
        values = np.rint(values * np.float32(_ONE))
        numbers = np.arange(n_queries * size).reshape(-1, size)
        numbers = np.concatenate([numbers[:, :-1].ravel(), numbers[:, -1]])
        # A feature of one row alone adds to its norm, and to no other product.
        found = _counted if counts else _sorted
        shared, column, ends = found(numbers // size, lengths, indices, n_queries, n_features)
        widths = np.diff(ends)
        starts = np.concatenate([[0], np.cumsum(widths * size)])
        first_of_row = (starts[:-1] - ends[:-1])[:, None] + widths[:, None] * np.arange(size)
        at = np.repeat(first_of_row.ravel()[numbers], lengths)
        table = np.zeros(starts[-1], dtype=np.float32)
        table[at[shared] + column] = values[shared]
        products = np.empty((n_queries, size, size), dtype=np.float32)
        for i in range(n_queries):
            rows = table[starts[i] : starts[i + 1]].reshape(size, widths[i])
            np.matmul(rows, rows.T, out=products[i])
        norms = np.zeros((n_queries, size), dtype=np.float32)
        filled = np.flatnonzero(lengths)
        before = np.cumsum(lengths) - lengths
        norms.ravel()[numbers[filled]] = np.add.reduceat(np.square(values), before[filled])
        products[:, np.arange(size), np.arange(size)] = norms
        yield part, products * np.float64(_ONE**-2)


#: Entries of features that several rows of a query share, the number of the feature of each of
#: them, and the first number of each query, and one more.
_Shared = tuple[IntArray, IntArray, IntArray]


def _counted(
    query: IntArray, lengths: IntArray, indices: IntArray, n_queries: int, n_features: int
) -> _Shared:
    """Number shared features by counting each of them for each query.

    `query`, `lengths`: query of each row, and its number of `indices`, its features.
    """
    is_here, place = np.zeros(n_features, dtype=bool), np.empty(n_features, dtype=np.int64)
    is_here[indices] = True
    here = np.flatnonzero(is_here)
    place[here] = np.arange(len(here))
    keys = np.repeat(query * len(here), lengths)
    keys += place[indices]
    is_shared = np.bincount(keys, minlength=n_queries * len(here)) > 1
    column = np.concatenate([[0], np.cumsum(is_shared)])
    shared = np.flatnonzero(is_shared[keys])
    return shared, column[keys[shared]], column[np.arange(n_queries + 1) * len(here)]


def _sorted(
    query: IntArray, lengths: IntArray, indices: IntArray, n_queries: int, n_features: int
) -> _Shared:
    """Number shared features by sorting entries, which takes no memory for each feature."""
    of_queries = np.arange(n_queries + 1) * np.int64(n_features)
    # Sorted, the entries of a feature are side by side: integers of query, feature and entry.
    n_bits = len(indices).bit_length()
    keys = np.repeat(of_queries[query], lengths)
    keys += indices
    keys <<= n_bits
    keys += np.arange(len(keys))
    keys.sort()
    entries = keys & ((1 << n_bits) - 1)
    keys >>= n_bits
    is_new = np.ones(len(keys) + 1, dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:-1])
    shared = np.flatnonzero(~(is_new[:-1] & is_new[1:]))
    column = np.concatenate([[0], np.cumsum(is_new[shared], dtype=np.int64)])
    return entries[shared], column[1:] - 1, column[np.searchsorted(keys[shared], of_queries)]
