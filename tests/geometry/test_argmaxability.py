"""Verdicts equal the theory of Fourier layers and exact elimination, and are never guessed."""

import itertools
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from sklearn_xlc.geometry import (
    ArgmaxabilityReport,
    count_argmaxable,
    count_sign_changes,
    fourier_matrix,
    is_argmaxable,
    verify_argmaxable,
)
from sklearn_xlc.geometry import _argmaxability as module
from sklearn_xlc.geometry._certificates import (
    exact_certificate,
    integer_row,
    is_certificate,
)

TRIANGLE = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])


def all_assignments(n_labels):
    return np.array(list(itertools.product([0, 1], repeat=n_labels)))


def exactly_feasible(rows):
    """Whether all strict inequalities ``row . (x, 1) > 0`` hold at once: Fourier-Motzkin."""
    rows = {tuple(row) for row in rows}
    for _ in range(len(next(iter(rows))) - 1):
        upper = [row for row in rows if row[0] < 0]
        lower = [row for row in rows if row[0] > 0]
        combined = {row[1:] for row in rows if row[0] == 0}
        for a, b in itertools.product(lower, upper):
            pair = [a[0] * v - b[0] * u for u, v in zip(a[1:], b[1:])]
            size = max(map(abs, pair)) or 1
            combined.add(tuple(Fraction(value) / size for value in pair))
        rows = combined
    return all(row[0] > 0 for row in rows)


def signed_table(W, b, y):
    biases = np.zeros(len(W)) if b is None else b
    table = np.column_stack([W, biases])
    return [
        tuple(Fraction(float(value)) * (1 if on else -1) for value in row)
        for row, on in zip(table, y)
    ]


def exact_answer(W, b, y):
    return exactly_feasible(signed_table(W, b, y))


def assert_proven(report, W, b, Y):
    """Every witness has the signs, and every conflict is one, both in fractions."""
    for row, y in enumerate(Y):
        table = signed_table(W, b, y)
        if report.status[row] == 1:
            point = [*map(Fraction, report.witness[row].tolist()), 1]
            assert all(sum(u * v for u, v in zip(line, point)) > 0 for line in table)
            assert report.conflicts[row] is None
            assert report.radius[row] >= 0
        else:
            assert np.all(np.isnan(report.witness[row]))
        if report.status[row] == 0:
            conflict = report.conflicts[row]
            assert len(conflict) <= W.shape[1] + 1
            assert not exactly_feasible([table[label] for label in conflict])
            assert report.radius[row] == 0
        if report.status[row] == -1:
            assert report.conflicts[row] is None
            assert np.isnan(report.radius[row])


def test_elimination_itself():
    assert exactly_feasible([(1, 0), (-1, 1)])  # 0 < x < 1
    assert not exactly_feasible([(1, -1), (-1, 1)])  # x > 1 and x < 1
    assert not exactly_feasible([(1, 0, 0), (0, 1, 0), (-1, -1, 0)])
    assert exactly_feasible([(1, 0, 0), (0, 1, 0), (-1, -1, 1)])


def check_fourier_layer(n_labels, max_active, hint):
    Y = all_assignments(n_labels)
    W = fourier_matrix(n_labels, max_active)
    report = verify_argmaxable(W, Y, max_active=max_active if hint else None)
    np.testing.assert_array_equal(report.status == 1, count_sign_changes(Y) <= 2 * max_active)
    assert report.n_unknown == 0
    assert report.n_argmaxable == count_argmaxable(n_labels, 2 * max_active + 1)


