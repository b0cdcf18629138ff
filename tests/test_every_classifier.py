"""What every classifier owes its user, whatever its output layer."""

import contextlib
import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from _accelerator import DEVICE
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback
from torch import nn
from torch.nn.utils import parameters_to_vector

from _factories import EVERY, MULTI_LABEL, N_LABELS, make_learnable, once, quick
from sklearn_xlc import explain_topk, load, save
from sklearn_xlc.batches import Bags
from sklearn_xlc.metrics import precision_at_k, topk_scorer

#: What a row's labels share one probability in, and are not decided one by one.
SHARED = ("etf", "etf-frame", "pick-all")
NO_PROBABILITIES = ("product-bce", "product-joint", "powerset-bce", "sampling-arcface")
every_classifier = pytest.mark.parametrize("name, multilabel", EVERY)
#: The beam of "cascade-narrow" hides labels from `predict_topk` that `decision_function` scores.
EXACT = [(name, multilabel) for name, multilabel in EVERY if name != "cascade-narrow"]


def case_id(case):
    return f"{case[0]}-{'multilabel' if case[1] else 'multiclass'}"


@pytest.fixture(scope="module", params=EXACT, ids=case_id)
def fitted(request):
    """Name, kind, X, y and the classifier fitted on them; no test changes it."""
    name, multilabel = request.param
    X, y = make_learnable(multilabel)
    if name in ("bottleneck", "dft-no-slack"):
        clf = quick(name, max_epochs=40, learning_rate=0.06)
    else:
        clf = quick(name, max_epochs=20 if name.startswith("bags") else 12, learning_rate=0.1)
    return name, multilabel, X, y, clf.set_params(ranker=None).fit(X, y)


every_multilabel = pytest.mark.parametrize(
    "fitted", [(name, True) for name in MULTI_LABEL], indirect=True, ids=case_id
)


# --- predictions agree with each other --------------------------------------------------------


def test_it_learns(fitted):
    _, multilabel, X, y, clf = fitted
    best = clf.predict_topk(X, k=1)[0][:, 0]
    if multilabel:
        kept = np.delete(np.arange(150), 3)
        assert np.mean(y[kept, best[kept]]) > 0.9
    else:
        assert np.mean(best == y) > 0.9
        assert clf.score(X, y) > 0.9


@pytest.mark.parametrize("k", [1, 4, N_LABELS])
def test_topk_is_the_head_of_the_sorted_decision_function(fitted, k):
    *_, X, _, clf = fitted
    scores = clf.decision_function(X)
    labels, best = clf.predict_topk(X, k=k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_allclose(best, np.take_along_axis(scores, order, 1), rtol=1e-9, atol=1e-9)
    # Labels may change places where their scores are equal up to rounding.
    np.testing.assert_allclose(np.take_along_axis(scores, labels, 1), best, rtol=1e-9, atol=1e-9)
    assert all(len(set(row)) == k for row in labels)
    sparse = clf.predict_topk_sparse(X, k=k)
    assert sparse.shape == scores.shape
    assert sparse.has_canonical_format
    np.testing.assert_array_equal(np.diff(sparse.indptr), k)
    np.testing.assert_array_equal(sparse[np.arange(len(labels))[:, None], labels].toarray(), best)


def test_probabilities(fitted):
    name, multilabel, X, _, clf = fitted
    if name in NO_PROBABILITIES:
        for method in ("predict_proba", "predict_log_proba"):
            assert not hasattr(quick(name), method)
            assert not hasattr(clf, method)
        return
    probabilities, scores = clf.predict_proba(X), clf.decision_function(X)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    np.testing.assert_array_equal(clf.predict_log_proba(X), np.log(probabilities))
    order = np.argsort(scores, axis=1)
    assert (np.diff(np.take_along_axis(probabilities, order, 1), axis=1) >= -1e-12).all()
    if name in SHARED:
        np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-9)
    elif multilabel:
        predicted = clf.predict(X)
        if not name.startswith("powerset"):  # which predict the most probable label set
            above = probabilities > clf.threshold_
            if clf.decision_.min_labels:  # at least the best label
                above |= probabilities == probabilities.max(axis=1, keepdims=True)
            np.testing.assert_array_equal(predicted.toarray() > 0, above)
        assert 0 < predicted.nnz < predicted.shape[0] * N_LABELS
    else:
        np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-9)
        np.testing.assert_array_equal(clf.predict(X), clf.classes_[probabilities.argmax(1)])


