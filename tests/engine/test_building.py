"""Encoders are built, and heads start from what the data show."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLPEncoder, TextEncoder
from sklearn_xlc.engine.building import (
    inputs_for,
    output_width,
    reads_sparse,
    zero_rows,
)

EYE = np.eye(20, dtype=np.float32)
FULL = np.ones((20, 20), dtype=np.float32)
TEXTS = np.array(["a b", "c"], dtype=object)


class OnlyCSR(MLPEncoder):
    """Reads CSR rows alone."""

    accepts = ("csr",)


def test_rows_of_columns_that_no_sample_has_are_zero():
    weight = torch.ones(3, 2)
    zero_rows(weight, np.array([False, True, False]))
    assert weight.tolist() == [[1, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    "encoder, X, sparse",
    [
        (MLPEncoder, EYE, True),
        (MLPEncoder, sp.csr_matrix(EYE), True),
        (MLPEncoder, sp.csr_matrix(FULL), False),
        (nn.Linear(20, 3), sp.csr_matrix(EYE), False),
        (OnlyCSR(20, (3,)), FULL, True),
        (TextEncoder, TEXTS, False),
    ],
)
def test_sparse_by_zeros_not_by_container(encoder, X, sparse):
    assert reads_sparse(encoder, Rows(X)) is sparse


def test_inputs_hold_samples_and_no_labels():
    encoder = MLPEncoder(20, (3,))
    rows = inputs_for(encoder, Rows(EYE, sp.csr_matrix(EYE), np.ones(20)), sparse=True)
    assert sp.issparse(rows.X)
    assert rows.Y is rows.sample_weight is None
    own = TextEncoder(n_buckets=50)
    assert inputs_for(own, Rows(TEXTS), sparse=False).collate == own.collate
    for usual in (encoder, nn.Linear(2, 2)):  # batches need not be cut one by one
        assert inputs_for(usual, Rows(EYE), sparse=False).collate is None


def test_output_width():
    rows = Rows(np.zeros((3, 4), dtype=np.float32))
    assert output_width(nn.Linear(4, 6), rows) == 6
    assert output_width(MLPEncoder(4, (5, 2)), rows) == 2
    assert output_width(nn.Linear(4, 6), Rows(np.zeros((1, 4)))) == 6
    assert output_width(nn.Sequential(MLPEncoder(20, (5, 2))), Rows(EYE, sparse=True)) == 2
    with pytest.raises(ValueError, match=r"encoder cannot read 2 sample\(s\) of 4 columns"):
        output_width(nn.Linear(5, 6), rows)