@pytest.mark.integration
@pytest.mark.parametrize("hint", [False, True])
@pytest.mark.parametrize(
    "n_labels, max_active",
    [*((n, k) for n in range(1, 7) for k in range((n - 1) // 2 + 1)), (7, 2), (7, 3)],
)
def test_all_assignments_of_fourier_layers(n_labels, max_active, hint):
    check_fourier_layer(n_labels, max_active, hint)


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_labels, max_active",
    [(7, 0), (7, 1), *((n, k) for n in (8, 9, 10) for k in range((n + 1) // 2))],
)
def test_all_assignments_of_larger_fourier_layers(n_labels, max_active):
    check_fourier_layer(n_labels, max_active, hint=False)


@pytest.mark.parametrize("n_labels, n_features", [(5, 2), (6, 4), (7, 5)])
@pytest.mark.parametrize("biased", [False, True])
def test_counts_of_random_layers(n_labels, n_features, biased, rng):
    W = rng.normal(size=(n_labels, n_features))
    b = rng.normal(size=n_labels) if biased else None
    report = verify_argmaxable(W, all_assignments(n_labels), b)
    assert report.n_unknown == 0
    assert report.n_argmaxable == count_argmaxable(n_labels, n_features, intercept=biased)


def test_small_figure_of_the_paper():
    Y = all_assignments(3)
    assert verify_argmaxable(TRIANGLE, Y).n_argmaxable == 6
    assert verify_argmaxable(TRIANGLE, Y, [0.1, 0.1, 0.1]).n_argmaxable == 7


@pytest.mark.slow
@pytest.mark.parametrize("n_labels, n_features", [(4, 2), (5, 1), (6, 3), (5, 4)])
def test_minors_of_one_sign_leave_what_alternates_little(n_labels, n_features):
    """Theorems 2 and 3: all sets with at most d - 1 changes of sign in a row, and no others."""
    rng = np.random.default_rng(0)
    powers = np.arange(1.0, n_labels + 1)[:, None] ** np.arange(n_features)
    mixed = rng.uniform(0.5, 2, (n_labels, 1)) * powers @ rng.normal(size=(n_features, n_features))
    Y = all_assignments(n_labels)
    alternations = np.abs(np.diff(Y, axis=1)).sum(axis=1)  # Eq. 6
    rows = np.array(list(itertools.combinations(range(n_labels), n_features)))
    for W in (powers, mixed):
        minors = np.linalg.det(W[rows])
        assert minors.min() > 0 or minors.max() < 0
        report = verify_argmaxable(W, Y)
        assert report.n_unknown == 0
        np.testing.assert_array_equal(report.status == 1, alternations <= n_features - 1)


def literal_radius(W, b, y, box):
    """The linear program of Eq. 3 as it is printed, but with biases and without a least radius."""
    signs, norms = np.where(y, 1.0, -1.0), np.linalg.norm(W, axis=1)
    result = linprog(
        np.append(np.zeros(W.shape[1]), -1.0),  # maximise epsilon
        A_ub=np.column_stack([-signs[:, None] * W, norms]),
        b_ub=signs * b,
        bounds=[*[(-box, box)] * W.shape[1], (0, None)],
        method="highs",
    )
    return result.x[-1] if result.status == 0 else 0.0


@pytest.mark.parametrize("biased", [False, True])
def test_radius_is_that_of_equation_3(biased):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(9, 3)), rng.normal(size=9) * biased
    Y = all_assignments(9)[::41]
    report = verify_argmaxable(W, Y, b if biased else None, box=100.0, search_radius=True)
    expected = np.array([literal_radius(W, b, y, 100.0) for y in Y])
    assert np.nanmax(np.abs(report.witness)) <= 100 * (1 + 1e-9)
    np.testing.assert_allclose(report.radius, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(report.status == 1, expected > 1e-7)
    # A point outside of the box, where radii are larger, is not what was searched for.
    far = 1e3 * report.witness[report.status == 1]
    again = verify_argmaxable(
        W, Y, b if biased else None, box=100.0, search_radius=True, points=far
    )
    np.testing.assert_allclose(again.radius, expected, rtol=1e-6, atol=1e-7)


def test_noise_up_to_the_radius_changes_no_label(rng):
    """Definition 3: below the radius no noise on the features does, beyond it some does."""
    W = rng.normal(size=(12, 4))
    y = (W @ rng.normal(size=4) > 0).astype(int)
    report = verify_argmaxable(W, y, search_radius=True)
    x, radius = report.witness[0], report.radius[0]
    directions = np.vstack([rng.normal(size=(200, 4)), W, -W])  # of a label: the shortest way out
    noise = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    assert ((x + radius * (1 - 1e-9) * noise) @ W.T > 0).tolist() == [list(y)] * len(noise)
    assert ((x + radius * (1 + 1e-6) * noise) @ W.T > 0).tolist() != [list(y)] * len(noise)


def test_slack_columns_lose_no_set():
    """Lemma 3: zeros on the slack columns keep every logit."""
    rng = np.random.default_rng(0)
    W, Y = rng.normal(size=(6, 2)), all_assignments(6)
    before = verify_argmaxable(W, Y)
    after = verify_argmaxable(np.column_stack([W, rng.normal(size=(6, 2))]), Y)
    assert 0 < before.n_argmaxable < after.n_argmaxable
    assert (after.status[before.status == 1] == 1).all()


def random_case(seed):
    """A small layer of small integers, full of zero, parallel and dependent rows."""
    rng = np.random.default_rng(seed)
    n_labels, n_features = rng.integers(1, 7), rng.integers(1, 4)
    size = rng.integers(1, 4)
    W = rng.integers(-size, size + 1, size=(n_labels, n_features)).astype(float)
    b = None if rng.random() < 0.4 else rng.integers(-size, size + 1, n_labels).astype(float)
    if rng.random() < 0.3:
        Y = rng.integers(0, 2, size=(1, n_labels))
    else:
        x = rng.integers(-3, 4, size=n_features)
        Y = ((W @ x + (0 if b is None else b)) > 0)[None].astype(int)
    return W, b, Y


def check_random_case(seed):
    W, b, Y = random_case(seed)
    report = verify_argmaxable(W, Y, b)
    assert report.status[0] == exact_answer(W, b, Y[0]), (seed, W, b, Y, report.reason)
    assert_proven(report, W, b, Y)
    return report.reason[0]


def test_small_integer_layers_against_exact_elimination():
    reasons = {check_random_case(seed) for seed in range(300)}
    assert reasons >= {
        "perceptron",
        "linear program",
        "constant label",
        "parallel labels",
        "certificate",
    }


@pytest.mark.slow
def test_many_small_integer_layers_against_exact_elimination():
    for seed in range(1000, 11_000):
        check_random_case(seed)


def check_float_case(seed):
    """Layers of floats that nearly depend on each other: right or unknown, never wrong."""
    rng = np.random.default_rng(seed)
    n_labels, n_features = int(rng.integers(3, 6)), int(rng.integers(1, 4))
    W = rng.integers(-2, 3, size=(n_labels, n_features)) / 3.0
    b = rng.integers(-2, 3, n_labels) / 7.0 if rng.random() < 0.5 else None
    W += 10.0 ** -rng.uniform(8, 17) * rng.normal(size=W.shape) * (rng.random(W.shape) < 0.3)
    Y = rng.integers(0, 2, size=(1, n_labels))
    report = verify_argmaxable(W, Y, b)
    if report.n_unknown == 0:
        assert report.status[0] == exact_answer(W, b, Y[0]), (seed, W, b, Y, report.reason)
    assert_proven(report, W, b, Y)
    return report.status[0]


@pytest.mark.slow
def test_nearly_degenerate_layers_against_exact_elimination():
    answers = [check_float_case(seed) for seed in range(300)]
    assert answers.count(1) > 50
    assert answers.count(0) > 50
    assert answers.count(-1) < 30


@pytest.mark.slow
def test_many_nearly_degenerate_layers_against_exact_elimination():
    for seed in range(1000, 6000):
        check_float_case(seed)


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 60))]
)
def test_scaling_by_powers_of_two_changes_no_answer(seed):
    # Positive factors of rows, and of columns without biases, leave argmaxability as it is.
    W, b, Y = random_case(seed)
    rng = np.random.default_rng(seed)
    row_scale = np.ldexp(1.0, rng.integers(-400, 400, len(W)))
    column_scale = np.ldexp(1.0, rng.integers(-60, 60, W.shape[1]))
    scaled_b = None if b is None else b * row_scale
    report = verify_argmaxable(W * row_scale[:, None] * column_scale, Y, scaled_b)
    assert report.status[0] in (-1, int(exact_answer(W, b, Y[0])))
    report = verify_argmaxable(W * row_scale[:, None], Y, scaled_b)
    assert report.status[0] == int(exact_answer(W, b, Y[0]))


@pytest.mark.parametrize("size", [1e300, 1e-300, 5e-324])
def test_extreme_sizes(size):
    W = size * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    report = verify_argmaxable(W, [[1, 0, 1], [1, 1, 1]])
    assert report.status.tolist() == [1, 0]
    # With biases the witness has entries near 1 / size, which are no floats for the smallest size.
    report = verify_argmaxable(W, [1, 0, 1], [1.0, 1.0, 1.0])
    assert report.status[0] == (1 if size > 5e-324 else -1)


def test_ties_do_not_count():
    # A label without weights and bias has the logit zero for every x.
    W = np.array([[1.0], [0.0]])
    report = verify_argmaxable(W, [[1, 0], [1, 1]])
    assert report.status.tolist() == [0, 0]
    assert report.reason.tolist() == ["constant label"] * 2
    assert [conflict.tolist() for conflict in report.conflicts] == [[1], [1]]
    report = verify_argmaxable(W, [[1, 0], [1, 1]], [0.0, -2.0])
    assert report.status.tolist() == [1, 0]


def test_layer_of_constant_labels():
    report = verify_argmaxable(np.zeros((2, 3)), [[1, 0], [0, 0]], [1.0, -1.0])
    assert report.status.tolist() == [1, 0]
    assert report.radius[0] == np.inf


@pytest.mark.parametrize(
    "rows, biases, y, status",
    [
        ([[1, 2], [1, 2]], None, [1, 0], 0),
        ([[1, 2], [3, 6]], None, [1, 0], 0),
        ([[1, 2], [-3, -6]], None, [1, 1], 0),
        ([[1, 2], [-3, -6]], None, [1, 0], 1),
        ([[1, 2], [1, 2]], [0, 1], [1, 0], 0),  # z > 0 and z < -1
        ([[1, 2], [1, 2]], [0, -1], [1, 0], 1),  # 0 < z < 1
        ([[1, 2], [1, 2]], [1, 1], [1, 0], 0),  # z > -1 and z < -1
        ([[1, 2], [-2, -4]], [0, 4], [1, 1], 1),  # 0 < z < 2
        ([[1, 2], [-2, -4]], [0, -4], [1, 1], 0),  # z > 0 and z < -2
    ],
)
def test_parallel_labels(rows, biases, y, status):
    report = verify_argmaxable(rows, y, biases)
    assert report.status.tolist() == [status]
    if status == 0:
        assert report.reason.tolist() == ["parallel labels"]
        assert report.conflicts[0].tolist() == [0, 1]


def test_region_outside_the_box_is_found():
    # x > 10^6 and x < 10^6 + 1: far outside the box of the linear program.
    report = verify_argmaxable([[1.0], [-1.0]], [1, 1], [-1e6, 1e6 + 1])
    assert report.status.tolist() == [1]
    assert 1e6 < report.witness[0, 0] < 1e6 + 1


def test_fourier_layer_of_a_thousand_labels(rng):
    Y = np.zeros((20, 1000), dtype=int)
    for row in Y:
        row[rng.choice(1000, 10, replace=False)] = 1
    Y[0] = 0
    Y[0, 300:310] = 1
    W = fourier_matrix(1000, 10)
    report = verify_argmaxable(W, sp.csr_array(Y), max_active=10)
    assert report.n_unargmaxable == 0
    assert report.status[0] == 1
    assert report.n_argmaxable >= 19
    # The theorem decides where labels stand so close together that no float is a witness.
    assert set(report.reason[report.status == 1]) <= {"closed form", "sign changes"}
    closed = report.reason == "closed form"
    assert closed.sum() > 10
    np.testing.assert_array_equal((report.witness[closed] @ W.T > 0), Y[closed] > 0)


def test_witness_of_a_fourier_layer_with_slack_and_bias(rng):
    W = np.column_stack([fourier_matrix(40, 3), rng.normal(size=(40, 2))]).astype(np.float32)
    y = np.zeros(40, dtype=int)
    y[[3, 20, 21]] = 1
    for bias in (None, rng.normal(size=40)):
        report = verify_argmaxable(W, y, bias, max_active=3)
        assert report.reason.tolist() == ["closed form"]
        np.testing.assert_array_equal(report.witness[0, 7:], 0)
    # More sign changes than the Fourier columns allow: the slack columns decide.
    assert verify_argmaxable(W, np.tile([1, 0], 20), max_active=3).status.tolist() == [0]
    realised = (W.astype(float) @ rng.normal(size=9) > 0).astype(int)
    assert is_argmaxable(W, realised, max_active=3)


@pytest.mark.parametrize("biased", [False, True])
def test_many_labels_few_features(biased, rng):
    W = rng.normal(size=(4000, 20))
    b = rng.normal(size=4000) if biased else None
    realised = W @ rng.normal(size=20) + (0 if b is None else b) > 0
    sparse_set = np.zeros(4000)
    sparse_set[rng.choice(4000, 8, replace=False)] = 1
    start = time.monotonic()
    report = verify_argmaxable(W, np.array([realised, sparse_set]), b, time_limit=20.0)
    assert time.monotonic() - start < 60
    assert report.status.tolist() == [1, 0]
    conflict = report.conflicts[1]
    assert 2 <= len(conflict) <= 22
    # The conflict stands by itself: those labels alone are contradictory, too.
    alone = verify_argmaxable(W[conflict], sparse_set[conflict], None if b is None else b[conflict])
    assert alone.status.tolist() == [0]


def test_wide_conflicts(rng):
    W = rng.normal(size=(600, 90))
    y = np.zeros(600)
    y[:4] = 1
    report = verify_argmaxable(W, y)
    assert report.status.tolist() == [0]
    assert len(report.conflicts[0]) == 91


def test_numerically_rank_deficient_layer(rng):
    # Rank 3 but for rounding, which alone decides most sets: claims must still hold exactly.
    W = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 12))
    Y = np.vstack([W @ rng.normal(size=12) > 0, rng.random((10, 30)) < 0.2]).astype(int)
    report = verify_argmaxable(W, Y, time_limit=5.0)
    assert report.status[0] == 1
    for row, y in enumerate(Y):
        if report.status[row] == 1:
            point = [*map(Fraction, report.witness[row].tolist()), 0]
            lines = signed_table(W, None, y)
            assert all(sum(u * v for u, v in zip(line, point)) > 0 for line in lines)
        if report.status[row] == 0:
            labels = report.conflicts[row]
            rows = [integer_row((2 * y[label] - 1) * W[label]) for label in labels]
            assert is_certificate(rows, exact_certificate(rows))


