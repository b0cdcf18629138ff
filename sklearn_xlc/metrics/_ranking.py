"""Ranking metrics at k: precision, recall, R-precision, F1, nDCG and label coverage."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._csr import FloatArray
from sklearn_xlc.metrics._validation import Ranking, check_ranking


def precision_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute precision at k: share of true labels among the first k predictions (P@k).

    The shares are averaged over samples. The divisor is always `k`, even if fewer than `k` labels
    are predicted or exist, so a sample with fewer than `k` true labels cannot reach 1.

    Parameters
    ----------
    y_true : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples,)
        Indicator of the true labels, values 0 and 1, or integer class ids; or tags, a sequence of
        lists or sets of strings or integers, or a frame of indicators; or classes that are strings.
    y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples, >=k)
        Floating or sparse scores; entries not stored, and minus infinity, are not ranked. Or an
        *integer* array of label ids, best first, -1 for none; for tags, and for classes that are
        strings, an array of them, None for none. Equal scores are ranked by label id, smaller
        first.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the average; None weighs all samples alike.

    Returns
    -------
    float
        Precision at k, between 0 and 1.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import precision_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> precision_at_k(y_true, np.array([[0.9, 0.1, 0.8, 0.3], [0.2, 0.1, 0.7, 0.0]]), k=2)
    0.5
    >>> precision_at_k(y_true, np.array([[0, 2], [2, 0]]), k=2)  # label ids, best first
    0.5
    """
    return _precision(check_ranking(y_true, y_pred, k, sample_weight))


def recall_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute recall at k: share of the true labels among the first k predictions (R@k).

    The shares are averaged over samples. A sample without true labels counts as 0.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the average; None weighs all samples alike.

    Returns
    -------
    float
        Recall at k, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import recall_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> recall_at_k(y_true, np.array([[0, 3], [1, 0]]), k=2)
    0.75
    """
    return _recall(check_ranking(y_true, y_pred, k, sample_weight))


def r_precision_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute R-precision at k (RP@k): the share of possible hits in the first k predictions.

    The hits of a sample are divided by ``min(k, number of true labels)``, so that a perfect ranking
    reaches 1. The quotients are averaged over samples. A sample without true labels counts as 0.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the average; None weighs all samples alike.

    Returns
    -------
    float
        R-precision at k, between 0 and 1.

    References
    ----------
    .. [1] I. Chalkidis, E. Fergadiotis, P. Malakasiotis, I. Androutsopoulos. Large-Scale
       Multi-Label Text Classification on EU Legislation. ACL 2019, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import r_precision_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> r_precision_at_k(y_true, np.array([[0, 3], [3, 1]]), k=2)  # (1 / 2 + 1 / 1) / 2
    0.75
    """
    ranking = check_ranking(y_true, y_pred, k, sample_weight)
    possible = np.minimum(ranking.n_true, ranking.k)
    return ranking.mean(safe_divide(ranking.hits.sum(axis=1), possible))


def f1_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute F1 at k: harmonic mean of mean precision and mean recall at k (F1@k).

    Both means are taken over all samples first; this is not the mean F1 of samples or batches. F1
    at k is 0 without hits.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in both means; None weighs all samples alike.

    Returns
    -------
    float
        F1 at k, between 0 and 1.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import f1_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> f1_at_k(y_true, np.array([[0, 3], [1, 0]]), k=2)  # P@2 = 1/2, R@2 = 3/4
    0.6
    """
    ranking = check_ranking(y_true, y_pred, k, sample_weight)
    precision, recall = _precision(ranking), _recall(ranking)
    if precision == 0:  # recall is zero as well: both count the same hits
        return 0.0
    return 2 * precision * recall / (precision + recall)


def ndcg_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute the normalised discounted cumulative gain at k (nDCG@k).

    A true label at rank r (counted from 1) gains ``1 / log2(r + 1)``. The gain of the first k
    predictions is divided by the best possible gain, with true labels at the first
    ``min(k, number of true labels)`` ranks. A sample without true labels counts as 0, whereas
    :func:`sklearn.metrics.ndcg_score` leaves it out of the average.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the average; None weighs all samples alike.

    Returns
    -------
    float
        Normalised discounted cumulative gain at k, between 0 and 1.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import ndcg_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> ndcg_at_k(y_true, np.array([[0, 2], [0, 1]]), k=2)  # (1 + 1 / log2(3)) / 2
    0.815...
    """
    ranking = check_ranking(y_true, y_pred, k, sample_weight)
    discount = discounts(ranking.top.shape[1])
    gain = (ranking.hits * discount).sum(axis=1)
    return ranking.mean(safe_divide(gain, ideal_gain(ranking)))


def coverage_at_k(y_true: Any, y_pred: Any, k: int = 5, *, sample_weight: Any = None) -> float:
    """Compute label coverage at k: share of the true labels with at least one hit.

    It counts labels, not samples: a classifier that predicts only frequent labels scores low.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    sample_weight : array-like of shape (n_samples,), default=None
        Samples of weight zero are left out; other weights have no effect.

    Returns
    -------
    float
        Coverage at k, between 0 and 1; 0 if no label occurs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import coverage_at_k
    >>> y_true = np.array([[1, 0, 1, 0], [1, 1, 0, 0]])
    >>> coverage_at_k(y_true, np.array([[0, 3], [0, 1]]), k=2)  # finds 0 and 1 of 0, 1, 2
    0.666...
    """
    ranking = check_ranking(y_true, y_pred, k, sample_weight)
    counted = ranking.weight > 0
    occurring = np.unique(ranking.true.indices[np.repeat(counted, ranking.n_true)])
    found = np.unique(ranking.top[ranking.hits & counted[:, None]])
    return found.size / max(occurring.size, 1)


def discounts(width: int) -> FloatArray:
    """Compute 1 / log2(r + 1) for the ranks r = 1 to `width`."""
    return 1.0 / np.log2(np.arange(2, width + 2))


def ideal_gain(ranking: Ranking) -> FloatArray:
    """Compute the gain of an ideal ranking: the first min(k, n_true) predictions are true."""
    width = ranking.top.shape[1]
    return ((np.arange(width) < ranking.n_true[:, None]) * discounts(width)).sum(axis=1)


def safe_divide(values: npt.NDArray[Any], norm: npt.NDArray[Any]) -> FloatArray:
    """Divide `values` by `norm`; return 0 where `norm` is 0."""
    return np.divide(values, norm, out=np.zeros_like(values, dtype=np.float64), where=norm > 0)


def _precision(ranking: Ranking) -> float:
    """Compute the mean over samples of hits / k."""
    return ranking.mean(ranking.hits.sum(axis=1) / ranking.k)


def _recall(ranking: Ranking) -> float:
    """Compute the mean over samples of hits / number of true labels."""
    return ranking.mean(safe_divide(ranking.hits.sum(axis=1), ranking.n_true))
