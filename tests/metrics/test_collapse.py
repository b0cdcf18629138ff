"""Collapse measures against their definitions, on ideal features, and under symmetries."""

import itertools
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.linalg import pinv
from scipy.stats import chi2, ortho_group
from sklearn.metrics import jaccard_score

from sklearn_xlc.geometry import simplex_etf
from sklearn_xlc.metrics import neural_collapse, soft_label_mass
from sklearn_xlc.metrics._collapse import _distance_to_simplex, _random_subsets

NAMES = ["nc1", "nc2_means", "nc2_weights", "nc3"]


def indicator(label_sets, n_labels):
    return np.array([np.isin(np.arange(n_labels), list(s)) for s in label_sets]).astype(int)


def angle(u, v):
    return np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def simplex_distance(gram):
    n = len(gram)
    ideal = (np.eye(n) - np.ones((n, n)) / n) / np.sqrt(n - 1)
    return np.linalg.norm(gram / np.linalg.norm(gram) - ideal)


def slow_neural_collapse(features, Y, W):
    """The definitions with loops and dictionaries."""
    means = {}
    for y in np.unique(Y, axis=0):
        means[tuple(np.flatnonzero(y))] = features[(Y == y).all(axis=1)].mean(axis=0)
    classes = [k for k in range(Y.shape[1]) if (k,) in means]
    K = len(classes)
    A = np.array([means[(k,)] for k in classes])
    A = A - A.mean(axis=0)
    single = Y.sum(axis=1) == 1
    deviations = features[single] - [means[tuple(np.flatnonzero(y))] for y in Y[single]]
    sigma_w = deviations.T @ deviations / len(deviations)
    report = {
        "nc1": np.trace(sigma_w @ pinv(A.T @ A / K)) / K,
        "nc2_means": simplex_distance(A @ A.T),
        "nc2_weights": simplex_distance(W @ W.T),
        "nc3": simplex_distance(W[classes] @ A.T),
        "ncm": {},
        "nc1m": {},
    }
    for m in sorted(set(Y.sum(axis=1)) - {0}):
        if m > 1:
            kept = [s for s in means if len(s) == m and set(s) <= set(classes)]
            sums = {s: sum(means[(k,)] for k in s) for s in itertools.combinations(classes, m)}
            own = np.mean([angle(means[s], sums[s]) for s in kept]) if kept else np.nan
            overall = [angle(means[s], v) for s in kept for v in sums.values()]
            report["ncm"][m] = own / np.mean(overall) if kept else np.nan
        # tr(Sigma_W pinv(Sigma_B)) / K of the features H_m, whose K classes are the sets of m; of
        # Sigma_B the directions that sums of the labels' vectors span.
        chosen = [s for s in means if len(s) == m]
        M = np.array([means[s] for s in chosen])
        M = M - M.mean(axis=0)
        _, _, directions = np.linalg.svd(M)
        directions = directions[: len(set().union(*chosen)) - 1]
        M = M @ directions.T @ directions
        rows = Y.sum(axis=1) == m
        deviations = features[rows] - [means[tuple(np.flatnonzero(y))] for y in Y[rows]]
        sigma_w = deviations.T @ deviations / len(deviations)
        report["nc1m"][m] = np.trace(sigma_w @ pinv(M.T @ M / len(M))) / len(M)
    return report


def assert_same(first, second, rtol=1e-9):
    assert list(first) == [*NAMES, "ncm", "nc1m"]
    for name in NAMES:
        assert isinstance(first[name], float)
        assert first[name] == pytest.approx(second[name], rel=rtol, abs=1e-12, nan_ok=True)
    for name in ("ncm", "nc1m"):
        assert first[name] == pytest.approx(second[name], rel=rtol, abs=1e-12, nan_ok=True)


@pytest.fixture
def data(rng):
    """Rows of 0 to 3 labels, half collapsed; label 6 never occurs alone."""
    n_labels = 7
    sizes = rng.choice([0, 1, 1, 1, 2, 2, 3], 400)
    Y = indicator([rng.permutation(n_labels)[:m] for m in sizes], n_labels)
    Y = Y[(Y.sum(axis=1) != 1) | (Y[:, 6] == 0)]
    W = rng.standard_normal((n_labels, 5))
    return Y @ W + rng.standard_normal((len(Y), 5)) + 0.5, Y, W


def test_the_definitions(data):
    features, Y, W = data
    report = neural_collapse(features, Y, W)
    assert_same(report, slow_neural_collapse(features, Y, W))
    assert set(report["ncm"]) == {2, 3}
    assert set(report["nc1m"]) == {1, 2, 3}
    assert report["nc1m"][1] == report["nc1"]
    assert np.all(np.isfinite(list(report["nc1m"].values())))
    assert np.all(np.isfinite([report[name] for name in NAMES]))
    assert 0 < report["ncm"][2] < 1


