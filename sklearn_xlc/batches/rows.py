"""Batches cut from arrays; sparse rows stay sparse, labels stay ragged."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sklearn_xlc._csr import (
    FEW_ENTRIES,
    SPARSE_SHARE,
    is_mostly_zeros,
    joined_ranges,
    occurring_columns,
    pointers_of,
    row_blocks,
    row_lengths,
)
from sklearn_xlc.batches.bags import Bags, instances_of
from sklearn_xlc.batches.order import fetched, is_by_blocks, is_mapped, regrouped, shuffled
from sklearn_xlc.batches.prefetching import Movable, prefetched, prepares_ahead
from sklearn_xlc.batches.randomness import Generators, is_ours
from sklearn_xlc.batches.samples import Columns, collate
from sklearn_xlc.batches.sparse_rows import SparseRows
from sklearn_xlc.batches.targets import Targets

#: Numbers or stored entries of X cut at once, for several batches; each takes 50 bytes with the
#: transpose. Fewer for a mapped file, to save memory.
_ENTRIES_AT_ONCE, _ENTRIES_OF_FILE = 90_000, 48_000


@dataclass
class Rows:
    """Samples with their labels and weights, if known.

    Parameters
    ----------
    X : CSR matrix or ndarray of shape (n_samples, n_features), ndarray of str, or Columns
        Samples; with `bags`, instances.
    Y : CSR matrix of shape (n_samples, n_labels), default=None
        Indicator of the positions of the labels.
    sample_weight : ndarray of shape (n_samples,), default=None
        Weights in the loss; heads expect a mean of one over all samples of a fit.
    sparse : bool, default=False
        Whether `collate` receives CSR rather than dense rows. A dense X is converted once.
    bags : ndarray of shape (n_samples + 1,), default=None
        Sample i is the bag of instances ``X[bags[i]:bags[i + 1]]``, at least one.
    collate : callable, default=None
        Function that converts the samples of a batch to the encoder's inputs. None:
        :func:`~sklearn_xlc.batches.collate`, for several batches at once.
    members : ndarray of shape (n_samples,), default=None
        Sample i is row ``members[i]`` of X. None: its row i.
    ids : ndarray of shape (n_samples,), default=None
        Ids of the samples, if known.
    texts : ndarray of str of shape (n_samples,), default=None
        The samples as they came, where X has been made of them.
    """

    X: Any
    Y: Any = None
    sample_weight: np.ndarray | None = None
    sparse: bool = False
    bags: np.ndarray | None = None
    collate: Callable[[Any], Any] | None = None
    members: np.ndarray | None = None
    ids: np.ndarray | None = None
    texts: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.sparse and not (sp.issparse(self.X) and self.X.format == "csr"):
            self.X = sp.csr_matrix(self.X) if sp.issparse(self.X) else _csr_of_dense(self.X)

    def __len__(self) -> int:
        return self.n_instances if self.bags is None else len(self.bags) - 1

    @property
    def n_instances(self) -> int:
        """Number of rows of X used by the samples."""
        return self.X.shape[0] if self.members is None else len(self.members)

    def take(self, index: np.ndarray | slice) -> Rows:
        """Copy the samples of `index`."""
        bags = None if self.bags is None else pointers_of(row_lengths(self.bags, index))
        X = self.X[self.positions(index)]
        return replace(self._beside(index), X=X, bags=bags, members=None)

    def positions(self, index: Any) -> Any:
        """Return the rows of X used by the samples of `index`."""
        if self.bags is not None:
            return joined_ranges(self.bags[:-1][index], row_lengths(self.bags, index))
        return index if self.members is None else self.members[index]

    def select(self, index: np.ndarray) -> Rows:
        """Select the samples of `index` without copying rows of a CSR matrix."""
        if self.bags is not None or not sp.issparse(self.X):
            return self.take(index)
        return replace(self._beside(index), members=self.positions(index))

    def _beside(self, index: np.ndarray | slice) -> Rows:
        """Keep X, and take labels, weights and ids of the samples of `index`."""
        return replace(
            self,
            Y=None if self.Y is None else self.Y[index],
            sample_weight=None if self.sample_weight is None else self.sample_weight[index],
            ids=None if self.ids is None else self.ids[index],
            texts=None if self.texts is None else self.texts[index],
        )

    def without_labels(self) -> Rows:
        """Drop labels and weights."""
        return replace(self, Y=None, sample_weight=None)

    def targets(self, index: np.ndarray | None = None) -> tuple[Any, Any]:
        """Return targets and weights of the samples of `index`, or of all; None if unknown."""
        rows = self if index is None else self._beside(index)
        targets, Y, weight = None, rows.Y, rows.sample_weight
        if Y is not None:
            indptr = torch.from_numpy(Y.indptr.astype(np.int64))
            values = torch.from_numpy(Y.data) if Y.dtype.kind == "f" else None
            targets = Targets(indptr, torch.from_numpy(Y.indices.astype(np.int64)), values)
        return targets, None if weight is None else torch.from_numpy(weight)

    def is_mapped(self) -> bool:
        """Return whether X is mapped from a file."""
        return is_mapped(self.X.data if sp.issparse(self.X) else self.X)

    def is_mostly_zeros(self) -> bool:
        """Return whether the samples' rows of X are mostly zeros."""
        if self.members is None:
            return is_mostly_zeros(self.X)
        return self.n_stored() < SPARSE_SHARE * self.n_instances * self.X.shape[1]

    def n_stored(self) -> int:
        """Count the non-zeros in the samples' rows of X."""
        if not sp.issparse(self.X):
            return int(np.count_nonzero(self.X))
        if self.members is None:
            return int(self.X.nnz)
        return int(row_lengths(self.X.indptr, self.members).sum())  # validation has dropped zeros

    def holds_counts(self) -> bool:
        """Return whether X came with numbers, all zeros and positive integers."""
        if self.texts is not None or self.X.dtype.kind not in "biuf":
            return False
        values = self.X.data if sp.issparse(self.X) else self.X.ravel(order="K")  # a view
        blocks = (values[part] for part in row_blocks(len(values), 1, FEW_ENTRIES))
        return all(bool(((block >= 0) & (block == np.rint(block))).all()) for block in blocks)

    def n_entries(self) -> int:
        """Count the numbers of X in the form for `collate`; 0 unless X is numeric."""
        if self.X.dtype.kind not in "biuf":
            return 0
        dense = self.n_instances * math.prod(self.X.shape[1:])
        return self.n_stored() if self.sparse else dense

    def samples(self) -> Any:
        """Return X in the form for `collate`: CSR, ndarray, list of str or dict of arrays."""
        if isinstance(self.X, Columns):
            return self.X.arrays
        if sp.issparse(self.X):
            return self.X if self.sparse else self.X.toarray()
        return self.X.tolist() if self.X.dtype == object else self.X

    def as_given(self) -> Any:
        """Return the samples as they came: texts, or rows of X."""
        if self.texts is not None:
            return self.texts
        return self.X if self.members is None else self.X[self.members]

    def occurring_columns(self) -> np.ndarray:
        """Return a mask of the columns of X with a non-zero entry in the samples."""
        if self.members is None:
            return occurring_columns(self.X)
        found = np.zeros(self.X.shape[1], dtype=bool)
        for part in row_blocks(self.n_instances, 1, 1024):
            found |= occurring_columns(self.X[self.members[part]])
        return found


