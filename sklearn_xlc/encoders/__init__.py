"""Encoders: modules that turn a batch of samples into features of shape (n_samples, n_outputs)."""

from sklearn_xlc.encoders._base import Encoder, accepted_forms, vectorizes
from sklearn_xlc.encoders.mlp import InputLinear, MLPEncoder
from sklearn_xlc.encoders.text import TextEncoder
from sklearn_xlc.encoders.transformer import TransformerEncoder

__all__ = [
    "Encoder",
    "InputLinear",
    "MLPEncoder",
    "TextEncoder",
    "TransformerEncoder",
    "accepted_forms",
    "vectorizes",
]
