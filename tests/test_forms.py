"""X and y in every form that the guide names: each sample gets its own prediction."""

import copy
import functools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from sklearn_xlc import (
    AggregatedLabelClassifier,
    DFTSigmoidClassifier,
    EAGLETransformer,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    TextColumns,
    label_report,
    predict_topk,
)
from sklearn_xlc.decisions import RiskControl
from sklearn_xlc.encoders import MLP, Encoder, Text
from sklearn_xlc.inspection import drift_report
from sklearn_xlc.metrics import (
    aggregated_precision_at_k,
    cross_val_topk,
    expected_calibration_error,
    label_set_score,
    label_set_scorer,
    precision_at_k,
    topk_scorer,
    topk_scorers,
)
from sklearn_xlc.plotting import ReliabilityDisplay, ThresholdDisplay

QUICK = {"max_epochs": 2, "learning_rate": 0.05, "random_state": 0}
CLASSIFIERS = {
    "flat": MultiHeadClassifier("flat", encoder=MLP((8,)), **QUICK),
    "dft": DFTSigmoidClassifier(n_slack=4, encoder=MLP((8,)), **QUICK),
    "etf": ETFNeuralCollapseClassifier(encoder=MLP((8,)), **QUICK),
    "bags": MIMLClassifier(encoder=MLP((8,)), **QUICK),
    "groups": AggregatedLabelClassifier(MultiHeadClassifier(encoder=MLP((8,)), **QUICK)),
}
TAGS = ["bird", "cat", "dog", "fish"]
N_SAMPLES = 24
pytestmark = pytest.mark.filterwarnings("ignore:no groups were given:UserWarning")


class ReadsColumns(Encoder):
    """Reads two numbers by name."""

    accepts = ("mapping",)

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 8)

    def forward(self, inputs):
        return self.linear(torch.stack([inputs["a"], inputs["b"]], dim=1).float())


def table():
    """Texts, numbers and tags, with an index that is no row number."""
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, size=(N_SAMPLES, 4))
    Y[:4] = np.eye(4)
    tags = [[tag for tag, has in zip(TAGS, row) if has] for row in Y]
    frame = pd.DataFrame(Y @ rng.normal(size=(4, 2)), columns=["a", "b"])
    frame["text"] = ["a photo of " + " ".join([*row, *row]) for row in tags]
    frame.index = rng.permutation(N_SAMPLES)
    return frame, Y, tags


def own(frame):
    return frame[["a", "b"]]


def polars(frame):
    return pl.DataFrame({"a": frame["a"].to_numpy(), "b": frame["b"].to_numpy()})


def texts(frame):
    return frame["text"]


def with_tfidf(clf):
    return make_pipeline(TfidfVectorizer(), clf)


def with_columns(clf):
    return make_pipeline(make_column_transformer((TfidfVectorizer(), "text")), clf)


def with_frames_between(clf):
    return make_pipeline(StandardScaler(), clf).set_output(transform="pandas")


def plain(clf):
    return clf


#: X of a table, the model around a classifier, and whether X reaches the classifier with an index.
FORMS_OF_X = {
    "array": (lambda frame: own(frame).to_numpy(), plain, False),
    "csr": (lambda frame: sp.csr_array(own(frame).to_numpy()), plain, False),
    "lists": (lambda frame: own(frame).to_numpy().tolist(), plain, False),
    "frame": (own, plain, True),
    "polars frame": (polars, plain, False),
    "tfidf of a column": (texts, with_tfidf, False),
    "tfidf of a frame": (lambda frame: frame[["text"]], with_columns, False),
    "pandas output": (own, with_frames_between, True),
    "scaled array": (own, lambda clf: make_pipeline(StandardScaler(), clf), False),
    "texts": (texts, lambda clf: clf.set_params(encoder=Text(64, hidden_layer_sizes=(8,))), True),
    "list of texts": (
        lambda frame: frame["text"].tolist(),
        lambda clf: clf.set_params(encoder=Text(64, hidden_layer_sizes=(8,))),
        False,
    ),
    "columns": (own, lambda clf: clf.set_params(encoder=ReadsColumns), True),
}


