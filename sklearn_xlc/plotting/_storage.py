"""Plot of the quality of a classifier against the size of its file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_xlc.metrics import topk_scorers
from sklearn_xlc.plotting._axes import new_axes

STORAGES = ("float32", "float16", "int8", "int6", "int4")


class StorageDisplay:
    r"""Plot of metrics and file sizes against the storage types of a saved model.

    Parameters
    ----------
    storages : sequence of str
        Storage types, as in :func:`~sklearn_xlc.save`.
    sizes : array-like of shape (n_storages,)
        Sizes of the files in bytes.
    values : dict of str to array-like of shape (n_storages,)
        Values of the metrics by name.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        Lines of the metrics in the last plot.
    bars_ : matplotlib BarContainer
        Sizes in the last plot.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
        Figure of the last plot.

    See Also
    --------
    sklearn_xlc.save : Saves an estimator.

    Examples
    --------
    >>> from sklearn_xlc.plotting import StorageDisplay
    >>> display = StorageDisplay(["float32", "int8"], [8e6, 2e6], {"P@1": [0.81, 0.81]}).plot()
    >>> [tick.get_text() for tick in display.ax_.get_xticklabels()]
    ['float32\n8.0 MB', 'int8\n2.0 MB']
    """

    def __init__(self, storages: Sequence[str], sizes: Any, values: dict[str, Any]) -> None:
        self.storages, self.sizes, self.values = storages, sizes, values

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        storages: Sequence[str] = STORAGES,
        metric: Any = "precision",
        ks: Sequence[int] = (1, 3, 5),
        trusted: Iterable[Any] = (),
        ax: Any = None,
        **kwargs: Any,
    ) -> StorageDisplay:
        """Save a fitted estimator in each storage type, load it, and draw its metrics.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier of this package, also within a pipeline or a search.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples not used in `fit`.
        y : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, in the form given to `fit`.
        storages : sequence of str, default=("float32", "float16", "int8", "int6", "int4")
            Storage types, as in :func:`~sklearn_xlc.save`.
        metric : str or callable, default="precision"
            Metric of ranked labels, as in :func:`~sklearn_xlc.metrics.topk_scorer`.
        ks : sequence of int, default=(1, 3, 5)
            Numbers of predictions.
        trusted : iterable of class, function or str, default=()
            Names and objects of other packages in the estimator, as in :func:`~sklearn_xlc.load`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        StorageDisplay
            Drawn display.

        Raises
        ------
        ValueError
            If there is no such storage type or metric.
        TypeError
            If the estimator cannot be saved; see :func:`~sklearn_xlc.save`.
        """
        import sklearn_xlc  # save and load need torch, plots do not

        trusted, scorer = list(trusted), topk_scorers([metric], ks)
        sizes, found = [], []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.xlc"
            for storage in storages:
                sklearn_xlc.save(estimator, path, storage=storage)
                sizes.append(path.stat().st_size)
                found.append(scorer(sklearn_xlc.load(path, trusted), X, y))
        values = {_short(name): [of[name] for of in found] for name in found[0]}
        return cls(list(storages), sizes, values).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> StorageDisplay:
        """Draw a line for each metric, and bars for the sizes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        **kwargs : dict
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        StorageDisplay
            The display itself.
        """
        ax, at = new_axes(ax), np.arange(len(self.storages))
        megabytes = np.asarray(self.sizes) / 1e6
        beside = ax.twinx()
        self.bars_ = beside.bar(at, megabytes, width=0.6, color="0.85")
        beside.set_ylabel("size of the file in MB (bars)")
        beside.set_ylim(0, 1.15 * megabytes.max())
        ax.set_zorder(beside.get_zorder() + 1)  # lines before bars
        ax.patch.set_visible(False)
        colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # safe for the colour-blind
        self.lines_ = []
        for number, (name, values) in enumerate(self.values.items()):
            style = {"color": colours[number % 4], "marker": "o^Dv"[number % 4], "label": name}
            self.lines_ += ax.plot(at, values, **{**style, **kwargs})
        ticks = [f"{name}\n{_digits(size)} MB" for name, size in zip(self.storages, megabytes)]
        ax.set_xticks(at, ticks)
        highest = max(np.max(values) for values in self.values.values())
        ax.set(xlabel="storage of the weights", ylabel="quality (lines)")
        ax.set_ylim(0, 1.25 * highest if highest > 0 else 1)  # room for the legend
        ax.legend(fontsize="small", loc="upper center", ncols=max(1, min(4, len(self.values))))
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _short(name: str) -> str:
    """Return the name of a metric at k in a legend: "precision@5" for "precision_at_5"."""
    return name.replace("_at_", "@")


def _digits(size: float) -> str:
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"
