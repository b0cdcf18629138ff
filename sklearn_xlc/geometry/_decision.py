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

    def width(self, verdict: Verdict) -> tuple[bool, float]:
        """Order witnesses: inside the box after outside, then by radius."""
        largest = 0.0 if verdict.witness is None else float(np.abs(verdict.witness).max())
        return largest <= self.box * (1 + SOLVER_SLACK), verdict.radius


def prepare(
    layer: LinearLayer,
    max_active: int | None = None,
    box: float = 1e4,
    n_labels: int | None = None,
) -> Problem:
    """Compute the quantities shared by all label sets of a layer."""
    weight_rows, norms = unit_rows_and_norms(layer.coef)
    rows = weight_rows
    if not layer.is_cone:
        rows = unit_rows_and_norms(np.column_stack([layer.coef, layer.intercept]))[0]
    if max_active is not None:
        _check_fourier(layer, max_active)
    constant = np.asarray(~layer.coef.any(axis=1))
    parallel = _find_parallel(layer, weight_rows, norms)
    n_labels = len(norms) if n_labels is None else n_labels
    return Problem(layer, rows, weight_rows, norms, constant, parallel, max_active, box, n_labels)


def decide(
    problem: Problem,
    active: IntArray,
    time_limit: float,
    search_radius: bool = False,
    known: Verdict | None = None,
) -> Verdict:
    """Decide the label set with the given active labels; `known`: its witness found before."""
    deadline = time.monotonic() + time_limit
    signs = np.full(len(problem.layer.coef), -1.0)
    signs[active] = 1.0
    asked = Question(problem, signs, deadline)
    found = [] if known is None else [known]
    # Candidates may overflow; the proofs reject infinite numbers.
    with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(OutOfTimeError):
        for propose in (asked.simple_conflict, asked.cheap_witness, asked.by_linear_program):
            verdict = propose()
            if verdict is not None:
                found.append(verdict)
            if found and not (search_radius and found[-1].status == ARGMAXABLE):
                break
    if found:
        return max(found, key=problem.width)
    return Verdict(UNKNOWN, "unresolved" if time.monotonic() < deadline else "time limit")


