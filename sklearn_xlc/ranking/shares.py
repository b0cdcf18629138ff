"""Sums of rows of CSR matrices: shares of labels, and the numbers of pairs of sample and label."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import (
    BLOCK_ENTRIES,
    IntArray,
    kept_entries,
    pointers_of,
    uneven_blocks,
)
from sklearn_xlc.ranking.base import Array
from sklearn_xlc.ranking.search import find_pairs

#: Share of entries and number of rows from which on products with a dense table are faster, its
#: largest size, and its largest number of labels.
_DENSE, _MANY_ROWS, SMALL, _FEW_LABELS = 1 / 16, 64, 2**22, 2**12


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
    """Multiply the columns of a CSR matrix by weights."""
    if weights is not None:
        X.data *= np.asarray(weights, X.dtype)[X.indices]
    return X


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
