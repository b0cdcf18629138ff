"""Retriever of labels by their own texts, with or without training samples."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._compat import HasMethods, Interval, StrOptions
from sklearn_xlc._csr import IntArray
from sklearn_xlc._ids import packed
from sklearn_xlc._labels import as_objects, plain
from sklearn_xlc._part import cloned, sets_state
from sklearn_xlc._warn import warn
from sklearn_xlc.ranking.base import Array, Retriever, Samples
from sklearn_xlc.ranking.search import (
    as_spaces,
    best_items,
    dense_index,
    only_columns,
    pair_cosines,
    transposed,
)
from sklearn_xlc.ranking.vectors import WORDLLAMA

#: More features than a text has: all of them count.
_ALL = 2**31


class LabelTexts(Retriever):
    """List the labels whose own texts are most similar to a sample.

    A tag that is a word is its own text; other labels have one in `texts`. The text needs no
    training sample, so labels that nobody has seen are listed, too. A
    :class:`~sklearn_xlc.ranking.BoostedRanker` learns how far such a label is to be trusted: it
    describes some labels of the held-out samples as if no training sample had them.

    Parameters
    ----------
    texts : dict or Series, default=None
        Text of each label. A label without one is never listed. None: labels are strings, and are
        their own texts. Where y holds class labels or tags, `fit` of a classifier adds the labels
        of `texts` that y lacks to ``classes_``.
    vectorizer : "wordllama" or transformer, default=None
        Vectors of samples, which are texts, and of the texts of labels. None: weights of words, as
        of a :class:`~sklearn.feature_extraction.text.TfidfVectorizer`, without a vocabulary.
        "wordllama": static word vectors, as of :class:`~sklearn_xlc.SentenceVectorizer`. The ranker
        fits a copy to samples and texts of labels together.
    n_nearest : int, default=10
        Labels to list for a sample.

    Attributes
    ----------
    labels_ : {csr_array, ndarray} of shape (n_labels, n_features)
        Vectors of the labels' texts, float32; of sparse ones the features that some label has.
    columns_ : ndarray of shape (n_features,)
        Columns of the features in sparse vectors.
    index_ : csr_array of shape (n_features, n_labels), or dict of str to ndarray
        What is searched. Many dense vectors are in lists of similar ones, as in
        :class:`NearestSamples`.

    See Also
    --------
    LabelCentroids : Compares a sample with the training samples of a label.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn_xlc.ranking import LabelTexts
    >>> names = LabelTexts({"I10": "high blood pressure", "J45": "asthma", "R05": "cough"})
    >>> texts = names.texts_of(np.array(["I10", "J45", "R05"]))
    >>> words = CountVectorizer().fit(texts)
    >>> names = names.fit({"labels": words.transform(texts)}, None)
    >>> found = names.search({"vectors": words.transform(["cough and pressure"])}, None, None)
    >>> names.candidates(found)[:, :3]
    array([[ 2,  0, -1]])
    >>> names.numbers(found, np.array([0, 0, 0]), np.array([0, 1, 2])).round(2)
    array([[0.41],
           [0.  ],
           [0.71]], dtype=float32)
    """

    _parameter_constraints = {
        "texts": [dict, HasMethods(["items"]), None],
        "vectorizer": [StrOptions({WORDLLAMA}), HasMethods(["fit", "transform"]), None],
        "n_nearest": [Interval(Integral, 1, None, closed="left")],
    }
    reads = ("vectors",)
    fitted_to: Any = ("labels",)
    columns_: Any
    monotonic = (1,)
    refits = True
    _of_labels = (("labels_", 0), ("index_", 1))

    def __init__(self, texts: Any = None, vectorizer: Any = None, n_nearest: int = 10) -> None:
        self.texts = texts
        self.vectorizer = vectorizer
        self.n_nearest = n_nearest

    def __sklearn_clone__(self) -> LabelTexts:
        """Clone without a copy of the texts: they may be many, and are never changed."""
        vectorizer = cloned(self.vectorizer, safe=False)
        return type(self)(self.texts, vectorizer, self.n_nearest)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with texts as arrays: there may be many."""
        state = super().__getstate__()
        if self.texts is None:
            return state
        items = list(self.texts.items())
        columns = (_column([item[i] for item in items]) for i in (0, 1))
        return state | {"texts": dict(zip(("labels", "texts"), map(packed, columns)))}

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.texts is not None:
            self.texts = dict(zip(self.texts["labels"].tolist(), self.texts["texts"].tolist()))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        return np.array(["label_text"])

    # --- texts --------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        if self.texts is None:
            return
        known: set[Any] = set()
        for label, text in self.texts.items():
            if not isinstance(text, str):
                raise ValueError(
                    f"texts of LabelTexts must be strings, got {text!r} for the label "
                    f"{plain(label)!r}; leave labels without a text out"
                )
            if label in known:
                raise ValueError(f"texts of LabelTexts has the label {plain(label)!r} twice")
            known.add(label)

    def labels_without_samples(self) -> list[Any]:
        return [] if self.texts is None else [plain(label) for label, _ in self.texts.items()]

    def check_labels(self, names: Array) -> None:
        texts = self.texts_of(names)
        missing = [name for name, text in zip(names.tolist(), texts.tolist()) if not text]
        if len(missing) == len(names):
            known = self.labels_without_samples()
            why = f"it names labels like {known[:1]}, and y holds labels like {missing[:1]}"
            why = "its texts are empty" if set(known) & set(missing) else why
            raise ValueError(f"texts of LabelTexts has a text of none of the labels: {why}")
        if 2 * len(missing) > len(names):
            warn(
                f"LabelTexts has no text of {len(missing)} of {len(names)} labels, such as "
                f"{missing[0]!r}; it never lists them"
            )

    def texts_of(self, names: Array) -> Array:
        known = names.tolist()
        if self.texts is None:
            wrong = next((name for name in known if not isinstance(name, str | None)), None)
            if wrong is not None:
                raise ValueError(
                    f"labels such as {plain(wrong)!r} are no texts; give LabelTexts a dict with a "
                    "text of each label: LabelTexts(texts={...})"
                )
            return as_objects(name or "" for name in known)
        given = {plain(label): text for label, text in self.texts.items()}
        return as_objects(given.get(name, "") for name in known)

    # --- lists and numbers --------------------------------------------------------------------

    def fit(self, samples: Samples, Y: Any, sample_weight: Any = None) -> LabelTexts:
        self.check()
        spaces = as_spaces(samples)
        is_sparse = spaces.is_sparse("labels")
        self.labels_, self.columns_ = spaces.unit("labels", _ALL, is_sparse), None
        if is_sparse:
            self.columns_ = np.unique(self.labels_.indices)
            self.labels_ = only_columns(self.labels_, self.columns_)
        return self._index()

    def _index(self) -> LabelTexts:
        is_sparse = sp.issparse(self.labels_)
        self.index_: Any = transposed(self.labels_) if is_sparse else dense_index(self.labels_)
        return self

    @property
    def _searched(self) -> Any:
        return self._index().index_ if self.index_ is None else self.index_

    def search(self, samples: Samples, scores: Array, labels: Array) -> Any:
        queries = as_spaces(samples).unit("vectors", _ALL, sp.issparse(self.labels_))
        if sp.issparse(self.labels_):
            queries = only_columns(queries, self.columns_)
        return queries, best_items(queries, self._searched, self.n_nearest)[0]

    def candidates(self, found: Any) -> Array:
        return found[1]  # type: ignore[no-any-return]

    def numbers(self, found: Any, rows: IntArray, labels: IntArray) -> Array:
        return pair_cosines(found[0], self.labels_, rows, labels)[:, None]


def _column(values: list[Any]) -> Array:
    """Return an array of integers, or of objects."""
    if values and all(type(value) is int for value in values):
        return np.array(values)
    return as_objects(values)
