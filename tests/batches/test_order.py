"""The order of a pass: every sample once, a pure function of the seed, near each other if many."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import BatchIterator, Rows, order
from sklearn_xlc.batches.order import regrouped, shuffled


@pytest.fixture
def many(monkeypatch):
    """Few entries are many: blocks of 5 samples of 4 entries, 3 of them mixed."""
    monkeypatch.setattr(order, "MANY_ENTRIES", 50)
    monkeypatch.setattr(order, "_BLOCK", 20)
    monkeypatch.setattr(order, "_TOGETHER", 3)


def test_few_entries_are_shuffled_whole():
    (found,) = shuffled(50, 200, np.random.default_rng(3))
    np.testing.assert_array_equal(found, np.random.default_rng(3).permutation(50))


@pytest.mark.parametrize("n_samples", [13, 15, 47, 60])
def test_every_sample_comes_once_beside_its_neighbours(many, n_samples):
    pieces = list(shuffled(n_samples, 4 * n_samples, np.random.default_rng(0)))
    assert len(pieces) == -(-n_samples // 15)
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), np.arange(n_samples))
    for piece in pieces:
        assert len(np.unique(piece // 5)) <= 3
        assert len(piece) < 6 or (np.diff(piece) != 1).any()
    again = shuffled(n_samples, 4 * n_samples, np.random.default_rng(0))
    for piece, other in zip(pieces, again, strict=True):
        np.testing.assert_array_equal(piece, other)


def test_samples_with_more_entries_than_a_block(many):
    pieces = list(shuffled(7, 700, np.random.default_rng(0)))
    assert [len(piece) for piece in pieces] == [3, 3, 1]


def test_passes_differ_and_draw_before_the_first_sample(many):
    rng = np.random.default_rng(0)
    first = shuffled(60, 240, rng)
    one = next(first)
    state = rng.bit_generator.state
    rest = list(first)
    assert rng.bit_generator.state == state
    two = np.concatenate(list(shuffled(60, 240, rng)))
    assert (np.concatenate([one, *rest]) != two).any()


@pytest.mark.parametrize("sizes", [[1] * 10, [10], [3, 3, 4], [7, 3]])
def test_regrouped(sizes):
    pieces = iter(np.split(np.arange(10), [2, 2, 7]))
    found = list(regrouped(pieces, sizes))
    assert [len(piece) for piece in found] == sizes
    np.testing.assert_array_equal(np.concatenate(found), np.arange(10))


@pytest.mark.parametrize("members", [None, np.arange(1, 60, 2)])
@pytest.mark.parametrize("sparse", [True, False])
def test_batches_hold_every_row_once_with_its_label(many, members, sparse):
    X = sp.csr_matrix(np.arange(1.0, 61)[:, None] * np.ones(4))
    Y = sp.csr_matrix(np.eye(60))
    chosen = np.arange(60) if members is None else members
    rows = Rows(X, Y[chosen], sparse=sparse, members=members)
    values, labels = [], []
    for batch in BatchIterator(rows, 7, np.random.default_rng(0), torch.device("cpu")):
        inputs = batch.inputs.data.reshape(-1, 4) if sparse else batch.inputs
        values += inputs[:, 0].tolist()
        labels += batch.targets.ids.tolist()
    assert sorted(labels) == chosen.tolist()
    assert [value - 1 for value in values] == labels
    assert labels != sorted(labels)
    assert len({label // 5 for label in labels[:7]}) <= (3 if members is None else 6)
