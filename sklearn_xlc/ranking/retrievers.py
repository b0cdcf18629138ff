"""Retrievers: labels of near samples, near centroids, labels of features, companions of labels."""

from __future__ import annotations

import copy
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from sklearn_xlc._compat import HasMethods, Interval
from sklearn_xlc._csr import (
    BLOCK_ENTRIES,
    IntArray,
    joined_ranges,
    kept_entries,
    pointers_of,
    row_lengths,
    row_numbers,
    taken_rows,
    uneven_blocks,
    unit_rows,
)
from sklearn_xlc.ranking.base import Array, Samples, listed_labels
from sklearn_xlc.ranking.local_ridge import ridge_weights
from sklearn_xlc.ranking.memory import joined_rows
from sklearn_xlc.ranking.neighbor_index import fitted_index, nearest
from sklearn_xlc.ranking.search import (
    as_spaces,
    best_entries,
    best_items,
    best_of_both,
    dense_index,
    find_pairs,
    heaviest,
    integer_rows,
    inverse_norms,
    known_of,
    largest_of_rows,
    pair_cosines,
    positive_entries,
    sparse_index,
    transposed,
    with_items,
)
from sklearn_xlc.ranking.shares import (
    SMALL,
    OfShares,
    numbers_at,
    pattern,
    relative_weights,
    scaled_rows,
    suits_table,
    weighted,
    weights_of_labels,
    weights_of_rows,
)
from sklearn_xlc.ranking.vectors import OfSpace, reads_texts

#: Labels that a retriever adds to a list.
N_ADDED = 8
#: Share of the centroids with a feature, above which it is not searched, and number of labels up to
#: which all cosines with centroids are computed, by a dense table.
_MOST_CENTROIDS, _FEW_CENTROIDS = 0.05, 2**10
#: Entries of a sparse centroid.
_OF_CENTROID = 50
#: Neighbours of a ridge regression, at most, and the range of the penalty of one.
_MOST_REGRESSED, _PENALTIES = 100, (1e-6, 1e6)


class _Neighbors(NamedTuple):
    items: IntArray  # (n_samples, n_neighbors), -1: none
    cosines: Array  # of the same shape
    ridge: Array  # weights of the ridge regression, (n_samples, at most n_neighbors)


