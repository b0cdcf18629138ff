"""`predict_topk` through what is wrapped around a classifier, and the table it returns."""

import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from _factories import make_learnable, quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    MultiHeadClassifier,
    explain_topk,
    predict_topk,
    save,
)
from sklearn_xlc.encoders import MLP
from sklearn_xlc.inspection import drift_report
from sklearn_xlc.inspection import topk as partitions
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.metrics._scorer import innermost
from sklearn_xlc.plotting import ReliabilityDisplay

TEXTS = ["a cat on a mat", "a dog on a bed", "a cat and a dog", "<b> & co"] * 5
TAGS = [["cat"], ["dog"], ["cat", "dog"], ["<b>"]] * 5


@pytest.fixture(scope="module")
def pipeline():
    classifier = MultiHeadClassifier(random_state=0, max_epochs=20)
    return make_pipeline(TfidfVectorizer(), classifier).fit(TEXTS, TAGS)


def test_it_looks_through_pipelines_searches_and_frozen_estimators(pipeline):
    vectors = pipeline[:-1].transform(TEXTS)
    expected = pipeline[-1].predict_topk(vectors, 2)
    search = GridSearchCV(
        pipeline, {"multiheadclassifier__max_epochs": [20]}, cv=KFold(2), scoring=topk_scorer("f1")
    ).fit(TEXTS, TAGS)
    wrapped = make_pipeline(FrozenEstimator(pipeline[:-1]), FrozenEstimator(pipeline[-1]))
    nested = make_pipeline(FrozenEstimator(make_pipeline(*[step for _, step in pipeline.steps])))
    for estimator in (pipeline, search, wrapped, FrozenEstimator(pipeline), nested):
        assert hasattr(innermost(estimator, TEXTS)[0], "predict_topk")
        for found, right in zip(predict_topk(estimator, TEXTS, 2), expected):
            np.testing.assert_array_equal(found, right)


def test_probabilities(pipeline):
    labels, scores = predict_topk(pipeline, TEXTS, 3)
    again, probabilities = predict_topk(pipeline, TEXTS, 3, proba=True)
    np.testing.assert_array_equal(again, labels)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)))


def test_words_do_not_ask_for_probabilities(pipeline):
    vectors = pipeline[:-1].transform(TEXTS)
    for call in (pipeline[-1].predict_topk, lambda *a, **k: predict_topk(pipeline[-1], *a, **k)):
        with pytest.raises(TypeError, match="proba must be True or False, got 'no'"):
            call(vectors, 2, proba="no")


def test_the_table(pipeline):
    top = predict_topk(pipeline, TEXTS, k=2)
    labels, scores = top
    assert (top.labels is labels, top.scores is scores) == (True, True)
    frame = top.to_frame()
    assert frame.columns.tolist() == ["sample", "rank", "label", "score"]
    assert frame.loc[3].tolist() == [1, 2, labels[1, 1], scores[1, 1]]
    assert len(frame) == 40
    assert repr(top).splitlines()[1].startswith("0: cat ")
    assert repr(top).splitlines()[-1] == "...: 10 more samples"
    page = top._repr_html_()
    assert "&lt;b&gt; " in page
    assert "<b>" not in page
    assert page.count("<tr>") == 12
    copy = pickle.loads(pickle.dumps(top))
    np.testing.assert_array_equal(copy.labels, labels)


def test_classifiers_of_other_packages():
    X, y = np.tile(np.eye(3), (5, 1)), np.tile(["a", "b", "c"], 5)
    Y = np.tile(np.eye(3, dtype=int), (5, 1))
    right = y[:, None]
    clf = LogisticRegression().fit(X, y)
    labels, scores = predict_topk(clf, X, 3)
    np.testing.assert_array_equal(labels[:, :1], right)
    np.testing.assert_array_equal(scores, -np.sort(-clf.decision_function(X), axis=1))
    probabilities = predict_topk(clf, X, 2, proba=True).scores
    np.testing.assert_array_equal(probabilities, -np.sort(-clf.predict_proba(X))[:, :2])
    two = predict_topk(LogisticRegression().fit(X, y == "a"), X, 1).labels
    np.testing.assert_array_equal(two[:, 0], y == "a")
    for kind in (OneVsRestClassifier, MultiOutputClassifier):
        labels = predict_topk(kind(LogisticRegression()).fit(X, Y), X, 1).labels
        np.testing.assert_array_equal(labels[:, 0], Y.argmax(axis=1))
    with pytest.raises(ValueError, match="k=4 must be at most the number of labels, 3"):
        predict_topk(clf, X, 4)
    with pytest.raises(TypeError, match="predict_topk, or predict_proba; LinearSVC has none"):
        predict_topk(LinearSVC().fit(X, y), X, 1, proba=True)
    with pytest.raises(TypeError, match="decision_function or predict_proba; Ridge has none"):
        predict_topk(Ridge().fit(X, Y), X, 1)


