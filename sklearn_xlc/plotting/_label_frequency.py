"""Plot of recall or precision of rare and frequent labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer, check_option
from sklearn_xlc._checks import check_equal, naming
from sklearn_xlc.metrics import (
    check_label_sets,
    check_ranking,
    rank,
    sets_beside,
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
        if classes is not None:  # larger ids are labels not seen in `fit`
            seen = len(classes)
            known = known[known < seen] if known.ndim == 1 else sp.csr_array(known[:, :seen])
            if known.ndim == 2:
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
        ranking = check_ranking(y_true, y_pred, k, n_labels=_n_classes(y_true, y_pred, y_train))
        sets, _ = sets_beside(y_train, y_pred, "y_train")
        if (sets is None) != (ranking.classes is None):
            raise ValueError("y_train must have the form of y_true: tags, or an indicator")
        is_matrix = sets is None and (sp.issparse(y_train) or np.ndim(y_train) == 2)
        if is_matrix:
            check_equal("labels", y_train=np.shape(y_train)[1], y_true=ranking.true.shape[1])
        with naming("y_train"):
            counts = _counts(y_train if sets is None else sets.indicator)
        if sets is not None and ranking.classes is not None:
            of_name = dict(zip(sets.classes.tolist(), counts.tolist()))
            counts = np.array([of_name.get(label, 0) for label in ranking.classes.tolist()])
        check_option(metric, "metric", *METRICS)
        n_groups, n_labels = check_integer(n_groups, "n_groups"), ranking.true.shape[1]
        # Larger ids are labels not seen in training.
        counts = np.pad(counts, (0, max(0, n_labels - len(counts))))
        groups, ranges = _groups(counts, n_groups)
        true, top = ranking.true.indices, ranking.top
        found = true, top[top >= 0], top[ranking.hits]
        values, total, shares = _by_group(metric, ranges, *(groups[labels] for labels in found))
        most = np.argsort(-counts, kind="stable")[: ranking.k]
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
        sets, train = check_label_sets(y_true, y_pred), check_label_sets(y_train, y_train)
        n_train = np.bincount(train.true.indices, minlength=len(train.labels))
        of_name = dict(zip(train.labels.tolist(), n_train.tolist()))
        names = dict.fromkeys([*of_name, *sets.labels.tolist()])
        if len(sets.labels) and len(names) == len(of_name) + len(sets.labels):
            raise ValueError("y_train has no label of y_true or y_pred: it must have their form")
        at = {label: position for position, label in enumerate(names)}
        counts = np.array([of_name.get(label, 0) for label in at])
        groups, ranges = _groups(counts, check_integer(n_groups, "n_groups"))
        own = groups[[at[label] for label in sets.labels.tolist()]]
        found = sets.true, sets.predicted, sets.true.multiply(sets.predicted)
        by_group = (own[sp.csr_array(matrix).indices] for matrix in found)
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


def _counts(Y: Any) -> np.ndarray:
    """Count the samples with each label, from an indicator or class ids."""
    if sp.issparse(Y) or np.ndim(Y) == 2:
        return np.asarray((sp.csr_array(Y) != 0).sum(axis=0)).ravel()
    return np.bincount(np.asarray(Y))


def _n_classes(y_true: Any, y_pred: Any, y_train: Any) -> int | None:
    """Return the number of classes if labels are class ids, else None."""
    is_named = sets_beside(y_true, y_pred, "y_true")[0] is not None
    if sp.issparse(y_true) or is_named or np.ndim(y_true) != 1:
        return None
    given = y_true, y_pred, y_train
    arrays = [np.asarray(each) for each in given if not sp.issparse(each)]
    return 1 + max(int(array.max(initial=0)) for array in arrays if array.dtype.kind in "iu")


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
