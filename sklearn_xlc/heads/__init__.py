"""Output heads: each owns the output space, trains on ragged positives and ranks labels.

To add one, subclass :class:`Head`, or :class:`ChunkedHead`, with which every loss works; to add a
loss, subclass :class:`PointwiseLoss` or :class:`RowwiseLoss`.
"""

from sklearn_xlc.heads._base import Head, Update, check_finite, row_weights
from sklearn_xlc.heads.cascade import CascadeHead
from sklearn_xlc.heads.chunked import ChunkedHead
from sklearn_xlc.heads.etf import ETFHead
from sklearn_xlc.heads.flat import FlatHead
from sklearn_xlc.heads.fourier import FourierHead
from sklearn_xlc.heads.losses import (
    AsymmetricLoss,
    BinaryCrossEntropy,
    FocalLoss,
    Loss,
    PickAllLabels,
    PointwiseLoss,
    PropensityBinaryCrossEntropy,
    RowwiseLoss,
    SoftmaxCrossEntropy,
)
from sklearn_xlc.heads.miml import MIMLHead
from sklearn_xlc.heads.powerset import PowersetHead
from sklearn_xlc.heads.product import ProductHead
from sklearn_xlc.heads.ranking import merge_topk, topk_by_position, topk_of_chunks
from sklearn_xlc.heads.sampling import SamplingHead

__all__ = [
    "AsymmetricLoss",
    "BinaryCrossEntropy",
    "CascadeHead",
    "ChunkedHead",
    "ETFHead",
    "FlatHead",
    "FocalLoss",
    "FourierHead",
    "Head",
    "Loss",
    "MIMLHead",
    "PickAllLabels",
    "PointwiseLoss",
    "PowersetHead",
    "ProductHead",
    "PropensityBinaryCrossEntropy",
    "RowwiseLoss",
    "SamplingHead",
    "SoftmaxCrossEntropy",
    "Update",
    "check_finite",
    "merge_topk",
    "row_weights",
    "topk_by_position",
    "topk_of_chunks",
]
