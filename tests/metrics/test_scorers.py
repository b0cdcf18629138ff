"""Scorers by name, and several metrics of one prediction."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.metrics import (
    cross_val_topk,
    get_scorer,
    propensities,
    topk_scorer,
    topk_scorers,
)


class Counting(MultiHeadClassifier):
    """Counts its predictions."""

    n_predictions = 0

    def predict_topk(self, X, k=5, proba=False):
        type(self).n_predictions += 1
        return super().predict_topk(X, k, proba)


@pytest.fixture(scope="module")
def data():
    return make_extreme_multilabel(120, 30, 12, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    X, Y = data
    return OneVsRestClassifier(LogisticRegression()).fit(X, Y)


def test_names_of_scorers(data, fitted):
    X, Y = data
    for name, metric, k in [("precision_at_5", "precision", 5), ("ndcg_at_12", "ndcg", 12)]:
        assert get_scorer(name)(fitted, X, Y) == topk_scorer(metric, k)(fitted, X, Y)
    weights = propensities(Y)
    expected = topk_scorer("psp", 3, propensities=weights)(fitted, X, Y)
    assert get_scorer("psp_at_3", propensities=weights)(fitted, X, Y) == expected
    assert get_scorer("accuracy")(fitted, X, Y) == accuracy_score(Y, fitted.predict(X))
    with pytest.raises(ValueError, match="metric must be one of .* got 'accuracy'"):
        get_scorer("accuracy_at_5")
    with pytest.raises(ValueError, match="'precision_at_0' is neither"):
        get_scorer("precision_at_0")
    with pytest.raises(ValueError, match="'f1' is not of the form metric_at_k"):
        get_scorer("f1", propensities=weights)
    with pytest.raises(ValueError, match=r"'precision@5' is neither .* nor .*'precision_at_5'"):
        get_scorer("precision@5")


def test_several_metrics_are_those_of_single_scorers(data, fitted):
    X, Y = data
    weights = propensities(Y)
    scorer = topk_scorers(["precision", "psp"], [1, 3], propensities=weights)
    assert repr(scorer) == ("topk_scorers(precision_at_1, precision_at_3, psp_at_1, psp_at_3)")
    values = pickle.loads(pickle.dumps(scorer))(fitted, X, Y)
    for k in (1, 3):
        assert values[f"precision_at_{k}"] == topk_scorer("precision", k)(fitted, X, Y)
        expected = topk_scorer("psp", k, propensities=weights)(fitted, X, Y)
        assert values[f"psp_at_{k}"] == expected
    heavy = np.arange(120.0)
    weighted = topk_scorers(["precision"], [1])(fitted, X, Y, sample_weight=heavy)
    assert weighted["precision_at_1"] == topk_scorer("precision", 1)(fitted, X, Y, heavy)


def test_one_prediction_for_all_metrics(data):
    X, Y = data
    clf = Counting("flat", max_epochs=1, random_state=0).fit(X, Y)
    topk_scorers(["precision", "recall", "ndcg"])(clf, X, Y)
    assert Counting.n_predictions == 1


def test_a_search_over_several_metrics(data):
    X, Y = data
    search = GridSearchCV(
        MultiHeadClassifier("flat", random_state=0),
        {"max_epochs": [1, 3]},
        scoring=topk_scorers(ks=(1, 3)),
        refit="precision_at_1",
        cv=KFold(2),
    ).fit(X, Y)
    assert search.cv_results_["mean_test_precision_at_3"].shape == (2,)
    best, dense = search.best_estimator_, Y.toarray()
    results = cross_validate(best, X, dense, scoring=topk_scorers(), cv=KFold(2))
    assert set(results) >= {"test_precision_at_1", "test_precision_at_5"}


def test_metadata(data, fitted):
    X, Y = data
    scorer = topk_scorers(["aggregated_precision", "precision"], [1])
    groups = np.arange(120) // 2
    grouped = Y[::2].repeat(2) if isinstance(Y, np.ndarray) else Y[groups * 2]
    values = scorer(fitted, X, grouped, np.ones(120), groups)
    expected = topk_scorer("aggregated_precision", 1)(fitted, X, grouped, groups=groups)
    assert values["aggregated_precision_at_1"] == expected
    with config_context(enable_metadata_routing=True):
        assert "groups" in scorer.get_metadata_routing().score.requests
        scorer.set_score_request(sample_weight=True)
        assert scorer.get_metadata_routing().score.requests["sample_weight"] is True


def test_cross_validation_by_several_metrics(data):
    X, Y = data
    model = OneVsRestClassifier(LogisticRegression())
    scores = cross_val_topk(model, X, Y, metric=["precision", "recall"], k=[1, 3], cv=2)
    assert sorted(scores) == ["precision_at_1", "precision_at_3", "recall_at_1", "recall_at_3"]
    for name, values in scores.items():
        metric, _, k = name.partition("_at_")
        single = cross_val_topk(model, X, Y, metric=metric, k=int(k), cv=2)
        np.testing.assert_array_equal(values, single)
    assert list(cross_val_topk(model, X, Y, k=[2], cv=2)) == ["precision_at_2"]
    assert list(cross_val_topk(model, X, Y, metric=["f1"], k=2, cv=2)) == ["f1_at_2"]


def test_cross_validation_of_tags(data):
    X, Y = data
    tags = [[f"tag {label}" for label in row.indices] for row in Y]
    clf = MultiHeadClassifier("flat", max_epochs=1, random_state=0)
    assert cross_val_topk(clf, X, tags, k=1, cv=2).shape == (2,)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("precision", [1]), TypeError, "metrics and ks must be sequences.*use topk_scorer"),
        ((["precision"], 5), TypeError, "metrics and ks must be sequences"),
        (([], [1]), ValueError, "metrics and ks must each have an element"),
        ((["accuracy"], [1]), ValueError, "metric must be one of"),
        ((["precision"], [0]), ValueError, "k must be"),
        ((["psp"], [1]), TypeError, "psp_at_k cannot be called with these parameters: missing"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        topk_scorers(*arguments)
    with pytest.raises(TypeError, match=r"no metric has the parameters \['propensities'\]"):
        topk_scorers(["precision"], propensities=[0.5])