def objects(rows):
    column = np.empty(len(rows), dtype=object)
    column[:] = rows
    return column


#: y of the indicator Y, its tags and the index; and what `predict` returns with an index, without.
FORMS_OF_Y = {
    "lists": (lambda Y, tags, index: tags, pd.Series, np.ndarray),
    "sets": (lambda Y, tags, index: [set(row) for row in tags], pd.Series, np.ndarray),
    "tuple of tuples": (lambda Y, tags, index: tuple(map(tuple, tags)), pd.Series, np.ndarray),
    "array of lists": (lambda Y, tags, index: objects(tags), pd.Series, np.ndarray),
    "series": (lambda Y, tags, index: pd.Series(tags, index), pd.Series, np.ndarray),
    "column": (lambda Y, tags, index: pd.DataFrame({"y": tags}, index), pd.Series, np.ndarray),
    "polars series": (lambda Y, tags, index: pl.Series(tags), pd.Series, pl.Series),
    "frame": (lambda Y, tags, index: pd.DataFrame(Y, index, TAGS), pd.DataFrame, np.ndarray),
    "sparse frame": (
        lambda Y, tags, index: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(Y), index, TAGS),
        pd.DataFrame,
        sp.csr_matrix,
    ),
    "polars frame": (lambda Y, tags, index: pl.DataFrame(Y, TAGS), pd.DataFrame, pl.DataFrame),
    "indicator": (lambda Y, tags, index: Y, np.ndarray, np.ndarray),
    "sparse": (lambda Y, tags, index: sp.csr_matrix(Y), sp.csr_matrix, sp.csr_matrix),
    "classes": (
        lambda Y, tags, index: pd.Series([f"{len(row)}" for row in tags], index),
        np.ndarray,
        np.ndarray,
    ),
}


def entries(predicted):
    """Predictions as one hashable entry a sample, by row."""
    if sp.issparse(predicted):
        predicted = predicted.toarray()
    if hasattr(predicted, "to_numpy"):
        predicted = predicted.to_numpy()
    return [tuple(sorted(row)) if isinstance(row, set) else str(row) for row in predicted]


def made(name, form_of_x):
    clf = CLASSIFIERS[name]
    if name == "groups":
        inner = FORMS_OF_X[form_of_x][1](MultiHeadClassifier(encoder=MLP((8,)), **QUICK))
        return AggregatedLabelClassifier(inner)
    return FORMS_OF_X[form_of_x][1](clone(clf))


@functools.cache
def fitted(name, form_of_x, form_of_y):
    frame, Y, tags = table()
    y = FORMS_OF_Y[form_of_y][0](Y, tags, frame.index)
    X = FORMS_OF_X[form_of_x][0](frame)
    model = made(name, form_of_x).fit(X, y)
    return model, entries(model.predict(X)), model.predict_proba(X), predict_topk(model, X, 2)[0]


INDEXED = [name for name, (_, _, has_index) in FORMS_OF_X.items() if has_index]
CASES = [
    *[("flat", x, "series") for x in FORMS_OF_X],
    *[("flat", x, "frame") for x in INDEXED],
    *[("flat", x, y) for x in ("frame", "tfidf of a column") for y in FORMS_OF_Y],
    *[(name, x, y) for name in CLASSIFIERS for x in ("frame", "csr") for y in ("series", "frame")],
]


#: Some of the samples in any order, by a seed: to draw them one by one takes long.
ORDERS = st.builds(
    lambda seed, n: np.random.default_rng(seed).permutation(N_SAMPLES)[:n],
    st.integers(0, 2**32 - 1),
    st.integers(1, N_SAMPLES),
)