class Scored(ClassifierMixin, BaseEstimator):
    """Classifier with the given scores; minus infinity, or no entry, is no score."""

    def __init__(self, scores, names=(), several=False):
        self.scores, self.several = scores, several
        self.classes_, self.multilabel_ = np.array(names), several

    def decision_function(self, X):
        return self.scores

    predict_proba = decision_function


def stored(S):
    """Sparse scores without those that are minus infinity."""
    at = np.nonzero(np.isfinite(S))
    return sp.coo_array((S[at], at), shape=S.shape)


@pytest.mark.parametrize("make", [np.asarray, stored])
def test_labels_without_a_score_come_last(make):
    S, X = np.array([[-np.inf, 0.5, 1.0, -np.inf], [0.5, -np.inf, 0.5, 0.25]]), np.eye(2)
    for k in (1, 2, 3, 4):
        labels, scores = predict_topk(Scored(make(S), [*"abcd"]), X, k)
        assert labels.tolist() == [[*"cbad"][:k], [*"acdb"][:k]]
        np.testing.assert_array_equal(scores, -np.sort(-S, axis=1)[:, :k])
        labels, scores = predict_topk(Scored(make(S), [0, 1, 2, 3], several=True), X, k)
        assert labels.tolist() == [[2, 1, 0, 3][:k], [0, 2, 3, 1][:k]]
        np.testing.assert_array_equal(scores, -np.sort(-S, axis=1)[:, :k])


def test_probabilities_that_are_not_stored_are_zero():
    P = np.array([[0.0, 0.5, 0.25], [0.0, 0.0, 0.0]])
    found = predict_topk(Scored(sp.csr_array(P), range(3), several=True), np.eye(2), 3, proba=True)
    assert found.labels.tolist() == [[1, 2, 0], [0, 1, 2]]
    assert found.scores.tolist() == [[0.5, 0.25, 0.0], [0.0, 0.0, 0.0]]


SHORT_TEXTS = ["a cat on a mat", "a dog on a bed", "a cat and a dog", ""] * 5
SHORT_TAGS = [["cat"], ["dog"], ["cat", "dog"], ["nothing"]] * 5
X, Y = make_learnable(True, n_rows=60, dtype=np.float32)
X, CARRIED = X.toarray(), np.flatnonzero(Y.sum(axis=0) > 0)
SIZES = (25, 0, 20, 15)
ENDS = np.cumsum(SIZES)


@pytest.fixture(scope="module")
def classifier():
    return MultiHeadClassifier(encoder=MLP((8,)), max_epochs=3, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def short_pipeline():
    network = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=3, random_state=0)
    return make_pipeline(TfidfVectorizer(), network).fit(SHORT_TEXTS, SHORT_TAGS)


@pytest.fixture
def path(classifier, tmp_path):
    save(classifier, tmp_path / "model.skops", exact=True)
    return tmp_path / "model.skops"


@pytest.fixture(scope="module")
def da():
    return pytest.importorskip("dask.array")


@pytest.fixture(scope="module")
def dd():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("dask.dataframe")


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def by_parts(model, samples, k, **proba):
    """Results of each partition on its own, which has the bits of products of its size."""
    parts = [samples[end - size : end] for end, size in zip(ENDS, SIZES) if size]
    found = [predict_topk(model, part, k, **proba) for part in parts]
    return tuple(map(np.concatenate, zip(*found)))


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch):
    """Files that were loaded."""
    loaded, load = [], partitions.load

    def counted(path):
        loaded.append(path)
        return load(path)

    monkeypatch.setattr(partitions, "load", counted)
    return loaded


def test_a_file_is_loaded_once_by_all_threads(classifier, path, loads):
    found, start = [None] * 4, threading.Barrier(4)

    def rank(i):
        start.wait()
        found[i] = predict_topk(path if i % 2 else str(path), X, 3)

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each.labels, classifier.predict_topk(X, 3)[0])
    assert loads == [str(path)]
    weight = next(partitions.opened(path).net_.module_.parameters())
    assert not weight.detach().numpy().flags.owndata


def test_a_file_that_is_replaced_is_loaded_anew(classifier, path, loads, monkeypatch, tmp_path):
    other = clone(classifier).set_params(random_state=1).fit(X, Y[:, ::-1])
    monkeypatch.chdir(tmp_path)
    predict_topk("model.skops", X, 3)
    save(other, path, exact=True)
    assert_same(predict_topk("model.skops", X, 3), other.predict_topk(X, 3))
    assert len(loads) == 2


