"""Search for the nearest prototype among the label sets of the training data."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._checks import check_equal, check_numbers
from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import FloatArray, IntArray, row_blocks
from sklearn_xlc._ranking import rank_stored

#: Bytes per pair of sample and prototype: its score, a mask, and two indices if it is a candidate.
#: If all prototypes coincide, all pairs are candidates.
PAIR_BYTES = 32


def seen_label_sets(features: Any, prototypes: Any) -> tuple[IntArray, FloatArray]:
    r"""Find the nearest prototype of every sample among the label sets of the training data.

    The result is exact, even if prototypes coincide or nearly coincide. Temporary arrays take up to
    scikit-learn's `working_memory`, unless a sample needs more, besides a float32 copy of
    `prototypes`.

    Parameters
    ----------
    features : array-like of shape (n_samples, n_features)
        Features of the samples.
    prototypes : array-like of shape (n_sets, n_features)
        Mean features of the label sets of the training data.

    Returns
    -------
    indices : ndarray of shape (n_samples,)
        Row of the nearest prototype; the lowest row on ties.
    distances : ndarray of shape (n_samples, 2)
        Squared Euclidean distances to the nearest and to the second nearest prototype, float64.
        The second is infinite if there is only one prototype.

    See Also
    --------
    nearest_label_sets : Searches all label sets, seen or not.

    Notes
    -----
    Matrix products in single precision rank all prototypes by
    :math:`\|p\|^2/2 - \langle h, p \rangle`. A bound of the rounding error, valid for any order of
    summation, selects the candidates for the two nearest. For these few, the squared differences
    are summed in double precision. Both arguments are shifted by the mean prototype first, so that
    a common offset costs no digits.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Section 4.2.1, one-nearest-neighbor encoding.

    Examples
    --------
    >>> from sklearn_xlc.geometry import seen_label_sets
    >>> indices, distances = seen_label_sets([[0.0, 1.0], [2.0, 2.0]], [[2.0, 1.0], [0.0, 0.0]])
    >>> indices
    array([1, 0])
    >>> distances
    array([[1., 4.],
           [1., 8.]])
    """
    features = _check_matrix(features, "features")
    prototypes = _check_matrix(prototypes, "prototypes")
    check_equal("columns", features=features.shape[1], prototypes=prototypes.shape[1])
    n_samples, n_sets = len(features), len(prototypes)
    center = prototypes.mean(axis=0, dtype=np.float64).astype(prototypes.dtype)
    table = prototypes - center
    # Scale entries to about one: no overflow in float32.
    scale = max(float(table.max()), -float(table.min())) or 1.0
    table = (table / scale).astype(np.float32, copy=False)
    half_norms = np.einsum("ij,ij->i", table, table, dtype=np.float64) / 2
    indices = np.empty(n_samples, dtype=np.int64)
    distances = np.empty((n_samples, 2))
    for part in row_blocks(n_samples, PAIR_BYTES * n_sets + 16 * features.shape[1], memory_limit()):
        with np.errstate(over="ignore", invalid="ignore"):  # beside prototypes much closer together
            shifted = ((features[part] - center) / scale).astype(np.float32)
            rows, sets = _candidates(shifted, table, half_norms)
        exact = _pair_distances(features[part], prototypes, rows, sets)
        indices[part], distances[part] = _two_best(rows, sets, exact)
    return indices, distances


def _candidates(
    shifted: npt.NDArray[np.float32], table: npt.NDArray[np.float32], half_norms: FloatArray
) -> tuple[IntArray, IntArray]:
    """Select the pairs of a sample and a candidate for its two nearest prototypes, by sample."""
    scores = shifted @ table.T
    np.subtract(half_norms.astype(np.float32), scores, out=scores)
    rows = np.arange(len(scores))
    first = np.argmin(scores, axis=1)
    lowest = scores[rows, first].copy()
    scores[rows, first] = np.inf
    second = scores.min(axis=1).astype(np.float64)
    scores[rows, first] = lowest
    # The error of products of n terms is at most n u / (1 - n u) of the norms, in any order
    # (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); 8 for the rounded
    # inputs, norms and the difference.
    terms = (table.shape[1] + 8) * float(np.finfo(np.float32).eps) / 2
    longest = np.sqrt(2 * half_norms.max())
    sample_norms = np.linalg.norm(shifted.astype(np.float64), axis=1)
    error = terms / (1 - terms) * (sample_norms + longest) * longest
    # Round up, so that the comparison in single precision loses no candidate.
    bound = np.nextafter((second + 2 * error).astype(np.float32), np.float32(np.inf))
    rows, sets = np.nonzero(~(scores > bound[:, None]))  # NaN, where numbers overflow, says nothing
    return rows, sets


def _pair_distances(
    features: npt.NDArray[Any],
    prototypes: npt.NDArray[Any],
    rows: IntArray,
    sets: IntArray,
) -> FloatArray:
    """Compute the squared distances of pairs in double precision from the original arguments."""
    exact = np.empty(len(rows))
    for part in row_blocks(len(rows), 32 * features.shape[1], memory_limit()):
        gaps = np.subtract(features[rows[part]], prototypes[sets[part]], dtype=np.float64)
        exact[part] = np.square(gaps, out=gaps).sum(axis=1)
    return exact


def _two_best(rows: IntArray, sets: IntArray, exact: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the nearest prototype of every sample, and its two least distances."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))  # every sample has a pair
    best = rank_stored(-exact, np.append(starts, len(rows)), 2)
    return sets[best[:, 0]], np.append(exact, np.inf)[best]


def _check_matrix(values: Any, name: str) -> npt.NDArray[Any]:
    """Validate a matrix of finite float32 or float64 numbers."""
    matrix: npt.NDArray[Any] = check_numbers(
        values, name, dtype=[np.float64, np.float32], order="C"
    )
    limit = float(np.sqrt(np.finfo(matrix.dtype).max)) / matrix.shape[1]
    if max(matrix.max(), -matrix.min()) > limit:
        raise ValueError(
            f"{name} holds numbers above {limit:.1e}, whose squares overflow; scale it"
        )
    return matrix
