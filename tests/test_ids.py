"""Ids of samples: positions, entries of an index, strings of all others; packed strings."""

import datetime
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest

from sklearn_xlc._ids import as_ids, compare_indexes, ids_of, in_order, packed, unpacked


@pytest.mark.parametrize(
    "given, expected",
    [
        ([3, 1], [3, 1]),
        (np.array([3, 1], dtype=np.int32), [3, 1]),
        (pd.Index([7, 5]), [7, 5]),
        ([np.int64(3), 1], [3, 1]),
        ([np.int64(3), np.str_("b")], [3, "b"]),
        (np.int64(3), [3]),
        (["a", "b"], ["a", "b"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (pd.Index(["a", 2]), ["a", 2]),
        (pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), ["('a', 1)", "('b', 2)"]),
        ([datetime.date(2026, 5, 1)], ["2026-05-01"]),
        ([1.5], ["1.5"]),
        ("abc", ["abc"]),
        (b"p7", ["b'p7'"]),  # not the numbers of its bytes
        (4, [4]),
        ({"b"}, ["b"]),
        ([], []),
    ],
)
def test_integers_and_strings_stay(given, expected):
    ids = as_ids(given)
    assert ids.tolist() == expected
    assert ids.dtype == (np.int64 if all(isinstance(each, int) for each in expected) else object)


def test_the_first_index_of_one_s_own_names_samples():
    default, of_others = pd.RangeIndex(3), pd.Index([4, 5, 6, 7])
    assert ids_of(3, 0).tolist() == [0, 1, 2]
    assert ids_of(3, 10, None, default).tolist() == [10, 11, 12]
    assert ids_of(3, 10, of_others).tolist() == [10, 11, 12]  # of instances, not of bags
    assert ids_of(3, 10, default, pd.Index(list("abc"))).tolist() == ["a", "b", "c"]
    assert ids_of(3, 10, pd.Index([9, 8, 7]), pd.Index(list("abc"))).tolist() == [9, 8, 7]
    assert ids_of(3, 0, pd.RangeIndex(6)[3:]).tolist() == [3, 4, 5]
    assert ids_of(3, 0, pd.RangeIndex(6)[::2]).tolist() == [0, 2, 4]


def test_strings_are_packed_and_unpacked():
    names = as_ids(["a", "", "änd", "\ud800"])
    plain = packed(names)
    assert plain["ends"].tolist() == [1, 1, 5, 8]
    np.testing.assert_array_equal(unpacked(plain), names)
    for other in (np.arange(3), as_ids([1, "a"]), "a", {"a": 1}, as_ids([]), None):
        assert packed(other) is other
        assert unpacked(other) is other


@pytest.mark.parametrize("ends", [[1, 5], [2, 1, 3], [-1, 3]])
def test_strings_that_do_not_fit_are_refused(ends):
    plain = {"utf8": np.frombuffer(b"abc", np.uint8), "ends": np.array(ends)}
    with pytest.raises(ValueError, match="do not fit together"):
        unpacked(plain)


def test_a_series_in_the_order_of_labels():
    series = pd.Series([1, 2], ["b", "a"])
    assert in_order(series, np.array(["a", "b"], dtype=object), "counts").tolist() == [2, 1]
    assert in_order(pd.Series([1, 2], [True, False]), [False, True], "counts").tolist() == [2, 1]
    assert in_order(series, None, "counts") is series
    assert in_order([1, 2], [1, 0], "counts") == [1, 2]
    by_place = pd.Series([1, 2])
    assert in_order(by_place, [1, 2], "counts") is by_place


@pytest.mark.parametrize("index", [["a", "x"], ["a"], [3, 4]])
def test_a_series_that_lacks_a_label_is_refused(index):
    series = pd.Series(1, index)
    with pytest.raises(ValueError, match="the index of counts lacks the label '[ab]'"):
        in_order(series, ["a", "b"], "counts")


def test_a_series_may_hold_further_labels_but_none_twice():
    series = pd.Series([1, 2, 3], ["b", "x", "a"])
    assert in_order(series, ["a", "b"], "counts").tolist() == [3, 1]
    for index in (["a", "a"], ["a", "b", "a"]):
        with pytest.raises(ValueError, match="the index of counts holds 'a' twice"):
            in_order(pd.Series(1, index), ["a", "b"], "counts")


def test_every_second_number_is_no_default_index():
    series = pd.Series([1, 2], pd.RangeIndex(0, 4, 2))
    assert in_order(series, [2, 0], "counts").tolist() == [2, 1]
    with pytest.raises(ValueError, match="of counts lacks the label 1"):
        in_order(series, [0, 1], "counts")


def test_indexes_of_any_two_types_are_compared():
    n = 6
    indexes = [
        pd.Index([n - i for i in range(n)]),
        pd.Index([f"a{i}" for i in range(n)]),
        pd.Index([np.nan, np.nan, *map(float, range(n - 2))]),
        pd.Index([i if i % 2 else str(i) for i in range(n)]),
        pd.MultiIndex.from_product([range(2), list("abc")]),
        pd.date_range("2026-01-01", periods=n),
        pd.date_range("2026-01-01", periods=n, tz="UTC"),
        pd.interval_range(0, n),
        pd.CategoricalIndex([f"b{i}" for i in range(n)]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one, other in itertools.product(indexes, indexes):
            compare_indexes(one, other)
    for index in indexes[:2] + indexes[3:]:
        with pytest.warns(UserWarning, match="the same index in different orders"):
            compare_indexes(index, index[::-1])
