"""Decisions inside classifiers: every classifier takes every decision that suits it."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    config_context,
)
from sklearn_xlc.batches import Rows
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import (
    Decision,
    Divergence,
    JointMode,
    Nearest,
    Seen,
    Taxonomy,
    Threshold,
    TopK,
)
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine import deciding
from sklearn_xlc.engine.deciding import fit_decision
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.predictor import Predictor
from sklearn_xlc.engine.resolve import Facts
from sklearn_xlc.heads import Cascade, Flat, Head, Product, topk_by_position

N_LABELS = 18
QUICK = {
    "encoder": MLP((16,)),
    "max_epochs": 9,
    "learning_rate": 0.1,
    "random_state": 0,
}
CLASSIFIERS = {
    "flat": MultiHeadClassifier("flat", **QUICK),
    "cascade": MultiHeadClassifier(Cascade(embedding_dim=8, beam_width=20), **QUICK),
    "permuted": MultiHeadClassifier(
        Cascade(label_order="random", embedding_dim=8, beam_width=20), **QUICK
    ),
    "dft": DFTSigmoidClassifier(n_slack=5, **QUICK),
    "rank": MultiHeadClassifier(Flat(rank=12), **QUICK),
    "bottleneck": DFTSigmoidClassifier(n_slack=12, output="bottleneck", **QUICK),
    "etf": ETFNeuralCollapseClassifier(**QUICK),
    "learned": ETFNeuralCollapseClassifier("learned", feature_dim=8, **QUICK),
    "powerset": MultiHeadClassifier(Product(label_order="random"), **QUICK),
    "bags": MIMLClassifier(**QUICK),
}
SCORED = {
    "threshold": "threshold",
    "per_label": Threshold(criterion="macro_f1", per_label=True),
    "f1_at_k": Threshold(criterion="f1_at_k", k=3),
    "fixed": Threshold(0.2),
    "topk": "topk",
    "divergence": "divergence",
    "tuned": Divergence("tuned", max_labels=5),
}


class AllScores(Decision):
    """A foreign decision: labels within a margin of the best one, of all scores."""

    reads = "scores"
    fitted_on = "held"

    def __init__(self, margin=1.0):
        self.margin = margin

    def fit(self, scores, Y, **context):
        self.seen_ = None if scores is None else scores.shape
        return super().fit(scores, Y, **context)

    def decode(self, scores):
        return self.label_sets(scores > scores.max(axis=1, keepdims=True) - self.margin)


class Expected(Decision):
    """A foreign decision: labels of more than a share of the best label sets' probability."""

    reads = "sets"
    fitted_on = "held"

    def __init__(self, share=0.5, n_sets=6):
        self.share, self.n_sets = share, n_sets

    def n_candidates(self, n_labels):
        return self.n_sets

    def fit(self, scores, Y, *, sets=None, **context):
        self.seen_ = None if scores is None else (scores.shape, sets.shape, Y.shape)
        return super().fit(scores, Y, **context)

    def decode(self, scores, *, sets):
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        held = sets.toarray().reshape(*scores.shape, self.n_labels_)
        return sp.csr_matrix((weights[..., None] * held).sum(1) > self.share, dtype=int)


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(240, 60, N_LABELS, random_state=0)
    return X.astype(np.float64), sp.csr_matrix(Y)


def decided(name, decision, **params):
    return clone(CLASSIFIERS[name]).set_params(decision=decision, **params)


def decide_again(clf, decision, ranker, train, held):
    """Fit another decision, and another ranker, for a fitted network."""
    facts = Facts(n_samples=len(train), n_labels=N_LABELS, multilabel=True)
    settings = {"decision": decision, "ranker": ranker}
    plan = SimpleNamespace(settings=settings, facts=facts, is_later=False)
    plan.lists = plan.own = plan.stopping = None
    fit_decision(clf, plan, train, held)


