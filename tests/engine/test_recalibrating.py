"""Ranker and decision learnt anew, and parts that were set but not learnt."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from _factories import quick
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Threshold, TopK
from sklearn_xlc.metrics import expected_calibration_error
from sklearn_xlc.ranking import BoostedRanker, Calibration

N_LABELS = 18


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(3000, 200, N_LABELS, noise=0.5, random_state=1)
    return X, sp.csr_matrix(Y)


@pytest.fixture
def clf(data):
    X, Y = data
    return quick("flat", max_epochs=3).fit(X[:1500], Y[:1500])


def weights_of(clf):
    return [p.detach().clone() for p in clf.net_.module_.parameters()]


def test_a_decision_that_is_not_learnt_needs_no_samples(clf, data):
    X, before, ranker = data[0], weights_of(clf), clf.ranker_
    assert clf.recalibrate(decision=TopK(3)) is clf
    assert (clf.predict(X).sum(axis=1) == 3).all()
    assert (clf.settings_["decision"], clf.settings_["decision__k"]) == ("topk", 3)
    assert clf.decision.k == 3
    clf.recalibrate(decision=Threshold(0.3))
    np.testing.assert_array_equal(clf.predict(X).toarray(), clf.predict_proba(X) > 0.3)
    assert clf.ranker_ is ranker
    assert all((a == b).all() for a, b in zip(before, weights_of(clf)))


def test_mean_sizes_are_those_of_the_fit(clf, data):
    fitted = quick("flat", max_epochs=3, decision="topk").fit(data[0][:1500], data[1][:1500])
    assert clf.recalibrate(decision="topk").decision_.k_ == fitted.decision_.k_


def test_ranker_and_decision_are_learnt_from_new_samples(clf, data):
    X, Y = (part[1500:] for part in data)
    for ranker, kind in (("boosted", BoostedRanker), ("calibration", Calibration)):
        if ranker == "boosted":
            clf.set_params(ranker=ranker).fit(data[0][:1500], data[1][:1500])
        before = clf.predict_proba(X)
        clf.recalibrate(X, Y, ranker=ranker)
        assert type(clf.ranker_) is kind
        assert clf.settings_["ranker"] == ranker
        assert clf.decision_.threshold == "tuned"
        assert (clf.predict_proba(X) != before).any()
        with_it = expected_calibration_error(Y, *clf.predict_topk(X, 2, proba=True)).mean()
        clf.recalibrate(X, Y, ranker=None)
        without = expected_calibration_error(Y, *clf.predict_topk(X, 2, proba=True)).mean()
        assert with_it < without


def test_a_ranker_that_remembers_keeps_what_it_remembers(data):
    X, Y = data
    clf = quick("flat", max_epochs=3, ranker="boosted").fit(X[:1500], Y[:1500])
    labels = clf.ranker_.memory_["labels"]
    clf.recalibrate(X[1500:], Y[1500:], ranker=BoostedRanker(tail=0.0))
    assert clf.ranker_.tail == 0.0
    assert labels.shape[0] == 1500
    assert (clf.ranker_.memory_["labels"] != labels).nnz == 0


@pytest.mark.parametrize(
    "given, message",
    [
        ({"decision": "threshold"}, "give X and y"),
        ({"decision": "seen"}, "fit again"),
        ({"ranker": "calibration"}, "give X and y"),
        ({"decision": "best"}, "'decision' parameter of MultiHeadClassifier must be"),
        ({"decision": TopK(19)}, "k=19 is more than the 18 labels"),
        ({"y": [[1]]}, "X and y belong together"),
    ],
)
def test_what_cannot_be_learnt_leaves_the_classifier_as_it_was(clf, data, given, message):
    before, params = clf.predict(data[0]), clf.get_params()
    with pytest.raises(ValueError, match=message):
        clf.recalibrate(**given)
    assert (clf.predict(data[0]) != before).nnz == 0
    assert clf.get_params() == params


def test_a_ranker_that_remembers_needs_training_samples(data):
    X, Y = data
    clf = quick("flat", max_epochs=3, ranker="calibration").fit(X[:1500], Y[:1500])
    with pytest.raises(ValueError, match="fit again"):
        clf.recalibrate(X[1500:], Y[1500:], ranker="boosted")
    assert type(clf.ranker_) is Calibration


def test_class_labels_get_a_temperature(data):
    X, Y = data
    y = np.asarray(Y.argmax(axis=1)).ravel()
    clf = quick("flat", max_epochs=20, ranker=None).fit(X[:1000], y[:1000])
    best = clf.predict(X)
    error = expected_calibration_error(Y_of(y[2000:]), *top(clf, X[2000:]))[0]
    clf.recalibrate(X[1000:2000], y[1000:2000], ranker="calibration")
    np.testing.assert_array_equal(clf.predict(X), best)
    assert abs(clf.ranker_.slope_ - 1) > 0.1
    assert expected_calibration_error(Y_of(y[2000:]), *top(clf, X[2000:]))[0] < 0.5 * error
    np.testing.assert_allclose(clf.predict_proba(X[:9]).sum(axis=1), 1, rtol=1e-5)


def Y_of(y):
    return np.eye(N_LABELS)[y]


def top(clf, X):
    labels, p = clf.predict_topk(X, 1, proba=True)
    return np.searchsorted(clf.classes_, labels), p


def test_a_part_that_is_set_after_the_fit_is_named_once(clf, data):
    X, before = data[0][:50], clf.predict(data[0][:50])
    clf.set_params(decision=TopK(2), max_epochs=7)
    with pytest.warns(UserWarning, match=r"decision \(recalibrate\)") as warned:
        assert (clf.predict(X) != before).nnz == 0
    assert "encoder" not in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(X)
        clf.set_params(ranker=clf.ranker, learning_rate=1e-3).predict(X)
        clf.set_params(decision="threshold").recalibrate(decision=TopK(2)).predict(X)
    clf.set_params(encoder="mlp", encoder__dropout=0.1)
    with pytest.warns(UserWarning, match=r"encoder \(fit again\)"):
        clf.predict_topk(X, k=1)
