"""Scorers by name, scorers of several metrics, and cross-validation."""

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer as get_sklearn_scorer
from sklearn.model_selection import GridSearchCV, KFold

from sklearn_xlc._tags import named_sets
from sklearn_xlc.metrics._scorer import (
    Metric,
    Requests,
    TopKScorer,
    function_of,
    has_parameter,
    rank,
    topk_scorer,
)


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
    if not all(isinstance(given, list | tuple | range | np.ndarray) for given in (metrics, ks)):
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
    several = not (isinstance(metric, str) or callable(metric)) or not isinstance(k, Integral)
    scoring: Any = topk_scorers if several else topk_scorer
    metrics = [metric] if several and (isinstance(metric, str) or callable(metric)) else metric
    ks = [k] if several and isinstance(k, Integral) else k
    if isinstance(cv, Integral) and named_sets(y) is not None:
        cv = KFold(cv)  # what scikit-learn takes for an indicator; it does not know tags
    # A search over an empty grid runs the same loop without cross_val_score's check of y.
    search = GridSearchCV(
        estimator,
        {},
        scoring=scoring(metrics, ks, **metric_params),
        cv=cv,
        n_jobs=n_jobs,
        refit=False,
        error_score="raise",
    ).fit(X, y, **({} if groups is None else {"groups": groups}))
    found, splits = search.cv_results_, range(search.n_splits_)
    names = [key.removeprefix("mean_test_") for key in found if key.startswith("mean_test_")]
    scores = {name: np.array([found[f"split{i}_test_{name}"][0] for i in splits]) for name in names}
    return scores if several else scores["score"]