@pytest.mark.integration
@pytest.mark.parametrize(
    "name, decision",  # by default: two links with every decision, every head with two decisions
    [
        pytest.param(name, decision, marks=[] if is_quick else pytest.mark.slow)
        for name in CLASSIFIERS
        for decision in SCORED
        for is_quick in [name in ("flat", "etf") or decision in ("per_label", "divergence")]
    ],
)
def test_every_classifier_takes_every_decision_on_scores(data, name, decision):
    X, Y = data
    held = {} if decision in ("fixed", "topk", "divergence") else {"validation_fraction": 0.3}
    clf = decided(name, SCORED[decision], **held).fit(X, Y)
    sets = clf.predict(X)
    assert f1_score(Y, sets, average="micro") > 0.4
    direct = clf.decision_.decode(clf.decision_function(X))
    if name != "cascade":  # which ranks a beam of labels only
        np.testing.assert_array_equal(sets.toarray(), direct.toarray())
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict(X).toarray(), sets.toarray())
    np.testing.assert_array_equal(clf.predict(X.toarray()).toarray(), sets.toarray())
    clf.partial_fit(X, Y)
    assert clf.predict(X).shape == Y.shape


@pytest.mark.parametrize("decision", [Nearest(), Seen()], ids=str)
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "bags"])
def test_decisions_on_features(data, name, decision):
    X, Y = data
    clf = decided(name, decision)
    if name in ("cascade", "permuted", "powerset") and isinstance(decision, Nearest):
        with pytest.raises(ValueError, match="rows of a linear last layer.*has none"):
            clf.fit(X, Y)
        assert not hasattr(clf, "net_")
        return
    sets = clf.fit(X, Y).predict(X)
    least = 0.3 if isinstance(decision, Nearest) else 0.7
    assert f1_score(Y, sets, average="micro") > least
    distances = clf.predict_label_set_scores(X)
    assert (distances[:, 0] <= distances[:, 1]).all()
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict(X).toarray(), sets.toarray())


def test_order_of_labels_in_the_head_makes_no_difference(data):
    X, Y = data
    thresholds = np.linspace(0.05, 0.6, N_LABELS)
    clf = decided("permuted", Threshold(thresholds)).fit(X, Y)
    assert (clf.label_order_ != np.arange(N_LABELS)).any()
    above = expit(clf.decision_function(X)) > thresholds
    np.testing.assert_array_equal(clf.predict(X).toarray(), above)


@pytest.mark.parametrize("name", ["flat", "rank", "dft", "bottleneck", "etf", "learned"])
def test_layer_is_the_one_that_makes_the_scores(data, name):
    X, Y = data
    clf = decided(name, "nearest", max_epochs=2, ranker=None).fit(X, Y)
    (_, (inputs, beside)) = next(
        clf._predictor.each(
            Rows(X), 512, "", lambda _, b: deciding.decider_of(clf)._inputs(b, "features")
        )
    )
    products = beside["layer"].products(inputs)
    np.testing.assert_allclose(products, inputs @ beside["layer"].weights.T, rtol=1e-9, atol=1e-9)
    # But for the biases, and for the constant of a sample that log-probabilities have.
    rest = clf.decision_function(X) - products
    rest -= rest[:, :1]
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape), rtol=1e-7, atol=1e-7)


class Margin(TopK):
    """A rule of a user, which says how close the two best labels are."""

    def distances(self, scores, labels=None):
        return -scores[:, :2]


def test_decisions_of_others_may_have_distances(data):
    X, Y = data
    clf = decided("flat", Margin(2), max_epochs=1)
    assert hasattr(clf, "predict_label_set_scores")
    expected = -clf.fit(X, Y).predict_topk(X, 2)[1]
    np.testing.assert_array_equal(clf.predict_label_set_scores(X), expected)
    for decision in ("auto", "topk", TopK(1), None):
        assert not hasattr(decided("flat", decision), "predict_label_set_scores")


def test_distances_are_those_of_all_label_sets(data):
    X, Y = data
    clf = decided("flat", "divergence").fit(X, Y)
    distances = clf.predict_label_set_scores(X)
    direct = clf.decision_.distances(clf.decision_function(X))
    np.testing.assert_allclose(distances, direct, rtol=1e-12)
    assert (distances >= 0).all()


