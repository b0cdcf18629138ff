"""Labels in, ids out, and back."""

import copy
import itertools
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklearn_xlc._checks import check_y, is_indicator
from sklearn_xlc.engine.label_code import LabelCode, code_of, with_classes

INDICATOR = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 0]])
LABELS = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=20),
    st.lists(st.text(max_size=3), min_size=2, max_size=20),
    st.lists(st.booleans(), min_size=2, max_size=20),
)


@pytest.mark.filterwarnings("ignore:y holds one string")  # some of them are joined tags
@given(LABELS.filter(lambda labels: len(set(labels)) > 1))
@settings(derandomize=True, max_examples=25, deadline=None)
def test_class_labels_round_trip(labels):
    y = check_y(np.asarray(labels))
    code = code_of(labels, y)
    assert not code.multilabel
    np.testing.assert_array_equal(code.classes, np.unique(np.asarray(labels)))
    Y = code.encode(y)
    assert Y.shape == (len(labels), code.n_labels)
    np.testing.assert_array_equal(np.diff(Y.indptr), 1)
    np.testing.assert_array_equal(code.classes[Y.indices], np.asarray(labels))


@given(arrays(np.int8, st.tuples(st.integers(1, 6), st.integers(2, 6)), elements=st.integers(0, 1)))
@settings(derandomize=True, max_examples=25, deadline=None)
def test_indicators_round_trip(indicator):
    indicator[0, 0] = 1
    for y in (indicator, sp.csc_matrix(indicator), sp.coo_array(indicator)):
        checked = check_y(y)
        assert checked.has_canonical_format
        assert checked.nnz == indicator.sum()
        code = code_of(y, checked)
        np.testing.assert_array_equal(code.classes, np.arange(indicator.shape[1]))
        encoded = code.encode(checked)
        back = code.label_sets(encoded.indptr, encoded.indices)
        assert code.sparse_output is sp.issparse(y)
        assert back.dtype == y.dtype
        np.testing.assert_array_equal(back.toarray(), indicator)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8, np.float32])
def test_an_indicator_keeps_its_type(dtype):
    y = INDICATOR.astype(dtype)
    assert code_of(y, check_y(y)).label_sets(np.array([0, 1]), np.array([2])).dtype == dtype


def test_frames_and_lists():
    for y in (pd.DataFrame(INDICATOR), pl.DataFrame(INDICATOR), INDICATOR.tolist()):
        np.testing.assert_array_equal(check_y(y).toarray(), INDICATOR)
    for y in (pd.Series(["b", "a", "b"]), pl.Series(["b", "a", "b"]), ["b", "a", "b"]):
        assert check_y(y).tolist() == ["b", "a", "b"]
    categories = pd.Series(["b", "a", "b"], dtype="category")
    assert code_of(categories, check_y(categories)).classes.tolist() == ["a", "b"]


def test_an_indicator_of_torch():
    Y = torch.tensor([[0, 1], [1, 1]])
    checked = check_y(Y)
    code = code_of(Y, checked)
    assert code.dtype == np.int64
    np.testing.assert_array_equal(code.label_sets(checked.indptr, checked.indices).toarray(), Y)


def test_a_column_is_class_labels():
    column = np.array([[1], [2], [1]])
    assert not is_indicator(column)
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        assert check_y(column).tolist() == [1, 2, 1]
    assert is_indicator(sp.csr_matrix(column))


@pytest.mark.parametrize("y, expected", [([1, 2], False), (INDICATOR, True), (["a"], False)])
def test_is_indicator(y, expected):
    assert is_indicator(y) is expected


def test_many_classes_of_few_rows_do_not_warn():
    np.testing.assert_array_equal(check_y(np.arange(100)), np.arange(100))


def test_the_caller_keeps_an_untidy_indicator_as_it_was():
    untidy = sp.csr_matrix(([1, 0, 1], [2, 1, 0], [0, 2, 3]), shape=(2, 3))
    before = copy.deepcopy(untidy)
    assert check_y(untidy).toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(untidy, part), getattr(before, part))


def test_unknown_labels_and_foreign_shapes_are_refused():
    names = LabelCode(np.array(["a", "b"]), False, False, np.dtype("U1"))
    for unknown in ("A", "ab", "c", ""):
        with pytest.raises(ValueError, match=f"label '{unknown}', which is not one of the 2"):
            names.encode(np.array(["a", unknown]))
    with pytest.raises(ValueError, match="label 1, which is not one of the 2"):
        names.encode(np.array([1, 2]))
    with pytest.raises(ValueError, match="1-D class labels in the first fit"):
        names.encode(check_y(INDICATOR))
    columns = code_of(INDICATOR, check_y(INDICATOR))
    with pytest.raises(ValueError, match="indicator with 3 columns"):
        columns.encode(check_y(INDICATOR[:, :2]))


