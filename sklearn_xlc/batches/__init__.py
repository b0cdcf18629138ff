"""What travels from data to a network: samples, CSR rows, targets, bags."""

from sklearn_xlc.batches.bags import Bags
from sklearn_xlc.batches.rows import Batch, BatchIterator, Rows, make_batch
from sklearn_xlc.batches.sparse_rows import SparseRows
from sklearn_xlc.batches.targets import Targets

__all__ = ["Bags", "Batch", "BatchIterator", "Rows", "SparseRows", "Targets", "make_batch"]