def test_time_limit_ends_in_unknown(rng):
    W = rng.normal(size=(3000, 60))
    start = time.monotonic()
    report = verify_argmaxable(W, (rng.random((1, 3000)) < 0.01).astype(int), time_limit=1e-3)
    assert time.monotonic() - start < 10
    assert report.status.tolist() == [-1]
    assert report.reason.tolist() == ["time limit"]
    assert is_argmaxable(W, (rng.random(3000) < 0.01).astype(int), time_limit=1e-3) is None


def test_claims_of_the_solver_are_no_answer(monkeypatch, rng):
    from sklearn_xlc.geometry import _decision
    from sklearn_xlc.geometry._linear_program import Ball

    def lying(rows, offsets, box, time_limit):
        weights = np.full(len(rows), 1 / len(rows))
        return Ball(np.ones(rows.shape[1]), 5.0, weights)

    monkeypatch.setattr(_decision, "largest_ball", lying)
    monkeypatch.setattr(_decision, "perceptron", lambda *args, **kwargs: None)
    report = verify_argmaxable(TRIANGLE, all_assignments(3))
    for y, status in zip(all_assignments(3), report.status):
        assert status in (-1, int(exact_answer(TRIANGLE, None, y)))
    assert report.n_unknown > 0


def test_points_are_tried_first(rng):
    W, b = rng.normal(size=(50, 6)), rng.normal(size=50)
    X = rng.normal(size=(30, 6))
    Y = (X @ W.T + b > 0).astype(int)
    report = verify_argmaxable(W, Y[::-1], b, points=X)
    assert set(report.reason) == {"point"}
    np.testing.assert_array_equal(report.witness, X[::-1])
    other = verify_argmaxable(W, 1 - Y[:1], b, points=X)
    assert other.reason[0] != "point"


