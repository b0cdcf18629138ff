"""A loss from the literature, written with public names only: PolyLoss, for both kinds of y.

Z. Leng et al. PolyLoss: A Polynomial Expansion Perspective of Classification Loss Functions.
ICLR 2022.
"""

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.nn import functional as F

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.batches import Targets
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade, FlatHead, PointwiseLoss, SoftmaxCrossEntropy


class PolyBinaryCrossEntropy(PointwiseLoss):
    """Poly-1 form of the binary cross-entropy: more slope far from the target."""

    def __init__(self, epsilon=1.0):
        super().__init__()
        self.epsilon = epsilon

    def negative(self, logits):
        return F.softplus(logits) + self.epsilon * logits.sigmoid()

    def positive(self, logits, labels):
        return F.softplus(-logits) + self.epsilon * (-logits).sigmoid()


class PolyCrossEntropy(SoftmaxCrossEntropy):
    """Poly-1 form of the softmax cross-entropy (Equation 6)."""

    tasks = ("multi-class", "multi-label")

    def value(self, surprise, margin=None):
        return surprise + 1 - (-surprise).exp()


QUICK = {"encoder": MLP((16,)), "max_epochs": 10, "learning_rate": 0.06, "random_state": 0}
#: Few, long steps: the checks ask for a fit that separates blobs, not for a good one.
BRIEF = {**QUICK, "max_epochs": 8}
MULTI_LABEL = [
    MultiHeadClassifier("flat", loss=PolyBinaryCrossEntropy(), **QUICK),
    MultiHeadClassifier(Cascade(embedding_dim=16), loss=PolyBinaryCrossEntropy(), **QUICK),
    DFTSigmoidClassifier(n_slack=5, loss=PolyBinaryCrossEntropy(), **QUICK),
    ETFNeuralCollapseClassifier(loss=PolyCrossEntropy(), **QUICK),
    MIMLClassifier(loss=PolyBinaryCrossEntropy(), **QUICK),
]
MULTI_CLASS = [
    MultiHeadClassifier(head, loss=PolyCrossEntropy(), **QUICK)
    for head in ("flat", "cascade", "product", "sampling")
]


@pytest.mark.slow  # as of the own head, by default
@parametrize_with_checks([ETFNeuralCollapseClassifier(loss=PolyCrossEntropy(), **BRIEF)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize("loss", [PolyBinaryCrossEntropy(0.5), PolyCrossEntropy()])
def test_gradients_over_chunks_of_labels(loss, chunk, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.heads.chunked.CHUNK", chunk)
    torch.manual_seed(0)
    head = FlatHead(4, 8, True, loss=loss).double()
    targets = Targets(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 7, 5]))
    features = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: head.loss(x, targets), (features,))


@pytest.mark.integration
@pytest.mark.parametrize("clf", MULTI_LABEL, ids=lambda clf: str(clf)[:30])
def test_every_classifier_trains_with_it(clf):
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    best = clone(clf).fit(X, Y).predict_topk(X, k=1)[0][:, 0]
    assert np.mean(np.asarray(Y[np.arange(300), best])) > 0.8


@pytest.mark.parametrize("clf", MULTI_CLASS, ids=lambda clf: clf.head)
def test_every_head_of_one_class_a_sample_trains_with_it(clf, tmp_path):
    X, y = make_extreme_multiclass(300, 60, 12, random_state=0)
    clf = clone(clf).fit(X, y)
    assert clf.score(X, y) > 0.9
    joblib.dump(clf, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    loaded.partial_fit(X, y)


def test_grid_search_over_losses():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    grid = {"loss": ["bce", PolyBinaryCrossEntropy(), PolyBinaryCrossEntropy(2.0)]}
    search = GridSearchCV(MultiHeadClassifier(**QUICK), grid, cv=2).fit(X, Y)
    assert search.cv_results_["mean_test_score"].min() > 0.1
