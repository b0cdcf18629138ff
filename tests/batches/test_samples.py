"""Samples of every form: indexed together, and made into tensors."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import Columns, SparseRows, collate, to_device


def make_columns():
    return Columns(
        {
            "numbers": [3, 1, 4, 1],
            "images": np.arange(16.0).reshape(4, 2, 2),
            "counts": sp.coo_array(np.eye(4)),
            "words": np.array(["a", "b", "c", "d"]),
        }
    )


def test_columns_are_indexed_together():
    X = make_columns()
    assert len(X) == X.shape[0] == 4
    for index in (np.array([2, 0]), slice(1, 3)):
        part = X[index]
        assert len(part) == 2
        np.testing.assert_array_equal(part.arrays["numbers"], np.array([3, 1, 4, 1])[index])
        np.testing.assert_array_equal(part.arrays["images"], X.arrays["images"][index])
        np.testing.assert_array_equal(part.arrays["counts"].toarray(), np.eye(4)[index])


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({}, "without any array"),
        ({"a": [1, 2], "b": [1]}, r"different numbers of samples: \{'a': 2, 'b': 1\}"),
        ({"a": [1, 2], "b": 1}, r"X\['b'\] is a single value"),
    ],
)
def test_columns_that_do_not_belong_together(arrays, message):
    with pytest.raises(ValueError, match=message):
        Columns(arrays)


def test_collate():
    assert isinstance(collate(sp.csr_matrix(np.eye(3))), SparseRows)
    dense = np.eye(3)
    assert torch.equal(collate(dense), torch.eye(3, dtype=torch.float64))
    arrays = {k: v for k, v in make_columns().arrays.items() if k != "words"}
    inputs = collate(arrays)
    assert inputs["numbers"].dtype == torch.int64
    assert inputs["images"].dtype == torch.float32
    assert inputs["images"].shape == (4, 2, 2)
    assert inputs["counts"].data.dtype == torch.float32


@pytest.mark.parametrize(
    "dtype, expected",
    [(">f8", "float32"), (">f4", "float32"), ("g", "float32"), (">i4", "int32"), (">u2", "uint16")],
)
def test_numbers_of_any_machine(dtype, expected):
    found = collate({"a": np.arange(3).astype(dtype)})["a"]
    assert found.dtype == getattr(torch, expected)
    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("samples", [["a", "b"], np.array(["a"]), {"words": np.array(["a"])}])
def test_strings_need_an_encoder_that_collates(samples):
    with pytest.raises(TypeError, match=r"dtype <U1 do not become a tensor; .* collate\(samples\)"):
        collate(samples)


def test_to_device():
    rows = SparseRows.from_csr(sp.csr_matrix(np.eye(3)))
    named = rows.transpose  # a tuple with names
    pair = torch.ones(2), [torch.ones(1)]
    inputs = {"rows": rows, "pair": pair, "named": named, "name": "x"}
    moved = to_device(inputs, torch.device("meta"))
    assert moved["rows"].data.is_meta
    assert moved["pair"][0].is_meta
    assert moved["pair"][1][0].is_meta
    assert moved["named"].columns.is_meta
    assert moved["rows"].transpose.columns.is_meta
    assert moved["name"] == "x"
