"""Label sets of a rule that bounds the number of labels of a sample.

Such a rule predicts the labels above a cut, but at least and at most so many of the best ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import FloatArray
from sklearn_xlc.geometry._argmaxability import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.geometry._validation import check_assignments

#: Kinds of sizes beside "the smallest", "both" and "the largest", which are -1, 0 and 1.
_BETWEEN, _IMPOSSIBLE = 2, 3


def verify_by_size(
    Y: Any,
    n_labels: int,
    least: int,
    most: int,
    verify: Callable[[sp.csr_array, int | None], ArgmaxabilityReport],
) -> ArgmaxabilityReport:
    """Verify label sets of each kind of size by `verify(sets, side)`, and join the answers.

    `side`: as in :func:`verify_at_cut`; None for sizes between the limits, where the cut alone
    decides. Sets of other sizes are not argmaxable. The cut is one for all labels, if there are
    limits: otherwise the best labels and those above their cuts would not be nested.
    """
    Y = check_assignments(Y, "Y", n_labels)
    sizes = np.diff(Y.indptr)
    is_least, is_most = (sizes == least) & (least > 0), (sizes == most) & (most < n_labels)
    kinds = np.where(is_least | is_most, is_most.astype(int) - is_least, _BETWEEN)
    kinds[(sizes < least) | (sizes > most)] = _IMPOSSIBLE
    like = verify(Y[kinds == _BETWEEN], None)
    if (kinds == _BETWEEN).all():
        return like
    parts = {kind: verify(Y[kinds == kind], kind) for kind in (-1, 0, 1) if kind in kinds}
    parts[_BETWEEN] = like
    status, radius = np.zeros(len(kinds), dtype=like.status.dtype), np.zeros(len(kinds))
    witness = np.full((len(kinds), like.witness.shape[1]), np.nan)
    reason = np.full(len(kinds), "number of labels", dtype="<U16")
    # Not all labels of a set that is too large are predicted, nor are all others of one too small.
    conflicts: list[Any] = [
        np.arange(n_labels) if size < least else np.sort(Y.indices[start : start + size])
        for size, start in zip(sizes, Y.indptr)
    ]
    for kind, part in parts.items():
        rows = np.flatnonzero(kinds == kind)
        status[rows], radius[rows], reason[rows] = part.status, part.radius, part.reason
        witness[rows] = part.witness
        for row, conflict in zip(rows, part.conflicts):
            conflicts[row] = conflict
    n_active = sizes.astype(np.int64)
    return ArgmaxabilityReport(
        status, radius, witness, reason, conflicts, n_active, n_labels, like.min_radius
    )


def verify_at_cut(
    coef: FloatArray,
    Y: sp.csr_array,
    intercept: Any,
    cut: Any,
    side: int | None,
    *,
    points: FloatArray | None = None,
    nonnegative: Any = False,
    **options: Any,
) -> ArgmaxabilityReport:
    """Decide for label sets whether they can be the labels above a cut, or the best labels.

    `side`: None: labels above the cut. Otherwise all sets have one size, -1: labels of the set may
    be below the cut, as all others are; 1: others may be above it, as all labels of the set are;
    0: no label needs the cut. Some threshold then lies between the set and the other labels, on one
    side of the cut: a feature more, and a label that is always active.
    """
    n_labels, n_features = coef.shape
    intercept = np.broadcast_to(np.asarray(intercept, dtype=np.float64), n_labels)
    options |= {"nonnegative": nonnegative, "points": points}
    if side is None:
        return verify_argmaxable(coef, Y, intercept - cut, **options)
    if points is not None:
        k = int(Y.indptr[1]) if Y.shape[0] else 0
        between = between_best(points @ coef.T + intercept, k, cut, side)
        options["points"] = np.column_stack([points, between])
    coef = np.column_stack([coef, np.full(n_labels, -1.0)])
    if side:
        coef = np.vstack([coef, np.append(np.zeros(n_features), side)])
        intercept = np.append(intercept, -side * cut)
        ones = sp.csr_array(np.ones((Y.shape[0], 1), dtype=Y.dtype))
        Y = sp.hstack([Y, ones], format="csr")
    options["nonnegative"] = np.append(np.broadcast_to(nonnegative, n_features), False)
    report = verify_argmaxable(coef, Y, intercept, **options)
    return replace(
        report,
        witness=report.witness[:, :-1],
        conflicts=[None if of is None else of[of < n_labels] for of in report.conflicts],
        n_active=np.diff(Y[:, :n_labels].indptr).astype(np.int64),
        n_labels=n_labels,
    )


def between_best(scores: FloatArray, k: int, cut: float, side: int) -> FloatArray:
    """Return a threshold between the k best labels of each sample and the others, (n_samples,).

    It is on the `side` of the cut if there is one that is.
    """
    ordered = -np.sort(-scores, axis=1)
    high = ordered[:, k - 1] if k else ordered[:, 0] + 1
    low = ordered[:, k] if k < scores.shape[1] else high - 1
    if side < 0:
        high = np.where(low < cut, np.minimum(high, cut), high)
    if side > 0:
        low = np.where(high > cut, np.maximum(low, cut), low)
    between: FloatArray = low + (high - low) / 2
    return between
