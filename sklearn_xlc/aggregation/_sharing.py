"""Estimates of the number of samples with each label of their group."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import row_blocks
from sklearn_xlc.aggregation._assignment import best_of_segments
from sklearn_xlc.aggregation._background import Background
from sklearn_xlc.aggregation._embeddings import Embeddings, learn_embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, check_samples, make_pairs
from sklearn_xlc.aggregation._parallel import count_jobs, run_tasks
from sklearn_xlc.aggregation._products import Gathered, split_labels

#: Number of samples without a label that determine its bound, and the share of these above it.
N_OTHERS, TAIL = 1000, 0.005
#: Weight of the pooled rate, in samples.
STRENGTH = 20


def expected_samples(data: Aggregation, rates: FloatArray | None = None) -> FloatArray:
    r"""Estimate the number of samples with each label, summed over groups.

    If samples carry a label independently with probability p, a group of g samples has it with
    probability :math:`q = 1 - (1 - p)^g`. This gives p from the share q of the groups with the
    label and from their mean size. Groups of similar samples have more samples with the label;
    `rates` then give the larger number. The result is at least one sample for each of the label's
    groups.

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
    # A label of all groups would give p = 1; assume half a group without it.
    share = np.minimum(n_groups / filled, 1 - 0.5 / filled)
    mean_size = max(1.0, n_memberships / filled)
    expected = np.maximum(n_groups, n_memberships * (1 - (1 - share) ** (1 / mean_size)))
    if rates is None:
        return expected
    return np.maximum(expected, n_groups + (data.n_pairs - n_groups) * rates)


def sharing_rates(
    X: Any,
    data: Aggregation,
    *,
    background: Background | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> FloatArray:
    r"""Estimate how often a label of one sample is shared by the other samples of its group.

    An embedding of each label is learnt from half of the groups, and scores the samples of the
    other half. Samples of groups *without* the label do not carry it; a share t = 0.005 of them
    scores above a bound. Let a be the share above the bound among samples that are not the best of
    their group, and b the share among the best samples. The rate is ``(a - t) / (b - t)``: b
    measures how often a sample with the label is found.

    Both shares of a label are shrunk towards the shares of all labels together, with the weight of
    20 samples, so that a rare label has nearly the common rate. In random groups the rates are
    smaller than the frequencies of the labels; :func:`expected_samples` takes the larger number. In
    groups of similar samples they are much larger, and mostly too large (up to three times on the
    data sets measured), since neighbours of a sample with the label resemble it. With uninformative
    embeddings the rates are too small: the best sample of a group exceeds the bound by chance.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    data : Aggregation
        Groups and their labels.
    background : Background, default=None
        Background to discount in the embeddings. None: no background.
    seed : int, default=0
        Seed of the two halves, and of the samples for the bounds.
    n_jobs : int, default=None
        Number of blocks of labels in parallel; all together take about scikit-learn's
        `working_memory`.

    Returns
    -------
    ndarray of shape (n_labels,)
        Rates in [0, 1]; zero if they cannot be estimated: groups of one sample, or no sample
        without the label.

    Examples
    --------
    Both samples of a group are alike, so both carry its label:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, sharing_rates
    >>> kind = np.repeat(np.arange(60) % 3, 2)
    >>> X = np.eye(3)[kind]
    >>> data = aggregation(np.kron(np.eye(60), [[1], [1]]), np.eye(3)[kind[::2]])
    >>> sharing_rates(X, data)
    array([1., 1., 1.])
    """
    X = check_samples(X, data)
    if data.groups.sizes.max(initial=0) < 2:
        return np.zeros(data.n_labels)
    rng = np.random.default_rng(seed)
    counted = rng.permutation(len(data.groups)) % 2 == 0
    learnt = learn_embeddings(
        X,
        data.of_groups(~counted),
        background=background,
        n_iter=0,
        n_jobs=n_jobs,
    )
    samples = np.unique(data.groups.take(counted).samples)
    others = np.sort(rng.choice(samples, min(N_OTHERS, len(samples)), replace=False))
    X_others = X[others]
    has_label = sp.csc_array(data.groups.membership()[others] @ data.labels)
    data = data.of_groups(counted)
    blocks = split_labels(data, X, 4, count_jobs(n_jobs))
    limit = max(1, memory_limit() // count_jobs(n_jobs))
    shared = (X, data, learnt, X_others, has_label, limit)
    parts = run_tasks(_count_block, shared, blocks, n_jobs)
    n_best, best, n_in_group, in_group = map(np.concatenate, zip(*parts))
    # Labels whose best samples hardly differ from the others are uninformative.
    power = np.maximum(_shrunk_share(best, n_best), 10 * TAIL)
    rates = np.clip(_shrunk_share(in_group, n_in_group) / power, 0, 1)
    # For a label of all groups there is no sample without the label, hence no estimate.
    return np.where(np.diff(has_label.indptr) < len(others), rates, 0)


def _shrunk_share(found: FloatArray, number: FloatArray) -> FloatArray:
    """Divide `found` by `number`, shrunk towards the share of all labels."""
    pooled = found.sum() / max(1.0, number.sum())
    return np.asarray((found + STRENGTH * pooled) / (number + STRENGTH))


def _count_block(
    X: Any,
    data: Aggregation,
    embeddings: Embeddings,
    X_others: Any,
    has_label: sp.csc_array,
    limit: int,
    first: int,
    last: int,
) -> tuple[FloatArray, ...]:
    """Count samples, and samples above the bound beyond chance, of each label.

    Two numbers for the best samples of the label's groups, then two for their other samples.
    """
    vectors = embeddings.block(first, last)
    bound, chance = _bounds(X_others, vectors, has_label[:, first:last], limit)
    bound[~vectors.any(axis=1)] = np.nan  # learnt from no sample
    pairs = make_pairs(data, first, last)
    scores = Gathered(X, pairs).scores(vectors.ravel())
    is_best = best_of_segments(pairs, scores, None)
    known = ~np.isnan(bound)[pairs.labels]
    above = scores > bound[pairs.labels]
    result: list[FloatArray] = []
    for part in (is_best & known, ~is_best & known):
        number = pairs.label_sum(part)
        result += [number, pairs.label_sum(above & part) - chance * number]
    return tuple(result)


def _bounds(
    others: Any, vectors: FloatArray, has_label: sp.csc_array, limit: int
) -> tuple[FloatArray, npt.NDArray[np.float64]]:
    """Compute the bound of each label, and the probability of a further score above it.

    Few samples without the label exceed the bound. The r-th largest of m scores is exceeded by a
    further one with probability r / (m + 1).
    """
    n_samples, n_labels = has_label.shape
    bound = np.full(n_labels, np.nan, dtype=vectors.dtype)
    chance = np.zeros(n_labels)
    for part in row_blocks(n_labels, 4 * n_samples * vectors.dtype.itemsize, limit):
        scores = np.asarray(others @ np.ascontiguousarray(vectors[part].T))
        scores[has_label[:, part].nonzero()] = -np.inf
        number = n_samples - np.diff(has_label.indptr)[part]
        rank = np.ceil(TAIL * number).astype(np.int64)
        known = np.flatnonzero(number)
        if len(known):
            most = int(rank.max())
            largest = np.sort(np.partition(scores, -most, axis=0)[-most:], axis=0)
            bound[part][known] = largest[most - rank[known], known]
        chance[part] = rank / (number + 1)
    return bound, chance
