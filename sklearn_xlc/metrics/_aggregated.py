"""Precision at k where only groups of rows have labels."""

import numpy as np
from scipy import sparse

from sklearn_xlc.groups._groups import check_groups, group_labels
from sklearn_xlc.metrics._ranking import precision_at_k
from sklearn_xlc.metrics._validation import (
    _check_ids,
    _check_prediction,
    check_k,
    check_labels,
)


def aggregated_precision_at_k(y_group, y_pred, groups, k=5):
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
        their maximum. Of ids the best place counts, and among labels of one place the number of
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
    k = check_k(k)
    y_pred = _check_prediction(y_pred)
    gives_ids = not sparse.issparse(y_pred) and y_pred.dtype.kind in "iu"
    labels = check_labels(y_group, "y_group")
    if not gives_ids and labels.shape[1] != y_pred.shape[1]:
        raise ValueError(
            f"y_group has {labels.shape[1]} labels and y_pred scores of {y_pred.shape[1]}"
        )
    membership, group_of = check_groups(groups, y_pred.shape[0])
    labels = group_labels(labels, membership, group_of, "y_group")
    if gives_ids:
        ids = _check_ids(y_pred, k, (y_pred.shape[0], labels.shape[1]))
        pooled = _pool_ids(ids, membership, labels.shape[1])
    else:
        pooled = _pool_scores(y_pred, membership)
    filled = np.bincount(membership.indices, minlength=membership.shape[1]) > 0
    return precision_at_k(labels[filled], pooled[filled], k)


def _pool_scores(scores, membership):
    """Largest score of each label in each group, in the form of the scores."""
    members = membership.tocsc()
    if sparse.issparse(scores):
        entries = scores[members.indices].tocoo()
        group_of = np.repeat(np.arange(members.shape[1]), np.diff(members.indptr))
        return _pool(group_of[entries.row], entries.col, entries.data, members.shape[1], scores)
    filled = np.diff(members.indptr) > 0
    pooled = np.full((members.shape[1], scores.shape[1]), -np.inf)
    if filled.any():
        starts = members.indptr[:-1][filled]
        pooled[filled] = np.maximum.reduceat(scores[members.indices], starts, axis=0)
    return pooled


def _pool(groups, labels, values, n_groups, scores):
    """CSR of the largest value of each (group, label) that has one."""
    keys, of_key = np.unique(groups * np.int64(scores.shape[1]) + labels, return_inverse=True)
    largest = np.full(len(keys), -np.inf)
    np.maximum.at(largest, of_key, values)
    rows, columns = np.divmod(keys, scores.shape[1])
    return sparse.csr_array((largest, (rows, columns)), shape=(n_groups, scores.shape[1]))


def _pool_ids(ids, membership, n_labels):
    """Scores that rank the labels of a group by best place, then by number of rows."""
    rows, places = np.nonzero(ids >= 0)
    shape = (ids.shape[0], n_labels)
    score = sparse.csr_array((-1.0 - places, (rows, ids[rows, places])), shape=shape)
    pooled = _pool_scores(score, membership)
    votes = sparse.csr_array((np.ones(len(rows)), (rows, ids[rows, places])), shape=shape)
    pooled.sort_indices()
    counts = membership.T.astype(np.float64).tocsr() @ votes
    counts.sort_indices()
    pooled.data += counts.data / (ids.shape[0] + 1)  # below 1: never worth a place
    return pooled
