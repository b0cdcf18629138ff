"""Rank the labels of a network and of retrieval by boosted trees."""

from __future__ import annotations

import copy
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import CLASSIFIER, Interval, StrOptions
from sklearn_xlc._csr import IntArray, evenly_spaced, find_entries, kept_entries
from sklearn_xlc._ids import as_ids
from sklearn_xlc._part import cloned, sets_state
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.metrics import propensities
from sklearn_xlc.ranking._order import ListedPairs, log_shares, non_increasing, sorted_lists
from sklearn_xlc.ranking.base import Array, Ranker, Retriever, Samples, in_strict_order
from sklearn_xlc.ranking.calibration import Calibration, fit_line, identity
from sklearn_xlc.ranking.describing import Describing, hide_equal_counts
from sklearn_xlc.ranking.memory import (
    Memory,
    check_memory,
    last,
    taken,
    with_labels,
    without,
)
from sklearn_xlc.ranking.streaming import Streaming
from sklearn_xlc.ranking.trees import check_trees, compiled, in_bins, raw_scores, sampled_pairs
from sklearn_xlc.ranking.vectors import WORDLLAMA

#: Number of trees.
N_TREES = 100
#: True and false listed labels of held-out samples, at least, to learn trees.
LEAST_PAIRS = 20
#: Share of the labels that are described as if no training sample had them.
_WITHHELD = 0.1
#: Largest log odds of a classifier without `decision_function`.
_SURE = 36.0
#: Largest log odds of scores of zero and one in a saved ranker.
_MOST = 1e9


