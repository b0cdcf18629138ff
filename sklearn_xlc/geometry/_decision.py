"""Decision about one label set: candidate proofs of increasing cost."""

import contextlib
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._csr import BoolArray, FloatArray, IntArray
from sklearn_xlc.geometry._certificates import (
    OutOfTimeError,
    find_conflict,
    is_witness,
    prove_conflict,
)
from sklearn_xlc.geometry._counting import count_sign_changes
from sklearn_xlc.geometry._fourier import (
    fourier_matrix,
    witness_coefficients,
    witness_polynomial,
)
from sklearn_xlc.geometry._linear_program import (
    column_scales,
    largest_ball,
    perceptron,
    unit_rows_and_norms,
)
from sklearn_xlc.geometry._validation import LinearLayer

ARGMAXABLE, UNARGMAXABLE, UNKNOWN = 1, 0, -1
# Tolerance for float32 copies of the Fourier matrix.
FOURIER_TOLERANCE = 1e-6
PARALLEL_TOLERANCE = 1e-9
SOLVER_SLACK = 1e-9


class Verdict(NamedTuple):
    """Answer for one label set."""

    status: int
    reason: str
    radius: float = np.nan
    witness: FloatArray | None = None
    conflict: IntArray | None = None


class ParallelRows(NamedTuple):
    """Labels with parallel weights: w = norm * orientation * common row."""

    labels: IntArray
    group: IntArray
    orientation: FloatArray
    threshold: FloatArray


class Problem(NamedTuple):
    """A layer, and the quantities shared by all label sets.

    ``rows`` are the unit rows of the weights, or of weights and biases together. ``constant`` marks
    the labels with zero weights: their logit is their bias. Rows after ``n_labels`` are features
    that must be positive, and bound no label.
    """

    layer: LinearLayer
    rows: FloatArray
    weight_rows: FloatArray
    norms: FloatArray
    constant: BoolArray
    parallel: ParallelRows
    max_active: int | None
    box: float
    n_labels: int


def prepare(
    layer: LinearLayer,
    max_active: int | None = None,
    box: float = 1e4,
    n_labels: int | None = None,
) -> Problem:
    """Compute the quantities shared by all label sets of a layer."""
    weight_rows, norms = unit_rows_and_norms(layer.coef)
    if layer.intercept is None:
        rows = weight_rows
    else:
        rows = unit_rows_and_norms(np.column_stack([layer.coef, layer.intercept]))[0]
    if max_active is not None:
        _check_fourier(layer, max_active)
    constant = np.asarray(~layer.coef.any(axis=1))
    parallel = _find_parallel(layer, weight_rows, norms)
    n_labels = len(norms) if n_labels is None else n_labels
    return Problem(layer, rows, weight_rows, norms, constant, parallel, max_active, box, n_labels)


def decide(
    problem: Problem, active: IntArray, time_limit: float, search_radius: bool = False
) -> Verdict:
    """Decide the label set with the given active labels."""
    deadline = time.monotonic() + time_limit
    signs = np.full(len(problem.layer.coef), -1.0)
    signs[active] = 1.0
    verdict = None
    # Candidates may overflow; the proofs reject infinite numbers.
    with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(OutOfTimeError):
        for propose in (_simple_conflict, _cheap_witness, _by_linear_program):
            verdict = propose(problem, signs, deadline)
            if verdict is not None:
                break
        if search_radius and verdict is not None and verdict.status == ARGMAXABLE:
            verdict = widest(problem, signs, verdict, deadline)
    if verdict is not None:
        return verdict
    return Verdict(UNKNOWN, "unresolved" if time.monotonic() < deadline else "time limit")


def widest(problem: Problem, signs: FloatArray, verdict: Verdict, deadline: float) -> Verdict:
    """Return the verdict of the linear program if its radius is larger, else the given one."""
    if verdict.reason == "linear program":
        return verdict
    with contextlib.suppress(OutOfTimeError):
        found = _by_linear_program(problem, signs, deadline)
        if found is not None and found.status == ARGMAXABLE and is_wider(problem, found, verdict):
            return found
    return verdict


def is_wider(problem: Problem, found: Verdict, verdict: Verdict) -> bool:
    """Return whether a witness is wider: inside the box rather than outside, then by radius."""

    def order(one: Verdict) -> tuple[bool, float]:
        largest = 0.0 if one.witness is None else float(np.abs(one.witness).max())
        return largest <= problem.box * (1 + SOLVER_SLACK), one.radius

    return order(found) > order(verdict)


