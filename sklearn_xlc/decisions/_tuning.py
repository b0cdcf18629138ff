"""Search for cuts of scores with the best value of a criterion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp

#: Steps after which Dinkelbach's iteration, which converges in a few, is stopped.
MAX_STEPS = 50
Curve = tuple[float, np.ndarray]


def best_cut(
    criterion: str, scores: np.ndarray, labels: np.ndarray, hits: np.ndarray, Y: sp.csr_matrix
) -> float:
    """Find the best cut for a key of :data:`CRITERIA`; all candidates above it are predicted.

    `scores`, `labels` and `hits` (whether labels are true) are (n_samples, n_candidates), Y is the
    indicator (n_samples, n_labels). The cut is halfway between two scores.
    """
    order, ranked, below = _in_order(scores)
    if criterion == "macro_f1":
        groups, n_true = labels.ravel()[order], np.bincount(Y.indices, minlength=Y.shape[1])
    else:
        groups, n_true = order // labels.shape[1], np.diff(Y.indptr)
    before, after = CRITERIA[criterion](groups, hits.ravel()[order], n_true)
    after[ranked == below] = -1.0
    best = int(np.argmax(after))
    if before > after[best]:  # nothing at all is best
        return float(ranked[0])
    return float((ranked[best] + below[best]) / 2)


def cut_reaching(
    criterion: str, at_least: float, scores: np.ndarray, hits: np.ndarray, n_true: int
) -> tuple[float, float]:
    """Find the cut for a given precision, or recall, of all candidates above it.

    For a precision it is the smallest such cut, for a recall the largest. If no cut reaches it, it
    is the cut with the best value.

    Parameters
    ----------
    criterion : {"precision", "recall"}
        Value to reach.
    at_least : float
        Least value.
    scores, hits : ndarray of shape (n_samples, n_candidates)
        Scores, and whether the labels are true.
    n_true : int
        Number of true labels.

    Returns
    -------
    cut, value : float
        Cut, halfway between two scores, and the value that it reaches.
    """
    order, ranked, below = _in_order(scores)
    found = np.cumsum(hits.ravel()[order])
    values = FLOORS[criterion](found, np.arange(1, len(order) + 1), np.int64(n_true))
    apart = np.flatnonzero(ranked != below)
    if not values.any():  # no candidate is true: predict none
        return float(ranked[0]), 0.0
    reaching = apart[values[apart] >= min(at_least, values[apart].max())]
    chosen = reaching[-1 if criterion == "precision" else 0]
    return float((ranked[chosen] + below[chosen]) / 2), float(values[chosen])


def _in_order(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the candidates, best first, with their scores and those of the next ones."""
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked = scores.ravel()[order].astype(np.float64)
    return order, ranked, np.append(ranked[1:], ranked[-1] - 1.0)


def _f1(hits: np.ndarray, taken: np.ndarray, n_true: np.ndarray) -> np.ndarray:
    return 2 * hits / np.maximum(taken + n_true, 1)


def _exact(hits: np.ndarray, taken: np.ndarray, n_true: np.ndarray) -> np.ndarray:
    return ((hits == taken) & (hits == n_true)).astype(np.float64)


def _precision(hits: np.ndarray, taken: np.ndarray, n_true: np.ndarray) -> np.ndarray:
    return hits / np.maximum(taken, 1)


def _recall(hits: np.ndarray, taken: np.ndarray, n_true: np.ndarray) -> np.ndarray:
    return hits / np.maximum(n_true, 1)


def _f1_at_k(samples: np.ndarray, hits: np.ndarray, n_true: np.ndarray) -> Curve:
    """Compute the harmonic mean of mean precision and mean recall of the k best candidates."""
    precision = _mean_curve(_precision, samples, hits, n_true)[1]
    recall = _mean_curve(_recall, samples, hits, n_true)[1]
    return 0.0, 2 * precision * recall / np.maximum(precision + recall, 1e-300)


