"""Scores of label sets: scikit-learn's on indicators, for all forms of y; scorers in searches."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    jaccard_score,
    precision_score,
    recall_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from _factories import quick
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import check_label_sets, label_set_score, label_set_scorer

FUNCTIONS = {
    "f1": f1_score,
    "precision": precision_score,
    "recall": recall_score,
    "jaccard": jaccard_score,
}


def draw(seed, n_samples=30, n_labels=7):
    rng = np.random.default_rng(seed)
    true = (rng.random((n_samples, n_labels)) < 0.25).astype(int)
    predicted = np.where(rng.random(true.shape) < 0.2, 1 - true, true)
    true[:3], predicted[1:4] = 0, 0  # samples without labels
    true[:, -1] = predicted[:, -2] = 0  # never true, never predicted
    return true, predicted


def named(Y, names, kind=list):
    return [kind(names[i] for i in np.flatnonzero(row)) for row in Y]


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples"])
@pytest.mark.parametrize("metric", FUNCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_scikit_learn(metric, average, weighted):
    true, predicted = draw(0)
    weight = np.random.default_rng(1).random(len(true)) if weighted else None
    expected = FUNCTIONS[metric](
        true, predicted, average=average, zero_division=0.0, sample_weight=weight
    )
    found = label_set_score(true, predicted, f"{metric}_{average}", sample_weight=weight)
    assert found == pytest.approx(expected, abs=1e-12)


def test_subset_accuracy():
    true, predicted = draw(0)
    weight = np.arange(30.0)
    found = label_set_score(true, predicted, "subset_accuracy", sample_weight=weight)
    assert found == pytest.approx(accuracy_score(true, predicted, sample_weight=weight))


def test_labels_that_occur_nowhere_do_not_count():
    true, predicted = draw(0)
    wider = [np.hstack([Y, np.zeros((30, 4), dtype=int)]) for Y in (true, predicted)]
    for average in ("micro", "macro", "weighted", "samples"):
        found = label_set_score(*wider, f"f1_{average}")
        assert found == label_set_score(true, predicted, f"f1_{average}")


def forms():
    true, predicted = draw(2)
    names = [f"tag {i}" for i in range(7)]
    lists = named(true, names), named(predicted, names)
    sets = [[set(tags) for tags in each] for each in lists]
    frames = [pd.DataFrame(Y, columns=names) for Y in (true, predicted)]
    column = np.empty(30, dtype=object)
    column[:] = lists[1]
    yield "lists", *lists
    yield "sets and an array of lists", sets[0], column
    yield "series", pd.Series(lists[0]), pd.Series(sets[1])
    yield "polars", pl.Series(lists[0]), pl.Series(lists[1])
    yield "integers", named(true, range(7)), named(predicted, range(7), tuple)
    yield "frames", *frames
    yield "a frame in another order", frames[0], frames[1][names[::-1]]
    yield (
        "a frame of numbered columns and an array",
        frames[0].set_axis(range(7), axis=1),
        predicted,
    )
    yield "a frame and tags", frames[0], lists[1]
    yield "sparse", sp.csr_matrix(true), sp.csc_array(predicted)
    yield "lists of numbers", true.tolist(), predicted.tolist()


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: form[0])
@pytest.mark.parametrize("metric", ["f1_micro", "recall_samples", "f1_macro", "subset_accuracy"])
def test_all_forms_have_the_score_of_the_indicator(form, metric):
    _, true, predicted = form
    expected = label_set_score(*draw(2), metric)
    assert label_set_score(true, predicted, metric) == pytest.approx(expected)


def test_one_class_label_a_sample():
    true, predicted = np.array(["a", "b", "c", "a"]), np.array(["a", "c", "c", "d"])
    for average in ("micro", "macro", "weighted"):
        expected = f1_score(true, predicted, average=average, zero_division=0.0)
        found = label_set_score(pd.Series(true), predicted, f"f1_{average}")
        assert found == pytest.approx(expected)
    assert label_set_score([1, 2, 3], np.array([1, 2, 2]), "subset_accuracy") == 2 / 3


def test_large_classes_are_not_compared_as_floats():
    true, predicted = 2**62 + np.arange(4), 2**62 + np.arange(4, dtype=np.uint64)
    assert label_set_score(true, predicted, "f1_micro") == 1
    assert label_set_score(true, predicted[::-1].tolist(), "f1_micro") == 0
    assert label_set_score([2**63 + 1, 5], [2**63 + 2, 5], "f1_micro") == 0.5


def test_equally_long_lists_of_integers_are_read_as_the_other_argument_is():
    column = np.empty(2, dtype=object)
    column[:] = [[1], [0]]
    assert label_set_score([[1], [1]], column) == 0.5  # tags 1 and 0
    assert label_set_score(column, [[1], [1]]) == 0.5
    assert label_set_score([[1], [1]], np.array([[1], [0]])) == pytest.approx(2 / 3)


def test_names_of_columns():
    true, predicted = draw(2)
    names = np.array([f"tag {i}" for i in range(7)])
    sets = check_label_sets(named(true, names), sp.csr_matrix(predicted), labels=names)
    assert sets.labels.tolist() == names.tolist()
    np.testing.assert_array_equal(sets.true.toarray(), true)
    np.testing.assert_array_equal(sets.predicted.toarray(), predicted)
    with pytest.raises(ValueError, match="name its columns by labels="):
        check_label_sets(named(true, names), predicted)
    with pytest.raises(ValueError, match="name its columns by labels="):
        # Its columns may stand in another order than those of the array.
        check_label_sets(pd.DataFrame(true, columns=names), predicted)
    expected = label_set_score(true, predicted)
    assert label_set_score(named(true, names), predicted, labels=names) == expected
    frame = pd.DataFrame(true, columns=names)[names[::-1]]
    assert label_set_score(frame, predicted, labels=names) == expected
    with pytest.raises(ValueError, match="labels must be 7 names, one for each column"):
        check_label_sets(true, predicted, labels=names[:3])
    with pytest.raises(ValueError, match="labels must be distinct"):
        check_label_sets(true, predicted, labels=["a"] * 7)


def test_scorer_reads_frames_by_their_names():
    X, names = np.repeat(np.eye(4), 10, axis=0), list("abcd")
    Y = pd.DataFrame((X > 0).astype(int), columns=names)
    turned = Y[names[::-1]]
    scorer = label_set_scorer("f1_micro")
    clf = MultiHeadClassifier("flat", max_epochs=50, random_state=0).fit(X, Y)
    assert scorer(clf, X, Y) == scorer(clf, X, turned) == 1
    model = OneVsRestClassifier(LogisticRegression(C=1e3)).fit(X, Y)  # it forgets the names
    assert scorer(model, X, Y) == 1
    tags = [[name] for name in np.array(names)[X.argmax(axis=1)]]
    clf = MultiHeadClassifier("flat", max_epochs=50, random_state=0).fit(X, tags)
    assert scorer(clf, X, Y) == scorer(clf, X, turned) == scorer(clf, X, tags) == 1
    assert scorer(clf, X, pd.DataFrame({"tags": tags})) == 1
    copied = pickle.loads(pickle.dumps(scorer))
    assert repr(copied) == "label_set_scorer('f1_micro')"
    weights = np.arange(40)
    assert copied(clf, X, Y, sample_weight=weights) == 1


def test_no_label_at_all():
    assert label_set_score([[], []], [[], []], "subset_accuracy") == 1.0
    for metric in ("f1_micro", "recall_macro", "precision_weighted", "jaccard_samples"):
        assert label_set_score([[], []], [[], []], metric) == 0.0
    assert label_set_score([[], []], [["a"], []], "precision_weighted") == 0.0


def test_as_many_labels_as_a_dense_indicator_could_not_hold():
    rng = np.random.default_rng(0)
    ids = rng.integers(250_000, size=(4000, 2)) + [0, 250_000]
    Y = sp.csr_array((np.ones(8000), ids.ravel(), np.arange(0, 8001, 2)), shape=(4000, 500_000))
    predicted = Y.copy()
    predicted.data[::2] = 0
    predicted.eliminate_zeros()
    assert label_set_score(Y, predicted, "recall_micro") == pytest.approx(0.5)
    assert label_set_score(Y, predicted, "precision_macro") == pytest.approx(
        len(np.unique(predicted.indices)) / len(np.unique(Y.indices))
    )


@pytest.mark.parametrize(
    "true, predicted, message",
    [
        ([["a"], ["b"]], [["a"]], "equally many samples, got 2 and 1"),
        ([["a"]], [[1]], "y_pred holds the label 1, but other labels are of another type"),
        (["a", "b"], [["a"], ["b"]], "y_pred holds label sets, and the other argument one class"),
        (np.array([1, 2]), ["a", "b"], "must both hold strings or both numbers"),
        (np.eye(2), np.eye(2, 3), "equally many columns, got 2 and 3"),
        (np.eye(2), 2 * np.eye(2), "y_pred must hold 0 and 1 only"),
        ([], [], "at least one sample"),
        ([1, np.nan], [1, 2], r"y_true\[1\] is NaN: every sample needs a class label"),
        (np.array(["2026", "NaT"], "M8[Y]"), np.array(["2026"] * 2, "M8[Y]"), "is NaT"),
    ],
)
def test_bad_label_sets(true, predicted, message):
    with pytest.raises(ValueError, match=message):
        label_set_score(true, predicted)


def test_bad_metrics():
    with pytest.raises(ValueError, match="metric must be one of .*'f1_micro'.* got 'auc'"):
        label_set_scorer("auc")
    with pytest.raises(ValueError, match="got 'precision_at_5'; metrics at k rank labels: see"):
        label_set_scorer("precision_at_5")
    for metric in (np.arange(3), np.empty((0, 2)), sp.csr_array(np.eye(2)), ["f1_micro"]):
        with pytest.raises(ValueError, match="metric must be one of"):
            label_set_scorer(metric)


# --- taxonomies ---------------------------------------------------------------------------------

#: A small graph with two ways up from "cat": pet and animal, being.
PARENTS = {
    "cat": ["feline", "pet"],
    "feline": "animal",
    "dog": ["pet", "animal"],
    "animal": "being",
}


def extended(tags):
    above = {
        "cat": {"feline", "pet", "animal", "being"},
        "feline": {"animal", "being"},
        "dog": {"pet", "animal", "being"},
        "animal": {"being"},
    }
    return [set(each).union(*(above.get(tag, set()) for tag in each)) for each in tags]


@pytest.mark.parametrize("metric", ["precision_micro", "recall_micro", "f1_macro", "f1_samples"])
def test_hierarchical_metrics_are_those_of_sets_with_their_ancestors(metric):
    rng = np.random.default_rng(0)
    names = ["cat", "dog", "feline", "pet", "stone"]
    true, predicted = (named(rng.random((20, 5)) < 0.4, names) for _ in range(2))
    found = label_set_score(true, predicted, metric, parents=PARENTS)
    assert found == pytest.approx(label_set_score(extended(true), extended(predicted), metric))
    assert found != label_set_score(true, predicted, metric)


def test_hierarchical_metrics_by_hand():
    true, predicted = [["cat"], ["dog"]], [["dog"], ["animal"]]
    # 4 + 4 and 5 + 4 labels; shared: pet, animal, being, and animal, being.
    assert label_set_score(true, predicted, "precision_micro", parents=PARENTS) == 5 / 6
    assert label_set_score(true, predicted, "recall_micro", parents=PARENTS) == 5 / 9
    scorer = label_set_scorer("f1_micro", parents=PARENTS)
    assert "parents" in repr(pickle.loads(pickle.dumps(scorer)))
    with pytest.raises(ValueError, match="parents has a cycle"):
        label_set_scorer(parents={"a": "b", "b": "a"})
    with pytest.raises(ValueError, match="parents names none of the 2 labels, such as 'a'"):
        label_set_score([["a"]], [["b"]], parents={"c": "d"})


# --- model selection ----------------------------------------------------------------------------

ANIMALS = ["cat", "dog", "fox", "owl"]


def texts_with_tags(n_samples=60):
    """Texts that name their tags, apart from the last, which has a tag of its own."""
    rng = np.random.default_rng(0)
    kept = rng.random((n_samples, 4)) < 0.4
    tags = [[name for name, on in zip(ANIMALS, row) if on] for row in kept]
    texts = [f"here is {' and '.join(each) or 'nothing'}" for each in tags]
    tags[-1] = ["unheard of"]
    return texts, tags


def model():
    quick = {
        "encoder": MLP((16,), dropout=0.0),
        "max_epochs": 8,
        "learning_rate": 0.2,
        "ranker": None,
    }
    clf = MultiHeadClassifier("flat", decision=Threshold(0.5), random_state=0, **quick)
    return make_pipeline(TfidfVectorizer(), clf)


FORMS = {
    "lists": lambda tags: tags,
    "series of sets": lambda tags: pd.Series(list(map(set, tags)), np.arange(len(tags)) + 7),
}


@pytest.mark.parametrize("form", FORMS)
def test_cross_validation_of_tags(form):
    texts, tags = texts_with_tags()
    scoring = {name: label_set_scorer(name) for name in ("f1_micro", "subset_accuracy")}
    scores = cross_validate(
        model(), texts, FORMS[form](tags), cv=KFold(3), scoring=scoring, error_score="raise"
    )
    predicted = cross_val_predict(model(), texts, FORMS[form](tags), cv=KFold(3))
    for fold, (_, test) in enumerate(KFold(3).split(texts)):
        own = [tags[i] for i in test]
        for name in scoring:
            expected = label_set_score(own, predicted[test], name)
            assert scores[f"test_{name}"][fold] == pytest.approx(expected)
    assert scores["test_subset_accuracy"].min() > 0.5
    # The tag that only the last fold has was in no training sample: it counts as missed.
    assert scores["test_subset_accuracy"][2] < 1.0
    last = cross_validate(
        model(), texts, tags, cv=KFold(3), scoring=label_set_scorer("recall_macro")
    )
    assert last["test_score"][2] <= 4 / 5


def test_an_integer_cv_takes_sets_and_refuses_lists():
    texts, tags = texts_with_tags()
    options = {"cv": 3, "scoring": label_set_scorer("f1_micro"), "error_score": "raise"}
    found = cross_validate(model(), texts, list(map(set, tags)), **options)["test_score"]
    expected = cross_validate(model(), texts, tags, **options | {"cv": KFold(3)})["test_score"]
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="legacy multi-label data representation"):
        cross_validate(model(), texts, tags, **options)


def test_a_search_over_the_threshold():
    texts, tags = texts_with_tags()
    grid = {"multiheadclassifier__decision__threshold": [0.001, 0.5, 0.999]}
    scoring = label_set_scorer("f1_micro")
    search = GridSearchCV(model(), grid, cv=KFold(3), scoring=scoring, error_score="raise")
    search.fit(texts, tags)
    assert search.best_params_ == {"multiheadclassifier__decision__threshold": 0.5}
    assert search.score(texts, tags) == label_set_score(tags, search.predict(texts))


def test_sparse_indicators_class_labels_and_other_classifiers():
    texts, tags = texts_with_tags()
    Y = sp.csr_matrix([[float(name in each) for name in ANIMALS] for each in tags])
    grid = {"multiheadclassifier__decision__threshold": [0.5]}
    options = {"cv": 2, "scoring": label_set_scorer("f1_macro"), "error_score": "raise"}
    assert GridSearchCV(model(), grid, **options).fit(texts, Y).best_score_ > 0.5
    other = make_pipeline(TfidfVectorizer(), KNeighborsClassifier(1))
    assert cross_validate(other, texts, Y.toarray(), **options)["test_score"].min() > 0.5
    classes = np.array(["odd", "even"])[np.arange(60) % 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = cross_validate(other, texts, classes, **options)["test_score"]
    assert ((scores > 0) & (scores < 1)).all()


def test_scorers_are_pickled():
    scorer = pickle.loads(pickle.dumps(label_set_scorer("jaccard_samples")))
    assert repr(scorer) == repr(label_set_scorer("jaccard_samples"))
    assert "jaccard_samples" in repr(scorer)


@pytest.mark.parametrize("names", [[3, 1, 2, 0], ["d", "b", "c", "a"]])
def test_a_scorer_names_the_columns_of_predictions_beside_tags(rng, names):
    X = rng.normal(size=(200, 5))
    Y = ((X @ rng.normal(size=(5, 4))) > 0.5).astype(int)
    frame, tags = pd.DataFrame(Y, columns=names), [{names[j] for j in np.flatnonzero(y)} for y in Y]
    clf = quick("flat").fit(X, frame)
    assert label_set_scorer()(clf, X, tags) == label_set_scorer()(clf, X, frame)


def test_missing_classes_among_strings_are_no_class():
    with pytest.raises(ValueError, match=r"y_true\[1\] is NaN"):
        label_set_score(["a", np.nan], ["a", "nan"])
