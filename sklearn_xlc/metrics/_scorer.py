"""Scorers of top-k metrics, one or several, and cross-validation, for labels in any form."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer as get_sklearn_scorer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import as_array
from sklearn_xlc._compat import ConstantPredictor
from sklearn_xlc._csr import IntArray, canonical
from sklearn_xlc._ids import warn_of_order, warn_of_weight_order
from sklearn_xlc._labels import are_texts, class_ids, listable, refuse_missing
from sklearn_xlc._tags import (
    aligned,
    check_type_of_labels,
    named_sets,
    numbers_columns,
    refuse_unnamed,
)
from sklearn_xlc.groups import check_groups, warn_of_group_order
from sklearn_xlc.metrics._aggregated import aggregated_precision_at_k
from sklearn_xlc.metrics._propensity import for_names, psndcg_at_k, psp_at_k
from sklearn_xlc.metrics._ranking import (
    coverage_at_k,
    f1_at_k,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
    recall_at_k,
)
from sklearn_xlc.metrics._validation import rank_scores

Metric = Callable[..., float]
ListsNames = Callable[[], list[Any]]

_METRICS: dict[str, Metric] = {
    "aggregated_precision": aggregated_precision_at_k,
    "coverage": coverage_at_k,
    "f1": f1_at_k,
    "ndcg": ndcg_at_k,
    "precision": precision_at_k,
    "psndcg": psndcg_at_k,
    "psp": psp_at_k,
    "r_precision": r_precision_at_k,
    "recall": recall_at_k,
}


def topk_scorer(metric: str | Metric, k: int = 5, **metric_params: Any) -> "TopKScorer":
    """Make a scorer from a top-k metric, for ``scoring=`` of scikit-learn's searches.

    The scorer calls ``predict_topk``, without an ``(n_samples, n_labels)`` array; also in the last
    step of a :class:`~sklearn.pipeline.Pipeline` and in the best estimator of a fitted search.
    Labels of other classifiers are ranked by ``decision_function`` or else ``predict_proba``. `y`
    may be a dense or sparse indicator, a frame, tags, or class labels of any type; a class or tag
    not seen in `fit` always counts as a miss.

    Parameters
    ----------
    metric : {"precision", "recall", "r_precision", "f1", "ndcg", "coverage", "psp", "psndcg", \
            "aggregated_precision"} or callable
        Metric of this module, by name or as a function; or another function of
        ``(y_true, y_pred, k=...)`` with an integer array `y_pred` of label ids. Greater is better.
    k : int, default=5
        Number of predictions evaluated per sample.
    **metric_params
        Parameters of the metric. "psp" and "psndcg" need ``propensities=``: by name, or in the
        order of ``estimator.classes_``, or of the columns of a `y` without names. For integer
        classes an array may have a value for each class id, as that of ``propensities(y)`` has.

    Returns
    -------
    callable
        Scorer with the signature ``(estimator, X, y, sample_weight=None, groups=None)``. Under
        metadata routing, ``set_score_request(sample_weight=True)`` requests the weights. Metrics
        with a parameter `groups`, such as "aggregated_precision", request the groups; others refuse
        them.

    Raises
    ------
    ValueError, TypeError
        If `metric` or `k` is invalid, or a parameter of the metric is missing or unknown.

    See Also
    --------
    cross_val_topk : Cross-validates a top-k metric; accepts sparse `y`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_xlc.metrics import topk_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> scorer = topk_scorer("recall", k=2)
    >>> scorer
    topk_scorer(recall_at_k, k=2)
    >>> search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [1e-3, 1]}, scoring=scorer)
    >>> bool(search.fit(X, y).best_score_ > 0.95)
    True
    """
    metric = function_of(metric)
    k = check_integer(k, "k")
    try:
        given = {"groups": None} if has_parameter(metric, "groups") else {}
        inspect.signature(metric).bind(None, None, k=k, **given, **metric_params)
    except TypeError as error:
        raise TypeError(
            f"metric {name_of(metric)} cannot be called with these parameters: {error}"
        ) from None
    return TopKScorer(metric, k, metric_params)


def topk_scorers(
    metrics: Sequence[str | Metric] = ("precision",),
    ks: Sequence[int] = (1, 3, 5),
    **metric_params: Any,
) -> "TopKScorers":
    """Make one scorer of several metrics, for ``scoring=`` of searches and of ``cross_validate``.

    Labels are predicted once for all metrics. A search needs ``refit=`` with the name of one
    metric, such as "precision_at_1".

    Parameters
    ----------
    metrics : sequence of str or callable, default=("precision",)
        Metrics, as in :func:`topk_scorer`.
    ks : sequence of int, default=(1, 3, 5)
        Numbers of predictions evaluated.
    **metric_params
        Parameters of the metrics; each is passed to the metrics with this parameter.

    Returns
    -------
    callable
        Scorer; returns a dict of floats with keys such as "precision_at_5".

    Raises
    ------
    ValueError, TypeError
        If a metric or a k is invalid, or a parameter is missing or unknown.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from sklearn_xlc.metrics import topk_scorers
    >>> X, y = load_iris(return_X_y=True)
    >>> scoring = topk_scorers(["recall", "ndcg"], [1, 2])
    >>> results = cross_validate(LogisticRegression(max_iter=1000), X, y, scoring=scoring)
    >>> sorted(name for name in results if name.startswith("test"))
    ['test_ndcg_at_1', 'test_ndcg_at_2', 'test_recall_at_1', 'test_recall_at_2']
    """
    kinds = list | tuple | range | np.ndarray
    given = (metrics, ks)
    if not all(isinstance(each, kinds) and getattr(each, "ndim", 1) for each in given):
        raise TypeError(
            f"metrics and ks must be sequences, got {metrics!r} and {ks!r}; for one metric and one "
            "k use topk_scorer"
        )
    scorers, used = {}, set()
    for metric in map(function_of, metrics):
        own = {key: value for key, value in metric_params.items() if has_parameter(metric, key)}
        for k in ks:
            scorer = topk_scorer(metric, k, **own)
            scorers[scorer.__name__] = scorer
            used |= set(own)
    if set(metric_params) - used:
        raise TypeError(f"no metric has the parameters {sorted(set(metric_params) - used)}")
    if not scorers:
        raise ValueError("metrics and ks must each have an element")
    return TopKScorers(scorers)


def get_scorer(name: str, **metric_params: Any) -> Any:
    """Return a scorer by name, of this package, such as "precision_at_5", or of scikit-learn.

    Parameters
    ----------
    name : str
        "precision", "recall", "r_precision", "f1", "ndcg", "coverage", "psp", "psndcg" or
        "aggregated_precision", followed by "_at_" and the number of predictions evaluated; or the
        name of a scorer of scikit-learn.
    **metric_params
        Parameters of the metric: "psp" and "psndcg" need ``propensities=``.

    Returns
    -------
    callable
        Scorer, as of :func:`topk_scorer`.

    Raises
    ------
    ValueError
        If there is no scorer of this name.

    Examples
    --------
    >>> from sklearn_xlc.metrics import get_scorer
    >>> get_scorer("ndcg_at_3")
    topk_scorer(ndcg_at_k, k=3)
    """
    found = re.fullmatch(r"(.+)_at_([1-9]\d*)", str(name))
    if found is None:
        if metric_params:
            raise ValueError(
                f"{name!r} is not of the form metric_at_k, such as 'psp_at_5', so it has no "
                f"parameters, got {sorted(metric_params)}"
            )
        try:
            return get_sklearn_scorer(name)
        except ValueError:
            raise ValueError(
                f"{name!r} is neither the name of a scorer of scikit-learn nor of the form "
                "metric_at_k, such as 'precision_at_5'"
            ) from None
    return topk_scorer(found[1], int(found[2]), **metric_params)


def function_of(metric: str | Metric) -> Metric:
    """Look up a metric by name; return a callable as is.

    Raises
    ------
    ValueError, TypeError
        If there is no metric of this name, or it cannot be called.
    """
    known = f"metric must be one of {sorted(_METRICS)} or a callable, got {metric!r}"
    if isinstance(metric, str):
        if metric not in _METRICS:
            raise ValueError(known)
        return _METRICS[metric]
    if not callable(metric):
        raise TypeError(known)
    return metric


def has_parameter(metric: Metric, name: str) -> bool:
    """Return whether a metric has a parameter of this name."""
    return name in inspect.signature(metric).parameters


class Requests:
    """Base class of scorers: requests of metadata, for scikit-learn's metadata routing."""

    requests: dict[str, Any]

    def set_score_request(self, **requests: Any) -> Self:
        """Request metadata, such as ``sample_weight=True``."""
        self.requests = {**self.requests, **requests}
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the requests in scikit-learn's form."""
        request = MetadataRequest(owner=self)
        for param, alias in self.requests.items():
            request.score.add_request(param=param, alias=alias)
        return request

    def _check_metadata(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, *metrics: Metric
    ) -> None:
        """Raise TypeError for groups that no metric takes; warn of metadata in another order."""
        warn_of_weight_order(sample_weight, X, y)
        if groups is not None and not any(has_parameter(metric, "groups") for metric in metrics):
            raise TypeError(f"{self!r} scores single samples, and takes no groups")
        warn_of_order(X, groups=groups)
        warn_of_group_order(groups, y)


