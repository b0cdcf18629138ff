"""`predict_topk` through what is wrapped around a classifier, and the table it returns."""

import pickle

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from sklearn_xlc import MultiHeadClassifier, predict_topk
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.metrics._scorer import innermost

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