def test_the_definitions_with_more_features_than_labels(data, rng):
    """Of the means of label sets as many directions count as collapsed means span."""
    _, Y, _ = data
    W = rng.standard_normal((7, 12))
    features = Y @ W + rng.standard_normal((len(Y), 12))
    assert_same(neural_collapse(features, Y, W), slow_neural_collapse(features, Y, W))


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, np.asarray])
def test_any_form_of_the_same_data(data, make):
    features, Y, W = data
    expected = neural_collapse(features, Y, W)
    assert_same(neural_collapse(features.tolist(), make(Y), W.astype(np.float32)), expected, 1e-6)
    assert neural_collapse(features, make(Y.astype(float)), W) == expected
    assert_same(neural_collapse(features.astype(np.float32), make(Y), W), expected, 1e-5)


def test_class_ids_are_rows_of_one_label(rng):
    y = rng.integers(0, 6, 80)
    features, W = rng.standard_normal((80, 9)), rng.standard_normal((6, 9))
    report = neural_collapse(features, y, W)
    assert report == neural_collapse(features, np.eye(6, dtype=int)[y], W)
    assert report["ncm"] == {}
    assert set(report["nc1m"]) == {1}
    assert_same(report, slow_neural_collapse(features, np.eye(6, dtype=int)[y], W))


def test_tags_are_sets_but_have_no_order(data):
    features, Y, W = data
    tags = [[f"t{label}" for label in np.flatnonzero(y)] for y in Y]
    found, expected = neural_collapse(features, tags), neural_collapse(features, Y)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, nan_ok=True)
    with pytest.raises(TypeError, match="y holds tags, which do not tell the order of the rows of"):
        neural_collapse(features, tags, W)
    with pytest.raises(TypeError, match="y_true holds tags, which do not tell the order of"):
        soft_label_mass(tags, np.full(Y.shape, 1 / Y.shape[1]))


def test_indexes_in_two_orders_are_told(data):
    features, Y, _ = data
    index = [f"s{i}" for i in range(len(Y))]
    frame, named = pd.DataFrame(Y, index), pd.DataFrame(features, index)
    proba = pd.DataFrame(np.full(Y.shape, 1 / Y.shape[1]), index)
    with pytest.warns(UserWarning, match="y and features have the same index in different orders"):
        neural_collapse(named[::-1], frame)
    with pytest.warns(UserWarning, match="y_true and y_proba have the same index in different"):
        soft_label_mass(frame, proba[::-1])
    with pytest.warns(UserWarning, match="y_true and sample_weight have the same index"):
        soft_label_mass(frame, proba, sample_weight=pd.Series(1.0, index)[::-1])


def test_rotation_unit_and_order_do_not_matter(data, rng):
    features, Y, W = data
    expected = neural_collapse(features, Y, W)
    turn = ortho_group.rvs(5, random_state=0)
    assert_same(neural_collapse(features @ turn, Y, W @ turn), expected)
    assert_same(neural_collapse(1e5 * features, Y, 1e-3 * W), expected)
    wider = np.zeros((len(features), 9)), np.zeros((7, 9))
    wider[0][:, :5], wider[1][:, :5] = features, W
    assert_same(neural_collapse(wider[0], Y, wider[1]), expected)
    order, names = rng.permutation(len(Y)), rng.permutation(7)
    assert_same(neural_collapse(features[order], Y[order][:, names], W[names]), expected)


def test_offsets_matter_to_angles_only(data):
    features, Y, W = data
    expected, moved = neural_collapse(features, Y, W), neural_collapse(features + 100, Y, W)
    for name in NAMES:
        assert moved[name] == pytest.approx(expected[name], rel=1e-9)
    assert moved["nc1m"] == pytest.approx(expected["nc1m"], rel=1e-9)
    assert moved["ncm"][2] != pytest.approx(expected["ncm"][2], rel=0.1)


@pytest.mark.parametrize("n_labels, n_features", [(3, 2), (4, 4), (10, 12)])
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_ideal_features_are_zero(n_labels, n_features, dtype, tolerance, rng):
    W = simplex_etf(n_labels, n_features, random_state=1)
    every = [c for m in (1, 2, 3) for c in itertools.combinations(range(n_labels), m)]
    Y = indicator(every * 2, n_labels)
    Y = Y[rng.permutation(len(Y))[6:]]  # imbalanced: some label sets occur once or never
    Y = np.vstack([Y, np.eye(n_labels, dtype=int), np.arange(n_labels) < 3])
    scale = np.array([0, 3.0, 2.2, 1.7])[Y.sum(axis=1)]
    features = (scale[:, None] * (Y @ W)).astype(dtype)
    report = neural_collapse(features, Y, 2 * W)
    for name in NAMES:
        assert report[name] < tolerance
    assert report["ncm"][2] < tolerance
    assert report["nc1m"][2] < tolerance
    if n_labels > 3:  # three corners of a triangle add up to zero and have no angle
        assert report["ncm"][3] < tolerance
    else:
        assert np.isnan(report["ncm"][3])


