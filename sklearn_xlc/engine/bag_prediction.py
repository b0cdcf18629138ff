"""Prediction of bags: what a fitted classifier answers about several rows together."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _num_samples

from sklearn_xlc._checks import check_y
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.prediction import PredictionMixin
from sklearn_xlc.groups._bags import Grouped, bag_index, split_counts
from sklearn_xlc.training.devices import numpy_dtype


class BagPredictionMixin(PredictionMixin):
    """Predictions with one row a bag, of rows and the ids of their bags."""

    def _validate_predict(self, X: Any) -> Rows:
        if isinstance(X, Rows):
            return X
        groups, X = (X.groups, X.rows) if isinstance(X, Grouped) else (None, X)
        X = super()._validate_predict(X)
        bags = bag_index(groups, X.shape[0])
        return Rows(bags.gather(X), bags=bags.indptr)

    def predict(self, X: Any, groups: Any = None) -> Any:
        """Class of each bag, or an indicator of its labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.

        Returns
        -------
        y : ndarray of shape (n_bags,), or {ndarray, CSR matrix} of shape (n_bags, n_labels)
            Best class of each bag; or the labels with probability above one half, sparse if `fit`
            saw a sparse y.

        Raises
        ------
        MemoryError
            If a dense indicator would exceed ``get_config()["dense_limit"]``.
        """
        return super().predict(Grouped(X, groups))

    def predict_topk(self, X: Any, k: int = 5, groups: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Best k labels of each bag.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        k : int, default=5
            Number of labels, at most the number of labels there are.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.

        Returns
        -------
        labels : ndarray of shape (n_bags, k)
            Labels, best first: entries of ``classes_``, which are column numbers in multi-label.
        scores : ndarray of shape (n_bags, k)
            Their scores, on the scale of :meth:`decision_function`.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of labels.
        """
        return super().predict_topk(Grouped(X, groups), k)

    def predict_topk_sparse(self, X: Any, k: int = 5, groups: Any = None) -> sp.csr_matrix:
        """Scores of the best k labels of each bag as a sparse matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        k : int, default=5
            Number of labels.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.

        Returns
        -------
        scores : CSR matrix of shape (n_bags, n_labels)
            Exactly k stored entries a row, in the order of the columns.
        """
        return super().predict_topk_sparse(Grouped(X, groups), k)

    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        """Scores of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.

        Returns
        -------
        scores : ndarray of shape (n_bags, n_labels), or (n_bags,) for two classes
            Multi-label: log odds, positive where a label is predicted. Multi-class: log
            probabilities up to a constant a row. Two classes: the difference of their scores.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        return super().decision_function(Grouped(X, groups))

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """Probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.

        Returns
        -------
        probabilities : ndarray of shape (n_bags, n_labels)
            Multi-class: rows sum to one. Multi-label: each label on its own.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        return super().predict_proba(Grouped(X, groups))

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:
        """Share of the bags whose class, or whole set of labels, is predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows of the bags.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels)
            Labels of the bags, as in :meth:`fit`.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the rows, as in :meth:`fit`. None: every row is a bag.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags.

        Returns
        -------
        score : float
            Accuracy.
        """
        predicted = self.predict(X, groups)
        bags = bag_index(groups, _num_samples(X))
        truth = check_y(split_counts(y)[0])
        if self._code.multilabel:
            truth = self._code.encode(truth)
        truth = bags.per_bag(truth, "y")
        if sample_weight is not None:
            sample_weight = bags.per_bag(np.asarray(sample_weight), "sample_weight")
        return float(accuracy_score(truth, predicted, sample_weight=sample_weight))

    def transform(self, X: Any) -> np.ndarray:
        """Features of single rows: what the encoder learnt, for another estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            Output of the encoder.
        """
        samples = self._validate_predict(X)
        dtype = numpy_dtype(self.net_.module_)
        self._check_dense(len(samples), self._n_features_out, dtype, "parts of X")
        out = np.empty((len(samples), self._n_features_out), dtype=dtype)
        for rows, bags in self._features(samples):
            out[rows] = bags.features.cpu().numpy()
        return out
