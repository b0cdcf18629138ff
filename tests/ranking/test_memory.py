"""What a ranker remembers: samples joined, taken, forgotten, with other labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc._ids import as_ids
from sklearn_xlc.ranking.memory import joined, taken, with_labels, without


def remembered(ids, start):
    n = len(ids)
    X = np.arange(start, start + 2 * n, dtype=float).reshape(n, 2)
    samples = {"input": sp.csr_array(X), "features": X + 1, "ids": as_ids(ids)}
    labels = sp.csr_array((np.arange(n)[:, None] + np.arange(3)) % 2)
    return {"samples": samples, "labels": labels, "weights": np.arange(1.0, n + 1)}


def check(memory, ids):
    assert memory["samples"]["ids"].tolist() == ids
    assert {X.shape[0] for X in memory["samples"].values()} == {len(ids)}
    assert memory["labels"].shape[0] == len(memory["weights"]) == len(ids)


def test_samples_are_joined_and_taken():
    one, two = remembered([4, 7], 0), remembered(["a", "b", "c"], 10)
    both = joined(one, two)
    check(both, [4, 7, "a", "b", "c"])
    assert both["samples"]["features"][:, 0].tolist() == [1, 3, 11, 13, 15]
    assert both["samples"]["input"].toarray()[:, 0].tolist() == [0, 2, 10, 12, 14]
    last = taken(both, slice(3, None))
    check(last, ["b", "c"])
    assert last["weights"].tolist() == [2, 3]
    np.testing.assert_array_equal(last["labels"].toarray(), two["labels"].toarray()[1:])


def test_samples_are_forgotten_by_their_ids():
    memory = remembered([4, 7, 4, 9], 0)
    check(without(memory, [4]), [7, 9])  # all that have the id
    check(without(memory, 9), [4, 7, 4])
    check(without(memory, []), [4, 7, 4, 9])
    check(without(memory, [9, 4, 7]), [])
    with pytest.raises(ValueError, match=r"not remembered: \[5, 'x'\]"):
        without(memory, [7, "x", 5])
    check(memory, [4, 7, 4, 9])


def test_labels_move_and_go():
    memory = remembered([0, 1], 0)
    found = with_labels(memory, np.array([2, -1, 1]))["labels"].toarray()
    before = memory["labels"].toarray()
    np.testing.assert_array_equal(found[:, [0, 2]], before[:, [2, 1]])
    assert not found[:, 1].any()
