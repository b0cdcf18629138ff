"""The truncated Fourier matrix: every assignment with few sign changes is argmaxable."""

from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._bounds import check_dense_size, check_integer
from sklearn_xlc._checks import as_array, check_numbers
from sklearn_xlc._csr import FloatArray, row_blocks
from sklearn_xlc._warn import warn
from sklearn_xlc.geometry._counting import count_sign_changes
from sklearn_xlc.geometry._validation import check_assignment

#: Number of rows of the matrix in memory at a time.
CHUNK = 4096
EPS = float(np.finfo(np.float64).eps)


def fourier_matrix(
    n_labels: int, max_active: int, start: int = 0, stop: int | None = None
) -> FloatArray:
    r"""Compute output weights for all label sets of at most k labels.

    Row i holds :math:`1/\sqrt n`, followed by :math:`\sqrt{2/n} \cos f t_i` and
    :math:`\sqrt{2/n} \sin f t_i` for f = 1 to k, with :math:`t_i = 2 \pi i / n`. The columns are
    orthonormal. An assignment is argmaxable if and only if it has at most 2k cyclic sign changes.

    Parameters
    ----------
    n_labels : int
        Number of labels n.
    max_active : int
        Largest number k of active labels; ``2 k + 1`` must not exceed n.
    start, stop : int, default=0 and None
        Range of rows to compute, for matrices too large for memory. None: up to the last row.

    Returns
    -------
    ndarray of shape (stop - start, 2 * max_active + 1)
        Rows of the matrix, float64.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Equation 8.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import fourier_matrix
    >>> W = fourier_matrix(n_labels=6, max_active=2)
    >>> W.shape, bool(np.allclose(W.T @ W, np.eye(5)))
    ((6, 5), True)
    """
    n_labels, max_active = _check_sizes(n_labels, max_active)
    stop = n_labels if stop is None else check_integer(stop, "stop", 0, n_labels)
    start = check_integer(start, "start", 0, stop)
    return fourier_rows(n_labels, max_active, np.arange(start, stop))


