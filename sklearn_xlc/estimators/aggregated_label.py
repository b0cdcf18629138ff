"""AggregatedLabelClassifier: train any classifier on labels of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import RandomState
from scipy.sparse.csgraph import connected_components
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone, is_regressor
from sklearn.model_selection import GroupKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils import _safe_indexing, column_or_1d, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from sklearn_xlc._bounds import check_flag
from sklearn_xlc._carrying import states_now
from sklearn_xlc._checks import as_array, check_csr, is_indicator, refuse_no_values
from sklearn_xlc._compat import (
    N_JOBS,
    HasMethods,
    Interval,
    StrOptions,
    check_method_params,
    fit_context,
    is_number,
    routing_enabled,
)
from sklearn_xlc._config import get_config
from sklearn_xlc._csr import canonical, places_of
from sklearn_xlc._ids import warn_of_order, warn_of_weight_order
from sklearn_xlc._part import HasParts, refuse_unusable
from sklearn_xlc._tags import in_form, index_of, named_sets, warn_of_joined_tags
from sklearn_xlc._warn import warn
from sklearn_xlc.aggregation import (
    Aggregation,
    aggregation,
    assign_by_scores,
    group_log_likelihood,
)
from sklearn_xlc.decisions import Decision
from sklearn_xlc.engine import BaseXLCClassifier, PlainState
from sklearn_xlc.estimators.assignment_rounds import (
    Samples,
    assign_anew,
    candidates,
    cross_fitted_posterior,
    held_out_log_odds,
)
from sklearn_xlc.estimators.eagle import EAGLETransformer
from sklearn_xlc.estimators.group_risk import calibrated, decided, hold_out_groups
from sklearn_xlc.groups import Groups, check_groups, warn_of_group_order
from sklearn_xlc.metrics import (
    all_scores,
    beyond_others,
    check_weight,
    scores_of_ones,
    topk_scorer,
    unwrapped,
)

#: Rounds of probabilities with n_rounds="auto" at most, and the number of scores up to which it
#: tries them.
MAX_FITS, MAX_SCORES = 2, 2**31
#: One of so many parts of the groups is held out to choose, if there are groups enough.
N_PARTS, MIN_GROUPS = 4, 20
#: More parts are held out, one after the other, up to about this number of samples in total.
HELD_OUT = 2000
#: Scores that judge a classifier: those of the most frequent labels, if there are more.
MAX_JUDGED = 2**22
#: What replaces all labels for all samples must be better by so many standard errors: one of two
#: candidates that are no better is then taken once in twenty times.
SURE = 2.0
#: A label that more of the groups have is warned of: a share.
NEARLY_ALL = 0.99
#: Groups, below which chance may give a label to all of them.
FEW_GROUPS = 30
#: Attributes that belong to the training samples, and are not saved.
OF_TRAINING = ("assigner_", "assigned_", "posterior_")


def _checked_groups(X: Any, y: Any, groups: Any) -> Any:
    """Check groups, warn of their order, and number them: an assigner warns of names and index."""
    found = check_groups(groups, _num_samples(X))
    found.check_each_sample()
    warn_of_order(X, groups=groups)
    warn_of_group_order(groups, y)
    if groups is not None and found.group_of is not None:
        return found.group_of
    return groups if index_of(groups) is None else as_array(groups, "groups")


def _gets_sparse(estimator: Any, y: sp.csr_matrix, n_samples: int) -> bool:
    """Return whether a classifier gets labels of tags as they are: most read dense ones only."""
    reads_sparse = isinstance(unwrapped(estimator)[0], BaseXLCClassifier | OneVsRestClassifier)
    if reads_sparse or y.shape[1] == 1:  # a dense column would be one of classes
        return True
    n_rows = max(n_samples, y.shape[0])  # y may hold those of groups
    return n_rows * y.shape[1] * y.dtype.itemsize > get_config()["dense_limit"]


def _seed_of(estimator: Any) -> Any:
    """Return the outermost `random_state` of an estimator and its parts that is set, or None."""
    seeds = {
        name: value
        for name, value in getattr(estimator, "get_params", dict)().items()
        if name.rpartition("__")[2] == "random_state"
        # An EAGLETransformer takes no others, such as a Generator of NumPy.
        and (isinstance(value, RandomState) or is_number(value, Integral) and 0 <= value < 2**32)
    }
    return seeds[min(seeds, key=lambda name: name.count("__"))] if seeds else None


def _estimator_has(name: str) -> Any:
    """Make a method available only if the wrapped estimator has it."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class AggregatedLabelClassifier(PlainState, MetaEstimatorMixin, ClassifierMixin, HasParts):
    r"""Train any classifier on labels known for groups of samples only.

    A page has tags and its paragraphs have none; an order has categories and its items have none.
    First an assigner gives the labels of each group to some of its samples [1]_. Then the
    classifier is trained on the samples. It predicts labels of samples.

    Parameters
    ----------
    estimator : estimator
        Classifier of samples: any multi-label classifier; for a 1-D y, any multi-class classifier.
    assigner : estimator, default=None
        Estimator with the methods ``fit(X, y, groups)`` and ``assign(X, y, groups)``; `assign`
        returns a sparse indicator of the labels of the samples. Ids of groups come as integers, in
        the order of ``np.unique(groups)``. None: an
        :class:`~sklearn_xlc.EAGLETransformer` with the `random_state` of `estimator`, or else with
        the outermost one that is set in a part of it, such as a step of a pipeline.
    n_rounds : int or "auto", default="auto"
        Number of training rounds. From the second round on, classifiers trained on the other folds
        assign the labels of a group anew (`n_folds`). A round takes the time of ``n_folds - 1``
        fits.

        - A classifier with `predict_proba` is trained on *probabilities* of labels, given the
          labels of the group (see Notes). A flat :class:`MultiHeadClassifier` with the loss "auto"
          or "bce" reads them; any other classifier gets every sample four times, with labels drawn
          from them, at a quarter of its weight if `fit` takes `sample_weight`.
        - For any other classifier, a 1-D y, and counts of labels (``multiplicity="top"`` of the
          assigner), each label goes to the samples with the highest scores, as many as the assigner
          gave it to.
        - "auto": what explains the labels of held-out groups best (see Notes): all labels of the
          group for each of its samples, the assigned labels, or two rounds of probabilities. This
          takes the time of about seven fits, and of eighteen for up to 2000 samples; a fit on draws
          counts four times. The assigned labels without a choice for classifiers without scores,
          for counts of labels, for groups of one sample, for fewer than 20 groups, and for more
          than 2**31 samples times labels.
    n_folds : int, default=2
        Number of folds of the groups, for rounds after the first.
    n_jobs : int, default=None
        Number of joblib jobs for the classifiers of a round and the default assigner. The result
        does not depend on it, if each job has the same number of threads.
    decision : RiskControl or None, default=None
        Decision with a guarantee for groups, for label sets. It promises nothing for single
        samples. With ``RiskControl(alpha)`` the expected share of a new group's labels that are
        predicted for none of its samples is at most `alpha`, if groups are exchangeable. No label
        of a sample is needed. None: label sets as `estimator` predicts them.
    validation_fraction : float, default=0.1
        Fraction of the groups set apart for `decision`; nothing else is learnt from them.

    Attributes
    ----------
    estimator_ : estimator
        Classifier, fitted on the samples and `assigned_`; all that a saved file holds.
    assigner_ : estimator
        Fitted assigner.
    assigned_ : csr_matrix of shape (n_samples, n_labels)
        Labels of the training samples in the last round; samples have labels of their groups only.
        All of these where held-out groups do not say that assigning pays.
    posterior_ : csr_matrix of shape (n_samples, n_labels) or None
        Probabilities of labels of the training samples. `estimator_` was trained on them, or on
        draws from them. `assigned_` then holds the most probable labels, as many as the sum of the
        probabilities. None: `estimator_` was trained on `assigned_`.
    decision_ : RiskControl or None
        Decision calibrated on groups. `assigned_` and `posterior_` then hold the other samples.
    classes_ : ndarray of shape (n_labels,)
        Labels of `estimator_`.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (`n_features_in_`,)
        Number of columns of X, and their names, where X had names.

    See Also
    --------
    EAGLETransformer : The default assigner.
    MIMLClassifier : Trains on groups end to end, and predicts for groups.
    sklearn_xlc.metrics.aggregated_precision_at_k : Score when only groups have labels.

    Notes
    -----
    Samples without an assigned label stay in the training data. With a 1-D y the classifier needs
    one class per sample: samples without a class are left out, and samples with several classes
    (from several groups) are repeated once per class.

    To search over parameters of the assigner (``assigner__n_iter``), pass an `assigner`.

    Let :math:`q_i` be the probability of a label for sample i, by a classifier trained on other
    groups. Given that the group has the label, the probability is
    :math:`p_i = q_i / (1 - \prod_j (1 - q_j))` over the samples j of the group, a noisy-or.
    Classifiers know little about rare labels. With n training samples of the label, p is therefore
    averaged with the assigned label a: ``(n p + 20 a) / (n + 20)``.

    "auto" holds out a quarter of the groups, from the assigner, too; up to four quarters one after
    the other, while they are about two thousand samples. Classifiers trained on the other groups
    score the samples of these. Each is judged by the likelihood of the labels of the groups, a
    noisy-or of the scores (:func:`~sklearn_xlc.aggregation.group_log_likelihood`). "auto" takes the
    most likely of those that beat all labels for all samples by two standard errors over groups,
    or else all labels. In groups of samples that share most of their labels, or where X says little
    of the labels, often none does.

    A label that all groups have cannot be learnt from groups; `fit` warns of it.

    `groups` is metadata of `fit`: with metadata routing, ``set_fit_request(groups=True)`` lets
    pipelines and searches pass it on; without it a pipeline takes it as
    ``name_of_the_step__groups``.

    **Differences from the paper**

    - The method of [1]_ is ``assigner=EAGLETransformer(contrast=None)`` with one round. The default
      assigner, rounds after the first, and training on probabilities are additions; measurements
      are in docs/measurements.md.

    References
    ----------
    .. [1] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.multiclass import OneVsRestClassifier
    >>> from sklearn_xlc import AggregatedLabelClassifier
    >>> from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(200, 50, 5, random_state=0)
    >>> grouped, groups = make_aggregated(Y[:100], group_size=2, random_state=0)
    >>> clf = AggregatedLabelClassifier(OneVsRestClassifier(LogisticRegression()))
    >>> clf.fit(X[:100], grouped, groups=groups).predict(X[100:]).shape
    (100, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "assigner": [None, HasMethods(["fit", "assign"])],
        "n_rounds": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": N_JOBS,
        "decision": [None, Decision],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        estimator: Any,
        assigner: Any = None,
        *,
        n_rounds: int | str = "auto",
        n_folds: int = 2,
        n_jobs: int | None = None,
        decision: Any = None,
        validation_fraction: float = 0.1,
    ) -> None:
        self.estimator = estimator
        self.assigner = assigner
        self.n_rounds = n_rounds
        self.n_folds = n_folds
        self.n_jobs = n_jobs
        self.decision = decision
        self.validation_fraction = validation_fraction

    def _validate_params(self) -> None:
        """Raise if a parameter is not valid, or if the estimator cannot be a classifier."""
        super()._validate_params()
        given = self.estimator
        if isinstance(given, type):
            name = given.__name__
            raise TypeError(f"estimator={name} is a class: give an object, estimator={name}(...)")
        if hasattr(given, "__sklearn_tags__") and is_regressor(given):
            raise TypeError(f"estimator must be a classifier, and {given!r} is a regressor")

    # --- fit --------------------------------------------------------------------------------

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, groups: Any = None, **fit_params: Any) -> Any:
        """Assign the labels of groups to samples, and fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : {array-like, sparse matrix} of shape (n_samples, n_labels) or (n_groups, n_labels), or \
                array-like of shape (n_samples,)
            Labels of the groups, in one of two forms: row i holds the labels of sample i's group,
            or row j holds the labels of group j, in the order of ``np.unique(groups)`` or of the
            columns of a membership matrix. A 1-D y, or a dense column, holds one class label per
            row; pass a single binary label as a sparse column. Or tags of the rows, or a frame of
            indicators; the classifier then gets an indicator. For tags it is sparse, if the
            classifier is of this package or a :class:`~sklearn.multiclass.OneVsRestClassifier`, or
            a dense one would exceed the dense limit.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_groups), default=None
            Ids of the samples' groups, or a 0/1 membership matrix. None: every sample is a group.
        **fit_params : dict
            Parameters of the classifier's `fit`; a parameter with one value per sample is cut to
            the training samples.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If an argument is not valid; the message names the row. An earlier fit is then kept.
        """
        if routing_enabled():
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
        unread = {"n_folds": "with n_rounds=1"} if self.n_rounds == 1 else {}
        if self.decision is None:
            unread["validation_fraction"] = "with decision=None"
        refuse_unusable(self, unread)
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        given = y
        refuse_no_values(X, "X")
        warn_of_order(X, y)
        sets = named_sets(y, counts=True)
        if sets is not None:
            if not sets.is_frame:
                warn_of_joined_tags(sets.classes, in_lists=True)
            y = sets.indicator
            if sets.is_frame or not _gets_sparse(self.estimator, y, _num_samples(X)):
                y = y.toarray()
        if not is_indicator(y):
            y = column_or_1d(as_array(y, "y"), warn=True)
        groups = _checked_groups(X, given, groups)
        X, y, groups, fit_params, apart = self._set_apart(X, y, groups, fit_params)
        default = EAGLETransformer(n_jobs=self.n_jobs, random_state=_seed_of(self.estimator))
        # A copy also where it is the default, or its fit would draw from the estimator's seed.
        assigner = clone(default if self.assigner is None else self.assigner)
        assigned = sp.csr_matrix(assigner.fit(X, y, groups).assign(X, y, groups))
        samples = Samples(self.estimator, X, y, assigned, fit_params, self.n_jobs)
        samples.names = samples.classes if sets is None else sets.classes
        assigned, posterior = self._rounds(samples, y, groups, assigner, assigned)
        estimator = samples.fit(assigned if posterior is None else posterior)
        self.decision_ = None if apart is None else calibrated(estimator, *apart)
        self.assigner_, self.assigned_, self.estimator_ = assigner, assigned, estimator
        self.posterior_, self._is_dense = posterior, not samples.sparse
        self._form, self._type, self.classes_ = "", np.dtype(np.int8), samples.classes
        if sets is not None:
            self._form, self._type, self.classes_ = sets.form, sets.dtype, sets.classes
        elif hasattr(estimator, "classes_"):
            self.classes_ = estimator.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(assigner, name):
                setattr(self, name, getattr(assigner, name))
        return self

    def _set_apart(self, X: Any, y: Any, groups: Any, fit_params: Any) -> tuple[Any, ...]:
        """Return the samples to train on; and decision, X and groups set apart, or None."""
        if self.decision is None:
            return X, y, groups, fit_params, None
        decision = clone(self.decision)
        if not decision.needs_own_samples:
            raise ValueError(
                f"decision={decision!r} guarantees nothing for groups; use RiskControl, or set the "
                "decision of the estimator"
            )
        if not is_indicator(y):
            raise ValueError(f"decision={decision!r} needs label sets, and y holds class labels")
        found = check_groups(groups, _num_samples(X))
        labels = found.per_group(sp.csr_matrix(canonical(check_csr(y, "y"))), "y")
        decision.check_labels(labels)
        if getattr(decision, "risk", "miss") != "miss":
            raise ValueError(f"of groups only risk='miss' is controlled, got decision={decision!r}")
        decision.check_head(labels, link=None, n_features=0)
        held = hold_out_groups(found, labels, self.validation_fraction, decision)
        fit_params = dict(check_method_params(X, fit_params, held.others))
        y, groups = _of_samples(y, groups, found, held.others)
        apart = decision, _rows(X, held.samples), held
        return _rows(X, held.others), y, groups, fit_params, apart

    def _rounds(
        self, samples: Samples, y: Any, groups: Any, assigner: Any, assigned: sp.csr_matrix
    ) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
        """Return the labels of the samples after all rounds, and their probabilities or None.

        Each round after the first trains classifiers on the last round's labels or probabilities.
        """
        given, groups = groups, check_groups(groups, assigned.shape[0])
        if groups.sizes.max(initial=0) < 2:
            return assigned, None  # groups of one sample leave no choice
        data = aggregation(groups, groups.per_group(samples.indicator(y), "y"))
        _warn_of_labels_everywhere(data, samples.names)
        use_counts = getattr(assigner, "multiplicity", "ignore") == "top"
        is_soft = samples.takes_soft_labels or hasattr(self.estimator, "predict_proba")
        is_soft = is_soft and not (use_counts or samples.one_label)
        connected = _connected(groups.membership())
        if self.n_rounds != "auto":
            n_fits = int(self.n_rounds) - 1
        elif (
            use_counts
            or not (is_soft or hasattr(self.estimator, "decision_function"))
            or len(np.unique(connected[connected >= 0])) < max(MIN_GROUPS, self.n_folds)
            or np.prod(assigned.shape) > MAX_SCORES
        ):
            n_fits = 0
        else:
            best = self._choose(
                samples, data, y, given, assigner, connected, MAX_FITS if is_soft else 0
            )
            assigned = assigned if best else candidates(data).astype(np.int8)
            n_fits = MAX_FITS if best > 1 else 0
        if not n_fits:
            return assigned, None
        folds = list(self._folds(connected, self.n_folds))
        if not is_soft:
            for _ in range(n_fits):
                assigned = assign_anew(samples, data, assigned, folds, use_counts)
            return assigned, None
        posterior = cross_fitted_posterior(samples, data, assigned, folds, n_fits)
        totals = np.asarray(posterior.sum(axis=0)).ravel()
        return assign_by_scores(data, posterior, totals=totals), posterior

    def _choose(
        self,
        samples: Samples,
        data: Aggregation,
        y: Any,
        groups: Any,
        assigner: Any,
        connected: np.ndarray,
        n_fits: int,
    ) -> int:
        """Choose by held-out groups: 0 all labels of the group, 1 the assigned ones, 2 rounds.

        Whatever replaces all labels must explain the labels of these groups better by two standard
        errors: where groups do not tell, nothing is assigned.
        """
        n_samples, found, tested = len(connected), [], []
        n_parts = min(N_PARTS, max(1, N_PARTS * HELD_OUT // n_samples))
        frequent = np.argsort(-np.diff(data.labels.indptr), kind="stable")
        labels = np.sort(frequent[: max(1, MAX_JUDGED * N_PARTS // (n_parts * n_samples))])
        for train, test in islice(self._folds(connected, N_PARTS), n_parts):
            of_part = (_rows(samples.X, train), *_of_samples(y, groups, data.groups, train))
            start = sp.csr_matrix(clone(assigner).fit(*of_part).assign(*of_part))
            if start.shape[1] < data.n_labels:
                return 1  # the part lacks a class
            start.resize(len(train) + 1, data.n_labels)
            start = start[places_of(train, n_samples)]  # -1: the last row, which is empty
            inner = np.full(n_samples, -1)
            inner[train] = connected[train]
            folds = [(np.intersect1d(of, train), to) for of, to in self._folds(inner, self.n_folds)]
            found.append(
                held_out_log_odds(samples, data, start, folds, (train, test), labels, n_fits)
            )
            tested.append(test)
        judged, judges = replace(data, labels=data.labels[:, labels]), np.concatenate(tested)
        likelihood = np.array(
            [group_log_likelihood(judged, judges, of) for of in np.concatenate(found, axis=1)]
        )
        filled = data.groups.sizes > 0
        of_group = connected[data.groups.samples[data.groups.indptr[:-1][filled]]]
        gains = [np.bincount(of_group, gain[filled]) for gain in likelihood - likelihood[0]]
        total, error = np.sum(gains, axis=1), np.sqrt(np.square(gains).sum(axis=1))
        return int(np.where(total > SURE * error, total, 0).argmax())

    def _folds(
        self, connected: np.ndarray, n_folds: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Split the samples into training and test samples; connected groups stay whole."""
        members, others = np.flatnonzero(connected >= 0), np.flatnonzero(connected < 0)
        n_parts = len(np.unique(connected[members]))
        if n_parts < n_folds:
            raise ValueError(
                f"groups must be at least n_folds={n_folds} that share no sample, got "
                f"{n_parts}; use n_rounds=1"
            )
        for train, test in GroupKFold(n_folds).split(members, groups=connected[members]):
            yield np.sort(np.concatenate([members[train], others])), members[test]

    # --- prediction, by the classifier --------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Predict labels of samples with `estimator_`, and with `decision_` if there is one.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Class of each sample, or its labels, as an indicator or an array of tags. If `fit` saw
            tags or a frame and X is a frame or series of pandas, a series or frame with the index
            of X.
        """
        if getattr(self, "decision_", None) is not None:
            found = decided(self.decision_, self.estimator_, X)
            found = found.toarray() if self._is_dense and not self._form else found
        else:
            found = self._delegate("predict", X)
        if not self._form:
            return found
        return in_form(found, self.classes_, self._form, self._type, index_of(X))

    @_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Compute probabilities of every label with `estimator_`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Probability of each label.
        """
        check_is_fitted(self, "estimator_")
        return all_scores(self.estimator_, X, multilabel=True, proba=True)

    @_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Compute log probabilities of every label with `estimator_`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_labels)
            Logarithm of the probability of each label.
        """
        found = self._delegate("predict_log_proba", X)
        return scores_of_ones(found, self.estimator_, -np.inf)

    @_estimator_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Compute scores of every label with `estimator_`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_labels), or (n_samples,) for two classes
            Scores; the greater, the more likely the label.
        """
        found = self._delegate("decision_function", X)
        return beyond_others(found, unwrapped(self.estimator_)[0])

    @_estimator_has("predict_topk")
    @wraps(BaseXLCClassifier.predict_topk, ["__doc__"], [])
    def predict_topk(
        self, X: Any, k: int | None = 5, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        given = {"proba": True} if check_flag(proba, "proba") else {}
        labels, scores = self._delegate("predict_topk", X, k, **given)
        return self.classes_[labels] if self._form else labels, scores

    @_estimator_has("predict_topk_sparse")
    @wraps(BaseXLCClassifier.predict_topk_sparse, ["__doc__"], [])
    def predict_topk_sparse(self, X: Any, k: int | None = 5) -> sp.csr_matrix:
        return self._delegate("predict_topk_sparse", X, k)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the precision at 1 of label sets, or the accuracy of class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            True labels of the samples.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            Share of the samples whose best label is one of theirs.
        """
        check_is_fitted(self, "estimator_")
        sets = named_sets(y, needs_tags=False, as_tags=self._kind_of_tags == "i")
        if sets is None and not is_indicator(y):
            if sample_weight is not None:
                warn_of_weight_order(sample_weight, X, y)
                sample_weight = check_weight(sample_weight, _num_samples(y))
            return float(super().score(X, as_array(y, "y"), sample_weight))
        return topk_scorer("precision", 1)(self, X, y, sample_weight)

    @property
    def _kind_of_tags(self) -> str:
        """Kind of the type of the tags that `fit` saw; "" if it saw none. Scorers read y by it."""
        return self.classes_.dtype.kind if " of " in self._form else ""

    def _delegate(self, method: str, *arguments: Any, **params: Any) -> Any:
        check_is_fitted(self, "estimator_")
        return getattr(self.estimator_, method)(*arguments, **params)

    # --- scikit-learn protocols ---------------------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata requests of this classifier and of the wrapped one.

        Returns
        -------
        routing : MetadataRouter
            `groups` goes to this classifier; all other metadata of `fit` goes to `estimator`.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __getstate__(self) -> dict[str, Any]:
        decision = getattr(self, "decision_", None)
        if decision is not None and not getattr(unwrapped(self.estimator_)[0], "_is_rounded", True):
            states_now().tell(decision)  # other estimators have no weights that are rounded
        return {k: v for k, v in super().__getstate__().items() if k not in OF_TRAINING}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner, assigner = get_tags(self.estimator), get_tags(self.assigner or EAGLETransformer())
        tags.input_tags.sparse = inner.input_tags.sparse and assigner.input_tags.sparse
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        tags.target_tags.multi_output = inner.target_tags.multi_output
        return tags


def _warn_of_labels_everywhere(data: Aggregation, names: Any) -> None:
    """Warn of labels of nearly all groups."""
    n_groups = np.count_nonzero(data.groups.sizes)
    everywhere = np.flatnonzero(np.diff(data.labels.indptr) > NEARLY_ALL * n_groups)
    if len(everywhere) and n_groups >= FEW_GROUPS:
        some = ", ".join(str(names[label]) for label in everywhere[:5])
        warn(
            f"{len(everywhere)} of {data.n_labels} labels are in more than {NEARLY_ALL:.0%} of the "
            f"groups, which samples carry them cannot be learnt: {some}"
            f"{', ...' if len(everywhere) > 5 else ''}; use smaller groups, or leave them out"
        )


def _rows(values: Any, index: np.ndarray) -> Any:
    """Select rows of any container."""
    return _safe_indexing(values.tocsr() if sp.issparse(values) else values, index)


def _of_samples(y: Any, groups: Any, found: Groups, index: np.ndarray) -> tuple[Any, Any]:
    """Return y and groups of some samples: by sample if y has a row for each, else by group."""
    if found.is_per_sample(np.shape(y)[0], "y"):
        return _rows(y, index), None if groups is None else _rows(groups, index)
    membership = found.membership()[index]
    kept = np.flatnonzero(membership.sum(axis=0))
    return _rows(y, kept), membership[:, kept]


def _connected(membership: sp.csr_array) -> np.ndarray:
    """Return the index of each sample's component of connected groups; -1 without a group."""
    graph = sp.block_array([[None, membership], [membership.T, None]], format="csr")
    connected = connected_components(graph, directed=False)[1][: membership.shape[0]]
    return np.where(np.diff(membership.indptr) > 0, connected, -1)
