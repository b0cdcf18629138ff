"""Label sets as people have them: what is read as tags, and what comes back."""

import ast
import collections
import enum
import gzip
import itertools
import json
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from sklearn_xlc._checks import check_y
from sklearn_xlc._labels import is_list
from sklearn_xlc._tags import (
    aligned,
    check_type_of_labels,
    in_form,
    index_of,
    is_form,
    named_sets,
    plain_sets,
    warn_of_joined_tags,
    with_tags,
)

ROWS = [["b", "a"], [], ["c"], ["a", "a"]]
DENSE = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]


def column(rows):
    values = np.empty(len(rows), dtype=object)
    values[:] = rows
    return values


GIVEN = {
    "list of list": ROWS,
    "list of tuple": [tuple(row) for row in ROWS],
    "list of set": [set(row) for row in ROWS],
    "list of frozenset": [frozenset(row) for row in ROWS],
    "list of array": [np.array(row, dtype=object) for row in ROWS],
    "tuple of list": tuple(ROWS),
    "array of list": column(ROWS),
    "array of set": column([set(row) for row in ROWS]),
    "pandas of list": pd.Series(ROWS, index=list("wxyz")),
    "pandas of set": pd.Series([set(row) for row in ROWS]),
    "polars of list": pl.Series(ROWS),
}


@pytest.mark.parametrize("form", GIVEN)
def test_tags_are_read_and_given_back(form):
    sets = named_sets(GIVEN[form])
    assert sets.form == form
    assert is_form(form)
    assert not sets.is_frame
    np.testing.assert_array_equal(sets.classes, np.array(["a", "b", "c"], dtype=object))
    np.testing.assert_array_equal(sets.indicator.toarray(), DENSE)
    assert sets.indicator.dtype == np.int8
    back = in_form(sets.indicator, sets.classes, form)
    assert type(back) is (pl.Series if form.startswith("polars") else np.ndarray)
    for given, got in zip(GIVEN[form], back):
        assert type(got) is type(given)
        assert sorted(got) == sorted(set(given))
    again = named_sets(back)
    np.testing.assert_array_equal(again.indicator.toarray(), DENSE)
    assert named_sets(again) is again


def test_arrays_of_tags_have_the_type_of_classes_though_empty():
    sets = named_sets([np.array([3, 7]), np.array([], dtype=int)])
    back = in_form(sets.indicator, sets.classes, sets.form)
    assert [row.dtype for row in back] == [np.int64, np.int64]  # an index, whichever is empty


