"""Neural collapse: distance of features, class means and classifier from the ideal geometry."""

from itertools import chain, combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import check_equal, check_numbers, check_seed
from sklearn_xlc._csr import FloatArray, IntArray, canonical, places_of, row_blocks
from sklearn_xlc._ids import compare_indexes
from sklearn_xlc._tags import index_of, named_sets
from sklearn_xlc.metrics._validation import (
    check_labels,
    check_weight,
    refuse_other_order,
    refuse_tags,
)

# Largest number of classes for a Gram matrix, which is exact even if it is nearly ideal.
_SMALL = 2048


def neural_collapse(
    features: Any,
    y: Any,
    weights: Any = None,
    *,
    max_pairs: int = 100_000,
    random_state: Any = 0,
) -> dict[str, Any]:
    r"""Compute measures of neural collapse; they are zero for collapsed features.

    Parameters
    ----------
    features : array-like of shape (n_samples, n_features)
        Inputs of the last layer: what ``transform`` returns, where no layer of the head reads it
        first. One of :class:`~sklearn_xlc.ETFNeuralCollapseClassifier` does, but for an encoder of
        your own with ``feature_dim=None``; :class:`~sklearn_xlc.training.CollapseMonitor` measures
        behind it.
    y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_labels)
        Integer class ids, or an indicator of 0 and 1; without `weights` also tags.
    weights : array-like of shape (n_labels, n_features), default=None
        Rows of the classifier, in the order of the label ids. None: `nc2_weights` and `nc3` are
        NaN.
    max_pairs : int, default=100_000
        Largest number of angles for `ncm`, and of label sets of m > 1 labels for `nc1m`. If there
        are more, `max_pairs` of them are drawn at random.
    random_state : int, RandomState instance or None, default=0
        Seed of the draws.

    Returns
    -------
    dict
        For the K classes with single-label samples, the mean features :math:`\mu_k` of these
        samples, and the mean :math:`\mu_G` of the class means:

        - ``"nc1"``, float: variability within classes,
          :math:`\mathrm{tr}(\Sigma_W \Sigma_B^+) / K`. :math:`\Sigma_W` averages over samples,
          :math:`\Sigma_B` over classes;
        - ``"nc2_means"``, float: distance of the centred means from a simplex,
          :math:`\big\| AA' / \|AA'\|_F - (I - 11'/K) / \sqrt{K-1} \big\|_F` with the rows
          :math:`\mu_k - \mu_G` in A;
        - ``"nc2_weights"``, float: the same with A = `weights`, for all labels;
        - ``"nc3"``, float: self-duality, the same with :math:`W A'` instead of :math:`AA'`, where
          W holds the weights of the K classes;
        - ``"ncm"``, dict from int to float: for every number m > 1 of labels, the mean angle
          between the mean features of a label set and the sum of its labels' class means, divided
          by the mean angle of all pairs of such means and sums. The paper plots ``ncm[2]``;
          multi-class data give an empty dict;
        - ``"nc1m"``, dict from int to float: variability within the label sets of m labels, for
          every number m of labels that occurs: `nc1` of the samples with m labels, with their label
          sets as classes; ``nc1m[1]`` is `nc1`. Only the leading directions of :math:`\Sigma_B`
          are inverted, one fewer than there are labels in the sets: this is the rank of collapsed
          means.

        A measure is NaN if it is not defined: if K < 2, if all means coincide, if no label set of m
        labels consists of the K classes, or if there is only one label set of m labels.

    Notes
    -----
    The measures are invariant to rotations of features and `weights` together, to scaling of
    features or `weights`, and to the order of samples. Angles are measured at the origin, without
    centring; vectors of norm zero, such as the sum over all labels of a simplex, are left out.
    Besides the arguments, only means are in memory: shape (K, n_features) for `nc1` to `nc3`, at
    most `max_pairs` means for `ncm` and `nc1m`. A matrix of shape (K, K) is formed only if it is
    small or no larger than the means.

    **Differences from the paper**

    - The measures follow the definitions, for any number of labels; the paper plots pairs. In
      `nc1m` the pseudo-inverse of all directions would also measure errors of the means, which do
      not vanish under collapse. Classes with unequal numbers of samples have the same weight in
      :math:`\mu_G`, so that a simplex of means stays a simplex.
    - The authors' code does not centre the means in `nc2_means`, which is then 0.32 for ten
      orthonormal means, although they are a simplex around their mean. It computes the global mean
      from a sum over some samples, divided by the number of all samples. And it accumulates the
      sums of a class in the position of the first feature of the class.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Section 4.
    .. [2] V. Papyan, X. Y. Han, D. L. Donoho. Prevalence of Neural Collapse during the Terminal
       Phase of Deep Learning Training. PNAS 117, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import simplex_etf
    >>> from sklearn_xlc.metrics import neural_collapse
    >>> W = simplex_etf(n_classes=4, n_features=6)
    >>> Y = np.vstack([np.eye(4, dtype=int), [[1, 1, 0, 0], [0, 1, 0, 1]]])
    >>> report = neural_collapse(Y @ W, Y, W)  # h = sum of w_k: collapsed
    >>> max(report["nc1"], report["nc2_means"], report["nc3"], report["ncm"][2]) < 1e-14
    True
    >>> rng = np.random.default_rng(0)
    >>> report = neural_collapse(rng.standard_normal((600, 6)), np.tile(Y, (100, 1)), W)
    >>> report["ncm"][2] > 0.9  # noise: no better than chance
    True
    """
    compare_indexes(index_of(y), index_of(features), "y", "features")
    features = check_numbers(features, "features", dtype=[np.float64, np.float32])
    max_pairs = check_integer(max_pairs, "max_pairs")
    rng = check_seed(random_state)
    if weights is not None:
        weights = check_numbers(weights, "weights", dtype=np.float64)
        refuse_tags(y, "y", "the rows of weights")
    sets = check_labels(y, "y", None if weights is None else len(weights))
    check_equal("rows", features=len(features), y=sets.shape[0])
    if weights is not None:
        check_equal("labels", weights=len(weights), y=sets.shape[1])
        check_equal("columns", weights=weights.shape[1], features=features.shape[1])

    sizes = np.diff(sets.indptr)
    rows = np.flatnonzero(sizes == 1)
    classes, groups = np.unique(sets.indices[sets.indptr[rows]], return_inverse=True)
    means = _group_means(features, rows, groups, len(classes))
    centred = means - means.mean(axis=0) if len(classes) else means
    several = [int(m) for m in np.unique(sizes[sizes > 1])]
    variability = {1: _variability(features, rows, groups, means)} if len(rows) else {}
    return {
        "nc1": variability.get(1, np.nan),
        "nc2_means": _distance_to_simplex(centred, centred),
        "nc2_weights": np.nan if weights is None else _distance_to_simplex(weights, weights),
        "nc3": np.nan if weights is None else _distance_to_simplex(weights[classes], centred),
        "ncm": {
            m: _tag_wise_angle(features, sets, m, classes, means, max_pairs, rng) for m in several
        },
        "nc1m": variability
        | {m: _variability_of_sets(features, sets, m, max_pairs, rng) for m in several},
    }


