"""DFTSigmoidClassifier: its guarantee, label sets in reach, its first logits, its threshold."""

import copy
import pickle
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import linprog
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import QUICK, built, make_learnable
from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import RiskControl, Taxonomy, Threshold, TopK
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.class_weights import RARE
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.geometry import count_argmaxable, fourier_matrix, is_argmaxable, verify_argmaxable
from sklearn_xlc.heads import Fourier
from sklearn_xlc.ranking import BoostedRanker, Calibration

N_LABELS = 30
QUICK = {**QUICK, "encoder": MLP((32,)), "max_epochs": 15}
quick = partial(built, DFTSigmoidClassifier(n_slack=4, **QUICK))


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(300, 80, N_LABELS, random_state=0)
    return X.astype(np.float64), sp.csr_matrix(Y)


# --- guarantee ----------------------------------------------------------------------------------


def test_output_weights_are_fourier_and_slack_columns(data):
    X, Y = data
    clf = quick(ranker=None).fit(X, Y)
    k = clf.max_active_
    assert k == np.diff(Y.indptr).max()
    assert clf.output_weights_.shape == (N_LABELS, 2 * k + 1 + 4)
    np.testing.assert_array_equal(clf.output_weights_[:, : 2 * k + 1], fourier_matrix(N_LABELS, k))
    inputs = clf._predictor.head_inputs(clf._validate_predict(X))
    scores = inputs @ clf.output_weights_.T
    np.testing.assert_allclose(clf.decision_function(X), scores, rtol=1e-9, atol=1e-9)


@pytest.mark.integration
def test_every_label_set_of_the_data_is_argmaxable(data):
    X, Y = data
    clf = quick(max_epochs=5).fit(X, Y)
    report = clf.verify(Y)
    assert (report.status == 1).all()
    assert set(report.reason) == {"closed form"}
    assert (report.radius > 0).all()
    same = verify_argmaxable(clf, Y)
    np.testing.assert_array_equal(same.reason, report.reason)
    # A set that the classifier predicts of some row is argmaxable because it does. (The best label
    # of a row without any above the threshold is predicted all the same.)
    predicted = clf.predict(X)
    above = (clf.decision_function(X) > 0).any(axis=1)
    report = clf.verify(predicted[above], X)
    assert set(report.reason) == {"point"}
    assert (clf.verify(predicted, X).status == 1).all()


@pytest.mark.integration
def test_a_bottleneck_has_sets_it_never_predicts(data):
    X, Y = data
    clf = quick(output="bottleneck", n_slack=2, ranker=None).fit(X, Y)
    X, Y = X[:40], Y[:40]
    assert clf.max_active_ is None
    assert clf.output_weights_.shape == (N_LABELS, 2)
    projection = clf.net_.module_.head.projection
    P, b = (p.detach().numpy() for p in (projection.weight, projection.bias))
    scores = (clf.transform(X) @ P.T + b) @ clf.output_weights_.T  # Eq. 9
    np.testing.assert_allclose(clf.decision_function(X), scores, rtol=1e-9, atol=1e-9)
    report = clf.verify(Y)
    assert report.n_unargmaxable > 0
    assert clf.verify(clf.predict(X)).n_unargmaxable == 0


def test_every_set_that_the_count_promises_is_argmaxable():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    Y = np.zeros((40, 7), dtype=int)
    Y[np.arange(40), rng.integers(7, size=40)] = 1
    Y[0], Y[0, :2] = 0, 1
    clf = quick(n_slack=0, max_epochs=1, decision=Threshold(0.5)).fit(X, Y)
    assert clf.max_active_ == 2
    every = (np.arange(128)[:, None] >> np.arange(7)) & 1
    report = clf.verify(every)
    assert report.n_argmaxable == count_argmaxable(7, 5)
    assert report.n_unknown == 0
    assert (report.status[every.sum(axis=1) <= 2] == 1).all()