def test_orthonormal_means_are_a_simplex_once_they_are_centred():
    features = np.eye(10)  # what rectified features collapse to
    assert neural_collapse(features, np.arange(10))["nc2_means"] < 1e-14
    assert simplex_distance(features @ features.T) == pytest.approx(0.320, abs=5e-4)  # uncentred


def test_noise_is_no_better_than_chance(rng):
    Y = indicator([c for m in (1, 2) for c in itertools.combinations(range(12), m)], 12)
    ratios = [neural_collapse(rng.standard_normal((78, 30)), Y)["ncm"][2] for _ in range(20)]
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


def test_samples_of_pairs_estimate_all_pairs(rng):
    n_labels = 30
    Y = indicator([c for m in (1, 2) for c in itertools.combinations(range(n_labels), m)], n_labels)
    W = rng.standard_normal((n_labels, 8))
    features = Y @ W + rng.standard_normal((len(Y), 8))
    exact = neural_collapse(features, Y, max_pairs=435**2)["ncm"][2]
    kwargs = {"max_pairs": 20_000, "random_state": 3}
    sampled = neural_collapse(features, Y, **kwargs)["ncm"][2]
    assert sampled == neural_collapse(features, Y, **kwargs)["ncm"][2]
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.02)
    few = neural_collapse(features, Y, max_pairs=100)["ncm"][2]  # fewer than label sets, too
    assert few == pytest.approx(exact, rel=0.3)


def test_variability_of_sets_vanishes_with_their_spread(rng):
    Y = np.repeat(indicator(itertools.combinations(range(8), 2), 8), 30, axis=0)
    W, noise = rng.standard_normal((8, 64)), rng.standard_normal((len(Y), 64))
    large, small = (neural_collapse(Y @ W + s * noise, Y)["nc1m"][2] for s in (0.1, 0.001))
    assert small == pytest.approx(1e-4 * large, rel=0.1)


def test_a_sample_of_label_sets_estimates_their_variability(rng):
    Y = np.repeat(indicator(itertools.combinations(range(30), 2), 30), 3, axis=0)
    features = Y @ rng.standard_normal((30, 6)) + 0.5 * rng.standard_normal((len(Y), 6))
    exact = neural_collapse(features, Y)["nc1m"][2]
    few = neural_collapse(features, Y, max_pairs=200)["nc1m"][2]
    assert few != exact
    assert 200 * few == pytest.approx(435 * exact, rel=0.2)  # 435 label sets: divided by K


@pytest.mark.parametrize("n_items, size", [(5, 2), (6, 5), (4, 4), (9, 3)])
def test_random_subsets_are_uniform(n_items, size):
    draws = 20_000
    subsets = np.sort(_random_subsets(n_items, size, draws, np.random.RandomState(0)), axis=1)
    assert np.all(np.diff(subsets, axis=1) > 0)
    found, counts = np.unique(subsets, axis=0, return_counts=True)
    expected = list(itertools.combinations(range(n_items), size))
    assert found.tolist() == [list(c) for c in expected]
    statistic = ((counts - draws / len(expected)) ** 2).sum() / (draws / len(expected))
    assert statistic <= chi2.ppf(0.999, max(len(expected) - 1, 1))


