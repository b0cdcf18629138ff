"""Assignment of labels to samples by given scores."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr
from sklearn_xlc._csr import IntArray, canonical, find_entries, uneven_blocks
from sklearn_xlc.aggregation._assignment import best_of_segments, join_blocks, next_best
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, Pairs, make_pairs

#: Approximate number of (sample, label) pairs in a block of labels.
BLOCK = 2**22


def assign_by_scores(
    data: Aggregation,
    scores: sp.csr_matrix,
    *,
    use_counts: bool = False,
    totals: FloatArray | None = None,
) -> sp.csr_matrix:
    """Assign the labels of groups to their samples, by scores of the possible pairs.

    Parameters
    ----------
    data : Aggregation
        Groups and their labels.
    scores : CSR matrix of shape (n_samples, n_labels)
        Scores, the greater the better; one stored entry for each label of each sample's groups.
    use_counts : bool, default=False
        Whether a label that occurs c times in a group goes to the c best samples.
    totals : ndarray of shape (n_labels,), default=None
        Number of samples that should carry each label: the label goes to further samples, the best
        first, until this number is reached. None: no further samples.

    Returns
    -------
    csr_matrix of shape (n_samples, n_labels) and dtype int8
        Indicator of the labels of the samples.

    Raises
    ------
    ValueError
        If the score of a pair is missing or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.aggregation import aggregation, assign_by_scores
    >>> data = aggregation([[1], [1], [1]], [[1, 1]])
    >>> scores = csr_matrix([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    >>> assign_by_scores(data, scores, totals=np.array([2, 1])).toarray()
    array([[1, 0],
           [0, 1],
           [1, 0]], dtype=int8)
    """
    columns = canonical(sp.csc_array(check_csr(scores, "scores")), keep_zeros=True)
    parts = [
        _assign_range(data, columns, use_counts, totals, labels.start, labels.stop)
        for labels in uneven_blocks(data.n_pairs, BLOCK)
    ]
    return join_blocks(data, parts)


def _assign_range(
    data: Aggregation,
    columns: sp.csc_array,
    use_counts: bool,
    totals: FloatArray | None,
    first: int,
    last: int,
) -> tuple[IntArray, IntArray]:
    """Samples and labels assigned in a range of labels."""
    pairs = make_pairs(data, first, last)
    columns = columns[:, first:last]
    values = columns.data[entries_of_pairs(pairs, columns)]
    # Only the order matters; ranks are a whole number apart, however close the scores are.
    ranks = np.unique(values, return_inverse=True)[1].astype(np.float64)
    chosen = best_of_segments(pairs, ranks, pairs.counts if use_counts else None)
    if totals is not None:
        chosen |= next_best(pairs, ranks, chosen, totals[first:last])
    return pairs.samples[chosen], pairs.labels[chosen] + first


def entries_of_pairs(pairs: Pairs, columns: sp.csc_array, name: str = "scores") -> IntArray:
    """Position of each pair's entry in the data of the columns of these labels."""
    positions = find_entries(columns.T, pairs.labels, pairs.samples)
    missing = np.isnan(np.append(columns.data, np.nan)[positions])
    if missing.any():
        pair = int(missing.argmax())
        raise ValueError(
            f"{name} must hold a number for each label of each sample's groups, but has none for "
            f"label {pairs.first + pairs.labels[pair]} of row {pairs.samples[pair]}"
        )
    return positions