class NearestSamples(OfSpace):
    """List labels of the nearest training samples.

    The neighbours of a sample have the largest positive cosines, and vote for their labels with
    weights proportional to them. Sparse samples are compared by their heaviest features, in an
    inverted index; others by all of their features.

    Votes count every neighbour for itself, so that many near duplicates outvote a better one. In a
    ridge regression that is fitted to the neighbours alone they share their weight: see Notes.

    Parameters
    ----------
    n_neighbors : tuple of int, default=(3, 10, 30)
        Numbers of neighbours. Each gives a number: the share of votes for a label. The labels with
        most votes of the middle one are listed.
    max_features_per_sample : int, default=32
        Features of largest magnitude that are kept of a sparse sample.
    max_df : float, default=0.05
        Features of a larger share of the training samples are not searched, unless at most 50
        samples have them. Only for sparse samples.
    alpha : float, default=0.1
        Penalty of the ridge regression, above zero.
    space : {"input", "features"}, default="input"
        Space of the samples: rows of X, or output of the encoder, which a ranker compares on the 64
        axes along which the samples differ most. Not used with a `vectorizer`.
    vectorizer : "wordllama" or transformer, default=None
        Vectors of the samples as they came to the classifier: texts, or rows of X, of which it may
        take some columns. "wordllama": static word vectors, as of
        :class:`~sklearn_xlc.SentenceVectorizer`. Retrievers with equal vectorizers share their
        vectors. The ranker fits a copy and passes its output as the space "vectors".
    index : transformer, default=None
        Index of the samples: a :class:`~sklearn.neighbors.KNeighborsTransformer`, or another class
        that works alike. A copy is fitted to vectors of norm one, which are a CSR matrix of the
        heaviest features, or a dense array. Its `transform` returns a sparse matrix of shape
        (n_queries, n_samples) with an entry for each neighbour. Cosines of the neighbours are
        computed from the vectors, and the entries are not read: cosine and Euclidean distances will
        do. The index must look for as many neighbours as the largest of `n_neighbors`; where it
        finds fewer, these vote alone. `max_df` does not apply.

    Attributes
    ----------
    index_ : csr_array of shape (n_features, n_samples), or dict of str to ndarray
        Features of training samples, float32: sparse, if X is mostly zeros. Many dense ones are in
        lists of similar samples, and only those lists that are nearest to a sample are searched.
        With an `index` it holds the samples that are not in `fitted_index_`.
    vectors_ : {csr_array, ndarray} of shape (n_samples, n_features), or None
        Training samples, float32: sparse ones of norm one. None for dense ones without an `index`,
        which `index_` holds.
    fitted_index_ : dict or None
        Fitted copy of `index`, "n_samples", the number of first samples that were given to it, as
        far as they have features, and their "digest". None until there are more than 1000 samples
        with features. Without an `index` the "centers" of the lists of dense samples, which serve
        again until twice as many samples are remembered, or later ones fill a few lists.
    labels_ : csr_array of shape (n_samples, n_labels)
        Labels of training samples.
    later_ : csr_array of shape (n_features, n_later), or None
        Features of the last samples, which came after the fit, without those that `index_` leaves
        out, if they are sparse and there is no `index`.
    weights_ : ndarray of shape (n_samples,), or None
        Weights of training samples, of mean one in the fit.
    ids_ : ndarray of shape (n_samples,)
        Ids of training samples; their positions if none were given.

    Notes
    -----
    The number "ridge" of a label is the prediction of ridge regression for its indicator, without
    an intercept: the sum of w over the neighbours that have it, where ``(N N.T + alpha I) w = N x``
    for a sample x and the matrix N of its neighbours, 100 at most, in rows of norm one. With
    sample weights s, of mean one over all training samples, the diagonal of I holds 1 / s.

    Samples that `partial_fit` of a classifier brings are neighbours at once.

    A fitted `index` takes no more samples. Later ones are searched as without an `index`, until
    they are more than 1000 and more than half of those in it; then a copy is fitted to all. `fit`
    keeps a `fitted_index_` of equal parameters that holds the first of its samples, and a ranker
    hands it on. After `forget`, a copy is fitted to the samples that are left, as it is when 10% of
    them are new and others have gone by `max_samples`. No index holds a forgotten sample.

    Files and pickles hold the fitted index. :func:`sklearn_xlc.load` loads one of scikit-learn with
    ``algorithm="brute"``, and asks to trust others.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking import NearestSamples
    >>> X, Y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), csr_array(np.eye(3, dtype=int))
    >>> near = NearestSamples(n_neighbors=(1, 2)).fit({"input": X}, Y)
    >>> found = near.search({"input": np.array([[2.0, 1.0]])}, None, None)
    >>> near.candidates(found)
    array([[ 1,  0, -1, -1, -1, -1, -1, -1]])
    >>> near.numbers(found, np.array([0, 0]), np.array([0, 1])).round(2)
    array([[0.  , 0.49, 0.44, 0.89, 0.95],
           [1.  , 0.51, 0.58, 0.95, 0.95]])
    """

    _parameter_constraints = {
        **OfSpace._parameter_constraints,
        "n_neighbors": [tuple, list],
        "max_df": [Interval(Real, 0, 1, closed="right")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "index": [HasMethods(["fit", "transform", "get_params"]), None],
    }
    _of_labels = (("labels_", 1),)

    def __init__(
        self,
        n_neighbors: Any = (3, 10, 30),
        max_features_per_sample: int = 32,
        max_df: float = 0.05,
        alpha: float = 0.1,
        space: str = "input",
        vectorizer: Any = None,
        index: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.max_features_per_sample = max_features_per_sample
        self.max_df = max_df
        self.alpha = alpha
        self.space = space
        self.vectorizer = vectorizer
        self.index = index

    @property
    def monotonic(self) -> tuple[int, ...]:
        return (1,) * (len(self.n_neighbors) + 3)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        votes = [f"votes_of_{n}" for n in self.n_neighbors]
        return np.array([*votes, "ridge", "nearest_with_label", "nearest"])

    def check(self) -> None:
        super().check()
        sizes = self.n_neighbors
        if not len(sizes) or any(not isinstance(n, Integral) or n < 1 for n in sizes):
            raise ValueError(f"n_neighbors must hold positive integers, got {sizes!r}")
        if isinstance(self.index, type):
            raise TypeError(f"index must be an object, got a class: {self.index.__name__}")
        if reads_texts(self.index):
            raise TypeError(
                f"index={self.index!r} reads texts, and is to find near vectors, as "
                "KNeighborsTransformer does; a vectorizer of texts is the parameter vectorizer"
            )
        n_found = getattr(self.index, "n_neighbors", None)
        if isinstance(n_found, Integral) and n_found < max(sizes):
            raise ValueError(
                f"index={self.index!r} finds {n_found} neighbours, and n_neighbors={sizes!r} asks "
                f"for {max(sizes)}; give the index n_neighbors={max(sizes)}, or ask for fewer"
            )

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> NearestSamples:
        self.check()
        is_sparse = as_spaces(samples).is_sparse(*self.reads)
        unit = self._unit(samples, is_sparse)
        self.labels_, self.later_ = sp.csr_array(Y), None
        self.weights_, self._weight_of_one = None, 1.0
        if sample_weight is not None:
            self._weight_of_one = float(np.mean(sample_weight))
            self.weights_ = np.asarray(sample_weight, np.float64) / self._weight_of_one
        self.ids_ = samples.get("ids", np.arange(self.labels_.shape[0]))
        self.vectors_ = unit if is_sparse or self.index is not None else None
        searched, max_df = unit, self.max_df
        before, self.fitted_index_ = self.fitted_index_, None
        if before is not None and ("index" in before) == (self.index is None):
            before = None
        if self.index is not None:
            found = self.fitted_index_ = fitted_index(self.index, unit, before)
            searched, max_df = unit if found is None else unit[found["n_samples"] :], 1.0
        if is_sparse:
            index = self.index_ = sparse_index(searched, max_df)
            if self.index is None:
                counts = np.bincount(unit.indices, minlength=unit.shape[1])
                self._not_searched = np.flatnonzero((counts > 0) & (np.diff(index.indptr) == 0))
            return self
        self.index_ = dense_index(searched, (before or {}).get("centers"))
        if self.index is None and "centers" in self.index_:
            self.fitted_index_ = {"centers": self.index_["centers"]}
        return self

    def with_later(self, samples: Samples, Y: Any, sample_weight: Any = None) -> NearestSamples:
        changed, is_sparse = copy.copy(self), sp.issparse(self.index_)
        unit, n_before, n_more = self._unit(samples, is_sparse), len(self.ids_), Y.shape[0]
        ids = samples.get("ids", np.arange(n_before, n_before + n_more))
        changed.ids_ = joined_rows(self.ids_, ids)
        changed.labels_ = joined_rows(self.labels_, sp.csr_array(Y))
        weights = np.ones(n_more) if sample_weight is None else np.asarray(sample_weight)
        if self.weights_ is not None or (weights != 1).any():
            before = np.ones(n_before) if self.weights_ is None else self.weights_
            changed.weights_ = joined_rows(before, weights / self._weight_of_one)
        if self.vectors_ is not None:
            changed.vectors_ = joined_rows(self.vectors_, unit)
        if is_sparse:
            name = "later_" if self.index is None else "index_"
            before = getattr(self, name)
            if self.index is None:  # cosines are of the features that the index has
                unit = kept_entries(unit, ~np.isin(unit.indices, self._not_searched))
            later = unit if before is None else sp.vstack([before.T, unit], "csr")
            setattr(changed, name, transposed(later))
        else:
            changed.index_ = with_items(self.index_, unit)
        return changed

    def search(self, samples: Samples, scores: Array, labels: Array) -> _Neighbors:
        queries, n = self._unit(samples, sp.issparse(self.index_)), max(self.n_neighbors)
        if self.index is None:
            found = best_items(queries, self.index_, n)
        else:
            found = nearest(self.fitted_index_, queries, self.vectors_, self.index_, n)
        if self.later_ is not None:
            n_before = len(self.ids_) - self.later_.shape[1]
            found = best_of_both(found, best_items(queries, self.later_, n), n_before)
        items = found[0][:, :_MOST_REGRESSED]
        weights = np.ones(1) if self.weights_ is None else self.weights_[items]
        least, most = _PENALTIES
        penalties = self.alpha / np.clip(weights, self.alpha / most, self.alpha / least)
        vectors, places = self._rows_of(items)
        ridge = ridge_weights(queries, vectors, places, np.broadcast_to(penalties, items.shape))
        return _Neighbors(*found, ridge)

    def _rows_of(self, items: IntArray) -> tuple[Any, IntArray]:
        """Return vectors of training samples, and the rows of them with some samples; -1: none."""
        if self.vectors_ is not None:
            return self.vectors_, items
        if "places" in self.index_:
            items = np.where(items >= 0, self.index_["places"][items], -1)
        return self.index_["vectors"], items

    def examples(self, samples: Samples, labels: Array, n_examples: int) -> tuple[Array, Array]:
        """Find the nearest training samples with given labels.

        Parameters
        ----------
        samples : dict of str to {ndarray, CSR matrix} of shape (n_samples, n_columns)
            Samples in the space of the retriever.
        labels : ndarray of shape (n_samples, n_labels)
            Labels of each sample.
        n_examples : int
            Number of training samples for each label.

        Returns
        -------
        ids : ndarray of shape (n_samples, n_labels, n_examples), object
            Ids of training samples with the label and a positive cosine, nearest first; None after
            the last one.
        cosines : ndarray of the same shape, float32
            Their cosines; 0 after the last one.
        """
        queries, having = self._unit(samples, sp.issparse(self.index_)), transposed(self.labels_)
        items = np.empty((*labels.shape, n_examples), dtype=np.int64)
        cosines = np.empty(items.shape, dtype=np.float32)
        for row, of_row in enumerate(labels):
            lengths = row_lengths(having.indptr, of_row)
            members = having.indices[joined_ranges(having.indptr[of_row], lengths)]
            vectors, places = self._rows_of(members)
            if sp.issparse(vectors):  # faster for many members
                values = vectors[places] @ queries[[row]].toarray().ravel()
            else:
                values = pair_cosines(queries, vectors, np.full(len(members), row), places)
            ends = pointers_of(lengths)
            items[row], cosines[row] = positive_entries(values, members, ends, n_examples)
        named = np.full(len(self.ids_) + 1, None, dtype=object)
        named[:-1] = self.ids_
        return named[items], cosines

    @property
    def entries_per_sample(self) -> int:
        return max(self.n_neighbors) * (1 + self.labels_.nnz // max(1, self.labels_.shape[0]))

    def _votes(self, found: _Neighbors, n: int) -> Array:
        """Return the weights of the first n neighbours: of sum one."""
        weights = found.cosines[:, :n].astype(np.float64)
        if self.weights_ is not None:
            weights *= self.weights_[found.items[:, :n]]
        total = weights.sum(axis=1, keepdims=True)
        return weights / np.where(total > 0, total, 1)

    def candidates(self, found: _Neighbors) -> Array:
        n = sorted(self.n_neighbors)[len(self.n_neighbors) // 2]
        items = found.items[:, :n]
        present = items >= 0
        lengths, columns, values = taken_rows(self.labels_, items[present])
        shape = len(lengths), self.labels_.shape[1]
        # Of the labels of neighbours alone: a product with all would convert their type first.
        labels = sp.csr_array((values, columns, pointers_of(lengths)), shape=shape)
        votes = weights_of_rows(present, self._votes(found, n), np.arange(len(lengths)), labels)
        sums = votes @ labels
        return best_entries(sums.data, sums.indices, sums.indptr, N_ADDED)[1]

    def numbers(self, found: _Neighbors, rows: IntArray, labels: IntArray) -> Array:
        items = found.items[:, ::-1]  # farthest first
        present = items >= 0
        lengths = np.where(present, row_lengths(self.labels_.indptr, items), 0).ravel()
        entries = joined_ranges(self.labels_.indptr[items].ravel(), lengths)
        of_items = self.labels_.indices[entries]
        indptr = pointers_of(lengths.reshape(items.shape).sum(axis=1))
        shape = len(found.items), self.labels_.shape[1]
        at, of_pair = find_pairs(rows, labels, shape, indptr, of_items)
        of_entry = np.repeat(np.arange(items.size), lengths)[at]
        columns = []
        for of_first in (*(self._votes(found, n) for n in self.n_neighbors), found.ridge):
            weights = np.zeros(items.shape)
            weights[:, items.shape[1] - of_first.shape[1] :] = of_first[:, ::-1]
            columns.append(np.bincount(of_pair, weights.ravel()[of_entry], len(rows)))
        nearest = np.zeros(len(rows), dtype=found.cosines.dtype)
        nearest[of_pair] = found.cosines[:, ::-1].ravel()[of_entry]  # the last one counts
        return np.stack([*columns, nearest, found.cosines[rows, 0]], axis=1)


class LabelCentroids(OfSpace):
    """List the labels with the nearest centroids.

    The centroid of a label is the mean of the unit vectors of its training samples, scaled to norm
    one. Sparse centroids keep their 50 largest entries.

    Parameters
    ----------
    n_nearest : int, default=8
        Labels to list for a sample.
    max_features_per_sample : int, default=32
        Features of largest magnitude that are kept of a sparse sample.
    space : {"input", "features"}, default="input"
        Space of the samples: rows of X or output of the encoder. Not used with a `vectorizer`.
    vectorizer : "wordllama" or transformer, default=None
        As of :class:`NearestSamples`.

    Attributes
    ----------
    centroids_ : {csr_array, ndarray} of shape (n_labels, n_features)
        Centroids, float32.
    weights_ : ndarray of shape (n_labels,)
        Weights of the samples of each label, in its centroid.
    index_ : {csr_array, ndarray} of shape (n_features, n_labels), or dict of str to ndarray
        What is searched: sparse centroids as a dense table, if it has few entries, else
        without the features of more than 5% of them, unless at most 50 have them; dense ones as
        samples in :class:`NearestSamples`. The number of a listed label is the cosine with all
        features.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking import LabelCentroids
    >>> X, Y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), csr_array([[1, 0], [1, 0], [0, 1]])
    >>> centroids = LabelCentroids().fit({"input": X}, Y)
    >>> found = centroids.search({"input": np.array([[1.0, 0.0]])}, None, None)
    >>> centroids.numbers(found, np.array([0, 0]), np.array([0, 1])).round(2)
    array([[0.92],
           [0.  ]], dtype=float32)
    """

    _parameter_constraints = {
        **OfSpace._parameter_constraints,
        "n_nearest": [Interval(Integral, 1, None, closed="left")],
    }
    monotonic = (1,)
    _of_labels = (("centroids_", 0), ("weights_", 0), ("index_", 1))

    def __init__(
        self,
        n_nearest: int = 8,
        max_features_per_sample: int = 32,
        space: str = "input",
        vectorizer: Any = None,
    ) -> None:
        self.n_nearest = n_nearest
        self.max_features_per_sample = max_features_per_sample
        self.space = space
        self.vectorizer = vectorizer

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        return np.array(["centroid"])

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> LabelCentroids:
        self.check()
        is_sparse = as_spaces(samples).is_sparse(*self.reads)
        unit = self._unit(samples, is_sparse)
        self.weights_ = weights_of_labels(Y, sample_weight)
        of_labels = relative_weights(transposed(Y), sample_weight).astype(np.float32)
        if is_sparse:
            sizes = pattern(of_labels) @ np.diff(unit.indptr) + 1
            means = [
                heaviest(unit_rows(of_labels[part] @ unit), _OF_CENTROID)
                for part in uneven_blocks(sizes.astype(np.int64), BLOCK_ENTRIES)
            ]
            self.centroids_ = sp.vstack(means, format="csr")
        else:
            self.centroids_ = integer_rows(of_labels @ (unit * inverse_norms(unit)[:, None]))
        return self._index()

    def _index(self) -> LabelCentroids:
        """Make the index of the centroids."""
        n_labels, n_features = self.centroids_.shape
        if not sp.issparse(self.centroids_):
            self.index_: Any = dense_index(self.centroids_)
        elif n_labels <= _FEW_CENTROIDS and n_labels * n_features <= SMALL:
            self.index_ = np.ascontiguousarray(self.centroids_.toarray().T)
        else:
            self.index_ = sparse_index(self.centroids_, _MOST_CENTROIDS)
        return self

    def with_later(self, samples: Samples, Y: Any, sample_weight: Any = None) -> LabelCentroids:
        labels, Y = np.unique(Y.indices), sp.csr_array(Y)
        before, later = self.weights_[labels], weights_of_labels(Y, sample_weight)[labels]
        grows = (later >= before) & (later > 0)
        if not grows.any():
            return self
        labels, share = labels[grows], (later / (before + later))[grows]
        more = copy.copy(self).fit(samples, Y[:, labels], sample_weight).centroids_
        rows = scaled_rows(unit_rows(self.centroids_[labels]), 1 - share)
        rows = rows + scaled_rows(unit_rows(more), share)
        changed = copy.copy(self)
        changed.weights_ = self.weights_.copy()
        changed.weights_[labels] += later[grows]
        if sp.issparse(rows):
            rows = heaviest(unit_rows(rows), _OF_CENTROID)
            places = np.arange(len(self.weights_))
            places[labels] = len(places) + np.arange(len(labels))
            changed.centroids_ = sp.vstack([self.centroids_, rows], "csr")[places]
        else:
            changed.centroids_ = self.centroids_.copy()
            changed.centroids_[labels] = integer_rows(rows)
        changed.index_ = None  # made by the next search
        return changed

    @property
    def entries_per_sample(self) -> int:
        index = self._searched
        return index.shape[1] if isinstance(index, np.ndarray) else 0

    @property
    def _searched(self) -> Any:
        return self._index().index_ if self.index_ is None else self.index_

    def search(self, samples: Samples, scores: Array, labels: Array) -> Any:
        queries = self._unit(samples, sp.issparse(self.centroids_))
        index = self._searched
        if isinstance(index, np.ndarray):
            cosines = queries @ index
            values, ids, counts = largest_of_rows(cosines, self.n_nearest)
            return cosines, best_entries(values, ids, pointers_of(counts), self.n_nearest)[1]
        return queries, best_items(queries, index, self.n_nearest)[0]

    def candidates(self, found: Any) -> Array:
        return found[1]  # type: ignore[no-any-return]

    def numbers(self, found: Any, rows: IntArray, labels: IntArray) -> Array:
        if isinstance(self._searched, np.ndarray):
            return numbers_at(found[0], rows, labels)
        return pair_cosines(found[0], self.centroids_, rows, labels)[:, None]


class FeatureVotes(OfShares, OfSpace):
    """Describe labels by their shares among the training samples with each feature of a sample.

    It lists no labels. The number is the mean share over the features of a sample, with two more
    samples without labels for each feature. Shares below 0.02 count as zero. If X has few zeros the
    number is zero.

    Parameters
    ----------
    max_features_per_sample : int, default=32
        Features of largest magnitude that are kept of a sample.
    vectorizer : transformer, default=None
        As of :class:`NearestSamples`. None: features are columns of X.

    Attributes
    ----------
    shares_ : csr_array of shape (n_features, n_labels), or None
        Shares, float32, in the samples of the fit.
    later_ : csr_array of shape (n_features, n_labels), or None
        Weights of the later samples with the feature that have the label, float32.
    counts_, later_counts_ : ndarray of shape (n_features,), or None
        Weights of the samples with each feature: of the fit, and later ones.

    Examples
    --------
    >>> from scipy.sparse import csr_array, eye_array
    >>> from sklearn_xlc.ranking import FeatureVotes
    >>> X = eye_array(30, format="csr")
    >>> votes = FeatureVotes().fit({"input": X}, csr_array(X.toarray()[:, :2] > 0))
    >>> votes.shares_[[0]].toarray().round(2)
    array([[0.33, 0.  ]], dtype=float32)
    """

    monotonic = (1,)
    space = "input"
    _of_labels = (("shares_", 1), ("later_", 1))
    _least, _more = 0.02, 2

    def __init__(self, max_features_per_sample: int = 32, vectorizer: Any = None) -> None:
        self.max_features_per_sample = max_features_per_sample
        self.vectorizer = vectorizer

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        return np.array(["feature_votes"])

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> FeatureVotes:
        self.check()
        if as_spaces(samples).is_sparse(*self.reads):
            return self._count(self._features(samples, sample_weight), Y)
        self.shares_ = self.later_ = None
        return self

    def with_later(self, samples: Samples, Y: Any, sample_weight: Any = None) -> FeatureVotes:
        if self.shares_ is None:
            return self
        return self._count_later(self._features(samples, sample_weight), Y)

    def _features(self, samples: Samples, sample_weight: Any) -> Any:
        return weighted(transposed(pattern(self._unit(samples, True))), sample_weight)

    @property
    def entries_per_sample(self) -> int:
        if self.shares_ is None:
            return 0
        if suits_table(self.shares_):
            return self.shares_.shape[1]
        return self.max_features_per_sample * known_of(self.shares_, "longest", _longest_row)

    def search(self, samples: Samples, scores: Array, labels: Array) -> Any:
        if self.shares_ is None:
            return [None]
        has = pattern(self._unit(samples, True))
        has.data /= np.repeat(np.diff(has.indptr), np.diff(has.indptr)).astype(np.float32)
        return self._sums(has)


def _longest_row(X: Any) -> int:
    return int(np.diff(X.indptr).max(initial=0))


class CooccurringLabels(OfShares):
    """Describe labels by the network's probabilities of the labels they usually occur with.

    It lists no labels. The number of a label is the sum, over the labels of the network's list, of
    their probability times the share of their training samples that have the label, too. Three more
    samples without labels are counted for each label. Shares below 0.03 count as zero.

    Attributes
    ----------
    shares_ : csr_array of shape (n_labels, n_labels)
        Share of the samples with the label of the row that have the label of the column, float32;
        empty diagonal. Of the samples of the fit.
    later_ : csr_array of shape (n_labels, n_labels), or None
        Weights of the later samples with the label of the row that have that of the column.
    counts_, later_counts_ : ndarray of shape (n_labels,), or None
        Weights of the samples with each label: of the fit, and later ones.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from sklearn_xlc.ranking import CooccurringLabels
    >>> together = CooccurringLabels().fit({}, csr_array([[1, 1], [1, 0]]))
    >>> together.shares_.toarray()
    array([[0.  , 0.2 ],
           [0.25, 0.  ]], dtype=float32)
    """

    reads = ()
    monotonic = (1,)
    _of_labels = (
        *(("shares_", 0), ("shares_", 1), ("later_", 0), ("later_", 1)),
        *(("counts_", 0), ("later_counts_", 0)),
    )
    _least, _more = 0.03, 3

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        return np.array(["companions"])

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> CooccurringLabels:
        return self._count(_labels(Y, sample_weight), Y)

    def with_later(self, samples: Samples, Y: Any, sample_weight: Any = None) -> CooccurringLabels:
        return self._count_later(_labels(Y, sample_weight), Y)

    def _used(self, of_things: Any) -> Any:
        return kept_entries(of_things, row_numbers(of_things.indptr) != of_things.indices)

    @property
    def entries_per_sample(self) -> int:
        return self.shares_.shape[1] if suits_table(self.shares_) else 0

    def search(self, samples: Samples, scores: Array, labels: Array) -> Any:
        present = listed_labels(scores, labels) >= 0
        odds = expit(scores.astype(np.float32))
        return self._sums(weights_of_rows(present, odds, labels[present], self.shares_))


def _labels(Y: Any, sample_weight: Any) -> Any:
    return weighted(transposed(Y).astype(np.float32), sample_weight)
