"""Plots of neural collapse: measures over the epochs, and features in the plane."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np

from sklearn_xlc._checks import check_equal, check_numbers
from sklearn_xlc.metrics import check_labels, refuse_tags
from sklearn_xlc.plotting._axes import Display, new_axes

#: Names of the measures in a history, and in a legend.
MEASURES = {
    "nc1": "NC1, variability",
    "nc2_means": "NC2, means to simplex",
    "nc2_weights": "NC2, weights to simplex",
    "nc3": "NC3, self-duality",
}
#: Measures of samples with 2, 3, ... labels: first letters of the names, and names in a legend.
OF_SETS = {"ncm_": "NCm", "nc1_": "NC1"}
#: Smaller values of a measure are zero in single precision.
COLLAPSED = 1e-5


class NeuralCollapseDisplay(Display):
    """Plots of the collapse measures, and of the features of three labels and their pairs.

    :meth:`plot` draws the measures over the epochs, except undefined or constantly zero measures.

    Parameters
    ----------
    history : dict of str to array-like of shape (n_epochs,), default=None
        Measures after every epoch, as :class:`~sklearn_xlc.training.CollapseMonitor` records them.
    points : array-like of shape (n_samples, 2), default=None
        Features in the plane of three labels.
    sets : list of tuple of int, default=None
        Labels of each point.
    corners : array-like of shape (3, 2), default=None
        Rows of the classifier for the three labels, in the same plane.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    See Also
    --------
    sklearn_xlc.metrics.neural_collapse : Computes the measures.

    Examples
    --------
    >>> from sklearn_xlc.plotting import NeuralCollapseDisplay
    >>> display = NeuralCollapseDisplay({"nc1": [1.0, 0.1], "nc3": [0.5, 0.2]})
    >>> _ = display.plot()
    >>> display.ax_.get_yscale()
    'log'
    """

    def __init__(
        self,
        history: dict[str, Any] | None = None,
        points: Any = None,
        sets: list[tuple[int, ...]] | None = None,
        corners: Any = None,
    ) -> None:
        self.history, self.points, self.sets, self.corners = history, points, sets, corners

    @classmethod
    def from_estimator(cls, estimator: Any, **kwargs: Any) -> NeuralCollapseDisplay:
        """Draw the measures of a classifier fitted with a ``CollapseMonitor`` callback.

        Parameters
        ----------
        estimator : fitted classifier
            Fitted classifier, also after saving and loading.
        **kwargs : dict
            Parameters of :meth:`plot`.

        Returns
        -------
        NeuralCollapseDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If no measures were recorded.
        """
        rows = [row for row in getattr(estimator, "history_", []) if "nc1" in row]
        if not rows:
            raise ValueError(
                "estimator has no recorded collapse: fit it with callbacks=[CollapseMonitor(X, y)] "
                "(sklearn_xlc.training)"
            )
        names = [name for name in rows[0] if name in MEASURES or name[:4] in OF_SETS]
        return cls({name: [row[name] for row in rows] for name in names}).plot(**kwargs)

    @classmethod
    def from_features(
        cls, features: Any, Y: Any, weights: Any, labels: Any = (0, 1, 2), **kwargs: Any
    ) -> NeuralCollapseDisplay:
        """Draw the features of samples with labels among three labels (Fig. 1 of the paper).

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features)
            Inputs of the last layer, as in :func:`~sklearn_xlc.metrics.neural_collapse`.
        Y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples,)
            Indicator of the labels, or integer class ids.
        weights : array-like of shape (n_labels, n_features)
            Rows of the classifier. The rows of the three labels, less their mean, span the plane.
        labels : sequence of 3 int, default=(0, 1, 2)
            Ids of the three labels.
        **kwargs : dict
            Parameters of :meth:`plot_features`.

        Returns
        -------
        NeuralCollapseDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If there are not three labels, or no sample has only labels among them, or arguments do
            not fit together.
        """
        features = check_numbers(features, "features", dtype=np.float64)
        weights = check_numbers(weights, "weights", dtype=np.float64)
        labels = [int(label) for label in labels]
        if len(set(labels)) != 3:
            raise ValueError(f"labels must be three different label ids, got {labels}")
        refuse_tags(Y, "Y", "the rows of weights")
        Y = check_labels(Y, "Y", len(weights))
        check_equal("rows", features=len(features), Y=Y.shape[0])
        check_equal("labels", weights=len(weights), Y=Y.shape[1])
        check_equal("columns", weights=weights.shape[1], features=features.shape[1])
        inside = np.asarray(Y[:, labels].sum(axis=1)).ravel()
        rows = np.flatnonzero((inside > 0) & (inside == np.diff(Y.indptr)))
        if not len(rows):
            raise ValueError(f"Y must have a sample with labels among {labels} only, got none")
        plane = weights[labels] - weights[labels].mean(axis=0)
        basis = np.linalg.svd(plane, full_matrices=False)[2][:2]
        points = (features[rows] - features.mean(axis=0)) @ basis.T
        sets = [tuple(Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()) for row in rows]
        return cls(points=points, sets=sets, corners=plane @ basis.T).plot_features(**kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> NeuralCollapseDisplay:
        if not self.history:
            raise ValueError("there are no curves to draw: history is empty")
        ax = new_axes(ax)
        for marker, (name, values) in zip(cycle("os^vDPX<>*"), self.history.items()):
            finite = np.isfinite(values)
            if not finite.any() or np.max(np.asarray(values)[finite]) < COLLAPSED:
                continue  # not defined, or zero up to rounding, as for a fixed classifier
            kind, n_labels = OF_SETS.get(name[:4], ""), name[4:]
            label = MEASURES.get(name, f"{kind}, {n_labels} labels")
            epochs = np.arange(1, len(values) + 1)
            style = {"label": label, "marker": marker, "markevery": 0.1, "markersize": 4}
            ax.plot(epochs, values, **{**style, **kwargs})
        ax.set(xlabel="epoch", ylabel="distance from collapse", yscale="log")
        if ax.lines:
            ax.legend()
        return self._drawn_on(ax)

    def plot_features(self, ax: Any = None) -> NeuralCollapseDisplay:
        """Draw the features in the plane of the three labels.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.

        Returns
        -------
        NeuralCollapseDisplay
            The display itself.
        """
        if self.points is None:
            raise ValueError("there are no features to draw: make the display by from_features")
        ax = new_axes(ax)
        chosen = sorted(set(self.sets or []), key=lambda labels: (len(labels), labels))
        reach = np.quantile(np.linalg.norm(self.points, axis=1), 0.99)
        scale = reach / np.linalg.norm(self.corners, axis=1).max()
        for corner in np.asarray(self.corners):
            ax.plot(*np.stack([[0, 0], scale * corner]).T, color="0.6", linewidth=1, zorder=0)
        for number, labels in enumerate(chosen):
            here = np.array([own == labels for own in self.sets or []])
            name = "{" + ", ".join(map(str, labels)) + "}"
            ax.scatter(
                *self.points[here].T, s=9, alpha=0.6, marker="osv"[len(labels) - 1],
                color=f"C{number}", label=name,
            )  # fmt: skip
        ax.set(aspect="equal", xticks=[], yticks=[], xlabel="plane of the three labels' weights")
        ax.legend(title="labels", fontsize="small", bbox_to_anchor=(1, 1), loc="upper left")
        return self._drawn_on(ax)
