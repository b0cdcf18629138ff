"""What encoders say of themselves, and what is assumed of those that do not."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from _factories import named
from sklearn_xlc.encoders import (
    MLP,
    Encoder,
    MLPEncoder,
    Text,
    TextEncoder,
    accepted_forms,
    encoder_part,
    vectorizes,
)


def make_linear(n_features):
    return nn.Linear(n_features, 3)


def make_text(n_buckets=50):
    return TextEncoder(n_buckets)


make_text.accepts = "text"


@pytest.mark.parametrize(
    "encoder, forms",
    [
        (nn.Linear(2, 2), ("dense",)),
        (make_linear, ("dense",)),
        (Encoder, ("dense",)),
        (MLPEncoder, ("dense", "csr")),
        (MLPEncoder(3), ("dense", "csr")),
        (TextEncoder, ("text",)),
        (partial(partial(TextEncoder, dropout=0.1), n_buckets=9), ("text",)),
        (make_text, ("text",)),
    ],
    ids=named,
)
def test_accepted_forms(encoder, forms):
    assert accepted_forms(encoder) == forms


@pytest.mark.parametrize("accepts", [("text", "images"), "bags", ()])
def test_unknown_forms(accepts):
    class Odd(Encoder):
        pass

    Odd.accepts = accepts
    with pytest.raises(ValueError, match=r"encoder.accepts must name some of \['dense', 'csr',"):
        accepted_forms(Odd)


def test_defaults():
    encoder = Encoder()
    assert encoder.parameter_groups() == encoder.row_parameters() == []
    assert not hasattr(encoder, "n_outputs")
    assert torch.equal(encoder.collate(np.eye(2)), torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize(
    "encoder, expected",
    [
        (TextEncoder, True),
        (partial(partial(TextEncoder, dropout=0.1), n_buckets=9), True),
        (TextEncoder(9), True),
        (MLPEncoder, False),
        (make_linear, False),
    ],
    ids=named,
)
def test_vectorizes(encoder, expected):
    assert vectorizes(encoder) == expected


def test_encoder_of_a_part():
    encoder = encoder_part(MLP(3, dropout=0.0, negative_slope=0.0)).build(20, sparse=False)
    assert (type(encoder), encoder.n_outputs) == (MLPEncoder, 3)
    assert encoder.input.weight.shape[0] == 20
    text = Text(n_buckets=9, dropout=0.0, negative_slope=0.0)
    assert encoder_part(text).build(None, sparse=False).n_buckets == 9


def test_encoder_of_the_user():
    module = nn.Linear(20, 3)
    copy = encoder_part(module).build(20, sparse=False)
    assert copy is not module
    assert torch.equal(copy.weight, module.weight)
    assert (
        encoder_part(lambda n_features: nn.Linear(n_features, 2))
        .build(20, sparse=False)
        .in_features
        == 20
    )
    assert encoder_part(partial(TextEncoder, n_buckets=9)).build(None, sparse=False).n_buckets == 9
    assert isinstance(encoder_part(lambda: nn.Identity()).build(None, sparse=False), nn.Identity)
    with pytest.raises(TypeError, match="encoder must be a torch.nn.Module .* it returned int"):
        encoder_part(int).build(20, sparse=False)