def test_scores_of_some_labels_and_their_gradient(fitted):
    """What explanations follow, against the scores of all labels and finite differences."""
    name, *_, X, _, clf = fitted
    head, rng = clf.net_.module_.head, np.random.default_rng(0)
    to = {"device": next(head.parameters()).device}
    values = torch.tensor(clf.transform(X[:4]), requires_grad=True, **to)
    positions = torch.tensor(rng.integers(N_LABELS, size=(4, 3)), **to)

    def inputs(features):
        if not name.startswith("bags"):
            return features
        return Bags(torch.tensor(X[:4].toarray(), **to), torch.arange(5, **to), features)

    found = head.scores_at(inputs(values), positions)
    with torch.no_grad():
        expected = head.scores(inputs(values)).gather(1, positions)
        torch.testing.assert_close(found, expected)
    direction = torch.tensor(rng.normal(size=values.shape), **to)
    (gradient,) = torch.autograd.grad(found.sum(), values)
    with torch.no_grad():
        ahead, behind = (
            head.scores_at(inputs(values + step * direction), positions).sum()
            for step in (1e-6, -1e-6)
        )
    slope = (gradient * direction).sum()
    torch.testing.assert_close(slope, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-6)


@pytest.mark.integration
def test_contributions_add_up(fitted):
    *_, X, _, clf = fitted
    labels, columns, contributions = found = explain_topk(clf, X[:2], 2, n_columns=60, n_steps=400)
    best, scores = clf.predict_topk(X[:2], k=2)
    np.testing.assert_array_equal(labels, best)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-9, atol=1e-9)
    baselines = clf.decision_function(X[:1] * 0)[0, np.searchsorted(clf.classes_, labels)]
    np.testing.assert_allclose(found.baselines, baselines, rtol=1e-9, atol=1e-9)
    total = found.baselines + contributions.sum(axis=2)
    size = np.abs(contributions).sum(axis=2)
    assert (np.abs(total - scores) <= 0.005 * size).all()
    stored = [{f"x{column}" for column in row.indices} for row in X[:2]]
    assert all(set(names[names != ""]) <= own for own, row in zip(stored, columns) for names in row)
    dense = explain_topk(clf, X[:2].toarray(), 2, n_columns=60, n_steps=400)
    np.testing.assert_array_equal(dense.columns, columns)
    np.testing.assert_array_equal(dense.contributions, contributions)


def test_batches_of_prediction_do_not_matter(fitted, monkeypatch):
    _, multilabel, X, _, clf = fitted
    X = X[:40]
    expected = clf.decision_function(X), clf.predict(X), clf.predict_topk(X)
    monkeypatch.setattr("sklearn_xlc.engine.predictor.PREDICT_BATCH", 7)
    np.testing.assert_allclose(clf.decision_function(X), expected[0], rtol=1e-9, atol=1e-9)
    different = clf.predict(X) != expected[1]
    assert not (different.nnz if multilabel else different.any())
    np.testing.assert_array_equal(clf.predict_topk(X)[0], expected[2][0])


def test_every_label_may_be_predicted():
    """The number of labels of a row is bounded by the scores, not by what training saw."""
    X, y = make_learnable(True)
    for name in ("flat", "cascade", "cascade-3-heads"):
        clf = quick(name, max_epochs=1).fit(X, y)
        with torch.no_grad():
            for parameter in clf.net_.module_.head.parameters():
                parameter.abs_().add_(5.0)
            np.testing.assert_array_equal(clf.predict(X).toarray(), 1)


