"""Prediction: best labels, indicators, dense scores and features, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from sklearn_xlc._checks import check_dense_size, check_scalar
from sklearn_xlc.batches import BatchIterator, Rows
from sklearn_xlc.engine.building import inputs_for
from sklearn_xlc.engine.deciding import DecisionMixin
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.validation import check_features, validate_X
from sklearn_xlc.training import XLCNet
from sklearn_xlc.training.devices import numpy_dtype

#: Samples per batch in prediction.
PREDICT_BATCH = 512


class PredictionMixin(DecisionMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Prediction methods; :class:`BaseXLCClassifier` sets the attributes that they read."""

    net_: XLCNet
    classes_: np.ndarray
    _code: LabelCode
    _sparse_inputs: bool
    _n_features_out: int

    def _features(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """Features of validated samples, batch by batch."""
        net = self.net_
        rows = X if isinstance(X, Rows) else Rows(X)
        if rows.X.dtype != object:
            rows = replace(rows, X=rows.X.astype(numpy_dtype(net.module_), copy=False))
        n_instances = max(1, rows.X.shape[0])
        rows = inputs_for(net.module_.encoder, rows, self._sparse_inputs)
        batch_size = max(1, PREDICT_BATCH * len(rows) // n_instances)
        start = 0
        for batch in BatchIterator(rows, batch_size, None, torch.device(net.device)):
            stop = start + len(batch)
            features = net.features(batch)
            check_features(features, start)
            yield slice(start, stop), features
            start = stop

    def _validate_predict(self, X: Any) -> Any:
        check_is_fitted(self, "net_")
        return validate_X(self, X, reset=False)

    def _topk(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Label ids and scores of validated samples, both (n_samples, k)."""
        dtype = numpy_dtype(self.net_.module_)
        ids = np.empty((_num_samples(X), k), dtype=np.int64)
        scores = np.empty((_num_samples(X), k), dtype=dtype)
        for rows, features in self._features(X):
            with self.net_.predicting():
                best, positions = self.net_.module_.head.topk(features, k)
            scores[rows], ids[rows] = best.cpu().numpy(), self._code.to_ids(positions.cpu().numpy())
        return ids, scores

    def predict_topk(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Find the best k labels of each sample, without ever holding the scores of all labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels, at most the number of labels there are.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Labels, best first: entries of ``classes_``, in multi-label the column numbers.
        scores : ndarray of shape (n_samples, k)
            Their scores, on the scale of :meth:`decision_function`.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of labels.
        """
        X = self._validate_predict(X)
        ids, scores = self._topk(X, self._check_k(k))
        return self.classes_[ids], scores

    def predict_topk_sparse(self, X: Any, k: int = 5) -> sp.csr_matrix:
        """Compute scores of the best k labels of each sample, as a sparse matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels.

        Returns
        -------
        scores : CSR matrix of shape (n_samples, n_labels)
            Exactly k stored entries per row, in the order of the columns.
        """
        X = self._validate_predict(X)
        k = self._check_k(k)
        ids, scores = self._topk(X, k)
        order = np.argsort(ids, axis=1)
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
        indptr = np.arange(0, ids.size + 1, k)
        shape = (len(ids), len(self.classes_))
        return sp.csr_matrix((scores.ravel(), ids.ravel(), indptr), shape=shape)

    def predict(self, X: Any) -> Any:
        """Predict class labels, or an indicator of labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix} of shape (n_samples, n_labels)
            Best class of each sample; or an indicator of the label sets that `decision` chooses,
            sparse if `fit` saw a sparse y.

        Raises
        ------
        MemoryError
            If a dense indicator would exceed ``get_config()["dense_limit"]``.
        """
        X = self._validate_predict(X)
        if not self._code.multilabel:
            return self.classes_[self._topk(X, 1)[0][:, 0]]
        n_rows, n_labels = _num_samples(X), len(self.classes_)
        if not self._code.sparse_output:
            check_dense_size((n_rows, n_labels), np.dtype(self._code.dtype), "a sparse y in fit")
        sizes, ids = np.zeros(n_rows, dtype=np.int64), []
        for rows, features in self._features(X):
            sets = self._decode(features)
            sizes[rows] = np.diff(sets.indptr)
            ids.append(sets.indices)
        return self._code.indicator(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(ids))

    def decision_function(self, X: Any) -> np.ndarray:
        """Compute scores of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_labels), or (n_samples,) for two classes
            Multi-label: log odds of each label, or log probabilities up to a constant per sample
            with a softmax. Multi-class: log probabilities up to a constant per sample. Two classes:
            the difference of their scores.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        scores = self._dense_scores(self._validate_predict(X), lambda scores: scores)
        if not self._code.multilabel and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def _has_probabilities(self) -> bool:
        """Whether scores have a link to probabilities; before `fit`, whether they may have."""
        return not hasattr(self, "net_") or self.net_.module_.head.link is not None

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Multi-class: rows sum to one. Multi-label: each label has a probability of its own; with
            a softmax rows sum to one.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        X = self._validate_predict(X)
        return self._dense_scores(X, self.net_.module_.head.probabilities)

    def transform(self, X: Any) -> np.ndarray:
        """Compute features of samples with the encoder, for use by another estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            Output of the encoder.
        """
        X = self._validate_predict(X)
        dtype = numpy_dtype(self.net_.module_)
        check_dense_size((X.shape[0], self._n_features_out), dtype, "parts of X")
        out = np.empty((X.shape[0], self._n_features_out), dtype=dtype)
        for rows, features in self._features(X):
            out[rows] = features.cpu().numpy()
        return out

    def _dense_scores(self, X: Any, link: Any) -> np.ndarray:
        n_rows, n_labels = _num_samples(X), len(self.classes_)
        dtype = numpy_dtype(self.net_.module_)
        check_dense_size((n_rows, n_labels), dtype, "predict_topk, which gives the best labels")
        positions = torch.from_numpy(self._code.label_order)
        out = np.empty((n_rows, n_labels), dtype=dtype)
        for rows, features in self._features(X):
            with self.net_.predicting():
                scores = self.net_.module_.head.scores(features)
                out[rows] = link(scores[:, positions.to(scores.device)]).cpu().numpy()
        return out

    def _check_k(self, k: int) -> int:
        k = check_scalar(k, "k", Integral, min_val=1)
        if k > len(self.classes_):
            raise ValueError(f"k={k} must be at most the number of labels, {len(self.classes_)}")
        return int(k)
