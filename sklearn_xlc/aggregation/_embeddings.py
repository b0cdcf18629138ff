"""Label embeddings from group labels: group-robust label representation (GRLR) and variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import check_equal, check_numbers, check_sparse
from sklearn_xlc._csr import IntArray, as_dense, filled_rows, joined_ranges, mix_bits, pointers_of
from sklearn_xlc.aggregation._background import Background
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, check_samples, make_pairs
from sklearn_xlc.aggregation._parallel import count_jobs, run_tasks
from sklearn_xlc.aggregation._products import Gathered, split_labels, tie_bound


@carried
@dataclass(frozen=True)
class Embeddings:
    """Label vectors of norm one, stored as sums of samples.

    Sums of sparse samples stay sparse. Without a background, the vector of a label is its
    normalised sum; with one, mean and directions of the background are discounted first.

    Attributes
    ----------
    sums : {ndarray, csr_array} of shape (n_labels, n_features)
        Weighted sums of samples.
    weights : ndarray of shape (n_labels,)
        Summed weights of the samples in each sum.
    low_rank : ndarray of shape (n_labels, n_components) or None
        The same sums over the projections of the background.
    background : Background or None
        Mean and directions to discount.
    """

    sums: Any
    weights: FloatArray
    low_rank: FloatArray | None
    background: Background | None

    def block(self, first: int, last: int) -> FloatArray:
        """Compute the vectors of labels ``first, ..., last - 1``, an ndarray (n, n_features)."""
        part = slice(first, last)
        if self.background is None or self.low_rank is None:
            sums = self.sums[part]
            dense = sums.toarray() if sp.issparse(sums) else sums.copy()
        else:
            dense = self.background.vectors(
                self.sums[part], self.weights[part], self.low_rank[part]
            )
        norms = np.linalg.norm(dense, axis=1, keepdims=True)
        return np.divide(dense, norms, out=dense, where=norms > 0)

    def without_samples(self) -> Embeddings:
        """Drop the arrays with one entry per sample; only learning needs them."""
        if self.background is None:
            return self
        return replace(self, background=self.background.without_samples())


def learn_embeddings(
    X: Any,
    data: Aggregation,
    *,
    background: Background | None = None,
    n_iter: int = 20,
    step_size: float | None = 0.1,
    temperature: float = 0.0,
    targets: FloatArray | None = None,
    use_counts: bool = False,
    sample_weight: FloatArray | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Embeddings:
    r"""Learn label embeddings by Algorithm 1 (GRLR) in [1]_.

    The embedding e of a label starts as the sum of all samples of the label's groups. Each
    iteration gives a weight to every sample of these groups, 1 to the most similar sample of each
    group and 0 to the others, and moves the embedding towards the weighted sum g:
    ``e = Proj(e + step_size * g)``.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    data : Aggregation
        Groups and their labels.
    background : Background, default=None
        Background to discount in sums and similarities. None: no background, as in the paper.
    n_iter : int, default=20
        Number of iterations T; 0 is EAGLE-0.
    step_size : float, default=0.1
        Step size :math:`\lambda` of [1]_. None replaces e by g.
    temperature : float, default=0
        Temperature of the softmax over the similarities in each group, which gives the weights; in
        units of the standard deviation of the label's similarities. 0: only the most similar sample
        counts, or all of them on ties.
    targets : ndarray of shape (n_labels,), default=None
        Expected number of samples of a group with each label; multiplies the soft weights, which
        never exceed 1. None: one sample per group.
    use_counts : bool, default=False
        Whether the count of a label in a group is the group's weight in the first sum, and its
        target.
    sample_weight : ndarray of shape (n_samples,), default=None
        Non-negative weights of the samples in all sums. With the norms of the samples as given, the
        sums are of these samples, and similarities are cosines: Algorithm 1 as printed, with the
        brackets of Table 4. None: all weights are one.
    seed : int, default=0
        Seed of the starting samples of labels whose samples sum to zero.
    n_jobs : int, default=None
        Number of blocks of labels in parallel; all together take about scikit-learn's
        `working_memory`.

    Returns
    -------
    Embeddings
        Embeddings; zero for labels without a group or without a non-zero sample.

    Notes
    -----
    The result depends neither on `n_jobs` nor on `working_memory`.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Algorithm 1, Table 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, learn_embeddings
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [1]])
    >>> learn_embeddings(X, data, n_iter=0).block(0, 1)
    array([[0.707..., 0.707...]])
    >>> learn_embeddings(X, data, n_iter=1, step_size=None).block(0, 1).round(3)
    array([[0.894, 0.447]])
    """
    X = check_samples(X, data)
    if sample_weight is not None:
        checks: Any = {"ensure_2d": False, "dtype": np.float64, "ensure_non_negative": True}
        sample_weight = check_numbers(sample_weight, "sample_weight", **checks)
        check_equal("samples", sample_weight=sample_weight.shape, X=X.shape[:1])
    n_extra = 4 if background is None else 4 + len(background.directions)
    blocks = split_labels(data, X, n_extra, count_jobs(n_jobs))
    settings = _Settings(n_iter, step_size, temperature, targets, use_counts, seed)
    shared = (X, data, background, settings, sample_weight)
    sums, weights, low_rank = zip(*run_tasks(_embed_block, shared, blocks, n_jobs))
    return Embeddings(
        sums=sp.vstack(sums, format="csr") if sp.issparse(X) else np.concatenate(sums),
        weights=np.concatenate(weights),
        low_rank=None if background is None else np.concatenate(low_rank),
        background=background,
    )


@dataclass(frozen=True)
class _Settings:
    n_iter: int
    step_size: float | None
    temperature: float
    targets: FloatArray | None
    use_counts: bool
    seed: int


class _Kernel:
    """Similarities of samples to weighted sums of the samples of each label."""

    def __init__(self, X: Any, pairs: Pairs, background: Background | None) -> None:
        self.pairs, self.background = pairs, background
        self.gathered = Gathered(X, pairs)
        if background is not None:
            self.projections = background.projections[pairs.samples]
            self.offsets = background.offsets[pairs.samples]

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Multiply each pair's sample with the sum of its label's weighted samples."""
        scores = self.gathered.scores(self.gathered.sums(weights))
        if self.background is None:
            return scores
        pairs = self.pairs
        low_rank = pairs.weighting(weights) @ self.projections
        total = pairs.label_sum(weights).astype(scores.dtype)
        scores -= np.einsum("ij,ij->i", self.projections, low_rank[pairs.labels])
        scores -= total[pairs.labels] * self.offsets
        return scores

    def square(self, weights: FloatArray, scores: FloatArray) -> FloatArray:
        """Compute the squared norm of each label's sum from its products with its samples."""
        square = self.pairs.label_sum(weights * scores)
        if self.background is not None:
            total = self.pairs.label_sum(weights)
            offset = self.pairs.label_sum(weights * self.offsets)
            square -= total * (offset - total * self.background.mean_square)
        return np.maximum(square, 0)