def _simple_conflict(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """Find a contradiction in a label without weights, or in two labels with parallel weights."""
    layer = problem.layer
    if problem.constant.any():
        # The logit is the bias for all x; without a bias it is always zero, a tie.
        biases = 0.0 if layer.intercept is None else layer.intercept
        wrong = np.flatnonzero(problem.constant & ~(signs * biases > 0))
        if len(wrong):
            return Verdict(UNARGMAXABLE, "constant label", 0.0, conflict=wrong[:1])
    labels, group, orientation, threshold = problem.parallel
    if not len(labels):
        return None
    # Each label requires common row * x above or below its threshold.
    above = signs[labels] * orientation > 0
    lower = np.full(group[-1] + 1, -np.inf)
    upper = np.full(group[-1] + 1, np.inf)
    np.maximum.at(lower, group[above], threshold[above])
    np.minimum.at(upper, group[~above], threshold[~above])
    # An infinite bound is missing or beyond the range of floats: left to the linear program.
    for g in np.flatnonzero((lower >= upper) & np.isfinite(lower) & np.isfinite(upper)):
        members = group == g
        low = labels[members & above & (threshold == lower[g])][0]
        high = labels[members & ~above & (threshold == upper[g])][0]
        pair = np.sort(np.array([low, high]))
        conflict = prove_conflict(layer, signs, pair, deadline)
        if conflict is not None:
            return Verdict(UNARGMAXABLE, "parallel labels", 0.0, conflict=conflict)
    return None


def _cheap_witness(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """Find a witness by the closed form, else by the perceptron."""
    if problem.max_active is not None:
        y = (signs > 0).astype(np.int8)
        if count_sign_changes(y) <= 2 * problem.max_active:
            verdict = _by_closed_form(problem, signs, y, deadline)
            if verdict is not None:
                return verdict
    rows, kept = _homogeneous(problem, signs)
    z = perceptron(rows, kept, deadline=deadline)
    return None if z is None else _try_point(problem, signs, z, "perceptron", deadline)


def _by_closed_form(
    problem: Problem, signs: FloatArray, y: npt.NDArray[np.int8], deadline: float
) -> Verdict | None:
    """Find a closed-form witness for few sign changes; if it fails without biases, the theorem."""
    assert problem.max_active is not None
    log_size, x = witness_polynomial(y), np.zeros(problem.layer.coef.shape[1])
    x[: 2 * problem.max_active + 1] = witness_coefficients(y, problem.max_active, log_size)
    # With biases the norm of the witness must be large enough to outweigh them.
    largest = np.abs(x).max()
    x *= problem.box / largest
    verdict = None
    with contextlib.suppress(OutOfTimeError):  # the theorem needs no time
        verdict = try_witness(problem, signs, x, "closed form", deadline)
    if problem.layer.intercept is not None or (verdict is not None and verdict.radius > 0):
        return verdict
    # The columns are orthonormal: the coefficients have the norm of the polynomial's values.
    log_norm = np.log(np.linalg.norm(np.exp(log_size)) * largest / problem.box)
    radius = float(np.exp(np.min(log_size - np.log(problem.norms)) - log_norm))
    if verdict is not None:  # proven in integers: the margin in floats is rounding error
        return verdict._replace(radius=radius)
    return Verdict(ARGMAXABLE, "sign changes", radius)


def _by_linear_program(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """Solve the Chebyshev LP inside the box, then in homogeneous form with scaled columns."""
    layer = problem.layer
    used = np.flatnonzero(~problem.constant)
    rows = signs[used, None] * problem.weight_rows[used]
    offsets = None
    if layer.intercept is not None:
        offsets = signs[used] * layer.intercept[used] / problem.norms[used]
    if offsets is None or np.all(np.isfinite(offsets)):
        ball = largest_ball(rows, offsets, problem.box, deadline - time.monotonic())
        if ball is not None:
            verdict = try_witness(problem, signs, ball.centre, "linear program", deadline)
            if verdict is None and ball.weights is not None:
                verdict = _try_conflict(problem, signs, used, ball.weights, deadline)
            if verdict is not None:
                return verdict
    rows, kept = _homogeneous(problem, signs)
    scales = column_scales(rows)
    rows = kept[:, None] * unit_rows_and_norms(rows / scales)[0]
    ball = largest_ball(rows, None, problem.box, deadline - time.monotonic())
    if ball is None:
        return None
    verdict = _try_point(problem, signs, ball.centre / scales, "linear program", deadline)
    if verdict is None and ball.weights is not None:
        verdict = _try_conflict(problem, signs, used, ball.weights[: len(used)], deadline)
    return verdict


def _homogeneous(problem: Problem, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return unit rows, and their wanted signs at z = (x, 1), or at x without biases."""
    used = ~problem.constant
    rows, kept = problem.rows, signs
    if problem.constant.any():
        rows, kept = rows[used], signs[used]
    if problem.layer.intercept is None:
        return rows, kept
    last = np.append(np.zeros(rows.shape[1] - 1), 1.0)
    return np.vstack([rows, last]), np.append(kept, 1.0)


def _try_point(
    problem: Problem, signs: FloatArray, z: FloatArray, reason: str, deadline: float
) -> Verdict | None:
    """Return a verdict if a homogeneous point is a witness."""
    if problem.layer.intercept is not None:
        if not z[-1] > 0:
            return None
        z = z[:-1] / z[-1]
    return try_witness(problem, signs, z, reason, deadline)


def try_witness(
    problem: Problem, signs: FloatArray, x: FloatArray, reason: str, deadline: float
) -> Verdict | None:
    """Return a verdict, with the radius of the ball around x, if x is a witness."""
    layer = problem.layer
    if layer.intercept is None and 0 < np.abs(x).max() < np.inf:
        # Regions are cones: scale x to fill the box, exactly, by a power of two. The slack covers
        # the tolerance of solvers.
        fraction, exponent = np.frexp(problem.box * (1 + SOLVER_SLACK))
        own_fraction, own_exponent = np.frexp(np.abs(x).max())
        x = np.ldexp(x, exponent - own_exponent - (own_fraction > fraction))
    if not is_witness(layer, signs, x, deadline):
        return None
    used = ~problem.constant
    used[problem.n_labels :] = False
    margins = problem.weight_rows[used] @ x
    if layer.intercept is not None:
        margins += layer.intercept[used] / problem.norms[used]
    radius = float(np.min(signs[used] * margins, initial=np.inf))
    return Verdict(ARGMAXABLE, reason, max(radius, 0.0), witness=x)


def _try_conflict(
    problem: Problem, signs: FloatArray, used: IntArray, weights: FloatArray, deadline: float
) -> Verdict | None:
    """Return a verdict if the multipliers of the linear program lead to a certificate."""
    full = np.zeros(len(signs))
    full[used] = weights
    conflict = find_conflict(problem.layer, signs, full, deadline)
    if conflict is None:
        return None
    return Verdict(UNARGMAXABLE, "certificate", 0.0, conflict=conflict)


def _find_parallel(layer: LinearLayer, unit: FloatArray, norms: FloatArray) -> ParallelRows:
    """Find labels with parallel weights, in groups of two or more."""
    direction = np.random.RandomState(0).normal(size=unit.shape[1])
    projection = unit @ direction
    order = np.argsort(np.abs(projection), kind="stable")
    order = order[norms[order] > 0]
    orientation = np.where(projection[order] < 0, -1.0, 1.0)
    oriented = unit[order] * orientation[:, None]
    joined = np.zeros(len(order) + 1, dtype=bool)  # row is parallel to the one before
    joined[1:-1] = np.abs(np.diff(oriented, axis=0)).max(axis=1) < PARALLEL_TOLERANCE
    grouped = joined[:-1] | joined[1:]
    group = np.cumsum(~joined[:-1])[grouped]
    labels = order[grouped].astype(np.int64)
    _, group = np.unique(group, return_inverse=True)
    threshold = np.zeros(len(labels))
    if layer.intercept is not None:
        with np.errstate(over="ignore"):
            threshold = -orientation[grouped] * layer.intercept[labels] / norms[labels]
    return ParallelRows(labels, group, orientation[grouped], threshold)


def _check_fourier(layer: LinearLayer, max_active: Any) -> None:
    """Raise ValueError unless the first columns of the weights are the Fourier matrix."""
    check_integer(max_active, "max_active", 0)
    n_labels, n_features = layer.coef.shape
    width = 2 * int(max_active) + 1
    if width > n_features:
        raise ValueError(
            f"max_active={max_active} needs {width} Fourier columns, but coef has {n_features}"
        )
    if not has_fourier_columns(layer.coef, int(max_active)):
        raise ValueError(
            f"the first {width} columns of coef are not fourier_matrix({n_labels}, {max_active}); "
            "leave max_active=None for other weights"
        )


def has_fourier_columns(coef: FloatArray, max_active: int) -> bool:
    """Return whether the first columns of the weights are the Fourier matrix, up to rounding."""
    width = 2 * max_active + 1
    matrix = fourier_matrix(len(coef), max_active)
    return bool(np.abs(coef[:, :width] - matrix).max() <= FOURIER_TOLERANCE)
