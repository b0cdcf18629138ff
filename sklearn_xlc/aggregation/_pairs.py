"""Groups, labels, and the (row, label) pairs between which a group leaves the choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Aggregation:
    """Who is in which group, and which labels a group has.

    Build it with :func:`aggregation`. Labels of groups without a row are left out: nobody could
    carry them.
    """

    rows: IntArray  # members of group 0, then of group 1, ...; ascending inside a group
    row_ends: IntArray  # (n_groups + 1,)
    groups: IntArray  # groups of label 0, then of label 1, ...; ascending inside a label
    group_ends: IntArray  # (n_labels + 1,)
    counts: FloatArray  # how often the group holds the label, beside `groups`
    n_rows: int

    @property
    def n_labels(self) -> int:
        return len(self.group_ends) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each group."""
        return np.diff(self.row_ends)

    @cached_property
    def overlapping(self) -> bool:
        """Whether a row is in several groups."""
        return len(self.rows) > 0 and bool(np.bincount(self.rows).max() > 1)

    def of_groups(self, mask: npt.NDArray[Any]) -> Aggregation:
        """The same with the labels of some groups only."""
        kept = mask[self.groups]
        ends = np.concatenate([[0], np.cumsum(kept)])[self.group_ends]
        return replace(self, groups=self.groups[kept], group_ends=ends, counts=self.counts[kept])

    def per_label(self, of_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum of a quantity of groups over the groups of each label."""
        cumulated = np.concatenate([[0], np.cumsum(of_group[self.groups])])
        return cumulated[self.group_ends[1:]] - cumulated[self.group_ends[:-1]]

    @cached_property
    def signatures(self) -> npt.NDArray[np.uint64]:
        """A number for each label that labels share if they have the same groups."""
        words = np.random.default_rng(0).integers(2**64, size=len(self.sizes), dtype=np.uint64)
        cumulated = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words[self.groups])])
        return cumulated[self.group_ends[1:]] - cumulated[self.group_ends[:-1]]

    @cached_property
    def twins_before(self) -> IntArray:
        """Number of labels of smaller id that have the same groups."""
        order = np.argsort(self.signatures, kind="stable")
        ordered = self.signatures[order]
        place = np.arange(len(order))
        first = np.ones(len(order), dtype=bool)
        first[1:] = ordered[1:] != ordered[:-1]
        before = np.empty(len(order), dtype=np.int64)
        before[order] = place - np.maximum.accumulate(np.where(first, place, 0))
        return before


def aggregation(membership: Any, group_labels: Any) -> Aggregation:
    """Aggregation from two matrices.

    Parameters
    ----------
    membership : {array-like, sparse matrix} of shape (n_samples, n_groups)
        Non-zero where the row is in the group; a row may be in any number of groups.
    group_labels : {array-like, sparse matrix} of shape (n_groups, n_labels)
        Labels of the groups; above 1, how often the group holds the label.

    Returns
    -------
    Aggregation
        Both, in the order in which the kernels read them.

    Examples
    --------
    >>> from sklearn_xlc.aggregation import aggregation
    >>> data = aggregation([[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 1]])
    >>> data.sizes, data.groups
    (array([2, 1]), array([0, 1, 1]))
    """
    members = _compressed(sparse.csc_array(membership))
    labels = _compressed(sparse.csc_array(group_labels))
    data = Aggregation(
        rows=members.indices.astype(np.int64),
        row_ends=members.indptr.astype(np.int64),
        groups=labels.indices.astype(np.int64),
        group_ends=labels.indptr.astype(np.int64),
        counts=labels.data.astype(np.float64),
        n_rows=members.shape[0],
    )
    return data if data.sizes.all() else data.of_groups(data.sizes > 0)


def _compressed(matrix: sparse.csc_array) -> sparse.csc_array:
    """The same with sorted, distinct indices and no stored zeros; the argument is left alone."""
    if not (matrix.has_canonical_format and matrix.data.all()):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


@dataclass(frozen=True)
class Pairs:
    """All (row, label) pairs of a range of labels, label by label and group by group.

    A *segment* is the pairs of one (group, label): the rows that may carry the label.
    """

    first: int  # label 0 of this block is label `first` of the data
    rows: IntArray  # (n_pairs,)
    labels: IntArray  # (n_pairs,), counted from `first`
    ends: IntArray  # (n_labels + 1,): pairs of each label
    segments: IntArray  # (n_segments,): first pair of each segment
    segment_of: IntArray  # (n_pairs,)
    label_of_segment: IntArray  # (n_segments,)
    counts: FloatArray  # (n_segments,)
    overlapping: bool  # whether a (row, label) may occur in several segments

    @property
    def n_labels(self) -> int:
        return len(self.ends) - 1

    def once(self, which: IntArray) -> IntArray:
        """One pair for each distinct (row, label) of some pairs."""
        if not self.overlapping or not len(which):
            return which
        keys = self.labels[which] * (int(self.rows.max()) + 1) + self.rows[which]
        return which[np.sort(np.unique(keys, return_index=True)[1])]

    def label_sum(self, values: FloatArray) -> FloatArray:
        """Sum over the pairs of each label, in double precision, of shape (n_labels,)."""
        total = np.bincount(self.labels, values, minlength=self.n_labels)
        return total.astype(np.float64, copy=False)  # of nothing it is an integer

    def segment_sum(self, values: FloatArray) -> FloatArray:
        """Sum over each segment, of shape (n_segments,)."""
        return np.add.reduceat(values, self.segments) if len(values) else values

    def segment_max(self, values: FloatArray) -> FloatArray:
        """Largest value of each segment, of shape (n_segments,)."""
        return np.maximum.reduceat(values, self.segments) if len(values) else values

    def weighting(self, weights: FloatArray) -> sparse.csr_array:
        """CSR of shape (n_labels, n_pairs): times anything of pairs, the weighted label sums."""
        parts = (weights, np.arange(len(weights)), self.ends)
        return sparse.csr_array(parts, shape=(self.n_labels, len(weights)))


def make_pairs(data: Aggregation, first: int, last: int) -> Pairs:
    """Pairs of the labels ``first, ..., last - 1``."""
    groups = data.groups[data.group_ends[first] : data.group_ends[last]]
    lengths = data.sizes[groups]
    segment_ends = np.concatenate([[0], np.cumsum(lengths)])
    place = np.arange(segment_ends[-1]) - np.repeat(segment_ends[:-1], lengths)
    label_ends = data.group_ends[first : last + 1] - data.group_ends[first]
    label_of_segment = np.repeat(np.arange(last - first), np.diff(label_ends))
    return Pairs(
        first=first,
        rows=data.rows[np.repeat(data.row_ends[groups], lengths) + place],
        labels=np.repeat(label_of_segment, lengths),
        ends=segment_ends[label_ends],
        segments=segment_ends[:-1],
        segment_of=np.repeat(np.arange(len(groups)), lengths),
        label_of_segment=label_of_segment,
        counts=data.counts[data.group_ends[first] : data.group_ends[last]],
        overlapping=data.overlapping,
    )
