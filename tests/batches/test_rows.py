"""Batches: every row once, sparse or dense, and never the caller's memory."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import BatchIterator, Columns, Rows, collate, make_batch, n_batches
from sklearn_xlc.batches import rows as rows_module

CPU = torch.device("cpu")


def make_rows(sparse=False, n_rows=23, as_csr=True):
    X = sp.random(n_rows, 9, 0.3, format="lil", random_state=0)
    X[:, 0] = np.arange(n_rows)[:, None]  # names the row
    Y = sp.random(n_rows, 5, 0.4, format="csr", random_state=1)
    Y.data[:] = 1
    weight = np.arange(n_rows) + 0.5
    return Rows(sp.csr_matrix(X) if as_csr else X.toarray(), Y, weight, sparse)


def densify(batch):
    if isinstance(batch.inputs, torch.Tensor):
        return batch.inputs.numpy()
    rows = batch.inputs
    parts = (rows.data.numpy(), rows.indices.numpy(), rows.indptr.numpy())
    return sp.csr_matrix(parts, shape=(len(rows), rows.n_features)).toarray()


def targets(batch, n_labels=5):
    ids, indptr = batch.targets.ids.numpy(), batch.targets.indptr.numpy()
    parts = (np.ones(len(ids)), ids, indptr)
    return sp.csr_matrix(parts, shape=(len(batch), n_labels)).toarray()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5, 23, 100])
def test_batches_in_order_are_the_rows(batch_size, as_csr, sparse):
    rows = make_rows(sparse, as_csr=as_csr)
    batches = list(BatchIterator(rows, batch_size, None, CPU))
    assert len(batches) == len(BatchIterator(rows, batch_size, None, CPU)) == -(-23 // batch_size)
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    X = rows.X.toarray() if sp.issparse(rows.X) else rows.X
    np.testing.assert_array_equal(np.concatenate([densify(batch) for batch in batches]), X)
    found = np.concatenate([targets(batch) for batch in batches])
    np.testing.assert_array_equal(found, rows.Y.toarray())
    weights = np.concatenate([batch.sample_weight.numpy() for batch in batches])
    np.testing.assert_array_equal(weights, rows.sample_weight)


@pytest.mark.parametrize("sparse", [False, True])
def test_shuffled_batches_hold_every_row_once_with_its_labels_and_weight(sparse):
    rows = make_rows(sparse)
    iterator = BatchIterator(rows, 5, np.random.default_rng(0), CPU)
    orders = []
    for _ in range(2):
        X, Y, weight = [], [], []
        for batch in iterator:
            X.append(densify(batch))
            Y.append(targets(batch))
            weight.append(batch.sample_weight.numpy())
        order = np.concatenate(X)[:, 0].astype(int)
        np.testing.assert_array_equal(np.sort(order), np.arange(23))
        np.testing.assert_array_equal(np.concatenate(X), rows.X.toarray()[order])
        np.testing.assert_array_equal(np.concatenate(Y), rows.Y.toarray()[order])
        np.testing.assert_array_equal(np.concatenate(weight), rows.sample_weight[order])
        orders.append(order)
    assert not np.array_equal(*orders)
    again = BatchIterator(rows, 5, np.random.default_rng(0), CPU)
    first = np.concatenate([densify(batch)[:, 0] for batch in again])
    np.testing.assert_array_equal(first, orders[0])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [1, 60, 10**6])
def test_batches_do_not_depend_on_how_many_are_cut_at_once(sparse, entries, monkeypatch):
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", entries)
    for rows in (make_rows(sparse), replace(make_rows(sparse), sample_weight=None, Y=None)):
        alone = replace(rows, collate=collate)  # of a user: sees one batch at a time
        pairs = zip(*(BatchIterator(r, 4, np.random.default_rng(0), CPU) for r in (rows, alone)))
        for batch, other in pairs:
            assert len(batch) == len(other)
            np.testing.assert_array_equal(densify(batch), densify(other))
            if rows.Y is not None:
                np.testing.assert_array_equal(targets(batch), targets(other))
                assert torch.equal(batch.sample_weight, other.sample_weight)
            else:
                assert batch.targets is batch.sample_weight is None


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_are_kept(make, dtype):
    X = make(sp.random(4, 3, 0.5, random_state=0, dtype=dtype))
    for sparse in (False, True):
        inputs = make_batch(Rows(X, sparse=sparse)).inputs
        values = inputs.data if sparse else inputs
        assert values.dtype == getattr(torch, np.dtype(dtype).name)


def test_rows_without_labels_or_weights():
    batch = make_batch(Rows(np.ones((3, 2))))
    assert batch.targets is None
    assert batch.sample_weight is None
    assert len(batch) == 3
    assert not len(list(BatchIterator(Rows(np.ones((0, 2))), 4, None, CPU)))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("writable", [False, True])
def test_a_dense_batch_is_not_the_memory_of_the_caller(order, writable):
    X = np.asarray(np.arange(12.0).reshape(4, 3), order=order)
    X.flags.writeable = writable
    kept = X.copy()
    for index in (slice(0, 2), slice(0, 4), np.array([2, 0])):
        batch = make_batch(Rows(X).take(index))
        batch.inputs.zero_()
        np.testing.assert_array_equal(X, kept)


def test_take_keeps_what_belongs_together():
    rows = make_rows(sparse=True)
    part = rows.take(np.array([7, 3]))
    assert part.sparse
    np.testing.assert_array_equal(part.X.toarray()[:, 0], [7, 3])
    np.testing.assert_array_equal(part.Y.toarray(), rows.Y.toarray()[[7, 3]])
    np.testing.assert_array_equal(part.sample_weight, [7.5, 3.5])


def test_batches_move():
    batch = make_batch(make_rows(sparse=True))
    assert batch.to(CPU) is batch
    moved = batch.to(torch.device("meta"))
    tensors = [moved.inputs.data, moved.targets.ids, moved.sample_weight]
    assert all(tensor.is_meta for tensor in tensors)


def test_mostly_empty_rows_become_csr_once():
    X = np.where(np.random.default_rng(0).random((9, 7)) < 0.8, 0, 2.5)
    X[2], X[3, 3] = 0, -0.0
    rows, expected = Rows(X, sparse=True), sp.csr_matrix(X)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(rows.X, name), getattr(expected, name))
    np.testing.assert_array_equal(Rows(np.asfortranarray(X), sparse=True).X.toarray(), X)
    assert rows.take(slice(2, 5)).X.shape == (3, 7)
    assert Rows(rows.X, sparse=True).X is rows.X
    assert isinstance(Rows(np.eye(9)).X, np.ndarray)


@pytest.mark.parametrize(
    "X, seen",
    [
        (np.array(["a", "b", "c"], dtype=object), ["c", "a"]),
        (Columns({"n": [1, 2, 3]}), {"n": np.array([3, 1])}),
    ],
    ids=["text", "mapping"],
)
def test_other_samples_reach_the_encoder_s_collate(X, seen):
    def keep(samples):
        return samples

    batch = make_batch(Rows(X, collate=keep).take(np.array([2, 0])))
    assert batch.inputs == seen if isinstance(seen, list) else list(batch.inputs) == ["n"]
    assert len(batch) == 2
    if isinstance(seen, dict):
        np.testing.assert_array_equal(batch.inputs["n"], seen["n"])


def test_bags_are_taken_whole():
    rows = Rows(np.arange(6.0)[:, None], bags=np.array([0, 1, 4, 6]))
    assert len(rows) == 3
    part = rows.take(np.array([2, 0]))
    np.testing.assert_array_equal(part.X[:, 0], [4, 5, 0])
    np.testing.assert_array_equal(part.bags, [0, 2, 3])
    batch = make_batch(part)
    assert len(batch) == len(batch.inputs) == 2
    assert batch.inputs.owner.tolist() == [0, 0, 1]


@pytest.mark.parametrize("n_rows", [1, 2, 5, 6, 7, 11])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 20])
def test_no_sample_is_left_over_alone(n_rows, batch_size):
    sizes = [len(b) for b in BatchIterator(Rows(np.ones((n_rows, 2))), batch_size, None, CPU)]
    assert sum(sizes) == n_rows
    assert len(sizes) == n_batches(n_rows, batch_size)
    assert set(sizes[:-1]) <= {batch_size}
    assert sizes[-1] <= batch_size + (batch_size > 1)
    assert 1 not in sizes or 1 in (n_rows, batch_size)


def test_selected_rows_are_those_taken_without_a_copy_of_X():
    rows = make_rows(sparse=True)
    first, second = np.arange(20, 3, -1), np.array([4, 0, 9])
    chosen = rows.select(first).select(second)
    assert chosen.X is rows.X
    taken = rows.take(first).take(second)
    assert len(chosen) == chosen.n_instances == len(taken) == 3
    for index in (slice(0, 2), slice(0, 3), np.array([2, 0])):
        one, two = (part.take(index) for part in (chosen, taken))
        assert one.members is None
        np.testing.assert_array_equal(one.X.toarray(), two.X.toarray())
        np.testing.assert_array_equal(one.Y.toarray(), two.Y.toarray())
        np.testing.assert_array_equal(one.sample_weight, two.sample_weight)
    for as_csr, bags in ((False, None), (True, np.arange(24))):  # these are copied
        rows = make_rows(as_csr=as_csr)
        rows.bags = bags
        part = rows.select(first)
        assert part.members is None
        np.testing.assert_array_equal(part.Y.toarray(), rows.Y.toarray()[first])


def test_zeros_are_counted_in_the_rows_of_the_samples():
    X = sp.csr_matrix(np.where(np.arange(40)[:, None] < 4, 1.0, np.eye(40)))
    rows = Rows(X)
    assert not rows.is_mostly_zeros()
    assert rows.select(np.arange(4, 40)).is_mostly_zeros()
    assert not rows.select(np.arange(8)).is_mostly_zeros()


def test_columns_occur_in_the_rows_of_the_samples():
    X = sp.csr_matrix(np.eye(5000, 7, k=-3) + np.eye(5000, 7, k=-4990))
    for chosen in ([], [1], [3, 4], [5, 4995], np.arange(4999, 1, -1)):
        expected = X.toarray()[np.asarray(chosen, dtype=int)].any(axis=0)
        found = Rows(X).select(np.asarray(chosen, dtype=int)).occurring_columns()
        np.testing.assert_array_equal(found, expected)
    assert Rows(X).occurring_columns().all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_counts_are_told_from_other_numbers(form, monkeypatch):
    X = np.zeros((40, 100))
    X[::2, ::9] = 3
    assert Rows(form(X)).holds_counts()
    assert Rows(form(X > 0)).holds_counts()
    assert Rows(form(X.astype(np.int32))).holds_counts()
    monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", 16)
    assert Rows(form(X)).holds_counts()
    for other in (-X, X - np.eye(40, 100)):
        assert not Rows(form(other)).holds_counts()
    X[38, 9] = 0.5
    assert not Rows(sp.csr_matrix(X)).holds_counts()
    assert not Rows(X).holds_counts()
    assert not Rows(np.array(["1", "2"], dtype=object)).holds_counts()
