"""Starting samples for labels whose samples sum to zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray, joined_ranges, mix_bits
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs


def start_pairs(X: Any, data: Aggregation, pairs: Pairs, labels: IntArray, seed: int) -> IntArray:
    """Select one pair for each given label of the block: the sample from which it starts.

    The seed picks a sample of one of the label's groups. Labels with the same groups pick the same
    sample. The first of them starts there, the second from the least similar sample of the group,
    the third from the next, and so on. Zero samples are never picked; a label with zero samples
    only gets none.
    """
    filled = _is_filled(X)[pairs.samples]
    before = np.concatenate([[0], np.cumsum(filled)])
    n_filled = np.diff(before[pairs.indptr])[labels]
    labels, n_filled = labels[n_filled > 0], n_filled[n_filled > 0]
    if not len(labels):
        return labels
    words = data.signatures[pairs.first + labels] + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    rank = (mix_bits(words) % n_filled.astype(np.uint64)).astype(np.int64)
    picked = np.flatnonzero(filled)[before[pairs.indptr[labels]] + rank]
    segment = pairs.segment_of[picked]
    sizes = np.diff(pairs.segments, append=len(pairs.samples))[segment]
    owner = np.repeat(np.arange(len(labels)), sizes)
    in_group = joined_ranges(pairs.segments[segment], sizes)
    owner, in_group = owner[filled[in_group]], in_group[filled[in_group]]
    similarity = _row_products(X, pairs.samples[in_group], pairs.samples[picked][owner])
    similarity[in_group == picked[owner]] = -np.inf  # the picked sample comes first
    order = np.lexsort((similarity, owner))
    n_in_group = np.bincount(owner, minlength=len(labels))
    rank = data.n_identical_before[pairs.first + labels] % n_in_group
    return in_group[order[np.cumsum(n_in_group) - n_in_group + rank]]


def _is_filled(X: Any) -> Any:
    """Mask of the non-empty samples."""
    if sp.issparse(X):
        return np.diff(X.indptr) > 0
    return X.any(axis=1)


def _row_products(X: Any, left: IntArray, right: IntArray) -> FloatArray:
    """Inner products of pairs of samples."""
    if sp.issparse(X):
        return np.asarray(X[left].multiply(X[right]).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X[left], X[right]))
