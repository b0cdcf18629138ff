"""Batches of samples for encoders, with labels and weights."""

from sklearn_xlc.batches.bags import Bags
from sklearn_xlc.batches.bags import features_of as features_of
from sklearn_xlc.batches.bags import instances_of as instances_of
from sklearn_xlc.batches.randomness import generator_for
from sklearn_xlc.batches.rows import Batch, BatchIterator, Rows, make_batch, n_batches
from sklearn_xlc.batches.samples import Columns, collate, to_device
from sklearn_xlc.batches.sparse_rows import SparseRows
from sklearn_xlc.batches.targets import Targets

__all__ = [
    "Bags",
    "Batch",
    "BatchIterator",
    "Columns",
    "Rows",
    "SparseRows",
    "Targets",
    "collate",
    "generator_for",
    "make_batch",
    "n_batches",
    "to_device",
]
