"""Training: a skorch net, its optimiser, callbacks."""

from sklearn_xlc.training.callbacks import (
    CollapseMonitor,
    CosineSchedule,
    TimeLeft,
    WeightAveraging,
    callback_of,
    copied,
    copies_of,
    of_kind,
)
from sklearn_xlc.training.checkpoints import Checkpoints
from sklearn_xlc.training.devices import (
    TORCH_DTYPES,
    device_of_loaded,
    multiplies_bfloat16,
    numpy_dtype,
    resolve_device,
    shared_tensor,
)
from sklearn_xlc.training.digests import digest_of, identity, short_digest
from sklearn_xlc.training.errors import is_of_an_allocator
from sklearn_xlc.training.finite import check_saved, check_unread, check_weights
from sklearn_xlc.training.foreign import may_draw
from sklearn_xlc.training.heap import keep_memory
from sklearn_xlc.training.net import EncoderHead, XLCNet
from sklearn_xlc.training.optimizer import (
    RULES,
    Gradient,
    RowOptimizer,
    input_parameters,
    row_parameters,
    rule_of,
)
from sklearn_xlc.training.resizing import with_room, without_labels
from sklearn_xlc.training.scoring import HeldOutPrecision

__all__ = [
    "CollapseMonitor",
    "CosineSchedule",
    "EncoderHead",
    "RowOptimizer",
    "WeightAveraging",
    "XLCNet",
    "copied",
]
