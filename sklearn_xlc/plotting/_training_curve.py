"""Plot of losses and scores over the epochs of a fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sklearn_xlc.metrics import unwrapped
from sklearn_xlc.plotting._axes import Display, new_axes

#: Losses in a history, and their names in a legend.
LOSSES = {"train_loss": "training loss", "valid_loss": "held-out loss"}
_PRECISION = re.compile(r"valid_precision_at_(\d+)")


class TrainingCurveDisplay(Display):
    """Plot of losses and scores over the epochs of one fit.

    The left axis shows losses, on a logarithmic scale, the right axis scores. For scores by the
    number of training samples see :class:`sklearn.model_selection.LearningCurveDisplay`.

    Parameters
    ----------
    history : list of dict
        Numbers of each epoch, such as ``history_`` of a fitted classifier.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the losses.
    scores_ax_ : matplotlib Axes or None
        Axes of the scores; None without scores.
    figure_ : matplotlib Figure
        Figure of the last plot.

    See Also
    --------
    sklearn.model_selection.LearningCurveDisplay : Scores by the number of training samples.

    Examples
    --------
    >>> from sklearn_xlc.plotting import TrainingCurveDisplay
    >>> history = [{"epoch": 1, "train_loss": 3.0}, {"epoch": 2, "train_loss": 1.5}]
    >>> TrainingCurveDisplay(history).plot().ax_.get_ylabel()
    'loss of a sample'
    """

    def __init__(self, history: list[dict[str, Any]]) -> None:
        self.history = history

    @classmethod
    def from_estimator(cls, estimator: Any, **kwargs: Any) -> TrainingCurveDisplay:
        """Draw the training of a fitted classifier, also after saving and loading.

        Parameters
        ----------
        estimator : fitted classifier
            Classifier with a ``history_``, or a :class:`~sklearn.pipeline.Pipeline` ending in one.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        TrainingCurveDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If the estimator has no history.
        """
        found = unwrapped(estimator)[0]
        history = getattr(found, "history_", None)
        if not history:
            raise ValueError(
                f"{type(found).__name__} has no history_: pass a classifier of this package "
                "that has been fitted"
            )
        return cls(history).plot(**kwargs)

    def plot(self, ax: Any = None, *, scores: Any = None, **kwargs: Any) -> TrainingCurveDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        scores : list of str, default=None
            Names of scores in the history, such as of :class:`skorch.callbacks.EpochScoring`. None:
            the precision of held-out samples, recorded with ``verbose=1``; an empty list: none.
        **kwargs : dict
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        TrainingCurveDisplay
            The display itself.

        Raises
        ------
        ValueError
            If the history is empty or has no score of this name.
        """
        known = sorted({name for row in self.history for name in row})
        if "train_loss" not in known:
            raise ValueError("there are no curves to draw: history is empty")
        if scores is None:
            scores = [name for name in known if _PRECISION.fullmatch(name)]
        for name in scores:
            if name not in known:
                raise ValueError(f"there is no {name!r} in the history, which has {known}")
        ax = new_axes(ax)
        for number, name in enumerate(name for name in LOSSES if name in known):
            style = {"label": LOSSES[name], "color": f"C{number}", **kwargs}
            self._draw_curve(ax, name, **style)
        ax.set(xlabel="epoch", ylabel="loss of a sample", yscale="log")
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        self.scores_ax_ = None
        if scores:
            self.scores_ax_ = ax.twinx()
            self.scores_ax_.set(ylabel="score of held-out samples")
            for number, name in enumerate(scores, 2):
                style = {"label": _title(name), "color": f"C{number}", "linestyle": "--", **kwargs}
                self._draw_curve(self.scores_ax_, name, **style)
        lines = [*ax.lines, *(self.scores_ax_.lines if self.scores_ax_ else ())]
        labels = [line.get_label() for line in lines]
        ax.legend(lines, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(lines))
        return self._drawn_on(ax)

    def _draw_curve(self, ax: Any, name: str, **style: Any) -> None:
        values = [row.get(name, np.nan) for row in self.history]
        epochs = np.arange(1, len(values) + 1)
        every = max(1, len(values) // 15)  # a single epoch is a point
        style = {"marker": "o", "markersize": 3.5, "markevery": every, **style}
        ax.plot(epochs, values, **style)


def _title(name: str) -> str:
    found = _PRECISION.fullmatch(name)
    return f"P@{found[1]}" if found else name