def soft_label_mass(y_true: Any, y_proba: Any, *, sample_weight: Any = None) -> float:
    """Compute the total probability of a sample's true labels, averaged over samples.

    The paper reports it as "test IoU". It needs no label sets, but does not measure their overlap:
    it can be near 1 although no sensible threshold finds the true labels. For the overlap use
    ``sklearn.metrics.jaccard_score(y_true, y_pred, average="samples")``, with dense or CSR label
    sets.

    Parameters
    ----------
    y_true : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples,)
        Indicator of the true labels, values 0 and 1, or integer class ids.
    y_proba : {array-like, sparse matrix} of shape (n_samples, n_labels)
        Probabilities, adding up to at most 1 for each sample (``np.exp`` of log probabilities). If
        some are missing, as in ``predict_topk_sparse``, the result is a lower bound.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the average; None weighs all samples alike.

    Returns
    -------
    float
        Mean mass, between 0 and 1. A sample without true labels counts as 0.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Table 2 and footnote 8.

    Examples
    --------
    >>> from sklearn_xlc.metrics import soft_label_mass
    >>> soft_label_mass([[1, 1, 0], [0, 0, 1]], [[0.5, 0.25, 0.25], [0.0, 0.25, 0.75]])
    0.75
    """
    for name, values in (("y_proba", y_proba), ("sample_weight", sample_weight)):
        compare_indexes(index_of(y_true), index_of(values), "y_true", name)
    refuse_tags(y_true, "y_true", "the columns of y_proba")
    sets = named_sets(y_true, name="y_true")
    if sets is not None:
        refuse_other_order(y_proba, sets, "y_proba")
    y_proba = check_numbers(y_proba, "y_proba", accept_sparse="csr", dtype=[np.float64, np.float32])
    proba = canonical(y_proba, keep_zeros=True)
    totals = np.asarray(proba.sum(axis=1, dtype=np.float64)).ravel()
    # In single precision, probabilities sum to 1 within a few ulps per label.
    least = proba.min(axis=1)
    least = least.toarray().ravel() if sp.issparse(least) else least
    wrong = np.flatnonzero((least < 0) | (totals > 1.001))
    if wrong.size:
        raise ValueError(
            "y_proba must hold probabilities that add up to at most 1 in each row, got sum "
            f"{totals[wrong[0]]:g} and minimum {least[wrong[0]]:g} in row {wrong[0]}"
        )
    true = check_labels(y_true if sets is None else sets, "y_true", proba.shape[1])
    check_equal("rows and columns", y_true=true.shape, y_proba=proba.shape)
    mass = np.asarray(true.astype(np.float64).multiply(proba).sum(axis=1)).ravel().clip(max=1)
    return float(np.average(mass, weights=check_weight(sample_weight, len(mass))))