def test_a_threshold_tuned_on_held_out_samples(data):
    X, Y = data
    clf = decided("flat", "threshold", validation_fraction=0.4, max_epochs=10).fit(X, Y)
    plan = Plan(clf, clf._validate_fit(X, Y, None, None), going_on=False)
    _, held = plan.split(np.random.RandomState(0))
    held = held.take(slice(None))
    scores, truth = clf.decision_function(held.X), held.Y.toarray()
    own = f1_score(truth, scores > clf.decision_.cut_, average="micro")
    cuts = np.quantile(scores, np.linspace(0.5, 0.999, 60))
    assert own >= max(f1_score(truth, scores > cut, average="micro") for cut in cuts) - 1e-12
    assert clf.threshold_ == pytest.approx(expit(clf.decision_.cut_))


def test_held_out_labels_follow_the_order_of_the_head(data):
    X, Y = data
    clf = decided("permuted", "threshold", validation_fraction=0.4, early_stopping=True)
    clf.fit(X, Y)
    assert (clf.label_order_ != np.arange(N_LABELS)).any()
    given = decided("cascade", "threshold", validation_fraction=0.4, early_stopping=True).fit(X, Y)
    losses = [c.net_.history[:, "valid_loss"][-1] for c in (clf, given)]
    assert losses[0] < 1.3 * losses[1]
    assert clf.threshold_ > 0.1


def test_auto_is_one_half_or_a_set_where_probability_is_shared(data):
    X, Y = data
    for name in CLASSIFIERS:
        clf = decided(name, "auto", max_epochs=1).fit(X[:90], Y[:90])
        kind = {"etf": Divergence, "learned": Divergence, "powerset": JointMode}.get(
            name, Threshold
        )
        assert type(clf.decision_) is kind
        if kind is Threshold:
            assert clf.threshold_ == 0.5


@pytest.mark.parametrize("loss", ["bce", "pick_all_labels"])
def test_auto_follows_the_loss_whatever_the_classifier(data, loss):
    X, Y = data
    for name in ("flat", "dft", "bottleneck", "etf", "learned"):
        clf = decided(name, "auto", loss=loss, max_epochs=1).fit(X, Y)
        assert type(clf.decision_) is (Threshold if loss == "bce" else Divergence)


def test_a_softmax_over_labels_is_normalised_for_decisions(data):
    X, Y = data
    clf = decided("flat", "auto", max_epochs=5).fit(X, Y)
    head = clf.net_.module_.head
    head.link = "softmax"
    decide_again(clf, "auto", None, Rows(X, Y), None)
    assert type(clf.decision_) is Divergence
    decide_again(clf, Threshold(0.1), None, Rows(X, Y), None)
    shares = np.exp(clf.decision_function(X))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(clf.predict(X).toarray(), shares > 0.1)
    clf.decision_ = AllScores().fit(None, Y)
    assert clf.predict(X).shape == Y.shape


def test_a_decision_is_told_which_labels_the_second_network_knows(monkeypatch):
    told, fit = [], Threshold.fit

    def recorded(self, scores, Y, *args, **context):
        told.append((context.get("known"), Y))
        return fit(self, scores, Y, *args, **context)

    monkeypatch.setattr(Threshold, "fit", recorded)
    X, Y = make_extreme_multilabel(300, 40, 30, random_state=0)
    Y = sp.hstack([Y, sp.eye(300, 60, dtype=Y.dtype)], format="csr")  # labels of one sample each
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    assert clf.settings_["validation_fraction"] == "refit"
    ((known, held),) = told
    of_held = np.asarray(held[:, 30:].sum(axis=0)).ravel() > 0
    assert of_held.any()
    np.testing.assert_array_equal(known[30:], ~of_held)
    clf.recalibrate(X, Y)
    assert told[1][0] is None


def test_a_foreign_decision_reads_all_scores(data, monkeypatch):
    X, Y = data
    clf = decided("permuted", AllScores(0.5)).fit(X, Y)
    assert clf.decision_.seen_ == (24, N_LABELS)
    scores = clf.decision_function(X)
    expected = scores > scores.max(axis=1, keepdims=True) - 0.5
    np.testing.assert_array_equal(clf.predict(X).toarray(), expected)
    assert not hasattr(clf, "predict_label_set_scores")
    few = decided("flat", AllScores(), validation_fraction=0.9, max_epochs=1)
    monkeypatch.setattr(deciding, "subsample", lambda samples, _: samples.take(np.arange(5)))
    assert few.fit(X, Y).decision_.seen_ == (5, N_LABELS)


