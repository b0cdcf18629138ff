"""What would not come back from a file is refused by name, before anything is written."""

import enum
import re
from collections import deque

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from _factories import quick
from sklearn_xlc import load, save


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


class Colour(enum.Enum):
    RED = 1


class Given:
    """An object that needs an argument to be made."""

    def __new__(cls, value):
        made = super().__new__(cls)
        made.value = value
        return made


class Own:
    """An object of the user with others in it."""

    def __init__(self, value):
        self.value = value

    def __call__(self, text):
        return text.split()


LOST = {
    "NA": pd.NA,
    "NaT": pd.NaT,
    "date": pd.Timestamp("2020-01-01"),
    "span": pd.Timedelta("1s"),
    "series": pd.Series([1.0, 2.0]),
    "pattern": re.compile("a"),
    "enum": Colour.RED,
    "argument": Given(1),
    "entries": deque([1]),
}


@pytest.mark.parametrize("value", LOST.values(), ids=LOST)
def test_what_would_not_come_back_is_refused_by_name(value, path):
    path.write_bytes(b"what was there")
    message = r"cannot be saved: class_weight\S* is an object of .*, which no file brings back"
    with pytest.raises(TypeError, match=message):
        save(quick("flat").set_params(class_weight=value), path)
    with pytest.raises(TypeError, match=r"class_weight\.a\[1\]\S* is an object of "):
        save(quick("flat").set_params(class_weight={"a": [3, value]}), path)
    assert path.read_bytes() == b"what was there"
    assert [*path.parent.iterdir()] == [path]


def test_names_of_labels_that_would_not_come_back_are_refused(path):
    names = [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")]
    y = pd.DataFrame(np.eye(2, dtype=int)[np.arange(20) % 2], columns=names)
    clf = quick("flat", max_epochs=1).fit(np.eye(20), y)
    with pytest.raises(TypeError, match=r"classes_\[0\] is an object of pandas.*Timestamp"):
        save(clf, path)
    assert not path.exists()


def test_parameters_of_steps_are_refused_by_name(path):
    pipeline = make_pipeline(SimpleImputer(missing_values=pd.NA), quick("flat"))
    with pytest.raises(TypeError, match=r"steps\[0\]\[1\]\.missing_values is an object of pandas"):
        save(pipeline, path)


@pytest.mark.parametrize(
    "value",
    [Own({"a": [1, (None, Own("b"))]}), [Own(3), Own(4)], Own(np.arange(3)), {"a": 1}, [1, 2.5]],
)
def test_objects_of_the_user_that_come_back_are_saved(value, path):
    save(quick("flat").set_params(class_weight=value), path)
    assert type(load(path, trusted=[Own]).class_weight) is type(value)


def test_an_object_that_is_elsewhere_in_the_file_is_no_reason_to_refuse(path):
    shared = Own([1])
    clf = quick("flat").set_params(class_weight=shared, callbacks=[Own(shared)])
    save(clf, path)
    loaded = load(path, trusted=[Own])
    assert loaded.callbacks[0].value is loaded.class_weight
