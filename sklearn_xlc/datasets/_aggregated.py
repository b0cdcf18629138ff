"""Aggregated labels: groups of samples with one label set per group."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from sklearn_xlc._bounds import check_integer, check_option, check_real
from sklearn_xlc._checks import as_array, check_equal, check_numbers, check_seed
from sklearn_xlc._csr import IntArray, canonical, one_per_row
from sklearn_xlc.codes import balanced_split, compact_rows


def make_aggregated(
    Y: Any,
    group_size: int = 4,
    X: Any = None,
    method: str = "random",
    merge: str = "set",
    *,
    depth: int | None = None,
    noise: float = 0.0,
    random_state: Any = None,
) -> tuple[sp.csr_matrix, IntArray]:
    """Put samples into groups and give every sample the labels of its group.

    Parameters
    ----------
    Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
        Labels of the samples: any non-zero entry is a label.
    group_size : int, default=4
        Number of samples in a group. "random": the last group may be smaller. "cluster": the
        largest size of a group, unless `depth` is given.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Samples, needed by "cluster".
    method : {"random", "cluster"}, default="random"
        "random": groups of random samples. "cluster": groups of similar samples, by hierarchical
        k-means: spherical 2-means splits all samples into two halves, each half into two, and so
        on. The sizes of two halves differ by one sample at most.
    merge : {"set", "list"}, default="set"
        "set": 1 for each label that a sample of the group has. "list": the number of samples of the
        group with the label.
    depth : int, default=None
        Number of levels of splits of "cluster", for ``2 ** depth`` groups. None: enough for groups
        of at most `group_size`.
    noise : float in [0, 1], default=0
        Share of the samples reassigned at random after clustering: 0 keeps the clusters, 1 makes
        random groups of the same sizes.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    Y_grouped : csr_matrix of shape (n_samples, n_labels) and dtype int32
        Row i holds the labels of the group of sample i.
    groups : ndarray of shape (n_samples,) and dtype int64
        Group ids ``0, 1, ...``.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 7.2 and Appendix B.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.datasets import make_aggregated
    >>> Y = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]])
    >>> Y_grouped, groups = make_aggregated(Y, group_size=2, random_state=1)
    >>> groups
    array([1, 1, 0, 0])
    >>> Y_grouped.toarray().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 1, 1]]
    """
    Y = Y if sp.issparse(Y) else as_array(Y, "Y")
    if Y.ndim != 2:
        raise ValueError(f"Y must be an indicator of shape (n_samples, n_labels), got {Y.shape}")
    Y = check_numbers(Y, "Y", accept_sparse="csr", dtype=None)
    # SciPy adds up repeated entries in place when it compares.
    Y = sp.csr_array(canonical(Y) != 0).astype(np.int32)
    check_integer(group_size, "group_size")
    if depth is not None:
        check_integer(depth, "depth", 0)
    check_option(method, "method", "random", "cluster")
    check_option(merge, "merge", "set", "list")
    check_real(noise, "noise", 0, 1)
    rng = check_seed(random_state)
    if method == "random":
        groups = _random_groups(Y.shape[0], group_size, rng)
    else:
        groups = _clustered_groups(X, Y.shape[0], group_size, depth, rng)
        moved = np.flatnonzero(rng.random_sample(len(groups)) < noise)
        groups[moved] = groups[rng.permutation(moved)]
    of_group = one_per_row(groups, groups.max() + 1, np.int32).T.tocsr() @ Y
    if merge == "set":
        of_group.data[:] = 1
    grouped = sp.csr_matrix(of_group[groups])
    grouped.sort_indices()
    return grouped, groups


def _random_groups(n_samples: int, group_size: int, rng: np.random.RandomState) -> IntArray:
    """Return group ids of random groups."""
    groups = np.empty(n_samples, dtype=np.int64)
    groups[rng.permutation(n_samples)] = np.arange(n_samples) // group_size
    return groups


def _clustered_groups(
    X: Any, n_samples: int, group_size: int, depth: int | None, rng: np.random.RandomState
) -> IntArray:
    """Return group ids by repeated balanced 2-means; near clusters have near ids."""
    if X is None:
        raise ValueError('method="cluster" needs X, the samples')
    X = check_numbers(X, "X", accept_sparse="csr", dtype=[np.float64, np.float32])
    check_equal("rows", X=X.shape[0], Y=n_samples)
    if depth is None:
        depth = int(np.ceil(np.log2(max(1, n_samples / group_size))))
    elif 2**depth > n_samples:
        raise ValueError(f"depth={depth} needs at least {2**depth} samples, got {n_samples}")
    X = normalize(X)
    clusters = [(np.arange(n_samples), X)]
    for _ in range(depth):
        clusters = [half for cluster in clusters for half in _halves(*cluster, rng)]
    groups = np.empty(n_samples, dtype=np.int64)
    for group, (rows, _) in enumerate(clusters):
        groups[rows] = group
    return groups


def _halves(rows: IntArray, vectors: Any, rng: np.random.RandomState) -> list[tuple[IntArray, Any]]:
    """Split a cluster into halves of (indices, vectors); a single sample stays whole."""
    if len(rows) == 1:
        return [(rows, vectors)]
    left = balanced_split(vectors, len(rows) // 2, rng)
    return [(rows[left], compact_rows(vectors, left)), (rows[~left], compact_rows(vectors, ~left))]