class Question(NamedTuple):
    """A label set, the time by which it must be decided, and ways to a proof."""

    problem: Problem
    signs: FloatArray
    deadline: float

    def simple_conflict(self) -> Verdict | None:
        """Find a contradiction in a label without weights, or in two with parallel weights."""
        problem, signs, deadline = self
        # The logit is the bias for all x; without a bias it is always zero, a tie.
        wrong = np.flatnonzero(problem.constant & ~(signs * problem.layer.intercept > 0))
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
            conflict = prove_conflict(problem.layer, signs, pair, deadline)
            if conflict is not None:
                return Verdict(UNARGMAXABLE, "parallel labels", 0.0, conflict=conflict)
        return None

    def cheap_witness(self) -> Verdict | None:
        """Find a witness by the closed form, else by the perceptron."""
        max_active, y = self.problem.max_active, (self.signs > 0).astype(np.int8)
        if max_active is not None and count_sign_changes(y) <= 2 * max_active:
            verdict = self._by_closed_form(y, max_active)
            if verdict is not None:
                return verdict
        z = perceptron(*self._homogeneous(), deadline=self.deadline)
        return None if z is None else self._try_point(z, "perceptron")

    def _by_closed_form(self, y: npt.NDArray[np.int8], max_active: int) -> Verdict | None:
        """Find a closed-form witness for few sign changes; if a cone has none, the theorem."""
        problem = self.problem
        log_size, x = witness_polynomial(y), np.zeros(problem.layer.coef.shape[1])
        x[: 2 * max_active + 1] = witness_coefficients(y, max_active, log_size)
        # With biases the norm of the witness must be large enough to outweigh them.
        largest = np.abs(x).max()
        x *= problem.box / largest
        verdict = None
        with contextlib.suppress(OutOfTimeError):  # the theorem needs no time
            verdict = self.try_witness(x, "closed form")
        if not problem.layer.is_cone or (verdict is not None and verdict.radius > 0):
            return verdict
        # The columns are orthonormal: the coefficients have the norm of the polynomial's values.
        log_norm = np.log(np.linalg.norm(np.exp(log_size)) * largest / problem.box)
        radius = float(np.exp(np.min(log_size - np.log(problem.norms)) - log_norm))
        if verdict is not None:  # proven in integers: the margin in floats is rounding error
            return verdict._replace(radius=radius)
        return Verdict(ARGMAXABLE, "sign changes", radius)

    def by_linear_program(self) -> Verdict | None:
        """Solve the Chebyshev LP inside the box, then in homogeneous form with scaled columns."""
        problem, signs, deadline = self
        used = np.flatnonzero(~problem.constant)
        rows = signs[used, None] * problem.weight_rows[used]
        offsets = signs[used] * problem.layer.intercept[used] / problem.norms[used]
        if np.all(np.isfinite(offsets)):
            shifts = None if problem.layer.is_cone else offsets
            ball = largest_ball(rows, shifts, problem.box, deadline - time.monotonic())
            if ball is not None:
                verdict = self.try_witness(ball.centre, "linear program")
                if verdict is None and ball.weights is not None:
                    verdict = self._try_conflict(used, ball.weights)
                if verdict is not None:
                    return verdict
        rows, kept = self._homogeneous()
        scales = column_scales(rows)
        rows = kept[:, None] * unit_rows_and_norms(rows / scales)[0]
        ball = largest_ball(rows, None, problem.box, deadline - time.monotonic())
        if ball is None:
            return None
        verdict = self._try_point(ball.centre / scales, "linear program")
        if verdict is None and ball.weights is not None:
            verdict = self._try_conflict(used, ball.weights[: len(used)])
        return verdict

    def _homogeneous(self) -> tuple[FloatArray, FloatArray]:
        """Return unit rows, and their wanted signs at z = (x, 1), or at x in a cone."""
        rows, kept = self.problem.rows, self.signs
        if self.problem.constant.any():
            used = ~self.problem.constant
            rows, kept = rows[used], kept[used]
        if self.problem.layer.is_cone:
            return rows, kept
        last = np.append(np.zeros(rows.shape[1] - 1), 1.0)
        return np.vstack([rows, last]), np.append(kept, 1.0)

    def _try_point(self, z: FloatArray, reason: str) -> Verdict | None:
        """Return a verdict if a homogeneous point is a witness."""
        if not self.problem.layer.is_cone:
            if not z[-1] > 0:
                return None
            z = z[:-1] / z[-1]
        return self.try_witness(z, reason)

    def try_witness(self, x: FloatArray, reason: str) -> Verdict | None:
        """Return a verdict, with the radius of the ball around x, if x is a witness."""
        problem, signs, deadline = self
        if problem.layer.is_cone and 0 < np.abs(x).max() < np.inf:
            # Scale x to fill the box, exactly, by a power of two. The slack covers the tolerance of
            # solvers.
            fraction, exponent = np.frexp(problem.box * (1 + SOLVER_SLACK))
            own_fraction, own_exponent = np.frexp(np.abs(x).max())
            x = np.ldexp(x, exponent - own_exponent - (own_fraction > fraction))
        if not is_witness(problem.layer, signs, x, deadline):
            return None
        used = ~problem.constant
        used[problem.n_labels :] = False
        biases = problem.layer.intercept[used] / problem.norms[used]
        margins = problem.weight_rows[used] @ x + biases
        radius = float(np.min(signs[used] * margins, initial=np.inf))
        return Verdict(ARGMAXABLE, reason, max(radius, 0.0), witness=x)

    def _try_conflict(self, used: IntArray, weights: FloatArray) -> Verdict | None:
        """Return a verdict if the multipliers of the linear program lead to a certificate."""
        full = np.zeros(len(self.signs))
        full[used] = weights
        conflict = find_conflict(self.problem.layer, self.signs, full, self.deadline)
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
    with np.errstate(over="ignore"):
        threshold = -orientation[grouped] * layer.intercept[labels] / norms[labels]
    return ParallelRows(labels, group, orientation[grouped], threshold)


def _check_fourier(layer: LinearLayer, max_active: Any) -> None:
    """Raise ValueError unless the first columns of the weights are the Fourier matrix."""
    max_active = check_integer(max_active, "max_active", 0)
    n_labels, n_features = layer.coef.shape
    width = 2 * max_active + 1
    if width > n_features:
        raise ValueError(
            f"max_active={max_active} needs {width} Fourier columns, but coef has {n_features}"
        )
    if not has_fourier_columns(layer.coef, max_active):
        raise ValueError(
            f"the first {width} columns of coef are not fourier_matrix({n_labels}, {max_active}); "
            "leave max_active=None for other weights"
        )


def has_fourier_columns(coef: FloatArray, max_active: int) -> bool:
    """Return whether the first columns of the weights are the Fourier matrix, up to rounding."""
    width = 2 * max_active + 1
    matrix = fourier_matrix(len(coef), max_active)
    return bool(np.abs(coef[:, :width] - matrix).max() <= FOURIER_TOLERANCE)
