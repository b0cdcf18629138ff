"""Encoders: modules that turn a batch of samples into features of shape (n_samples, n_outputs)."""

from sklearn_xlc.encoders._base import FORMS as FORMS
from sklearn_xlc.encoders._base import Encoder, EncoderPart, accepted_forms, vectorizes
from sklearn_xlc.encoders.mlp import MLP, InputLinear, MLPEncoder
from sklearn_xlc.encoders.text import Text, TextEncoder
from sklearn_xlc.encoders.transformer import Transformer, TransformerEncoder

#: Encoders by the names that the parameter `encoder` takes, in addition to "auto".
ENCODERS: dict[str, type[EncoderPart]] = {"mlp": MLP, "text": Text}

__all__ = [
    "ENCODERS",
    "MLP",
    "Encoder",
    "EncoderPart",
    "InputLinear",
    "MLPEncoder",
    "Text",
    "TextEncoder",
    "Transformer",
    "TransformerEncoder",
    "accepted_forms",
    "vectorizes",
]
