"""A head from the literature, written with public names only: hyperbolic softmax.

M. Ghadimi Atigh, M. Keller-Ressel, P. Mettes. Hyperbolic Busemann Learning with Ideal Prototypes.
NeurIPS 2021.
"""

import numpy as np
import pytest
import torch
from _strangers import QUICK, check_carried, hit_rate, scikit_learn_checks
from sklearn.model_selection import GridSearchCV
from torch import nn
from torch.nn import functional as F

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import Targets
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.heads import ChunkedHead, HeadPart


class BusemannHead(ChunkedHead):
    """Labels are points at the border of the Poincare ball, features points inside it."""

    leaves_out = True

    def __init__(self, n_features, n_labels, multilabel, dim=8, loss="auto"):
        super().__init__(n_features, n_labels, multilabel, loss=loss)
        self.projection = nn.Linear(n_features, dim)
        self.ideal_points = nn.Parameter(torch.randn(n_labels, dim))
        self.bias = nn.Parameter(torch.zeros(n_labels))

    def fused_parameters(self):
        return [self.ideal_points, self.bias]

    def set_prior(self, frequency):
        self.bias.data.copy_(self.criterion.prior(frequency))

    def start_labels(self, positions, frequency):
        self.ideal_points.data[positions] = torch.randn(len(positions), self.ideal_points.shape[1])
        self.bias.data[positions] = self.criterion.prior(frequency)[positions].to(self.bias)

    def inputs(self, features):
        tangent = self.projection(features)  # exponential map at the origin
        norm = tangent.norm(dim=1, keepdim=True).clamp(1e-6, 6.0)
        return (norm / 2).tanh() * F.normalize(tangent)

    def logits_of(self, inputs, points, bias):
        """Log of the Poisson kernel, minus the Busemann function of Equation 1."""
        squares = inputs.square().sum(1, keepdim=True)
        distances = 1 + squares - 2 * inputs @ F.normalize(points).T
        return ((1 - squares) / distances).log() + bias


class Busemann(HeadPart):
    """The head as a part: its parameter can be searched."""

    head = BusemannHead

    def __init__(self, dim=8):
        self.dim = dim

    def build(self, task):
        return BusemannHead(*task.size, dim=self.dim, loss=task.loss)


test_scikit_learn_checks = scikit_learn_checks(MultiHeadClassifier(head=BusemannHead, **QUICK))


@pytest.mark.parametrize("loss", ["bce", "asymmetric", "pick_all_labels"])
def test_fused_steps_are_gradient_steps(loss, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.heads.chunked.CHUNK", 4)
    torch.manual_seed(0)
    head = BusemannHead(5, 11, True, loss=loss).double()
    features = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    targets = Targets(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 10, 5]))
    head.loss(features, targets).backward()
    expected = [p - 0.1 * p.grad for p in head.fused_parameters()]
    gradient, features.grad = features.grad, None

    def step(parameter, rows, gradient):
        parameter.data[rows] -= 0.1 * gradient

    head.loss(features, targets, update=step).backward()
    torch.testing.assert_close(features.grad, gradient)
    for parameter, value in zip(head.fused_parameters(), expected):
        torch.testing.assert_close(parameter.data, value.data)


def test_it_learns_is_saved_and_goes_on(tmp_path):
    X, Y = make_extreme_multilabel(400, 60, 12, random_state=0)
    clf = MultiHeadClassifier(head=BusemannHead, **QUICK).fit(X[:300], Y[:300])
    assert isinstance(clf.net_.module_.head, BusemannHead)
    assert hit_rate(clf, X[300:], Y[300:]) > 0.7
    check_carried(clf, X[300:], Y[300:], tmp_path)


def test_labels_come_later_and_go():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    clf = MultiHeadClassifier(head=BusemannHead, **QUICK).fit(X, Y[:, :9])
    before = clf.decision_function(X)
    clf.remove_labels([2, 5])
    kept = np.setdiff1d(np.arange(9), [2, 5])
    np.testing.assert_array_equal(clf.decision_function(X), before[:, kept])
    order = [*kept, 2, 5, 9, 10, 11]  # two of the new ones take the places
    for _ in range(15):
        clf.partial_fit(X, Y[:, order], classes=order)
    assert clf.classes_.tolist() == order
    assert clf.net_.module_.head.n_labels == 12
    assert clf.score(X, Y[:, order]) > 0.8


def test_grid_search_over_heads():
    X, y = make_extreme_multiclass(300, 60, 12, random_state=0)
    search = GridSearchCV(MultiHeadClassifier(**QUICK), {"head": ["auto", BusemannHead]}, cv=2)
    assert search.fit(X, y).cv_results_["mean_test_score"].min() > 0.5


def test_its_parameter_is_searched_and_shown():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    clf = MultiHeadClassifier(Busemann(), loss="asymmetric", **QUICK)
    grid = {"head__dim": [1, 6], "loss": ["asymmetric"]}
    search = GridSearchCV(clf, grid, cv=2, scoring="f1_micro").fit(X, Y)
    low, high = search.cv_results_["mean_test_score"]
    assert high > low  # no line separates 12 labels
    assert search.best_estimator_.net_.module_.head.ideal_points.shape == (12, 6)
    assert repr(search.best_estimator_.head_) == "Busemann(dim=6)"
    assert clf.head.dim == 8
