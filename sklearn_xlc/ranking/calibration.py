"""Calibrate scores of labels on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import weighted_quantile
from sklearn_xlc._part import is_auto
from sklearn_xlc._ranking import find_hits, ranked_candidates
from sklearn_xlc.ranking.base import N_RANKS, Ranker, Samples

#: Number of best classes of a sample to fit a temperature on; the others are taken together.
N_CLASSES = 100
#: Smallest slope, to keep the order of the labels, and largest slope of a softmax.
LEAST_SLOPE, MOST_SLOPE = 0.01, 20.0
#: Largest share of probability for all classes alike.
MOST_FLOOR = 0.99
#: Least probability that classes beyond the best ones share.
TINY = 1e-12
#: Share of the scores below the start of the line.
BEGIN = 0.05


class Calibration(Ranker):
    r"""Platt scaling of the scores of a network, fitted on held-out samples.

    A network is overconfident in its best labels if it fits the training samples closely. For
    labels that have log odds, the map [1]_ is :math:`s \mapsto a s + b` with a > 0, so that labels
    keep their order. It is fitted by maximum likelihood to the best labels of held-out samples. The
    label of rank r has weight 1 / r: one map is not exact at all ranks, and the first rank matters
    most. Below nearly all of the fitted scores the slope is one; a smaller slope there would raise
    the probabilities of thousands of labels. For classes that share a softmax, the map is
    :math:`s \mapsto a s`, where 1 / a is the temperature of [2]_. Of their probabilities a share e
    is spread over all C classes: :math:`(1 - e) \mathrm{softmax}(a s) + e / C`. A temperature alone
    cannot say that a class is wrong now and then, whatever its score, as where some training labels
    are. A weak prior draws the maps to the identity.

    Parameters
    ----------
    n_ranks : int or "auto", default="auto"
        Number of best labels of a sample to fit the map of log odds to. "auto": the mean number of
        true labels, at least 5. A softmax is fitted to the 100 best classes.

    Attributes
    ----------
    slope_, offset_, floor_ : float
        The numbers a, b and e. `floor_` is in the probabilities alone, not in the scores.
    start_ : float or None
        Smallest score with the slope a; None for classes: all scores have it.

    See Also
    --------
    sklearn_xlc.metrics.expected_calibration_error : Measures probabilities.

    References
    ----------
    .. [1] J. Platt. Probabilistic Outputs for Support Vector Machines and Comparisons to
       Regularized Likelihood Methods. Advances in Large Margin Classifiers, 1999.
    .. [2] C. Guo, G. Pleiss, Y. Sun, K. Weinberger. On Calibration of Modern Neural Networks. ICML
       2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking import Calibration
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=(2000, 6))
    >>> Y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    >>> calibration = Calibration().fit(3 * odds, Y)  # three times as sure as it should be
    >>> round(calibration.slope_, 2)
    0.33
    """

    _parameter_constraints = {
        "n_ranks": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")]
    }

    slope_: float
    offset_: float
    start_: float | None
    in_repr = ("slope_", "offset_", "floor_")
    is_threadsafe = True

    def __init__(self, n_ranks: Any = "auto") -> None:
        self.n_ranks = n_ranks

    def n_listed(self, n_labels: int, link: str = "sigmoid") -> int:
        n_ranks = N_RANKS if is_auto(self.n_ranks) else self.n_ranks
        return min(n_ranks if link == "sigmoid" else N_CLASSES, n_labels)

    def fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any = None,
        samples: Samples | None = None,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> Calibration:
        Y, scores = check_indicator(Y, "Y"), np.asarray(scores)
        of_samples = np.ones(len(scores)) if sample_weight is None else np.asarray(sample_weight)
        if link == "softmax":
            width = min(N_CLASSES, scores.shape[1], Y.shape[1])  # lists may be padded
            scores, labels = ranked_candidates(scores, labels, width)
            self.slope_, self.floor_ = _softmax_of(scores, labels, Y, of_samples)
            self.offset_, self.start_ = 0.0, None
            return self
        n_ranks = self.n_ranks
        if is_auto(n_ranks):
            n_ranks = choose_n_ranks(Y.nnz / max(1, Y.shape[0]))
        width = min(n_ranks, scores.shape[1])
        scores, labels = ranked_candidates(scores, labels, width)
        # A beam may give fewer labels than asked for.
        used = np.isfinite(scores) & (of_samples > 0)[:, None]
        weights = np.outer(of_samples, 1 / np.arange(1.0, width + 1))[used]
        s, hits = scores[used].astype(np.float64), find_hits(labels, Y)[used]
        self.slope_, self.offset_ = _most_likely([s], partial(_of_labels, hits, weights))
        self.start_ = _start(s, np.repeat(of_samples, used.sum(axis=1)))
        return self

    def __call__(self, scores: Any) -> Any:
        if isinstance(scores, Real):
            return float(self(np.asarray(scores)))
        if self.start_ is None:
            return self.slope_ * scores
        above = scores.clip(min=self.start_)
        return self.slope_ * above + self.offset_ + (scores - above)


def identity() -> Calibration:
    """Return the map from scores to the same scores."""
    calibration = Calibration()
    calibration.slope_, calibration.offset_, calibration.start_ = 1.0, 0.0, None
    return calibration


def choose_n_ranks(labels_per_sample: float) -> int:
    """Choose how many of a sample's best labels to calibrate: those that may well be true.

    Parameters
    ----------
    labels_per_sample : float
        Mean number of true labels.

    Returns
    -------
    int
        Number of labels, at least 5.
    """
    return max(N_RANKS, round(labels_per_sample))


def fit_line(
    lists: Sequence[Any], Y: Any, weights: np.ndarray, link: str
) -> tuple[Calibration, float]:
    """Fit log odds of lists to a mean of the scores of a classifier and of the network.

    Parameters
    ----------
    lists : list of three ndarray of shape (n_samples, n_listed)
        Labels, padded with -1; their scores by the classifier, best first, and by the network.
    Y : csr_array of shape (n_samples, n_labels)
        True labels.
    weights : ndarray of shape (n_samples,)
        Weights of the samples.
    link : {"sigmoid", "softmax"}
        Whether labels have log odds each, or one class at most is true. Of labels, those that may
        well be true count, the first ones most. For classes the likelihood is that of
        p = o / (1 + sum of the odds o of the list), and of 1 / (1 + sum) for a class in no list,
        as :func:`listed_probabilities` has it where the worst listed class is likely enough. Where
        a list has all classes, p = o / sum.

    Returns
    -------
    line : Calibration
        Map of the mean.
    share : float
        Weight of the network's score in it, from 0 to 1.
    """
    of_labels = choose_n_ranks(Y.nnz / max(1, Y.shape[0]))
    width = None if link == "softmax" else of_labels
    used = weights > 0
    labels, scores, beside = (each[used, :width] for each in lists)
    Y, weights = Y[used], weights[used]
    of_samples = weights
    is_listed, hits = labels >= 0, find_hits(labels, Y)
    s, beside = (np.where(is_listed, each, 0).astype(np.float64) for each in (scores, beside))
    if link == "softmax":
        weights = weights * (np.diff(Y.indptr) > 0)
        of_others = np.where(is_listed.sum(axis=1) == Y.shape[1], -np.inf, 0)
        likelihood = partial(_of_classes, hits, weights, is_listed, of_others)
    else:
        weights = weights[:, None] / np.arange(1.0, labels.shape[1] + 1) * is_listed
        likelihood = partial(_of_labels, hits, weights)
    of_scores, of_network, _ = _most_likely([s, beside], likelihood)
    share, line = of_network / (of_scores + of_network), identity()
    s += share * (beside - s)
    line.start_ = _start(s[is_listed], np.repeat(of_samples, is_listed.sum(axis=1)))
    above = np.maximum(s, line.start_)
    line.slope_, line.offset_ = _most_likely([above], likelihood, s - above)
    return line, share


def _start(scores: np.ndarray, weights: np.ndarray) -> float:
    """Return the score with a share of `BEGIN` of the weights below it; 0.0 if there are none."""
    return weighted_quantile(scores, weights, BEGIN) if len(scores) else 0.0


#: Negative log likelihood of log odds, and its derivative.
Likelihood = Callable[[np.ndarray], tuple[float, np.ndarray]]


def _most_likely(
    columns: list[np.ndarray], likelihood: Likelihood, given: Any = 0.0
) -> tuple[float, ...]:
    """Return the most likely coefficients of columns of scores, and an offset, beside given odds.

    A weak prior draws the first coefficient to one, and all others to zero.
    """
    columns = [*columns, np.ones_like(columns[0])]
    start = np.eye(len(columns))[0]
    bounds = [(LEAST_SLOPE, None), *[(0, None)] * (len(columns) - 2), (None, None)]

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        odds = sum((a * column for a, column in zip(line, columns)), start=given)
        value, excess = likelihood(odds)
        away = line - start
        gradient = np.array([np.vdot(excess, column) for column in columns])
        return value + float(away @ away) / 2, gradient + away

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return tuple(map(float, found.x))


def _of_labels(hits: np.ndarray, weights: np.ndarray, odds: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the negative log likelihood of labels that are true by themselves."""
    value = np.vdot(weights, np.logaddexp(0, odds) - hits * odds)
    return float(value), weights * (expit(odds) - hits)


