"""Decision for the label set of training samples with the nearest mean features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._checks import check_indicator
from sklearn_xlc._csr import distinct_rows, moved_columns
from sklearn_xlc.decisions._base import Decision
from sklearn_xlc.geometry import seen_label_sets


class Seen(Decision):
    """Predict the label set of the training data with the nearest mean features.

    The rule stores the mean features of every label set of the training samples, also of earlier
    calls of `partial_fit`. It never predicts an unseen combination of labels.

    Attributes
    ----------
    means_ : ndarray of shape (n_sets, n_features)
        Mean features of the samples of each label set.
    sets_ : CSR matrix of shape (n_sets, n_labels)
        Label sets of the rows of `means_`. Later calls of `partial_fit` add label sets; a set that
        occurs again takes the mean of its latest samples.
    n_sets_, n_labels_ : int
        Number of label sets; of labels.

    See Also
    --------
    sklearn_xlc.geometry.seen_label_sets : Search for the nearest mean features.
    Nearest : Also compares unseen sets.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import Seen
    >>> decision = Seen().fit(np.array([[0.0], [1.0], [5.0]]), np.array([[1, 0], [1, 0], [1, 1]]))
    >>> decision.decode(np.array([[4.0], [0.4]])).toarray()
    array([[1, 1],
           [1, 0]], dtype=int8)
    """

    reads = "features"
    fitted_on = "train"
    in_blocks = True
    in_repr = ("n_sets_",)

    @property
    def n_sets_(self) -> int:
        """Number of label sets."""
        return len(self.means_)

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        shape = (len(distinct_rows(Y)[0]), n_features)
        check_dense_size(shape, np.float32, "another decision, or fewer features (feature_dim)")

    def fit(self, features: Any, Y: Any, **context: Any) -> Seen:
        super().fit(features, Y)
        self.means_, self.sets_ = mean_features(features, sp.csr_matrix(check_indicator(Y, "Y")))
        return self

    def partial_fit(self, features: Any, Y: Any, **context: Any) -> Seen:
        means, sets = mean_features(features, sp.csr_matrix(check_indicator(Y, "Y")))
        both = sp.vstack([sets, self.sets_], format="csr")
        kept = distinct_rows(both)[0]  # repeated sets get their new means
        self.means_, self.sets_ = np.vstack([means, self.means_])[kept], both[kept]
        return self

    def for_labels(self, origin: np.ndarray) -> Self:
        # If sets become equal, keep the one without removed labels.
        other = super().for_labels(origin)
        sets = moved_columns(self.sets_, origin)
        n_lost = np.diff(self.sets_.indptr) - np.diff(sets.indptr)
        order = np.argsort(n_lost > 0, kind="stable")
        kept = np.sort(order[distinct_rows(sets[order])[0]])
        other.means_, other.sets_ = self.means_[kept], sets[kept]
        return other

    def decode(self, features: np.ndarray, layer: Any = None) -> sp.csr_matrix:
        return self.sets_[seen_label_sets(features, self.means_)[0]]

    def distances(self, features: np.ndarray, layer: Any = None) -> np.ndarray:
        """Compute the squared distances to the two nearest mean features.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Inputs of the last layer.
        layer : object, default=None
            Not used.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Squared Euclidean distances, the nearest first; infinite if there is no second set.
        """
        return seen_label_sets(features, self.means_)[1]


def mean_features(features: Any, Y: sp.csr_matrix) -> tuple[np.ndarray, sp.csr_matrix]:
    """Compute the mean features of every distinct label set; return them and the sets."""
    blocks: Iterable[np.ndarray] = [features] if isinstance(features, np.ndarray) else features
    rows, index = distinct_rows(Y)
    sums, start = np.empty(0), 0
    for block in blocks:
        if not start:
            sums, dtype = np.zeros((len(rows), block.shape[1])), block.dtype
        np.add.at(sums, index[start : start + len(block)], block)
        start += len(block)
    return (sums / np.bincount(index)[:, None]).astype(dtype), Y[rows]
