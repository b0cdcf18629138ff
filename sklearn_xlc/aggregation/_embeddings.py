"""Label embeddings from group labels: group-robust label representation (GRLR) and its contrast."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray
from sklearn_xlc.aggregation._background import Background
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, check_samples, make_pairs
from sklearn_xlc.aggregation._parallel import count_jobs, run_tasks
from sklearn_xlc.aggregation._products import Gathered, split_labels, tie_bound
from sklearn_xlc.aggregation._start import start_pairs

#: Approximate limit in bytes of the working storage of all jobs together.
MEMORY_LIMIT = 2**29


@dataclass(frozen=True)
class Embeddings:
    """Label vectors of norm one, stored as sums over samples so that sparse samples stay sparse.

    Without a background, the vector of a label is its normalised sum; with a background, its mean
    and directions are discounted first. :meth:`block` computes the vectors of a range of labels.

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
        """Vectors of the labels ``first, ..., last - 1`` as an ndarray (n, n_features)."""
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
        """Drop the arrays that grow with the number of samples; only learning needs them."""
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
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
    n_jobs: int | None = None,
) -> Embeddings:
    r"""Learn label embeddings by Algorithm 1 (GRLR) in [1]_, optionally against a background.

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
        Background to discount in sums and similarities. None: nothing, as in the paper.
    n_iter : int, default=20
        Number of iterations T; 0 is EAGLE-0.
    step_size : float, default=0.1
        Step size :math:`\lambda` of [1]_. None replaces e by g.
    temperature : float, default=0
        Divisor of the similarities in a softmax over each group, which gives the weights; in units
        of the spread of the label's similarities. 0: only the most similar sample counts, or all of
        them on ties.
    targets : ndarray of shape (n_labels,), default=None
        Number of samples of a group that are expected to carry each label; multiplies the soft
        weights, which never exceed 1. None: one sample per group.
    use_counts : bool, default=False
        Whether a group counts as many times as it holds the label, in the first sum and as a
        target.
    seed : int, default=0
        Seed of the starting samples of labels whose samples sum to zero.
    memory_limit : int, default=2**29
        Approximate limit in bytes of the working storage of all jobs together.
    n_jobs : int, default=None
        Number of blocks of labels computed in parallel.

    Returns
    -------
    Embeddings
        Embeddings; zero for labels without a group or without a non-zero sample.

    Notes
    -----
    The result depends neither on `n_jobs` nor on `memory_limit`.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Algorithm 1.

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
    n_extra = 4 if background is None else 4 + len(background.directions)
    blocks = split_labels(data, X, n_extra, memory_limit, count_jobs(n_jobs))
    settings = _Settings(n_iter, step_size, temperature, targets, use_counts, seed)
    parts = run_tasks(_embed_block, (X, data, background, settings), blocks, n_jobs)
    sums, weights, low_rank = zip(*parts)
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
    """Similarities of the pairs to weighted sums of the pairs' own samples."""

    def __init__(self, X: Any, pairs: Pairs, background: Background | None) -> None:
        self.pairs, self.background = pairs, background
        self.gathered = Gathered(X, pairs)
        if background is not None:
            self.projections = background.projections[pairs.samples]
            self.offsets = background.offsets[pairs.samples]

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Inner product of each pair's sample with the sum of its label's weighted samples."""
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
        """Squared norm of each label's sum, from its similarities to its own samples."""
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
    first: int,
    last: int,
) -> tuple[Any, ...]:
    """Sums, weights and low-rank sums of a range of labels."""
    pairs = make_pairs(data, first, last)
    kernel = _Kernel(X, pairs, background)
    counts = pairs.counts[pairs.segment_of] if settings.use_counts else 1.0
    weights = np.full(len(pairs.samples), counts).astype(X.dtype)
    scores = kernel(weights)
    zero = _zero_sums(kernel, weights, scores)
    if len(zero):
        weights[np.isin(pairs.labels, zero)] = 0
        weights[start_pairs(X, data, pairs, zero, settings.seed)] = 1
        scores = kernel(weights)
    weights, scores = _iterate(kernel, weights, scores, settings)
    return _label_vectors(kernel, weights)


def _zero_sums(kernel: _Kernel, weights: FloatArray, scores: FloatArray) -> IntArray:
    """Labels whose sum is zero up to rounding.

    Opposite samples sum to zero, and so do the samples of all groups once they are centred.
    """
    pairs, background = kernel.pairs, kernel.background
    total, precision = pairs.label_sum(weights), np.finfo(scores.dtype).eps
    # The square is cheap but loses half of the digits: it tells which sums need a closer look.
    doubtful = np.flatnonzero(kernel.square(weights, scores) <= 1e4 * precision * total**2)
    if not len(doubtful):
        return doubtful
    sums = kernel.gathered.to_rows(kernel.gathered.sums(weights))[doubtful]
    sums = sums.toarray() if sp.issparse(sums) else sums
    if background is not None:
        sums = sums - total[doubtful, None].astype(sums.dtype) * background.mean
    norms = np.linalg.norm(sums, axis=1)
    return doubtful[norms <= 100 * precision * total[doubtful]]


