"""Base classes of rankers and retrievers, and the order of listed labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._carrying import carrying_whole, states_now, with_large
from sklearn_xlc._checks import check_sparse
from sklearn_xlc._csr import IntArray, moved_columns, moved_rows
from sklearn_xlc._ids import packed, unpacked
from sklearn_xlc._part import Part, sets_state
from sklearn_xlc.ranking._order import log_shares

#: Number of best labels of a sample to fit a calibration on.
N_RANKS = 5

Array = npt.NDArray[Any]
#: Samples in each space that a ranker reads, by the name of the space.
Samples = Mapping[str, Any]


class PlainArrays(Part):
    """Base class of parts whose matrices are saved as plain arrays."""

    def __getstate__(self) -> dict[str, Any]:
        return states_now().without_large(_plain(super().__getstate__()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        with carrying_whole():  # within `save`, a state may hold a pickle
            return super().__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        """Share what is large: nothing is converted, nor checked again."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        state = with_large(state)
        super().__setstate__({name: _value_of(value) for name, value in state.items()})


class Ranker(Part):
    """Base class of rankers: lists of labels with calibrated log odds.

    A classifier fits its ranker to the scores of the best labels of held-out samples, and lets it
    rank the best labels of the samples to predict. A subclass defines :meth:`fit` and
    :meth:`__call__`, and :meth:`rank` if it changes the order of labels or lists labels that the
    network does not.

    Attributes
    ----------
    reads : tuple of str, default=()
        Spaces of the samples that :meth:`remember`, :meth:`fit` and :meth:`rank` need. "input":
        rows of X as the network reads them, CSR, or dense with standardised columns, up to three
        of them after a column of ones; "features": output of the encoder, dense, for samples of a
        stream from before the network trained on them; "given": the samples as they came, such as
        texts. Two more are given to :meth:`remember` and :meth:`remember_more` alone: "ids", an
        array of integers or objects, names the samples to remember; "labels", an array of shape
        (n_labels,), the labels.
        With ``()`` the ranker sees scores alone, and remembers nothing.
    remembered : tuple of (dict, CSR matrix) or None, default=None
        Samples that :meth:`remember` kept, by the names of their spaces, and the indicator of their
        labels, from which :func:`~sklearn_xlc.inspection.drift_report` knows what is new.
    keeps_order : bool, default=True
        Whether labels keep the order of the network. If so, :meth:`rank` is not called.
    reads_shares : bool, default=False
        Whether :meth:`rank` gets, in place of log probabilities of classes, logarithms of their
        shares of what the listed classes have. Shares need no scores of all other classes.
    streams : bool, default=False
        Whether :meth:`partial_fit` can begin without :meth:`fit`.
    waits : bool, default=False
        Whether the ranker has not learnt from enough samples of a stream. The classifier then uses
        the order of the network.
    is_threadsafe : bool, default=False
        Whether several threads may call :meth:`rank` at once, after :meth:`prepare`. Batches are
        then ranked side by side.
    in_repr : tuple of str, default=()
        Fitted attributes in the `repr`, after the parameters.
    floor_ : float, default=0.0
        Share of the probability that all classes have alike, where the order of a softmax is kept.
    """

    reads: Any = ()
    keeps_order: bool = True
    reads_shares: bool = False
    floor_: float = 0.0
    #: Number of samples to remember at most, if there is a limit.
    max_samples: int | None = None
    remembered: Any = None
    streams: Any = False
    waits: Any = False
    is_threadsafe: Any = False

    def prepare(self) -> None:
        """Make what the next calls of :meth:`rank` read, such as an index."""

    def n_listed(self, n_labels: int, link: str = "sigmoid") -> int:
        """Return how many of the network's best labels of a sample the ranker reads.

        Parameters
        ----------
        n_labels : int
            Number of labels.
        link : {"sigmoid", "softmax"}, default="sigmoid"
            Function from scores to probabilities: of labels, or of classes.

        Returns
        -------
        int
            Number of labels; at most `n_labels`.
        """
        return min(N_RANKS, n_labels)

    def check_given(self, given: Any) -> None:
        """Raise an error if samples, as they came, cannot be read; called before any work.

        Parameters
        ----------
        given : array-like or sparse matrix of shape (n_samples, ...)
            Samples.
        """

    def check_labels(self, names: Array) -> None:
        """Raise an error if labels cannot be read; called before any work.

        Parameters
        ----------
        names : ndarray of shape (n_labels,)
            Labels: entries of ``classes_``.
        """

    def labels_without_samples(self) -> list[Any]:
        """Return labels for `fit` of a classifier to add to the labels of y.

        Returns
        -------
        list
            Labels. The base class has none.
        """
        return []

    def begin(self, samples: Samples) -> None:
        """Learn how to shorten samples, before :meth:`remember`.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Some thousand of the samples to remember: rows of X, and output of the encoder, as far
            as they are in `reads`.
        """

    def shortened(self, samples: Samples) -> Samples:
        """Return samples with no more features than :meth:`remember` keeps, to save memory.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in each space of `reads`.

        Returns
        -------
        dict of str to {ndarray, CSR matrix}
            The same samples; all of their features in the base class.
        """
        return samples

    def with_params_of(self, ranker: Ranker) -> Ranker:
        """Return a copy with other parameters, to learn anew from what this ranker remembers.

        Parameters
        ----------
        ranker : Ranker
            Ranker of the same class, whose parameters are taken.

        Returns
        -------
        Ranker
            Copy.

        Raises
        ------
        ValueError
            If the parameters need what is not remembered.
        """
        return copy.copy(self).set_params(**ranker.get_params(deep=False))

    def remember(self, samples: Samples, Y: Any, sample_weight: Any = None) -> Ranker:
        """Remember training samples, and forget all earlier ones.

        A call after :meth:`fit` keeps what the ranker has learned of held-out samples.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in each space of `reads`.
        Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
            Indicator of the true labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, not negative. None weighs all samples alike.

        Returns
        -------
        self : object
            Ranker.
        """
        return self

    def remember_more(self, samples: Samples, Y: Any, sample_weight: Any = None) -> Ranker:
        """Remember later training samples, too.

        Parameters
        ----------
        samples, Y : object
            As in :meth:`remember`.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`remember`.

        Returns
        -------
        self : object
            Ranker.
        """
        return self

    def partial_fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any,
        samples: Samples,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> Ranker:
        """Take in a batch of a stream, listed by the network before it trained on it.

        Called in place of :meth:`remember_more` by ``partial_fit`` of a classifier, if the ranker
        reads samples. The base class remembers the samples.

        Parameters
        ----------
        scores, Y, labels : object
            As in :meth:`fit`. Without columns if there was no network before.
        samples : dict of str to {ndarray, CSR matrix}
            The samples in each space of `reads`.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`.
        link : {"sigmoid", "softmax"}, default="sigmoid"
            As in :meth:`fit`.

        Returns
        -------
        self : object
            Ranker.
        """
        return self.remember_more(samples, Y, sample_weight)

    def for_labels(self, origin: IntArray) -> Ranker:
        """Return a fitted ranker for a changed set of labels.

        Parameters
        ----------
        origin : ndarray of shape (n_labels,)
            Former index of each label; -1 for a new label.

        Returns
        -------
        Ranker
            A copy, or the ranker, if it knows nothing of single labels.
        """
        return self

    def forget(self, ids: Any = None) -> Ranker:
        """Return a fitted ranker without some of its training samples.

        Parameters
        ----------
        ids : array-like of shape (n_samples,), default=None
            Ids of the samples. None: all samples.

        Returns
        -------
        Ranker
            A changed copy, or another ranker, such as a :class:`Calibration`, if no samples are
            left.

        Raises
        ------
        ValueError
            If a sample is not remembered.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forget")

    def examples(self, samples: Samples, labels: Array, n_examples: int) -> tuple[Array, Array]:
        """Find the nearest training samples with given labels.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in each space of `reads`.
        labels : ndarray of shape (n_samples, n_labels)
            Labels of each sample.
        n_examples : int
            Number of training samples for each label.

        Returns
        -------
        ids : ndarray of shape (n_samples, n_labels, n_examples), object
            Ids of training samples with the label, nearest first; None after the last one.
        cosines : ndarray of the same shape, float32
            Their cosines; 0 after the last one.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no examples")

    def fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any = None,
        samples: Samples | None = None,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> Ranker:
        """Fit the ranker to the best labels of held-out samples.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores of labels, as log odds, or of classes, as log probabilities; best first, if
            `labels` is given.
        Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
            Indicator of the true labels.
        labels : ndarray of shape (n_samples, n_candidates), default=None
            Labels of the scores. None: the columns are the labels.
        samples : dict of str to {ndarray, CSR matrix}, default=None
            The samples in each space of `reads`. None of them has been remembered.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, not negative. None weighs all samples alike.
        link : {"sigmoid", "softmax"}, default="sigmoid"
            Function from scores to probabilities: of labels, or of classes.

        Returns
        -------
        self : object
            Fitted ranker.
        """
        return self

    def fit_rank(
        self, scores: Array, Y: Any, labels: Array, samples: Samples | None = None, **beside: Any
    ) -> tuple[Array, Array]:
        """Fit the ranker to held-out samples, and list their labels.

        Equivalent to :meth:`fit` and then :meth:`rank`, and may be faster.

        Parameters
        ----------
        scores, Y, labels : object
            As in :meth:`fit`.
        samples : dict of str to {ndarray, CSR matrix}, default=None
            As in :meth:`fit`.
        **beside : object
            Further arguments of :meth:`fit`.

        Returns
        -------
        scores, labels : ndarray of shape (n_samples, width)
            As those of :meth:`rank`.
        """
        self.fit(scores, Y, labels, samples, **beside)
        if self.reads_shares and beside.get("link") == "softmax":
            scores = log_shares(scores)
        return self.rank(scores, labels, samples)

    def rank(
        self, scores: Array, labels: Array, samples: Samples | None = None
    ) -> tuple[Array, Array]:
        """List labels of samples, best first.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_candidates)
            Scores of the network's best labels, as in :meth:`fit`, best first. Minus infinity: no
            label. Of classes with `reads_shares`: logarithms of shares.
        labels : ndarray of shape (n_samples, n_candidates)
            Labels of the scores; -1: no label.
        samples : dict of str to {ndarray, CSR matrix}, default=None
            The samples in each space of `reads`.

        Returns
        -------
        scores : ndarray of shape (n_samples, width)
            Calibrated log odds, strictly decreasing along a row, of the dtype of `scores`. Minus
            infinity after the last label of a list.
        labels : ndarray of shape (n_samples, width)
            Labels; -1 after the last one of a list.
        """
        return in_strict_order(self(scores), listed_labels(scores, labels))

    def __call__(self, scores: Any) -> Any:
        """Map scores (a number, an array or a tensor) to calibrated log odds, in the same form.

        The map keeps the order of scores. It serves labels that are in no list.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__")


class Retriever(PlainArrays):
    """Base class of retrievers: what training samples say about the labels of a sample.

    A :class:`~sklearn_xlc.ranking.BoostedRanker` fits its retrievers to training samples. For
    samples to rank it calls :meth:`search` once. :meth:`candidates` lists labels, and
    :meth:`numbers` describes all labels that the network or any retriever lists.

    Attributes
    ----------
    reads : tuple of str, default=("input",)
        Spaces of the samples, as in :class:`~sklearn_xlc.ranking.Ranker`, but for "features": their
        directions on at most 64 axes, as integers of eight bits. "vectors": output of its parameter
        `vectorizer`.
    fitted_to : tuple of str
        Spaces that :meth:`fit` is given; by default `reads`. "labels": the labels, an array of
        shape (n_labels,), or with a `vectorizer` the vectors of their texts. Such a retriever may
        list labels that no training sample has.
    monotonic : tuple of int
        For each number 1 if a label with a larger number is never less likely, all else equal, or
        0. As many as names.
    entries_per_sample : int, default=0
        Roughly the temporary numbers of :meth:`search` and :meth:`numbers` for a sample: fewer
        samples at a time are ranked if there are many, to keep to scikit-learn's `working_memory`.
        Known after :meth:`fit`.
    refits : bool, default=False
        Whether :meth:`fit` is quick and gives an equal retriever again. Pickles and files of a
        ranker leave such a retriever out: it is fitted to the remembered samples when they are
        loaded.
    examples : callable, default=None
        Method of a retriever that knows training samples, as
        :meth:`NearestSamples.examples`. None: it names none.
    """

    reads: Any = ("input",)
    monotonic: Any = ()
    entries_per_sample: Any = 0
    refits: Any = False
    examples: Any = None
    #: Parameters of some retrievers; None: all features, and no vectors of their own.
    max_features_per_sample: Any = None
    vectorizer: Any = None
    #: Index for later samples, and axes of labels of fitted arrays. A class without such a line is
    #: fitted again when labels come or go. An `index_` of labels is made again by the next search.
    fitted_index_: Any = None
    _of_labels: tuple[tuple[str, int], ...] = ()

    @property
    def fitted_to(self) -> tuple[str, ...]:
        return tuple(self.reads)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the numbers.

        Parameters
        ----------
        input_features : object, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_numbers,)
            Names.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no get_feature_names_out")

    def labels_without_samples(self) -> list[Any]:
        """Return possible labels of samples beside the labels of y.

        Returns
        -------
        list
            Labels. The base class knows none.
        """
        return []

    def check_labels(self, names: Array) -> None:
        """Raise an error if labels cannot be read; called before any work.

        Parameters
        ----------
        names : ndarray of shape (n_labels,)
            Labels.
        """

    def texts_of(self, names: Array) -> Array:
        """Return the texts of labels, for a retriever with a `vectorizer` fitted to "labels".

        Parameters
        ----------
        names : ndarray of shape (n_labels,)
            Labels.

        Returns
        -------
        ndarray of str of shape (n_labels,)
            Texts; an empty one where a label has none.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no texts_of")

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> Retriever:
        """Learn from training samples.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in each space of `fitted_to`.
        Y : csr_array of shape (n_samples, n_labels)
            Canonical indicator of the true labels.
        sample_weight : ndarray of shape (n_samples,), default=None
            Weights of the samples, above zero. None weighs all samples alike.

        Returns
        -------
        self : object
            Fitted retriever.
        """
        return self

    def with_later(self, samples: Samples, Y: Any, sample_weight: Any = None) -> Retriever:
        """Return a retriever that knows a few later samples, too.

        It serves until the ranker fits its retrievers to all samples again, when 10% of them are
        new. The base class waits for that, and returns itself.

        Parameters
        ----------
        samples, Y : object
            As in :meth:`fit`.
        sample_weight : ndarray of shape (n_samples,), default=None
            As in :meth:`fit`.

        Returns
        -------
        Retriever
            A changed copy, or the retriever.
        """
        return self

    @property
    def _is_older(self) -> bool:
        """Whether an earlier version fitted it, and it lacks what later labels need."""
        known = [name in vars(self) for name, _ in self._of_labels]
        return any(known) and not all(known)

    @property
    def _follows_labels(self) -> bool:
        """Whether it need not be fitted to samples again when labels come or go."""
        reads_both = "labels" in self.fitted_to and set(self.fitted_to) != {"labels"}
        return "_of_labels" in vars(type(self)) and not reads_both

    def _for_labels(self, origin: IntArray) -> Retriever:
        """Return a copy with other labels: `origin` as in rankers. New ones have no sample."""
        changed = copy.copy(self)
        for name, axis in self._of_labels:
            X = getattr(changed, name)
            if X is not None:
                move = moved_columns if axis else moved_rows
                setattr(changed, name, None if name == "index_" else move(X, origin))
        return changed

    def search(self, samples: Samples, scores: Array, labels: Array) -> Any:
        """Return what :meth:`candidates` and :meth:`numbers` need of samples.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in each space of `reads`.
        scores, labels : ndarray of shape (n_samples, n_candidates)
            Scores and labels of the network's lists. Minus infinity and -1: no label.

        Returns
        -------
        object
            First argument of the other two methods. The result for a sample may not depend on the
            samples beside it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no search")

    def candidates(self, found: Any) -> Array:
        """List labels of samples.

        Parameters
        ----------
        found : object
            Result of :meth:`search`.

        Returns
        -------
        ndarray of shape (n_samples, n_candidates)
            Labels in any order; -1: no label. By default no columns.
        """
        return np.empty((0, 0), dtype=np.int64)

    def numbers(self, found: Any, rows: IntArray, labels: IntArray) -> Array:
        """Describe listed labels.

        Parameters
        ----------
        found : object
            Result of :meth:`search`.
        rows, labels : ndarray of shape (n_pairs,)
            Samples, ascending, and listed labels, ascending for a sample.

        Returns
        -------
        ndarray of shape (n_pairs, n_numbers)
            Finite numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no numbers")


