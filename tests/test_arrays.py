"""Helpers of the estimators: storage, frequencies, devices, seeds."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc._arrays import (
    canonical,
    frequency,
    is_sparse,
    move_columns,
    numpy_dtype,
    output_width,
    resolve_device,
    seeded,
)
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.training import Rows


@pytest.mark.parametrize("n_nonzero, expected", [(0, True), (9, True), (10, False), (100, False)])
def test_is_sparse_asks_for_values_not_for_storage(n_nonzero, expected):
    X = np.zeros(100)
    X[:n_nonzero] = 1.0
    X = X.reshape(10, 10)
    stored_zeros = sp.csr_matrix(np.ones((10, 10)))
    stored_zeros.data[:] = X.ravel()
    for given in (X, sp.csr_matrix(X), stored_zeros):
        assert is_sparse(given) is expected


def test_canonical():
    untidy = sp.csr_array(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    before = copy.deepcopy(untidy)
    tidy = canonical(untidy)
    assert tidy.has_canonical_format
    assert tidy.nnz == 2
    np.testing.assert_array_equal(tidy.toarray(), untidy.toarray())
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(untidy, part), getattr(before, part))
    assert canonical(tidy) is tidy
    X = np.eye(2)
    assert canonical(X) is X


def test_move_columns():
    Y = sp.csr_matrix([[1, 0, 1], [0, 1, 0]])
    moved = move_columns(Y, np.array([2, 0, 1]))  # column j goes to place places[j]
    np.testing.assert_array_equal(moved.toarray(), [[0, 1, 1], [1, 0, 0]])
    assert moved.has_sorted_indices


def test_frequency():
    Y = sp.csr_matrix([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    X = np.zeros((4, 1))
    np.testing.assert_allclose(frequency(Rows(X, Y)), [0.75, 0.5, 1e-6], rtol=1e-6)
    weight = np.array([1.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(frequency(Rows(X, Y, weight)), [0.25, 0.75, 1e-6], rtol=1e-6)


def test_output_width():
    rows = Rows(np.zeros((3, 4), dtype=np.float32))
    assert output_width(nn.Linear(4, 6), rows) == 6
    assert output_width(MLPEncoder(4, (5, 2)), rows) == 2
    assert output_width(nn.Linear(4, 6), Rows(np.zeros((1, 4)))) == 6
    with pytest.raises(ValueError, match=r"encoder cannot read 2 row\(s\) of 4 columns"):
        output_width(nn.Linear(5, 6), rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_dtype(dtype):
    assert numpy_dtype(nn.Linear(1, 1).to(dtype)) == np.zeros(0, str(dtype)[6:]).dtype


def test_devices(monkeypatch):
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.warns(UserWarning, match="device='cuda:1' asks for a GPU that is not there"):
        assert resolve_device("cuda:1") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"
    for wrong in ("gpu", "meta", "cpu:x", ""):
        with pytest.raises(ValueError, match=f"device='{wrong}' is neither 'auto' nor a torch dev"):
            resolve_device(wrong)


def test_seeded():
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with seeded(np.random.RandomState(3)):
            drawn.append(torch.rand(4))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)
