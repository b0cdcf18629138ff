"""Label propensities, and propensity-scored metrics: rare labels have more weight."""

from collections import UserDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from sklearn_xlc._bounds import check_flag, check_real
from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import as_array, check_equal, check_numbers
from sklearn_xlc._csr import FloatArray
from sklearn_xlc._ids import by_label
from sklearn_xlc._ranking import rank_stored
from sklearn_xlc._tags import index_of, named_sets
from sklearn_xlc.metrics._ranking import discounts, ideal_gain, safe_divide
from sklearn_xlc.metrics._validation import Ranking, check_labels, check_ranking, sets_beside


def propensities(Y_train: Any, a: float = 0.55, b: float = 1.5) -> Any:
    r"""Estimate label propensities from label frequencies: P(annotated | true label).

    .. math:: p_l = \frac{1}{1 + C e^{-a \log(N_l + b)}}, \qquad C = (\log N - 1)(b + 1)^a

    with N training samples, :math:`N_l` of them with label l. Compute propensities from all
    *training* labels, and use the same propensities for every test set and every fold.

    Parameters
    ----------
    Y_train : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_samples,)
        Indicator of the training labels, values 0 and 1, integer class ids, a frame of labels, or
        tags.
    a : float, default=0.55
        Steepness, above 0. Usual values: 0.5 for Wikipedia (Wikipedia-500K, WikiLSHTC-325K), 0.6
        for Amazon (Amazon-670K, Amazon-3M), 0.55 for other data sets (EURLex, Delicious, ...).
    b : float, default=1.5
        Offset of the counts, above 0. Usual values: 0.4 for Wikipedia, 2.6 for Amazon, 1.5 for
        other data sets.

    Returns
    -------
    ndarray of shape (n_labels,), or mapping
        Propensities between 0 and 1, smaller for rarer labels. Some other tools return the inverse.
        For tags and frames with named columns a mapping from names, with a value also for unseen
        labels.

    Raises
    ------
    ValueError, TypeError
        If `Y_train` is not an indicator or has fewer than 3 rows (the model needs log N > 1), or
        `a` or `b` is not a positive number.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import propensities
    >>> propensities(np.array([[1, 0], [1, 0], [1, 1], [1, 0]])).round(3)
    array([0.8  , 0.721])
    """
    check_real(a, "a", 0, closed=False)
    check_real(b, "b", 0, closed=False)
    sets = named_sets(Y_train, name="Y_train")
    labels = check_labels(Y_train if sets is None else sets.indicator, "Y_train")
    n_samples, n_labels = labels.shape
    if n_samples < 3:
        raise ValueError(f"Y_train must have at least 3 rows, got {n_samples}")
    counts = np.bincount(labels.indices, minlength=n_labels)
    with np.errstate(over="ignore"):
        scale = (np.log(n_samples) - 1) * np.float64(b + 1.0) ** float(a)
    if not np.isfinite(scale):
        raise ValueError(f"a={a} and b={b} are too large: (b + 1) ** a overflows")
    if sets is None or (sets.is_frame and sets.classes.tolist() == list(range(n_labels))):
        return 1 / (1 + scale * np.exp(-a * np.log(counts + float(b))))
    values = 1 / (1 + scale * np.exp(-a * np.log(np.append(counts, 0) + float(b))))
    named = zip(sets.classes.tolist(), values.tolist())
    return LabelPropensities(named, float(values[-1]))


