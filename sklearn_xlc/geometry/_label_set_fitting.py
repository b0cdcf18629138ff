"""Fitting of label-set decoders: scales of prototypes, and a temperature."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer, is_word
from sklearn_xlc._checks import check_equal, check_numbers
from sklearn_xlc._csr import FloatArray, IntArray, row_blocks, row_numbers
from sklearn_xlc._ranking import find_hits, rank_rows
from sklearn_xlc.geometry._label_sets import (
    check_max_labels,
    divergences,
    label_sets_to_csr,
    running_means,
)
from sklearn_xlc.geometry._validation import check_assignments

#: Temperatures to try: 101 from 1/10 to 10, including 1.
TEMPERATURES = 10.0 ** (np.arange(-50, 51) / 50)


def fit_label_set_scales(
    features: Any, Y: Any, weights: Any = None, max_labels: int | None = None
) -> FloatArray:
    r"""Fit the scales of the prototypes of label sets, one for each number of labels.

    The scale :math:`C_m` minimises the sum of squared distances between the features of each sample
    with m labels and the prototype :math:`C_m \sum_{k \in S} w_k` of its label set S. The rows
    :math:`w_k` of the classifier are centred by their mean.

    Parameters
    ----------
    features : array-like of shape (n_samples, n_features) or (n_samples, n_labels)
        Features of training samples; or, without `weights`, their products with a simplex ETF.
        Subtract a common offset of all samples first, unless labels are balanced.
    Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
        Label indicator of the samples. Samples without labels are ignored.
    weights : array-like of shape (n_labels, n_features), default=None
        Rows of the classifier, fixed or learnt. None: a simplex ETF of unit rows.
    max_labels : int, default=None
        Number of scales. None: the largest number of labels of a sample.

    Returns
    -------
    ndarray of shape (max_labels,)
        Scales :math:`C_1, C_2, \dots`, not negative. Without samples with m labels, or if their
        prototypes are zero (all labels of a simplex), :math:`C_m` is the scale of the nearest
        fitted number of labels, the smaller number on ties.

    Raises
    ------
    ValueError
        If the shapes do not match, or no scale can be fitted.

    See Also
    --------
    nearest_label_sets : Decoder that uses the scales.
    optimal_label_set_scales : Scales at the optimum of the loss, without features.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Equation 8.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import fit_label_set_scales, simplex_etf
    >>> W = simplex_etf(n_classes=4, n_features=4)
    >>> Y = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    >>> features = np.array([[3.0], [2.0], [5.0]]) * (Y @ W)
    >>> fit_label_set_scales(features, Y, W).round(6)
    array([4., 2.])
    """
    features = check_numbers(features, "features", dtype=[np.float64, np.float32])
    if weights is not None:
        weights = check_numbers(weights, "weights", dtype=np.float64)
        weights = weights - weights.mean(axis=0)
    n_labels, n_features = (features.shape[1],) * 2 if weights is None else weights.shape
    sets = check_assignments(Y, "Y", n_labels=n_labels)
    check_equal("rows", features=len(features), Y=sets.shape[0])
    check_equal("columns", features=features.shape[1], weights=n_features)
    sizes = np.diff(sets.indptr)
    seen = int(sizes.max())
    if max_labels is None:
        max_labels = max(seen, 1)
    max_labels = check_integer(max_labels, "max_labels")
    products, norms = np.zeros(seen + 1), np.zeros(seen + 1)
    for part in row_blocks(len(features), n_features):
        product, norm = _prototype_products(features[part], sets[part], weights)
        products += np.bincount(sizes[part], product, minlength=seen + 1)
        norms += np.bincount(sizes[part], norm, minlength=seen + 1)
    # If the weights of a prototype cancel up to rounding, its norm is zero.
    longest = 1.0 if weights is None else np.square(weights).sum(axis=1).max()
    negligible = 1e-20 * seen**2 * len(features) * longest
    fitted = np.flatnonzero(norms > negligible)
    if not len(fitted):
        raise ValueError(
            "Y must have a sample whose labels have centred weights that do not add up to zero; "
            "got none to fit scales to"
        )
    scales = np.maximum(products[fitted] / norms[fitted], 0)
    gaps = np.abs(fitted[:, None] - np.arange(1, max_labels + 1))
    nearest: FloatArray = scales[np.argmin(gaps, axis=0)]
    return nearest


def _prototype_products(
    features: npt.NDArray[Any], sets: sp.csr_array, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Multiply each sample with its labels' summed weights; return the sum's squared norm, too."""
    if weights is None:
        sizes, n_labels = np.diff(sets.indptr).astype(np.float64), sets.shape[1]
        rows = row_numbers(sets.indptr)
        products: FloatArray = np.bincount(
            rows, features[rows, sets.indices], minlength=len(features)
        ).astype(np.float64)
        norms: FloatArray = sizes * (n_labels - sizes) / max(1, n_labels - 1)
        return products, norms
    sums = sets.astype(np.float64) @ weights  # (rows, n_features)
    return np.einsum("ij,ij->i", features, sums), np.einsum("ij,ij->i", sums, sums)


