"""Sums of rows of CSR matrices: shares of labels, and the numbers of pairs of sample and label."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import (
    BLOCK_ENTRIES,
    IntArray,
    find_entries,
    kept_entries,
    pointers_of,
    uneven_blocks,
)
from sklearn_xlc.ranking.base import Array, Retriever
from sklearn_xlc.ranking.search import find_pairs

#: Share of entries and number of rows from which on products with a dense table are faster, its
#: largest size, and its largest number of labels.
_DENSE, _MANY_ROWS, SMALL, _FEW_LABELS = 1 / 16, 64, 2**22, 2**12

#: Largest weight of a sample: millions of them have a sum in float32.
MOST_WEIGHT = 1e30


def suits_table(X: Any) -> bool:
    """Return whether products of many rows with a CSR matrix are faster if it is dense."""
    size = X.shape[0] * X.shape[1]
    return bool(size <= SMALL and X.shape[1] <= _FEW_LABELS and X.nnz >= _DENSE * size)


def product(left: Any, right: Any) -> Any:
    """Multiply CSR matrices; the same numbers as a dense matrix if that is faster.

    The terms of a sum have the same order.
    """
    is_dense = left.shape[0] >= _MANY_ROWS and suits_table(right)
    return left @ (right.toarray() if is_dense else right)


def weights_of_rows(present: Array, weights: Array, rows: IntArray, matrix: Any) -> Any:
    """Return CSR weights of the rows of a CSR matrix, for sums of those that are present.

    `rows`: the row of the matrix of each weight that is present, in order.
    """
    if rows.max(initial=-1) >= matrix.shape[0]:  # SciPy would read beyond the end
        raise IndexError(f"row {rows.max()} of a matrix of {matrix.shape[0]} rows")
    factors = weights[present], rows, pointers_of(present.sum(axis=1))
    return sp.csr_array(factors, shape=(len(weights), matrix.shape[0]))


def pattern(X: Any) -> Any:
    """Replace the entries of a CSR matrix by ones, float32."""
    return sp.csr_array((np.ones(X.nnz, np.float32), X.indices, X.indptr), shape=X.shape)


def weighted(X: Any, weights: Any) -> Any:
    """Multiply the columns of a CSR matrix by weights; in float32, sums stay finite."""
    if weights is not None:
        most = np.inf if X.dtype == np.float64 else MOST_WEIGHT
        X.data *= np.minimum(weights, most).astype(X.dtype)[X.indices]
    return X


def relative_weights(of_labels: Any, weights: Any) -> Any:
    """Weigh the samples of labels, relative to the largest weight of each label, in float64."""
    if weights is None:
        return of_labels
    of_labels = weighted(of_labels.astype(np.float64), weights)
    sizes = np.diff(of_labels.indptr)
    largest = np.maximum.reduceat(of_labels.data, of_labels.indptr[:-1][sizes > 0])
    of_labels.data /= np.repeat(np.where(largest > 0, largest, 1), sizes[sizes > 0])
    return of_labels


def weights_of_labels(Y: Any, sample_weight: Any) -> Array:
    """Return the weight of all samples with each label."""
    weights = np.ones(Y.shape[0]) if sample_weight is None else sample_weight
    weights = np.minimum(weights, 1e300)  # millions of them have a sum
    return np.bincount(Y.indices, np.repeat(weights, np.diff(Y.indptr)), Y.shape[1])


def scaled_rows(X: Any, factors: Array) -> Any:
    """Multiply the rows of a CSR matrix, or of an array, by factors."""
    if isinstance(X, np.ndarray):
        return X * factors[:, None].astype(X.dtype)
    data = X.data * np.repeat(factors, np.diff(X.indptr)).astype(X.dtype)
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def shares_of(has: Any, Y: Any, totals: Array, least: float) -> Any:
    """Return the product of two CSR matrices, rows divided by totals, without small entries."""
    sizes = pattern(has) @ np.diff(Y.indptr) + 1
    parts, Y = [], Y.astype(np.float32)
    for part in uneven_blocks(sizes.astype(np.int64), BLOCK_ENTRIES):
        counts = has[part] @ Y
        counts.data /= np.repeat(totals[part], np.diff(counts.indptr)).astype(np.float32)
        parts.append(kept_entries(counts, counts.data >= least).sorted_indices())
    return sp.vstack(parts, format="csr")


def numbers_at(found: Any, rows: IntArray, labels: IntArray) -> Array:
    """Return the entries of a matrix, or zeros for None, at pairs."""
    numbers = np.zeros((len(rows), 1), dtype=np.float32)
    if isinstance(found, np.ndarray):
        numbers[:, 0] = found[rows, labels]
    elif found is not None:
        entries, pairs = find_pairs(rows, labels, found.shape, found.indptr, found.indices)
        numbers[pairs, 0] = found.data[entries]
    return numbers


class OfShares(Retriever):
    """Base class of retrievers that know which share of the samples with a thing has a label.

    Attributes
    ----------
    shares_ : csr_array of shape (n_things, n_labels), or None
        Shares of the samples of the fit, float32, with `_more` further samples without labels for
        each thing. Those below `_least` are left out.
    counts_ : ndarray of shape (n_things,)
        Weights of the samples of the fit with each thing.
    later_ : csr_array of shape (n_things, n_labels), or None
        Weights of the later samples with each thing that have a label, float32. Those of a call
        that are a share below `_least`, where `shares_` has none, are left out.
    later_counts_ : ndarray of shape (n_things,), or None
        Weights of the later samples with each thing. A share is one of all samples with the thing.
    """

    refits = True
    _least: float
    _more: int
    shares_: Any = None
    later_: Any = None
    later_counts_: Any = None

    def _count(self, has: Any, Y: Any) -> Self:
        """Fit to samples; `has`: weight of each sample with a thing, (n_things, n_samples)."""
        self.counts_, self.later_, self.later_counts_ = has.sum(axis=1), None, None
        self.shares_ = self._used(shares_of(has, Y, self.counts_ + self._more, self._least))
        return self

    def _count_later(self, has: Any, Y: Any) -> Self:
        """Return a copy that knows later samples."""
        changed, counts = copy.copy(self), has.sum(axis=1)
        if self.later_ is not None:
            counts += self.later_counts_
        more = self._used((has @ Y.astype(np.float32)).sorted_indices())
        sizes = np.diff(more.indptr)
        things = np.flatnonzero(sizes)
        # Samples may come one by one: small shares count where the fit has one.
        places = np.repeat(np.arange(len(things)), sizes[things])
        of_fit = find_entries(self.shares_[things], places, more.indices)
        least = np.repeat(self._least * (self.counts_ + counts + self._more), sizes)
        more = kept_entries(more, (of_fit >= 0) | (more.data >= least))
        changed.later_ = more if self.later_ is None else self.later_ + more
        changed.later_counts_ = counts
        return changed

    def _used(self, of_things: Any) -> Any:
        """Return the entries that count: all of them."""
        return of_things

    def _sums(self, weights: Any) -> list[Any]:
        """Return weighted sums of the shares of things, of those of the fit and of later ones."""
        if self.later_ is None:
            return [product(weights, self.shares_)]
        things = weights.indices  # few of all, where one sample is ranked
        of_fit = self.counts_[things] + self._more
        of_all = of_fit + self.later_counts_[things]
        found = []
        for by, matrix in ((of_fit / of_all, self.shares_), (1 / of_all, self.later_)):
            entries = weights.data * by, things, weights.indptr
            found.append(product(sp.csr_array(entries, shape=weights.shape), matrix))
        return found

    def numbers(self, found: Any, rows: IntArray, labels: IntArray) -> Array:
        return np.sum([numbers_at(each, rows, labels) for each in found], axis=0)