@pytest.mark.integration
@pytest.mark.parametrize("name, form_of_x, form_of_y", sorted(set(CASES)))
@given(order=ORDERS)
@settings(derandomize=True, max_examples=2, deadline=None)
def test_samples_keep_their_predictions_wherever_they_stand(name, form_of_x, form_of_y, order):
    model, expected, probabilities, labels = fitted(name, form_of_x, form_of_y)
    frame, (select, _, has_index) = table()[0], FORMS_OF_X[form_of_x]
    part = frame.iloc[order]
    predicted = model.predict(select(part))
    assert type(predicted) is FORMS_OF_Y[form_of_y][1 if has_index else 2]
    assert entries(predicted) == [expected[row] for row in order]
    if hasattr(predicted, "iloc"):
        pd.testing.assert_index_equal(predicted.index, part.index)
    if len(predicted.shape) == 1:
        assert entries(part.assign(predicted=predicted)["predicted"]) == entries(predicted)
    np.testing.assert_allclose(model.predict_proba(select(part)), probabilities[order], rtol=1e-5)
    best = predict_topk(model, select(part), k=2)
    np.testing.assert_array_equal(best.labels, labels[order])
    samples = best.to_frame()["sample"].to_numpy()[::2]
    given_index = hasattr(select(part), "iloc")
    np.testing.assert_array_equal(samples, part.index if given_index else range(len(part)))


@pytest.mark.parametrize(
    "form_of_x, form_of_y",  # where X has no index, one form of y stands for all
    [(x, "series") for x in FORMS_OF_X]
    + [(x, y) for x in INDEXED for y in ("frame", "column", "sparse frame", "classes")],
)
def test_fit_reads_rows_not_their_index(form_of_x, form_of_y):
    frame, Y, tags = table()
    select, _, _ = FORMS_OF_X[form_of_x]
    y = FORMS_OF_Y[form_of_y][0](Y, tags, frame.index)
    model = made("flat", form_of_x).fit(select(frame), y)
    bare = made("flat", form_of_x).fit(
        select(frame.reset_index(drop=True)), y.reset_index(drop=True)
    )
    # Frames may lie in memory in two ways, in which sums round differently.
    np.testing.assert_allclose(
        model.predict_proba(select(frame)), bare.predict_proba(select(frame)), rtol=1e-12
    )


