"""Where a label starts whose rows sum to zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, IntArray, Pairs


def start_pairs(X: Any, data: Aggregation, pairs: Pairs, labels: IntArray, seed: int) -> IntArray:
    """One pair for each of the given labels of the block: the row from which it starts.

    The seed picks a row of one of the label's groups. Labels with the same groups pick the same,
    and the first of them starts there; the second starts from the row of that group that is least
    like it, the third from the next, and so on. Empty rows are never picked; a label that has no
    other row gets none.
    """
    filled = _is_filled(X)[pairs.rows]
    before = np.concatenate([[0], np.cumsum(filled)])
    n_filled = np.diff(before[pairs.ends])[labels]
    labels, n_filled = labels[n_filled > 0], n_filled[n_filled > 0]
    if not len(labels):
        return labels
    mixed = _mix(data.signatures[pairs.first + labels], seed)
    order = (mixed % n_filled.astype(np.uint64)).astype(np.int64) + before[pairs.ends[labels]]
    picked = np.flatnonzero(filled)[order]
    segment = pairs.segment_of[picked]
    stop = np.append(pairs.segments, len(pairs.rows))[segment + 1]
    lengths = stop - pairs.segments[segment]
    owner = np.repeat(np.arange(len(labels)), lengths)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    others = np.arange(ends[-1]) - ends[owner] + pairs.segments[segment][owner]
    owner, others = owner[filled[others]], others[filled[others]]
    likeness = _row_products(X, pairs.rows[others], pairs.rows[picked][owner])
    likeness[others == picked[owner]] = -np.inf  # first of all
    ranking = np.lexsort((likeness, owner))
    n_others = np.bincount(owner, minlength=len(labels))
    rank = data.twins_before[pairs.first + labels] % n_others
    return others[ranking[np.cumsum(n_others) - n_others + rank]]


def _is_filled(X: Any) -> Any:
    """Which rows hold anything."""
    if sparse.issparse(X):
        return np.diff(X.indptr) > 0
    return X.any(axis=1)


def _row_products(X: Any, left: IntArray, right: IntArray) -> FloatArray:
    """Inner products of pairs of rows."""
    if sparse.issparse(X):
        return np.asarray(X[left].multiply(X[right]).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X[left], X[right])


def _mix(words: Any, seed: int) -> Any:
    """Words that depend on the seed in every bit, by the finaliser of SplitMix64."""
    words = words + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
