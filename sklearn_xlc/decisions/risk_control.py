"""Decision with a guaranteed risk: cuts calibrated on samples of their own."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import find_entries, row_blocks, row_numbers
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc._warn import warn
from sklearn_xlc.decisions._base import USUAL, Decision, least_size, set_sizes

#: Scores between which cuts are tested, by the link: log odds, log probabilities.
GRIDS = {"sigmoid": (12.0, -12.0), "exp": (0.0, -24.0)}
#: Number of cuts tested one after the other.
N_CUTS = 1000
#: Counts of samples by cut that are held at a time.
CHUNK = 2**20
#: Share of the samples from whose losses the bets on the others are computed; weight, in samples,
#: of the variance assumed before; largest bet, of the one that could lose all.
PAST, PRIOR, LARGEST_BET = 0.25, 4, 0.75
#: Rounding errors of sums of losses, relative to alpha.
ROUNDING = 1e-12


class RiskControl(Decision):
    r"""Predict the labels above a cut with a guaranteed risk of at most alpha.

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
    held out if a ranker or early stopping needs some. A vectorizer fitted to all training samples,
    as in a pipeline, has read them before, and the guarantee does not hold. ``recalibrate(X, y)``
    with new samples uses all of these for the decision, and leaves the ranker as it is. The
    guarantee is about the labels in ``classes_``. Every sample counts once, whatever its weight.

    *Expected risk.* With n samples, the sum of their risks S and a risk of at most one for the new
    sample, the cut is the largest with :math:`(S + 1) / (n + 1) \le \alpha` ([1]_, Theorem 1). For
    class labels this is split conformal prediction: the set holds the class with probability at
    least :math:`1 - \alpha`.

    *With confidence.* Bets against the hypothesis that the expected risk is more than `alpha` are
    made on one sample after the other, in a fixed random order [2]_. A cut
    is accepted if the capital reaches one divided by one minus the confidence. "miss" falls with
    the cut, and with the same bets for all cuts the largest accepted one is valid.
    "false_discovery" does not fall: 1000 cuts, fixed beforehand, are tested from the largest to the
    smallest until one is not accepted ([3]_, fixed-sequence testing).

    *Its end.* Whatever changes scores, such as ``partial_fit``, ``forget``, ``remove_labels`` or
    :func:`~sklearn_xlc.compress`, ends the guarantee, with a warning; ``recalibrate`` renews it.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster. Conformal Risk Control.
       arXiv:2208.02814, 2022.
    .. [2] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by betting.
       Journal of the Royal Statistical Society B, 86(1), 2024.
    .. [3] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn then Test:
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
    in_repr = ("cut_", "n_samples_", "risk_")
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
        def keeps(alpha: float) -> bool:
            losses = np.zeros(n_samples)
            return self._accepts(losses, alpha, losses[: _n_past(n_samples)])

        if not keeps(self.alpha):
            raise ValueError(
                f"alpha={self.alpha} cannot be kept with {n_samples} sample(s) to calibrate on, "
                f"{_least_alpha(keeps)}; give a larger alpha, a larger validation_fraction, or "
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
        """Choose the cut on samples unseen by the classifier.

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
        self.min_labels_ = least_size(self.min_labels, set_sizes(Y, sizes))
        if self.min_labels == "auto" and self.risk != "miss":
            self.min_labels_ = 0
        scores, labels = ranked_candidates(scores, labels, self.k)
        self.k_, self.n_samples_ = scores.shape[1], Y.shape[0]
        self.check_samples(self.n_samples_)
        rows = np.arange(len(scores)) if groups is None else np.asarray(groups)
        # The first labels are in every set, whatever the cut.
        effective = scores.copy()
        effective[:, : self.min_labels_] = np.inf
        entries = find_entries(Y, rows[:, None], labels)
        # Bets must not depend on the order of samples: a fixed random one is as good as any.
        place = np.random.default_rng(0).permutation(self.n_samples_)
        misses = _Misses(effective, entries, Y, place)
        self.unreachable_ = misses.unreachable
        if self.risk == "miss":
            self._choose(misses)
        else:
            shared = None if groups is None else labels
            grid = np.linspace(*GRIDS[str(link)], N_CUTS, dtype=scores.dtype)
            hits = entries >= 0
            self._choose_in_order(_Discoveries(effective, hits, place[rows], shared, Y.shape, grid))
        n_taken = np.count_nonzero(effective >= self.cut_, axis=1)
        self.usual_size_ = int(min(self.k_, np.quantile(n_taken, USUAL) + 1))
        return self

    def _choose(self, misses: _Misses) -> None:
        """Choose the largest accepted cut of a decreasing risk."""
        cuts, n_past = misses.cuts, _n_past(self.n_samples_)

        def past(alpha: float) -> np.ndarray:
            """Return the first losses, at their own cut for alpha."""

            def keeps(cut: Any) -> bool:
                return bool(misses.at(cut)[:n_past].mean() <= alpha)

            at = bisect_left(cuts, True, key=keeps) if n_past else 0
            return misses.at(cuts[min(at, len(cuts) - 1)])[:n_past]

        of_past = past(self.alpha)
        chosen = bisect_left(
            cuts, True, key=lambda cut: self._accepts(misses.at(cut), self.alpha, of_past)
        )
        if chosen == len(cuts):
            least = misses.at(cuts[-1])
            self._refuse(lambda alpha: self._accepts(least, alpha, past(alpha)))
        self.cut_ = float(cuts[chosen])
        self.risk_ = float(misses.at(self.cut_).mean())

    def _choose_in_order(self, discoveries: _Discoveries) -> None:
        """Choose the last cut before the first refused one (fixed-sequence testing [3])."""
        level = 1 - float(self.confidence or 0)

        def last(alpha: float) -> tuple[int, np.ndarray]:
            capital, risks = discoveries.log_capital(alpha, level)
            refused = np.flatnonzero(capital < -math.log(level))
            return int(refused[0] if len(refused) else len(capital)) - 1, risks

        chosen, risks = last(self.alpha)
        if chosen < discoveries.first:  # nothing is predicted: no labels, no risk
            self._refuse(lambda alpha: last(alpha)[0] >= discoveries.first)
        self.cut_, self.risk_ = float(discoveries.cuts[chosen]), float(risks[chosen])

    def _accepts(self, losses: np.ndarray, alpha: float, past: np.ndarray) -> bool:
        """Return whether losses prove an expected risk of at most alpha."""
        n = len(losses)
        if self.confidence is None:  # Theorem 1 of [1] with B = 1
            return bool((losses.sum() + 1) / (n + 1) <= alpha * (1 + ROUNDING))
        level = 1 - self.confidence
        capital = log_capital(losses[:, None], bets(past, n, alpha, level), alpha)
        return bool(capital.max() >= -math.log(level))

    def _refuse(self, keeps: Callable[[float], bool]) -> None:
        why, remedy = "", ""
        if self.unreachable_ and self.risk == "miss":
            why = (
                f": {self.unreachable_:.3g} of their labels are not among the best {self.k_}, "
                "where lists end, and no cut reaches them"
            )
            remedy = ", a larger k" if self.k_ < self.n_labels_ else ""
        raise ValueError(
            f"alpha={self.alpha} cannot be kept on {self.n_samples_} calibration samples{why}; "
            f"{_least_alpha(keeps)}; give a larger alpha{remedy}, or more samples"
        )

    def partial_fit(self, scores: Any, Y: Any, **context: Any) -> RiskControl:
        self.scores_changed("partial_fit")
        return self

    def scores_changed(self, by: str) -> None:
        warn(
            f"{by} changes scores: {self!r} no longer guarantees its risk; call recalibrate(X, y) "
            "with samples that nothing was learnt from"
        )

    def n_candidates(self, n_labels: int) -> int:
        return getattr(self, "usual_size_", self.k)

    def needs_more(self, scores: np.ndarray) -> bool:
        return scores.shape[-1] < self.k_ and bool((scores[:, -1] >= self.cut_).any())

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        scores, labels = ranked_candidates(scores, labels, self.k_)
        taken = scores >= self.cut_
        taken[:, : self.min_labels_] = True
        return self.label_sets(taken, labels)


class _Misses:
    """Shares of missed labels.

    `entries`: position in Y of each candidate (n_samples, n_candidates), or -1. A label has the
    best score of all its candidates. `place`: position of each row of Y.
    """

    def __init__(
        self, scores: np.ndarray, entries: np.ndarray, Y: sp.csr_matrix, place: np.ndarray
    ) -> None:
        row = row_numbers(Y.indptr)
        self._place, self._n_samples = place[row], Y.shape[0]
        self._share = 1.0 / np.diff(Y.indptr)[row]
        self._best = np.full(Y.nnz, -np.inf, dtype=scores.dtype)
        np.maximum.at(self._best, entries[entries >= 0], scores[entries >= 0])
        listed = self._best[self._best > -np.inf]
        #: Cuts at which the share changes, from the largest; the first one is infinite.
        self.cuts = np.unique(np.append(listed, np.float32(np.inf)))[::-1]
        #: Mean share that is missed at any cut.
        self.unreachable = float(self._share[self._best == -np.inf].sum() / self._n_samples)

    def at(self, cut: Any) -> np.ndarray:
        """Return the share of each sample at a cut."""
        return np.bincount(self._place, self._share * (self._best < cut), self._n_samples)


class _Discoveries:
    """Shares of false labels among predicted ones, at given falling cuts.

    `place`: position of the sample of each row. `labels`: those of the candidates, if samples of a
    group may share some; each counts once.
    """

    def __init__(
        self,
        scores: np.ndarray,
        hits: np.ndarray,
        place: np.ndarray,
        labels: np.ndarray | None,
        shape: tuple[int, int],
        cuts: np.ndarray,
    ) -> None:
        if labels is None:
            by_place = np.argsort(place)
            place, scores, hits = place[by_place], scores[by_place], hits[by_place]
        row, score, hit = np.repeat(place, scores.shape[1]), scores.ravel(), hits.ravel()
        if labels is not None:
            keys = row * np.int64(shape[1]) + labels.ravel()
            order = np.lexsort((-score, keys))
            order = order[np.diff(keys[order], prepend=-1) != 0]
            row, score, hit = row[order], score[order], hit[order]
        self.cuts, self._n_samples, self._row, self._is_false = cuts, shape[0], row, ~hit
        # The first cut at which each candidate is predicted.
        self._at = np.searchsorted(-cuts, -score, side="left").astype(np.int32)
        #: The first cut at which any label is predicted.
        self.first = int(self._at.min())

    def _shares(self, n_samples: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of the first samples, and their shares (samples, cuts)."""
        n_cuts = len(self.cuts)
        bounds = np.searchsorted(self._row, np.arange(n_samples + 1))
        for part in row_blocks(n_samples, n_cuts, CHUNK):
            size = part.stop - part.start
            inside = slice(bounds[part.start], bounds[part.stop])
            cell = (self._row[inside] - part.start) * (n_cuts + 1) + self._at[inside]
            counts = [
                np.bincount(cell, weight, minlength=size * (n_cuts + 1)).reshape(size, -1)
                for weight in (None, self._is_false[inside])
            ]
            taken, false = (np.cumsum(each, axis=1)[:, :-1] for each in counts)
            yield part, false / np.maximum(taken, 1)

    def log_capital(self, alpha: float, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest log capital, and the mean share, by cut."""
        n, n_past = self._n_samples, _n_past(self._n_samples)
        sums = sum((shares.sum(axis=0) for _, shares in self._shares(n_past)), np.zeros(1))
        over = np.flatnonzero(sums > alpha * n_past)
        at = max(0, (over[0] if len(over) else len(self.cuts)) - 1)
        past = np.concatenate([np.zeros(0), *(shares[:, at] for _, shares in self._shares(n_past))])
        wagers = bets(past, n, alpha, level)
        last, best, total = 0.0, np.full(len(self.cuts), -np.inf), np.zeros(len(self.cuts))
        for part, shares in self._shares(n):
            total += shares.sum(axis=0)
            capital = last + log_capital(shares, wagers[part], alpha)
            best, last = np.maximum(best, capital.max(axis=0)), capital[-1]
        return best, total / n


def _n_past(n_samples: int) -> int:
    return int(PAST * n_samples)


def bets(past: np.ndarray, n_samples: int, alpha: float, level: float) -> np.ndarray:
    r"""Compute bets on n samples from the losses of the first ones.

    The bet :math:`\sqrt{2 \log(1 / \delta) / (n \sigma^2)}` is the best one for n losses of
    variance :math:`\sigma^2` [1]_. Of the first samples it is computed with that
    of zeros and ones, of the others with that of the first. A bet depends on earlier losses only.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by betting.
       Journal of the Royal Statistical Society B, 86(1), 2024.
    """
    largest = alpha * (1 - alpha)
    variance = (PRIOR * largest + np.square(past - alpha).sum()) / (PRIOR + len(past))
    best = np.sqrt(2 * -math.log(level) / (n_samples * np.array([largest, variance])))
    best = np.minimum(best, LARGEST_BET / (1 - alpha))
    return np.repeat(best, [len(past), n_samples - len(past)])


def log_capital(losses: np.ndarray, wagers: np.ndarray, alpha: float) -> np.ndarray:
    r"""Compute the logarithm of the capital after each sample.

    The capital begins with 1, and a loss L multiplies it by :math:`1 - \lambda (L - \alpha)`, for
    the bet :math:`\lambda`. If the expected loss is more than alpha, it ever reaches
    :math:`1 / \delta` with probability :math:`\delta` at most (Ville's inequality, [1]_).

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by betting.
       Journal of the Royal Statistical Society B, 86(1), 2024.
    """
    return np.cumsum(np.log1p(-wagers[:, None] * (losses - alpha)), axis=0)


def _least_alpha(keeps: Callable[[float], bool]) -> str:
    """Return the smallest feasible alpha, to four digits."""
    digits = bisect_left(range(1, 10_000), True, key=lambda k: keeps(k / 10_000)) + 1
    if digits == 10_000:
        return "nor can any alpha below 1"
    return f"the smallest alpha that can is {digits / 10_000:.4g}"
