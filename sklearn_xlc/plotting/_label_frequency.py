"""Plot of recall or precision of rare and frequent labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer, check_option
from sklearn_xlc._checks import check_equal
from sklearn_xlc._tags import named_sets
from sklearn_xlc.metrics import (
    check_label_sets,
    check_ranking,
    rank,
    true_labels,
    unwrapped,
)
from sklearn_xlc.plotting._axes import Display, new_axes

#: Labels of the axis.
METRICS = {
    "recall": "recall{at_k}: share of true labels found",
    "precision": "precision{at_k}: share of predictions that are true",
}


class LabelFrequencyDisplay(Display):
    """Plot of recall or precision, at k or of label sets, by frequency of labels in training.

    The labels are cut into groups of about equal size, by default deciles, from the rarest to the
    most frequent; labels of equal frequency are in one group. A classifier of frequent labels only
    is good on average and useless for most labels. Grey bars show the share of the true labels in
    each group, the dashed line the baseline of predicting the k most frequent labels for every
    sample.

    Parameters
    ----------
    ranges : sequence of (int, int)
        Least and largest number of training samples of the labels in each group.
    values : array-like of shape (n_groups,)
        Recall or precision in each group; NaN where it is not defined.
    baseline : array-like of shape (n_groups,) or None
        Recall or precision of predicting the most frequent labels; None for label sets.
    shares : array-like of shape (n_groups,)
        Share of the true labels in each group.
    total : float
        Recall or precision of all labels together.
    k : int or None, default=5
        Number of predictions for each sample; None for label sets.
    metric : {"recall", "precision"}, default="recall"
        Metric of `values`.
    name : str, default=None
        Name of the classifier in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        Line of the classifier in the last plot.
    baseline_ : matplotlib Line2D or None
        Line of the most frequent labels in the last plot.
    bars_ : matplotlib BarContainer or None
        Shares of the groups in the last plot.
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

    See Also
    --------
    sklearn_xlc.metrics.psp_at_k : A metric with higher weights of rare labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.plotting import LabelFrequencyDisplay
    >>> Y_train = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0]])
    >>> Y_test = np.array([[1, 0, 1], [0, 1, 0]])
    >>> ranking = np.array([[0], [1]])  # one prediction for each sample
    >>> display = LabelFrequencyDisplay.from_predictions(Y_test, ranking, Y_train, k=1)
    >>> display.ranges, display.values.tolist()
    ([(1, 1), (2, 2), (4, 4)], [0.0, 1.0, 1.0])
    """

    def __init__(
        self,
        ranges: Any,
        values: Any,
        baseline: Any,
        shares: Any,
        total: float,
        k: int | None = 5,
        metric: str = "recall",
        name: str | None = None,
    ) -> None:
        self.ranges, self.values, self.baseline, self.shares = ranges, values, baseline, shares
        self.total, self.k, self.metric, self.name = total, k, metric, name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        y_train: Any,
        *,
        k: int = 5,
        name: str | None = None,
        **kwargs: Any,
    ) -> LabelFrequencyDisplay:
        """Draw recall or precision of a fitted classifier by label frequency.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier, also within a pipeline or a search.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples not used in `fit`.
        y : {array-like, sparse matrix, dataframe} of shape (n_samples, n_labels) or \
                (n_samples,), or sequence of label sets
            True labels, in the form given to `fit`.
        y_train : {array-like, sparse matrix, dataframe} of shape (n_train, n_labels) or \
                (n_train,), or sequence of label sets
            Labels of the training samples, for their frequencies.
        k : int, default=5
            Number of predictions for each sample.
        name : str, default=None
            Name of the classifier in the legend. None: its class.
        **kwargs : dict
            Keyword arguments of :meth:`from_predictions`.

        Returns
        -------
        LabelFrequencyDisplay
            Drawn display.
        """
        y_true, ids, *_ = rank(estimator, X, y, check_integer(k, "k"))
        found = unwrapped(estimator)[0]
        classes, known, _ = true_labels(found, y_train)
        if classes is not None and known.ndim == 1:
            known = known[known < len(classes)]  # larger ids are labels not seen in `fit`
        elif classes is not None:
            known = sp.csr_array(known[:, : len(classes)])
            known.resize(known.shape[0], y_true.shape[1])
        name = type(found).__name__ if name is None else name
        return cls.from_predictions(y_true, ids, known, k=k, name=name, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        y_train: Any,
        *,
        k: int = 5,
        metric: str = "recall",
        n_groups: int = 10,
        name: str | None = None,
        **kwargs: Any,
    ) -> LabelFrequencyDisplay:
        """Draw recall or precision of predictions by label frequency.

        Parameters
        ----------
        y_true, y_pred : array-like or sparse matrix of shape (n_samples, n_labels), or others
            True labels, and scores or ranked labels, as in
            :func:`~sklearn_xlc.metrics.recall_at_k`.
        y_train : {array-like, sparse matrix, dataframe} of shape (n_train, n_labels), or \
                sequence of label sets
            Labels of the training samples, in the form of `y_true`.
        k : int, default=5
            Number of predictions for each sample.
        metric : {"recall", "precision"}, default="recall"
            Share of true labels found, or share of right predictions.
        n_groups : int, default=10
            Number of groups; fewer if many labels are equally frequent.
        name : str, default=None
            Name in the legend.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        LabelFrequencyDisplay
            Drawn display.
        """
        check_option(metric, "metric", *METRICS)
        ranking = check_ranking(y_true, y_pred, k)
        true, top = ranking.true.indices, ranking.top
        occurring = np.unique(np.append(true, top[top >= 0]))
        names = occurring if ranking.classes is None else ranking.classes[occurring]
        counts, own = _counts(y_train, names)
        are_named = ranking.classes is not None or named_sets(y_train, name="y_train") is not None
        if not are_named and np.ndim(y_true) == np.ndim(y_train) == 2:
            check_equal("labels", y_train=np.shape(y_train)[1], y_true=np.shape(y_true)[1])
        groups, ranges = _groups(counts, check_integer(n_groups, "n_groups"))
        ids = true, top[top >= 0], top[ranking.hits]
        found = tuple(own[np.searchsorted(occurring, each)] for each in ids)
        values, total, shares = _by_group(metric, ranges, *(groups[labels] for labels in found))
        most = np.argsort(-counts, kind="stable")[: ranking.k]
        true = found[0]
        found = true, np.tile(most, len(top)), true[np.isin(true, most)]
        baseline = _by_group(metric, ranges, *(groups[labels] for labels in found))[0]
        display = cls(ranges, values, baseline, shares, total, ranking.k, metric, name)
        return display.plot(**kwargs)

    @classmethod
    def from_label_sets(
        cls,
        y_true: Any,
        y_pred: Any,
        y_train: Any,
        *,
        metric: str = "recall",
        n_groups: int = 10,
        name: str | None = None,
        **kwargs: Any,
    ) -> LabelFrequencyDisplay:
        """Draw recall or precision of predicted label sets by label frequency.

        Parameters
        ----------
        y_true, y_pred : array-like, sparse matrix, dataframe, or sequence of label sets
            True and predicted labels, as in :func:`~sklearn_xlc.metrics.label_set_score`.
        y_train : array-like, sparse matrix, dataframe, or sequence of label sets
            Labels of the training samples, in the form of `y_true`.
        metric : {"recall", "precision"}, default="recall"
            Share of true labels found, or share of right predictions.
        n_groups : int, default=10
            Number of groups; fewer if many labels are equally frequent.
        name : str, default=None
            Name in the legend.
        **kwargs : dict
            Keyword arguments of :meth:`plot`.

        Returns
        -------
        LabelFrequencyDisplay
            Drawn display, without a baseline.
        """
        check_option(metric, "metric", *METRICS)
        sets = check_label_sets(y_true, y_pred)
        counts, own = _counts(y_train, sets.labels)
        groups, ranges = _groups(counts, check_integer(n_groups, "n_groups"))
        found = sets.true, sets.predicted, sets.true.multiply(sets.predicted)
        by_group = (groups[own[sp.csr_array(matrix).indices]] for matrix in found)
        values, total, shares = _by_group(metric, ranges, *by_group)
        return cls(ranges, values, None, shares, total, None, metric, name).plot(**kwargs)

    def plot(
        self, ax: Any = None, *, baseline: bool = True, **kwargs: Any
    ) -> LabelFrequencyDisplay:
        """Draw a line over the groups, from the rarest labels to the most frequent.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        baseline : bool, default=True
            Whether to draw the baseline and the bars; False for a second classifier on the same
            axes.
        **kwargs : dict
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        LabelFrequencyDisplay
            The display itself.
        """
        ax, at = new_axes(ax), np.arange(len(self.ranges))
        together = f"all labels: {self.total:.2f}"
        label = f"{self.name} ({together})" if self.name else together
        self.baseline_ = self.bars_ = None
        if baseline:
            self.bars_ = ax.bar(
                at, self.shares, color="0.85", width=0.8, label="share of all true labels"
            )
        if baseline and self.baseline is not None:
            style = {"color": "0.35", "linestyle": "--", "marker": "s", "markersize": 4}
            (self.baseline_,) = ax.plot(at, self.baseline, label="most frequent labels", **style)
        n_drawn = sum(line.get_linestyle() == "-" for line in ax.lines)
        colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # safe for the colour-blind
        style = {"color": colours[n_drawn % 4], "marker": "o^Dv"[n_drawn % 4], "markersize": 5}
        (self.line_,) = ax.plot(at, self.values, **{**style, "label": label, **kwargs})
        ticks = [
            f"{low}" if low == high else f"{low}\N{EN DASH}{high}" for low, high in self.ranges
        ]
        ax.set_xticks(at, ticks, rotation=30, ha="right", rotation_mode="anchor", fontsize="small")
        ax.set(
            xlabel="training samples with the label, in groups of labels",
            ylabel=METRICS[self.metric].format(at_k="" if self.k is None else f"@{self.k}"),
            ylim=(-0.02, 1.3),  # with room for the legend
            yticks=np.linspace(0, 1, 6),
        )
        ax.legend(fontsize="small", loc="upper left", ncols=2)
        return self._drawn_on(ax)


def _by_group(
    metric: str, ranges: Any, true: np.ndarray, predicted: np.ndarray, hits: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return the metric in each group and of all, and the shares of the true labels.

    `true`, `predicted` and `hits` are the groups of such labels of all samples.
    """
    true, predicted, hits = (
        np.bincount(groups, minlength=len(ranges)) for groups in (true, predicted, hits)
    )
    of = predicted if metric == "precision" else true
    with np.errstate(invalid="ignore", divide="ignore"):
        values, total = hits / of, float(np.float64(hits.sum()) / of.sum())
    return values, total, true / max(1, true.sum())


