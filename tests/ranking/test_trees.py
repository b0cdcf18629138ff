"""Trees as arrays predict as scikit-learn's."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

from sklearn_xlc.ranking.trees import compiled, in_bins, n_below, raw_scores, sampled_pairs


def make_data(rng, n=800):
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 3, n), rng.random(n), np.ones(n)])
    return X, rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0] * (X[:, 1] - 1) - X[:, 2]))


@pytest.mark.parametrize("leaves", [2, 15, 16, 17, 40, 64])
def test_scores_of_the_classifier(rng, leaves):
    X, y = make_data(rng)
    peer = HistGradientBoostingClassifier(
        max_iter=20, max_leaf_nodes=leaves, min_samples_leaf=3, early_stopping=False
    ).fit(X, y)
    at_cuts = X.copy()  # numbers on a threshold go left
    trees = compiled(peer)
    at_cuts[:, 0] = np.resize(trees["thresholds"][0], len(X))
    for samples in (X, X.astype(np.float32), at_cuts, 100 * X, X[:1], X[:0]):
        expected = peer.decision_function(samples) if len(samples) else []
        np.testing.assert_allclose(raw_scores(trees, samples), expected, rtol=1e-12, atol=1e-12)


def test_more_leaves_than_bits_and_categories_are_left_to_scikit_learn(rng):
    X, y = make_data(rng, 3000)
    large = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=100, min_samples_leaf=1)
    assert compiled(large.fit(X, y)) is None
    named = HistGradientBoostingClassifier(max_iter=3, categorical_features=[1])
    assert compiled(named.fit(X, y)) is None


def test_trees_without_a_split(rng):
    X, y = make_data(rng, 30)
    peer = HistGradientBoostingClassifier(max_iter=3).fit(X, y)
    np.testing.assert_allclose(raw_scores(compiled(peer), X), peer.decision_function(X), rtol=1e-12)


def test_a_row_does_not_depend_on_its_batch(rng):
    X, y = make_data(rng, 3000)
    trees = compiled(HistGradientBoostingClassifier(early_stopping=False).fit(X, y))
    whole = raw_scores(trees, X)
    singles = [raw_scores(trees, X[i : i + 1])[0] for i in range(0, 3000, 31)]
    np.testing.assert_array_equal(whole[::31], singles)


def test_other_numbers_than_those_of_the_fit_are_refused(rng):
    X, y = make_data(rng, 300)
    trees = compiled(HistGradientBoostingClassifier(max_iter=3).fit(X, y))
    for numbers in (X[:, :3], np.hstack([X, X])):
        with pytest.raises(ValueError, match=f"know 4 numbers .* give {numbers.shape[1]}"):
            raw_scores(trees, numbers)


@pytest.mark.parametrize("n_cuts", [0, 1, 2, 3, 7, 8, 100, 254])
def test_values_are_searched_together_as_alone(n_cuts, rng):
    cuts = np.sort(rng.normal(size=n_cuts))
    values = np.concatenate([rng.normal(size=2000), cuts, np.nextafter(cuts, 9), [-1e300, 1e300]])
    np.testing.assert_array_equal(n_below(cuts, values), np.searchsorted(cuts, values))


def test_bins_keep_the_order_and_the_mean(rng):
    X = np.column_stack([rng.normal(size=5000), rng.integers(0, 200, 5000), np.zeros(5000)])
    X = X.astype(np.float32)
    binned = in_bins(X)
    assert len(np.unique(binned[:, 0])) <= 255
    np.testing.assert_array_equal(binned[:, 1:], X[:, 1:])
    order = np.argsort(X[:, 0])
    assert (np.diff(binned[order, 0]) >= 0).all()
    assert binned[:, 0].mean() == pytest.approx(X[:, 0].mean(dtype=float), abs=1e-7)
    np.testing.assert_allclose(np.median(np.abs(binned[:, 0] - X[:, 0])), 0, atol=0.01)


def pairs_of(rng, n_false, n_true=500):
    truth = rng.permutation(np.repeat([False, True], [n_false, n_true]))
    return truth, np.column_stack([rng.normal(-3, 2, len(truth)), rng.normal(size=len(truth))])


def test_few_pairs_are_all_kept(rng):
    truth, numbers = pairs_of(rng, n_false=10_000)
    kept, stands_for = sampled_pairs(truth, numbers)
    np.testing.assert_array_equal(kept, np.arange(10_500))
    assert (stands_for == 1).all()
    kept, stands_for = sampled_pairs(truth[:0], np.empty((0, 0)))
    assert len(kept) == len(stands_for) == 0


def test_a_third_of_many_false_pairs_stand_for_all(rng):
    truth, numbers = pairs_of(rng, n_false=60_000)
    kept, stands_for = sampled_pairs(truth, numbers)
    weights = np.zeros(len(truth))
    weights[kept] = stands_for
    assert (weights[truth] == 1).all()
    assert (np.diff(kept) > 0).all()
    assert stands_for.min() == 1
    false, scores = ~truth, numbers[:, 0]
    assert np.count_nonzero(weights[false]) == pytest.approx(20_000, abs=2)
    # Sums over all false pairs are estimated, whatever is summed: as if each were drawn by itself.
    drawn, scores, other = weights[false], scores[false], numbers[false, 1]
    for of in (np.ones(len(drawn)), expit(scores), other > 0, scores < -4):
        error = np.sqrt(drawn * (drawn - 1) @ of**2)
        assert error < 0.03 * of.sum()
        assert drawn @ of == pytest.approx(of.sum(), abs=4 * error)
    # The likelier a pair, the better its chance.
    groups = np.digitize(scores, [-5, -3, -1])
    shares = [np.mean(weights[false][groups == group] > 0) for group in range(4)]
    assert (np.diff(shares) > 0).all()
    assert shares[0] > 0.08


@pytest.mark.parametrize("n_false", [10_001, 20_000, 40_000])
def test_the_number_of_false_pairs_grows_without_a_jump(n_false, rng):
    truth, numbers = pairs_of(rng, n_false)
    numbers[:, 0] = np.where(rng.random(len(truth)) < 0.05, 0.0, -6.0)  # few are likely
    kept, stands_for = sampled_pairs(truth, numbers)
    assert np.count_nonzero(~truth[kept]) == pytest.approx(max(10_000, n_false / 3), abs=2)
    assert stands_for.min() >= 1


@pytest.mark.parametrize("score", [-1e4, 0.0, 1e4, -np.inf, np.nan])
def test_equally_likely_false_pairs_are_every_third(score):
    kept, stands_for = sampled_pairs(np.zeros(30_000, bool), np.full((30_000, 1), score))
    assert np.abs(np.diff(kept) - 3).max() <= 1
    assert len(kept) == 10_000
    assert stands_for == pytest.approx(3.0)