def test_further_columns_of_an_indicator_have_the_numbers_that_are_named():
    columns = LabelCode(np.array([0, 1, 2, 4]), True, True, np.dtype(int))
    assert columns.unknown_of([0, 1, 2, 4, 3]) == [3]  # it had been removed
    assert columns.unknown_of(np.array([0, 1, 2, 4, 9, 7])) == [9, 7]
    assert columns.unknown_of([4, 2, 1, 0]) == []
    for lacking, name in ((["a", "b", "c", "d", "e"], 0), ([0, 1, 2, 3, 5], 4), ([0, 1], 2)):
        with pytest.raises(ValueError, match=f"it lacks {name}; name the labels in classes_"):
            columns.unknown_of(lacking)
    for wrong in ("a", 3.5):
        with pytest.raises(ValueError, match=f"classes adds {wrong!r}, .* of another type, like 0"):
            columns.unknown_of([0, 1, 2, 4, wrong])


def test_predicted_indicators_are_canonical():
    code = LabelCode(np.arange(4), True, True, np.dtype(int))
    Y = code.label_sets(np.array([0, 2, 2, 3]), np.array([3, 1, 0]))
    assert Y.has_canonical_format
    assert Y.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]


def test_positions():
    code = LabelCode(np.arange(3), True, True, np.dtype(int))
    Y = sp.csr_matrix([[1, 0, 1], [0, 1, 0]])
    assert code.to_positions(Y) is Y
    np.testing.assert_array_equal(code.label_order, [0, 1, 2])
    moved = code.reordered(np.array([2, 0, 1]))  # label j goes to position positions[j]
    np.testing.assert_array_equal(moved.to_positions(Y).toarray(), [[0, 1, 1], [1, 0, 0]])
    assert moved.to_positions(Y).has_sorted_indices
    values = sp.csr_matrix([[3.0, 0.0, 5.0]])
    for move in (moved.to_positions, moved.from_positions):
        move(values)
        np.testing.assert_array_equal(values.toarray(), [[3, 0, 5]])
    for each in (code, moved):
        sums = each.by_position(np.array([4, 5, 6]))
        np.testing.assert_array_equal(sums, each.to_positions(sp.csr_matrix([[4, 5, 6]])).data)
    np.testing.assert_array_equal(moved.to_ids(moved.label_order), [0, 1, 2])
    np.testing.assert_array_equal(code.to_ids(np.array([2, 0])), [2, 0])


@pytest.mark.parametrize("separator", [";", ", ", "|"])
def test_joined_tags_are_warned_of(separator):
    y = np.array([separator.join(pair) for pair in itertools.combinations("abcdef", 2)])
    with pytest.warns(
        UserWarning, match=r"such as 'a.*b'.* each of the 15 distinct strings.*split"
    ):
        assert code_of(y, y).n_labels == 15


@pytest.mark.parametrize("y", [["Paris, F", "Lyon, F", "Nice, F"], ["a;b", "c", "d"], [1, 2, 3]])
def test_class_labels_that_are_no_tags(y):
    assert code_of(y, check_y(np.array(y))).n_labels == 3


@given(st.data(), st.booleans())
@settings(derandomize=True, max_examples=25, deadline=None)
def test_labels_keep_their_positions_while_others_come_and_go(data, multilabel):
    classes = np.arange(0, 10, 2)
    code = LabelCode(classes, multilabel, True, np.int8, None)
    if data.draw(st.booleans()):
        code = code.reordered(np.array(data.draw(st.permutations(range(5)))))
    held = dict(zip(code.classes.tolist(), code.label_order.tolist()))
    most = 5
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()) and len(held) > 2:
            gone = data.draw(st.sets(st.sampled_from(sorted(held)), max_size=len(held) - 2))
            code = code.without_labels(code.ids_of(sorted(gone)))
            held = {name: at for name, at in held.items() if name not in gone}
        else:
            fresh = st.lists(st.integers(0, 99).filter(lambda n: n not in held), unique=True)
            names = data.draw(fresh.filter(len))
            code, positions = code.with_labels(names)
            held |= dict(zip(names, positions.tolist()))
        most = max(most, 1 + max(held.values()))
        assert dict(zip(code.classes.tolist(), code.label_order.tolist())) == held
        assert len(set(held.values())) == len(held)
        assert (code.n_positions or code.n_labels) == most
        assert multilabel or (np.diff(code.classes) > 0).all()
    Y = sp.random(7, code.n_labels, 0.4, "csr", random_state=0)
    moved = code.to_positions(Y)
    assert moved.shape == (7, most)
    np.testing.assert_array_equal(code.by_label(moved.toarray()), Y.toarray())
    np.testing.assert_array_equal(code.from_positions(moved).toarray(), Y.toarray())
    by_position = code.by_position(code.classes.astype(float), np.nan)
    np.testing.assert_array_equal(by_position[code.label_order], code.classes)
    assert code.n_first == 5


