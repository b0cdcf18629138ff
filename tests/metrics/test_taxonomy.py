"""Ancestors by brute force, chains of any depth, and cycles."""

import re
from graphlib import TopologicalSorter

import numpy as np
import pandas as pd
import pytest

from sklearn_xlc.metrics import _taxonomy, ancestors_of, pairs_with_ancestors, plain_parents


def climb(parents, label):
    """All ancestors, one step after the other."""
    found, todo = set(), [label]
    while todo:
        for above in parents.get(todo.pop(), ()):
            if above not in found:
                found.add(above)
                todo.append(above)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_all_ancestors(seed):
    rng = np.random.default_rng(seed)
    parents = {
        i: rng.choice(i, rng.integers(min(i, 3) + 1), replace=False).tolist() for i in range(15)
    }
    found = ancestors_of(parents)
    assert {label: set(above) for label, above in found.items()} == {
        label: climb(parents, label) for label in parents
    }
    labels = rng.permutation(12)
    expected = [(i, j) for i, a in enumerate(labels) for j, b in enumerate(labels) if b in found[a]]
    np.testing.assert_array_equal(pairs_with_ancestors(found, labels), expected)


def test_forms_of_parents():
    found = ancestors_of({"a": "bc", "d": ("a",), "e": {"d"}, "f": None, "g": []})
    assert {label: sorted(above) for label, above in found.items()} == {
        "bc": [],
        "a": ["bc"],
        "d": ["a", "bc"],
        "e": ["a", "bc", "d"],
        "f": [],
        "g": [],
    }


def test_a_deep_chain():
    found = ancestors_of({i: i + 1 for i in range(2000)})
    assert len(found[0]) == 2000


@pytest.mark.parametrize(
    "parents, error, message",
    [
        ([("a", "b")], TypeError, "parents must be a dict of a label to its parent or parents"),
        ({"a": 1.5}, TypeError, r"parents['a'] must be a label, or a list of labels"),
        ({"a": [["b"]]}, TypeError, r"parents['a'] must be a label, or a list of labels"),
        ({True: "b"}, TypeError, r"parents[True] must be a label"),
        ({"a": "a"}, ValueError, "parents has a cycle: 'a' -> 'a'"),
    ],
)
def test_bad_parents(parents, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ancestors_of(parents)


def test_a_cycle_is_named_from_child_to_parent():
    with pytest.raises(ValueError, match="cycle") as raised:
        ancestors_of({"a": "b", "b": ["x", "c"], "c": "a"})
    around = re.findall("'(.)'", str(raised.value))
    assert around[0] == around[-1]
    assert all({"a": "b", "b": "c", "c": "a"}[x] == y for x, y in zip(around, around[1:]))


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NA, pd.NaT], ids=repr)
def test_missing_parents_are_none(missing):
    expected = ancestors_of({"a": "b", "b": None})
    assert ancestors_of({"a": "b", "b": missing}) == expected
    assert ancestors_of({"a": ["b", missing], "b": [missing]}) == expected
    assert ancestors_of(pd.Series(["b", missing], ["a", "b"])) == expected


def test_parents_in_a_series():
    expected = ancestors_of({"a": ["b", "c"], "b": "c"})
    assert ancestors_of(pd.Series(["b", "c", "c"], ["a", "a", "b"])) == expected
    assert ancestors_of(pd.Series([["b", "c"], "c"], ["a", "b"])) == expected
    assert plain_parents(pd.Series(["b", None], ["a", "b"])) == {"a": ["b"], "b": []}
    numbers = pd.Series([2, np.nan, 3.0], [1, 3, 2])  # of floats
    found = ancestors_of(numbers)
    assert found == ancestors_of({1: 2, 2: 3, 3: None})
    assert {*map(type, found[1])} == {int}


@pytest.mark.parametrize("parents", [["a", "b"], None, "a", 5, pd.DataFrame({"a": ["b"]})], ids=str)
def test_other_forms_of_parents_are_refused(parents):
    message = r"such as {'cat': 'animal'}, or a series with the labels in its index, got a \w+"
    with pytest.raises(TypeError, match=message):
        ancestors_of(parents)


def test_the_same_parents_are_closed_once(monkeypatch):
    sorts = []

    def sorter(graph):
        sorts.append(graph)
        return TopologicalSorter(graph)

    monkeypatch.setattr(_taxonomy, "TopologicalSorter", sorter)
    parents = {"once": ["twice"], "twice": ["thrice"]}
    found = ancestors_of(parents)
    found.clear()  # the caller's own
    assert ancestors_of(dict(parents)) == {
        "once": {"twice", "thrice"},
        "twice": {"thrice"},
        "thrice": set(),
    }
    assert len(sorts) == 1
    parents["twice"].clear()  # changed in place
    assert ancestors_of(parents)["once"] == {"twice"}
    assert len(sorts) == 2
