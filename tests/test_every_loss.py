"""Every loss in every classifier with a network, and heads and losses of a user's own."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch.nn import functional as F

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import (
    AsymmetricLoss,
    ChunkedHead,
    FlatHead,
    PickAllLabels,
    PointwiseLoss,
    PropensityBinaryCrossEntropy,
    SoftmaxCrossEntropy,
)
from sklearn_xlc.metrics import precision_at_k, propensities
from sklearn_xlc.optimizers import Adam

N_SAMPLES, N_LABELS = 240, 20
QUICK = {"encoder": MLP((16,)), "max_epochs": 20, "learning_rate": 0.06, "random_state": 0}
LABEL_LOSSES = ["bce", "asymmetric", "focal", "propensity_bce"]
CASES = [
    *((MultiHeadClassifier("flat"), name, True) for name in [*LABEL_LOSSES, "pick_all_labels"]),
    *((MultiHeadClassifier("cascade"), name, True) for name in LABEL_LOSSES[:3]),
    *(
        (DFTSigmoidClassifier(n_slack=20), name, True)
        for name in [*LABEL_LOSSES, "pick_all_labels"]
    ),
    *((ETFNeuralCollapseClassifier(), name, True) for name in [*LABEL_LOSSES, "pick_all_labels"]),
    *((MIMLClassifier(), name, True) for name in LABEL_LOSSES),
    *((MultiHeadClassifier("flat"), name, False) for name in ["ce", "pick_all_labels"]),
    *((MultiHeadClassifier("product"), name, False) for name in ["ce", "bce", "focal"]),
    *((MultiHeadClassifier("product"), name, True) for name in ["ce", "bce", "focal"]),
    (MultiHeadClassifier("sampling"), "ce", False),
    (MultiHeadClassifier("cascade"), "ce", False),
    (DFTSigmoidClassifier(n_slack=20), "ce", False),
    (ETFNeuralCollapseClassifier(), "ce", False),
    (MIMLClassifier(), "ce", False),
]


class SquaredHinge(PointwiseLoss):
    """A loss of a user's own."""

    link = None

    def negative(self, logits):
        return (1 + logits).relu().square()

    def positive(self, logits, labels):
        return (1 - logits).relu().square()


class CosineHead(ChunkedHead):
    """A head of a user's own: cosines with learnt vectors, in a fused update."""

    def __init__(self, n_features, n_labels, multilabel):
        super().__init__(n_features, n_labels, multilabel)
        self.vectors = torch.nn.Parameter(torch.randn(n_labels, n_features))

    def fused_parameters(self):
        return [self.vectors]

    def inputs(self, features):
        return 8 * F.normalize(features)

    def logits_of(self, inputs, vectors):
        return inputs @ F.normalize(vectors).T


def make_data(multilabel, n_samples=N_SAMPLES):
    """So few samples, unless more are asked for, that a fit trains one network and no ranker."""
    if multilabel:
        X, Y = make_extreme_multilabel(n_samples, 60, N_LABELS, random_state=0)
        return X, Y
    return make_extreme_multiclass(n_samples, 60, N_LABELS, zipf_exponent=0.5, random_state=0)


@pytest.mark.integration
@pytest.mark.parametrize(
    "estimator, loss, multilabel",
    [
        # In other heads, tests/heads/test_losses.py holds them to their definitions.
        pytest.param(*case, marks=pytest.mark.slow)
        if case[1] in LABEL_LOSSES[1:] and not isinstance(case[0], MultiHeadClassifier)
        else case
        for case in CASES
    ],
    ids=[f"{type(e).__name__}-{getattr(e, 'head', '')}-{n}-{m}" for e, n, m in CASES],
)
def test_every_loss_learns_is_saved_and_goes_on(estimator, loss, multilabel):
    X, y = make_data(multilabel)
    clf = clone(estimator).set_params(loss=loss, **QUICK)
    clf.fit(X, y)
    labels, scores = clf.predict_topk(X, k=1)
    best = labels[:, 0]
    hits = np.asarray(y[np.arange(N_SAMPLES), best]).ravel() if multilabel else best == y
    assert hits.mean() > 0.8
    assert np.isfinite(clf.decision_function(X)).all()
    assert clf.predict(X).shape == y.shape
    if hasattr(clf, "predict_proba"):
        p = clf.predict_proba(X)
        assert ((p >= 0) & (p <= 1)).all()
        link = clf.net_.module_.head.link
        assert (link == "sigmoid") == (multilabel and loss != "pick_all_labels")
        if link != "sigmoid":
            np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-5)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    again.partial_fit(X, y)
    assert np.isfinite(again.loss_curve_[-1])