class Shares(AllScores):
    """A foreign decision with samples of its own, which keeps what it reads."""

    needs_own_samples = True

    def decode(self, scores):
        self.read_ = scores
        return super().decode(scores)


@pytest.mark.parametrize("ranker", ["boosted", "calibration", None])
@pytest.mark.parametrize("head", ["flat", "cascade", "product"])
def test_a_foreign_decision_reads_log_probabilities_of_classes(data, head, ranker):
    X, y = data[0], np.arange(240) % 5
    clf = MultiHeadClassifier(head, ranker=ranker, decision=Shares(), max_epochs=2).fit(X, y)
    clf.predict_set(X)
    np.testing.assert_allclose(np.exp(clf.decision_.read_), clf.predict_proba(X), rtol=1e-5)


class Returned(Decision):
    """A decision that returns what it is told to."""

    reads = "scores"

    def __init__(self, form):
        self.form = form

    def decode(self, scores):
        return self.form(scores > 0)


def with_zeros(taken):
    sets = sp.csr_matrix(np.ones(taken.shape))
    sets.data = taken.ravel().astype(float)
    return sets


@pytest.mark.parametrize("form", [with_zeros, sp.coo_matrix, np.asarray, sp.csc_array])
def test_a_foreign_decision_may_return_any_indicator(data, form):
    X, Y = data
    clf = decided("flat", Returned(form), max_epochs=5).fit(X, Y)
    predicted = clf.predict(X)
    np.testing.assert_array_equal(predicted.toarray(), clf.decision_function(X) > 0)
    assert (predicted.data == 1).all()


def test_a_foreign_decision_of_the_wrong_shape_is_named(data):
    X, Y = data
    clf = decided("flat", Returned(lambda taken: taken[:, :3]), max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match=r"Returned.*decode.* shape \(240, 3\).*\(240, 18\)"):
        clf.predict(X)


def test_decisions_in_a_search(data):
    X, Y = data
    search = GridSearchCV(
        decided("flat", "auto", max_epochs=5),
        {"decision": ["auto", "topk", AllScores(), Divergence(0.7)]},
        cv=2,
        scoring="f1_micro",
        error_score="raise",
    ).fit(X, Y)
    assert search.best_score_ > 0
    grid = {"decision__margin": [0.1, 5.0]}
    search = GridSearchCV(
        decided("flat", AllScores(), max_epochs=5),
        grid,
        cv=2,
        scoring="f1_micro",
        error_score="raise",
    ).fit(X, Y)
    assert search.best_estimator_.decision_.margin == search.best_params_["decision__margin"]


class Layered(Head):
    """A head whose modules bear the names of methods of other heads."""

    link = "sigmoid"

    def __init__(self, n_features, n_labels, multilabel):
        super().__init__(n_features, n_labels, multilabel)
        self.inputs = torch.nn.Linear(n_features, 4)
        self.classifier = torch.nn.Linear(4, n_labels)

    def scores(self, features):
        return self.classifier(self.inputs(features))

    def topk(self, features, k):
        return topk_by_position(self.scores(features), k)

    def loss(self, features, targets, sample_weight=None, update=None):
        return self.scores(features).square().mean()


def test_a_module_of_a_foreign_head_is_not_its_linear_layer(data):
    X, Y = data
    clf = decided("flat", "seen", head=Layered, max_epochs=1)
    assert clf.fit(X, Y).decision_.means_.shape[1] == 16
    with pytest.raises(ValueError, match="rows of a linear last layer"):
        clf.set_params(decision="nearest").fit(X, Y)


class Linear(Layered):
    """A foreign head with a linear last layer, that says so."""

    is_linear = True

    def __init__(self, n_features, n_labels, multilabel):
        super().__init__(n_features, n_labels, multilabel)
        self.weight = torch.nn.Parameter(torch.randn(n_labels, n_features))

    def classifier(self, like, labels=slice(None)):
        return self.weight[labels].to(like)

    def scores(self, features):
        return features @ self.weight.T