def test_points_in_blocks(monkeypatch, rng):
    W, X = rng.normal(size=(50, 6)), rng.normal(size=(30, 6))
    monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", 100)
    report = verify_argmaxable(W, X @ W.T > 0, points=X)
    assert set(report.reason) == {"point"}


def test_radius_is_that_of_the_ball_around_the_witness(rng):
    W, b = rng.normal(size=(12, 3)), rng.normal(size=12)
    Y = all_assignments(12)[::111]
    for bias in (None, b):
        report = verify_argmaxable(W, Y, bias)
        found = report.status == 1
        logits = report.witness[found] @ W.T + (0 if bias is None else bias)
        distances = np.abs(logits) / np.linalg.norm(W, axis=1)
        np.testing.assert_allclose(report.radius[found], distances.min(axis=1), rtol=1e-9)
        if bias is None:
            sizes = np.abs(report.witness[found]).max(axis=1)
            assert np.all(sizes <= 1e4 * (1 + 1e-9))
            assert np.all(sizes > 1e4 / 2)


def test_narrow_regions_are_marked():
    W = [[1.0, 0.0], [-1.0, 1e-12]]  # 0 < x0 < 1e-12 x1
    report = verify_argmaxable(W, [[1, 1], [1, 0]], min_radius=1e-6)
    assert report.status.tolist() == [1, 1]
    assert report.narrow.tolist() == [True, False]


