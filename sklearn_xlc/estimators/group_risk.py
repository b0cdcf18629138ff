"""Guarantees for groups: a decision calibrated on held-out groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from sklearn_xlc._csr import canonical, places_of, row_blocks
from sklearn_xlc.groups import Groups
from sklearn_xlc.inspection import predict_topk

#: Scores in memory at once.
BLOCK = 2**22
#: Seed of the order of groups: which are held out depends on their number alone.
SEED = 0


class HeldOutGroups(NamedTuple):
    """Samples of held-out groups, and of all others.

    `group`: the group of each sample in `samples`, a row of `labels`.
    """

    samples: np.ndarray
    group: np.ndarray
    labels: sp.csr_matrix
    others: np.ndarray


def hold_out_groups(groups: Groups, labels: Any, fraction: float, decision: Any) -> HeldOutGroups:
    """Set groups apart for a decision.

    `labels` has a row for each group. Samples without a group are among the others.
    """
    membership = groups.membership()
    n_of = np.diff(membership.indptr)
    if (n_of > 1).any():
        raise ValueError(
            f"row {int(n_of.argmax())} is in {n_of.max()} groups: {decision!r} needs groups that "
            "share no sample"
        )
    used = np.flatnonzero(groups.sizes)
    n_own = int(np.ceil(fraction * len(used)))
    if n_own >= len(used):
        raise ValueError(
            f"validation_fraction={fraction} leaves no group to train on: there are {len(used)}"
        )
    decision.check_samples(n_own)
    chosen = np.sort(np.random.RandomState(SEED).permutation(used)[:n_own])
    of_sample = np.full(len(n_of), -1)
    of_sample[n_of > 0] = places_of(chosen, len(groups.sizes))[membership.indices]
    samples = np.flatnonzero(of_sample >= 0)
    Y = canonical(sp.csr_matrix(labels)[chosen] > 0)
    others = np.flatnonzero(of_sample < 0)
    return HeldOutGroups(samples, of_sample[samples], sp.csr_matrix(Y, dtype=np.int8), others)


def calibrated(estimator: Any, decision: Any, X: Any, held: HeldOutGroups) -> Any:
    """Fit a decision to held-out groups, by the lists of their samples `X`."""
    n_labels = held.labels.shape[1]
    k = decision.n_candidates(n_labels) or n_labels
    scores, labels = map(np.concatenate, zip(*best_labels(estimator, X, n_labels, k)))
    # No group says that each of its samples has a label: sets may be empty.
    sizes = np.zeros(1, dtype=np.int64)
    return decision.fit(
        scores, held.labels, labels=labels, groups=held.group, sizes=sizes, link=None
    )


def decided(decision: Any, estimator: Any, X: Any) -> sp.csr_matrix:
    """Return the label sets of samples."""
    lists = best_labels(estimator, X, decision.n_labels_, decision.k_)
    return sp.vstack([decision.decode(*of_block) for of_block in lists], "csr")


def best_labels(
    estimator: Any, X: Any, n_labels: int, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield scores and ids of the best k labels of samples, block by block, by any classifier."""
    X = X.tocsr() if sp.issparse(X) else X
    parts = row_blocks(_num_samples(X), n_labels, BLOCK)
    for part in parts if len(parts) > 1 else [None]:  # a single block is X as it came
        block = X if part is None else _safe_indexing(X, np.arange(part.start, part.stop))
        labels, scores = predict_topk(estimator, block, min(k, n_labels))
        yield scores, labels.astype(np.int64)
