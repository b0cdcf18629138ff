"""ETFNeuralCollapseClassifier: decisions, features, collapse, errors."""

import itertools
import pickle
import warnings
from functools import partial

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import log_softmax
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from torch import nn

from _factories import QUICK, built
from sklearn_xlc import ETFNeuralCollapseClassifier, config_context
from sklearn_xlc.batches import Targets
from sklearn_xlc.datasets import make_extreme_multilabel, make_label_set_images
from sklearn_xlc.decisions import Divergence, Nearest, Threshold
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.geometry import simplex_etf
from sklearn_xlc.heads import ETF, Learned, PickAllLabels
from sklearn_xlc.training import CollapseMonitor

N_LABELS = 20
DECISIONS = ["divergence", "nearest", "seen", "threshold", "topk"]
QUICK = {**QUICK, "encoder": MLP((32,)), "max_epochs": 20}
quick = partial(built, ETFNeuralCollapseClassifier(**QUICK))


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(300, 80, N_LABELS, random_state=0)
    Y = sp.csr_matrix(Y).tolil()
    Y[3] = 0
    return X.astype(np.float64), sp.csr_matrix(Y)


@pytest.fixture(scope="module")
def images():
    return make_label_set_images(n_per_class=60, n_per_pair=12, random_state=0)


# --- decisions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decision", ["divergence", "nearest", "seen", Threshold(0.1), "topk"], ids=str
)
@pytest.mark.parametrize("output", ["etf", pytest.param("learned", marks=pytest.mark.slow)])
def test_every_decision_recovers_sets_it_was_trained_on(data, decision, output):
    X, Y = data
    clf = quick(decision=decision, output=output, max_epochs=15, learning_rate=0.08).fit(X, Y)
    predicted = clf.predict(X)
    assert predicted.shape == Y.shape
    # Without feature decay features of training rows do not collapse: "nearest" takes too many.
    least = 0.55 if decision in ("topk", "nearest") else 0.9
    assert f1_score(Y, predicted, average="micro") > least
    sizes = np.diff(predicted.indptr)
    if decision in ("divergence", "nearest"):
        assert clf.decision_.max_labels_ == np.ceil(np.quantile(np.diff(Y.indptr), 0.99))
        assert sizes.max() <= clf.decision_.max_labels_
    if decision == "topk":
        assert clf.decision_.k_ == round(np.diff(Y.indptr).mean())
        assert (sizes == clf.decision_.k_).all()


def all_sets(n_labels, most):
    return [
        np.array(chosen)
        for m in range(1, most + 1)
        for chosen in itertools.combinations(range(n_labels), m)
    ]


@pytest.fixture(scope="module")
def small():
    X, Y = make_extreme_multilabel(200, 40, 7, random_state=0)
    return X.astype(np.float64), sp.csr_matrix(Y)


def test_divergence_is_the_nearest_uniform_distribution_of_all_sets(small):
    X, Y = small
    clf = quick(decision=Divergence(0.7, max_labels=4), max_epochs=5).fit(X, Y)
    log_p = log_softmax(clf.decision_function(X) / 0.7, axis=1)
    sets = all_sets(7, 4)
    divergences = np.stack([-np.log(len(s)) - log_p[:, s].mean(axis=1) for s in sets], axis=1)
    check_sets(clf, X, sets, divergences)


@pytest.mark.parametrize("feature_dim", [6, 7, 12])
def test_nearest_is_the_nearest_prototype_of_all_sets(small, feature_dim):
    X, Y = small
    clf = quick(decision=Nearest(4), feature_dim=feature_dim, max_epochs=5).fit(X, Y)
    head = clf.net_.module_.head
    assert head.is_simplex
    centred = clf._predictor.head_inputs(clf._validate_predict(X)) - clf.decision_.mean_
    W = head.classifier(head.projection.weight).detach().numpy()
    sets, scales = all_sets(7, 4), clf.label_set_scales_
    prototypes = np.stack([scales[len(s) - 1] * W[s].sum(axis=0) for s in sets])
    distances = np.square(centred[:, None] - prototypes).sum(axis=2)
    check_sets(clf, X, sets, distances)