@pytest.mark.parametrize("tag", [int, np.int64, np.int32])
def test_tags_may_be_integers(tag):
    rows = [[tag(7), tag(30)], [tag(-2)], []]
    sets = named_sets(rows)
    assert sets.classes.tolist() == [-2, 7, 30]
    assert sets.classes.dtype == np.int64
    np.testing.assert_array_equal(sets.indicator.toarray(), [[0, 1, 1], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("kind", [collections.UserList, collections.deque])
def test_other_sequences_are_lists(kind):
    for rows in ([["b"], [], ["a", "b"]], [["a", "b"], ["b", "c"]], [{1}, {2, 3}]):
        found, expected = named_sets(kind(rows)), named_sets(rows)
        assert (found.form, found.classes.tolist()) == (expected.form, expected.classes.tolist())
        assert (found.indicator != expected.indicator).nnz == 0
    assert named_sets(kind([[0, 1], [1, 1]])) is named_sets(kind("ab")) is None


class Arrow:
    """Table, column of lists or column of strings, as pyarrow has them."""

    def __init__(self, values, **attributes):
        self.values = values
        vars(self).update(attributes)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def to_pandas(self):
        return self.values


def test_lists_and_tables_of_arrow_are_those_of_pandas():
    lists = pd.Series([np.array(row, dtype=object) for row in ROWS])
    frame = pd.DataFrame(DENSE, columns=list("abc"))
    given = [
        Arrow(lists, type=SimpleNamespace(value_field="string")),
        Arrow(lists.to_frame(), column_names=["tags"]),
        Arrow(frame, column_names=list("abc")),
    ]
    for values in given:
        found, expected = named_sets(values), named_sets(values.values)
        assert (found.form, found.classes.tolist()) == (expected.form, list("abc"))
        assert found.indicator.toarray().tolist() == DENSE


def test_a_column_of_strings_of_arrow_is_not_converted():
    column = Arrow(["a", "b"], type=SimpleNamespace(), to_pandas=None)
    assert named_sets(column) is None
    assert check_y(column).tolist() == ["a", "b"]


def test_two_tags_a_row_are_no_array():
    for rows in ([["a", "b"], ["b", "c"]], [[3, 4], [4, 5]]):
        sets = named_sets(rows)
        np.testing.assert_array_equal(sets.indicator.toarray(), [[1, 1, 0], [0, 1, 1]])


@pytest.mark.parametrize(
    "y",
    [
        None,
        [],
        [[0, 1], [1, 0]],
        ((0.0, 1.0), (1.0, 0.0)),
        [np.array([0, 1]), np.array([1, 1])],
        [[0.5, 2.0]],
        [[3.0], [4.0]],
        [[True], [False]],
        np.array([[3], [4]]),
        ["a", "b"],
        [1, 2],
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        np.eye(3),
        sp.csr_matrix(np.eye(2)),
        pd.Series(["a", "b"]),
        pd.Series([1, 2]),
        pl.Series(["a", "b"]),
        pl.Series([1, 2]),
        pd.DataFrame({"y": ["a", "b"]}),
        pd.DataFrame({"y": [1, 2]}),
    ],
    ids=repr,
)
def test_what_has_no_names(y):
    assert named_sets(y) is None
    assert plain_sets(y) is y


def test_one_integer_in_each_list_is_a_tag():
    for rows in ([[3], [4]], [(3,), (4,)], ([3], [4]), [np.array([3]), np.array([4])], [[3], [0]]):
        sets = named_sets(rows)
        assert sets.classes.tolist() == sorted({row[0] for row in rows})
        np.testing.assert_array_equal(sets.indicator.sum(axis=1).ravel(), [[1, 1]])
    with pytest.raises(ValueError, match=r"lists of one 0 or 1 each: for tags give sets.*\{0\}"):
        named_sets([[0], [1]])
    assert named_sets([[0], [1]], np.arange(3)).classes.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="lists of one 0 or 1 each"):
        named_sets([[0], [1]], np.arange(2))


@pytest.mark.parametrize(
    "rows, as_tags",
    [
        ([[0], [1]], True),
        ([[0, 1], [1, 0]], True),
        ([[1, 1]], True),
        ([[0, 1, 0], [1, 0, 0]], False),
        ([[0, 1, 5], [1, 0, 2]], True),
        ([[2]], True),
        ([[], []], True),
        ([[0.0, 1.0]], False),
    ],
)
def test_lists_of_integers_after_a_fit_on_integer_tags(rows, as_tags):
    assert (named_sets(rows, as_tags=True, needs_tags=False) is not None) is as_tags


def test_lists_of_integers_after_a_fit_on_other_labels():
    assert named_sets([[0], [1]], as_tags=False) is None
    assert named_sets([[0, 1], [1, 0]], as_tags=False) is None
    assert named_sets([[2, 0], [1, 1]], as_tags=False, counts=True) is None
    assert named_sets([[2, 0], [1, 3]], as_tags=False).classes.tolist() == [0, 1, 2, 3]


def test_labels_of_another_type():
    check_type_of_labels(named_sets([["a"], []]), ["b", 3])
    check_type_of_labels(named_sets([[5], []]), [])
    with pytest.raises(ValueError, match="y_true holds the label 'a', but .* type, like 3: none"):
        check_type_of_labels(named_sets([["a"], []]), [3], "y_true")
    with pytest.raises(ValueError, match="y holds the label 5, but .* type, like '5'"):
        check_type_of_labels(named_sets([[5], []]), ["5"])


def test_lists_of_integers_may_be_counts():
    with pytest.raises(ValueError, match=r"equally long lists of integers, such as \[2, 0\]"):
        named_sets([[2, 0], [1, 1]], counts=True)
    assert named_sets(np.array([[2, 0], [1, 1]]), counts=True) is None
    assert named_sets([[2, 0], [1, 1]]).classes.tolist() == [0, 1, 2]
    assert named_sets([[2, 0], [1]], counts=True).classes.tolist() == [0, 1, 2]
    assert named_sets([{2, 0}, {1, 3}], counts=True).classes.tolist() == [0, 1, 2, 3]


def _column(rows):
    column = np.empty(len(rows), dtype=object)
    column[:] = rows
    return column


@pytest.mark.parametrize("make", [pd.Series, pl.Series, _column])
def test_a_column_of_rows_of_an_indicator_is_not_the_tags_0_and_1(make):
    for rows in ([[0, 1, 1], [1, 0, 0]], [[1, 0], [0, 1]], [[1, 1], [0, 1]], [[0, 0], [0, 0]]):
        with pytest.raises(ValueError, match=r"y is a column of equally long lists of 0 and 1, .*"):
            named_sets(make(rows))
    with pytest.raises(ValueError, match=r"such as \[0, 1, 1\]: .* np.array\(list\(y_true\)\)"):
        named_sets(make([[0, 1, 1]] * 2), name="y_true", as_tags=True)
    for rows in ([[0, 1], [0, 1]], [[0], [1]], [[0, 1], [1]], [[1, 2], [0, 1]]):
        assert set(named_sets(make(rows)).classes.tolist()) <= {0, 1, 2}
    assert named_sets(make([[1, 0]] * 2), as_tags=True).classes.tolist() == [0, 1]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_a_frame_with_one_column_of_tags(library):
    sets = named_sets(library.DataFrame({"tags": ROWS}))
    np.testing.assert_array_equal(sets.indicator.toarray(), DENSE)


@pytest.mark.parametrize("dtype", [np.int64, bool, np.float32, "Int64", "boolean"])
def test_frames_of_indicators(dtype):
    frame = pd.DataFrame(DENSE, columns=["b", "a", "c"], index=list("wxyz")).astype(dtype)
    sets = named_sets(frame)
    assert (sets.form, sets.is_frame) == ("pandas frame", True)
    assert is_form(sets.form)
    assert not any(
        map(is_form, ("", "pandas", "pandas frame ", "os of set", "list frame", None, []))
    )
    assert sets.classes.tolist() == ["b", "a", "c"]  # in the order of the frame
    np.testing.assert_array_equal(sets.indicator.toarray(), DENSE)
    back = in_form(sets.indicator.toarray(), sets.classes, sets.form, sets.dtype, frame.index)
    assert back.index.tolist() == list("wxyz")
    if not isinstance(dtype, str):
        pd.testing.assert_frame_equal(back, frame)
    bare = in_form(sets.indicator.toarray(), sets.classes, sets.form, sets.dtype)
    np.testing.assert_array_equal(bare, DENSE)
    assert bare.dtype == sets.dtype


def test_no_value_of_a_sparse_frame_is_looked_for_where_none_is_stored(monkeypatch):
    sparse = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(DENSE), columns=["b", "a", "c"])
    monkeypatch.setattr(pd.DataFrame, "isna", None)  # takes as long as all else, for many columns
    assert named_sets(sparse).indicator.toarray().tolist() == DENSE


