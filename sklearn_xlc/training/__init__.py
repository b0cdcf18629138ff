"""Training engine: batches of CSR rows and ragged labels, one optimiser, a skorch net."""

from sklearn_xlc.training.batching import Batch, BatchIterator, Rows, make_batch
from sklearn_xlc.training.callbacks import (
    CollapseMonitor,
    CosineSchedule,
    WeightAveraging,
    copied,
)
from sklearn_xlc.training.net import EncoderHead, XLCNet
from sklearn_xlc.training.optimizer import RowOptimizer

__all__ = [
    "Batch",
    "BatchIterator",
    "CollapseMonitor",
    "CosineSchedule",
    "EncoderHead",
    "RowOptimizer",
    "Rows",
    "WeightAveraging",
    "XLCNet",
    "copied",
    "make_batch",
]
