"""Output heads: each owns the output space, trains on ragged positives and ranks labels."""

from sklearn_xlc.heads._base import Head
from sklearn_xlc.heads.cascade import CascadeHead
from sklearn_xlc.heads.chunked import ChunkedHead
from sklearn_xlc.heads.etf import ETFHead
from sklearn_xlc.heads.flat import FlatHead
from sklearn_xlc.heads.fourier import FourierHead
from sklearn_xlc.heads.miml import MIMLHead
from sklearn_xlc.heads.product import ProductHead
from sklearn_xlc.heads.sampling import SamplingHead

__all__ = [
    "CascadeHead",
    "ChunkedHead",
    "ETFHead",
    "FlatHead",
    "FourierHead",
    "Head",
    "MIMLHead",
    "ProductHead",
    "SamplingHead",
]
