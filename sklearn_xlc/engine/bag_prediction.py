"""Prediction for bags: one answer for all samples of a group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if

from sklearn_xlc._tags import named_sets
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.prediction import PredictionMixin
from sklearn_xlc.groups import check_groups
from sklearn_xlc.groups._counts import split_counts

Method = TypeVar("Method", bound=Callable[..., Any])

_GROUPS = """
groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
        (n_samples, n_bags), default=None
    Bags of the samples, as in :meth:`fit`: the result then has a row for each bag. None: every
    sample is a bag.
"""


class Grouped(NamedTuple):
    """X with its groups, passed as one argument to methods that take X."""

    X: Any
    groups: Any


def _documented(method: Method) -> Method:
    """Copy the docstring of :class:`PredictionMixin`, and add `groups`, before `proba` if any."""
    text = inspect.getdoc(getattr(PredictionMixin, method.__name__)) or ""
    before = "\nproba :" if "\nproba :" in text else "\n\nReturns\n"
    parameters, following, rest = text.partition(before)
    method.__doc__ = parameters + _GROUPS.rstrip() + following + rest
    return method


class BagPredictionMixin(PredictionMixin):
    """Predictions with one row per bag, from samples and their groups."""

    _has_features = False
    _takes_counts = True

    def _validate_predict(self, X: Any) -> Rows:
        X, groups = X if isinstance(X, Grouped) else (X, None)
        if isinstance(X, Rows):
            return X
        X = super()._validate_predict(X)
        bags = check_groups(groups, X.shape[0], allow_empty=False)
        return Rows(bags.gather(X), bags=bags.indptr)

    @_documented
    def predict(self, X: Any, groups: Any = None) -> Any:
        return super().predict(Grouped(X, groups))

    @_documented
    def predict_topk(  # type: ignore[override]
        self, X: Any, k: int = 5, groups: Any = None, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        return super().predict_topk(Grouped(X, groups), k, proba)

    @_documented
    def predict_topk_sparse(self, X: Any, k: int = 5, groups: Any = None) -> sp.csr_matrix:
        return super().predict_topk_sparse(Grouped(X, groups), k)

    @_documented
    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().decision_function(Grouped(X, groups))

    @_documented
    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().predict_proba(Grouped(X, groups))

    @available_if(lambda self: self._compares_sets())
    @_documented
    def predict_label_set_scores(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().predict_label_set_scores(Grouped(X, groups))

    def score(self, X: Any, y: Any, groups: Any = None, *, sample_weight: Any = None) -> float:  # type: ignore[override]
        """Compute the precision at 1 of label sets, or the accuracy of classes, over bags.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of the bags.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix, \
                dataframe} of shape (n_samples, n_labels) or (n_bags, n_labels), or sequence of \
                label sets
            Labels of the bags, as in :meth:`fit`.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the samples, as in :meth:`fit`. None: every sample is a bag.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags.

        Returns
        -------
        score : float
            Share of the bags whose best label is one of theirs.
        """
        n_samples = super()._validate_predict(X).shape[0]  # a mapping's length is another number
        bags = check_groups(groups, n_samples, allow_empty=False)
        truth = bags.per_group(self._truth(y), "y")
        if sample_weight is not None:
            sample_weight = bags.per_group(np.asarray(sample_weight), "sample_weight")
        return self._score_of(self._validate_predict(Grouped(X, groups)), truth, sample_weight)

    def _truth(self, y: Any) -> Any:
        return super()._truth(split_counts(y)[0] if named_sets(y, counts=True) is None else y)

    def transform(self, X: Any) -> np.ndarray:
        """Compute features of single samples, for use by another estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            Output of the encoder.
        """
        samples = self._validate_predict(X)
        return self._dense_features(samples, len(samples), lambda bags: bags.features)