def _embed_block(
    X: Any,
    data: Aggregation,
    background: Background | None,
    settings: _Settings,
    sample_weight: FloatArray | None,
    first: int,
    last: int,
) -> tuple[Any, ...]:
    """Learn the sums, weights and low-rank sums of a range of labels."""
    pairs = make_pairs(data, first, last)
    kernel = _Kernel(X, pairs, background)
    counts = pairs.counts[pairs.segment_of] if settings.use_counts else 1.0
    shares: Any = 1 if sample_weight is None else sample_weight[pairs.samples].astype(X.dtype)
    weights = np.full(len(pairs.samples), counts).astype(X.dtype) * shares
    scores = kernel(weights)
    zero = _zero_sums(kernel, weights, scores)
    if len(zero):
        weights[np.isin(pairs.labels, zero)] = 0
        weights[_start_pairs(X, data, pairs, zero, settings.seed)] = 1
        scores = kernel(weights)
    weights = _iterate(kernel, weights, scores, settings, shares)
    sums = kernel.gathered.to_rows(kernel.gathered.sums(weights))
    low_rank = None if background is None else pairs.weighting(weights) @ kernel.projections
    return sums, pairs.label_sum(weights).astype(sums.dtype), low_rank


def _zero_sums(kernel: _Kernel, weights: FloatArray, scores: FloatArray) -> IntArray:
    """Find the labels whose samples sum to zero, up to rounding.

    Opposite samples sum to zero, and so do centred samples of all groups.
    """
    pairs, background = kernel.pairs, kernel.background
    total, precision = pairs.label_sum(weights), np.finfo(scores.dtype).eps
    # The square is cheap but loses half of the digits: it selects the sums to compute in full.
    doubtful = np.flatnonzero(kernel.square(weights, scores) <= 1e4 * precision * total**2)
    if not len(doubtful):
        return doubtful
    sums = as_dense(kernel.gathered.to_rows(kernel.gathered.sums(weights))[doubtful])
    if background is not None:
        sums = sums - total[doubtful, None].astype(sums.dtype) * background.mean
    norms = np.linalg.norm(sums, axis=1)
    return doubtful[norms <= 100 * precision * total[doubtful]]