@every_classifier
def test_no_weights_make_it_name_a_label_that_does_not_exist(name, multilabel):
    X, y = make_learnable(multilabel, n_rows=40)
    clf = quick(name, max_epochs=1).fit(X, y)
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e6, 1e15):
        with torch.no_grad():
            for parameter in clf.net_.module_.head.parameters():
                values = scale * rng.normal(size=parameter.shape)
                parameter.copy_(torch.from_numpy(values))
        for k in (1, 5, N_LABELS):
            labels, scores = clf.predict_topk(X, k=k)
            assert labels.min() >= 0
            assert labels.max() < N_LABELS
            assert (np.diff(np.sort(labels, axis=1), axis=1) > 0).all()
            assert not np.isnan(scores).any()
        assert clf.predict(X).shape[0] == 40


# --- labels ---------------------------------------------------------------------------------


@every_multilabel
def test_labels_that_were_never_seen_are_unlikely(fitted):
    name, _, X, _, clf = fitted
    assert clf.predict(X)[:, 5].nnz == 0
    if name in NO_PROBABILITIES:
        assert clf.decision_function(X)[:, 5].max() < 0
    else:
        assert clf.predict_proba(X)[:, 5].mean() < 0.05
    assert clf.predict(X)[3].nnz < N_LABELS


@pytest.mark.parametrize("name", MULTI_LABEL)
def test_one_label(name):
    """An indicator with one column is a legal, if small, label space."""
    X, _ = make_learnable(True)
    y = sp.csr_matrix((X[:, [0]].toarray() > 0).astype(int))
    clf = quick(name, max_epochs=2).fit(X, y)
    assert clf.predict(X).shape == clf.decision_function(X).shape == (150, 1)
    assert clf.predict_topk(X, k=1)[0].max() == 0


# --- weights ----------------------------------------------------------------------------------


# The correction of sampling depends on the number of rows of a batch; own heads are drawn by row.
@pytest.mark.parametrize(
    "name, multilabel",
    once(case for case in EVERY if case[0] not in ("sampling-corrected", "sampling-own")),
)
def test_integer_weights_repeat_rows(name, multilabel):
    X, y = make_learnable(multilabel, n_rows=90)
    X = X.toarray()
    weight = np.arange(90) % 4
    repeated = np.repeat(np.arange(90), weight)
    weighted = quick(name, max_epochs=4, ranker=None).fit(X, y, sample_weight=weight)
    rest = quick(name, max_epochs=4, ranker=None)
    if multilabel:
        rest.fit(X[repeated], y[repeated])
    else:  # rows of weight zero count for nothing, but they name their class
        rows, ones = np.r_[repeated, np.arange(90)], np.r_[np.ones(len(repeated)), np.zeros(90)]
        rest.fit(X[rows], y[rows], sample_weight=ones)
    np.testing.assert_allclose(
        weighted.decision_function(X), rest.decision_function(X), rtol=1e-6, atol=1e-6
    )


class Start(Callback):
    """Keep the parameters at which training starts."""

    def on_train_begin(self, net, **kwargs):
        self.parameters_ = parameters_to_vector(net.module_.parameters()).detach()


def first_pass(name, X, y, weight=None):
    """Loss of one pass in mini-batches, and the mean step of the parameters, by a tiny rate."""
    own = {"sampling": {"head__n_sampled_heads": 99}, "bags": {"attention": None}}
    params = own.get(name.split("-")[0], {})
    clf = quick(name, optimizer="sgd", learning_rate=1e-8, batch_size=15, **params)
    clf.set_params(callbacks=[("start", Start())])
    clf.partial_fit(X, y, None if sp.issparse(y) else np.unique(y), sample_weight=weight)
    start = dict(clf.net_.callbacks_)["start"].parameters_
    end = parameters_to_vector(clf.net_.module_.parameters()).detach()
    return clf.loss_curve_[0], (end - start).cpu().numpy() * 1e8 / clf.t_


