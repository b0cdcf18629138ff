"""Classifiers whose ranker learns from the batches of `partial_fit`."""

import contextlib
import copy
import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from skorch.callbacks import LRScheduler
from torch.optim.lr_scheduler import LambdaLR

import sklearn_xlc
from _factories import quick
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.resolve import AFTER_FIT
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.optimizers import SGD, Adam, Mixed
from sklearn_xlc.ranking import BoostedRanker

N_LABELS, SIZE = 40, 50


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(1400, 200, N_LABELS, noise=0.3, random_state=1)
    return X, sp.csr_matrix(Y)


def fed(data, stop, clf=None, start=0, **params):
    X, Y = data
    clf = clf or quick("flat", learning_rate=0.005, **params)
    for i in range(start, stop, SIZE):
        clf.partial_fit(X[i : i + SIZE], Y[i : i + SIZE], classes=np.arange(Y.shape[1]))
    return clf


@pytest.fixture(scope="module")
def learnt(data):
    return fed(data, 1000)


@pytest.fixture(scope="module")
def waiting(data):
    return fed(data, 150)


@pytest.mark.integration
def test_it_ranks_better_than_the_network_alone(data, all_trees):
    X, Y = (part[1000:] for part in data)
    learnt, network = fed(data, 1000), fed(data, 1000, ranker=None)
    for k in (1, 3):
        one, other = (
            precision_at_k(Y, each.predict_topk(X, k)[0], k) for each in (network, learnt)
        )
        assert other > one + 0.1
    assert learnt.settings_["ranker"] == "boosted"
    p = learnt.predict_proba(X)
    assert abs(p.sum() - Y.sum()) < 0.2 * Y.sum()
    learnt.ranker_ = None  # lists change nothing in training
    np.testing.assert_array_equal(learnt.decision_function(X), network.decision_function(X))


def test_sorted_scores_are_the_best_labels(data, learnt):
    X = data[0][1000:1100]
    labels, scores = learnt.predict_topk(X, N_LABELS)
    every = learnt.decision_function(X)
    np.testing.assert_array_equal(labels, np.argsort(-every, axis=1, kind="stable"))
    np.testing.assert_array_equal(scores, -np.sort(-every, axis=1))
    assert learnt.predict(X).shape == (100, N_LABELS)


def test_a_batch_is_listed_before_the_network_trains_on_it(data, waiting):
    clf, (X, Y) = copy.deepcopy(waiting), data
    assert clf.ranker_ is None
    assert clf.settings_["ranker"] is None
    n_before = len(clf._waiting.held_["keys"])
    labels, scores = clf.predict_topk(X[150:170], 20)
    clf.partial_fit(X[150:170], Y[150:170])
    assert (clf.predict_topk(X[150:170], 20)[1] != scores).any()
    held = clf._waiting.held_
    np.testing.assert_array_equal(held["labels"][n_before:], labels)
    np.testing.assert_array_equal(held["scores"][n_before:], scores)


def test_reservoir_and_memory_stay_small(data):
    clf = fed(data, 1000, ranker=BoostedRanker(max_samples=400))
    assert len(clf.ranker_.memory_["weights"]) == 400
    held = clf.ranker_.held_
    assert held is None or len(held["keys"]) <= 1000
    auto = fed(data, 50)
    assert auto._waiting.max_samples == BoostedRanker().max_samples == 1_000_000


@pytest.mark.integration
def test_passes_over_the_same_samples_leave_the_network_alone(data):
    X, Y = (part[:300] for part in data)
    clf, network = (quick("flat", ranker=ranker) for ranker in ("auto", None))
    for each in (clf, network):
        for _ in range(6):
            fed((X, Y), 300, each)
    assert clf.ranker_ is None
    assert len(clf._waiting.memory_["weights"]) <= 300
    np.testing.assert_array_equal(clf.decision_function(X), network.decision_function(X))


