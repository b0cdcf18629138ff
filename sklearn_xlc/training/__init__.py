"""Training: a skorch net, its optimiser, callbacks."""

from sklearn_xlc.training.callbacks import (
    CollapseMonitor,
    CosineSchedule,
    WeightAveraging,
    copied,
)
from sklearn_xlc.training.net import EncoderHead, XLCNet
from sklearn_xlc.training.optimizer import RowOptimizer

__all__ = [
    "CollapseMonitor",
    "CosineSchedule",
    "EncoderHead",
    "RowOptimizer",
    "WeightAveraging",
    "XLCNet",
    "copied",
]
