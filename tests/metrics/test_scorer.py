"""The scorer in scikit-learn's searches: any labels, dense or sparse, predict_topk or none."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from _factories import SKLEARN
from sklearn_xlc import MultiHeadClassifier, metrics, predict_topk
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.metrics import (
    cross_val_topk,
    get_scorer,
    label_set_scorer,
    precision_at_k,
    propensities,
    psp_at_k,
    topk_scorer,
    topk_scorers,
    true_labels,
)


class ScoresAreFeatures(ClassifierMixin, BaseEstimator):
    """Ranks label j by feature (j + shift) mod n_labels; only `predict_topk` is offered."""

    def __init__(self, shift=0):
        self.shift = shift

    def fit(self, X, y, sample_weight=None):
        self.multilabel_ = sp.issparse(y) or np.ndim(y) == 2
        self.classes_ = np.arange(y.shape[1]) if self.multilabel_ else np.unique(y)
        self.saw_sparse_ = sp.issparse(y)
        return self

    def predict(self, X):
        raise AssertionError("a scorer of ranked labels needs no predict")

    def predict_topk(self, X, k=5):
        n_labels = self.classes_.size
        assert k <= n_labels, "never asked for more labels than there are"
        scores = X[:, (np.arange(n_labels) + self.shift) % X.shape[1]]
        ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        labels = ids if self.multilabel_ else self.classes_[ids]
        return labels, np.take_along_axis(scores, ids, axis=1)


class Fixed(BaseEstimator):
    """Answers what it was given, through the one method that was named."""

    def __init__(self, answer, method, classes=None):
        setattr(self, method, lambda X, *args: answer)
        if classes is not None:
            self.classes_ = classes


@pytest.fixture
def multilabel(rng):
    """Scores of 6 labels as features, the two largest are the true labels."""
    X = rng.random((30, 6))
    Y = (X >= np.sort(X, axis=1)[:, -2:-1]).astype(int)
    return X, Y


NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"], dtype=object)


@pytest.mark.parametrize("name", ["precision", "recall", "f1", "ndcg", "coverage"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_score_is_the_metric_of_predict_topk(multilabel, name, k):
    X, Y = multilabel
    model = ScoresAreFeatures(shift=1).fit(X, Y)
    metric = getattr(metrics, f"{name}_at_k")
    expected = metric(Y, np.roll(X, -1, axis=1), k)
    for scorer in (topk_scorer(name, k), topk_scorer(metric, k=k)):
        for y in (Y, sp.csr_array(Y), sp.coo_matrix(Y), Y.tolist()):
            assert scorer(model, X, y) == expected
    weight = np.arange(30) % 3
    assert scorer(model, X, Y, sample_weight=weight) == metric(
        Y, np.roll(X, -1, axis=1), k, sample_weight=weight
    )


def test_propensity_metrics_take_their_propensities(multilabel):
    X, Y = multilabel
    p = metrics.propensities(Y)
    model = ScoresAreFeatures(shift=1).fit(X, Y)
    expected = metrics.psp_at_k(Y, np.roll(X, -1, axis=1), 2, propensities=p)
    assert topk_scorer("psp", 2, propensities=p)(model, X, Y) == expected
    assert repr(topk_scorer("psp", 2, propensities=p)) == (
        "topk_scorer(psp_at_k, k=2, propensities=<array of shape (6,)>)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_finds_the_right_parameter(multilabel, as_sparse, n_jobs):
    X, Y = multilabel
    y = sp.csr_array(Y) if as_sparse else Y
    search = GridSearchCV(
        ScoresAreFeatures(),
        {"shift": [2, 0, 3]},
        scoring=topk_scorer("precision", k=2),
        cv=3,
        n_jobs=n_jobs,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"shift": 0}
    assert search.best_score_ == 1
    assert search.best_estimator_.saw_sparse_ == as_sparse
    assert topk_scorer("precision", k=2)(search, X, y) == 1  # through best_estimator_


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_pipeline_is_walked(multilabel, n_steps):
    X, Y = multilabel
    before = [("negate", FunctionTransformer(np.negative)), ("skip", "passthrough")][: n_steps - 1]
    pipe = Pipeline([*before, ("rank", ScoresAreFeatures())]).fit(X, Y)
    assert not hasattr(pipe, "predict_topk")
    expected = metrics.precision_at_k(Y, -X if n_steps > 1 else X, 2)
    assert topk_scorer("precision", 2)(pipe, X, Y) == expected
    nested = make_pipeline(FunctionTransformer(), pipe).fit(X, Y)
    assert topk_scorer("precision", 2)(nested, X, Y) == expected
    grid = {"rank__shift": [1, 0]}
    search = GridSearchCV(pipe, grid, scoring=topk_scorer("recall", 2), cv=2, error_score="raise")
    search.fit(X, sp.csr_array(Y))
    outer = make_pipeline(FunctionTransformer(), search).fit(X, Y)
    assert topk_scorer("recall", 2)(outer, X, Y) == search.score(X, Y)


@pytest.mark.parametrize(
    "classes",
    [NAMES, NAMES.astype(str), np.array([-1, 3, 10, 11, 12, 20]), np.arange(6) / 4],
    ids=["object", "str", "int", "float"],
)
def test_class_labels_of_any_type(multilabel, classes):
    X, _ = multilabel
    y = X.argmax(axis=1)
    model = ScoresAreFeatures(shift=2).fit(X, classes)
    for k in (1, 3, 8):
        expected = metrics.recall_at_k(y, np.roll(X, -2, axis=1), k)
        assert topk_scorer("recall", k)(model, X, classes[y]) == expected
        assert topk_scorer("recall", k)(model, X, classes[y].tolist()) == expected
    scores = cross_val_score(
        model, X, classes[np.arange(30) % 6], scoring=topk_scorer("recall", 6), cv=3
    )
    np.testing.assert_array_equal(scores, [1, 1, 1])


def test_large_classes_are_not_compared_as_floats(rng):
    X, y = rng.normal(size=(40, 3)), 2**62 + np.arange(40, dtype=np.uint64) % 4
    tree = RandomForestClassifier(5, bootstrap=False, random_state=0).fit(X, y)
    assert topk_scorer("precision", k=1)(tree, X, y.astype(np.int64)) == 1
    assert topk_scorer("precision", k=1)(tree, X, y.tolist()) == 1


def test_classes_of_string_dtype_are_scored(rng):
    X, y = rng.normal(size=(40, 3)), np.array(["a", "bc"] * 20)
    tree = RandomForestClassifier(5, bootstrap=False, random_state=0).fit(X, y)
    assert topk_scorer("precision", k=1)(tree, X, y.astype(np.dtypes.StringDType())) == 1
    found = [cross_val_topk(tree, X, labels, k=1, cv=2) for labels in (y, y.astype("T"))]
    np.testing.assert_array_equal(*found)


def test_unsorted_classes_are_mapped_too():
    classes = np.array(["z", "a", "m"])
    by_topk = Fixed(
        (classes[[[2, 0], [1, 2]]], np.array([[2.0, 1], [2, 1]])), "predict_topk", classes
    )
    assert topk_scorer("precision", 1)(by_topk, None, ["m", "z"]) == 1 / 2
    by_scores = Fixed(np.array([[2.0, 1, 0], [2, 1, 3]]), "decision_function", classes.tolist())
    assert topk_scorer("precision", 1)(by_scores, None, ["z", "m"]) == 1


@pytest.mark.parametrize("method", ["predict_topk", "predict_proba"])
def test_unseen_class_counts_as_a_miss(method):
    classes = np.array(["a", "b"])
    answer = np.array([[0.9, 0.1]] * 4)
    if method == "predict_topk":
        answer = (np.array([["a", "b"]] * 4), answer)
    model = Fixed(answer, method, classes)
    y = ["a", "c", "d", "b"]
    assert topk_scorer("recall", 1)(model, None, y) == 1 / 4
    assert topk_scorer("recall", 5)(model, None, y) == 2 / 4
    assert topk_scorer("coverage", 5)(model, None, y) == 2 / 4  # c and d are labels of their own


def test_a_series_of_propensities_is_read_by_name():
    Y = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]])
    ranked = np.array([["c", "b"], ["a", "c"], ["a", "b"]], dtype=object)
    model = Fixed((ranked, np.ones((3, 2))), "predict_topk", np.array([*"cab"], dtype=object))
    frame = pd.DataFrame(Y, columns=[*"cab"])
    values = pd.Series([0.2, 0.5, 0.9], index=[*"cab"])
    scores = {
        topk_scorer("psp", 2, propensities=given)(model, Y, frame[columns])
        for given in (values.to_numpy(), values, values[[*"abc"]], values.to_dict())
        for columns in ([*"cab"], [*"abc"])
    }
    assert len(scores) == 1


@pytest.mark.parametrize("names", [[10, 3, 7], [0, 2, 1], [-1, 0, 1], ["c", "a", "b"]])
@pytest.mark.parametrize("fitted", [[0, 1, 2], [0, 2]])
@pytest.mark.parametrize("metric", ["psp", "psndcg"])
def test_propensities_of_classes_are_read_by_class(metric, fitted, names):
    names, values = np.array(names), np.array([0.9, 0.2, 0.5])
    series = pd.Series(values, names).sort_index()
    by_class = [series, series[::-1], series.to_dict()]
    if names.dtype.kind == "i" and names.min() >= 0:
        of_ids = np.full(names.max() + 1, 0.01)  # as of propensities(y)
        of_ids[names] = values
        by_class.append(of_ids)
    classes = np.sort(names[fitted])
    in_order = topk_scorer(metric, 2, propensities=series.loc[classes].to_numpy())
    for true in ([0, 0, 2, 0, 1, 2], [0, 2, 2]):
        ranked = np.array([[0, 2], [2, 0]] * 3)[: len(true)]
        model = Fixed((names[ranked], np.ones(ranked.shape)), "predict_topk", classes)
        at_k = getattr(metrics, f"{metric}_at_k")
        expected = at_k(np.array(true), ranked, 2, propensities=values)
        for given in by_class:
            score = topk_scorer(metric, 2, propensities=given)(model, None, names[true])
            assert score == pytest.approx(expected, rel=1e-15)
        if set(true) <= set(fitted):
            assert in_order(model, None, names[true]) == pytest.approx(expected, rel=1e-15)
        else:
            with pytest.raises(ValueError, match="propensities have no value for the label"):
                in_order(model, None, names[true])
    with pytest.raises(ValueError, match="propensities and classes_ must have equally many labels"):
        topk_scorer(metric, 2, propensities=values[:1])(model, None, names[true])


def test_names_of_classes_are_listed_only_where_they_are_read():
    model = Fixed(np.eye(2), "predict_proba", np.array([3, 7]))
    classes, ids, names = true_labels(model, np.array([7, 5]))
    assert (classes.tolist(), ids.tolist()) == ([3, 7], [1, 2])
    assert names() == [3, 7, 5]
    for y in (np.eye(2), sp.csr_array(np.eye(2))):
        assert true_labels(model, y)[2] is None


def mean_propensity(y_true, y_pred, *, k, propensities):
    return propensities[y_true].mean()


def test_a_metric_of_your_own_gets_an_array_of_propensities():
    model = Fixed((np.array([[3, 1]] * 2), np.ones((2, 2))), "predict_topk", np.array([1, 3]))
    for given in (np.array([0.5, 0.25]), pd.Series([0.25, 0.5], [3, 1]), {1: 0.5, 3: 0.25}):
        scorer = topk_scorer(mean_propensity, 2, propensities=given)
        assert scorer(model, None, np.array([3, 3])) == 0.25
    for wrong in (0.5, [[0.5, 0.5]]):
        with pytest.raises(ValueError, match=r"propensities must have shape \(n_labels,\), got"):
            topk_scorer("psp", 2, propensities=wrong)(model, None, np.array([3, 3]))


@pytest.mark.parametrize("missing, name", [(np.nan, "NaN"), (None, "None")])
def test_a_missing_class_is_no_miss(missing, name):
    model = Fixed(np.array([[0.9, 0.1]] * 2), "predict_proba", np.array([0, 1]))
    with pytest.raises(ValueError, match=rf"y\[1\] is {name}: every sample needs a class label"):
        topk_scorer("recall", 1)(model, None, [0, missing])


def test_scores_of_minus_infinity_name_no_label():
    answer = (np.array([[1, 0], [0, 1]]), np.array([[0.5, -np.inf], [0.5, 0.2]]))
    assert (
        topk_scorer("recall", 2)(Fixed(answer, "predict_topk"), None, np.eye(2, dtype=int)) == 0.5
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(n_estimators=5)])
def test_multiclass_without_predict_topk(rng, model, n_classes):
    X = rng.random((40, 4))
    y = NAMES[np.arange(40) % n_classes]
    model = clone(model)
    model.set_params(random_state=0).fit(X, y)
    assert topk_scorer("precision", 1)(model, X, y) == model.score(X, y)
    assert topk_scorer("recall", n_classes)(model, X, y) == 1


@pytest.mark.parametrize(
    "model",
    [
        OneVsRestClassifier(LogisticRegression()),
        RandomForestClassifier(n_estimators=5, random_state=0),
        MLPClassifier((4,), max_iter=3, random_state=0),
    ],
    ids=["decision_function", "list of predict_proba", "predict_proba"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_multilabel_without_predict_topk(multilabel, model):
    X, Y = multilabel
    model.fit(X, Y)
    if hasattr(model, "decision_function"):
        scores = model.decision_function(X)
    else:
        scores = model.predict_proba(X)
    if isinstance(scores, list):
        scores = np.column_stack([proba[:, 1] for proba in scores])
    for k in (1, 3):
        expected = metrics.ndcg_at_k(Y, scores, k)
        assert topk_scorer("ndcg", k)(model, X, sp.csr_array(Y)) == expected


def test_multi_output_labels_seen_with_one_value_only():
    proba = [np.array([[1.0], [1.0]]), np.array([[0.3, 0.7]] * 2), np.array([[1.0], [1.0]])]
    model = Fixed(proba, "predict_proba", [np.array([1]), np.array([0, 1]), np.array([0])])
    y = np.array([[1, 0, 0], [0, 1, 0]])  # ranked 0, 1, 2
    assert topk_scorer("precision", 1)(model, None, y) == 1 / 2
    assert topk_scorer("recall", 2)(model, None, y) == 1


@pytest.mark.parametrize(
    "last", [KNeighborsClassifier(3), OneVsRestClassifier(LogisticRegression())]
)
def test_a_stack_ranks_by_probabilities_of_labels(multilabel, last):
    X, Y = multilabel
    model = StackingClassifier([("near", KNeighborsClassifier(3))], last, cv=2).fit(X, Y)
    found = model.final_estimator_.predict_proba(model.transform(X))
    scores = np.column_stack([of[:, 1] for of in found]) if isinstance(found, list) else found
    expected = metrics.precision_at_k(Y, scores, 2)
    assert expected > metrics.precision_at_k(Y, -scores, 2)  # scikit-learn's are of the absence
    assert topk_scorer("precision", 2)(model, X, Y) == expected
    probabilities = predict_topk(model, X, 6, proba=True).scores
    np.testing.assert_allclose(probabilities, -np.sort(-scores, axis=1))


@pytest.mark.filterwarnings("ignore:Label .* is present in all training examples")
def test_labels_of_no_sample_or_of_all_are_not_ranked_by_zero_and_one(multilabel):
    X, Y = multilabel
    Y[:, 0], Y[:, 5] = 0, 1
    models = [
        OneVsRestClassifier(kind()).fit(X, Y) for kind in (RidgeClassifier, LogisticRegression)
    ]
    for model in models:
        model.estimators_[1].intercept_ -= 9  # of a rare label: log odds below zero
        ranked = predict_topk(model, X, 6).labels
        assert (ranked[:, -1] == 0).all()
        assert (ranked[:, 0] == 5).all()
        pipe = make_pipeline(FunctionTransformer(), model)
        np.testing.assert_array_equal(predict_topk(pipe, X[:1], 6).labels, ranked[:1])


@pytest.mark.parametrize("values", [[0, 1, 2], [1, 2], ["no", "yes"]])
def test_outputs_of_other_classes_than_0_and_1_are_refused(values):
    proba = [np.full((2, len(values)), 1 / len(values)), np.array([[0.3, 0.7]] * 2)]
    model = Fixed(proba, "predict_proba", [np.array(values), np.array([0, 1])])
    with pytest.raises(ValueError, match=r"output 0 of Fixed has the classes .*0 or 1"):
        predict_topk(model, np.zeros((2, 1)), k=1)
    with pytest.raises(ValueError, match=r"output 0 of Fixed has the classes"):
        topk_scorer("precision", 1)(model, None, np.array([[1, 0], [0, 1]]))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_integer_and_sparse_decisions_are_scores(make):
    model = Fixed(make(np.array([[3, 1, 2], [1, 3, 2]])), "decision_function")
    assert topk_scorer("precision", 1)(model, None, np.array([[1, 0, 0], [0, 0, 1]])) == 1 / 2


def test_one_label_column_has_a_flat_decision():
    model = Fixed(np.array([-0.5, 2.0]), "decision_function")
    assert topk_scorer("precision", 1)(model, None, np.array([[0], [1]])) == 1 / 2


@pytest.mark.parametrize("classes", [NAMES[:3], NAMES[:4]], ids=len)
def test_scores_of_pairs_of_classes_are_refused(rng, classes):
    X, y = rng.random((40, 4)), classes[np.arange(40) % len(classes)]
    model = SVC(decision_function_shape="ovo").fit(X, y)
    for ranked in (topk_scorer("precision", 1), lambda model, X, y: predict_topk(model, X, 1)):
        with pytest.raises(ValueError, match="SVC scores pairs of classes; set"):
            ranked(model, X, y)
    model.set_params(decision_function_shape="ovr")
    assert topk_scorer("recall", len(classes))(model, X, y) == 1


@pytest.mark.parametrize("make", [topk_scorer, lambda metric, k: topk_scorers([metric], [k])])
def test_groups_that_a_metric_does_not_take_are_refused(multilabel, make):
    X, Y = multilabel
    scorer = make("precision", 1)
    with pytest.raises(
        TypeError, match="precision_at_.* scores single samples, and takes no groups"
    ):
        scorer(ScoresAreFeatures().fit(X, Y), X, Y, groups=np.arange(30) // 2)


def test_several_metrics_at_once(multilabel):
    X, Y = multilabel
    scoring = {f"p{k}": topk_scorer("precision", k) for k in (1, 2)}
    with parallel_config("threading"):  # tests/test_model_selection.py has processes
        result = cross_validate(ScoresAreFeatures(), X, Y, scoring=scoring, cv=3, n_jobs=2)
    np.testing.assert_array_equal(result["test_p1"], 1)


@pytest.mark.skipif(SKLEARN < (1, 7), reason="searches passed weights to no scorer before 1.7")
def test_searches_weight_one_metric_and_several(multilabel):
    X, Y = multilabel
    scoring = {f"p{k}": topk_scorer("precision", k) for k in (1, 2)}
    weight = (np.arange(30) % 3).astype(float)
    folds = list(KFold(3).split(X))
    for given in (scoring, scoring["p1"]):
        search = GridSearchCV(
            ScoresAreFeatures(), {"shift": [1]}, scoring=given, refit=False, cv=folds
        ).fit(X, Y, sample_weight=weight)
        key = "p1" if isinstance(given, dict) else "score"
        test = folds[0][1]
        assert search.cv_results_[f"split0_test_{key}"][0] == metrics.precision_at_k(
            Y[test], np.roll(X, -1, axis=1)[test], 1, sample_weight=weight[test]
        )


def test_weights_are_routed_where_requested(multilabel):
    X, Y = multilabel
    weight = (np.arange(30) % 3).astype(float)
    test = np.arange(10)
    rolled = np.roll(X, -1, axis=1)[test]
    with config_context(enable_metadata_routing=True):
        for scorer, expected in (
            (topk_scorer("recall", 1).set_score_request(sample_weight=True), weight[test]),
            (topk_scorer("recall", 1).set_score_request(sample_weight=False), None),
        ):
            model = ScoresAreFeatures(shift=1).set_fit_request(sample_weight=True)
            search = GridSearchCV(model, {}, scoring=scorer, cv=KFold(3), error_score="raise")
            search.fit(X, Y, sample_weight=weight)
            assert search.cv_results_["split0_test_score"][0] == metrics.recall_at_k(
                Y[test], rolled, 1, sample_weight=expected
            )


def test_scorer_pickles_copies_and_clones(multilabel):
    X, Y = multilabel
    model = ScoresAreFeatures(shift=1).fit(X, Y)
    scorer = topk_scorer(metrics.psndcg_at_k, k=3, propensities=metrics.propensities(Y))
    search = clone(GridSearchCV(model, {"shift": [0]}, scoring=scorer))
    for same in (pickle.loads(pickle.dumps(scorer)), copy.deepcopy(scorer), search.scoring):
        assert same(model, X, Y) == scorer(model, X, Y)
        assert repr(same) == repr(scorer)


def first_is_true(y_true, y_pred, k):
    """A metric of one's own."""
    assert y_pred.shape == (len(y_true), k)
    return float(np.mean(y_true[np.arange(len(y_true)), y_pred[:, 0]]))