def test_a_foreign_head_has_a_linear_layer_if_it_says_so(data):
    X, Y = data
    clf = decided("flat", "nearest", head=Linear, max_epochs=1).fit(X, Y)
    assert clf.predict(X).shape == Y.shape
    layer = deciding.layer_of(clf.net_.module_.head, clf._code)
    np.testing.assert_allclose(
        layer.products(clf.transform(X)), clf.decision_function(X), rtol=1e-4, atol=1e-5
    )
    assert not layer.is_simplex


def test_thresholds_of_an_unfitted_classifier():
    with pytest.raises(NotFittedError):
        MultiHeadClassifier(decision="threshold").threshold_
    assert not hasattr(MultiHeadClassifier(), "threshold_")


def test_the_decision_given_is_never_changed(data):
    X, Y = data
    decision = Divergence("tuned")
    clf = decided("etf", decision, max_epochs=2).fit(X, Y)
    assert vars(decision) == vars(Divergence("tuned"))
    fitted = clf.decision_
    clf.set_params(decision__temperature=0.5).partial_fit(X, Y)
    assert clf.decision_.temperature_ == 0.5
    assert fitted.temperature != 0.5


def test_partial_fit_may_change_the_decision(data):
    X, Y = data
    clf = decided("etf", "topk", max_epochs=2).partial_fit(X, Y)
    assert type(clf.decision_) is TopK
    clf.set_params(decision="seen").partial_fit(X, Y)
    assert clf.decision_.sets_.shape[1] == N_LABELS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Threshold(), Threshold(criterion="precision", at_least=0.9)),
        (Threshold(0.9), Threshold(per_label=True)),
        (Threshold(0.9), Taxonomy({1: 0})),
        (Taxonomy({1: 0}, "topk"), Taxonomy({1: 0}, Threshold())),
    ],
)
def test_partial_fit_tunes_no_decision(data, before, after):
    X, Y = data
    clf = decided("flat", before, max_epochs=2).fit(X, Y)
    rule = repr(clf.decision_)
    clf.set_params(decision=after).partial_fit(X, Y)
    assert repr(clf.decision_) == rule
    with pytest.warns(UserWarning, match=r"decision \(recalibrate\)"):
        clf.predict(X)
    clf.recalibrate(X, Y)
    tuned = decided("flat", before, max_epochs=2).fit(X, Y).partial_fit(X, Y)
    assert repr(clf.decision_) == repr(tuned.recalibrate(X, Y, decision=after).decision_)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Taxonomy({1: 0}), Taxonomy({1: 0}, TopK(3))),
        (Threshold(0.9), "auto"),
        (Threshold(), Threshold(0.3)),
        (TopK(2), TopK(3)),
    ],
)
def test_partial_fit_takes_a_decision_as_it_was_set(data, before, after):
    X, Y = data
    clf = decided("flat", before, max_epochs=2).fit(X, Y)
    clf.set_params(decision=after).partial_fit(X, Y)
    anew = decided("flat", after).partial_fit(X, Y).decision_
    assert repr(clf.decision_) == repr(anew)
    clf.predict(X)  # without a warning


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_best_class_is_predicted_whatever_the_decision(data, name):
    X, y = data[0], np.arange(240) % 5
    expected = decided(name, "auto", max_epochs=1).fit(X, y).predict(X)
    for decision in ("topk", "threshold", Threshold(0.9), Seen()):
        clf = decided(name, decision, max_epochs=1).fit(X, y)
        np.testing.assert_array_equal(clf.predict(X), expected)
        assert clf.decision_.k_ == 1
    clf.set_params(decision="topk").partial_fit(X, y).predict(X)  # without a warning


@pytest.mark.parametrize(
    "decision, message",
    [
        (Threshold(1.5), "threshold=1.5 must be between 0 and 1"),
        (Threshold([0.5] * 9), "one for each of the 5 labels"),
        (TopK(99), "k=99 is more than the 5 labels"),
    ],
    ids=str,
)
def test_a_decision_that_no_labels_suit_is_refused_with_class_labels(data, decision, message):
    X, y = data[0], np.arange(240) % 5
    with pytest.raises(ValueError, match=message):
        decided("flat", decision, max_epochs=1).fit(X, y)


