"""Predict with scikit-learn's boosted trees by NumPy, without OpenMP.

In a forked child of a process with several threads OpenMP hangs, and its call costs more than the
trees of a single sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_expit
from sklearn.ensemble import HistGradientBoostingClassifier

from sklearn_xlc._csr import BLOCK_ENTRIES, row_blocks
from sklearn_xlc.ranking.base import Array

#: Largest number of leaves of a tree: bits of an integer.
_MOST_LEAVES = 64


#: Values from which on they are searched together.
_TOGETHER = 1000
#: Share of the false pairs that trees learn from, and how many are all kept.
FALSE_SHARE, _FALSE_PAIRS = 1 / 3, 10_000
#: Share of the chances that all false pairs have alike.
_ANY = 0.25
#: Rounds to find chances of a given sum.
_ROUNDS = 20
#: Largest number of distinct values of a number that scikit-learn's trees keep apart.
_BINS = 255


def in_bins(numbers: Array) -> Array:
    """Replace values by the means of bins with equally many values, as scikit-learn's trees do.

    From more than 255 distinct values of a column with weights scikit-learn computes weighted
    percentiles, which takes longer than the trees.
    """
    binned = numbers.astype(np.float64)
    for column in binned.T:
        if len(np.unique(column)) > _BINS:
            ranks = np.linspace(0, 1, _BINS + 1)[1:-1]
            cuts = np.unique(np.quantile(column, ranks, method="inverted_cdf"))
            bins = np.searchsorted(cuts, column)
            sizes = np.bincount(bins, minlength=1)
            column[:] = (np.bincount(bins, column) / np.maximum(sizes, 1))[bins]
    return binned


def sampled_pairs(truth: Array, numbers: Array) -> tuple[Array, Array]:
    """Return positions of pairs to learn trees from, and how many pairs each stands for.

    All true pairs, and a third of the false ones, or 10 000 if that is more. The likelier a pair is
    by the network (its first number), the better its chance, and the fewer pairs it stands for
    [1]_. Systematic sampling takes a pair where the sum of chances passes an integer.

    References
    ----------
    .. [1] D. G. Horvitz, D. J. Thompson. A Generalization of Sampling Without Replacement from a
       Finite Universe. Journal of the American Statistical Association 47, 1952.
    """
    false = np.flatnonzero(~truth)
    n_wanted = max(FALSE_SHARE * len(false), _FALSE_PAIRS)
    if n_wanted >= len(false):
        return np.arange(len(truth)), np.ones(len(truth))
    likely = log_expit(numbers[false, 0].astype(np.float64))
    with np.errstate(invalid="ignore"):
        likely = np.exp(likely - likely.max())
        likely = np.nan_to_num(likely / likely.mean(), nan=1.0)  # where no score is finite
    chance = wanted = _ANY + (1 - _ANY) * likely
    for _ in range(_ROUNDS):  # no chance is above one: the others rise until the sum is right
        wanted *= n_wanted / chance.sum()
        chance = np.minimum(1.0, wanted)
    taken = np.diff(np.floor(np.cumsum(chance)), prepend=0.0) > 0
    stands_for = np.ones(len(truth))
    stands_for[false] = np.where(taken, 1 / chance, 0.0)
    kept = np.flatnonzero(stands_for)
    return kept, stands_for[kept]


def compiled(estimator: Any) -> dict[str, Any] | None:
    """Return the fitted trees of two classes as arrays for :func:`raw_scores`.

    None for another classifier, and if a tree has more than 64 leaves or splits categories. A tree
    is a set of leaves, one bit each. A number above the threshold of a split excludes the leaves on
    its left, another number those on its right. For each interval between thresholds a table holds
    the leaves of all trees that a number there excludes none of; the bit that is set in the tables
    of all numbers is the leaf of a sample [1]_.

    References
    ----------
    .. [1] C. Lucchese, F. M. Nardini, S. Orlando, R. Perego, N. Tonellotto, R. Venturini.
       QuickScorer: A Fast Algorithm to Rank Documents with Additive Ensembles of Regression Trees.
       SIGIR 2015.
    """
    if not isinstance(estimator, HistGradientBoostingClassifier):
        return None
    trees = [predictors[0].nodes for predictors in estimator._predictors]
    n_leaves = [int(nodes["is_leaf"].sum()) for nodes in trees]
    if max(n_leaves) > _MOST_LEAVES or any(nodes["is_categorical"].any() for nodes in trees):
        return None
    splits = [_splits(nodes) for nodes in trees]
    bits = next(bits for bits in (16, 32, 64) if max(n_leaves) <= bits)
    leaves = np.zeros((len(trees), max(n_leaves)))
    for tree, (_, values) in enumerate(splits):
        leaves[tree, : len(values)] = values
    thresholds, masks = [], []
    for number in range(estimator.n_features_in_):
        of_number = [
            (threshold, tree, left, right)
            for tree, (inner, _) in enumerate(splits)
            for feature, threshold, left, right in inner
            if feature == number
        ]
        cuts = np.unique([split[0] for split in of_number])
        table = np.empty((len(cuts) + 1, len(trees)), dtype=f"u{bits // 8}")
        table[:] = [(1 << n) - 1 for n in n_leaves]
        for threshold, tree, left, right in of_number:
            above = int(np.searchsorted(cuts, threshold)) + 1
            table[:above, tree] &= table.dtype.type((1 << bits) - 1 - right)
            table[above:, tree] &= table.dtype.type((1 << bits) - 1 - left)
        thresholds.append(cuts)
        masks.append(table)
    return {
        "thresholds": thresholds,
        "masks": masks,
        "leaves": leaves,
        "baseline": float(np.ravel(estimator._baseline_prediction)[0]),
    }


def _splits(nodes: Array) -> tuple[list[tuple[int, float, int, int]], list[float]]:
    """Return (number, threshold, leaves on the left, on the right) of splits, values of leaves."""
    inner: list[tuple[int, float, int, int]] = []
    values: list[float] = []

    def leaves_below(position: int) -> int:
        node = nodes[position]
        if node["is_leaf"]:
            values.append(float(node["value"]))
            return 1 << (len(values) - 1)
        left, right = leaves_below(int(node["left"])), leaves_below(int(node["right"]))
        inner.append((int(node["feature_idx"]), float(node["num_threshold"]), left, right))
        return left | right

    leaves_below(0)
    return inner, values


def raw_scores(trees: dict[str, Any], numbers: Array) -> Array:
    """Return log odds, (n_pairs,), of finite numbers; equal to the estimator's up to rounding."""
    leaves, masks, n_numbers = trees["leaves"], trees["masks"], numbers.shape[1]
    if len(numbers) and n_numbers != len(masks):
        raise ValueError(
            f"the trees of the ranker know {len(masks)} numbers of a label, and its retrievers "
            f"give {n_numbers}; fit again, or recalibrate"
        )
    n_trees, n_leaves = leaves.shape
    values, starts = leaves.ravel(), np.arange(n_trees) * n_leaves
    scores = np.empty(len(numbers))
    used = [column for column, cuts in enumerate(trees["thresholds"]) if len(cuts)] or [0]
    blocks = row_blocks(len(numbers), n_trees, BLOCK_ENTRIES // 8)
    shape = max((part.stop - part.start for part in blocks), default=0), n_trees
    # `take` into arrays that exist, without checks, takes a third of the time of an index.
    arrays = [np.empty(shape, kind) for kind in (masks[0].dtype, masks[0].dtype, np.intp, "f8")]
    for part in blocks:
        reached, mask, leaf, found = (each[: part.stop - part.start] for each in arrays)
        reached[:] = -1 % (1 << 8 * reached.itemsize)
        for column in used:
            given = numbers[part, column].astype(np.float64)
            interval = n_below(trees["thresholds"][column], given)
            np.take(masks[column], interval, axis=0, out=mask, mode="clip")
            reached &= mask
        np.subtract(reached, 1, out=reached)
        np.add(np.bitwise_count(reached), starts, out=leaf)
        np.take(values, leaf, out=found, mode="clip")
        scores[part] = found.sum(axis=1) + trees["baseline"]
    return scores


def n_below(cuts: Array, values: Array) -> Array:
    """Return how many cuts are below each value, as :func:`numpy.searchsorted` does.

    Many values are searched together, without branches that a processor would mispredict, in half
    of the time.
    """
    if len(values) < _TOGETHER:
        return np.searchsorted(cuts, values)
    size = 1 << len(cuts).bit_length()
    padded = np.full(size - 1, np.inf)
    padded[: len(cuts)] = cuts
    found = np.zeros(len(values), dtype=np.intp)
    while size > 1:
        size //= 2
        found += size * (values > padded.take(found + (size - 1), mode="clip"))
    return found


def check_trees(trees: Any) -> None:
    """Raise ValueError unless arrays fit together as the result of :func:`compiled` does."""
    leaves, masks, thresholds = (trees.get(key) for key in ("leaves", "masks", "thresholds"))
    fits = _is_finite(leaves, 2) and leaves.shape[1] <= _MOST_LEAVES and leaves.size > 0
    fits = fits and np.abs(leaves).sum() < np.finfo(np.float32).max
    fits = fits and type(trees.get("baseline")) is float and np.isfinite(trees["baseline"])
    fits = fits and isinstance(masks, list) and isinstance(thresholds, list) and len(masks) > 0
    if not fits or len(masks) != len(thresholds) or not all(_is_finite(c, 1) for c in thresholds):
        raise ValueError("the trees of a saved ranker do not fit together")
    for cuts, mask in zip(thresholds, masks):
        shape, kinds = (len(cuts) + 1, len(leaves)), {masks[0].dtype, getattr(mask, "dtype", None)}
        if len(kinds) > 1 or mask.shape != shape or mask.dtype not in ("u2", "u4", "u8"):
            raise ValueError(
                f"the trees of a saved ranker have masks of another shape than {shape}"
            )


def _is_finite(values: Any, n_axes: int) -> bool:
    """Return whether a value is an array of finite numbers, float64."""
    is_array = isinstance(values, np.ndarray) and values.ndim == n_axes
    return is_array and values.dtype == np.float64 and bool(np.isfinite(values).all())