@pytest.mark.integration
@pytest.mark.parametrize("name, multilabel", once(EVERY))
def test_a_heavy_sample_counts_as_often_in_batches(name, multilabel):
    """One pass sees every sample once, so that the mean over its batches is the expectation."""
    X, y = make_learnable(multilabel, n_rows=60)
    X, weight = X.toarray(), np.ones(60)
    weight[7] = 61
    repeated = np.repeat(np.arange(60), weight.astype(int))
    loss, step = first_pass(name, X, y, weight / 3)
    expected_loss, expected_step = first_pass(name, X[repeated], y[repeated])
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    np.testing.assert_allclose(step, expected_step, rtol=1e-4, atol=1e-4 * abs(step).max())


@pytest.mark.parametrize("scale", [1e-40, 1e37, 1e300])
def test_the_scale_of_weights_does_not_matter(scale):
    X, y = make_learnable(False, n_rows=60, dtype=np.float32)
    weight = np.linspace(0.5, 1.5, 60)
    for name in ("flat", "bags"):
        params = {"max_epochs": 3, "batch_size": 20, "early_stopping": True}
        clf = quick(name, **params).fit(X, y, sample_weight=weight)
        scaled = quick(name, **params).fit(X, y, sample_weight=weight * scale)
        np.testing.assert_allclose(
            scaled.decision_function(X), clf.decision_function(X), rtol=1e-4, atol=1e-4
        )


def test_weights_beyond_float64_are_refused():
    X, y = make_learnable(False, n_rows=40)
    with pytest.raises(ValueError, match="sum of sample_weight is beyond float64; divide"):
        quick("flat").fit(X, y, sample_weight=np.full(40, 1e308))


# --- the estimator as a citizen of scikit-learn -----------------------------------------------


TEXTS = [
    "a large body of water",
    "a body of salt water",
    "a small stream of water",
    "an animal that barks",
    "a small animal that purrs",
    "a large animal with a trunk",
]
KINDS = ["water", "water", "water", "animal", "animal", "animal"]


def test_text_in_a_pipeline():
    for name in ("flat", "product", "cascade", "sampling", "dft"):
        clf = quick(name, max_epochs=20, learning_rate=0.06)
        model = make_pipeline(TfidfVectorizer(dtype=np.float32), clf).fit(TEXTS, KINDS)
        assert model.predict(["a stream of salt water", "an animal with fur"]).tolist() == [
            "water",
            "animal",
        ]
        parameter = next(model[-1].net_.module_.parameters())
        assert parameter.dtype == torch.float32


@pytest.mark.parametrize("name", MULTI_LABEL)
def test_a_later_batch_may_hold_no_label(name):
    X, Y = make_learnable(True)
    classifier = quick(name)
    with pytest.raises(ValueError, match="no row of y has a label"):
        classifier.partial_fit(X, Y * 0)
    classifier.partial_fit(X, Y)
    before = classifier.predict_topk(X, k=1)[1]
    classifier.partial_fit(X, Y * 0)
    assert np.isfinite(classifier.predict_topk(X, k=1)[1]).all()
    assert (classifier.predict_topk(X, k=1)[1] != before).any()


# --- encoders that do not learn ---------------------------------------------------------------


class Frozen(nn.Module):
    """A pretrained network that is used as it is."""

    n_outputs = 60

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(60, 60).requires_grad_(False)

    def forward(self, rows):
        return self.linear(rows) + rows


WITHOUT_PARAMETERS = {"frozen": Frozen(), "identity": nn.Identity()}