@pytest.mark.parametrize(
    "y", [[["a", "b"], []], [{"a"}, {"a", "b"}], pd.Series([["a"], ["a", "b"]]), [[1, 5], [3, 4]]]
)
def test_label_sets_after_class_labels_are_refused(y):
    names = LabelCode(np.array(["a", "b"]), False, False, np.dtype("U1"))
    with pytest.raises(ValueError, match="1-D class labels in the first fit and is label sets now"):
        names.read(y)


def test_lists_of_one_class_are_a_column_after_class_labels():
    names = LabelCode(np.array(["a", "b"]), False, False, np.dtype("U1"))
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        assert names.read([["b"], ["a"]]).indices.tolist() == [1, 0]


def test_classes_that_no_sample_has():
    y = np.array(["b", "a"])
    assert with_classes(y, []) is y
    assert with_classes(y, ["long name", "a"]).tolist() == ["b", "a", "long name"]
    objects = with_classes(y.astype(object), ["c"])
    assert objects.dtype == object
    Y = sp.csr_matrix(np.eye(2))
    assert with_classes(Y, ["c"]) is Y
    with pytest.raises(ValueError, match="labels like 'b', .* of another type, like 3"):
        with_classes(y, [3])
    flags = np.array([True, False, True])
    assert with_classes(flags, [1, 0]) is flags
    days = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    more = with_classes(days, [date(2021, 1, 1), date(2022, 1, 1)])
    np.testing.assert_array_equal(more, [*days, np.datetime64("2022-01-01")])


@pytest.mark.parametrize("known", [["a", "b"], [0, 1], np.array(["2020", "2021"], "M8[Y]")])
@pytest.mark.parametrize("y", [["c", "d"], [2, 3], np.array(["2022", "2023"], "M8[Y]")])
@pytest.mark.parametrize("as_objects", [False, True])
def test_class_labels_of_another_type_are_refused(known, y, as_objects):
    known, y = np.asarray(known), np.asarray(y)
    if as_objects and known.dtype.kind == "U":
        known = known.astype(object)
    what = "which is not one of the 2 classes known|other labels are of another type, like"
    with pytest.raises(ValueError, match=f"y holds the label .*{what}"):
        code_of(known, known).encode(y)


@pytest.mark.parametrize("multilabel", [False, True])
def test_added_integers_of_another_sign_stay_integers(multilabel):
    ids = 2**62 + np.arange(3, dtype=np.uint64)
    code = LabelCode(ids, multilabel, False, None)
    changed, positions = code.with_labels([7])
    assert changed.classes.dtype == np.uint64
    assert sorted(changed.classes.tolist()) == [7, *ids.tolist()]
    assert positions.tolist() == [3]
    assert LabelCode(ids.astype(np.int64), multilabel, False, None).with_labels([2**63 + 1])[
        0
    ].classes.tolist() == [*ids.tolist(), 2**63 + 1]
    with pytest.raises(ValueError, match="labels are integers from -1 to .*64 bits cannot hold"):
        code.with_labels([-1])[0].with_labels([2**63 + 1])
    assert code.ids_of([2**62 + 2, np.uint64(2**62)]).tolist() == [0, 2]


def test_integers_of_another_sign_are_the_same_classes():
    code = LabelCode(2**62 + np.arange(3, dtype=np.uint64), False, False, None)
    y = 2**62 + np.array([2, 0, 1])
    np.testing.assert_array_equal(code.encode(y).indices, [2, 0, 1])
    for unknown in (2**62 + 3, -1):
        with pytest.raises(ValueError, match=f"y holds the label {unknown}, which is not one"):
            code.encode(np.array([unknown, 2**62]))
    np.testing.assert_array_equal(with_classes(code.classes, [5]), [*code.classes.tolist(), 5])
    assert with_classes(code.classes, [5]).dtype == np.uint64