class AllSamples:
    """All samples of a batch, read by one process.

    A training step asks this object how its batch is read.
    :class:`sklearn_xlc.distributed.sharing.OwnSamples` answers for a process that reads some
    of the samples.
    """

    def drawing(
        self, generators: Callable[[], Generators | None]
    ) -> contextlib.AbstractContextManager[None]:
        """Return the context for draws of an encoder from torch's global generators.

        `generators` returns what takes their place, or None if the encoder draws nothing there.
        """
        return contextlib.nullcontext()

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Return the context for encoder and head."""
        return contextlib.nullcontext()

    def for_head(self, head: Any, features: Any, batch: Batch) -> tuple[Any, Any, Any]:
        """Return the features, targets and weights for the head."""
        return features, batch.targets, batch.sample_weight

    def update_of(self, head: Any, update: Any) -> Any:
        """Return the update function for the head's own parameters, or None."""
        return update

    def step(self, head: Any, optimizer: Any, inputs: Any, loss: Tensor) -> Tensor:
        """Step the optimiser; return the loss."""
        optimizer.require_finite(loss.detach())
        optimizer.step()
        return loss

    def total(self, head: Any, loss: Tensor) -> Tensor:
        """Return the loss of the batch from the loss of the samples read."""
        return loss


#: The one object of its class that batches need: it has no state.
ALL_SAMPLES = AllSamples()


