"""Assignment by scores of (row, label) pairs that somebody else has computed."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklearn_xlc.aggregation._assignment import best_of_segments, next_best
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, make_pairs


def assign_by_scores(
    data: Aggregation,
    scores: sparse.csr_array,
    *,
    use_counts: bool = False,
    totals: FloatArray | None = None,
) -> sparse.csr_array:
    """Labels of the rows, given those of their groups and a score for every pair left open.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    scores : csr_array of shape (n_samples, n_labels)
        Stores a score, greater is better, for each label of each row's groups.
    use_counts : bool, default=False
        Whether a label that the group holds c times goes to the c best rows.
    totals : ndarray of shape (n_labels,), default=None
        Each label goes on to further rows, the best ones first, until so many carry it.

    Returns
    -------
    csr_array of shape (n_samples, n_labels) and dtype int8
        Indicator of the labels of the rows.

    Raises
    ------
    ValueError
        If `scores` lacks a pair.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.aggregation import aggregation, assign_by_scores
    >>> data = aggregation([[1], [1], [1]], [[1, 1]])
    >>> scores = csr_array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    >>> assign_by_scores(data, scores, totals=np.array([2, 1])).toarray()
    array([[1, 0],
           [0, 1],
           [1, 0]], dtype=int8)
    """
    pairs = make_pairs(data, 0, data.n_labels)
    values = _values_of_pairs(pairs, scores)
    chosen = best_of_segments(pairs, values, pairs.counts if use_counts else None)
    if totals is not None:
        chosen |= next_best(pairs, values, chosen, totals)
    parts = (np.ones(chosen.sum(), dtype=np.int8), (pairs.rows[chosen], pairs.labels[chosen]))
    assigned = sparse.csr_array(parts, shape=scores.shape)
    assigned.sum_duplicates()
    assigned.data[:] = 1  # a row of several groups may have got the label in each
    return assigned


def _values_of_pairs(pairs: Pairs, scores: sparse.csr_array) -> FloatArray:
    """The stored score of each pair."""
    columns = sparse.csc_array(scores)
    columns.sort_indices()
    n_rows = scores.shape[0]
    labels = np.repeat(np.arange(scores.shape[1]), np.diff(columns.indptr))
    stored, wanted = labels * n_rows + columns.indices, pairs.labels * n_rows + pairs.rows
    place = np.searchsorted(stored, wanted)
    known = place < len(stored)
    known[known] = stored[place[known]] == wanted[known]
    if not known.all():
        pair = int(known.argmin())
        raise ValueError(
            f"scores must hold a value for each label of each row's groups, but has none for label "
            f"{pairs.labels[pair]} of row {pairs.rows[pair]}"
        )
    return columns.data[place]
