"""Plan of a fit: the facts it finds, samples it holds out, settings that it resolves."""

import numpy as np
import pytest
import scipy.sparse as sp
from skorch.callbacks import EarlyStopping, EpochTimer
from torch import nn

from _factories import make_learnable, named
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
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.validation import TrainingData
from sklearn_xlc.heads import Flat, FlatHead, Fourier
from sklearn_xlc.ranking import Calibration
from sklearn_xlc.training import WeightAveraging


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
    return Plan(clf, data, going_on=False).facts


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
    ids=named,
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
    ids=named,
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
    for samples, n_nonzeros in ((data, 10**7), (rest, 0)):
        facts = facts_of(MultiHeadClassifier(), samples)
        assert facts.n_nonzeros == n_nonzeros


def test_labels_per_sample_are_those_of_the_samples_that_count():
    Y = sp.csr_matrix(np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]))
    assert code_of(Y, Y).labels_per_sample == 5 / 3
    assert code_of(Y, Y, np.array([0.0, 2.0, 1.0])).labels_per_sample == 0.5


@pytest.mark.parametrize("has_it", [True, False])
def test_half_precision_of_the_processor_is_a_fact(has_it, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.plan.multiplies_bfloat16", lambda device: has_it)
    assert facts_of(MultiHeadClassifier(), many_rows(1001, 10)).fast_bfloat16 is has_it


# --- held-out samples -------------------------------------------------------------------------


def split_of(n_samples=2300, **params):
    data = many_rows(n_samples, 10)
    plan = Plan(MultiHeadClassifier(**params), data, going_on=False)
    return plan, *plan.split(np.random.RandomState(0))


def test_held_out_samples_are_those_not_trained_on():
    plan, train, held = split_of(decision="threshold")
    assert (len(train), len(held)) == (2070, 230)
    rows = np.concatenate([train.members, held.members])
    np.testing.assert_array_equal(np.sort(rows), np.arange(2300))
    for each in (train, held):
        assert (np.diff(each.members) > 0).all()
        assert each.Y.shape[0] == len(each)
    assert plan.held_out.n_held == 230
    again = split_of(decision="threshold")[2]
    np.testing.assert_array_equal(again.members, held.members)


def test_without_held_out_samples_all_are_trained_on():
    plan, train, held = split_of(decision="topk", ranker=None)
    assert train is plan.data.rows
    assert held is None


@pytest.mark.parametrize(
    "callbacks, refit",
    [
        (None, True),
        ([], True),
        ([WeightAveraging("ema"), ("stop", EarlyStopping())], True),
        ([EpochTimer()], False),
        ([("timer", EpochTimer())], False),
    ],
    ids=named,
)
def test_callbacks_of_ours_leave_a_second_network_alone(callbacks, refit):
    plan, _, held = split_of(callbacks=callbacks)
    assert plan.held_out.refit is refit
    assert plan.settings["validation_fraction"] == ("refit" if refit else 230 / 2300)
    assert (held is None) is refit


def test_a_part_trains_on_a_share_of_the_samples():
    data = many_rows(8000, 10)
    clf = MultiHeadClassifier()
    clf._is_part = True
    train, held = Plan(clf, data, going_on=False).split(np.random.RandomState(0))
    assert (len(train), len(held)) == (4800, 2500)


def test_a_sample_to_train_on_is_left():
    with pytest.raises(ValueError, match="validation_fraction=0.99 leaves no sample to train on"):
        split_of(20, early_stopping=True, validation_fraction=0.99)


# --- settings ---------------------------------------------------------------------------------


def test_parts_of_the_user_stay_as_they_are():
    """A fit resolves copies of them."""
    X, Y = few_words(True)
    parts = {"head": Flat(), "encoder": MLP(), "optimizer": optimizers.Adam()}
    before = {name: part.get_params() for name, part in parts.items()}
    clf = MultiHeadClassifier(max_epochs=1, **parts).fit(X, Y)
    for name, part in parts.items():
        assert getattr(clf, name) is part
        assert part.get_params() == before[name]
    assert clf.encoder_.hidden_layer_sizes == (384,)
    assert clf.head_.n_negatives is None


@pytest.mark.parametrize(
    "params, width",
    [
        ({}, 384),
        ({"ranker": "boosted"}, 384),
        ({"ranker": None}, 512),
        ({"ranker": Calibration()}, 512),
        ({"decision": "divergence"}, 512),
    ],
    ids=str,
)
@pytest.mark.parametrize("train", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("ignore:ranker=.* is learnt by fit")
def test_a_network_without_lists_is_wider(params, width, train):
    """Alone, a narrower one loses up to .9 points."""
    clf = MultiHeadClassifier(max_epochs=1, **params)
    assert getattr(clf, train)(*few_words(True)).encoder_.hidden_layer_sizes == (width,)


@pytest.mark.parametrize("name, value", [("learning_rate", 0.1), ("weight_decay", 0.2)])
def test_a_rate_is_given_in_one_place(name, value):
    X, y = np.eye(4), np.arange(4)
    part = optimizers.SGD(**{name: 0.3})
    clf = MultiHeadClassifier(optimizer=part, **{name: value})
    with pytest.raises(ValueError, match=f"{name}={value} is given, and optimizer=.*in one place"):
        clf.fit(X, y)
    clf.set_params(**{name: "auto" if name == "learning_rate" else 0.0}, max_epochs=1).fit(X, y)
    assert clf.settings_[f"optimizer__{name}"] == 0.3


@pytest.mark.parametrize(
    "params",
    [{"decision": "nearest", "head": "cascade"}, {"decision": "seen"}, {"decision": "threshold"}],
    ids=named,
)
def test_a_plan_leaves_the_classifier_as_it_is(params):
    clf = MultiHeadClassifier(**params)
    before = dict(vars(clf))
    Plan(clf, data_of(*few_words(True)), going_on=False).split(np.random.RandomState(0))
    assert vars(clf) == before


@pytest.mark.parametrize(
    "params, optimizer, rate, head_rate",
    [
        ({}, "mixed", 4e-3 * (70 / 6) ** 0.5, 4e-3),
        ({"optimizer": "adam"}, "adam", 4e-3 * (70 / 6) ** 0.5, 4e-3),
        ({"learning_rate": 0.1}, "mixed", 0.1, 0.1),
        ({"optimizer": optimizers.SGD(0.2, head_learning_rate=0.3)}, "sgd", 0.2, 0.3),
    ],
    ids=named,
)
def test_parts_are_resolved_for_the_samples_trained_on(params, optimizer, rate, head_rate):
    X = sp.random(1536, 300, density=0.02, format="csr", dtype=np.float32, random_state=0)
    data = data_of(X, sp.csr_matrix(np.eye(20, dtype=int)[np.arange(1536) % 20]))
    plan = Plan(MultiHeadClassifier(**params, weight_decay=0.01), data, going_on=False)
    plan.resolve(data.rows)
    settings = plan.settings
    assert (settings["batch_size"], settings["max_epochs"]) == (256, 17)
    assert settings["encoder"].hidden_layer_sizes == (384,)
    assert settings["head"].n_negatives is None
    part = settings["optimizer"]
    assert type(part) is optimizers.OPTIMIZERS[optimizer]
    assert part.learning_rate == pytest.approx(rate)
    assert part.head_learning_rate == pytest.approx(head_rate)
    assert part.weight_decay == 0.01
    assert plan.facts.n_train == 1536
    few = data.rows.select(np.arange(60))
    plan.resolve(few)
    assert plan.facts.n_train == 60
    assert (plan.settings["batch_size"], plan.settings["max_epochs"]) == (60, 200)
    assert (settings["batch_size"], settings["max_epochs"]) == (256, 17)  # nothing changes them


# --- a ranker that is asked for -----------------------------------------------------------------


def test_a_given_ranker_gets_held_out_samples_where_auto_has_too_few():
    X, Y = few_words(True)
    for ranker in ("calibration", Calibration()):
        clf = MultiHeadClassifier(ranker=ranker, max_epochs=2, random_state=0).fit(X, Y)
        assert type(clf.ranker_) is Calibration
        assert clf.settings_["ranker"] == "calibration"
    assert MultiHeadClassifier(max_epochs=2).fit(X[:90], Y[:90]).ranker_ is None


@pytest.mark.parametrize(
    "params", [{"loss": "pick_all_labels"}, {"head": "product", "loss": "bce"}]
)
def test_a_ranker_without_log_odds_is_refused(params):
    X, Y = few_words(True)
    clf = MultiHeadClassifier(ranker="calibration", max_epochs=1, **params)
    with pytest.raises(ValueError, match="needs scores of labels as log odds"):
        clf.fit(X, Y)
    X, y = few_words(False)
    assert type(clf.set_params(loss="auto").fit(X, y).ranker_) is Calibration  # of classes