@carried
class TopKScorer(Requests):
    """Scorer of `topk_scorer`; a class, for pickling and copying."""

    def __init__(self, metric: Metric, k: int, metric_params: dict[str, Any]) -> None:
        self.metric = metric
        self.k = k
        self.metric_params = metric_params
        #: Such as "precision_at_5": the label of scikit-learn's curves.
        self.__name__ = f"{name_of(metric).removesuffix('_at_k')}_at_{k}"
        self.requests = {"groups": True} if has_parameter(metric, "groups") else {}

    def __call__(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> float:
        self._check_metadata(X, y, sample_weight, groups, self.metric)
        return self.value(*rank(estimator, X, y, self.k), sample_weight, groups)

    def value(
        self,
        y_true: Any,
        y_pred: IntArray,
        names: Any,
        n_known: int,
        sample_weight: Any,
        groups: Any,
    ) -> float:
        """Compute the metric.

        `names`: function that lists the names of labels or classes, the first `n_known` those seen
        in `fit`; None without names.
        """
        params, given = self.metric_params, self.metric_params.get("propensities")
        if names is not None and given is not None:
            found = for_names(given, names(), n_known, are_classes=y_true.ndim == 1)
            params = {**params, "propensities": found}
        metadata: dict[str, Any] = {} if sample_weight is None else {"sample_weight": sample_weight}
        if has_parameter(self.metric, "groups"):
            if groups is None:
                raise TypeError(
                    f"{self!r} needs the groups of the samples; pass groups=, and in a search "
                    "enable metadata routing: sklearn.set_config(enable_metadata_routing=True)"
                )
            if self.metric is aggregated_precision_at_k:  # the scorer has warned of their order
                groups = check_groups(groups, len(y_pred))
            metadata["groups"] = groups
        return self.metric(y_true, y_pred[:, : self.k], k=self.k, **metadata, **params)

    def __repr__(self) -> str:
        params = "".join(f", {key}={_brief(value)}" for key, value in self.metric_params.items())
        return f"topk_scorer({name_of(self.metric)}, k={self.k}{params})"

    def _accept_sample_weight(self) -> bool:
        """Return whether the metric takes sample weights; scikit-learn asks for it, too."""
        return has_parameter(self.metric, "sample_weight")


@carried
class TopKScorers(Requests):
    """Scorer of `topk_scorers`; a class, for pickling and copying."""

    def __init__(self, scorers: dict[str, TopKScorer]) -> None:
        self.scorers = scorers
        self.requests = {}
        for scorer in scorers.values():
            self.requests |= scorer.requests

    def __call__(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> dict[str, float]:
        metrics = [scorer.metric for scorer in self.scorers.values()]
        self._check_metadata(X, y, sample_weight, groups, *metrics)
        ranked = rank(estimator, X, y, max(scorer.k for scorer in self.scorers.values()))
        return {
            name: scorer.value(
                *ranked, sample_weight if scorer._accept_sample_weight() else None, groups
            )
            for name, scorer in self.scorers.items()
        }

    def __repr__(self) -> str:
        return f"topk_scorers({', '.join(self.scorers)})"


def cross_val_topk(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    metric: str | Metric | Sequence[str | Metric] = "precision",
    k: int | Sequence[int] = 5,
    cv: Any = 5,
    groups: Any = None,
    n_jobs: int | None = None,
    params: Mapping[str, Any] | None = None,
    **metric_params: Any,
) -> Any:
    """Cross-validate top-k metrics; unlike ``cross_val_score``, it accepts sparse `y` and tags.

    Parameters
    ----------
    estimator : estimator object
        Classifier with ``predict_topk``, ``decision_function`` or ``predict_proba``. It is cloned.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples.
    y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples,)
        Indicator, dense or sparse, frame, tags, or class labels of any type.
    metric : str, callable or sequence of them, default="precision"
        As in :func:`topk_scorer`, or several, as in :func:`topk_scorers`.
    k : int or sequence of int, default=5
        Number of predictions evaluated per sample, or several.
    cv : int, cross-validation generator or iterable, default=5
        Splitting, as in :func:`sklearn.model_selection.cross_val_score`.
    groups : array-like of shape (n_samples,), default=None
        Groups for the splitter, such as :class:`~sklearn.model_selection.GroupKFold`.
    n_jobs : int, default=None
        Number of folds fitted in parallel.
    params : dict, default=None
        Metadata for `fit` and the splitter, such as ``{"sample_weight": weights}``, as
        in :func:`sklearn.model_selection.cross_val_score`.
    **metric_params
        Parameters of the metric, as in :func:`topk_scorer`.

    Returns
    -------
    ndarray of shape (n_splits,), or dict of them
        Score of each fold; a dict with keys such as "precision_at_5" if `metric` or `k` is a
        sequence.

    Raises
    ------
    ValueError, TypeError
        If `metric`, `k` or `cv` is invalid, or a fit fails.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.multiclass import OneVsRestClassifier
    >>> from sklearn_xlc.metrics import cross_val_topk
    >>> X = np.tile(np.eye(3), (10, 1))
    >>> model = OneVsRestClassifier(LogisticRegression())
    >>> cross_val_topk(model, X, csr_array(X.astype(int)), k=1, cv=3)
    array([1., 1., 1.])
    """
    warn_of_order(X, y)
    one_metric, one_k = isinstance(metric, str) or callable(metric), isinstance(k, Integral)
    several = not (one_metric and one_k)
    scoring: Any = topk_scorers if several else topk_scorer
    metrics = [metric] if several and one_metric else metric
    ks = [k] if several and one_k else k
    if isinstance(cv, Integral) and named_sets(y) is not None:
        cv = KFold(cv)  # what scikit-learn takes for an indicator; it does not know tags
    y = listable(y) if isinstance(y, np.ndarray) else y
    # A search over an empty grid runs the same loop without cross_val_score's check of y.
    scorer = scoring(metrics, ks, **metric_params)
    search = GridSearchCV(
        estimator, {}, scoring=scorer, cv=cv, n_jobs=n_jobs, refit=False, error_score="raise"
    )
    search.fit(X, y, **({} if groups is None else {"groups": groups}), **(params or {}))
    found, splits = search.cv_results_, range(search.n_splits_)
    names = [key.removeprefix("mean_test_") for key in found if key.startswith("mean_test_")]
    scores = {name: np.array([found[f"split{i}_test_{name}"][0] for i in splits]) for name in names}
    return scores if several else scores["score"]


def rank(estimator: Any, X: Any, y: Any, k: int) -> tuple[Any, IntArray, ListsNames | None, int]:
    """Return true labels, ids of the k best, what lists the names, and the number of labels."""
    warn_of_order(X, y)
    estimator, X = innermost(estimator, X)
    classes, y_true, names = true_labels(estimator, y)
    n_labels = y_true.shape[1] if classes is None else classes.size
    return y_true, _predicted_ids(estimator, X, k, classes, n_labels), names, n_labels


def true_labels(estimator: Any, y: Any) -> tuple[npt.NDArray[Any] | None, Any, ListsNames | None]:
    """Return classes (None if labels are columns), true labels, and what lists their names."""
    tags = getattr(estimator, "_kind_of_tags", None)
    sets = named_sets(y, needs_tags=False, as_tags=None if tags is None else tags == "i")
    if sets is None:
        y = without_column(estimator, y if sp.issparse(y) else as_array(y, "y"))
        if tags:
            refuse_unnamed(y)
        if y.ndim > 1:
            return None, y, None
        refuse_missing(y)
        classes = _classes(estimator)
        return classes, *_true_ids(y, classes)
    if sets.is_frame and not reads_names(estimator, sets.classes.tolist()):
        return None, sets.indicator, None
    classes = _classes(estimator)
    columns, known = sets.classes.tolist(), classes.tolist()
    check_type_of_labels(sets, known)
    if sets.is_frame and not {*columns} & {*known}:
        raise ValueError(f"no column of y is in classes_: {columns[:3]} are none of {known[:3]}...")
    Y, names = aligned(sets, known)
    return classes, Y, names.copy


def innermost(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the final estimator of pipelines and fitted searches, and X transformed for it."""
    estimator, before = unwrapped(estimator)
    for transformer in before:
        X = transformer.transform(X)
    return estimator, X


def unwrapped(estimator: Any, deep: bool = False) -> tuple[Any, list[Any]]:
    """Return the final estimator of pipelines and fitted searches, and its transformers.

    `deep`: also of meta-estimators that rank labels, down to the one that ranks them itself.
    """
    before = []
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "predict_topk"):
            if not (deep and hasattr(estimator, "estimator_")):
                break
            estimator = estimator.estimator_
        elif isinstance(estimator, Pipeline):
            if len(estimator.steps) > 1:
                before.append(estimator[:-1])
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            break
    return estimator, before


def reads_names(estimator: Any, columns: Iterable[Any]) -> bool:
    """Return whether an estimator knows the columns of a frame by name.

    Classifiers of scikit-learn number them, and a frame may have other numbers for names. Where all
    of `classes_` are numbers of columns, other names stand for the places that they have.
    """
    if numbers_columns(estimator):
        return False
    classes, names = _classes_of_one(estimator).tolist(), list(columns)
    places = [*range(len(classes))]  # of a frame without names, too
    return {*classes} >= {*names} or (classes != places and names != places)


def _classes_of_one(estimator: Any) -> npt.NDArray[Any]:
    """Return `classes_`; none where each of several outputs has its own."""
    classes = getattr(estimator, "classes_", [])
    several = isinstance(classes, list) and any(map(np.ndim, classes))
    return np.asarray([] if several else classes)


def _classes(estimator: Any) -> npt.NDArray[Any]:
    """Return `classes_` of a fitted multi-class estimator."""
    classes = _classes_of_one(estimator)
    if not classes.size:
        n_outputs = len(getattr(estimator, "classes_", ()))
        found = f"those of each of {n_outputs} outputs" if n_outputs else "none"
        raise TypeError(
            "topk_scorer needs classes_ to score 1-D class labels or tags; "
            f"{type(estimator).__name__} has {found}"
        )
    return classes


def _true_ids(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> tuple[IntArray, ListsNames]:
    """Return ids of the true classes, unknown ones after the last, and what lists all names."""
    ids = class_ids(y, classes)
    unseen = ids < 0
    others, at = np.unique(y[unseen], return_inverse=True)
    ids[unseen] = classes.size + at
    return ids, lambda: [*classes.tolist(), *others.tolist()]


def without_column(estimator: Any, y: Any) -> Any:
    """Return class labels in a column as an array of one dimension, as `fit` has read them."""
    is_column = not sp.issparse(y) and y.shape[1:] == (1,)
    return y[:, 0] if is_column and _classes_of_one(estimator).size > 1 else y


def _predicted_ids(
    estimator: Any, X: Any, k: int, classes: npt.NDArray[Any] | None, n_labels: int
) -> IntArray:
    """Predict label ids (n_samples, k), best first, -1 for none."""
    if hasattr(estimator, "predict_topk"):
        labels, scores = (np.asarray(part) for part in estimator.predict_topk(X, min(k, n_labels)))
        if classes is None:
            classes = names_of_columns(estimator, n_labels)
        ids = labels if classes is None else class_ids(labels, classes)
        if ids.dtype.kind not in "iu":
            raise TypeError(
                f"predict_topk of {type(estimator).__name__} must name the columns of a 2-D y by "
                f"integers, got dtype {ids.dtype}"
            )
        ids = np.where(scores == -np.inf, -1, ids)[:, :k]
    else:
        ids = rank_scores(all_scores(estimator, X, classes is None, n_labels), k)
    return np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)


def names_of_columns(estimator: Any, n_labels: int) -> npt.NDArray[Any] | None:
    """Return the numbers or strings by which an estimator names so many columns."""
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.shape != (n_labels,):
        return None
    is_known = classes.dtype.kind in "iu" or are_texts(classes.tolist())
    return classes if is_known else None


def all_scores(
    estimator: Any, X: Any, multilabel: bool, n_labels: int | None = None, proba: bool = False
) -> Any:
    """Return scores or probabilities (n_samples, n_labels) without `predict_topk`."""
    estimator, X = innermost(estimator, X)
    name, last = type(estimator).__name__, estimator
    if hasattr(estimator, "final_estimator_") and isinstance(estimator.classes_, list):
        # A stack's own predict_proba gives the probabilities of 0 in place of those of 1.
        X, last = estimator.transform(X), estimator.final_estimator_
    for method in ("predict_proba",) if proba else ("decision_function", "predict_proba"):
        if hasattr(last, method):
            scores = getattr(last, method)(X)
            break
    else:
        raise TypeError(
            f"labels are ranked by predict_topk, {'' if proba else 'decision_function '}or "
            f"predict_proba; {name} has none of them"
        )
    is_of_pairs = method == "decision_function" and np.ndim(scores) == 2
    if is_of_pairs and getattr(last, "decision_function_shape", "ovr") == "ovo":
        raise ValueError(
            f"decision_function of {name} scores pairs of classes; set "
            "decision_function_shape='ovr'"
        )
    scores = scores_of_ones(scores, estimator)
    if scores.ndim == 1:  # binary decision function, or a single label
        scores = scores[:, None] if multilabel else np.column_stack([-scores, scores])
    if n_labels is not None and scores.shape[1] != n_labels:
        raise ValueError(
            f"{method} of {name} returned shape {scores.shape}, expected {n_labels} columns"
        )
    if sp.issparse(scores):
        return canonical(sp.csr_array(scores), keep_zeros=True)
    scores = scores if scores.dtype.kind == "f" else scores.astype(np.float64)
    return beyond_others(scores, last) if method == "decision_function" else scores


def beyond_others(scores: npt.NDArray[Any], estimator: Any) -> npt.NDArray[Any]:
    """Rank labels of no training sample last, and those of all training samples first.

    One-vs-rest classifiers of scikit-learn score them as 0 and 1 among the scores of others.
    """
    estimators = getattr(estimator, "estimators_", ())
    constant = {
        column: bool(each.y_[0])
        for column, each in enumerate(estimators)
        if isinstance(each, ConstantPredictor)
    }
    if not 0 < len(constant) < len(estimators):
        return scores
    learnt, scores = np.delete(scores, list(constant), axis=1), scores.copy()
    first, last = (
        np.nextafter(learnt.max(axis=1), np.inf),
        np.nextafter(learnt.min(axis=1), -np.inf),
    )
    for column, is_true in constant.items():
        scores[:, column] = first if is_true else last
    return scores


def scores_of_ones(scores: Any, estimator: Any, otherwise: float = 0.0) -> Any:
    """Return (n_samples, n_labels) from one array per output of a classifier of several outputs.

    Scores of other classifiers, which are one array, are returned as they are. `otherwise`: value
    of an output whose training samples were all 0.
    """
    if not isinstance(scores, list):
        return scores
    columns = []
    for label, (of_output, values) in enumerate(zip(scores, estimator.classes_)):
        found = np.asarray(values).tolist()
        if not set(found) <= {0, 1}:
            raise ValueError(
                f"output {label} of {type(estimator).__name__} has the classes {found[:5]}: labels "
                "are ranked where each output says 0 or 1, whether a sample has a label"
            )
        at = found.index(1) if 1 in found else None
        columns.append(np.full(len(of_output), otherwise) if at is None else of_output[:, at])
    return np.column_stack(columns)


def name_of(metric: Metric) -> str:
    """Return the name of a metric, for messages."""
    return getattr(metric, "__name__", repr(metric))


def _brief(value: Any) -> str:
    """Return a short repr; arrays are shown by their shape."""
    shape = getattr(value, "shape", ())
    return f"<array of shape {shape}>" if shape else repr(value)
