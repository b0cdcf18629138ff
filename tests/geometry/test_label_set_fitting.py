"""Scales are least squares, and temperatures win over every other one on the grid."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.metrics import accuracy_score, f1_score

from sklearn_xlc.geometry import (
    divergence_label_sets,
    fit_label_set_scales,
    fit_temperature,
    label_sets_to_csr,
    nearest_label_sets,
    simplex_etf,
)
from sklearn_xlc.geometry._label_set_fitting import TEMPERATURES


def random_sets(rng, sizes, n_labels):
    return np.array([np.isin(np.arange(n_labels), rng.permutation(n_labels)[:m]) for m in sizes])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix])
def test_scales_are_least_squares(make, rng):
    weights = rng.standard_normal((8, 5)) + 3
    sizes = rng.integers(0, 5, 60)
    Y = random_sets(rng, sizes, 8).astype(int)
    features = rng.standard_normal((60, 5)) + Y @ (weights - weights.mean(axis=0))
    scales = fit_label_set_scales(features, make(Y), weights)
    prototypes = Y @ (weights - weights.mean(axis=0))
    expected = [
        nnls(prototypes[sizes == m].reshape(-1, 1), features[sizes == m].ravel())[0][0]
        for m in range(1, 5)
    ]
    np.testing.assert_allclose(scales, expected, rtol=1e-12)


def test_scales_are_found_again_and_decode(rng):
    W = simplex_etf(12, 14, random_state=1)
    true = np.array([3.0, 2.0, 1.6])
    sizes = rng.integers(1, 4, 300)
    Y = random_sets(rng, sizes, 12)
    features = true[sizes - 1, None] * (Y @ W)
    scales = fit_label_set_scales(features.astype(np.float32), sp.csr_array(Y.astype(int)), W)
    np.testing.assert_allclose(scales, true, rtol=1e-6)
    found, _ = nearest_label_sets(features @ W.T, scales)
    np.testing.assert_array_equal(label_sets_to_csr(features @ W.T, found).toarray(), Y)


def test_sizes_that_were_not_seen_take_the_nearest(rng):
    W = simplex_etf(6, 6)
    sizes = np.array([2, 2, 5, 5, 6, 0])  # all six labels add up to zero
    Y = random_sets(rng, sizes, 6)
    features = np.where(sizes == 2, 4.0, 3.0)[:, None] * (Y @ W)
    np.testing.assert_allclose(fit_label_set_scales(features, Y, W), [4, 4, 4, 3, 3, 3])
    np.testing.assert_allclose(fit_label_set_scales(features, Y, W, max_labels=3), [4, 4, 4])
    np.testing.assert_allclose(
        fit_label_set_scales(features, Y, W, max_labels=8), [4, 4, 4, 3, 3, 3, 3, 3]
    )


def test_scales_are_not_negative():
    W = simplex_etf(3, 3)
    assert fit_label_set_scales(-W, np.eye(3, dtype=int), W).tolist() == [0.0]


def test_scales_in_blocks(rng, monkeypatch):
    weights, features = rng.standard_normal((7, 3)), rng.standard_normal((50, 3))
    Y = random_sets(rng, rng.integers(0, 4, 50), 7)
    whole = fit_label_set_scales(features, Y, weights)
    monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", 20)
    np.testing.assert_allclose(fit_label_set_scales(features, Y, weights), whole, rtol=1e-12)


@pytest.fixture
def validation(rng):
    """Logits that know the labels, with as much noise and doubtful labels."""
    Y = random_sets(rng, rng.integers(0, 5, 150), 12).astype(int)
    return 1.5 * rng.standard_normal((150, 12)) + 3 * Y, Y


CRITERIA = {
    "example_f1": lambda y, p: f1_score(y, p, average="samples", zero_division=0),
    "subset_accuracy": accuracy_score,
    "micro_f1": lambda y, p: f1_score(y, p, average="micro"),
}


#: The same written out, in a tenth of the time.
DEFINITIONS = {
    "example_f1": lambda y, p: np.mean(
        2 * (y & p).sum(axis=1) / np.maximum(y.sum(axis=1) + p.sum(axis=1), 1)
    ),
    "subset_accuracy": lambda y, p: (y == p).all(axis=1).mean(),
    "micro_f1": lambda y, p: 2 * (y & p).sum() / (y.sum() + p.sum()),
}


@pytest.mark.parametrize(
    "name, max_labels", [*((name, None) for name in CRITERIA), ("micro_f1", 3)]
)
def test_no_other_temperature_is_better(name, max_labels, validation):
    logits, Y = validation

    def sets(temperature):
        sizes, _ = divergence_label_sets(logits, temperature, max_labels)
        return label_sets_to_csr(logits, sizes).toarray()

    def score(temperature):
        return DEFINITIONS[name](Y, sets(temperature))

    scores = np.array([score(temperature) for temperature in TEMPERATURES])
    best = fit_temperature(logits, Y, name, max_labels)
    assert best in TEMPERATURES
    assert score(best) == pytest.approx(scores.max(), abs=1e-12)
    assert score(best) == pytest.approx(CRITERIA[name](Y, sets(best)), abs=1e-12)
    equals = TEMPERATURES[scores > scores.max() - 1e-12]
    assert abs(np.log(best)) == pytest.approx(np.abs(np.log(equals)).min())
    assert scores.max() > scores.min()


@pytest.mark.parametrize("name", CRITERIA)
def test_callables_and_sparse_truth_give_the_same(name, validation):
    logits, Y = validation
    expected = fit_temperature(logits, Y, name)
    assert fit_temperature(logits, sp.csr_matrix(Y), name) == expected
    assert fit_temperature(logits, Y, CRITERIA[name]) == expected


def test_temperature_undoes_a_scale_of_the_logits(validation):
    logits, Y = validation
    first = fit_temperature(logits, Y)
    assert fit_temperature(logits * 10 ** (4 / 50), Y) == pytest.approx(first * 10 ** (4 / 50))


def test_nothing_to_choose_is_one():
    assert fit_temperature([[1.0, 0.0], [2.0, 1.0]], np.zeros((2, 2), dtype=int)) == 1.0


W = np.eye(3)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: fit_label_set_scales(W, W[:2], W), ValueError, "must have equally many"),
        (lambda: fit_label_set_scales(W[:, :2], W, W), ValueError, "must have equally many"),
        (lambda: fit_label_set_scales(W, W[:, :2], W), ValueError, "must have equally many labels"),
        (lambda: fit_label_set_scales(W, 0 * W, W), ValueError, "Y must have a sample whose"),
        (lambda: fit_label_set_scales(W, 0 * W + 1, W), ValueError, "Y must have a sample whose"),
        (lambda: fit_label_set_scales(W, 2 * W, W), ValueError, "Y must hold 0 and 1 only"),
        (lambda: fit_label_set_scales(W, W, W, 0), ValueError, "max_labels must be .*, got 0"),
        (lambda: fit_temperature(W, W[:2]), ValueError, "logits and Y must have equally many rows"),
        (lambda: fit_temperature(W, W[:, :2]), ValueError, "must have equally many labels"),
        (lambda: fit_temperature(W, W, "f1"), ValueError, "criterion must be a callable or one"),
        (lambda: fit_temperature(W, W, max_labels=4), ValueError, "max_labels must be .*, got 4"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_products_with_a_simplex_stand_for_the_features(rng):
    W = simplex_etf(6, 8, 0)
    Y = (rng.random((40, 6)) < 0.4).astype(int)
    Y[3], Y[4] = 0, 1
    features = rng.normal(size=(40, 8)) + Y @ W
    expected = fit_label_set_scales(features, Y, W)
    scales = fit_label_set_scales(features @ W.T, Y)
    np.testing.assert_allclose(scales, expected, rtol=1e-10)