@dataclass
class Batch(Movable):
    """Inputs, targets and weights of one batch.

    Parameters
    ----------
    inputs : Tensor, SparseRows, Bags, or the result of the encoder's `collate`
        Inputs of the encoder.
    targets, sample_weight : Targets, tensor of shape (n_samples,), or None
        Positions of the labels, if known, and weights in the loss.
    n_samples : int
        Number of samples.
    own : AllSamples or OwnSamples, default=ALL_SAMPLES
        Samples in `inputs`: all, or some where several processes share the batch.
    """

    inputs: Any
    targets: Targets | None
    sample_weight: Tensor | None
    n_samples: int
    own: AllSamples = ALL_SAMPLES

    def __len__(self) -> int:
        return self.n_samples

    def split(self, sizes: Sequence[int]) -> list[Batch]:
        """Split into batches of these sizes, sharing memory.

        Inputs must be a tensor or :class:`SparseRows`.
        """
        unknown, weight = [None] * len(sizes), self.sample_weight
        parts = zip(
            self.inputs.split(sizes),
            unknown if self.targets is None else self.targets.split(sizes),
            unknown if weight is None else weight.split(sizes),
            sizes,
        )
        return [Batch(*part) for part in parts]

    def to(self, device: torch.device) -> Batch:
        """Copy to `device`."""
        return self if device.type == "cpu" else super().to(device)


