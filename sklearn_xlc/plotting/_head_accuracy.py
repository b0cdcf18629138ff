"""Plot of the accuracy of each head of a multi-head classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc.plotting._axes import Display


class HeadAccuracyDisplay(Display):
    """Plot of the accuracy of each head, and, dashed, of all heads together.

    A prediction is right if every head is right, so the accuracy of all heads together is at most
    the accuracy of the worst head (Fig. 6 of [1]_). Draw training and test samples on the same axes
    to see which heads overfit.

    Parameters
    ----------
    accuracy : array-like of shape (n_heads,)
        Accuracy of each head, as returned by ``score_heads``.
    combined : float, default=None
        Share of samples with all heads right. None: not drawn.
    name : str, default=None
        Name in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        Accuracies of the heads in the last plot.
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    See Also
    --------
    sklearn_xlc.MultiHeadClassifier.score_heads : Computes the accuracies.

    References
    ----------
    .. [1] D. Liang, H. Zhang, D. Yuan and M. Zhang, "Multi-Head Encoding for Extreme Label
       Classification".

    Examples
    --------
    >>> from sklearn_xlc.plotting import HeadAccuracyDisplay
    >>> display = HeadAccuracyDisplay([0.95, 0.91, 0.99], combined=0.88, name="training").plot()
    >>> _ = HeadAccuracyDisplay([0.92, 0.9, 0.97], combined=0.83, name="test").plot(display.ax_)
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['training (all heads: 0.88)', 'test (all heads: 0.83)']
    """

    def __init__(
        self, accuracy: Any, combined: float | None = None, name: str | None = None
    ) -> None:
        self.accuracy, self.combined, self.name = accuracy, combined, name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **kwargs: Any
    ) -> HeadAccuracyDisplay:
        """Draw the accuracies of a fitted classifier on samples.

        Parameters
        ----------
        estimator : fitted classifier
            Classifier with a method ``score_heads``.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_labels)
            True classes, or indicator of the true labels.
        name : str, default=None
            Name in the legend, such as "test".
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        HeadAccuracyDisplay
            Drawn display.
        """
        accuracy, combined = estimator.score_heads(X, y, return_combined=True)
        return cls(accuracy, combined, name).plot(**kwargs)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        heads = np.arange(1, len(self.accuracy) + 1)
        together = None if self.combined is None else f"all heads: {self.combined:.2f}"
        label = f"{self.name} ({together})" if self.name and together else self.name or together
        style = {"marker": "o", "markersize": 4, "label": label, **kwargs}
        (self.line_,) = ax.plot(heads, self.accuracy, **style)
        if self.combined is not None:
            ax.axhline(self.combined, linestyle="--", linewidth=1, color=self.line_.get_color())
        ax.set(xlabel="head", ylabel="accuracy (share of samples)")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if label:
            ax.legend(fontsize="small")
