"""What all rows have in common, and the inner product that discounts it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from sklearn_xlc.aggregation._pairs import FloatArray


@dataclass(frozen=True)
class Background:
    """Mean and leading directions of unit rows.

    The inner product of x and z is ``x' (I - V' D V) z`` with D of the values in (0, 1): a
    direction in which all rows vary counts less. Rows count from the mean.
    """

    mean: FloatArray  # (n_features,)
    directions: FloatArray  # (n_components, n_features): the rows of D^(1/2) V
    rows: FloatArray  # (n_samples, n_components): X V' D^(1/2)
    mean_row: FloatArray  # (n_components,): the mean of `rows`
    offsets: FloatArray  # (n_samples,): inner products of the rows with the mean
    mean_length: float  # inner product of the mean with itself

    def vectors(self, sums: Any, weights: FloatArray, low_rank: FloatArray) -> FloatArray:
        """Label vectors in feature space, (n_labels, n_features), from sums over their rows."""
        dense = sums.toarray() if hasattr(sums, "toarray") else np.array(sums)
        dense -= weights[:, None].astype(dense.dtype) * self.mean
        dense -= (low_rank - weights[:, None].astype(dense.dtype) * self.mean_row) @ self.directions
        return dense

    def without_rows(self) -> Background:
        """The same without the two arrays of rows."""
        return replace(self, rows=self.rows[:0], offsets=self.offsets[:0])


def make_background(X: Any, n_components: int, shrinkage: float, random: Any) -> Background:
    r"""Background of unit rows.

    With the second moments of the rows :math:`X'X / n = V' S V`, whose trace is 1, the inner
    product is that of ridge regression, :math:`\alpha (X'X / n + \alpha I)^{-1}` with
    :math:`\alpha` the `shrinkage`, on the `n_components` leading directions, and the plain one on
    all others: ``D = S / (S + shrinkage)``.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
        Rows of unit length.
    n_components : int
        Number of directions; 0 leaves the mean only.
    shrinkage : float
        Positive; the larger, the less is discounted.
    random : RandomState
        For the randomised decomposition.

    Returns
    -------
    Background
    """
    mean = np.asarray(X.mean(axis=0), dtype=X.dtype).ravel()
    n_components = min(n_components, *X.shape)
    if n_components:
        _, singular, directions = randomized_svd(X, n_components, n_iter=2, random_state=random)
        moments = singular.astype(np.float64) ** 2 / X.shape[0]
        values = (moments / (moments + shrinkage)).astype(X.dtype)
        directions = (np.sqrt(values)[:, None] * directions).astype(X.dtype)
    else:
        values = np.zeros(0, dtype=X.dtype)
        directions = np.zeros((0, X.shape[1]), dtype=X.dtype)
    rows = np.asarray(X @ directions.T)
    mean_row = directions @ mean
    return Background(
        mean=mean,
        directions=directions,
        rows=rows,
        mean_row=mean_row,
        offsets=np.asarray(X @ mean) - rows @ mean_row,
        mean_length=float(mean @ mean - mean_row @ mean_row),
    )
