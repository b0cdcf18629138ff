"""CSR batches: tensors of the matrix, and its transpose when asked for."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import SparseRows, sparse_rows
from sklearn_xlc.batches.sparse_rows import sparse_gradient, stable_sort
from sklearn_xlc.encoders import MLP


def make_csr(n_rows=6, n_columns=30, density=0.1, dtype=np.float64):
    X = sp.random(n_rows, n_columns, density, format="lil", dtype=dtype, random_state=0)
    X[2] = 0
    return X.tocsr()


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_from_csr(make, dtype):
    X = make_csr(dtype=dtype)
    rows = SparseRows.from_csr(make(X))
    assert len(rows) == 6
    assert rows.n_features == 30
    assert rows.data.dtype == getattr(torch, np.dtype(dtype).name)
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(X, name))
    assert rows.indptr.dtype == rows.indices.dtype == torch.int64


@pytest.mark.parametrize("density", [0.0, 0.1, 0.9])
def test_transpose(density):
    X = make_csr(density=density)
    rows = SparseRows.from_csr(X)
    transpose = rows.transpose
    np.testing.assert_array_equal(transpose.columns, np.unique(X.indices))
    parts = (transpose.data.numpy(), transpose.indices.numpy(), transpose.indptr.numpy())
    by_column = sp.csr_matrix(parts, shape=(len(transpose.columns), 6))
    np.testing.assert_array_equal(by_column.toarray(), X.toarray().T[transpose.columns])
    assert by_column.has_sorted_indices  # samples ascend: sums have the order of a dense product
    assert {t.dtype for t in transpose[:3]} == {torch.int64}
    assert rows.transpose is transpose


def test_copies_to_a_device():
    moved = SparseRows.from_csr(make_csr()).to(torch.device("meta"))
    assert all(t.is_meta for t in (moved.indptr, moved.indices, moved.data))
    assert moved.n_features == 30


def test_prediction_and_validation_never_build_the_transpose(monkeypatch):
    X, y = make_csr(60, density=0.05), np.arange(60) % 3
    built = []
    transpose = SparseRows.transpose.func

    def counted(rows):
        built.append(len(rows))
        return transpose(rows)

    monkeypatch.setattr(SparseRows, "transpose", property(counted))
    clf = MultiHeadClassifier(
        encoder=MLP((4,)), batch_size=15, max_epochs=2, early_stopping=True, random_state=0
    ).fit(X, y)
    assert sum(built) == 2 * 54  # once a step; never for held-out samples
    built.clear()
    clf.predict(X), clf.predict_topk(X, k=2), clf.transform(X), clf.decision_function(X)
    assert not built


@pytest.mark.parametrize("n_columns", [30, 5000])
@pytest.mark.parametrize("density", [0.0, 0.002, 0.3])
def test_batches_cut_together_are_transposed_as_each_alone(n_columns, density):
    X = make_csr(14, n_columns, density)
    edges = [0, 5, 6, 6, 14]
    parts = SparseRows.from_csr(X).split(np.diff(edges).tolist())
    for part, start, stop in zip(parts, edges, edges[1:], strict=False):
        alone = SparseRows.from_csr(X[start:stop])
        assert len(part) == stop - start
        for name in ("indptr", "indices", "data"):
            assert torch.equal(getattr(part, name), getattr(alone, name))
        for one, other in zip(part.transpose, alone.transpose, strict=True):
            assert torch.equal(one, other)
            assert one.dtype == other.dtype


def test_integers_are_sorted_stably():
    values = torch.randint(0, 2**40, (1000,), generator=torch.Generator().manual_seed(0)) // 2**37
    for some in (values, values[:0], values[:1]):
        found, order = stable_sort(some)
        expected = some.sort(stable=True)
        assert torch.equal(found, expected.values)
        assert torch.equal(order, expected.indices)


@pytest.mark.parametrize("distinct", [False, True])
def test_sparse_gradient(distinct):
    rows, values = torch.tensor([1, 3]), torch.arange(4.0).view(2, 2)
    made = sparse_gradient(rows, values, (5, 2), distinct)
    assert made.is_coalesced() == distinct
    expected = torch.zeros(5, 2).index_add(0, rows, values)
    assert torch.equal(made.to_dense(), expected)
    assert torch.equal(sparse_gradient(rows[[0, 0]], values, (5, 2)).to_dense()[1], values.sum(0))


def test_the_warning_of_torch_on_checks_is_not_for_users(monkeypatch):
    """Torch 2.11 and 2.12 warn once a process, whatever `check_invariants` is."""
    make, said = torch.sparse_coo_tensor, []

    def warning(*args, **kwargs):
        if not said:
            said.append("Sparse invariant checks are implicitly disabled")
            warnings.warn(said[0], UserWarning, stacklevel=2)
        return make(*args, **kwargs)

    monkeypatch.setattr(torch, "sparse_coo_tensor", warning)
    sparse_rows._spend_warning.cache_clear()
    sparse_gradient(torch.tensor([0]), torch.ones(1), (2,))  # warnings are errors
    assert said