@pytest.mark.parametrize("decision", ["nearest", Seen()], ids=str)
def test_bags_have_no_features(data, decision):
    X, Y = data
    with pytest.raises(ValueError, match="bags have none of their own"):
        decided("bags", decision).fit(X, Y)


def test_bags_have_label_set_scores(data):
    X, Y = data
    groups = np.repeat(np.arange(120), 2)
    clf = decided("bags", "divergence", max_epochs=3).fit(X, Y[::2], groups)
    assert clf.predict_label_set_scores(X, groups).shape == (120, 2)
    assert clf.predict(X, groups).shape == (120, N_LABELS)


def test_counts_of_labels_are_labels():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(90, 5)), np.repeat(np.arange(30), 3)
    Y = np.stack([rng.multinomial(3, [0.5, 0.3, 0.2]) for _ in range(30)])
    clf = MIMLClassifier(decision=Divergence("tuned"), **{**QUICK, "max_epochs": 2})
    clf.fit(X, Y, groups)
    assert clf.decision_.max_labels_ == (Y > 0).sum(axis=1).max()


@pytest.mark.parametrize(
    "decision, message",
    [
        ("best", "'decision' parameter of MultiHeadClassifier must be"),
        (Threshold, "'decision' parameter of MultiHeadClassifier must be"),
        (None, "'decision' parameter of MultiHeadClassifier must be"),
        (TopK(19), "k=19 is more than the 18 labels of y"),
        (Threshold([0.5]), "one for each of the 18 labels"),
    ],
)
def test_bad_decisions_leave_the_classifier_as_it_was(data, decision, message):
    X, Y = data
    clf = decided("flat", "auto", max_epochs=1).fit(X, Y)
    before = clf.predict(X), clf.decision_
    with pytest.raises(ValueError, match=message):
        clf.set_params(decision=decision).fit(X, Y)
    assert clf.decision_ is before[1]
    with pytest.warns(UserWarning, match="decision \\(recalibrate\\)"):
        assert (clf.predict(X) != before[0]).nnz == 0


def test_few_samples_that_fit_into_memory(data):
    X, Y = data
    with config_context(working_memory=1):
        part = deciding.subsample(Rows(X, Y), 2**12, labelled=True)
        assert len(part) == 16
        assert np.diff(part.Y.indptr).min() > 0
        none = sp.csr_matrix(Y.shape)
        assert len(deciding.subsample(Rows(X, none), 2**12, labelled=True)) == 16


def test_thresholds_of_few_samples_see_those_without_labels(data, monkeypatch):
    X, Y = data
    Y = sp.diags_array(np.arange(240) % 5 == 0, dtype=Y.dtype) @ Y
    clf = decided("flat", "threshold", validation_fraction=0.5, max_epochs=1)
    seen = []
    fit = Threshold.fit
    monkeypatch.setattr(Threshold, "fit", lambda *a, **k: seen.append(a[1:]) or fit(*a, **k))
    clf.fit(X, sp.csr_matrix(Y))
    limit = 16 * 2 * (len(clf._set_sizes) - 1) * 30  # thirty samples
    with config_context(working_memory=limit / 2**20):
        decide_again(clf, Threshold(), "auto", Rows(X, Y), Rows(X, Y))
    (_, whole), (scores, part) = seen
    assert whole.shape[0] == 120
    assert len(scores) == part.shape[0] == 30
    assert np.diff(part.indptr).min() == 0


# --- samples with many labels -------------------------------------------------------------------


class Above(Decision):
    """Labels of a score above zero, by a decision that needs its candidates best first."""

    def needs_more(self, scores):
        return bool((scores[:, -1] > 0).any())

    def decode(self, scores, labels=None):
        assert (np.diff(scores, axis=1) <= 0).all()
        return self.label_sets(scores > 0, labels)


def with_sizes(monkeypatch, name, decision, data, sizes):
    """Classifier with one feature for each label: sample i has ``sizes[i]`` positive scores."""
    X, Y = data
    clf = decided(name, decision, max_epochs=1, encoder__hidden_layer_sizes=(N_LABELS,)).fit(X, Y)
    scores = np.where(np.arange(N_LABELS) < np.array(sizes)[:, None], 1.0, -1.0)
    head = clf.net_.module_.head
    with torch.no_grad():
        head.weight.copy_(torch.eye(N_LABELS))
        head.bias.copy_(torch.linspace(0, 0.1, N_LABELS))
    features = torch.from_numpy(scores)
    monkeypatch.setattr(Predictor, "_features", lambda self, part, batch: features[part])
    clf._set_sizes = np.array([0, 1])
    return clf, X[: len(scores)]


