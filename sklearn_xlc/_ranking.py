"""Ranking of the largest entries of every row, best first; ties by the smaller id."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._csr import BoolArray, IntArray, find_entries, row_numbers


def rank_rows(
    scores: npt.NDArray[Any], k: int, ids: npt.NDArray[Any] | None = None
) -> tuple[npt.NDArray[Any], IntArray]:
    """Find the best k entries of every row of a dense matrix.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_columns)
        Floating numbers without NaN; minus infinity ranks last.
    k : int
        Number of entries, at least 1. If there are fewer columns, all of them are ranked.
    ids : ndarray of shape (n_rows, n_columns), default=None
        Id of each entry, distinct within a row. None: the column numbers.

    Returns
    -------
    scores : ndarray of shape (n_rows, min(k, n_columns))
        Scores of the best entries, largest first.
    ids : ndarray of the same shape
        Ids of the best entries. Ties are chosen and ranked by the smaller id.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._ranking import rank_rows
    >>> scores, ids = rank_rows(np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), k=2)
    >>> ids
    array([[1, 2],
           [0, 1]])
    """
    n_rows, n_columns = scores.shape
    columns_ascend = ids is None
    if n_columns > k:
        kept = _select(scores, k, ids).reshape(-1).nonzero()[0].reshape(n_rows, k)
        ids = kept % n_columns if ids is None else ids.reshape(-1)[kept]
        scores = scores.reshape(-1)[kept]
    elif ids is None:
        ids = np.broadcast_to(np.arange(n_columns), scores.shape)
    if columns_ascend:
        order = np.argsort(-scores, axis=1, kind="stable")
    else:
        order = np.lexsort((ids, -scores), axis=-1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _select(scores: npt.NDArray[Any], k: int, ids: npt.NDArray[Any] | None) -> BoolArray:
    """Return a mask of the k largest scores of each row; ties go to smaller ids."""
    cut = scores.shape[1] - k
    lowest = np.partition(scores, cut, axis=1)[:, cut, None]
    chosen = scores >= lowest
    rows = np.flatnonzero(np.count_nonzero(chosen, axis=1) > k)
    if len(rows):  # several entries share the last ranks
        tied = scores[rows] == lowest[rows]
        n_ranks = k - np.count_nonzero(chosen[rows] & ~tied, axis=1)[:, None]
        if ids is None:
            kept_ties = np.cumsum(tied, axis=1) <= n_ranks
        else:
            # A stable sort takes linear time in the common case that ids already ascend.
            by_id = np.argsort(ids[rows], axis=1, kind="stable")
            rank = np.cumsum(np.take_along_axis(tied, by_id, axis=1), axis=1)
            kept_ties = np.empty_like(tied)
            np.put_along_axis(kept_ties, by_id, rank <= n_ranks, axis=1)
        chosen[rows] &= ~tied | kept_ties
    return chosen


#: Lower half of a key, and the key of no entry: minus infinity with the id -1.
_LOW = np.int64(2**32 - 1)
NO_KEY = (np.int64(~np.float32(np.inf).view(np.int32)) << 32) + _LOW


def keys_of_floats(values: npt.NDArray[Any], ids: Any) -> IntArray:
    """Return integers in the order of float32 values, then of falling ids; -0 counts as 0."""
    keys: IntArray = _in_order((values + np.float32(0)).view(np.int32)).astype(np.int64)
    keys <<= 32
    keys += _LOW - 1
    keys -= ids
    return keys


def largest_keys(keys: IntArray, n: int) -> tuple[npt.NDArray[Any], IntArray]:
    """Return values and ids of the n largest keys of each row, largest first."""
    best = np.sort(keys, axis=1)[:, : -n - 1 : -1]
    return _in_order((best >> 32).astype(np.int32)).view(np.float32), _LOW - 1 - (best & _LOW)


def _in_order(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert bits of floats to integers in the order of the floats, or back, in place."""
    bits ^= bits >> 31 & np.int32(2**31 - 1)
    return bits


def rank_stored(data: npt.NDArray[Any], indptr: npt.NDArray[Any], k: int) -> IntArray:
    """Find the best k stored entries of every row of a CSR matrix.

    Parameters
    ----------
    data : ndarray of shape (n_entries,)
        Scores without NaN, in the order of the column ids, as in canonical CSR.
    indptr : ndarray of shape (n_rows + 1,)
        Row i holds ``data[indptr[i]:indptr[i + 1]]``.
    k : int
        Number of entries.

    Returns
    -------
    ndarray of shape (n_rows, k), int64
        Positions in `data`, best first, ties in the order of `data`; -1 if a row has fewer entries.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._ranking import rank_stored
    >>> rank_stored(np.array([1.0, 2.0, 2.0, 5.0]), np.array([0, 3, 3, 4]), k=2)
    array([[ 1,  2],
           [-1, -1],
           [ 3, -1]])
    """
    rows = row_numbers(indptr)
    order = np.lexsort((-data, rows))  # stable: equal scores stay in the order of ids
    rank = np.arange(len(data)) - indptr[rows]
    kept = rank < k
    best = np.full((len(indptr) - 1, k), -1, dtype=np.int64)
    best[rows[kept], rank[kept]] = order[kept]
    return best


def lists_as_csr(scores: Any, ids: IntArray, n_columns: int) -> sp.csr_matrix:
    """Return lists of equal lengths as the rows of a matrix, in the order of its columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._ranking import lists_as_csr
    >>> lists_as_csr(np.array([[0.9, 0.5]]), np.array([[2, 0]]), 3).toarray()
    array([[0.5, 0. , 0.9]])
    """
    indptr = np.arange(len(ids) + 1) * ids.shape[1]
    found = sp.csr_matrix((scores.ravel(), ids.ravel(), indptr), shape=(len(ids), n_columns))
    found.sort_indices()
    return found


def ranked_candidates(
    scores: npt.NDArray[Any], labels: npt.NDArray[Any] | None, width: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return scores and labels of the `width` best candidates, best first."""
    if labels is None:
        return rank_rows(scores, width)
    return scores[:, :width], labels[:, :width]


def find_hits(labels: npt.NDArray[Any], Y: Any) -> BoolArray:
    """Return the mask of the candidates that are true labels, in the shape of `labels`."""
    return find_entries(Y, np.arange(len(labels))[:, None], labels) >= 0
