"""The trainer: facts it finds, the net it makes, and what is kept of training."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from skorch.callbacks import EarlyStopping
from torch import nn
from torch.nn import functional as F

from _factories import QUICK, make_learnable, quick
from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    optimizers,
)
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP, TextEncoder
from sklearn_xlc.engine.label_code import code_of
from sklearn_xlc.engine.resolve import resolve_model
from sklearn_xlc.engine.trainer import Trainer, restored_net
from sklearn_xlc.engine.validation import TrainingData
from sklearn_xlc.heads import Flat, FlatHead, Fourier
from sklearn_xlc.training import CosineSchedule, WeightAveraging
from sklearn_xlc.training.devices import multiplies_bfloat16


def data_of(X, y):
    """Validated samples of positive weight."""
    code = code_of(y, y)
    return TrainingData(Rows(X, code.encode(y)), code)


def many_rows(n_samples, n_stored):
    """Samples of which the last holds all non-zeros."""
    values, columns = np.ones(n_stored, np.float32), np.arange(n_stored, dtype=np.int32)
    indptr = np.zeros(n_samples + 1, dtype=np.int32)
    indptr[-1] = n_stored
    X = sp.csr_matrix((values, columns, indptr), shape=(n_samples, n_stored))
    return data_of(X, sp.csr_matrix(np.eye(5, dtype=int)[np.arange(n_samples) % 5]))


def few_words(multilabel, n_rows=150):
    """Mostly-zero X and labels."""
    X = sp.random(n_rows, 300, 0.02, "csr", np.float32, random_state=0)
    return X, make_learnable(multilabel, n_rows)[1]


def facts_of(clf, data):
    return Trainer(clf, data, going_on=False).facts


# --- facts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [True, False])
def test_facts_of_samples_and_labels(multilabel):
    X, y = few_words(multilabel)
    facts = facts_of(MultiHeadClassifier(), data_of(X, y))
    assert (facts.n_samples, facts.n_instances, facts.bag_size) == (150, 150, 0)
    assert (facts.n_nonzeros, facts.sparse, facts.double) == (X.nnz, True, False)
    assert (facts.multilabel, facts.pointwise, facts.soft) == (multilabel, multilabel, False)
    assert (facts.head, facts.needed_width) == ("flat", 0)
    if multilabel:
        assert (facts.n_labels, facts.most_labels) == (23, np.diff(y.indptr).max())
        assert facts.labels_per_sample == pytest.approx(y.nnz / 150)
    else:
        assert (facts.n_labels, facts.most_labels, facts.labels_per_sample) == (23, 1, 1)
    assert facts_of(MultiHeadClassifier(), data_of(X.toarray() + 1, y)).sparse is False
    assert facts_of(MultiHeadClassifier(), data_of(X.astype(np.float64), y)).double


@pytest.mark.parametrize(
    "clf, head, pointwise",
    [
        (MultiHeadClassifier("flat"), "flat", True),
        (MultiHeadClassifier("flat", loss="pick_all_labels"), "flat", False),
        (MultiHeadClassifier("cascade"), "cascade", True),
        (MultiHeadClassifier("product"), "product", False),
        (MultiHeadClassifier(FlatHead), "custom", False),
        (DFTSigmoidClassifier(), "dft", True),
        (DFTSigmoidClassifier(output=Fourier(init="random")), "dft", True),
        (DFTSigmoidClassifier(output="bottleneck"), "bottleneck", True),
        (ETFNeuralCollapseClassifier(), "etf", False),
        (ETFNeuralCollapseClassifier("learned"), "learned", False),
        (MIMLClassifier(), "miml", True),
    ],
    ids=str,
)
def test_facts_of_the_head(clf, head, pointwise):
    facts = facts_of(clf, data_of(*few_words(True)))
    assert (facts.head, facts.pointwise) == (head, pointwise)


@pytest.mark.parametrize(
    "encoder, X, sparse",
    [
        (nn.Linear(300, 3), None, False),
        (lambda n: nn.Linear(n, 3), None, False),
        (MLP((3,)), None, True),
        ("mlp", None, True),
        ("text", np.array(["a b"] * 150, dtype=object), True),
        (TextEncoder, np.array(["a b"] * 150, dtype=object), True),
    ],
    ids=str,
)
def test_encoders_of_the_user_do_not_count_as_sparse(encoder, X, sparse):
    """But those count that make sparse rows of texts."""
    rows, Y = few_words(True)
    facts = facts_of(MultiHeadClassifier(encoder=encoder), data_of(rows if X is None else X, Y))
    assert facts.sparse is sparse
    assert (facts.n_nonzeros > 0) is (X is None)


def test_samples_of_weight_zero_do_not_count():
    """Here the last sample holds all non-zeros."""
    data = many_rows(1500, 10**7)
    rest = TrainingData(data.rows.select(np.arange(1400)), data.code)
    assert rest.rows.members is not None
    for samples, width in ((data, 1024), (rest, 512)):
        facts = facts_of(MultiHeadClassifier(), samples)
        found = resolve_model({"encoder__hidden_layer_sizes": "auto"}, facts)
        assert found == {"encoder__hidden_layer_sizes": (width,)}


def test_labels_per_sample_are_those_of_the_samples_that_count():
    Y = sp.csr_matrix(np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]))
    assert code_of(Y, Y).labels_per_sample == 5 / 3
    assert code_of(Y, Y, np.array([0.0, 2.0, 1.0])).labels_per_sample == 0.5


@pytest.mark.parametrize("has_it", [True, False])
def test_half_precision_of_the_processor_is_a_fact(has_it, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.trainer.multiplies_bfloat16", lambda device: has_it)
    assert facts_of(MultiHeadClassifier(), many_rows(1001, 10)).fast_bfloat16 is has_it


# --- settings ---------------------------------------------------------------------------------


def test_the_fitted_net_has_what_the_rules_say():
    rng = np.random.default_rng(0)
    X = sp.random(1500, 300, density=0.02, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(rng.random((1500, 20)) < 0.1)
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    assert type(clf.head_) is Flat
    assert clf.net_.module_.head.n_features == 512
    assert clf.net_.module_.head.low_precision == multiplies_bfloat16("cpu")
    groups, rate = clf.net_.optimizer_.param_groups, 4e-3 * (70 / 6) ** 0.5
    assert [group["rule"] for group in groups] == ["scaled", "adam", "adam"]
    assert [group["peak_lr"] for group in groups] == pytest.approx([3 * rate, rate, 4e-3])
    assert clf.net_.module_.encoder.layers[2].p == 0.5
    settings = clf.settings_
    assert settings["head"] == "flat"
    assert settings["head__n_negatives"] is None
    assert settings["encoder__hidden_layer_sizes"] == (512,)
    assert settings["encoder__dropout"] == 0.5
    assert settings["optimizer"] == "mixed"
    assert settings["optimizer__learning_rate"] == pytest.approx(rate)
    assert settings["optimizer__head_learning_rate"] == 4e-3
    assert (settings["batch_size"], settings["max_epochs"]) == (256, 1)


def test_parts_of_the_user_stay_as_they_are():
    """A fit resolves copies of them."""
    X, Y = few_words(True)
    parts = {"head": Flat(), "encoder": MLP(), "optimizer": optimizers.Adam()}
    before = {name: part.get_params() for name, part in parts.items()}
    clf = MultiHeadClassifier(max_epochs=1, **parts).fit(X, Y)
    for name, part in parts.items():
        assert getattr(clf, name) is part
        assert part.get_params() == before[name]
    assert clf.encoder_.hidden_layer_sizes == (512,)
    assert clf.head_.n_negatives is None


@pytest.mark.parametrize("name, value", [("learning_rate", 0.1), ("weight_decay", 0.2)])
def test_a_rate_is_given_in_one_place(name, value):
    X, y = np.eye(4), np.arange(4)
    part = optimizers.SGD(**{name: 0.3})
    clf = MultiHeadClassifier(optimizer=part, **{name: value})
    with pytest.raises(ValueError, match=f"{name}={value} is given, and optimizer=.*in one place"):
        clf.fit(X, y)
    clf.set_params(**{name: "auto" if name == "learning_rate" else 0.0}, max_epochs=1).fit(X, y)
    assert clf.settings_[f"optimizer__{name}"] == 0.3


# --- the net ----------------------------------------------------------------------------------


def prepared(one_pass=False, validation=None, **params):
    """Net of a fitted classifier, of twelve samples in batches of five."""
    clf = MultiHeadClassifier(batch_size=5, max_epochs=3, **params)
    X, y = np.eye(12), np.arange(12) % 3
    clf.fit(X, y)
    trainer = Trainer(clf, data_of(X, y), going_on=True, one_pass=one_pass)
    rng = np.random.RandomState(0)
    return trainer.net(clf.net_.module_, Rows(X), validation, rng)


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
    ids=str,
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
