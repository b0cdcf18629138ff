"""Precision at k for labels of groups of samples."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import check_equal
from sklearn_xlc._csr import IntArray, row_numbers
from sklearn_xlc._ids import compare_indexes
from sklearn_xlc._tags import index_of
from sklearn_xlc.groups import Groups, check_groups, warn_of_group_order
from sklearn_xlc.metrics._ranking import precision_at_k
from sklearn_xlc.metrics._validation import (
    by_name,
    check_ids,
    check_labels,
    check_prediction,
    holds_ids,
)


def aggregated_precision_at_k(y_group: Any, y_pred: Any, groups: Any, k: int = 5) -> float:
    """Compute precision at k of groups: share of true labels among a group's first k predictions.

    The predictions for the samples of a group are pooled: the score of a label is its best score in
    the group. Use this metric to compare models if labels are known for groups only. It ignores for
    which sample of a group a label was predicted.

    Parameters
    ----------
    y_group : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels)
        Labels of the groups, 0 and 1: either one row per sample, with the labels of its group; or
        one row per group, in the order of ``np.unique(groups)`` or of the columns of a membership
        matrix. With as many groups as samples, rows are those of the samples.
    y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples, >=k)
        Predictions for the samples: scores or label ids, as in :func:`precision_at_k`. Scores are
        pooled by their maximum, label ids by their best rank; ties of ranks go to the label
        predicted for more samples.
    groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
            (n_samples, n_groups)
        Group id of each sample, or a 0/1 membership matrix.
    k : int, default=5
        Number of predictions evaluated per group.

    Returns
    -------
    float
        Mean precision at k of the groups with a sample, between 0 and 1.

    Raises
    ------
    ValueError, TypeError
        If an argument has an invalid type, shape or value, or samples of a group have different
        labels.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 6 also pools the instances of a group by their maximum.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import aggregated_precision_at_k
    >>> y_group = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 0]])
    >>> y_pred = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.8], [0.6, 0.5, 0.0]])
    >>> aggregated_precision_at_k(y_group, y_pred, [0, 0, 1], k=2)  # (2/2 + 1/2) / 2
    0.75
    """
    k = check_integer(k, "k")
    given, of_pred = y_group, index_of(y_pred)
    y_group, y_pred, _ = by_name(y_group, y_pred, "y_group")
    y_pred = check_prediction(y_pred)
    labels = check_labels(y_group, "y_group")
    if not holds_ids(y_pred):
        check_equal("labels", y_group=labels.shape[1], y_pred=y_pred.shape[1])
    checked = check_groups(groups, y_pred.shape[0])
    labels = checked.per_group(labels, "y_group")
    compare_indexes(of_pred, index_of(given), "y_pred", "y_group")
    compare_indexes(of_pred, index_of(groups), "y_pred", "groups")
    warn_of_group_order(groups, given, "y_group")
    groups = checked
    if holds_ids(y_pred):
        ids = check_ids(y_pred, k, (y_pred.shape[0], labels.shape[1]))
        pooled = _pool_ids(ids, groups, labels.shape[1])
    else:
        pooled = _pool_scores(y_pred, groups)
    filled = groups.sizes > 0
    return precision_at_k(labels[filled], pooled[filled], k)


def _pool_scores(scores: Any, groups: Groups) -> Any:
    """Return the largest score of each label in each group, in the format of the scores."""
    shape = (len(groups), scores.shape[1])
    if not sp.issparse(scores):
        pooled = np.full(shape, -np.inf)
        filled = groups.sizes > 0
        if filled.any():
            starts = groups.indptr[:-1][filled]
            pooled[filled] = np.maximum.reduceat(scores[groups.samples], starts, axis=0)
        return pooled
    entries = scores[groups.samples].tocoo()
    keys = row_numbers(groups.indptr)[entries.row] * np.int64(shape[1]) + entries.col
    keys, of_key = np.unique(keys, return_inverse=True)
    largest = np.full(len(keys), -np.inf)
    np.maximum.at(largest, of_key, entries.data)
    return sp.csr_array((largest, np.divmod(keys, shape[1])), shape=shape)


def _pool_ids(ids: IntArray, groups: Groups, n_labels: int) -> sp.csr_array:
    """Compute scores to rank the labels of a group by best rank, then by number of samples."""
    samples, ranks = np.nonzero(ids >= 0)
    entries, shape = (samples, ids[samples, ranks]), (ids.shape[0], n_labels)
    pooled = _pool_scores(sp.csr_array((-1.0 - ranks, entries), shape=shape), groups)
    votes = sp.csr_array((np.ones(len(samples)), entries), shape=shape)
    pooled.sort_indices()
    counts = groups.membership().T.tocsr() @ votes
    counts.sort_indices()
    pooled.data += counts.data / (ids.shape[0] + 1)  # below 1, the gap of two ranks
    return pooled
