"""Mean and leading directions of all samples, and an inner product discounting them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import check_sparse
from sklearn_xlc.aggregation._pairs import FloatArray


@carried
@dataclass(frozen=True)
class Background:
    """Mean and leading directions of samples of norm one.

    Samples are centred, and the inner product of x and z is ``x' (I - V' D V) z`` with a diagonal D
    of values in (0, 1): directions in which all samples vary count less.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the samples.
    directions : ndarray of shape (n_components, n_features)
        Rows of ``D^(1/2) V``.
    projections : ndarray of shape (n_samples, n_components)
        Samples in these directions: ``X V' D^(1/2)``.
    mean_projection : ndarray of shape (n_components,)
        Mean of `projections`.
    offsets : ndarray of shape (n_samples,)
        Inner products of the samples with the mean.
    mean_square : float
        Inner product of the mean with itself.
    """

    mean: FloatArray
    directions: FloatArray
    projections: FloatArray
    mean_projection: FloatArray
    offsets: FloatArray
    mean_square: float

    def vectors(self, sums: Any, weights: FloatArray, low_rank: FloatArray) -> FloatArray:
        """Compute label vectors, (n_labels, n_features), from sums over their samples."""
        dense = sums.toarray() if sp.issparse(sums) else np.array(sums)
        dense -= weights[:, None].astype(dense.dtype) * self.mean
        low_rank = low_rank - weights[:, None].astype(dense.dtype) * self.mean_projection
        dense -= low_rank @ self.directions
        return dense

    def without_samples(self) -> Background:
        """Drop the two arrays with one entry per sample."""
        return replace(self, projections=self.projections[:0], offsets=self.offsets[:0])


def make_background(X: Any, n_components: int, shrinkage: float, rng: Any) -> Background:
    r"""Compute the mean and leading directions of samples of norm one.

    With the second moments of the samples :math:`X'X / n = V' S V`, whose trace is 1, the inner
    product comes from ridge regression, :math:`\alpha (X'X / n + \alpha I)^{-1}` with
    :math:`\alpha` the `shrinkage`, on the `n_components` leading directions, and the plain one on
    all others: ``D = S / (S + shrinkage)``.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    n_components : int
        Number of directions; 0 leaves the mean only.
    shrinkage : float
        Positive; the larger, the less is discounted.
    rng : RandomState
        Generator for the randomised decomposition.

    Returns
    -------
    Background
        Mean, directions, and the products of the samples with them.
    """
    X = check_sparse(X, "X") if sp.issparse(X) else X
    mean = np.asarray(X.mean(axis=0), dtype=X.dtype).ravel()
    n_components = min(n_components, *X.shape)
    if n_components:
        _, singular, directions = randomized_svd(X, n_components, n_iter=2, random_state=rng)
        moments = singular.astype(np.float64) ** 2 / X.shape[0]
        values = (moments / (moments + shrinkage)).astype(X.dtype)
        directions = (np.sqrt(values)[:, None] * directions).astype(X.dtype)
    else:
        directions = np.zeros((0, X.shape[1]), dtype=X.dtype)
    projections = np.asarray(X @ directions.T)
    mean_projection = directions @ mean
    return Background(
        mean=mean,
        directions=directions,
        projections=projections,
        mean_projection=mean_projection,
        offsets=np.asarray(X @ mean) - projections @ mean_projection,
        mean_square=float(mean @ mean - mean_projection @ mean_projection),
    )
