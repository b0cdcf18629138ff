"""Held-out samples: how many, what is fitted on them, and the second network for few samples."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit
from sklearn.model_selection import KFold
from skorch.callbacks import Callback, EpochTimer
from torch import nn

from _factories import quick
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.engine.deciding import fit_decision
from sklearn_xlc.engine.label_code import SoftLabels
from sklearn_xlc.metrics import expected_calibration_error
from sklearn_xlc.ranking import BoostedRanker, Calibration, NearestSamples

N_LABELS = 18
#: A ranker that remembers samples, whatever the encoder reads.
REMEMBERS = BoostedRanker([("near", NearestSamples(space="features"))])
#: Classifiers whose labels have log odds of their own.
APART = ("flat", "cascade", "dft", "bags")


@pytest.fixture(scope="module")
def many():
    """Dense samples; an encoder of the user reads them, and so few are held out."""
    X, Y = make_extreme_multilabel(2300, 60, N_LABELS, noise=0.5, random_state=1)
    return X.toarray() + 0.01, sp.csr_matrix(Y)


def of_columns(name, **params):
    """A classifier with an encoder of the user: no second network is trained."""
    return quick(name, encoder=partial(nn.Linear, out_features=8), **params)


def held_out(monkeypatch):
    """Samples that fits hold out for the decision: a list with those of each fit to come."""
    found = []

    def remember(classifier, plan, train, held, **further):
        found.append((train, held))
        fit_decision(classifier, plan, train, held, **further)

    monkeypatch.setattr("sklearn_xlc.engine.base.fit_decision", remember)
    return found


@pytest.mark.parametrize("name", APART)
def test_auto_is_tuned_on_few_held_out_samples(many, name, monkeypatch):
    X, Y = many
    found = held_out(monkeypatch)
    order = {"head__label_order": "random"} if name == "cascade" else {}
    clf = of_columns(name, max_epochs=3, **order).fit(X, Y)
    train, held = found[0]
    assert (len(train), len(held)) == (2300 - 115, 115)
    truth = clf._code.from_positions(held.Y)
    features = held.X if held.members is None else held.X[held.members]
    network = copy.copy(clf)
    network.ranker_ = None
    scores = network.decision_function(features)
    by_hand = Calibration().fit(scores, truth)
    assert clf.ranker_.slope_ == pytest.approx(by_hand.slope_, rel=1e-3)
    assert clf.ranker_.offset_ == pytest.approx(by_hand.offset_, abs=1e-3)
    scores = clf.decision_function(features)
    expected = Threshold(min_labels="auto").fit(scores, truth, sizes=np.diff(Y.indptr))
    sets = expected.decode(clf.decision_function(X)).toarray()
    assert expected.min_labels_ == 1
    # What is fitted says what "auto" stands for.
    assert clf.decision_.get_params() == {**expected.get_params(), "min_labels": 1}
    assert clf.decision_.cut_ == pytest.approx(expected.cut_, abs=1e-5)
    np.testing.assert_array_equal(clf.predict(X).toarray(), sets)


@pytest.mark.parametrize("name", APART)
def test_calibrated_probabilities_are_the_same_everywhere(many, name):
    X, Y = many
    clf = of_columns(name, max_epochs=3).fit(X, Y)
    scores, p = clf.decision_function(X[:50]), clf.predict_proba(X[:50])
    np.testing.assert_allclose(p, expit(scores), rtol=1e-5)
    clf.ranker_, ranker = None, clf.ranker_
    np.testing.assert_allclose(scores, ranker(clf.decision_function(X[:50])), rtol=1e-5, atol=1e-6)
    clf.ranker_ = ranker
    labels, best = clf.predict_topk(X[:50], 4, proba=True)
    np.testing.assert_allclose(best, np.take_along_axis(p, labels, 1), rtol=1e-5)
    again, ranked = clf.predict_topk(X[:50], 4)
    np.testing.assert_array_equal(again, labels)
    np.testing.assert_allclose(ranked, np.take_along_axis(scores, labels, 1), rtol=1e-5, atol=1e-6)
    loaded = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(loaded.predict_proba(X[:50]), p)
    assert loaded.decision_.cut_ == clf.decision_.cut_


def test_a_given_threshold_is_one_of_predict_proba(many):
    X, Y = many
    clf = of_columns("flat", decision=Threshold(0.3), max_epochs=3).fit(X, Y)
    assert clf.ranker_ is not None
    assert clf.threshold_ == pytest.approx(0.3)
    np.testing.assert_array_equal(clf.predict(X).toarray(), clf.predict_proba(X) > 0.3)


@pytest.mark.parametrize(
    "params, n_held",
    [
        ({}, 115),
        ({"decision": "topk"}, 115),  # for the calibration
        ({"decision": "topk", "ranker": None}, 0),
        ({"ranker": None}, 115),
        ({"validation_fraction": 0.044}, 102),
        ({"validation_fraction": 0.04}, 0),  # too few
        ({"ranker": "calibration"}, 115),
        ({"decision": "threshold"}, 230),
        ({"early_stopping": True}, 115),  # and as many for early stopping
        ({"loss": "pick_all_labels"}, 115),
        ({"loss": "pick_all_labels", "decision": "topk"}, 0),
        ({"loss": "asymmetric"}, 115),
    ],
)
def test_how_many_samples_are_held_out(many, params, n_held, monkeypatch):
    X, Y = many
    found = held_out(monkeypatch)
    clf = of_columns("flat", max_epochs=2).set_params(**params).fit(X, Y)
    assert (0 if found[0][1] is None else len(found[0][1])) == n_held
    is_calibrated = n_held and params.get("ranker", "auto") and clf.loss != "pick_all_labels"
    assert (clf.ranker_ is not None) == bool(is_calibrated)
    if not {"decision", "loss"} & set(params):
        assert (clf.decision_.threshold == "tuned") == bool(n_held)


@pytest.mark.parametrize("splits", [False, True])
def test_early_stopping_reads_other_samples_than_ranker_and_decision(many, splits, monkeypatch):
    """The best epoch of some samples is a little too good on them."""

    class Watch(Callback):
        def on_train_begin(self, net, **kwargs):
            read.append(net.validation)

    read = []
    X, Y = many
    found = held_out(monkeypatch)
    params = {"early_stopping": True, "callbacks": [Watch()], "max_epochs": 2}
    if splits:
        params["validation_fraction"] = KFold(10)
    clf = of_columns("flat", ranker=REMEMBERS, **params).fit(X, Y)
    parts = [*found[0], read[0]]
    assert [len(part) for part in parts] == [2070, 115, 115]
    rows = np.concatenate([part.as_given() for part in parts])
    assert len(np.unique(rows, axis=0)) == 2300
    assert len(clf.ranker_.memory_["weights"]) == 2300  # it lists all of them for new samples


def test_few_samples_and_soft_labels_hold_out_none(many, monkeypatch):
    X, Y = many
    found = held_out(monkeypatch)
    for rows, y in (
        (X[:1999], Y[:1999]),
        (X, SoftLabels(sp.csr_matrix(Y * 0.7), Y)),
    ):
        clf = of_columns("flat", max_epochs=1).fit(rows, y)
        assert found[-1][1] is None
        assert clf.ranker_ is None
    assert of_columns("flat", max_epochs=1).fit(X[:1999], Y[:1999]).threshold_ == 0.5


def test_later_parts_keep_cut_and_calibration_and_a_new_fit_does_not(many):
    X, Y = many
    clf = of_columns("flat", max_epochs=3).fit(X, Y)
    cut, calibration = clf.decision_.cut_, clf.ranker_
    clf.partial_fit(X[:100], Y[:100])
    assert clf.decision_.cut_ == cut
    assert clf.ranker_ is calibration
    clf.fit(X[:100], Y[:100])
    assert clf.decision_.cut_ == 0.0
    assert clf.ranker_ is None


@pytest.mark.integration
def test_calibration_corrects_probabilities_that_are_far_off(many, all_trees):
    """Of the asymmetric loss, which pays little attention to easy negatives, they are too high."""
    X, Y = many
    X, X_test, Y, Y_test = X[:2000], X[2000:], Y[:2000], Y[2000:]
    errors = []
    for ranker in ("auto", None):
        clf = quick("flat", ranker=ranker, loss="asymmetric", max_epochs=5)
        labels, p = clf.fit(X, Y).predict_topk(X_test, 3, proba=True)
        errors.append(expected_calibration_error(Y_test, labels, p).mean())
    assert errors[0] < 0.5 * errors[1]


@pytest.fixture(scope="module")
def few():
    """Sparse samples, on all of which the network is trained."""
    X, Y = make_extreme_multilabel(1500, 400, N_LABELS, noise=0.5, random_state=1)
    return X, sp.csr_matrix(Y)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["flat", "cascade", "dft"])
def test_where_samples_are_few_a_second_network_decides(few, name, monkeypatch, ten_trees):
    X, Y = few
    found = held_out(monkeypatch)
    clf = quick(name, max_epochs=1).fit(X, Y)
    (train, held), (all_rows, none) = found
    assert (len(train), len(held), len(all_rows), none) == (900, 600, 1500, None)
    same = quick(name, decision="topk", max_epochs=1, ranker=None).fit(X, Y)
    for one, other in zip(clf.net_.module_.parameters(), same.net_.module_.parameters()):
        assert torch.equal(one, other)
    if clf.ranker_.keeps_order:
        scores = clf.ranker_(same.decision_function(X[:200]))
        np.testing.assert_array_equal(clf.decision_function(X[:200]), scores)
    assert (clf.decision_.threshold, clf.decision_.min_labels_) == ("tuned", 1)
    assert (clf.predict(X[:300]).sum(axis=1) >= 1).all()
    again = quick(name, max_epochs=1).fit(X, Y)
    assert again.decision_.cut_ == clf.decision_.cut_
    given = quick(name, decision=Threshold(0.3), max_epochs=1).fit(X, Y)
    X = X[:200]
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(given.predict(X).toarray(), given.predict_proba(X) > 0.3)
    np.testing.assert_array_equal(given.decision_function(X), clf.decision_function(X))


@pytest.mark.parametrize(
    "params",
    [
        {"callbacks": [EpochTimer()]},
        {"warm_start": True},
        {"decision": "topk", "ranker": None},
        {"loss": "pick_all_labels", "decision": "divergence"},
        {"encoder": torch.nn.Linear(400, 8)},
    ],
)
def test_no_second_network_for_callbacks_encoders_and_fits_that_go_on(few, params, monkeypatch):
    found = held_out(monkeypatch)
    quick("flat", max_epochs=1).set_params(**params).fit(*few)
    assert len(found) == 1


def test_the_second_network_says_what_it_is_for(few, capsys, tmp_path):
    quick("flat", max_epochs=2, verbose=1, checkpoint=tmp_path).fit(*few)
    said = capsys.readouterr().out
    assert said.count("train_loss") == 2
    assert said.count("second network] for ranker and decision: ") == 1
    quick("flat", max_epochs=2).fit(*few)
    assert capsys.readouterr().out == ""
    assert len(list(tmp_path.iterdir())) == 1
