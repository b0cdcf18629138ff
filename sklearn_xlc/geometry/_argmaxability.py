"""Which sets of labels can a linear layer predict at all? Answers that are proven, or unknown."""

import sys
import time
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.utils import check_array, check_scalar

from sklearn_xlc.geometry._certificates import (
    OutOfTimeError,
    find_conflict,
    is_witness,
    prove_conflict,
)
from sklearn_xlc.geometry._counting import count_sign_changes
from sklearn_xlc.geometry._fourier import fourier_matrix, witness_coefficients
from sklearn_xlc.geometry._programme import column_scales, largest_ball, perceptron, unit_rows
from sklearn_xlc.geometry._report import ArgmaxabilityReport
from sklearn_xlc.geometry._validation import LinearLayer, check_assignments, check_layer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ARGMAXABLE, UNARGMAXABLE, UNKNOWN = 1, 0, -1
# Logits of points that are held at once.
BLOCK_ENTRIES = 1 << 22
# float32 copies of the Fourier matrix count as the Fourier matrix.
FOURIER_TOLERANCE = 1e-6
PARALLEL_TOLERANCE = 1e-9
N_PROGRESS_LINES = 20


class Verdict(NamedTuple):
    """Answer for one label set."""

    status: int
    reason: str
    radius: float = np.nan
    witness: FloatArray | None = None
    conflict: IntArray | None = None


class ParallelRows(NamedTuple):
    """Labels whose weights are multiples of each other: w = norm * orientation * common row."""

    labels: IntArray
    group: IntArray
    orientation: FloatArray
    threshold: FloatArray


class Problem(NamedTuple):
    """A layer with all that is computed once for all label sets.

    ``rows`` are the unit rows of the weights, or of weights and biases together, and
    ``constant`` marks the labels without weights, whose sign is that of their bias.
    """

    layer: LinearLayer
    rows: FloatArray
    weight_rows: FloatArray
    norms: FloatArray
    constant: npt.NDArray[np.bool_]
    parallel: ParallelRows
    max_active: int | None
    box: float


def is_argmaxable(
    coef: Any,
    y: Any,
    intercept: Any = None,
    *,
    max_active: int | None = None,
    time_limit: float = 10.0,
) -> bool | None:
    """Whether a linear layer predicts an assignment for any features at all.

    Parameters
    ----------
    coef : array-like of shape (n_labels, n_features), fitted estimator or torch module
        Weights, or what brings them: see :func:`verify_argmaxable`.
    y : {array-like, sparse matrix} of shape (n_labels,) or (1, n_labels)
        The assignment, 1 for an active label and 0 for any other.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    max_active : int, default=None
        Set where the first ``2 * max_active + 1`` columns are the Fourier matrix.
    time_limit : float, default=10.0
        Seconds after which to give up.

    Returns
    -------
    bool or None
        True with a proven witness, False with a proven contradiction, None if neither was found.

    Raises
    ------
    ValueError, TypeError
        If an argument has a wrong type, shape or value.

    See Also
    --------
    verify_argmaxable : Checks many assignments, and returns witnesses and contradictions.

    Examples
    --------
    Three labels, two features: six of the eight combinations exist.

    >>> import numpy as np
    >>> from sklearn_xlc.geometry import is_argmaxable
    >>> W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    >>> is_argmaxable(W, [1, 1, 0]), is_argmaxable(W, [1, 1, 1])
    (True, False)
    """
    sets = check_assignments(y, "y")
    if sets.shape[0] != 1:
        raise ValueError(f"y must be one assignment, got {sets.shape[0]} rows.")
    report = verify_argmaxable(coef, sets, intercept, max_active=max_active, time_limit=time_limit)
    status = int(report.status[0])
    return None if status == UNKNOWN else status == ARGMAXABLE


