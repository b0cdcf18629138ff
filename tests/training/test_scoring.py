"""Scores of a net in training: labels as the user knows them, best first."""

import numpy as np
import pytest
import scipy.sparse as sp
from skorch.callbacks import Callback
from skorch.utils import to_numpy

from _factories import make_learnable, quick
from sklearn_xlc.batches import Rows
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.training.scoring import Samples, ScoredNet


class Check(Callback):
    """Run a function of the net and the samples of a fit after each epoch."""

    def __init__(self, function):
        self.function = function

    def on_epoch_end(self, net, dataset_train, dataset_valid, **kwargs):
        self.function(net, dataset_train, dataset_valid)


@pytest.mark.parametrize("multilabel", [False, True])
def test_samples_have_the_labels_of_the_user(multilabel):
    X, y = make_learnable(multilabel)
    y = y if multilabel else np.array([f"class {label:02}" for label in y])

    def check(net, train, held):
        assert held is None
        assert len(train) == len(X.toarray())
        if multilabel:
            assert (train.y != y).nnz == 0
        else:
            np.testing.assert_array_equal(train.y, y)

    quick("cascade", max_epochs=1, head__label_order="random", callbacks=[Check(check)]).fit(X, y)


@pytest.mark.parametrize("name", ["flat", "cascade", "bags"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_scores_in_training_are_those_of_the_fitted_classifier(name, multilabel):
    X, y = make_learnable(multilabel)
    seen = {}

    def check(net, train, held):
        seen["topk"] = net.predict_topk(train.X, 4)
        seen["scores"] = net.decision_function(train.X)
        seen["score"] = net.score(train.X, train.y)
        seen["at 2"] = topk_scorer("recall", k=2)(net, train.X, train.y)
        if not multilabel:
            seen["labels"] = net.predict(train.X)

    order = {"head__label_order": "random"} if name == "cascade" else {}
    clf = quick(name, max_epochs=8, callbacks=[Check(check)], **order)
    clf.fit(X, y)
    for one, other in zip(seen["topk"], clf.predict_topk(X, 4)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(seen["scores"], clf.decision_function(X))
    assert seen["score"] == clf.score(X, y)
    assert seen["at 2"] == topk_scorer("recall", k=2)(clf, X, y)
    if not multilabel:
        np.testing.assert_array_equal(seen["labels"], clf.predict(X))
    assert clf.net_.classifier is None


def test_skorch_hands_indicators_on():
    indicator = sp.csr_matrix(np.eye(3))
    handed = to_numpy(Samples(Rows(np.eye(3), indicator)).y)
    assert type(handed) is sp.csr_matrix
    assert (handed != indicator).nnz == 0


def test_tags_are_columns():
    X, Y = make_learnable(True)
    tags = [[f"tag {label:02}" for label in row.indices] for row in Y]
    seen = []

    def check(net, train, held):
        seen.append(topk_scorer("precision", k=1)(net, train.X, train.y))

    clf = quick("flat", max_epochs=5, callbacks=[Check(check)]).fit(X, tags)
    assert seen[-1] == topk_scorer("precision", k=1)(clf, X, tags)


def test_label_sets_are_not_decided_on_in_training():
    def check(net, train, held):
        with pytest.raises(ValueError, match="score callbacks by a metric of ranked labels"):
            net.predict(train.X)

    quick("flat", max_epochs=1, callbacks=[Check(check)]).fit(*make_learnable(True))


def test_without_a_classifier_there_are_positions_and_no_predictions():
    rows = Rows(np.eye(3), sp.csr_matrix(np.eye(3)))
    assert Samples(rows).labels is rows.Y
    with pytest.raises(AttributeError, match="only within the fit of a classifier"):
        ScoredNet().predict_topk(rows)