def _iterate(
    kernel: _Kernel, weights: FloatArray, scores: FloatArray, settings: _Settings
) -> tuple[FloatArray, FloatArray]:
    """Weights of the samples in each label's embedding after all steps, and similarities to it.

    The embedding is linear in the weights of its samples, so its steps are steps of the weights.
    """
    pairs = kernel.pairs
    targets = _segment_targets(pairs, settings)
    weights, scores = _project(kernel, weights, scores)
    chosen = None
    for _ in range(settings.n_iter):
        before, chosen = chosen, _choose(pairs, scores, settings.temperature, targets)
        if before is None or not np.array_equal(before, chosen):
            direction, direction_scores = _project(kernel, chosen, kernel(chosen))
        if settings.step_size is None:
            weights, scores = direction, direction_scores
            continue
        step = weights.dtype.type(settings.step_size)
        weights = weights + step * direction  # Algorithm 1: e = Proj(e + lambda g)
        scores = scores + step * direction_scores
        weights, scores = _project(kernel, weights, scores)
    return weights, scores


def _project(
    kernel: _Kernel, weights: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights and scores divided by the norm of the label's sum; Proj(0) = 0."""
    norm = np.sqrt(kernel.square(weights, scores))
    scale = np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)
    scale = scale.astype(scores.dtype)[kernel.pairs.labels]
    return weights * scale, scores * scale


def _segment_targets(pairs: Pairs, settings: _Settings) -> FloatArray | None:
    """Number of samples that should carry the label, for each segment."""
    if settings.use_counts:
        return pairs.counts
    if settings.targets is None:
        return None
    return settings.targets[pairs.first + pairs.label_of_segment]


def _choose(
    pairs: Pairs, scores: FloatArray, temperature: float, targets: FloatArray | None
) -> FloatArray:
    """Weight of each sample in the next direction."""
    if temperature == 0:
        bound = tie_bound(pairs.segment_max(scores))
        return (scores >= bound[pairs.segment_of]).astype(scores.dtype)
    sizes = np.diff(pairs.segments, append=len(scores))
    centred = scores - (pairs.segment_sum(scores) / sizes).astype(scores.dtype)[pairs.segment_of]
    n_pairs = np.maximum(np.diff(pairs.indptr), 1)
    spread = np.sqrt(pairs.label_sum(centred**2) / n_pairs)
    scale = np.divide(1 / temperature, spread, out=np.zeros_like(spread), where=spread > 0)
    # A spread of rounding errors must not overflow; no softmax tells 1e30 from 1e20.
    centred *= np.minimum(scale, 1e30).astype(scores.dtype)[pairs.labels]
    centred -= pairs.segment_max(centred)[pairs.segment_of]
    soft = np.exp(centred)
    soft /= pairs.segment_sum(soft)[pairs.segment_of]
    if targets is not None:
        soft = np.minimum(1, soft * targets.astype(soft.dtype)[pairs.segment_of])
    return soft


def _label_vectors(kernel: _Kernel, weights: FloatArray) -> tuple[Any, ...]:
    """Sums, weights and low-rank sums of a block: the parts of :class:`Embeddings`."""
    sums = kernel.gathered.to_rows(kernel.gathered.sums(weights))
    total = kernel.pairs.label_sum(weights).astype(sums.dtype)
    low_rank = None
    if kernel.background is not None:
        low_rank = kernel.pairs.weighting(weights) @ kernel.projections
    return sums, total, low_rank


def expected_samples(data: Aggregation, rates: FloatArray | None = None) -> FloatArray:
    r"""Estimate the number of (sample, group) memberships that carry each label.

    If samples carry a label independently with probability p, a group of g samples has it with
    probability :math:`q = 1 - (1 - p)^g`: p follows from the share q of the groups with the label
    and from their mean size, also approximately for groups of unequal sizes. Groups of similar
    samples have more samples with the label; `rates` then give the larger number. The result is
    never less than one sample for each of the label's groups.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    rates : ndarray of shape (n_labels,), default=None
        Probability that one more sample of the group carries the label (:func:`sharing_rates`).

    Returns
    -------
    ndarray of shape (n_labels,)
        Expected numbers of samples.

    Examples
    --------
    One of two pairs of samples has the label, so 29% of the samples do, if they are independent:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, expected_samples
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [0]])
    >>> expected_samples(data), expected_samples(data, np.array([0.75]))
    (array([1.171...]), array([1.75]))
    """
    n_groups = np.diff(data.labels.indptr).astype(np.float64)
    n_memberships = len(data.groups.samples)
    filled = max(1, int(np.count_nonzero(data.groups.sizes)))
    # A label of all groups could be one of all samples; half a group without it keeps p below 1.
    share = np.minimum(n_groups / filled, 1 - 0.5 / filled)
    mean_size = max(1.0, n_memberships / filled)
    expected = np.maximum(n_groups, n_memberships * (1 - (1 - share) ** (1 / mean_size)))
    if rates is None:
        return expected
    return np.maximum(expected, n_groups + (data.n_pairs - n_groups) * rates)
