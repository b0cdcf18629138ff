"""Label sets from logits without a threshold, by exact search with one partial sort per sample."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer, check_real
from sklearn_xlc._checks import as_array, check_equal, check_numbers
from sklearn_xlc._csr import FloatArray, IntArray, ones_at, pointers_of
from sklearn_xlc._ranking import rank_rows


def nearest_label_sets(
    logits: Any,
    scales: Any,
    max_labels: int | None = None,
    *,
    n_labels: int | None = None,
    squared_norms: Any = None,
) -> tuple[IntArray, FloatArray]:
    r"""Find the label sets with the nearest prototypes, among all label sets.

    The prototype of a set S of m labels is :math:`C_m \sum_{k \in S} w_k`, where the directions
    :math:`w_k` are the rows of a simplex ETF (:func:`simplex_etf`) and the scales :math:`C_m` come
    from training features (:func:`fit_label_set_scales`). The nearest set of a sample holds its
    largest logits; this function finds their number.

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_labels) or (n_samples, n_largest)
        Products ``features @ W.T`` with a simplex ETF of unit rows, without biases. With
        `n_labels`, the `n_largest` largest logits of each sample are enough, in any order.
    scales : array-like of shape (n_sizes,)
        Scales :math:`C_1, C_2, \dots` of the prototypes of 1, 2, ... labels, not negative.
    max_labels : int, default=None
        Largest number M of labels of a set, at most `n_sizes`. None: `n_sizes`, or `n_labels`
        if that is less.
    n_labels : int, default=None
        Number K of labels, if `logits` holds only the largest logits of each sample: at least M + 1
        of them, or all K. None: `logits` has a column for every label.
    squared_norms : array-like of shape (n_samples,), default=None
        Squared norms of the features. None: the distances leave them out.

    Returns
    -------
    sizes : ndarray of shape (n_samples,)
        Number of labels in the nearest set: the labels with the largest logits
        (:func:`label_sets_to_csr`). Ties go to the fewest labels, then to the lowest label ids.
    distances : ndarray of shape (n_samples, 2)
        Squared distances to the nearest and to the second nearest prototype, less the squared norm
        of the features unless `squared_norms` is given. The second is infinite if there is only one
        set.

    See Also
    --------
    divergence_label_sets : Better if features of new samples do not collapse.
    seen_label_sets : Searches only the label sets of the training data.

    Notes
    -----
    *Derivation.* With :math:`z_k = \langle w_k, h \rangle`, the squared distance from features h
    to the prototype of S is

    .. math:: \|h\|^2 - 2 C_m \sum_{k \in S} z_k + C_m^2 \Big\| \sum_{k \in S} w_k \Big\|^2.

    For unit rows with all cosines :math:`-1/(K-1)`, the last squared norm is
    :math:`m - m (m-1)/(K-1) = m (K-m)/(K-1)`, the same for all sets of m labels. So the best set of
    m labels has the m largest logits. The second best set of m labels swaps the smallest of them
    for the largest logit outside, which costs :math:`2 C_m (z_{(m)} - z_{(m+1)})`. The best size
    minimises :math:`-2 C_m \sum_{j \le m} z_{(j)} + C_m^2 m (K-m)/(K-1)`. The second nearest set is
    the best set of another size, or the second best set of the best size. Nothing is approximated:
    the search covers all :math:`\sum_{m \le M} \binom{K}{m}` sets.

    If a scale is zero, all sets of its size share one prototype, and the set of the largest logits
    represents them.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Equation 8.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import nearest_label_sets, simplex_etf
    >>> W = simplex_etf(n_classes=5, n_features=5)
    >>> features = np.stack([2 * W[3], 1.5 * (W[0] + W[4])])
    >>> sizes, distances = nearest_label_sets(features @ W.T, scales=[2.0, 1.5, 1.2])
    >>> sizes
    array([1, 2])
    """
    scale = _check_scales(scales)
    top, n_labels, max_labels = _check_top(logits, max_labels, n_labels, len(scale))
    if n_labels < 2:
        raise ValueError(f"logits must have at least 2 labels, got {n_labels}")
    scale = scale[:max_labels]
    m = np.arange(1, max_labels + 1)
    sums = np.cumsum(top[:, :max_labels], axis=1)
    # Divide last: ties of whole numbers remain ties in floating point.
    distances = scale**2 * (m * (n_labels - m)) / (n_labels - 1) - 2 * scale * sums
    return _best_sizes(distances, 2 * scale, top, squared_norms, "squared_norms")


def greedy_label_sets(
    logits: Any, weights: Any, scales: Any, max_labels: int | None = None
) -> tuple[IntArray, FloatArray]:
    r"""Find the nearest prototypes among the sets of the largest logits, for any weights.

    Unlike in :func:`nearest_label_sets`, the weights need not be a simplex. The squared norm of a
    prototype then depends on its labels, so the nearest set of m labels need not hold the m largest
    logits. Only sets of the largest logits are compared; their distances are exact.

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_labels)
        Products ``features @ weights.T``, without biases.
    weights : array-like of shape (n_labels, n_features)
        Rows of the classifier. The function centres them by their mean, and the logits likewise.
    scales : array-like of shape (n_sizes,)
        Scales :math:`C_1, C_2, \dots` of the prototypes of 1, 2, ... labels, not negative.
    max_labels : int, default=None
        Largest number of labels of a set, at most `n_sizes`. None: `n_sizes`, or `n_labels` if that
        is less.

    Returns
    -------
    sizes : ndarray of shape (n_samples,)
        Number of labels in the nearest set, as of :func:`nearest_label_sets`.
    distances : ndarray of shape (n_samples, 2)
        Squared distances to the nearest and to the second nearest prototype, less the squared norm
        of the features. The second is infinite if there is only one set.

    See Also
    --------
    nearest_label_sets : Searches all sets, for a simplex.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import greedy_label_sets
    >>> W = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> greedy_label_sets([[2.0, 0.0]] @ W.T, W, scales=[2.0, 2.0])[0]
    array([1])
    """
    scale = _check_scales(scales)
    logits = check_numbers(logits, "logits", dtype=[np.float64, np.float32])
    weights = check_numbers(weights, "weights", dtype=[np.float64, np.float32])
    check_equal("labels", logits=logits.shape[1], weights=len(weights))
    most = check_max_labels(max_labels, min(len(scale), logits.shape[1]))
    weights = weights - weights.mean(axis=0)
    logits = logits - logits.mean(axis=1, keepdims=True)
    largest, ids = rank_rows(logits, most)
    sums = np.cumsum(largest, axis=1, dtype=np.float64)
    distances, total = np.empty(sums.shape), np.zeros((len(logits), weights.shape[1]))
    for m in range(most):
        total += weights[ids[:, m]]
        squares = np.einsum("ij,ij->i", total, total)
        distances[:, m] = scale[m] ** 2 * squares - 2 * scale[m] * sums[:, m]
    sizes = np.argmin(distances, axis=1) + 1
    distances = np.hstack([distances, np.full((len(logits), 1), np.inf)])
    return sizes, np.partition(distances, 1, axis=1)[:, :2]


def divergence_label_sets(
    logits: Any,
    temperature: float = 1.0,
    max_labels: int | None = None,
    *,
    n_labels: int | None = None,
    log_normalizers: Any = None,
) -> tuple[IntArray, FloatArray]:
    r"""Find the label sets with the uniform distributions nearest to the predicted distributions.

    The pick-all-labels loss trains the softmax p of the logits to be 1/m on the m labels of a
    sample and 0 elsewhere. This decoder minimises the Kullback-Leibler divergence of the set's
    uniform distribution from p, among all label sets. It needs no threshold and works with any
    weights of the classifier.

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_labels) or (n_samples, n_largest)
        Logits or log probabilities; a constant added to all logits of a sample changes nothing.
        With `n_labels`, the `n_largest` largest logits of each sample are enough, in any order.
    temperature : float, default=1.0
        Positive divisor of the logits. A temperature below 1 sharpens p and selects fewer labels;
        :func:`fit_temperature` tunes it.
    max_labels : int, default=None
        Largest number M of labels of a set. None: all labels, which sorts all logits of a sample.
    n_labels : int, default=None
        Number K of labels, as in :func:`nearest_label_sets`.
    log_normalizers : array-like of shape (n_samples,), default=None
        ``logsumexp(logits / temperature, axis=1)`` over all labels. None: the distances leave them
        out.

    Returns
    -------
    sizes : ndarray of shape (n_samples,)
        Number of labels in the nearest set, as of :func:`nearest_label_sets`.
    distances : ndarray of shape (n_samples, 2)
        Divergences of the nearest and of the second nearest set, less the log-normalizer of the
        sample unless `log_normalizers` is given. The second is infinite if there is only one set.

    See Also
    --------
    nearest_label_sets : Compares distances to prototypes, for collapsed features.

    Notes
    -----
    *Derivation.* For :math:`p = \mathrm{softmax}(z / T)` and the uniform distribution u on a set S
    of m labels,

    .. math:: \mathrm{KL}(u \,\|\, p) = -\log m - \frac 1m \sum_{k \in S} \log p_k
        = \log \sum_j e^{z_j / T} - \Big( \log m + \frac{1}{m T} \sum_{k \in S} z_k \Big).

    The first term is the same for all sets of all sizes, because the m labels have a weight of 1/m
    each. So the choice needs neither the normalizer nor more than the largest logits: the best set
    of m labels has the m largest logits, and the best m maximises the bracket. The second best set
    of m labels swaps the smallest of them for the largest logit outside.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import divergence_label_sets, label_sets_to_csr
    >>> logits = np.log([[0.45, 0.05, 0.4, 0.1], [0.9, 0.04, 0.03, 0.03]])
    >>> sizes, divergences = divergence_label_sets(logits)
    >>> label_sets_to_csr(logits, sizes).toarray()
    array([[1, 0, 1, 0],
           [1, 0, 0, 0]], dtype=int8)
    """
    temperature = check_real(temperature, "temperature", 0, closed=False)
    top, n_labels, max_labels = _check_top(logits, max_labels, n_labels)
    distances = divergences(running_means(top[:, :max_labels]), temperature)
    swap_costs = 1 / (temperature * np.arange(1, max_labels + 1))
    return _best_sizes(distances, swap_costs, top, log_normalizers, "log_normalizers")


def label_sets_to_csr(ranked: Any, sizes: Any, n_labels: int | None = None) -> sp.csr_array:
    """Convert ranked labels and set sizes to an indicator.

    Parameters
    ----------
    ranked : array-like of shape (n_samples, n_labels) or (n_samples, n_largest)
        *Floating* logits, one per label; or an *integer* array of label ids, best first.
    sizes : array-like of shape (n_samples,)
        Number of labels of each sample.
    n_labels : int, default=None
        Number of labels, needed if `ranked` holds label ids.

    Returns
    -------
    csr_array of shape (n_samples, n_labels)
        Indicator, int8, with sorted indices. Ties of logits go to the lowest ids.

    Examples
    --------
    >>> from sklearn_xlc.geometry import label_sets_to_csr
    >>> label_sets_to_csr([[0.5, 2.0, 0.5], [3.0, 1.0, 2.0]], sizes=[2, 1]).toarray()
    array([[1, 1, 0],
           [1, 0, 0]], dtype=int8)
    >>> label_sets_to_csr([[1, 0], [0, 2]], sizes=[2, 1], n_labels=3).toarray()
    array([[1, 1, 0],
           [1, 0, 0]], dtype=int8)
    """
    ranked = as_array(ranked, "ranked")
    if ranked.ndim != 2:
        raise ValueError(f"ranked must be 2-D, got shape {ranked.shape}")
    sizes = _check_vector(sizes, "sizes", len(ranked))
    wrong = np.flatnonzero((sizes < 0) | (sizes > ranked.shape[1]) | (sizes % 1 != 0))
    if len(wrong):
        raise ValueError(
            f"sizes must be integers between 0 and {ranked.shape[1]}, the columns of ranked, got "
            f"{sizes[wrong[0]]:g} in row {wrong[0]}"
        )
    sizes = sizes.astype(np.int64)
    if ranked.dtype.kind in "iu":
        ids = ranked
        if n_labels is None:
            raise ValueError("n_labels must be given if ranked holds label ids (integers)")
        n_labels = check_integer(n_labels, "n_labels")
    else:
        logits = check_numbers(ranked, "ranked", dtype=[np.float64, np.float32])
        if n_labels is not None:
            n_labels = check_integer(n_labels, "n_labels")
            check_equal("labels", n_labels=n_labels, logits=logits.shape[1])
        n_labels = logits.shape[1]
        ids = rank_rows(logits, max(1, int(sizes.max(initial=1))))[1]
    taken = ids[np.arange(ids.shape[1]) < sizes[:, None]].astype(np.int64)
    wrong = np.flatnonzero((taken < 0) | (taken >= n_labels))
    if len(wrong):
        raise ValueError(
            f"ranked must hold label ids between 0 and {n_labels - 1}, got {taken[wrong[0]]}"
        )
    sets = sp.csr_array(ones_at(taken, pointers_of(sizes), n_labels))
    if not sets.has_canonical_format:
        raise ValueError("ranked must not name a label twice in a row")
    return sets


def running_means(ranked: npt.NDArray[Any]) -> FloatArray:
    """Compute the means of the first 1, 2, ... logits of every sample."""
    sums: FloatArray = np.cumsum(ranked, axis=1, dtype=np.float64)
    return sums / np.arange(1, ranked.shape[1] + 1)


def divergences(means: FloatArray, temperature: float) -> FloatArray:
    """Compute the divergences of the best sets of 1, 2, ... labels, less the log-normalizer."""
    return -np.log(np.arange(1, means.shape[1] + 1)) - means / temperature


def _best_sizes(
    distances: FloatArray,
    swap_costs: FloatArray,
    top: FloatArray,
    constants: Any,
    name: str,
) -> tuple[IntArray, FloatArray]:
    """Return the best size for each sample, and the distances of the two best sets."""
    rows = np.arange(len(distances))
    best = np.argmin(distances, axis=1)  # the first minimum, with the fewest labels
    others = distances.copy()
    others[rows, best] = np.inf
    # The second best set of the same size exists unless the best set holds all labels.
    is_swap = best + 1 < top.shape[1]
    swap, size = rows[is_swap], best[is_swap]
    gaps = top[swap, size] - top[swap, size + 1]
    others[swap, size] = distances[swap, size] + swap_costs[size] * gaps
    chosen = np.column_stack([distances[rows, best], others.min(axis=1)])
    if constants is not None:
        chosen += _check_vector(constants, name, len(rows))[:, None]
    return best + 1, chosen


def _check_top(
    logits: Any, max_labels: int | None, n_labels: int | None, n_sizes: int | None = None
) -> tuple[FloatArray, int, int]:
    """Return the max_labels + 1 largest logits, descending, and validated n_labels, max_labels."""
    logits = check_numbers(logits, "logits", dtype=[np.float64, np.float32])
    width = logits.shape[1]
    if n_labels is None:
        n_labels = width
    n_labels = check_integer(n_labels, "n_labels", width)
    limit = n_labels if n_sizes is None else min(n_sizes, n_labels)
    max_labels = check_max_labels(max_labels, limit)
    needed = min(max_labels + 1, n_labels)
    if width < needed:
        raise ValueError(
            f"logits must hold the {needed} largest of {n_labels} labels for "
            f"max_labels={max_labels}, got {width} columns"
        )
    if needed < width:
        logits = np.partition(logits, -needed, axis=1)[:, -needed:]
    return np.sort(logits, axis=1)[:, ::-1].astype(np.float64), n_labels, max_labels


def check_max_labels(max_labels: int | None, limit: int) -> int:
    """Validate the largest number of labels of a set; None: the limit."""
    value = limit if max_labels is None else max_labels
    return check_integer(value, "max_labels", 1, limit)


def _check_scales(scales: Any) -> FloatArray:
    """Validate scales: a float64 vector without negative entries."""
    values = check_numbers(
        scales, "scales", ensure_2d=False, dtype=np.float64, ensure_non_negative=True
    )
    if values.ndim != 1:
        raise ValueError(f"scales must be 1-D, one scale per set size, got shape {values.shape}")
    return values


def _check_vector(values: Any, name: str, n_samples: int) -> FloatArray:
    """Validate one finite number per sample."""
    vector = check_numbers(values, name, ensure_2d=False, dtype=np.float64)
    check_equal("samples", **{name: vector.shape, "logits": (n_samples,)})
    return vector
