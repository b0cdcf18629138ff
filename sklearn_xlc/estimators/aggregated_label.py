"""AggregatedLabelClassifier: train any classifier on labels known for groups only."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import GroupKFold
from sklearn.utils import _safe_indexing, column_or_1d, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import is_indicator, warn_unread
from sklearn_xlc._compat import (
    HasMethods,
    Interval,
    _check_method_params,
    _fit_context,
    _routing_enabled,
)
from sklearn_xlc._csr import canonical, joined_ranges, one_per_row, row_blocks, row_numbers
from sklearn_xlc.aggregation import Aggregation, aggregation, assign_by_scores
from sklearn_xlc.estimators.eagle import EAGLETransformer
from sklearn_xlc.groups import check_groups
from sklearn_xlc.metrics._scorer import all_scores

#: Number of scores held at once while labels are assigned again.
BLOCK = 2**24


def _estimator_has(name: str) -> Any:
    """Whether the wrapped estimator offers a method."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class AggregatedLabelClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Train any classifier on labels known for groups of samples only.

    A page has tags and its paragraphs have none; an order has categories and its items have none.
    First an assigner decides which samples of a group carry which labels of the group [1]_. Then
    the classifier is trained on the samples with their assigned labels. It predicts the labels of
    samples.

    Parameters
    ----------
    estimator : estimator
        Classifier of samples: any multi-label classifier; for a 1-D y, any multi-class classifier.
    assigner : estimator, default=None
        Estimator with the methods ``fit(X, y, groups)`` and ``assign(X, y, groups)``; the latter
        returns a sparse indicator of the labels of the samples. None: an
        :class:`~sklearn_xlc.EAGLETransformer`.
    n_rounds : int, default=1
        Number of training rounds. Before each round after the first, every label of a group is
        assigned again, to the samples that a classifier scores highest. Classifiers score only
        groups that they were not trained on (`n_folds`), so that they do not confirm their own
        training labels. Each label keeps the number of samples that the assigner gave it.
    n_folds : int, default=2
        Number of folds of the groups, if `n_rounds` is above 1.

    Attributes
    ----------
    estimator_ : estimator
        Classifier, fitted on the samples and `assigned_`.
    assigner_ : estimator
        Fitted assigner.
    assigned_ : csr_matrix of shape (n_samples, n_labels)
        Labels of the training samples in the last round; samples have labels of their groups only.
    classes_ : ndarray of shape (n_labels,)
        Labels of `estimator_`.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where X had names.

    See Also
    --------
    EAGLETransformer : The default assigner.
    MIMLClassifier : Trains on groups end to end, and predicts for groups.
    sklearn_xlc.metrics.aggregated_precision_at_k : Score when only groups have labels.

    Notes
    -----
    Samples that get no label stay in the training data, as samples without labels. With a 1-D y the
    classifier needs one class per sample: samples without a class are left out, and a sample of
    several groups that gets several classes is repeated once per class.

    To search over parameters of the assigner (``assigner__n_iter``), pass an `assigner`.

    A saved classifier holds `estimator_`, with which it predicts. `assigner_` and `assigned_`
    belong to the training samples and are not saved.

    `groups` is metadata of `fit`. With ``sklearn.set_config(enable_metadata_routing=True)`` and
    ``set_fit_request(groups=True)`` pipelines and searches pass it on; without metadata routing a
    pipeline takes it as ``name_of_the_step__groups``.

    **Differences from the paper**

    - The method of [1]_ is ``assigner=EAGLETransformer(contrast=None)`` with one round. The default
      assigner, and rounds after the first, are additions.

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
    >>> X, Y = make_extreme_multilabel(600, 200, 10, random_state=0)
    >>> grouped, groups = make_aggregated(Y[:400], group_size=4, random_state=0)
    >>> clf = AggregatedLabelClassifier(OneVsRestClassifier(LogisticRegression(C=100)))
    >>> clf.fit(X[:400], grouped, groups=groups).predict(X[400:]).shape
    (200, 10)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "assigner": [None, HasMethods(["fit", "assign"])],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
    }

    def __init__(
        self, estimator: Any, assigner: Any = None, *, n_rounds: int = 1, n_folds: int = 2
    ) -> None:
        self.estimator = estimator
        self.assigner = assigner
        self.n_rounds = n_rounds
        self.n_folds = n_folds

    # --- fit --------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=False)
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
            row; pass a single binary label as a sparse column.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_groups), default=None
            Ids of the samples' groups, or a 0/1 membership matrix. None: every sample is a group.
        **fit_params : dict
            Parameters of the classifier's `fit`; a parameter with one value per sample is cut to
            the samples that the classifier is trained on.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If an argument is not valid; the message names the row. An earlier fit is then kept.
        """
        if _routing_enabled():
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
        if self.n_rounds == 1:
            warn_unread(self, {"n_folds": "with n_rounds=1"})
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        if not is_indicator(y):
            y = column_or_1d(y, warn=True)
        assigner = EAGLETransformer() if self.assigner is None else clone(self.assigner)
        assigned = sp.csr_matrix(assigner.fit(X, y, groups).assign(X, y, groups))
        samples = _Samples(X, y, assigned, fit_params)
        for _ in range(1, self.n_rounds):
            assigned = self._assign_anew(samples, y, groups, assigner, assigned)
        estimator = samples.fit(self.estimator, assigned)
        self.assigner_, self.assigned_, self.estimator_ = assigner, assigned, estimator
        self.classes_ = getattr(estimator, "classes_", samples.classes)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(assigner, name):
                setattr(self, name, getattr(assigner, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    def _assign_anew(
        self, samples: _Samples, y: Any, groups: Any, assigner: Any, assigned: sp.csr_matrix
    ) -> sp.csr_matrix:
        """Assign labels by the scores of classifiers that have not seen the group."""
        groups = check_groups(groups, assigned.shape[0])
        if groups.sizes.max(initial=0) < 2:
            return assigned  # groups of one sample leave no choice
        data = aggregation(groups, groups.per_group(samples.indicator(y), "y"))
        scores = _candidates(data)
        for train, test in self._folds(groups.membership()):
            estimator = samples.fit(self.estimator, assigned[train], train)
            samples.score_pairs(estimator, scores, test, assigned, assigned[train])
        counted = getattr(assigner, "multiplicity", "ignore") == "top"
        totals = None if counted else np.asarray(assigned.sum(axis=0)).ravel()
        return assign_by_scores(data, scores, use_counts=counted, totals=totals)

    def _folds(self, membership: sp.csr_array) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Split the samples into training and test samples; connected groups stay whole."""
        graph = sp.block_array([[None, membership], [membership.T, None]], format="csr")
        in_group = np.diff(membership.indptr) > 0
        members, others = np.flatnonzero(in_group), np.flatnonzero(~in_group)
        connected = connected_components(graph, directed=False)[1][members]
        n_parts = len(np.unique(connected))
        if n_parts < self.n_folds:
            raise ValueError(
                f"groups must be at least n_folds={self.n_folds} that share no sample, got "
                f"{n_parts}; use n_rounds=1"
            )
        for train, test in GroupKFold(self.n_folds).split(members, groups=connected):
            yield np.sort(np.concatenate([members[train], others])), members[test]

    # --- prediction, by the classifier --------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Predict labels of samples with `estimator_`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix} of shape (n_samples, n_labels)
            Class of each sample, or an indicator of its labels.
        """
        return self._delegate("predict", X)

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
        return self._delegate("predict_proba", X)

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
        return self._delegate("predict_log_proba", X)

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
        return self._delegate("decision_function", X)

    @_estimator_has("predict_topk")
    def predict_topk(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Find the best k labels of each sample with `estimator_`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels, at most the number of labels there are.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Labels, best first.
        scores : ndarray of shape (n_samples, k)
            Their scores.
        """
        return self._delegate("predict_topk", X, k)

    @_estimator_has("predict_topk_sparse")
    def predict_topk_sparse(self, X: Any, k: int = 5) -> sp.csr_matrix:
        """Compute scores of the best k labels of each sample, as a sparse matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels.

        Returns
        -------
        scores : CSR matrix of shape (n_samples, n_labels)
            Exactly k stored entries per row.
        """
        return self._delegate("predict_topk_sparse", X, k)

    def _delegate(self, method: str, *arguments: Any) -> Any:
        check_is_fitted(self, "estimator_")
        return getattr(self.estimator_, method)(*arguments)

    # --- scikit-learn protocols ---------------------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata requests of this classifier and of the wrapped classifier.

        Returns
        -------
        routing : MetadataRouter
            `groups` goes to this classifier; all other metadata of `fit` goes to `estimator`.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return {key: state[key] for key in state if key not in ("assigner_", "assigned_")}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner, assigner = get_tags(self.estimator), get_tags(self.assigner or EAGLETransformer())
        tags.input_tags.sparse = inner.input_tags.sparse and assigner.input_tags.sparse
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        tags.target_tags.multi_output = inner.target_tags.multi_output
        return tags