def _of_classes(
    hits: np.ndarray,
    weights: np.ndarray,
    is_listed: np.ndarray,
    of_others: np.ndarray,
    odds: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return the negative log likelihood of classes of which one at most is true."""
    odds = np.where(is_listed, odds, -np.inf)
    normaliser = np.logaddexp(of_others, logsumexp(odds, axis=1))
    value = weights @ (normaliser - np.where(hits, odds, 0).sum(axis=1))
    return float(value), weights[:, None] * (np.exp(odds - normaliser[:, None]) - hits)


def _softmax_of(scores: Any, labels: Any, Y: Any, weights: np.ndarray) -> tuple[float, float]:
    """Return the most likely slope of log probabilities, and share of probability for all alike.

    `scores` are those of the best classes. All others are taken to share what is left equally,
    which is exact if all classes are given.
    """
    listed = scores.astype(np.float64)
    n_others = Y.shape[1] - listed.shape[1]
    if n_others:
        left = np.clip(-np.expm1(logsumexp(listed, axis=1, keepdims=True)), TINY, 1)
        listed = np.concatenate([listed, np.log(left / n_others)], axis=1)
    hits = find_hits(labels, Y)
    is_hit = np.count_nonzero(hits, axis=1) > 0
    is_true = np.concatenate([hits, ~is_hit[:, None]], axis=1)[:, : listed.shape[1]]
    known = is_hit | (n_others > 0)
    listed, is_true, weights = listed[known], is_true[known], weights[known]
    true = listed[is_true]
    counts = np.ones(listed.shape[1])
    counts[scores.shape[1] :] = n_others
    finite = np.where(np.isfinite(listed), listed, 0)  # a beam may give fewer classes

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        slope, floor = values
        normaliser = logsumexp(slope * listed, b=counts, axis=1)
        shares = np.exp(slope * listed - normaliser[:, None]) * counts
        p = np.exp(slope * true - normaliser)
        mixed = (1 - floor) * p + floor / Y.shape[1]
        by_slope = (1 - floor) * p * (true - np.sum(shares * finite, axis=1))
        by_floor = 1 / Y.shape[1] - p
        prior = (slope - 1) ** 2 / 2 - np.log1p(-floor)
        of_prior = np.array([slope - 1, 1 / (1 - floor)])
        gradient = np.array([np.sum(weights * each / mixed) for each in (by_slope, by_floor)])
        return float(prior - weights @ np.log(mixed)), of_prior - gradient

    bounds = [(LEAST_SLOPE, MOST_SLOPE), (TINY, MOST_FLOOR)]  # without a share, log(0)
    # Another minimum may be a steep slope with a large share.
    starts = [1.0, 0.05], [0.1, 0.05]
    fits = [minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds) for x in starts]
    slope, floor = map(float, min(fits, key=lambda fit: fit.fun).x)
    return slope, floor if floor > TINY else 0.0
