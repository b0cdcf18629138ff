"""Decision for the same number of labels in every sample."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._compat import Interval
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.decisions._base import Decision, set_sizes


class TopK(Decision):
    """Predict the k best labels of every sample.

    Parameters
    ----------
    k : int, default=None
        Number of labels to predict, at most the number of labels of y. None: the rounded mean
        number of labels of the training samples, but at least 1.

    Attributes
    ----------
    k_ : int
        Number of labels in use.
    n_samples_, n_true_ : int
        Numbers of samples seen, and of their labels, whose ratio is the mean.
    n_labels_ : int
        Number of labels.

    See Also
    --------
    Threshold : With ``criterion="f1_at_k"`` predicts at most k labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import TopK
    >>> scores = np.array([[0.1, 0.9, 0.8], [0.7, 0.2, 0.6]])
    >>> TopK(2).fit(None, np.eye(3)).decode(scores).toarray()
    array([[0, 1, 1],
           [1, 0, 1]], dtype=int8)
    """

    _at_most_n_labels = "k"
    _parameter_constraints = {"k": [None, Interval(Integral, 1, None, closed="left")]}

    def __init__(self, k: int | None = None) -> None:
        self.k = k

    def fit(self, inputs: Any, Y: Any, *, sizes: np.ndarray | None = None, **context: Any) -> TopK:
        super().fit(inputs, Y)
        self.n_samples_ = self.n_true_ = 0
        return self._count(set_sizes(Y, sizes))

    def partial_fit(
        self, inputs: Any, Y: Any, *, sizes: np.ndarray | None = None, **context: Any
    ) -> TopK:
        return self._count(set_sizes(Y, sizes))

    def _count(self, sizes: np.ndarray) -> TopK:
        """Count samples and their labels; set `k_` to the mean."""
        self.n_samples_ += len(sizes)
        self.n_true_ += int(sizes.sum())
        mean = round(self.n_true_ / max(1, self.n_samples_))
        self.k_ = max(1, mean) if self.k is None else int(self.k)
        return self

    def n_candidates(self, n_labels: int) -> int:
        return self.k_

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        scores, labels = ranked_candidates(scores, labels, self.k_)
        return self.label_sets(np.ones(labels.shape, dtype=bool), labels)
