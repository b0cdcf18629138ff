"""A noisy-or of samples: posteriors of their labels, and the likelihood of the labels of groups."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit

from sklearn_xlc._csr import IntArray, kept_entries
from sklearn_xlc.aggregation._pairs import (
    Aggregation,
    FloatArray,
    scored_columns,
    scored_pairs,
)

#: Distance of probabilities from 0 and 1: a certain classifier may be wrong. If all samples of a
#: group have probability 0, they are equally likely.
EPSILON = 1e-6
#: Offset and slope of standardised scores, to begin with.
START = (-2.0, 1.0)


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
    that another of its samples carries the label. This is exact where these others are in no other
    group with the label; elsewhere, what their other groups say of them is left out.

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
        q = np.clip(part.data.astype(np.float64), EPSILON, 1 - EPSILON)
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


def group_log_likelihood(data: Aggregation, samples: IntArray, scores: FloatArray) -> FloatArray:
    r"""Compute how well scores of samples explain the labels of their groups.

    A sample carries a label with probability :math:`q = 1 / (1 + e^{-(a + b s)})`, given its score
    s, independently of the others. A group has the label if one of its samples carries it (a
    noisy-or), so with probability :math:`1 - \prod_j (1 - q_j)`. Offset a and slope b, two numbers
    for all labels, maximise the likelihood: only the order of the scores and their relative
    distances count.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    samples : ndarray of shape (n_scored,)
        Different samples. Groups are judged by those of their samples that are among these.
    scores : ndarray of shape (n_scored, n_labels)
        Scores of labels by a classifier that has not seen the groups, such as log odds.

    Returns
    -------
    ndarray of shape (n_groups,)
        Log likelihood of the labels of each group; 0 for a group without samples.

    Examples
    --------
    The first scores tell which of two groups has the label, the second ones do not:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, group_log_likelihood
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [0]])
    >>> first, second = np.array([[5.0], [0], [0], [0]]), np.array([[5.0], [0], [5], [0]])
    >>> for scores in (first, second):
    ...     print(f"{group_log_likelihood(data, np.arange(4), scores).sum():.2f}")
    -0.00
    -1.39
    """
    n_of = data.groups.membership()[samples].T.tocsr()
    kept = np.flatnonzero(np.diff(n_of.indptr))
    member, has_label = n_of[kept].astype(np.float64), data.labels.tocsr()[kept].toarray() > 0
    spread = scores.std()
    scores = (scores - scores.mean()) / (spread if spread > 0 else 1.0)

    def likelihood(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log likelihood of each pair of group and label, and the gradient."""
        log_odds = at[0] + at[1] * scores
        none = np.minimum(member @ -np.logaddexp(0, log_odds), -(EPSILON**2))
        some = -np.expm1(none)
        slope = member.T @ np.where(has_label, 1 - 1 / some, 1.0) * -expit(log_odds)
        found = np.where(has_label, np.log(some), none)
        return found, np.array([slope.sum(), (slope * scores).sum()])

    def loss(at: FloatArray) -> tuple[float, FloatArray]:
        found, gradient = likelihood(at)
        return -found.sum(), -gradient

    best = minimize(loss, START, jac=True, method="L-BFGS-B", bounds=((None, None), (0, None))).x
    found = np.zeros(len(data.groups))
    found[kept] = likelihood(best)[0].sum(axis=1)
    return found