def _counts(y_train: Any, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the training samples with each label; return the positions of names, too."""
    train = check_label_sets(y_train, y_train, names=("y_train", "y_train"))
    counts = np.bincount(train.true.indices, minlength=len(train.labels))
    at = {label: position for position, label in enumerate(train.labels.tolist())}
    own = np.array([at.setdefault(label, len(at)) for label in names.tolist()], dtype=np.int64)
    if len(names) and own.min() >= len(counts):
        raise ValueError("y_train has no label of y_true or y_pred: it must have their form")
    return np.pad(counts, (0, len(at) - len(counts))), own


def _groups(counts: np.ndarray, n_groups: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Group labels by frequency, rarest first; return groups and their ranges of counts.

    Labels without a training sample are a separate group.
    """
    seen = counts[counts > 0]
    shares = np.arange(1, n_groups) / n_groups
    cuts = np.quantile(seen, shares, method="inverted_cdf") if len(seen) else []
    # Cuts are whole numbers: labels of equal frequency fall on one side of a cut.
    edges = np.unique([0, *cuts])
    found, groups = np.unique(np.searchsorted(edges, counts), return_inverse=True)
    members = [counts[groups == group] for group in range(len(found))]
    return groups, [(int(of_group.min()), int(of_group.max())) for of_group in members]
