"""Report of drift: how new labelled samples differ from what a classifier learnt and promises."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy
from sklearn.utils.validation import check_consistent_length

from sklearn_xlc._csr import occurring_columns
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc.engine import can_rank, in_use, predictor_of, read_of, samples_of, truth_of
from sklearn_xlc.inspection.explaining import classifier_in
from sklearn_xlc.inspection.topk import check_rows
from sklearn_xlc.metrics import check_calibration, true_labels, unwrapped

#: Probabilities are float32: none is nearer to 0 or 1 than this.
_EPSILON = float(np.finfo(np.float32).eps)


class DriftReport(NamedTuple):
    """Numbers of :func:`drift_report`; a list of reports makes a pandas frame.

    NaN stands for a number that cannot be known.

    Attributes
    ----------
    n_samples : int
        Number of samples.
    precision_at_1 : float
        Share of the samples whose best label is one of theirs.
    log_loss : float
        Log loss of the probabilities of the listed labels: mean over the samples, sum over the
        labels of a list. Of class labels, log loss of "this class", for each in the list, or
        "another one". NaN if labels have no probabilities of their own.
    expected_log_loss : float
        Log loss that the probabilities promise: their entropy.
    unseen_features : float
        Share of the weight of X (sum of magnitudes) in columns that are zero in all remembered
        training samples: new words. Of each sample only those features count that the ranker would
        remember, by the weights that it gives them. NaN for dense X, and if the ranker remembers no
        samples.
    unseen_labels : float
        Share of the true labels that are not in ``classes_`` or, if the ranker remembers samples,
        that none of these has. NaN if no sample has a label.
    labels_without_samples : float
        Share of ``classes_`` that no remembered training sample has, whether or not they are among
        the true labels: named by ``classes=`` of `partial_fit`, or left without a sample by
        `forget`, `remove_labels` or the limit of what the ranker remembers. NaN if the ranker
        remembers no samples.
    """

    n_samples: int
    precision_at_1: float
    log_loss: float
    expected_log_loss: float
    unseen_features: float
    unseen_labels: float
    labels_without_samples: float


def drift_report(estimator: Any, X: Any, y: Any, k: int | None = None) -> DriftReport:
    """Report how new labelled samples differ from what a classifier learnt and promises.

    In a stream, call it with each batch before ``partial_fit``, and compare the reports: test, then
    train, or prequential evaluation [1]_. A single report compares the log loss with the one that
    the probabilities promise; some difference is no drift, as they are learnt from a few thousand
    samples at most.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package with a network, or a pipeline or search around one.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Samples that the classifier has not learnt, as input of the outermost estimator.
    y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
            (n_samples, n_labels), or sequence of label sets
        True labels, in any form that ``fit`` takes. Tags and classes may be new.
    k : int, default=None
        Number of labels in a list. None: 5, or all of fewer.

    Returns
    -------
    DriftReport
        Named tuple of numbers.

    Raises
    ------
    TypeError
        If there is no classifier of this package.
    ValueError
        If X or y are invalid or have different numbers of samples, or `k` is not between 1 and the
        number of labels.

    See Also
    --------
    sklearn_xlc.metrics.expected_calibration_error : Calibration at each rank.
    sklearn_xlc.label_report : Errors of each label.

    References
    ----------
    .. [1] A. P. Dawid. Statistical Theory: The Prequential Approach. Journal of the Royal
       Statistical Society A 147(2), 1984.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> from sklearn_xlc.inspection import drift_report
    >>> X, Y = make_extreme_multilabel(900, 300, 40, random_state=0)
    >>> clf = MultiHeadClassifier("flat", random_state=0).fit(X[:600], Y[:600])
    >>> report = drift_report(clf, X[600:], Y[600:])
    >>> report.n_samples, report.unseen_labels
    (300, 0.0)
    >>> drift_report(clf, X[600:], Y[:300]).log_loss > 3 * report.log_loss  # labels of others
    True
    """
    classifier, before = classifier_in(estimator, "drift_report")
    warn_of_order(X, y)
    given = X
    for transformer in before:
        X = transformer.transform(X)
    predictor = predictor_of(classifier)
    samples, k = samples_of(classifier, X), predictor.check_k(k)
    check_rows(given, len(samples))
    truth, multilabel = _truth(estimator, classifier, y), predictor.code.multilabel
    check_consistent_length(samples, truth)
    proba = can_rank(classifier.net_.module_.head, multilabel)
    classes = classifier.classes_
    ranker = in_use(classifier)
    remembered = None if ranker is None else ranker.remembered
    has_samples = None if remembered is None else occurring_columns(remembered[1])
    ids, p = predictor.checked_topk(samples, k, classes.dtype, proba=proba)
    p = np.clip(p.astype(np.float64), _EPSILON, 1 - _EPSILON) if proba else np.full(ids.shape, 0.5)
    hits, _ = check_calibration(truth, ids if multilabel else classes[ids], p)
    losses, promised = (_of_labels if multilabel else _of_classes)(hits, p)
    return DriftReport(
        n_samples=len(ids),
        precision_at_1=float(hits[:, 0].mean()),
        log_loss=float(losses.mean()) if proba else np.nan,
        expected_log_loss=float(promised.mean()) if proba else np.nan,
        unseen_features=_unseen_features(classifier, samples, remembered),
        unseen_labels=_unseen_labels(classes, truth, has_samples),
        labels_without_samples=np.nan if has_samples is None else float(1 - has_samples.mean()),
    )


def _truth(estimator: Any, classifier: Any, y: Any) -> Any:
    """Return true labels, by the names of tags where a meta-estimator has read them."""
    outer = unwrapped(estimator)[0]
    if outer is not classifier:
        _, truth, names = true_labels(outer, y)
        if names is not None and truth.ndim > 1:
            return truth
    return truth_of(classifier, y)


def _of_labels(hits: Any, p: Any) -> tuple[Any, Any]:
    """Return the log loss of each sample and its expectation, of labels with odds of their own."""
    losses = -np.log(np.where(hits, p, 1 - p)).sum(axis=1)
    return losses, -(xlogy(p, p) + xlogy(1 - p, 1 - p)).sum(axis=1)


def _of_classes(hits: Any, p: Any) -> tuple[Any, Any]:
    """Return the same of one class among those listed, or another one."""
    other = np.maximum(1 - p.sum(axis=1), _EPSILON)
    losses = -np.log(np.where(hits.any(axis=1), (hits * p).sum(axis=1), other))
    return losses, -xlogy(p, p).sum(axis=1) - xlogy(other, other)


def _unseen_features(classifier: Any, samples: Any, remembered: Any) -> float:
    ranker, (spaces, _) = in_use(classifier), remembered or ({}, None)
    space = next((name for name, seen in spaces.items() if sp.issparse(seen)), None)
    if space is None:
        return np.nan
    read = ranker.shortened(read_of(classifier, ranker, samples))
    X = sp.csr_array(read[space])  # few samples may have fewer zeros
    is_seen = occurring_columns(spaces[space])
    weight = np.abs(X.data)
    total = weight.sum(dtype=np.float64)
    return float(weight[~is_seen[X.indices]].sum(dtype=np.float64) / total) if total else np.nan


def _unseen_labels(classes: Any, truth: Any, has_samples: Any) -> float:
    if has_samples is None:
        has_samples = np.ones(len(classes), dtype=bool)
    if not sp.issparse(truth):
        return float(1 - np.isin(truth, classes[has_samples]).mean())
    labels = truth.indices[truth.data != 0]
    seen = (labels < len(classes)) & has_samples[np.minimum(labels, len(classes) - 1)]
    return float(1 - seen.mean()) if len(labels) else np.nan
