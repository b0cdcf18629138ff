"""Assignment of the labels of groups to samples, by similarity or by given scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray
from sklearn_xlc.aggregation._embeddings import Embeddings
from sklearn_xlc.aggregation._pairs import (
    Aggregation,
    FloatArray,
    Pairs,
    check_samples,
    make_pairs,
    scored_columns,
    scored_pairs,
)
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
        Wanted number of samples with each label. The label goes to further samples, the most
        similar first, until this number is reached. A label of all groups might belong to one
        sample of each. Let s be the similarity of its embedding to the mean of all samples, and b
        to the best samples; no further sample has a similarity below ``s - (b - s) / 2``. None: no
        further samples.
    quantile : float in [0, 1], default=None
        Each label also goes to all samples of its groups whose similarity reaches this quantile of
        the samples with the label. None: no further samples.
    n_jobs : int, default=None
        Number of blocks of labels in parallel; all together take about scikit-learn's
        `working_memory`.

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
    blocks = split_labels(data, X, 4, count_jobs(n_jobs))
    shared = (X, data, embeddings, use_counts, totals, quantile)
    return _join_blocks(data, run_tasks(_assign_block, shared, blocks, n_jobs))


def assign_by_scores(
    data: Aggregation,
    scores: sp.csr_matrix,
    *,
    use_counts: bool = False,
    totals: FloatArray | None = None,
) -> sp.csr_matrix:
    """Assign the labels of groups to their samples by given scores.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    scores : CSR matrix of shape (n_samples, n_labels)
        Scores, the greater the better; one stored entry for each label of each sample's groups.
    use_counts : bool, default=False
        Whether a label that occurs c times in a group goes to the c best samples.
    totals : ndarray of shape (n_labels,), default=None
        Wanted number of samples with each label. The label goes to further samples, the best first,
        until this number is reached. None: no further samples.

    Returns
    -------
    csr_matrix of shape (n_samples, n_labels) and dtype int8
        Indicator of the labels of the samples.

    Raises
    ------
    ValueError
        If the score of a pair is missing or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import aggregation, assign_by_scores
    >>> data = aggregation([[1], [1], [1]], [[1, 1]])
    >>> scores = csr_matrix([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    >>> assign_by_scores(data, scores, totals=np.array([2, 1])).toarray()
    array([[1, 0],
           [0, 1],
           [1, 0]], dtype=int8)
    """
    parts = []
    for pairs, part, entries in scored_pairs(data, scored_columns(scores, "scores"), "scores"):
        # Only the order matters; ranks are a whole number apart, however close the scores are.
        ranks = np.unique(part.data[entries], return_inverse=True)[1].astype(np.float64)
        chosen = best_of_segments(pairs, ranks, pairs.counts if use_counts else None)
        if totals is not None:
            chosen |= _next_best(pairs, ranks, chosen, totals)
        parts.append((pairs.samples[chosen], pairs.labels[chosen] + pairs.first))
    return _join_blocks(data, parts)


def _join_blocks(data: Aggregation, parts: list[tuple[IntArray, IntArray]]) -> sp.csr_matrix:
    """Build the indicator of the samples' labels from the pairs of each block."""
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
    """Return the samples and labels of the assigned pairs, for a range of labels."""
    pairs = make_pairs(data, first, last)
    vectors = embeddings.block(first, last)
    scores = Gathered(X, pairs).scores(vectors.ravel())
    chosen = best_of_segments(pairs, scores, pairs.counts if use_counts else None)
    if totals is not None:
        # The total of a label of all groups is a guess. It must not lead to samples opposite to the
        # best ones, such as x and -x in Figure 1 of the paper.
        average = np.zeros(pairs.n_labels)
        if embeddings.background is not None:
            average = (vectors @ embeddings.background.mean).astype(np.float64)
        best = pairs.label_sum(chosen * scores) / np.maximum(pairs.label_sum(chosen), 1)
        is_everywhere = np.diff(data.labels.indptr)[first:last] == len(data.groups)
        bound = np.where(is_everywhere, average - (best - average) / 2, -np.inf)
        chosen |= _next_best(pairs, scores, chosen, totals, bound)
    if quantile is not None:
        chosen |= _above_quantile(pairs, scores, chosen, quantile)
    return pairs.samples[chosen], pairs.labels[chosen] + first


def best_of_segments(
    pairs: Pairs, scores: FloatArray, counts: FloatArray | None
) -> npt.NDArray[np.bool_]:
    """Return a mask of the best pair, or the `counts` best pairs, of each segment.

    Of pairs that tie with the last of these, the first ones are taken.
    """
    if counts is None or (counts <= 1).all():
        number = np.ones(len(pairs.segments))
        last = pairs.segment_max(scores)
    else:
        number = np.minimum(np.ceil(counts), np.diff(pairs.segments, append=len(scores)))
        order = np.lexsort((-scores, pairs.segment_of))
        last = scores[order[pairs.segments + number.astype(np.int64) - 1]]
    lowest = tie_bound(last)
    above = scores > (last + (last - lowest))[pairs.segment_of]
    ties = np.flatnonzero(~above & (scores >= lowest[pairs.segment_of]))
    segments = pairs.segment_of[ties]
    number = number - pairs.segment_sum(above.astype(np.int64))
    return above | _first_of_runs(ties, segments, number[segments], len(scores))


def _next_best(
    pairs: Pairs,
    scores: FloatArray,
    chosen: npt.NDArray[np.bool_],
    totals: FloatArray,
    bound: FloatArray | None = None,
) -> npt.NDArray[np.bool_]:
    """Return a mask of further pairs of each label, the best first, up to its total.

    Their scores exceed the bound of the label.
    """
    held = pairs.once(np.flatnonzero(chosen))
    totals = totals[pairs.first : pairs.first + pairs.n_labels]
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
    """Return a mask of the first `n_first` pairs of each run of equal keys."""
    rank = np.arange(len(order)) - np.searchsorted(keys, keys)
    mask = np.zeros(n_pairs, dtype=bool)
    mask[order[rank < n_first]] = True
    return mask


def _above_quantile(
    pairs: Pairs, scores: FloatArray, chosen: npt.NDArray[np.bool_], quantile: float
) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs at or above a quantile of the chosen pairs of their label."""
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((scores[order], pairs.labels[order]))]
    n_chosen = np.bincount(pairs.labels[order], minlength=pairs.n_labels)
    rank = np.minimum((quantile * n_chosen).astype(np.int64), n_chosen - 1)
    bound = np.full(pairs.n_labels, np.inf, dtype=scores.dtype)
    known = n_chosen > 0
    bound[known] = scores[order[(np.cumsum(n_chosen) - n_chosen + rank)[known]]]
    return np.asarray(scores >= tie_bound(bound)[pairs.labels])
