"""Groups with labels, and the possible (sample, label) pairs of each group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr, check_equal, check_sparse
from sklearn_xlc._csr import (
    IntArray,
    canonical,
    find_entries,
    kept_entries,
    row_numbers,
    uneven_blocks,
)
from sklearn_xlc.groups import Groups, check_groups

FloatArray = npt.NDArray[Any]

#: Approximate number of (sample, label) pairs in a block of labels with given scores.
BLOCK = 2**22


@dataclass(frozen=True)
class Aggregation:
    """Groups of samples and the labels of the groups.

    Build it with :func:`aggregation`, which drops the labels of groups without samples: no sample
    could carry them.

    Parameters
    ----------
    groups : Groups
        Samples of each group.
    labels : canonical csc_array of shape (n_groups, n_labels) and dtype float64
        How often each group holds each label.
    """

    groups: Groups
    labels: sp.csc_array

    @property
    def n_labels(self) -> int:
        return int(self.labels.shape[1])

    @cached_property
    def n_pairs(self) -> IntArray:
        """Number of pairs of each label, of shape (n_labels,)."""
        return self.per_label(self.groups.sizes)

    def of_groups(self, mask: npt.NDArray[np.bool_]) -> Aggregation:
        """Keep only the labels of the groups in `mask`; all groups stay."""
        return replace(self, labels=kept_entries(self.labels, mask[self.labels.indices]))

    def per_label(self, of_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum a quantity over the groups of each label."""
        none = np.zeros(1, of_group.dtype)
        cumulated = np.concatenate([none, np.cumsum(of_group[self.labels.indices])])
        return np.diff(cumulated[self.labels.indptr])

    @cached_property
    def signatures(self) -> npt.NDArray[np.uint64]:
        """Hash of each label's groups; labels with the same groups have the same hash."""
        n_groups = len(self.groups)
        words = np.random.default_rng(0).integers(2**64, size=n_groups, dtype=np.uint64)
        return self.per_label(words)

    @cached_property
    def n_identical_before(self) -> IntArray:
        """Number of labels with a smaller id and the same groups."""
        order = np.argsort(self.signatures, kind="stable")
        ordered = self.signatures[order]
        before = np.empty(len(order), dtype=np.int64)
        before[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        return before


def aggregation(groups: Any, group_labels: Any) -> Aggregation:
    """Join groups and their labels.

    Parameters
    ----------
    groups : Groups, or {array-like, sparse matrix} of shape (n_samples, n_groups)
        Groups as returned by :func:`~sklearn_xlc.groups.check_groups`, or a 0/1 membership matrix.
    group_labels : {array-like, sparse matrix} of shape (n_groups, n_labels)
        Labels of the groups; a number above 1 says how often the group holds the label.

    Returns
    -------
    Aggregation
        Groups and labels.

    Raises
    ------
    ValueError
        If `groups` is not valid, or `group_labels` has another number of rows.

    Examples
    --------
    >>> from sklearn_xlc.aggregation import aggregation
    >>> data = aggregation([[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 1]])
    >>> data.groups.sizes, data.labels.indices
    (array([2, 1]), array([0, 1, 1], dtype=int32))
    """
    if not isinstance(groups, Groups):
        membership = check_csr(groups, "groups")
        groups = check_groups(membership, membership.shape[0])
    labels = sp.csc_array(check_csr(group_labels, "group_labels"))
    check_equal("groups", groups=len(groups), group_labels=labels.shape[0])
    data = Aggregation(groups, canonical(labels).astype(np.float64))
    return data if groups.sizes.all() else data.of_groups(groups.sizes > 0)


def check_samples(X: Any, data: Aggregation) -> Any:
    """Validate X: one row per sample; the arrays of a sparse matrix are consistent.

    Raises
    ------
    ValueError
        If X is a corrupt sparse matrix, or its number of rows is not the number of samples.
    """
    check_equal("samples", X=X.shape[0], groups=data.groups.n_samples)
    return check_sparse(X, "X") if sp.issparse(X) else X


@dataclass(frozen=True)
class Pairs:
    """All (sample, label) pairs of a range of labels, label by label and group by group.

    A *segment* holds the pairs of one (group, label): the samples that may carry the label.
    """

    first: int  # label 0 of this block is label `first` of the data
    samples: IntArray  # (n_pairs,)
    labels: IntArray  # (n_pairs,), counted from `first`
    indptr: IntArray  # (n_labels + 1,): pairs of each label
    segments: IntArray  # (n_segments,): first pair of each segment
    segment_of: IntArray  # (n_pairs,)
    label_of_segment: IntArray  # (n_segments,)
    counts: FloatArray  # (n_segments,)
    overlap: bool  # whether a (sample, label) may occur in several segments

    @property
    def n_labels(self) -> int:
        return len(self.indptr) - 1

    def once(self, which: IntArray) -> IntArray:
        """Drop repeated (sample, label) from the positions of some pairs."""
        if not self.overlap or not len(which):
            return which
        keys = self.labels[which] * (int(self.samples.max()) + 1) + self.samples[which]
        return which[np.sort(np.unique(keys, return_index=True)[1])]

    def label_sum(self, values: FloatArray) -> FloatArray:
        """Sum over the pairs of each label in double precision; of shape (n_labels,)."""
        total = np.bincount(self.labels, values, minlength=self.n_labels)
        return total.astype(np.float64, copy=False)  # an empty sum is an integer

    def segment_sum(self, values: FloatArray) -> FloatArray:
        """Sum over each segment; of shape (n_segments,)."""
        return np.add.reduceat(values, self.segments) if len(values) else values

    def segment_max(self, values: FloatArray) -> FloatArray:
        """Find the largest value of each segment; of shape (n_segments,)."""
        return np.maximum.reduceat(values, self.segments) if len(values) else values

    def weighting(self, weights: FloatArray) -> sp.csr_array:
        """Build a CSR matrix of shape (n_labels, n_pairs) for weighted sums by label."""
        parts = (weights, np.arange(len(weights)), self.indptr)
        return sp.csr_array(parts, shape=(self.n_labels, len(weights)))


def make_pairs(data: Aggregation, first: int, last: int) -> Pairs:
    """List the pairs of labels ``first, ..., last - 1``."""
    labels = data.labels[:, first:last]
    members = data.groups.take(labels.indices)
    label_of_segment = row_numbers(labels.indptr)
    return Pairs(
        first=first,
        samples=members.samples,
        labels=np.repeat(label_of_segment, members.sizes),
        indptr=members.indptr[labels.indptr],
        segments=members.indptr[:-1],
        segment_of=row_numbers(members.indptr),
        label_of_segment=label_of_segment,
        counts=labels.data,
        overlap=data.groups.overlap,
    )


def scored_columns(scores: Any, name: str) -> sp.csc_array:
    """Validate given scores; return canonical CSC, keeping stored zeros."""
    return canonical(sp.csc_array(check_csr(scores, name)), keep_zeros=True)


def scored_pairs(
    data: Aggregation, columns: sp.csc_array, name: str
) -> Iterator[tuple[Pairs, sp.csc_array, IntArray]]:
    """Yield the pairs of a range of labels, their columns, and each pair's entry in these."""
    for labels in uneven_blocks(data.n_pairs, BLOCK):
        pairs, part = make_pairs(data, labels.start, labels.stop), columns[:, labels]
        entries = find_entries(part.T, pairs.labels, pairs.samples)
        missing = np.isnan(np.append(part.data, np.nan)[entries])
        if missing.any():
            pair = int(missing.argmax())
            raise ValueError(
                f"{name} must hold a number for each label of each sample's groups, but has none "
                f"for label {pairs.first + pairs.labels[pair]} of row {pairs.samples[pair]}"
            )
        yield pairs, part, entries