def check_sets(clf, X, sets, distances):
    predicted = clf.predict(X)
    for row, best in enumerate(distances.argmin(axis=1)):
        np.testing.assert_array_equal(np.sort(predicted[row].indices), sets[best])
    expected = np.sort(distances, axis=1)[:, :2]
    np.testing.assert_allclose(clf.predict_label_set_scores(X), expected, rtol=1e-6, atol=1e-9)


def test_seen_is_the_nearest_mean_of_the_training_sets(small):
    X, Y = small
    clf = quick(decision="seen", max_epochs=5).fit(X, Y)
    features = clf._predictor.head_inputs(clf._validate_predict(X))
    sets, index = np.unique(Y.toarray(), axis=0, return_inverse=True)
    means = np.stack([features[index == i].mean(axis=0) for i in range(len(sets))])
    distances = np.square(features[:, None] - means).sum(axis=2)
    np.testing.assert_array_equal(clf.predict(X).toarray(), sets[distances.argmin(axis=1)])
    np.testing.assert_allclose(
        clf.predict_label_set_scores(X), np.sort(distances, axis=1)[:, :2], rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("output, feature_dim", [("learned", None), ("etf", 4)])
def test_nearest_without_a_simplex(small, output, feature_dim):
    X, Y = small
    clf = quick(decision="nearest", output=output, feature_dim=feature_dim).fit(X, Y)
    assert not clf.net_.module_.head.is_simplex
    assert f1_score(Y, clf.predict(X), average="micro") > 0.6
    assert np.isfinite(clf.predict_label_set_scores(X)).all()


def test_only_decisions_that_compare_sets_have_set_scores(small):
    X, Y = small
    for decision in ("auto", "threshold", "topk"):
        assert not hasattr(quick(decision=decision), "predict_label_set_scores")
    assert hasattr(quick(decision="divergence"), "predict_label_set_scores")
    clf = quick(max_epochs=1, decision="divergence").fit(X, np.arange(200) % 5)
    with pytest.raises(ValueError, match="needs a classifier fitted on an indicator y"):
        clf.predict_label_set_scores(X)


@pytest.mark.integration
def test_a_threshold_is_tuned_where_samples_suffice():
    X, Y = make_extreme_multilabel(1500, 200, 40, noise=0.5, random_state=0)
    params = {"max_epochs": 8, "batch_size": 128, "learning_rate": 0.04}
    tuned = quick(**params).fit(X[:1000], Y[:1000])
    untuned = quick(decision="divergence", **params).fit(X[:1000], Y[:1000])
    np.testing.assert_array_equal(
        tuned.decision_function(X[1000:]), untuned.decision_function(X[1000:])
    )
    assert tuned.settings_["decision"] == "threshold"
    f1 = [f1_score(Y[1000:], c.predict(X[1000:]), average="micro") for c in (tuned, untuned)]
    assert f1[0] > f1[1]
    few = quick(**params).fit(X[:200], Y[:200])
    assert few.settings_["decision"] == "divergence"


def test_temperature_is_fitted_on_held_rows(data):
    X, Y = data
    params = {"validation_fraction": 0.3, "max_epochs": 15, "encoder__dropout": 0.3}
    clf = quick(decision=Divergence("tuned"), **params).fit(X, Y)
    plan = Plan(clf, clf._validate_fit(X, Y, None, None), going_on=False)
    _, held = plan.split(np.random.RandomState(0))
    held = held.take(slice(None))
    scores = {}
    for temperature in (clf.decision_.temperature_, 1.0, 0.2, 0.5, 2.0):
        clf.decision_.temperature_ = temperature
        predicted = clf.predict(held.X)
        scores[temperature] = f1_score(held.Y, predicted, average="samples", zero_division=0)
    assert max(scores, key=scores.get) == list(scores)[0]
    assert quick(decision=Divergence(0.5), max_epochs=1).fit(X, Y).decision_.temperature_ == 0.5
    first = quick(decision=Divergence("tuned"), max_epochs=1).partial_fit(X, Y)
    assert first.decision_.temperature_ == 1.0


def test_threshold_is_fitted_on_held_rows_or_given(data):
    X, Y = data
    clf = quick(decision="threshold", validation_fraction=0.3, max_epochs=15, encoder__dropout=0.3)
    clf.fit(X, Y)
    plan = Plan(clf, clf._validate_fit(X, Y, None, None), going_on=False)
    _, held = plan.split(np.random.RandomState(0))
    held = held.take(slice(None))
    p, truth = clf.predict_proba(held.X), held.Y.toarray()
    f1 = f1_score(truth, p > clf.threshold_, average="micro")
    assert f1 >= max(f1_score(truth, p > t, average="micro") for t in np.linspace(0.01, 0.9, 90))
    clf = quick(decision=Threshold(0.2), max_epochs=3).fit(X, Y)
    assert clf.threshold_ == pytest.approx(0.2)
    np.testing.assert_array_equal(clf.predict(X).toarray(), clf.predict_proba(X) > 0.2)


def test_probabilities_are_shares_of_a_row(data):
    X, Y = data
    clf = quick(max_epochs=3).fit(X, Y)
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(np.log(p), clf.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "loss, expected",
    [
        ("pick_all_labels", np.array([10, 5, 5, 2]) / 22),
        (PickAllLabels(reduction="mean"), np.array([20, 5, 5, 6]) / 36),
        ("auto", [0.6283, 0.1290, 0.1290, 0.1136]),  # minimised numerically
    ],
    ids=["sum", "mean", "auto"],
)
def test_what_probabilities_estimate_where_samples_look_alike(loss, expected):
    Y = np.repeat([[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]], [25, 25, 10], axis=0)
    clf = quick(loss=loss, learning_rate=0.1, max_epochs=100).fit(np.ones((60, 1)), Y)
    np.testing.assert_allclose(clf.predict_proba([[1.0]]), [expected], atol=2e-3)


@pytest.mark.parametrize("feature_decay", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["pick_all_labels", "auto"])
def test_loss_is_the_formula_of_the_paper_or_the_documented_variant(data, loss, feature_decay):
    X, Y = data[0][:50], data[1][:50].toarray()
    clf = quick(loss=loss, output__feature_decay=feature_decay, max_epochs=3).fit(X, Y)
    logits = clf.decision_function(X)  # log probabilities: the softmax is that of the logits
    h = clf._predictor.head_inputs(clf._validate_predict(X))
    expected = 0.0
    for z, labels, inputs in zip(logits, Y, h):
        losses = []
        for k in np.flatnonzero(labels):
            surprise = -np.log(np.exp(z[k]) / np.exp(z).sum())  # L_CE(z, y_k)
            margin = np.log1p(np.exp(z[labels == 0]).sum() / np.exp(z[k]))
            losses.append(surprise if loss == "pick_all_labels" else (surprise + margin) / 2)
        if losses:
            expected += np.sum(losses) if loss == "pick_all_labels" else np.mean(losses)
        expected += feature_decay * (inputs @ inputs)
    assert loss_of(clf, X, Y) == pytest.approx(expected / len(Y), rel=1e-9)


def loss_of(clf, X, Y):
    """Loss of the head on a batch."""
    rows = sp.csr_matrix(Y)
    targets = Targets(torch.tensor(rows.indptr), torch.tensor(rows.indices, dtype=torch.int64))
    features = torch.from_numpy(clf.transform(X))
    with torch.no_grad():
        return clf.net_.module_.head.loss(features, targets).item()


# --- features and parameters --------------------------------------------------------------------


def test_feature_dim(data):
    X, Y = data
    head = quick(max_epochs=1).fit(X, Y).net_.module_.head
    assert head.is_implicit
    assert head.feature_dim == N_LABELS
    clf = quick(max_epochs=1, encoder=lambda n: nn.Linear(n, 24)).fit(X, Y)
    assert clf.net_.module_.head.feature_dim == 24
    assert clf.n_parameters_ == 81 * 24 + N_LABELS
    learned = quick(max_epochs=1, encoder=lambda n: nn.Linear(n, 24), output="learned").fit(X, Y)
    assert learned.n_parameters_ == clf.n_parameters_ + 24 * N_LABELS
    bare = quick(max_epochs=1, encoder=lambda n: nn.Linear(n, 24), output__fit_intercept=False)
    bare.fit(X, Y)
    assert bare.n_parameters_ == 81 * 24


@pytest.mark.slow
def test_collapse_of_stacked_digits(images):
    pictures, Y = images
    X = pictures.reshape(len(pictures), -1).astype(np.float32) / 16
    encoder = MLP((128,), dropout=0.0)
    clf = quick(encoder=encoder, max_epochs=2, output__feature_decay=1e-3)
    early = clf.fit(X, Y).collapse_report(X, Y)
    late = clf.set_params(max_epochs=120, learning_rate=0.005).fit(X, Y).collapse_report(X, Y)
    assert late["nc1"] < early["nc1"] / 10
    assert late["nc3"] < early["nc3"] / 2
    assert late["ncm"][2] < early["ncm"][2] / 2
    assert late["nc2_weights"] < 1e-6


@pytest.mark.integration
def test_nearest_predicts_pairs_that_were_never_seen():
    held = [(0, 1), (2, 7), (3, 8)]
    params = {"n_per_class": 40, "n_per_pair": 12}
    pictures, Y = make_label_set_images(**params, held_out=held, random_state=0)
    X = pictures.reshape(len(pictures), -1).astype(np.float32) / 16
    params = {"n_per_class": 1, "n_per_pair": 100}
    test_pictures, test_Y = make_label_set_images(**params, random_state=1)
    chosen = [tuple(np.flatnonzero(row)) in held for row in test_Y]
    test_X = test_pictures[chosen].reshape(sum(chosen), -1).astype(np.float32) / 16
    params = {"encoder__hidden_layer_sizes": (256,), "learning_rate": 5e-3}
    seen = quick(decision="seen", max_epochs=1, **params).fit(X, Y)
    trained = quick(decision="nearest", max_epochs=30, **params).fit(X, Y)
    sets = {"seen": seen.predict(test_X), "nearest": trained.predict(test_X)}
    sets["divergence"] = trained.recalibrate(decision="divergence").predict(test_X)
    accuracy = {
        decision: np.mean((predicted == test_Y[chosen]).all(axis=1))
        for decision, predicted in sets.items()
    }
    assert accuracy["seen"] == 0
    assert accuracy["nearest"] > 0.1
    assert accuracy["divergence"] > 0.1


def test_collapse_report_of_classes(data):
    X, _ = data
    y = np.array(list("abcde"))[np.arange(300) % 5]
    report = quick(max_epochs=3).fit(X, y).collapse_report(X, y)
    assert report["ncm"] == {}
    assert np.isfinite(report["nc1"])


# --- a citizen of scikit-learn ------------------------------------------------------------------


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_saved_model_predicts_the_same(data, tmp_path, decision):
    X, Y = data
    for output in ("etf", "learned"):
        clf = quick(decision=decision, output=output, feature_dim=5, max_epochs=3).fit(X, Y)
        joblib.dump(clf, tmp_path / "model.joblib")
        loaded = joblib.load(tmp_path / "model.joblib")
        assert (loaded.predict(X) != clf.predict(X)).nnz == 0
        np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))