def test_metric_of_ones_own(multilabel):
    X, Y = multilabel
    scorer = topk_scorer(first_is_true, 7)
    assert repr(scorer) == "topk_scorer(first_is_true, k=7)"
    assert scorer(ScoresAreFeatures(shift=1).fit(X, Y), X, Y) == metrics.precision_at_k(
        Y, np.roll(X, -1, axis=1), 1
    )


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            {"metric": "accuracy"},
            ValueError,
            r"metric must be one of \[.*'coverage', .* got 'accuracy'",
        ),
        ({"metric": None}, TypeError, r"metric must be one of .* or a callable, got None"),
        ({"metric": "f1", "k": 0}, ValueError, r"k must be an integer >= 1, got 0"),
        ({"metric": "psp"}, TypeError, r"psp_at_k cannot be called .*missing.*'propensities'"),
        ({"metric": "f1", "beta": 2}, TypeError, r"f1_at_k cannot be called .*'beta'"),
    ],
)
def test_scorer_refuses_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        topk_scorer(**arguments)


def test_scorer_refuses_estimators_it_cannot_rank():
    scorer, X, Y = topk_scorer("f1", 2), np.eye(3), np.eye(3, dtype=int)
    with pytest.raises(TypeError, match=r"predict_topk, decision_function or predict_proba; Dummy"):
        scorer(DummyRegressor().fit(X, Y), X, Y)
    with pytest.raises(
        TypeError, match=r"needs classes_ to score 1-D class labels or tags; Fixed has none"
    ):
        scorer(Fixed(Y * 1.0, "predict_proba"), X, [0, 1, 2])
    with pytest.raises(
        ValueError, match=r"predict_proba of Fixed returned shape \(3, 3\), expected 4"
    ):
        scorer(Fixed(Y * 1.0, "predict_proba"), X, np.ones((3, 4)))
    with pytest.raises(
        TypeError, match=r"predict_topk of Fixed must name the columns .* dtype <U1"
    ):
        scorer(Fixed((np.full((3, 2), "a"), X[:, :2]), "predict_topk"), X, Y)
    with pytest.raises(
        ValueError, match=r"dtype <U1 cannot be compared to .* classes_ of dtype int64"
    ):
        scorer(Fixed(Y * 1.0, "predict_proba", np.arange(3)), X, ["a", "b", "c"])


