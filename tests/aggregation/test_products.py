"""Gathered products equal dense ones, whatever the block, the piece and the storage."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context

from sklearn_xlc.aggregation import _products as module
from sklearn_xlc.aggregation import aggregation
from sklearn_xlc.aggregation._pairs import make_pairs
from sklearn_xlc.aggregation._products import Gathered, split_labels


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(30, 12)) * (rng.random((30, 12)) < 0.3)
    X[4] = 0
    membership = np.eye(6)[rng.integers(6, size=30)]
    return X, aggregation(membership, rng.random((6, 5)) < 0.5)


@pytest.mark.parametrize("sparsity", [0, 10**9])
@pytest.mark.parametrize("piece", [7, 2**23])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_and_scores(problem, rng, monkeypatch, sparsity, piece, convert, dtype):
    monkeypatch.setattr(module, "SPARSITY", sparsity)
    monkeypatch.setattr(module, "PIECE", piece)
    X, data = problem
    tolerance = (
        {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-14}
    )
    for first, last in ((0, 1), (1, 5), (0, 5)):
        pairs = make_pairs(data, first, last)
        gathered = Gathered(convert(X.astype(dtype)), pairs)
        weights = rng.random(len(pairs.samples)).astype(dtype)
        expected = np.zeros((last - first, 12))
        np.add.at(expected, pairs.labels, weights[:, None] * X[pairs.samples])
        flat = gathered.sums(weights)
        table = gathered.to_rows(flat)
        assert table.dtype == dtype
        assert sp.issparse(table) == (convert is sp.csr_array)
        np.testing.assert_allclose(
            table.toarray() if sp.issparse(table) else table, expected, **tolerance
        )
        wanted = (X[pairs.samples] * expected[pairs.labels]).sum(axis=1)
        for vectors in (flat, expected.astype(dtype).ravel()):
            scores = gathered.scores(vectors)
            assert scores.dtype == dtype
            np.testing.assert_allclose(scores, wanted, **tolerance)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_a_label_of_zero_samples_alone_has_a_zero_vector(convert):
    X = convert(np.zeros((3, 4)))
    gathered = Gathered(X, make_pairs(aggregation(np.eye(3), np.ones((3, 1))), 0, 1))
    vectors = gathered.sums(np.ones(3))
    assert gathered.to_rows(vectors).shape == (1, 4)
    assert not vectors.any()
    assert not gathered.scores(vectors).any()


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_bits_do_not_depend_on_the_block(problem, rng, convert):
    X, data = problem
    X = convert(X)
    whole = make_pairs(data, 0, 5)
    weights = rng.random(len(whole.samples))
    scores = Gathered(X, whole)
    expected = scores.scores(scores.sums(weights))
    for first in range(5):
        pairs = make_pairs(data, first, first + 1)
        part = slice(whole.indptr[first], whole.indptr[first + 1])
        gathered = Gathered(X, pairs)
        np.testing.assert_array_equal(gathered.scores(gathered.sums(weights[part])), expected[part])


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 5])
def test_there_is_a_range_for_each_job(rng, n_jobs):
    data = aggregation(np.eye(40), rng.random((40, 60)) < 0.5)
    ranges = split_labels(data, rng.normal(size=(40, 12)), 4, n_jobs)
    assert len(ranges) == n_jobs
    sizes = [data.n_pairs[first:last].sum() for first, last in ranges]
    assert max(sizes) < 1.5 * min(sizes)


@pytest.mark.parametrize("limit", [1, 3000, 10**9])
@pytest.mark.parametrize("piece", [20, 2**23])
def test_ranges_cover_all_labels_and_part_large_ones(problem, monkeypatch, limit, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    X, data = problem
    X = sp.csr_array(X)
    with config_context(working_memory=limit / 2**20):
        ranges = split_labels(data, X, 4)
    assert [first for first, _ in ranges] == [0, *[last for _, last in ranges[:-1]]]
    assert ranges[-1][1] == 5
    if limit == 1:
        assert len(ranges) == 5
    elif limit == 10**9 and piece > 20:
        assert len(ranges) == 1
    entries = np.diff(X.indptr)
    for first, last in ranges:
        if last - first > 1:
            pairs = make_pairs(data, first, last)
            assert pairs.label_sum(entries[pairs.samples]).max() <= piece
