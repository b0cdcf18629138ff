"""The walk meets each object once, wherever it is held; loosely, it compares what is equal."""

import pickle

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from torch import nn

from sklearn_xlc.engine.object_tree import describe, rebuild


class Own(nn.Module):
    pass


def test_what_is_shared_stays_shared_and_may_hold_itself():
    array = np.arange(3)
    holder = {"one": array, "other": [array], "scaler": StandardScaler()}
    holder["self"] = holder
    holder["scaler"].friend = holder["scaler"]
    made = rebuild(*describe(holder))
    assert made["one"] is made["other"][0]
    assert made["self"] is made
    assert made["scaler"].friend is made["scaler"]
    assert len(describe(holder)[1]) == 1


def test_a_tuple_that_holds_itself_is_refused():
    value = ([],)
    value[0].append(value)
    with pytest.raises(TypeError, match=r"cannot save at\[0\]\[0\]: a tuple that holds itself"):
        describe(value, name="at")


def test_arrays_have_names_of_their_own():
    # Keys that look alike: the second array gets another name.
    arrays = describe({"a": {"b": np.zeros(1)}, "a['b']": np.ones(1)}, name="at")[1]
    assert list(arrays) == ["at['a']['b']", "at[\"a['b']\"]"]
    value = {1: np.zeros(1), np.int64(2): np.ones(1), "x": [np.zeros(2)]}
    assert len(describe(value)[1]) == 3


def test_loose_descriptions_are_equal_after_pickling():
    array = np.arange(3.0)
    value = {"a": [array, array], "s": {"x", "y", "z"}, "f": lambda: 0, "m": Own()}
    pickled = {**value, "f": None, "m": None}
    document, arrays = describe(pickle.loads(pickle.dumps(pickled)), strict=False)
    expected, _ = describe(pickled, strict=False)
    assert document == expected
    assert len(arrays) == 2
    loose, _ = describe(value, strict=False)
    assert loose["root"]["items"]["m"]["class"].endswith("Own")  # a class of the user's
    value["a"].append(value)
    assert describe(value, strict=False)[0]["root"]["items"]["a"]["items"][2] == {"is": "same"}
