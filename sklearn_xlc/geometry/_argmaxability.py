"""Which sets of labels can a linear layer predict at all? Answers that are proven, or unknown."""

import sys
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.utils import check_array, check_scalar

from sklearn_xlc._csr import FloatArray, IntArray, distinct_rows, row_blocks
from sklearn_xlc.geometry._decision import (
    ARGMAXABLE,
    UNKNOWN,
    Problem,
    Verdict,
    decide,
    prepare,
    try_witness,
)
from sklearn_xlc.geometry._report import ArgmaxabilityReport
from sklearn_xlc.geometry._validation import LinearLayer, check_assignments, check_layer

N_PROGRESS_LINES = 20


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
        raise ValueError(f"y must be one assignment, got {sets.shape[0]} rows")
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
    search_radius: bool = False,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ArgmaxabilityReport:
    r"""Find out which label sets a linear layer can predict, whatever its input.

    A layer predicts label i if :math:`w_i x + b_i > 0`. With fewer features than labels most
    combinations of labels belong to no x at all. A set of labels is *argmaxable* if some x
    gives strictly positive logits to its labels and strictly negative ones to all others; a tie
    does not count.

    Every answer is one of three and none is a guess. *Argmaxable*: there is a witness x, whose
    signs were proven for the given floats with bounded rounding errors or in integers (or, for
    Fourier columns, a theorem, where the region is too thin for floats). *Not
    argmaxable*: some labels contradict each other, proven in integers (above 64 labels in
    floats, with all rounding errors enclosed) independently of any solver. *Unknown*: neither
    was found; what a solver reports is never an answer by itself.

    Parameters
    ----------
    coef : array-like of shape (n_labels, n_features), fitted estimator or torch module
        Weights of the layer. Or an estimator with ``coef_`` and ``intercept_``, or with
        ``estimators_`` of binary linear classifiers (`OneVsRestClassifier`,
        `MultiOutputClassifier`), or an object with ``weight`` and ``bias`` (`torch.nn.Linear`), or
        a :class:`~sklearn_xlc.DFTSigmoidClassifier`.
        Every row is read as one label that is on or off by itself.
    Y : {array-like, sparse matrix} of shape (n_sets, n_labels) or (n_labels,)
        Label sets, 1 for an active label and 0 for any other. Never made dense; sets that occur
        more than once are decided once.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    points : array-like of shape (n_points, n_features), default=None
        Inputs of the layer to try first, such as the features of all training samples: whatever set
        one of them makes the layer predict is argmaxable. Without biases the witness is the point
        times a power of two.
    max_active : int, default=None
        Set where the first ``2 * max_active + 1`` columns of the weights are the
        :func:`fourier_matrix`, of which floats are taken for a rounding: without biases sets of at
        most ``2 * max_active`` cyclic sign changes are then argmaxable by theorem.
    box : float, default=1e4
        Bound of the coordinates of x in the linear program (LP). Without biases regions are cones,
        and radii are proportional to it.
    min_radius : float, default=1e-8
        Argmaxable sets with a smaller radius are counted as narrow: with `search_radius` too small
        to be hit in practice.
    time_limit : float, default=10.0
        Seconds for each label set, after which it is unknown.
    search_radius : bool, default=False
        Solve the LP for every argmaxable set, for the largest radius inside the box. False: the
        radius is that of the first witness found, which may be smaller by many decades.
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
    closed form; a few hundred perceptron steps; the Chebyshev LP of [1]_, first inside the
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
    if max_active is None:
        max_active = getattr(coef, "max_active_", None)
    sets = check_assignments(Y, "Y", len(layer.coef))
    points = _check_points(points, layer)
    for name, value in (("box", box), ("time_limit", time_limit)):
        check_scalar(value, name, Real, min_val=0, include_boundaries="neither")
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
    check_scalar(min_radius, "min_radius", Real, min_val=0)
    problem = prepare(layer, max_active, float(box))
    first, inverse = distinct_rows(sets)
    verdicts = _from_points(problem, sets, first, points)
    todo = [row for row in first if search_radius or row not in verdicts]
    calls = (
        delayed(decide)(problem, _active(sets, row), float(time_limit), search_radius)
        for row in todo
    )
    results = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
    for done, (row, verdict) in enumerate(zip(todo, results), start=1):
        if row not in verdicts or verdict.radius > verdicts[row].radius:
            verdicts[row] = verdict
        if verbose > 0:
            _print_progress(done, len(todo))
    ordered = [verdicts[first[i]] for i in inverse]
    return _make_report(ordered, sets, layer.coef.shape[1], float(min_radius))


def _from_points(
    problem: Problem, sets: sp.csr_array, rows: IntArray, points: FloatArray | None
) -> dict[int, Verdict]:
    """Verdicts for the rows that some point makes the layer predict."""
    verdicts: dict[int, Verdict] = {}
    if points is None:
        return verdicts
    wanted = {_active(sets, row).tobytes(): row for row in rows}
    layer = problem.layer
    for part in row_blocks(len(points), len(layer.coef)):
        with np.errstate(over="ignore", invalid="ignore"):
            logits = points[part] @ layer.coef.T
            if layer.intercept is not None:
                logits += layer.intercept
            for x, predicted in zip(points[part], logits > 0):
                row = wanted.get(np.flatnonzero(predicted).tobytes())
                if row is None or row in verdicts:
                    continue
                signs = np.where(predicted, 1.0, -1.0)
                verdict = try_witness(problem, signs, x, "point", np.inf)
                if verdict is not None:
                    verdicts[row] = verdict
    return verdicts


def _active(sets: sp.csr_array, row: int) -> IntArray:
    """Sorted ids of the active labels of a row."""
    return sets.indices[sets.indptr[row] : sets.indptr[row + 1]].astype(np.int64)


def _make_report(
    verdicts: list[Verdict], sets: sp.csr_array, n_features: int, min_radius: float
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
            f"points have {points.shape[1]} columns, but the layer has {n_features} features"
        )
    return points
