"""Counts and frequencies of labels, by samples and their weights."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.engine.label_counts import frequency, label_counts, mean_one


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


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_by_blocks_have_the_bits_of_one_pass(monkeypatch, weighted):
    rng = np.random.default_rng(0)
    Y = sp.random(200, 7, 0.3, format="csr", random_state=0)
    weight = rng.random(200) if weighted else np.ones(200)
    rows = np.repeat(np.arange(200), np.diff(Y.indptr))
    total = mean_one(weight).sum()
    share = np.bincount(Y.indices, mean_one(weight)[rows] / total * Y.data)
    counts = np.bincount(Y.indices, weight[rows] * np.minimum(Y.data, 1))
    given = weight if weighted else None
    for block in (1, 50, 2**16):
        monkeypatch.setattr("sklearn_xlc.engine.label_counts.FEW_ENTRIES", block)
        np.testing.assert_array_equal(frequency(Y, given), share)
        np.testing.assert_array_equal(label_counts(Y, given)[0], counts)
        assert label_counts(Y, given)[1] == weight.sum()


@pytest.mark.parametrize("scale", [1.0, 1e37, 1e-40])
def test_the_scale_of_weights_does_not_matter(scale):
    weight = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(mean_one(scale * weight), weight * 3 / 8, rtol=1e-12)