def fourier_forward(coefficients: Any, n_labels: int) -> FloatArray:
    """Multiply the Fourier matrix with coefficients, by an inverse fast Fourier transform.

    Parameters
    ----------
    coefficients : array-like of shape (..., 2 * max_active + 1)
        One or several vectors of coefficients.
    n_labels : int
        Number of labels.

    Returns
    -------
    ndarray of shape (..., n_labels)
        Logits, float64.

    Raises
    ------
    MemoryError
        If the logits would exceed ``get_config()["dense_limit"]``.

    Examples
    --------
    >>> from sklearn_xlc.geometry import fourier_forward
    >>> fourier_forward([2.0, 0.0, 0.0], n_labels=4)
    array([1., 1., 1., 1.])
    """
    coefficients = _check_vectors(coefficients, "coefficients")
    width = coefficients.shape[-1]
    if width % 2 == 0:
        raise ValueError(
            f"coefficients must have an odd last axis, 2 * max_active + 1, got {width}"
        )
    n_labels, max_active = _check_sizes(n_labels, width // 2)
    shape = (*coefficients.shape[:-1], n_labels)
    check_dense_size(shape, np.float64, "fewer coefficient vectors at a time")
    spectrum = np.zeros((*coefficients.shape[:-1], n_labels // 2 + 1), dtype=complex)
    spectrum[..., 0] = coefficients[..., 0]
    cosines, sines = coefficients[..., 1::2], coefficients[..., 2::2]
    spectrum[..., 1 : max_active + 1] = (cosines - 1j * sines) / np.sqrt(2)
    return np.fft.irfft(spectrum, n=n_labels, norm="ortho")


def fourier_adjoint(logits: Any, max_active: int) -> FloatArray:
    """Multiply the transposed Fourier matrix with logits, by a fast Fourier transform.

    It is the adjoint of :func:`fourier_forward`, and its left inverse: the columns are orthonormal.

    Parameters
    ----------
    logits : array-like of shape (..., n_labels)
        One value per label, such as gradients with respect to logits.
    max_active : int
        Largest number k of active labels, the highest frequency.

    Returns
    -------
    ndarray of shape (..., 2 * max_active + 1)
        Coefficients, float64.

    Examples
    --------
    >>> from sklearn_xlc.geometry import fourier_adjoint, fourier_forward
    >>> fourier_adjoint(fourier_forward([1.0, 2.0, 3.0], n_labels=5), max_active=1).round(6)
    array([1., 2., 3.])
    """
    logits = _check_vectors(logits, "logits")
    _, max_active = _check_sizes(logits.shape[-1], max_active)
    coefficients = np.zeros((*logits.shape[:-1], 2 * max_active + 1))
    spectrum = np.fft.rfft(logits, norm="ortho")
    coefficients[..., 0] = spectrum[..., 0].real
    coefficients[..., 1::2] = np.sqrt(2) * spectrum[..., 1 : max_active + 1].real
    coefficients[..., 2::2] = -np.sqrt(2) * spectrum[..., 1 : max_active + 1].imag
    return coefficients


def fourier_witness(y: Any, max_active: int) -> FloatArray:
    r"""Compute features for a given assignment of a Fourier layer, in closed form.

    The trigonometric polynomial :math:`p(t) = \pm \prod_j \sin((t - \theta_j) / 2)` has one root
    :math:`\theta_j` halfway between any two unequal neighbouring labels. Its degree is at most k,
    and it has the wanted sign at every label. The witness x is the vector of its coefficients, so
    that :math:`W x = p`.

    Parameters
    ----------
    y : {array-like, sparse matrix} of shape (n_labels,) or (1, n_labels)
        Assignment, 1 for active labels and 0 for all others, with at most ``2 * max_active`` cyclic
        sign changes.
    max_active : int
        Largest number k of active labels, the highest frequency of the layer.

    Returns
    -------
    ndarray of shape (2 * max_active + 1,)
        Witness of norm 1. For a layer with slack columns, append zeros.

    Raises
    ------
    ValueError
        If `y` has more than ``2 * max_active`` cyclic sign changes, so that no witness exists.

    Warns
    -----
    RuntimeWarning
        If the smallest logit is below the rounding error of float64: the signs of the rounded
        witness may be wrong. This happens if many sign changes are close together. For 10 active
        labels it happens above 60 labels if one inactive label separates neighbours, and above 250
        if nine do; for a block of adjacent active labels not even with 30 000 labels.
        :func:`witness_margin` computes the smallest logit.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024. Theorems 3 and 4; their proof gives no formula
       for x.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import fourier_matrix, fourier_witness
    >>> y = np.array([0, 1, 0, 0, 0, 1, 1, 0])
    >>> logits = fourier_matrix(n_labels=8, max_active=2) @ fourier_witness(y, max_active=2)
    >>> (logits > 0).astype(int)
    array([0, 1, 0, 0, 0, 1, 1, 0])
    """
    dense = check_assignment(y).toarray()[0]
    n_labels, max_active = _check_sizes(len(dense), max_active)
    n_changes = count_sign_changes(dense)
    if n_changes > 2 * max_active:
        raise ValueError(
            f"y has {n_changes} cyclic sign changes, but max_active={max_active} allows at most "
            f"{2 * max_active}: no features make a Fourier layer without slack predict it"
        )
    witness = witness_coefficients(dense, max_active)
    margin, noise = _margin_and_noise(n_labels, witness, dense)
    if margin <= noise:
        warn(
            f"the smallest logit of the witness, {margin:.1e}, is within the rounding error of "
            f"float64, {noise:.1e}: the assignment is argmaxable in exact arithmetic, but its "
            "region is too thin to be hit in float64; slack columns widen the regions",
            RuntimeWarning,
        )
    return witness


def witness_margin(weights: Any, x: Any, y: Any) -> float:
    """Compute the smallest signed logit of a witness, its distance from failing.

    Parameters
    ----------
    weights : int or array-like of shape (n_labels, n_features)
        Weights of the layer, or the number of labels of a Fourier layer, to avoid the whole matrix
        in memory.
    x : array-like of shape (n_features,)
        Witness.
    y : {array-like, sparse matrix} of shape (n_labels,) or (1, n_labels)
        Assignment, 1 for active labels and 0 for all others.

    Returns
    -------
    float
        Smallest ``w_i @ x`` over active labels and ``-w_i @ x`` over the others. It is negative if
        a label has the wrong sign, and may be rounding error if it is below about
        ``1e-16 * n_features`` times the norms of x and of a row of the weights.

    Examples
    --------
    >>> from sklearn_xlc.geometry import fourier_witness, witness_margin
    >>> y = [0] * 40 + [1] * 3 + [0] * 57
    >>> x = fourier_witness(y, max_active=3)
    >>> f"{witness_margin(100, x, y):.4f}"
    '0.0002'
    """
    return _margin_and_noise(weights, x, check_assignment(y).toarray()[0])[0]


def witness_polynomial(y: npt.NDArray[np.int8]) -> FloatArray:
    """Compute the logarithm of the polynomial's absolute value at every label."""
    # Signs come from y; logarithms keep products of many sines from underflowing.
    log_sines, log_size = _log_sines(len(y)), np.zeros(len(y))
    for left in np.flatnonzero(y != np.roll(y, -1)):
        log_size[left + 1 :] += log_sines[: len(y) - left - 1]
        log_size[: left + 1] += log_sines[len(y) - left - 1 :]
    return log_size - log_size.max()


def witness_coefficients(
    y: npt.NDArray[np.int8], max_active: int, log_size: FloatArray | None = None
) -> FloatArray:
    """Compute the coefficients, of norm one, of the polynomial with the signs of y."""
    log_size = witness_polynomial(y) if log_size is None else log_size
    coefficients = fourier_adjoint(np.where(y > 0, 1.0, -1.0) * np.exp(log_size), max_active)
    return coefficients / np.linalg.norm(coefficients)


@lru_cache(maxsize=8)
def _log_sines(n_labels: int) -> FloatArray:
    """Compute log sin((t - theta) / 2) at all labels, starting with the first after theta."""
    return np.log(np.sin(np.pi / (2 * n_labels) * (2 * np.arange(n_labels) + 1)))


def _margin_and_noise(weights: Any, x: Any, y: npt.NDArray[np.int8]) -> tuple[float, float]:
    """Compute the smallest signed logit, and the largest possible rounding error of a logit."""
    x = check_numbers(x, "x", ensure_2d=False, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"x must have shape (n_features,), got {x.shape}")
    if isinstance(weights, Integral):
        n_labels, max_active = check_integer(weights, "weights"), len(x) // 2
        if len(x) % 2 == 0 or len(x) > n_labels:
            raise ValueError(
                "x of a Fourier layer must have an odd number of entries, at most one for each of "
                f"the {n_labels} labels, got {len(x)}"
            )
        rows = None
    else:
        rows = check_numbers(weights, "weights", dtype=np.float64)
        n_labels, n_features = rows.shape
        if n_features != len(x):
            raise ValueError(f"x has {len(x)} entries, but weights have {n_features} columns")
    if len(y) != n_labels:
        raise ValueError(f"y has {len(y)} labels, but the layer has {n_labels}")
    signs = np.where(y > 0, 1.0, -1.0)
    margin, size = np.inf, 0.0
    for part in row_blocks(n_labels, 1, CHUNK):
        labels = np.arange(part.start, part.stop)
        block = fourier_rows(n_labels, max_active, labels) if rows is None else rows[part]
        margin = min(margin, float(np.min(signs[part] * (block @ x))))
        size = max(size, float(np.max(np.abs(block) @ np.abs(x))))
    return margin, len(x) * EPS * size


def fourier_rows(n_labels: int, max_active: int, positions: Any) -> FloatArray:
    """Compute rows of the Fourier matrix, and rows at positions between two labels."""
    # f * i modulo n is exact, so that high frequencies lose no digits.
    turns = np.outer(positions, np.arange(1, max_active + 1)) % n_labels
    angles = (2 * np.pi / n_labels) * turns
    rows = np.empty((len(positions), 2 * max_active + 1))
    rows[:, 0] = 1 / np.sqrt(n_labels)  # Eq. 8 of the paper
    rows[:, 1::2] = np.sqrt(2 / n_labels) * np.cos(angles)
    rows[:, 2::2] = np.sqrt(2 / n_labels) * np.sin(angles)
    return rows


def _check_sizes(n_labels: Any, max_active: Any) -> tuple[int, int]:
    """Validate both numbers: 2k + 1 columns must not exceed n rows."""
    n_labels = check_integer(n_labels, "n_labels")
    max_active = check_integer(max_active, "max_active", 0)
    width = 2 * max_active + 1
    if width > n_labels:
        raise ValueError(
            f"max_active={max_active} needs 2 * max_active + 1 = {width} columns, more than "
            f"n_labels={n_labels}; a plain full-rank layer with n_labels features already "
            f"represents every assignment; accepted: at most {(n_labels - 1) // 2}"
        )
    return n_labels, max_active


def _check_vectors(values: Any, name: str) -> FloatArray:
    """Validate vectors along the last axis."""
    values = as_array(values, name)
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, got {values!r}")
    return check_numbers(values, name, ensure_2d=False, allow_nd=True, dtype=np.float64)