@pytest.mark.parametrize("name", ["flat", "groups", "bags"])
@pytest.mark.parametrize("form_of_y", ["series", "frame"])
def test_the_same_index_in_another_order_is_warned_of(name, form_of_y):
    frame, Y, tags = table()
    y = FORMS_OF_Y[form_of_y][0](Y, tags, frame.index)
    clf = clone(CLASSIFIERS[name])
    with pytest.warns(UserWarning, match=r"pass y.loc\[X.index\]"):
        clf.fit(own(frame), y.iloc[::-1])
    if name == "flat":
        for method in (clf.score, clf.partial_fit):
            with pytest.warns(UserWarning, match="in different orders") as warned:
                method(own(frame), y.iloc[::-1])
            assert len(warned) == 1
    with pytest.warns(UserWarning, match="in different orders"):
        EAGLETransformer().fit(own(frame), y.iloc[::-1], np.arange(N_SAMPLES))
    # Other samples, or a part of them, say nothing about the order.
    clf.fit(own(frame), y.iloc[::-1].set_axis(np.arange(N_SAMPLES) + 1000))
    clf.fit(own(frame.iloc[: N_SAMPLES // 2]), y.iloc[: N_SAMPLES // 2])


@pytest.mark.parametrize("form_of_y", ["series", "frame"])
def test_scores_warn_of_the_same_index_in_another_order(form_of_y):
    frame, Y, tags = table()
    X, y = own(frame), FORMS_OF_Y[form_of_y][0](Y, tags, frame.index)
    clf, other = clone(CLASSIFIERS["flat"]).fit(X, y), y.iloc[::-1]
    # It predicts without an index.
    behind = make_pipeline(FunctionTransformer(np.asarray), clone(clf)).fit(X, y)
    sets = clone(clf).set_params(head="product").fit(X, y)
    collapsed = clone(CLASSIFIERS["etf"]).fit(X, y)
    scorers = topk_scorer("precision", 1), label_set_scorer("f1_micro")
    calls = [lambda s=s, of=of: s(of, X, other) for s in scorers for of in (clf, behind)]
    calls += [
        lambda: label_set_score(other, clf.predict(X)),
        lambda: label_report(other, clf.predict(X)),
        lambda: drift_report(clf, X, other, k=1),
        lambda: cross_val_topk(clf, X, other, k=1, cv=2),
        lambda: sets.score_heads(X, other),
        lambda: collapsed.collapse_report(X, other),
        lambda: ReliabilityDisplay.from_estimator(clf, X, other),
        lambda: ThresholdDisplay.from_estimator(behind, X, other),
    ]
    best, p = (pd.DataFrame(part, X.index) for part in clf.predict_topk(X, 2, proba=True))
    calls += [
        lambda: expected_calibration_error(other, best, p.to_numpy()),
        lambda: expected_calibration_error(other, best.to_numpy(), p),
    ]
    if form_of_y == "frame":
        scores = pd.DataFrame(clf.decision_function(X), X.index, y.columns)
        calls.append(lambda: precision_at_k(other, scores, k=1))
    for call in calls:
        with pytest.warns(UserWarning, match="have the same index in different orders") as warned:
            call()
        assert len(warned) == 1
    for scorer in scorers:
        scorer(clf, X, y)


def test_weights_and_groups_in_another_order_are_warned_of():
    frame, Y, _ = table()
    X, groups = own(frame), pd.Series(np.arange(N_SAMPLES) // 2, frame.index)
    y, other = Y[::2], groups.sample(frac=1, random_state=0)
    bags = clone(CLASSIFIERS["bags"]).fit(X, y, groups)
    for call in (
        lambda: EAGLETransformer().fit(X, y, other),
        lambda: clone(bags).fit(X, y, other),
        lambda: bags.predict(X, other),
        lambda: clone(CLASSIFIERS["groups"]).fit(X, y, groups=other),
    ):
        with pytest.warns(UserWarning, match=r"pass groups.loc\[X.index\]"):
            call()
    by_groups, scorer = clone(CLASSIFIERS["groups"]), topk_scorer("aggregated_precision", 1)
    calls = [
        lambda: bags.score(X, y, other),
        lambda: EAGLETransformer(random_state=0).fit(X, y, groups).assign(X, y, other),
        lambda: (
            clone(by_groups)
            .set_params(decision=RiskControl(0.9), validation_fraction=0.5)
            .fit(X, y, other)
        ),
        lambda: scorer(bags, X, y, groups=other),
        lambda: aggregated_precision_at_k(y, pd.DataFrame(Y, X.index) * 1.0, other, k=1),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=r"pass groups.loc\[(X|y_pred).index\]") as warned:
            call()
        assert len(warned) == 1
    with pytest.warns(UserWarning, match=r"pass sample_weight.loc\[X.index\]"):
        clone(CLASSIFIERS["flat"]).fit(X, Y, sample_weight=other + 1.0)
    clone(CLASSIFIERS["flat"]).fit(X, Y, sample_weight=groups + 1.0)


@pytest.mark.parametrize("of_X", ["index", "default index", "array"])
def test_scores_warn_of_weights_in_another_order(of_X):
    frame, Y, _ = table()
    y, groups = pd.DataFrame(Y, frame.index), np.arange(N_SAMPLES) // 2
    weight = pd.Series(np.arange(N_SAMPLES) % 2 + 1.0, frame.index)
    X = {"index": own(frame), "default index": own(frame).reset_index(drop=True)}
    X = X.get(of_X, own(frame).to_numpy())
    models = {name: clone(CLASSIFIERS[name]).fit(X, y.to_numpy()) for name in ("flat", "groups")}
    bags, ids = clone(CLASSIFIERS["bags"]).fit(X, Y[::2], groups), np.unique(groups)
    by_class = clone(CLASSIFIERS["groups"]).fit(X, Y[:, 0])
    by_bag = pd.Series(ids + 1.0, ids)[::-1]
    flat, sets = models["flat"], clone(models["flat"]).set_params(head="product").fit(X, Y)
    calls = [
        lambda w: flat.score(X, y, sample_weight=w),
        lambda w: models["groups"].score(X, y, sample_weight=w),
        lambda w: by_class.score(X, y[0], sample_weight=w),
        lambda w: topk_scorer("precision", 1)(flat, X, y, sample_weight=w),
        lambda w: topk_scorers(["ndcg", "precision"], [1, 2])(flat, X, y, sample_weight=w),
        lambda w: label_set_scorer("f1_micro")(flat, X, y, sample_weight=w),
        lambda w: label_set_score(y, flat.predict(X), sample_weight=w),
        lambda w: sets.score_heads(X, y, sample_weight=w),
        lambda w: precision_at_k(y, flat.decision_function(X), k=1, sample_weight=w),
        lambda w: clone(flat).fit(X, y, sample_weight=w),
    ]
    for call in calls:
        with pytest.warns(
            UserWarning, match=r"pass sample_weight.loc\[(X|y|y_true).index"
        ) as warned:
            call(weight[::-1])
        assert len(warned) == 1
        call(weight)
    for call in (
        lambda w: bags.score(X, Y[::2], groups, sample_weight=w),
        lambda w: clone(bags).fit(X, Y[::2], groups, sample_weight=w),
    ):
        with pytest.warns(UserWarning, match="the index of sample_weight holds the groups in"):
            call(by_bag)
        call(by_bag[::-1])


@pytest.mark.parametrize("of_groups", ["ids", "membership"])
@pytest.mark.parametrize("form_of_y", ["series", "frame"])
def test_labels_of_groups_in_another_order_are_warned_of(form_of_y, of_groups):
    """The index of y may hold ids of groups, of which rows stand in the sorted order."""
    frame, Y, tags = table()
    X, names = frame[["a", "b"]].to_numpy(), np.array([f"page {i:02}" for i in range(N_SAMPLES)])
    ids = np.sort(names)[np.arange(N_SAMPLES) // 2]
    y = FORMS_OF_Y[form_of_y][0](Y[::2], tags[::2], pd.Index(np.unique(ids)))
    groups = ids if of_groups == "ids" else pd.get_dummies(pd.Series(ids)).astype(int)
    other = y.iloc[::-1]
    bags = clone(CLASSIFIERS["bags"]).fit(X, y, groups)
    eagle = EAGLETransformer(random_state=0).fit(X, y, groups)
    calls = [
        lambda y: clone(bags).fit(X, y, groups),
        lambda y: bags.recalibrate(X, y, groups),
        lambda y: bags.score(X, y, groups),
        lambda y: clone(eagle).fit(X, y, groups),
        lambda y: eagle.assign(X, y, groups),
        lambda y: clone(CLASSIFIERS["groups"]).fit(X, y, groups=groups),
        lambda y: topk_scorer("aggregated_precision", 1)(bags, X, y, groups=groups),
    ]
    if form_of_y == "frame":
        calls.append(lambda y: aggregated_precision_at_k(y, Y * 1.0, groups, k=1))
    for call in calls:
        with pytest.warns(UserWarning, match="holds the groups in another order than") as warned:
            call(other)
        assert len(warned) == 1
        call(y)
    # Of as many samples rows are those of samples, whatever the names of the groups.
    y = FORMS_OF_Y[form_of_y][0](Y, tags, pd.Index(names[::-1]))
    EAGLETransformer(random_state=0).fit(X, y, names[::-1])


def test_rows_of_groups_that_may_follow_the_samples_are_warned_of():
    """Of samples that stand group by group, "page 10" is read before "page 2"."""
    frame, Y, tags = table()
    X, numbers = frame[["a", "b"]].to_numpy(), np.arange(N_SAMPLES) // 2
    names = np.array([f"page {i}" for i in numbers])
    found = np.unique(names)
    for name in ("bags", "groups"):
        for y in (Y[::2], tags[::2], pd.DataFrame(Y[::2])):
            with pytest.warns(UserWarning, match="row 2 is of 'page 10'; the samples .* 'page 2'"):
                clone(CLASSIFIERS[name]).fit(X, y, groups=names.tolist())
        for groups in (numbers[::-1], np.sort(names), np.tile(found, 2)):
            clone(CLASSIFIERS[name]).fit(X, Y[::2], groups=groups)
        clone(CLASSIFIERS[name]).fit(X, pd.DataFrame(Y[::2], found), groups=names)
        clone(CLASSIFIERS[name]).fit(X, Y[numbers], groups=names)  # a row for each sample
    bags, scorer = clone(CLASSIFIERS["bags"]), topk_scorer("aggregated_precision", 1)
    bags.fit(X, Y[::2], groups=numbers)
    with pytest.warns(UserWarning, match="rows of y are read") as warned:
        scorer(bags, X, Y[::2], groups=names)
    assert len(warned) == 1
    scorer(bags, X, pd.DataFrame(Y[::2], found), groups=names)


@pytest.mark.parametrize("form_of_y", ["series", "frame"])
def test_predictions_for_bags_have_no_index_of_their_samples(form_of_y):
    frame, Y, tags = table()
    groups = np.arange(N_SAMPLES) // 2
    y = FORMS_OF_Y[form_of_y][0](Y[::2], tags[::2], frame.index[::2])
    clf = clone(CLASSIFIERS["bags"]).fit(own(frame), y, groups)
    assert type(clf.predict(own(frame), groups)) is np.ndarray
    assert len(clf.predict(own(frame), groups)) == N_SAMPLES // 2
    pd.testing.assert_index_equal(clf.predict(own(frame)).index, frame.index)


@pytest.mark.parametrize("form", ["classes", "column of classes", "lists", "series of lists"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_warns_of_joined_tags(name, form):
    frame, _, _ = table()
    joined = ["red;round", "red", "round;small", "small", "small;red", "round"] * (N_SAMPLES // 6)
    y = pd.Series(joined if "classes" in form else [[tags] for tags in joined], frame.index)
    if form == "lists":
        y = y.tolist()
    elif form == "column of classes":
        y = y.astype("category")
    with pytest.warns(UserWarning, match=r"if .* tags, split them: \[.*joined.split\(';'\)"):
        clone(CLASSIFIERS[name]).fit(own(frame), y)
    split = [tags.split(";") for tags in joined]
    clone(CLASSIFIERS[name]).fit(own(frame), split)


@pytest.mark.parametrize("form", ["classes", "lists"])
def test_joined_tags_are_warned_of_in_a_pipeline_and_in_the_first_part(form):
    frame, _, _ = table()
    joined = ["red;round", "red", "round;small", "small", "small;red", "round"] * (N_SAMPLES // 6)
    y = joined if form == "classes" else [[tags] for tags in joined]
    with pytest.warns(UserWarning, match="split them") as record:
        with_tfidf(clone(CLASSIFIERS["flat"])).fit(texts(frame), y)
    assert len(record) == 1
    clf = clone(CLASSIFIERS["flat"])
    with pytest.warns(UserWarning, match="split them"):
        clf.partial_fit(own(frame), y, classes=sorted(set(joined)))
    clf.partial_fit(own(frame), y).score(own(frame), y)


# --- tags that are integers -------------------------------------------------------------------

STREAMED = [name for name in CLASSIFIERS if name != "groups"]
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "tuples": lambda rows: list(map(tuple, rows)),
    "arrays": lambda rows: [np.array(row, dtype=int) for row in rows],
    "series": pd.Series,
    "object array": objects,
    "polars": lambda rows: pl.Series(rows, dtype=pl.List(pl.Int64)),
}
INTEGERS = np.array([0, 1, 7, 100, 2**40])
ROWS_OF_TAGS = st.lists(
    st.lists(st.integers(0, len(INTEGERS) - 1), max_size=3, unique=True), min_size=1, max_size=4
)


def names_of(rows):
    return [[f"{'abcde'[tag]}" for tag in row] for row in rows]


def integers_of(rows):
    return [INTEGERS[row].tolist() for row in rows]


@functools.cache
def started(name, as_integers):
    X = np.random.default_rng(0).normal(size=(5, 3))
    rows = [[0, 1], [2], [3, 4, 0], [1], [2]]
    y = integers_of(rows) if as_integers else names_of(rows)
    classes = INTEGERS if as_integers else list("abcde")
    return clone(CLASSIFIERS[name]).partial_fit(X, y, classes=classes)


@pytest.mark.integration
@pytest.mark.parametrize(
    "name, container",
    [("flat", form) for form in CONTAINERS] + [(name, "list") for name in STREAMED[1:]],
)
@given(rows=ROWS_OF_TAGS)
@settings(derandomize=True, max_examples=6, deadline=None)
def test_integers_are_tags_as_strings_are(name, container, rows):
    X = np.random.default_rng(1).normal(size=(len(rows), 3))
    one, other = (copy.deepcopy(started(name, as_integers)) for as_integers in (True, False))
    integers, names = CONTAINERS[container](integers_of(rows)), names_of(rows)
    one.partial_fit(X, integers)
    other.partial_fit(X, names)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.score(X, integers) == other.score(X, names)
    for k in (1, 3):
        scorer = topk_scorer("precision", k)
        assert scorer(one, X, integers) == scorer(other, X, names)
    predicted = [["abcde"[list(INTEGERS).index(tag)] for tag in row] for row in one.predict(X)]
    assert predicted == other.predict(X).tolist()


@pytest.mark.parametrize(
    "name, container",
    [("flat", form) for form in CONTAINERS] + [(name, "list") for name in [*CLASSIFIERS][1:]],
)
def test_one_integer_in_each_list_is_a_tag(name, container):
    frame, _, _ = table()
    rows = [[place % 4 + 1] for place in range(N_SAMPLES)]
    y = CONTAINERS[container](integers_of(rows))
    clf, plain = (clone(CLASSIFIERS[name]).fit(own(frame), y) for y in (y, names_of(rows)))
    assert clf.classes_.tolist() == INTEGERS[1:].tolist()
    np.testing.assert_array_equal(
        clf.decision_function(own(frame)), plain.decision_function(own(frame))
    )
    assert all(len(row) >= 0 for row in clf.predict(own(frame)))
    for part in (slice(0, 1), slice(0, 9), slice(None)):
        X = own(frame)[part]
        assert clf.score(X, y[part]) == plain.score(X, names_of(rows[part]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_number_of_0_and_1_in_each_list_is_refused_in_a_first_fit(name):
    frame, _, _ = table()
    y = [[0], [1], [1]] * (N_SAMPLES // 3)
    with pytest.raises(ValueError, match=r"y holds lists of one 0 or 1 each.*\{0\}.*1-D y.*array"):
        clone(CLASSIFIERS[name]).fit(own(frame), y)
    clf = clone(CLASSIFIERS[name]).fit(own(frame), [set(row) for row in y])
    assert clf.classes_.tolist() == [0, 1]
    assert 0.3 < clf.score(own(frame), y) < 0.7
    assert clf.score(own(frame)[:2], y[:2]) in (0, 0.5, 1)


@pytest.mark.parametrize("name", ["bags", "groups"])
def test_lists_of_counts_or_of_integer_tags_are_refused(name):
    frame, _, _ = table()
    y = [[3, 4], [4, 2], [3, 2]] * (N_SAMPLES // 3)
    with pytest.raises(ValueError, match=r"y holds equally long lists.*counts.*array.*sets"):
        clone(CLASSIFIERS[name]).fit(own(frame), y)
    clf = clone(CLASSIFIERS[name]).fit(own(frame), [set(row) for row in y])
    assert clf.classes_.tolist() == [2, 3, 4]
    groups = np.arange(N_SAMPLES) // 4
    counts = (np.arange(N_SAMPLES // 2).reshape(-1, 2) % 3).tolist()
    clf = clone(CLASSIFIERS[name]).fit(own(frame), np.array(counts), groups)
    assert clf.classes_.tolist() == [0, 1]
    if name == "bags":
        expected = clf.score(own(frame), np.array(counts), groups)
        assert clf.score(own(frame), counts, groups) == expected
        clf.partial_fit(own(frame), counts, groups=groups)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize("name", STREAMED)
def test_what_was_fitted_on_classes_or_columns_reads_lists_as_such(name):
    frame, _, _ = table()
    X = own(frame)
    classes = np.arange(N_SAMPLES) % 3
    clf = clone(CLASSIFIERS[name]).fit(X, classes)
    expected = clf.score(X, classes)
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        assert clf.score(X, classes[:, None].tolist()) == expected
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        clf.partial_fit(X, classes[:, None].tolist())
    Y = np.eye(3, dtype=int)[classes]
    clf = clone(CLASSIFIERS[name]).fit(X, Y)
    assert clf.score(X, Y.tolist()) == clf.score(X, Y)
    clf.partial_fit(X, Y.tolist())
    for wrong in ([[0], [1]], [[0, 1], [1, 0]]):
        with pytest.raises(ValueError, match="y must be an indicator with 3 columns"):
            clf.partial_fit(X[:2], wrong)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_of_another_type_are_refused_by_score(name):
    frame, _, tags = table()
    X = own(frame)
    named = clone(CLASSIFIERS[name]).fit(X, tags)
    numbered = clone(CLASSIFIERS[name]).fit(X, [{1, 2}, {2}, {3}] * (N_SAMPLES // 3))
    for clf, y in ((named, [[1], [2, 3], []]), (numbered, [["a"], ["b", "c"], []])):
        y = y * (N_SAMPLES // 3)
        for score in (clf.score, lambda X, y, clf=clf: topk_scorer("precision", 1)(clf, X, y)):
            with pytest.raises(ValueError, match=r"y holds the label .* of another type, like"):
                score(X, y)


@pytest.mark.parametrize(
    "kinds, dtype",
    [
        ("boolean", bool),
        ("Int64", np.int64),
        ("UInt8", np.uint8),
        ("Float32", np.float32),
        ({"x": "bool", "y": "int64"}, np.int64),
        (object, np.float64),
    ],
)
def test_frames_of_nullable_columns_are_given_back_as_plain_ones(kinds, dtype):
    X, Y = np.eye(40), pd.DataFrame({"x": [0, 1] * 20, "y": [1, 0] * 20})
    clf = MultiHeadClassifier(max_epochs=1, random_state=0)
    sets = clf.fit(X, Y.astype(kinds)).predict(pd.DataFrame(X))
    assert set(sets.dtypes) == {np.dtype(dtype)}
    np.testing.assert_array_equal(sets, clf.fit(X, Y).predict(X))


LAZY = pl.DataFrame(np.eye(6)).lazy()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "call",
    [
        lambda: MultiHeadClassifier().fit(LAZY, np.eye(6)),
        lambda: MultiHeadClassifier(encoder="text").fit(LAZY, np.eye(6)),
        lambda: MIMLClassifier().fit(LAZY, np.eye(6), groups=range(6)),
        lambda: EAGLETransformer().fit(LAZY, np.eye(6), groups=range(6)),
        lambda: AggregatedLabelClassifier(MultiHeadClassifier()).fit(
            LAZY, np.eye(6), groups=range(6)
        ),
        lambda: TextColumns("column_0").fit_transform(LAZY),
        lambda: MultiHeadClassifier().fit(np.eye(6), LAZY),
        lambda: MultiHeadClassifier(max_epochs=1).fit(np.eye(6), np.eye(6)).predict(LAZY),
        lambda: precision_at_k(LAZY, np.eye(6)),
        lambda: precision_at_k(np.eye(6), LAZY),
    ],
)
def test_lazy_frames_are_refused_with_the_remedy(call):
    with pytest.raises(ValueError, match=r"is a polars LazyFrame; give \w+\.collect\(\)"):
        call()
