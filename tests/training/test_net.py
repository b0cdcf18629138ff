"""The net: parameter groups, the loop, and what ends it."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.training import EncoderHead, XLCNet
from sklearn_xlc.training.scoring import Samples


def make_rows(n_rows=20):
    X = np.random.default_rng(0).normal(size=(n_rows, 6)).astype(np.float32)
    ids = np.arange(n_rows) % 5
    Y = sp.csr_matrix((np.ones(n_rows), ids, np.arange(n_rows + 1)), shape=(n_rows, 5))
    return Rows(X, Y)


def make_net(head=None, encoder=None, callbacks=(), **params):
    torch.manual_seed(0)
    encoder = encoder or MLPEncoder(6, (4,), sparse=False)
    module = EncoderHead(encoder, head or FlatHead(4, 5, False))
    defaults = {"lr": 0.01, "max_epochs": 3, "batch_size": 8, "verbose": 0}
    return XLCNet(
        module,
        rng=np.random.default_rng(0),
        callbacks=list(callbacks),
        callbacks__print_log=None,
        **{**defaults, **params},
    )


class Raise(Callback):
    def __init__(self, error):
        self.error = error

    def on_batch_end(self, net, **kwargs):
        raise self.error


def test_fit_records_every_epoch():
    rows = make_rows()
    net = make_net(validation=rows).fit(rows)
    assert len(net.history) == 3
    assert net.history[:, "train_batch_count"] == [3, 3, 3]
    assert net.history[-1, "train_loss"] < net.history[0, "train_loss"]
    assert all(loss > 0 for loss in net.history[:, "valid_loss"])
    assert net.module_ is net.module  # never a second copy


def test_groups_keep_their_peak_rates():
    net = make_net(optimizer__weight_decay=0.1).initialize()
    groups = net.optimizer_.param_groups
    assert {id(p) for group in groups for p in group["params"]} == {
        id(p) for p in net.module_.parameters()
    }
    assert all(group["peak_lr"] == group["lr"] == 0.01 for group in groups)
    assert {group["weight_decay"] for group in groups} == {0.0, 0.1}


def test_a_fused_head_trains_as_an_ordinary_one():
    class Ordinary(FlatHead):
        def fused_parameters(self):
            return []

        def loss(self, features, targets, sample_weight=None, update=None):
            return super().loss(features, targets, sample_weight)

    rows = make_rows()
    nets = []
    for kind in (FlatHead, Ordinary):
        torch.manual_seed(1)
        net = make_net(kind(4, 5, False))
        net.module.load_state_dict(nets[0].start if nets else net.module.state_dict())
        net.start = {name: value.clone() for name, value in net.module.state_dict().items()}
        nets.append(net)
    for net in nets:
        net.fit(rows)
    for one, other in zip(nets[0].module_.parameters(), nets[1].module_.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_is_passed_on(error):
    with pytest.raises(error):
        make_net(callbacks=[Raise(error())]).fit(make_rows())


def test_early_stopping_ends_quietly():
    stop = EarlyStopping(monitor="train_loss", patience=2, threshold=0.999)
    net = make_net(callbacks=[stop], max_epochs=30).fit(make_rows())
    assert len(net.history) < 30


def test_a_loss_that_is_not_finite_ends_the_training():
    rows = make_rows()
    rows.X[3, 2] = np.float32(np.inf)
    with pytest.raises(
        ValueError, match=r"features became nan in epoch 1, step 1: lower learning_rate=0.01"
    ):
        make_net(max_epochs=5).fit(rows)


def test_the_encoder_runs_at_half_precision_in_training_only():
    class Probe(nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            self.seen = output.dtype
            return output

    rows = make_rows()
    net = make_net(encoder=Probe(6, 4), precision="bfloat16").fit(rows)
    assert net.module_.encoder.seen == torch.bfloat16
    (batch,) = net.get_iterator(Samples(rows.take(slice(0, 4))))
    assert net.features(batch).dtype == torch.float32
    assert net.module_.encoder.seen == torch.float32
    assert {p.dtype for p in net.module_.parameters()} == {torch.float32}


def test_a_validation_loss_that_is_not_finite_is_refused():
    held = make_rows()
    held.X[3, 2] = np.float32(np.inf)
    with pytest.raises(ValueError, match="the validation loss became nan in epoch 1"):
        make_net(validation=held).fit(make_rows())


class FailsInTraining(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs[:, :3] if self.training else inputs)


class FailsBackwards(nn.Linear):
    def forward(self, inputs):
        features = super().forward(inputs).exp()
        features += 1  # in place, where the gradient needs the old value
        return features


class FailsOnLoss(FlatHead):
    def loss(self, features, targets, sample_weight=None, update=None):
        return features @ features


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"encoder": FailsInTraining(6, 4)}, "the encoder FailsInTraining failed: mat1 and mat2"),
        ({"encoder": FailsBackwards(6, 4)}, "the gradient of the encoder FailsBackwards or the "),
        ({"head": FailsOnLoss(4, 5, False)}, "the loss of the head FailsOnLoss failed: "),
    ],
)
def test_what_fails_inside_of_torch_is_named(parts, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_net(**parts).fit(make_rows())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_errors_of_callbacks_are_left_alone():
    with pytest.raises(RuntimeError, match="disk is full"):
        make_net(callbacks=[Raise(RuntimeError("disk is full"))]).fit(make_rows())


def test_parts_that_a_callback_sets_to_evaluation_are_trained():
    class Evaluate(Callback):
        def on_batch_begin(self, net, **kwargs):
            net.module_.encoder.layers.eval()

        def on_grad_computed(self, net, **kwargs):
            assert all(part.training for part in net.module_.modules())

    make_net(callbacks=[Evaluate()]).fit(make_rows())
