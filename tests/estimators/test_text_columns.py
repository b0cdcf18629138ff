"""Texts and labels from the columns of a table."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks as checks

from _factories import quick
from sklearn_xlc import TextColumns, explain_topk, load, predict_topk, save
from sklearn_xlc.encoders import Text

TABLE = {
    "title": ["sea", "dog", None, "lake"],
    "body": ["salt water", "it barks", "no title", ""],
    "year": [1990, 2000, 2010, 2020],
    "tags": ["water; salty", "animal", ";", " water;"],
    "name": ["a", "b", "c", "d"],
}
COLUMNS = TextColumns(["title", "body"], labels="tags", separator=";", ids="name")


@pytest.mark.parametrize(
    "check",
    [
        checks.check_no_attributes_set_in_init,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_estimator_tags_renamed,
    ],
)
def test_sklearn_checks(check):
    check("TextColumns", TextColumns("text"))


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_columns_of_every_table_are_joined(make):
    X = make(TABLE)
    expected = ["sea salt water", "dog it barks", "no title", "lake"]
    assert list(COLUMNS.fit(X).transform(X)) == expected
    assert list(TextColumns("body").transform(X)) == TABLE["body"]
    assert list(TextColumns(["year", "body"]).transform(X))[1] == "2000 it barks"
    assert COLUMNS.labels_of(X) == [["water", "salty"], ["animal"], [], ["water"]]
    assert COLUMNS.ids_of(X) == TABLE["name"]


def test_missing_values_are_no_text():
    X = pd.DataFrame({"text": ["a", np.nan, None, pd.NA], "more": ["nan", "b", "c", "d"]})
    assert list(TextColumns(["text", "more"]).transform(X)) == ["a nan", "b", "c", "d"]


def test_texts_are_left_as_they_are():
    for texts in (["a", "b"], np.array(["a", "b"]), pd.Series(["a", "b"], index=[7, 8])):
        assert COLUMNS.transform(texts) is texts


def test_a_long_text_among_short_ones_takes_no_memory():
    texts = ["a"] * 999 + ["a" * 50_000]  # of 200 MB as an array of strings
    tracemalloc.start()
    try:
        assert COLUMNS.transform(texts) is texts
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_index_of_a_frame_is_that_of_its_texts():
    frame = pd.DataFrame(TABLE, index=[4, 3, 2, 1])
    assert COLUMNS.transform(frame).index.tolist() == TABLE["name"]
    assert TextColumns("body").transform(frame).index.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    "X, error, message",
    [
        ({"title": ["a"]}, ValueError, "no column 'body'; the columns are 'title'"),
        (pd.DataFrame({"body": ["a"]}), ValueError, "no column 'title'; the columns are 'body'"),
        ({"title": ["a"], "body": ["a", "b"]}, ValueError, "equally long"),
        ({"title": [["a"]], "body": ["b"]}, TypeError, r"at row 0: column 'title' holds \['a'\]"),
        ({"title": [b"a"], "body": ["b"]}, TypeError, "at row 0: column 'title' holds b'a', no"),
        (pd.DataFrame({"title": [{}], "body": ["b"]}, index=["x"]), TypeError, "at x: column"),
        (pd.DataFrame([["a", "b", "c"]], columns=["title", "body", "body"]), ValueError, "2 colu"),
        ("a text", TypeError, "X must be a table with the columns"),
        (np.array([["a", "b"]]), TypeError, "X must be a table with the columns"),
    ],
)
def test_other_tables_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        COLUMNS.fit(X)


@pytest.mark.parametrize("params", [{"columns": []}, {"columns": [3]}, {"columns": 3}])
@pytest.mark.parametrize("more", [{}, {"separator": 3}, {"labels": ["a"]}])
def test_bad_parameters(params, more):
    with pytest.raises(ValueError, match="columns|separator|labels"):
        TextColumns(**params, **more).fit(TABLE)


@pytest.mark.parametrize("method", ["fit", "labels_of"])
def test_what_cannot_separate_labels_is_refused(method):
    columns = TextColumns("body", labels="tags", separator="")
    with pytest.raises(ValueError, match="separator must have a character"):
        getattr(columns, method)(TABLE)
    with pytest.raises(ValueError, match="The 'separator' parameter of TextColumns must be"):
        getattr(columns.set_params(separator=5), method)(TABLE)


# --- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries, expected",
    [
        (["a", "b", "a; b"], ["a", "b", "a; b"]),  # classes
        ([3, 1, 2], [3, 1, 2]),
        (['["a", "b"]', "[]", ""], [["a", "b"], [], []]),  # JSON
        (["['a', 'b c']", '["it\'s"]'], [["a", "b c"], ["it's"]]),  # as pandas writes lists
        ([["a"], ("b", "c"), None], [["a"], ["b", "c"], []]),
        ([[1, 2], [], [3]], [[1, 2], [], [3]]),
        ([[1], [0]], [[1], [0]]),
        ([[1, 0], [0]], [[1, 0], [0]]),
        # As NumPy prints arrays.
        (["['a' 'b \\'c']", "['d'\n \"e'f\"]", "['g']"], [["a", "b 'c"], ["d", "e'f"], ["g"]]),
        (["[1 2]", "[ 3 -1\n 10]"], [[1, 2], [3, -1, 10]]),
        (['["a b", "c \' \' d"]'], [["a b", "c ' ' d"]]),
        (["[a] b", "[c]"], ["[a] b", "[c]"]),  # no lists, but names
        ([True, False], [True, False]),
        ([1.0, 2.0, 3], [1.0, 2.0, 3]),
    ],
)
def test_labels_without_a_separator(entries, expected):
    assert TextColumns("x", labels="y").labels_of({"y": entries}) == expected


@pytest.mark.parametrize("separator", [",", ";", " "])
def test_shown_lists_are_lists_with_a_separator(separator):
    columns = TextColumns("x", labels="y", separator=separator)
    entries = ['["a, b", "c"]', "['d']", "['a' 'd']", "", None, ["e"], "[]"]
    expected = [["a, b", "c"], ["d"], ["a", "d"], [], [], ["e"], []]
    assert columns.labels_of({"y": entries}) == expected
    assert columns.labels_of({"y": ["[1, 2]", "[3]"]}) == [[1, 2], [3]]
    # Where others show no list, brackets are a part of the name.
    assert columns.labels_of({"y": ["[1]", "f"]}) == [["[1]"], ["f"]]


def test_lists_stay_lists_with_a_separator():
    found = TextColumns("x", labels="y", separator=" | ").labels_of({"y": [["a"], "b | c", None]})
    assert found == [["a"], ["b", "c"], []]


@pytest.mark.parametrize(
    "entries, separator, message",
    [
        (["", None, " "], None, "column 'y' has no labels"),
        ([[], []], None, "column 'y' has no labels"),
        (["", ""], ";", "column 'y' has no labels"),
        (["a", "", "b"], None, "at row 1: column 'y' is empty; without a separator"),
        (["a", ["b"]], None, r"at row 1: column 'y' is \['b'\], and others hold one class"),
        ([["a"], [{"b": 1}]], None, r"at row 1: column 'y' holds the label {'b': 1}; labels are"),
        ([["a"], [["b"]]], ";", r"at row 1: column 'y' holds the label \['b'\]; labels are"),
        (['["a", "b"]', "c"], None, r"at row 0: column 'y' is '\[\"a\", \"b\"\]', and others hold"),
        (["unknown", "['a']"], None, r"at row 1: column 'y' is \"\['a'\]\", and others hold one"),
        ([["a"], ["b", 3]], None, "at row 1: column 'y' holds the label 3; others are .* as 'a'"),
        (["a", 1], None, "at row 1: column 'y' holds the label 1; others are .* such as 'a'"),
        ([[True], [False]], None, "at row 0: column 'y' holds the label True; labels are"),
        ([{"b": 1}, {"c": 1}], None, "at row 0: column 'y' holds the label {'b': 1}; labels are"),
        (["a;b", {"b": 1}], ";", "at row 1: column 'y' holds the label {'b': 1}; labels are"),
        ([[0, 1, 0], [0, 0, 1]], None, r"at row 0: column 'y' holds \[0, 1, 0\], .* not marked"),
        (["[0, 1]", "[1, 0]"], None, r"at row 1: column 'y' holds \[1, 0\], .* labels are named"),
        ([b"a", b"b"], None, "at row 0: column 'y' holds the label b'a'; labels are"),
        ([b"a;b"], ";", "at row 0: column 'y' holds the label b'a;b'; labels are"),
    ],
)
def test_labels_that_are_none(entries, separator, message):
    with pytest.raises(ValueError, match=message):
        TextColumns("x", labels="y", separator=separator).labels_of({"y": entries})


def test_columns_without_a_name():
    for method in ("labels_of", "ids_of"):
        with pytest.raises(ValueError, match=f"{method} needs the parameter"):
            getattr(TextColumns("body"), method)(TABLE)
    with pytest.raises(TypeError, match="X must be a table with the column 'tags'"):
        COLUMNS.labels_of(["a"])


# --- in pipelines --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(TABLE | {"name": list("wxyz")})


@pytest.fixture(scope="module")
def model(frame):
    clf = quick("flat", encoder=Text(n_buckets=2**12), max_epochs=2)
    return make_pipeline(COLUMNS, clf).fit(frame, COLUMNS.labels_of(frame))


def test_a_pipeline_takes_frames_and_texts(model, frame):
    found = predict_topk(model, frame, k=2)
    np.testing.assert_array_equal(found.labels, predict_topk(model, TABLE, k=2).labels)
    texts = list(COLUMNS.transform(frame))
    np.testing.assert_array_equal(found.scores, predict_topk(model, texts, k=2).scores)
    assert model.predict(frame).index.tolist() == list("wxyz")
    assert explain_topk(model, frame, k=1).labels.shape == (4, 1)


def test_a_saved_pipeline_knows_its_columns(model, frame, tmp_path):
    save(model, tmp_path / "model.skops", exact=True)
    for copy in (load(tmp_path / "model.skops"), pickle.loads(pickle.dumps(model))):
        assert copy[0].get_params() == COLUMNS.get_params()
        assert copy[0].labels_of(frame) == COLUMNS.labels_of(frame)
        np.testing.assert_array_equal(copy.decision_function(frame), model.decision_function(frame))
    assert clone(model)[0].get_params() == COLUMNS.get_params()


def test_before_a_vectorizer(frame):
    X = make_pipeline(TextColumns(["title", "body"]), TfidfVectorizer()).fit_transform(frame)
    assert X.shape == (4, 9)


def test_new_samples_need_no_ids():
    columns = TextColumns("text", ids="id").fit({"text": ["a"], "id": ["x"]})
    frame = pd.DataFrame({"text": ["a", "b"]}, index=[7, 8])
    assert columns.transform(frame).index.tolist() == [7, 8]
    with pytest.raises(ValueError, match="no column 'id'"):
        columns.ids_of(frame)
    with pytest.raises(ValueError, match="no column 'idd'"):
        TextColumns("text", ids="idd").fit(frame)
