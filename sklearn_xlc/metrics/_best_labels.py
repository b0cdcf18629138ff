"""Best labels of samples and their scores, by any classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._bounds import checked_k
from sklearn_xlc._checks import as_array, check_indicator, is_indicator
from sklearn_xlc._csr import find_entries
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc._tags import NamedSets, named_sets
from sklearn_xlc.metrics._scorer import (
    all_scores,
    innermost,
    names_of_columns,
    reads_names,
    without_column,
)
from sklearn_xlc.metrics._validation import rank_scores


def best_labels(
    estimator: Any, X: Any, k: int | None, proba: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Find the best k labels of each sample, and their scores or probabilities.

    A classifier without `predict_topk` ranks the scores of all labels.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier, also within a pipeline or a search.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Samples.
    k : int or None
        Number of labels. None: 5, or all of fewer.
    proba : bool, default=False
        Whether to return probabilities.

    Returns
    -------
    labels, scores : ndarray of shape (n_samples, k)
        Labels, best first, and their scores.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_xlc.metrics import best_labels
    >>> clf = LogisticRegression().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
    >>> best_labels(clf, [[2.0]], k=1)[0]
    array([['b']], dtype='<U1')
    """
    found, X = innermost(estimator, X)
    if hasattr(found, "predict_topk"):
        labels, best = found.predict_topk(X, k, **({"proba": True} if proba else {}))
        return labels, best
    classes, multilabel = classes_of(found)
    scores = all_scores(found, X, multilabel, proba=proba)
    ids = _with_others(rank_scores(scores, checked_k(k, scores.shape[1])))
    rows = np.arange(len(ids))[:, None]
    if sp.issparse(scores):
        entries = np.append(scores.data, 0.0 if proba else -np.inf)  # the last: not stored
        best = entries[find_entries(scores, rows, ids)]
    else:
        best = scores[rows, ids]
    named = classes is not None and not multilabel
    return np.asarray(classes)[ids] if named else ids, best


def _with_others(ids: np.ndarray) -> np.ndarray:
    """Put labels without a score after the last one of each row, where -1 is, lowest first."""
    is_none, k = ids < 0, ids.shape[1]
    rows, at = np.nonzero(~is_none & (ids < k))
    is_other = np.ones(ids.shape, dtype=bool)
    is_other[rows, ids[rows, at]] = False
    is_other &= np.cumsum(is_other, axis=1) <= np.count_nonzero(is_none, axis=1)[:, None]
    ids[is_none] = np.nonzero(is_other)[1]
    return ids


def classes_of(estimator: Any) -> tuple[Any, bool]:
    """Return `classes_` of an estimator, if any, and whether it scores columns of an indicator."""
    classes = getattr(estimator, "classes_", None)
    return classes, isinstance(classes, list) or getattr(estimator, "multilabel_", False)


def truth_and_best(estimator: Any, X: Any, y: Any, k_of: Callable[[int], int]) -> tuple[Any, ...]:
    """Return the final estimator, true labels, and best labels with their probabilities.

    `k_of` returns how many best labels of a sample are listed, from the number of all labels.
    """
    warn_of_order(X, y)
    found, X = innermost(estimator, X)
    check_is_fitted(found)
    classes, _ = classes_of(found)
    if classes is None:
        raise TypeError(f"labels are ranked by classifiers; {type(found).__name__} has none")
    labels, probabilities = best_labels(found, X, k_of(len(classes)), proba=True)
    return found, _with_names(found, y), labels, probabilities


def _with_names(estimator: Any, y: Any) -> Any:
    """Return y with the labels of an estimator: the names of columns, where it has names."""
    sets = named_sets(y, needs_tags=False)
    if sets is not None:
        is_numbered = sets.is_frame and not reads_names(estimator, sets.classes.tolist())
        return sets.indicator if is_numbered else y
    y = y if sp.issparse(y) else without_column(estimator, as_array(y, "y"))
    if not is_indicator(y):
        return y
    names = names_of_columns(estimator, np.shape(y)[1])
    return y if names is None else NamedSets(check_indicator(y, "y"), names, "a frame")