def test_formats_and_repeated_sets():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(9, 3))
    Y = rng.integers(0, 2, size=(16, 9))
    Y = np.vstack([Y, Y[::-1]])
    expected = verify_argmaxable(W, Y)
    np.testing.assert_array_equal(expected.status[:16], expected.status[16:][::-1])
    for container in (sp.csr_array, sp.coo_array):
        report = verify_argmaxable(W, container(Y))
        np.testing.assert_array_equal(report.status, expected.status)
        np.testing.assert_array_equal(report.n_active, Y.sum(axis=1))
    for y, status in zip(Y[:6], expected.status):
        assert is_argmaxable(W, y) is bool(status)


def test_each_set_is_decided_once(monkeypatch, rng):
    calls = []
    original = module.decide

    def counting(*args):
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(module, "decide", counting)
    verify_argmaxable(rng.normal(size=(5, 2)), [[1, 0, 0, 0, 1]] * 7 + [[0] * 5] * 2)
    assert len(calls) == 2


def test_no_sets():
    report = verify_argmaxable(TRIANGLE, np.zeros((0, 3)))
    assert len(report) == 0


@pytest.mark.slow
def test_parallel_jobs_give_the_same_report(rng):
    W = rng.normal(size=(30, 5))
    Y = sp.csr_array(rng.integers(0, 2, size=(12, 30)))
    one, two = verify_argmaxable(W, Y), verify_argmaxable(W, Y, n_jobs=2)
    for name in ("status", "radius", "witness", "reason"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_progress(capsys):
    W, Y = np.random.default_rng(0).normal(size=(8, 3)), all_assignments(8)[:30]
    verify_argmaxable(W, Y)
    assert capsys.readouterr().err == ""
    verify_argmaxable(W, Y, verbose=10)  # joblib 1.4 says nothing from 1 on
    assert "[Parallel(n_jobs=1)]: Done" in capsys.readouterr().err


@pytest.mark.parametrize("with_biases", [False, True])
@pytest.mark.parametrize("mask", [True, [True, False, True]], ids=["all", "some"])
def test_non_negative_features_are_inequalities_of_their_own(rng, with_biases, mask):
    """Fourier-Motzkin in fractions on ``s_i (w_i x + b_i) > 0`` and ``x_j > 0``."""
    W = rng.integers(-3, 4, (5, 3)).astype(float)
    b = rng.integers(-2, 3, 5).astype(float) if with_biases else None
    Y = all_assignments(5)
    report = verify_argmaxable(W, Y, b, nonnegative=mask)
    bounded = [
        tuple(map(Fraction, row))
        for row, kept in zip(np.eye(3, 4, dtype=int).tolist(), np.broadcast_to(mask, 3))
        if kept
    ]
    table = [exactly_feasible(signed_table(W, b, y) + bounded) for y in Y]
    np.testing.assert_array_equal(report.status, table)
    found = report.status == 1
    assert 0 < found.sum() < len(Y)
    assert (report.witness[found][:, np.broadcast_to(mask, 3)] > 0).all()
    assert (report.n_active == Y.sum(axis=1)).all()
    assert report.n_labels == 5
    for row in np.flatnonzero(report.status == 0):
        conflict = report.conflicts[row]
        rows = [signed_table(W, b, Y[row])[label] for label in conflict]
        assert not exactly_feasible(rows + bounded)


def test_points_may_have_features_of_zero():
    report = verify_argmaxable(TRIANGLE, [1, 0, 0], points=[[2.0, 0.0]], nonnegative=True)
    assert report.reason[0] == "point"
    np.testing.assert_allclose(report.witness[0] / report.witness[0].max(), [1, 0], atol=1e-8)


@pytest.mark.parametrize("search_radius", [False, True])
def test_radius_is_the_distance_from_labels_and_not_from_features_of_zero(search_radius):
    W, b = [[1.0, 0.0], [0.0, 1.0]], [0.0, -1.0]
    options = {"points": [[5.0, 0.0]], "search_radius": search_radius}
    report = verify_argmaxable(W, [[1, 0]], b, nonnegative=True, **options)
    x = report.witness[0]
    assert report.radius[0] == pytest.approx(min(x[0], 1 - x[1]))
    assert report.radius[0] > 0.9
    assert not report.narrow.any()


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        ((TRIANGLE, [1, 0]), {}, ValueError, r"Y and the weights \(coef\) must have equally many"),
        (
            (TRIANGLE, [1, 0, 2]),
            {},
            ValueError,
            "Y must hold 0 and 1 only, got 2 in row 0, column 2",
        ),
        ((TRIANGLE[0], [1, 0, 0]), {}, ValueError, "Expected 2D array"),
        ((TRIANGLE * np.nan, [1, 0, 0]), {}, ValueError, "coef contains NaN"),
        (
            (TRIANGLE, [1, 0, 0], [1.0, 2.0]),
            {},
            ValueError,
            r"equally many labels, got \(3,\) and \(2,\)",
        ),
        (
            (np.eye(4), [1, 0, 0, 0], np.ones((2, 2))),
            {},
            ValueError,
            r"equally many labels, got \(4,\) and \(2, 2\)",
        ),
        ((TRIANGLE, [1, 0, 0], [1, 2, np.inf]), {}, ValueError, "intercept contains infinity"),
        ((TRIANGLE, [1, 0, 0], "zero"), {}, ValueError, "intercept: could not convert string"),
        ((TRIANGLE, [1, 0, 0]), {"nonnegative": 1}, ValueError, "True, False or a mask of the 2 f"),
        ((TRIANGLE, [1, 0, 0]), {"nonnegative": [True]}, ValueError, r"got \[True\]"),
        (
            (TRIANGLE, [1, 0, 0]),
            {"points": [[1.0]]},
            ValueError,
            "equally many features, got 1 and 2",
        ),
        ((TRIANGLE, [1, 0, 0]), {"box": 0}, ValueError, "box must be finite and above 0"),
        ((TRIANGLE, [1, 0, 0]), {"box": np.inf}, ValueError, "box must be finite"),
        ((TRIANGLE, [1, 0, 0]), {"box": "1"}, TypeError, "box must be finite"),
        (
            (TRIANGLE, [1, 0, 0]),
            {"time_limit": 0},
            ValueError,
            "time_limit must be finite and above 0",
        ),
        (
            (TRIANGLE, [1, 0, 0]),
            {"min_radius": -1.0},
            ValueError,
            "min_radius must be .*, got -1.0",
        ),
        ((TRIANGLE, [1, 0, 0]), {"max_active": 1}, ValueError, "needs 3 Fourier columns.*has 2"),
        ((np.eye(3), [1, 0, 0]), {"max_active": 1}, ValueError, "are not fourier_matrix"),
        ((np.eye(3), [1, 0, 0]), {"max_active": 1.0}, TypeError, "max_active must be an integer"),
    ],
)
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        verify_argmaxable(*arguments, **options)