@pytest.mark.integration
@pytest.mark.parametrize(
    "name, multilabel, encoder",  # a head trains on samples as it does on their images
    once((*case, "frozen") for case in EVERY if case[0] != "ensemble")
    + [("flat", False, "identity"), ("flat", True, "identity")],
)
def test_an_encoder_without_trainable_parameters(name, multilabel, encoder):
    X, y = make_learnable(multilabel)
    X, encoder = X.toarray(), WITHOUT_PARAMETERS[encoder]
    clf = quick(name, encoder=encoder, max_epochs=2).fit(X, y)
    features = encoder(torch.as_tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(clf.transform(X), features, rtol=1e-5, atol=1e-6)
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]
    before = clf.decision_function(X)
    assert (clf.partial_fit(X, y).decision_function(X) != before).any()
    np.testing.assert_array_equal(clf.transform(X), clf.fit(X, y).transform(X))


def test_nothing_to_train():
    X, y = make_learnable(True)
    clf = quick("etf", encoder=nn.Identity(), output__fit_intercept=False)
    with pytest.raises(ValueError, match="no parameter to train: .* encoder .* head"):
        clf.fit(X.toarray(), y)


# --- what the caller has set for torch, and fits in threads -----------------------------------


class Noisy(nn.Module):
    """Draws from torch's global generator, and makes tensors of the default type and device.

    As the device of the net may be another, they are moved there.
    """

    n_outputs = 60

    def __init__(self, n_features):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, 60), nn.Dropout(0.3))

    def forward(self, rows):
        return self.layers(rows) + torch.linspace(0, 0.1, 60).to(rows.device)


def trained(name, multilabel, **params):
    """Classifier after two epochs of small batches and one of `partial_fit`."""
    X, y = make_learnable(multilabel, n_rows=60, dtype=np.float32)
    params = {"max_epochs": 2, "batch_size": 20, **params}
    if "encoder" not in params:
        params["encoder__dropout"] = 0.4
    if name.startswith("sampling"):
        params["head__n_sampled_heads"] = 2
    clf = quick(name, **params).fit(X, y).partial_fit(X, y)
    answers = [clf.transform(X), clf.decision_function(X), *clf.predict_topk(X, k=3)]
    assert not any(parameter.is_inference() for parameter in clf.net_.module_.parameters())
    return [*answers, *(value.detach().cpu().numpy() for value in clf.net_.module_.parameters())]


def are_equal(one, other):
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@contextlib.contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float64": lambda: default_dtype(torch.float64),
    "float16": lambda: default_dtype(torch.float16),
}
#: Some heads in the default suite, each with the encoder of the package and with a user's.
SOME = [("flat", True), ("sampling-corrected", False), ("cascade", False), ("dft", True)]
every_draw = pytest.mark.parametrize(
    "cases",
    [SOME, pytest.param(EVERY * 4, marks=pytest.mark.slow)],
    ids=["some", "every"],
)
ENCODERS = {"own": {}, "user's": {"encoder": Noisy}}


@functools.cache
def trained_by_default(name, multilabel, encoder):
    return trained(name, multilabel, **ENCODERS[encoder])


@pytest.mark.integration
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@every_draw
def test_settings_of_the_caller_do_not_matter(cases, setting, encoder):
    if cases is SOME:  # in every setting each head with one of the encoders
        cases = SOME[list(ENCODERS).index(encoder) :: 2]
    for name, multilabel in dict.fromkeys(cases):
        expected = trained_by_default(name, multilabel, encoder)
        with setting():
            found = trained(name, multilabel, **ENCODERS[encoder])
        assert are_equal(found, expected), name


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
@every_draw
def test_fits_in_threads_equal_those_one_after_the_other(cases, encoder):
    before = torch.get_rng_state()
    serial = {case: trained(*case, **encoder) for case in dict.fromkeys(cases)}
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(lambda case: trained(*case, **encoder), cases))
    assert [case for case, got in zip(cases, threaded) if not are_equal(got, serial[case])] == []
    assert torch.equal(torch.get_rng_state(), before)


# --- training that diverges -------------------------------------------------------------------


class Spoilt(nn.Module):
    """Encoder with running statistics, which overflows where the first column is large."""

    n_outputs = 16

    def __init__(self, n_features):
        super().__init__()
        self.layer, self.norm = nn.Linear(n_features, 16), nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(self.layer(x)) * torch.where(x[:, :1] > 1e6, torch.inf, 1.0)


