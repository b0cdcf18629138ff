"""Scales of multi-label collapse: the optimum of the pick-all-labels loss over free features."""

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from sklearn_xlc._bounds import check_integer, check_option, check_real
from sklearn_xlc._checks import check_numbers
from sklearn_xlc._csr import FloatArray


def optimal_label_set_scales(
    n_labels: int,
    n_samples: Any,
    *,
    feature_decay: float,
    weight_decay: float | None = None,
    reduction: str = "sum",
) -> tuple[FloatArray, float]:
    r"""Compute the scales of label-set prototypes at the optimum of the pick-all-labels loss.

    Let features be free variables, the last layer a simplex, and label sets of the same size
    equally frequent. The optimal features of a sample with label set S of m labels are :math:`C_m
    \sum_{k \in S} w_k` (Theorem 1 of [1]_). This function computes the :math:`C_m`, and the norm of
    the rows :math:`w_k` if they are free, too.

    Parameters
    ----------
    n_labels : int
        Number K of labels, at least 2.
    n_samples : array-like of shape (max_labels,)
        Numbers of samples with 1, 2, ... labels, or their shares. For a number of 0, the scale of
        an additional sample is computed.
    feature_decay : float
        Weight of the mean squared norm of the features; :math:`\lambda_H` times the number of
        samples.
    weight_decay : float, default=None
        Weight :math:`\lambda_W` of the squared norm of the last layer. None: the last layer is
        fixed, with unit rows, as in :func:`simplex_etf`.
    reduction : {"sum", "mean"}, default="sum"
        Whether the loss of a sample is the sum over its labels, as in [1]_, or the mean.

    Returns
    -------
    scales : ndarray of shape (max_labels,)
        Scales :math:`C_1, C_2, \dots`.
    norm : float
        Norm of every row of the last layer; 1 if it is fixed. It is 0 if strong decays make the
        last layer and all features zero at the optimum.

    See Also
    --------
    fit_label_set_scales : Scales of the features of a network, by least squares.
    simplex_etf : The last layer.

    Notes
    -----
    Let :math:`t_m` be the difference between the logits of the labels in a set of m labels and of
    the others, :math:`\rho` the squared norm of the last layer, and :math:`a_m` = 1 for the sum and
    1/m for the mean. The gradient with respect to the features of the set vanishes for

    .. math:: C_m = \frac{K-1}{\rho} t_m, \qquad
        t_m (m e^{t_m} + K - m) = \frac{a_m K \rho}{2 (K-1) \cdot \text{feature\_decay}},

    where the first equation is the one of [1]_ with :math:`t_m = \log(c_{1,m} (K-m)/m)`. There is
    one solution. If the last layer is free, :math:`\rho` balances both decays (Lemma 1),

    .. math:: \text{weight\_decay} = \text{feature\_decay} \sum_m \frac{n_m}{n}
        \frac{m (K-m)}{K (K-1)} C_m^2,

    whose right-hand side falls as :math:`\rho` grows. At :math:`\rho = 0` it is :math:`\sum_m
    \frac{n_m}{n} \frac{m (K-m)}{K (K-1)} a_m^2 / (4 \cdot \text{feature\_decay})`. If this is below
    `weight_decay`, the optimum is zero, an exception not named in Theorem 1. Samples with all
    labels have zero features, whatever the scale.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Theorem 1, Equation 44.

    Examples
    --------
    The 40 000 images of the paper with its decays, 5e-4 and batches of 128:

    >>> from sklearn_xlc.geometry import optimal_label_set_scales
    >>> scales, norm = optimal_label_set_scales(
    ...     10, [31000, 9000], feature_decay=128 * 5e-4, weight_decay=5e-4
    ... )
    >>> scales.round(3), round(norm, 2)
    (array([0.267, 0.239]), 4.36)
    """
    K = check_integer(n_labels, "n_labels", 2)
    shares = _check_shares(n_samples, K)
    feature_decay = check_real(feature_decay, "feature_decay", 1e-100, 1e100)
    if weight_decay is not None:
        weight_decay = check_real(weight_decay, "weight_decay", 1e-100, 1e100)
    check_option(reduction, "reduction", "sum", "mean")
    m = np.arange(1.0, len(shares) + 1)
    log_decay = np.log(feature_decay)
    # Of one feature vector at rho = 0, where the softmax is uniform.
    log_start = -np.log(2) - log_decay - (np.log(m) if reduction == "mean" else 0)

    def log_scales(log_rho: float) -> FloatArray:
        log_right = log_start + np.log(K) + log_rho - np.log(K - 1)
        return np.log(K - 1) - log_rho + _log_gap(m, K, log_right)

    if weight_decay is None:
        return np.exp(log_scales(np.log(K))), 1.0
    with np.errstate(divide="ignore"):  # shares of zero, and sets of all labels
        weights = np.log(shares) + np.log(m * (K - m) / (K * (K - 1)))
    if not np.isfinite(weights).any():
        raise ValueError(
            f"n_samples must hold samples with fewer labels than n_labels={K}, got {n_samples!r}; "
            "all labels together have no direction"
        )

    def surplus(log_rho: float) -> float:
        """Compute the logarithm of the right-hand side of Lemma 1 over the left-hand side."""
        squares = weights + 2 * log_scales(log_rho)
        return float(log_decay + logsumexp(squares) - np.log(weight_decay))

    if log_decay + logsumexp(weights + 2 * log_start) <= np.log(weight_decay):
        return np.exp(log_start), 0.0
    low, high = -1.0, 1.0
    while surplus(low) < 0:
        low *= 2
    while surplus(high) > 0:
        high *= 2
    log_rho = brentq(surplus, low, high, xtol=1e-14, rtol=1e-14)
    return np.exp(log_scales(log_rho)), float(np.exp((log_rho - np.log(K)) / 2))


def _log_gap(m: FloatArray, K: int, log_right: FloatArray) -> FloatArray:
    """Solve t (m exp(t) + K - m) = right for every m; return u = log t."""
    with np.errstate(divide="ignore"):
        log_m, log_others = np.log(m), np.log(K - m)
    # Two upper bounds of t: right / K, and log(1 + right / m).
    u = np.minimum(log_right - np.log(K), np.log(np.logaddexp(0, log_right - log_m)))
    # The logarithm of the left-hand side is convex in u: Newton's steps only go down.
    for _ in range(100):
        t = np.exp(u)
        total = np.logaddexp(log_m + t, log_others)
        step = (u + total - log_right) / (1 + t * np.exp(log_m + t - total))
        u = u - step
        if np.abs(step).max() < 1e-15 * max(1, np.abs(u).max()):
            break
    return u


def _check_shares(n_samples: Any, n_labels: int) -> FloatArray:
    """Validate numbers of samples; return the shares of samples with 1, 2, ... labels."""
    numbers = check_numbers(
        n_samples, "n_samples", ensure_2d=False, dtype=np.float64, ensure_min_samples=1
    )
    if numbers.ndim != 1 or not 1 <= len(numbers) <= n_labels:
        raise ValueError(
            f"n_samples must have one number for 1, 2, ... labels, at most n_labels={n_labels}, "
            f"got shape {numbers.shape}"
        )
    if numbers.min() < 0 or not 0 < numbers.sum() < np.inf:
        raise ValueError(f"n_samples must not be negative, nor all zero, got {n_samples!r}")
    return numbers / numbers.sum()