@pytest.mark.integration
def test_late_labels_are_predicted_from_their_first_samples(data, all_trees):
    X, Y = data
    first = 32
    late = np.asarray(Y[:, first:].sum(axis=1)).ravel() > 0
    known, new = np.flatnonzero(~late), np.flatnonzero(late)
    clf = fed((X[known], Y[known][:, :first]), 600)
    batch, test = new[:60], new[60:]
    clf.partial_fit(X[batch], Y[batch], classes=np.arange(N_LABELS))
    network = copy.deepcopy(clf)
    network.ranker_ = None
    found = [
        precision_at_k(Y[test][:, first:], each.decision_function(X[test])[:, first:], 1)
        for each in (clf, network)
    ]
    assert found[0] > max(0.5, found[1])
    assert (clf.predict_topk(X[test], 3)[0] >= first).any(axis=1).mean() > 0.5
    clf.remove_labels(np.arange(first, N_LABELS))
    clf.partial_fit(X[known[600:650]], Y[known[600:650]][:, :first])
    assert clf.decision_function(X[:5]).shape == (5, first)


@pytest.mark.parametrize("state", ["waiting", "learnt"])
def test_a_saved_classifier_goes_on(data, state, request, tmp_path):
    clf = request.getfixturevalue(state)
    X = data[0][1200:]
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    others = [pickle.loads(pickle.dumps(clf)), sklearn_xlc.load(tmp_path / "model")]
    start = 150 if state == "waiting" else 1000
    for other in others:
        np.testing.assert_array_equal(other.decision_function(X), clf.decision_function(X))
    for other in others:
        fed(data, start + 200, other, start)
        assert type(other.ranker_) is BoostedRanker
    one, other = (each.decision_function(X) for each in others)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("state", ["waiting", "learnt"])
def test_samples_are_named_and_forgotten(data, state, request):
    clf, X = copy.deepcopy(request.getfixturevalue(state)), data[0]
    with pytest.raises(ValueError, match="not remembered"):
        clf.forget([5000])
    clf.forget([3, 120])
    ranker = clf.ranker_ or clf._waiting
    assert not np.isin([3, 120], ranker.memory_["samples"]["ids"]).any()
    found = sklearn_xlc.explain_topk(clf, X[:3], k=2, examples=2).examples
    assert {0, 1, 2} & set(np.ravel(found).tolist())
    clf.forget()
    assert clf._waiting is None
    assert not (clf.ranker_ is not None and clf.ranker_.reads)
    fed(data, 1100, clf, 1050)  # and later ones are not remembered, either
    assert clf._waiting is None


def test_class_labels(data):
    X, y = make_extreme_multiclass(1200, 300, 110, random_state=0)
    clf = quick("flat", learning_rate=0.005)
    for i in range(0, 900, 100):
        clf.partial_fit(X[i : i + 100], y[i : i + 100], classes=np.arange(110))
    assert type(clf.ranker_) is BoostedRanker
    np.testing.assert_allclose(clf.predict_proba(X[900:]).sum(axis=1), 1, rtol=1e-5)
    accuracy = clf.score(X[900:], y[900:])
    clf.ranker_ = None
    assert accuracy > clf.score(X[900:], y[900:]) + 0.1


def test_the_network_ranks_alone_where_lists_are_of_no_use(data):
    X, Y = (part[:60] for part in data)
    for ranker in (None, "calibration"):
        warned = pytest.warns(UserWarning, match="is learnt by fit, or by recalibrate")
        with warned if ranker else contextlib.nullcontext() as warnings:
            clf = quick("flat", ranker=ranker).partial_fit(X, Y)
        assert not warnings or warnings[0].filename == __file__
        assert clf.partial_fit(X, Y).ranker_ is None  # without another warning
        assert clf._waiting is None
    few = quick("flat").partial_fit(X[:9].toarray() + 0.1, Y[:9])  # columns have no scales yet
    assert few._waiting is None
    given = quick("flat", ranker="boosted").partial_fit(X.toarray() + 0.1, Y)
    assert type(given._waiting) is BoostedRanker


def test_fit_begins_anew(data, waiting):
    clf = copy.deepcopy(waiting).set_params(ranker=None, max_epochs=1, encoder=MLP((8,)))
    clf.fit(*data)
    assert clf._waiting is None
    assert clf.ranker_ is None