def _start_pairs(X: Any, data: Aggregation, pairs: Pairs, labels: IntArray, seed: int) -> IntArray:
    """Select the starting sample of each given label, as a pair of the block.

    The seed picks a sample of one of the label's groups, the same sample for labels with the same
    groups. The first of these labels starts there, the second from the least similar sample of the
    group, the third from the next, and so on. Zero samples are never picked; a label with zero
    samples only gets none.
    """
    filled = filled_rows(X)[pairs.samples]
    before = pointers_of(filled)
    n_filled = np.diff(before[pairs.indptr])[labels]
    labels, n_filled = labels[n_filled > 0], n_filled[n_filled > 0]
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


def _row_products(X: Any, left: IntArray, right: IntArray) -> FloatArray:
    """Compute the inner products of pairs of samples."""
    if sp.issparse(X):
        return np.asarray(X[left].multiply(X[right]).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X[left], X[right]))


def _iterate(
    kernel: _Kernel, weights: FloatArray, scores: FloatArray, settings: _Settings, shares: Any
) -> FloatArray:
    """Take all steps; return the weights of the samples.

    An embedding is linear in the weights of its samples, so steps are taken on the weights.
    """
    pairs = kernel.pairs
    targets = _segment_targets(pairs, settings)
    weights, scores = _project(kernel, weights, scores)
    chosen = None
    for _ in range(settings.n_iter):
        before = chosen
        chosen = shares * _sample_weights(pairs, scores, settings.temperature, targets)
        if before is None or not np.array_equal(before, chosen):
            direction, direction_scores = _project(kernel, chosen, kernel(chosen))
        if settings.step_size is None:
            weights, scores = direction, direction_scores
            continue
        # Algorithm 1: e = Proj(e + lambda g). Proj has no scale: a long step shortens e instead.
        length = settings.step_size
        stay, step = map(weights.dtype.type, (1 / max(1, length), min(1, length)))
        weights = stay * weights + step * direction
        scores = stay * scores + step * direction_scores
        weights, scores = _project(kernel, weights, scores)
    return weights


def _project(
    kernel: _Kernel, weights: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Divide weights and scores by the norm of the label's sum; Proj(0) = 0."""
    norm = np.sqrt(kernel.square(weights, scores))
    scale = np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)
    scale = scale.astype(scores.dtype)[kernel.pairs.labels]
    return weights * scale, scores * scale


def _segment_targets(pairs: Pairs, settings: _Settings) -> FloatArray | None:
    """Return the expected number of samples with the label, for each segment."""
    if settings.use_counts:
        return pairs.counts
    if settings.targets is None:
        return None
    return settings.targets[pairs.first + pairs.label_of_segment]


