"""Scores and scorers of predicted label sets, for tags, class labels and indicators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import is_word
from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import as_array, check_equal, check_indicator
from sklearn_xlc._csr import occurring_columns, one_per_row, ones_at
from sklearn_xlc._ids import compare_indexes, warn_of_order, warn_of_weight_order
from sklearn_xlc._labels import as_objects, of_one_kind, refuse_missing
from sklearn_xlc._tags import (
    NamedSets,
    aligned,
    check_type_of_labels,
    index_of,
    named_sets,
    numbers_columns,
)
from sklearn_xlc.metrics._ranking import safe_divide
from sklearn_xlc.metrics._scorer import Requests, reads_names, unwrapped
from sklearn_xlc.metrics._taxonomy import ancestors_of, pairs_with_ancestors, plain_parents
from sklearn_xlc.metrics._validation import check_weight

#: Numerators and denominators of ratios, from numbers of hits, predicted labels and true labels.
_RATIOS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "f1": lambda hits, n_predicted, n_true: (2 * hits, n_predicted + n_true),
    "jaccard": lambda hits, n_predicted, n_true: (hits, n_predicted + n_true - hits),
    "precision": lambda hits, n_predicted, n_true: (hits, n_predicted),
    "recall": lambda hits, n_predicted, n_true: (hits, n_true),
}
_AVERAGES = ("micro", "macro", "samples", "weighted")
#: Names of the scores of label sets.
_NAMES = ("subset_accuracy", *(f"{name}_{average}" for name in _RATIOS for average in _AVERAGES))


class LabelSets(NamedTuple):
    """True and predicted label sets with the same columns.

    Parameters
    ----------
    true, predicted : CSR matrix of shape (n_samples, n_labels)
        Indicators, canonical, int8.
    labels : ndarray of shape (n_labels,)
        Label of each column.
    """

    true: sp.csr_array
    predicted: sp.csr_array
    labels: npt.NDArray[Any]


def check_label_sets(
    y_true: Any, y_pred: Any, labels: Any = None, names: tuple[str, str] = ("y_true", "y_pred")
) -> LabelSets:
    """Read true and predicted label sets in any form, and align their columns.

    Both are tags, class labels or indicators. Columns of tags and class labels are those of either
    argument, of frames those with the same names. `labels` names the columns of indicators; with
    names, the other argument may hold tags.

    Examples
    --------
    >>> from sklearn_xlc.metrics import check_label_sets
    >>> sets = check_label_sets([{"cat"}, {"dog"}], [{"cat", "fox"}, set()])
    >>> sets.labels.tolist(), sets.predicted.toarray().tolist()
    (['cat', 'dog', 'fox'], [[1, 0, 1], [0, 0, 0]])
    """
    compare_indexes(index_of(y_true), index_of(y_pred), *names)
    given = [y_true, y_pred]
    # Lists of lists of integers are read as the other argument is: as tags, or as an indicator.
    as_tags = None
    for i in (0, 1) if isinstance(y_pred, list | tuple) else (1, 0):
        sets = named_sets(given[i], name=names[i], needs_tags=False, as_tags=as_tags)
        as_tags = sets is not None and not sets.is_frame
        given[i] = given[i] if sets is None else sets
    named = [
        (name, y if isinstance(y, NamedSets) or sp.issparse(y) else as_array(y, name))
        for name, y in zip(names, given)
    ]
    if not any(isinstance(y, np.ndarray) and y.ndim == 1 for _, y in named):
        found = _of_sets(named, labels)
    elif labels is None:
        found = _of_classes(named)
    else:
        raise ValueError("labels= names the columns of indicators; class labels have names")
    check_equal("samples", y_true=found.true.shape[0], y_pred=found.predicted.shape[0])
    if not found.true.shape[0]:
        raise ValueError("y_true and y_pred must have at least one sample")
    return found


def _of_classes(given: list[tuple[str, Any]]) -> LabelSets:
    """Read one class label for each sample."""
    columns = []
    for name, values in given:
        if not isinstance(values, np.ndarray) or values.shape[1:] not in [(), (1,)]:
            raise ValueError(
                f"{name} holds label sets, and the other argument one class label for each sample"
            )
        values = values.ravel()  # also a column
        refuse_missing(values, name)
        columns.append(values)
    if len({values.dtype.kind in "biuf" for values in columns if len(values)}) > 1:
        raise ValueError("y_true and y_pred must both hold strings or both numbers")
    classes, ids = np.unique(np.concatenate(of_one_kind(*columns)), return_inverse=True)
    true, predicted = np.split(ids, [len(columns[0])])
    n_classes = len(classes)
    return LabelSets(one_per_row(true, n_classes), one_per_row(predicted, n_classes), classes)


def _of_sets(given: list[tuple[str, Any]], names: Any) -> LabelSets:
    """Read tags, frames and indicators."""
    none = np.arange(0)
    sets = [
        y if isinstance(y, NamedSets) else NamedSets(check_indicator(y, name), none, "")
        for name, y in given
    ]
    plain = [each for each in sets if not each.form]
    if plain:
        names = _names_of_columns(names, plain, [each for each in sets if each.form])
        sets = [
            each if each.form else each._replace(classes=names, form="a frame") for each in sets
        ]
    elif names is not None:
        raise ValueError(
            "labels= names the columns of indicators, but y_true and y_pred have names"
        )
    true, predicted = sets
    check_type_of_labels(predicted, true.classes.tolist(), "y_pred")
    union = true.classes
    if not np.array_equal(union, predicted.classes):
        if true.is_frame and predicted.is_frame and set(union) != set(predicted.classes):
            raise ValueError("y_true and y_pred must have columns with the same names")
        union = _union(true, predicted)
    indicators = (sp.csr_array(aligned(each, union.tolist())[0]) for each in sets)
    return LabelSets(next(indicators), next(indicators), union)


def _names_of_columns(
    names: Any, plain: list[NamedSets], others: list[NamedSets]
) -> npt.NDArray[Any]:
    """Return the names of the columns of plain indicators."""
    widths = [each.indicator.shape[1] for each in plain]
    check_equal("columns", **dict(zip(("y_true", "y_pred"), widths)))
    if names is not None:
        given = as_array(names, "labels")
        if given.shape != (widths[0],):
            raise ValueError(
                f"labels must be {widths[0]} names, one for each column, got shape {given.shape}"
            )
        if len(set(given.tolist())) < len(given):
            raise ValueError("labels must be distinct")
        return given
    positions = np.arange(widths[0])
    if not others or np.array_equal(others[0].classes, positions):
        return positions
    raise ValueError(
        "one of y_true and y_pred holds names of labels, the other an indicator: name its columns "
        "by labels=, such as labels=classifier.classes_"
    )


def _union(first: NamedSets, second: NamedSets) -> npt.NDArray[Any]:
    if first.is_frame:  # in the order of its columns
        more = set(second.classes.tolist()) - set(first.classes.tolist())
        names = [*first.classes.tolist(), *sorted(more)]
    else:
        names = sorted({*first.classes.tolist(), *second.classes.tolist()})
    kinds = {each.classes.dtype for each in (first, second) if len(each.classes)}
    union = np.empty(len(names), dtype=kinds.pop() if len(kinds) == 1 else object)
    union[:] = names
    return union


def label_set_score(
    y_true: Any,
    y_pred: Any,
    metric: str = "f1_micro",
    *,
    labels: Any = None,
    parents: Any = None,
    sample_weight: Any = None,
) -> float:
    """Compute a score of predicted label sets; it reads tags, class labels and indicators.

    Scores are defined as in scikit-learn, whose functions read indicators only. No dense indicator
    is made.

    Parameters
    ----------
    y_true : array-like, sparse matrix, dataframe, or sequence of label sets
        True labels: tags, class labels, or an indicator. A label that is in one argument only
        counts as missed, or as wrongly predicted.
    y_pred : array-like, sparse matrix, dataframe, or sequence of label sets
        Predicted labels, in a form of the same kind, such as the result of ``predict``.
    metric : str, default="f1_micro"
        "subset_accuracy", the share of samples with exactly the right label set; or "f1",
        "precision", "recall" or "jaccard" with the suffix of an average.

        - "_micro": over all pairs of a sample and a label.
        - "_macro": mean of the labels that are true or predicted for a sample, also for one of
          weight zero, as in scikit-learn; labels of neither are left out.
        - "_weighted": the same, weighted by the number of samples with the label.
        - "_samples": mean of the samples.

        A ratio of zero by zero counts as 0: the F1 of a sample without true and predicted labels.
    labels : array-like of shape (n_labels,), default=None
        Names of the columns of indicators, such as ``classifier.classes_``: needed where the other
        argument has names.
    parents : dict or series, default=None
        Parent, or list of parents, of each label in a taxonomy: true and predicted sets are
        extended by all ancestors, so that a sibling of the right label is half right. Then
        "precision_micro", "recall_micro" and "f1_micro" are the hierarchical ones of [1]_. Leave
        out a root that all labels share: it is always right.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples.

    Returns
    -------
    float
        Score in [0, 1].

    Raises
    ------
    ValueError, TypeError
        If there is no such metric, or the label sets are invalid or of different kinds.

    See Also
    --------
    label_set_scorer : Scorer for searches and cross-validation.
    sklearn_xlc.label_report : Table of the labels with the most errors.

    References
    ----------
    .. [1] S. Kiritchenko, S. Matwin, R. Nock, A. F. Famili, "Learning and Evaluation in the
       Presence of Class Hierarchies: Application to Text Categorization". Canadian AI, 2006.

    Examples
    --------
    >>> from sklearn_xlc.metrics import label_set_score
    >>> tags, predicted = [["cat"], ["cat", "dog"], []], [["cat"], ["cat"], []]
    >>> label_set_score(tags, predicted)
    0.8
    >>> round(label_set_score(tags, predicted, "subset_accuracy"), 4)
    0.6667
    >>> label_set_score([["cat"]], [["dog"]], parents={"cat": "pet", "dog": "pet"})
    0.5
    """
    check_metric(metric)
    sets = check_label_sets(y_true, y_pred, labels)
    compare_indexes(index_of(y_true), index_of(sample_weight), "y_true", "sample_weight")
    if parents is not None:
        sets = _with_ancestors(sets, parents)
    true, predicted, _ = sets
    weight = check_weight(sample_weight, true.shape[0])
    # Multiplied in their own type, entries are 0 and 1; sums are in float64.
    matrices = [true.multiply(predicted).tocsr(), predicted, true]
    if metric == "subset_accuracy":
        hits, n_predicted, n_true = (np.diff(matrix.indptr) for matrix in matrices)
        return float(np.average((hits == n_predicted) & (hits == n_true), weights=weight))
    name, average = metric.rsplit("_", 1)
    if average == "samples":
        counts = [np.diff(matrix.indptr).astype(np.float64) for matrix in matrices]
        return float(np.average(_ratio(name, *counts), weights=weight))
    counts = [matrix.T @ weight for matrix in matrices]
    if average == "micro":
        return float(_ratio(name, *(each.sum() for each in counts)))
    occurs = occurring_columns(true) | occurring_columns(predicted)
    values = _ratio(name, *(each[occurs] for each in counts))
    weights = counts[2][occurs] if average == "weighted" else np.ones(len(values))
    return float(weights @ values / weights.sum()) if weights.any() else 0.0


def _ratio(name: str, hits: Any, n_predicted: Any, n_true: Any) -> Any:
    """Compute a metric from numbers of labels; 0 for zero by zero."""
    return safe_divide(*_RATIOS[name](hits, n_predicted, n_true))


def _with_ancestors(sets: LabelSets, parents: Any) -> LabelSets:
    """Add all ancestors to true and predicted label sets."""
    ancestors = ancestors_of(parents)
    names = dict.fromkeys(sets.labels.tolist())
    names |= dict.fromkeys(above for name in list(names) for above in ancestors.get(name, ()))
    labels = as_objects(names)
    pairs = pairs_with_ancestors(ancestors, labels)
    n_known, n_labels = len(sets.labels), len(labels)
    rows, columns = np.r_[np.arange(n_labels), pairs[:, 0]], np.r_[np.arange(n_labels), pairs[:, 1]]
    above = sp.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(n_labels,) * 2)
    counts = (matrix.astype(np.int32) @ above[:n_known] for matrix in (sets.true, sets.predicted))
    true, predicted = (
        sp.csr_array(ones_at(each.indices, each.indptr, n_labels)) for each in counts
    )
    return LabelSets(true, predicted, labels)


def check_metric(metric: Any) -> None:
    """Raise ValueError unless there is a score of label sets with this name."""
    if is_word(metric, *_NAMES):
        return
    hint = "; metrics at k rank labels: see topk_scorer" if "_at_" in str(metric) else ""
    raise ValueError(f"metric must be one of {list(_NAMES)}, got {metric!r}{hint}")


def label_set_scorer(metric: str = "f1_micro", *, parents: Any = None) -> Any:
    """Make a scorer of predicted label sets, for ``scoring=`` of searches and ``cross_validate``.

    The scorer compares `y` to the result of ``predict``: tags, as lists, sets, or a column of
    either, class labels, and indicators, dense or sparse. Labels that were not in `fit` count as
    missed.

    Parameters
    ----------
    metric : str, default="f1_micro"
        Name of the metric, as in :func:`label_set_score`: "f1_micro", "recall_samples",
        "subset_accuracy" and so on.
    parents : dict or series, default=None
        Parent, or list of parents, of each label, for hierarchical metrics, as in
        :func:`label_set_score`.

    Returns
    -------
    callable
        Scorer, with the signature ``(estimator, X, y)``; greater is better.

    Raises
    ------
    ValueError
        If there is no metric of this name, or the parents have a cycle.

    See Also
    --------
    topk_scorer : Scorer of ranked labels, such as precision at k.

    Notes
    -----
    scikit-learn's check of y by ``cv=5`` refuses *lists* of tags; ``cv=KFold(5)`` makes no such
    check, and sets pass it.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.model_selection import KFold, cross_validate
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.metrics import label_set_scorer
    >>> texts = ["a cat on a mat", "a dog on a bed", "a cat and a dog"] * 10
    >>> tags = [["cat"], ["dog"], ["cat", "dog"]] * 10
    >>> clf = MultiHeadClassifier(max_epochs=40, random_state=0)
    >>> model = make_pipeline(TfidfVectorizer(), clf)
    >>> scorer = label_set_scorer("f1_micro")
    >>> cross_validate(model, texts, tags, cv=KFold(2), scoring=scorer)["test_score"]
    array([1., 1.])
    """
    check_metric(metric)
    if parents is not None:
        ancestors_of(parents)
        parents = plain_parents(parents)
    return LabelSetScorer(metric, parents)


@carried
class LabelSetScorer(Requests):
    """Scorer of `label_set_scorer`; a class, for pickling and copying."""

    def __init__(self, metric: str, parents: Any) -> None:
        self.metric, self.parents = metric, parents
        self.__name__ = metric  # the label of scikit-learn's curves
        self.requests = {}

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        predicted, labels = estimator.predict(X), None
        if index_of(sample_weight) is not None:
            warn_of_weight_order(sample_weight, X, y)
            sample_weight = as_array(sample_weight, "sample_weight")
        if index_of(predicted) is None:
            warn_of_order(X, y)
        is_unnamed = len(getattr(predicted, "shape", (0, 0))) == 2
        if is_unnamed and not hasattr(predicted, "columns"):
            last, columns = unwrapped(estimator)[0], list(getattr(y, "columns", ()))
            if len(columns) > 1:
                labels = estimator.classes_ if reads_names(last, columns) else columns
            elif not (columns or numbers_columns(last)) and named_sets(y, needs_tags=False):
                labels = estimator.classes_
        return label_set_score(
            y,
            predicted,
            self.metric,
            labels=labels,
            parents=self.parents,
            sample_weight=sample_weight,
        )

    def __repr__(self) -> str:
        parents = "" if self.parents is None else ", parents=..."
        return f"label_set_scorer({self.metric!r}{parents})"

    def _accept_sample_weight(self) -> bool:
        """Return True, for scikit-learn."""
        return True
