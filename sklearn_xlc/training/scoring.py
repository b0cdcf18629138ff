"""Samples and predictions of a net in training, for scores of callbacks."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from skorch.callbacks import Callback
from skorch.dataset import Dataset

from sklearn_xlc.batches import Rows, as_global, new_generators
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.training.foreign import may_draw


class Samples(Dataset):
    """Samples of a fit, with labels for scorers; without a classifier labels stay positions."""

    def __init__(self, rows: Rows, classifier: Any = None) -> None:
        self.X, self._classifier = rows, classifier

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def labels(self) -> Any:
        """Class labels, or a CSR indicator with one column per label."""
        return self.X.Y if self._classifier is None else self._classifier.labels_of(self.X)

    @property
    def y(self) -> Any:
        """Labels in a form accepted by skorch's scorers."""
        return Indicator(self.labels) if sp.issparse(self.labels) else self.labels


class Indicator(sp.csr_matrix):
    """CSR indicator; ``skorch.utils.to_numpy`` treats it as a data frame and returns CSR.

    skorch refuses other sparse matrices; a dense one might not fit into memory.
    """

    iloc = None

    @property
    def values(self) -> sp.csr_matrix:
        """Indicator for scorers."""
        return sp.csr_matrix(self)


class HeldOutPrecision(Callback):
    """Record P@1 and, for label sets, P@5 of held-out samples after every epoch.

    The history of the net receives ``valid_precision_at_1`` and ``valid_precision_at_5``.
    """

    def on_epoch_end(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Rank the labels once, for both numbers."""
        if dataset_valid is None:
            return
        truth, n_labels = dataset_valid.labels, net.module_.head.n_labels
        # Whether there are scores or not makes no difference to what the fit draws next.
        alone = as_global(new_generators(0)) if may_draw(net.module_) else contextlib.nullcontext()
        with alone:
            labels, _ = net.predict_topk(dataset_valid.X, min(5, n_labels))
        if np.ndim(truth) == 1:  # one label each: P@5 could not exceed 1/5
            values = {1: float(np.mean(labels[:, 0] == truth))}
        else:
            values = {k: float(precision_at_k(truth, labels, k)) for k in (1, 5) if k <= n_labels}
        for k, value in values.items():
            net.history.record(f"valid_precision_at_{k}", value)


class ScoredNet:
    """Predictions for scorers during training, computed by the classifier in training.

    Label sets can be ranked but not predicted: decisions are fitted after training.
    """

    #: The classifier, with this net as its ``net_``, while callbacks may ask for scores; it has a
    #: function `labels_of` from prepared samples to class labels, or to an indicator.
    classifier: Any = None

    def _in_training(self) -> Any:
        if self.classifier is None:
            raise AttributeError(
                f"{type(self).__name__} predicts only within the fit of a classifier, for scores "
                "of callbacks; call the methods of the classifier"
            )
        return self.classifier

    @property
    def classes_(self) -> Any:
        """Class labels, or column numbers for an indicator."""
        return self._in_training().classes_

    def predict_topk(self, X: Any, k: int = 5, proba: bool = False) -> Any:
        """Return the best labels and their scores."""
        return self._in_training().predict_topk(X, k, proba=proba)

    def predict(self, X: Any) -> Any:
        """Predict class labels."""
        classifier = self._in_training()
        if classifier.net_.module_.head.multilabel:
            raise ValueError(
                "label sets are decided on when training has ended: score callbacks by a metric "
                "of ranked labels, such as sklearn_xlc.metrics.get_scorer('precision_at_5')"
            )
        return classifier.predict(X)

    def decision_function(self, X: Any) -> Any:
        """Compute the scores of all labels."""
        return self._in_training().decision_function(X)

    def predict_proba(self, X: Any) -> Any:
        """Compute the probabilities of all labels."""
        return self._in_training().predict_proba(X)

    def score(self, X: Any, y: Any) -> float:
        """Compute precision at 1, or the accuracy of class labels."""
        return self._in_training().score(X, y)