@pytest.mark.parametrize(
    "name, multilabel, optimizer",
    once((*case, "adam") for case in EVERY if case[0] != "ensemble")
    + [("flat", False, "sgd"), ("cascade", True, "sgd"), ("etf", True, "sgd")],
)
def test_a_refused_step_changes_nothing(name, multilabel, optimizer):
    X, y = make_learnable(multilabel, n_rows=41)
    X = X.toarray()
    own = {"attention": None} if name == "bags" else {}
    clf = quick(name, optimizer=optimizer, encoder=Spoilt, batch_size=20, **own)
    clf.partial_fit(X, y, None if multilabel else np.unique(y))

    def state():
        moments = [list(own.values()) for own in clf.net_.optimizer_.state.values()]
        return [*clf.net_.module_.state_dict().values(), *sum(moments, [])]

    before, scores = [values.clone() for values in state()], clf.decision_function(X)
    spoilt = X.copy()
    spoilt[:, 0] = 1e9
    for given, rate, what in (
        (spoilt, 0.01, "norm of the features became"),
        (X, 1e200, "step of the optimizer became too large"),
    ):
        clf.set_params(learning_rate=rate)
        with pytest.raises(ValueError, match=f"{what}.* in epoch 1, step 1: lower learning_rate"):
            clf.partial_fit(given, y)
        assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
        np.testing.assert_array_equal(clf.decision_function(X), scores)
    assert (clf.n_iter_, len(clf.loss_curve_)) == (1, 1)


@pytest.mark.parametrize("name", ["flat", "cascade", "bags"])
def test_fit_stops_at_the_first_step_that_is_refused(name):
    X, y = make_learnable(False, n_rows=60)
    X = X.toarray()
    X[:, 0] = 1e9
    with pytest.raises(ValueError, match=r"in epoch 1, step 1"):
        quick(name, encoder=Spoilt, batch_size=20).set_params(random_state=0).fit(X, y)


def test_the_last_sample_is_not_a_batch_alone():
    """Batch normalisation cannot be trained on one sample."""
    X, y = make_learnable(False, n_rows=41)
    clf = quick("flat", encoder=Spoilt, batch_size=20, max_epochs=2).fit(X.toarray(), y)
    assert clf.t_ == 4
    with pytest.raises(ValueError, match="batch normalisation.*give at least two samples"):
        clf.partial_fit(X.toarray()[:1], y[:1])


# --- labels with names ------------------------------------------------------------------------

NAMES = np.array([f"tag {i:02}" for i in range(N_LABELS - 1)], dtype=object)


def named(Y, form):
    """Label sets of an indicator, in a form that has the names of the labels."""
    rows = [NAMES[row.indices] for row in Y]
    if form == "lists":
        return [row.tolist() for row in rows]
    if form == "column of sets":
        return pd.Series([set(row) for row in rows])
    frame = pd.DataFrame(Y.toarray(), columns=NAMES)
    return frame if form == "frame" else pl.DataFrame(frame)


