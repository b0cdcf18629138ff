"""Nearest samples by an index of the user's, with later samples beside it."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn import config_context

from sklearn_xlc._csr import IntArray, row_numbers
from sklearn_xlc._part import cloned
from sklearn_xlc.ranking.base import Array
from sklearn_xlc.ranking.search import best_items, inverse_norms, pair_cosines, positive_entries
from sklearn_xlc.ranking.vectors import key_of

#: Samples beside an index, at most, or as a share of those in it: more are taken into a new one.
MOST_WAITING, WAITING_SHARE = 1000, 0.5

#: "index": fitted to the "rows" that are not zero among the first "n_samples"; "digest" of these
#: samples and of its parameters.
FittedIndex = dict[str, Any]


def fitted_index(index: Any, vectors: Any, before: FittedIndex | None) -> FittedIndex | None:
    """Return an index of the first samples: the one before, or of all if too many are not in it.

    Parameters
    ----------
    index : transformer
        Unfitted index, as a :class:`~sklearn.neighbors.KNeighborsTransformer`.
    vectors : {csr_array, ndarray} of shape (n_samples, n_features)
        Vectors of norm one, or results of :func:`~sklearn_xlc.ranking.search.integer_rows`.
    before : dict or None
        Earlier result. It counts if it has the same parameters and holds the first of the samples.

    Returns
    -------
    dict or None
        Fitted index. None for few samples.
    """
    n_samples = vectors.shape[0]
    if before is not None:
        n_before = before["n_samples"]
        if n_before > n_samples or before["digest"] != _digest(index, vectors, n_before):
            before = None
    # In Euclidean distance a vector of zeros is nearer than most.
    is_zero = np.diff(vectors.indptr) == 0 if sp.issparse(vectors) else ~vectors.any(axis=1)
    rows = np.flatnonzero(~is_zero)
    n_indexed = 0 if before is None else len(before["rows"])
    if len(rows) - n_indexed <= max(MOST_WAITING, WAITING_SHARE * n_indexed):
        return before
    found = cloned(index).fit(_as_given(vectors[rows] if is_zero.any() else vectors))
    digest = _digest(index, vectors, n_samples)
    return {"index": found, "rows": rows, "n_samples": n_samples, "digest": digest}


def nearest(
    fitted: FittedIndex | None, queries: Any, vectors: Any, waiting: Any, n: int
) -> tuple[IntArray, Array]:
    """Find the n samples of largest positive cosine, in an index and among later samples.

    Parameters
    ----------
    fitted : dict or None
        Result of :func:`fitted_index`.
    queries, vectors : {csr_array, ndarray} of shape (n, n_features)
        Vectors of the queries and of all samples, as there.
    waiting : csr_array or dict
        Index of the samples that are not in `fitted`, for
        :func:`~sklearn_xlc.ranking.search.best_items`.
    n : int
        Number of samples.

    Returns
    -------
    items : ndarray of shape (n_queries, n)
        Samples, nearest first, ties by the smaller number; -1 after the last one found.
    cosines : ndarray of the same shape, float32
        Their cosines; 0 after the last one.
    """
    n_indexed = 0 if fitted is None else fitted["n_samples"]
    later = best_items(queries, waiting, n)[0]
    rows, at = np.nonzero(later >= 0)
    items = later[rows, at] + n_indexed
    if fitted is not None:
        more_rows, more = _found(fitted, queries)
        rows, items = np.concatenate([more_rows, rows]), np.concatenate([more, items])
    order = np.argsort(rows, kind="stable")
    rows, items = rows[order], items[order]
    cosines = pair_cosines(queries, vectors, rows, items)
    indptr = np.searchsorted(rows, np.arange(queries.shape[0] + 1))
    return positive_entries(cosines, items, indptr, n)


def _found(fitted: FittedIndex, queries: Any) -> tuple[IntArray, IntArray]:
    """Return pairs of query and sample found by an index, sorted; raise if it is no graph of them.

    The values of the graph are not read: distances of any metric, or ones, will do. Negative
    columns, which some libraries give where they find too few, are left out.
    """
    shape, index = (queries.shape[0], len(fitted["rows"])), fitted["index"]
    with config_context(transform_output="default"):
        graph = index.transform(_as_given(queries))
    if not sp.issparse(graph) or graph.shape != shape:
        raise ValueError(
            f"index={index!r} must return a sparse matrix of shape {shape}, queries and samples, "
            f"as KNeighborsTransformer does; got {type(graph).__name__} of shape "
            f"{getattr(graph, 'shape', None)}"
        )
    graph = graph.tocsr()
    rows, items = row_numbers(graph.indptr), graph.indices.astype(np.int64)
    if items.max(initial=-1) >= shape[1]:
        raise ValueError(f"index={index!r} found sample {items.max()} of {shape[1]} samples")
    rows, items = np.divmod(np.unique(rows[items >= 0] * shape[1] + items[items >= 0]), shape[1])
    return rows, fitted["rows"][items]


def _as_given(vectors: Any) -> Any:
    """Return vectors of norm one, as an index is given them: dense, or a CSR matrix."""
    if sp.issparse(vectors):
        return sp.csr_matrix(vectors)  # many libraries do not know `csr_array`
    return vectors * inverse_norms(vectors)[:, None]


def _digest(index: Any, vectors: Any, n: int) -> str:
    """Return a digest of the first n vectors, and of the class and parameters of an index."""
    if sp.issparse(vectors):
        end = vectors.indptr[n]
        parts = [vectors.data[:end]]
        # Their type may change with their number.
        parts += [a.astype(np.uint32) for a in (vectors.indices[:end], vectors.indptr[: n + 1])]
    else:
        parts = [vectors[:n]]
    return str(joblib.hash((key_of(index), vectors.shape[1], *parts), coerce_mmap=True))
