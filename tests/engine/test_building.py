"""Encoders are built, and heads start from what the data show."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc.batches import Columns, Rows
from sklearn_xlc.encoders import MLPEncoder, TextEncoder
from sklearn_xlc.engine import building
from sklearn_xlc.engine.building import (
    default_encoder,
    frequency,
    inputs_for,
    label_counts,
    output_width,
    reads_sparse,
    user_encoder,
)

EYE = np.eye(20, dtype=np.float32)
FULL = np.ones((20, 20), dtype=np.float32)
TEXTS = np.array(["a b", "c"], dtype=object)


class OnlyCSR(MLPEncoder):
    """Reads CSR rows alone."""

    accepts = ("csr",)


def test_default_encoder():
    assert default_encoder(5, 3, 0.0, False).n_outputs == 3
    encoder = default_encoder(5, np.array([4, 2]), 0.5, True)
    assert encoder.n_outputs == 2
    assert encoder.row_parameters()


def test_user_encoder():
    module = nn.Linear(20, 3)
    copy = user_encoder(module, EYE)
    assert copy is not module
    assert torch.equal(copy.weight, module.weight)
    assert user_encoder(lambda n_features: nn.Linear(n_features, 2), EYE).in_features == 20
    assert user_encoder(partial(TextEncoder, n_buckets=9), TEXTS).n_buckets == 9
    assert isinstance(user_encoder(lambda: nn.Identity(), Columns({"a": [1]})), nn.Identity)


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


def test_frequency():
    Y = sp.csr_matrix([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(frequency(Y, None), [0.75, 0.5, 1e-6], rtol=1e-6)
    weight = np.array([1.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(frequency(Y, weight), [0.25, 0.75, 1e-6], rtol=1e-6)


def test_equal_weights_are_no_weights_bit_by_bit():
    Y = sp.csr_matrix(np.eye(7, dtype=np.float32))
    ones = np.ones(7, dtype=np.float32)
    assert torch.equal(frequency(Y, ones), frequency(Y, None))
    assert torch.equal(label_counts(Y, ones)[0], label_counts(Y, None)[0])


@pytest.mark.parametrize("weight, expected", [(None, ([1, 2, 0], 2)), ([2.0, 1.0], ([2, 3, 0], 3))])
def test_label_counts_are_of_samples(weight, expected):
    """A bag of which three instances hold a label is one sample with it."""
    Y = sp.csr_matrix([[3.0, 1.0, 0.0], [0.0, 2.0, 0.0]])
    counts, n_samples = label_counts(Y, None if weight is None else np.array(weight))
    assert (counts.tolist(), n_samples) == expected


def test_output_width():
    rows = Rows(np.zeros((3, 4), dtype=np.float32))
    assert output_width(nn.Linear(4, 6), rows) == 6
    assert output_width(MLPEncoder(4, (5, 2)), rows) == 2
    assert output_width(nn.Linear(4, 6), Rows(np.zeros((1, 4)))) == 6
    assert output_width(nn.Sequential(MLPEncoder(20, (5, 2))), Rows(EYE, sparse=True)) == 2
    with pytest.raises(ValueError, match=r"encoder cannot read 2 sample\(s\) of 4 columns"):
        output_width(nn.Linear(5, 6), rows)


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_by_blocks_have_the_bits_of_one_pass(monkeypatch, weighted):
    rng = np.random.default_rng(0)
    Y = sp.random(200, 7, 0.3, format="csr", random_state=0)
    weight = rng.random(200) if weighted else np.ones(200)
    rows = np.repeat(np.arange(200), np.diff(Y.indptr))
    total = building.mean_one(weight).sum()
    share = np.bincount(Y.indices, building.mean_one(weight)[rows] / total * Y.data)
    counts = np.bincount(Y.indices, weight[rows] * np.minimum(Y.data, 1))
    given = weight if weighted else None
    for block in (1, 50, 2**16):
        monkeypatch.setattr(building, "FEW_ENTRIES", block)
        np.testing.assert_array_equal(frequency(Y, given), share)
        np.testing.assert_array_equal(label_counts(Y, given)[0], counts)
        assert label_counts(Y, given)[1] == weight.sum()