def verify_argmaxable(
    coef: Any,
    Y: Any,
    intercept: Any = None,
    *,
    points: Any = None,
    max_active: int | None = None,
    box: float = 1e4,
    min_radius: float = 1e-8,
    time_limit: float = 10.0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ArgmaxabilityReport:
    r"""Find out which label sets a linear layer can predict, whatever its input.

    A layer predicts label i if :math:`w_i x + b_i > 0`. With fewer features than labels most
    combinations of labels belong to no x at all. A set of labels is *argmaxable* if some x
    gives strictly positive logits to its labels and strictly negative ones to all others; a tie
    does not count.

    Every answer is one of three and none is a guess. *Argmaxable*: there is a witness x, whose
    signs were proven for the given floats with bounded rounding errors or in integers. *Not
    argmaxable*: some labels contradict each other, proven in integers (above 64 labels in
    floats, with all rounding errors enclosed) independently of any solver. *Unknown*: neither
    was found; what a solver reports is never an answer by itself.

    Parameters
    ----------
    coef : array-like of shape (n_labels, n_features), fitted estimator or torch module
        Weights of the layer. Or an estimator with ``coef_`` and ``intercept_``, or with
        ``estimators_`` of binary linear classifiers (`OneVsRestClassifier`,
        `MultiOutputClassifier`), or an object with ``weight`` and ``bias`` (`torch.nn.Linear`).
        Every row is read as one label that is on or off by itself.
    Y : {array-like, sparse matrix} of shape (n_sets, n_labels) or (n_labels,)
        Label sets, 1 for an active label and 0 for any other. Never made dense; sets that occur
        more than once are decided once.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    points : array-like of shape (n_points, n_features), default=None
        Inputs of the layer to try first, such as the features of all training rows: whatever set
        one of them makes the layer predict is argmaxable.
    max_active : int, default=None
        Set where the first ``2 * max_active + 1`` columns of the weights are the
        :func:`fourier_matrix`: the witness in closed form is then tried too.
    box : float, default=1e4
        Bound of the coordinates of x in the programme. Without biases regions are cones, and
        radii are proportional to it.
    min_radius : float, default=1e-8
        Argmaxable sets with a smaller radius are counted as narrow: too small to be hit in
        practice.
    time_limit : float, default=10.0
        Seconds for each label set, after which it is unknown.
    n_jobs : int, default=None
        Number of label sets that are decided in parallel. Each holds a few copies of the weights.
    verbose : int, default=0
        Above 0: print progress to standard error.

    Returns
    -------
    ArgmaxabilityReport
        Status, radius, witness and reason of every row of `Y`.

    Raises
    ------
    ValueError, TypeError
        If an argument has a wrong type, shape or value.

    See Also
    --------
    is_argmaxable : One assignment, one answer.
    count_argmaxable : How many assignments are argmaxable in all.

    Notes
    -----
    Tried in this order: the points; labels without weights; labels with parallel weights; the
    closed form; a few hundred perceptron steps; the Chebyshev programme of [1]_, first inside the
    box, then, if that proves nothing, with rows and columns scaled and the box removed.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Equation 3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import verify_argmaxable
    >>> W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    >>> report = verify_argmaxable(W, [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    >>> report.status
    array([1, 1, 0], dtype=int8)
    >>> report.conflicts[2]
    array([0, 1, 2])
    """
    layer = check_layer(coef, intercept)
    sets = check_assignments(Y, "Y", len(layer.coef))
    points = _check_points(points, layer)
    for name, value in (("box", box), ("time_limit", time_limit)):
        check_scalar(value, name, Real, min_val=0, include_boundaries="neither")
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}.")
    check_scalar(min_radius, "min_radius", Real, min_val=0)
    problem = prepare(layer, max_active, float(box))
    first, inverse = _distinct_rows(sets)
    verdicts = _from_points(problem, sets, first, points)
    todo = [row for row in first if row not in verdicts]
    calls = (delayed(decide)(problem, _active(sets, row), float(time_limit)) for row in todo)
    results = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
    for done, (row, verdict) in enumerate(zip(todo, results), start=1):
        verdicts[row] = verdict
        if verbose > 0:
            _print_progress(done, len(todo))
    ordered = [verdicts[first[i]] for i in inverse]
    return _make_report(ordered, sets, layer.coef.shape[1], float(min_radius))


def prepare(layer: LinearLayer, max_active: int | None = None, box: float = 1e4) -> Problem:
    """What all label sets of one layer share."""
    weight_rows, norms = unit_rows(layer.coef)
    if layer.intercept is None:
        rows = weight_rows
    else:
        rows = unit_rows(np.column_stack([layer.coef, layer.intercept]))[0]
    if max_active is not None:
        _check_fourier(layer, max_active)
    constant = np.asarray(~layer.coef.any(axis=1))
    parallel = _find_parallel(layer, weight_rows, norms)
    return Problem(layer, rows, weight_rows, norms, constant, parallel, max_active, box)


def decide(problem: Problem, active: IntArray, time_limit: float) -> Verdict:
    """Verdict for one label set, given by its active labels."""
    deadline = time.monotonic() + time_limit
    signs = np.full(len(problem.layer.coef), -1.0)
    signs[active] = 1.0
    try:
        verdict = _simple_conflict(problem, signs, deadline)
        if verdict is None:
            verdict = _cheap_witness(problem, signs, deadline)
        if verdict is None:
            verdict = _by_programme(problem, signs, deadline)
    except OutOfTimeError:
        verdict = None
    if verdict is not None:
        return verdict
    return Verdict(UNKNOWN, "unresolved" if time.monotonic() < deadline else "time limit")


