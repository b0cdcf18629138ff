r"""Exact proofs of witnesses, and of contradictions (no witness exists).

An assignment with signs s (+1 or -1) is argmaxable if some x has :math:`s_i (w_i x + b_i) > 0` for
every label i. By Carver's theorem (Gordan's without biases), either such an x exists, or weights
:math:`\lambda \ge 0`, not all zero, with :math:`\sum_i \lambda_i s_i w_i = 0` and
:math:`\sum_i \lambda_i s_i b_i \le 0`; never both.

With biases, let M have the rows :math:`s_i (w_i, b_i)` and one more row (0, ..., 0, 1), for the
factor of the biases. Then either some z has :math:`M z > 0`, or there is a
:math:`\lambda \ge 0`, not all zero, with :math:`M' \lambda = 0`. Only signs matter, so every row
may be multiplied by a positive number: a row of floats becomes a row of integers, exactly.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from sklearn_xlc._csr import FloatArray, IntArray, row_blocks
from sklearn_xlc.geometry._validation import LinearLayer

# Number of weights multiplied with a float witness at a time.
BLOCK_ENTRIES = 2**20
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
MANTISSA_BITS = 53
# Exact elimination grows with the fourth power of the number of rows: 0.5 s at 64 of them.
MAX_EXACT_ROWS = 64
# Weights of a solver below one of these shares of the largest weight count as zero; the shares are
# tried one after another.
ZERO_SHARES = (1e-11, 1e-8, 1e-5)


class OutOfTimeError(Exception):
    """Raised if the deadline passes before a proof is complete."""


def check_deadline(deadline: float) -> None:
    """Raise OutOfTimeError if the monotonic clock has passed the deadline."""
    if time.monotonic() > deadline:
        raise OutOfTimeError


def integer_row(values: FloatArray) -> list[int]:
    """Scale a row by a power of two to integers, without rounding."""
    mantissas, exponents = np.frexp(values)
    integers = np.ldexp(mantissas, MANTISSA_BITS).astype(np.int64).tolist()
    used = exponents[values != 0]
    lowest = int(used.min()) if len(used) else 0
    return [
        value << (exponent - lowest) if value else 0
        for value, exponent in zip(integers, exponents.tolist())
    ]


def signed_rows(layer: LinearLayer, signs: FloatArray, labels: IntArray) -> Iterator[FloatArray]:
    """Yield the rows s_i (w_i, b_i) of labels; label n_labels means the row (0, ..., 0, 1)."""
    (n_labels, n_features), is_cone = layer.coef.shape, layer.is_cone
    for label in labels:
        if label == n_labels:
            yield np.append(np.zeros(n_features), 1.0)
        elif is_cone:
            yield signs[label] * layer.coef[label]
        else:
            yield signs[label] * np.append(layer.coef[label], layer.intercept[label])


def is_witness(
    layer: LinearLayer, signs: FloatArray, x: FloatArray, deadline: float = np.inf
) -> bool:
    """Prove s_i (w_i x + b_i) > 0 for every label and the given floats; return success.

    A label is decided in floats if its logit exceeds the largest possible rounding error, and in
    integers otherwise.
    """
    if not np.all(np.isfinite(x)):
        return False
    n_labels, n_features = layer.coef.shape
    unclear: list[int] = []
    with np.errstate(over="ignore", invalid="ignore"):
        for part in row_blocks(n_labels, n_features, BLOCK_ENTRIES):
            rows = layer.coef[part]
            biases = layer.intercept[part]
            logits, sizes = rows @ x + biases, np.abs(rows) @ np.abs(x) + np.abs(biases)
            # The error of a sum of m products is below m eps / 2 times the sum of their sizes, in
            # any order; the factor 4 covers the rounding of the bound, TINY covers underflow.
            noise = 2 * (n_features + 3) * (EPS * sizes + TINY)
            signed = signs[part] * logits
            if np.any(signed < -noise):
                return False
            unclear.extend((part.start + np.flatnonzero(~(signed > noise))).tolist())
    point = integer_row(x if layer.is_cone else np.append(x, 1.0))
    for row in signed_rows(layer, signs, np.array(unclear, dtype=np.int64)):
        check_deadline(deadline)
        if _dot(integer_row(row), point) <= 0:
            return False
    return True


def is_certificate(rows: list[list[int]], weights: list[int]) -> bool:
    """Return whether the weights are a certificate: no z is on the positive side of all rows."""
    if len(rows) != len(weights) or not any(weights) or min(weights) < 0:
        return False
    return all(_dot(column, weights) == 0 for column in zip(*rows))


def find_conflict(
    layer: LinearLayer, signs: FloatArray, weights: FloatArray, deadline: float = np.inf
) -> IntArray | None:
    """Prove a contradiction from approximate weights; return its labels, or None.

    `signs` are the wanted signs, +1 and -1. The result holds the sorted ids of the labels with a
    positive weight. After the deadline, by the monotonic clock, OutOfTimeError is raised.
    """
    largest = weights.max(initial=0.0)
    previous = -1
    for share in ZERO_SHARES:
        labels = np.flatnonzero(weights > share * largest)
        if not 0 < len(labels) <= layer.coef.shape[1] + 2 or len(labels) == previous:
            continue
        previous = len(labels)
        conflict = prove_conflict(layer, signs, labels, deadline)
        if conflict is not None:
            return conflict
    return None


def prove_conflict(
    layer: LinearLayer, signs: FloatArray, labels: IntArray, deadline: float = np.inf
) -> IntArray | None:
    """Prove a contradiction within some labels; return its labels, or None."""
    if not layer.is_cone:
        labels = np.append(labels, len(signs))
    rows = list(signed_rows(layer, signs, labels))
    if len(rows) > MAX_EXACT_ROWS:
        return labels[labels < len(signs)] if encloses_certificate(np.array(rows)) else None
    integers = [integer_row(row) for row in rows]
    weights = exact_certificate(integers, deadline)
    if weights is None or not is_certificate(integers, weights):
        return None
    used = labels[[weight > 0 for weight in weights]]
    return used[used < len(signs)]


def exact_certificate(rows: list[list[int]], deadline: float = np.inf) -> list[int] | None:
    """Find non-negative integer weights combining the rows to zero, or None.

    The result is None unless the rows have exactly one linear dependency, with weights of one sign.
    The method is fraction-free Gauss-Jordan elimination: all divisions are exact, and after each
    step all pivots are equal.
    """
    matrix = [list(column) for column in zip(*rows)]  # one equation per feature
    n_rows, previous, pivots = len(rows), 1, 0
    free: int | None = None
    for column in range(n_rows):
        pivot_row = next((i for i in range(pivots, len(matrix)) if matrix[i][column]), None)
        if pivot_row is None:
            if free is not None:
                return None
            free = column
            continue
        matrix[pivots], matrix[pivot_row] = matrix[pivot_row], matrix[pivots]
        _eliminate(matrix, pivots, column, previous, deadline)
        previous, pivots = matrix[pivots][column], pivots + 1
    if free is None:
        return None
    # pivot * weight + matrix[i][free] * weight_free = 0, with the common pivot as weight_free.
    weights = [-matrix[i][free] for i in range(pivots)]
    weights.insert(free, previous)
    if previous < 0:
        weights = [-weight for weight in weights]
    return weights if min(weights) >= 0 else None


def _eliminate(
    matrix: list[list[int]], pivots: int, column: int, previous: int, deadline: float
) -> None:
    """Eliminate a column from all equations except the pivot row."""
    base = matrix[pivots]
    pivot = base[column]
    for i, equation in enumerate(matrix):
        if i != pivots:
            check_deadline(deadline)
            factor = equation[column]
            matrix[i] = [(pivot * a - factor * b) // previous for a, b in zip(equation, base)]


def encloses_certificate(rows: FloatArray) -> bool:
    """Prove in floats a positive combination to zero of m + 1 rows of m entries; return success.

    For matrices too large for exact elimination. The last weight is 1 and the others solve
    B v = -r. With an approximate inverse R of B and an approximate solution u,
    ``||I - R B|| < 1`` proves that B is regular and that
    ``|v - u| <= ||R (B u + r)|| / (1 - ||I - R B||)``. The bound of every product includes its
    rounding error.
    """
    n_rows, width = rows.shape
    if n_rows != width + 1:
        return False
    exponents = np.frexp(np.abs(rows).max(axis=1))[1]
    scaled = np.ldexp(rows, -exponents[:, None])
    if not np.array_equal(np.ldexp(scaled, exponents[:, None]), rows):
        return False
    B, r = scaled[:-1].T, scaled[-1]
    try:
        R = np.linalg.inv(B)
    except np.linalg.LinAlgError:
        return False
    u = -R @ r
    noise = 4 * (width + 4)
    with np.errstate(over="ignore", invalid="ignore"):
        slack = noise * (EPS * (np.abs(R) @ np.abs(B) + np.eye(width)) + TINY)
        defect = np.abs(np.eye(width) - R @ B) + slack
        contraction = (1 + noise * EPS) * defect.sum(axis=1).max()
        residual = np.abs(B @ u + r)
        residual += noise * (EPS * (np.abs(B) @ np.abs(u) + np.abs(r)) + TINY)
        error = (1 + noise * EPS) * (np.abs(R) @ residual + noise * TINY).max()
        # 0.5 instead of 1 leaves room for the rounding of this line.
        return bool(contraction < 0.5 and u.min() > 2.01 * error)


def _dot(first: Any, second: Any) -> int:
    """Multiply two integer vectors exactly."""
    return sum(a * b for a, b in zip(first, second) if a and b)
