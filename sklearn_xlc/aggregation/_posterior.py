"""Posterior probabilities of samples' labels, given the labels of their groups."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray, canonical, find_entries, kept_entries
from sklearn_xlc.aggregation._pairs import (
    Aggregation,
    FloatArray,
    scored_columns,
    scored_pairs,
)

#: Distance of probabilities from 0 and 1: a certain classifier may be wrong. If all samples of a
#: group have probability 0, they are equally likely.
EPSILON = 1e-6
#: Groups tell little of a label if the others of a group lack it with a smaller probability.
LEAST_TOLD = 0.3


def noisy_or_posterior(data: Aggregation, probabilities: sp.csr_matrix) -> sp.csr_matrix:
    r"""Compute the posterior probabilities of samples' labels, given the labels of their groups.

    A group has a label if at least one of its samples carries it (a noisy-or). Let sample i carry
    the label with probability :math:`q_i`, independently of the others. Given that its group has
    the label, the probability is :math:`p_i = q_i / (1 - \prod_j (1 - q_j))`, with the product over
    all samples of the group. The :math:`p_i` of a group sum to at least one.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    probabilities : CSR matrix of shape (n_samples, n_labels)
        Probabilities :math:`q`; one stored entry for each label of each sample's groups.

    Returns
    -------
    csr_matrix of shape (n_samples, n_labels) and dtype float64
        Probabilities :math:`p`, with the entries of `probabilities`.

    Raises
    ------
    ValueError
        If the probability of a pair is missing or NaN.

    Notes
    -----
    If a sample is in several groups with the label, each group divides the odds by the probability
    that another of its samples carries the label. This is exact unless two samples share two
    groups, or groups form a cycle.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import aggregation, noisy_or_posterior
    >>> data = aggregation([[1], [1]], [[1, 0]])
    >>> noisy_or_posterior(data, csr_matrix([[0.5, 0.0], [0.25, 0.0]])).toarray()
    array([[0.8, 0. ],
           [0.4, 0. ]])
    """
    columns = scored_columns(probabilities, "probabilities")
    found = []
    for pairs, part, entries in scored_pairs(data, columns, "probabilities"):
        q = _inside(part.data)
        none = np.log1p(-q[entries])
        others = np.minimum(pairs.segment_sum(none)[pairs.segment_of] - none, -1e-300)
        # Odds q / (1 - q), over the probability that another sample of the group has the label.
        n_entries = len(q)
        log_any_other = np.bincount(entries, np.log(-np.expm1(others)), minlength=n_entries)
        log_odds = np.log(q) - np.log1p(-q) - log_any_other
        is_pair = np.bincount(entries, minlength=n_entries) > 0
        found.append(is_pair / (1 + np.exp(-log_odds)))
    parts = (np.concatenate(found), columns.indices, columns.indptr)
    return sp.csr_matrix(sp.csc_array(parts, shape=columns.shape))


def draw_labels(probabilities: sp.csr_matrix, n_draws: int, seed: int = 0) -> sp.csr_matrix:
    """Draw labels of samples, for classifiers that cannot be trained on probabilities.

    A label of probability p is in ``n_draws * p`` of the draws of a sample, rounded up or down at
    random: the expected share is p. Which draws these are is drawn for each label by itself.

    Parameters
    ----------
    probabilities : CSR matrix of shape (n_samples, n_labels)
        Probabilities of the labels.
    n_draws : int
        Number of draws.
    seed : int, default=0
        Seed.

    Returns
    -------
    csr_matrix of shape (n_draws * n_samples, n_labels) and dtype int8
        Indicator; the rows of the first draw come first.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import draw_labels
    >>> draw_labels(csr_matrix([[1.0, 0.5]]), 4).sum(axis=0)
    matrix([[4, 2]])
    """
    rng = np.random.default_rng(seed)
    p = probabilities.data.astype(np.float64)
    number = np.floor(n_draws * p + rng.random(len(p))).astype(np.int64)
    start = rng.integers(n_draws, size=len(p))
    ones = np.ones(len(p), dtype=np.int8), probabilities.indices, probabilities.indptr
    all_labels = sp.csr_matrix(ones, shape=probabilities.shape)
    carried = ((draw - start) % n_draws < number for draw in range(n_draws))
    return sp.vstack([kept_entries(all_labels, mask) for mask in carried], format="csr")


def label_rates(data: Aggregation) -> FloatArray:
    r"""Estimate the share of the samples with each label, as if members of groups were independent.

    If a share s of the groups of g samples has a label, its rate is ``1 - (1 - s)^(1 / g)``, with
    the mean size g. If all groups have it, every rate from that of one group in n without the label
    up to 1 explains them equally well, and the rate is the middle.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.

    Returns
    -------
    ndarray of shape (n_labels,)
        Rates in [0, 1].

    Examples
    --------
    >>> from sklearn_xlc.aggregation import aggregation, label_rates
    >>> label_rates(aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1, 1], [0, 1]]))
    array([0.292..., 0.646...])
    """
    filled = max(1, int(np.count_nonzero(data.groups.sizes)))
    share = np.diff(data.labels.indptr) / filled
    power = filled / max(1, len(data.groups.samples))
    rates = 1 - (1 - np.minimum(share, 1 - 1 / filled)) ** power
    return np.where(share < 1, rates, (1 + rates) / 2)


def expected_precision(data: Aggregation, samples: IntArray, labels: IntArray) -> FloatArray:
    r"""Estimate how often samples carry a label, from the labels of their groups alone.

    Let z be 1 if a group of the sample has the label, and b the probability that another of its
    members carries it, given the rate r of the label (:func:`label_rates`). In random groups the
    mean of ``(z - b) / (1 - b)`` is the probability that the sample carries the label, whichever
    way the label was chosen, as long as the choice did not see z. In groups of similar samples b is
    too small, the mean too large.

    If nearly all groups have the label, z says little, and the variance is huge. Where
    ``w = (1 - b) / 0.3`` is below 1, the estimate is ``r + w * ((z - b) / (1 - b) - r)``: a label
    of all groups counts as its rate.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    samples, labels : ndarray of shape (n_pairs,)
        A label for each of some samples, such as the best one by a classifier that was trained on
        other groups.

    Returns
    -------
    ndarray of shape (n_pairs,)
        One estimate a pair, at most 1; only means are meaningful.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, expected_precision
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [0]])
    >>> expected_precision(data, np.array([0, 2]), np.array([0, 0]))
    array([ 1.        , -0.414...])
    """
    membership = data.groups.membership()
    n_others = (membership @ (data.groups.sizes - 1))[samples]
    rates = label_rates(data)[labels]
    of_groups = canonical(sp.csr_array(membership[samples] @ data.labels))
    has_label = find_entries(of_groups, np.arange(len(samples)), labels) >= 0
    by_chance = 1 - (1 - rates) ** n_others
    is_everywhere = np.diff(data.labels.indptr)[labels] == np.count_nonzero(data.groups.sizes)
    weight = np.where(is_everywhere, 0, np.minimum(1, (1 - by_chance) / LEAST_TOLD))
    return rates + weight * ((has_label - by_chance) / (1 - by_chance) - rates)


def _inside(probabilities: FloatArray) -> FloatArray:
    """Clip probabilities, so that none is 0 or 1."""
    return np.clip(probabilities.astype(np.float64), EPSILON, 1 - EPSILON)
