"""Posterior of the labels of samples, given which labels their groups have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr
from sklearn_xlc._csr import IntArray, canonical, uneven_blocks
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, make_pairs
from sklearn_xlc.aggregation._scored import BLOCK, entries_of_pairs

#: Probabilities are kept this far from 0 and 1: a classifier that is certain may be wrong, and of
#: a group that it gives no chance at all every sample is as likely.
EPSILON = 1e-6


def noisy_or_posterior(data: Aggregation, probabilities: sp.csr_matrix) -> sp.csr_matrix:
    r"""Probability that a sample carries a label, given that one of its group does.

    A group has a label if one of its samples carries it (a noisy-or). Where sample i carries the
    label with probability :math:`q_i`, independently of the others, it does so given that its group
    has the label with probability :math:`p_i = q_i / (1 - \prod_j (1 - q_j))`, the product over all
    samples of the group. The :math:`p_i` of a group therefore sum to at least one.

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
    In a sample of several groups with the label, each of them multiplies the odds by the inverse
    probability that another of its samples carries the label. This is exact unless two samples
    share two groups, or groups form a circle.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import aggregation, noisy_or_posterior
    >>> data = aggregation([[1], [1]], [[1, 0]])
    >>> noisy_or_posterior(data, csr_matrix([[0.5, 0.0], [0.25, 0.0]])).toarray()
    array([[0.8, 0. ],
           [0.4, 0. ]])
    """
    columns = _columns(probabilities)
    found = []
    for pairs, part, entries in _blocks(data, columns):
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
    r"""Mean log-likelihood of the labels of a group, under a noisy-or of its samples.

    A group has a label with probability :math:`1 - \prod_j (1 - q_j)` and lacks it with
    :math:`\prod_j (1 - q_j)`. From probabilities of classifiers that were not trained on the group,
    the likelihood compares classifiers where no sample has labels of its own.

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
    for pairs, part, entries in _blocks(data, _columns(probabilities)):
        none = pairs.segment_sum(np.log1p(-_inside(part.data[entries])))
        total += float((np.log(-np.expm1(none)) - none).sum())
    return total / max(1, len(data.groups))


def _inside(probabilities: FloatArray) -> FloatArray:
    """Probabilities that are neither 0 nor 1."""
    return np.clip(probabilities.astype(np.float64), EPSILON, 1 - EPSILON)


def _columns(probabilities: sp.csr_matrix) -> sp.csc_array:
    """Canonical columns that keep stored zeros."""
    return canonical(sp.csc_array(check_csr(probabilities, "probabilities")), keep_zeros=True)


def _blocks(
    data: Aggregation, columns: sp.csc_array
) -> Iterator[tuple[Pairs, sp.csc_array, IntArray]]:
    """Pairs of ranges of labels, the columns of these, and the entry of each pair."""
    for labels in uneven_blocks(data.n_pairs, BLOCK):
        pairs, part = make_pairs(data, labels.start, labels.stop), columns[:, labels]
        yield pairs, part, entries_of_pairs(pairs, part, "probabilities")