def _group_means(
    features: npt.NDArray[Any], rows: IntArray, groups: IntArray, n_groups: int
) -> FloatArray:
    """Compute the mean features of every group of samples; no group is empty."""
    order = np.argsort(groups, kind="stable")
    rows, groups = rows[order], groups[order]
    sums = np.zeros((n_groups, features.shape[1]))
    for part in row_blocks(len(rows), features.shape[1]):
        # A block of rows sorted by group contains few, consecutive groups.
        first, last = groups[part][0], groups[part][-1]
        values = features[rows[part]].astype(np.float64)
        entries = (groups[part] - first, np.arange(len(values)))
        shape = (last - first + 1, len(values))
        sums[first : last + 1] += sp.csr_array((np.ones(len(values)), entries), shape) @ values
    return sums / np.bincount(groups, minlength=n_groups)[:, None]


def _variability(
    features: npt.NDArray[Any],
    rows: IntArray,
    groups: IntArray,
    means: FloatArray,
    rank: int | None = None,
) -> float:
    """Compute NC1 by the singular vectors of the centred means, without d x d covariances.

    Only the first `rank` singular vectors count; the others would measure errors of the means.
    """
    if len(means) < 2:
        return np.nan
    centred = means - means.mean(axis=0)
    if len(centred) > centred.shape[1]:  # the same singular values and directions, in less time
        centred = np.linalg.qr(centred, mode="r")
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    # Relative to the means before centring: small singular values may be their rounding errors.
    negligible = max(means.shape) * np.finfo(np.float64).eps * np.linalg.norm(means)
    kept = (sizes > negligible) & (np.arange(len(sizes)) < (rank or len(sizes)))
    if not kept.any():
        return np.nan
    # pinv(Sigma_B) = K V S^-2 V', so that the factor K cancels.
    directions = directions[kept] / sizes[kept, None]
    total = 0.0
    for part in row_blocks(len(rows), features.shape[1]):
        deviations = features[rows[part]] - means[groups[part]]
        total += np.square(deviations @ directions.T).sum()
    return float(total / len(rows))


