"""The background's inner product equals ridge regression on its directions, by dense algebra."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.aggregation import make_background, unit_rows


@pytest.fixture
def X(rng):
    return unit_rows(rng.normal(size=(60, 7)) @ np.diag([5, 3, 2, 1, 1, 0.5, 0.1]) + 1)


def test_all_directions_are_ridge_regression(X):
    shrinkage = 0.05
    background = make_background(X, 7, shrinkage, np.random.RandomState(0))
    # alpha (X'X / n + alpha I)^-1
    metric = shrinkage * np.linalg.inv(X.T @ X / 60 + shrinkage * np.eye(7))
    found = np.eye(7) - background.directions.T @ background.directions
    np.testing.assert_allclose(found, metric, atol=1e-12)
    products = X @ X.T - background.projections @ background.projections.T
    np.testing.assert_allclose(products, X @ metric @ X.T, atol=1e-12)
    mean = X.mean(axis=0)
    np.testing.assert_allclose(background.offsets, X @ metric @ mean, atol=1e-12)
    assert background.mean_square == pytest.approx(mean @ metric @ mean, abs=1e-12)
    vectors = background.vectors(X[:3] * 2, np.full(3, 2.0), background.projections[:3] * 2)
    np.testing.assert_allclose(vectors, 2 * (X[:3] - mean) @ metric, atol=1e-12)


def test_without_directions_only_the_mean_counts(X):
    background = make_background(X, 0, 0.1, np.random.RandomState(0))
    assert background.projections.shape == (60, 0)
    np.testing.assert_allclose(background.offsets, X @ X.mean(axis=0), atol=1e-14)
    vectors = background.vectors(X[:3], np.ones(3), background.projections[:3])
    np.testing.assert_allclose(vectors, X[:3] - X.mean(axis=0), atol=1e-14)


def test_sparse_equals_dense(X):
    X = np.where(np.abs(X) > 0.3, X, 0)
    dense = make_background(X, 3, 0.02, np.random.RandomState(0))
    csr = make_background(sp.csr_array(X), 3, 0.02, np.random.RandomState(0))
    for name in ("mean", "offsets", "mean_square"):
        np.testing.assert_allclose(getattr(csr, name), getattr(dense, name), atol=1e-10)
    np.testing.assert_allclose(
        csr.projections @ csr.projections.T, dense.projections @ dense.projections.T, atol=1e-10
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(X, dtype):
    background = make_background(X.astype(dtype), 3, 0.02, np.random.RandomState(0))
    for name in ("mean", "directions", "projections", "mean_projection", "offsets"):
        assert getattr(background, name).dtype == dtype


def test_more_directions_than_there_are(X):
    assert make_background(X, 100, 0.02, np.random.RandomState(0)).directions.shape == (7, 7)
    assert make_background(X[:4], 100, 0.02, np.random.RandomState(0)).directions.shape == (4, 7)


def test_rows_can_be_dropped(X):
    background = make_background(X, 3, 0.02, np.random.RandomState(0))
    small = background.without_samples()
    assert len(small.projections) == len(small.offsets) == 0
    sums = X[:2], np.ones(2), background.projections[:2]
    np.testing.assert_array_equal(small.vectors(*sums), background.vectors(*sums))
