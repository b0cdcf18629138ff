"""Base class of decisions, and shared functions: set sizes, ranked candidates."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._csr import ones_at, pointers_of
from sklearn_xlc._part import Part

#: Quantile of the training samples' numbers of labels: the default limit of set sizes.
USUAL = 0.99
#: Fitted attributes limited by the number of labels.
_AT_MOST = {"k_", "max_labels_", "min_labels_"}


#: Attributes of decisions, and their values.
_ATTRIBUTES = {
    "reads": ("ranked", "scores", "features", "sets"),
    "fitted_on": (None, "train", "held"),
}


class Decision(Part, ABC):
    """Base class of decisions: rules from scores or features of samples to label sets.

    A classifier fits its decision after training the network, and calls :meth:`decode` for every
    batch of samples to predict. A decision follows scikit-learn's rules for estimators: `__init__`
    only stores its parameters, it can be cloned, and a search can set its parameters
    (``decision__k``). A subclass must define :meth:`decode`. It may also define :meth:`fit`, and
    choose its inputs by the attributes below.

    Attributes
    ----------
    reads : {"ranked", "scores", "features", "sets"}, default="ranked"
        Inputs of :meth:`fit` and :meth:`decode`.

        - "ranked": scores of the best labels of each sample, best first, and the ids of these
          labels. No matrix of samples by labels is held.
        - "scores": the scores of all labels. Fitting sees as many samples as fit into the
          classifier's `memory_limit`. Of class labels, "ranked" and "scores" are log probabilities,
          if the loss defines them.
        - "features": inputs of the last layer, and the last layer itself if it is linear.
        - "sets": scores of the best :meth:`n_candidates` label sets of each sample, best first, and
          these sets. Needs a head that ranks label sets
          (:class:`~sklearn_xlc.heads.PowersetHead`).
    fitted_on : {None, "train", "held"}, default=None
        Samples for :meth:`fit`: none, the training samples of the network, or samples held out
        from training (`validation_fraction` of the classifier).
    needs_own_samples : bool, default=False
        Whether nothing else may be learnt from the samples for :meth:`fit`, as guarantees demand. A
        classifier then sets `validation_fraction` of its samples apart, at random, before anything
        reads them; `fitted_on` is "held". Class labels are decided, too (`predict_set`).
    in_blocks : bool, default=False
        Whether :meth:`fit` takes features as an iterable of blocks of consecutive samples, so that
        not all features are held at once.
    in_order : bool, default=True
        Whether :meth:`decode` needs the scores of a sample best first. If False and
        :meth:`needs_more` asks for more labels, it may get the scores of all labels in the order of
        the labels, without `labels`; this saves the time to rank them.
    distances : callable, default=None
        Method to compute the distances of the best and of the second best label set, of shape
        (n_samples, 2), for `predict_label_set_scores`. None: there are none.
    distances_read : str
        Inputs of `distances`, as in `reads`; by default those of :meth:`decode`.
    n_labels_ : int
        Number of labels, set by :meth:`fit`.

    Examples
    --------
    A rule for any classifier: predict the best labels up to a share of the total probability.

    >>> import numpy as np
    >>> from scipy.special import expit
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> from sklearn_xlc.decisions import Decision
    >>> from sklearn_xlc.encoders import MLP
    >>> class Share(Decision):
    ...     def __init__(self, share=0.9):
    ...         self.share = share
    ...
    ...     def decode(self, scores, labels=None):
    ...         p = expit(scores)
    ...         before = np.cumsum(p, axis=1) - p
    ...         return self.label_sets(before < self.share * p.sum(axis=1)[:, None], labels)
    >>> X, Y = make_extreme_multilabel(600, 300, 50, random_state=0)
    >>> clf = MultiHeadClassifier(decision=Share(0.8), encoder=MLP((32,)), random_state=0)
    >>> clf.fit(X[:500], Y[:500]).predict(X[500:]).shape
    (100, 50)
    """

    reads: str = "ranked"
    fitted_on: str | None = None
    needs_own_samples: bool = False
    in_blocks: bool = False
    in_order: bool = True
    n_labels_: int
    distances: Any = None
    #: Parameter that the number of labels limits.
    _at_most_n_labels: str | None = None
    #: Whether a label may be left out where another one with a lower score is predicted.
    _has_cuts_of_labels: Any = False

    @property
    def distances_read(self) -> str:
        return self.reads

    def check_labels(self, Y: sp.csr_matrix) -> None:
        """Raise ValueError if the parameters are invalid, or do not suit the labels.

        Parameters
        ----------
        Y : CSR matrix of shape (n_samples, n_labels)
            Indicator of the training samples' labels.
        """
        self.check()
        for attribute, allowed in _ATTRIBUTES.items():
            if getattr(self, attribute) not in allowed:
                raise ValueError(
                    f"{attribute} of {type(self).__name__} must be one of {allowed}, got "
                    f"{getattr(self, attribute)!r}"
                )
        name, n_labels = self._at_most_n_labels, Y.shape[1]
        value = getattr(self, name) if name else None
        if isinstance(value, Integral) and value > n_labels:
            raise ValueError(f"{name}={value} is more than the {n_labels} labels of y")

    def check_classes(self, classes: np.ndarray) -> None:
        """Raise ValueError if the parameters do not suit the names of the labels.

        Parameters
        ----------
        classes : ndarray of shape (n_labels,)
            Labels in the order of the columns, as in `classes_` of the classifier.
        """

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        """Raise if the decision does not support the scores or features of the classifier.

        Parameters
        ----------
        Y : CSR matrix of shape (n_samples, n_labels)
            Indicator of the training samples' labels.
        link : {"sigmoid", "exp", None}
            As in :meth:`fit`.
        n_features : int
            Number of inputs of the last layer.
        layer : object, default=None
            As in :meth:`fit`.

        Raises
        ------
        ValueError, MemoryError
            If they are not supported; raised before training.
        """

    def fit(self, inputs: Any, Y: Any, /, *args: Any, **context: Any) -> Decision:
        """Fit the decision; the base class only stores the number of labels.

        Parameters
        ----------
        inputs : ndarray of shape (n_samples, n_candidates) or (n_samples, n_features), or None
            Scores or features, depending on `reads`, of the samples named by `fitted_on`; an
            iterable of blocks of them if `in_blocks`. None if there are no such samples.
        Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
            Indicator of the labels of these samples; if `inputs` is None, of the training samples.
        *args : tuple
            Not used.
        **context : dict
            Further keyword arguments; a subclass names the ones it needs.

            - ``labels``: ndarray of shape (n_samples, n_candidates), ids of the labels of the
              scores, if `reads` is "ranked". None: the columns are the labels.
            - ``sets``: CSR matrix of shape (n_samples * n_candidates, n_labels), label sets of the
              scores, sample by sample, if `reads` is "sets".
            - ``layer``: last layer as a :class:`LinearLayer`, if `reads` is "features". None: the
              last layer is not linear.
            - ``sizes``: ndarray of shape (n_training_samples,), number of labels of every training
              sample. None: the sizes in `Y`.
            - ``link``: "sigmoid", "exp" or None, the function from a score to the probability of
              its label. Scores are log odds ("sigmoid"), as the ranker corrects them, log
              probabilities with sum one over the labels ("exp"), or have no probabilities (None).
            - ``classes``: ndarray of shape (n_labels,), the labels, in the order of the columns.
            - ``known``: bool ndarray of shape (n_labels,), labels of training samples of the second
              network of "refit", which scores the held-out samples. The classifier knows others.
              None: it is the classifier's network, or the ranker knows labels by their texts.

        Returns
        -------
        self : object
            Fitted decision.

        Raises
        ------
        ValueError
            If a parameter is invalid.
        """
        self.check()
        self.n_labels_ = Y.shape[1]
        return self

    def partial_fit(self, inputs: Any, Y: Any, /, *args: Any, **context: Any) -> Decision:
        """Update the decision with later training samples; the base class does nothing.

        Parameters
        ----------
        inputs, Y, *args, **context : object
            As in :meth:`fit`; `inputs` are None if `fitted_on` is "held": no samples are held out.

        Returns
        -------
        self : object
            The decision.
        """
        return self

    def check_samples(self, n_samples: int) -> None:
        """Raise ValueError if samples of its own are too few; called before training.

        Parameters
        ----------
        n_samples : int
            Number of samples set apart for this decision.
        """

    def scores_changed(self, by: str) -> None:
        """Note a change of the scores since :meth:`fit`; the base class does nothing.

        Parameters
        ----------
        by : str
            Name of the method that changed the scores of the classifier.
        """

    def for_labels(self, origin: np.ndarray) -> Self:
        """Return a copy of the fitted decision for a changed set of labels.

        Parameters
        ----------
        origin : ndarray of shape (n_labels,)
            Former index of each label; -1 for a new label.

        Returns
        -------
        Decision
            A copy. Subclasses with attributes per label extend this method.
        """
        other = copy.copy(self)
        other.n_labels_ = len(origin)
        for name in _AT_MOST & vars(self).keys():
            setattr(other, name, min(getattr(self, name), other.n_labels_))
        return other

    def n_candidates(self, n_labels: int) -> int | None:
        """Return the number of best labels, or sets, per sample for :meth:`decode`.

        Parameters
        ----------
        n_labels : int
            Number of labels.

        Returns
        -------
        int or None
            None: a decision with a method :meth:`needs_more` starts with twice as many labels as
            99.9% of the training samples have at most, and their number doubles as long as it
            returns True; any other one gets twice the most that a training sample has.
        """
        return None

    @property
    def asks_for_more(self) -> bool:
        """Whether :meth:`needs_more` is defined, so that the first candidates may be few."""
        return type(self).needs_more is not Decision.needs_more

    def needs_more(self, scores: np.ndarray) -> bool:
        """Return whether a set may hold labels beyond the candidates.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores of the candidates, best first.

        Returns
        -------
        bool
            False in the base class.
        """
        return False

    @abstractmethod
    def decode(self, inputs: Any, /, *args: Any, **beside: Any) -> sp.csr_matrix:
        """Turn scores or features into label sets.

        Parameters
        ----------
        inputs : ndarray of shape (n_samples, n_candidates) or (n_samples, n_features)
            Scores or features, depending on `reads`.
        *args : tuple
            Not used.
        **beside : dict
            If `reads` is "ranked": ``labels``, the ids of the candidates (default: the columns). If
            it is "features": ``layer``. If it is "sets": ``sets``, as in :meth:`fit`. If it is
            "scores": nothing.

        Returns
        -------
        CSR matrix of shape (n_samples, n_labels)
            Indicator of the label sets.
        """

    def label_sets(self, taken: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        """Build an indicator of the selected candidates.

        Parameters
        ----------
        taken : bool ndarray of shape (n_samples, n_candidates)
            Mask of the selected candidates.
        labels : ndarray of shape (n_samples, n_candidates), default=None
            Ids of the candidates. None: the columns are the labels.

        Returns
        -------
        CSR matrix of shape (n_samples, n_labels)
            Indicator, int8.
        """
        expected = (len(taken), self.n_labels_) if labels is None else labels.shape
        if taken.shape != expected:
            raise ValueError(f"taken must have shape {expected}, got {taken.shape}")
        ids = np.nonzero(taken)[1] if labels is None else labels[taken]
        return ones_at(ids, pointers_of(np.count_nonzero(taken, axis=1)), self.n_labels_)


class LinearLayer:
    """Linear last layer, as an input of decisions.

    Parameters
    ----------
    weights : ndarray of shape (n_labels, n_features)
        One row per label.
    is_simplex : bool, default=False
        Whether the rows form a simplex (:func:`~sklearn_xlc.geometry.simplex_etf`).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import LinearLayer
    >>> LinearLayer(np.eye(2)).products(np.array([[1.0, 2.0]]))
    array([[1., 2.]])
    """

    def __init__(self, weights: np.ndarray, is_simplex: bool = False) -> None:
        self.weights, self.is_simplex = weights, is_simplex

    def products(self, features: np.ndarray) -> np.ndarray:
        """Multiply features with the weights, without biases.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Inputs of the layer.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            Products.
        """
        return features @ self.weights.T


def set_sizes(Y: Any, sizes: np.ndarray | None = None) -> np.ndarray:
    """Return numbers of labels of samples: `sizes`, if they are given, else those in Y."""
    return np.diff(check_indicator(Y, "Y").indptr) if sizes is None else sizes


def least_size(min_labels: Any, sizes: np.ndarray) -> int:
    """Return the smallest number of labels to predict; "auto": 1 if every sample has a label."""
    if min_labels == "auto":
        return int(len(sizes) > 0 and sizes.min() > 0)
    return int(min_labels)


def usual_size(sizes: np.ndarray) -> int:
    """Return the 99% quantile of the training samples' numbers of labels."""
    return int(max(1, np.ceil(np.quantile(sizes, USUAL))))
