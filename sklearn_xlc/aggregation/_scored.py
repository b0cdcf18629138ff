"""Assignment by scores of (row, label) pairs that somebody else has computed."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklearn_xlc.aggregation._assignment import best_of_segments, joined, next_best
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, IntArray, Pairs, make_pairs

#: Pairs of a row and a label that are looked at together.
BLOCK = 2**22


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
        If `scores` lacks a pair, or holds NaN for one.

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
    columns = sparse.csc_array(scores)
    columns.sort_indices()
    parts = [
        _assign_range(data, columns, use_counts, totals, first, last)
        for first, last in _label_ranges(data)
    ]
    return joined(data, parts)


def _label_ranges(data: Aggregation) -> list[tuple[int, int]]:
    """Ranges of labels of about `BLOCK` pairs each."""
    block = np.cumsum(data.per_label(data.sizes)) // BLOCK
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    return [(int(a), int(b)) for a, b in zip(starts, [*starts[1:], data.n_labels])]


def _assign_range(
    data: Aggregation,
    columns: sparse.csc_array,
    use_counts: bool,
    totals: FloatArray | None,
    first: int,
    last: int,
) -> tuple[IntArray, IntArray]:
    """Rows and labels assigned in a range of labels."""
    pairs = make_pairs(data, first, last)
    values = _values_of_pairs(pairs, columns[:, first:last])
    # Only their order matters; places in it are a whole number apart, however close scores are.
    places = np.unique(values, return_inverse=True)[1].astype(np.float64)
    chosen = best_of_segments(pairs, places, pairs.counts if use_counts else None)
    if totals is not None:
        chosen |= next_best(pairs, places, chosen, totals[first:last])
    return pairs.rows[chosen], pairs.labels[chosen] + first


def _values_of_pairs(pairs: Pairs, columns: sparse.csc_array) -> FloatArray:
    """The stored score of each pair."""
    n_rows = columns.shape[0]
    labels = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
    stored, wanted = labels * n_rows + columns.indices, pairs.labels * n_rows + pairs.rows
    place = np.searchsorted(stored, wanted)
    known = place < len(stored)
    known[known] = stored[place[known]] == wanted[known]
    known[known] = ~np.isnan(columns.data[place[known]])
    if not known.all():
        pair = int(known.argmin())
        raise ValueError(
            "scores must hold a number for each label of each row's groups, but has none for label "
            f"{pairs.first + pairs.labels[pair]} of row {pairs.rows[pair]}"
        )
    return columns.data[place]
