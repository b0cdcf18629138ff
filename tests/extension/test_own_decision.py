"""A decision from the literature, written with public names only: highest expected F1 of a sample.

N. Ye, K. M. A. Chai, W. S. Lee, H. L. Chieu. Optimizing F-measure: A Tale of Two Approaches.
ICML 2012. The expectation of the ratio is approximated by the ratio of expectations.
"""

import numpy as np
import pytest
from _strangers import QUICK, check_carried, scikit_learn_checks
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Decision
from sklearn_xlc.heads import Cascade


class ExpectedF1(Decision):
    """The m best labels, for the m of highest ``2 (p_1 + ... + p_m) / (m + sum of all p)``."""

    def __init__(self, max_labels=10):
        self.max_labels = max_labels

    def fit(self, inputs, Y, *, link="sigmoid", **context):
        self.link_ = link
        return super().fit(inputs, Y)

    def n_candidates(self, n_labels):
        return min(self.max_labels, n_labels)

    def decode(self, scores, labels=None):
        p = np.exp(scores) if self.link_ == "exp" else expit(scores)
        sizes = np.arange(1, p.shape[1] + 1)
        expected = 2 * p.cumsum(axis=1) / (sizes + p.sum(axis=1, keepdims=True))
        best = 1 + expected.argmax(axis=1)
        return self.label_sets(sizes <= best[:, None], labels)


EVERY = [
    MultiHeadClassifier("flat", decision=ExpectedF1(), **QUICK),
    MultiHeadClassifier(Cascade(embedding_dim=16), decision=ExpectedF1(), **QUICK),
    DFTSigmoidClassifier(n_slack=5, decision=ExpectedF1(), **QUICK),
    ETFNeuralCollapseClassifier(decision=ExpectedF1(), **QUICK),
    MIMLClassifier(decision=ExpectedF1(), **QUICK),
]


test_scikit_learn_checks = scikit_learn_checks(MultiHeadClassifier(decision=ExpectedF1(), **QUICK))


def test_the_rule_itself():
    decision = ExpectedF1().fit(None, np.eye(3))
    scores = np.array([[5.0, 4.0, -9.0], [0.0, -1.0, -2.0], [-5.0, -6.0, -7.0]])
    best = []
    for p in expit(scores):
        f1 = [2 * p[:m].sum() / (m + p.sum()) for m in (1, 2, 3)]
        best.append(1 + int(np.argmax(f1)))
    np.testing.assert_array_equal(decision.decode(scores).sum(axis=1).ravel(), [best])


@pytest.mark.integration
@pytest.mark.parametrize("clf", EVERY, ids=lambda clf: str(clf)[:40])
def test_every_classifier_decides_by_it(clf, tmp_path):
    X, Y = make_extreme_multilabel(400, 60, 20, random_state=0)
    clf = clone(clf).fit(X[:300], Y[:300])
    predicted = clf.predict(X[300:])
    sizes = np.asarray(predicted.sum(axis=1)).ravel()
    assert sizes.min() >= 1
    assert sizes.max() <= 10
    top = clf.predict_topk(X[300:], k=1)[0][:, 0]
    assert np.asarray(predicted[np.arange(100), top]).all()
    assert f1_score(Y[300:], predicted, average="samples", zero_division=0) > 0.5
    gone_on = check_carried(clf, X[:300], Y[:300], tmp_path)
    assert (gone_on.predict(X).sum(axis=1) >= 1).all()


def test_grid_search_over_decisions_and_their_parameters():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    clf = MultiHeadClassifier(decision=ExpectedF1(), **QUICK)
    grid = [{"decision": ["auto", "topk"]}, {"decision__max_labels": [1, 10]}]
    search = GridSearchCV(clf, grid, cv=2, scoring="f1_micro", refit=False).fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert scores.min() > 0.2
    assert scores[3] > scores[2]  # one label a sample is too few
