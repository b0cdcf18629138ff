"""What a ranker remembers: samples joined, taken, forgotten, with other labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc._ids import as_ids
from sklearn_xlc.ranking.memory import joined, last, taken, with_labels, without


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
    for end in (taken(both, slice(3, None)), last(both, 2)):
        check(end, ["b", "c"])
        assert end["weights"].tolist() == [2, 3]
        np.testing.assert_array_equal(end["labels"].toarray(), two["labels"].toarray()[1:])


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_a_batch_of_another_form_takes_that_of_the_samples_before(form):
    memories = [remembered([0, 1], 0), remembered([2], 10)]
    dense = [memory["samples"]["input"].toarray() for memory in memories]
    memories[0]["samples"]["input"] = form(dense[0])
    memories[1]["samples"]["input"] = dense[1] if form is sp.csr_array else sp.csr_array(dense[1])
    found = joined(*memories)["samples"]["input"]
    assert sp.issparse(found) == (form is sp.csr_array)
    np.testing.assert_array_equal(sp.csr_array(found).toarray(), np.concatenate(dense))


def arrays(memory):
    return {**memory["samples"], "labels": memory["labels"], "weights": memory["weights"]}


def check_equal(memory, parts):
    """Compare with the parts, one below the other."""
    for name, found in arrays(memory).items():
        every = [arrays(part)[name] for part in parts]
        if sp.issparse(found):
            found.check_format(full_check=True)
            found, every = found.toarray(), [each.toarray() for each in every]
        np.testing.assert_array_equal(found, np.concatenate(every))


def stored(memory):
    """All arrays, those of CSR matrices, too, but for the ends of rows."""
    for each in arrays(memory).values():
        yield from (each.data, each.indices) if sp.issparse(each) else (each,)


def test_a_window_moves_over_many_batches():
    memory, parts, n_copied = remembered(range(40), 0), [remembered(range(40), 0)], 0
    for start in range(40, 400, 3):
        parts.append(remembered(range(start, start + 3), start))
        before, memory = memory, last(joined(memory, parts[-1]), 40)
        shared = [np.shares_memory(*pair) for pair in zip(stored(before), stored(memory))]
        n_copied += not all(shared)
    whole = parts[0]
    for part in parts[1:]:
        whole = joined(whole, part)
    check_equal(whole, parts)
    check_equal(memory, [taken(whole, slice(-40, None))])
    assert 0 < n_copied < 120  # a copy of 40 samples has room for 5


def test_memories_that_grow_from_one_do_not_meet():
    base = joined(remembered(range(80), 0), remembered([80], 80))
    parts = [remembered(range(80), 0), remembered([80], 80)]
    more = [remembered([i, i + 1], i) for i in range(100, 130, 10)]
    found = [joined(base, each) for each in more]
    again = joined(found[0], more[1])
    for memory, each in zip(found, more):
        check_equal(memory, [*parts, each])
    check_equal(again, [*parts, more[0], more[1]])
    check_equal(base, parts)
    check_equal(joined(last(base, 0), more[0]), more[:1])
    nothing = last(base, 0)
    check_equal(joined(joined(joined(nothing, nothing), nothing), more[0]), more[:1])


def test_samples_are_forgotten_by_their_ids():
    memory = remembered([4, 7, 4, 9], 0)
    check(without(memory, [4]), [7, 9])  # all that have the id
    check(without(memory, 9), [4, 7, 4])
    check(without(memory, []), [4, 7, 4, 9])
    check(without(memory, [9, 4, 7]), [])
    with pytest.raises(ValueError, match=r"not remembered: \[5, 'x'\]; .*, such as \[4\]"):
        without(memory, [7, "x", 5])
    check(memory, [4, 7, 4, 9])


def test_labels_move_and_go():
    memory = remembered([0, 1], 0)
    found = with_labels(memory, np.array([2, -1, 1]))["labels"].toarray()
    before = memory["labels"].toarray()
    np.testing.assert_array_equal(found[:, [0, 2]], before[:, [2, 1]])
    assert not found[:, 1].any()
