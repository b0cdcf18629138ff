"""Plot of the share of true predictions against their probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc._bounds import check_integer, checked_k
from sklearn_xlc.metrics import calibration_error, check_calibration, reliability, truth_and_best
from sklearn_xlc.plotting._axes import Display


class ReliabilityDisplay(Display):
    """Reliability diagram: share of true labels against predicted probabilities.

    Perfect probabilities lie on the diagonal; below it, predictions are overconfident. Unlike in
    :class:`~sklearn.calibration.CalibrationDisplay`, for two classes, labels are ranked; there is a
    line for each rank, or one for all ranks together.

    Parameters
    ----------
    mean_probability : array-like of shape (n_lines, n_bins)
        Mean probability of the predictions in each bin; NaN for an empty bin.
    share_true : array-like of shape (n_lines, n_bins)
        Share of true labels among the predictions in each bin.
    n_predictions : array-like of shape (n_lines, n_bins)
        Number of predictions in each bin.
    names : sequence of str
        Names of the lines in the legend.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        Lines of the last plot.
    diagonal_ : matplotlib Line2D
        Line of perfect probabilities in the last plot.
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    See Also
    --------
    sklearn_xlc.metrics.expected_calibration_error : Mean distance from the diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.plotting import ReliabilityDisplay
    >>> y_true = np.array([[1, 0, 0], [0, 1, 0]])
    >>> display = ReliabilityDisplay.from_predictions(
    ...     y_true, np.array([[0, 1], [2, 1]]), [[0.5, 0.25], [0.5, 0.75]], n_bins=4
    ... )
    >>> display.share_true[0]
    array([nan, nan, 0.5, nan])
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['perfect', 'rank 1 (ECE 0.00)', 'rank 2 (ECE 0.25)']
    """

    def __init__(
        self, mean_probability: Any, share_true: Any, n_predictions: Any, names: Any
    ) -> None:
        self.mean_probability, self.share_true = mean_probability, share_true
        self.n_predictions, self.names = n_predictions, names

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, k: int | None = None, **kwargs: Any
    ) -> ReliabilityDisplay:
        """Draw the probabilities of a fitted classifier for its best labels.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier with probabilities, also within a pipeline or a search.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples not used in `fit`.
        y : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, in the form given to `fit`.
        k : int, default=None
            Number of ranks. None: 3, or all of fewer labels.
        **kwargs : dict
            Keyword arguments of :meth:`from_predictions`.

        Returns
        -------
        ReliabilityDisplay
            Drawn display.
        """
        _, *found = truth_and_best(estimator, X, y, lambda n: checked_k(k, n, default=3))
        return cls.from_predictions(*found, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        labels: Any,
        probabilities: Any,
        *,
        n_bins: int = 10,
        pooled: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the probabilities of ranked labels.

        Parameters
        ----------
        y_true : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, as in :func:`~sklearn_xlc.metrics.expected_calibration_error`.
        labels, probabilities : array-like of shape (n_samples, k)
            Best labels and their probabilities, from ``predict_topk(..., proba=True)``.
        n_bins : int, default=10
            Number of bins of equal width, also of the calibration errors in the legend.
        pooled : bool, default=False
            Whether all ranks make one line, rather than a line each.
        name : str, default=None
            Name of the classifier in the legend.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        ReliabilityDisplay
            Drawn display.
        """
        hits, p = check_calibration(y_true, labels, probabilities)
        n_bins = check_integer(n_bins, "n_bins")
        columns = [(hits.ravel(), p.ravel())] if pooled else zip(hits.T, p.T)
        bins = [reliability(are_true, of_rank, n_bins) for are_true, of_rank in columns]
        if pooled:
            names = ["rank 1" if p.shape[1] == 1 else f"ranks 1 to {p.shape[1]}"]
        else:
            errors = [calibration_error(*of_rank) for of_rank in bins]
            names = [f"rank {rank} (ECE {error:.2f})" for rank, error in enumerate(errors, 1)]
        n, mean, share = map(np.array, zip(*bins))
        names = [f"{name}, {line}" if name else line for line in names]
        return cls(mean, share, n, names).plot(**kwargs)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        drawn = [line for line in ax.lines if line.get_label() == "perfect"]
        if drawn:
            self.diagonal_ = drawn[0]
        else:
            (self.diagonal_,) = ax.plot([0, 1], [0, 1], ":", color="gray", label="perfect")
        self.lines_ = []
        for mean, share, name in zip(self.mean_probability, self.share_true, self.names):
            used = ~np.isnan(mean)
            style = {"marker": "o", "markersize": 4, "label": name, **kwargs}
            self.lines_ += ax.plot(np.asarray(mean)[used], np.asarray(share)[used], **style)
        ax.set(
            xlabel="mean probability of the labels in a bin",
            ylabel="share of them that are true",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
            aspect="equal",
        )
        ax.legend(fontsize="small", loc="upper left")