def test_a_waiting_ranker_is_learnt_by_recalibrate(data, waiting):
    clf, (X, Y) = copy.deepcopy(waiting), data
    clf.recalibrate(X[200:400], Y[200:400], ranker=BoostedRanker("words"))
    assert type(clf.ranker_) is BoostedRanker
    assert clf._waiting is None
    assert clf.ranker_.trees_ is not None
    assert len(clf.ranker_.memory_["weights"]) == 150


def stream_of(X, y, sizes, **params):
    clf = MultiHeadClassifier("flat", **{"random_state": 0, "encoder": MLP((16,)), **params})
    for start, stop in itertools.pairwise(np.cumsum([0, *sizes])):
        clf.partial_fit(X[start:stop], y[start:stop])
    return clf


@pytest.mark.parametrize("form", ["tags", "frame", "integer index"])
def test_samples_of_a_stream_have_the_names_of_y(form):
    X, Y = make_extreme_multilabel(600, 60, 12, random_state=0)
    names = [f"d{i}" for i in range(600)]
    if form == "integer index":
        names = list(range(1000, 1600))
    if form == "frame":
        y = pd.DataFrame(Y.toarray(), index=names).add_prefix("l")
    else:
        y = pd.Series([[f"l{j}" for j in row.indices] for row in Y], index=names)
    for clf in (
        stream_of(X, y, [300, 260, 40]),
        MultiHeadClassifier("flat", encoder=MLP((16,)), random_state=0)
        .fit(X[:400], y[:400])
        .partial_fit(X[400:], y[400:]),
    ):
        ids = clf.ranker_.memory_["samples"]["ids"].tolist()
        assert set(ids) <= set(names)
        assert {names[0], names[-1]} <= set(ids)
        clf.forget([names[-1]])


def test_equal_samples_with_integer_names_are_kept_apart():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    X, Y = sp.vstack([X, X[:40]], "csr"), sp.vstack([Y, Y[:40]], "csr")
    y = pd.DataFrame(Y.toarray(), index=range(1000, 1680, 2))
    clf = stream_of(X, y, [200, 140])
    clf.forget([1600])
    with pytest.raises(ValueError, match="not remembered: .1600"):
        clf.forget([1600])
    ids = clf.ranker_.memory_["samples"]["ids"]
    assert ids.dtype == np.int64
    assert ids.tolist() == [name for name in y.index if name != 1600]


def test_set_sizes_of_all_batches_count():
    X, Y = make_extreme_multilabel(400, 60, 12, random_state=0)
    Y = sp.lil_matrix(Y)
    Y[150:300:2] = 0
    Y = Y.tocsr()
    clf = stream_of(X, Y, [100, 100, 200])
    expected = np.bincount(np.diff(Y.indptr))
    np.testing.assert_array_equal(clf._set_sizes[: len(expected)], expected)
    assert clf.decision_.min_labels_ == 0
    clf.recalibrate(X[200:], Y[200:])
    assert clf.decision_.min_labels_ == 0
    k = stream_of(X, Y, [100, 1, 299], decision="topk").decision_.k_
    assert k == max(1, round(Y.nnz / 400))


def rates_of(clf):
    return [group["lr"] for group in clf.net_.optimizer_.param_groups]


def rules_of(clf):
    return [group["rule"] for group in clf.net_.optimizer_.param_groups]


@pytest.mark.parametrize("first", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "before, after",
    [
        ("adam", {"weight_decay": 0.5}),
        ("auto", {"weight_decay": 0.5}),
        (SGD(momentum=0.9), {"optimizer": SGD(momentum=0.5)}),
        (SGD(momentum=0.9), {"optimizer__nesterov": True}),
        (SGD(0.1), {"optimizer__momentum": 0.9}),
        (Mixed(), {"optimizer__head_learning_rate": 0.1}),
        (Adam(learning_rate=0.1), {"optimizer__weight_decay": 0.1}),
        (Adam(row_momentum=True), {"optimizer__row_momentum": False}),
    ],
)
def test_what_is_set_between_batches_holds_as_in_a_copy_which_has_a_new_optimiser(
    first, before, after
):
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    clf = quick("flat", max_epochs=2, optimizer=copy.deepcopy(before), learning_rate="auto")
    getattr(clf, first)(X[:200], Y[:200])
    clf.partial_fit(X[200:], Y[200:])
    copied = copy.deepcopy(clf)
    found = []
    for each in (clf, copied):
        each.set_params(**copy.deepcopy(after)).partial_fit(X[200:], Y[200:])
        names = {parameter: name for name, parameter in each.net_.module_.named_parameters()}
        settings = {}
        for group in each.net_.optimizer_.param_groups:
            settings |= {names[p]: {**group, "params": None} for p in group["params"]}
        found.append(settings)
    assert found[0] == found[1]