class _Samples:
    """Training samples: fit classifiers on some samples, and score others."""

    def __init__(self, X: Any, y: Any, assigned: Any, fit_params: dict[str, Any]) -> None:
        self.X = X.tocsr() if sp.issparse(X) else X if hasattr(X, "shape") else np.asarray(X)
        self.fit_params = fit_params
        self.one_label, self.sparse = not is_indicator(y), sp.issparse(y)
        self.dtype = y.dtype if self.sparse else np.asarray(y).dtype
        n_labels = np.shape(y)[-1]
        self.classes = np.unique(y) if self.one_label else np.arange(n_labels)
        expected = (self.X.shape[0], len(self.classes))
        if assigned.shape != expected:
            raise ValueError(
                f"the assigner must return labels of shape {expected}, got {assigned.shape}"
            )

    def indicator(self, y: Any) -> sp.csr_array:
        """Labels of y as a matrix of numbers."""
        if self.one_label:
            return one_per_row(np.searchsorted(self.classes, y), len(self.classes))
        return canonical(sp.csr_array(y))

    def fit(self, estimator: Any, assigned: sp.csr_matrix, index: Any = None) -> Any:
        """Fit a classifier on samples and their labels, in the form of y."""
        if self.one_label:
            rows = row_numbers(assigned.indptr)
            labels = self.classes[assigned.indices]
            index = rows if index is None else index[rows]
        elif self.sparse:
            labels = sp.csr_matrix(assigned, dtype=self.dtype)
        else:
            labels = assigned.toarray().astype(self.dtype)
        params = _check_method_params(self.X, self.fit_params, index)
        X = self.X if index is None else _safe_indexing(self.X, index)
        return clone(estimator).fit(X, labels, **params)

    def score_pairs(
        self,
        estimator: Any,
        scores: sp.csr_matrix,
        test: np.ndarray,
        assigned: sp.csr_matrix,
        seen: sp.csr_matrix,
    ) -> None:
        """Set the stored scores of the test samples; unseen labels score as assigned."""
        n_labels = scores.shape[1]
        columns = self._columns(estimator, n_labels)
        known = np.zeros(n_labels, dtype=bool)
        known[columns] = np.bincount(seen.indices, minlength=n_labels)[columns] > 0
        for part in row_blocks(len(test), n_labels, BLOCK):
            samples = test[part]
            values = np.zeros((len(samples), n_labels))
            found = all_scores(
                estimator, _safe_indexing(self.X, samples), not self.one_label, len(columns)
            )
            values[:, columns] = found.toarray() if sp.issparse(found) else found
            values[:, ~known] = assigned[samples][:, np.flatnonzero(~known)].toarray()
            sizes = np.diff(scores.indptr)[samples]
            entries = joined_ranges(scores.indptr[samples], sizes)
            row = np.repeat(np.arange(len(samples)), sizes)
            scores.data[entries] = values[row, scores.indices[entries]]

    def _columns(self, estimator: Any, n_labels: int) -> np.ndarray:
        """Label of each column of scores of a classifier."""
        if not self.one_label:
            return np.arange(n_labels)
        return np.searchsorted(self.classes, estimator.classes_)


def _candidates(data: Aggregation) -> sp.csr_matrix:
    """CSR with an entry for each label of each sample's groups."""
    return canonical(sp.csr_matrix(data.groups.membership() @ data.labels))
