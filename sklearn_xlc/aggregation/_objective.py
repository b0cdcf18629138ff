"""The objective that label embeddings maximise: Eq. 2 of EAGLE."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_sparse
from sklearn_xlc.aggregation._embeddings import MEMORY_LIMIT, Embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, FloatArray, check_samples, make_pairs
from sklearn_xlc.aggregation._parallel import count_jobs, run_tasks
from sklearn_xlc.aggregation._products import Gathered, split_labels


def grlr_objective(
    X: Any,
    data: Aggregation,
    embeddings: Any,
    *,
    memory_limit: int = MEMORY_LIMIT,
    n_jobs: int | None = None,
) -> FloatArray:
    r"""Compute what the label embeddings of [1]_ maximise: its Eq. 2.

    The best embedding of label k is the vector e of norm one that maximises

    .. math:: \sum_{j \in M_k} \max_{i \in N_j} \langle x_i, e \rangle,

    the sum over the label's groups of the similarity of their most similar sample. To find it is
    hard: Algorithm 1 (:func:`learn_embeddings` without a background) goes uphill from the sum of
    all samples. While no two samples of a group tie, no step decreases the objective.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples of norm one, or zero.
    data : Aggregation
        Groups and their labels. A group counts once, however often it holds a label.
    embeddings : Embeddings, or {ndarray, sparse matrix} of shape (n_labels, n_features)
        Embeddings of the labels; rows are scaled to norm one.
    memory_limit : int, default=2**29
        Approximate limit in bytes of the working storage of all jobs together.
    n_jobs : int, default=None
        Number of blocks of labels computed in parallel.

    Returns
    -------
    ndarray of shape (n_labels,) and dtype float64
        Objective of each label, between minus and plus the number of its groups.

    Raises
    ------
    ValueError
        If `X` or `embeddings` do not have the shape that `data` asks for, or are corrupt.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Eq. 2.

    Examples
    --------
    Samples 0 and 2 are equal, and in different groups of the label:

    >>> import numpy as np
    >>> from sklearn_xlc.aggregation import aggregation, grlr_objective, learn_embeddings
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [1]])
    >>> [
    ...     grlr_objective(X, data, learn_embeddings(X, data, n_iter=t)).round(3).item()
    ...     for t in (0, 1, 20)
    ... ]
    [1.414, 1.454, 1.983]
    >>> grlr_objective(X, data, [[1, 0]])
    array([2.])
    """
    X = check_samples(X, data)
    embeddings = _as_embeddings(embeddings, (data.n_labels, X.shape[1]))
    blocks = split_labels(data, X, 1, memory_limit, count_jobs(n_jobs))
    parts = run_tasks(_objective_block, (X, data, embeddings), blocks, n_jobs)
    return np.concatenate([np.zeros(0), *parts])


def _as_embeddings(vectors: Any, shape: tuple[int, int]) -> Embeddings:
    """Embeddings of the expected shape; an array or sparse matrix holds their vectors."""
    if not isinstance(vectors, Embeddings):
        if sp.issparse(vectors):
            vectors = sp.csr_array(check_sparse(vectors, "embeddings"), dtype=np.float64)
        else:
            vectors = np.asarray(vectors, dtype=np.float64)
        vectors = Embeddings(vectors, np.ones(shape[0]), None, None)
    if vectors.sums.shape != shape:
        raise ValueError(
            f"embeddings must have a row for each of the {shape[0]} labels and a column for each "
            f"of the {shape[1]} features, got shape {vectors.sums.shape}"
        )
    return vectors


def _objective_block(
    X: Any, data: Aggregation, embeddings: Embeddings, first: int, last: int
) -> FloatArray:
    """Objective of each of a range of labels."""
    pairs = make_pairs(data, first, last)
    vectors = embeddings.block(first, last).astype(X.dtype, copy=False)
    best = pairs.segment_max(Gathered(X, pairs).scores(vectors.ravel()))
    return np.bincount(pairs.label_of_segment, best, minlength=last - first).astype(np.float64)
