"""Map of labels by their vectors in a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import check_equal, check_numbers
from sklearn_xlc._ids import in_order
from sklearn_xlc.metrics import unwrapped
from sklearn_xlc.plotting._axes import Display, new_axes


class LabelMapDisplay(Display):
    """Map of the label vectors of a head, projected to the plane of their largest variance.

    Labels predicted for similar samples have similar vectors, and are neighbours. Vectors are
    scaled to norm one, because norms mostly reflect label frequencies, and projected by principal
    component analysis.

    Parameters
    ----------
    points : array-like of shape (n_drawn, 2)
        Coordinates of the labels on the map.
    variance : array-like of shape (2,)
        Share of the vectors' variance in each direction.
    names : sequence of shape (n_drawn,), default=None
        Names of the labels. None: no label is named.
    counts : array-like of shape (n_drawn,), default=None
        Number of training samples with each label, for colours and sizes.

    Attributes
    ----------
    scatter_ : matplotlib PathCollection
        Points of the last plot.
    texts_ : list of matplotlib Annotation
        Names in the last plot.
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.plotting import LabelMapDisplay
    >>> vectors = np.array([[1.0, 0.1, 0.0], [1.0, 0.0, 0.1], [0.0, 1.0, 0.0]])
    >>> display = LabelMapDisplay.from_vectors(vectors, names=["cat", "dog", "tree"])
    >>> sorted(text.get_text() for text in display.texts_)
    ['cat', 'dog', 'tree']
    """

    def __init__(self, points: Any, variance: Any, names: Any = None, counts: Any = None) -> None:
        self.points, self.variance, self.names, self.counts = points, variance, names, counts

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, names: Any = None, counts: Any = None, **kwargs: Any
    ) -> LabelMapDisplay:
        """Draw the labels of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier with a vector for each label, also within a pipeline or a search:
            classifiers of this package except the label powerset of "product" (for "cascade", the
            embeddings of the last level), :class:`~sklearn_xlc.EAGLETransformer`, and linear
            classifiers with an attribute ``coef_``.
        names : array-like of shape (n_labels,), default=None
            Names of the labels. None: ``classes_``.
        counts : array-like of shape (n_labels,), default=None
            Number of training samples with each label, for colours, sizes and the choice of names.
            A series is read by its index, which names the labels.
        **kwargs : dict
            Keyword arguments of :meth:`from_vectors`.

        Returns
        -------
        LabelMapDisplay
            Drawn display.

        Raises
        ------
        TypeError
            If the estimator has no vectors of labels.
        """
        classes = getattr(unwrapped(estimator)[0], "classes_", None)
        names, counts = classes if names is None else names, in_order(counts, classes, "counts")
        vectors = _vectors_of(unwrapped(estimator, deep=True)[0])
        return cls.from_vectors(vectors, names=names, counts=counts, **kwargs)

    @classmethod
    def from_vectors(
        cls,
        vectors: Any,
        *,
        names: Any = None,
        counts: Any = None,
        max_labels: int = 5000,
        **kwargs: Any,
    ) -> LabelMapDisplay:
        """Draw vectors of labels.

        Parameters
        ----------
        vectors : array-like of shape (n_labels, n_features)
            Vector of each label.
        names : array-like of shape (n_labels,), default=None
            Names of the labels. None: no label is named.
        counts : array-like of shape (n_labels,), default=None
            Number of training samples with each label, for colours, sizes and the choice of names.
            A series is read by its index, which holds the names.
        max_labels : int, default=5000
            Number of labels to project and draw: the most frequent, or the first without counts.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        LabelMapDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If there are fewer than two labels or columns, or the number of names or counts differs
            from the number of labels.
        """
        vectors = check_numbers(
            vectors,
            "vectors",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
            ensure_min_features=2,
        )
        names = None if names is None else np.asarray(names, dtype=object)
        counts = None if counts is None else np.asarray(in_order(counts, names, "counts"))
        for given, what in ((names, "names"), (counts, "counts")):
            if given is not None:
                check_equal("labels", **{what: given.shape, "vectors": (len(vectors),)})
        drawn = np.arange(len(vectors))
        if counts is not None:  # below zero unsigned numbers are none
            drawn = np.argsort(-counts.astype(np.float64), kind="stable")
        drawn = drawn[: check_integer(max_labels, "max_labels", 2)]
        vectors = vectors[drawn]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        pca = PCA(2, random_state=0).fit(vectors / np.where(norms > 0, norms, 1))
        points = pca.transform(vectors / np.where(norms > 0, norms, 1))
        names = None if names is None else names[drawn]
        counts = None if counts is None else counts[drawn]
        return cls(points, pca.explained_variance_ratio_, names, counts).plot(**kwargs)

    def plot(self, ax: Any = None, *, n_names: int = 30, **kwargs: Any) -> LabelMapDisplay:
        """Draw a point for each label, and the names of some.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        n_names : int, default=30
            Largest number of names, for the first labels with enough room; with counts, for the
            most frequent labels.
        **kwargs : dict
            Keyword arguments of matplotlib's ``scatter``.

        Returns
        -------
        LabelMapDisplay
            The display itself.
        """
        ax, points, order = new_axes(ax), np.asarray(self.points), slice(None)
        style: dict[str, Any] = {"s": 12, "color": "#0072B2", "alpha": 0.6, "linewidths": 0}
        if self.counts is not None:
            # Draw the first labels last, over the others, unless `kwargs` has arrays in order.
            order = slice(None) if {"s", "c"} & kwargs.keys() else slice(None, None, -1)
            size = np.log10(1 + np.asarray(self.counts, dtype=float))[order]
            style = {"s": 6 + 14 * size, "c": size, "cmap": "viridis", "alpha": 0.8}
            style["linewidths"] = 0
        self.scatter_ = ax.scatter(*points[order].T, **{**style, **kwargs})
        first, second = (f"{100 * share:.0f}% of the variance" for share in self.variance)
        ax.set(xlabel=first, ylabel=second, xticks=[], yticks=[])
        ax.margins(0.08)
        if self.counts is not None and "c" not in kwargs and "color" not in kwargs:
            _add_scale(ax, self.scatter_, np.asarray(self.counts))
        self.texts_ = [] if self.names is None else _named(ax, points, self.names, n_names)
        return self._drawn_on(ax)


def _vectors_of(estimator: Any) -> np.ndarray:
    """Return the vector of each label, in the order of `classes_`."""
    if hasattr(estimator, "label_embeddings_"):
        return estimator.label_embeddings_
    if hasattr(estimator, "net_"):
        vectors = estimator.net_.module_.head.label_vectors().detach().cpu().numpy()
        return vectors[estimator.label_order_]
    if hasattr(estimator, "coef_") and len(estimator.coef_) > 1:
        return estimator.coef_
    raise TypeError(
        f"{type(estimator).__name__} has no vector for each label: no label_embeddings_, no "
        "coef_, and it is no classifier of sklearn_xlc"
    )


def _add_scale(ax: Any, scatter: Any, counts: np.ndarray) -> None:
    """Add a colour bar with ticks at powers of ten and at both ends."""
    low, high = float(counts.min()), float(counts.max())
    powers = [10.0**power for power in range(8) if low < 10.0**power < high]
    values = np.unique([low, *powers, high])
    # A power of ten beside an end would hide its number.
    positions = np.log10(1 + values)
    apart = np.diff(positions, append=np.inf) > 0.12 * (positions[-1] - positions[0])
    kept = values[apart | (values == high)] if len(values) > 1 else values
    bar = ax.figure.colorbar(scatter, ax=ax, ticks=np.log10(1 + kept))
    bar.ax.set_yticklabels([f"{value:g}" for value in kept])
    bar.set_label("training samples with the label")


def _named(ax: Any, points: np.ndarray, names: Any, n_names: int) -> list[Any]:
    """Write names beside the first points, unless they overlap other names."""
    from matplotlib.patheffects import withStroke

    figure = ax.figure
    figure.draw_without_rendering()  # the layout determines the positions of texts
    texts: list[Any] = []
    boxes: list[Any] = []
    inside = ax.get_window_extent()
    for point, name in zip(points, names):
        if len(texts) == n_names:
            break
        for shift, aligned in (((4, 3), "left"), ((-4, 3), "right"), ((4, -9), "left")):
            text = ax.annotate(
                str(name), point, xytext=shift, textcoords="offset points", fontsize="x-small",
                ha=aligned, path_effects=[withStroke(linewidth=2, foreground="w")],
            )  # fmt: skip
            box = text.get_window_extent().padded(1)
            fits = inside.x0 < box.x0 and box.x1 < inside.x1 and inside.y0 < box.y0
            if fits and box.y1 < inside.y1 and not any(box.overlaps(other) for other in boxes):
                texts.append(text)
                boxes.append(box)
                break
            text.remove()
    return texts
