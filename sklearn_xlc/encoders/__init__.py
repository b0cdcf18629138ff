"""Encoders: modules from a batch of samples to features of shape (n_samples, n_outputs)."""

from typing import Any

from sklearn_xlc._part import named_part
from sklearn_xlc.encoders._base import (
    FORMS,
    Encoder,
    EncoderPart,
    GivenEncoder,
    accepted_forms,
    vectorizes,
)
from sklearn_xlc.encoders._base import own_collate as own_collate
from sklearn_xlc.encoders.mlp import DRAWS_LATER as DRAWS_LATER
from sklearn_xlc.encoders.mlp import KEPT_SPREAD as KEPT_SPREAD
from sklearn_xlc.encoders.mlp import MLP, InputLinear, MLPEncoder
from sklearn_xlc.encoders.text import Text, TextEncoder
from sklearn_xlc.encoders.transformer import Transformer, TransformerEncoder

#: Encoders by the names that the parameter `encoder` takes, in addition to "auto".
ENCODERS: dict[str, type[EncoderPart]] = {"mlp": MLP, "text": Text}


def encoder_part(encoder: Any) -> EncoderPart:
    """Return the part of an encoder given by name or as a module, class or function."""
    part = named_part(encoder, {"auto": MLP, **ENCODERS})
    return part if isinstance(part, EncoderPart) else GivenEncoder(part)


def is_perceptron(encoder: Any) -> bool:
    """Return whether an encoder is a perceptron of ours, whose products are known.

    A subclass may compute something else.
    """
    return type(encoder) in (MLPEncoder, TextEncoder)


__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderPart",
    "GivenEncoder",
    "InputLinear",
    "MLP",
    "MLPEncoder",
    "Text",
    "TextEncoder",
    "Transformer",
    "TransformerEncoder",
    "accepted_forms",
    "vectorizes",
]
