"""How many rows of a group carry one of its labels: what groups without the label say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy import sparse

from sklearn_xlc.aggregation._assignment import best_of_segments
from sklearn_xlc.aggregation._background import Background
from sklearn_xlc.aggregation._embeddings import MEMORY_LIMIT, Embeddings, learn_embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, IntArray, make_pairs
from sklearn_xlc.aggregation._products import Gathered, split_labels

#: Rows without a label that scores are compared with, and the share of them that is let through.
N_OTHERS, TAIL = 1000, 0.005
#: The pooled rate counts as much as so many rows of a label.
STRENGTH = 20


def sharing_rates(
    X: Any,
    data: Aggregation,
    *,
    background: Background | None = None,
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
    n_jobs: int | None = None,
) -> FloatArray:
    r"""Probability that a row carries a label which another row of its group carries for certain.

    Rows of groups *without* a label do not carry it. With an embedding learnt from half of the
    groups, rows of the other half are scored; the bound that a share t = 0.005 of the rows without
    the label exceeds is exceeded, apart from that share, by rows that carry it. With a the share of
    the rows above it among those that are not the best of their group, and b among the best, the
    rate is ``(a - t) / (b - t)``: b is how often a row that carries the label is found.

    Both shares of a label are drawn towards those of all labels together, with the weight of 20
    rows, so that a rare label has nearly the common rate. In random groups rates are about the
    labels' frequencies; in groups of similar rows they are much larger, and somewhat too large,
    since rows near those with a label resemble them more than rows elsewhere do. Where embeddings
    tell little they are too small: the best of a group is above the bound by being the best.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
        Rows of unit length, or empty.
    data : Aggregation
        Groups and their labels.
    background : Background, default=None
        What the embeddings discount.
    seed : int, default=0
        Of the halves and of the rows to compare with.
    memory_limit : int, default=2**29
        Bytes that all jobs together may use for working storage, about.
    n_jobs : int, default=None
        Label blocks computed at once.

    Returns
    -------
    ndarray of shape (n_labels,)
        Rates in [0, 1]; zero where nothing can be told: groups of one row, no row without a label.

    Examples
    --------
    Both rows of a group are alike, so both carry its label:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, sharing_rates
    >>> kind = np.repeat(np.arange(60) % 3, 2)
    >>> X = np.eye(3)[kind]
    >>> data = aggregation(np.repeat(np.eye(60), 2, axis=0), np.eye(3)[kind[::2]])
    >>> sharing_rates(X, data)
    array([1., 1., 1.])
    """
    if data.sizes.max(initial=0) < 2:
        return np.zeros(data.n_labels)
    random = np.random.default_rng(seed)
    counted = random.permutation(len(data.sizes)) % 2 == 0
    learnt = learn_embeddings(
        X,
        data.of_groups(~counted),
        background=background,
        n_iter=0,
        memory_limit=memory_limit,
        n_jobs=n_jobs,
    )
    rows = np.unique(data.rows[np.repeat(counted, data.sizes)])
    others = np.sort(random.choice(rows, min(N_OTHERS, len(rows)), replace=False))
    X_others, has_label = X[others], _labels_of_rows(data, others)
    data = data.of_groups(counted)
    limit = max(1, memory_limit // effective_n_jobs(n_jobs))
    parts = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_count_block)(X, data, learnt, X_others, has_label, limit, first, last)
        for first, last in split_labels(data, X, 4, limit)
    )
    n_best, best, n_mates, mates = map(np.concatenate, zip(*parts))
    # Labels whose best rows are hardly told from others say nothing.
    power = np.maximum(_towards_pooled(best, n_best), 10 * TAIL)
    return np.clip(_towards_pooled(mates, n_mates) / power, 0, 1)


def _towards_pooled(found: FloatArray, number: FloatArray) -> FloatArray:
    """Share found of each label, drawn towards that of all labels."""
    pooled = found.sum() / max(1.0, number.sum())
    return np.asarray((found + STRENGTH * pooled) / (number + STRENGTH))


def _labels_of_rows(data: Aggregation, rows: IntArray) -> sparse.csc_array:
    """Which labels the groups of some rows have, of shape (len(rows), n_labels)."""
    n_groups = len(data.sizes)
    ones = np.ones(len(data.rows), dtype=np.int32)
    shape = (data.n_rows, n_groups)
    members = sparse.csc_array((ones, data.rows, data.row_ends), shape=shape).tocsr()[rows]
    ones = np.ones(len(data.groups), dtype=np.int32)
    shape = (n_groups, data.n_labels)
    labels = sparse.csc_array((ones, data.groups, data.group_ends), shape=shape)
    return sparse.csc_array(members @ labels)


def _count_block(
    X: Any,
    data: Aggregation,
    embeddings: Embeddings,
    X_others: Any,
    has_label: sparse.csc_array,
    limit: int,
    first: int,
    last: int,
) -> tuple[FloatArray, ...]:
    """Best rows of each label's groups and the other rows: their number, and how many more of them
    than by chance are above the bound.
    """
    vectors = embeddings.block(first, last)
    bound, chance = _bounds(X_others, vectors, has_label[:, first:last], limit)
    bound[~vectors.any(axis=1)] = np.nan  # learnt from no row
    pairs = make_pairs(data, first, last)
    scores = Gathered(X, pairs).scores(vectors.ravel())
    best = best_of_segments(pairs, scores, None)
    known = ~np.isnan(bound)[pairs.labels]
    above = scores > bound[pairs.labels]
    result: list[FloatArray] = []
    for part in (best & known, ~best & known):
        number = pairs.label_sum(part)
        result += [number, pairs.label_sum(above & part) - chance * number]
    return tuple(result)


def _bounds(
    others: Any, vectors: FloatArray, has_label: sparse.csc_array, limit: int
) -> tuple[FloatArray, FloatArray]:
    """Score that few rows without the label exceed, and the chance that another one does.

    The r-th largest of m scores is exceeded by a further one with probability r / (m + 1).
    """
    n_rows, n_labels = has_label.shape
    bound = np.full(n_labels, np.nan, dtype=vectors.dtype)
    chance = np.zeros(n_labels)
    step = max(1, limit // (4 * max(1, n_rows) * vectors.dtype.itemsize))
    for start in range(0, n_labels, step):
        part = slice(start, min(start + step, n_labels))
        scores = np.asarray(others @ np.ascontiguousarray(vectors[part].T))
        scores[has_label[:, part].nonzero()] = -np.inf
        number = n_rows - np.diff(has_label.indptr)[part]
        rank = np.ceil(TAIL * number).astype(np.int64)
        known = np.flatnonzero(number)
        if len(known):
            most = int(rank.max())
            largest = np.sort(np.partition(scores, -most, axis=0)[-most:], axis=0)
            bound[part][known] = largest[most - rank[known], known]
        chance[part] = rank / (number + 1)
    return bound, chance
