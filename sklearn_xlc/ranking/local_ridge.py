"""Ridge regression among the neighbours of each sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import (
    FEW_ENTRIES,
    IntArray,
    pointers_of,
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
#: Entries of a block of neighbours: they fit into a cache, and so do their products.
_BLOCK = FEW_ENTRIES // 2
#: Bits of the number of a place for features of queries, and the odd factor of their keys, whose
#: products have well-mixed upper bits: 2 ** 64 divided by the golden ratio.
_PLACES, _FACTOR = 17, 0x9E3779B97F4A7C15


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
    for part in row_blocks(len(items), size * n_features, 4 * FEW_ENTRIES):
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
    for part in uneven_blocks(np.maximum(sizes, size**2 // 2), _BLOCK):
        own, n_queries = rows_in(queries, part), part.stop - part.start
        near = taken_rows(vectors, items[part].ravel())
        lengths, indices, values = map(
            np.concatenate, zip((np.diff(own.indptr), own.indices, own.data), near)
        )
        values = np.rint(values * np.float32(_ONE))
        # Rows of queries come first, so that each shared feature is in a row of a neighbour last.
        numbers = np.arange(n_queries * size).reshape(-1, size)
        numbers = np.concatenate([numbers[:, -1], numbers[:, :-1].ravel()])
        starts_of_rows = pointers_of(lengths)
        keys = np.repeat(numbers // size * n_features, lengths)
        keys += indices
        # A feature of one row alone adds to its norm, and to no other product.
        shared, column, n_before = _shared(keys)
        first = n_queries + np.arange(n_queries + 1) * (size - 1)  # rows of neighbours
        ends = n_before[starts_of_rows[first]]
        widths = np.diff(ends)
        starts = pointers_of(widths * size)
        first_of_row = (starts[:-1] - ends[:-1])[:, None] + widths[:, None] * np.arange(size)
        column += np.repeat(first_of_row.ravel()[numbers], lengths)
        rows = np.zeros(starts[-1], dtype=np.float32)
        rows[column.take(shared)] = values.take(shared)
        products = np.empty((n_queries, size, size), dtype=np.float32)
        for i in range(n_queries):
            of_query = rows[starts[i] : starts[i + 1]].reshape(size, widths[i])
            np.matmul(of_query, of_query.T, out=products[i])
        norms = np.zeros((n_queries, size), dtype=np.float32)
        filled = np.flatnonzero(lengths)
        squares = np.add.reduceat(np.square(values), starts_of_rows[filled])
        norms.ravel()[numbers[filled]] = squares
        products[:, np.arange(size), np.arange(size)] = norms
        yield part, products * np.float64(_ONE**-2)


def _shared(keys: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Number the keys that occur more than once, by their last entries.

    Returns
    -------
    shared : ndarray of shape (n_shared,)
        Entries of keys that occur more than once, ascending.
    number : ndarray of shape (n_keys,)
        Number of the key of each of these entries; without meaning for others.
    n_before : ndarray of shape (n_keys + 1,)
        Number of last entries of such keys before each entry, and of all.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking.local_ridge import _shared
    >>> shared, number, n_before = _shared(np.array([7, 5, 7, 3, 5]))
    >>> shared, number[shared], n_before
    (array([0, 1, 2, 4]), array([0, 1, 0, 1]), array([0, 0, 0, 1, 1, 2]))
    """
    last = _last_entries(keys)
    is_shared = last != np.arange(len(keys))
    is_last = np.zeros(len(keys) + 1, dtype=bool)
    is_last[1:][last.compress(is_shared)] = True
    n_before = np.cumsum(is_last)
    is_shared |= is_last[1:]
    return np.flatnonzero(is_shared), n_before.take(last), n_before


def _last_entries(keys: IntArray) -> IntArray:
    """Return the last entry with the key of each entry, in a time independent of their range.

    Each entry is written to a place of its key, and all read what the last one wrote there. Where
    this is another key, they try again at other places.
    """
    words, table = keys.view(np.uint64), np.empty(2**_PLACES, dtype=np.int64)
    left, of_left, factor = np.arange(len(keys)), words, _FACTOR
    if keys.max(initial=0) < len(table):  # each has a place of its own
        table[keys] = left
        return table.take(keys)
    last = left.copy()
    while len(left):
        places = (of_left * np.uint64(factor) >> np.uint64(64 - _PLACES)).view(np.int64)
        table[places] = left
        last[left] = found = table.take(places)
        met = np.flatnonzero(words.take(found) != of_left)
        left, of_left = left.take(met), of_left.take(met)
        factor = factor * _FACTOR**2 % 2**64  # odd, as the first one
    return last
