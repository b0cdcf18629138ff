"""Label sets of rules with a smallest and largest number of labels, against sampled inputs."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.geometry import between_best, verify_at_cut, verify_by_size

N_LABELS = 5
EVERY = np.array(list(itertools.product([0, 1], repeat=N_LABELS)))
LIMITS = [(0, 5), (1, 5), (2, 5), (0, 2), (1, 3), (2, 2), (0, 1), (5, 5), (1, 1)]


def predicted(scores, cut, least, most):
    """The rule, written down once more: above the cut, among the best, and at least so many."""
    rank = (-scores).argsort(axis=1).argsort(axis=1)
    return ((scores > cut) & (rank < most)) | (rank < least)


def layer_of(rng):
    coef = np.round(rng.normal(size=(N_LABELS, 2)) * 16) / 16
    coef[1] = coef[0] * rng.choice([-2.0, 0.5])  # parallel labels, exactly
    return coef, np.round(rng.normal(scale=0.3, size=N_LABELS) * 16) / 16


def report_of(coef, intercept, cut, least, most, X=None, nonnegative=False):
    def verify(sets, side):
        points = None if X is None else X.copy()
        return verify_at_cut(
            coef, sets, intercept, cut, side, points=points, nonnegative=nonnegative, time_limit=30
        )

    return verify_by_size(EVERY, N_LABELS, least, most, verify)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_sets_that_some_input_gives(limits, nonnegative, seed):
    rng = np.random.default_rng(seed)
    coef, intercept = layer_of(rng)
    cut = 0.375
    report = report_of(coef, intercept, cut, *limits, nonnegative=nonnegative)
    X = rng.normal(size=(200_000, 2)) * 10.0 ** rng.uniform(-2, 2, size=(200_000, 1))
    X = np.abs(X) if nonnegative else X
    seen = predicted(X @ coef.T + intercept, cut, *limits) @ (1 << np.arange(N_LABELS))
    is_seen = np.isin(EVERY @ (1 << np.arange(N_LABELS)), seen)
    assert (report.status[is_seen] == 1).all()
    assert (report.status >= 0).all()
    argmaxable = report.status == 1
    scores = report.witness[argmaxable] @ coef.T + intercept
    np.testing.assert_array_equal(predicted(scores, cut, *limits), EVERY[argmaxable] == 1)
    np.testing.assert_array_equal(report.n_active, EVERY.sum(axis=1))
    sizes = EVERY.sum(axis=1)
    outside = (sizes < limits[0]) | (sizes > limits[1])
    np.testing.assert_array_equal(report.reason == "number of labels", outside)
    assert not report.status[outside].any()
    for row in np.flatnonzero(report.status == 0):
        assert set(report.conflicts[row]) <= set(range(N_LABELS))
    assert (report.radius[argmaxable] > 0).all()


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_sets_predicted_for_points_need_no_search(limits, rng):
    coef, intercept = layer_of(rng)
    cut = 0.375
    X = rng.normal(size=(300, 2))
    sets = predicted(X @ coef.T + intercept, cut, *limits)
    report = report_of(coef, intercept, cut, *limits, X=X)
    given = [bool((sets == (row == 1)).all(axis=1).any()) for row in EVERY]
    assert (report.reason[given] == "point").all()
    assert (report.status[given] == 1).all()


def test_no_set_and_sparse_sets(rng):
    coef, intercept = layer_of(rng)

    def verify(sets, side):
        return verify_at_cut(coef, sets, intercept, 0.0, side)

    assert len(verify_by_size(EVERY[:0], N_LABELS, 1, 3, verify)) == 0
    dense, sparse = (
        verify_by_size(form(EVERY), N_LABELS, 1, 3, verify) for form in (np.asarray, sp.csr_array)
    )
    np.testing.assert_array_equal(dense.status, sparse.status)


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("k", range(1, 6))
def test_a_threshold_parts_the_best_labels_from_the_others(side, k, rng):
    scores, cut = rng.normal(size=(50, N_LABELS)), 0.1
    at = between_best(scores, k, cut, side)
    assert ((scores > at[:, None]).sum(axis=1) == k).all()
    ordered = -np.sort(-scores, axis=1)
    low = ordered[:, k] if k < N_LABELS else np.full(50, -np.inf)
    if side < 0:
        assert (at[low < cut] < cut).all()
    if side > 0:
        assert (at[ordered[:, k - 1] > cut] > cut).all()
