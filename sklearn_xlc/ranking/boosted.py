"""Rank the labels of a network and of retrieval by boosted trees."""

from __future__ import annotations

import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import logit
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import HasMethods, Interval, StrOptions
from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import IntArray, find_entries, is_mostly_zeros, row_blocks
from sklearn_xlc._part import cloned
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.metrics import propensities
from sklearn_xlc.ranking.base import (
    Array,
    PlainArrays,
    Ranker,
    Retriever,
    Samples,
    in_strict_order,
    listed_labels,
)
from sklearn_xlc.ranking.calibration import Calibration
from sklearn_xlc.ranking.retrievers import (
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
)
from sklearn_xlc.ranking.search import Spaces, as_csr, heaviest
from sklearn_xlc.ranking.trees import compiled, in_bins, raw_scores
from sklearn_xlc.ranking.vectors import WORDLLAMA, distinct, rounded, texts_to_vectors, vectors_by

#: Samples that are ranked at a time, at most, and bytes of temporary arrays for each entry.
_ROWS, _BYTES = 1024, 64
#: True and false listed labels of held-out samples, at least, to learn trees.
LEAST_PAIRS = 20
#: Share of the samples of an index, above which later ones are taken into a new index.
GROWTH = 0.02
#: Largest log odds of a classifier without `decision_function`.
_SURE = 36.0