def test_rows_are_read_by_their_types(monkeypatch):
    monkeypatch.setattr("sklearn_xlc._tags._is_set", calls := Mock(side_effect=is_list))
    assert named_sets(np.array(["a", "b"] * 50, dtype=object)) is None
    assert named_sets(ROWS * 50).classes.tolist() == ["a", "b", "c"]
    assert calls.call_count < 5  # not one a sample


def test_sparse_and_polars_frames():
    sparse = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(DENSE), columns=["b", "a", "c"])
    sets = named_sets(sparse)
    assert sets.form == "pandas sparse frame"
    back = in_form(sets.indicator, sets.classes, sets.form, sets.dtype, sparse.index)
    pd.testing.assert_frame_equal(back, sparse)
    bare = in_form(sets.indicator, sets.classes, sets.form, sets.dtype)
    assert sp.issparse(bare)
    np.testing.assert_array_equal(bare.toarray(), DENSE)
    ones = pd.DataFrame(DENSE, columns=["b", "a", "c"]).astype(pd.SparseDtype(int, 1))
    sets = named_sets(ones)
    assert sets.form == "pandas frame"  # all numbers are there
    np.testing.assert_array_equal(sets.indicator.toarray(), DENSE)
    frame = pl.DataFrame(DENSE, schema=["b", "a", "c"], orient="row")
    sets = named_sets(frame)
    back = in_form(sets.indicator.toarray(), sets.classes, sets.form, sets.dtype)
    assert back.equals(frame)


