"""Posterior probabilities of samples' labels, given the labels of their groups."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sklearn_xlc.aggregation._pairs import (
    Aggregation,
    FloatArray,
    scored_columns,
    scored_pairs,
)

#: Distance of probabilities from 0 and 1: a certain classifier may be wrong. If all samples of a
#: group have probability 0, they are equally likely.
EPSILON = 1e-6


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


def group_log_likelihood(
    data: Aggregation, probabilities: sp.csr_matrix, log_none: FloatArray
) -> float:
    r"""Compute the mean log-likelihood of the groups' labels, under a noisy-or of their samples.

    A group has a label with probability :math:`1 - \prod_j (1 - q_j)`. On groups not used for
    training, the likelihood compares classifiers without labels of single samples.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    probabilities : CSR matrix of shape (n_samples, n_labels)
        Probabilities :math:`q`; one stored entry for each label of each sample's groups.
    log_none : ndarray of shape (n_samples,)
        Sum of :math:`\log(1 - q)` over *all* labels, for each sample.

    Returns
    -------
    float
        Natural logarithm, at most 0; the greater, the better.

    Raises
    ------
    ValueError
        If the probability of a pair is missing or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import aggregation, group_log_likelihood
    >>> data = aggregation([[1], [1]], [[1, 0]])
    >>> q = np.array([[0.5, 0.1], [0.25, 0.2]])
    >>> log_none = np.log(1 - q).sum(axis=1)
    >>> value = group_log_likelihood(data, csr_matrix(q), log_none)
    >>> bool(np.isclose(value, np.log((1 - 0.5 * 0.75) * 0.9 * 0.8)))
    True
    """
    total = float(log_none[data.groups.samples].sum())
    columns = scored_columns(probabilities, "probabilities")
    for pairs, part, entries in scored_pairs(data, columns, "probabilities"):
        none = pairs.segment_sum(np.log1p(-_inside(part.data[entries])))
        total += float((np.log(-np.expm1(none)) - none).sum())
    return total / max(1, len(data.groups))


def _inside(probabilities: FloatArray) -> FloatArray:
    """Clip probabilities, so that none is 0 or 1."""
    return np.clip(probabilities.astype(np.float64), EPSILON, 1 - EPSILON)