def test_columns_that_the_estimator_names():
    Y = np.eye(3, dtype=int)
    ranked = np.array([["b", "a"], ["a", "b"], ["c", "b"]], dtype=object)
    model = Fixed((ranked, np.ones((3, 2))), "predict_topk", np.array([*"cab"], dtype=object))
    assert topk_scorer("precision", 1)(model, Y, Y) == pytest.approx(1 / 3)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_cross_val_topk(multilabel, as_sparse):
    X, Y = multilabel
    model = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression()))
    expected = cross_val_score(model, X, Y, scoring=topk_scorer("ndcg", 3), cv=4)
    y = sp.csr_matrix(Y) if as_sparse else Y
    scores = cross_val_topk(model, X, y, metric="ndcg", k=3, cv=4)
    np.testing.assert_array_equal(scores, expected)
    assert scores.shape == (4,)


def test_cross_val_topk_passes_on_groups_and_parameters(multilabel):
    X, Y = multilabel
    groups = np.arange(30) % 5
    model = ScoresAreFeatures(shift=1)
    p = metrics.propensities(Y)
    given = {"metric": "psp", "k": 2, "propensities": p}
    with parallel_config("threading"):
        scores = cross_val_topk(model, X, Y, cv=GroupKFold(5), groups=groups, n_jobs=2, **given)
    folds = GroupKFold(5).split(X, groups=groups)
    rolled = np.roll(X, -1, axis=1)
    expected = [metrics.psp_at_k(Y[i], rolled[i], 2, propensities=p) for _, i in folds]
    np.testing.assert_array_equal(scores, expected)