def _plain(value: Any) -> Any:
    """Return a CSR matrix, or strings, as a dict of plain arrays."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if not sp.issparse(value) or value.format != "csr":
        return packed(value)
    arrays = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
    return {"csr": list(value.shape), **arrays}


def _value_of(plain: Any) -> Any:
    """Return the value of a plain form; check the pointers of a matrix, as SciPy does not.

    Numbers must not be NaN. Those of a mapped file are not read.
    """
    plain = unpacked(plain)
    is_read = type(plain) is np.ndarray and plain.dtype.kind == "f"
    if is_read and np.isnan(plain).any():
        raise ValueError("a saved ranker holds numbers that are NaN")
    if not isinstance(plain, dict):
        return plain
    if plain.keys() != {"csr", "data", "indices", "indptr"}:
        return {name: _value_of(inner) for name, inner in plain.items()}
    _value_of(plain["data"])
    matrix = sp.csr_array(tuple(plain["csr"]), dtype=plain["data"].dtype)
    matrix.data, matrix.indices, matrix.indptr = plain["data"], plain["indices"], plain["indptr"]
    return check_sparse(matrix, "the saved matrix of a ranker")


def listed_labels(scores: Array, labels: Array) -> Array:
    """Return labels of lists, with -1 where the network has none."""
    return np.where(np.isneginf(scores), -1, labels)


def in_strict_order(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Make non-increasing scores of lists strictly decreasing; -inf where the label is -1."""
    decreasing = strictly_decreasing(np.where(labels >= 0, scores, scores.dtype.type(-np.inf)))
    return decreasing, labels


def strictly_decreasing(values: Array) -> Array:
    """Return the largest strictly decreasing rows not above `values`, of the same type.

    Rows of `values` are finite and do not increase but for rounding; then they may be minus
    infinity, which stays.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking.base import strictly_decreasing
    >>> ties = np.array([[2.0, 2.0, 2.0, 1.0, -np.inf]])
    >>> np.diff(strictly_decreasing(ties)) < 0
    array([[ True,  True,  True,  True]])
    """
    values = values + values.dtype.type(0)  # -0 becomes 0
    for before, column in zip(values.T, values.T[1:]):
        np.minimum(column, np.nextafter(before, -np.inf, dtype=values.dtype), out=column)
    return values