def psp_at_k(
    y_true: Any,
    y_pred: Any,
    k: int = 5,
    *,
    propensities: Any,
    normalize: bool = True,
    sample_weight: Any = None,
) -> float:
    """Compute precision at k, with hits weighted by inverse propensity (PSP@k).

    As in the literature, the sum over all samples is divided by the sum for the best ranking, with
    the rarest true labels first. A mean of ratios per sample would give different numbers. Samples
    without true labels add nothing to either sum.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    propensities : array-like of shape (n_labels,), or mapping
        Propensity of each label, above 0 and at most 1, from :func:`propensities`. For tags and
        classes that are strings a mapping from their names, or a series with them as its index; for
        a frame also an array in the order of its columns; otherwise also a mapping from columns or
        class ids, all from 0 on.
    normalize : bool, default=True
        Whether to divide by the best possible value. If False, return the mean over samples of
        ``1/k * sum(1 / p_l)`` over the hits: an unbiased estimate of the precision under complete
        annotations, possibly above 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the sums; None weighs all samples alike.

    Returns
    -------
    float
        Propensity-scored precision at k. It is between 0 and 1 if normalised, and 0 if no sample
        has true labels.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import psp_at_k
    >>> y_true = np.array([[1, 0, 1], [0, 1, 0]])
    >>> y_pred = np.array([[0], [1]])  # gains 2 + 2, the best possible is 4 + 2
    >>> psp_at_k(y_true, y_pred, k=1, propensities=[0.5, 0.5, 0.25])
    0.666...
    """
    ranking, inverse = _with_propensities(y_true, y_pred, k, sample_weight, propensities)
    gains, best = _gains(ranking, inverse)
    return _reported(
        ranking, gains.sum(axis=1) / ranking.k, best.sum(axis=1) / ranking.k, normalize
    )


def psndcg_at_k(
    y_true: Any,
    y_pred: Any,
    k: int = 5,
    *,
    propensities: Any,
    normalize: bool = True,
    sample_weight: Any = None,
) -> float:
    """Compute nDCG at k, with hits weighted by inverse propensity (PSnDCG@k).

    The discounted gain of a sample, ``sum(1 / (p_l log2(r + 1)))``, is divided by the gain of an
    unweighted ideal ranking, ``sum(1 / log2(r + 1))`` over its first
    ``min(k, number of true labels)`` ranks. As in the literature, the sum over all samples is then
    divided by the sum for the best ranking, with the rarest true labels first. Samples without true
    labels add nothing to either sum.

    Parameters
    ----------
    y_true, y_pred : {array-like, sparse matrix} of shape (n_samples, n_labels), or others
        True labels, and scores or ranked labels, as in :func:`precision_at_k`.
    k : int, default=5
        Number of predictions evaluated per sample.
    propensities : array-like of shape (n_labels,), or mapping
        Propensity of each label, as in :func:`psp_at_k`.
    normalize : bool, default=True
        Whether to divide by the best possible value. If False, return the mean over samples,
        possibly above 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample in the sums; None weighs all samples alike.

    Returns
    -------
    float
        Propensity-scored nDCG at k. It is between 0 and 1 if normalised, and 0 if no sample has
        true labels.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.metrics import psndcg_at_k
    >>> y_true = np.array([[1, 0, 1], [0, 1, 0]])
    >>> psndcg_at_k(y_true, np.array([[2, 0], [1, 0]]), k=2, propensities=[0.5, 0.5, 0.25])
    1.0
    """
    ranking, inverse = _with_propensities(y_true, y_pred, k, sample_weight, propensities)
    discount, norm = discounts(ranking.top.shape[1]), ideal_gain(ranking)
    value, best = (
        safe_divide((gains * discount).sum(axis=1), norm) for gains in _gains(ranking, inverse)
    )
    return _reported(ranking, value, best, normalize)


