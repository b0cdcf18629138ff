"""Label ids as digits of a mixed-radix number: one digit per head, most significant first."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import as_array
from sklearn_xlc._csr import IntArray
from sklearn_xlc._ranking import rank_rows
from sklearn_xlc.codes._head_lengths import check_lengths

FloatArray = npt.NDArray[Any]

# One bit of headroom below int64, so that id * length + digit never wraps.
MAX_CODES = 2**62


class MixedRadix:
    """Code of labels with one digit per head: a mixed-radix number.

    Label ``r`` has the digits ``d_h = floor(r / P_h) mod L_h`` with the place value
    ``P_h = L_{h+1} * ... * L_H`` [1]_. If the product of the lengths exceeds ``n_labels``, the last
    codes are unused, and no method returns them.

    Parameters
    ----------
    n_labels : int
        Number of labels, at least 1.
    lengths : sequence of int
        Length of each head, most significant first. Their product must be at least ``n_labels`` and
        less than ``2**62``.

    Attributes
    ----------
    n_labels : int
        Number of labels.
    lengths : tuple of int
        Length of each head.
    n_heads : int
        Number of heads.
    place_values : ndarray of shape (n_heads,), int64
        Place value of each head's digit; the last is 1.
    n_codes : int
        Number of codes, the product of the lengths. The first ``n_labels`` codes belong to labels.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or out of range, or the product of the lengths is.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification",
       Eqs. 10 and 11.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.codes import MixedRadix
    >>> code = MixedRadix(5, (3, 2))
    >>> code.encode([0, 3, 4])
    array([[0, 0],
           [1, 1],
           [2, 0]])
    >>> code.decode([[1, 1], [2, 0]])
    array([3, 4])

    The best pair of digits is (2, 1), label 5, which does not exist:

    >>> scores, ids = code.topk([np.array([[0.0, 1.0, 2.0]]), np.array([[0.0, 4.0]])], k=2)
    >>> ids
    array([[3, 1]])
    >>> scores
    array([[5., 4.]])
    """

    def __init__(self, n_labels: int, lengths: Sequence[int]) -> None:
        self.n_labels = check_integer(n_labels, "n_labels")
        self.lengths = check_lengths(lengths)
        self.n_heads = len(self.lengths)
        self.n_codes = math.prod(self.lengths)
        if not self.n_labels <= self.n_codes < MAX_CODES:
            raise ValueError(
                f"the product of lengths={self.lengths} is {self.n_codes}; it must be at least "
                f"n_labels={self.n_labels} and less than 2**62"
            )
        place_values = [math.prod(self.lengths[h + 1 :]) for h in range(self.n_heads)]
        self.place_values: IntArray = np.array(place_values, dtype=np.int64)
        self._bound = _bound_digits(self.n_labels, place_values)

    def __repr__(self) -> str:
        return f"MixedRadix(n_labels={self.n_labels}, lengths={self.lengths})"

    def longer(self, n_labels: int) -> "MixedRadix":
        """Return a code for more labels; present labels keep their digits.

        Unused codes come first; then the first head becomes longer, since no place value depends on
        its length.

        Parameters
        ----------
        n_labels : int
            Number of labels, at least the present number.

        Returns
        -------
        MixedRadix
            A new code.

        Examples
        --------
        >>> from sklearn_xlc.codes import MixedRadix
        >>> MixedRadix(5, (3, 2)).longer(9)
        MixedRadix(n_labels=9, lengths=(5, 2))
        """
        first = max(self.lengths[0], -(-n_labels // int(self.place_values[0])))
        return MixedRadix(n_labels, (first, *self.lengths[1:]))

    def encode(self, ids: npt.ArrayLike) -> IntArray:
        """Convert label ids to digits.

        Parameters
        ----------
        ids : array-like of int of shape (n,)
            Label ids in ``[0, n_labels)``. For other shapes, the digits are an additional last
            axis.

        Returns
        -------
        ndarray of shape (n, n_heads), int64
            One digit per head.

        Raises
        ------
        ValueError
            If an id is not an integer or is out of range.
        """
        remainder = _as_int64(ids, "ids")
        _check_range(remainder, self.n_labels, "ids", f"n_labels={self.n_labels}")
        digits = np.empty((*remainder.shape, self.n_heads), dtype=np.int64)
        for h, place_value in enumerate(self.place_values):
            digits[..., h], remainder = np.divmod(remainder, place_value)  # Eq. 10 in [1]
        return digits

    def decode(self, digits: npt.ArrayLike) -> IntArray:
        """Convert digits to label ids.

        Parameters
        ----------
        digits : array-like of int of shape (n, n_heads)
            Digit of head ``h`` in ``[0, lengths[h])``.

        Returns
        -------
        ndarray of shape (n,), int64
            Label ids.

        Raises
        ------
        ValueError
            If a digit is out of range, or a row of digits belongs to no label.
        """
        digits = check_digits(digits, self.lengths)
        ids = digits @ self.place_values  # Eq. 11 in [1]
        _check_range(ids, self.n_labels, "labels named by digits", f"n_labels={self.n_labels}")
        return ids

    def topk(self, log_scores: Sequence[npt.ArrayLike], k: int) -> tuple[FloatArray, IntArray]:
        """Find the k labels with the largest sums of head scores, exactly.

        The search adds head by head and keeps the k best prefixes, and the one prefix whose
        continuations are limited by ``n_labels``. It never builds an array of all labels.

        Parameters
        ----------
        log_scores : sequence of n_heads array-like of shape (n, lengths[h])
            Additive scores of the digits of each head, such as log probabilities. ``-inf`` is
            allowed; NaN and ``+inf`` are not. Theorem 1 of the paper holds for sums only: products
            of raw logits cannot be maximised head by head.
        k : int
            Number of labels, from 1 to ``n_labels``.

        Returns
        -------
        scores : ndarray of shape (n, k)
            Sums of the scores, best first; float32 if all heads are float32.
        ids : ndarray of shape (n, k), int64
            Ids of the labels. Exact ties are in the order of the ids. Ties by rounding, or at
            ``-inf``, are in a deterministic order.

        Raises
        ------
        TypeError, ValueError
            If ``k`` is not an integer or out of range, or scores have wrong shapes or values.
        """
        k = check_integer(k, "k")
        if k > self.n_labels:
            raise ValueError(f"k={k} asks for more labels than exist: n_labels={self.n_labels}")
        heads = check_log_scores(log_scores, self.lengths)
        n_rows = len(heads[0])
        # `best`: the k best prefixes below the bound; `edge`: the prefix equal to the bound.
        best_scores = np.empty((n_rows, 0), dtype=heads[0].dtype)
        best_ids = np.empty((n_rows, 0), dtype=np.int64)
        edge_scores, edge_id = np.zeros((n_rows, 1), dtype=heads[0].dtype), 0
        for h, (scores, length) in enumerate(zip(heads, self.lengths)):
            found = []
            if best_ids.shape[1]:
                found.append(extend(best_scores, best_ids, scores, k))
            if h < len(self._bound):
                digit = self._bound[h]
                digit_scores, digits = rank_rows(scores[:, :digit], k)
                found.append((edge_scores + digit_scores, edge_id * length + digits))
                if h + 1 < len(self._bound):
                    edge_scores = edge_scores + scores[:, digit, None]
                    edge_id = edge_id * length + digit
            joined, ids = (np.concatenate(parts, axis=1) for parts in zip(*found))
            best_scores, best_ids = rank_rows(joined, k, ids)
        return best_scores, best_ids

    def log_normalizer(self, log_scores: Sequence[npt.ArrayLike]) -> FloatArray:
        """Compute the log-sum-exp of the scores of all labels.

        Subtract it from the scores of :meth:`topk` to normalise products of softmaxes over the
        existing labels. The time is linear in the number of scores of the heads.

        Parameters
        ----------
        log_scores : sequence of n_heads array-like of shape (n, lengths[h])
            As in :meth:`topk`.

        Returns
        -------
        ndarray of shape (n,)
            Log-normalizer; ``-inf`` if all scores of a row are ``-inf``.

        Raises
        ------
        ValueError
            If the scores have wrong shapes or values.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_xlc.codes import MixedRadix
        >>> uniform = [np.log(np.full((1, 2), 1 / 2)), np.log(np.full((1, 3), 1 / 3))]
        >>> np.exp(MixedRadix(5, (2, 3)).log_normalizer(uniform)).round(4)  # 5 of 6 codes exist
        array([0.8333])
        """
        heads = check_log_scores(log_scores, self.lengths)
        free = np.zeros_like(heads[0], shape=(self.n_heads + 1, len(heads[0])))
        for h in reversed(range(self.n_heads)):
            free[h] = free[h + 1] + _logsumexp(heads[h])  # mass of the heads from h on
        total = np.full_like(free[0], -np.inf)
        edge = np.zeros_like(free[0])
        for h, digit in enumerate(self._bound):
            total = np.logaddexp(total, edge + _logsumexp(heads[h][:, :digit]) + free[h + 1])
            if h + 1 < len(self._bound):
                edge = edge + heads[h][:, digit]
        return total


def check_digits(digits: npt.ArrayLike, lengths: tuple[int, ...]) -> IntArray:
    """Validate digits, one per head along the last axis; return them as int64."""
    array = _as_int64(digits, "digits")
    if array.ndim == 0 or array.shape[-1] != len(lengths):
        raise ValueError(
            f"digits must have one column per head ({len(lengths)}), got shape {array.shape}"
        )
    outside = (array < 0) | (array >= np.array(lengths))
    if outside.any():
        h = int(np.argwhere(outside)[0, -1])
        limit = f"lengths[{h}]={lengths[h]}"
        _check_range(array[..., h], lengths[h], f"digits of head {h}", limit)
    return array


def check_log_scores(
    log_scores: Sequence[npt.ArrayLike], lengths: tuple[int, ...]
) -> list[FloatArray]:
    """Validate the scores of each head, as floating arrays of one dtype."""
    is_sequence = isinstance(log_scores, list | tuple | np.ndarray)
    if not is_sequence or getattr(log_scores, "ndim", 1) == 0:
        raise TypeError(f"log_scores must be a sequence of arrays, got {log_scores!r}")
    heads = [as_array(scores, f"log_scores[{h}]") for h, scores in enumerate(log_scores)]
    if len(heads) != len(lengths):
        raise ValueError(
            f"log_scores must hold one array per head ({len(lengths)}), got {len(heads)}"
        )
    if heads[0].ndim != 2:
        raise ValueError(f"log_scores[0] must be 2-D, got shape {heads[0].shape}")
    dtype = np.result_type(np.float32, *heads)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"log_scores must hold float32 or float64, got {dtype}")
    heads = [scores.astype(dtype, copy=False) for scores in heads]
    for h, (scores, length) in enumerate(zip(heads, lengths)):
        if scores.shape != (len(heads[0]), length):
            raise ValueError(
                f"log_scores[{h}] must have shape (n, {length}) with the same n for all heads, "
                f"got {scores.shape}; log_scores[0] has shape {heads[0].shape}"
            )
        # One pass: the maximum of an array with NaN is NaN.
        if not scores.max(initial=-np.inf) < np.inf:
            raise ValueError(f"log_scores[{h}] holds NaN or +inf; finite and -inf are accepted")
    return heads


def _bound_digits(n_labels: int, place_values: list[int]) -> list[int]:
    """Return the digits of the exclusive bound ``n_labels``, without trailing zeros.

    A code belongs to a label if and only if, for some h, its digits before h equal the digits of
    the bound and its digit h is smaller. If all codes belong to labels, the bound has the single
    digit ``lengths[0]``, larger than any digit.
    """
    digits, remainder = [], n_labels
    for place_value in place_values:
        digit, remainder = divmod(remainder, place_value)
        digits.append(digit)
        if remainder == 0:
            break
    return digits


def extend(
    scores: FloatArray, ids: IntArray, head_scores: FloatArray, k: int
) -> tuple[FloatArray, IntArray]:
    """Extend prefixes, sorted best first, by a digit: candidates for the k best."""
    digit_scores, digits = rank_rows(head_scores, k)
    n_prefixes, n_digits = scores.shape[1], digits.shape[1]
    # In two sorted lists, (i + 1)(j + 1) - 1 other pairs are at least as good as pair (i, j).
    widths = np.minimum(k // np.arange(1, n_prefixes + 1), n_digits)
    i = np.repeat(np.arange(n_prefixes), widths)
    j = np.concatenate([np.arange(width) for width in widths])
    return (
        scores[:, i] + digit_scores[:, j],
        ids[:, i] * head_scores.shape[1] + digits[:, j],
    )


def _logsumexp(scores: FloatArray) -> FloatArray:
    """Compute the log-sum-exp of each row; -inf if it is empty or all -inf."""
    peak = scores.max(axis=1, initial=-np.inf)
    shift = np.where(np.isfinite(peak), peak, scores.dtype.type(0))
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - shift[:, None]).sum(axis=1)) + shift


def _as_int64(values: npt.ArrayLike, name: str) -> IntArray:
    """Validate an array of integers; return it as int64."""
    array = as_array(values, name)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got dtype {array.dtype}")
    if array.dtype == np.uint64 and array.size and array.max() >= MAX_CODES:
        raise ValueError(f"{name} must be less than 2**62, got {array.max()}")
    return array.astype(np.int64, copy=False)


def _check_range(values: IntArray, stop: int, name: str, limit: str) -> None:
    """Raise ValueError for the first value outside [0, stop)."""
    bad = (values < 0) | (values >= stop)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = f" at row {where[0] if len(where) == 1 else where}" if where else ""
        raise ValueError(f"{name} must be in [0, {stop}) ({limit}), got {values[where]}{at}")
