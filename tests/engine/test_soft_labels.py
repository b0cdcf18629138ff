"""Probabilities of labels as targets: those of 0 and 1, halves, and everything around the loss."""

import numpy as np
from scipy import sparse

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.label_code import SoftLabels

QUICK = {"encoder": MLP((16,)), "max_epochs": 5, "random_state": 0}
X, Y = make_extreme_multilabel(120, 40, 9, random_state=0)


def soft(probabilities, like=Y):
    probabilities = sparse.csr_matrix(probabilities, dtype=np.float32)
    probabilities.sort_indices()
    return SoftLabels(probabilities, like[:0])


def test_ones_train_as_the_indicator_does():
    clf = MultiHeadClassifier("flat", decision=Threshold(), early_stopping=True, **QUICK)
    hard = clf.fit(X, Y).decision_function(X)
    predicted = clf.predict(X)
    np.testing.assert_array_equal(clf.fit(X, soft(Y)).decision_function(X), hard)
    assert (clf.predict(X) != predicted).nnz == 0
    assert clf.predict(X).dtype == predicted.dtype


def test_probabilities_are_learnt():
    ones = np.ones((200, 1))
    share = np.array([0.9, 0.3, 0.6])
    given = soft(np.tile(share, (200, 1)), np.zeros((1, 3), dtype=bool))
    clf = MultiHeadClassifier("flat", learning_rate=0.01, **{**QUICK, "max_epochs": 40})
    clf.fit(np.hstack([ones, ones]), given)
    np.testing.assert_allclose(clf.predict_proba(np.ones((1, 2))), share[None], atol=0.05)
    predicted = clf.predict(np.ones((1, 2)))
    assert predicted.dtype == bool
    np.testing.assert_array_equal(predicted, [[True, False, True]])


def test_only_flat_sums_of_sigmoids_read_them():
    assert MultiHeadClassifier()._reads_soft_labels(Y)
    for other in (
        {"head": "product"},
        {"head": "cascade"},
        {"loss": "ce"},
        {"head": object()},
    ):
        assert not MultiHeadClassifier(**other)._reads_soft_labels(Y)
