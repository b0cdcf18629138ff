"""Modules and callbacks that may draw from torch's global generator."""

import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from sklearn_xlc.encoders import MLPEncoder, TextEncoder
from sklearn_xlc.heads import FlatHead, SamplingHead
from sklearn_xlc.training import CosineSchedule, EncoderHead
from sklearn_xlc.training.foreign import callback_may_draw, may_draw


class Own(nn.Linear):
    pass


def hooked():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *args: None)
    return layer


def patched():
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x + torch.rand(())
    return layer


@pytest.mark.parametrize(
    "part",
    [
        nn.Dropout(0.5),
        nn.RReLU(),
        nn.LSTM(2, 2),
        nn.MultiheadAttention(2, 1),
        nn.TransformerEncoderLayer(2, 1),
        nn.FractionalMaxPool2d(2, output_size=1),
        Own(2, 2),
        hooked(),
        patched(),
        nn.utils.parametrizations.orthogonal(nn.Linear(2, 2)),
    ],
    ids=lambda part: type(part).__name__,
)
def test_modules_that_may_draw(part):
    assert may_draw(part)
    assert may_draw(nn.Sequential(nn.Linear(2, 2), nn.Sequential(part)))


def test_modules_that_draw_nothing_of_torch():
    layers = nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    assert not may_draw(nn.Sequential(*layers, nn.Embedding(2, 2), nn.GELU(), nn.Identity()))
    head = SamplingHead(4, 6, multilabel=False, length=2, n_sampled_heads=1)
    assert not may_draw(EncoderHead(MLPEncoder(3, (4,), dropout=0.5), head))
    assert not may_draw(EncoderHead(TextEncoder(8, (4,)), FlatHead(4, 6, multilabel=True)))


def test_callbacks():
    class Noise(Callback):
        pass

    assert callback_may_draw(Noise())
    assert not callback_may_draw(EarlyStopping())
    assert not callback_may_draw(CosineSchedule(3))
