"""A loss from the literature, written with public names only: PolyLoss, for both kinds of y.

Z. Leng et al. PolyLoss: A Polynomial Expansion Perspective of Classification Loss Functions.
ICLR 2022.
"""

import pytest
import torch
from _strangers import QUICK, check_carried, hit_rate, scikit_learn_checks
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch.nn import functional as F

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.batches import Targets
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
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


test_scikit_learn_checks = scikit_learn_checks(
    ETFNeuralCollapseClassifier(loss=PolyCrossEntropy(), **QUICK)
)


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
    assert hit_rate(clone(clf).fit(X, Y), X, Y) > 0.8


@pytest.mark.parametrize("clf", MULTI_CLASS, ids=lambda clf: clf.head)
def test_every_head_of_one_class_a_sample_trains_with_it(clf, tmp_path):
    X, y = make_extreme_multiclass(300, 60, 12, random_state=0)
    clf = clone(clf).fit(X, y)
    assert clf.score(X, y) > 0.9
    check_carried(clf, X, y, tmp_path)


def test_grid_search_over_losses():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    grid = {"loss": ["bce", PolyBinaryCrossEntropy(), PolyBinaryCrossEntropy(2.0)]}
    search = GridSearchCV(MultiHeadClassifier(**QUICK), grid, cv=2).fit(X, Y)
    assert search.cv_results_["mean_test_score"].min() > 0.1
