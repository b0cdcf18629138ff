"""Values of labels stay what they are in arrays, and labels that are none are named."""

import enum
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from sklearn_xlc import MultiHeadClassifier, explain_topk, label_report
from sklearn_xlc._checks import as_array, check_y
from sklearn_xlc._labels import as_objects, check_objects, missing_value, none_for_missing
from sklearn_xlc.serving import Answering


def test_strings_of_variable_width_are_classes():
    y = np.array(["a", "longer", "a"], dtype=np.dtypes.StringDType())
    assert check_y(y).tolist() == ["a", "longer", "a"]
    missing = np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None))
    with pytest.raises(ValueError, match=r"y\[1\] is None: every sample needs a class label"):
        check_y(missing)


def test_strings_are_not_looked_at_one_by_one(monkeypatch):
    monkeypatch.setattr("sklearn_xlc._labels.missing_value", None)
    check_objects(as_objects("ab"))
    names = np.array([["a", None], ["b", "a"]], dtype=object)
    assert none_for_missing(names).tolist() == names.tolist()


@pytest.mark.parametrize("values", [[], ["a", 2], [[1, 2], [3, 4]], [np.zeros(2), np.ones(2)]])
def test_sequences_stay_whole_in_an_array_of_objects(values):
    objects = as_objects(each for each in values)
    assert objects.dtype == object
    assert objects.shape == (len(values),)
    assert all(kept is value for kept, value in zip(objects, values))


#: NumPy takes str() of members, "Topic.SEA".
Topic = enum.Enum("Topic", {"SEA": "topic_sea", "SKY": "topic_sky"}, type=str)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([Topic.SKY, Topic.SEA], ["topic_sky", "topic_sea"]),
        (["a\0", "a"], ["a\0", "a"]),
        ([2**63 + 5, 3], [2**63 + 5, 3]),
        ([np.uint64(2**63 + 5), np.int64(3)], [2**63 + 5, 3]),
        ([np.uint64(5), np.int64(-3)], [5, -3]),
        (("a", "b"), ["a", "b"]),
        ([1.0, 2.0], [1.0, 2.0]),
    ],
)
def test_lists_of_labels_keep_their_values(labels, expected):
    for read in (check_y(labels), as_array(labels, "y")):
        assert read.tolist() == expected
        assert {*map(type, read.tolist())} == {*map(type, expected)}


@pytest.mark.parametrize("names", [[["a\0", "a"], ["b", "a"]], [["a", 2], ["2", "b"]]])
def test_nested_lists_of_labels_keep_their_values(names):
    for given in (names, tuple(map(tuple, names)), [*map(as_objects, names)]):
        assert as_array(given, "labels").tolist() == names


def test_integers_that_64_bits_cannot_hold_together_are_refused():
    with pytest.raises(ValueError, match="64 bits cannot hold all .*; convert them to str"):
        check_y([2**63 + 5, -3])


def test_times_in_nanoseconds_are_labels_and_no_integers():
    days = np.array(["2026-01-01", "2026-01-02"], "M8[ns]")
    X, y = np.eye(2).repeat(4, axis=0), days.repeat(4)
    for given in (y, list(y)):
        assert check_y(given).dtype == as_array(given, "y").dtype == "M8[us]"
    clf = MultiHeadClassifier(max_epochs=1, class_weight={pd.Timestamp(days[0]): 9.0}).fit(X, y)
    assert clf.classes_.tolist() == list(map(pd.Timestamp, days))
    assert (clf.predict(X) == y).mean() == clf.score(X, y)
    assert label_report(y, y[::-1]).to_frame().predicted_instead[0].startswith("2026-01-0")
    assert Answering(clf).label_sets(X)[0][0] in list(map(pd.Timestamp, days))
    assert explain_topk(clf, X[:1], labels=days[1:])[0] == days[1]
    days = np.append(days, days[:1] - np.timedelta64(1, "D"))
    clf.partial_fit(X[:1], days[2:], classes=days)
    assert clf.classes_.tolist() == sorted(map(pd.Timestamp, days))
    assert clf.remove_labels(days[:1]).classes_.tolist() == list(map(pd.Timestamp, days[[2, 1]]))
    fine = days + np.timedelta64(1, "ns")  # would be lost
    assert check_y(fine).dtype == fine.dtype


def test_times_that_microseconds_cannot_hold_are_named_in_later_calls():
    some = np.datetime64("2026-01-01", "ns") + np.array([0, 1, 10**9])  # two are whole
    X = np.eye(3).repeat(4, axis=0)
    clf = MultiHeadClassifier(max_epochs=1).fit(X, some.repeat(4))
    assert clf.remove_labels(some[2:]).classes_.tolist() == some[:2].tolist()


def test_classes_of_a_first_call_are_times_in_microseconds_too():
    days = np.array(["2026-01-01", "2026-01-02"], "M8[ns]")
    for classes in (days, list(days), pd.Index(days)):
        clf = MultiHeadClassifier().partial_fit(np.eye(2), days, classes=classes)
        assert clf.classes_.tolist() == list(map(pd.Timestamp, days))


def test_a_list_of_strings_is_copied_once():
    y = [f"label {i}" for i in range(50_000)]
    tracemalloc.start()
    try:
        found = check_y(y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == y
    assert peak < found.nbytes + 24 * len(y)  # objects, and the set in which they are compared


class Damaged(list):
    """A container whose text cannot be made, such as a matrix with indices beyond its ends."""

    def __repr__(self):
        raise AssertionError("asked for the text")


def test_a_container_is_not_asked_for_its_text():
    assert missing_value(Damaged()) is None
    assert [missing_value(each) for each in (None, np.nan, pd.NA, pd.NaT, "nan", 3)] == [
        *("None", "NaN", "<NA>", "NaT"),
        None,
        None,
    ]