def test_cross_val_topk_routes_weights_to_fits(multilabel):
    class Weighted(ScoresAreFeatures):
        def fit(self, X, y, sample_weight=None):
            assert (sample_weight == 2).all()
            return super().fit(X, y)

    X, Y = multilabel
    expected = cross_val_topk(ScoresAreFeatures(shift=1), X, Y, k=2, cv=3)
    with config_context(enable_metadata_routing=True):
        model, weights = Weighted(shift=1).set_fit_request(sample_weight=True), np.full(30, 2.0)
        found = cross_val_topk(model, X, Y, k=2, cv=3, params={"sample_weight": weights})
    np.testing.assert_array_equal(found, expected)


def test_cross_val_topk_raises_what_the_fit_raises(multilabel):
    X, Y = multilabel
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        cross_val_topk(ScoresAreFeatures(), X, Y[:-1])


@pytest.mark.parametrize("metric", ["precision", "psp"])
def test_tags_are_scored_by_name(metric):
    X, Y = make_extreme_multilabel(90, 30, 12, random_state=0)
    Y = Y[:, np.bincount(Y.indices, minlength=12) > 0]
    names = np.array([f"tag {i:02}" for i in range(Y.shape[1])], dtype=object)
    tags = [names[row.indices].tolist() for row in sp.csr_matrix(Y)]
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0).fit(X, tags)
    params = {"propensities": propensities(tags)} if metric == "psp" else {}
    by_place = {"propensities": propensities(Y)} if metric == "psp" else {}
    ids = np.searchsorted(names, clf.predict_topk(X, 3)[0].astype(str))
    of_indicator = psp_at_k if by_place else precision_at_k
    expected = of_indicator(Y, ids, 3, **by_place)
    for y in (tags, [set(row) for row in tags], pd.DataFrame(Y.toarray(), columns=names)):
        assert topk_scorer(metric, 3, **params)(clf, X, y) == pytest.approx(expected)
    assert topk_scorer(metric, 3, **by_place)(clf, X, tags) == pytest.approx(expected)
    unseen = [["aardvark"], *tags[1:]]
    assert topk_scorer("precision", 1)(clf, X[:1], unseen[:1]) == 0
    scores = cross_val_topk(clf, X, tags, metric=metric, k=1, cv=KFold(2), **params)
    assert scores.shape == (2,)


