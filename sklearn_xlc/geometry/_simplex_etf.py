"""Fixed class directions: the simplex ETF, and low-coherence frames for fewer features."""

from typing import Any

import numpy as np
from scipy.linalg import helmert

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import check_numbers, check_seed
from sklearn_xlc._csr import FloatArray, IntArray, row_blocks

#: Number of sets of frequencies to choose a cyclic frame from.
N_DRAWS = 32


def simplex_etf(n_classes: int, n_features: int, random_state: Any = None) -> FloatArray:
    r"""Compute fixed unit directions of all classes: a simplex equiangular tight frame (ETF).

    With at least ``n_classes - 1`` features the rows are the corners of a regular simplex around
    the origin: unit norm, all cosines :math:`-1/(K-1)`, sum zero. With fewer features this is
    impossible; the result is a frame of unit rows with small cosines (see Notes).

    Parameters
    ----------
    n_classes : int
        Number K of classes, at least 2.
    n_features : int
        Number d of features, at least 1.
    random_state : int, RandomState instance or None, default=None
        Seed of a random rotation of the rows, uniformly distributed. None: no rotation, and the
        same matrix at every call; for :math:`d \ge K` the matrix of Equation 6,
        :math:`\sqrt{K/(K-1)} (I - 11'/K)`, followed by columns of zeros.

    Returns
    -------
    ndarray of shape (n_classes, n_features)
        Unit rows, float64.

    See Also
    --------
    coherence : Computes the largest absolute cosine of two rows.
    welch_bound : Computes a lower bound of the coherence of frames.

    Notes
    -----
    For :math:`d < K - 1`, the result is the less coherent of two constructions. The coherence of
    the first is known exactly, that of the second by a bound:

    * *cyclic*: row k holds :math:`\sqrt{2/d} (\cos, \sin)(2 \pi f k / N)` for d/2 frequencies f,
      the best of several random sets of frequencies. The cosine of two rows depends only on the
      difference of their class ids, so one Fourier transform gives the coherence. N is K, or K + 1
      if K and d are odd; an odd d gets an additional column of alternating signs.
    * *polynomial phases*: for the largest prime :math:`p \le d/2` the complex entries
      :math:`e^{2 \pi i g(n)/p} / \sqrt p`, n = 0 to p - 1, as real and imaginary parts, for all
      polynomials g of degree at most D without constant term, and these entries times i. By Weil's
      bound [2]_ the coherence is at most :math:`(D-1)/\sqrt p`. Degree 2 is enough for
      :math:`2 p^2` classes, about :math:`d^2/2`, and degree D for :math:`2 p^D`. The rows form
      blocks of 2p orthonormal rows. The last ``d - 2 p`` columns are zero.

    In both constructions all K rows sum to a vector of norm at most :math:`\sqrt d`: hardly any
    direction is common to all classes. Time and memory are proportional to the size of the result;
    a rotation takes :math:`O(d^2 K)` more operations (:math:`O(d K^2)` for a simplex).

    *Why the absolute cosine.* A label set is represented by the sum of its labels' directions. Two
    opposite rows are easy to distinguish as classes, but their sum is zero.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Equation 6.
    .. [2] A. Weil. On Some Exponential Sums. Proceedings of the National Academy of Sciences 34,
       1948.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import coherence, simplex_etf
    >>> W = simplex_etf(n_classes=5, n_features=8)
    >>> bool(np.allclose(W @ W.T, 1.25 * np.eye(5) - 0.25))
    True
    >>> frame = simplex_etf(n_classes=1000, n_features=128)  # no simplex in 128 dimensions
    >>> round(coherence(frame), 3)
    0.128
    """
    n_classes = check_integer(n_classes, "n_classes", 2)
    n_features = check_integer(n_features, "n_features")
    rng = check_seed(0 if random_state is None else random_state)
    if n_features < n_classes - 1:
        frame = _low_coherence_frame(n_classes, n_features, rng)
        return frame if random_state is None else frame @ _orthonormal(n_features, n_features, rng)
    scale = np.sqrt(n_classes / (n_classes - 1))  # Eq. 6 of [1]
    if random_state is None and n_features >= n_classes:
        etf = np.zeros((n_classes, n_features))
        etf[:, :n_classes] = scale * (np.eye(n_classes) - 1 / n_classes)
        return etf
    # The rows of the Helmert matrix are an orthonormal basis of the vectors with sum zero.
    etf = scale * helmert(n_classes).T
    if random_state is None:
        return etf
    return etf @ _orthonormal(n_classes - 1, n_features, rng)


def coherence(frame: Any) -> float:
    """Compute the largest absolute cosine of two different rows.

    Parameters
    ----------
    frame : array-like of shape (n_classes, n_features)
        Rows of any norm except zero.

    Returns
    -------
    float
        Coherence, between 0 and 1; 0 for a single row.

    Raises
    ------
    ValueError
        If a row is zero.

    Notes
    -----
    Memory is bounded. Time is quadratic in `n_classes`: about a minute for 100 000 rows of 256
    float32 features on one core.

    Examples
    --------
    >>> from sklearn_xlc.geometry import coherence
    >>> coherence([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    0.8
    """
    rows = check_numbers(frame, "frame", dtype=[np.float64, np.float32])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(
            f"frame must have no zero row, got one in row {np.argmin(norms)}; it has no direction"
        )
    rows = rows / norms
    largest = 0.0
    for part in row_blocks(len(rows), len(rows)):
        cosines = rows[part] @ rows[part.start :].T
        np.fill_diagonal(cosines, 0)
        largest = max(largest, float(cosines.max()), float(-cosines.min()))
    return min(largest, 1.0)


