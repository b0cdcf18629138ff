"""Bags of rows: where each bag's rows are, and the labels and weights that belong to bags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import is_indicator
from sklearn_xlc.groups._groups import check_groups, group_labels, row_of


class Grouped(NamedTuple):
    """Rows and what says which bags they are in, on their way through methods that take rows."""

    rows: Any
    groups: Any


@dataclass(frozen=True)
class BagIndex:
    """Rows of bag 0, then of bag 1, and so on.

    Parameters
    ----------
    rows : ndarray of shape (n_memberships,)
        Ascending within a bag.
    indptr : ndarray of shape (n_bags + 1,)
        Bag i owns ``rows[indptr[i]:indptr[i + 1]]``, at least one.
    bag_of : ndarray of shape (n_rows,) or None
        Bag of each row; None where a row may be in any number of bags.
    n_rows : int
    """

    rows: np.ndarray
    indptr: np.ndarray
    bag_of: np.ndarray | None
    n_rows: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def gather(self, X: Any) -> Any:
        """X bag after bag; X itself if it is so already."""
        in_order = len(self.rows) == self.n_rows and (np.diff(self.rows) == 1).all()
        return X if in_order else X[self.rows]

    def is_per_row(self, n_values: int, name: str) -> bool:
        """Whether so many values are one for each row, rather than one for each bag."""
        if self.bag_of is not None and n_values == self.n_rows:
            return True
        if n_values == len(self):
            return False
        rows = f"{self.n_rows} (the rows of X) or " if self.bag_of is not None else ""
        raise ValueError(f"{name} must have length {rows}{len(self)} (the bags), got {n_values}")

    def per_bag(self, values: Any, name: str) -> Any:
        """One value, or row of a CSR matrix, for each bag; rows of a bag must agree."""
        if not self.is_per_row(values.shape[0], name):
            return values
        assert self.bag_of is not None
        if sp.issparse(values):
            membership = sp.csr_array((self.n_rows, len(self)), dtype=np.int8)
            return group_labels(sp.csr_array(values), membership, self.bag_of, name)
        first = self.rows[self.indptr[:-1]]
        differs = np.flatnonzero(values != values[first][self.bag_of])
        if len(differs):
            row, other = differs[0], first[self.bag_of[differs[0]]]
            raise ValueError(
                f"{name} must be the same in all rows of a bag, but row {row} has {values[row]} "
                f"and row {other} of the same bag has {values[other]}"
            )
        return values[first]


def bag_index(groups: Any, n_rows: int) -> BagIndex:
    """Bags of ids, of a membership matrix, or (None) of one row each.

    Raises
    ------
    ValueError
        If groups is not valid, or a bag has no row.
    """
    membership, bag_of = check_groups(groups, n_rows)
    members = membership.tocsc()
    empty = np.flatnonzero(np.diff(members.indptr) == 0)
    if len(empty):
        raise ValueError(
            f"column {empty[0]} of groups is a bag without rows; every bag needs at least one"
        )
    return BagIndex(
        members.indices.astype(np.int64), members.indptr.astype(np.int64), bag_of, n_rows
    )


def split_counts(y: Any) -> tuple[Any, sp.csr_matrix | None]:
    """Indicator of a y that counts labels, and the counts; any other y as it is, and None.

    Raises
    ------
    ValueError
        If y holds numbers above one, and also negative or fractional ones.
    """
    if y is None or not is_indicator(y):
        return y, None
    matrix = y if sp.issparse(y) else np.asarray(y)
    if matrix.dtype.kind not in "iuf":
        return y, None
    counts = sp.csr_matrix(matrix)
    if not (counts.data > 1).any():
        return y, None
    wrong = np.flatnonzero(
        ~np.isfinite(counts.data) | (counts.data < 0) | (counts.data != np.floor(counts.data))
    )
    if len(wrong):
        raise ValueError(
            "y must hold how often labels occur, whole numbers from 0 on, but row "
            f"{row_of(counts, wrong[0])} holds {counts.data[wrong[0]]}"
        )
    counts = counts.astype(np.int64)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    indicator = counts.astype(bool).astype(np.int8)
    return (indicator if sp.issparse(y) else indicator.toarray()), counts


def repeat_labels(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Indicator that stores an entry as often as `counts` says: ragged lists with repetitions."""
    ends = np.concatenate([[0], np.cumsum(counts.data)])[counts.indptr]
    indices = np.repeat(counts.indices, counts.data)
    return sp.csr_matrix((np.ones(len(indices), dtype=np.int8), indices, ends), shape=counts.shape)


def check_counts(counts: sp.csr_matrix, bags: BagIndex) -> sp.csr_matrix:
    """Refuse a label that occurs in a bag more often than the bag has rows."""
    wrong = np.flatnonzero(counts.data > _sizes(counts, bags))
    if len(wrong):
        bag, label = row_of(counts, wrong[0]), counts.indices[wrong[0]]
        first, last = bags.indptr[bag : bag + 2]
        raise ValueError(
            f"y says that label {label} occurs {counts.data[wrong[0]]} times in the bag of row "
            f"{bags.rows[first]}, which has {last - first} row(s); an instance has a label or has "
            "it not. For numbers with another meaning set multiplicity='ignore'"
        )
    return counts


def capped(counts: sp.csr_matrix, bags: BagIndex) -> sp.csr_matrix:
    """Counts of at most the number of rows of the bag."""
    data = np.minimum(counts.data, _sizes(counts, bags))
    return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def _sizes(counts: sp.csr_matrix, bags: BagIndex) -> np.ndarray:
    """Number of rows of the bag that each stored count is of."""
    return np.repeat(np.diff(bags.indptr), np.diff(counts.indptr))