@pytest.mark.parametrize(
    "loss, same",
    [
        (PickAllLabels(0.5, "mean"), "auto"),
        (PickAllLabels(), "pick_all_labels"),
        (AsymmetricLoss(), "asymmetric"),
    ],
)
def test_a_name_is_an_object_with_its_defaults(loss, same):
    X, Y = make_data(True)
    quick = {**QUICK, "max_epochs": 3}
    one = ETFNeuralCollapseClassifier(loss=loss, **quick).fit(X, Y)
    other = ETFNeuralCollapseClassifier(loss=same, **quick).fit(X, Y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))


def test_propensities_are_those_of_the_training_labels():
    X, Y = make_data(True)
    given = PropensityBinaryCrossEntropy(a=0.6, b=2.6)
    quick = {**QUICK, "max_epochs": 1}
    clf = MultiHeadClassifier("flat", loss=given, **quick).fit(X, Y)
    inverse = clf.net_.module_.head.criterion.inverse.cpu().numpy()
    np.testing.assert_allclose(inverse, 1 / propensities(Y, a=0.6, b=2.6), rtol=1e-6)
    assert not len(given.inverse)
    twice = MultiHeadClassifier("flat", loss=given, **quick)
    twice.fit(X, Y, sample_weight=np.full(N_SAMPLES, 2.0))
    doubled = 1 / propensities(np.vstack([Y.toarray()] * 2), a=0.6, b=2.6)
    np.testing.assert_allclose(twice.net_.module_.head.criterion.inverse.cpu(), doubled, rtol=1e-6)


@pytest.mark.slow
def test_a_search_over_losses():
    X, Y = make_data(True)
    grid = {"loss": ["bce", AsymmetricLoss(2.0), SquaredHinge()]}
    search = GridSearchCV(MultiHeadClassifier("flat", **QUICK), grid, cv=2, error_score="raise")
    search.fit(X, Y.toarray())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_loss_without_a_link_has_no_probabilities():
    X, Y = make_data(True, n_samples=300)
    for clf in (
        MultiHeadClassifier(loss=SquaredHinge(), **QUICK),
        DFTSigmoidClassifier(n_slack=5, loss=SquaredHinge(), **QUICK),
    ):
        clf.fit(X, Y)
        assert not hasattr(clf, "predict_proba")
        assert precision_at_k(Y, clf.decision_function(X), k=1) > 0.8


@pytest.mark.parametrize("multilabel", [True, False])
def test_a_head_of_ones_own(multilabel):
    X, y = make_data(multilabel, n_samples=300)
    clf = MultiHeadClassifier(head=CosineHead, **QUICK).fit(X, y)
    assert isinstance(clf.net_.module_.head, CosineHead)
    labels = clf.predict_topk(X, k=1)[0][:, 0]
    hits = np.asarray(y[np.arange(300), labels]).ravel() if multilabel else labels == y
    assert hits.mean() > 0.8
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_topk(X)[0][:, 0], labels)
    assert hasattr(clf, "predict_proba")


def test_a_function_that_makes_a_head():
    X, Y = make_data(True)
    made = []

    def make(n_features, n_labels, multilabel):
        made.append((n_features, n_labels, multilabel))
        return FlatHead(n_features, n_labels, multilabel, loss=SquaredHinge())

    # No rules were searched for such a head.
    params = {**QUICK, "max_epochs": 3}
    params |= {"optimizer": Adam(row_momentum=True), "precision": "float32"}
    clf = MultiHeadClassifier(head=make, **params)
    assert clone(clf).head is make
    clf.fit(X, Y)
    assert made == [(16, N_LABELS, True)]
    assert not hasattr(clf, "predict_proba")
    flat = MultiHeadClassifier("flat", loss=SquaredHinge(), **params).fit(X, Y)
    np.testing.assert_array_equal(clf.decision_function(X), flat.decision_function(X))


def test_a_function_that_returns_no_head_is_refused():
    X, Y = make_data(True)
    clf = MultiHeadClassifier(head=lambda *size: torch.nn.Linear(*size[:2]), **QUICK)
    with pytest.raises(TypeError, match="returns a sklearn_xlc.heads.Head, but it returned Linear"):
        clf.fit(X, Y)
    assert not hasattr(clf, "net_")


def test_a_loss_of_ones_own_in_multi_class():
    class Confident(SoftmaxCrossEntropy):
        def value(self, surprise, margin=None):
            return surprise.square()

    X, y = make_data(False)
    for head in ("flat", "product", "sampling", "cascade"):
        clf = MultiHeadClassifier(head, loss=Confident(), **QUICK).fit(X, y)
        # Chance: one in twenty. By the seed a cascade has .73 to .85, the others .98 to 1.
        assert clf.score(X, y) > (0.65 if head == "cascade" else 0.9)
        assert hasattr(clf, "predict_proba")
