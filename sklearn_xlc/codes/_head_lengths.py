"""Head lengths, and their confusion degree."""

import math
from collections.abc import Sequence

import numpy as np

from sklearn_xlc._bounds import check_flag, check_integer, check_option

RULES = ("equal", "descending")
#: Largest number of heads: label ids have at most this many binary digits.
MAX_HEADS = 64


def head_lengths(n_labels: int, n_heads: int, rule: str = "equal") -> tuple[int, ...]:
    """Choose head lengths whose product covers the labels.

    Parameters
    ----------
    n_labels : int
        Number of labels C, at least 1.
    n_heads : int
        Number of heads H, from 1 to 64. Every additional head adds an approximation error, so use
        few.
    rule : {"equal", "descending"}, default="equal"
        How the lengths share the labels.

        - "equal": each length is ``ceil(C ** (1 / H))``, or one less where the product still covers
          C. The sum of the lengths, and so the number of outputs, is the least possible. For
          "product".
        - "descending": each head after the first has length ``floor(C ** (1 / (H + 1)))`` (at least
          2), and the first head has as many outputs as needed to cover C. For "cascade" and
          "sampling"; see Notes.

    Returns
    -------
    tuple of int of length n_heads
        Lengths, longest first. Their product is at least ``n_labels``, and no length can be reduced
        by one. Heads beyond the number of binary digits of ``n_labels`` get length 1.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or out of range, or ``rule`` is unknown.

    Notes
    -----
    With two heads, F features, embeddings of width D and a beam of K parents, a cascade computes
    ``L_1 F + K L_2 D`` multiplications per sample. With ``L_1 L_2 = C`` this number is least at
    ``L_2 = sqrt(C F / (K D))``. But the second term gathers scattered rows of a table, which costs
    several times a multiplication of the dense first term. A longer first head also lowers the
    confusion degree ``L_2 / L_1`` (Eq. 15 in [1]_), which is least if all labels are in the first
    head. ``L_2 = C ** (1 / 3)`` is a compromise: the number of scores per sample is
    ``C ** (2 / 3) + K C ** (1 / 3)``, the confusion degree falls as ``C ** (-1 / 3)``, and for a
    million labels, ``F = D`` and K = 10 the number of multiplications is 1.7 times the least
    possible. It is also close to the lengths in the paper: {172; 23} for 4 thousand labels,
    {5630; 89} for 501 thousand, {8377; 80} for 670 thousand. ``C ** (1 / (H + 1))`` extends the
    rule to more heads.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification",
       section 4.4.

    Examples
    --------
    >>> from sklearn_xlc.codes import head_lengths
    >>> head_lengths(10_000, 2)
    (100, 100)
    >>> head_lengths(1000, 3, rule="descending")
    (40, 5, 5)
    >>> head_lengths(670_091, 2, rule="descending")
    (7703, 87)
    """
    n_labels = check_integer(n_labels, "n_labels")
    n_heads = check_integer(n_heads, "n_heads", 1, MAX_HEADS)
    check_option(rule, "rule", *RULES)
    # With more heads than binary digits, no choice of lengths has a longer first head.
    if rule == "equal" or 2 ** (n_heads - 1) >= n_labels:
        return _equal_lengths(n_labels, n_heads)
    later = max(2, _floor_root(n_labels, n_heads + 1))
    first = -(-n_labels // later ** (n_heads - 1))
    return (first, *(later,) * (n_heads - 1))


def confusion_degree(lengths: Sequence[int], *, worst: bool = False) -> float:
    """Compute the confusion degree of head lengths.

    Labels with a common digit are confused with each other; the confusion degree measures how many
    share one. It is least for a single long head ``(C, 1)``, at the highest cost.

    Parameters
    ----------
    lengths : sequence of int
        Length of each head, each at least 1.
    worst : bool, default=False
        Whether to take the maximum over all arrangements of the heads, as Eq. 15 of [1]_ is
        printed. False: the heads are in the given order.

    Returns
    -------
    float
        Product over heads h >= 2 of ``(L_h * ... * L_H) / L_{h-1}`` (Eq. 15 in [1]_); 1.0 for one
        head.

    Raises
    ------
    TypeError, ValueError
        If a length is not an integer or less than 1, or ``lengths`` is empty.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification",
       Eq. 15.

    Examples
    --------
    >>> from sklearn_xlc.codes import confusion_degree
    >>> confusion_degree((86, 43))
    0.5
    >>> confusion_degree((8, 4, 2))  # (4 * 2) / 8 times 2 / 4
    0.5
    >>> confusion_degree((8, 4, 2), worst=True)  # of (2, 4, 8)
    32.0
    """
    checked = check_lengths(lengths)
    if check_flag(worst, "worst"):
        # L_h has an exponent that grows with h, so that ascending lengths have the largest product.
        checked = tuple(sorted(checked))
    # Products of integers are exact; only the final quotient is rounded.
    numerator = math.prod(math.prod(checked[h:]) for h in range(1, len(checked)))
    return numerator / math.prod(checked[:-1])


def check_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """Validate lengths; return a tuple of Python integers."""
    if not isinstance(lengths, Sequence) and np.ndim(lengths) != 1:
        raise TypeError(f"lengths must be a sequence of integers, got {lengths!r}")
    checked = tuple(check_integer(length, f"lengths[{h}]") for h, length in enumerate(lengths))
    if not checked:
        raise ValueError("lengths is empty: at least one head is needed")
    return checked


def _equal_lengths(n_labels: int, n_heads: int) -> tuple[int, ...]:
    """Return lengths r or r - 1 for r = ceil(C^(1/H)), with as few r as cover C."""
    root = _floor_root(n_labels, n_heads)
    if root**n_heads == n_labels:
        return (root,) * n_heads
    n_longer = 1
    while (root + 1) ** n_longer * root ** (n_heads - n_longer) < n_labels:
        n_longer += 1
    return (root + 1,) * n_longer + (root,) * (n_heads - n_longer)


def _floor_root(value: int, degree: int) -> int:
    """Return the largest integer r with r ** degree <= value, for values of 63 bits."""
    nearest = round(value ** (1 / degree)) if degree > 1 else value  # off by one at the most
    return nearest if nearest**degree <= value else nearest - 1