@pytest.mark.parametrize("names", [list("abc"), [2, 0, 1]])
@pytest.mark.parametrize("meta", [OneVsRestClassifier, MultiOutputClassifier])
def test_a_frame_is_scored_by_place_where_columns_have_no_names(meta, names):
    X, Y = np.tile(np.eye(3), (5, 1)), np.tile(np.eye(3, dtype=int), (5, 1))
    frame = pd.DataFrame(Y, columns=names)
    model = meta(LogisticRegression()).fit(X, frame)
    for scorer in (topk_scorer("precision", 1), label_set_scorer("recall_micro")):
        assert scorer(model, X, frame) == scorer(model, X, Y) > 0.9


@pytest.mark.parametrize("classes", [NAMES[:2], NAMES[:3], [0, 1], [1, 0, 2]], ids=str)
@pytest.mark.parametrize("make", [np.array, pd.DataFrame])
@pytest.mark.parametrize(
    "model",
    [
        MultiHeadClassifier(max_epochs=2, random_state=0),
        make_pipeline(OneVsRestClassifier(LogisticRegression())),
    ],
    ids=["own", "other"],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_a_column_holds_class_labels(rng, model, make, classes):
    X, y = rng.random((40, 4)), np.array(classes)[np.arange(40) % len(classes)]
    column = make(y[:, None])
    model.fit(X, column)
    expected = accuracy_score(y, model.predict(X))
    for scorer in (topk_scorer("precision", 1), label_set_scorer("subset_accuracy")):
        assert scorer(model, X, y) == pytest.approx(expected)
        assert scorer(model, X, column) == pytest.approx(expected)


@pytest.mark.parametrize("y", [[{"a"}, {"b"}, {"a"}], [0, 1, 0]], ids=["tags", "classes"])
def test_what_a_classifier_of_several_outputs_cannot_be_compared_to(y):
    model = KNeighborsClassifier(1).fit(np.eye(3), np.eye(3, dtype=int))
    with pytest.raises(TypeError, match="KNeighborsClassifier has those of each of 3 outputs"):
        topk_scorer("precision", 1)(model, np.eye(3), y)


@pytest.mark.parametrize("removed", [0, 3, 7])
def test_columns_of_y_are_the_labels_that_are_left(removed):
    X, Y = make_extreme_multilabel(300, 100, 8, random_state=0)
    Y = sp.csr_matrix(Y)
    classifier = MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, Y)
    classifier.remove_labels([removed])
    left = np.delete(np.arange(8), removed)
    scores = classifier.decision_function(X)
    for k in (1, 3):
        expected = precision_at_k(Y[:, left], scores, k=k)
        scorer = topk_scorer("precision", k=k)
        assert scorer(classifier, X, Y[:, left]) == pytest.approx(expected)
        # All columns: labels are named by their numbers, and the removed one is never right.
        assert scorer(classifier, X, Y) == pytest.approx(expected)


