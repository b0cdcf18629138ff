"""Nearest: the nearest prototype among all label sets."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.decisions import LinearLayer, Nearest
from sklearn_xlc.geometry import simplex_etf

N_LABELS = 7
SETS = [
    np.array(chosen) for m in range(1, 5) for chosen in itertools.combinations(range(N_LABELS), m)
]


def make_data(W, seed, noise=0.3):
    rng = np.random.default_rng(seed)
    Y = (rng.random((60, len(W))) < 0.3).astype(int)
    return 2.0 * Y @ W + noise * rng.normal(size=(60, W.shape[1])) + 0.5, Y


@pytest.mark.parametrize("n_features", [6, 7, 12])
@pytest.mark.parametrize("seed", range(3))
def test_nearest_prototype_of_all_sets(n_features, seed):
    W = simplex_etf(N_LABELS, n_features, random_state=0)
    features, Y = make_data(W, seed)
    layer = LinearLayer(W, is_simplex=True)
    decision = Nearest(max_labels=4).fit(features, Y, layer=layer)
    np.testing.assert_allclose(decision.mean_, features.mean(axis=0))
    scales = decision.label_set_scales_
    prototypes = np.stack([scales[len(s) - 1] * W[s].sum(axis=0) for s in SETS])
    centred = features - features.mean(axis=0)
    distances = np.square(centred[:, None] - prototypes).sum(axis=2)
    sets = decision.decode(features, layer)
    for row, best in enumerate(distances.argmin(axis=1)):
        np.testing.assert_array_equal(sets[row].indices, SETS[best])
    np.testing.assert_allclose(
        decision.distances(features, layer), np.sort(distances, axis=1)[:, :2], atol=1e-9
    )


def test_any_linear_layer_takes_the_largest_products():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(N_LABELS, 30))
    features, Y = make_data(W, 1, noise=0.1)
    layer = LinearLayer(W)
    decision = Nearest().fit(features, Y, layer=layer)
    sets, truth = decision.decode(features, layer).toarray(), Y[Y.sum(axis=1) > 0]
    assert np.mean((sets == Y).all(axis=1)) > 0.5
    assert len(truth) < len(Y)
    assert np.isfinite(decision.distances(features, layer)).all()


@pytest.mark.parametrize("n_labels", [1, 5])
def test_nothing_to_fit_scales_to(n_labels):
    features, Y = np.random.default_rng(0).normal(size=(9, n_labels)), np.ones((9, n_labels))
    layer = LinearLayer(np.eye(n_labels), is_simplex=n_labels > 1)
    decision = Nearest().fit(features, Y, layer=layer)
    np.testing.assert_array_equal(decision.label_set_scales_, 1.0)
    sets = decision.decode(features, layer)
    assert sets.shape == (9, n_labels)
    if n_labels == 1:
        np.testing.assert_array_equal(sets.toarray(), 1)
        assert np.isinf(decision.distances(features, layer)[:, 1]).all()


def test_scales_are_those_of_the_last_batch_and_sets_stay_as_large():
    W = simplex_etf(N_LABELS, N_LABELS)
    layer = LinearLayer(W, is_simplex=True)
    features, Y = make_data(W, 0)
    one = Y.sum(axis=1) == 1
    decision = Nearest().fit(features, Y, layer=layer)
    most = decision.max_labels_
    decision.partial_fit(features[one], Y[one], layer=layer)
    assert decision.max_labels_ == most
    again = Nearest(most).fit(features[one], Y[one], layer=layer)
    np.testing.assert_array_equal(decision.label_set_scales_, again.label_set_scales_)


def test_a_layer_that_is_not_linear_is_refused():
    Y = sp.csr_matrix(np.eye(3))
    with pytest.raises(ValueError, match="this classifier has none; use decision='divergence'"):
        Nearest().check_head(Y, link="sigmoid", n_features=4)
    Nearest().check_head(Y, link=None, n_features=4, layer=LinearLayer(np.eye(3)))


@pytest.mark.parametrize(
    "most, message",
    [
        (0, "'max_labels' parameter of Nearest must be"),
        (4, "max_labels=4 is more than the 3 labels of y"),
    ],
)
def test_bad_parameters(most, message):
    with pytest.raises(ValueError, match=message):
        Nearest(most).check_labels(sp.csr_matrix(np.eye(3)))
