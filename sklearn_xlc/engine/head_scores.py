"""Accuracy of each head of a multi-head classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if

from sklearn_xlc._compat import _check_sample_weight
from sklearn_xlc._csr import row_blocks
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.engine.deciding import ranks_sets
from sklearn_xlc.engine.fitting import BaseXLCClassifier


class HeadScores(BaseXLCClassifier):
    """Adds :meth:`score_heads` to a classifier that writes labels, or label sets, in digits."""

    head_lengths_: tuple[int, ...]

    def _has_digits(self) -> bool:
        """Whether a prediction has one digit for each head; before `fit`, whether it may have."""
        if not hasattr(self, "net_"):
            return True
        return not self._code.multilabel or ranks_sets(self.net_.module_.head)

    @available_if(lambda self: self._has_digits())
    def score_heads(
        self, X: Any, y: Any, sample_weight: Any = None, *, return_combined: bool = False
    ) -> Any:
        """Compute the accuracy of each head: the share of the samples whose digit it gets right.

        The digits are those of the best class, or of the most probable label set, whatever
        `decision` predicts. Defined for one class per sample, and for "product" in multi-label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            True labels, in any form that :meth:`fit` takes. Classes that `fit` has not seen count
            as wrong in every head; tags that it has not seen have no head, and count for nothing.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        return_combined : bool, default=False
            Whether to return the accuracy of all heads together, too.

        Returns
        -------
        accuracy : ndarray of shape (n_heads,)
            Accuracy of each head.
        combined : float
            Share of the samples for which all heads are right. Only if `return_combined` is true.

        Raises
        ------
        ValueError
            If X, y or `sample_weight` is not valid, or y has another form than in `fit`.
        """
        X, y = self._validate_predict(X), self._truth(y)
        check_consistent_length(X, y)
        weight = _check_sample_weight(sample_weight, np.empty(X.shape[0]), dtype=np.float64)
        digits = self._digits_of_sets if self._code.multilabel else self._digits_of_classes
        hits, all_hit = np.zeros(len(self.head_lengths_)), 0.0
        for rows in row_blocks(X.shape[0], 16 * len(hits), self.memory_limit):
            found, true = digits(X[rows], y[rows])
            hits += weight[rows] @ (found == true)
            all_hit += weight[rows] @ (found == true).all(axis=1)
        accuracy = hits / weight.sum()
        return (accuracy, float(all_hit / weight.sum())) if return_combined else accuracy

    def _digits_of_sets(self, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Digits of the most probable label sets, and of the true ones."""
        code, digits = self._code, LabelBlocks(len(self.classes_), self.head_lengths_)
        found = self.predict_topk_sets(X, k=1)[0][0]
        pair = (digits.encode(code.to_positions(sets)) for sets in (found, Y[:, : code.n_labels]))
        return next(pair), next(pair)

    def _digits_of_classes(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Digits of the best classes, and of the true ones; -1 for classes not seen."""
        code = self._code
        digits = MixedRadix(code.n_positions or code.n_labels, self.head_lengths_)
        self._code.encode(y[:0])  # raises if y is an indicator
        true = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        found, true_digits = (
            digits.encode(code.label_order[ids]) for ids in (self._topk(X, 1)[0][:, 0], true)
        )
        true_digits[self.classes_[true] != y] = -1
        return found, true_digits