# --- several metrics of one prediction ---------------------------------------------------------


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


def test_ids_of_several_types_are_refused_whatever_the_index_of_y():
    X, Y = make_extreme_multilabel(20, 5, 4, random_state=0)
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    y = pd.DataFrame(Y[:4].toarray(), index=list("abcd"))
    scorer = topk_scorer("aggregated_precision", 1)
    with pytest.raises(ValueError, match="groups must hold ids of one type"):
        scorer(clf, X, y, groups=["a", "b", 1, 2] * 5)
    with config_context(enable_metadata_routing=True):
        assert "groups" in scorer.get_metadata_routing().score.requests
        scorer.set_score_request(sample_weight=True)
        assert scorer.get_metadata_routing().score.requests["sample_weight"] is True


@pytest.mark.integration
def test_cross_validation_by_several_metrics(data):
    X, Y = data
    model = OneVsRestClassifier(RidgeClassifier())
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
        ((np.array(3), [1]), TypeError, "metrics and ks must be sequences"),
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


def test_frames_with_other_labels_are_scored_by_name():
    """Before, as many columns were paired by place."""
    X, Y = make_extreme_multilabel(120, 30, 4, random_state=0)
    frame = pd.DataFrame(Y.toarray(), columns=[*"abcd"])
    other = frame.rename(columns={"b": "f", "d": "e"})
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0).fit(X, frame)
    best = clf.predict_topk(X, 1)[0][:, 0]
    for y in (other, other[["c", "a"]], frame.assign(z=0), frame[["d", "b"]]):
        known = y.reindex(columns=[*"abcd"], fill_value=0)
        expected = np.mean([known[label].iloc[row] for row, label in enumerate(best)])
        assert topk_scorer("precision", 1)(clf, X, y) == pytest.approx(expected)
        with pytest.raises(ValueError, match="columns with the same names"):
            label_set_scorer("f1_micro")(clf, X, y)


