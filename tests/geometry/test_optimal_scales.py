"""Theorem 1 of multi-label neural collapse, against the objective of the paper written out."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

from sklearn_xlc.geometry import optimal_label_set_scales, simplex_etf

K, D = 5, 6
LAMBDA_W, LAMBDA_H, LAMBDA_B = 4e-3, 2e-3, 1e-2


def balanced(n_per_set):
    """Label sets of samples, n_per_set[m - 1] for every set of m labels, as an indicator."""
    sets = [
        np.isin(np.arange(K), chosen)
        for m, count in enumerate(n_per_set, start=1)
        for chosen in combinations(range(K), m)
        for _ in range(count)
    ]
    return np.array(sets, dtype=float)


def objective(W, H, b, Y, lambda_w=LAMBDA_W):
    """Equation 4: features are the columns of H."""
    logits = W @ H + b[:, None]
    cross_entropy = -torch.log_softmax(logits, dim=0)  # of column i with label k, at (k, i)
    picked = (torch.tensor(Y).T * cross_entropy).sum() / Y.shape[0]
    return picked + lambda_w * W.square().sum() + LAMBDA_H * H.square().sum() + LAMBDA_B * b @ b


def minimised(Y, rng, lambda_w=LAMBDA_W):
    """W, H, b and the value at the end of a descent from a random start."""
    shapes = [(K, D), (D, len(Y)), (K,)]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def value_and_gradient(flat):
        parts = [
            torch.tensor(part.reshape(shape), requires_grad=True)
            for part, shape in zip(np.split(flat, cuts), shapes)
        ]
        value = objective(*parts, Y, lambda_w)
        value.backward()
        return value.item(), np.concatenate([part.grad.numpy().ravel() for part in parts])

    start = rng.standard_normal(sum(map(np.prod, shapes)))
    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 0, "gtol": 1e-11}
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    parts = [part.reshape(shape) for part, shape in zip(np.split(found.x, cuts), shapes)]
    return *parts, found.fun


def predicted(Y, scales, norm, rotation):
    """W and H of Theorem 1."""
    W = norm * simplex_etf(K, D, random_state=rotation)
    sizes = Y.sum(axis=1).astype(int)
    return W, (scales[sizes - 1, None] * (Y @ W)).T


@pytest.mark.parametrize("n_per_set", [(3,), (3, 1), (1, 4, 2), (2, 0, 1), (1, 1, 1, 1)])
def test_every_descent_ends_in_the_optimum_of_theorem_1(n_per_set, rng):
    Y = balanced(n_per_set)
    numbers = np.bincount(Y.sum(axis=1).astype(int), minlength=len(n_per_set) + 1)[1:]
    scales, norm = optimal_label_set_scales(
        K, numbers, feature_decay=LAMBDA_H * len(Y), weight_decay=LAMBDA_W
    )
    W, H, b, value = minimised(Y, rng)
    best = objective(*map(torch.tensor, (*predicted(Y, scales, norm, 0), np.zeros(K))), Y).item()
    assert value == pytest.approx(best, rel=1e-10)
    np.testing.assert_allclose(b, 0, atol=1e-6)  # Eq. 5, as lambda_b > 0
    simplex = K / (K - 1) * (np.eye(K) - 1 / K)
    np.testing.assert_allclose(W @ W.T, norm**2 * simplex, atol=1e-5)  # Eq. 6
    sizes = Y.sum(axis=1).astype(int)
    np.testing.assert_allclose(H.T, scales[sizes - 1, None] * (Y @ W), atol=1e-5)  # Eqs. 7, 8
    # Lemma 1, and condition II of Lemma 3
    np.testing.assert_allclose(LAMBDA_W * W.T @ W, LAMBDA_H * H @ H.T, atol=1e-6)
    for m in np.flatnonzero(numbers) + 1:
        np.testing.assert_allclose(H[:, sizes == m].sum(axis=1), 0, atol=1e-4)


def test_the_optimum_is_certified_by_the_convex_problem(rng):
    """Of Z = W H (proof of Theorem 2): gradient -2 sqrt(lambda_W lambda_H) times a subgradient."""
    Y = balanced((2, 1, 1))
    scales, norm = optimal_label_set_scales(
        K, [10, 10, 10], feature_decay=LAMBDA_H * len(Y), weight_decay=LAMBDA_W
    )
    W, H = predicted(Y, scales, norm, 1)
    Z = torch.tensor(W @ H, requires_grad=True)
    (-(torch.tensor(Y).T * torch.log_softmax(Z, dim=0)).sum() / len(Y)).backward()
    gradient, weight = Z.grad.numpy(), 2 * np.sqrt(LAMBDA_W * LAMBDA_H)
    assert np.linalg.norm(gradient, ord=2) <= weight * (1 + 1e-9)
    nuclear = np.linalg.svd(W @ H, compute_uv=False).sum()
    assert -np.sum(gradient * (W @ H)) == pytest.approx(weight * nuclear, rel=1e-9)
    both = LAMBDA_W * np.sum(W**2) + LAMBDA_H * np.sum(H**2)
    assert both == pytest.approx(weight * nuclear, rel=1e-9)


def test_the_equations_of_the_appendix_hold():
    n_per_set = np.array([4, 2, 1])
    m = np.array([1, 2, 3])
    n_sets = np.array([comb(K, size) for size in m])
    numbers = n_per_set * n_sets
    scales, norm = optimal_label_set_scales(
        K, numbers, feature_decay=LAMBDA_H * numbers.sum(), weight_decay=LAMBDA_W
    )
    rho = K * norm**2
    c_1 = m / (K - m) * np.exp(scales * rho / (K - 1))  # from the last line of Lemma 3's proof
    gamma = m / ((1 + c_1) * (K - m))
    kappa = (K / (m * n_sets)) ** 2 * np.array([comb(K - 2, size - 1) for size in m])
    # Eq. 44 as numbered; the end of its proof has the logarithm below the root
    log = np.log((K - m) / m * c_1)
    norms = np.sqrt(n_sets * n_per_set * m * (K - m) * (K - 1) / K) * log / rho
    q = np.sqrt(LAMBDA_H / LAMBDA_W) * np.sqrt(np.sum(gamma**2 * kappa * n_per_set * n_sets**2))
    np.testing.assert_allclose(gamma, norms / (n_sets * np.sqrt(kappa * n_per_set)) * q, rtol=1e-9)
    # The lower bound of Lemma 2 falls along rho as fast as the decays rise.
    assert q * np.sqrt(LAMBDA_W / LAMBDA_H) / numbers.sum() == pytest.approx(
        2 * np.sqrt(LAMBDA_W * LAMBDA_H), rel=1e-9
    )


@pytest.mark.parametrize("m", [1, 2, 4])
def test_lemma_8_bounds_the_loss_and_is_tight_between_two_levels(m, rng):
    c = 7.5
    inside = np.arange(K) < m

    def loss(z):
        return m * np.log(np.exp(z).sum()) - z[inside].sum()

    def bound(z):
        constant = c * m / (1 + c) * np.log(m) + m * c / (1 + c) * np.log((c + 1) / c)
        constant += m / (1 + c) * np.log((K - m) * (c + 1))
        return m / (K - m) / (1 + c) * (1 - K / m * inside) @ z + constant

    for z in 3 * rng.standard_normal((50, K)):
        assert loss(z) > bound(z)
    tight = np.where(inside, np.log((K - m) / m * c), 0.0) + 0.3
    assert loss(tight) == pytest.approx(bound(tight), rel=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_lemmas_6_and_7(m, rng):
    Y = np.array([np.isin(np.arange(K), chosen) for chosen in combinations(range(K), m)]).T * 1.0
    a, b = (m - 1) / (K - 1) * comb(K - 1, m - 1), m / K * comb(K, m)
    c = m / (K - 1) * comb(K - 1, m)
    np.testing.assert_allclose(np.linalg.pinv(Y.T), (a + c) / (b * c) * Y - a / (b * c), atol=1e-12)
    H = simplex_etf(K, D).T @ Y
    assert np.sum((H @ Y.T) ** 2) == pytest.approx(comb(K - 2, m - 1) * np.sum(H**2))
    # Lemma 7 needs sums of label vectors: of other features with mean zero it is a bound.
    other = rng.standard_normal((D, Y.shape[1]))
    other -= other.mean(axis=1, keepdims=True)
    assert np.sum((other @ Y.T) ** 2) <= comb(K - 2, m - 1) * np.sum(other**2) * (1 + 1e-12)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_scales_of_a_fixed_simplex(reduction):
    K, decay = 10, 0.03
    scales, norm = optimal_label_set_scales(
        K, np.ones(10), feature_decay=decay, reduction=reduction
    )
    assert norm == 1
    for m in range(1, 10):
        share = m if reduction == "sum" else 1

        def value(C, m=m, share=share):
            loss = share * np.log(m + (K - m) * np.exp(-C * K / (K - 1)))
            return loss + decay * C**2 * m * (K - m) / (K - 1)

        found = minimize_scalar(value, bounds=(0, 50), method="bounded", options={"xatol": 1e-10})
        assert scales[m - 1] == pytest.approx(found.x, rel=1e-6)


@pytest.mark.parametrize(("factor", "collapses"), [(0.9, False), (1.1, True)])
def test_a_strong_decay_leaves_nothing(factor, collapses, rng):
    Y = balanced((2, 1))
    lambda_w = factor * (4 / 20 + 6 / 20) / 2 / (4 * LAMBDA_H * len(Y))
    scales, norm = optimal_label_set_scales(
        K, [10, 10], feature_decay=LAMBDA_H * len(Y), weight_decay=lambda_w
    )
    W, H, _, _ = minimised(Y, rng, lambda_w)
    assert (norm == 0) == collapses
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), norm, atol=1e-4)
    assert (np.abs(H).max() < 1e-3) == collapses
    # Theorem 2: where zero is not the optimum, it is a saddle with a direction of descent.
    W = 1e-3 * simplex_etf(K, D)
    near, zero = (
        objective(
            *map(torch.tensor, (size * W, size * (Y @ W).T / (2 * LAMBDA_H * len(Y)))),
            torch.zeros(K, dtype=float),
            Y,
            lambda_w,
        ).item()
        for size in (1.0, 0.0)
    )
    assert (near > zero) == collapses


def test_extreme_numbers():
    for K, numbers in [(2, [1]), (10**6, [1, 1, 1]), (5, [1, 0, 0, 0, 3])]:
        for decays in [(1e-90, 1e-90), (1e-4, 1e-9), (1e60, 1e-92), (1e30, 1e30)]:
            scales, norm = optimal_label_set_scales(
                K, numbers, feature_decay=decays[0], weight_decay=decays[1]
            )
            assert np.isfinite(scales).all()
            assert (scales > 0).all()
            assert 0 <= norm < np.inf


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((1, [1]), {}, ValueError, "n_labels"),
        ((3, [1, 1, 1, 1]), {}, ValueError, "one number for 1, 2, ... labels"),
        ((3, [[1]]), {}, ValueError, "one number for 1, 2, ... labels"),
        ((3, [0, 0]), {}, ValueError, "nor all zero"),
        ((3, [2, -1]), {}, ValueError, "must not be negative"),
        ((3, [0, 0, 4]), {"weight_decay": 1.0}, ValueError, "have no direction"),
        ((3, [1]), {"feature_decay": 0.0}, ValueError, "feature_decay must be .*, got 0"),
        ((3, [1]), {"weight_decay": "1"}, TypeError, "weight_decay"),
        ((3, [1]), {"reduction": "max"}, ValueError, "reduction must be"),
    ],
)
def test_bad_arguments(arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        optimal_label_set_scales(*arguments, **{"feature_decay": 0.1, **options})