def n_batches(n_samples: int, batch_size: int) -> int:
    """Count the batches; a single left-over sample joins the batch before.

    Batch normalisation cannot train on one sample.

    Parameters
    ----------
    n_samples, batch_size : int
        Number of samples, and samples per batch.

    Returns
    -------
    int
        Number of batches.

    Examples
    --------
    >>> from sklearn_xlc.batches import n_batches
    >>> n_batches(10, 4), n_batches(9, 4)
    (3, 2)
    """
    is_left_over = 1 < batch_size < n_samples and n_samples % batch_size == 1
    return -(-n_samples // batch_size) - is_left_over


class WholeBatches:
    """Cut batches for one process."""

    def at_once(self, n: int) -> int:
        """Return how many of `n` batches may be cut in one operation."""
        return n

    def cut(self, rows: Rows, index: slice | np.ndarray) -> Batch:
        """Return the batch of the samples at `index`."""
        return make_batch(rows.take(index))


#: The one object of its class that iterators need: it has no state.
WHOLE_BATCHES = WholeBatches()


class BatchIterator:
    """Iterator over batches of `rows`, cut from whole arrays.

    Parameters
    ----------
    rows : Rows
        Samples to cut into batches.
    batch_size : int
        Samples per batch; the last batch may have fewer, or one more (:func:`n_batches`).
    rng : numpy Generator or None
        Generator that shuffles the samples in every pass; None keeps their order.
    device : torch.device
        Device of the batches.
    cutter : WholeBatches or SharedBatches, default=WHOLE_BATCHES
        Cuts the batches.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        rng: np.random.Generator | None,
        device: torch.device,
        cutter: WholeBatches = WHOLE_BATCHES,
    ) -> None:
        self.rows, self.batch_size, self.rng, self.device = rows, batch_size, rng, device
        self.cutter = cutter

    def __len__(self) -> int:
        return n_batches(len(self.rows), self.batch_size)

    def __iter__(self) -> Generator[Batch]:
        groups = self._groups()
        if self._prepares_ahead():
            groups = prefetched(groups, self.device)
        with contextlib.closing(groups):
            for group in groups:
                for batch in group:
                    yield batch.to(self.device)

    def _groups(self) -> Generator[list[Batch]]:
        """Yield batches in the order of the epoch, in groups cut at once."""
        edges = [number * self.batch_size for number in range(len(self))] + [len(self.rows)]
        n_at_once = self._batches_at_once()
        groups = [edges[a : a + n_at_once + 1] for a in range(0, len(self), n_at_once)]
        for group, index in zip(groups, self._order([(group[0], group[-1]) for group in groups])):
            whole = self.cutter.cut(self.rows, index)
            cut = [whole] if len(group) == 2 else whole.split(np.diff(group).tolist())
            if self._prepares_ahead():
                cut = [self._prepared(batch) for batch in cut]
            yield cut

    def _prepares_ahead(self) -> bool:
        """Return whether a thread prepares batches: a user's `collate` might draw numbers there."""
        collate = self.rows.collate
        return prepares_ahead(self.device) and (collate is None or is_ours(collate))

    def _prepared(self, batch: Batch) -> Batch:
        """Complete a batch for a training step, in pinned memory if the device is a GPU."""
        inputs = instances_of(batch.inputs)
        if self.rng is not None and isinstance(inputs, SparseRows):
            inputs.transpose_now()  # for the backward pass: only training shuffles
        return batch.pin_memory() if self.device.type == "cuda" else batch

    def _order(self, bounds: list[tuple[int, int]]) -> Iterable[slice | np.ndarray]:
        """Yield the samples between the bounds of each group, in the order of the epoch."""
        if self.rng is None:
            return [slice(*both) for both in bounds]
        n_entries = self.rows.n_entries()
        pieces = shuffled(len(self.rows), n_entries, self.rng)
        if is_by_blocks(n_entries):
            pieces = fetched(pieces, self.rows.X, self.rows.positions)
        return regrouped(pieces, [stop - start for start, stop in bounds])

    def _batches_at_once(self) -> int:
        """Return the number of batches to cut from X in one operation."""
        rows = self.rows
        n_entries = rows.n_entries()
        if rows.collate is not None or rows.bags is not None or not n_entries:
            return 1
        most = _ENTRIES_OF_FILE if rows.is_mapped() else _ENTRIES_AT_ONCE
        return self.cutter.at_once(max(1, most * len(rows) // (n_entries * self.batch_size)))


def make_batch(rows: Rows) -> Batch:
    """Convert samples to the tensors of one batch.

    Parameters
    ----------
    rows : Rows
        Samples of one batch.

    Returns
    -------
    Batch
        Inputs, targets and weights on the CPU.
    """
    inputs = (rows.collate or collate)(rows.samples())
    if rows.bags is not None:
        inputs = Bags(inputs, torch.from_numpy(rows.bags.astype(np.int64)))
    return Batch(inputs, *rows.targets(), len(rows))


def _csr_of_dense(X: np.ndarray) -> sp.csr_matrix:
    """Convert a dense matrix to canonical CSR, twice as fast as SciPy."""
    X = np.ascontiguousarray(X)
    is_stored = X != 0
    entries, sizes = np.flatnonzero(is_stored), np.count_nonzero(is_stored, axis=1)
    columns = entries - np.repeat(np.arange(len(X)) * X.shape[1], sizes)
    return sp.csr_matrix((X.ravel()[entries], columns, pointers_of(sizes)), shape=X.shape)