def test_frames_without_names_are_scored_by_place_and_without_labels_refused():
    X, Y = make_extreme_multilabel(120, 30, 4, random_state=0)
    frame = pd.DataFrame(Y.toarray(), columns=[*"abcd"])
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0).fit(X, frame)
    scorer = topk_scorer("precision", 1)
    assert scorer(clf, X, pd.DataFrame(Y.toarray())) == scorer(clf, X, frame)
    with pytest.raises(ValueError, match="no column of y is in classes_: .*'c_a'.*'a'"):
        scorer(clf, X, frame.add_prefix("c_"))


@pytest.mark.parametrize("columns", [[0, 1, 2], [2, 1, 0], [3, 1], [3, 2, 1, 0]])
def test_numbers_that_name_columns_are_names_in_a_part_of_them(columns):
    X, Y = make_extreme_multilabel(120, 30, 4, random_state=0)
    frame = pd.DataFrame(Y.toarray(), columns=[3, 2, 1, 0])
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0).fit(X, frame)
    best = clf.predict_topk(X, 1)[0][:, 0]
    expected = np.mean([b in columns and frame[b].iloc[i] for i, b in enumerate(best)])
    assert topk_scorer("precision", 1)(clf, X, frame[columns]) == pytest.approx(expected)


def test_samples_without_tags_count_as_an_indicator_without_labels():
    found = np.array([["a", "b"], ["b", "c"]])
    assert precision_at_k([[], []], found, k=2) == 0