def test_a_file_that_there_is_not(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        predict_topk(tmp_path / "none.skops", X)


# --- collections -------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("proba", [False, True])
def test_arrays(da, classifier, path, sparse, proba):
    samples = sp.csr_matrix(X) if sparse else X
    expected = by_parts(classifier, samples, 3, proba=proba)
    # Columns in two chunks, too: a sample is whole where it is ranked.
    lazy = da.from_array(X, chunks=(SIZES, (20, X.shape[1] - 20)))
    lazy = lazy.map_blocks(sp.csr_matrix) if sparse else lazy
    for model in (classifier, path):
        top = predict_topk(model, lazy, 3, proba=proba)
        assert repr(top) == "LazyTopLabels of 3 partitions, k=3: compute() ranks them"
        assert [each.chunks for each in top] == [((25, 20, 15), (3,))] * 2
        assert [each.dtype for each in top] == [each.dtype for each in expected]
        found = top.compute(scheduler="threads")
        assert type(found).__name__ == "TopLabels"
        if model is classifier:
            assert_same(found, expected)
        else:  # products of mapped weights may differ in the last bit
            np.testing.assert_array_equal(found.labels, expected[0])
            np.testing.assert_allclose(found.scores, expected[1], rtol=1e-5)


def test_labels_and_scores_come_from_one_task(da, classifier, monkeypatch):
    ranked, rank = [], MultiHeadClassifier.predict_topk

    def counted(self, X, *args):
        ranked.append(len(X))
        return rank(self, X, *args)

    monkeypatch.setattr(MultiHeadClassifier, "predict_topk", counted)
    top = predict_topk(classifier, da.from_array(X, chunks=(SIZES, -1)), 2)
    assert ranked == []
    kept = top.persist(scheduler="sync")
    assert_same(kept.compute(), top.compute(scheduler="sync"))
    assert sorted(ranked) == sorted(2 * [size for size in SIZES if size])


def test_texts_in_series_and_columns_in_frames(dd, short_pipeline, classifier):
    pd = pytest.importorskip("pandas")
    series = pd.Series(SHORT_TEXTS, name="text")
    parts = [series[:12], series[:0], series[12:]]
    top = predict_topk(short_pipeline, dd.from_map(lambda i: parts[i], range(3), meta=parts[1]), 2)
    assert np.isnan(top.labels.shape[0])
    assert top.labels.dtype == object
    expected = [predict_topk(short_pipeline, part, 2) for part in (parts[0], parts[2])]
    assert_same(top.compute(), map(np.concatenate, zip(*expected)))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    fitted = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=1).fit(frame, Y)
    found = predict_topk(fitted, dd.from_pandas(frame, npartitions=1)).compute()
    assert_same(found, predict_topk(fitted, frame))


def test_texts_in_an_array(da, short_pipeline):
    texts = np.array(SHORT_TEXTS, dtype=object)
    found = predict_topk(short_pipeline, da.from_array(texts, chunks=20), 3).compute()
    assert_same(found, predict_topk(short_pipeline, texts, 3))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda: LogisticRegression().fit(X, np.array(["a", "b", "c"])[np.arange(60) % 3]),
        lambda: OneVsRestClassifier(LogisticRegression()).fit(X, Y[:, CARRIED]),
        lambda: AggregatedLabelClassifier(
            MultiHeadClassifier(encoder=MLP((8,)), max_epochs=1, random_state=0), n_rounds=1
        ).fit(X, [["a", "b"], ["c"]] * 30, groups=np.arange(60) % 2),
    ],
)
def test_classifiers_of_other_packages_and_wrapped_ones(da, wrapped):
    model = wrapped()
    top = predict_topk(model, da.from_array(X, chunks=(60, -1)), 2)
    expected = list(predict_topk(model, X, 2))
    if not isinstance(model, AggregatedLabelClassifier):
        # Of what others compute only samples would tell the type, which versions differ in.
        expected[1] = expected[1].astype(np.float64)
    assert [each.dtype for each in top] == [each.dtype for each in expected]
    assert_same(top.compute(), expected)


def test_no_samples_at_all(da, classifier):
    top = predict_topk(classifier, da.from_array(X[:0]), 2)
    assert_same(top.compute(), (np.empty((0, 2), dtype=int), np.empty((0, 2), np.float32)))


def test_what_is_refused_before_anything_is_ranked(da, classifier):
    lazy = da.from_array(X, chunks=(SIZES, -1))
    with pytest.raises(ValueError, match=r"k=24 must be at most the number of labels, 23"):
        predict_topk(classifier, lazy, 24)
    with pytest.raises(TypeError, match="k must be an integer"):
        predict_topk(classifier, lazy, 2.5)
    with pytest.raises(NotFittedError):
        predict_topk(MultiHeadClassifier(), lazy)
    bag = pytest.importorskip("dask.bag").from_sequence(SHORT_TEXTS)
    with pytest.raises(TypeError, match="an array, a dataframe or a series of dask.* dask.bag"):
        predict_topk(classifier, bag)
    with pytest.raises(ValueError, match="X has 59 features"):
        predict_topk(classifier, lazy[:, 1:]).compute()