def test_rates_that_are_set_hold_from_the_next_batch_on():
    X, Y = make_extreme_multilabel(400, 60, 12, random_state=0)
    clf = stream_of(X, Y, [200])
    clf.set_params(learning_rate=1e-6).partial_fit(X[200:], Y[200:])
    assert max(rates_of(clf)) <= 3e-6  # three times the rate in the layer of dense columns
    clf.set_params(learning_rate="auto", optimizer=SGD(0.5)).partial_fit(X[200:], Y[200:])
    assert set(rules_of(clf)) == {"sgd"}
    assert max(rates_of(clf)) == 0.5


def test_schedules_begin_at_rates_that_were_set():
    X, Y = make_extreme_multilabel(200, 60, 12, random_state=0)
    steady = LRScheduler(policy=LambdaLR, lr_lambda=lambda _: 1.0, step_every="batch")
    clf = quick("flat", optimizer="adam", learning_rate=0.1, callbacks=[steady])
    clf.partial_fit(X, Y).set_params(learning_rate=1e-6).partial_fit(X, Y)
    assert {group["initial_lr"] for group in clf.net_.optimizer_.param_groups} == {1e-6}


def test_the_first_batch_decides_no_rate_of_a_stream():
    X, Y = make_extreme_multilabel(400, 300, 12, random_state=0)
    one, other = (stream_of(X, Y, sizes) for sizes in ([20, 180, 200], [200, 200]))
    assert rates_of(one) == rates_of(other)
    assert rules_of(one) == rules_of(other) == ["scaled", "adam", "adam"]
    copied = copy.deepcopy(one)  # without moments
    for clf in (one, copied):
        clf.partial_fit(X[:20], Y[:20])
    assert rates_of(one) == rates_of(copied) != rates_of(other)


@pytest.mark.parametrize("again", [False, True], ids=["fit", "warm start"])
def test_after_a_fit_rates_are_a_share_of_those_of_a_stream(again):
    X, Y = make_extreme_multilabel(400, 300, 12, random_state=0)
    clf = stream_of(X, Y, [200] if again else [], ranker=None)
    clf.set_params(warm_start=again).fit(X[:200], Y[:200])
    one, other = copy.deepcopy(clf), clf
    for start in range(200, 400, 20):
        one.partial_fit(X[start : start + 20], Y[start : start + 20])
    other.partial_fit(X[200:380], Y[200:380]).partial_fit(X[380:], Y[380:])
    stream = stream_of(X, Y, [380, 20], ranker=None)
    assert rates_of(one) == rates_of(other)
    assert rates_of(one) == pytest.approx([AFTER_FIT * rate for rate in rates_of(stream)])
    assert rules_of(one) == rules_of(stream)  # however small the first batch was
    one.set_params(learning_rate=1e-3).partial_fit(X[:20], Y[:20])
    assert set(rates_of(one)) == {1e-3, 3e-3}  # a given rate is taken as it is


def test_a_later_sample_is_a_neighbour_at_once(data, tmp_path):
    X, Y = data
    clf = quick("flat", max_epochs=2, ranker="boosted").fit(X[:1000], Y[:1000])
    clf.predict_topk(X[:5], k=1)  # makes the index
    before = dict(clf.ranker_.retrievers_)
    sample, labels = X[1000], np.flatnonzero(Y[1000].toarray()[0] == 0)[:2]  # of all others
    y = sp.csr_matrix(([1, 1], ([0, 0], labels)), shape=(1, N_LABELS))
    clf.partial_fit(sample, y)
    after = dict(clf.ranker_.retrievers_)
    assert after["centroids"] is before["centroids"]  # the index is not made again
    assert before["near"].labels_.shape[0] == 1000
    sklearn_xlc.save(clf, tmp_path / "model.skops", exact=True)
    for each in (clf, copy.deepcopy(clf), sklearn_xlc.load(tmp_path / "model.skops")):
        why = sklearn_xlc.explain_topk(each, sample, k=N_LABELS, examples=1)
        named = why.labels[0][why.examples[0, :, 0] == 1000]
        assert sorted(named) == labels.tolist()
    clf.partial_fit(X[1001:1150], Y[1001:1150])  # more than 10% of them are new
    clf.predict_topk(X[:5], k=1)
    assert dict(clf.ranker_.retrievers_)["centroids"] is not before["centroids"]