def welch_bound(n_classes: int, n_features: int) -> float:
    r"""Compute the Welch bound, a lower bound of the coherence of frames of a given size.

    It is :math:`\sqrt{(K-d) / (d (K-1))}` for K rows in d dimensions, and 0 if :math:`K \le d`.
    Frames of more than :math:`d (d+1) / 2` real rows cannot attain it.

    Parameters
    ----------
    n_classes : int
        Number K of rows, at least 1.
    n_features : int
        Number d of features, at least 1.

    Returns
    -------
    float
        The bound.

    References
    ----------
    .. [1] L. R. Welch. Lower Bounds on the Maximum Cross Correlation of Signals. IEEE Transactions
       on Information Theory 20, 1974.

    Examples
    --------
    >>> from sklearn_xlc.geometry import welch_bound
    >>> welch_bound(n_classes=5, n_features=4)  # the simplex attains it
    0.25
    """
    n_classes = check_integer(n_classes, "n_classes")
    n_features = check_integer(n_features, "n_features")
    if n_classes <= n_features:
        return 0.0
    return float(np.sqrt((n_classes - n_features) / (n_features * (n_classes - 1))))


def _low_coherence_frame(n_classes: int, n_features: int, rng: np.random.RandomState) -> FloatArray:
    """Compute the frame of the less coherent construction."""
    modulus, frequencies, largest = _draw_frequencies(n_classes, n_features, rng)
    prime = _largest_prime(n_features // 2)
    degree = 1
    while prime > degree and 2 * prime**degree < n_classes:
        degree += 1
    if prime > degree and (degree - 1) / np.sqrt(prime) < largest:  # Weil
        return _polynomial_frame(n_classes, n_features, prime)
    return _cyclic_frame(n_classes, n_features, modulus, frequencies)


def _draw_frequencies(
    n_classes: int, n_features: int, rng: np.random.RandomState
) -> tuple[int, IntArray, float]:
    """Draw frequencies; return the modulus, the least coherent ones, and their coherence."""
    # An odd number of columns includes the alternating column, which needs an even period.
    modulus = n_classes + (n_classes % 2 if n_features % 2 else 0)
    width, available = n_features // 2, (modulus - 1) // 2
    best, largest = np.arange(1, width + 1), np.inf
    for draw in range(N_DRAWS):
        # The first candidate has the lowest frequencies: in the plane, the regular polygon.
        chosen = best if draw == 0 else 1 + rng.permutation(available)[:width]
        spectrum = np.zeros(modulus // 2 + 1)
        spectrum[chosen] = modulus / n_features
        if n_features % 2:
            spectrum[-1] = modulus / n_features
        cosines = np.fft.irfft(spectrum, n=modulus)  # of rows 0 and k
        found = float(np.abs(cosines[1:n_classes]).max())
        if found < largest:
            best, largest = np.sort(chosen), found
    return modulus, best, largest


def _cyclic_frame(
    n_classes: int, n_features: int, modulus: int, frequencies: IntArray
) -> FloatArray:
    """Compute cosines and sines of the frequencies, and an alternating column for odd widths."""
    frame = np.empty((n_classes, n_features))
    angles = 2 * np.pi * np.arange(modulus) / modulus
    cosines, sines = np.cos(angles), np.sin(angles)
    for rows in row_blocks(n_classes, n_features):
        k = np.arange(rows.start, rows.stop)
        turns = np.outer(k, frequencies) % modulus  # exact, whatever the size of k f
        frame[rows, 0 : 2 * len(frequencies) : 2] = np.sqrt(2 / n_features) * cosines[turns]
        frame[rows, 1 : 2 * len(frequencies) : 2] = np.sqrt(2 / n_features) * sines[turns]
        if n_features % 2:
            frame[rows, -1] = (1 - 2 * (k % 2)) / np.sqrt(n_features)
    return frame


def _polynomial_frame(n_classes: int, n_features: int, prime: int) -> FloatArray:
    """Compute the frame of polynomial phases modulo a prime, as real and imaginary parts."""
    frame = np.zeros((n_classes, n_features))
    waves = np.exp(2j * np.pi * np.arange(prime) / prime) / np.sqrt(prime)
    n = np.arange(prime)
    n_blocks = -(-n_classes // (2 * prime))
    for rows in row_blocks(n_classes, n_features):
        k = np.arange(rows.start, rows.stop)
        block, offset = np.divmod(k, 2 * prime)
        phases = np.outer(offset % prime, n)
        higher, power = block, n
        while higher.any():  # the digits of the block are the coefficients of n^2, n^3, ...
            higher, coefficient = np.divmod(higher, prime)
            power = power * n % prime
            phases += np.outer(coefficient, power)
        # A different rotation for every block makes the column of n = 0 add up to zero, too.
        turns = np.exp(2j * np.pi * (block / n_blocks + (offset >= prime) / 4))
        values = turns[:, None] * waves[phases % prime]
        frame[rows, : 2 * prime] = values.view(np.float64)
    return frame


def _largest_prime(limit: int) -> int:
    """Return the largest prime up to the limit, 0 if there is none."""
    for candidate in range(limit, 1, -1):
        divisors = np.arange(2, int(np.sqrt(candidate)) + 1)
        if np.all(candidate % divisors):
            return candidate
    return 0


def _orthonormal(n_rows: int, n_columns: int, rng: np.random.RandomState) -> FloatArray:
    """Draw a random matrix with orthonormal rows, uniformly distributed."""
    q, r = np.linalg.qr(rng.standard_normal((n_columns, n_rows)))
    # QR leaves the signs of r's diagonal open; q is uniform once they are made positive.
    return (q * np.where(np.diag(r) < 0, -1.0, 1.0)).T
