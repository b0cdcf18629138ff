"""Rows that one of several processes reads, beside those of the whole batch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import BatchIterator, Rows, SparseRows
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shared_rows import SharedRows
from sklearn_xlc.distributed.sharing import SharedBatches

X = sp.random(7, 9, 0.4, format="csr", random_state=0)


def dense_of(rows):
    parts = rows.data.numpy(), rows.indices.numpy(), rows.indptr.numpy()
    return sp.csr_matrix(parts, shape=(len(rows), rows.n_features)).toarray()


@pytest.mark.parametrize("own", [slice(0, 3), slice(3, 7), slice(2, 2)])
def test_own_rows_and_those_of_the_batch(own):
    rows = SharedRows.of_batch(SparseRows.from_csr(X), own, [3, 4])
    for each in (rows, rows.to(torch.device("cpu"))):
        assert np.array_equal(dense_of(each), X.toarray()[own])
        assert np.array_equal(dense_of(each.whole), X.toarray())
        assert each.shares == [3, 4]
        assert each.outputs == []
    rows.transpose_now()
    copy = rows.to(torch.device("cpu"))
    assert "transpose" in vars(copy.whole)
    assert "transpose" not in vars(copy)


@pytest.mark.parametrize("in_bags", [False, True])
def test_processes_read_all_of_a_batch_together(in_bags):
    bags = np.array([0, 2, 3, 7]) if in_bags else None
    rows = Rows(X, sparse=True, bags=bags)
    n_samples = len(rows)
    device = torch.device("cpu")
    parts = []
    for rank in range(2):
        (batch,) = BatchIterator(rows, n_samples, None, device, SharedBatches(Processes(rank, 2)))
        inputs = batch.inputs.instances if in_bags else batch.inputs
        assert np.array_equal(dense_of(inputs.whole), X.toarray())
        assert len(inputs) == inputs.shares[rank]
        parts.append(dense_of(inputs))
        if in_bags:
            sizes = np.diff(bags)[Processes(rank, 2).part(n_samples)]
            assert batch.inputs.indptr.diff().tolist() == sizes.tolist()
            assert batch.inputs.indptr[0] == 0
    assert np.array_equal(np.vstack(parts), X.toarray())


def test_a_process_without_a_sample_reads_the_first():
    (batch,) = BatchIterator(
        Rows(X[:1], sparse=True), 1, None, torch.device("cpu"), SharedBatches(Processes(0, 2))
    )
    assert batch.own.n_samples == 0
    assert np.array_equal(dense_of(batch.inputs), X[:1].toarray())
    assert batch.inputs.shares == [0, 1]