def _mean_curve(
    value: Callable[..., np.ndarray], groups: np.ndarray, hits: np.ndarray, n_true: np.ndarray
) -> Curve:
    """Average a function of (hits, taken, n_true) over groups, before and after each candidate."""
    found, taken = _running(groups, hits)
    own = n_true[groups]
    change = value(found, taken, own) - value(found - hits, taken - 1, own)
    zero = np.zeros(len(n_true), dtype=np.int64)
    before = float(value(zero, zero, n_true).sum())
    return before / len(n_true), (before + np.cumsum(change)) / len(n_true)


def _running(groups: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the hits and candidates of each candidate's group up to and with it."""
    by_group = np.argsort(groups, kind="stable")
    is_first = np.diff(groups[by_group], prepend=-1) != 0
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(groups)), 0))
    total = np.cumsum(hits[by_group])
    found, taken = np.empty(len(groups), dtype=np.int64), np.empty(len(groups), dtype=np.int64)
    found[by_group] = total - (total[starts] - hits[by_group][starts])
    taken[by_group] = np.arange(len(groups)) - starts + 1
    return found, taken


#: Criteria from the label or sample of each candidate, best first, whether the candidates are true,
#: and the numbers of true labels of each label or sample: before the first candidate, after each.
CRITERIA: dict[str, Callable[..., Curve]] = {
    "micro_f1": lambda groups, hits, n_true: (
        0.0,
        2 * np.cumsum(hits) / (np.arange(1, len(hits) + 1) + n_true.sum()),
    ),
    "macro_f1": partial(_mean_curve, _f1),
    "example_f1": partial(_mean_curve, _f1),
    "subset_accuracy": partial(_mean_curve, _exact),
    "f1_at_k": _f1_at_k,
}

#: Criteria with a least value, over all (sample, label) decisions together.
FLOORS: dict[str, Callable[..., np.ndarray]] = {
    "precision": _precision,
    "recall": _recall,
}


def best_cuts_per_label(
    criterion: str, scores: np.ndarray, labels: np.ndarray, hits: np.ndarray, Y: sp.csr_matrix
) -> np.ndarray:
    r"""Find one cut per label (n_labels,) for "micro_f1" or "macro_f1"; see :func:`best_cut`.

    The mean F1 of the labels is a sum over labels, so each cut is found separately. The F1 of all
    decisions is not. But with F its maximum, the best cut of each label maximises
    ``2 hits - F taken``, and Dinkelbach's iteration converges to F [1]_. A label without a true
    candidate gets the best cut common to all labels, or its highest score if that is larger.

    References
    ----------
    .. [1] W. Dinkelbach. On Nonlinear Fractional Programming. Management Science 13, 1967.
    """
    cuts = np.full(Y.shape[1], best_cut("micro_f1", scores, labels, hits, Y))
    order = np.lexsort((-scores.ravel(), labels.ravel()))
    label, score = labels.ravel()[order], scores.ravel()[order].astype(np.float64)
    hit = hits.ravel()[order]
    found, taken = _running(label, hit)
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    is_last = np.append(np.diff(label) != 0, True)
    below = np.where(is_last, score - 1.0, np.append(score[1:], 0.0))
    tied = (score == below) & ~is_last
    n_true = np.bincount(Y.indices, minlength=Y.shape[1])

    def choose(gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the last candidate to predict of each label, and whether to predict any."""
        gain = np.where(tied, -np.inf, gain)
        best = np.maximum.reduceat(gain, starts)
        is_best = gain == np.repeat(best, np.diff(np.append(starts, len(gain))))
        last = np.where(is_best, np.arange(len(gain)), len(gain))
        return np.minimum.reduceat(last, starts), best > 0

    if criterion == "macro_f1":
        last, better = choose(_f1(found, taken, n_true[label]))
    else:
        reached = 0.0
        for _ in range(MAX_STEPS):
            last, better = choose(2.0 * found - reached * taken)
            hits_taken, n_taken = found[last[better]].sum(), taken[last[better]].sum()
            value = 2 * hits_taken / max(1, n_taken + Y.nnz)
            if value <= reached:
                break
            reached = value
    owner = label[starts]
    cuts[owner] = np.maximum(cuts[owner], score[starts])
    cuts[owner[better]] = (score[last] + below[last])[better] / 2
    return cuts
