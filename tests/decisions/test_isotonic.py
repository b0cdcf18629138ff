"""Isotonic regression: the best closed set of every cut, by all sets; trees, and graphs."""

import itertools

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from sklearn_xlc.decisions._isotonic import isotonic_over


def draw_edges(rng, n_nodes, most):
    """Edges to smaller nodes, at most `most` from each node: a tree, or a graph without cycles."""
    edges = [
        (node, int(above))
        for node in range(1, n_nodes)
        for above in rng.choice(node, min(node, int(rng.integers(most + 1))), replace=False)
    ]
    return np.array(edges, dtype=np.int64).reshape(-1, 2).T


def closed_sets(n_nodes, below, above):
    masks = np.array(list(itertools.product([False, True], repeat=n_nodes)))
    return masks[~(masks[:, below] & ~masks[:, above]).any(axis=1)]


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("seed", range(15))
def test_above_every_cut_is_the_best_closed_set(seed, most):
    rng = np.random.default_rng(seed)
    below, above = draw_edges(rng, 8, most)
    values = np.round(rng.random(8), 1) if seed % 3 == 0 else rng.random(8)
    fitted = isotonic_over(values, below, above)
    assert (fitted[below] <= fitted[above]).all()
    sets = closed_sets(8, below, above)
    for cut in np.r_[values - 1e-6, np.linspace(0, 1, 13)]:
        best = (sets @ (values - cut)).max()
        assert (fitted > cut) @ (values - cut) == pytest.approx(best, abs=1e-7)


def test_a_chain_is_the_regression_of_scikit_learn():
    values = np.random.default_rng(0).normal(size=40)
    fitted = isotonic_over(values, np.arange(39), np.arange(1, 40))
    expected = IsotonicRegression().fit_transform(np.arange(40), values)
    np.testing.assert_allclose(fitted, expected, atol=1e-7)


def test_groups_do_not_touch_each_other():
    rng = np.random.default_rng(1)
    graphs = [
        (n, draw_edges(rng, n, 2), rng.normal(size=n) * 10.0**i) for i, n in enumerate([9, 1, 30])
    ]
    alone = [isotonic_over(v, *edges) for _, edges, v in graphs]
    starts = np.cumsum([0, 9, 1])
    below, above = np.hstack([edges + start for (_, edges, _), start in zip(graphs, starts)])
    together = isotonic_over(np.concatenate([v for *_, v in graphs]), below, above)
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-7, atol=1e-7)
    assert (together[below] <= together[above]).all()


def test_values_in_order_stay():
    values = np.array([3.0, 2.0, 2.0, -1.0])
    below, above = np.array([1, 2, 3]), np.array([0, 1, 1])
    np.testing.assert_array_equal(isotonic_over(values, below, above), values)
    assert isotonic_over(np.empty(0), below[:0], above[:0]).shape == (0,)
