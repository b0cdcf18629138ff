"""Number of sign changes of an assignment, and of argmaxable assignments of a layer."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_flag, check_integer
from sklearn_xlc._csr import IntArray
from sklearn_xlc.geometry._validation import check_assignments


def count_sign_changes(y: Any) -> Any:
    """Count the cyclic sign changes: pairs of unequal neighbouring labels.

    The last label and the first are neighbours, so the number is even. A set of k labels has at
    most 2k sign changes.

    Parameters
    ----------
    y : {array-like, sparse matrix} of shape (n_labels,) or (n_sets, n_labels)
        One assignment, or one per row; 1 for active labels and 0 for all others.

    Returns
    -------
    int or ndarray of shape (n_sets,)
        Number of sign changes; an int if `y` has shape (n_labels,).

    Raises
    ------
    ValueError
        If `y` is not an indicator of zeros and ones.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Definition 6, without the pair of the last
       label and the first: either both counts are at most 2k, or neither is.

    Examples
    --------
    >>> from sklearn_xlc.geometry import count_sign_changes
    >>> count_sign_changes([1, 1, 0, 0, 1, 0])
    4
    >>> count_sign_changes([[1, 0, 0, 1], [1, 1, 1, 1]])
    array([2, 0])
    """
    sets = check_assignments(y, "y")
    n_sets, n_labels = sets.shape
    # Every maximal cyclic run of active labels has one last label, and two sign changes.
    following = (sets.indices + 1) % n_labels
    successors = sp.csr_array((sets.data, following, sets.indptr), shape=sets.shape)
    n_followed = np.asarray(sets.multiply(successors).sum(axis=1)).reshape(n_sets)
    changes: IntArray = 2 * (np.diff(sets.indptr) - n_followed).astype(np.int64)
    if not sp.issparse(y) and np.ndim(y) == 1:
        return int(changes[0])
    return changes


def count_argmaxable(n_labels: int, n_features: int, *, intercept: bool = False) -> int:
    r"""Count the argmaxable assignments of a linear layer in general position.

    For n labels and d features the number is :math:`2 \sum_{i<d} \binom{n-1}{i}` without biases
    (Cover's theorem) and :math:`\sum_{i \le d} \binom{n}{i}` with biases. It is :math:`2^n`, all
    assignments, if :math:`d \ge n`. It does not depend on the weights.

    Parameters
    ----------
    n_labels : int
        Number of labels n, at least 1.
    n_features : int
        Number of features d of the layer, at least 1.
    intercept : bool, default=False
        Whether the layer has biases.

    Returns
    -------
    int
        Number of assignments, exact.

    Notes
    -----
    *General position* means that any d rows of the weights are linearly independent (all n rows if
    n < d). With biases, any d + 1 rows of weights and bias must be linearly independent, with
    (0, ..., 0, 1) as an additional row. Random weights are in general position, and so is every
    :func:`fourier_matrix`. Other weights, such as zero or parallel rows, allow fewer assignments.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Equation 2.
    .. [2] T. M. Cover. Geometrical and Statistical Properties of Systems of Linear Inequalities
       with Applications in Pattern Recognition. IEEE Trans. Electronic Computers, 1965.

    Examples
    --------
    >>> from sklearn_xlc.geometry import count_argmaxable
    >>> count_argmaxable(3, 2), count_argmaxable(3, 2, intercept=True)
    (6, 7)

    A layer of 10 features can predict only a tiny share of the 2^100 assignments of 100 labels:

    >>> f"{count_argmaxable(100, 10) / 2**100:.0e}"
    '3e-18'
    """
    n_labels = check_integer(n_labels, "n_labels")
    n_features = check_integer(n_features, "n_features")
    if check_flag(intercept, "intercept"):
        return _sum_of_binomials(n_labels, n_features)
    return 2 * _sum_of_binomials(n_labels - 1, n_features - 1)  # Eq. 2 in [1]


def _sum_of_binomials(n: int, last: int) -> int:
    """Count the subsets of n items with at most `last` members."""
    if last >= n:
        return 2**n
    total = term = 1
    for i in range(last):
        term = term * (n - i) // (i + 1)
        total += term
    return total
