"""The net of a classifier: what "auto" stands for, and what is kept of training."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.nn import functional as F

from _factories import make_learnable, quick
from sklearn_xlc import DFTSigmoidClassifier, MultiHeadClassifier, optimizers
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.net import TrainingMixin
from sklearn_xlc.training import CosineSchedule, WeightAveraging


@pytest.mark.parametrize(
    "n_samples, sparse, dropout, batch_size, max_epochs",
    [
        (1, True, 0.0, 1, 200),
        (1000, True, 0.0, 1000, 200),
        (1001, True, 0.7, 256, 75),
        (1001, False, 0.2, 256, 75),
        (256 * 25, True, 0.7, 256, 12),
        (10**6, True, 0.7, 256, 10),
    ],
)
def test_auto_goes_by_the_number_of_samples(n_samples, sparse, dropout, batch_size, max_epochs):
    clf = TrainingMixin()
    clf.dropout = clf.batch_size = clf.max_epochs = "auto"
    clf._sparse_inputs = sparse
    assert clf._dropout(SimpleNamespace(n_instances=n_samples)) == dropout
    assert clf._batch_size(n_samples) == batch_size
    assert clf._max_epochs(n_samples) == max_epochs


def test_numbers_are_taken_as_they_are():
    clf = DFTSigmoidClassifier(encoder=MLP(dropout=0.1), batch_size=32, max_epochs=7)
    assert clf._dropout(SimpleNamespace(n_instances=10**6)) == 0.1
    assert clf._batch_size(10**6) == 32
    assert clf._max_epochs(10**6) == 7


@pytest.mark.parametrize("one_pass", [False, True])
def test_callbacks_of_the_parameters(one_pass):
    clf = MultiHeadClassifier(callbacks=[WeightAveraging("swa")], batch_size=5, max_epochs=3)
    clf.fit(np.eye(12), np.arange(12) % 3)
    rng = np.random.RandomState(0)
    net = clf._make_net(clf.net_.module_, Rows(np.eye(12)), None, rng, one_pass=one_pass)
    found = {type(callback): callback for callback in net.callbacks}
    assert set(found) == (set() if one_pass else {CosineSchedule, WeightAveraging})
    assert net.max_epochs == (1 if one_pass else 3)
    if not one_pass:
        assert found[CosineSchedule].n_steps == 9


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("multilabel", [False, True])
def test_sgd_with_momentum_is_a_loop_of_torch(multilabel, nesterov):
    """Whole batches at a constant rate: encoder, and a head that updates itself."""
    X = np.random.default_rng(0).normal(size=(12, 4))
    y = np.eye(3, dtype=int)[np.arange(12) % 3] if multilabel else np.arange(12) % 3
    clf = MultiHeadClassifier(
        "flat",
        encoder=nn.Linear(4, 5),
        optimizer=optimizers.SGD(),
        learning_rate=1e-300,
        random_state=0,
    )
    start = clone(clf).partial_fit(X, y, np.arange(3))
    module = copy.deepcopy(start.net_.module_)
    body, weight, bias = module.encoder, module.head.weight, module.head.bias
    options = {"momentum": 0.8, "nesterov": nesterov}
    optimizer = torch.optim.SGD([*body.parameters(), weight, bias], 0.1, **options)
    clf.set_params(learning_rate=0.1, optimizer=optimizers.SGD(**options))
    for _ in range(4):
        clf.partial_fit(X, y, np.arange(3))
        optimizer.zero_grad()
        logits, truth = body(torch.from_numpy(X)) @ weight.T + bias, torch.from_numpy(y)
        if multilabel:
            loss = F.binary_cross_entropy_with_logits(logits, truth.double(), reduction="sum") / 12
        else:
            loss = F.cross_entropy(logits, truth)
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(clf.net_.module_.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["flat", "cascade", "dft", "etf", "bags"])
def test_every_classifier_has_momentum(name):
    params = {"optimizer": optimizers.SGD(momentum=0.9, nesterov=True), "learning_rate": 1e-3}
    X, Y = make_learnable(True)
    groups = quick(name, max_epochs=2, **params).fit(X, Y).net_.optimizer_.param_groups
    assert {(group["momentum"], group["nesterov"]) for group in groups} == {(0.9, True)}


def test_training_adds_up():
    clf = MultiHeadClassifier(batch_size=5, max_epochs=3, warm_start=True, random_state=0)
    X, y = np.eye(12), np.arange(12) % 3
    clf.fit(X, y)
    assert (clf.n_iter_, clf.t_, len(clf.loss_curve_)) == (3, 9, 3)
    clf.fit(X, y).partial_fit(X, y)
    assert (clf.n_iter_, clf.t_, len(clf.loss_curve_)) == (7, 21, 7)
    assert clf.net_.validation is None
