"""Decision with a guaranteed risk: cuts calibrated on samples of their own."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import rel_entr
from scipy.stats import binom

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import find_entries, row_blocks, row_numbers
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.decisions._base import USUAL, Decision, set_sizes

#: Scores between which cuts are tested, by the link: log odds, log probabilities.
GRIDS = {"sigmoid": (12.0, -12.0), "exp": (0.0, -24.0)}
#: Number of cuts tested one after the other.
N_CUTS = 1000
#: Counts of samples by cut that are held at a time.
CHUNK = 2**22
#: Rounding errors of sums of losses, relative to alpha.
ROUNDING = 1e-12


class RiskControl(Decision):
    r"""Predict the labels above a cut that keeps the risk at or below alpha, guaranteed.

    The cut is chosen on samples that nothing else of the classifier has seen. For a new sample,
    exchangeable with these, the expected risk is at most `alpha`, whatever the network.

    Parameters
    ----------
    alpha : float, default=0.1
        Largest risk, between 0 and 1.
    risk : {"miss", "false_discovery"}, default="miss"
        Risk of a sample.

        - "miss": share of its labels that are not predicted; 0 for a sample without labels.
        - "false_discovery": share of its predicted labels that are false; 0 for an empty set. It
          needs `confidence`, and scores with probabilities.
    confidence : float, default=None
        None: the mean risk over draws of the calibration samples and of the new sample is at most
        `alpha`. A number between 0 and 1: with this probability over draws of the calibration
        samples, which must be independent, the expected risk of a new sample is at most `alpha`.
    k : int, default=1000
        Largest number of labels of a set. Labels beyond the best k are never predicted; this is
        part of the risk.
    min_labels : int or "auto", default="auto"
        Smallest number of labels of a set: the best ones are predicted even below the cut. "auto":
        1 for "miss" if every training sample has a label, otherwise 0.

    Attributes
    ----------
    cut_ : float
        Labels with at least this score are predicted. All labels with a score equal to the cut are
        predicted, too.
    n_samples_ : int
        Number of calibration samples, or groups.
    risk_ : float
        Mean risk of the calibration samples.
    unreachable_ : float
        Mean share of the calibration samples' labels that are not among their best `k_` labels.
    k_, min_labels_, n_labels_ : int
        Largest and smallest number of labels of a set, in use; number of labels.

    Raises
    ------
    ValueError
        If no cut keeps `alpha`; the message names the smallest alpha that can be kept.

    See Also
    --------
    Threshold : Tunes the cut for a criterion, without a guarantee.

    Notes
    -----
    *Samples.* A classifier sets ``validation_fraction`` of the training samples apart for this
    decision. They are drawn at random, before anything else reads the samples; as many again are
    held out if a ranker or early stopping needs some. ``recalibrate(X, y)`` with new samples uses
    all of these for the decision, and leaves the ranker as it is. The guarantee is about the
    labels in ``classes_``. Every sample counts once, whatever its weight.

    *Expected risk.* With n samples, the sum of their risks S and a risk of at most one for the new
    sample, the cut is the largest with :math:`(S + 1) / (n + 1) \le \alpha` ([1]_, Theorem 1). For
    class labels this is split conformal prediction: the set holds the class with probability at
    least :math:`1 - \alpha`.

    *With confidence.* A cut is accepted if its Hoeffding-Bentkus p-value [2]_ is at most one minus
    the confidence. "miss" falls with the cut, so that the largest accepted cut is valid.
    "false_discovery" does not: 1000 cuts, fixed beforehand, are tested from the largest to the
    smallest until one is not accepted [2]_ (fixed-sequence testing).

    *Its end.* Whatever changes scores, such as ``partial_fit``, ``forget``, ``remove_labels`` or
    :func:`~sklearn_xlc.compress`, ends the guarantee, with a warning; ``recalibrate`` renews it.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster. Conformal Risk Control.
       arXiv:2208.02814, 2022.
    .. [2] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn then Test:
       Calibrating Predictive Algorithms to Achieve Risk Control. arXiv:2110.01052, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import RiskControl
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(200, 20))
    >>> Y = (scores + rng.normal(size=scores.shape) > 1.5).astype(int)
    >>> decision = RiskControl(alpha=0.2).fit(scores, Y)
    >>> decision
    RiskControl(alpha=0.2): cut_=0.4238, n_samples_=200, risk_=0.1957
    >>> decision.decode(scores[:2]).shape
    (2, 20)
    """

    needs_own_samples = True
    fitted_on = "held"
    k_: int
    min_labels_: int
    _shown = ("cut_", "n_samples_", "risk_")
    _at_most_n_labels = "min_labels"
    _parameter_constraints = {
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "risk": [StrOptions({"miss", "false_discovery"})],
        "confidence": [None, Interval(Real, 0, 1, closed="neither")],
        "k": [Interval(Integral, 1, None, closed="left")],
        "min_labels": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        alpha: float = 0.1,
        risk: str = "miss",
        confidence: float | None = None,
        *,
        k: int = 1000,
        min_labels: Any = "auto",
    ) -> None:
        self.alpha = alpha
        self.risk = risk
        self.confidence = confidence
        self.k = k
        self.min_labels = min_labels

    def check(self) -> None:
        super().check()
        if self.risk == "false_discovery" and self.confidence is None:
            raise ValueError(
                "risk='false_discovery' can fall as well as rise with the cut, so that only a "
                "bound with confidence holds: give confidence, such as 0.9"
            )
        if self.min_labels != "auto" and self.min_labels > self.k:
            raise ValueError(f"min_labels={self.min_labels} is more than k={self.k}")

    def check_labels(self, Y: sp.csr_matrix) -> None:
        self.check()
        super().check_labels(Y)

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        self._check_link(link)

    def _check_link(self, link: str | None) -> None:
        if self.risk == "false_discovery" and link not in GRIDS:
            raise ValueError(
                "risk='false_discovery' tests cuts fixed beforehand, as probabilities, but these "
                "scores have none; use risk='miss', or a loss that defines probabilities"
            )

    def check_samples(self, n_samples: int) -> None:
        least = _least_alpha(np.zeros(1), n_samples, self.confidence)
        if least > self.alpha * (1 + ROUNDING):
            raise ValueError(
                f"alpha={self.alpha} cannot be kept with {n_samples} sample(s) to calibrate on, "
                f"{self._named(least)}; give a larger alpha, a larger validation_fraction, or "
                "more samples by recalibrate(X, y)"
            )

    def fit(
        self,
        scores: np.ndarray | None,
        Y: Any,
        *,
        labels: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        link: str | None = "sigmoid",
        groups: np.ndarray | None = None,
        **context: Any,
    ) -> RiskControl:
        """Choose the cut on samples that the classifier has not seen.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores, best first if `labels` are given.
        Y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels)
            Indicator of the labels of the samples, or of their groups.
        labels : ndarray of shape (n_samples, n_candidates), default=None
            Ids of the candidates. None: the columns are the labels.
        sizes : ndarray of shape (n_training_samples,), default=None
            Numbers of labels of training samples, for ``min_labels="auto"``. None: those of `Y`.
        link : {"sigmoid", "exp", None}, default="sigmoid"
            Function from scores to probabilities.
        groups : ndarray of shape (n_samples,), default=None
            Row of `Y` with the labels of each sample's group: the risk is then that of a new group,
            whose predicted labels are those of any of its samples. Nothing is guaranteed for single
            samples. None: every sample has its own labels.
        **context : dict
            Not used.

        Returns
        -------
        self : object
            Fitted decision.

        Raises
        ------
        ValueError
            If no cut keeps `alpha`, or there are no samples.
        """
        self.check()
        self._check_link(link)
        if scores is None or not len(scores):
            raise ValueError(
                f"{type(self).__name__} needs labelled samples that nothing else was learnt from, "
                "and there are none; fit with another decision, then call recalibrate(X, y, "
                f"decision={type(self).__name__}(...)) with samples of their own"
            )
        super().fit(scores, Y)
        Y = check_indicator(Y, "Y")
        if np.isnan(scores).any():
            raise ValueError("scores hold NaN")
        if groups is None and len(scores) != Y.shape[0]:
            raise ValueError(f"scores have {len(scores)} rows, and Y has {Y.shape[0]}")
        self.min_labels_ = self._least_labels(set_sizes(Y) if sizes is None else sizes)
        scores, labels = ranked_candidates(scores, labels, self.k)
        self.k_, self.n_samples_ = scores.shape[1], Y.shape[0]
        self.check_samples(self.n_samples_)
        rows = np.arange(len(scores)) if groups is None else np.asarray(groups)
        # The first labels are in every set, whatever the cut.
        effective = scores.copy()
        effective[:, : self.min_labels_] = np.inf
        entries = find_entries(Y, rows[:, None], labels)
        curve, self.unreachable_ = _misses(effective, entries, Y)
        if self.risk == "miss":
            self._choose(curve)
        else:
            labels = None if groups is None else labels
            grid = np.linspace(*GRIDS[str(link)], N_CUTS, dtype=scores.dtype)
            self._choose_in_order(_discoveries(effective, entries >= 0, rows, labels, Y, grid))
        n_taken = np.count_nonzero(effective >= self.cut_, axis=1)
        self.usual_size_ = int(min(self.k_, np.quantile(n_taken, USUAL) + 1))
        return self

    def _least_labels(self, sizes: np.ndarray) -> int:
        if self.min_labels != "auto":
            return int(self.min_labels)
        return int(self.risk == "miss" and bool(len(sizes)) and sizes.min() > 0)

    def _choose(self, curve: Curve) -> None:
        """Choose the largest accepted cut of a risk that falls with the cut."""
        accepted = self._is_accepted(curve.risks)
        if not accepted[-1]:
            self._refuse(_least_alpha(curve.risks[-1:], self.n_samples_, self.confidence))
        self.cut_ = float(curve.cuts[np.argmax(accepted)])
        # All labels with the score of the cut are predicted.
        last = np.searchsorted(-curve.cuts, -self.cut_, side="right") - 1
        self.risk_ = float(curve.risks[last])

    def _choose_in_order(self, curve: Curve) -> None:
        """Choose the last cut before the first refused one (fixed-sequence testing [2])."""
        accepted = self._is_accepted(curve.risks)
        last = len(accepted) - 1 if accepted.all() else int(np.argmin(accepted)) - 1
        first = int(np.argmax(curve.n_taken > 0))
        if last < first:  # nothing is predicted: no labels, no risk
            needed = _least_alpha(curve.risks[: first + 1], self.n_samples_, self.confidence)
            self._refuse(needed)
        self.cut_, self.risk_ = float(curve.cuts[last]), float(curve.risks[last])

    def _is_accepted(self, risks: np.ndarray) -> np.ndarray:
        """Return which mean risks say that the expected risk is at most alpha."""
        n = self.n_samples_
        if self.confidence is None:  # Theorem 1 of [1] with B = 1
            return cast(np.ndarray, (n * risks + 1) / (n + 1) <= self.alpha * (1 + ROUNDING))
        return hoeffding_bentkus(risks, n, self.alpha) <= 1 - self.confidence

    def _refuse(self, least: float) -> None:
        why, remedy = "", ""
        if self.unreachable_ and self.risk == "miss":
            why = (
                f": {self.unreachable_:.3g} of their labels are not among the best {self.k_}, "
                "where lists end, and no cut reaches them"
            )
            remedy = ", a larger k" if self.k_ < self.n_labels_ else ""
        raise ValueError(
            f"alpha={self.alpha} cannot be kept on {self.n_samples_} calibration samples{why}; "
            f"{self._named(least)}; give a larger alpha{remedy}, or more samples"
        )

    def _named(self, least: float) -> str:
        if least >= 1:
            return "nor can any alpha below 1"
        return f"the smallest alpha that can is {math.ceil(1e4 * least - 1e-9) / 1e4:.4g}"

    def partial_fit(self, scores: Any, Y: Any, **context: Any) -> RiskControl:
        self.scores_changed("partial_fit")
        return self

    def scores_changed(self, by: str) -> None:
        warnings.warn(
            f"{by} changes scores: {self!r} no longer guarantees its risk; call recalibrate(X, y) "
            "with samples that nothing was learnt from",
            UserWarning,
            stacklevel=4,
        )

    def n_candidates(self, n_labels: int) -> int:
        return getattr(self, "usual_size_", self.k)

    def needs_more(self, scores: np.ndarray) -> bool:
        n_given = scores.shape[-1]
        return n_given < self.k_ and bool((scores[:, -1] >= self.cut_).any())

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        scores, labels = ranked_candidates(scores, labels, self.k_)
        taken = scores >= self.cut_
        taken[:, : self.min_labels_] = True
        return self.label_sets(taken, labels)


class Curve(NamedTuple):
    """Mean risks by cut, from the largest cut to the smallest; number of predicted labels."""

    cuts: npt.NDArray[Any]
    risks: npt.NDArray[np.float64]
    n_taken: npt.NDArray[np.int64]


def _misses(scores: np.ndarray, entries: np.ndarray, Y: sp.csr_matrix) -> tuple[Curve, float]:
    """Return the mean share of missed labels, at the cuts where it changes, and without a cut.

    `entries`: position in Y of each candidate (n_samples, n_candidates), or -1. A label has the
    best score of all its candidates. The first cut is infinite.
    """
    n_samples, sizes = Y.shape[0], np.diff(Y.indptr)
    best = np.full(Y.nnz, -np.inf, dtype=scores.dtype)
    np.maximum.at(best, entries[entries >= 0], scores[entries >= 0])
    is_listed = best > -np.inf
    order = np.argsort(-best, kind="stable")[: np.count_nonzero(is_listed)]
    share = 1.0 / sizes[row_numbers(Y.indptr)]
    found = np.concatenate([[0.0], np.cumsum(share[order])])
    cuts = np.concatenate([np.array([np.inf], dtype=scores.dtype), best[order]])
    risks = np.maximum(0, np.count_nonzero(sizes) - found) / n_samples
    unreachable = float(share[~is_listed].sum() / n_samples)
    return Curve(cuts, risks, np.arange(len(cuts))), unreachable


def _discoveries(
    scores: np.ndarray,
    hits: np.ndarray,
    rows: np.ndarray,
    labels: np.ndarray | None,
    Y: sp.csr_matrix,
    grid: np.ndarray,
) -> Curve:
    """Return the mean share of false labels among those predicted, at given falling cuts.

    `labels`: those of the candidates, if samples of a group may share some; each counts once.
    """
    row = np.repeat(rows, scores.shape[1])
    score, hit = scores.ravel(), hits.ravel()
    if labels is not None:
        keys = row * np.int64(Y.shape[1]) + labels.ravel()
        order = np.lexsort((-score, keys))
        order = order[np.diff(keys[order], prepend=-1) != 0]
        row, score, hit = row[order], score[order], hit[order]
    # The first cut at which each candidate is predicted.
    at = np.searchsorted(-grid, -score, side="left")
    n_cuts = len(grid)
    bounds = np.searchsorted(row, np.arange(Y.shape[0] + 1))
    total, n_taken = np.zeros(n_cuts), np.zeros(n_cuts, dtype=np.int64)
    for part in row_blocks(Y.shape[0], n_cuts, CHUNK):
        size = part.stop - part.start
        inside = slice(bounds[part.start], bounds[part.stop])
        cell = (row[inside] - part.start) * (n_cuts + 1) + at[inside]
        counts = [
            np.bincount(cell, weight, minlength=size * (n_cuts + 1)).reshape(size, -1)
            for weight in (None, ~hit[inside])
        ]
        taken, false = (np.cumsum(each, axis=1)[:, :-1] for each in counts)
        total += (false / np.maximum(taken, 1)).sum(axis=0)
        n_taken += taken.sum(axis=0)
    return Curve(grid, total / Y.shape[0], n_taken)


def hoeffding_bentkus(risks: Any, n_samples: int, alpha: float) -> npt.NDArray[np.float64]:
    r"""Compute p-values of the hypothesis that the expected risk is more than alpha.

    For the mean R of n independent risks between 0 and 1, the p-value [1]_ is :math:`\min(e^{-n
    h(\min(R, \alpha), \alpha)}, e\,P(\mathrm{Bin}(n, \alpha) \le \lceil n R \rceil))`, where h is
    the Kullback-Leibler divergence of Bernoulli distributions.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn then Test:
       Calibrating Predictive Algorithms to Achieve Risk Control. arXiv:2110.01052, 2021.
    """
    risks = np.asarray(risks, dtype=np.float64)
    low = np.minimum(risks, alpha)
    hoeffding = np.exp(-n_samples * (rel_entr(low, alpha) + rel_entr(1 - low, 1 - alpha)))
    bentkus = math.e * binom.cdf(np.ceil(n_samples * risks), n_samples, alpha)
    return cast(npt.NDArray[np.float64], np.minimum(hoeffding, bentkus))


def _least_alpha(risks: np.ndarray, n_samples: int, confidence: float | None) -> float:
    """Return the smallest alpha for which all mean risks are accepted."""
    worst = float(risks.max())
    if confidence is None:
        return (n_samples * worst + 1) / (n_samples + 1)
    low, high = worst, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        accepted = hoeffding_bentkus(worst, n_samples, middle) <= 1 - confidence
        low, high = (low, middle) if accepted else (middle, high)
    return high