def counted(monkeypatch, head):
    """Rows, and labels of each, for which a head was asked."""
    asked = []
    topk, scores = type(head).topk, type(head).scores
    monkeypatch.setattr(
        type(head), "topk", lambda s, f, k: asked.append((len(f), k)) or topk(s, f, k)
    )
    monkeypatch.setattr(
        type(head), "scores", lambda s, f: asked.append((len(f), N_LABELS)) or scores(s, f)
    )
    return asked


@pytest.mark.parametrize(
    "decision, expected",
    [
        (Threshold(0.0, scale="score"), [(4, 2), (2, N_LABELS)]),
        (Threshold(0.5), [(4, 2), (2, N_LABELS)]),
        (Above(), [(4, 2), (2, 4), (2, 8), (1, 16), (1, N_LABELS)]),
    ],
    ids=["score", "probability", "ranked"],
)
def test_only_samples_with_more_labels_are_ranked_again(data, monkeypatch, decision, expected):
    sizes = [0, N_LABELS, 1, 6]
    clf, X = with_sizes(monkeypatch, "flat", decision, data, sizes)
    asked = counted(monkeypatch, clf.net_.module_.head)
    found = clf.predict(X)
    assert asked == expected
    at_label = np.arange(N_LABELS) < np.array(sizes)[:, None]
    np.testing.assert_array_equal(found.toarray(), at_label)


def test_many_labels_cost_one_more_pass_over_the_labels(data, monkeypatch):
    clf, X = with_sizes(monkeypatch, "flat", "auto", data, [N_LABELS] * 5)
    asked = counted(monkeypatch, clf.net_.module_.head)
    assert clf.predict(X).nnz == 5 * N_LABELS
    assert asked == [(5, 2), (5, N_LABELS)]


def test_a_beam_is_widened_for_the_samples_that_need_it(data, monkeypatch):
    X, Y = data
    clf = decided("cascade", "auto", max_epochs=1).fit(X, Y)
    head = clf.net_.module_.head
    clf._set_sizes, clf.decision_.cut_ = np.array([0, 1]), -50.0  # every label that is found
    asked = counted(monkeypatch, head)
    assert clf.predict(X[:3]).nnz == 3 * N_LABELS
    assert asked == [(3, k) for k in (2, 4, 8, 16, N_LABELS)]


# --- whole label sets -------------------------------------------------------------------------


def test_auto_is_the_most_probable_set_of_a_powerset(data):
    X, Y = data
    clf = decided("powerset", "auto").fit(X, Y)
    assert type(clf.decision_) is JointMode
    best, scores = clf.predict_topk_sets(X, k=4)
    assert (clf.predict(X) != best[0]).nnz == 0
    assert (np.diff(scores) <= 0).all()
    by_label = decided("powerset", Threshold(0.5), ranker=None).fit(X, Y).predict(X)
    np.testing.assert_array_equal(by_label.toarray(), clf.predict_proba(X) > 0.5)
    dense = decided("powerset", "auto").fit(X.toarray(), Y.toarray())
    np.testing.assert_array_equal(dense.predict(X.toarray()), clf.predict(X).toarray())


def test_a_decision_may_read_the_best_label_sets(data):
    X, Y = data
    clf = decided("powerset", Expected(), validation_fraction=0.1).fit(X, Y)
    assert clf.decision_.seen_ == ((24, 6), (144, N_LABELS), (24, N_LABELS))
    sets, scores = clf.predict_topk_sets(X, k=6)
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = sum(weights[:, [rank]] * sets[rank].toarray() for rank in range(6)) > 0.5
    np.testing.assert_array_equal(clf.predict(X).toarray(), expected)
    with pytest.raises(ValueError, match=r"Expected\(\) reads the best label sets, which FlatHead"):
        decided("flat", Expected()).fit(X, Y)
