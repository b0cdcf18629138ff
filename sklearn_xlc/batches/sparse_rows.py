"""Batch of CSR rows, as tensors for encoders."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F

from sklearn_xlc.batches.prefetching import Movable

#: Columns per entry of a batch above which sorting entries is faster than counting by column.
_WIDE = 8


class Transpose(NamedTuple):
    """Batch by column: row i in CSR form belongs to column ``columns[i]`` of X."""

    columns: Tensor
    indptr: Tensor
    indices: Tensor
    data: Tensor


@dataclass
class SparseRows(Movable):
    """Batch of CSR rows.

    Parameters
    ----------
    indptr, indices, data : tensors of shape (n_samples + 1,), (nnz,), (nnz,)
        The rows in CSR form; `indices` are column numbers of X.
    n_features : int
        Number of columns of X.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sklearn_xlc.batches import SparseRows
    >>> rows = SparseRows.from_csr(sp.csr_matrix([[0, 2.0, 0], [1.0, 3.0, 0]]))
    >>> len(rows), rows.indices
    (2, tensor([1, 0, 1]))
    >>> rows.transpose.columns, rows.transpose.indices
    (tensor([0, 1]), tensor([1, 0, 1]))
    """

    indptr: Tensor
    indices: Tensor
    data: Tensor
    n_features: int

    def __post_init__(self) -> None:
        # Makes the transposes of the batches cut at once, once; and the position of this one.
        self._together: Callable[[], list[Transpose]] | None = None
        self._number = 0
        #: Whether the columns of the transpose are in order.
        self.is_ordered = True

    @classmethod
    def from_csr(cls, X: Any) -> SparseRows:
        """Convert a SciPy sparse matrix to tensors, sharing memory if dtypes allow."""
        X = sp.csr_matrix(X)
        return cls(
            indptr=torch.from_numpy(X.indptr.astype(np.int64)),
            indices=torch.from_numpy(X.indices.astype(np.int64)),
            data=torch.from_numpy(X.data),
            n_features=X.shape[1],
        )

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def through(self, layer: Any) -> Tensor:
        """Return the outputs of an input layer (:class:`sklearn_xlc.encoders.mlp.InputLinear`)."""
        return layer.of_rows(self)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        """Copy the rows, and the transpose if it is cached; else it is made of the copy."""
        rows = super()._changed(change)
        rows._together = None
        return rows

    def with_data(self, change: Callable[[Tensor, Tensor], Tensor]) -> SparseRows:
        """Return rows with ``change(data, columns)`` in place of the data."""

        def transposed() -> list[Transpose]:
            by_column = self.transpose
            columns = by_column.columns.repeat_interleave(by_column.indptr.diff())
            return [by_column._replace(data=change(by_column.data, columns))]

        rows = SparseRows(
            self.indptr, self.indices, change(self.data, self.indices), self.n_features
        )
        rows._together = transposed
        return rows

    def renumbered(self, numbers: Tensor, n_features: int) -> SparseRows:
        """Return rows with ``numbers[columns]`` in place of the columns."""

        def transposed() -> list[Transpose]:
            by_column = self.transpose
            return [by_column._replace(columns=numbers[by_column.columns].long())]

        rows = SparseRows(self.indptr, numbers[self.indices].long(), self.data, n_features)
        rows._together, rows.is_ordered = transposed, False
        return rows

    def split(self, sizes: Sequence[int]) -> list[SparseRows]:
        """Split into batches of these sizes, sharing memory.

        The batches are transposed together.
        """
        edges = [0, *accumulate(sizes)]
        starts = self.indptr[edges].tolist()
        together = functools.cache(lambda: _transposes(self, edges))
        parts = [
            SparseRows(
                self.indptr[a : b + 1] - first,
                self.indices[first:last],
                self.data[first:last],
                self.n_features,
            )
            for a, b, first, last in zip(edges, edges[1:], starts, starts[1:])
        ]
        for number, part in enumerate(parts):
            part._together, part._number = together, number
        return parts

    @cached_property
    def transpose(self) -> Transpose:
        """Batch by column, for the backward pass; computed once, on first access."""
        if self._together is None:
            return _transposes(self, [0, len(self)])[0]
        return self._together()[self._number]

    def transpose_now(self) -> None:
        """Compute and cache the transpose, also for copies."""
        self.transpose  # noqa: B018


def _transposes(rows: SparseRows, edges: Sequence[int]) -> list[Transpose]:
    """Transpose consecutive batches, cut at once, together."""
    by_column = _transposed(rows, edges)
    shifts = torch.arange(len(edges), device=by_column.columns.device) * rows.n_features
    columns = torch.searchsorted(by_column.columns, shifts).tolist()
    entries = by_column.indptr[columns].tolist()
    bounds = zip(edges, columns, columns[1:], entries, entries[1:])
    return [
        Transpose(
            by_column.columns[a:b] - number * rows.n_features,
            by_column.indptr[a : b + 1] - first,
            by_column.indices[first:last] - first_row,
            by_column.data[first:last],
        )
        for number, (first_row, a, b, first, last) in enumerate(bounds)
    ]


def _transposed(rows: SparseRows, edges: Sequence[int]) -> Transpose:
    """Transpose rows batch by batch, as if each batch had columns of its own."""
    n_columns = (len(edges) - 1) * rows.n_features
    if rows.indices.is_cpu and n_columns <= _WIDE * len(rows.indices):
        return _by_counting(rows, edges, n_columns)
    device, n_entries = rows.indices.device, len(rows.indices)
    sizes = rows.indptr[torch.as_tensor(edges, device=device)].diff()
    shifts = torch.repeat_interleave(sizes, output_size=n_entries) * rows.n_features
    # The time does not depend on the number of columns.
    column_of_entry, order = stable_sort(rows.indices + shifts)
    columns, counts = torch.unique_consecutive(column_of_entry, return_counts=True)
    indptr = F.pad(counts.cumsum(0), (1, 0))
    row_of_entry = torch.repeat_interleave(rows.indptr.diff(), output_size=n_entries)
    return Transpose(columns, indptr, row_of_entry[order], rows.data[order])


def _by_counting(rows: SparseRows, edges: Sequence[int], n_columns: int) -> Transpose:
    """Transpose by counting the entries of each column with SciPy, faster in 32 bits."""
    n_entries, indptr = len(rows.indices), rows.indptr.numpy()
    dtype: Any = np.int32 if max(n_columns, n_entries) < 2**31 else np.int64
    shifts = np.arange(len(edges) - 1, dtype=dtype) * rows.n_features
    indices: Any = rows.indices.numpy().astype(dtype)
    indices += np.repeat(shifts, np.diff(indptr[list(edges)]))
    parts = (rows.data.numpy(), indices, indptr.astype(dtype))
    by_column = sp.csr_matrix(parts, shape=(len(rows), n_columns)).tocsc()
    del indices, parts
    columns = np.flatnonzero(np.diff(by_column.indptr))
    return Transpose(
        torch.from_numpy(columns),
        torch.from_numpy(np.append(by_column.indptr[columns], n_entries).astype(np.int64)),
        torch.from_numpy(by_column.indices.astype(np.int64)),
        torch.from_numpy(by_column.data),
    )


def products(rows: SparseRows | Transpose, weight: Tensor) -> Tensor:
    """Multiply CSR rows with weights: one bag per row sums the weights of its entries."""
    # Not that of torch.nn.functional, whose checks take longer than a small kernel.
    bags = rows.indices, rows.indptr, False, 0, False, rows.data, True
    return torch.embedding_bag(weight, *bags)[0]


def lengthened(table: Tensor, n_rows: int) -> Tensor:
    """Return a table with more rows, of zeros; it has memory for a quarter more.

    As long as that lasts, the result is the table itself with a larger shape.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.batches.sparse_rows import lengthened
    >>> table = lengthened(torch.ones(4, 2), 8)
    >>> lengthened(table, 10).data_ptr() == table.data_ptr()
    True
    """
    if bytes_to_lengthen(table, n_rows):
        longer = table.new_zeros(n_rows + n_rows // 4, *table.shape[1:])
        longer[: len(table)] = table
        table = longer
    return table.as_strided((n_rows, *table.shape[1:]), table.stride())


def bytes_to_lengthen(table: Tensor, n_rows: int) -> int:
    """Return the bytes that :func:`lengthened` allocates."""
    row_bytes = table[:1].numel() * table.element_size()
    is_within = n_rows * row_bytes <= table.untyped_storage().nbytes()
    return 0 if is_within else (n_rows + n_rows // 4) * row_bytes


def sparse_gradient(
    rows: Tensor, values: Tensor, shape: tuple[int, ...], distinct: bool = False
) -> Tensor:
    """Return a tensor of that shape with some rows, `values`; the others are zero.

    `distinct` says that no row is given twice, and that they are in order.
    """
    _spend_warning()
    return torch.sparse_coo_tensor(
        rows[None], values, shape, is_coalesced=distinct or None, check_invariants=False
    )


@functools.cache
def _spend_warning() -> None:
    """Spend the only warning of a process that checks of sparse tensors are off.

    Torch 2.11 and 2.12 give it whatever `check_invariants` is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = torch.zeros(1, 0)
        torch.sparse_coo_tensor(none.long(), none[0], (1,), check_invariants=False)


def stable_sort(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort int64 (n,) in [0, 2**63 / (2 n)) stably; return them and their former positions."""
    # One sort of joint keys (integer, position) is several times faster than torch's stable sort.
    n_bits = len(values).bit_length()
    keys = (values << n_bits) + torch.arange(len(values), device=values.device)
    keys = torch.from_numpy(np.sort(keys.numpy())) if keys.is_cpu else keys.sort().values
    values = keys >> n_bits
    return values, keys - (values << n_bits)