# --- rows and what they hold ---------------------------------------------------------------------


@pytest.mark.parametrize("function", [predict_topk, explain_topk])
def test_a_frame_of_texts_is_not_one_sample(pipeline, function):
    frame = pd.DataFrame({"text": TEXTS})
    with pytest.raises(ValueError, match=r"X has 20 samples, .* made 1 rows of it: .*X\['text'\]"):
        function(pipeline, frame, k=1)
    assert len(function(pipeline, frame["text"], k=1)[0]) == 20


def test_the_table_has_the_index_of_the_samples_and_says_what_it_shows(pipeline):
    texts = pd.Series(TEXTS[:12], index=[f"id-{i}" for i in range(12)])
    found = predict_topk(pipeline, texts, k=2, proba=True)
    escaped = predict_topk(pipeline, texts.rename({"id-3": "<id>"}), k=2)._repr_html_()
    assert "<th>&lt;id&gt;<td>" in escaped.replace("</th>", "")
    frame = found.to_frame()
    assert list(frame.columns) == ["sample", "rank", "label", "probability"]
    assert list(frame["sample"]) == [f"id-{i}" for i in range(12) for _ in range(2)]
    assert "id-3: " in repr(found)
    assert "2 more samples" in repr(found)
    shuffled = texts.sample(frac=1, random_state=0)
    again = predict_topk(pipeline, shuffled, k=2, proba=True).to_frame()
    pd.testing.assert_frame_equal(
        again.sort_values(["sample", "rank"], ignore_index=True),
        frame.sort_values(["sample", "rank"], ignore_index=True),
    )
    plain = predict_topk(pipeline, TEXTS, k=2).to_frame()
    assert list(plain.columns)[-1] == "score"
    assert list(plain["sample"][:3]) == [0, 0, 1]
    copied = pickle.loads(pickle.dumps(found))
    pd.testing.assert_frame_equal(copied.to_frame(), frame)


#: Numbers of labels that are listed, by estimators and functions with a number of them.
LISTED = {
    "method": lambda clf, X, y, **k: clf.predict_topk(X, **k)[0].shape[1],
    "sparse": lambda clf, X, y, **k: clf.predict_topk_sparse(X, **k).nnz // X.shape[0],
    "function": lambda clf, X, y, **k: predict_topk(clf, X, **k).labels.shape[1],
    "dask": lambda clf, X, y, **k: predict_topk(
        clf, pytest.importorskip("dask.array").from_array(X), **k
    ).labels.shape[1],
    "explain": lambda clf, X, y, **k: explain_topk(clf, X[:2], **k)[0].shape[1],
    "drift": lambda clf, X, y, **k: 2 * (drift_report(clf, X, y, **k).n_samples == len(X)),
    "plot": lambda clf, X, y, **k: len(ReliabilityDisplay.from_estimator(clf, X, y, **k).lines_),
}


@pytest.mark.parametrize("listed", LISTED)
@pytest.mark.parametrize("name", ["flat", "bags", "aggregated", "others"])
def test_no_k_means_at_most_the_number_of_labels(listed, name):
    X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.eye(2, dtype=int)[np.arange(40) % 2]
    if name == "aggregated":
        clf = AggregatedLabelClassifier(quick("flat", max_epochs=1))
        clf.fit(X, Y, groups=np.arange(40))
    elif name == "others":
        clf = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
        if listed not in ("function", "dask"):
            return
    else:
        clf = quick(name, max_epochs=1).fit(X, Y)
    assert LISTED[listed](clf, X, Y, k=None) == 2
    if listed in ("drift", "plot"):
        assert LISTED[listed](clf, X, Y) == 2
    assert LISTED[listed](clf, X, Y, k=2) == 2
    with pytest.raises(ValueError, match="k=3 must be at most the number of labels, 2"):
        LISTED[listed](clf, X, Y, k=3)


def test_no_number_of_label_sets_means_at_most_all_of_them():
    X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.eye(2, dtype=int)[np.arange(40) % 2]
    clf = quick("powerset", max_epochs=1).fit(X, Y)
    assert len(clf.predict_topk_sets(X, None)[0]) == len(clf.predict_topk_sets(X, 4)[0]) == 4
    with pytest.raises(ValueError, match="at most the number of label sets of 2 labels, 4"):
        clf.predict_topk_sets(X, 5)
