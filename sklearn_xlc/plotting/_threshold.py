"""Plot of precision and recall of predicted label sets against the threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.metrics import check_calibration, check_label_sets, truth_and_best
from sklearn_xlc.plotting._axes import Display

#: Names and colours of the lines, safe for the colour-blind.
_LINES = {"precision": "#0072B2", "recall": "#D55E00"}
#: Steps of the axes, finer than pixels: there may be millions of distinct probabilities.
_STEPS = 2**12


class ThresholdDisplay(Display):
    """Precision and recall of label sets against the threshold of probabilities.

    Both are micro-averages, over all (sample, label) decisions together. Precision is not defined
    above the largest probability.

    Parameters
    ----------
    thresholds : ndarray of shape (n_thresholds,)
        Thresholds, ascending: the distinct probabilities. Labels with at least this probability are
        predicted.
    precision, recall : ndarray of shape (n_thresholds,)
        Precision and recall at each threshold.
    threshold : float, default=None
        Threshold in use, drawn as a vertical line.
    name : str, default=None
        Name of the classifier in the legend.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        Lines of precision and of recall in the last plot.
    threshold_line_ : matplotlib Line2D or None
        Line of the threshold in use.
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    See Also
    --------
    sklearn_xlc.decisions.Threshold : ``Threshold(criterion="precision", at_least=0.9)`` finds the
        threshold with a precision.

    Examples
    --------
    >>> from sklearn_xlc.plotting import ThresholdDisplay
    >>> display = ThresholdDisplay.from_predictions(
    ...     [["cat"], ["dog", "fox"]],
    ...     [["cat", "dog"], ["dog", "cat"]],
    ...     [[0.9, 0.2], [0.5, 0.4]],
    ... )
    >>> display.thresholds.tolist(), display.precision.tolist()
    ([0.2, 0.4, 0.5, 0.9], [0.5, 0.6666666666666666, 1.0, 1.0])
    """

    def __init__(
        self,
        thresholds: Any,
        precision: Any,
        recall: Any,
        threshold: float | None = None,
        name: str | None = None,
    ) -> None:
        self.thresholds, self.precision, self.recall = thresholds, precision, recall
        self.threshold, self.name = threshold, name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, k: int = 100, **kwargs: Any
    ) -> ThresholdDisplay:
        """Draw precision and recall of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier with probabilities, also within a pipeline or a search.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples not used in `fit`.
        y : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, in the form given to `fit`.
        k : int, default=100
            Number of best labels of a sample that may be predicted; all if there are fewer.
        **kwargs : dict
            Keyword arguments of :meth:`from_predictions`. The default of `threshold` is that of the
            classifier's decision, if it has one for all labels.

        Returns
        -------
        ThresholdDisplay
            Drawn display.
        """
        found, *ranked = truth_and_best(estimator, X, y, lambda n: min(check_integer(k, "k"), n))
        in_use: Any = getattr(getattr(found, "decision_", None), "threshold_", None)
        if np.ndim(in_use) == 0:
            kwargs = {"threshold": in_use, **kwargs}
        return cls.from_predictions(*ranked, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        labels: Any,
        probabilities: Any,
        *,
        threshold: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> ThresholdDisplay:
        """Draw precision and recall of ranked labels.

        Parameters
        ----------
        y_true : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, as in :func:`~sklearn_xlc.metrics.expected_calibration_error`.
        labels, probabilities : array-like of shape (n_samples, k)
            Best labels and their probabilities, from ``predict_topk(..., proba=True)``.
        threshold : float, default=None
            Threshold in use, drawn as a vertical line.
        name : str, default=None
            Name of the classifier in the legend.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        ThresholdDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If `y_true` has no label.
        """
        hits, p = check_calibration(y_true, labels, probabilities)
        n_true = check_label_sets(y_true, y_true).true.nnz
        if not n_true:
            raise ValueError("y_true has no label, so that recall is not defined")
        is_label = ~np.isnan(p)
        hits, p = hits[is_label], p[is_label]
        thresholds, at = np.unique(p, return_inverse=True)
        # Sums over the probabilities from each threshold on.
        n_predicted = np.cumsum(np.bincount(at)[::-1])[::-1]
        n_hits = np.cumsum(np.bincount(at, weights=hits)[::-1])[::-1]
        return cls(thresholds, n_hits / n_predicted, n_hits / n_true, threshold, name).plot(
            **kwargs
        )

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        self.lines_, self.threshold_line_ = [], None
        for line, colour in _LINES.items():
            label = f"{self.name}: {line}" if self.name else line
            style = {"color": colour, "label": label, "drawstyle": "steps-pre", **kwargs}
            self.lines_ += ax.plot(*_distinct(self.thresholds, getattr(self, line)), **style)
        if self.threshold is not None:
            style = {"color": "gray", "linestyle": ":"}
            label = f"threshold {self.threshold:.2g}"
            self.threshold_line_ = ax.axvline(self.threshold, label=label, **style)
        ax.set(
            xlabel="threshold: labels of at least this probability are predicted",
            ylabel="precision and recall",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        ax.legend(fontsize="small", loc="best")


def _distinct(x: Any, y: Any) -> npt.NDArray[Any]:
    """Return the points of a line without those between two of the same place, (2, n_points)."""
    points = np.array([x, y])
    places = np.round(points * _STEPS)
    moves = np.diff(places, prepend=np.nan), np.diff(places, append=np.nan)
    return points[:, np.any(moves, axis=(0, 1))]
