"""Exact confidence interval for the share of future label sets in reach of an output layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._bounds import check_real
from sklearn_xlc._checks import as_array, check_indicator
from sklearn_xlc._csr import BoolArray
from sklearn_xlc._tags import aligned, check_type_of_labels
from sklearn_xlc.geometry._argmaxability import interval_of_share, verify_argmaxable
from sklearn_xlc.geometry._validation import check_assignments, named_assignments


@dataclass(frozen=True)
class Reachability:
    """Interval of :func:`certify_reachability`.

    Attributes
    ----------
    lower_, upper_ : float
        Confidence limits of the share of argmaxable label sets in the population.
    n_argmaxable_, n_unargmaxable_, n_unknown_ : int
        Numbers of the given label sets by answer; their sum is the number of sets. Sets with new
        labels are among those that are not argmaxable.
    n_new_ : int
        Number of sets with a label that the model does not have.
    confidence : float
        Confidence of the interval.
    """

    lower_: float
    upper_: float
    n_argmaxable_: int
    n_unargmaxable_: int
    n_unknown_: int
    n_new_: int
    confidence: float


def certify_reachability(
    model: Any,
    Y: Any,
    confidence: float = 0.95,
    *,
    intercept: Any = None,
    time_limit: float = 10.0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Reachability:
    r"""Bound the share of future label sets in reach of an output layer.

    A label set that is not argmaxable (see :func:`verify_argmaxable`) is predicted for no input.
    The share of argmaxable sets in a population is estimated from a sample of its label sets, with
    an exact confidence interval. The upper limit also bounds the exact-set accuracy of a decision
    that predicts the labels with a positive logit, whatever the encoder and its training.

    Parameters
    ----------
    model : fitted estimator, torch module or array-like of shape (n_labels, n_features)
        A :class:`~sklearn_xlc.DFTSigmoidClassifier` or a
        :class:`~sklearn_xlc.MultiHeadClassifier` with the head "flat", fitted on label sets; or
        `coef` of :func:`verify_argmaxable`.
    Y : {array-like, sparse matrix, dataframe} of shape (n_sets, n_labels), or sequence
        Label sets: an indicator, or tags if the model has `classes_`. They must be drawn
        independently from the population, and not be used in `fit`. Equal sets are decided once,
        and each counts.
    confidence : float, default=0.95
        Probability over draws of `Y` that the interval holds the share; at least.
    intercept : float or array-like of shape (n_labels,), default=None
        Biases, for weights given as an array.
    time_limit : float, default=10.0
        Time limit per label set in seconds; after it the set is unknown.
    n_jobs : int, default=None
        Number of label sets decided in parallel.
    verbose : int, default=0
        If above 0, print progress to standard error.

    Returns
    -------
    Reachability
        Limits and counts.

    Raises
    ------
    ValueError
        If the model predicts one class per sample, or its labels share a softmax; if `Y` has no
        set, or does not fit the labels of the model.

    See Also
    --------
    verify_argmaxable : Answers for single label sets.
    ArgmaxabilityReport.population_interval : The same interval of any report, such as one of
        :meth:`DFTSigmoidClassifier.verify <sklearn_xlc.DFTSigmoidClassifier.verify>`, which uses
        the threshold in use.

    Notes
    -----
    With a argmaxable and u unknown sets among n, the limits are those of Clopper and Pearson [1]_:
    the lower limit of a successes in n trials, and the upper limit of a + u. Either limit alone has
    a confidence of :math:`(1 + confidence) / 2`.

    A set with a tag that is none of `classes_` is not argmaxable.

    *Output layer only.* "Argmaxable" means that some input of the layer gives the set; the encoder
    may be unable to compute it. So the share of the whole network has the same upper limit, but not
    the lower. Nothing is said of other thresholds, of a smallest number of labels, or of a ranker:
    "boosted" changes the order of the scores, and can predict sets that the layer cannot.

    *Real numbers.* Sets with a tiny region count as argmaxable (see `min_radius` of
    :func:`verify_argmaxable`). Ties do not count: the upper limit is about samples without a logit
    of exactly zero.

    References
    ----------
    .. [1] C. J. Clopper, E. S. Pearson. The Use of Confidence or Fiducial Limits Illustrated in
       the Case of the Binomial. Biometrika 26(4), 1934.

    Examples
    --------
    Three labels on two features: all sets but the empty and the full one are argmaxable.

    >>> import numpy as np
    >>> from sklearn_xlc.geometry import certify_reachability
    >>> W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    >>> Y = np.random.default_rng(0).integers(2, size=(200, 3))
    >>> found = certify_reachability(W, Y)
    >>> found.n_argmaxable_, found.n_unargmaxable_, found.n_unknown_
    (136, 64, 0)
    >>> round(found.lower_, 3), round(found.upper_, 3)
    (0.611, 0.744)
    """
    confidence = check_real(confidence, "confidence", 0, 1, closed=False)
    _refuse_one_class(model)
    sets, new = _read_sets(model, Y)
    if not sets.shape[0]:
        raise ValueError("Y must hold at least one label set, got none")
    report = verify_argmaxable(
        model, sets[~new], intercept, time_limit=time_limit, n_jobs=n_jobs, verbose=verbose
    )
    n_new = int(new.sum())
    proven, unknown = report.n_argmaxable, report.n_unknown
    limits = interval_of_share(proven, proven + unknown, len(new), confidence)
    return Reachability(*limits, proven, report.n_unargmaxable + n_new, unknown, n_new, confidence)


def _refuse_one_class(model: Any) -> None:
    """Raise ValueError for classifiers without an independent logit per label."""
    name = type(model).__name__
    head = getattr(getattr(getattr(model, "net_", None), "module_", None), "head", None)
    if not (_reads_label_sets(model) if head is None else head.multilabel):
        raise ValueError(
            f"certify_reachability reads classifiers of label sets, but the {name} was fitted on "
            "class labels (1-D y)"
        )
    if getattr(head, "link", None) in ("softmax", "exp"):
        raise ValueError(
            f"the labels of the {name} share a softmax, so that the sign of a logit decides "
            "nothing; use a loss with one sigmoid per label, such as loss='bce'"
        )


def _reads_label_sets(model: Any) -> bool:
    """Return whether the rows of a layer, or of a scikit-learn classifier, are labels."""
    binarizer = getattr(model, "label_binarizer_", getattr(model, "_label_binarizer", None))
    if binarizer is not None:
        return str(binarizer.y_type_).startswith("multilabel")
    # Other classifiers with coef_ have one row for each of more than two classes.
    return not hasattr(model, "coef_") or np.size(getattr(model, "classes_", ())) <= 2


def _read_sets(model: Any, Y: Any) -> tuple[sp.csr_array, BoolArray]:
    """Return an indicator of the labels of the model, and a mask of the sets with other labels."""
    named = named_assignments(model, Y, known=False)
    if named is not None:
        known = np.asarray(model.classes_).tolist()
        check_type_of_labels(named, known, "Y")
        indicator, _ = aligned(named, known)
        sets = check_indicator(indicator, "Y")
        new = np.diff(sets[:, len(known) :].indptr) > 0
        return sets[:, : len(known)], new
    if not sp.issparse(Y) and as_array(Y, "Y").ndim != 2:
        raise ValueError(
            "Y must be an indicator of shape (n_sets, n_labels), or tags of each sample; got shape "
            f"{np.shape(Y)}"
        )
    sets = check_assignments(Y, "Y")
    return sets, np.zeros(sets.shape[0], dtype=bool)