class BoostedRanker(PlainArrays, Ranker):
    """Rank labels that the network or training samples suggest, by boosted trees.

    The best labels of the network make a list for each sample. Retrievers add labels of similar
    training samples. A dozen numbers describe a listed label: its score by the network, how many
    training samples have it, and what the retrievers say of it. Trees learn from held-out samples,
    which no retriever has seen, which listed labels are true. Their log odds rank the list, and are
    calibrated for the same reason.

    Until there are enough held-out samples (20 true and 20 false listed labels) the ranker is a
    :class:`Calibration`, which keeps the lists of the network.

    Parameters
    ----------
    retrievers : {"auto", "words", "texts"} or list of (str, Retriever), default="auto"
        Retrievers by name. "words": ``[("near", NearestSamples()), ("centroids", LabelCentroids()),
        ("votes", FeatureVotes()), ("together", CooccurringLabels())]``, in the space "input", or
        "features" if that is the only one given. "texts": also ``("near_in_meaning",
        NearestSamples(vectorizer="wordllama"))`` and ``("centroids_in_meaning",
        LabelCentroids(vectorizer="wordllama"))``, for texts. "auto": "texts" where a classifier is
        fitted to texts and the extra ``text`` is installed, otherwise "words". Parameters of a
        retriever are set as in a :class:`~sklearn.pipeline.FeatureUnion`: ``near__n_neighbors``.
    n_candidates : int, default=20
        Number of the network's best labels in a list.
    estimator : classifier, default=None
        Binary classifier with `decision_function` or `predict_proba`. It is fitted with
        `sample_weight` if it accepts one. None: a
        :class:`~sklearn.ensemble.HistGradientBoostingClassifier` of 100 trees with 15 leaves, which
        may not prefer a label with smaller numbers, all else equal, other than its count.
    tail : float, default=0.25
        Weight of rare labels in learning, from 0 to 1: a true label with propensity p counts as
        ``p ** -tail`` labels, see :func:`~sklearn_xlc.metrics.propensities`. Larger values rank
        rare labels higher. The log odds are calibrated afterwards.
    max_samples : int, default=1000000
        Number of training samples to remember. Of more in a fit evenly spaced ones are kept, of
        those that come later the last ones.

    Attributes
    ----------
    memory_ : dict
        Samples that are remembered, with the features that the retrievers read, their labels and
        weights.
    retrievers_ : list of (str, Retriever)
        Fitted retrievers.
    vectorizers_ : list of {"wordllama", transformer}
        Fitted vectorizers of the retrievers, equal ones once.
    places_ : dict of str to int
        Position of the vectorizer of each retriever that has one.
    estimator_ : classifier or None
        Fitted classifier. None for trees, which are in `trees_`.
    trees_ : dict or None
        Trees as arrays. None if there were too few held-out samples, or for other classifiers.
    calibration_ : Calibration
        Map from scores of the network to log odds, for labels in no list.
    slope_, offset_ : float
        Map from scores of the classifier to log odds.
    n_labels_ : int
        Number of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array, random_array
    >>> from sklearn_xlc.ranking import BoostedRanker
    >>> rng = np.random.default_rng(0)
    >>> X = random_array((600, 40), density=0.08, format="csr", rng=rng)
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
        "retrievers": [StrOptions({"auto", "words", "texts"}), list],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "estimator": [HasMethods("fit"), None],
        "tail": [Interval(Real, 0, 1, closed="both")],
        "max_samples": [Interval(Integral, 1, None, closed="left")],
    }

    keeps_order = False
    memory_: Any
    retrievers_: Any
    estimator_: Any
    trees_: dict[str, Any] | None

    def __init__(
        self,
        retrievers: Any = "auto",
        n_candidates: int = 20,
        estimator: Any = None,
        tail: float = 0.25,
        max_samples: int = 1_000_000,
    ) -> None:
        self.retrievers = retrievers
        self.n_candidates = n_candidates
        self.estimator = estimator
        self.tail = tail
        self.max_samples = max_samples

    # --- parameters ---------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of retrievers by their names.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the retrievers and their parameters, too.

        Returns
        -------
        dict
            Parameters.
        """
        params = super().get_params(deep)
        if deep:
            for name, retriever in self._named():
                params[name] = retriever
                inner = retriever.get_params(deep=True)
                params.update({f"{name}__{key}": value for key, value in inner.items()})
        return params

    def set_params(self, **params: Any) -> BoostedRanker:
        """Set parameters, of retrievers by their names.

        Parameters
        ----------
        **params : dict
            Parameters. The name of a retriever replaces it.

        Returns
        -------
        self : object
            Ranker.
        """
        if "retrievers" in params:
            self.retrievers = params.pop("retrievers")
        named = dict(self._named())
        inside = {key for key in params if key.partition("__")[0] in named}
        if inside:
            for key in sorted(inside, key=lambda key: "__" in key):  # objects first
                name, delimiter, inner = key.partition("__")
                if delimiter:
                    named[name].set_params(**{inner: params[key]})
                else:
                    named[name] = params[key]
            self.retrievers = list(named.items())
        super().set_params(**{key: params[key] for key in params.keys() - inside})
        return self

    def _named(self, space: str = "input") -> list[tuple[str, Retriever]]:
        if not isinstance(self.retrievers, str):
            return list(self.retrievers)
        named: list[tuple[str, Retriever]] = [
            ("near", NearestSamples(space=space)),
            ("centroids", LabelCentroids(space=space)),
            *([("votes", FeatureVotes())] if space == "input" else []),
            ("together", CooccurringLabels()),
        ]
        if self.retrievers == "texts":
            named += [
                ("near_in_meaning", NearestSamples(vectorizer=WORDLLAMA)),
                ("centroids_in_meaning", LabelCentroids(vectorizer=WORDLLAMA)),
            ]
        return named

    def check(self) -> None:
        """Raise ValueError if a parameter is not valid."""
        super().check()
        names = []
        for pair in self._named():
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
                raise ValueError(
                    f"retrievers must hold pairs of a name and a retriever, got {pair!r}"
                )
            if not isinstance(pair[1], Retriever):
                raise ValueError(f"retriever {pair[0]!r} must be a Retriever, got {pair[1]!r}")
            names.append(pair[0])
        own = set(self.get_params(deep=False))
        if len(set(names)) < len(names) or own & set(names) or any("__" in name for name in names):
            raise ValueError(
                f"names of retrievers must be distinct, without '__' and none of {sorted(own)}, "
                f"got {names}"
            )
        for _, retriever in self._named():
            retriever.check()

    @property
    def reads(self) -> tuple[str, ...]:
        read = [space for _, each in self._named() for space in each.reads]
        return tuple(dict.fromkeys("given" if space == "vectors" else space for space in read))

    def check_given(self, given: Any) -> None:
        for _, each in self._named():
            if getattr(each, "vectorizer", None) == WORDLLAMA:
                texts_to_vectors(given[:1])

    def n_listed(self, n_labels: int, link: str = "sigmoid") -> int:
        return min(self.n_candidates, n_labels)

    # --- what training samples say ----------------------------------------------------------------

    def remember(self, samples: Samples, Y: Any, sample_weight: Any = None) -> BoostedRanker:
        self.check()
        self.memory_ = None
        with_vectors = {
            name: each.vectorizer for name, each in self._named() if "vectors" in each.reads
        }
        vectorizers, self.places_ = distinct(with_vectors)
        self.vectorizers_ = [
            each if isinstance(each, str) else cloned(each).fit(samples["given"])
            for each in vectorizers
        ]
        self._add(samples, Y, sample_weight, spread=True)
        return self._index()

    def remember_more(self, samples: Samples, Y: Any, sample_weight: Any = None) -> BoostedRanker:
        self._add(samples, Y, sample_weight)
        n_more = len(self.memory_["weights"]) - self.n_indexed_
        if self.retrievers_ is not None and abs(n_more) > GROWTH * self.n_indexed_:
            self.retrievers_ = None
        return self

    def for_labels(self, origin: Array) -> BoostedRanker:
        changed, Y = copy.copy(self), self.memory_["labels"]
        place = np.full(Y.shape[1], -1)
        place[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
        labels = place[Y.indices]
        ends = np.concatenate([[0], np.cumsum(labels >= 0)])[Y.indptr]
        kept = Y.data[labels >= 0], labels[labels >= 0], ends
        Y = sp.csr_array(kept, shape=(Y.shape[0], len(origin)))
        Y.sort_indices()
        changed.memory_ = {**self.memory_, "labels": Y}
        changed.retrievers_ = None
        return changed

    def _add(self, samples: Samples, Y: Any, weight: Any, spread: bool = False) -> None:
        """Add samples to those that are remembered, without those of weight zero.

        Of more than `max_samples` the last ones are kept, or evenly spaced ones if `spread`.
        """
        Y = sp.csr_array(check_indicator(Y, "Y"))
        weight = np.ones(Y.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
        used = np.flatnonzero(weight > 0)
        if spread and len(used) > self.max_samples:
            used = used[np.linspace(0, len(used) - 1, self.max_samples).astype(np.int64)]
        is_all = len(used) == len(weight)
        more = {space: X if is_all else X[used] for space, X in samples.items()}
        more = self.shortened(self._with_vectors(more, is_rounded=True))
        Y, weight = (Y, weight) if is_all else (Y[used], weight[used])
        before = self.memory_
        if before is not None:
            more = {space: _joined(X, more[space]) for space, X in before["samples"].items()}
            Y, weight = _joined(before["labels"], Y), np.concatenate([before["weights"], weight])
        last = slice(max(0, len(weight) - self.max_samples), None)
        if last.start:
            more = {space: X[last] for space, X in more.items()}
            Y, weight = Y[last], weight[last]
        self.memory_ = {"samples": more, "labels": Y, "weights": weight}

    def _with_vectors(self, samples: Samples, is_rounded: bool = False) -> dict[str, Any]:
        """Return samples with the spaces of vectorizers; "given" only if a retriever reads it."""
        found = {space: X for space, X in samples.items() if space != "given"}
        for place, vectorizer in enumerate(self.vectorizers_):
            vectors = vectors_by(vectorizer, samples["given"])
            readers = [each for name, each in self._named() if self.places_.get(name) == place]
            most = max(getattr(each, "max_features_per_sample", 32) for each in readers)
            found[_space(place)] = rounded(vectors, most) if is_rounded else vectors
        if any("given" in each.reads for _, each in self._named()):
            found["given"] = samples["given"]
        return found

    def _read_by(self, samples: Samples) -> dict[str, Spaces]:
        """Return what each retriever reads of samples; those that read the same share it."""
        spaces: dict[int | None, Spaces] = {None: Spaces(samples)}
        for place in range(len(self.vectorizers_)):
            spaces[place] = Spaces({**samples, "vectors": samples[_space(place)]})
        return {name: spaces[self.places_.get(name)] for name, _ in self._named()}

    def shortened(self, samples: Samples) -> dict[str, Any]:
        return {space: self._heaviest(space, X) for space, X in samples.items()}

    def _heaviest(self, space: str, X: Any) -> Any:
        """Return samples with no more features than the retrievers read."""
        if not (space == "input" and sp.issparse(X) and is_mostly_zeros(X)):
            return X
        read = [each for _, each in self._named() if space in each.reads]
        if not read:
            return sp.csr_array(X.shape, dtype=np.float32)
        if not all(hasattr(each, "max_features_per_sample") for each in read):
            return X
        return heaviest(as_csr(X), max(each.max_features_per_sample for each in read))

    def _index(self) -> BoostedRanker:
        """Fit the retrievers to the samples that are remembered."""
        Y, weight = self.memory_["labels"], self.memory_["weights"]
        self.n_labels_ = Y.shape[1]
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        self.log_counts_ = np.log1p(counts).astype(np.float32)
        enough = Y.shape[0] >= 3  # for the model of propensities
        self.propensities_ = propensities(Y) if enough else np.ones(Y.shape[1])
        samples, self.n_indexed_ = self.memory_["samples"], len(Y.indptr) - 1
        read_by, space = self._read_by(samples), "input" if "input" in samples else "features"
        weight = None if (weight == 1).all() else weight
        self.retrievers_ = [
            (name, cloned(each).fit(read_by[name], Y, weight))
            for name, each in (self._named(space) if Y.shape[0] else [])
        ]
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the numbers that describe a listed label.

        Parameters
        ----------
        input_features : object, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_numbers,)
            Names.
        """
        names = ["score", "below_best", "count"]
        for name, each in self.retrievers_:
            names += [f"{name}__{number}" for number in each.get_feature_names_out()]
        return np.array(names)

    def _described(
        self, scores: Array, labels: Array, samples: Samples | None
    ) -> tuple[IntArray, IntArray, Array, Array]:
        """Return pairs of sample and listed label, sorted, their network scores and numbers."""
        scores, labels = scores[:, : self.n_candidates], labels[:, : self.n_candidates]
        labels = listed_labels(scores, labels).astype(np.int64)
        if labels.size and labels.max() >= self.n_labels_:
            raise ValueError(
                f"the network lists label {labels.max()}, but only {self.n_labels_} labels are "
                "remembered: call remember again after labels were added"
            )
        present, read_by = labels >= 0, self._read_by(self._with_vectors(samples or {}))
        own = self._keys(labels)
        found = [each.search(read_by[name], scores, labels) for name, each in self.retrievers_]
        added = [each.candidates(one) for (_, each), one in zip(self.retrievers_, found)]
        keys = np.unique(np.concatenate([own, *map(self._keys, added)]))
        rows, listed = np.divmod(keys, max(1, self.n_labels_))
        # A label that the network does not list scores a little less than its last one.
        last = np.where(present, scores, np.inf).min(axis=1, initial=np.inf)
        last = np.where(np.isfinite(last), last, 1)
        values, by_network = (last - 1)[rows].astype(np.float32), np.full(len(keys), -np.inf)
        positions = np.searchsorted(keys, own)
        values[positions] = by_network[positions] = scores[present]
        best = np.where(present, scores, -np.inf).max(axis=1, initial=-np.inf)
        best = np.where(np.isfinite(best), best, 0).astype(np.float32)
        columns = [values, values - best[rows], self.log_counts_[listed]]
        numbers = [
            each.numbers(one, rows, listed) for (_, each), one in zip(self.retrievers_, found)
        ]
        described = np.concatenate([np.stack(columns, axis=1), *numbers], axis=1)
        return rows, listed, by_network, described.astype(np.float32)

    def _blocks(self, n_rows: int) -> list[slice]:
        """Cut rows into slices that keep to the working memory; make the index if it is old."""
        if self.retrievers_ is None:
            self._index()
        sizes = [each.entries_per_sample for _, each in self.retrievers_]
        at_once = memory_limit() // (_BYTES * max(1, *sizes, self.n_candidates))
        return row_blocks(n_rows, 1, max(1, min(_ROWS, at_once)))

    def _keys(self, labels: Array) -> IntArray:
        """Return one integer for each pair of a sample and a label."""
        rows, columns = np.nonzero(labels >= 0)
        return rows * np.int64(self.n_labels_) + labels[rows, columns]

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
        if not hasattr(self, "memory_"):
            raise ValueError("BoostedRanker.fit needs training samples: call remember first")
        Y = check_indicator(Y, "Y")
        self.calibration_ = Calibration().fit(
            scores, Y, labels, sample_weight=sample_weight, link=link
        )
        self.estimator_ = self.trees_ = None
        self.slope_, self.offset_ = 1.0, 0.0
        scores, labels = ranked_candidates(np.asarray(scores), labels, self.n_candidates)
        parts = [
            (*self._described(scores[part], labels[part], _rows_of(samples, part)), part.start)
            for part in self._blocks(len(scores))
        ]
        if not parts:
            return self
        rows = np.concatenate([part[0] + part[4] for part in parts])
        listed = np.concatenate([part[1] for part in parts])
        truth = find_entries(Y, rows, listed) >= 0
        weights = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight)[rows]
        used = weights > 0
        if min(np.count_nonzero(truth & used), np.count_nonzero(~truth & used)) < LEAST_PAIRS:
            return self
        numbers, truth, weights = (
            np.concatenate([part[3] for part in parts])[used],
            truth[used],
            weights[used],
        )
        factors = np.where(truth, self.propensities_[listed[used]] ** -self.tail, 1.0)
        estimator = self._new_estimator()
        with threadpool_limits(1):
            self.estimator_ = estimator.fit(
                in_bins(numbers) if self.estimator is None else numbers,
                truth,
                sample_weight=weights * factors,
            )
        if isinstance(self.estimator_, HistGradientBoostingClassifier):
            self.trees_ = compiled(self.estimator_)
            if self.trees_ is not None:
                self.estimator_ = None
        self.offset_ = _offset(self._scored(numbers), truth, weights)
        return self

    def _new_estimator(self) -> Any:
        if self.estimator is not None:
            return cloned(self.estimator)
        monotonic = [1, 1, 0]
        for _, each in self.retrievers_:
            monotonic += each.monotonic
        return HistGradientBoostingClassifier(
            max_iter=100,
            learning_rate=0.08,
            max_leaf_nodes=15,
            l2_regularization=10.0,
            early_stopping=False,
            monotonic_cst=monotonic,
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

    def rank(
        self, scores: Array, labels: Array, samples: Samples | None = None
    ) -> tuple[Array, Array]:
        scores, labels = scores[:, : self.n_candidates], labels[:, : self.n_candidates]
        if self.trees_ is None and self.estimator_ is None:
            return super().rank(scores, labels, samples)
        parts = [
            self._ranked(scores[part], labels[part], _rows_of(samples, part))
            for part in self._blocks(len(scores))
        ]
        width = max((part[0].shape[1] for part in parts), default=0)
        ranked = np.full((len(scores), width), -np.inf, dtype=scores.dtype)
        ids = np.full(ranked.shape, -1, dtype=np.int64)
        start = 0
        for part_scores, part_ids in parts:
            inside = slice(start, start + len(part_ids)), slice(part_ids.shape[1])
            ranked[inside], ids[inside] = part_scores, part_ids
            start += len(part_ids)
        return ranked, ids

    def _ranked(self, scores: Array, labels: Array, samples: Samples | None) -> tuple[Array, Array]:
        rows, listed, by_network, numbers = self._described(scores, labels, samples)
        odds = self.slope_ * self._scored(numbers) + self.offset_
        order = np.lexsort((listed, -by_network, -odds, rows))
        lengths = np.bincount(rows, minlength=len(scores))
        inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
        ranked = np.full(inside.shape, -np.inf, dtype=scores.dtype)
        ids = np.full(inside.shape, -1, dtype=np.int64)
        ranked[inside], ids[inside] = odds[order], listed[order]
        return in_strict_order(ranked, ids)

    def __call__(self, scores: Any) -> Any:
        return self.calibration_(scores)


def _space(place: int) -> str:
    """Return the name of the space of a vectorizer."""
    return f"vectors {place}"


def _joined(above: Any, below: Any) -> Any:
    return (
        sp.vstack([above, below], "csr") if sp.issparse(above) else np.concatenate([above, below])
    )


def _rows_of(samples: Samples | None, rows: Any) -> Samples:
    """Return samples of a slice in each space."""
    return {space: samples[space][rows] for space in samples or {}}  # type: ignore[index]


def _offset(scores: Array, truth: Array, weights: Array) -> float:
    """Return the offset of scores that is most likely: their mean probability is that of truth."""

    def loss(offset: float) -> float:
        odds = scores + offset
        return float(weights @ (np.logaddexp(0, odds) - truth * odds))

    return float(minimize_scalar(loss, bracket=(-1.0, 1.0)).x)