def _with_propensities(
    y_true: Any, y_pred: Any, k: Any, sample_weight: Any, propensities: Any
) -> tuple[Ranking, FloatArray]:
    """Validate the arguments; return the ranking and the inverse propensity of each label."""
    sets, _ = sets_beside(y_true, y_pred, "y_true")
    y_true = y_true if sets is None else sets._replace(names=index_of(y_true))
    named = by_label(propensities, "propensities", () if sets is None else sets.classes)
    is_named = isinstance(named, Mapping)
    if is_named and sets is None and set(named) == set(range(len(named))):
        named, is_named = of_labels(named, range(len(named))), False  # columns, or class ids
    if not is_named:
        if sets is not None and not sets.is_frame:
            raise TypeError(
                "y_true holds tags, which have no order: give propensities by name, such as those "
                "of propensities(Y_train) of tags"
            )
        inverse = _check_propensities(named)
        ranking = check_ranking(y_true, y_pred, k, sample_weight, n_labels=inverse.size)
        return ranking, inverse
    ranking = check_ranking(y_true, y_pred, k, sample_weight)
    if ranking.classes is None:
        raise TypeError(
            "propensities by name need labels with names: y_true must hold tags, or be a frame; "
            "the names of columns and class ids are 0, 1, 2 and so on"
        )
    return ranking, _check_propensities(of_labels(named, ranking.classes.tolist()))


def for_names(propensities: Any, names: list[Any], n_known: int, are_classes: bool) -> Any:
    """Return propensities in the order of names, the first `n_known` of which `fit` has seen.

    Arrays of columns stay as they are; one of classes has a value for each that is known, or else
    for each class id.
    """
    known = names[:n_known]
    given = by_label(propensities, "propensities", known)
    if isinstance(given, Mapping):
        return np.array(of_labels(given, names))
    if not are_classes or np.ndim(given) != 1:
        return given
    values = as_array(given, "propensities").tolist()
    are_ids = len(values) != n_known and all(
        isinstance(name, int) and 0 <= name < len(values) for name in known
    )
    if not are_ids:
        check_equal("labels", propensities=len(values), classes_=n_known)
    return np.array(of_labels(dict(enumerate(values) if are_ids else zip(known, values)), names))


def of_labels(propensities: Mapping[Any, float], classes: Any) -> list[float]:
    """Look up the propensities of labels by name."""
    try:
        return [propensities[label] for label in classes]
    except KeyError as error:
        raise ValueError(
            f"propensities have no value for the label {error.args[0]!r}; compute them by "
            "propensities(Y_train) from tags, which has one for labels never seen, too"
        ) from None


@carried
class LabelPropensities(UserDict[Any, float]):
    """Propensities by name; a label without training samples has the propensity `unseen`."""

    def __init__(self, values: Any, unseen: float) -> None:
        super().__init__(values)
        self.unseen = unseen

    def __missing__(self, label: Any) -> float:
        return self.unseen


def _check_propensities(values: Any) -> FloatArray:
    """Validate propensities; return their inverses, float64."""
    values = as_array(values, "propensities")
    if values.ndim != 1:
        raise ValueError(f"propensities must have shape (n_labels,), got shape {values.shape}")
    values = check_numbers(values, "propensities", ensure_2d=False, dtype=np.float64)
    wrong = np.flatnonzero(~((values > 0) & (values <= 1)))
    if wrong.size:
        hint = "; values above 1 look like inverse propensities" if values[wrong[0]] > 1 else ""
        raise ValueError(
            "propensities must be above 0 and at most 1, "
            f"got {values[wrong[0]]} for label {wrong[0]}{hint}"
        )
    return 1 / values


def _gains(ranking: Ranking, inverse: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the inverse propensities at each rank of the prediction and of the best ranking."""
    check_equal("labels", propensities=inverse.size, y_true=ranking.true.shape[1])
    stored = inverse[ranking.true.indices]
    best = rank_stored(stored, ranking.true.indptr, ranking.top.shape[1])
    return np.where(ranking.hits, inverse[ranking.top], 0), np.append(stored, 0)[best]


def _reported(ranking: Ranking, values: FloatArray, best: FloatArray, normalize: bool) -> float:
    """Return the ratio of the sums over all samples, or the plain mean."""
    value = ranking.mean(values)
    if not check_flag(normalize, "normalize"):
        return value
    ceiling = ranking.mean(best)
    # Gains summed in another order may exceed the ceiling by a rounding error.
    return min(value / ceiling, 1.0) if ceiling > 0 else 0.0