@pytest.mark.parametrize("form", GIVEN)
def test_what_is_given_has_the_index_of_the_samples(form):
    sets = named_sets(GIVEN[form])
    back = in_form(sets.indicator, sets.classes, form, index=pd.Index([7, 3, 3, 0]))
    assert type(back) is pd.Series
    assert back.index.tolist() == [7, 3, 3, 0]
    assert [sorted(row) for row in back] == [sorted(set(row)) for row in ROWS]


def test_only_frames_and_series_of_pandas_have_an_index():
    assert index_of(pd.Series([1], index=["a"])).tolist() == ["a"]
    assert index_of(pd.DataFrame({"x": [1]}, index=["a"])).tolist() == ["a"]
    for other in ([1], "text", np.ones(2), sp.csr_matrix([[1]]), pl.Series([1]), {"x": [1]}, None):
        assert index_of(other) is None


def test_two_columns_of_one_name_are_refused():
    """Two labels of one name could not be told apart."""
    frame = pd.DataFrame(DENSE, columns=["b", "a", "b"])
    with pytest.raises(ValueError, match=r"y has several columns of the name 'b'; each label"):
        named_sets(frame)


def test_columns_are_found_by_name_or_else_by_place():
    frame = pd.DataFrame(DENSE, columns=["b", "a", "c"])
    sets = named_sets(frame, np.array(["a", "b", "c"], dtype=object))
    np.testing.assert_array_equal(sets.indicator.toarray(), np.array(DENSE)[:, [1, 0, 2]])
    sets = named_sets(frame, np.arange(3))  # fitted on a matrix
    np.testing.assert_array_equal(sets.indicator.toarray(), DENSE)
    with pytest.raises(ValueError, match=r"columns of y must be the 3 labels .* only: c, d"):
        named_sets(frame, np.array(["a", "b", "d"], dtype=object))


