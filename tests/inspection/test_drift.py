"""The report of drift: its numbers by definition, and whether it tells drift from none."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler

from _factories import quick
from sklearn_xlc import AggregatedLabelClassifier, ETFNeuralCollapseClassifier, predict_topk
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.inspection import DriftReport, drift_report
from sklearn_xlc.ranking import Ranker

N_LABELS, N_STREAM, SIZE = 40, 1200, 100


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(1800, 300, N_LABELS, noise=0.3, random_state=1)
    return sp.csr_matrix(X), sp.csr_matrix(Y)


@pytest.fixture(scope="module")
def stream(data, all_trees_of_module):
    """A classifier of a stream, and the reports of its later half, each before its batch."""
    X, Y = data
    clf, reports = quick("flat", learning_rate=0.005), []
    for start in range(0, N_STREAM, SIZE):
        batch = X[start : start + SIZE], Y[start : start + SIZE]
        if 2 * start >= N_STREAM:
            reports.append(drift_report(clf, *batch))
        clf.partial_fit(*batch)
    return clf, reports


def later(data):
    return tuple(part[N_STREAM:] for part in data)


def moved(matrix, n_moved, seed=0):
    """The matrix with some columns in each other's places."""
    columns = np.random.default_rng(seed).permutation(matrix.shape[1])[:n_moved]
    place = np.arange(matrix.shape[1])
    place[columns] = np.roll(columns, 1)
    return matrix.tocsc()[:, np.argsort(place)].tocsr()


# --- the numbers --------------------------------------------------------------------------------


@pytest.mark.integration
def test_numbers_of_label_sets_by_their_definition(data, stream):
    clf, (X, Y) = stream[0], later(data)
    report = drift_report(clf, X, Y, k=3)
    labels, p = predict_topk(clf, X, 3, proba=True)
    p, truth = p.astype(float), np.take_along_axis(Y.toarray(), labels, axis=1)
    loss = log_loss(truth.ravel(), p.ravel(), normalize=False)
    assert report.n_samples == len(p) == 600
    assert report.precision_at_1 == truth[:, 0].mean() == clf.score(X, Y)
    assert report.log_loss == pytest.approx(loss / 600, rel=1e-5)
    assert report.expected_log_loss == pytest.approx(entropy([p, 1 - p]).sum() / 600, rel=1e-5)


@pytest.mark.parametrize("k", [2, 5])
def test_numbers_of_class_labels_by_their_definition(k):
    X, y = make_extreme_multiclass(600, 100, 5, noise=0.6, random_state=0)
    names = np.array(list("edcba"))[y]
    clf = quick("flat", max_epochs=3).fit(X[:400], names[:400])
    X, y = X[400:], names[400:]
    report = drift_report(clf, X, y, k=k)
    p, columns = clf.predict_proba(X).astype(float), np.searchsorted(clf.classes_, y)
    best = np.argsort(-p, axis=1)[:, :k]
    # A class of its own for all that are not listed.
    listed = np.take_along_axis(p, best, axis=1)
    listed = np.column_stack([listed, np.maximum(1 - listed.sum(axis=1), 1e-7)])
    is_true = best == columns[:, None]
    place = np.where(is_true.any(axis=1), is_true.argmax(axis=1), k)
    losses = -np.log(listed[np.arange(len(y)), place])
    assert report.log_loss == pytest.approx(losses.mean(), rel=1e-4)
    assert report.expected_log_loss == pytest.approx(entropy(listed, axis=1).mean(), rel=1e-4)
    if k == 5:
        p /= p.sum(axis=1, keepdims=True)  # from float32
        assert report.log_loss == pytest.approx(log_loss(y, p, labels=clf.classes_), rel=1e-4)
    assert report.precision_at_1 == clf.score(X, y)


def test_unseen_features_and_labels_are_counted(data, stream):
    clf, (X, Y) = stream[0], later(data)
    assert drift_report(clf, X, Y).unseen_features == 0
    columns, labels = np.arange(0, 300, 7), np.arange(0, N_LABELS, 9)
    kept = np.setdiff1d(np.arange(300), columns), np.setdiff1d(np.arange(N_LABELS), labels)
    less_X = X @ sp.diags(np.isin(np.arange(300), kept[0]).astype(float))
    less_Y = sp.csr_matrix(Y @ sp.diags(np.isin(np.arange(N_LABELS), kept[1]).astype(float)))
    one = quick("flat").partial_fit(less_X[:300], less_Y[:300])
    report = drift_report(one, X[300:], Y[300:])
    weight, is_seen = abs(X[300:]).toarray(), less_X[:300].getnnz(axis=0) > 0
    best = np.argsort(-weight, axis=1, kind="stable")[:, :32]  # a ranker remembers no more
    kept_weight = np.take_along_axis(weight, best, axis=1)
    expected = kept_weight[~is_seen[best]].sum() / kept_weight.sum()
    assert report.unseen_features == pytest.approx(expected)
    assert report.unseen_features > 0.1
    counts, has_samples = Y[300:].getnnz(axis=0), less_Y[:300].getnnz(axis=0) > 0
    assert report.unseen_labels == pytest.approx(counts[~has_samples].sum() / counts.sum())
    assert report.unseen_labels > 0.1


