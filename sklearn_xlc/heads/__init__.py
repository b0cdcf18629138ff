"""Output heads: each owns the output space, trains on ragged positives and ranks labels.

To add one, subclass :class:`Head`, or :class:`ChunkedHead`, with which every loss works; to add a
loss, subclass :class:`PointwiseLoss` or :class:`RowwiseLoss`.
"""

from typing import Any

from sklearn_xlc._part import named_part
from sklearn_xlc.heads._base import (
    DigitPart,
    GivenHead,
    Head,
    HeadPart,
    HeadTask,
    Update,
    check_finite,
    origins,
    row_weights,
)
from sklearn_xlc.heads._whole import WHOLE, ShardOf, Whole, whole
from sklearn_xlc.heads.cascade import Cascade, CascadeHead
from sklearn_xlc.heads.chunked import ChunkedHead, Step
from sklearn_xlc.heads.etf import ETF, ETFHead, Learned
from sklearn_xlc.heads.flat import Bottleneck, Flat, FlatHead
from sklearn_xlc.heads.fourier import Fourier, FourierHead
from sklearn_xlc.heads.label_weights import WeightedPointwiseLoss, with_label_weight
from sklearn_xlc.heads.losses import (
    LOSSES,
    ArcFace,
    AsymmetricLoss,
    BinaryCrossEntropy,
    FocalLoss,
    JointCrossEntropy,
    Labels,
    Loss,
    PickAllLabels,
    PickAllSquaredError,
    PointwiseLoss,
    PropensityBinaryCrossEntropy,
    RowwiseLoss,
    SoftmaxCrossEntropy,
    SquaredError,
    inverse_propensities,
    losses_of,
)
from sklearn_xlc.heads.miml import MIMLHead
from sklearn_xlc.heads.powerset import PowersetHead
from sklearn_xlc.heads.product import Product, ProductHead
from sklearn_xlc.heads.ranking import merge_topk, topk_by_position, topk_of_chunks
from sklearn_xlc.heads.sampling import Sampling, SamplingHead

#: Heads by the names that the parameter `head` takes, in addition to "auto".
HEADS: dict[str, type[HeadPart]] = {
    "flat": Flat,
    "product": Product,
    "cascade": Cascade,
    "sampling": Sampling,
}


def head_part(head: Any) -> HeadPart:
    """Return the part of a head: of its name, or around a class or function.

    What holds of "flat" holds of "auto".
    """
    part = named_part(head, {"auto": Flat, **HEADS})
    return part if isinstance(part, HeadPart) else GivenHead(part)


__all__ = [
    "ArcFace",
    "AsymmetricLoss",
    "BinaryCrossEntropy",
    "Bottleneck",
    "Cascade",
    "CascadeHead",
    "ChunkedHead",
    "DigitPart",
    "ETF",
    "ETFHead",
    "Flat",
    "FlatHead",
    "FocalLoss",
    "Fourier",
    "FourierHead",
    "GivenHead",
    "HEADS",
    "Head",
    "HeadPart",
    "HeadTask",
    "JointCrossEntropy",
    "LOSSES",
    "Learned",
    "Loss",
    "MIMLHead",
    "PickAllLabels",
    "PickAllSquaredError",
    "PointwiseLoss",
    "PowersetHead",
    "Product",
    "ProductHead",
    "PropensityBinaryCrossEntropy",
    "RowwiseLoss",
    "Sampling",
    "SamplingHead",
    "SoftmaxCrossEntropy",
    "SquaredError",
    "Update",
    "check_finite",
    "merge_topk",
    "row_weights",
    "topk_by_position",
    "topk_of_chunks",
]
