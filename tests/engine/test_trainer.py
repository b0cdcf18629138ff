"""The trainer: the net it makes, its callbacks and optimisers, and what is kept of training."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from skorch.callbacks import EarlyStopping
from torch import nn
from torch.nn import functional as F

from _factories import QUICK, make_learnable, named, quick
from sklearn_xlc import MultiHeadClassifier, optimizers
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.label_code import code_of
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.trainer import Trainer, restored_net
from sklearn_xlc.engine.validation import TrainingData
from sklearn_xlc.heads import Flat
from sklearn_xlc.training import CosineSchedule, WeightAveraging
from sklearn_xlc.training.devices import multiplies_bfloat16

# --- settings ---------------------------------------------------------------------------------


def test_the_fitted_net_has_what_the_rules_say():
    rng = np.random.default_rng(0)
    X = sp.random(1536, 300, density=0.02, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(rng.random((1536, 20)) < 0.1)
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    assert type(clf.head_) is Flat
    assert clf.net_.module_.head.n_features == 384
    assert clf.net_.module_.head.low_precision == multiplies_bfloat16("cpu")
    groups, rate = clf.net_.optimizer_.param_groups, 4e-3 * (70 / 6) ** 0.5
    assert [group["rule"] for group in groups] == ["scaled", "adam", "adam"]
    assert [group["peak_lr"] for group in groups] == pytest.approx([3 * rate, rate, 4e-3])
    assert clf.net_.module_.encoder.layers[2].p == 0.5
    settings = clf.settings_
    assert settings["head"] == "flat"
    assert settings["head__n_negatives"] is None
    assert settings["encoder__hidden_layer_sizes"] == (384,)
    assert settings["encoder__dropout"] == 0.5
    assert settings["optimizer"] == "mixed"
    assert settings["optimizer__learning_rate"] == pytest.approx(rate)
    assert settings["optimizer__head_learning_rate"] == 4e-3
    assert (settings["batch_size"], settings["max_epochs"]) == (256, 1)


# --- the net ----------------------------------------------------------------------------------


def prepared(one_pass=False, validation=None, **params):
    """Net of a fitted classifier, of twelve samples in batches of five."""
    clf = MultiHeadClassifier(batch_size=5, max_epochs=3, **params)
    X, y = np.eye(12), np.arange(12) % 3
    clf.fit(X, y)
    code = code_of(y, y)
    data = TrainingData(Rows(X, code.encode(y)), code)
    plan = Plan(clf, data, going_on=True, one_pass=one_pass)
    trainer = Trainer(plan)
    trainer.rng = np.random.RandomState(0)
    return trainer.net_for(clf.net_.module_, Rows(X), validation)


@pytest.mark.parametrize("one_pass", [False, True])
def test_callbacks_of_the_parameters(one_pass):
    net = prepared(one_pass, callbacks=[WeightAveraging("swa")])
    found = {type(callback): callback for callback in net.callbacks}
    assert set(found) == (set() if one_pass else {CosineSchedule, WeightAveraging})
    assert net.max_epochs == (1 if one_pass else 3)
    if not one_pass:
        assert found[CosineSchedule].n_steps == 9


@pytest.mark.parametrize(
    "params, patience",
    [
        ({}, None),
        ({"early_stopping": True}, 3),
        ({"callbacks": [EarlyStopping(patience=7, load_best=True)]}, 7),
    ],
    ids=named,
)
def test_early_stopping_is_a_callback_which_a_given_one_replaces(params, patience):
    found = prepared(early_stopping=True, validation=Rows(np.eye(12))).callbacks
    assert [type(each) for each in found] == [CosineSchedule, EarlyStopping]
    net = prepared(**{"early_stopping": patience is not None, **params})
    stops = [each for each in net.callbacks if isinstance(each, EarlyStopping)]
    assert [each.patience for each in stops] == ([] if patience is None else [patience])
    assert all(each.load_best for each in stops)


def test_batches_are_no_larger_than_the_data():
    clf = MultiHeadClassifier(batch_size=100, max_epochs=2).fit(np.eye(12), np.arange(12) % 3)
    assert clf.net_.batch_size == 12
    assert clf.settings_["batch_size"] == 100


def test_a_loaded_module_has_a_net_for_predictions():
    X, y = make_learnable(False)
    clf = MultiHeadClassifier(**QUICK).set_params(max_epochs=1).fit(X, y)
    net = restored_net(copy.deepcopy(clf.net_.module_), "cpu")
    expected = clf.decision_function(X)
    clf.net_ = net
    np.testing.assert_array_equal(clf.decision_function(X), expected)


# --- optimisers -------------------------------------------------------------------------------


@pytest.mark.integration
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


# --- what is kept -----------------------------------------------------------------------------


def test_training_adds_up():
    clf = MultiHeadClassifier(batch_size=5, max_epochs=3, warm_start=True, random_state=0)
    X, y = np.eye(12), np.arange(12) % 3
    clf.fit(X, y)
    assert (clf.n_iter_, clf.t_, len(clf.loss_curve_)) == (3, 9, 3)
    clf.fit(X, y).partial_fit(X, y)
    assert (clf.n_iter_, clf.t_, len(clf.loss_curve_)) == (7, 21, 7)
    assert clf.net_.validation is None
