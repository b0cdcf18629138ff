"""Calibration of the probabilities of ranked labels."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import as_array, check_equal, naming
from sklearn_xlc._csr import BoolArray, FloatArray
from sklearn_xlc._ids import compare_indexes
from sklearn_xlc._labels import are_alike, none_for_missing, refuse_missing
from sklearn_xlc._tags import index_of, named_sets
from sklearn_xlc.metrics._validation import check_ranking


def expected_calibration_error(
    y_true: Any, labels: Any, probabilities: Any, n_bins: int = 15
) -> FloatArray:
    r"""Compute the expected calibration error of the best labels, at each rank (ECE@k).

    Among labels predicted with a probability of 0.8, a share of 0.8 should be true. At each rank
    the samples are sorted into bins of equal width by the probability of the label. The error is
    the mean over the samples of the difference between the mean probability of their bin and the
    share of true labels in it,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\bar p_b - \bar y_b|

    (Eq. 3 of [1]_). It has a bias: of n samples, even perfect probabilities have an error of about
    :math:`0.3 \sqrt{B / n}` if they spread evenly over B bins.

    Parameters
    ----------
    y_true : {array-like, sparse matrix, dataframe} or sequence of label sets
        True labels: an indicator of 0 and 1 of shape (n_samples, n_labels), tags, or one class per
        sample.
    labels : array-like of shape (n_samples, k)
        Best labels of each sample, from ``predict_topk``: columns of an indicator, tags or classes.
        -1 instead of a column, or None instead of a tag or class, means no label and is left out.
    probabilities : array-like of shape (n_samples, k)
        Their probabilities, from ``predict_topk(..., proba=True)``.
    n_bins : int, default=15
        Number of bins of the probabilities between 0 and 1.

    Returns
    -------
    ndarray of shape (k,)
        Error at each rank, between 0 (best) and 1; NaN at ranks without labels.

    See Also
    --------
    sklearn_xlc.plotting.ReliabilityDisplay : Draws the bins.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On Calibration of Modern Neural Networks.
       ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import expected_calibration_error
    >>> y_true = np.array([[1, 0, 0], [0, 1, 0]])
    >>> labels = np.array([[0, 1], [2, 1]])
    >>> expected_calibration_error(y_true, labels, [[0.5, 0.25], [0.5, 0.75]])
    array([0.  , 0.25])
    """
    hits, probabilities = check_calibration(y_true, labels, probabilities)
    n_bins = check_integer(n_bins, "n_bins")
    return np.array(
        [
            calibration_error(*reliability(hits[:, rank], probabilities[:, rank], n_bins))
            for rank in range(hits.shape[1])
        ]
    )


def check_calibration(y_true: Any, labels: Any, probabilities: Any) -> tuple[BoolArray, FloatArray]:
    """Return whether labels are true, and their probabilities, both (n_samples, k).

    The probability is NaN without a label.
    """
    for name, values in (("labels", labels), ("probabilities", probabilities)):
        compare_indexes(index_of(y_true), index_of(values), "y_true", name)
    labels = none_for_missing(as_array(labels, "labels"))
    if labels.ndim != 2 or 0 in labels.shape:
        raise ValueError(
            "labels must hold at least one label for each of at least one sample, in shape "
            f"(n_samples, k), got shape {labels.shape}"
        )
    probabilities = as_array(probabilities, "probabilities")
    if probabilities.shape != labels.shape or probabilities.dtype.kind not in "biuf":
        raise ValueError(
            f"probabilities must be numbers of the shape of labels, {labels.shape}, got shape "
            f"{probabilities.shape} and dtype {probabilities.dtype}"
        )
    probabilities = probabilities.astype(np.float64)
    wrong = np.argwhere(~((probabilities >= 0) & (probabilities <= 1)))
    if len(wrong):
        row, rank = wrong[0]
        raise ValueError(
            f"probabilities must be between 0 and 1, got {probabilities[row, rank]} in row {row}; "
            "predict_topk gives them with proba=True"
        )
    hits, is_label = _hits(y_true, labels)
    return hits, np.where(is_label, probabilities, np.nan)


def _hits(y_true: Any, labels: np.ndarray) -> tuple[BoolArray, BoolArray]:
    """Return a mask of the true labels, and a mask of the entries with a label."""
    sets = named_sets(y_true, name="y_true")
    y_true = y_true if sets is None else sets
    if sets is None and not sp.issparse(y_true):
        classes = as_array(y_true, "y_true")
        if classes.ndim == 1:
            check_equal("rows", y_true=len(classes), labels=len(labels))
            refuse_missing(classes, "y_true")
            is_label = np.asarray(labels != None)  # noqa: E711
            some = classes[:1].tolist() + labels[is_label][:1].tolist()
            if not all(are_alike(some[0], label) for label in some):
                raise ValueError("y_true and labels must both hold strings or both numbers")
            return labels == classes[:, None], is_label
    if labels.dtype.kind == "f":
        raise TypeError(
            f"labels holds numbers of dtype {labels.dtype}: pass the labels, and then their "
            "probabilities, as predict_topk returns them"
        )
    with naming("labels"):
        ranking = check_ranking(y_true, labels, labels.shape[1])
    return ranking.hits, ranking.top >= 0


def reliability(
    hits: BoolArray, probabilities: FloatArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Count and average predictions in bins of equal width; NaN is in no bin.

    Returned are the number of predictions of each bin, their mean probability and the share of true
    labels; both NaN for an empty bin.
    """
    used = ~np.isnan(probabilities)
    hits, probabilities = hits[used], probabilities[used]
    bins = np.minimum((probabilities * n_bins).astype(np.int64), n_bins - 1)
    n = np.bincount(bins, minlength=n_bins).astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(bins, probabilities, n_bins) / n
        return n, mean, np.bincount(bins, hits, n_bins) / n


def calibration_error(n: FloatArray, mean: FloatArray, share: FloatArray) -> float:
    """Compute the error of the bins of :func:`reliability`."""
    if not n.any():
        return float("nan")
    return float(np.nansum(n * np.abs(mean - share)) / n.sum())