def test_search_over_decision_and_feature_dim_in_a_pipeline(data):
    X, Y = data
    model = make_pipeline(MaxAbsScaler(), quick(max_epochs=8, learning_rate=0.05))
    name = "etfneuralcollapseclassifier"
    grid = {f"{name}__decision": ["nearest", "divergence"], f"{name}__feature_dim": [N_LABELS, 8]}
    search = GridSearchCV(model, grid, cv=2, scoring="f1_samples", error_score="raise").fit(
        X, Y.toarray()
    )
    assert 0.2 < search.best_score_ <= 1


def test_decisions_change_no_scores(data):
    X, Y = data
    decisions = [Threshold(0.1) if name == "threshold" else name for name in DECISIONS]
    scores = [
        quick(decision=decision, max_epochs=3).fit(X, Y).decision_function(X)
        for decision in decisions
    ]
    for other in scores[1:]:
        np.testing.assert_array_equal(other, scores[0])


def test_partial_fit_decodes(data):
    X, Y = data
    for decision in DECISIONS:
        clf = quick(decision=decision)
        for _ in range(2):
            clf.partial_fit(X, Y)
        assert clf.predict(X).shape == Y.shape


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, message",
    [
        ({"output": "fixed"}, "'output' parameter of ETFNeuralCollapseClassifier must be"),
        ({"feature_dim": 0}, "'feature_dim' parameter of ETFNeuralCollapseClassifier must be"),
        ({"decision": "best"}, "'decision' parameter of ETFNeuralCollapseClassifier must be"),
        ({"decision": Divergence(max_labels=0)}, "'max_labels' parameter of Divergence must be"),
        ({"decision": Nearest(21)}, "max_labels=21 is more than the 20 labels of y"),
        ({"decision": Divergence(0)}, "'temperature' parameter of Divergence must be"),
        ({"decision": Divergence("warm")}, "'temperature' parameter of Divergence must be"),
        ({"decision": Threshold(1.0)}, "threshold=1.0 must be between 0 and 1"),
        ({"loss": "hinge"}, "'loss' parameter of ETFNeuralCollapseClassifier must be"),
        ({"loss": "ce"}, "loss='ce' is not defined for ETFNeural.*'pick_all_labels'"),
        ({"output": ETF(feature_decay=-1)}, "'feature_decay' parameter of ETF must"),
        ({"output": Learned(fit_intercept=2)}, "'fit_intercept' parameter of Learned must"),
    ],
)
def test_bad_parameters(data, params, message):
    X, Y = data
    clf = quick(max_epochs=1).fit(X, Y)
    before = clf.decision_function(X)
    with pytest.raises(ValueError, match=message):
        clf.set_params(**params).fit(X, Y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "parameters were set after fit")
        np.testing.assert_array_equal(clf.decision_function(X), before)


