"""Gradients that callbacks see: all of them, and changed ones are those of the step."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import Callback, GradientNormClipping

from _factories import EVERY, make_learnable, quick
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import new_generators
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.heads import FlatHead, chunked
from sklearn_xlc.training import EncoderHead, XLCNet
from sklearn_xlc.training.gradients import reads_gradients

RATE, LIMIT = 0.1, 0.01


def make_net(callbacks, rule="sgd", **head):
    torch.manual_seed(0)
    module = EncoderHead(MLPEncoder(30, (16,), sparse=True), FlatHead(16, 40, True, **head))
    return XLCNet(
        module,
        rng=np.random.default_rng(0),
        generators=new_generators(0),
        lr=RATE,
        max_epochs=1,
        batch_size=70,
        optimizer_rule=rule,
        callbacks=callbacks,
        callbacks__print_log=None,
        verbose=0,
    )


def make_rows():
    X = sp.random(70, 30, 0.2, "csr", dtype=np.float32, random_state=np.random.default_rng(0))
    Y = sp.random(70, 40, 0.1, "csr", dtype=np.float32, random_state=np.random.default_rng(1))
    Y.data[:] = 1
    return Rows(X, Y, sparse=True)


def moved(net):
    """By how far one step of SGD moves the weights: the rate times the norm of the gradient."""
    net.initialize()
    before = torch.cat([p.detach().ravel() for p in net.module_.parameters()])
    net.partial_fit(make_rows())
    after = torch.cat([p.detach().ravel() for p in net.module_.parameters()])
    return float((after - before).norm())


@pytest.mark.parametrize("head", [{}, {"n_negatives": 5}, {"precision": "bfloat16"}], ids=str)
@pytest.mark.parametrize("chunk", [7, 64])
def test_the_norm_of_all_gradients_is_clipped(head, chunk, monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    free = moved(make_net([GradientNormClipping(1e6)], **head))
    assert free == pytest.approx(moved(make_net([], **head)), rel=1e-6)
    assert free > 10 * RATE * LIMIT
    clipped = moved(make_net([GradientNormClipping(LIMIT)], **head))
    assert clipped == pytest.approx(RATE * LIMIT, rel=1e-3)


#: Each head with several labels a row and with one, where it takes them.
EACH_HEAD = [
    case for case in EVERY if case[0] in ("flat", "product", "cascade", "dft", "etf", "bags")
] + [("powerset", True), ("sampling", False)]


@pytest.mark.parametrize("name, multilabel", EACH_HEAD)
def test_clipping_that_clips_nothing_changes_no_bit(name, multilabel):
    X, y = make_learnable(multilabel)
    params = {"max_epochs": 1, "batch_size": 50, "optimizer": "mixed"}
    clipping = GradientNormClipping(1e30)
    one, other = (
        quick(name, **params, callbacks=callbacks).fit(X, y) for callbacks in (None, [clipping])
    )
    assert one.loss_curve_ == other.loss_curve_
    states = [clf.net_.module_.state_dict() for clf in (one, other)]
    assert all(value.equal(states[1][key]) for key, value in states[0].items())


class Watch(Callback):
    """Shapes of the gradients, of which some are replaced."""

    def __init__(self, change=None):
        self.change, self.shapes = change, {}

    def on_grad_computed(self, net, named_parameters, **kwargs):
        for name, parameter in named_parameters:
            assert parameter.grad.shape == parameter.shape
            assert not parameter.grad.is_sparse
            self.shapes.setdefault(name, []).append(tuple(parameter.shape))
            if self.change is not None:
                parameter.grad = self.change(parameter.grad)


def test_what_callbacks_see(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", 16)
    watch, second = Watch(), Watch()
    net = make_net([watch, second]).fit(make_rows())
    assert set(watch.shapes) == {name for name, _ in net.module_.named_parameters()}
    assert watch.shapes == second.shapes
    assert watch.shapes["encoder.input.weight"] == [(30, 16)]
    assert watch.shapes["head.weight"] == [(16, 16), (16, 16), (8, 16)]


@pytest.mark.parametrize("change", [torch.zeros_like, lambda gradient: None])
@pytest.mark.parametrize("rule", ["sgd", "mixed", "adagrad"])
def test_gradients_may_be_replaced(change, rule):
    assert moved(make_net([Watch(change)], rule)) == 0
    assert moved(make_net([Watch(lambda gradient: 2 * gradient)], rule)) > 0


def test_only_callbacks_that_read_gradients_ask_for_them():
    class ByBatch(Callback):
        def on_batch_end(self, net, **kwargs):
            pass

    assert not reads_gradients(ByBatch())
    assert reads_gradients(GradientNormClipping())
    assert not reads_gradients(make_net([]))
    assert not make_net([ByBatch()]).fit(make_rows())._reads_gradients
