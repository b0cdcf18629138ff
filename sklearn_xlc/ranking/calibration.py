"""Calibrate scores of labels on held-out samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._ranking import find_hits, ranked_candidates
from sklearn_xlc.ranking.base import N_RANKS, Ranker, Samples

#: Smallest slope, to keep the order of the labels.
LEAST_SLOPE = 0.01
#: Share of the scores below the start of the line.
BEGIN = 0.05


class Calibration(Ranker):
    r"""Platt scaling of the scores of a network, fitted on held-out samples.

    A network is overconfident in its best labels if it fits the training samples closely. The map
    [1]_ is :math:`s \mapsto a s + b` with a > 0, so that labels keep their order. It is fitted by
    maximum likelihood to the best labels of held-out samples. The label of rank r has weight 1 / r:
    one map is not exact at all ranks, and the first rank matters most. A weak prior draws the map
    to the identity. Below nearly all of the fitted scores the slope is one; a smaller slope there
    would raise the probabilities of thousands of labels.

    Attributes
    ----------
    slope_, offset_ : float
        The numbers a and b.
    start_ : float
        Smallest score with the slope a.

    See Also
    --------
    sklearn_xlc.metrics.expected_calibration_error : Measures probabilities.

    References
    ----------
    .. [1] J. Platt. Probabilistic Outputs for Support Vector Machines and Comparisons to
       Regularized Likelihood Methods. Advances in Large Margin Classifiers, 1999.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking import Calibration
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=(2000, 6))
    >>> Y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    >>> calibration = Calibration().fit(3 * odds, Y)  # three times as sure as it should be
    >>> round(calibration.slope_, 2)
    0.33
    >>> round(calibration.inverse(calibration(1.5)), 6)
    1.5
    """

    slope_: float
    offset_: float
    start_: float
    _shown = ("slope_", "offset_")

    def fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any = None,
        samples: Samples | None = None,
        sample_weight: Any = None,
    ) -> Calibration:
        width = min(N_RANKS, np.shape(scores)[1])
        scores, labels = ranked_candidates(np.asarray(scores), labels, width)
        s = scores.astype(np.float64).ravel()
        of_samples = np.ones(len(scores)) if sample_weight is None else np.asarray(sample_weight)
        weights = np.outer(of_samples, 1 / np.arange(1.0, width + 1)).ravel()
        # A beam may give fewer labels than asked for.
        used = np.isfinite(s) & (weights > 0)
        hits = find_hits(labels, check_indicator(Y, "Y")).ravel()[used].astype(np.float64)
        s, weights = s[used], weights[used]

        def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
            odds, away = line[0] * s + line[1], line - (1.0, 0.0)
            value = weights @ (np.logaddexp(0, odds) - hits * odds)
            excess = weights * (expit(odds) - hits)
            gradient = np.array([excess @ s, excess.sum()])
            return float(value + away @ away / 2), gradient + away

        bounds = [(LEAST_SLOPE, None), (None, None)]
        found = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=bounds)
        self.slope_, self.offset_ = map(float, found.x)
        self.start_ = float(np.quantile(s, BEGIN)) if len(s) else 0.0
        return self

    def __call__(self, scores: Any) -> Any:
        """Map scores to calibrated log odds; a number, an array or a tensor."""
        if not hasattr(scores, "clip"):
            return float(self(np.float64(scores)))
        above = scores.clip(min=self.start_)
        return self.slope_ * above + self.offset_ + (scores - above)

    def inverse(self, odds: Any) -> Any:
        least = self(self.start_)
        scores = self.start_ + np.where(
            np.asarray(odds) >= least, (odds - least) / self.slope_, odds - least
        )
        return float(scores) if np.ndim(odds) == 0 else scores
