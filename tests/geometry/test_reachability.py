"""Limits are Clopper and Pearson's, hold the share as often as they say, and are never guessed."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import binom, binomtest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_xlc import DFTSigmoidClassifier, MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.geometry import _reachability as module
from sklearn_xlc.geometry import certify_reachability, is_argmaxable, verify_argmaxable
from sklearn_xlc.heads import Flat

TRIANGLE = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
EVERY = np.array(list(itertools.product([0, 1], repeat=3)))
QUICK = {"encoder": MLP((16,)), "max_epochs": 2, "ranker": None, "random_state": 0}


def limits(found):
    return found.lower_, found.upper_


def counts(found):
    return found.n_argmaxable_, found.n_unargmaxable_, found.n_unknown_, found.n_new_


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    return X, (X @ rng.normal(size=(4, 6)) + rng.normal(size=(120, 6)) > 0.5).astype(int)


@pytest.fixture(scope="module")
def tags(data):
    return [[f"tag{label}" for label in np.flatnonzero(row)] for row in data[1]]


@pytest.fixture(scope="module")
def flat(data, tags):
    return MultiHeadClassifier("flat", **QUICK).fit(data[0], tags)


def answers_of(monkeypatch, statuses):
    """Let the check of label sets give these statuses, whatever it is asked."""

    def verify(model, Y, *args, **options):
        report = verify_argmaxable(np.eye(1), np.zeros((len(statuses), 1)))
        report.status[:] = statuses
        return report

    monkeypatch.setattr(module, "verify_argmaxable", verify)


@pytest.mark.parametrize("n_out", [0, 1, 7, 29, 30])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_limits_of_clopper_and_pearson(n_out, confidence):
    Y = np.repeat([[1, 0, 0], [1, 1, 1]], [30 - n_out, n_out], axis=0)
    found = certify_reachability(TRIANGLE, Y, confidence)
    assert counts(found) == (30 - n_out, n_out, 0, 0)
    expected = binomtest(30 - n_out, 30).proportion_ci(confidence, method="exact")
    np.testing.assert_allclose(limits(found), expected)
    # The equations that define the limits: each tail has half of what the confidence leaves.
    tail = (1 - confidence) / 2
    if n_out < 30:
        assert binom.sf(29 - n_out, 30, found.lower_) == pytest.approx(tail)
    if n_out:
        assert binom.cdf(30 - n_out, 30, found.upper_) == pytest.approx(tail)
    assert (found.lower_ == 0) == (n_out == 30)
    assert (found.upper_ == 1) == (n_out == 0)
    assert limits(found) == verify_argmaxable(TRIANGLE, Y).population_interval(confidence)


def test_unknown_sets_widen_both_ends(monkeypatch):
    answers_of(monkeypatch, [1] * 6 + [0] * 2 + [-1] * 2)
    found = certify_reachability(TRIANGLE, np.ones((10, 3), dtype=int))
    assert counts(found) == (6, 2, 2, 0)
    worst = binomtest(6, 10).proportion_ci(0.95, method="exact")
    best = binomtest(8, 10).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose(limits(found), [worst.low, best.high])


def test_no_time_leaves_all_unknown(rng):
    W, Y = rng.normal(size=(80, 8)), rng.integers(2, size=(5, 80))
    found = certify_reachability(W, Y, time_limit=1e-9)
    assert counts(found) == (0, 0, 5, 0)
    assert limits(found) == (0.0, 1.0)
    assert verify_argmaxable(W, Y, time_limit=1e-9).population_interval() == (0.0, 1.0)


@pytest.mark.parametrize("biased", [False, True])
def test_against_all_sets_that_features_give(biased, rng):
    """The sets seen at features all around are those of the linear programme, and no others."""
    W = rng.normal(size=(5, 2))
    b = 0.3 * rng.normal(size=5) if biased else np.zeros(5)
    angles = np.linspace(0, 2 * np.pi, 1001)
    rays = np.column_stack([np.cos(angles), np.sin(angles)])
    points = (rays[:, None] * np.geomspace(1e-2, 1e3, 120)[:, None]).reshape(-1, 2)
    seen = np.unique(np.packbits(points @ W.T + b > 0, axis=1))
    Y = np.array(list(itertools.product([0, 1], repeat=5)))
    inside = np.isin(np.packbits(Y, axis=1).ravel(), seen)
    found = certify_reachability(W, Y, intercept=b if biased else None)
    assert counts(found) == (inside.sum(), 32 - inside.sum(), 0, 0)
    assert certify_reachability(W, Y[inside], intercept=b).n_unargmaxable_ == 0
    assert certify_reachability(W, Y[~inside], intercept=b).n_argmaxable_ == 0


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_holds_the_share_as_often_as_it_says(confidence):
    """Over all draws of 20 sets from populations of every share, weighted by their chances."""
    n = 20
    samples = [np.repeat(EVERY[[1, 7]], [k, n - k], axis=0) for k in range(n + 1)]
    lower, upper = np.transpose(
        [limits(certify_reachability(TRIANGLE, Y, confidence)) for Y in samples]
    )
    shares = np.linspace(0, 1, 201)[:, None]
    chances = binom.pmf(np.arange(n + 1), n, shares)
    held = (chances * ((lower <= shares) & (shares <= upper))).sum(axis=1)
    assert confidence <= held.min() < confidence + 0.05  # no wider than it must be
    for wrong in (shares < lower, shares > upper):
        assert (chances * wrong).sum(axis=1).max() <= (1 - confidence) / 2


@pytest.mark.integration
def test_the_interval_holds_the_share_of_a_simulated_population(rng):
    chances = rng.dirichlet(np.ones(8))
    share = chances[[is_argmaxable(TRIANGLE, y) for y in EVERY]].sum()
    assert 0.3 < share < 0.95
    held = 0
    for _ in range(40):
        found = certify_reachability(TRIANGLE, EVERY[rng.choice(8, 25, p=chances)], 0.8)
        held += found.lower_ <= share <= found.upper_
    assert binom.cdf(held, 40, 0.8) > 0.01  # not fewer than chance explains
    assert held < 40


def test_equal_sets_are_decided_once_and_each_counts(monkeypatch):
    from sklearn_xlc.geometry import _argmaxability

    asked = []
    decide = _argmaxability.decide
    monkeypatch.setattr(
        _argmaxability, "decide", lambda *args: asked.append(args[1]) or decide(*args)
    )
    found = certify_reachability(TRIANGLE, np.repeat(EVERY[[1, 7]], [40, 10], axis=0))
    assert counts(found) == (40, 10, 0, 0)
    assert len(asked) == 2


def test_the_upper_limit_bounds_exact_sets(data):
    X, Y = data
    model = OneVsRestClassifier(LogisticRegression()).fit(X[:60, :1], Y[:60])
    right = (model.predict(X[60:, :1]) == Y[60:]).all(axis=1)
    status = verify_argmaxable(model, Y[60:]).status
    assert right.any()
    assert (status[right] == 1).all()
    found = certify_reachability(model, Y[60:])
    assert found.n_unargmaxable_ > 0
    assert right.mean() <= found.upper_ < 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: OneVsRestClassifier(LogisticRegression()),
        lambda: MultiOutputClassifier(LogisticRegression()),
        lambda: RidgeClassifier(),
        lambda: MultiHeadClassifier("flat", **QUICK),
        lambda: MultiHeadClassifier(Flat(rank=2), **QUICK),
        lambda: DFTSigmoidClassifier(n_slack=1, **QUICK),
        lambda: DFTSigmoidClassifier(output="bottleneck", n_slack=2, **QUICK),
    ],
)
def test_every_model_predicts_what_is_reachable(make, data):
    """All sets that the logits of some sample give are argmaxable."""
    X, Y = data
    model = make().fit(X, Y)
    if hasattr(model, "decision_function"):
        given = (np.asarray(model.decision_function(X)) > 0).astype(int)
    else:
        given = np.asarray(model.predict(X))
    found = certify_reachability(model, given)
    assert counts(found) == (len(X), 0, 0, 0)


def test_forms_of_Y_agree(flat, data):
    Y = data[1]
    found = certify_reachability(flat, Y)
    assert found.confidence == 0.95
    assert found == certify_reachability(flat, sp.csr_matrix(Y))
    assert found == certify_reachability(flat, Y.astype(bool))


def test_layer_of_the_flat_head(flat, data):
    X, _ = data
    assert flat.output_weights_.shape == (6, 16)
    scores = flat.transform(X) @ flat.output_weights_.T + flat.output_biases_
    np.testing.assert_allclose(flat.decision_function(X), scores, rtol=1e-5, atol=1e-5)


def test_layer_of_members_is_their_mean(data):
    X, Y = data
    encoder = MLP((8,), n_members=2)
    model = MultiHeadClassifier("flat", **{**QUICK, "encoder": encoder}).fit(X, Y)
    scores = model.transform(X) @ model.output_weights_.T + model.output_biases_
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*the guarantee does not cover")
def test_labels_that_came_later(data):
    X, Y = data
    few = DFTSigmoidClassifier(n_slack=1, **QUICK).fit(X, Y)
    flat = MultiHeadClassifier("flat", **QUICK).fit(X, Y)
    more = np.column_stack([Y, Y[:, 0] * Y[:, 1]])
    for model in (few, flat):
        model.partial_fit(X, more, classes=np.arange(7))
        given = (model.decision_function(X) > 0).astype(int)
        assert counts(certify_reachability(model, given)) == (len(X), 0, 0, 0)


def test_tags_and_frames(flat, data, tags):
    _, Y = data
    expected = certify_reachability(flat, Y)
    assert counts(expected)[2:] == (0, 0)
    assert certify_reachability(flat, tags) == expected
    assert certify_reachability(flat, pd.Series(tags)) == expected
    names = [f"tag{label}" for label in range(6)]
    assert certify_reachability(flat, pd.DataFrame(Y[:, ::-1], columns=names[::-1])) == expected


@pytest.mark.parametrize("names", [[2, 0, 1], [*"cab"]])
def test_frames_of_classifiers_that_number_their_columns_are_read_by_place(names, rng):
    X = rng.normal(size=(80, 1))
    frame = pd.DataFrame((X * [1, 1, -1] > [0.2, 0.9, 0.5]).astype(int), columns=names)
    model = OneVsRestClassifier(LogisticRegression()).fit(X, frame)
    sets = pd.DataFrame(EVERY, columns=names)
    expected = verify_argmaxable(model, EVERY).status
    assert (expected != verify_argmaxable(model, EVERY[:, np.argsort([2, 0, 1])]).status).any()
    np.testing.assert_array_equal(verify_argmaxable(model, sets).status, expected)
    assert certify_reachability(model, sets) == certify_reachability(model, EVERY)
    some = EVERY[expected == 1]
    found = certify_reachability(model, pd.DataFrame(some, columns=names))
    assert counts(found) == (len(some), 0, 0, 0)


def test_new_labels_make_a_set_unreachable(flat, tags):
    known = certify_reachability(flat, tags[:20])
    new = [["new"], [*tags[1], "new"], ["new", "newer"]]
    found = certify_reachability(flat, [*tags[:20], *new])
    assert counts(found) == (known.n_argmaxable_, known.n_unargmaxable_ + 3, 0, 3)
    expected = binomtest(known.n_argmaxable_, 23).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose(limits(found), expected)
    assert counts(certify_reachability(flat, new)) == (0, 3, 0, 3)


def test_bad_input(flat, data, tags):
    X, Y = data
    for confidence in (0, 1, -0.5, 95, np.nan):
        with pytest.raises(ValueError, match="confidence"):
            certify_reachability(TRIANGLE, EVERY, confidence)
        with pytest.raises(ValueError, match="confidence"):
            verify_argmaxable(TRIANGLE, EVERY).population_interval(confidence)
    with pytest.raises(TypeError, match="confidence"):
        certify_reachability(TRIANGLE, EVERY, "high")
    with pytest.raises(ValueError, match="time_limit"):
        certify_reachability(TRIANGLE, EVERY, time_limit=0)
    with pytest.raises(ValueError, match="Y must hold at least one label set"):
        certify_reachability(TRIANGLE, sp.csr_array((0, 3)))
    with pytest.raises(ValueError, match="at least one label set"):
        verify_argmaxable(TRIANGLE, sp.csr_array((0, 3))).population_interval()
    with pytest.raises(ValueError, match=r"indicator of shape \(n_sets, n_labels\)"):
        certify_reachability(TRIANGLE, [1, 0, 1])
    with pytest.raises(ValueError, match="equally many labels, got 4 and 3"):
        certify_reachability(TRIANGLE, np.ones((2, 4), dtype=int))
    with pytest.raises(ValueError, match="ndarray has no classes_"):
        certify_reachability(TRIANGLE, tags)
    with pytest.raises(ValueError, match="none would be equal"):
        certify_reachability(flat, [[1], [2, 3]])


def test_models_whose_signs_decide_nothing_are_refused(data):
    X, Y = data
    y = Y[:, :3].sum(axis=1)
    one_hot = np.eye(4, dtype=int)[y]
    for model in (
        LogisticRegression(),
        RidgeClassifier(),
        OneVsRestClassifier(LogisticRegression()),
        MultiHeadClassifier("flat", **QUICK),
        DFTSigmoidClassifier(**QUICK),
    ):
        with pytest.raises(ValueError, match=f"{type(model).__name__} was fitted on class labels"):
            certify_reachability(model.fit(X, y), one_hot)
    shared = MultiHeadClassifier("flat", loss="pick_all_labels", **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="MultiHeadClassifier share a softmax"):
        certify_reachability(shared, Y)
    other = MultiHeadClassifier("cascade", **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="MultiHeadClassifier has neither coef_"):
        certify_reachability(other, Y)
    with pytest.raises(AttributeError, match="only the head 'flat'"):
        other.output_weights_
    pipeline = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())).fit(X, Y)
    with pytest.raises(ValueError, match="not a pipeline"):
        certify_reachability(pipeline, Y)
    with pytest.raises(ValueError, match="is it fitted"):
        certify_reachability(OneVsRestClassifier(LogisticRegression()), Y)