def fit_temperature(
    logits: Any,
    Y: Any,
    criterion: str | Callable[[Any, Any], float] = "example_f1",
    max_labels: int | None = None,
    *,
    labels: Any = None,
) -> float:
    """Fit the temperature of the divergence decoder to validation samples.

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_labels) or (n_samples, n_largest)
        Logits of validation samples.
    Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
        Label indicator of the samples.
    criterion : {"example_f1", "subset_accuracy", "micro_f1"} or callable, default="example_f1"
        Criterion to maximise. A callable has the signature of scikit-learn's metrics and gets the
        true and the predicted indicator, both CSR. The named criteria are far faster.
    max_labels : int, default=None
        Largest number of labels of a set; None: all.
    labels : array-like of shape (n_samples, n_largest), default=None
        Label ids of the columns of `logits`, best first, if `logits` holds only the largest logits
        of each sample: at least `max_labels`. None: one column per label.

    Returns
    -------
    float
        Best of 101 temperatures from 0.1 to 10, equally spaced on a logarithmic scale; on ties, the
        nearest to 1.

    Raises
    ------
    ValueError
        If the shapes do not match or the criterion is unknown.

    See Also
    --------
    divergence_label_sets : Decoder that uses the temperature.

    Notes
    -----
    The temperature changes the number of labels, not their order, so each sample is ranked only
    once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import divergence_label_sets, fit_temperature
    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> temperature = fit_temperature(logits, [[1, 0, 0], [0, 0, 1]])
    >>> divergence_label_sets(logits, temperature)[0]
    array([1, 1])
    """
    logits = check_numbers(logits, "logits", dtype=[np.float64, np.float32])
    true = check_assignments(Y, "Y", n_labels=logits.shape[1] if labels is None else None)
    check_equal("rows", logits=len(logits), Y=true.shape[0])
    if not (callable(criterion) or is_word(criterion, *CRITERIA)):
        raise ValueError(
            f"criterion must be a callable or one of {sorted(CRITERIA)}, got {criterion!r}"
        )
    max_labels = check_max_labels(max_labels, logits.shape[1])
    if labels is None:
        logits, labels = rank_rows(logits, max_labels)
    ranked = np.asarray(labels)[:, :max_labels]
    means = running_means(logits[:, :max_labels])
    n_true, n_labels = np.diff(true.indptr).astype(np.int64), true.shape[1]
    n_hits: IntArray = np.cumsum(find_hits(ranked, true), axis=1)

    def score_of(sizes: IntArray) -> float:
        if callable(criterion):
            return criterion(true, label_sets_to_csr(ranked, sizes, n_labels))
        return CRITERIA[criterion](n_hits[np.arange(len(sizes)), sizes - 1], sizes, n_true)

    best, highest = 1.0, -np.inf
    for temperature in sorted(TEMPERATURES, key=lambda t: abs(np.log(t))):
        score = score_of(1 + np.argmin(divergences(means, temperature), axis=1))
        if score > highest:
            best, highest = float(temperature), score
    return best


#: Criteria of the numbers of hits, of labels and of true labels of each sample.
CRITERIA: dict[Any, Callable[[IntArray, IntArray, IntArray], Any]] = {
    "example_f1": lambda hits, sizes, n_true: np.mean(2 * hits / (sizes + n_true)),
    "micro_f1": lambda hits, sizes, n_true: 2 * hits.sum() / (sizes.sum() + n_true.sum()),
    "subset_accuracy": lambda hits, sizes, n_true: np.mean((hits == sizes) & (hits == n_true)),
}