def test_one_assignment_only():
    with pytest.raises(ValueError, match="y must be one assignment, got 8 rows"):
        is_argmaxable(TRIANGLE, all_assignments(3))


def test_search_radius_widens_what_cheap_witnesses_left_narrow():
    rng = np.random.default_rng(0)
    n_labels, k = 60, 6
    W = np.hstack([fourier_matrix(n_labels, k), rng.normal(size=(n_labels, 40))])
    Y = (rng.random((5, n_labels)) < 0.08).astype(int)
    Y[Y.sum(axis=1) > k] = 0
    quick = verify_argmaxable(W, Y, max_active=k)
    wide = verify_argmaxable(W, Y, max_active=k, search_radius=True)
    assert (quick.status == 1).all()
    assert (wide.status == 1).all()
    assert (wide.radius >= quick.radius).all()
    active = Y.any(axis=1)
    assert (wide.radius[active] > 10 * quick.radius[active]).all()
    for x, y, radius in zip(wide.witness, Y, wide.radius):
        margins = (2 * y - 1) * (W @ x) / np.linalg.norm(W, axis=1)
        assert margins.min() == pytest.approx(radius, rel=1e-9)


def test_search_radius_also_improves_on_points():
    W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    point = np.array([[1.0, 1e-3]])
    y = (W @ point[0] > 0).astype(int)
    first = verify_argmaxable(W, y, points=point)
    assert first.reason[0] == "point"
    best = verify_argmaxable(W, y, points=point, search_radius=True)
    assert best.radius[0] > first.radius[0]
    assert best.reason[0] == "linear program"


