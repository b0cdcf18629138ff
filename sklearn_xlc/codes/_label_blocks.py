"""Label sets as digits: the digit of a head is a block of labels, as a binary number."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_dense_size, check_integer
from sklearn_xlc._checks import check_indicator
from sklearn_xlc._csr import IntArray, ones_at, pointers_of, row_numbers
from sklearn_xlc._ranking import rank_rows
from sklearn_xlc.codes._head_lengths import check_lengths
from sklearn_xlc.codes._mixed_radix import (
    MAX_CODES,
    FloatArray,
    check_digits,
    check_log_scores,
    extend,
)

#: Default number of labels in a block: 16 outputs for 4 labels.
LABELS_PER_BLOCK = 4


class LabelBlocks:
    """Code of label sets with one digit per head.

    The labels are cut into blocks of consecutive labels, one block per head. A head has one output
    for every subset of its block; its digit is the subset as a binary number, with the first label
    as the most significant bit. The digits equal the :class:`MixedRadix` digits of the
    ``2**n_labels`` label sets, but label sets are never numbered, so `n_labels` is unlimited.

    Parameters
    ----------
    n_labels : int
        Number of labels, at least 1.
    lengths : sequence of int, default=None
        Number of outputs of each head: ``2**b`` for a block of b labels. Together the blocks hold
        at least `n_labels` labels; the last blocks are cut to the existing labels. None: blocks of
        4 labels.

    Attributes
    ----------
    n_labels : int
        Number of labels.
    lengths : tuple of int
        Number of outputs of each head: the number of subsets of its block.
    n_heads : int
        Number of heads.
    sizes : ndarray of shape (n_heads,), int64
        Number of labels of each block.
    starts : ndarray of shape (n_heads + 1,), int64
        First label of each block; the last entry is `n_labels`.

    Raises
    ------
    TypeError, ValueError
        If ``n_labels`` is not an integer from 1 on, a length is not a power of two, or the blocks
        hold fewer labels than there are.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification",
       section 6.1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.codes import LabelBlocks
    >>> code = LabelBlocks(5, (8, 4))  # three labels, and two
    >>> code.encode([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0]])
    array([[5, 1],
           [0, 0]])
    >>> code.decode([[5, 1]]).toarray()
    array([[1, 0, 1, 0, 1]], dtype=int8)

    The two best label sets:

    >>> three, two = [0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.1, 0.1], [0.2, 0.2, 0.2, 0.4]
    >>> scores, digits = code.topk([np.log([three]), np.log([two])], k=2)
    >>> np.exp(scores).round(2)
    array([[0.12, 0.06]])
    >>> digits
    array([[[5, 3],
            [5, 0]]])
    """

    def __init__(self, n_labels: int, lengths: Sequence[int] | None = None) -> None:
        self.n_labels = check_integer(n_labels, "n_labels")
        if lengths is None:
            n_blocks = -(-self.n_labels // LABELS_PER_BLOCK)
            check_dense_size((n_blocks,), np.int64, "fewer labels")
            lengths = (2**LABELS_PER_BLOCK,) * n_blocks
        self.lengths = _existing(self.n_labels, check_lengths(lengths))
        self.n_heads = len(self.lengths)

    def __repr__(self) -> str:
        return f"LabelBlocks(n_labels={self.n_labels}, lengths={self.lengths})"

    def longer(self, n_labels: int) -> "LabelBlocks":
        """Return a code for more labels; present labels keep their blocks.

        Blocks are independent: those of further labels, 4 labels each, follow.

        Parameters
        ----------
        n_labels : int
            Number of labels, more than the present number.

        Returns
        -------
        LabelBlocks
            A new code.

        Examples
        --------
        >>> from sklearn_xlc.codes import LabelBlocks
        >>> LabelBlocks(3, (8,)).longer(8)
        LabelBlocks(n_labels=8, lengths=(8, 16, 2))
        """
        further = LabelBlocks(n_labels - self.n_labels).lengths
        return LabelBlocks(n_labels, self.lengths + further)

    @property
    def sizes(self) -> IntArray:
        """Number of labels of each block."""
        return np.array([length.bit_length() - 1 for length in self.lengths], dtype=np.int64)

    @property
    def starts(self) -> IntArray:
        """First label of each block, and the number of labels."""
        return pointers_of(self.sizes)

    def encode(self, Y: Any) -> IntArray:
        """Convert label sets to digits.

        Parameters
        ----------
        Y : {array-like, sparse matrix} of shape (n, n_labels)
            Indicator of label sets.

        Returns
        -------
        ndarray of shape (n, n_heads), int64
            Digits of the sets.

        Raises
        ------
        ValueError
            If Y is not an indicator of this shape.
        """
        Y = check_indicator(Y, "Y")
        if Y.shape[1] != self.n_labels:
            raise ValueError(f"Y must have {self.n_labels} columns, got shape {Y.shape}")
        starts = self.starts
        heads = np.searchsorted(starts, Y.indices, side="right") - 1
        bits = np.left_shift(1, starts[heads + 1] - 1 - Y.indices, dtype=np.int64)
        digits = np.zeros((Y.shape[0], self.n_heads), dtype=np.int64)
        np.add.at(digits, (row_numbers(Y.indptr), heads), bits)
        return digits

    def decode(self, digits: npt.ArrayLike) -> sp.csr_matrix:
        """Convert digits to label sets.

        Parameters
        ----------
        digits : array-like of int of shape (n, n_heads)
            Digits, each from 0 to the length of its head, exclusive.

        Returns
        -------
        CSR matrix of shape (n, n_labels), int8
            Indicator of the label sets.

        Raises
        ------
        ValueError
            If `digits` has another shape, is not of integers, or a digit is out of range.
        """
        digits = check_digits(digits, self.lengths)
        if digits.ndim != 2:
            raise ValueError(f"digits must have shape (n, {self.n_heads}), got {digits.shape}")
        rows, heads = np.nonzero(digits)  # most blocks of a sample are empty
        columns = np.arange(self.sizes.max())
        shifts = self.sizes[heads, None] - 1 - columns
        bits = (digits[rows, heads, None] >> np.maximum(shifts, 0)) & (shifts >= 0)
        entries, columns = np.nonzero(bits)
        labels = self.starts[heads[entries]] + columns
        counts = np.bincount(rows[entries], minlength=len(digits))
        return ones_at(labels, pointers_of(counts), self.n_labels)

    def topk(self, log_scores: Sequence[npt.ArrayLike], k: int) -> tuple[FloatArray, IntArray]:
        """Find the best k label sets, exactly.

        The score of a set is the sum of the scores of its digits. The search adds head by head and
        keeps the k best prefixes: every set among the k best starts with one of them.

        Parameters
        ----------
        log_scores : sequence of n_heads array-like of shape (n, lengths[h])
            Additive scores of the digits of each head, such as log probabilities. ``-inf`` is
            allowed; NaN and ``+inf`` are not.
        k : int
            Number of label sets, from 1 to ``2**n_labels``.

        Returns
        -------
        scores : ndarray of shape (n, k)
            Sums of the scores, best first; float32 if all heads are float32.
        digits : ndarray of shape (n, k, n_heads), int64
            Digits of the sets. Exact ties are in the lexicographic order of the digits. Ties by
            rounding, or at ``-inf``, are in a deterministic order.

        Raises
        ------
        TypeError, ValueError
            If ``k`` is not an integer or out of range, or scores have wrong shapes or values.
        """
        k = check_integer(k, "k")
        if k.bit_length() > self.n_labels and k > 2**self.n_labels:
            raise ValueError(
                f"k={k} asks for more label sets than exist: 2**{self.n_labels} for "
                f"{self.n_labels} labels"
            )
        heads = check_log_scores(log_scores, self.lengths)
        n_rows = len(heads[0])
        best = np.zeros((n_rows, 1), dtype=heads[0].dtype)
        # Prefixes are sorted by score; `ranks` numbers them by their digits, to break ties.
        ranks = by_rank = np.zeros((n_rows, 1), dtype=np.int64)
        steps = []
        for scores in heads:
            candidates, codes = extend(best, ranks, scores, k)
            best, codes = rank_rows(candidates, k, codes)
            parents, digits = np.divmod(codes, scores.shape[1])
            steps.append((np.take_along_axis(by_rank, parents, axis=1), digits))
            by_rank = np.argsort(codes, axis=1)
            ranks = np.argsort(by_rank, axis=1)
        return best, _backtrack(steps)


def _existing(n_labels: int, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Cut the lengths of the heads to the existing labels."""
    if any(length < 2 or length & (length - 1) or length >= MAX_CODES for length in lengths):
        raise ValueError(
            f"lengths={lengths} must be powers of two from 2 to 2**61: a head has 2**b outputs for "
            "the sets of its b labels"
        )
    left, existing = n_labels, []
    for length in lengths:
        size = min(length.bit_length() - 1, left)
        existing += [2**size] if size else []
        left -= size
    if left:
        raise ValueError(
            f"heads of lengths={lengths} hold {n_labels - left} labels, fewer than "
            f"n_labels={n_labels}"
        )
    return tuple(existing)


def _backtrack(steps: list[tuple[IntArray, IntArray]]) -> IntArray:
    """Collect the digits of all heads, from the parents and last digits of the prefixes."""
    n_rows, k = steps[-1][1].shape
    at = np.broadcast_to(np.arange(k), (n_rows, k))
    found = np.empty((n_rows, k, len(steps)), dtype=np.int64)
    for h, (parents, digits) in reversed(list(enumerate(steps))):
        found[:, :, h] = np.take_along_axis(digits, at, axis=1)
        at = np.take_along_axis(parents, at, axis=1)
    return found
