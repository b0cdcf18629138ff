"""Decision for the label set with the prototype nearest to the features."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._compat import Interval
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.decisions._base import Decision, set_sizes, usual_size
from sklearn_xlc.geometry import fit_label_set_scales, greedy_label_sets, nearest_label_sets


class Nearest(Decision):
    r"""Predict the label set with the prototype nearest to the features.

    The prototype of a set of m labels is the sum of the last layer's rows for these labels, times a
    scale :math:`C_m` fitted on the training samples. The last layer must be linear, and the
    features must collapse; otherwise the rule predicts too many labels. The search is exact for a
    simplex; for other layers it covers the sets of the labels with the largest products.

    Parameters
    ----------
    max_labels : int, default=None
        Largest number of labels of a set. None: the 99% quantile of the training samples' numbers
        of labels.

    Attributes
    ----------
    label_set_scales_ : ndarray of shape (`max_labels_`,)
        Scales of the prototypes of 1, 2, ... labels, fitted to the samples of the last call.
    mean_ : ndarray of shape (n_features,)
        Mean of the features, subtracted before the comparison.
    max_labels_, n_labels_ : int
        Largest number of labels of a set, which later calls of `partial_fit` never lower; number of
        labels.

    See Also
    --------
    sklearn_xlc.geometry.nearest_label_sets : The derivation.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import LinearLayer, Nearest
    >>> from sklearn_xlc.geometry import simplex_etf
    >>> layer = LinearLayer(simplex_etf(4, 4), is_simplex=True)
    >>> Y = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    >>> features = 3.0 * Y @ layer.weights
    >>> bool((Nearest().fit(features, Y, layer=layer).decode(features, layer) == Y).all())
    True
    """

    reads = "features"
    fitted_on = "train"
    in_repr = ("label_set_scales_",)
    _at_most_n_labels = "max_labels"
    _parameter_constraints = {"max_labels": [None, Interval(Integral, 1, None, closed="left")]}

    def __init__(self, max_labels: int | None = None) -> None:
        self.max_labels = max_labels

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        if layer is None:
            raise ValueError(
                "decision='nearest' compares features with the rows of a linear last layer, and "
                "this classifier has none; use decision='divergence'"
            )

    def fit(self, features: np.ndarray, Y: Any, **context: Any) -> Nearest:
        super().fit(features, Y)
        return self._fit(features, Y, 1, **context)

    def partial_fit(self, features: np.ndarray, Y: Any, **context: Any) -> Nearest:
        return self._fit(features, Y, self.max_labels_, **context)

    def _fit(
        self,
        features: np.ndarray,
        Y: Any,
        least: int,
        *,
        layer: Any = None,
        sizes: np.ndarray | None = None,
        **context: Any,
    ) -> Nearest:
        if layer is None:
            raise ValueError("Nearest compares features with the rows of a last layer: give layer=")
        own, usual = set_sizes(Y), usual_size(set_sizes(Y, sizes))
        self.max_labels_ = int(self.max_labels or max(least, usual))
        self.mean_ = features.mean(axis=0, dtype=np.float64).astype(features.dtype)
        if not ((own > 0) & (own < self.n_labels_)).any():
            # All labels together have no direction: any scale will do.
            self.label_set_scales_ = np.ones(self.max_labels_)
            return self
        centred, weights = features - self.mean_, layer.weights
        if layer.is_simplex:
            centred, weights = layer.products(centred), None
        self.label_set_scales_ = fit_label_set_scales(centred, Y, weights, self.max_labels_)
        return self

    def for_labels(self, origin: np.ndarray) -> Self:
        # Scales belong to sizes of sets.
        other = super().for_labels(origin)
        other.label_set_scales_ = self.label_set_scales_[: other.max_labels_]
        return other

    def decode(self, features: np.ndarray, layer: Any = None) -> sp.csr_matrix:
        sizes, labels, _ = self._nearest(features, layer)
        return self.label_sets(np.arange(labels.shape[1]) < sizes[:, None], labels)

    def distances(self, features: np.ndarray, layer: Any) -> np.ndarray:
        """Compute the squared distances to the two nearest prototypes.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Inputs of the last layer.
        layer : object
            Last layer, as a :class:`LinearLayer`.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Squared Euclidean distances, the nearest first; infinite if there is no second set.
        """
        return self._nearest(features, layer)[2]

    def _nearest(
        self, features: np.ndarray, layer: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sizes of the nearest sets, ranked labels, and the two least distances."""
        centred = features - self.mean_
        products = layer.products(centred)
        squares = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
        best, labels = ranked_candidates(products, None, self.max_labels_ + 1)
        if self.n_labels_ == 1:  # one label has no direction, and is the only set
            distances = np.stack([squares, np.full(len(squares), np.inf)], axis=1)
            return np.ones(len(squares), dtype=np.int64), labels, distances
        scales, most = self.label_set_scales_, self.max_labels_
        if layer.is_simplex:
            sizes, distances = nearest_label_sets(best, scales, most, n_labels=self.n_labels_)
        else:
            sizes, distances = greedy_label_sets(products, layer.weights, scales, most)
        return sizes, labels, distances + squares[:, None]