def test_gram_and_traces_agree(rng, monkeypatch):
    left, right = rng.standard_normal((40, 6)), rng.standard_normal((40, 6)) + 1
    for pair in ((left, right), (left, left)):
        expected = simplex_distance(pair[0] @ pair[1].T)
        assert _distance_to_simplex(*pair) == pytest.approx(expected, rel=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr("sklearn_xlc.metrics._collapse._SMALL", 1)
            assert _distance_to_simplex(*pair) == pytest.approx(expected, rel=1e-12)


def test_blocks_change_nothing(data, monkeypatch):
    features, Y, W = data
    expected = neural_collapse(features, Y, W)
    for size in (1, 60, 500):
        monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", size)
        assert_same(neural_collapse(features, Y, W), expected)


def test_memory_is_bounded_for_many_classes(rng):
    n_classes = 20_000
    pairs = rng.integers(0, n_classes, (20_000, 2))
    rows = np.concatenate([np.arange(40_000), 40_000 + np.repeat(np.arange(20_000), 2)])
    labels = np.concatenate([np.tile(np.arange(n_classes), 2), pairs.ravel()])
    Y = sp.csr_array((np.ones(len(rows)), (rows, labels)), shape=(60_000, n_classes))
    Y.data[:] = 1
    features, W = rng.standard_normal((60_000, 8)), rng.standard_normal((n_classes, 8))
    tracemalloc.start()
    report = neural_collapse(features, Y, W)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # a matrix of classes by classes has 3.2 GB
    assert all(np.isfinite(report[name]) for name in NAMES)
    assert report["ncm"][2] == pytest.approx(1, abs=0.05)


def test_what_is_not_defined_is_nan(rng):
    features = rng.standard_normal((4, 3))
    one = neural_collapse(features, [0, 0, 0, 0], rng.standard_normal((2, 3)))
    assert np.isnan([one["nc1"], one["nc2_means"], one["nc3"]]).all()
    assert one["nc2_weights"] > 0
    alike = neural_collapse(np.ones((4, 3)), [0, 1, 0, 1])
    assert np.isnan([alike[name] for name in NAMES]).all()
    pairs = neural_collapse(features, [[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]])
    assert np.isnan([pairs[name] for name in NAMES]).all()
    assert list(pairs["ncm"]) == [2, 3]
    assert np.isnan(list(pairs["ncm"].values())).all()
    assert np.isfinite(pairs["nc1m"][2])
    assert np.isnan(pairs["nc1m"][3])  # one label set


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_soft_label_mass(make, rng):
    Y = (rng.random((40, 6)) < 0.3).astype(int)
    proba = rng.dirichlet(np.ones(6), 40)
    weight = rng.random(40)
    expected = [sum(p[k] for k in np.flatnonzero(y)) for y, p in zip(Y, proba)]
    assert soft_label_mass(make(Y), make(proba)) == pytest.approx(np.mean(expected), rel=1e-12)
    weighted = soft_label_mass(make(Y), make(proba), sample_weight=weight)
    assert weighted == pytest.approx(np.average(expected, weights=weight), rel=1e-12)
    assert soft_label_mass(make(Y), make(proba.astype(np.float32))) == pytest.approx(
        np.mean(expected), rel=1e-6
    )
    y = rng.integers(0, 6, 40)
    assert soft_label_mass(y, make(proba)) == pytest.approx(proba[np.arange(40), y].mean())
    uniform = Y[Y.any(axis=1)] / Y[Y.any(axis=1)].sum(axis=1, keepdims=True)
    assert soft_label_mass(Y[Y.any(axis=1)], make(uniform)) == pytest.approx(1)


def test_set_iou_is_that_of_scikit_learn_for_sparse_input(rng):
    first, second = (rng.random((2, 30, 9)) < 0.4).astype(int)
    first[:, 0] = 1
    overlap = (first & second).sum(axis=1) / (first | second).sum(axis=1)
    sets = sp.csr_array(first), sp.csr_array(second)
    assert jaccard_score(*sets, average="samples") == pytest.approx(overlap.mean(), rel=1e-12)


H, Y = np.eye(3), np.eye(3, dtype=int)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: neural_collapse(H, Y[:2]), ValueError, "got 3 and 2"),
        (lambda: neural_collapse(H, Y, H[:2]), ValueError, "equally many labels, got 2 and 3"),
        (
            lambda: neural_collapse(H, Y, H[:, :2]),
            ValueError,
            "weights and features must have equally many",
        ),
        (lambda: neural_collapse(H, [0, 1, 3], H), ValueError, "y holds class id 3 in row 2"),
        (lambda: neural_collapse(H, ["a", "b", "c"]), TypeError, "holds integer class ids"),
        (lambda: neural_collapse(H, 2 * Y), ValueError, "y must hold 0 and 1 only"),
        (lambda: neural_collapse(H * np.nan, Y), ValueError, "features contains NaN"),
        (lambda: neural_collapse(H, Y, H + np.inf), ValueError, "weights contains infinity"),
        (lambda: neural_collapse(H, Y, max_pairs=0), ValueError, "max_pairs must be .*, got 0"),
        (lambda: soft_label_mass(Y, H[:2]), ValueError, "must have equally many rows and columns"),
        (lambda: soft_label_mass(Y, H, sample_weight=[1, 1, -1]), ValueError, "got -1.0 in row 2"),
        (lambda: soft_label_mass(Y, H - 0.1), ValueError, "sum 0.7 and minimum -0.1 in row 0"),
        (lambda: soft_label_mass(Y, 0.5 + 0 * H), ValueError, "sum 1.5 and minimum 0.5 in row 0"),
        (lambda: soft_label_mass([5, 0, 0], H), ValueError, "y_true holds class id 5"),
        (lambda: soft_label_mass(Y, H, sample_weight=[0, 0, 0]), ValueError, "one non-zero number"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