def _simple_conflict(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """Contradictions in one label without weights, or two with parallel weights."""
    layer = problem.layer
    if problem.constant.any():
        # Such a logit is the bias, whatever x; without one it is always zero, a tie.
        biases = 0.0 if layer.intercept is None else layer.intercept
        wrong = np.flatnonzero(problem.constant & ~(signs * biases > 0))
        if len(wrong):
            return Verdict(UNARGMAXABLE, "constant label", 0.0, conflict=wrong[:1])
    labels, group, orientation, threshold = problem.parallel
    if not len(labels):
        return None
    # Each label asks for common row * x above or below its threshold.
    above = signs[labels] * orientation > 0
    lower = np.full(group[-1] + 1, -np.inf)
    upper = np.full(group[-1] + 1, np.inf)
    np.maximum.at(lower, group[above], threshold[above])
    np.minimum.at(upper, group[~above], threshold[~above])
    for g in np.flatnonzero(lower >= upper):
        members = group == g
        low = labels[members & above & (threshold == lower[g])][0]
        high = labels[members & ~above & (threshold == upper[g])][0]
        pair = np.sort(np.array([low, high]))
        conflict = prove_conflict(layer, signs, pair, deadline)
        if conflict is not None:
            return Verdict(UNARGMAXABLE, "parallel labels", 0.0, conflict=conflict)
    return None


def _cheap_witness(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """The closed form, then the perceptron."""
    n_features = problem.layer.coef.shape[1]
    if problem.max_active is not None:
        y = (signs > 0).astype(np.int8)
        if count_sign_changes(y) <= 2 * problem.max_active:
            x = np.zeros(n_features)
            x[: 2 * problem.max_active + 1] = witness_coefficients(y, problem.max_active)
            # With biases the witness must be long enough to outweigh them.
            x *= problem.box / np.abs(x).max()
            verdict = _try_witness(problem, signs, x, "closed form", deadline)
            if verdict is not None:
                return verdict
    rows, kept = _homogeneous(problem, signs)
    z = perceptron(rows, kept)
    return None if z is None else _try_point(problem, signs, z, "perceptron", deadline)


def _by_programme(problem: Problem, signs: FloatArray, deadline: float) -> Verdict | None:
    """The Chebyshev programme in the box; then, scaled and without biases or box."""
    layer = problem.layer
    used = np.flatnonzero(~problem.constant)
    rows = signs[used, None] * problem.weight_rows[used]
    offsets = None
    if layer.intercept is not None:
        offsets = signs[used] * layer.intercept[used] / problem.norms[used]
    if offsets is None or np.all(np.isfinite(offsets)):
        ball = largest_ball(rows, offsets, problem.box, deadline - time.monotonic())
        if ball is not None:
            verdict = _try_witness(problem, signs, ball.centre, "programme", deadline)
            if verdict is None and ball.weights is not None:
                verdict = _try_conflict(problem, signs, used, ball.weights, deadline)
            if verdict is not None:
                return verdict
    rows, kept = _homogeneous(problem, signs)
    scales = column_scales(rows)
    rows = kept[:, None] * unit_rows(rows / scales)[0]
    ball = largest_ball(rows, None, problem.box, deadline - time.monotonic())
    if ball is None:
        return None
    verdict = _try_point(problem, signs, ball.centre / scales, "programme", deadline)
    if verdict is None and ball.weights is not None:
        verdict = _try_conflict(problem, signs, used, ball.weights[: len(used)], deadline)
    return verdict


def _homogeneous(problem: Problem, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Unit rows that must all have the given signs at z = (x, 1), or x without biases."""
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
    """Verdict if a homogeneous point is a witness."""
    if problem.layer.intercept is not None:
        if not z[-1] > 0:
            return None
        with np.errstate(over="ignore"):
            z = z[:-1] / z[-1]
    return _try_witness(problem, signs, z, reason, deadline)


def _try_witness(
    problem: Problem, signs: FloatArray, x: FloatArray, reason: str, deadline: float
) -> Verdict | None:
    """Verdict if x is a witness, with the radius of the ball around it."""
    layer = problem.layer
    if layer.intercept is None and 0 < np.abs(x).max() < np.inf:
        # Cones have no size: fill the box, by a power of two, which rounds nothing.
        x = np.ldexp(x, int(np.floor(np.log2(problem.box / np.abs(x).max()))))
    if not is_witness(layer, signs, x, deadline):
        return None
    used = ~problem.constant
    margins = problem.weight_rows[used] @ x
    if layer.intercept is not None:
        margins += layer.intercept[used] / problem.norms[used]
    radius = float(np.min(signs[used] * margins, initial=np.inf))
    return Verdict(ARGMAXABLE, reason, max(radius, 0.0), witness=x)


def _try_conflict(
    problem: Problem, signs: FloatArray, used: IntArray, weights: FloatArray, deadline: float
) -> Verdict | None:
    """Verdict if the multipliers of the programme lead to a certificate."""
    full = np.zeros(len(signs))
    full[used] = weights
    conflict = find_conflict(problem.layer, signs, full, deadline)
    if conflict is None:
        return None
    return Verdict(UNARGMAXABLE, "certificate", 0.0, conflict=conflict)


def _from_points(
    problem: Problem, sets: sparse.csr_array, rows: IntArray, points: FloatArray | None
) -> dict[int, Verdict]:
    """Verdicts for the rows that some point makes the layer predict."""
    verdicts: dict[int, Verdict] = {}
    if points is None:
        return verdicts
    wanted = {_active(sets, row).tobytes(): row for row in rows}
    layer = problem.layer
    block = max(1, BLOCK_ENTRIES // len(layer.coef))
    for start in range(0, len(points), block):
        logits = points[start : start + block] @ layer.coef.T
        if layer.intercept is not None:
            logits += layer.intercept
        for x, predicted in zip(points[start : start + block], logits > 0):
            row = wanted.get(np.flatnonzero(predicted).tobytes())
            if row is not None and row not in verdicts:
                signs = np.where(predicted, 1.0, -1.0)
                verdict = _try_witness(problem, signs, x, "point", np.inf)
                if verdict is not None:
                    verdicts[row] = verdict
    return verdicts


def _find_parallel(layer: LinearLayer, unit: FloatArray, norms: FloatArray) -> ParallelRows:
    """Labels with parallel weights, in groups of two or more."""
    direction = np.random.RandomState(0).normal(size=unit.shape[1])
    projection = unit @ direction
    order = np.argsort(np.abs(projection), kind="stable")
    order = order[norms[order] > 0]
    orientation = np.where(projection[order] < 0, -1.0, 1.0)
    oriented = unit[order] * orientation[:, None]
    joined = np.zeros(len(order) + 1, dtype=bool)  # whether a row is parallel to the one before
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


def _distinct_rows(sets: sparse.csr_array) -> tuple[IntArray, IntArray]:
    """First row of every distinct label set, and the place in that list of every row's set."""
    places: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(sets.shape[0], dtype=np.int64)
    for row in range(sets.shape[0]):
        place = places.setdefault(_active(sets, row).tobytes(), len(first))
        if place == len(first):
            first.append(row)
        inverse[row] = place
    return np.array(first, dtype=np.int64), inverse


def _active(sets: sparse.csr_array, row: int) -> IntArray:
    """Sorted ids of the active labels of a row."""
    return sets.indices[sets.indptr[row] : sets.indptr[row + 1]].astype(np.int64)


def _make_report(
    verdicts: list[Verdict], sets: sparse.csr_array, n_features: int, min_radius: float
) -> ArgmaxabilityReport:
    """The verdicts as arrays."""
    witness = np.full((len(verdicts), n_features), np.nan)
    for row, verdict in enumerate(verdicts):
        if verdict.witness is not None:
            witness[row] = verdict.witness
    return ArgmaxabilityReport(
        status=np.array([verdict.status for verdict in verdicts], dtype=np.int8),
        radius=np.array([verdict.radius for verdict in verdicts], dtype=np.float64),
        witness=witness,
        reason=np.array([verdict.reason for verdict in verdicts], dtype="<U16"),
        conflicts=[verdict.conflict for verdict in verdicts],
        n_active=np.diff(sets.indptr).astype(np.int64),
        n_labels=sets.shape[1],
        min_radius=min_radius,
    )


def _print_progress(done: int, total: int) -> None:
    """A line at every twentieth of the work."""
    if done * N_PROGRESS_LINES // total > (done - 1) * N_PROGRESS_LINES // total:
        print(f"verify_argmaxable: {done} of {total} label sets", file=sys.stderr, flush=True)


def _check_points(points: Any, layer: LinearLayer) -> FloatArray | None:
    """Points with as many columns as the weights have."""
    if points is None:
        return None
    points = check_array(points, dtype=np.float64, input_name="points")
    n_features = layer.coef.shape[1]
    if points.shape[1] != n_features:
        raise ValueError(
            f"points have {points.shape[1]} columns, but the layer has {n_features} features."
        )
    return points


def _check_fourier(layer: LinearLayer, max_active: Any) -> None:
    """Refuse a `max_active` that the weights do not bear out."""
    check_scalar(max_active, "max_active", Integral, min_val=0)
    n_labels, n_features = layer.coef.shape
    width = 2 * int(max_active) + 1
    if width > n_features:
        raise ValueError(
            f"max_active={max_active} needs {width} Fourier columns, but coef has {n_features}."
        )
    matrix = fourier_matrix(n_labels, max_active)
    if np.abs(layer.coef[:, :width] - matrix).max() > FOURIER_TOLERANCE:
        raise ValueError(
            f"the first {width} columns of coef are not fourier_matrix({n_labels}, {max_active}); "
            "leave max_active=None for other weights."
        )