@pytest.mark.integration
@pytest.mark.parametrize(
    "name, form",
    [  # heads know no names: one of each kind
        pytest.param(name, "lists", marks=pytest.mark.slow if "-" in name else ())
        for name in MULTI_LABEL
    ]
    + [(name, form) for form in ("column of sets", "frame", "polars") for name in ("flat", "bags")],
)
def test_names_in_and_names_out(name, form):
    """Fitted on names, a classifier is the one fitted on columns, and answers by names."""
    X, Y = make_learnable(True)
    Y = Y[:, np.flatnonzero(np.bincount(Y.indices, minlength=N_LABELS))]
    y = named(Y, form)
    clf, plain = (quick(name, max_epochs=1).fit(X, labels) for labels in (y, Y))
    np.testing.assert_array_equal(clf.classes_, NAMES)
    np.testing.assert_array_equal(clf.decision_function(X), plain.decision_function(X))
    labels, scores = clf.predict_topk(X, 3)
    np.testing.assert_array_equal(labels, NAMES[plain.predict_topk(X, 3)[0]])
    predicted, expected = clf.predict(X), plain.predict(X)
    if form == "polars":
        assert predicted.equals(named(sp.csr_matrix(expected), form))
    elif form == "frame":
        np.testing.assert_array_equal(predicted, sp.csr_matrix(expected).toarray())
    else:
        assert predicted.tolist() == list(named(sp.csr_matrix(expected), form))
    assert clf.score(X, y) == plain.score(X, Y) == precision_at_k(y, labels, 1)
    clf.partial_fit(X[:50], y[:50])
    plain.partial_fit(X[:50], Y[:50])
    np.testing.assert_array_equal(clf.decision_function(X), plain.decision_function(X))


@pytest.mark.parametrize("form", ["lists", "column of sets", "frame", "polars"])
def test_names_are_saved(form, tmp_path):
    """In any classifier, as they are a part of its label code."""
    X, Y = make_learnable(True)
    Y = Y[:, np.flatnonzero(np.bincount(Y.indices, minlength=N_LABELS))]
    clf = quick("flat", max_epochs=1).fit(X, named(Y, form))
    save(clf, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded.predict(X)) is type(clf.predict(X))
    np.testing.assert_array_equal(loaded.classes_, NAMES)


@pytest.mark.parametrize("name", ["flat", "bags"])
def test_tags_that_come_later(name):
    X, Y = make_learnable(True)
    tags = [NAMES[row.indices[row.indices < 22]].tolist() for row in Y]
    clf = quick(name, max_epochs=1)
    clf.partial_fit(X[:9], tags[:9], classes=[*NAMES, "never"]).partial_fit(X[9:], tags[9:])
    np.testing.assert_array_equal(clf.classes_, [*NAMES, "never"])
    before = clf.decision_function(X)
    with pytest.raises(ValueError, match="y holds the label 'new', which is not one of the 23"):
        clf.partial_fit(X, [["new"], *tags[1:]])
    np.testing.assert_array_equal(clf.decision_function(X), before)
    unseen = [[*row, "new"] for row in tags]
    assert clf.score(X, unseen) == clf.score(X, tags)
    # The order of its columns may be another one than that of the tags.
    indicator = np.zeros((len(tags), 23), dtype=int)
    for read in (clf.score, clf.partial_fit, functools.partial(topk_scorer("recall"), clf)):
        with pytest.raises(ValueError, match="indicator without names, and the first fit had tags"):
            read(X, indicator)
        with pytest.raises(ValueError, match="y holds one label a sample, and the first fit had"):
            read(X, NAMES[np.arange(len(tags)) % 22])
    with pytest.raises(ValueError, match="was 1-D class labels in the first fit"):
        quick(name, max_epochs=1, warm_start=True).fit(X, list("ab") * 75).fit(X, tags)


def test_probabilities_of_the_best_labels(fitted):
    name, _, X, _, clf = fitted
    if not hasattr(clf, "predict_proba"):
        with pytest.raises(ValueError, match="proba=True needs a loss that defines probabilities"):
            clf.predict_topk(X, 3, proba=True)
        return
    labels, scores = clf.predict_topk(X, 3)
    again, probabilities = clf.predict_topk(X, 3, proba=True)
    np.testing.assert_array_equal(again, labels)
    ids = np.searchsorted(clf.classes_, labels)
    expected = np.take_along_axis(clf.predict_proba(X), ids, 1)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)


def test_the_suite_computes_where_it_says():
    asked = os.environ["SKLEARN_XLC_TEST_DEVICE"]
    clf = quick("flat", max_epochs=1).fit(*make_learnable(True))
    expected = DEVICE.type if asked == "pretended" else asked
    assert {each.device.type for each in clf.net_.module_.parameters()} == {expected}
