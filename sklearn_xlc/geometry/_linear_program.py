"""Candidate witnesses and contradictions by floating-point methods, without proof."""

import time
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from sklearn_xlc._csr import FloatArray

TOLERANCE = 1e-9
# Share of the largest radius at which the search ends: the last rounds gain little.
GOOD_SHARE = 0.9
# Number of labels per feature added to the linear program (LP) at a time.
LABELS_PER_FEATURE = 3
N_PERCEPTRON_STEPS = 300
# Least distance of points from a boundary, as a share of their norm: the LP finds better ones.
MIN_MARGIN = 1e-6
# Largest entry of a combination of unit rows worth an exact proof.
MAX_DEFECT = 1e-6


class Ball(NamedTuple):
    """Solution of the Chebyshev LP.

    ``weights`` are the multipliers of the labels; None unless they combine the rows to zero, up to
    the tolerance of the solver.
    """

    centre: FloatArray
    radius: float
    weights: FloatArray | None


def largest_ball(
    rows: FloatArray, offsets: FloatArray | None, box: float, time_limit: float
) -> Ball | None:
    r"""Find the largest ball inside ``rows @ x + offsets > 0``, by the Chebyshev LP.

    Maximise r subject to :math:`a_i x + c_i \ge r` and :math:`|x_j| \le B`, the box, for rows and
    offsets divided by the norms of the rows. If r is negative, the best point violates a constraint
    by -r. The ball has at least nine tenths of the largest radius, or less at the time limit
    (seconds); None if none is found in time.

    Labels are added to the LP as needed: the largest ball for some labels is the largest for all
    labels if no other label cuts it, and a contradiction of some labels holds for all.
    """
    deadline = time.monotonic() + time_limit
    n_labels, n_features = rows.shape
    step = LABELS_PER_FEATURE * (n_features + 1)
    # Rows opposed to the mean row are the most likely to conflict with others.
    margins = rows @ rows.mean(axis=0) if offsets is None else offsets
    chosen = np.zeros(n_labels, dtype=bool)
    chosen[np.argsort(margins, kind="stable")[:step]] = True
    best = None
    while time.monotonic() < deadline:
        part = None if offsets is None else offsets[chosen]
        ball = _solve_dual(rows[chosen], part, box, deadline - time.monotonic())
        if ball is None:
            return best
        if ball.weights is not None:
            weights = np.zeros(n_labels)
            weights[chosen] = ball.weights
            ball = ball._replace(weights=weights)
        margins = rows @ ball.centre if offsets is None else rows @ ball.centre + offsets
        good = min(GOOD_SHARE * ball.radius, ball.radius)
        cutting = ~chosen & (margins < good - TOLERANCE)
        if not cutting.any() or (ball.weights is not None and ball.radius <= TOLERANCE):
            return ball
        if margins.min() > (0.0 if best is None else best.radius):
            best = Ball(ball.centre, float(margins.min()), None)
        order = np.argsort(np.where(cutting, margins, np.inf), kind="stable")
        chosen[order[: min(step, int(cutting.sum()))]] = True
    return best


def _solve_dual(
    rows: FloatArray, offsets: FloatArray | None, box: float, time_limit: float
) -> Ball | None:
    """Solve the LP for all given rows by its dual.

    The dual has n_features + 1 equations instead of n_labels inequalities: minimise
    c' lambda + B ||A' lambda||_1 over lambda >= 0 of sum 1. Its optimal vertex has at most
    n_features + 1 labels: the candidate contradiction. Its multipliers are the centre and the
    radius.
    """
    n_labels, n_features = rows.shape
    costs = np.full(n_labels + 2 * n_features, box)
    costs[:n_labels] = 0.0 if offsets is None else offsets
    eye = sp.eye_array(n_features)
    ones = sp.csr_array(np.ones((1, n_labels)))
    equations = sp.block_array(
        [[sp.csr_array(rows.T), -eye, eye], [ones, None, None]], format="csc"
    )
    right = np.append(np.zeros(n_features), 1.0)
    result = linprog(
        costs,
        A_eq=equations,
        b_eq=right,
        method="highs-ds",
        options={
            "time_limit": max(time_limit, 0.01),
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        },
    )
    if result.status != 0 or result.x is None:
        return None
    weights = result.x[:n_labels]
    exact = np.abs(weights @ rows).max(initial=0.0) <= MAX_DEFECT
    multipliers = result.eqlin.marginals
    return Ball(-multipliers[:n_features], float(multipliers[-1]), weights if exact else None)


def perceptron(
    rows: FloatArray,
    signs: FloatArray,
    n_steps: int = N_PERCEPTRON_STEPS,
    deadline: float = np.inf,
) -> FloatArray | None:
    """Find a point z well inside ``signs * (rows @ z) > 0`` in n_steps, or None.

    Start at the mean of the signed rows, and add the most violated row at every step.
    """
    z = signs @ rows / len(rows)
    for _ in range(n_steps):
        margins = signs * (rows @ z)
        worst = int(np.argmin(margins))
        if margins[worst] > MIN_MARGIN * np.linalg.norm(z):
            return z
        if time.monotonic() > deadline:
            return None
        z = z + signs[worst] * rows[worst]
    return None


def unit_rows_and_norms(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale rows to norm 1; return their norms, too. Zero rows stay zero."""
    # Divide by the largest entries first: squares of extreme entries overflow or underflow.
    sizes = np.abs(matrix).max(axis=1, initial=0.0)
    scaled = matrix / np.where(sizes > 0, sizes, 1.0)[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return scaled / np.where(norms > 0, norms, 1.0)[:, None], sizes * norms


def column_scales(matrix: FloatArray) -> FloatArray:
    """Return the largest magnitude of every column; 1 for zero columns."""
    sizes = np.abs(matrix).max(axis=0, initial=0.0)
    return np.where(sizes > 0, sizes, 1.0)
