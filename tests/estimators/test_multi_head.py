"""MultiHeadClassifier: its algorithms, the lengths of its heads, the order of labels."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from _factories import CLASSIFIERS, EVERY, N_LABELS, make_learnable, quick
from sklearn_xlc import MultiHeadClassifier

every_algorithm = pytest.mark.parametrize(
    "name, multilabel",
    [
        (name, multilabel)
        for name, multilabel in EVERY
        if isinstance(CLASSIFIERS[name], MultiHeadClassifier) and name != "cascade-narrow"
    ],
)


# --- labels and their order -------------------------------------------------------------------


@every_algorithm
@pytest.mark.parametrize("order", ["given", "random", "clustered", "reversed"])
def test_label_order_moves_places_not_names(name, multilabel, order):
    X, y = make_learnable(multilabel)
    reversed_places = np.arange(N_LABELS)[::-1]
    label_order = reversed_places if order == "reversed" else order
    clf = quick(name, label_order=label_order, max_epochs=30, learning_rate=0.05).fit(X, y)
    np.testing.assert_array_equal(np.sort(clf.label_order_), np.arange(N_LABELS))
    if order == "reversed":
        np.testing.assert_array_equal(clf.label_order_, reversed_places)
    if order == "given":
        np.testing.assert_array_equal(clf.label_order_, np.arange(N_LABELS))
    best = clf.predict_topk(X, k=1)[0][:, 0]
    hits = np.asarray(y[np.arange(150), best]).ravel() if multilabel else best == y
    assert np.mean(hits) > 0.85
    scores = clf.decision_function(X)
    np.testing.assert_array_equal(clf.predict_topk(X, k=1)[0][:, 0], scores.argmax(1))


# --- the estimator as a citizen of scikit-learn -----------------------------------------------


def test_auto_takes_the_head_that_suits_the_labels(monkeypatch):
    X, y = make_learnable(False)
    _, Y = make_learnable(True)
    assert quick("flat", algorithm="auto").fit(X, y).algorithm_ == "flat"
    monkeypatch.setattr("sklearn_xlc.estimators.multi_head.FLAT_LIMIT", (10, 10))
    assert quick("flat", algorithm="auto").fit(X, y).algorithm_ == "product"
    assert quick("flat", algorithm="auto").fit(X, Y).algorithm_ == "cascade"


def test_head_lengths_are_used():
    X, y = make_learnable(False)
    clf = quick("product", head_lengths=[4, 6]).fit(X, y)
    assert clf.head_lengths_ == (4, 6)
    assert clf.net_.module_.head.linear.out_features == 10
    assert quick("cascade", head_lengths=(3, 2, 4)).fit(X, y).head_lengths_ == (3, 2, 4)
    assert quick("sampling", head_lengths=(5, 5)).fit(X, y).head_lengths_ == (5, 5)
    assert quick("flat").fit(X, y).head_lengths_ == (N_LABELS,)


def test_parameters_can_be_set_and_cloned():
    clf = quick("cascade", encoder=torch.nn.Linear(60, 4), label_order=np.arange(N_LABELS)[::-1])
    copy = clone(clf)
    assert copy.get_params().keys() == clf.get_params().keys()
    assert copy.encoder is not clf.encoder
    copy.set_params(algorithm="flat", beam_width=3)
    assert (copy.algorithm, copy.beam_width, clf.algorithm) == ("flat", 3, "cascade")
    X, y = make_learnable(False)
    fitted = clf.fit(X, y)
    assert not hasattr(clone(fitted), "net_")
    assert "MultiHeadClassifier(" in repr(fitted)


def test_head_lengths_as_an_array_without_dimensions():
    with pytest.raises(ValueError, match=r"head_lengths=\(3,\) is not valid"):
        MultiHeadClassifier("product", head_lengths=np.array(3)).fit(np.eye(4), np.arange(4))
