"""Classifiers with a ranker that lists labels: one order and one probability in all methods."""

import copy
import pickle
import threading
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, log_loss
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import ThreadpoolController

import sklearn_xlc
from _factories import quick
from sklearn_xlc import config_context
from sklearn_xlc.batches import threads
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.decisions import Taxonomy, Threshold, TopK
from sklearn_xlc.engine import ranker as engine_ranker
from sklearn_xlc.engine.deciding import Decider
from sklearn_xlc.engine.predictor import Predictor
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import BoostedRanker, Calibration, LabelCentroids, NearestSamples

N_LABELS = 60


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(2000, 300, N_LABELS, noise=0.3, random_state=1)
    return X, sp.csr_matrix(Y)


@pytest.fixture(scope="module")
def clf(data):
    return quick("flat", max_epochs=3).fit(data[0][:1500], data[1][:1500])


@pytest.fixture(scope="module")
def with_classes(data):
    return of_classes(data)


def of_classes(data, **params):
    y = np.asarray(data[1].argmax(axis=1)).ravel()
    return quick("flat", max_epochs=3, ranker="boosted", **params).fit(data[0][:1500], y[:1500])


def test_the_best_classes_need_no_scores_of_others(with_classes, data, monkeypatch):
    head, ranker = with_classes.net_.module_.head, with_classes.ranker_
    assert ranker.n_listed(N_LABELS, "softmax") < N_LABELS
    monkeypatch.setattr(head, "scores", None)
    labels, scores = with_classes.predict_topk(data[0][1500:], 5)
    lists, rank = [], type(ranker).rank
    monkeypatch.setattr(type(ranker), "rank", lambda *given: lists.append(0) or rank(*given))
    same, shares = with_classes.predict_topk(data[0][1500:], 5, proba=True)
    assert len(lists) == 1  # probabilities ask for the same lists again
    np.testing.assert_array_equal(labels, same)
    monkeypatch.undo()
    p = with_classes.predict_proba(data[0][1500:])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    of_labels = np.searchsorted(with_classes.classes_, labels)
    np.testing.assert_allclose(np.take_along_axis(p, of_labels, axis=1), shares, rtol=1e-5)
    every = with_classes.decision_function(data[0][1500:])
    best = np.argsort(-every, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(with_classes.classes_[best], labels)
    np.testing.assert_allclose(np.take_along_axis(every, best, axis=1), scores, rtol=1e-4)


class OfOne(Calibration):
    """Lists the best class alone."""

    keeps_order = False

    def n_listed(self, n_labels, link="sigmoid"):
        return 1


def test_a_list_of_ones_own_gets_log_probabilities_of_classes(data):
    y = np.asarray(data[1].argmax(axis=1)).ravel()
    clf = quick("flat", max_epochs=3, ranker=OfOne(), random_state=0).fit(data[0][:1500], y[:1500])
    plain = clone(clf).set_params(ranker=None).fit(data[0][:1500], y[:1500])
    found = clf.predict_topk(data[0][1500:], 1)[1][:, 0]
    expected = clf.ranker_.slope_ * np.log(plain.predict_proba(data[0][1500:]).max(axis=1))
    assert np.corrcoef(found, expected)[0, 1] > 0.9
    assert found.std() > 0.1


def test_probabilities_of_classes_beyond_short_lists_are_shared_in_blocks(data, monkeypatch):
    clf = of_classes(data)
    X, predictor = data[0][1500:1900], clf._predictor
    expected = clf.predict_topk(X, 5, proba=True)
    rank = type(clf.ranker_).rank

    def shorter(*given):
        scores, labels = rank(*given)
        return np.where(np.arange(scores.shape[1]) < 3, scores, -np.inf), np.where(
            np.arange(labels.shape[1]) < 3, labels, -1
        )

    monkeypatch.setattr(type(clf.ranker_), "rank", shorter)
    sizes, every = [], type(predictor).all_probabilities
    monkeypatch.setattr(
        type(predictor),
        "all_probabilities",
        lambda self, batch, out=None: sizes.append(len(batch)) or every(self, batch, out),
    )
    monkeypatch.setattr(predictor.head, "bytes_per_row", lambda k=None: 1 if k else 2**19)
    with config_context(working_memory=5):
        labels, shares = clf.predict_topk(X, 5, proba=True)
    np.testing.assert_array_equal(labels[:, :3], expected[0][:, :3])
    assert sum(sizes) == X.shape[0]
    assert max(sizes) == 10
    by_class = np.searchsorted(clf.classes_, labels)
    p = clf.predict_proba(X)
    np.testing.assert_allclose(np.take_along_axis(p, by_class, axis=1), shares, rtol=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("head", ["flat", "cascade"])
@pytest.mark.parametrize("ranker", ["boosted", "calibration"])
def test_lists_that_taught_the_ranker_are_those_of_the_decision(head, ranker, data, monkeypatch):
    fitting_inputs, widths = Decider.fitting_inputs, []

    def compared(self, samples, held=None):
        inputs, Y, beside = fitting_inputs(self, samples, held)
        again, _, others = fitting_inputs(self, samples)
        widths.append((held.network[1].shape[1], inputs.shape[1]))
        np.testing.assert_allclose(inputs, again, rtol=1e-5)
        np.testing.assert_array_equal(beside["labels"], others["labels"])
        return inputs, Y, beside

    monkeypatch.setattr(Decider, "fitting_inputs", compared)
    quick(head, ranker=ranker, validation_fraction=0.3, max_epochs=2).fit(*data)
    [(in_lists, for_decision)] = widths
    # Those of a beam are as wide as the ranker reads; others are made again for the decision.
    assert in_lists >= for_decision or head == "cascade"


def test_auto_lists_labels_of_similar_samples(clf, data):
    assert type(clf.ranker_) is BoostedRanker
    assert clf.settings_["ranker"] == "boosted"
    dense = quick("flat", max_epochs=1).fit(data[0].toarray() + 0.01, data[1])
    assert type(dense.ranker_) is BoostedRanker
    remembered = dense.ranker_.memory_["samples"]["input"]
    layer = dense.net_.module_.encoder.input
    columns = torch.from_numpy(np.asarray(data[0].toarray() + 0.01, dtype=remembered.dtype))
    np.testing.assert_allclose(remembered[:, 1:], layer.standardised(columns).numpy(), rtol=1e-6)
    assert (remembered[:, 0] == 1).all()
    given = partial(torch.nn.Linear, out_features=8)
    own = quick("flat", max_epochs=1, encoder=given).fit(data[0].toarray() + 0.01, data[1])
    assert type(own.ranker_) is Calibration
    for params in ({"decision": "divergence"}, {"decision": "nearest"}):
        other = quick("flat", max_epochs=1, **params).fit(*data)
        assert type(other.ranker_) is Calibration


@pytest.mark.integration
@pytest.mark.parametrize(
    ("ranker", "name", "value", "fewer"),
    [
        ("boosted", "n_candidates", 60, BoostedRanker(n_candidates=20)),
        ("calibration", "n_ranks", 20, Calibration(5)),
    ],
)
def test_lists_are_as_long_as_samples_have_labels(ranker, name, value, fewer):
    """Below a list, or the ranks of a calibration, labels are less probable than they are true."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 30)).astype(np.float32)
    Z = X @ rng.normal(size=(30, 80)) + 3 * rng.normal(size=(1500, 80))
    Y = (Z > np.quantile(Z, 0.75)).astype(int)
    errors, params = [], {"max_epochs": 10, "batch_size": "auto", "precision": "float32"}
    for each in (ranker, fewer):
        clf = quick("flat", encoder="auto", ranker=each, **params)
        proba = clf.fit(X[:1200], Y[:1200]).predict_proba(X[1200:])
        order = np.argsort(-proba, axis=1)[:, 20:40]
        of_ranks = [np.take_along_axis(of, order, axis=1).mean() for of in (proba, Y[1200:])]
        errors.append(abs(of_ranks[0] - of_ranks[1]))
        if each is ranker:
            assert clf.settings_[f"ranker__{name}"] == value
            new = type(clf.ranker_)()  # its "auto" means what it means in `fit`
            assert getattr(clf.recalibrate(X, Y, ranker=new).ranker_, name) == value
    assert errors[0] < 0.05 < errors[1]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.integration
def test_columns_of_counts_are_weighted_in_lists(data, tmp_path):
    X, Y = sp.csr_matrix(data[0] > 0).astype(np.float32), data[1]
    clf = quick("flat", max_epochs=1).fit(X[:1500], Y[:1500])
    assert clf.settings_["ranker__retrievers"] == "counts"
    assert "vectors 0" in clf.ranker_.memory_["samples"]
    assert "input" not in clf.ranker_.memory_["samples"]  # rows are remembered once
    expected = clf.decision_function(X[1500:1600])
    dense = quick("flat", max_epochs=1).fit(X[:1500].toarray(), Y[:1500])
    np.testing.assert_array_equal(dense.decision_function(X[1500:1600].toarray()), expected)
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    loaded = sklearn_xlc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X[1500:1600]), expected)
    loaded.partial_fit(X[1500:1600], Y[1500:1600])
    assert len(loaded.ranker_.memory_["weights"]) > len(clf.ranker_.memory_["weights"])
    clf.recalibrate(X[1600:], Y[1600:])
    assert clf.settings_["ranker__retrievers"] == "counts"
    words = quick("flat", max_epochs=1).fit(data[0][:1500], Y[:1500])
    assert words.settings_["ranker__retrievers"] == "words"


@pytest.mark.parametrize("n_classes", [2, 12, 120])
def test_auto_lists_classes(n_classes):
    X, y = make_extreme_multiclass(1500, 200, n_classes, random_state=0)
    clf = quick("flat", max_epochs=2).fit(sp.csr_matrix(X), y)
    assert type(clf.ranker_) is BoostedRanker
    np.testing.assert_allclose(clf.predict_proba(X[:9]).sum(axis=1), 1, rtol=1e-5)


def test_it_ranks_better_than_the_network(clf, data):
    X, Y = (part[1500:] for part in data)
    network = clone(clf).set_params(ranker=None).fit(data[0][:1500], data[1][:1500])
    for k in (1, 3, 5):
        one, other = (precision_at_k(Y, each.predict_topk(X, k)[0], k) for each in (network, clf))
        assert other > one + 0.01


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("k", [1, 5, 30, N_LABELS])
def test_sorted_scores_are_the_best_labels(clf, with_classes, data, k, multilabel):
    clf, X = clf if multilabel else with_classes, data[0][1500:1540]
    k = min(k, len(clf.classes_))
    labels, scores = clf.predict_topk(X, k)
    every, p = clf.decision_function(X), clf.predict_proba(X)
    best = np.argsort(-every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(np.searchsorted(clf.classes_, labels), best)
    np.testing.assert_array_equal(scores, np.take_along_axis(every, best, axis=1))
    again, of_best = clf.predict_topk(X, k, proba=True)
    np.testing.assert_array_equal(again, labels)
    np.testing.assert_allclose(of_best, np.take_along_axis(p, best, axis=1), rtol=1e-6)
    assert (np.diff(of_best) <= 0).all()
    if multilabel:
        np.testing.assert_allclose(p, expit(every), rtol=1e-6)
    else:
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(clf.predict(X), labels[:, 0])
    sparse = clf.predict_topk_sparse(X, k).toarray()
    np.testing.assert_array_equal(np.take_along_axis(sparse, best, axis=1), scores)


def test_sets_are_cut_by_the_same_probabilities(data):
    X, Y = data
    clf = quick("flat", max_epochs=3, decision=Threshold(0.01), ranker="boosted").fit(X, Y)
    X = X[:300]
    sets = clf.predict(X).toarray()
    assert sets.sum(axis=1).max() > 10  # beyond the first candidates
    np.testing.assert_array_equal(sets, clf.predict_proba(X) > 0.01)


def test_a_prediction_does_not_depend_on_the_samples_beside_it(clf, data):
    X = data[0][1500:1540]
    whole = clf.predict_topk(X, 40)
    for batch in (1, 7):
        parts = [clf.predict_topk(X[i : i + batch], 40) for i in range(0, 40, batch)]
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), whole[0])
        scores = np.concatenate([part[1] for part in parts])
        np.testing.assert_allclose(scores, whole[1], rtol=1e-4, atol=1e-5)
    with config_context(working_memory=1):
        np.testing.assert_array_equal(clf.predict_topk(X, 40)[0], whole[0])


def test_what_is_remembered_does_not_change_with_the_data(data):
    X, Y = data[0][:600].copy(), data[1][:600].copy()
    same = quick("flat", max_epochs=2).fit(X.copy(), Y.copy())
    fitted = quick("flat", max_epochs=2).fit(X, Y)
    assert type(fitted.ranker_) is BoostedRanker
    X.data[:] = 0
    Y.indices[:] = 0
    P = same.predict_proba(data[0][:50])
    np.testing.assert_array_equal(fitted.predict_proba(data[0][:50]), P)


def test_a_stream_does_not_change_with_its_batches(data):
    stream, same = quick("flat"), quick("flat")
    for part in (slice(300), slice(300, 600), slice(600, 700)):
        X, Y = data[0][part], data[1][part]
        same.partial_fit(X.copy(), Y.copy())
        stream.partial_fit(X, Y)
        X.data[:] = 0
        Y.indices[:] = 0
    assert type(same.ranker_) is BoostedRanker
    P = same.predict_proba(data[0][:50])
    np.testing.assert_array_equal(stream.predict_proba(data[0][:50]), P)


@pytest.mark.parametrize("axis", [0, 1])
def test_dense_samples_may_run_backwards(data, axis):
    X = np.flip(data[0][:400].toarray() + 0.01, axis)
    found = quick("flat", max_epochs=1).fit(X, data[1][:400])
    assert type(found.ranker_) is BoostedRanker
    same = quick("flat", max_epochs=1).fit(X.copy(), data[1][:400])
    np.testing.assert_array_equal(found.predict_proba(X), same.predict_proba(X.copy()))


@pytest.mark.parametrize("n_constant", [0, 9])
@pytest.mark.parametrize("n_columns", [1, 2])
def test_samples_of_few_columns_are_near_by_length_too(n_columns, n_constant):
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, size=(1000, n_columns))
    y = np.linalg.norm(X, axis=1).astype(int) % 2  # rings around the mean
    X = np.hstack([X, np.full((1000, n_constant), 7.0)])
    clf = quick("flat", max_epochs=1).fit(X[:600], y[:600])
    near = KNeighborsClassifier().fit(X[:600], y[:600])
    assert clf.score(X[600:], y[600:]) > near.score(X[600:], y[600:]) - 0.05
    assert len({*sklearn_xlc.explain_topk(clf, X[:9], k=1, examples=1).examples.ravel()}) > 7


def samples_of_classes(n_classes, n_samples, noise):
    """Return training samples, as many of each class, and their classes, and five new ones each."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, 40))
    y, new = np.repeat(np.arange(n_classes), n_samples), np.repeat(np.arange(n_classes), 5)
    X, X_new = (centres[each] + noise * rng.normal(size=(len(each), 40)) for each in (y, new))
    return X, y, X_new, new


def test_classes_of_one_size_are_as_likely_as_they_are_right():
    """Remembered samples of a class are those not held out: trees took many for a bad sign."""
    X, y, X_new, truth = samples_of_classes(200, 3, 1.2)
    clf = quick("flat", max_epochs=30).fit(X, y)
    labels, shares = clf.predict_topk(X_new, 1, proba=True)
    right = (labels.ravel() == truth).mean()
    assert right > 0.7
    assert shares.mean() == pytest.approx(right, abs=0.2)


def test_classes_of_one_sample_keep_the_probabilities_of_the_network():
    """The part of the samples knows no class of those held out: nothing is right there."""
    X, y, *_ = samples_of_classes(400, 1, 0.3)
    clf = quick("flat", max_epochs=60).fit(X, y)
    assert clf.ranker_ is None
    assert clf.predict_proba(X).max(axis=1).mean() > 0.5


def test_few_samples_of_classes_are_calibrated():
    X, y = make_classification(700, 20, n_informative=4, flip_y=0.3, random_state=0)
    losses = []
    for ranker in ("auto", None):
        clf = quick("flat", max_epochs=30, ranker=ranker).fit(X[:120], y[:120])
        losses.append(log_loss(y[120:], clf.predict_proba(X[120:])))
        assert clf.score(X[120:], y[120:]) > 0.6
        assert isinstance(clf.ranker_, Calibration) is (ranker == "auto")
    assert losses[0] < 0.9 * losses[1]
    assert quick("flat", max_epochs=2).fit(X[:90], y[:90]).ranker_ is None


def test_few_label_sets_are_calibrated_and_their_number_is_learnt(data):
    X, Y = data
    params = {"max_epochs": 100, "encoder__hidden_layer_sizes": (128,)}
    found = {}
    for ranker, decision in (("auto", "auto"), (None, Threshold(0.5))):
        clf = quick("flat", ranker=ranker, decision=decision, **params).fit(X[:150], Y[:150])
        chance = np.clip(clf.predict_proba(X[1000:]), 1e-6, 1 - 1e-6)
        loss = log_loss(Y[1000:].toarray().ravel(), chance.ravel())
        found[ranker] = loss, f1_score(Y[1000:], clf.predict(X[1000:]), average="micro")
    assert found["auto"][0] < 0.9 * found[None][0]
    assert found["auto"][1] > found[None][1]


@pytest.mark.parametrize("n_columns", [1, 4])
@pytest.mark.parametrize("carried", ["file", "pickle"])
def test_remembered_samples_of_other_columns_are_refused(carried, n_columns, tmp_path):
    """Earlier versions remembered columns without one of ones; predictions failed."""
    X, y = make_classification(300, 9, n_classes=4, n_informative=5, random_state=0)
    X = X[:, :n_columns]
    clf = quick("flat", max_epochs=1, ranker="boosted").fit(X, y)

    def copied():
        if carried == "pickle":
            return pickle.loads(pickle.dumps(clf))
        sklearn_xlc.save(clf, tmp_path / "clf.xlc")
        return sklearn_xlc.load(tmp_path / "clf.xlc")

    np.testing.assert_array_equal(copied().predict(X), clf.predict(X))
    samples = clf.ranker_.remembered[0]
    samples["input"] = samples["input"][:, 1:]
    message = f"remembers samples of {n_columns} columns, .* {n_columns + 1} columns.*; fit again"
    with pytest.raises(ValueError, match=message):
        copied()


def test_dense_samples_are_read_as_sparse_ones(clf, data):
    X = data[0][1500:1600]
    for one, other in zip(clf.predict_topk(X), clf.predict_topk(X.toarray())):
        np.testing.assert_array_equal(one, other)


@pytest.mark.integration
def test_equal_fits_and_saved_models_are_equal(clf, data, tmp_path):
    X = data[0][1500:1600]
    expected = clf.decision_function(X)
    again = clone(clf).fit(data[0][:1500], data[1][:1500])
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    loaded = (pickle.loads(pickle.dumps(clf)), sklearn_xlc.load(tmp_path / "model"))
    for other in (again, *loaded):
        np.testing.assert_array_equal(other.decision_function(X), expected)


def test_of_more_samples_than_it_remembers_evenly_spaced_ones_are_read(data, monkeypatch):
    X, Y = (part[:600] for part in data)
    read, remember = [], BoostedRanker.remember

    def recorded(*given, **more):
        read.append(given)
        return remember(*given, **more)

    monkeypatch.setattr(BoostedRanker, "remember", recorded)
    quick("flat", max_epochs=1, ranker=BoostedRanker(max_samples=90)).fit(X, Y)
    _, samples, labels = read[-1]
    ids = samples["ids"]
    assert len(ids) == samples["input"].shape[0] == labels.shape[0] == 90
    largest = [each.max(axis=1).toarray().ravel() for each in (samples["input"], X[ids])]
    np.testing.assert_allclose(*largest, rtol=1e-6)
    np.testing.assert_array_equal(labels.toarray(), Y[ids].toarray())
    gaps = np.diff(np.concatenate([[-1], ids, [600]]))
    assert gaps.min() > 0
    assert gaps.max() < 15


def test_later_samples_and_labels_are_listed(data):
    X, Y = data
    known = np.arange(N_LABELS) < 50
    few = np.flatnonzero(np.asarray(Y[:, ~known].sum(axis=1)).ravel() == 0)
    clf = quick("flat", max_epochs=5).fit(X[few], Y[few][:, known])
    assert type(clf.ranker_) is BoostedRanker
    late = np.setdiff1d(np.arange(2000), few)
    half, test = late[::2], late[1::2]
    ranker = clf.ranker_
    clf.partial_fit(X[half], Y[half], classes=np.arange(N_LABELS))
    assert ranker.n_labels_ == 50  # that of a copy, or of a failed call, is left
    best = clf.predict_topk(X[test], 5)[0]
    assert (best >= 50).any()
    clf.ranker_ = None
    network = clf.predict_topk(X[test], 5)[0]
    assert precision_at_k(Y[test], best, 5) > precision_at_k(Y[test], network, 5)


@pytest.mark.integration
def test_removed_labels_are_in_no_list(data):
    X, Y = data
    clf = quick("flat", max_epochs=3).fit(X, Y)
    gone = clf.predict_topk(X[:200], 1)[0].ravel()
    clf.remove_labels(np.unique(gone[:50]))
    labels = clf.predict_topk(X[:200], 10)[0]
    assert not np.isin(labels, gone[:50]).any()
    assert clf.decision_function(X[:5]).shape == (5, len(clf.classes_))


def test_samples_are_compared_as_the_network_sees_them_too(data, clf):
    X, Y = data
    assert "features" in clf.ranker_.reads
    features = clf.transform(X[1500:])
    assert clf.ranker_.axes_.shape == (features.shape[1], min(64, features.shape[1]))
    coordinates = clf.ranker_.shortened({"features": features})["features"]
    near = dict(clf.ranker_.retrievers_)["near_in_features"]
    held = near.search({"features": coordinates}, None, None)
    agree = Y[:1500][near.ids_[held.items[:, 0]]].multiply(Y[1500:]).sum() / Y[1500:].sum()
    assert agree > 0.4
    dense = quick("flat", max_epochs=2).fit(X[:700].toarray() + 0.01, Y[:700])
    assert "near_in_features" in dict(dense.ranker_.retrievers_)


def test_axes_are_learnt_from_some_samples(data, monkeypatch):
    X, Y = data
    given, begin = [], BoostedRanker.begin
    monkeypatch.setattr(engine_ranker, "_SOME", 100)
    monkeypatch.setattr(
        BoostedRanker, "begin", lambda self, some: given.append(some) or begin(self, some)
    )
    quick("flat", max_epochs=1, ranker="boosted").fit(X[:700], Y[:700])
    assert {X.shape[0] for some in given for X in some.values()} == {100}


@pytest.mark.parametrize("fits", [False, True])
def test_features_of_a_batch_are_of_the_network_before_it(data, fits, monkeypatch):
    """After it has trained on a sample the network describes it too well: trees trusted that."""
    X, Y = data
    clf = quick("flat")
    if fits:
        clf.fit(X[:600], Y[:600])
    else:
        for start in range(0, 600, 200):
            clf.partial_fit(X[start : start + 200], Y[start : start + 200])
    before = copy.deepcopy(clf)
    in_use_before = before.ranker_ or before._waiting
    encoded, features = [], Predictor._features
    monkeypatch.setattr(
        Predictor, "_features", lambda *args: encoded.append(args[1]) or features(*args)
    )
    clf.partial_fit(X[600:800], Y[600:800])
    assert encoded == [slice(0, 200)]  # once, for the lists, too
    monkeypatch.undo()
    known = (clf.ranker_ or clf._waiting).memory_["samples"]["features"][-200:]
    expected = in_use_before.shortened({"features": before.transform(X[600:800])})["features"]
    assert np.mean(known == expected) > 0.999
    after = in_use_before.shortened({"features": clf.transform(X[600:800])})["features"]
    assert np.mean(known == after) < 0.5


def test_what_a_stream_promises_of_features_is_kept(data):
    X, Y = data
    clf = quick("flat", max_epochs=5).fit(X[:500], Y[:500])
    for start in range(500, 1500, 100):
        clf.partial_fit(X[start : start + 100], Y[start : start + 100])
    assert clf.ranker_.n_learnt_ > 500
    p = clf.predict_proba(X[1500:])
    chance = np.clip(p, 1e-6, 1 - 1e-6)
    truth = Y[1500:].toarray()
    loss = log_loss(truth.ravel(), chance.ravel())
    promised = -(chance * np.log(chance) + (1 - chance) * np.log(1 - chance)).mean()
    assert loss < 1.25 * promised


class Counting(BoostedRanker):
    """Notes the threads of NumPy's linear algebra wherever it learns."""

    threads = set()

    def _index(self):
        self._note()
        return super()._index()

    def fit(self, *args, **kwargs):
        self._note()
        return super().fit(*args, **kwargs)

    def partial_fit(self, *args, **kwargs):
        self._note()
        return super().partial_fit(*args, **kwargs)

    def shortened(self, samples):
        self._note()
        return super().shortened(samples)

    def _note(self):
        libraries = ThreadpoolController().select(user_api="blas").info()
        self.threads.update(library["num_threads"] for library in libraries)


@pytest.mark.parametrize("way", ["fit", "held out", "partial_fit", "recalibrate", "forget"])
def test_numpy_has_one_thread_where_rankers_learn(data, way, monkeypatch):
    """A second one spins between small products: a fit took a third more CPU seconds."""
    X, Y = data[0][:600], data[1][:600]
    monkeypatch.setattr(Counting, "threads", set())
    controller = ThreadpoolController().select(user_api="blas")
    with controller.limit(limits=2):
        if {library["num_threads"] for library in controller.info()} != {2}:
            pytest.skip("the library has one thread")
        fraction = {"validation_fraction": 0.3} if way == "held out" else {}
        clf = quick("flat", max_epochs=1, ranker=Counting(), **fraction).fit(X, Y)
        Counting.threads.clear() if way not in ("fit", "held out") else None
        if way == "partial_fit":
            clf.partial_fit(X, Y)
        elif way == "recalibrate":
            clf.recalibrate(data[0][1500:], data[1][1500:])
        elif way == "forget":
            clf.forget([0])
        clf.predict_topk(X[:3], k=2)
        assert {library["num_threads"] for library in controller.info()} == {2}
    assert Counting.threads == {1}


def test_a_batch_of_a_stream_is_shortened_on_the_callers_thread(data, two_threads, monkeypatch):
    """Rankers of others need not bear two threads, and lists are made on both."""
    named = []

    class Alone(BoostedRanker):
        def shortened(self, samples):
            named.append(threading.current_thread())
            return super().shortened(samples)

    X, Y = data[0][:600], data[1][:600]
    clf = quick("flat", max_epochs=1, ranker=Alone()).fit(X, Y)
    monkeypatch.setattr(threads, "ENOUGH", 1)
    encoded, features = [], Predictor._features
    monkeypatch.setattr(
        Predictor, "_features", lambda *args: encoded.append(args[1]) or features(*args)
    )
    named.clear()
    clf.partial_fit(X, Y)
    assert len(encoded) == 2
    assert set(named) == {threading.current_thread()}


def test_axes_of_another_encoder_are_refused(clf):
    changed = pickle.loads(pickle.dumps(clf))
    changed.ranker_.axes_ = changed.ranker_.axes_[:-1]
    with pytest.raises(ValueError, match="compares .* features, and the encoder has"):
        pickle.loads(pickle.dumps(changed))


def test_features_of_the_encoder_are_a_space(data):
    X, Y = data
    near = [("near", NearestSamples(space="features")), ("mean", LabelCentroids(space="features"))]
    clf = quick("flat", max_epochs=3, ranker=BoostedRanker(near)).fit(X.toarray() + 0.01, Y)
    assert clf.ranker_.reads == ("features", "ids")
    labels, scores = clf.predict_topk(X[:50].toarray() + 0.01, 5)
    assert (np.diff(scores) < 0).all()
    assert precision_at_k(Y[:50], labels, 1) > 0.8


def test_samples_that_cannot_be_compared_are_refused_before_work_starts(data, monkeypatch):
    X, Y = data
    with pytest.raises(ValueError, match="X holds bags"):
        quick("bags", ranker="boosted").fit(X[:400], Y[:200], groups=np.arange(400) // 2)
    features = BoostedRanker([("near", NearestSamples(space="features"))])
    with pytest.raises(ValueError, match="X holds bags"):  # they have several vectors
        quick("bags", ranker=features).fit(X[:400], Y[:200], groups=np.arange(400) // 2)


def test_few_samples_with_many_labels_make_no_list_longer():
    sizes = np.zeros(307, dtype=np.int64)
    sizes[1:10], sizes[306] = 1000, 3
    assert engine_ranker.n_candidates(sizes) == 2 * 9
    sizes[306] = 10
    assert engine_ranker.n_candidates(sizes) == 2 * 306
    sizes[306] = 1
    assert engine_ranker.n_candidates(sizes, Threshold()) == 2 * 9
    for content in (TopK(3), Taxonomy({}, TopK(3))):  # they never ask for more
        assert engine_ranker.n_candidates(sizes, content) == 2 * 306
    assert engine_ranker.n_candidates(sizes, Taxonomy({})) == 2 * 9
    for few in (np.array([0, 1]), np.array([5]), np.zeros(0, dtype=np.int64)):
        assert engine_ranker.n_candidates(few) == 2
