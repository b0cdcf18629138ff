"""Assignment of the labels of groups to the most similar samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray
from sklearn_xlc.aggregation._embeddings import MEMORY_LIMIT, Embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, check_samples, make_pairs
from sklearn_xlc.aggregation._parallel import count_jobs, run_tasks
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
) -> sp.csr_matrix:
    """Assign the labels of groups to their samples: Algorithm 2 in [1]_.

    Each label of a group goes to the sample most similar to the label's embedding, on ties to the
    first sample, and may then be shared with further samples of its groups.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    data : Aggregation
        Groups and their labels.
    embeddings : Embeddings
        Embeddings of the same labels.
    use_counts : bool, default=False
        Whether a label that occurs c times in a group goes to the c most similar samples.
    totals : ndarray of shape (n_labels,), default=None
        Number of samples that should carry each label: the label goes to further samples, the most
        similar first, until this number is reached. A label that every group has might belong to
        one sample of each: it goes to no further sample that is less similar than the mean of all
        samples by more than half of what the best samples are more similar. None: no further
        samples.
    quantile : float in [0, 1], default=None
        Each label also goes to all samples of its groups that are at least as similar as this
        quantile of the samples that already carry it. None: no further samples.
    memory_limit : int, default=2**29
        Approximate limit in bytes of the working storage of all jobs together.
    n_jobs : int, default=None
        Number of blocks of labels computed in parallel.

    Returns
    -------
    csr_matrix of shape (n_samples, n_labels) and dtype int8
        Indicator of the labels of the samples.

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
    X = check_samples(X, data)
    n_extra = 4
    blocks = split_labels(data, X, n_extra, memory_limit, count_jobs(n_jobs))
    shared = (X, data, embeddings, use_counts, totals, quantile)
    parts = run_tasks(_assign_block, shared, blocks, n_jobs)
    return join_blocks(data, parts)


def join_blocks(data: Aggregation, parts: list[tuple[IntArray, IntArray]]) -> sp.csr_matrix:
    """Indicator of the labels of the samples, from the samples and labels of each block."""
    samples, labels = (np.concatenate(part) for part in zip(*parts))
    entries = (np.ones(len(samples), dtype=np.int8), (samples, labels))
    assigned = sp.csr_matrix(entries, shape=(data.groups.n_samples, data.n_labels))
    assigned.data[:] = 1  # a sample of several groups may have the label from each
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
    """Samples and labels assigned in a range of labels."""
    pairs = make_pairs(data, first, last)
    vectors = embeddings.block(first, last)
    scores = Gathered(X, pairs).scores(vectors.ravel())
    chosen = best_of_segments(pairs, scores, pairs.counts if use_counts else None)
    if totals is not None:
        bound = _opposite(data, pairs, embeddings, vectors, scores, chosen)
        chosen |= next_best(pairs, scores, chosen, totals[first:last], bound)
    if quantile is not None:
        chosen |= _above_quantile(pairs, scores, chosen, quantile)
    return pairs.samples[chosen], pairs.labels[chosen] + first


def best_of_segments(
    pairs: Pairs, scores: FloatArray, counts: FloatArray | None
) -> npt.NDArray[np.bool_]:
    """Mask of the best pair of each segment, or of the `counts` best pairs; ties: first ones."""
    if counts is None or (counts <= 1).all():
        bound = tie_bound(pairs.segment_max(scores))
        order = np.flatnonzero(scores >= bound[pairs.segment_of])
        n_best = np.ones(len(order))
    else:
        order = np.lexsort((-scores, pairs.segment_of))
        n_best = np.ceil(counts)[pairs.segment_of[order]]
    return _first_of_runs(order, pairs.segment_of[order], n_best, len(scores))


def next_best(
    pairs: Pairs,
    scores: FloatArray,
    chosen: npt.NDArray[np.bool_],
    totals: FloatArray,
    bound: FloatArray | None = None,
) -> npt.NDArray[np.bool_]:
    """Mask of the best pairs not yet chosen, as many samples as each label lacks to its total.

    Their scores exceed the bound of the label.
    """
    held = pairs.once(np.flatnonzero(chosen))
    missing = np.round(totals - np.bincount(pairs.labels[held], minlength=pairs.n_labels))
    rest = pairs.once(np.concatenate([held, np.flatnonzero(~chosen)]))[len(held) :]
    rest = rest[(missing > 0)[pairs.labels[rest]]]
    if bound is not None:
        rest = rest[scores[rest] > bound[pairs.labels[rest]]]
    order = rest[np.lexsort((-scores[rest], pairs.labels[rest]))]
    labels = pairs.labels[order]
    return _first_of_runs(order, labels, missing[labels], len(scores))


def _first_of_runs(
    order: IntArray, keys: IntArray, n_first: FloatArray, n_pairs: int
) -> npt.NDArray[np.bool_]:
    """Mask of the first `n_first` pairs of each run of equal keys."""
    rank = np.arange(len(order)) - np.searchsorted(keys, keys)
    mask = np.zeros(n_pairs, dtype=bool)
    mask[order[rank < n_first]] = True
    return mask


def _opposite(
    data: Aggregation,
    pairs: Pairs,
    embeddings: Embeddings,
    vectors: FloatArray,
    scores: FloatArray,
    chosen: npt.NDArray[np.bool_],
) -> FloatArray:
    """Score at which a sample is opposed to a label that every group has; otherwise minus infinity.

    How many samples carry such a label is a guess, so that it must not go to the opposite of the
    samples that have it, such as x and -x in Figure 1 of the paper.
    """
    first, last = pairs.first, pairs.first + pairs.n_labels
    average = np.zeros(pairs.n_labels)
    if embeddings.background is not None:
        average = (vectors @ embeddings.background.mean).astype(np.float64)
    n_best = np.maximum(pairs.label_sum(chosen), 1)
    best = pairs.label_sum(chosen * scores) / n_best
    is_everywhere = np.diff(data.labels.indptr)[first:last] == len(data.groups)
    return np.where(is_everywhere, average - (best - average) / 2, -np.inf)


def _above_quantile(
    pairs: Pairs, scores: FloatArray, chosen: npt.NDArray[np.bool_], quantile: float
) -> npt.NDArray[np.bool_]:
    """Mask of the pairs that reach the quantile of the chosen pairs of their label."""
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((scores[order], pairs.labels[order]))]
    n_chosen = np.bincount(pairs.labels[order], minlength=pairs.n_labels)
    rank = np.minimum((quantile * n_chosen).astype(np.int64), n_chosen - 1)
    bound = np.full(pairs.n_labels, np.inf, dtype=scores.dtype)
    known = n_chosen > 0
    bound[known] = scores[order[(np.cumsum(n_chosen) - n_chosen + rank)[known]]]
    return np.asarray(scores >= bound[pairs.labels])
