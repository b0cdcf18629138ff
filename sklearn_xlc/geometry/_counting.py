"""Counting: sign changes of an assignment, and assignments that a linear layer can predict."""

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_scalar

from sklearn_xlc._csr import IntArray
from sklearn_xlc.geometry._validation import check_assignments


def count_sign_changes(y: Any) -> Any:
    """Number of neighbouring labels that differ, read cyclically.

    The last label and the first are neighbours, so the number is always even, and a set of k
    labels has at most 2k sign changes.

    Parameters
    ----------
    y : {array-like, sparse matrix} of shape (n_labels,) or (n_sets, n_labels)
        One assignment, or one a row; 1 for an active label and 0 for any other.

    Returns
    -------
    int or ndarray of shape (n_sets,)
        An int for one assignment of shape (n_labels,).

    Raises
    ------
    ValueError
        If `y` is no indicator of zeros and ones.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Definition 6, there without the last pair: a
       bound of 2k holds for both counts or for neither.

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
    r"""Number of assignments that a linear layer in general position can predict.

    Without biases :math:`2 \sum_{i<d} \binom{n-1}{i}` for n labels and d features (Cover's
    theorem), with biases :math:`\sum_{i \le d} \binom{n}{i}`; all :math:`2^n` once d reaches n
    (n - 1 with biases). The number does not depend on the weights.

    Parameters
    ----------
    n_labels : int
        Number of labels n, at least 1.
    n_features : int
        Number of features d that enter the layer, at least 1.
    intercept : bool, default=False
        Whether every label has a bias.

    Returns
    -------
    int
        Exact number.

    Raises
    ------
    TypeError
        If an argument is of a wrong type.
    ValueError
        If a number is less than 1.

    Notes
    -----
    *General position* means that any d rows of the weights are linearly independent (any n rows
    where n < d), and with biases the same of any d + 1 rows of weights and bias, where the row
    (0, ..., 0, 1) counts as one of them. Random weights are in general position; so is every
    :func:`fourier_matrix`. Weights in special position (zero or parallel rows) allow fewer.

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

    A layer of 10 features predicts next to none of the 2^100 combinations of 100 labels:

    >>> f"{count_argmaxable(100, 10) / 2**100:.0e}"
    '3e-18'
    """
    n_labels = int(check_scalar(n_labels, "n_labels", Integral, min_val=1))
    n_features = int(check_scalar(n_features, "n_features", Integral, min_val=1))
    if not isinstance(intercept, (bool, np.bool_)):
        raise TypeError(f"intercept must be True or False, got {intercept!r}")
    if intercept:
        return _sum_of_binomials(n_labels, n_features)
    return 2 * _sum_of_binomials(n_labels - 1, n_features - 1)  # Eq. 2 in [1]


def _sum_of_binomials(n: int, last: int) -> int:
    """Number of subsets of n things with at most `last` members."""
    if last >= n:
        return 2**n
    total = term = 1
    for i in range(last):
        term = term * (n - i) // (i + 1)
        total += term
    return total
