"""Order of the labels: the position of each label in the output heads."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from sklearn_xlc._bounds import check_dense_size, check_integer
from sklearn_xlc._checks import as_array, check_equal, check_numbers, check_seed
from sklearn_xlc._csr import (
    BoolArray,
    IntArray,
    canonical,
    filled_rows,
    kept_entries,
    occurring_columns,
    uneven_blocks,
)
from sklearn_xlc.codes._head_lengths import check_lengths

ORDERS = ("given", "random", "clustered")
DEFAULT_GROUP_SIZE = 16
MAX_ITERATIONS = 20
# On all real data sets tried, three starts found better groups than one; five hardly better than
# three.
N_STARTS = 3
# Relative difference of two cohesions that may be rounding error.
TIE = 1e-9
# A sparse centroid keeps its largest entries only: the many small entries of a frequent label are
# hardly informative, and time and memory would grow with the vocabulary.
MAX_CENTROID_ENTRIES = 200
# Number of untrimmed entries in memory at once: 12 bytes each.
BLOCK_ENTRIES = 20_000_000


def label_order(
    order: str | npt.ArrayLike,
    n_labels: int,
    X: Any = None,
    Y: Any = None,
    lengths: Sequence[int] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> IntArray:
    """Compute the position of every label in the output heads.

    Labels at neighbouring positions share their leading digits in a
    :class:`~sklearn_xlc.codes.MixedRadix` code, hence their parents in a cascade.

    Parameters
    ----------
    order : {"given", "random", "clustered"} or array-like of int of shape (n_labels,)
        - "given": label ``l`` has position ``l``.
        - "random": a random permutation.
        - "clustered": similar labels side by side, by balanced clustering of their centroids; see
          Notes.
        - array-like: the position of each label, a permutation of ``0, ..., n_labels - 1``.
    n_labels : int
        Number of labels, at least 1.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Samples. Needed by "clustered" only.
    Y : {array-like, sparse matrix} of shape (n_samples, n_labels), default=None
        Label indicators: any non-zero entry is a label. Needed by "clustered" only.
    lengths : sequence of int, default=None
        Head lengths. "clustered" makes groups of labels with the same leading digits, hence the
        same parent. None: groups of 16.
    random_state : int, RandomState instance or None, default=None
        Seed of "random", and of the first centres of "clustered".

    Returns
    -------
    ndarray of shape (n_labels,), int64
        Position of each label id: a permutation.

    Raises
    ------
    TypeError, ValueError
        If ``n_labels`` or a length is not an integer, ``order`` is unknown or not a permutation, or
        ``X`` or ``Y`` is missing or has the wrong shape.

    Notes
    -----
    The centroid of a label is the normalised sum of its samples, each scaled to norm one. A group
    of labels is split by spherical 2-means: each iteration ranks the labels by the difference of
    their similarities to the two centres and cuts the ranking in the middle, rounded to whole
    groups of the next smaller size. The best of three random starts is kept, and both halves are
    split in turn. Inside the smallest groups labels keep their given order. Labels without samples
    come last. Only the 200 largest entries of a sparse centroid are kept. Section F.4 of [1]_
    finds no influence of the order on overfitting models; underfitting models get worse if
    dissimilar labels are neighbours.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.codes import label_order
    >>> label_order("given", 3)
    array([0, 1, 2])
    >>> label_order([2, 0, 1], 3)
    array([2, 0, 1])

    Labels 0 and 2 share one direction, labels 1 and 3 the other:

    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> positions = label_order("clustered", 4, X, np.eye(4), lengths=(2, 2), random_state=0)
    >>> bool(positions[0] // 2 == positions[2] // 2), bool(positions[1] // 2 == positions[3] // 2)
    (True, True)
    """
    n_labels = check_integer(n_labels, "n_labels")
    if not isinstance(order, str):
        return _check_permutation(order, n_labels)
    if order not in ORDERS:
        raise ValueError(f"order must be one of {ORDERS} or a permutation, got {order!r}")
    check_dense_size((n_labels,), np.int64, "fewer labels")
    if order == "given":
        return np.arange(n_labels, dtype=np.int64)
    rng = check_seed(random_state)
    if order == "random":
        return rng.permutation(n_labels).astype(np.int64, copy=False)
    X, Y = _check_data(X, Y, n_labels)
    lengths = () if lengths is None else check_lengths(lengths)
    # Labels with common leading digits: as many as all place values but the last.
    sizes = tuple(math.prod(lengths[h:]) for h in range(1, len(lengths)))
    sizes = sizes or (DEFAULT_GROUP_SIZE,)
    return _clustered_positions(_label_centroids(X, Y), sizes, rng)


def _clustered_positions(
    centroids: Any, sizes: tuple[int, ...], rng: np.random.RandomState
) -> IntArray:
    """Compute positions by recursive balanced splits; labels with a zero centroid come last."""
    n_labels = centroids.shape[0]
    known = filled_rows(centroids)
    labels = np.flatnonzero(known)
    leaves: list[IntArray] = []
    # The right half is pushed first, so that leaves are visited from left to right.
    stack = [(labels, compact_rows(centroids, known))]
    while stack:
        labels, vectors = stack.pop()
        if len(labels) <= min(sizes):
            leaves.append(labels)
            continue
        left = balanced_split(vectors, _left_size(len(labels), sizes), rng)
        stack.append((labels[~left], compact_rows(vectors, ~left)))
        stack.append((labels[left], compact_rows(vectors, left)))
    sequence = np.concatenate([*leaves, np.flatnonzero(~known)])
    positions = np.empty(n_labels, dtype=np.int64)
    positions[sequence] = np.arange(n_labels)
    return positions


def balanced_split(vectors: Any, n_left: int, rng: np.random.RandomState) -> BoolArray:
    """Split unit rows in two: return a mask of `n_left` rows.

    The split is the most cohesive of several runs of balanced 2-means.
    """
    starts = rng.randint(vectors.shape[0], size=N_STARTS)
    splits = [_two_means(vectors, n_left, int(start)) for start in starts]
    # Cohesions that differ by rounding are ties, so that dense and sparse rows split alike.
    least = max(cohesion for _, cohesion in splits) * (1 - TIE)
    return next(left for left, cohesion in splits if cohesion >= least)


def _two_means(vectors: Any, n_left: int, start: int) -> tuple[BoolArray, float]:
    """Run balanced spherical 2-means; return a mask of the left half, and the cohesion.

    The initial centres are one row and the row least similar to it. The cohesion is the sum of the
    similarities of all rows to their centre: the sum of the norms of both row sums.
    """
    rows = np.arange(vectors.shape[0])
    total = _row_sum(vectors, rows >= 0)
    first = _row_sum(vectors, rows == start)
    centres = [first, _row_sum(vectors, rows == np.argmin(vectors @ first))]
    left = rows < 0
    for _ in range(MAX_ITERATIONS):
        difference = vectors @ (_unit(centres[0]) - _unit(centres[1]))
        previous, left = left, rows < 0
        left[np.argsort(-difference, kind="stable")[:n_left]] = True
        if np.array_equal(left, previous):
            break
        left_sum = _row_sum(vectors, left)
        centres = [left_sum, total - left_sum]
    return left, float(np.linalg.norm(centres[0]) + np.linalg.norm(centres[1]))


def _left_size(n_labels: int, sizes: tuple[int, ...]) -> int:
    """Return half the labels, rounded to whole groups of the largest size below `n_labels`."""
    size = max(size for size in sizes if size < n_labels)
    n_groups = math.ceil(n_labels / size)
    return size * min(max(1, round(n_labels / size / 2)), n_groups - 1)


def _label_centroids(X: Any, Y: sp.csr_array) -> Any:
    """Compute unit centroids (n_labels, n_features) in the format of X; zero for unseen labels."""
    X = normalize(X)
    members = sp.csr_array(Y.T, dtype=X.dtype)  # (n_labels, n_samples)
    if not sp.issparse(X):
        return normalize(members @ X, copy=False)
    # Entries of a label's centroid: no more than its samples hold, nor than there are features.
    n_entries = np.minimum(members.astype(np.int64) @ np.diff(X.indptr), X.shape[1])
    blocks = [_trim_rows(members[part] @ X) for part in uneven_blocks(n_entries, BLOCK_ENTRIES)]
    return normalize(sp.vstack(blocks, format="csr"), copy=False)


def _trim_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Keep the MAX_CENTROID_ENTRIES largest magnitudes of each row, without zeros."""
    matrix.eliminate_zeros()
    sizes = np.diff(matrix.indptr)
    keep = np.ones(matrix.nnz, dtype=bool)
    for row in np.flatnonzero(sizes > MAX_CENTROID_ENTRIES):
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        small = np.argsort(-np.abs(matrix.data[entries]), kind="stable")[MAX_CENTROID_ENTRIES:]
        keep[entries.start + small] = False
    return kept_entries(matrix, keep)


def compact_rows(vectors: Any, mask: BoolArray) -> Any:
    """Select rows; drop the empty columns of sparse rows."""
    selected = vectors[mask]
    if not sp.issparse(selected):
        return selected
    return selected[:, occurring_columns(selected)]


def _row_sum(vectors: Any, mask: BoolArray) -> npt.NDArray[Any]:
    """Sum the selected rows to a dense vector."""
    return vectors.T @ mask.astype(vectors.dtype)


def _unit(vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Scale a vector to norm one; zero stays zero."""
    norm = np.linalg.norm(vector)
    return vector / norm if norm > 0 else vector


def _check_data(X: Any, Y: Any, n_labels: int) -> tuple[Any, sp.csr_array]:
    """Validate X, as dense or CSR floats, and Y, as a CSR mask."""
    if X is None or Y is None:
        raise ValueError('order="clustered" needs X and Y: the samples and their label indicators')
    X = check_numbers(X, "X", accept_sparse="csr", dtype=[np.float64, np.float32])
    Y = check_numbers(Y, "Y", accept_sparse="csr", dtype=None)
    check_equal("rows", X=X.shape[0], Y=Y.shape[0])
    check_equal("labels", n_labels=n_labels, Y=Y.shape[1])
    # SciPy adds up repeated entries in place when it compares.
    return X, sp.csr_array(canonical(Y) != 0)


def _check_permutation(order: npt.ArrayLike, n_labels: int) -> IntArray:
    """Validate given positions: a permutation of ``0, ..., n_labels - 1``."""
    positions = as_array(order, "order")
    expected = f"order must be a permutation of 0, ..., {n_labels - 1}"
    if positions.shape != (n_labels,):
        raise ValueError(f"{expected} of shape ({n_labels},), got shape {positions.shape}")
    if positions.dtype.kind not in "iu":
        raise ValueError(f"{expected} and hold integers, got dtype {positions.dtype}")
    outside = np.flatnonzero((positions < 0) | (positions >= n_labels))
    if len(outside):
        label = int(outside[0])
        raise ValueError(f"{expected}, got position {positions[label]} for label {label}")
    positions = positions.astype(np.int64)
    counts = np.bincount(positions, minlength=n_labels)
    if counts.max() > 1:
        twice, missing = int(counts.argmax()), int(counts.argmin())
        raise ValueError(f"{expected}: position {twice} is given more than once, {missing} never")
    return positions
