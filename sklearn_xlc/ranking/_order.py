"""One order and one probability of labels: listed ones first, then all others.

Listed labels come by their ranked score. The others follow in the order of the network, strictly
below the worst listed label of the sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


def with_unlisted(
    scores: Floats, labels: Ints, below: Floats, others: Ints, k: int
) -> tuple[Floats, Ints]:
    """Return the best k labels of each sample: of its list, then of the network.

    Parameters
    ----------
    scores, labels : ndarray of shape (n_samples, n_listed)
        Ranked lists, best first, padded with label -1.
    below, others : ndarray of shape (n_samples, n_others)
        Scores and labels of the network, best first: at least the best `k`, of which as many are in
        no list as a list is short of `k`.
    k : int
        Number of labels.

    Returns
    -------
    scores, labels : ndarray of shape (n_samples, k)
        Best first; equal scores by label.
    """
    n_labels = 1 + max(others.max(initial=0), labels.max(initial=0))
    rows = np.arange(len(labels))[:, None] * n_labels
    is_listed = np.isin(rows + others, (rows + labels)[labels >= 0])
    lowered = _lowered(below, is_listed, worst_listed(scores, labels))
    joined = np.concatenate([scores, np.where(is_listed, -np.inf, lowered)], axis=1)
    ids = np.concatenate([labels, others], axis=1)
    last = np.concatenate([labels < 0, is_listed], axis=1)
    order = np.lexsort((ids, -joined, last), axis=-1)[:, :k]
    return np.take_along_axis(joined, order, axis=1), np.take_along_axis(ids, order, axis=1)


def among_all(scores: Floats, labels: Ints, below: Floats) -> Floats:
    """Return the scores of all labels: of a list, and below it of the network.

    Parameters
    ----------
    scores, labels : ndarray of shape (n_samples, n_listed)
        Ranked lists, best first, padded with label -1.
    below : ndarray of shape (n_samples, n_labels)
        Scores of the network.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
        Scores whose order is that of :func:`with_unlisted`.
    """
    rows, at = np.nonzero(labels >= 0)
    is_listed = np.zeros(below.shape, dtype=bool)
    is_listed[rows, labels[rows, at]] = True
    out = _lowered(below, is_listed, worst_listed(scores, labels))
    out[rows, labels[rows, at]] = scores[rows, at]
    return out


def worst_listed(scores: Floats, labels: Ints) -> Floats:
    """Return the score of the worst listed label of each sample; infinite without a list."""
    return np.where(labels >= 0, scores, np.inf).min(axis=1, initial=np.inf)


def _lowered(below: Floats, is_listed: npt.NDArray[np.bool_], worst: Floats) -> Floats:
    """Return scores of unlisted labels, lowered until the best is below the worst of the list."""
    best = np.where(is_listed, -np.inf, below).max(axis=1, initial=-np.inf)
    ceiling = np.nextafter(worst.astype(below.dtype), below.dtype.type(-np.inf))
    with np.errstate(invalid="ignore"):  # rows without a list, or without unlisted labels
        lowered = (below - best[:, None]) + ceiling[:, None]
    return np.where((best > ceiling)[:, None], lowered, below)


def log_shares(scores: Floats) -> Floats:
    """Return log probabilities of listed classes as logarithms of shares of their sum.

    Rows may be known up to a constant: shares need no scores of other classes.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_listed)
        Log probabilities; minus infinity: no class.

    Returns
    -------
    ndarray of shape (n_samples, n_listed)
        Logarithms of the shares.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking import log_shares
    >>> np.exp(log_shares(np.log([[0.3, 0.1]]))).round(2)
    array([[0.75, 0.25]])
    """
    total = logsumexp(scores, axis=1, keepdims=True)
    return scores - np.where(np.isfinite(total), total, 0).astype(scores.dtype)


def listed_probabilities(scores: Floats, labels: Ints, n_classes: int) -> tuple[Floats, Floats]:
    """Return probabilities of listed classes, and of all other classes together.

    One class is true. A listed class with odds o has the probability o / (r + sum of the odds of
    the list). The other classes have r = 1 together, or, if that is less, as many times the odds of
    the worst listed class as there are other classes: none is more likely than that one.

    Parameters
    ----------
    scores, labels : ndarray of shape (n_samples, n_listed)
        Ranked lists, best first, padded with label -1.
    n_classes : int
        Number of classes.

    Returns
    -------
    probabilities : ndarray of shape (n_samples, n_listed)
        Probabilities, float64; 0 for padding.
    rest : ndarray of shape (n_samples, 1)
        One less their sum.
    """
    is_listed = labels >= 0
    odds = np.where(is_listed, scores, -np.inf).astype(np.float64)
    with np.errstate(divide="ignore"):  # all classes are listed
        n_others = np.log(n_classes - np.count_nonzero(is_listed, axis=1, keepdims=True))
    others = np.minimum(0, n_others + worst_listed(scores, labels)[:, None])
    total = np.logaddexp(others, logsumexp(odds, axis=1, keepdims=True))
    return np.exp(odds - total), np.exp(others - total)


def class_probabilities(scores: Floats, labels: Ints, every: Floats, floor: float = 0.0) -> Floats:
    """Return probabilities of classes; each row sums to one.

    Listed classes have those of :func:`listed_probabilities`. The other classes share the rest by
    their scores. Where one would be more likely than the worst listed class, the shares are drawn
    to their mean until it is not.

    Parameters
    ----------
    scores, labels : ndarray of shape (n_samples, n_listed)
        Ranked lists, best first, padded with label -1.
    every : ndarray of shape (n_samples, n_classes)
        Result of :func:`among_all`.
    floor : float, default=0.0
        Share of the rest that the other classes have alike; what is left follows their scores.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        Probabilities, in the order of the scores.
    """
    found, rest = listed_probabilities(scores, labels, every.shape[1])
    rows, at = np.nonzero(labels >= 0)
    others = every.copy()
    others[rows, labels[rows, at]] = -np.inf
    mean = rest / np.maximum(1, np.isfinite(others).sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):  # all classes are listed
        out = np.nan_to_num(softmax(others, axis=1) * rest.astype(every.dtype))
    largest = floor * mean + (1 - floor) * out.max(axis=1, keepdims=True)
    worst = worst_listed(found, labels)[:, None]
    alike = np.zeros_like(mean)
    np.divide(largest - worst, largest - mean, out=alike, where=largest > np.maximum(worst, mean))
    kept = (1 - floor) * (1 - alike)
    kept, more, worst = (each.astype(every.dtype) for each in (kept, (1 - kept) * mean, worst))
    out = np.minimum(kept * out + more, worst)
    out[rows, labels[rows, at]] = found[rows, at]
    return out


class ListedPairs(NamedTuple):
    """Pairs of a sample and a listed label: rows ascend, and the labels of a row.

    `by_network`: scores of the network; minus infinity for labels that it does not list. `numbers`:
    what describes a pair, of shape (n_pairs, n_numbers).
    """

    rows: Ints
    labels: Ints
    by_network: Floats
    numbers: Floats


def sorted_lists(pairs: ListedPairs, place: Floats, n_rows: int, *columns: Floats) -> list[Any]:
    """Sort pairs into lists.

    Parameters
    ----------
    pairs : ListedPairs
        Pairs.
    place : ndarray of shape (n_pairs,)
        Larger ones come first, then larger scores of the network, then lower labels.
    n_rows : int
        Number of samples.
    *columns : ndarray of shape (n_pairs,)
        Numbers of pairs.

    Returns
    -------
    list of ndarray of shape (n_rows, width)
        Labels, padded with -1, and each column, padded with minus infinity.
    """
    lengths = np.bincount(pairs.rows, minlength=n_rows)
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(inside.shape, -1, dtype=np.int64)
    ids[inside] = pairs.labels
    places, networks, *lists = (
        _filled(inside, each) for each in (place, pairs.by_network, *columns)
    )
    order = np.lexsort((-networks, -places), axis=-1)  # stable: labels ascend
    return [np.take_along_axis(each, order, axis=1) for each in (ids, *lists)]


def _filled(inside: npt.NDArray[np.bool_], column: Floats) -> Floats:
    out = np.full(inside.shape, -np.inf)
    out[inside] = column
    return out


def non_increasing(scores: Floats) -> Floats:
    """Return the mean of the nearest non-increasing scores below and above those of each list."""
    below = np.minimum.accumulate(scores, axis=1)
    above = np.maximum.accumulate(scores[:, ::-1], axis=1)[:, ::-1]
    return (below + above) / 2