def test_known_labels_without_samples_are_counted(data):
    X, Y = data[0][:600], data[1][:600].toarray()
    Y[:, 30:] = 0
    clf = quick("flat").partial_fit(X[:300], Y[:300], classes=np.arange(N_LABELS))
    none = N_LABELS - (Y[:300].sum(axis=0) > 0).sum()
    report = drift_report(clf, X[300:], Y[300:])
    assert report.unseen_labels == 0  # what no sample of the batch has is not among its labels
    assert report.labels_without_samples == pytest.approx(none / N_LABELS)
    clf.forget(np.flatnonzero(Y[:300, 0]))
    report = drift_report(clf, X[300:], Y[300:])
    assert report.labels_without_samples == pytest.approx((none + 1) / N_LABELS)
    clf.remove_labels([0])
    report = drift_report(clf, X[300:], Y[300:, 1:])
    assert report.labels_without_samples == pytest.approx(none / (N_LABELS - 1))
    clf.forget()
    assert np.isnan(drift_report(clf, X[300:], Y[300:, 1:]).labels_without_samples)


def test_tags_and_classes_may_be_new(data, ten_trees):
    X, Y = later(data)
    tags = [[f"label {i}" for i in row] for row in Y.tolil().rows]
    clf = quick("flat", max_epochs=2).fit(X[:400], tags[:400])
    new = [["new"] * (i % 2 == 0) + each for i, each in enumerate(tags[400:])]
    report = drift_report(clf, X[400:], new)
    assert report.unseen_labels == pytest.approx(100 / (100 + sum(map(len, tags[400:]))))
    assert drift_report(clf, X[400:], tags[400:]).unseen_labels == 0
    X, y = make_extreme_multiclass(300, 100, 5, random_state=0)
    clf = quick("flat", max_epochs=2).fit(X[:200], y[:200])
    y[200:230] = 9
    assert drift_report(clf, X[200:], y[200:]).unseen_labels == pytest.approx(0.3)


@pytest.mark.parametrize("kind", [str, int])
def test_tags_that_a_meta_estimator_has_read(data, ten_trees, kind):
    X, Y = later(data)
    tags = [[kind(f"{100 + i}") for i in row] for row in Y.tolil().rows]
    groups = np.arange(400) // 4
    of_groups = [
        sorted({tag for each in tags[4 * i : 4 * i + 4] for tag in each}) for i in range(100)
    ]
    clf = AggregatedLabelClassifier(quick("flat", max_epochs=2), n_rounds=1)
    clf.fit(X[:400], of_groups, groups=groups)
    report = drift_report(make_pipeline(FunctionTransformer(), clf), X[400:], tags[400:])
    hits = [label in tags[400 + i] for i, (label,) in enumerate(predict_topk(clf, X[400:], 1)[0])]
    assert report.precision_at_1 == pytest.approx(np.mean(hits))
    known = np.isin([tag for each in tags[400:] for tag in each], clf.classes_)
    assert report.unseen_labels == pytest.approx(1 - known.mean())


def test_labels_keep_their_columns_when_others_were_removed(data, stream):
    clf, (X, Y) = quick("flat").partial_fit(*data).partial_fit(*data), later(data)
    clf.remove_labels([0, 3])
    kept = np.delete(np.arange(N_LABELS), [0, 3])
    report = drift_report(clf, X, Y[:, kept])
    assert report.precision_at_1 == clf.score(X, Y[:, kept]) > 0.5


# --- drift and none -----------------------------------------------------------------------------


def test_a_stationary_stream_shows_no_drift(data, stream):
    clf, reports = stream
    frame = pd.DataFrame(reports)
    assert list(frame) == list(DriftReport._fields)
    assert (frame["n_samples"] == SIZE).all()
    report = drift_report(clf, *later(data))
    assert 0.5 < report.log_loss / frame["log_loss"].mean() < 1.5
    assert 0.5 < report.expected_log_loss / frame["expected_log_loss"].mean() < 1.5
    assert report.precision_at_1 > frame["precision_at_1"].mean() - 0.05
    assert report.unseen_features < 0.01
    assert report.unseen_labels == 0


@pytest.mark.parametrize("what", ["words", "labels"])
def test_other_meanings_show(data, stream, what):
    clf, (X, Y) = stream[0], later(data)
    report = drift_report(
        clf, *((moved(X, 250), Y) if what == "words" else (X, moved(Y, N_LABELS)))
    )
    before = pd.DataFrame(stream[1]).mean()
    assert report.log_loss > 1.5 * before["log_loss"]
    assert report.log_loss > 2 * report.expected_log_loss
    assert report.precision_at_1 < before["precision_at_1"] - 0.1
    assert report.unseen_features < 0.01