def _sample_weights(
    pairs: Pairs, scores: FloatArray, temperature: float, targets: FloatArray | None
) -> FloatArray:
    """Compute the weight of each sample in the next direction."""
    if temperature == 0:
        bound = tie_bound(pairs.segment_max(scores))
        return (scores >= bound[pairs.segment_of]).astype(scores.dtype)
    sizes = np.diff(pairs.segments, append=len(scores))
    centred = scores - (pairs.segment_sum(scores) / sizes).astype(scores.dtype)[pairs.segment_of]
    n_pairs = np.maximum(np.diff(pairs.indptr), 1)
    spread = np.sqrt(pairs.label_sum(centred**2) / n_pairs)
    scale = np.divide(1 / temperature, spread, out=np.zeros_like(spread), where=spread > 0)
    # A spread of rounding errors must not overflow; to a softmax, 1e30 and 1e20 are the same.
    centred *= np.minimum(scale, 1e30).astype(scores.dtype)[pairs.labels]
    centred -= pairs.segment_max(centred)[pairs.segment_of]
    soft = np.exp(centred)
    soft /= pairs.segment_sum(soft)[pairs.segment_of]
    if targets is not None:
        soft = np.minimum(1, soft * targets.astype(soft.dtype)[pairs.segment_of])
    return soft


def grlr_objective(
    X: Any,
    data: Aggregation,
    embeddings: Any,
    *,
    n_jobs: int | None = None,
) -> FloatArray:
    r"""Compute the objective of the label embeddings of [1]_, its Eq. 2.

    The best embedding of label k is the vector e of norm one that maximises

    .. math:: \sum_{j \in M_k} \max_{i \in N_j} \langle x_i, e \rangle,

    the sum over the label's groups of the similarity of their most similar sample. Finding it is
    hard. Algorithm 1 (:func:`learn_embeddings` without a background) climbs from the sum of all
    samples; unless two samples of a group tie, no step decreases the objective.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    data : Aggregation
        Groups and their labels. A group counts once, however often it holds a label.
    embeddings : Embeddings, or {ndarray, sparse matrix} of shape (n_labels, n_features)
        Embeddings of the labels; rows are scaled to norm one.
    n_jobs : int, default=None
        Number of blocks of labels in parallel; all together take about scikit-learn's
        `working_memory`.

    Returns
    -------
    ndarray of shape (n_labels,) and dtype float64
        Objective of each label, between minus and plus the number of its groups.

    Raises
    ------
    ValueError
        If `X` or `embeddings` do not match the shape of `data`, or are corrupt.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Eq. 2.

    Examples
    --------
    Samples 0 and 2 are equal, and in different groups of the label:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, grlr_objective, learn_embeddings
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [1]])
    >>> [
    ...     grlr_objective(X, data, learn_embeddings(X, data, n_iter=t)).round(3).item()
    ...     for t in (0, 1, 20)
    ... ]
    [1.414, 1.454, 1.983]
    >>> grlr_objective(X, data, [[1, 0]])
    array([2.])
    """
    X = check_samples(X, data)
    if not isinstance(embeddings, Embeddings):
        if sp.issparse(embeddings):
            sums = sp.csr_array(check_sparse(embeddings, "embeddings"), dtype=np.float64)
        else:
            sums = np.asarray(embeddings, dtype=np.float64)
        embeddings = Embeddings(sums, np.ones(data.n_labels), None, None)
    shape = data.n_labels, X.shape[1]
    if embeddings.sums.shape != shape:
        raise ValueError(
            f"embeddings must have a row for each of the {shape[0]} labels and a column for each "
            f"of the {shape[1]} features, got shape {embeddings.sums.shape}"
        )
    blocks = split_labels(data, X, 1, count_jobs(n_jobs))
    parts = run_tasks(_objective_block, (X, data, embeddings), blocks, n_jobs)
    return np.concatenate([np.zeros(0), *parts])


def _objective_block(
    X: Any, data: Aggregation, embeddings: Embeddings, first: int, last: int
) -> FloatArray:
    """Compute the objective of each of a range of labels."""
    pairs = make_pairs(data, first, last)
    vectors = embeddings.block(first, last).astype(X.dtype, copy=False)
    best = pairs.segment_max(Gathered(X, pairs).scores(vectors.ravel()))
    return np.bincount(pairs.label_of_segment, best, minlength=last - first).astype(np.float64)
