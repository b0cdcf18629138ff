"""Which row of a group gets which of its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy import sparse

from sklearn_xlc.aggregation._embeddings import MEMORY_LIMIT, Embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, IntArray, Pairs, make_pairs
from sklearn_xlc.aggregation._products import Gathered, split_labels, tie_bound


def assign_labels(
    X: Any,
    data: Aggregation,
    embeddings: Embeddings,
    *,
    use_counts: bool = False,
    totals: FloatArray | None = None,
    quantile: float | None = None,
    memory_limit: int = MEMORY_LIMIT,
    n_jobs: int | None = None,
) -> sparse.csr_array:
    """Labels of the rows, given those of their groups: Algorithm 2 in [1]_.

    Each label of a group goes to the row most similar to its embedding, on ties to the first, and
    may then be shared with further rows of its groups.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
        Rows of unit length, or empty.
    data : Aggregation
        Groups and their labels.
    embeddings : Embeddings
        Of the same labels.
    use_counts : bool, default=False
        Whether a label that the group holds c times goes to the c most similar rows.
    totals : ndarray of shape (n_labels,), default=None
        Each label goes on to further rows, the most similar ones first, until so many carry it.
    quantile : float in [0, 1], default=None
        Each label goes on to all rows of its groups that are at least as similar as this quantile
        of the rows that have it already.
    memory_limit : int, default=2**29
        Bytes that all jobs together may use for working storage, about.
    n_jobs : int, default=None
        Label blocks computed at once.

    Returns
    -------
    csr_array of shape (n_samples, n_labels) and dtype int8
        Indicator of the labels of the rows.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, assign_labels, learn_embeddings
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [1]])
    >>> embeddings = learn_embeddings(X, data, n_iter=20)
    >>> assign_labels(X, data, embeddings).toarray().ravel()
    array([1, 0, 1, 0], dtype=int8)
    """
    n_extra = 4
    blocks = split_labels(data, X, n_extra, max(1, memory_limit // effective_n_jobs(n_jobs)))
    parts = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_assign_block)(X, data, embeddings, use_counts, totals, quantile, first, last)
        for first, last in blocks
    )
    return joined(data, parts)


def joined(data: Aggregation, parts: list[tuple[IntArray, IntArray]]) -> sparse.csr_array:
    """Indicator of the labels of the rows, from the rows and labels of each block."""
    rows, labels = (np.concatenate(part) for part in zip(*parts))
    shape = (data.n_rows, data.n_labels)
    assigned = sparse.csr_array((np.ones(len(rows), dtype=np.int8), (rows, labels)), shape=shape)
    assigned.sum_duplicates()
    assigned.data[:] = 1  # a row of several groups may have got the label in each
    return assigned


def _assign_block(
    X: Any,
    data: Aggregation,
    embeddings: Embeddings,
    use_counts: bool,
    totals: FloatArray | None,
    quantile: float | None,
    first: int,
    last: int,
) -> tuple[IntArray, IntArray]:
    """Rows and labels assigned in a range of labels."""
    pairs = make_pairs(data, first, last)
    scores = Gathered(X, pairs).scores(embeddings.block(first, last).ravel())
    chosen = best_of_segments(pairs, scores, pairs.counts if use_counts else None)
    if totals is not None:
        chosen |= next_best(pairs, scores, chosen, totals[first:last])
    if quantile is not None:
        chosen |= _above_quantile(pairs, scores, chosen, quantile)
    return pairs.rows[chosen], pairs.labels[chosen] + first


def best_of_segments(pairs: Pairs, scores: FloatArray, counts: FloatArray | None) -> Any:
    """Mask of the best pair of each segment, or of as many as `counts` says; ties: first ones."""
    if counts is None or (counts <= 1).all():
        bound = tie_bound(pairs.segment_max(scores))
        order = np.flatnonzero(scores >= bound[pairs.segment_of])
        n_best = np.ones(len(order))
    else:
        order = np.lexsort((-scores, pairs.segment_of))
        n_best = np.ceil(counts)[pairs.segment_of[order]]
    segment = pairs.segment_of[order]
    place = np.arange(len(order)) - np.searchsorted(segment, segment)
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[order[place < n_best]] = True
    return chosen


def next_best(pairs: Pairs, scores: FloatArray, chosen: Any, totals: FloatArray) -> Any:
    """Mask of the best pairs not chosen yet, as many rows as each label lacks to its total."""
    held = pairs.once(np.flatnonzero(chosen))
    missing = np.round(totals - np.bincount(pairs.labels[held], minlength=pairs.n_labels))
    rest = pairs.once(np.concatenate([held, np.flatnonzero(~chosen)]))[len(held) :]
    rest = rest[(missing > 0)[pairs.labels[rest]]]
    order = rest[np.lexsort((-scores[rest], pairs.labels[rest]))]
    labels = pairs.labels[order]
    place = np.arange(len(order)) - np.searchsorted(labels, labels)
    shared = np.zeros(len(scores), dtype=bool)
    shared[order[place < missing[labels]]] = True
    return shared


def _above_quantile(pairs: Pairs, scores: FloatArray, chosen: Any, quantile: float) -> Any:
    """Mask of the pairs that reach the quantile of the chosen pairs of their label."""
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((scores[order], pairs.labels[order]))]
    n_chosen = np.bincount(pairs.labels[order], minlength=pairs.n_labels)
    place = np.minimum((quantile * n_chosen).astype(np.int64), n_chosen - 1)
    bound = np.full(pairs.n_labels, np.inf, dtype=scores.dtype)
    some = n_chosen > 0
    bound[some] = scores[order[(np.cumsum(n_chosen) - n_chosen + place)[some]]]
    return scores >= bound[pairs.labels]