def test_regions_too_thin_for_floats_are_argmaxable_by_the_theorem():
    n_labels, k = 2000, 20
    y = np.zeros(n_labels, dtype=int)
    y[:: n_labels // k] = 1
    W = fourier_matrix(n_labels, k)
    y[1 : 2 * k : 2] = 0
    y[: 2 * k : 2], y[2 * k :] = 1, 0
    report = verify_argmaxable(W, y, max_active=k)
    assert report.status[0] == 1
    assert report.reason[0] == "sign changes"
    assert 0 < report.radius[0] < 1e-20
    assert report.narrow[0]
    assert np.isnan(report.witness[0]).all()
    # Nobody may claim that of other weights.
    assert is_argmaxable(W[:, :-1], y, time_limit=0.5) is not True


def test_settings_hold_the_guarantee_in_use(data):
    X, Y = data
    most = int(np.diff(Y.indptr).max())
    few = np.flatnonzero(np.diff(Y.indptr) < most)
    clf = quick(max_epochs=1, warm_start=True)
    for samples in (slice(None), few):  # the layer stays as it was built
        clf.fit(X[samples], Y[samples])
        assert clf.settings_["max_active"] == clf.max_active_ == most
    bottleneck = quick(output="bottleneck", max_epochs=1).fit(X, Y)
    assert "max_active" not in bottleneck.settings_  # where none can be given


def test_rows_beyond_the_guarantee_are_counted(data):
    X, Y = data
    beyond = int((np.diff(Y.indptr) > 2).sum())
    assert beyond > 0
    with pytest.warns(UserWarning, match=rf"{beyond} of 300 rows of y have more than max_active=2"):
        clf = quick(max_active=2, max_epochs=1).fit(X, Y)
    assert clf.max_active_ == 2
    with pytest.warns(UserWarning, match=r"of 300 rows of y have more than max_active=2"):
        clf.partial_fit(X, Y)


def test_an_encoder_too_narrow_for_the_guarantee_is_warned_of(data):
    X, Y = data
    columns = 2 * np.diff(Y.indptr).max() + 1 + 4
    assert columns < N_LABELS
    with pytest.warns(UserWarning, match=rf"n_slack = {columns} columns of the output .* wider"):
        quick(encoder__hidden_layer_sizes=(columns - 1,), max_epochs=1).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(encoder__hidden_layer_sizes=(columns,), max_epochs=1).fit(X, Y)
        # full rank
        quick(encoder__hidden_layer_sizes=(N_LABELS,), n_slack=50, max_epochs=1).fit(X, Y)


@pytest.mark.parametrize("largest, width", [(2, 512), (300, 651), (600, 1024)])
def test_auto_widths_hold_the_guarantee_or_warn(largest, width):
    """Of 1500 labels, with 50 slack columns."""
    X = sp.random(40, 300, density=0.02, format="csr", random_state=0)
    Y = np.zeros((40, 1500), dtype=int)
    Y[np.arange(40), np.arange(40)], Y[0, :largest] = 1, 1
    clf = DFTSigmoidClassifier(max_epochs=1, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, sp.csr_matrix(Y))
    assert clf.net_.module_.head.n_features == width
    messages = [str(each.message) for each in caught]
    assert [m[:29] for m in messages] == ["the encoder has 1024 outputs,"] * (largest == 600)
    clf.set_params(output="bottleneck", n_slack=700).fit(X, Y)
    assert clf.net_.module_.head.n_features == 512


def test_auto_keeps_to_what_the_labels_allow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    for n_labels in (2, 3, 4, 7, 8):
        Y = np.ones((40, n_labels), dtype=int)
        Y[:20, 0] = 0
        clf = quick(max_epochs=1, encoder__hidden_layer_sizes=(16,)).fit(X, Y)
        assert clf.max_active_ == (n_labels - 1) // 2
        classes = quick(max_epochs=1).fit(X, np.arange(40) % n_labels)
        assert classes.max_active_ == min(1, (n_labels - 1) // 2)


# --- label sets in reach of the network -------------------------------------------------------


def reached(clf, sets, cut=0.0):
    """Whether some e >= 0 has (W (P e + b) - cut) of the wanted signs: one LP a set."""
    head, W = clf.net_.module_.head, clf.output_weights_
    gains = np.ones(W.shape[1])
    if clf.max_active_ is not None:
        gains[: 2 * clf.max_active_ + 1] = head.gain
    P = gains[:, None] * head.projection.weight.detach().double().numpy()
    b = gains * head.projection.bias.detach().double().numpy()
    answers = []
    for y in sets:
        signs = np.where(y, 1, -1)
        # Largest t <= 1 with s_i (w_i P e + e0 (w_i b - cut)) >= t and e0 >= t; 0 if none is above.
        rows = np.column_stack([signs[:, None] * (W @ P), signs * (W @ b - cut)])
        rows = np.vstack([rows, np.append(np.zeros(P.shape[1]), 1)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        result = linprog(
            np.append(np.zeros(rows.shape[1]), -1),
            A_ub=np.column_stack([-rows, np.ones(len(rows))]),
            b_ub=np.zeros(len(rows)),
            bounds=[(0, 1e4)] * rows.shape[1] + [(None, 1)],
        )
        answers.append(result.x[-1])
    return np.array(answers)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["dft", "bottleneck"])
@pytest.mark.parametrize("threshold", [0.5, 0.1])
@pytest.mark.filterwarnings("ignore:the encoder has 7 outputs")
def test_whole_network_is_the_cone_of_rectified_features(data, output, threshold):
    X, Y = data
    params = {"encoder": MLP((7,)), "decision": Threshold(threshold), "max_epochs": 20}
    clf = quick(output=output, n_slack=5, **params).fit(X, Y)
    sets = Y[:24].toarray()
    report = clf.verify(sets, whole_network=True)
    margin = reached(clf, sets, logit(threshold))
    clear = (margin > 1e-7) | (margin < 1e-12)
    assert clear.sum() > 18
    np.testing.assert_array_equal(report.status[clear], margin[clear] > 1e-7)
    assert 0 < report.n_argmaxable < 24
    # A set out of reach of every input of the output layer is out of reach of features.
    assert not (report.status == 1)[clf.verify(sets).status == 0].any()
    found = report.status == 1
    assert (report.witness[found] > 0).all()
    # Labels that contradict each other are labels, not features.
    for conflict in report.conflicts:
        assert conflict is None or conflict.max(initial=0) < N_LABELS
    # What the network predicts of a sample is within its reach.
    predicted = clf.verify(clf.predict(X), X, whole_network=True)
    assert set(predicted.reason) == {"point"}


@pytest.mark.integration
def test_features_of_an_own_encoder_are_as_signed_as_in_x(data):
    X, Y = data
    params = {"n_slack": 3, "encoder": lambda n: torch.nn.Linear(n, 6), "max_active": 2}
    with pytest.warns(UserWarning, match="the encoder has 6 outputs|more than max_active=2"):
        clf = quick(**params).fit(X, Y)
    sets = Y[:20]
    free = clf.verify(sets, whole_network=True)
    both_signs = clf.verify(sets, X, whole_network=True)
    np.testing.assert_array_equal(free.status, both_signs.status)
    with torch.no_grad():
        clf.net_.module_.encoder.bias += 1e3  # no sample has a negative feature now
    positive = clf.verify(sets, X, whole_network=True)
    assert positive.n_argmaxable < free.n_argmaxable


@pytest.mark.filterwarnings("ignore:the encoder has 5 outputs")
def test_a_leak_lets_features_below_zero(data):
    X, Y = data
    params = {"encoder": MLP((5,), negative_slope=0.5), "decision": Threshold(0.3)}
    clf = quick(n_slack=0, **params).fit(X, Y)
    assert clf.transform(X).min() < 0
    # What is predicted is within reach.
    assert clf.verify(clf.predict(X), whole_network=True).n_argmaxable == Y.shape[0]


@pytest.mark.parametrize("threshold", [0.05, np.linspace(0.02, 0.4, N_LABELS)], ids=["one", "each"])
@pytest.mark.parametrize("output", ["dft", "bottleneck"])
def test_what_is_predicted_is_argmaxable_at_every_threshold(data, output, threshold):
    X, Y = data
    clf = quick(output=output, n_slack=2, decision=Threshold(threshold)).fit(X, Y)
    report = clf.verify(clf.predict(X), X)
    assert set(report.reason) == {"point"}


OF_SIZES = {
    "one or more": Threshold(0.5, min_labels=1),
    "three or more": Threshold(0.5, min_labels=3),
    "two at most": Threshold(criterion="f1_at_k", k=2),
    "one or two": Threshold(criterion="f1_at_k", k=2, min_labels=1),
    "two": Threshold(criterion="f1_at_k", k=2, min_labels=2),
    "risk": RiskControl(alpha=0.8, k=3, min_labels=1),
    "any risk": RiskControl(alpha=0.95, k=3),
    "best two": TopK(2),
}


@pytest.mark.parametrize("whole_network", [False, True])
@pytest.mark.parametrize("decision", OF_SIZES.values(), ids=OF_SIZES)
@pytest.mark.parametrize("output", ["dft", "bottleneck"])
def test_what_is_predicted_is_never_proven_impossible(data, output, decision, whole_network):
    X, Y = data
    clf = quick(output=output, n_slack=2, ranker=None, decision=decision, max_epochs=5).fit(X, Y)
    predicted = clf.predict(X)
    alone = clf.verify(predicted, whole_network=whole_network)
    assert alone.n_unargmaxable == 0
    given = clf.verify(predicted, X, whole_network=whole_network)
    assert set(given.reason) == {"point"}


@pytest.mark.parametrize("decision", OF_SIZES.values(), ids=OF_SIZES)
def test_sets_of_a_size_that_is_never_predicted_are_impossible(data, decision):
    X, Y = data
    clf = quick(ranker=None, decision=decision, max_epochs=1).fit(X, Y)
    sizes = np.arange(5)
    report = clf.verify(np.arange(N_LABELS) < sizes[:, None])
    fitted = clf.decision_
    if isinstance(fitted, TopK):
        least = most = 2
    else:
        is_limited = isinstance(fitted, RiskControl) or fitted.criterion == "f1_at_k"
        least, most = fitted.min_labels_, fitted.k if is_limited else N_LABELS
        if np.isinf(fitted.cut_):  # below it are all
            most = least
    is_possible = (least <= sizes) & (sizes <= most)
    np.testing.assert_array_equal(report.reason != "number of labels", is_possible)
    assert not report.status[~is_possible].any()


# --- start and loss -----------------------------------------------------------------------------


def test_first_logits_are_the_label_frequencies(data):
    X, Y = data
    frequency = np.asarray(Y.sum(axis=0)).ravel() / Y.shape[0]
    frequency = frequency.clip(RARE)
    params = {"learning_rate": 1e-300, "optimizer": "sgd", "max_epochs": 1, "ranker": None}
    clf = quick(**params).fit(X, Y)
    expected = np.broadcast_to(logit(frequency), Y.shape)
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-12)
    clf = quick(**params, n_slack=0).fit(X, Y)
    target = logit(Y.nnz / Y.shape[0] / Y.shape[1])
    np.testing.assert_allclose(clf.decision_function(X), np.full(Y.shape, target), rtol=1e-12)


def test_the_start_of_the_paper(data):
    X, Y = data
    params = {
        "learning_rate": 1e-300,
        "optimizer": "sgd",
        "ranker": None,
        "max_epochs": 1,
        "output": Fourier(init="random"),
    }
    clf = quick(**params).fit(X, Y)
    head, n, k = clf.net_.module_.head, N_LABELS, clf.max_active_
    P, b = (p.detach().numpy() for p in (head.projection.weight, head.projection.bias))
    np.testing.assert_allclose(b, [np.sqrt(n) * logit(k / n), *np.zeros(2 * k + 4)], atol=1e-200)
    S = head.slack.detach().numpy()
    assert len(np.unique(np.abs(S))) == S.size  # random, none cancels another
    # z = W (P e + b) + S q, Eq. 9, with the Fourier matrix of Eq. 8 written out.
    t = 2 * np.pi * np.arange(n) / n
    waves = [f(j * t) for j in range(1, k + 1) for f in (np.cos, np.sin)]
    W = np.stack([np.full(n, 1 / np.sqrt(n)), *(np.sqrt(2 / n) * wave for wave in waves)], axis=1)
    x = clf.transform(X) @ P.T + b
    expected = x[:, : 2 * k + 1] @ W.T + x[:, 2 * k + 1 :] @ S.T
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-9, atol=1e-9)
    assert clf.verify(Y).n_argmaxable == 300


def test_parameters_are_counted_without_the_fixed_matrix(data):
    X, Y = data
    clf = quick(max_epochs=1).fit(X, Y)
    columns = 2 * clf.max_active_ + 1
    encoder = sum(p.numel() for p in clf.net_.module_.encoder.parameters())
    assert clf.n_parameters_ - encoder == (32 + 1) * (columns + 4) + 4 * N_LABELS


def test_a_saved_model_predicts_the_same(data, tmp_path):
    X, Y = data
    clf = quick(decision="threshold").fit(X, Y)
    joblib.dump(clf, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
    assert (loaded.predict(X) != clf.predict(X)).nnz == 0
    assert loaded.threshold_ == clf.threshold_
    assert loaded.verify(Y[:20]).n_argmaxable == 20


@pytest.mark.integration
def test_search_over_slack_in_a_pipeline(data):
    X, Y = data
    model = make_pipeline(MaxAbsScaler(), quick(decision=Threshold(), max_epochs=8))
    grid = {
        "dftsigmoidclassifier__n_slack": [0, 4],
        "dftsigmoidclassifier__decision__threshold": [0.3, 0.5],
    }
    search = GridSearchCV(model, grid, cv=2, scoring="f1_micro", error_score="raise").fit(X, Y)
    assert 0.2 < search.best_score_ <= 1
    again = search.best_estimator_.predict(X)
    assert again.shape == Y.shape


# --- threshold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
def test_threshold_is_a_probability(data, threshold):
    X, Y = data
    clf = quick(decision=Threshold(threshold), max_epochs=5).fit(X, Y)
    assert clf.threshold_ == pytest.approx(threshold)
    np.testing.assert_array_equal(clf.predict(X).toarray(), clf.predict_proba(X) > threshold)


def test_auto_threshold_is_the_best_on_the_held_rows(data):
    X, Y = data
    params = {"encoder__dropout": 0.3, "validation_fraction": 0.3, "max_epochs": 20}
    clf = quick(decision="threshold", **params).fit(X, Y)
    plan = Plan(clf, clf._validate_fit(X, Y, None, None), going_on=False)
    _, held = plan.split(np.random.RandomState(0))
    held = held.take(slice(None))
    scores, truth = clf.predict_proba(held.X), held.Y.toarray()
    f1 = f1_score(truth, scores > clf.threshold_, average="micro")
    others = [f1_score(truth, scores > t, average="micro") for t in np.linspace(0.02, 0.98, 97)]
    assert f1 >= max(others) - 1e-12
    assert f1 > f1_score(truth, scores > 0.5, average="micro")


def test_partial_fit_does_not_tune_the_threshold(data):
    X, Y = data
    assert quick(decision="threshold").partial_fit(X, Y).threshold_ == 0.5


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, message",
    [
        ({"max_active": -1}, "'max_active' parameter of DFTSigmoidClassifier must be"),
        ({"max_active": 2.5}, "'max_active' parameter of DFTSigmoidClassifier must be"),
        ({"max_active": "all"}, "'max_active' parameter of DFTSigmoidClassifier must be"),
        ({"max_active": 15}, r"max_active=15 needs .* = 31 columns.*30 labels.*at most 14"),
        ({"n_slack": -1}, "'n_slack' parameter of DFTSigmoidClassifier must be"),
        ({"output": Fourier(init="zeros")}, "'init' parameter of Fourier must be"),
        ({"output": "fft"}, "'output' parameter of DFTSigmoidClassifier must be"),
        ({"output": "bottleneck", "n_slack": 0}, "'bottleneck' .* n_slack must be at least 1"),
        ({"decision": Threshold(0.0)}, "threshold=0.0 must be between 0 and 1"),
        ({"decision": Threshold(1.0)}, "threshold=1.0 must be between 0 and 1"),
        ({"decision": "best"}, "'decision' parameter of DFTSigmoidClassifier must be"),
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


def test_two_classes_need_a_slack_column(data):
    X, _ = data
    y = np.arange(300) % 5
    with pytest.raises(ValueError, match="n_slack must be at least 1 with two labels, got 0"):
        quick(n_slack=0).fit(X, y % 2)


def test_verify_names_what_does_not_fit(data):
    X, Y = data
    clf = quick()
    with pytest.raises(ValueError, match="not fitted yet"):
        clf.verify(Y)
    clf.set_params(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="equally many labels, got 29 and 30"):
        clf.verify(Y[:, 1:])


@pytest.mark.parametrize("cut", [0.3, np.linspace(0.2, 0.7, N_LABELS)])
def test_verify_speaks_of_predictions_also_where_scores_are_calibrated(data, cut):
    X, Y = data
    clf = quick(output="bottleneck", ranker=Calibration(), decision=Threshold(cut)).fit(X, Y)
    clf.ranker_ = copy.copy(clf.ranker_)
    clf.ranker_.slope_, clf.ranker_.offset_ = 0.4, 0.3
    sets = clf.predict(X)
    assert 0 < sets.nnz < 300 * N_LABELS / 2
    # The sample itself proves that its set can be predicted, by the layer and by the network.
    for whole in (False, True):
        report = clf.verify(sets, X, whole_network=whole)
        assert (report.status == 1).all()
        assert set(report.reason) == {"point"}


@pytest.mark.parametrize("threshold", [-1e9, 1e9])
def test_a_cut_far_from_all_logits_is_found(data, threshold):
    X, Y = data
    decision = Threshold(threshold, scale="score")
    clf = quick(output="bottleneck", ranker=Calibration(), decision=decision).fit(X, Y)
    clf.ranker_ = copy.copy(clf.ranker_)
    clf.ranker_.slope_ = 0.01
    report = clf.verify([[0] * N_LABELS, [1] * N_LABELS])
    for row in np.flatnonzero(report.status == 1):
        logits = clf.output_weights_ @ report.witness[row]
        assert ((clf.ranker_(logits) > threshold) == row).all()
    assert (report.status == 1).any()


def test_verify_refuses_to_speak_of_lists(data):
    X, Y = data
    clf = quick(max_epochs=2, ranker=BoostedRanker(estimator=LogisticRegression())).fit(X, Y)
    with pytest.raises(ValueError, match="BoostedRanker.*order of the layer.*ranker=None"):
        clf.verify(Y)
    assert (verify_argmaxable(clf, Y[:3]).status == 1).all()


class Best(Threshold):
    """A threshold with a rule of its own."""

    def decode(self, scores, labels=None):
        return self.label_sets(scores == scores.max(axis=1, keepdims=True), labels)


@pytest.mark.parametrize(
    "params",
    [
        {"decision": Taxonomy({0: 1})},
        {"decision": Best()},
        {"decision": Threshold(np.linspace(0.2, 0.6, N_LABELS), min_labels=2)},
        {"loss": "pick_all_labels"},
    ],
    ids=str,
)
def test_verify_refuses_to_speak_of_sets_that_no_threshold_makes(params, data):
    X, Y = data
    clf = quick(max_epochs=2, output="bottleneck", n_slack=2, ranker=None, **params).fit(X, Y)
    for whole in (False, True):
        with pytest.raises(
            ValueError,
            match="(?s)the best labels, or those above a threshold.*check the layer alone",
        ):
            clf.verify(clf.predict(X[:20]), X[:20], whole_network=whole)
    assert len(verify_argmaxable(clf, Y[:3]).status) == 3


def test_no_warning_on_ordinary_data(data):
    X, Y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(max_epochs=1).fit(X, Y)
        quick(max_epochs=1).fit(X, torch.arange(300).numpy() % 7)


def test_training_goes_on_after_prediction_with_a_loaded_model(data):
    X, Y = data
    loaded = pickle.loads(pickle.dumps(quick(max_epochs=1).fit(X, Y)))
    loaded.predict(X)
    loaded.verify(Y[:2], X)
    assert loaded.partial_fit(X, Y).t_ > 1


def test_later_batches_beyond_the_guarantee_are_warned_of(data):
    X, Y = data
    few = np.diff(Y.indptr) <= 2
    clf = quick().partial_fit(X[few], Y[few])
    assert clf.max_active_ == 2
    with pytest.warns(UserWarning, match="rows of y have more than max_active=2"):
        clf.partial_fit(X, Y)


def test_partial_fit_keeps_a_tuned_threshold(data):
    X, Y = data
    clf = quick(decision="threshold").fit(X, Y)
    tuned = clf.threshold_
    assert tuned != 0.5
    assert clf.partial_fit(X[:20], Y[:20]).threshold_ == tuned


def test_class_labels_have_no_label_sets(data):
    X, _ = data
    clf = quick(max_epochs=1).fit(X, np.arange(300) % 5)
    with pytest.raises(ValueError, match="fitted on class labels"):
        clf.verify(np.eye(5, dtype=int))


def test_label_sets_are_verified_by_name():
    X, Y = make_learnable(True)
    names = np.array([f"tag {i:02}" for i in range(Y.shape[1])], dtype=object)
    frame = pd.DataFrame(Y.toarray(), columns=names)
    clf = quick(output="bottleneck", max_epochs=1).fit(X, frame)
    tags = [names[:2].tolist(), [], names[:9].tolist()]
    indicator = np.zeros((3, len(names)), dtype=int)
    indicator[0, :2] = indicator[2, :9] = 1
    for options in ({}, {"whole_network": True}):
        expected = clf.verify(indicator, **options)
        np.testing.assert_array_equal(clf.verify(tags, **options).status, expected.status)
    with pytest.raises(ValueError, match="Y holds the label 'new'"):
        clf.verify([["new"]])
