"""Prediction: best labels, indicators, dense scores and features, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from sklearn_xlc._bounds import check_dense_size, check_scalar
from sklearn_xlc._checks import check_y
from sklearn_xlc._config import get_config
from sklearn_xlc._csr import row_numbers
from sklearn_xlc._tags import aligned, named_sets
from sklearn_xlc.batches import Batch, BatchIterator, Rows, make_batch
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.engine.agreement import agreed_batch
from sklearn_xlc.engine.building import inputs_for
from sklearn_xlc.engine.deciding import DecisionMixin, ranks_sets
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, available_memory, memory_explained, refuse_beyond
from sklearn_xlc.engine.validation import check_features, validate_X
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.training import XLCNet
from sklearn_xlc.training.devices import TORCH_DTYPES, numpy_dtype, shared_tensor
from sklearn_xlc.training.heap import memory_reused

#: Samples per batch in prediction.
PREDICT_BATCH = 512
#: Features in a larger batch of a search for the best labels: each batch has costs of its own.
_FEATURES = 2**21

_explained = memory_explained(
    "this prediction", lambda self: "fewer rows of X, or a smaller memory_limit"
)


class PredictionMixin(DecisionMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Prediction methods; :class:`BaseXLCClassifier` sets the attributes that they read."""

    net_: XLCNet
    classes_: np.ndarray
    _code: LabelCode
    _sparse_inputs: bool
    _n_features_out: int

    def _features(
        self, X: Any, n_rows: int = PREDICT_BATCH, asked: str = ""
    ) -> Iterator[tuple[slice, Any]]:
        """Features of validated samples, in batches of at most `n_rows`; the head finds `asked`."""
        memory_reused()
        start = 0
        n_rows = agreed_batch(self.net_.module_.head, X, n_rows, asked)
        for batch in self._batches(X, n_rows):
            stop = start + len(batch)
            features = self.net_.features(batch)
            check_features(features, start)
            yield slice(start, stop), features
            start = stop

    def _batches(self, X: Any, n_rows: int) -> Iterable[Batch]:
        """Batches of at most `n_rows` validated samples."""
        net = self.net_
        rows = X if isinstance(X, Rows) else Rows(X)
        if rows.X.dtype != object:
            rows = replace(rows, X=rows.X.astype(numpy_dtype(net.module_), copy=False))
        n_instances = max(1, rows.n_instances)
        rows = inputs_for(net.module_.encoder, rows, self._sparse_inputs)
        batch_size = max(1, min(n_rows, self._most_at_once() * len(rows) // n_instances))
        device = torch.device(net.device)
        if batch_size >= len(rows) and _is_shared(net.module_.encoder, rows):
            return [make_batch(rows).to(device)]
        return BatchIterator(rows, batch_size, None, device)

    def _validate_predict(self, X: Any) -> Any:
        check_is_fitted(self, "net_")
        return X if isinstance(X, Rows) else validate_X(self, X, reset=False)

    def _most_at_once(self) -> int:
        """Samples in a batch of a search, where it is known what the encoder holds of each."""
        encoder = self.net_.module_.encoder
        if type(encoder) is not MLPEncoder:
            return PREDICT_BATCH
        return max(PREDICT_BATCH, min(4 * PREDICT_BATCH, _FEATURES // len(encoder.input.bias)))

    def _rows_at_once(self, row_bytes: int, most: int | None = None) -> int:
        """Samples in a batch whose temporaries fit into `memory_limit`, but at least one."""
        return max(1, min(most or PREDICT_BATCH, self.memory_limit // max(1, row_bytes)))

    def _rows_beside(
        self,
        shape: tuple[int, int],
        dtype: Any,
        remedy: str,
        row_bytes: int = 0,
        at_most: int | None = None,
    ) -> int:
        """Samples in a batch whose temporaries, beside a dense output, fit into the limits.

        Raises MemoryError if the output itself, or its smallest batch, does not.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        most = max(1, min(shape[0], self._rows_at_once(row_bytes, at_most)))
        # Fewer than these would make prediction slow and save little.
        least = max(1, min(most, size // 8 // max(1, row_bytes)))
        check_dense_size(shape, dtype, remedy, least * row_bytes)
        left = get_config()["dense_limit"] - size
        n_rows = max(least, min(most, left // max(1, row_bytes)))
        if size + n_rows * row_bytes > SMALL:
            left, what = available_memory(), f"a dense result of shape {shape}"
            refuse_beyond(size + least * row_bytes, left, what, remedy)
            n_rows = max(least, int(min(n_rows, (left - size) / max(1, row_bytes))))
        return n_rows

    def _topk(
        self,
        X: Any,
        k: int,
        n_rows: int | None = None,
        by_label: bool = False,
        proba: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Label ids and scores of validated samples, both (n_samples, k), best or lowest id first.

        `n_rows` is the number of samples in a batch, `proba` asks for probabilities.
        """
        dtype, head = numpy_dtype(self.net_.module_), self.net_.module_.head
        n_rows = n_rows or self._rows_at_once(head.bytes_per_row(k), self._most_at_once())
        ids = np.empty((_num_samples(X), k), dtype=np.int64)
        scores = np.empty((_num_samples(X), k), dtype=dtype)
        for rows, features in self._features(X, n_rows, f"the best {k} labels, {proba=}"):
            with self.net_.predicting(features):
                best, positions = head.topk(features, k)
                if proba and head.link == "softmax":
                    best = (best - head.scores(features).logsumexp(1, keepdim=True)).exp()
                elif proba:
                    best = head.probabilities(self._calibrated(best))
            found, values = self._code.to_ids(positions.cpu().numpy()), best.cpu().numpy()
            if by_label:
                order = np.argsort(found, axis=1)
                found, values = (np.take_along_axis(a, order, 1) for a in (found, values))
            scores[rows], ids[rows] = values, found
        return ids, scores

    def _checked_topk(
        self, X: Any, k: int, names: Any, by_label: bool = False, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Label ids and scores, if they fit into the limits together with `names` of labels."""
        scores = numpy_dtype(self.net_.module_)
        dtype = np.dtype([("id", np.int64), ("score", scores), ("name", names)])
        head = self.net_.module_.head
        normalised = proba and head.link == "softmax"  # by the scores of all labels
        row_bytes = head.bytes_per_row(None if normalised else k) + k * dtype.itemsize
        most = None if normalised else self._most_at_once()
        n_rows = self._rows_beside((_num_samples(X), k), dtype, "a smaller k", row_bytes, most)
        return self._topk(X, k, n_rows, by_label, proba)

    @_explained
    def predict_topk(
        self, X: Any, k: int = 5, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the best k labels of each sample, without ever holding the scores of all labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels, at most the number of labels there are.
        proba : bool, default=False
            Whether to return probabilities in place of scores, as :meth:`predict_proba` does.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Labels, best first: entries of ``classes_``.
        scores : ndarray of shape (n_samples, k)
            Their scores, on the scale of :meth:`decision_function`, or their probabilities.

        See Also
        --------
        sklearn_xlc.predict_topk : The same through pipelines and searches.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of labels, or `proba` is set and the loss defines
            no probabilities.
        MemoryError
            If labels and scores would exceed ``get_config()["dense_limit"]``.
        """
        X = self._validate_predict(X)
        if proba and not self._has_probabilities():
            raise ValueError(
                f"proba=True needs a loss that defines probabilities, but {type(self).__name__} "
                "was fitted with another; use proba=False, or another loss"
            )
        ids, scores = self._checked_topk(X, self._check_k(k), self.classes_.dtype, proba=proba)
        return self.classes_[ids], scores

    @_explained
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

        Raises
        ------
        MemoryError
            If the entries would exceed ``get_config()["dense_limit"]``.
        """
        X = self._validate_predict(X)
        k = self._check_k(k)
        ids, scores = self._checked_topk(X, k, np.int32, by_label=True)
        indptr = np.arange(0, ids.size + 1, k)
        shape = (len(ids), len(self.classes_))
        return sp.csr_matrix((scores.ravel(), ids.ravel(), indptr), shape=shape)

    def _ranks_sets(self) -> bool:
        """Whether whole label sets are ranked; before `fit`, whether they may be."""
        return hasattr(self, "net_") and ranks_sets(self.net_.module_.head)

    @available_if(lambda self: self._ranks_sets())
    @_explained
    def predict_topk_sets(self, X: Any, k: int = 5) -> tuple[list[sp.csr_matrix], np.ndarray]:
        """Find the best k label sets of each sample, exactly.

        Defined for heads that give whole label sets a probability: ``MultiHeadClassifier`` with
        ``algorithm="product"``, fitted on an indicator.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of label sets, at most ``2**n_labels``.

        Returns
        -------
        sets : list of k CSR matrices of shape (n_samples, n_labels)
            Indicators of the best sets of all samples, of the second best sets, and so on; their
            columns are the labels in ``classes_``.
        scores : ndarray of shape (n_samples, k)
            Their log probabilities; with a loss that defines none, sums over the heads.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of label sets.
        MemoryError
            If the scores would exceed ``get_config()["dense_limit"]``.
        """
        X = self._validate_predict(X)
        n_labels, head = len(self.classes_), self.net_.module_.head
        k = int(check_scalar(k, "k", Integral, min_val=1))
        if k > 2**n_labels:
            raise ValueError(
                f"k={k} must be at most the number of label sets, 2**{n_labels} for {n_labels} "
                "labels"
            )
        dtype, row_bytes = numpy_dtype(self.net_.module_), head.bytes_per_row_of_sets(k)
        n_rows = self._rows_beside((_num_samples(X), k), dtype, "a smaller k", row_bytes)
        scores, sets = np.empty((_num_samples(X), k), dtype=dtype), []
        for rows, features in self._features(X, n_rows, f"the best {k} label sets"):
            with self.net_.predicting(features):
                scores[rows], found = self._best_sets(head, features, k)
            sets.append(found)
        return [sp.vstack([found[rank::k] for found in sets], "csr") for rank in range(k)], scores

    @_explained
    def predict(self, X: Any) -> Any:
        """Predict class labels, or label sets.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Best class of each sample; or the label sets that `decision` chooses, in the form that
            `fit` saw: an indicator, dense or sparse, a frame of indicators, or tags.

        Raises
        ------
        MemoryError
            If a dense indicator would exceed ``get_config()["dense_limit"]``.
        """
        samples, code = self._validate_predict(X), self._code
        if not code.multilabel:
            return self.classes_[self._topk(samples, 1)[0][:, 0]]
        gather = self._sparse_sets if code.sparse_output else self._dense_sets
        return code.give(gather(samples), X)

    @_explained
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the precision at 1 of label sets, or the accuracy of class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            True labels, in any form that :meth:`fit` takes; tags not seen in `fit` are never
            predicted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            Share of the samples whose best label is one of theirs.

        See Also
        --------
        sklearn_xlc.metrics.topk_scorer : Scorers of label sets, for model selection.
        sklearn.metrics.accuracy_score : Share of the samples whose whole label set is predicted.
        """
        return self._score_of(self._validate_predict(X), self._truth(y), sample_weight)

    def _truth(self, y: Any) -> Any:
        """True labels: class labels, or an indicator of the labels, then of others."""
        sets = named_sets(y) if self._code.multilabel else None
        if sets is not None and sets.is_frame:
            return self._code.read(y)
        if sets is not None:
            return aligned(sets, self.classes_.tolist())[0]
        checked = check_y(y)
        return self._code.encode(checked) if self._code.multilabel else checked

    def _score_of(self, samples: Any, truth: Any, sample_weight: Any) -> float:
        best = self._topk(samples, 1)[0]
        if self._code.multilabel:
            return precision_at_k(truth, best, 1, sample_weight=sample_weight)
        found = self.classes_[best[:, 0]]
        return float(accuracy_score(truth, found, sample_weight=sample_weight))

    def _dense_sets(self, X: Any) -> np.ndarray:
        """Dense indicator of the label sets of validated samples."""
        shape, dtype = (_num_samples(X), len(self.classes_)), np.dtype(self._code.dtype)
        row_bytes = self._decision_bytes(self.decision_, self.decision_.reads)
        n_rows = self._rows_beside(shape, dtype, "a sparse y in fit", row_bytes)
        out = np.zeros(shape, dtype=dtype)
        for rows, features in self._features(X, n_rows, "label sets"):
            sets = self._decode(features)
            out[rows][row_numbers(sets.indptr), sets.indices] = 1
        return out

    def _sparse_sets(self, X: Any) -> sp.csr_matrix:
        """Sparse indicator of the label sets of validated samples."""
        sizes, ids, asked = np.zeros(_num_samples(X), dtype=np.int64), [], SMALL
        n_rows = self._rows_at_once(self._decision_bytes(self.decision_, self.decision_.reads))
        for rows, features in self._features(X, n_rows, "label sets"):
            sets = self._decode(features)
            sizes[rows] = np.diff(sets.indptr)
            ids.append(sets.indices)
            # How many labels are predicted is known only now: ids, joined, with their ones.
            needed = int(sizes.sum()) * (2 * sets.indices.itemsize + self._code.dtype.itemsize)
            if needed > asked:
                what = f"an indicator of {int(sizes.sum()):,} labels of {rows.stop:,} samples"
                refuse_beyond(needed, available_memory(), what, "fewer rows of X")
                asked = 2 * needed
        return self._code.indicator(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(ids))

    @_explained
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
    @_explained
    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Multi-class: rows sum to one. Multi-label: each label has a probability of its own,
            corrected by `calibration_` if that is not None; with a softmax rows sum to one.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        X = self._validate_predict(X)
        probabilities = self.net_.module_.head.probabilities
        return self._dense_scores(X, lambda scores: probabilities(self._calibrated(scores)))

    @_explained
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
        return self._dense_features(X, X.shape[0], lambda features: features)

    def _dense_features(self, X: Any, n_rows: int, of_batch: Any) -> np.ndarray:
        """Features of `n_rows` samples; `of_batch` takes them from what a batch gives."""
        width = self._n_features_out
        given = (X.X if isinstance(X, Rows) else X).dtype
        dtype = given if given in TORCH_DTYPES else numpy_dtype(self.net_.module_)
        shape = (n_rows, width)
        at_once = self._rows_beside(shape, dtype, "parts of X", 2 * width * dtype.itemsize)
        out = np.empty(shape, dtype=dtype)
        for rows, features in self._features(X, at_once):
            out[rows] = of_batch(features).cpu().numpy()
        return out

    def _dense_scores(self, X: Any, link: Any) -> np.ndarray:
        n_rows, n_labels = _num_samples(X), len(self.classes_)
        head, dtype = self.net_.module_.head, numpy_dtype(self.net_.module_)
        remedy = "predict_topk, which gives the best labels"
        # Beside the scores: their order by label, and two temporaries of the link.
        row_bytes = head.bytes_per_row() + 3 * n_labels * dtype.itemsize
        at_once = self._rows_beside((n_rows, n_labels), dtype, remedy, row_bytes)
        positions = self._code.positions
        order = None if positions is None else shared_tensor(positions)
        out = np.empty((n_rows, n_labels), dtype=dtype)
        for rows, features in self._features(X, at_once, "scores of all labels"):
            with self.net_.predicting(features):
                scores = head.scores(features)
                scores = scores if order is None else scores[:, order.to(scores.device)]
                out[rows] = link(scores).cpu().numpy()
                del scores  # before the next batch makes its own
        return out

    def _check_k(self, k: int) -> int:
        k = check_scalar(k, "k", Integral, min_val=1)
        if k > len(self.classes_):
            raise ValueError(f"k={k} must be at most the number of labels, {len(self.classes_)}")
        return int(k)


def _is_shared(encoder: Any, rows: Rows) -> bool:
    """Whether a batch may share the caller's memory: cutting one sample takes a copy, and time."""
    is_read_only = type(encoder) is MLPEncoder
    return is_read_only and rows.sparse and rows.members is None and rows.X.data.flags.writeable