def test_a_batch_with_few_zeros_has_unseen_features():
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((600, 40)) < 0.04) * 1.0)
    Y, full = X[:, :6].astype(int), sp.csr_matrix(np.ones((20, 40)))
    clf = quick("flat", max_epochs=1, ranker="boosted").fit(X, Y)
    assert drift_report(clf, full, Y[:20]).unseen_features == 0
    clf.fit(X.multiply(np.arange(40) % 2).tocsr(), Y)
    assert drift_report(clf, full, Y[:20]).unseen_features > 0.5


@pytest.mark.integration
@pytest.mark.parametrize("counts", [False, True])
def test_new_words_show(data, counts):
    X, Y = (part.copy() for part in data)
    X.data = np.ceil(X.data) if counts else X.data
    X.resize(X.shape[0], 600)
    clf = quick("flat", max_epochs=10, learning_rate=0.04).fit(X[:N_STREAM], Y[:N_STREAM])
    X, Y = X[N_STREAM:], Y[N_STREAM:]
    before = drift_report(clf, X, Y)
    X.indices[X.indices % 3 > 0] += 300
    X.sort_indices()
    after = drift_report(clf, X, Y)
    assert ("vectors 0" in clf.ranker_.memory_["samples"]) == counts
    assert before.unseen_features < 0.01
    # New words are the rarest, and counts are weighted: their share is larger.
    assert after.unseen_features == pytest.approx(0.85 if counts else 2 / 3, abs=0.1)
    assert after.log_loss > 1.5 * before.log_loss
    assert after.precision_at_1 < before.precision_at_1


# --- what it takes ------------------------------------------------------------------------------


@pytest.mark.integration
def test_texts_and_pipelines(data, ten_trees):
    words = np.array("salt water sand stone tree leaf root bird fish wing".split())
    rng = np.random.default_rng(0)
    texts = [" ".join(words[rng.integers(10, size=6)]) for _ in range(300)]
    tags = [[word for word in ("salt", "tree", "fish") if word in text] for text in texts]
    clf = quick("flat", encoder="text", ranker="boosted", max_epochs=3).fit(texts, tags)
    assert drift_report(clf, texts, tags, k=2).unseen_features == 0
    changed = [text.replace("bird", "plane") for text in texts]
    share = drift_report(clf, changed, tags, k=2).unseen_features
    assert 0.02 < share < 0.3
    X, Y = later(data)
    model = make_pipeline(MaxAbsScaler(), quick("flat", max_epochs=2)).fit(X, Y)
    scaled = model[0].transform(X)
    assert drift_report(model, X, Y) == drift_report(model[-1], scaled, Y)


def test_what_cannot_be_known_is_nan(data):
    X, Y = later(data)
    clf = quick("flat", ranker="calibration", max_epochs=2).fit(X, Y)
    report = drift_report(clf, X, Y)
    assert np.isnan(report.unseen_features)
    assert not np.isnan(report[:4]).any()
    assert np.isnan(drift_report(clf, X, Y * 0).unseen_labels)
    # A softmax shares one probability among all labels of a sample.
    softmax = ETFNeuralCollapseClassifier(encoder=MLP((16,)), max_epochs=2, random_state=0)
    report = drift_report(softmax.fit(X, Y), X, Y)
    assert np.isnan(report[2:4]).all()
    assert report.precision_at_1 == softmax.score(X, Y)


def test_bad_input_is_refused(data, stream):
    clf, (X, Y) = stream[0], later(data)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        drift_report(clf, X, Y[:-1])
    with pytest.raises(ValueError, match="k=41 must be at most the number of labels, 40"):
        drift_report(clf, X, Y, k=41)
    with pytest.raises(ValueError, match="indicator with 40 columns"):
        drift_report(clf, X, Y[:, :-1])
    of_classes = quick("flat", max_epochs=1).fit(X, np.arange(X.shape[0]).astype(str))
    with pytest.raises(ValueError, match="both hold strings or both numbers"):
        drift_report(of_classes, X, np.arange(X.shape[0]))
    with pytest.raises(TypeError, match="drift_report takes a classifier of sklearn_xlc"):
        drift_report(LogisticRegression(), X, Y)


class Remembering(Ranker):
    """A ranker of a user: the network's scores, and samples in a form of its own."""

    reads = ("input",)

    def remember(self, samples, Y, sample_weight=None):
        self.memory_ = {"rows": samples["input"], "sets": Y}
        return self

    def __call__(self, scores):
        return scores

    @property
    def remembered(self):
        return {"input": self.memory_["rows"]}, self.memory_["sets"]


def test_rankers_of_others_say_what_they_remember(data):
    X, Y = data[0][:900], data[1][:900]
    seen = X @ sp.diags((np.arange(300) < 299).astype(float))
    clf = quick("flat", ranker=Remembering(), max_epochs=1).fit(seen, Y)
    unseen = X.copy()
    unseen.indices[:] = 299
    for each in (clf, pickle.loads(pickle.dumps(clf))):
        assert drift_report(each, seen, Y).unseen_features == 0
        report = drift_report(each, unseen, Y)
        assert report.unseen_features == 1
        assert report.unseen_labels == 0
