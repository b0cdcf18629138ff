"""Samples and predictions of a net in training, for scores of callbacks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import scipy.sparse as sp
from skorch.dataset import Dataset

from sklearn_xlc.batches import Rows


class Samples(Dataset):
    """Samples of a fit, with labels for scorers; without a classifier labels stay positions."""

    def __init__(self, rows: Rows, classifier: Any = None) -> None:
        self.X, self._classifier = rows, classifier

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def labels(self) -> Any:
        """Class labels, or a CSR indicator with one column per label."""
        return self.X.Y if self._classifier is None else self._classifier._given_labels(self.X)

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


class ScoredNet:
    """Predictions for scorers during training, computed by the classifier in training.

    Label sets can be ranked but not predicted: decisions are fitted after training.
    """

    #: The classifier, with this net as its ``net_``, while callbacks may ask for scores.
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
        if classifier._code.multilabel:
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
        classifier = self._in_training()
        return classifier._score_of(X, classifier._truth(y), None)