class BoostedRanker(Streaming):
    """Rank suggestions of the network and of training samples by boosted trees.

    The best labels of the network make a list for each sample. Retrievers add labels of similar
    training samples. A dozen numbers describe a listed label: its score by the network, how many
    of the training samples have it, and what the retrievers say of it. Trees learn from held-out
    samples, which no retriever has seen, which listed labels are true. A mean of their log odds and
    of the network's score ranks the list. Trees are a little too sure of what they were learnt
    from: trees of every second held-out sample say on the others how much, and how much the
    network's score weighs, and a :class:`Calibration` takes it back.

    Where a retriever lists labels by themselves, as :class:`LabelTexts` does, the pairs of one
    label in ten are described once more, as if no training sample had it: trees learn from these,
    too, when to believe such a label.

    Until there are enough held-out samples (20 true and 20 false listed labels) the ranker is a
    :class:`Calibration`, which keeps the lists of the network.

    In a stream, :meth:`partial_fit` holds out each batch, with the lists of a network that has not
    seen it, and learns anew when the number of samples has doubled. Of the held-out samples the
    last 3000 are kept.

    Parameters
    ----------
    retrievers : {"auto", "words", "counts", "texts"} or list of (str, Retriever), default="auto"
        Retrievers by name. "words": ``[("near", NearestSamples()), ("centroids", LabelCentroids()),
        ("votes", FeatureVotes()), ("together", CooccurringLabels()), ("near_in_features",
        NearestSamples(space="features"))]``, in the space "input", or "features" if that is the
        only one given. "texts": also ``("near_in_meaning",
        NearestSamples(vectorizer="wordllama"))`` and ``("centroids_in_meaning",
        LabelCentroids(vectorizer="wordllama"))``, for texts. "counts": as "words", with
        :class:`~sklearn.feature_extraction.text.TfidfTransformer` behind :data:`numpy.arcsinh` as
        the vectorizer of the first three: rare columns weigh more, large counts less. "auto":
        "texts" where a classifier is fitted to texts and the extra ``text`` is installed, "counts"
        where it is fitted to a sparse X of counts, or of zeros and ones, otherwise "words".
        Parameters of a retriever are set as in a :class:`~sklearn.pipeline.FeatureUnion`:
        ``near__n_neighbors``. Set with "auto", they are those of the list "words", which takes its
        place: name "counts" or "texts" for theirs.
    n_candidates : int or "auto", default="auto"
        Number of the network's best labels in a list. Labels below have no probabilities of their
        own: they are less probable than the last one of the list. "auto": 20, and in a classifier
        three times the mean number of labels of a sample, if these are more, up to 200.
    estimator : classifier, default=None
        Binary classifier with `decision_function` or `predict_proba`. It is fitted with
        `sample_weight` if it accepts one. None: a
        :class:`~sklearn.ensemble.HistGradientBoostingClassifier` of 100 trees with 15 leaves, which
        may not prefer a label with smaller numbers, all else equal, other than its count.
    tail_order : float, default=0.02
        Preference for rare labels in the order, from 0 to 1: a label with probability p and
        propensity q, see :func:`~sklearn_xlc.metrics.propensities`, takes its place in the list by
        ``p / q ** tail_order``. A small value puts rare labels first among labels that are nearly
        certain. Log odds along the list are smoothed, so that they decrease.
    tail_weight : float, default=0.0
        Weight of rare labels in learning, from 0 to 1: a true label with propensity q counts as
        ``q ** -tail_weight`` labels. The log odds are calibrated afterwards.
    max_samples : int, default=1000000
        Number of training samples to remember. Of more in a fit evenly spaced ones are kept, of
        those that come later the last ones. In :meth:`partial_fit` an equal sample with equal
        labels, or fewer, is remembered once.

    Attributes
    ----------
    memory_ : dict
        Samples that are remembered, with the features that the retrievers read and their ids,
        their labels and weights.
    retrievers_ : list of (str, Retriever)
        Fitted retrievers.
    indexes_ : dict of str to dict
        What the next index takes over of the one before, as `fitted_index_` of
        :class:`NearestSamples`.
    vectorizers_ : list of {"wordllama", transformer}
        Fitted vectorizers of the retrievers, equal ones once.
    places_ : dict of str to int
        Position of the vectorizer of each retriever that has one.
    axes_ : ndarray of shape (n_features, n_axes)
        Axes on which features of the network are compared; none if none were given.
    names_ : ndarray of shape (n_labels,), or None
        Labels, if a retriever is fitted to them.
    estimator_ : classifier or None
        Fitted classifier. None for trees, which are in `trees_`.
    trees_ : dict or None
        Trees as arrays. None if there were too few held-out samples, or for other classifiers.
    calibration_ : Calibration
        Map from scores of the network to log odds, for labels in no list.
    line_ : Calibration
        Map from these scores to log odds.
    network_share_ : float
        Weight of the network's score, which the line reads beside that of the classifier.
    held_ : dict of str to ndarray, or None
        Held-out samples of a stream since the trees were learnt: keys of their content, the
        network's lists, and how many samples the network had seen before.
    n_labels_, n_seen_, n_learnt_ : int
        Number of labels; of samples seen so far; in a stream of samples seen when the trees were
        last learnt, 0 before.
    n_counted_, n_known_ : int
        Number of samples whose labels are counted, now and when the trees were learnt; 0 before.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array, random_array
    >>> from sklearn_xlc.ranking import BoostedRanker
    >>> rng = np.random.default_rng(0)
    >>> X = random_array((600, 40), density=0.08, format="csr", random_state=rng)
    >>> Y = csr_array(X[:, :20].toarray() > 0.5, dtype=int)
    >>> scores = rng.normal(size=(600, 20))  # a network that has learned nothing
    >>> order = np.argsort(-scores, axis=1)
    >>> scores, labels = np.take_along_axis(scores, order, 1)[:, :5], order[:, :5]
    >>> ranker = BoostedRanker().remember({"input": X[:300]}, Y[:300])
    >>> ranker = ranker.fit(scores[300:500], Y[300:500], labels[300:500], {"input": X[300:500]})
    >>> odds, ranked = ranker.rank(scores[500:], labels[500:], {"input": X[500:]})
    >>> def precision(best):
    ...     return float(Y[500:].toarray()[np.arange(100), best].mean())
    >>> precision(ranked[:, 0]) > 5 * precision(labels[500:, 0])
    True
    """

    _parameter_constraints = {
        "retrievers": [StrOptions({"auto", "words", "counts", "texts"}), list],
        "n_candidates": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "estimator": [*CLASSIFIER, None],
        "tail_order": [Interval(Real, 0, 1, closed="both")],
        "tail_weight": [Interval(Real, 0, 1, closed="both")],
        "max_samples": [Interval(Integral, 1, None, closed="left")],
    }

    keeps_order = False
    reads_shares = True
    indexes_: dict[str, Any] = {}

    def __init__(
        self,
        retrievers: Any = "auto",
        n_candidates: Any = "auto",
        estimator: Any = None,
        tail_order: float = 0.02,
        tail_weight: float = 0.0,
        max_samples: int = 1_000_000,
    ) -> None:
        self.retrievers = retrievers
        self.n_candidates = n_candidates
        self.estimator = estimator
        self.tail_order = tail_order
        self.tail_weight = tail_weight
        self.max_samples = max_samples

    def n_listed(self, n_labels: int, link: str = "sigmoid") -> int:
        return min(self._n_first, n_labels)

    # --- what training samples say ----------------------------------------------------------------

    def remember(self, samples: Samples, Y: Any, sample_weight: Any = None) -> BoostedRanker:
        self.check()
        if not self._are_compared(samples.get("features")):
            self.begin(samples)
        self.memory_, self.indexes_ = None, {}
        samples = self._without_names(samples, Y)
        self._fit_vectorizers(samples)
        self._keep(self._as_memory(samples, Y, sample_weight, spread=True)[0])
        return self._index()

    def remember_more(self, samples: Samples, Y: Any, sample_weight: Any = None) -> BoostedRanker:
        self._remember_more(samples, Y, sample_weight)
        return self

    def with_params_of(self, ranker: Ranker) -> Ranker:
        changed: Any = super().with_params_of(ranker)
        if changed._n_first != self._n_first:  # lists of a stream are of one length
            changed.held_ = None
        return changed  # type: ignore[no-any-return]

    def for_labels(self, origin: Array) -> BoostedRanker:
        changed = self._with_memory(with_labels(self.memory_, origin), origin)
        if self.names_ is not None:
            # The names of new labels come with their first samples.
            changed.names_ = np.array([*self.names_.tolist(), None], dtype=object)[origin]
        if self.retrievers_ and all(each._follows_labels for _, each in self.retrievers_):
            changed.retrievers_ = [(name, r._for_labels(origin)) for name, r in self.retrievers_]
            changed._count_labels()
        return changed

    def forget(self, ids: Any = None) -> Ranker:
        memory = None if ids is None else without(self.memory_, ids)
        if memory is None or not (len(memory["weights"]) or self.waits):
            return self.calibration_
        changed = self._with_memory(memory)
        changed.indexes_ = {}
        return changed

    def _with_memory(self, memory: Memory, origin: Array | None = None) -> BoostedRanker:
        """Return a copy with another memory; it makes its index when it ranks."""
        changed = copy.copy(self)
        changed.memory_, changed.retrievers_ = memory, None
        changed.held_ = self._held_for(memory, origin)
        return changed

    @property
    def is_threadsafe(self) -> bool:
        # Parts other than ours and scikit-learn's may change as they compute.
        parts = [each for _, each in self.retrievers_ or ()]
        has_index = any("index" in (each.fitted_index_ or {}) for each in parts)
        parts += [each for each in self.vectorizers_ if each != WORDLLAMA]
        modules = [type(each).__module__ for each in parts]
        are_known = all(name.startswith(("sklearn_xlc.", "sklearn.")) for name in modules)
        return self.estimator_ is None and are_known and not has_index

    def prepare(self) -> None:
        if self.retrievers_ is None:
            self._index()

    def examples(self, samples: Samples, labels: Array, n_examples: int) -> tuple[Array, Array]:
        self.prepare()
        for name, each in self.retrievers_:
            if each.examples is not None:
                read = self._read_by(self._with_vectors(samples))(name)
                return each.examples(read, labels, n_examples)
        raise ValueError(f"{self!r} has no retriever NearestSamples, which finds training samples")

    def _without_names(self, samples: Samples, Y: Any) -> Samples:
        """Take the labels from samples, if a retriever reads them."""
        if "labels" in self.reads:
            names = np.asarray(samples.get("labels", ()))
            if names.shape != (Y.shape[1],):
                raise ValueError(
                    f"a retriever of the ranker reads labels: give an array of {Y.shape[1]} as "
                    f"'labels', got shape {names.shape}"
                )
            self.names_ = names
        return {space: X for space, X in samples.items() if space != "labels"}

    def _as_memory(
        self, samples: Samples, Y: Any, weight: Any, spread: bool = False
    ) -> tuple[Memory, IntArray]:
        """Count samples; return those of positive weight as a memory, and their positions.

        Of more than `max_samples` evenly spaced ones, if `spread`.
        """
        Y = sp.csr_array(check_indicator(Y, "Y"))
        weight = np.ones(Y.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
        n_before = 0 if spread else self.n_seen_
        ids = as_ids(samples.get("ids", np.arange(n_before, n_before + Y.shape[0])))
        used = np.flatnonzero(weight > 0)
        if spread and len(used) > self.max_samples:
            used = used[evenly_spaced(len(used), self.max_samples)]
        memory = {"samples": {**samples, "ids": ids}, "labels": Y, "weights": weight}
        if len(used) < len(weight):
            memory = taken(memory, used)
        memory["samples"] = self.shortened(memory["samples"])
        self.n_seen_ = n_before + Y.shape[0]
        return memory, used

    def _keep(self, memory: Memory) -> None:
        """Remember samples, the last ones if there are too many."""
        if len(memory["weights"]) > self.max_samples:
            memory = last(memory, self.max_samples)
            self.indexes_ = {}
        self.memory_ = memory

    def _index(self) -> BoostedRanker:
        """Fit the retrievers to the remembered samples."""
        self._count_labels()
        samples, self.n_indexed_ = self.memory_["samples"], self.n_seen_
        space = "features" if samples.keys() - {"ids", "keys"} == {"features"} else "input"
        named = self._named(space) if len(self.memory_["weights"]) else []
        self._fit_to_memory(named, dict(named))
        return self

    def _count_labels(self) -> None:
        Y = self.memory_["labels"]
        self.n_counted_, self.n_labels_ = Y.shape
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        self.log_counts_ = np.log1p(counts).astype(np.float32)
        # The model of propensities is for three samples or more.
        self.propensities_ = propensities(Y) if Y.shape[0] >= 3 else np.ones(Y.shape[1])

    def _fit_to_memory(self, named: list[tuple[str, Retriever]], again: Collection[str]) -> None:
        """Hold these retrievers, copies of those in `again` fitted to the remembered samples."""
        weight, read_by = self.memory_["weights"], self._read_by(self.memory_["samples"])
        weight = None if (weight == 1).all() else weight
        named = [(name, cloned(each) if name in again else each) for name, each in named]
        for name, each in (pair for pair in named if pair[0] in again):
            read: Samples = read_by(name)
            if "labels" in each.fitted_to:
                read = {**read, "labels": self._labels_for(name, each)}
            if name in self.indexes_:
                each.fitted_index_ = self.indexes_[name]
            each.fit(read, self.memory_["labels"], weight)
        found = {n: each.fitted_index_ if n in again else self.indexes_.get(n) for n, each in named}
        self.indexes_ = {name: index for name, index in found.items() if index is not None}
        self.retrievers_ = named

    # --- state --------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return the state, except for what the remembered samples tell."""
        state = super().__getstate__()
        if state.get("memory_") and (self.memory_["weights"] == 1).all():
            state["memory_"]["weights"] = None
        if self.retrievers_ is not None and self.n_indexed_ == self.n_seen_:
            left_out = {name for name, each in self.retrievers_ if each.refits}
            state["retrievers_"] = [
                (name, cloned(each) if name in left_out else each)
                for name, each in self.retrievers_
            ]
            state["left_out"] = sorted(left_out)
        return state

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        left_out = set(state.get("left_out", ()))
        super().__setstate__({name: value for name, value in state.items() if name != "left_out"})
        fitted_again = [pair for pair in self.retrievers_ or () if pair[0] in left_out]
        if left_out != {name for name, each in fitted_again if each.refits}:
            raise ValueError("a saved ranker lacks retrievers that cannot be fitted again")
        if self.memory_:
            if self.memory_["weights"] is None:
                self.memory_["weights"] = np.ones(self.memory_["labels"].shape[0])
            if any(each._is_older for _, each in self.retrievers_ or ()):
                self.retrievers_ = None  # made anew
            check_loaded(self, left_out)
        if left_out and self.retrievers_ is not None:
            self._fit_to_memory(self.retrievers_, left_out)

    # --- numbers ------------------------------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the numbers of a listed label.

        Parameters
        ----------
        input_features : object, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_numbers,)
            Names.
        """
        return np.array(self._describing.names)

    @property
    def _describing(self) -> Describing:
        self.prepare()
        return Describing(
            self.retrievers_,
            lambda samples: self._read_by(self._with_vectors(samples)),
            self.log_counts_,
            np.log(self.n_known_ / max(1, self.n_counted_)) if self.n_known_ else 0.0,
            self._n_first,
            hides_unseen="labels" in self.reads,
        )

    # --- trees ----------------------------------------------------------------------------------

    def fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any = None,
        samples: Samples | None = None,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> BoostedRanker:
        self._fitted_pairs(scores, Y, labels, samples, sample_weight, link)
        return self

    def fit_rank(
        self, scores: Array, Y: Any, labels: Array, samples: Samples | None = None, **beside: Any
    ) -> tuple[Array, Array]:
        if type(self).fit is not BoostedRanker.fit:  # a subclass learns otherwise
            return super().fit_rank(scores, Y, labels, samples, **beside)
        pairs = self._fitted_pairs(scores, Y, labels, samples, **beside)
        if not self._has_learnt:
            is_shared = beside.get("link") == "softmax"
            return super().rank(log_shares(scores) if is_shared else scores, labels, samples)
        return self._ordered(pairs, len(scores), scores.dtype)

    def _fitted_pairs(
        self,
        scores: Any,
        Y: Any,
        labels: Any,
        samples: Samples | None,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> ListedPairs:
        """Fit the ranker, and return the pairs of sample and listed label."""
        if self.memory_ is None:
            raise ValueError("BoostedRanker.fit needs training samples: call remember first")
        Y = check_indicator(Y, "Y")
        self.calibration_ = Calibration().fit(
            scores, Y, labels, sample_weight=sample_weight, link=link
        )
        self.line_, self.network_share_, self.floor_ = identity(), 0.0, self.calibration_.floor_
        self.link_, self.n_known_ = link, 0  # counts as they are now are learnt from
        self.__dict__.pop("n_learnt_", None)  # a stream goes on from here
        scores, labels = ranked_candidates(np.asarray(scores), labels, self._n_first)
        scores = log_shares(scores) if link == "softmax" else scores  # as `rank` gets them
        listed = pairs = self._describing.pairs(scores, labels, samples)
        given = np.ones(len(scores)) if sample_weight is None else np.asarray(sample_weight)
        hide_equal_counts(listed, self.memory_["labels"], Y[given > 0])
        if "labels" in self.reads:
            more = self._withheld(scores, labels, samples)
            pairs = ListedPairs(*(np.concatenate(each) for each in zip(pairs, more)))
        truth = find_entries(Y, pairs.rows, pairs.labels) >= 0
        # A weight of rare true labels moves the scores; the line takes that back.
        factors = np.where(truth, self.propensities_[pairs.labels] ** -self.tail_weight, 1.0)
        weights = given[pairs.rows] * factors
        used, is_apart = weights > 0, np.cumsum(given > 0) % 2 == 0
        truth, weights, known = truth[used], weights[used], ~is_apart[pairs.rows[used]]
        numbers = pairs.numbers[used]
        if self.estimator is None:
            kept, stands_for = sampled_pairs(truth, numbers)
            truth, weights, known = truth[kept], weights[kept] * stands_for, known[kept]
            numbers = in_bins(numbers[kept])
        if self._fit_trees(numbers[known], truth[known], weights[known], stride=2):
            self._fit_line(listed, Y, given, is_apart, link)
        self._fit_trees(numbers, truth, weights)
        self.n_known_ = self.n_counted_
        return listed

    def _fit_trees(self, numbers: Array, truth: Array, weights: Array, stride: int = 1) -> bool:
        """Fit the classifier to pairs, if enough are true and false; return whether it was.

        `stride`: fewer trees, which take longer steps. They are as sure as all.
        """
        self.estimator_ = self.trees_ = None
        n_true = np.count_nonzero(truth)
        if min(n_true, len(truth) - n_true) < LEAST_PAIRS:
            return False
        estimator = self._new_estimator(stride)
        given = {"sample_weight": weights} if has_fit_parameter(estimator, "sample_weight") else {}
        with threadpool_limits(1):
            fitted = estimator.fit(numbers, truth, **given)
        self.trees_ = compiled(fitted)
        self.estimator_ = fitted if self.trees_ is None else None
        return True

    def _fit_line(
        self, pairs: ListedPairs, Y: Any, given: Array, is_apart: Array, link: str
    ) -> None:
        """Fit the map from scores to log odds on samples apart, which the trees do not know.

        Trees are too sure of the samples that they were learnt from.
        """
        pairs = ListedPairs(*(column[is_apart[pairs.rows]] for column in pairs))
        pairs = pairs._replace(rows=(np.cumsum(is_apart) - 1)[pairs.rows])
        found, n_rows = self._scored(pairs.numbers), int(is_apart.sum())
        lists = sorted_lists(pairs, found, n_rows, found, pairs.numbers[:, 0])
        self.line_, self.network_share_ = fit_line(lists, Y[is_apart], given[is_apart], link)

    def _withheld(self, scores: Array, labels: Array, samples: Samples | None) -> ListedPairs:
        """Describe pairs of some labels as if neither a training sample nor the network knew them.

        From the other pairs alone, trees learn that labels without training samples are hardly ever
        true.
        """
        Y = self.memory_["labels"]
        withheld = np.random.RandomState(0).random_sample(Y.shape[1]) < _WITHHELD
        withheld &= self.log_counts_ > 0
        seen = {**self.memory_, "labels": kept_entries(Y, ~withheld[Y.indices])}
        pairs = self._with_memory(seen)._describing.pairs(scores, labels, samples)
        return ListedPairs(*(each[withheld[pairs.labels]] for each in pairs))

    def _new_estimator(self, stride: int) -> Any:
        if self.estimator is not None:
            return cloned(self.estimator)
        return HistGradientBoostingClassifier(
            max_iter=N_TREES // stride,
            learning_rate=0.08 * stride,
            max_leaf_nodes=15,
            l2_regularization=10.0,
            early_stopping=False,
            monotonic_cst=self._describing.monotonic,
            random_state=0,
        )

    def _scored(self, numbers: Array) -> Array:
        """Return scores of described labels by the classifier."""
        if self.trees_ is not None:
            return raw_scores(self.trees_, numbers)
        with threadpool_limits(1):
            if hasattr(self.estimator_, "decision_function"):
                return np.asarray(self.estimator_.decision_function(numbers), dtype=np.float64)
            probabilities = np.asarray(self.estimator_.predict_proba(numbers)[:, 1], np.float64)
        return np.clip(logit(probabilities), -_SURE, _SURE)

    # --- lists ----------------------------------------------------------------------------------

    @property
    def _has_learnt(self) -> bool:
        return self.trees_ is not None or self.estimator_ is not None

    def rank(
        self, scores: Array, labels: Array, samples: Samples | None = None
    ) -> tuple[Array, Array]:
        scores, labels = scores[:, : self._n_first], labels[:, : self._n_first]
        if not (self._has_learnt and len(scores)):
            return super().rank(scores, labels, samples)
        pairs = self._describing.pairs(scores, labels, samples)
        return self._ordered(pairs, len(scores), scores.dtype)

    def _ordered(self, pairs: ListedPairs, n_rows: int, dtype: Any) -> tuple[Array, Array]:
        """Return the lists of pairs, best labels first."""
        found = self._scored(pairs.numbers)
        odds = self.line_(found + self.network_share_ * (pairs.numbers[:, 0] - found))
        # Classes of a sample share a normaliser: their odds are as their probabilities.
        place = odds if getattr(self, "link_", "") == "softmax" else log_expit(odds)
        place = place - self.tail_order * np.log(self.propensities_[pairs.labels])
        ids, ranked = sorted_lists(pairs, place, n_rows, odds)
        return in_strict_order(non_increasing(ranked).astype(dtype), ids)

    def __call__(self, scores: Any) -> Any:
        return self.calibration_(scores)


def check_loaded(ranker: BoostedRanker, left_out: Collection[str] = ()) -> None:
    """Raise ValueError if a loaded :class:`BoostedRanker` would rank wrong, or fail later.

    Retrievers in `left_out` are not yet fitted.
    """
    ranker.check()
    check_memory(ranker.memory_)
    ranker._check_axes()
    if "calibration_" in vars(ranker):
        with np.errstate(all="ignore"):
            odds = [ranker.line_(0.0), ranker.line_(1.0), ranker.calibration_(0.0)]
        is_usable = (np.abs(odds) < _MOST).all() and 0 <= ranker.network_share_ <= 1
        if not is_usable or not {"trees_", "estimator_"} <= vars(ranker).keys():
            raise ValueError("a saved ranker maps scores to log odds that are not finite")
    if ranker.trees_ is not None:
        check_trees(ranker.trees_)
    for name in ("n_seen_", "n_indexed_", "n_learnt_", "n_labels_", "n_known_", "n_counted_"):
        if type(number := vars(ranker).get(name, 0)) is not int or not 0 <= number < 2**63:
            raise ValueError(f"{name} of a saved ranker is no number of samples or labels")
    if not isinstance(vars(ranker).get("link_", ""), str):
        raise ValueError("link_ of a saved ranker is no name")
    n_samples, n_labels = ranker.memory_["labels"].shape
    bounds = {} if ranker.retrievers_ is None else {"log_counts_": 50, "propensities_": 1}
    for name, most in bounds.items():
        values: Any = vars(ranker).get(name)
        fits = isinstance(values, np.ndarray) and values.shape == (n_labels,)
        if not (fits and values.dtype.kind == "f" and (np.clip(values, 0, most) == values).all()):
            raise ValueError(f"{name} of a saved ranker are no {n_labels} numbers up to {most}")
    for name, found in ranker.indexes_.items():
        if "centers" in found:
            centers = found["centers"]
            if not (centers.ndim == 2 and centers.dtype.kind == "f" and np.isfinite(centers).all()):
                raise ValueError(f"the saved index {name!r} has centers that are not finite")
            continue
        rows = np.asarray(found["rows"])
        if rows.ndim != 1 or rows.dtype.kind != "i" or (rows % max(1, n_samples) != rows).any():
            raise ValueError(f"the saved index {name!r} holds samples that are not remembered")
    fitted = [each for name, each in ranker.retrievers_ or () if name not in left_out]
    for each in fitted:
        own = [(vars(each)[name], axis) for name, axis in each._of_labels]
        if any(of.shape[i] != n_labels for of, i in own if not isinstance(of, dict | None)):
            raise ValueError(f"a saved {each!r} knows other labels than its ranker")
