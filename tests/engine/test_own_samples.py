"""Decisions with samples of their own: what reads them, what keeps and ends the guarantee."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV

import sklearn_xlc
from _factories import quick
from sklearn_xlc import MIMLClassifier
from sklearn_xlc.datasets import (
    load_wordnet_glosses,
    make_extreme_multiclass,
    make_extreme_multilabel,
)
from sklearn_xlc.decisions import RiskControl, Taxonomy
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.metrics import topk_scorer

N_LABELS = 15


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(2600, 120, N_LABELS, noise=0.5, random_state=1)
    return sp.csr_matrix(X), sp.csr_matrix(Y)


@pytest.fixture(scope="module")
def classes():
    X, y = make_extreme_multiclass(1600, 80, N_LABELS, noise=0.6, random_state=0)
    return sp.csr_matrix(X), y


@pytest.fixture
def plans(monkeypatch):
    """Plans of the fits, which know the samples set apart."""
    seen, begin = [], Plan.begin
    monkeypatch.setattr(Plan, "begin", lambda self: (seen.append(self), begin(self))[1])
    return seen


def mean_miss(sets, Y):
    missed = sp.csr_matrix(Y) - sp.csr_matrix(sets).multiply(Y)
    return np.mean(missed.sum(axis=1) / np.maximum(1, Y.sum(axis=1)))


def all_but_decision(clf):
    """What was learnt, as bytes: weights, and the ranker with its memory."""
    weights = [p.detach().numpy().tobytes() for p in clf.net_.module_.parameters()]
    return weights, None if clf.ranker_ is None else pickle.dumps(clf.ranker_.__getstate__())


@pytest.mark.parametrize("kind", ["tags", "classes"])
@pytest.mark.parametrize("params", [{}, {"early_stopping": True, "ranker": "calibration"}])
def test_nothing_else_reads_the_samples(kind, params, data, classes, plans):
    X, y = data if kind == "tags" else classes
    X, y = X[:1600], y[:1600].toarray() if kind == "tags" else y[:1600]
    clf = quick("flat", max_epochs=2, decision=RiskControl(0.3), **params)
    first = clone(clf).fit(X, y)
    assert first.decision_.n_samples_ == 160 == len(plans[0].own)
    own = plans[0].own.members
    assert len(set(own)) == 160
    # Others in their place leave all as it is but the decision.
    X_other, y_other = X.tolil(), y.copy()
    X_other[own] = X[np.roll(own, 1)] * 3
    y_other[own] = y[np.roll(own, 7)]
    second = clone(clf).fit(X_other.tocsr(), y_other)
    assert all_but_decision(second) == all_but_decision(first)
    assert second.decision_.cut_ != first.decision_.cut_
    assert (first.ranker_ is None) == (second.ranker_ is None)


@pytest.mark.integration
def test_the_risk_of_new_samples(data):
    X, Y = data
    clf = quick("flat", max_epochs=8, decision=RiskControl(0.1)).fit(X[:1500], Y[:1500])
    assert clf.settings_["decision"] == "risk_control"
    assert clf.settings_["decision__alpha"] == 0.1
    assert mean_miss(clf.predict(X[1500:]), Y[1500:]) < 0.15
    sets = clf.predict_set(X[1500:])
    assert (sets != clf.predict(X[1500:])).nnz == 0
    cut, labels = clf.decision_.cut_, clf.decision_function(X[1500:])
    expected = labels >= np.float32(cut)
    expected[np.arange(len(labels)), labels.argmax(axis=1)] = True
    np.testing.assert_array_equal(sets.toarray(), expected)


@pytest.mark.integration
@pytest.mark.parametrize("ranker", [None, "boosted"])
def test_a_beam_searches_as_in_calibration(ranker):
    glosses = load_wordnet_glosses()
    X, Y = TfidfVectorizer(dtype=np.float32).fit_transform(glosses.data[:900]), glosses.target[:900]
    clf = quick("cascade", max_epochs=2, ranker=ranker).fit(X[:600], Y[:600])
    clf.recalibrate(X[600:900], Y[600:900], decision=RiskControl(0.4))
    sets = clf.predict(X[600:900])
    np.testing.assert_allclose(mean_miss(sets, Y[600:900]), clf.decision_.risk_)
    alone = sp.vstack([clf.predict(X[i]) for i in range(600, 615)])
    assert (alone != sets[:15]).nnz == 0


def test_settings_repeat_the_fit(data):
    X, Y = data[0][:1500], data[1][:1500]
    for ranker in ("auto", None):
        clf = quick("flat", max_epochs=2, decision=RiskControl(0.3), ranker=ranker).fit(X, Y)
        again = clone(clf).set_params(**clf.settings_).fit(X, Y)
        assert all_but_decision(again) == all_but_decision(clf)
        assert again.decision_.cut_ == clf.decision_.cut_


def test_sets_of_classes(classes):
    X, y = classes
    names = np.array([f"class {i:02d}" for i in range(N_LABELS)])
    clf = quick("flat", max_epochs=10, decision=RiskControl(0.2)).fit(X[:1000], names[y[:1000]])
    sets = clf.predict_set(X[1000:])
    assert sets.shape == (600,)
    assert all(isinstance(each, list) and each for each in sets)
    holds = [name in each for name, each in zip(names[y[1000:]], sets)]
    assert 0.72 < np.mean(holds)
    best, p = clf.predict(X[1000:]), clf.predict_proba(X[1000:])
    np.testing.assert_array_equal(best, clf.classes_[p.argmax(axis=1)])
    for row, name, each in zip(np.log(p), best, sets):
        near = np.abs(row - clf.decision_.cut_) < 1e-4
        assert set(clf.classes_[(row > clf.decision_.cut_) & ~near]) <= set(each)
        assert set(each) <= {name, *clf.classes_[(row > clf.decision_.cut_) | near]}
    frame = pd.DataFrame(X[1000:1003].toarray(), index=["a", "b", "c"])
    found = clf.predict_set(frame)
    assert list(found.index) == ["a", "b", "c"]
    assert found.tolist() == sets[:3].tolist()


@pytest.mark.parametrize("name", ["cascade", "product", "sampling-arcface", "etf"])
def test_sets_of_classes_of_every_head(name, classes):
    X, y = classes
    clf = quick(name, max_epochs=3, decision=RiskControl(0.4)).fit(X[:1000], y[:1000])
    sets = clf.predict_set(X[1000:])
    assert np.mean([label in each for label, each in zip(y[1000:], sets)]) > 0.5


def test_predict_set_needs_a_guarantee(data, classes):
    for X, y in (data, classes):
        clf = quick("flat", max_epochs=1).fit(X[:300], y[:300])
        with pytest.raises(ValueError, match=r"recalibrate\(X, y, decision=RiskControl\(\)\)"):
            clf.predict_set(X[:3])
        clf.recalibrate(X[300:600], y[300:600], decision=RiskControl(0.3))
        assert len(clf.predict_set(X[:3]).toarray() if sp.issparse(y) else clf.predict_set(X[:3]))
        clf.recalibrate(X[300:600], y[300:600], decision="auto")
        with pytest.raises(ValueError, match="needs a decision with a guarantee"):
            clf.predict_set(X[:3])


def test_new_samples_are_all_for_the_decision(data):
    X, Y = data
    clf = quick("flat", max_epochs=3).fit(X[:1500], Y[:1500])
    ranker = clf.ranker_
    assert ranker is not None
    clf.recalibrate(X[1500:2300], Y[1500:2300], decision=RiskControl(0.2))
    assert clf.ranker_ is ranker
    assert clf.decision_.n_samples_ == 800
    assert 0.1 < mean_miss(clf.predict(X[2300:]), Y[2300:]) < 0.3
    clf.recalibrate(X[1500:2300], Y[1500:2300], ranker="calibration")
    assert clf.ranker_ is not ranker
    assert clf.decision_.n_samples_ == 400
    clf.recalibrate(X[1500:2300], Y[1500:2300], ranker=None)
    assert clf.ranker_ is None
    assert clf.decision_.n_samples_ == 800
    clf.set_params(decision__alpha=0.1, ranker="calibration")
    clf.recalibrate(X[1500:2300], Y[1500:2300])
    assert (clf.decision_.alpha, clf.decision_.n_samples_) == (0.1, 400)
    before = pickle.dumps(clf.decision_)
    with pytest.raises(ValueError, match="alpha that can is 0.1667"):
        clf.recalibrate(X[:5], Y[:5], ranker=None)
    with pytest.raises(ValueError, match="give X and y"):
        clf.recalibrate(decision=RiskControl(0.2))
    assert pickle.dumps(clf.decision_) == before


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"validation_fraction": "refit"}, "'refit' trains the network on all samples"),
        ({"decision": RiskControl(0.001)}, "0.001 cannot be kept with 30 .* 0.0323; .*fraction"),
        ({"validation_fraction": 0.999}, "leaves no sample to train on"),
        ({"decision": RiskControl(min_labels=99)}, "min_labels=99 is more than the 15 labels"),
        ({"decision": RiskControl(risk="false_discovery")}, "give confidence"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused_before_training(params, message, data, classes):
    for X, y in (data, classes):
        clf = quick("flat", **{"decision": RiskControl(0.3), "max_epochs": 10**6} | params)
        with pytest.raises(ValueError, match=message):
            clf.fit(X[:300], y[:300])
        assert not hasattr(clf, "net_")


def test_networks_that_may_have_seen_the_samples_are_refused(data):
    X, Y = data[0][:400], data[1][:400]
    clf = quick("flat", max_epochs=1, warm_start=True).fit(X, Y)
    clf.set_params(decision=RiskControl(0.3))
    with pytest.raises(ValueError, match="with warm_start=True it may have seen all"):
        clf.fit(X, Y)
    with pytest.raises(ValueError, match="partial_fit holds no samples out.*recalibrate"):
        clf.partial_fit(X, Y)
    with pytest.raises(ValueError, match="partial_fit holds no samples out"):
        clone(clf).partial_fit(X, Y)


def test_scores_that_change_end_the_guarantee(data, classes, tmp_path):
    X, Y = data
    clf = quick("flat", max_epochs=1, decision=RiskControl(0.3), ranker="boosted")
    clf.fit(X[:1500], Y[:1500])
    with pytest.warns(UserWarning, match="forget changes scores"):
        clf.forget([0])
    with pytest.warns(UserWarning, match="remove_labels changes scores"):
        clf.remove_labels([2])
    assert clf.predict(X[:5]).shape == (5, N_LABELS - 1)
    for X, y in (data, classes):
        clf = quick("flat", max_epochs=1, decision=RiskControl(0.4), ranker=None)
        clf.fit(X[:1000], y[:1000])
        before = clf.decision_.cut_
        with pytest.warns(UserWarning, match=r"exact=False\) changes scores") as told:
            sklearn_xlc.save(clf, tmp_path / "m.skops")
        assert len(told) == 1
        with pytest.warns(UserWarning, match=r"exact=False\) changes scores"):
            sklearn_xlc.compress(clf)
        with pytest.warns(UserWarning, match="partial_fit changes scores"):
            clf.partial_fit(X[:500], y[:500])
        assert clf.decision_.cut_ == before
        clf.recalibrate(X[1000:1300], y[1000:1300])
        assert clf.decision_.n_samples_ == 300


def test_it_is_saved(classes, data, tmp_path):
    for X, y in (data, classes):
        clf = quick("flat", max_epochs=1, decision=RiskControl(0.4)).fit(X[:600], y[:600])
        sklearn_xlc.save(clf, tmp_path / "model.skops", exact=True)
        for loaded in (
            sklearn_xlc.load(tmp_path / "model.skops"),
            pickle.loads(pickle.dumps(clf)),
        ):
            assert repr(loaded.decision_) == repr(clf.decision_)
            assert vars(loaded.decision_) == vars(clf.decision_)
            found, expected = loaded.predict_set(X[:50]), clf.predict_set(X[:50])
            same = (found != expected).nnz == 0 if sp.issparse(y) else (found == expected).all()
            assert same


def test_a_search_over_alpha(data):
    X, Y = data[0][:900], data[1][:900]
    search = GridSearchCV(
        quick("flat", max_epochs=2, decision=RiskControl(), ranker=None),
        {"decision__alpha": [0.3, 0.6]},
        scoring=topk_scorer("precision", 1),
        cv=2,
    ).fit(X, Y)
    assert search.best_estimator_.decision_.n_samples_ == 90
    assert search.best_estimator_.decision_.risk_ <= search.best_params_["decision__alpha"]


def test_bags_have_sets():
    X, y = make_extreme_multiclass(900, 40, 6, random_state=0)
    bags = np.arange(900) // 3
    Y = np.zeros((300, 6), dtype=int)
    Y[bags, y] = 1
    clf = MIMLClassifier(encoder=MLP((16,)), max_epochs=2, decision=RiskControl(0.3)).fit(
        X, Y, bags
    )
    assert clf.decision_.n_samples_ == 30
    np.testing.assert_array_equal(clf.predict_set(X, bags), clf.predict(X, bags))


def test_a_taxonomy_changes_sets_and_so_their_risk(data):
    clf = quick("flat", max_epochs=1, decision=Taxonomy({1: 0}, RiskControl(0.3)))
    with pytest.raises(ValueError, match="guarantees a risk of its own sets"):
        clf.fit(data[0][:200], data[1][:200])