def test_a_pipeline_is_told_to_pass_its_last_step():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    with pytest.raises(ValueError, match="pass its last step"):
        verify_argmaxable(make_pipeline(LogisticRegression()), [[1, 0]])


# --- the report ---


@pytest.fixture
def report():
    return ArgmaxabilityReport(
        status=np.array([1, 1, 0, -1], dtype=np.int8),
        radius=np.array([2.0, 1e-9, 0.0, np.nan]),
        witness=np.array([[1.0], [2.0], [np.nan], [np.nan]]),
        reason=np.array(["point", "linear program", "certificate", "time limit"]),
        conflicts=[None, None, np.array([0, 2]), None],
        n_active=np.array([1, 2, 3, 4]),
        n_labels=5,
        min_radius=1e-8,
    )


def test_counts(report):
    assert len(report) == report.n_sets == 4
    assert (report.n_argmaxable, report.n_unargmaxable, report.n_unknown) == (2, 1, 1)
    assert report.narrow.tolist() == [False, True, False, False]


def test_repr(report):
    assert repr(report) == (
        "ArgmaxabilityReport(n_sets=4, argmaxable=2 (narrow: 1), not argmaxable=1, unknown=1)"
    )


def test_html_has_a_row_for_every_reason(report):
    text = report._repr_html_()
    assert text.count("<tr>") == 5
    assert "4 label sets of 5 labels" in text
    assert "<td>not argmaxable</td><td>certificate</td><td>1</td><td>3.0</td>" in text


def test_frame(report):
    frame = report.to_frame()
    assert frame["status"].tolist() == ["argmaxable", "argmaxable", "not argmaxable", "unknown"]
    assert frame["n_active"].tolist() == [1, 2, 3, 4]
    assert frame["conflict"][2].tolist() == [0, 2]
    assert frame["conflict"][0] is None


def test_frame_names_what_is_missing(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        report.to_frame()
