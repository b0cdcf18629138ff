"""MIMLClassifier: classify bags of samples, trained on labels of bags only."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._checks import as_array, check_sample_weight, check_y
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import as_dense
from sklearn_xlc._ids import as_ids, warn_of_order
from sklearn_xlc._labels import is_list
from sklearn_xlc._part import is_auto, refuse_unusable
from sklearn_xlc._tags import plain_sets
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine import (
    BaseXLCClassifier,
    LabelCode,
    TrainingData,
    check_numbers,
    code_of,
    compares_sets,
    model_dtype,
    named_labels,
    training_data,
)
from sklearn_xlc.estimators.eagle import EAGLETransformer
from sklearn_xlc.groups import (
    Groups,
    cap_counts,
    check_group_counts,
    check_groups,
    split_counts,
    warn_of_group_order,
    warn_without_groups,
)
from sklearn_xlc.heads import Head, HeadTask, MIMLHead

Method = TypeVar("Method", bound=Callable[..., Any])

_GROUPS = """
groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
        (n_samples, n_bags), default=None
    Bags of the samples, as in :meth:`fit`; the result has one row per bag. None: every sample is
    a bag.
"""


class Grouped(NamedTuple):
    """X with its groups."""

    X: Any
    groups: Any


def _documented(method: Method) -> Method:
    """Copy the docstring of the base class and add `groups`, before `proba` if any."""
    text = inspect.getdoc(getattr(BaseXLCClassifier, method.__name__)) or ""
    before = "\nproba :" if "\nproba :" in text else "\n\nReturns\n"
    parameters, following, rest = text.partition(before)
    method.__doc__ = f"{parameters}{_GROUPS.rstrip()}{following}{rest}\n"
    return method


class MIMLClassifier(BaseXLCClassifier):
    r"""Classifier of bags, groups of samples (instances) with labels in common (MIML).

    A network scores the labels of each sample, and the bag has a label if its best sample for the
    label has it (Deep-MIML [1]_). Early in training this is often the wrong sample. Label
    embeddings, learnt from the bags beforehand, guide the network to the right one (the
    co-attention of [2]_). Predictions of single samples find the source of a label in a bag.

    Parameters
    ----------
    attention : {"eagle", "mean", "product"}, None or EAGLETransformer, default="eagle"
        Label embeddings to rank the samples of a bag: "eagle", by :class:`EAGLETransformer`, or a
        clone of a given one, with its `multiplicity`; "mean", the mean sample of the label's bags
        less that of all bags; "product", as [2]_, by ``EAGLETransformer(contrast=None,
        normalize="similarities")`` and inner products with samples as given. None: plain Deep-MIML.
    temperature : float, default=1.0
        Divisor in the softmax of the attention, see :class:`~sklearn_xlc.heads.MIMLHead`.
    mask : {"select", "multiply"}, default="select"
        Whether the attention chooses the sample whose score the bag has, or also multiplies the
        score, as in [2]_: singleton bags are then worse (:class:`~sklearn_xlc.heads.MIMLHead`).
    n_concepts : int, default=5
        Number of linear units per label; the largest one is the score.
    multiplicity : {"top", "ignore"}, default="top"
        Meaning of c above 1 in `y`. "top": exactly c samples of the bag have the label, and score
        above zero; after a fit with counts, ones are counts, too. "ignore": the bag has the label.
    {parameters}

    Attributes
    ----------
    {attributes}
    label_embeddings_ : ndarray of shape (n_labels, `n_features_in_`) or None
        Label embeddings of norm one; zero for labels without a bag.

    See Also
    --------
    AggregatedLabelClassifier : Assigns labels to samples, and trains any classifier on them.

    Notes
    -----
    Predictions have one row for each bag, in the order of the sorted ids (``np.unique(groups)``),
    or of the columns of a membership matrix. Bags have no features for "nearest" and "seen". A step
    with "auto" has about 256 samples in at least 4 bags; `validation_fraction` counts bags, too.

    **Differences from the paper**

    - Label embeddings, but for "product", and those of :class:`~sklearn_xlc.heads.MIMLHead`.

    References
    ----------
    .. [1] J. Feng, Z.-H. Zhou. Deep MIML Network. AAAI 2017.
    .. [2] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 6.

    Examples
    --------
    >>> from sklearn_xlc import MIMLClassifier
    >>> from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(2000, 300, 10, n_labels_per_row=1, random_state=0)
    >>> Y_bags, groups = make_aggregated(Y[:1500], 5, random_state=0)  # bags of 5 samples
    >>> clf = MIMLClassifier(max_epochs=20, random_state=0).fit(X[:1500], Y_bags, groups)
    >>> bool(clf.score(X[1500:], Y[1500:]) > 0.8)  # of single samples
    True
    """

    _sizes = ("encoder__hidden_layer_sizes", "n_concepts")
    _samples_doc = "Bags"
    _has_features = False
    _takes_counts = True

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "attention": [StrOptions({"eagle", "mean", "product"}), None, EAGLETransformer],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "mask": [StrOptions({"select", "multiply"})],
        "n_concepts": [Interval(Integral, 1, None, closed="left")],
        "multiplicity": [StrOptions({"top", "ignore"})],
    }

    def __init__(
        self,
        attention: Any = "eagle",
        *,
        temperature: float = 1.0,
        mask: str = "select",
        n_concepts: int = 5,
        multiplicity: str = "top",
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        self.attention = attention
        self.temperature = temperature
        self.mask = mask
        self.n_concepts = n_concepts
        self.multiplicity = multiplicity

    # --- fit --------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, sample_weight: Any = None
    ) -> MIMLClassifier:
        """Fit label embeddings, then encoder and head.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of all bags, in any order. The type of the model is given by `precision`.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels)
            Class labels of any type, a 0/1 indicator of labels, tags, or counts of labels (see
            `multiplicity`). Row i holds the labels of sample i's bag, or row j holds the labels of
            bag j, in the order of predictions (see Notes of the class). With ids of as many bags as
            samples, the first form is meant.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Ids of the samples' bags, or a 0/1 membership matrix; with a matrix, y has one row per
            bag. None: every sample is a bag.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags in the loss, one per sample or per bag, as in `y`. Bags of weight
            zero are dropped first; the label embeddings ignore all other weights.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If an argument is not valid, or samples of one bag have different labels. An earlier fit
            is then kept.
        """
        warn_without_groups(groups)
        return super().fit(Grouped(X, groups), y, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, groups: Any = None, *, sample_weight: Any = None
    ) -> MIMLClassifier:
        """Train for one pass over some bags, at a constant learning rate.

        The embedding of a label is learnt in the first call with the label, and then stays fixed.
        The network is trained in place: after an interrupt it keeps the steps taken so far.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of complete bags.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels)
            Labels of the bags, as in :meth:`fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes or tags that will occur; required in the first call with class labels. A
            later call may name more than those in ``classes_``, which are then added; None adds
            none. They name the columns of an indicator, in their order.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags, as in :meth:`fit`.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags in the loss.

        Returns
        -------
        self : object
            Classifier after the pass.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call, or lacks known labels in a later one; or if y
            holds labels outside of them.
        """
        _refuse_groups_as_classes(classes, X)
        warn_without_groups(groups)
        return super().partial_fit(Grouped(X, groups), y, classes, sample_weight)

    def recalibrate(
        self,
        X: Any = None,
        y: Any = None,
        groups: Any = None,
        *,
        ranker: Any = "keep",
        decision: Any = "keep",
    ) -> MIMLClassifier:
        """Learn ranker and decision anew from bags, and leave the network as it is.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features), default=None
            Samples of complete bags that the network has not seen. None: for a decision that is
            not learnt from samples, such as ``TopK(3)``.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels), default=None
            Labels of the bags, as in :meth:`fit`.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags, as in :meth:`fit`.
        ranker, decision : str, object or None, default="keep"
            New values of the parameters, which are set. "keep": as the parameters are.

        Returns
        -------
        self : object
            The classifier.

        Raises
        ------
        ValueError
            If a part needs samples and there are none. The classifier is then as it was.
        """
        if X is not None:
            warn_without_groups(groups)
            X = Grouped(X, groups)
        return super().recalibrate(X, y, ranker=ranker, decision=decision)

    def _validate_X(self, X: Any, reset: bool) -> Any:
        with _explaining_bags(X):
            return super()._validate_X(X, reset)

    def _validate_fit(
        self, X: Any, y: Any, sample_weight: Any, code: LabelCode | None, reset: bool = True
    ) -> TrainingData:
        X, groups = X
        warn_of_order(X, y, sample_weight, groups)
        X = self._validate_X(X, reset)
        y = named_labels(y, code, counts=True)
        y_of_bags, counts = split_counts(plain_sets(y))
        checked = check_y(y_of_bags)
        bags = check_groups(groups, X.shape[0], allow_empty=False)
        bags.is_per_sample(checked.shape[0], "y")
        warn_of_group_order(groups, y)
        sample_weight = _weights_of_bags(sample_weight, bags, groups)
        code = code or code_of(y, checked)
        Y = sp.csr_matrix(bags.per_group(code.encode(checked), "y"))
        self._check_task(code, Y)
        if reset:
            self._counts = counts is not None and self.multiplicity == "top"
        if counts is not None:
            check = check_group_counts if self._counts else cap_counts
            # Targets read numbers of a floating type only; label embeddings read all counts.
            dtype = model_dtype(X) if self._counts else np.int64
            Y = check(bags.per_group(counts, "y"), bags).astype(dtype)
        rows = Rows(bags.gather(X), Y, sample_weight, bags=bags.indptr)
        return training_data(self, rows, code)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        attends = self._is_fitted and self.settings_.get("attention") is not None
        if attends and self.net_.module_.head.label_embeddings is None:
            raise ValueError("the saved MIMLClassifier is damaged: it lacks label_embeddings")

    def _start_module(self, module: Any, rows: Rows, rng: np.random.RandomState) -> None:
        if self.attention is not None:
            module.head.attend(self._embeddings(rows, int(rng.randint(2**31 - 1))))

    def _embeddings(self, rows: Rows, seed: int) -> torch.Tensor:
        """Learn the label embeddings of bags, of shape (n_labels, n_features).

        Raises ValueError or MemoryError if samples are not rows of numbers, or the embeddings would
        exceed the dense limit.
        """
        check_numbers(rows.X, "attention other than attention=None")
        n_labels, n_features = rows.Y.shape[1], rows.X.shape[1]
        check_dense_size((n_labels, n_features), rows.X.dtype, "attention=None")
        if isinstance(self.attention, str):
            eagle = EAGLETransformer(multiplicity=self.multiplicity, random_state=seed)
            if self.attention == "mean":
                eagle.set_params(n_iter=0, n_components=0)
            elif self.attention == "product":
                eagle.set_params(contrast=None, normalize="similarities")
        else:
            eagle = clone(self.attention)
        if is_auto(getattr(eagle, "normalize", None)):  # the network reads columns as they are
            eagle.set_params(normalize=True)
        n_samples = rows.X.shape[0]
        assert rows.bags is not None
        groups = Groups(np.arange(n_samples), rows.bags, None, n_samples)
        found = as_dense(eagle.fit(rows.X, rows.Y, groups).label_embeddings_)
        return torch.from_numpy(np.ascontiguousarray(found, dtype=rows.X.dtype))

    def _start_beside(self, head: Any, rows: Rows, positions: torch.Tensor) -> None:
        if self.attention is not None:  # the embeddings of the others stay fixed
            seed = int(torch.randint(2**31 - 1, (), device="cpu"))
            before = head.label_embeddings
            head.attend(self._code.by_position(self._embeddings(rows, seed)).to(before))
            new = head.label_embeddings[:, positions]
            head.label_embeddings = before.index_copy(1, positions, new)

    @property
    def label_embeddings_(self) -> np.ndarray | None:
        """Label embeddings of norm one, compared with samples by the attention."""
        check_is_fitted(self, "net_")
        vectors = self.net_.module_.head.label_embeddings
        return None if vectors is None else self._code.by_label(vectors.cpu().numpy()).T

    def _head_class(self, head: Any, multilabel: bool) -> type[Head] | None:
        return MIMLHead

    def _head_kind(self, head: Any) -> str:
        return "miml"

    def _build_head(self, task: HeadTask) -> Head:
        attention = (self.n_concepts, self.temperature, self.mask)
        by_cosine = self.attention != "product"
        return MIMLHead(
            *task.size, *attention, self._counts, task.memory_limit, task.loss, by_cosine
        )

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        if self.attention is None:
            refuse_unusable(self, {"temperature": "with attention=None"})

    # --- predict ----------------------------------------------------------------------------

    def _validate_predict(self, X: Any) -> Rows:
        X, groups = X if isinstance(X, Grouped) else (X, None)
        with _explaining_bags(X):
            rows = super()._validate_predict(X)
        if rows.bags is not None:
            return rows
        warn_of_order(X, groups=groups)
        bags = check_groups(groups, len(rows), allow_empty=False)
        return Rows(bags.gather(rows.X), bags=bags.indptr)

    @_documented
    def predict(self, X: Any, groups: Any = None) -> Any:
        return super().predict(X if groups is None else Grouped(X, groups))

    @_documented
    def predict_set(self, X: Any, groups: Any = None) -> Any:
        return super().predict_set(X if groups is None else Grouped(X, groups))

    @_documented
    def predict_topk(  # type: ignore[override]
        self, X: Any, k: int | None = 5, groups: Any = None, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        return super().predict_topk(Grouped(X, groups), k, proba)

    @_documented
    def predict_topk_sparse(self, X: Any, k: Any = 5, groups: Any = None) -> sp.csr_matrix:
        return super().predict_topk_sparse(Grouped(X, groups), k)

    @_documented
    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().decision_function(Grouped(X, groups))

    @_documented
    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().predict_proba(X if groups is None else Grouped(X, groups))

    @_documented
    def predict_log_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().predict_log_proba(X if groups is None else Grouped(X, groups))

    @available_if(compares_sets)
    @_documented
    def predict_label_set_scores(self, X: Any, groups: Any = None) -> np.ndarray:
        return super().predict_label_set_scores(Grouped(X, groups))

    def score(self, X: Any, y: Any, groups: Any = None, *, sample_weight: Any = None) -> float:  # type: ignore[override]
        """Compute the precision at 1 of label sets, or the accuracy of classes, over bags.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of the bags.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix, \
                dataframe} of shape (n_samples, n_labels) or (n_bags, n_labels), or sequence of \
                label sets
            Labels of the bags, as in :meth:`fit`.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags of the samples, as in :meth:`fit`. None: every sample is a bag.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags.

        Returns
        -------
        score : float
            Share of the bags whose best label is one of theirs.
        """
        with _explaining_bags(X):
            n_samples = len(super()._validate_predict(X))  # a mapping's length is another number
        bags = check_groups(groups, n_samples, allow_empty=False)
        truth = bags.per_group(self._truth(y), "y")
        warn_of_order(X, y, sample_weight)
        warn_of_group_order(groups, y)
        sample_weight = _weights_of_bags(sample_weight, bags, groups)
        return self._score_of(self._validate_predict(Grouped(X, groups)), truth, sample_weight)

    def _truth(self, y: Any) -> Any:
        sets = self._code.sets(y, known=False, counts=True, needs_tags=False)
        return super()._truth(split_counts(y)[0] if sets is None else y)


@contextlib.contextmanager
def _explaining_bags(X: Any) -> Iterator[None]:
    """Say what to give where X is refused that holds a matrix for each bag."""
    try:
        yield
    except (TypeError, ValueError):
        if not _are_bags(X):
            raise
        raise ValueError(
            f"X holds {len(X)} bags: give the samples of all bags in one matrix, such as by "
            "X = np.concatenate(bags), and name their bags by groups, such as "
            "groups = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])"
        ) from None


def _are_bags(X: Any) -> bool:
    """Return whether X is an array with a matrix for each bag, or a list of matrices."""
    if not (isinstance(X, list | tuple) and X):
        return getattr(X, "ndim", None) == 3
    rows = X[0]
    return getattr(rows, "ndim", 0) == 2 or (is_list(rows) and len(rows) > 0 and is_list(rows[0]))


def _refuse_groups_as_classes(classes: Any, X: Any) -> None:
    """Raise ValueError if `classes` of `partial_fit` are groups, the third argument of `fit`."""
    if classes is None:
        return
    given = classes if sp.issparse(classes) else as_array(classes, "classes")
    shape, n_samples = given.shape, _num_samples(X)
    if shape[:1] != (n_samples,):
        return
    if len(shape) == 2 or (len(shape) == 1 and len(set(as_ids(classes).tolist())) < n_samples):
        raise ValueError(
            f"classes has an entry for each of the {n_samples} samples, and not all differ: these "
            "are groups, which partial_fit takes by name: partial_fit(X, y, groups=groups), with "
            "classes=, all labels that will occur, in the first call"
        )


def _weights_of_bags(sample_weight: Any, bags: Groups, groups: Any) -> np.ndarray | None:
    """Check weights of samples or of bags, or one for all; return those of bags."""
    if sample_weight is None:
        return None
    like = np.empty(bags.n_samples) if isinstance(sample_weight, Real) else sample_weight
    weight = bags.per_group(check_sample_weight(sample_weight, like), "sample_weight")
    warn_of_group_order(groups, sample_weight, "sample_weight")
    return weight