@pytest.mark.parametrize(
    "y, message",
    [
        ([["a"], None], r"y\[1\] is None, but others .*; leave the sample out, or give"),
        (pd.Series([["a"], np.nan]), r"y\[1\] is nan, but others are sets"),
        (pd.Series([["a"], pd.NA]), r"y\[1\] is <NA>, but others are sets"),
        (pl.Series([["a"], None]), r"y\[1\] is None, but others"),
        ([["a"], "b"], r"y\[1\] is 'b', but others are sets of tags; give \['b'\] for a single"),
        ([["a"], [3]], r"y\[1\] holds the tag 3 of type int; tags are strings, or all are int"),
        ([["a", None]], r"y\[0\] holds the tag None of type NoneType; tags are str or int"),
        ([["a"], [1.5, "b"]], r"y\[1\] holds the tag 1.5 of type float; tags are str or int"),
        ([["a"], [("b",)]], r"y\[1\] holds the tag \('b',\) of type tuple; tags are str or int"),
        ([{True}, {False}], r"y\[0\] holds the tag True of type bool; tags are str or int"),
        ([set(), set()], r"y holds no tag: at least one sample must have one"),
        (
            pd.DataFrame({"a": [1, None], "b": [0, 1]}),
            r"y has no value in row 1, column 'a'; fill it by 0",
        ),
        (
            pd.DataFrame({"a": [1, pd.NA], "b": [0, 1]}, dtype="Int64"),
            r"y has no value in row 1, column 'a'; fill it by 0",
        ),
        (pd.DataFrame({3: [1], 4: [0], 7: [None]}), "y has no value in row 0, column 7; fill"),
        (pl.DataFrame({"a": [1, None], "b": [0, 1]}), r"y has no value in row 1, column 'a'"),
        (
            pd.get_dummies(pd.Series(["a", None]), dummy_na=True),
            r"y has a column of the name NaN; name its label, such as by y.columns.fillna",
        ),
        (pd.DataFrame(DENSE, columns=["a", 0, 1]), r"of other types than str, such as 0: convert"),
        (pd.DataFrame(DENSE, columns=[0, 1, "a"]), r"of other types than int, such as 'a': conv"),
        (pd.DataFrame({"a": ["x", "y"], "b": ["z", "z"]}), r"y must be a two-dim"),
        (pd.DataFrame({"a": [2, 1], "b": [0, 1]}), r"y must hold 0 and 1 only, got 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_refused(y, message):
    with pytest.raises(ValueError, match=message):
        named_sets(y)


def test_unknown_tags():
    classes = np.array(["a", "b"], dtype=object)
    with pytest.raises(ValueError, match="y holds the label 'c', which is not one of the 2"):
        named_sets(ROWS, classes)
    matrix, names = aligned(named_sets(ROWS), ["c", "d"])
    assert names == ["c", "d", "a", "b"]
    np.testing.assert_array_equal(
        matrix.toarray(), [[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    )


def test_read_in_the_order_of_given_classes():
    sets = named_sets(ROWS, np.array(["c", "b", "x", "a"], dtype=object))
    np.testing.assert_array_equal(
        sets.indicator.toarray(), [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    )


def test_polars_lists_keep_their_type_where_all_are_empty():
    for given in (pl.Series([["a"], []]), pl.Series([[1], []])):
        sets = named_sets(given)
        none = in_form(sp.csr_matrix((2, 1)), sets.classes, sets.form)
        assert none.dtype == given.dtype
        assert none.to_list() == [[], []]


def test_names_of_tags_are_plain_strings():
    assert {type(tag) for tag in named_sets([{np.str_("b")}, {"a"}]).classes} == {str}
    kind = enum.Enum("kind", {"SEA": "sea", "SKY": "sky"}, type=str)  # str() gives "kind.SEA"
    sets = named_sets([{kind.SKY}, {kind.SEA, "sky"}])
    assert [*map(type, sets.classes)] == [str, str]
    assert sets.classes.tolist() == ["sea", "sky"]
    assert sets.indicator.toarray().tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("dtype", [None, object])
def test_an_array_of_strings_in_columns_is_refused(dtype):
    y = np.array([["a", "b"], ["c", "d"]], dtype=dtype)
    with pytest.raises(
        ValueError, match=r"y must be .* matrix of numbers, got.*tags.*y\.tolist\(\)"
    ):
        named_sets(y)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([["a"], [""], ["b"]], r"y\[1\] holds the tag '', .*no tags.*an empty list"),
        ([["a", "b"], ["c"], ["c", " b"]], r"y\[2\] holds the tag ' b' .*beside 'b'.*strip"),
    ],
)
def test_tags_of_a_split_that_went_wrong_are_warned_of(rows, message):
    with pytest.warns(UserWarning, match=message):
        sets = named_sets(rows)
    assert sets.indicator.nnz == sum(map(len, rows))  # and taken as they are
    named_sets(rows, sets.classes)  # no warning where names are known


@pytest.mark.parametrize("tag", [2**63, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_refused(tag):
    with pytest.raises(ValueError, match=f"holds the tag {tag}, which 64 bits cannot hold; give"):
        named_sets([[tag, 1], [1]])
    assert named_sets([[2**63 - 1, -(2**63)], [1]]).classes.tolist() == [-(2**63), 1, 2**63 - 1]


def test_no_tag_at_all_is_a_matter_of_the_caller():
    with pytest.raises(ValueError, match="y holds no tag: at least one sample must have one"):
        named_sets([[], []])
    assert named_sets([[], []], needs_tags=False).indicator.shape == (2, 0)


# --- tags that were not split -----------------------------------------------------------------

WORDS = [f"{first}{last}" for first in "bdfgklmnprst" for last in ("ame", "iko", "ulo", "est")]


def some_tags(n_samples, n_tags, sizes, seed=0, weights=None):
    """Rows of distinct tags."""
    rng = np.random.default_rng(seed)
    names = np.array(WORDS[:n_tags] if n_tags <= len(WORDS) else [f"t{i}" for i in range(n_tags)])
    weights = None if weights is None else weights / weights.sum()
    for _ in range(n_samples):
        yield rng.choice(names, rng.choice(sizes), replace=False, p=weights).tolist()


def zipf(n):
    return 1 / np.arange(1.0, n + 1)


JOINED = {
    "pairs": [";".join(pair) for pair in itertools.combinations("abcdef", 2)],
    "three tags": ["red", "round", "red;round", "small;red", "small"],
    "sorted": [";".join(sorted(row)) for row in some_tags(300, 40, [1, 2, 3, 4])],
    "by importance": ["|".join(row) for row in some_tags(300, 40, [1, 2, 3, 4])],
    "with blanks": [", ".join(row) for row in some_tags(300, 40, [1, 2, 3])],
    "mostly single": [";".join(row) for row in some_tags(500, 30, [1] * 6 + [2])],
    "a few combinations": [";".join(sorted(row)) for row in some_tags(2000, 4, [1, 2, 3])],
    "long tail": ["|".join(row) for row in some_tags(300, 150, [3, 4, 5], 0, zipf(150))],
    "more tags than strings": [";".join(row) for row in some_tags(40, 48, [3, 4, 5], 1)],
    "ids": [",".join(row).replace("t", "") for row in some_tags(500, 100, [1, 2, 3])],
    "lists as text": [str(row) for row in some_tags(300, 40, [1, 2, 3])],
    "json": [json.dumps(row) for row in some_tags(300, 40, [2, 3])],
    "many": [";".join(sorted(row)) for row in some_tags(30_000, 200, [2, 3])],
}
SEPARATORS = {"by importance": "|", "long tail": "|", "with blanks": ", ", "ids": ","}


@pytest.mark.parametrize("in_lists", [False, True])
@pytest.mark.parametrize("form", JOINED)
def test_joined_tags_are_warned_of(form, in_lists):
    names = np.unique(np.array(JOINED[form], dtype=object))
    with pytest.warns(UserWarning, match="split them") as record:
        warn_of_joined_tags(names, in_lists)
    assert len(record) == 1
    message = str(record[0].message)
    apart = f"joined.split({SEPARATORS.get(form, ';')!r})"
    apart = "ast.literal_eval(joined)" if form in ("lists as text", "json") else apart
    # The remedy is code that runs, and makes the tags.
    remedy = message.partition("split them: ")[2]
    assert apart in remedy
    y = [[joined] for joined in JOINED[form]] if in_lists else JOINED[form]
    rows = eval(remedy, {"ast": ast, "y": y})
    sets = named_sets(rows)
    assert sets.indicator.nnz == sum(map(len, rows))
    warn_of_joined_tags(sets.classes, in_lists=True)
    assert len(sets.classes) <= 200


SITES = ["Fracture of femur", "Fracture of tibia", "Burn of hand", "Sprain of ankle", "Contusion"]
SIDES = ["left side", "right side", "unspecified side"]
TIMES = ["initial encounter", "subsequent encounter", "sequela"]
STATES = ["Ohio", "Texas", "Utah", "Iowa", "Maine"]
NAMES = {
    "words": ["bird", "cat", "dog"],
    "none": [],
    "numbers": np.arange(5),
    "one joined": ["a;b", "c", "d"],
    "cities": [f"{a} {b}, {s}" for a in WORDS for b in ("City", "Falls") for s in STATES[:2]],
    "cities of one name": [f"{city}, {state}" for city in WORDS[:9] for state in STATES],
    "clinical": [", ".join(p) for p in itertools.product(SITES, SIDES, TIMES)],
    "clinical, uneven": [
        *SITES,
        *(f"{site}, {side}" for site in SITES for side in SIDES),
        *(f"{site}, {time}" for site in SITES for time in TIMES),
        *(", ".join(p) for p in itertools.product(SITES, SIDES, TIMES)),
    ],
    "inverted": [
        *("Anemia", "Anemia, Hemolytic", "Anemia, Hemolytic, Autoimmune", "Anemia, Sickle Cell"),
        *("Hepatitis", "Hepatitis, Autoimmune", "Hepatitis, Viral", "Hepatitis, Viral, Human"),
        *("Pneumonia", "Pneumonia, Viral", "Pneumonia, Bacterial", "Meningitis, Viral"),
    ],
    "synonyms": [
        *("dog, domestic dog, Canis familiaris", "cad, bounder, blackguard, dog, hound, heel"),
        *("frump, dog", "dog", "cat, true cat", "guy, cat, hombre, bozo", "heel", "hound"),
    ],
    "people": [f"{w.title()}, {f}" for w in WORDS for f in ("Ada", "Max", "Eva")],
    "paths": [f"src|{room}|{name}" for room in WORDS[:12] for name in ("io", "init", "core")],
    "deep paths": [f"{a}|{b}|{c}" for a in "abc" for b in ("lib", "doc", "a") for c in WORDS[:9]],
    "shop": [f"Electronics;{a};{b}" for a in ("Phones", "Audio") for b in ("New", "Used", "Cases")],
    "decimals": [f"{i // 2},{5 * (i % 2)}" for i in range(11)],
    "countries": ["Korea, Republic of", "Congo, Republic of", "Iran, Islamic Republic of", "Chad"],
    "separators": ["", "|"],
    "facets": ["role::program", "interface::x11", "role::plugin", "works-with::text"],
}


@pytest.mark.parametrize("in_lists", [False, True])
@pytest.mark.parametrize("form", NAMES)
def test_names_that_are_no_joined_tags(form, in_lists):
    warn_of_joined_tags(np.unique(np.array(NAMES[form])), in_lists)


@pytest.mark.slow
@pytest.mark.parametrize("n_names", [30, 300, 3000, None])
@pytest.mark.parametrize("of", ["icd10cm", "wordnet_noun_closure", "eurlex57k", "icd10cm texts"])
def test_real_names_are_no_joined_tags(of, n_names, data_dir):
    folder = data_dir / of.partition(" ")[0]
    if of.endswith("texts"):
        with gzip.open(folder / "trn.jsonl.gz", "rt") as lines:
            names = [json.loads(line)["text"] for line in lines]
    else:
        path = folder / ("labels.txt" if of == "eurlex57k" else "labels.txt.gz")
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
            names = [line.rstrip("\n").rpartition("\t")[2] for line in lines]
    np.random.default_rng(0).shuffle(names)
    warn_of_joined_tags(np.unique(np.array(names[:n_names], dtype=object)))


def test_tags_that_no_sample_has():
    sets = named_sets(ROWS)
    assert with_tags(sets, []) is sets
    more = with_tags(sets, ["aa", "c", "d"])
    assert more.classes.tolist() == ["a", "aa", "b", "c", "d"]
    found = more.indicator.toarray()
    np.testing.assert_array_equal(found[:, [0, 2, 3]], DENSE)
    assert not found[:, [1, 4]].any()
    numbers = with_tags(named_sets([[5, 2], []]), iter([3]))
    assert numbers.classes.tolist() == [2, 3, 5]
    assert numbers.classes.dtype == np.int64
    for sets, tags in ((sets, [3]), (sets, ["c", 3]), (numbers, [("a", "b")])):
        with pytest.raises(ValueError, match="the ranker knows labels of another type, like"):
            with_tags(sets, tags)