def _sets_of_size(
    features: npt.NDArray[Any],
    sets: sp.csr_array,
    m: int,
    classes: IntArray,
    max_sets: int,
    rng: np.random.RandomState,
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return label sets of m of the classes, and their mean features; at most `max_sets`.

    First the rows of their samples, and the position of each row's set among the sets.
    """
    rows = np.flatnonzero(np.diff(sets.indptr) == m)
    labels = sets.indices[sets.indptr[rows][:, None] + np.arange(m)]
    found, groups = np.unique(labels, axis=0, return_inverse=True)
    kept = np.flatnonzero(np.isin(found, classes).all(axis=1))
    if len(kept) > max_sets:
        kept = np.sort(rng.permutation(kept)[:max_sets])
    groups = places_of(kept, len(found))[groups.reshape(-1)]
    rows, groups = rows[groups >= 0], groups[groups >= 0]
    return rows, groups, found[kept], _group_means(features, rows, groups, len(kept))


def _variability_of_sets(
    features: npt.NDArray[Any], sets: sp.csr_array, m: int, max_sets: int, rng: Any
) -> float:
    """Compute NC1 of the samples with m labels, with their label sets as classes."""
    labels = np.arange(sets.shape[1])
    rows, groups, found, means = _sets_of_size(features, sets, m, labels, max_sets, rng)
    return _variability(features, rows, groups, means, rank=len(np.unique(found)) - 1)


def _distance_to_simplex(left: FloatArray, right: FloatArray) -> float:
    """Compute the Frobenius distance of left right' from a centred identity, both of norm 1."""
    n_classes, n_features = left.shape
    if n_classes < 2:
        return np.nan
    if n_classes <= max(_SMALL, n_features + 1):
        gram = left @ right.T
        norm = np.linalg.norm(gram)
        ideal = (np.eye(n_classes) - 1 / n_classes) / np.sqrt(n_classes - 1)
        return float(np.linalg.norm(gram / norm - ideal)) if norm > 0 else np.nan
    # Fewer features than classes: traces of d x d matrices. This form cancels for distances near
    # zero; the low rank rules them out.
    norm = np.sqrt(max(float(np.vdot(left.T @ left, right.T @ right)), 0.0))
    if norm == 0:
        return np.nan
    inner = np.vdot(left, right) - left.sum(axis=0) @ right.sum(axis=0) / n_classes
    return float(np.sqrt(max(2 - 2 * inner / (norm * np.sqrt(n_classes - 1)), 0.0)))


def _tag_wise_angle(
    features: npt.NDArray[Any],
    sets: sp.csr_array,
    m: int,
    classes: IntArray,
    means: FloatArray,
    max_pairs: int,
    rng: np.random.RandomState,
) -> float:
    """Compute NC_m for one number m of labels."""
    _, _, found, set_means = _sets_of_size(features, sets, m, classes, max_pairs, rng)
    if not len(found):
        return np.nan
    # Norms within the rounding of the features count as zero.
    negligible = 100 * np.finfo(features.dtype).eps * np.linalg.norm(means, axis=1).max()
    own_subsets = np.searchsorted(classes, found)
    own = _mean_angle(set_means, np.arange(len(found)), means, own_subsets, negligible)
    n_sums = comb(len(classes), m)
    if len(found) * n_sums <= max_pairs:
        subsets = np.fromiter(chain.from_iterable(combinations(range(len(classes)), m)), np.int64)
        chosen = np.repeat(np.arange(len(found)), n_sums)
        subsets = np.tile(subsets.reshape(-1, m), (len(found), 1))
    else:
        chosen = rng.randint(len(found), size=max_pairs)
        subsets = _random_subsets(len(classes), m, max_pairs, rng)
    overall = _mean_angle(set_means, chosen, means, subsets, negligible)
    return own / overall if overall > 0 else np.nan


def _random_subsets(
    n_items: int, size: int, n_subsets: int, rng: np.random.RandomState
) -> IntArray:
    """Draw random subsets, one per row, all equally likely (Floyd's algorithm)."""
    subsets = np.empty((n_subsets, size), dtype=np.int64)
    for column, largest in enumerate(range(n_items - size, n_items)):
        drawn = rng.randint(largest + 1, size=n_subsets)
        taken = (subsets[:, :column] == drawn[:, None]).any(axis=1)
        subsets[:, column] = np.where(taken, largest, drawn)
    return subsets


def _mean_angle(
    set_means: FloatArray,
    chosen: IntArray,
    means: FloatArray,
    subsets: IntArray,
    negligible: float,
) -> float:
    """Compute the mean angle over pairs of a label-set mean and a sum of class means."""
    total, count = 0.0, 0
    for part in row_blocks(len(chosen), means.shape[1] * (subsets.shape[1] + 3)):
        first, second = set_means[chosen[part]], means[subsets[part]].sum(axis=1)
        norms = np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1)
        defined = (norms[0] > negligible) & (norms[1] > negligible)
        first = first[defined] / norms[0][defined, None]
        second = second[defined] / norms[1][defined, None]
        # Accurate for small angles, where the arc cosine would lose half of the digits.
        difference = np.linalg.norm(first - second, axis=1)
        total += 2 * np.arctan2(difference, np.linalg.norm(first + second, axis=1)).sum()
        count += len(first)
    return float(total / count) if count else np.nan
