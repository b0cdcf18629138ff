"""Predictable label sets of a linear layer; answers are proven, or "unknown"."""

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from joblib import Parallel, delayed
from scipy.stats import binomtest

from sklearn_xlc._bounds import check_flag, check_real
from sklearn_xlc._checks import check_equal, check_numbers
from sklearn_xlc._compat import imported
from sklearn_xlc._csr import BoolArray, FloatArray, IntArray, distinct_rows, row_blocks
from sklearn_xlc._tags import plain_sets
from sklearn_xlc.geometry._decision import (
    ARGMAXABLE,
    UNKNOWN,
    Problem,
    Question,
    Verdict,
    decide,
    has_fourier_columns,
    prepare,
)
from sklearn_xlc.geometry._validation import (
    LinearLayer,
    check_assignment,
    check_assignments,
    check_layer,
    named_assignments,
)

STATUS_NAMES = {1: "argmaxable", 0: "not argmaxable", -1: "unknown"}
#: Shift that makes non-negative features positive, as a share of the largest feature.
POINT_SHIFT = 1e-9


@dataclass(frozen=True, repr=False, eq=False)
class ArgmaxabilityReport:
    """Answers of :func:`verify_argmaxable`, one per label set.

    Attributes
    ----------
    status : ndarray of shape (n_sets,), int8
        1: argmaxable, 0: not argmaxable, -1: unknown.
    radius : ndarray of shape (n_sets,), float64
        Distance of the witness from the nearest label boundary. For the reason "linear program" it
        is mostly within a tenth of the largest distance inside the box. For other reasons it may be
        smaller by many orders of magnitude, unless ``search_radius=True``. Without biases it is
        proportional to `box`. With biases the first witness found may be outside of the box; with
        ``search_radius=True`` only if there is none inside. 0 if not argmaxable, NaN if unknown.
    witness : ndarray of shape (n_sets, n_features), float64
        Features for which the layer predicts exactly the set; NaN without a witness.
    reason : ndarray of shape (n_sets,), str
        Method of the answer.

        - Argmaxable: "point", "closed form", "perceptron" or "linear program"; "sign changes" if
          the theorem on Fourier columns applies and no float is a witness. The radius is then the
          radius of the closed form in exact arithmetic.
        - Not argmaxable: "constant label", "parallel labels" or "certificate"; "number of labels"
          where a classifier's decision predicts at least or at most so many.
        - Unknown: "time limit" or "unresolved".
    conflicts : list of ndarray or None
        For sets that are not argmaxable, the labels in contradiction: no features give all of them
        the wanted signs. None for all other sets.
    n_active : ndarray of shape (n_sets,), int64
        Number of active labels.
    n_labels : int
        Number of labels.
    min_radius : float
        Radius below which argmaxable sets count as narrow.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import verify_argmaxable
    >>> report = verify_argmaxable(np.array([[1.0], [2.0]]), [[1, 1], [1, 0], [0, 0]])
    >>> report
    ArgmaxabilityReport(n_sets=3, argmaxable=2 (narrow: 0), not argmaxable=1, unknown=0)
    >>> report.n_argmaxable, report.n_unargmaxable, report.n_unknown
    (2, 1, 0)
    >>> lower, upper = report.population_interval()
    >>> round(lower, 3), round(upper, 3)
    (0.094, 0.992)
    """

    status: npt.NDArray[np.int8]
    radius: FloatArray
    witness: FloatArray
    reason: npt.NDArray[np.str_]
    conflicts: list[IntArray | None]
    n_active: IntArray
    n_labels: int
    min_radius: float

    def __len__(self) -> int:
        return len(self.status)

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.status)

    @property
    def n_argmaxable(self) -> int:
        """Number of label sets with a proven witness."""
        return int(np.sum(self.status == 1))

    @property
    def n_unargmaxable(self) -> int:
        """Number of label sets with a proven contradiction."""
        return int(np.sum(self.status == 0))

    @property
    def n_unknown(self) -> int:
        """Number of label sets with neither a proven witness nor a proven contradiction."""
        return int(np.sum(self.status == -1))

    @property
    def narrow(self) -> BoolArray:
        """Mask of the argmaxable sets with a radius below `min_radius`."""
        return (self.status == 1) & (self.radius < self.min_radius)

    def population_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Compute an exact interval of the share of argmaxable sets in a population.

        The label sets must be drawn independently from the population, and not be used in `fit`.
        Unknown sets count as not argmaxable for the lower limit, and as argmaxable for the upper.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability over draws of the label sets that the interval holds the share; at least.

        Returns
        -------
        lower, upper : float
            Limits of Clopper and Pearson, see :func:`certify_reachability`.

        Raises
        ------
        ValueError
            If the report has no label set.
        """
        check_real(confidence, "confidence", 0, 1, closed=False)
        if not self.n_sets:
            raise ValueError("population_interval needs at least one label set, got none")
        proven = self.n_argmaxable
        return interval_of_share(proven, proven + self.n_unknown, self.n_sets, confidence)

    def to_frame(self) -> Any:
        """Return a table with one row per label set; needs pandas.

        Returns
        -------
        pandas.DataFrame
            Columns status (as words), reason, radius, narrow, n_active and conflict.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pd = imported("pandas", "to_frame needs pandas: pip install pandas")
        return pd.DataFrame(
            {
                "status": [STATUS_NAMES[int(status)] for status in self.status],
                "reason": self.reason,
                "radius": self.radius,
                "narrow": self.narrow,
                "n_active": self.n_active,
                "conflict": self.conflicts,
            }
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_sets={self.n_sets}, argmaxable={self.n_argmaxable} "
            f"(narrow: {int(self.narrow.sum())}), not argmaxable={self.n_unargmaxable}, "
            f"unknown={self.n_unknown})"
        )

    def _repr_html_(self) -> str:
        """Return an HTML table of the numbers of label sets by answer and reason."""
        lines = []
        for status, name in STATUS_NAMES.items():
            chosen = self.status == status
            for reason in np.unique(self.reason[chosen]):
                mask = chosen & (self.reason == reason)
                cells = (name, str(reason), f"{mask.sum()}", f"{self.n_active[mask].mean():.1f}")
                lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        head = "".join(
            f"<th>{title}</th>" for title in ("answer", "reason", "sets", "mean active labels")
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return (
            f"<table><caption>{self.n_sets} label sets of {self.n_labels} labels</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def interval_of_share(least: int, most: int, n: int, confidence: float) -> tuple[float, float]:
    """Return Clopper-Pearson limits: lower of `least`, upper of `most` successes in n trials."""
    lower, upper = (
        binomtest(count, n).proportion_ci(confidence_level=confidence, method="exact")
        for count in (least, most)
    )
    return float(lower.low), float(upper.high)


def is_argmaxable(
    coef: Any,
    y: Any,
    intercept: Any = None,
    *,
    max_active: int | None = None,
    time_limit: float = 10.0,
) -> bool | None:
    """Decide whether a linear layer predicts an assignment for some features.

    Parameters
    ----------
    coef : array-like of shape (n_labels, n_features), fitted estimator or torch module
        Weights, or a model with weights: see :func:`verify_argmaxable`.
    y : {array-like, sparse matrix} of shape (n_labels,) or (1, n_labels)
        Assignment, 1 for active labels and 0 for all others.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    max_active : int, default=None
        Largest number of active labels of a Fourier layer: see :func:`verify_argmaxable`.
    time_limit : float, default=10.0
        Time limit in seconds; after it the answer is None.

    Returns
    -------
    bool or None
        True for a proven witness, False for a proven contradiction, None for neither.

    See Also
    --------
    verify_argmaxable : Checks many assignments; returns witnesses and contradictions.

    Examples
    --------
    With three labels and two features, six of the eight assignments are argmaxable:

    >>> import numpy as np
    >>> from sklearn_xlc.geometry import is_argmaxable
    >>> W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    >>> is_argmaxable(W, [1, 1, 0]), is_argmaxable(W, [1, 1, 1])
    (True, False)
    """
    sets = check_assignment(y)
    report = verify_argmaxable(coef, sets, intercept, max_active=max_active, time_limit=time_limit)
    status = int(report.status[0])
    return None if status == UNKNOWN else status == ARGMAXABLE


def verify_argmaxable(
    coef: Any,
    Y: Any,
    intercept: Any = None,
    *,
    points: Any = None,
    nonnegative: Any = False,
    max_active: int | None = None,
    box: float = 1e4,
    min_radius: float = 1e-8,
    time_limit: float = 10.0,
    search_radius: bool = False,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ArgmaxabilityReport:
    r"""Decide for each label set whether a linear layer can predict it.

    A layer predicts label i if :math:`w_i x + b_i > 0`. With fewer features than labels, most
    combinations of labels are predicted for no x. A label set is *argmaxable* if some x, its
    *witness*, gives strictly positive logits to the labels of the set and strictly negative logits
    to all others; ties do not count.

    There are three answers, and the first two are proven. *Argmaxable*: there is a witness, and the
    signs of its logits are proven, with bounded rounding errors or in integers. (For a Fourier
    layer, a theorem proves regions too thin for floats.) *Not argmaxable*: a few labels contradict
    each other, proven in integers, or for more than 64 labels in floats with bounded rounding
    errors. *Unknown*: neither is proven. The report of a solver alone is never an answer.

    Parameters
    ----------
    coef : array-like of shape (n_labels, n_features), fitted estimator or torch module
        Weights of the layer; or an estimator with ``coef_`` and ``intercept_``, or with
        ``estimators_`` of binary linear classifiers (`OneVsRestClassifier`,
        `MultiOutputClassifier`), or an object with ``weight`` and ``bias`` (`torch.nn.Linear`), or
        a :class:`~sklearn_xlc.DFTSigmoidClassifier`, or a :class:`~sklearn_xlc.MultiHeadClassifier`
        with the head "flat". Every row of the weights is one label, active
        or not independently of the others.
    Y : {array-like, sparse matrix, dataframe} of shape (n_sets, n_labels) or (n_labels,), or tags
        Label sets, 1 for active labels and 0 for all others; or a frame or tags, if the model has
        `classes_`. Sparse sets are not made dense, and equal sets are decided once.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    points : array-like of shape (n_points, n_features), default=None
        Inputs of the layer to try first, such as the features of all training samples. A set
        predicted for one of them is argmaxable. Without biases the witness is the point times a
        power of two.
    nonnegative : bool or array-like of shape (n_features,), default=False
        Whether features are never negative, as outputs of a ReLU: all of them, or a mask. Witnesses
        then have no negative feature, and fewer sets are argmaxable.
    max_active : int, default=None
        Largest number of active labels of a Fourier layer: the first ``2 * max_active + 1`` columns
        of the weights are the :func:`fourier_matrix`, up to rounding. Without biases and
        `nonnegative` features, a theorem makes sets with at most ``2 * max_active`` cyclic sign
        changes argmaxable. None: no Fourier columns.
    box : float, default=1e4
        Bound of the coordinates of x in the linear program (LP). Without biases radii are
        proportional to `box`, because regions are cones.
    min_radius : float, default=1e-8
        Argmaxable sets with a smaller radius are counted as narrow. Narrow sets found with
        `search_radius` have a region too small to be hit in practice.
    time_limit : float, default=10.0
        Time limit per label set in seconds; after it the set is unknown.
    search_radius : bool, default=False
        Whether to solve the LP for every argmaxable set, to find the largest radius inside the box.
        If False, the radius of the first witness found is reported; it may be smaller by many
        orders of magnitude.
    n_jobs : int, default=None
        Number of label sets decided in parallel. Each job holds a few copies of the weights.
    verbose : int, default=0
        If above 0, :class:`joblib.Parallel` prints progress to standard error.

    Returns
    -------
    ArgmaxabilityReport
        Status, radius, witness and reason of every row of `Y`.

    See Also
    --------
    is_argmaxable : Checks one assignment.
    count_argmaxable : Counts all argmaxable assignments.

    Notes
    -----
    The methods, in the order in which they are tried: the points; labels without weights; labels
    with parallel weights; the closed form; a few hundred perceptron steps; the Chebyshev LP of
    [1]_ inside the box; the same LP with scaled rows and columns and without the box.

    **Differences from the paper**

    - In [1]_ a set is argmaxable if a solver finds a ball of radius 1e-8 or more in the box, and
      not argmaxable if it finds none. Here radii of any size count (`min_radius` marks narrow
      sets), both answers are proven, and all other sets are unknown.

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
        max_active = _max_active_of(coef, layer)
    if np.shape(getattr(coef, "classes_", ())) == (len(layer.coef),):
        Y = plain_sets(named_assignments(coef, Y) or Y)
    sets = check_assignments(Y, "Y", len(layer.coef))
    if points is not None:
        points = check_numbers(points, "points", dtype=np.float64)
        check_equal("features", points=points.shape[1], coef=layer.coef.shape[1])
    n_labels, signed = len(layer.coef), _signed_features(nonnegative, layer.coef.shape[1])
    if len(signed):
        layer, sets, points = _with_features(layer, sets, points, signed)
        max_active = None
    box = check_real(box, "box", 0, closed=False)
    time_limit = check_real(time_limit, "time_limit", 0, closed=False)
    min_radius = check_real(min_radius, "min_radius", 0)
    check_flag(search_radius, "search_radius")
    problem = prepare(layer, max_active, box, n_labels)
    first, inverse = distinct_rows(sets)
    verdicts = _from_points(problem, sets, first, points)
    todo = [row for row in first if search_radius or row not in verdicts]
    calls = (
        delayed(decide)(problem, _active(sets, row), time_limit, search_radius, verdicts.get(row))
        for row in todo
    )
    verdicts |= zip(todo, Parallel(n_jobs=n_jobs, verbose=verbose)(calls))
    ordered = [verdicts[first[i]] for i in inverse]
    return _make_report(ordered, sets[:, :n_labels], layer.coef.shape[1], min_radius)


def _max_active_of(model: Any, layer: LinearLayer) -> int | None:
    """Return `max_active_` of a model, or None if later or removed labels broke its columns."""
    max_active = getattr(model, "max_active_", None)
    if max_active is None or 2 * max_active + 1 > len(layer.coef):
        return None
    return max_active if has_fourier_columns(layer.coef, max_active) else None


def _signed_features(nonnegative: Any, n_features: int) -> IntArray:
    """Return the indices of the non-negative features."""
    mask = np.asarray(nonnegative)
    if mask.dtype != bool or mask.shape not in ((), (n_features,)):
        raise ValueError(
            f"nonnegative must be True, False or a mask of the {n_features} features, got "
            f"{nonnegative!r}"
        )
    return np.flatnonzero(np.broadcast_to(mask, n_features))


def _with_features(
    layer: LinearLayer, sets: sp.csr_array, points: FloatArray | None, signed: IntArray
) -> tuple[LinearLayer, sp.csr_array, FloatArray | None]:
    """Add an always active label for each of these features to layer, sets and points.

    As logits of witnesses are not zero, features of zero may as well be slightly above: a witness
    with non-negative features exists if and only if one with positive features does.
    """
    n_features = layer.coef.shape[1]
    intercept = np.append(layer.intercept, np.zeros(len(signed)))
    coef = np.vstack([layer.coef, np.eye(n_features)[signed]])
    ones = sp.csr_array(np.ones((sets.shape[0], len(signed)), dtype=sets.dtype))
    if points is not None:
        points = points.copy()
        points[:, signed] += POINT_SHIFT * np.abs(points).max(initial=0)
    return LinearLayer(coef, intercept), sp.hstack([sets, ones], format="csr"), points


def _from_points(
    problem: Problem, sets: sp.csr_array, rows: IntArray, points: FloatArray | None
) -> dict[int, Verdict]:
    """Return verdicts for the sets predicted at some point."""
    verdicts: dict[int, Verdict] = {}
    if points is None:
        return verdicts
    wanted = {_active(sets, row).tobytes(): row for row in rows}
    layer = problem.layer
    for part in row_blocks(len(points), len(layer.coef)):
        with np.errstate(over="ignore", invalid="ignore"):
            logits = points[part] @ layer.coef.T + layer.intercept
            for x, predicted in zip(points[part], logits > 0):
                row = wanted.get(np.flatnonzero(predicted).tobytes())
                if row is None or row in verdicts:
                    continue
                signs = np.where(predicted, 1.0, -1.0)
                verdict = Question(problem, signs, np.inf).try_witness(x, "point")
                if verdict is not None:
                    verdicts[row] = verdict
    return verdicts


def _active(sets: sp.csr_array, row: int) -> IntArray:
    """Return the sorted ids of the active labels of a row."""
    return sets.indices[sets.indptr[row] : sets.indptr[row + 1]].astype(np.int64)


def _make_report(
    verdicts: list[Verdict], sets: sp.csr_array, n_features: int, min_radius: float
) -> ArgmaxabilityReport:
    """Collect the verdicts in a report."""
    n_labels = sets.shape[1]
    witness = np.full((len(verdicts), n_features), np.nan)
    for row, verdict in enumerate(verdicts):
        if verdict.witness is not None:
            witness[row] = verdict.witness
    return ArgmaxabilityReport(
        status=np.array([verdict.status for verdict in verdicts], dtype=np.int8),
        radius=np.array([verdict.radius for verdict in verdicts], dtype=np.float64),
        witness=witness,
        reason=np.array([verdict.reason for verdict in verdicts], dtype="<U16"),
        conflicts=[
            None if verdict.conflict is None else verdict.conflict[verdict.conflict < n_labels]
            for verdict in verdicts
        ],
        n_active=np.diff(sets.indptr).astype(np.int64),
        n_labels=n_labels,
        min_radius=min_radius,
    )