def test_rows_of_a_frame_that_is_never_stored_stay_within_the_dense_limit(data):
    X, Y = data
    clf = quick().fit(X, Y)
    with config_context(dense_limit=8 * Y.shape[1] ** 2 - 1):
        for ask in (lambda: clf.output_weights_, lambda: clf.collapse_report(X[:1], Y[:1])):
            with pytest.raises(MemoryError, match="dense_limit=.* use feature_dim"):
                ask()
    assert clf.output_weights_.shape == (Y.shape[1],) * 2


def test_collapse_report_refuses_what_does_not_fit(data):
    X, Y = data
    with pytest.raises(ValueError, match="not fitted yet"):
        quick().collapse_report(X, Y)
    clf = quick(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.collapse_report(X, Y[1:])
    with pytest.raises(ValueError, match="20 columns"):
        clf.collapse_report(X, Y[:, 1:])


def test_implicit_frame_needs_no_matrix(data):
    X, Y = data
    clf = quick(max_epochs=1).fit(X, Y)
    clf.predict(X)
    assert not clf.net_.module_.head._tables
    np.testing.assert_allclose(
        clf.net_.module_.head.classifier(clf.net_.module_.head.bias).numpy(),
        simplex_etf(N_LABELS, N_LABELS),
    )


# --- training that goes on -----------------------------------------------------------------------


def test_training_goes_on_after_prediction_with_a_loaded_model(data):
    X, Y = data
    loaded = pickle.loads(pickle.dumps(quick(feature_dim=5, max_epochs=1).fit(X, Y)))
    loaded.predict(X)
    assert loaded.partial_fit(X, Y).t_ > 1


def test_partial_fit_forgets_nothing_that_was_chosen(data):
    X, Y = data
    clf = quick(max_epochs=3, decision="divergence").fit(X, Y)
    most = clf.decision_.max_labels_
    one = np.flatnonzero(np.diff(Y.indptr) == 1)[:3]
    assert clf.partial_fit(X[one], Y[one]).decision_.max_labels_ == most
    clf = quick(decision="seen", max_epochs=3).fit(X, Y)
    n_sets = clf.decision_.sets_.shape[0]
    assert clf.partial_fit(X[one], Y[one]).decision_.sets_.shape[0] == n_sets
    clf = quick(decision=Divergence("tuned"), max_epochs=5).fit(X, Y)
    tuned = clf.decision_.temperature_
    assert clf.partial_fit(X[one], Y[one]).decision_.temperature_ == tuned


def test_nearest_where_nothing_can_be_fitted():
    X = np.random.default_rng(0).normal(size=(50, 4))
    for n_labels in (1, 5):
        Y = sp.csr_matrix(np.ones((50, n_labels), dtype=int))
        clf = quick(decision="nearest", max_epochs=2).fit(X, Y)
        np.testing.assert_array_equal(clf.label_set_scales_, 1.0)
        assert clf.predict(X).shape == (50, n_labels)
        assert clf.output_weights_.shape == (n_labels, n_labels)


def test_few_rows_are_enough_for_scales(data):
    X, Y = data
    whole = quick(decision="nearest", max_epochs=3).fit(X, Y)
    with config_context(working_memory=1):
        part = quick(decision="nearest", max_epochs=3).fit(X, Y)
    np.testing.assert_allclose(part.label_set_scales_, whole.label_set_scales_)


def test_means_of_seen_sets_are_bounded(data):
    X, Y = data
    with config_context(dense_limit=1000), pytest.raises(MemoryError, match="another decision"):
        quick(decision="seen").fit(X, Y)


def test_set_scores_are_those_of_the_fitted_decision(data):
    X, Y = data
    clf = quick(max_epochs=1, decision="topk").fit(X, Y).set_params(decision="divergence")
    assert not hasattr(clf, "predict_label_set_scores")
    clf = quick(max_epochs=1, decision="divergence").fit(X, Y).set_params(decision="topk")
    with pytest.warns(UserWarning, match="decision"):
        assert clf.predict_label_set_scores(X).shape == (300, 2)


def test_a_monitor_is_saved_without_its_data(data):
    X, Y = data
    clf = quick(max_epochs=2, callbacks=[CollapseMonitor(X, Y)]).fit(X, Y)
    assert len(clf.net_.history[:, "nc1"]) == 2
    bare = len(pickle.dumps(quick(max_epochs=2).fit(X, Y)))
    assert len(pickle.dumps(clf)) < bare + 1000
    pickle.loads(pickle.dumps(clf)).partial_fit(X, Y)


def test_scales_of_label_sets_belong_to_one_decision():
    X, Y = make_extreme_multilabel(60, 20, 6, random_state=0)
    clf = ETFNeuralCollapseClassifier(max_epochs=1, random_state=0)
    assert not hasattr(clf, "label_set_scales_")
    with pytest.raises(AttributeError, match="label_set_scales_ belong to decision='nearest'"):
        clf.fit(X, Y).label_set_scales_
