"""Precision at k where only groups of samples have labels."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._checks import check_integer
from sklearn_xlc._csr import IntArray, row_numbers
from sklearn_xlc.groups._groups import check_groups, group_labels
from sklearn_xlc.metrics._ranking import precision_at_k
from sklearn_xlc.metrics._validation import (
    check_ids,
    check_labels,
    check_prediction,
    holds_ids,
)


def aggregated_precision_at_k(y_group: Any, y_pred: Any, groups: Any, k: int = 5) -> float:
    """Share of the k first predictions for a group that are among its labels, over all groups.

    The predictions of a group are those of its rows, pooled: a label counts as its best row does.
    Use it to choose between models where no row has labels of its own. It knows nothing of which
    row a label was predicted for.

    Parameters
    ----------
    y_group : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels)
        Labels of the groups, 0 and 1: row i those of the group of row i, or, where `groups` is a
        membership matrix, row j those of group j.
    y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples, >=k)
        Predictions for the rows: scores or label ids, as in :func:`precision_at_k`. Scores pool to
        their maximum. Of ids the best rank counts, and among labels of one rank the number of
        rows that name the label.
    groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
            (n_samples, n_groups)
        Ids of the rows' groups, or which row is in which groups.
    k : int, default=5
        Number of predictions looked at for each group.

    Returns
    -------
    float
        Precision at k of groups that have a row, between 0 and 1.

    Raises
    ------
    ValueError, TypeError
        If an argument is of no accepted form, or rows of one group have different labels.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 6 pools a group's instances by their maximum likewise.

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
    y_pred = check_prediction(y_pred)
    labels = check_labels(y_group, "y_group")
    if not holds_ids(y_pred) and labels.shape[1] != y_pred.shape[1]:
        raise ValueError(
            f"y_group has {labels.shape[1]} labels and y_pred scores of {y_pred.shape[1]}"
        )
    membership, group_of = check_groups(groups, y_pred.shape[0])
    labels = group_labels(labels, membership, group_of, "y_group")
    if holds_ids(y_pred):
        ids = check_ids(y_pred, k, (y_pred.shape[0], labels.shape[1]))
        pooled = _pool_ids(ids, membership, labels.shape[1])
    else:
        pooled = _pool_scores(y_pred, membership)
    filled = np.bincount(membership.indices, minlength=membership.shape[1]) > 0
    return precision_at_k(labels[filled], pooled[filled], k)


def _pool_scores(scores: Any, membership: sp.csr_array) -> Any:
    """Largest score of each label in each group, in the form of the scores."""
    members = membership.tocsc()
    if sp.issparse(scores):
        entries = scores[members.indices].tocoo()
        groups = row_numbers(members.indptr)[entries.row]
        return _pool(groups, entries.col, entries.data, (members.shape[1], scores.shape[1]))
    filled = np.diff(members.indptr) > 0
    pooled = np.full((members.shape[1], scores.shape[1]), -np.inf)
    if filled.any():
        starts = members.indptr[:-1][filled]
        pooled[filled] = np.maximum.reduceat(scores[members.indices], starts, axis=0)
    return pooled


def _pool(
    groups: IntArray, labels: npt.NDArray[Any], values: npt.NDArray[Any], shape: tuple[int, int]
) -> sp.csr_array:
    """CSR of the largest value of each (group, label) that has one."""
    keys, of_key = np.unique(groups * np.int64(shape[1]) + labels, return_inverse=True)
    largest = np.full(len(keys), -np.inf)
    np.maximum.at(largest, of_key, values)
    return sp.csr_array((largest, np.divmod(keys, shape[1])), shape=shape)


def _pool_ids(ids: IntArray, membership: sp.csr_array, n_labels: int) -> sp.csr_array:
    """Scores that rank the labels of a group by best rank, then by number of rows."""
    rows, ranks = np.nonzero(ids >= 0)
    shape, entries = (ids.shape[0], n_labels), (rows, ids[rows, ranks])
    pooled = _pool_scores(sp.csr_array((-1.0 - ranks, entries), shape=shape), membership)
    votes = sp.csr_array((np.ones(len(rows)), entries), shape=shape)
    pooled.sort_indices()
    counts = membership.T.astype(np.float64).tocsr() @ votes
    counts.sort_indices()
    pooled.data += counts.data / (ids.shape[0] + 1)  # below 1: never worth a rank
    return pooled
