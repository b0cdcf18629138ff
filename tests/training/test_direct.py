"""Steps without autograd: equal to the general ones to the last bit, and left to them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import Callback, LRScheduler
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from _factories import named
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import new_generators
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.heads import FlatHead, chunked
from sklearn_xlc.training import CosineSchedule, EncoderHead, XLCNet
from sklearn_xlc.training.direct import DirectStep


def make_rows(dtype=np.float32, weights=False, soft=False):
    X = sp.random(70, 30, 0.2, "csr", dtype=dtype, random_state=np.random.default_rng(0))
    Y = sp.random(70, 40, 0.1, "csr", dtype=dtype, random_state=np.random.default_rng(1))
    Y.data[:] = np.linspace(0.1, 1, Y.nnz)
    Y = Y if soft else sp.csr_matrix(Y > 0, dtype=np.int8)
    X = sp.vstack([X[:-1], X[:1] * 0], "csr")  # a sample without an entry
    X.eliminate_zeros()
    weight = np.linspace(0.5, 1.5, 70).astype(dtype) if weights else None
    return Rows(X, Y, weight, sparse=True)


def make_net(encoder=None, head=None, callbacks=(), **params):
    torch.manual_seed(0)
    module = EncoderHead(
        MLPEncoder(30, **{"hidden_layer_sizes": (16,), "dropout": 0.4, **(encoder or {})}),
        FlatHead(16, 40, True, **(head or {})),
    )
    defaults = {"lr": 0.05, "max_epochs": 3, "batch_size": 16, "verbose": 0}
    defaults["generators"] = new_generators(0)
    return XLCNet(
        module,
        rng=np.random.default_rng(0),
        callbacks=[CosineSchedule(15), *callbacks],
        callbacks__print_log=None,
        **{**defaults, **params},
    )


@pytest.fixture
def n_direct(monkeypatch):
    """Number of the steps that were taken without autograd."""
    taken, take = [], DirectStep.take
    monkeypatch.setattr(DirectStep, "take", lambda *args: taken.append(1) or take(*args))
    return lambda: len(taken)


def with_autograd(net):
    net._direct_step = lambda: None
    return net


def state_of(net):
    moments = net.optimizer_.state_dict()["state"]
    flat = {f"{i}.{name}": value for i, of in moments.items() for name, value in of.items()}
    return {**net.module_.state_dict(), **flat}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"encoder": {"dropout": 0.0}},
        {"encoder": {"negative_slope": 0.3}},
        {"encoder": {"negative_slope": 0.3, "dropout": 0.0}},
        {"head": {"n_negatives": 5}, "optimizer_rule": "mixed", "row_momentum": False},
        {"head": {"loss": "pick_all_labels", "with_bias": False}, "optimizer_rule": "adagrad"},
        {"head": {"precision": "bfloat16"}, "precision": "bfloat16", "head_lr": 0.01},
        {"head": {"precision": "bfloat16", "with_bias": False}},
        {"head": {"loss": "asymmetric"}, "encoder": {"negative_slope": 0.3}},
        {"optimizer_rule": "sgd", "optimizer__weight_decay": 0.1},
        {"optimizer_rule": "sgd", "optimizer__momentum": 0.9},
        {"rows": {"weights": True}, "optimizer_rule": "mixed"},
        {"rows": {"soft": True}},
        {"rows": {"dtype": np.float64}},
        {"validation": make_rows()},
    ],
    ids=named,
)
def test_weights_and_moments_are_equal_to_the_last_bit(params, n_direct):
    of_net = {name: value for name, value in params.items() if name != "rows"}
    rows, nets = (
        make_rows(**params.get("rows", {})),
        [make_net(max_epochs=2, **of_net) for _ in range(2)],
    )
    with_autograd(nets[1])
    for net in nets:
        net.module.to(getattr(torch, rows.X.dtype.name))
        net.fit(rows)
    assert n_direct() == 10
    assert nets[0].history[:, "train_loss"] == nets[1].history[:, "train_loss"]
    direct, general = map(state_of, nets)
    assert set(direct) == set(general)
    for name, value in direct.items():
        assert torch.equal(value, general[name]), name
    assert nets[0]._direct is None  # nothing that a file of the net would hold


def test_labels_of_several_chunks_are_updated_chunk_by_chunk(monkeypatch, n_direct):
    monkeypatch.setattr(chunked, "CHUNK", 16)
    nets = [make_net(max_epochs=1), with_autograd(make_net(max_epochs=1))]
    direct, general = (state_of(net.fit(make_rows())) for net in nets)
    assert n_direct() == 5
    assert all(torch.equal(value, general[name]) for name, value in direct.items())


@pytest.mark.parametrize("scale", [1e30, 1e38])
def test_numbers_that_are_not_finite_are_refused_as_before(scale):
    rows, states, messages = make_rows(), [], []
    rows.X.data *= scale
    for net in [make_net(), with_autograd(make_net())]:
        with torch.no_grad():
            net.module.encoder.layers[0].weight.fill_(1e20)
        with pytest.raises(ValueError, match="in epoch 1, step 1") as error:
            net.fit(rows)
        messages.append(str(error.value))
        states.append(state_of(net))
    assert messages[0] == messages[1]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


class Norms(Callback):
    """A callback of the user, which reads gradients after the step."""

    def on_batch_end(self, net, training=False, **kwargs):
        net.seen.append(float(net.module_.encoder.layers[0].weight.grad.norm()))


@pytest.mark.parametrize(
    "params",
    [
        {"callbacks": [Norms()]},
        {"callbacks": [LRScheduler("StepLR", step_size=1)]},
        {"encoder": {"hidden_layer_sizes": (8, 16)}},
        {"encoder": {"hidden_layer_sizes": (8,), "n_members": 2}, "head": {"n_members": 2}},
        {"head": {"width": 4}},
        {"head": {"loss": "propensity_bce"}},
        {"generators": ()},
    ],
    ids=named,
)
def test_others_are_trained_with_autograd(params, n_direct):
    net = make_net(**params)
    if "loss" in params.get("head", {}):
        net.module.head.criterion.fit(torch.ones(40), 70)
    net.seen = []
    net.fit(make_rows())
    assert n_direct() == 0
    assert len(net.history) == 3
    if isinstance(net.callbacks[-1], Norms):
        assert len(net.seen) == 15
        assert all(norm > 0 for norm in net.seen)


def hook_forward(net, seen):
    net.module_.encoder.layers[1].register_forward_hook(lambda *_: seen.append(1))


def hook_backward(net, seen):
    net.module_.encoder.layers[1].register_full_backward_pre_hook(lambda *_: seen.append(1))


def hook_parameter(net, seen):
    net.module_.encoder.input.bias.register_hook(lambda _: seen.append(1))


def hook_accumulated(net, seen):
    net.module_.encoder.input.bias.register_post_accumulate_grad_hook(lambda _: seen.append(1))


def hook_optimizer(net, seen):
    net.optimizer_.register_step_post_hook(lambda *_: seen.append(1))


@pytest.mark.parametrize(
    "hook", [hook_forward, hook_backward, hook_parameter, hook_accumulated, hook_optimizer]
)
def test_hooks_are_called(hook, n_direct):
    net, seen = make_net().initialize(), []
    hook(net, seen)
    net.partial_fit(make_rows())
    assert (len(seen), n_direct()) == (15, 0)


def test_hooks_of_all_modules_and_optimizers_are_called(n_direct):
    seen = []
    handles = [
        nn.modules.module.register_module_forward_hook(lambda *_: seen.append("module")),
        register_optimizer_step_pre_hook(lambda *_: seen.append("step")),
    ]
    for handle in handles:
        with handle:  # which removes it
            make_net(max_epochs=1).fit(make_rows())
    assert {"module", "step"} == set(seen)
    assert n_direct() == 0
    make_net(max_epochs=1).fit(make_rows())
    assert n_direct() == 5


def test_frozen_weights_stay(n_direct):
    net = make_net()
    table = net.module.encoder.input.weight.requires_grad_(False)
    before = table.clone()
    net.fit(make_rows())
    assert n_direct() == 0
    assert torch.equal(table, before)