def test_a_rule_that_stays_has_rates_of_its_own():
    X, Y = make_extreme_multilabel(400, 300, 12, random_state=0)
    clf = MultiHeadClassifier("flat", learning_rate=0.02, max_epochs=1, ranker=None)
    clf.fit(X[:40], Y[:40]).partial_fit(X[40:50], Y[40:50]).partial_fit(X[50:], Y[50:])
    assert set(rules_of(clf)) == {"adam"}  # by a batch that was small; now it would be "mixed"
    assert set(rates_of(clf)) == {0.02}  # not three times as much in the input layer


@pytest.mark.integration
def test_a_stream_of_samples_that_come_once_comes_close_to_a_fit():
    X, Y = make_extreme_multilabel(3000, 400, 60, random_state=0)
    train, test = slice(0, 2000), slice(2000, None)
    params = {"ranker": None, "encoder": MLP()}
    fitted = stream_of(X, Y, [], **params).fit(X[train], Y[train])

    def precision(clf):
        return precision_at_k(Y[test], clf.predict_topk(X[test], 1)[0], 1)

    for sizes in ([50] * 40, [20, *[99] * 20], [1000, *[100] * 10]):
        assert precision(stream_of(X, Y, sizes, **params)) > precision(fitted) - 0.1


def test_a_young_stream_forgets_its_samples_and_goes_on():
    X, Y = make_extreme_multilabel(600, 60, 12, random_state=0)
    clf = stream_of(X, Y, [3])
    with pytest.raises(ValueError, match="got booleans; give ids"):
        clf.forget(np.array([True, False, True]))
    clf.forget([0, 1, 2])
    for start in range(3, 600, 199):
        clf.partial_fit(X[start : start + 199], Y[start : start + 199])
    assert clf.ranker_.memory_["samples"]["ids"].tolist() == list(range(3, 600))


def test_dense_columns_are_standardised_by_the_first_batch():
    X, y = make_classification(1500, 20, n_informative=10, n_classes=5, random_state=0)
    accuracy = {}
    for name, units in (("one", 1.0), ("many", np.geomspace(1e-3, 1e3, 20))):
        clf = MultiHeadClassifier(random_state=0)
        for part in np.split(np.arange(1200), 4):
            clf.partial_fit(X[part] * units + units, y[part], classes=range(5))
        accuracy[name] = clf.score(X[1200:] * units + units, y[1200:])
    assert type(clf.ranker_) is BoostedRanker
    assert accuracy["many"] == pytest.approx(accuracy["one"], abs=0.05)
    assert accuracy["many"] > 0.6


def test_columns_that_are_constant_in_the_first_batch_have_the_scale_of_others():
    X, y = make_classification(1500, 20, n_informative=10, n_classes=5, random_state=0)
    X *= 1e4
    X[:300, :2] = 5.0
    clf = MultiHeadClassifier(ranker=None, random_state=0)
    for part in np.split(np.arange(1200), 4):
        clf.partial_fit(X[part], y[part], classes=range(5))
    assert clf.score(X[1200:], y[1200:]) > 0.5


def test_lists_are_not_learnt_from_labels_that_come_one_after_the_other():
    X, y = make_classification(1500, 20, n_informative=10, n_classes=10, random_state=0)
    order = np.argsort(y, kind="stable")
    clf = MultiHeadClassifier(random_state=0)
    for part in np.split(order, 10):
        clf.partial_fit(X[part], y[part], classes=range(10))
    assert clf.ranker_ is None
