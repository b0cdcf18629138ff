"""Rankers with retrievers: parameters by name, and what each retriever reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_xlc._checks import naming
from sklearn_xlc._compat import Composition
from sklearn_xlc._csr import SPARSE_SHARE, is_mostly_zeros
from sklearn_xlc._part import cloned
from sklearn_xlc.ranking.base import Array, PlainArrays, Ranker, Retriever, Samples
from sklearn_xlc.ranking.retrievers import (
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
)
from sklearn_xlc.ranking.search import Spaces, as_csr, heaviest, integer_rows
from sklearn_xlc.ranking.vectors import (
    WORDLLAMA,
    key_of,
    leading_axes,
    on_axes,
    reads_texts,
    rounded_by,
    texts_to_vectors,
    vectors_by,
    word_weights,
)


class Retrieving(Composition, PlainArrays, Ranker):
    """Base class of a ranker with the parameter `retrievers`.

    Attributes
    ----------
    vectorizers_ : list of {"wordllama", transformer}
        Fitted vectorizers of the retrievers, equal ones once.
    places_ : dict of str to int
        Position of the vectorizer of each retriever that has one.
    axes_ : ndarray of shape (n_features, n_axes), or None
        Axes on which features of the network are compared; none if none were given, None before
        samples are remembered.
    """

    retrievers: Any
    axes_: Any = None
    retrievers_: Any = None
    vectorizers_: list[Any] = []
    places_: dict[str, int]
    #: Labels, if a retriever is fitted to them; None where the name of one is not yet known.
    names_: Any = None

    # --- parameters ---------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; parameters of retrievers by their names.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the retrievers and their parameters, too.

        Returns
        -------
        dict
            Parameters.
        """
        return self._get_params("_by_name", deep)

    def set_params(self, **params: Any) -> Retrieving:
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
        self.retrievers = params.pop("retrievers", self.retrievers)
        if dict(self._by_name).keys() & {key.partition("__")[0] for key in params}:
            self.retrievers = self._by_name
        return self._set_params("retrievers", **params)

    @property
    def _by_name(self) -> list[tuple[str, Retriever]]:
        return self._named()

    def _named(self, space: str = "input") -> list[tuple[str, Retriever]]:
        if not isinstance(self.retrievers, str):
            return list(self.retrievers)
        weights: Any = None
        if self.retrievers == "counts":
            logarithms = FunctionTransformer(np.arcsinh, accept_sparse=True)  # of any sign
            weights = make_pipeline(logarithms, TfidfTransformer())
        named: list[tuple[str, Retriever]] = [
            ("near", NearestSamples(space=space, vectorizer=weights)),
            ("centroids", LabelCentroids(space=space, vectorizer=weights)),
            *([("votes", FeatureVotes(vectorizer=weights))] if space == "input" else []),
            ("together", CooccurringLabels()),
        ]
        if space == "input" and (self.axes_ is None or self.axes_.size):
            named.append(("near_in_features", NearestSamples(space="features")))
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
        with naming("retrievers"):
            self._validate_names(names)
        for _, retriever in self._named():
            retriever.check()

    @property
    def reads(self) -> tuple[str, ...]:
        read = [s for _, each in self._named() for s in (*each.reads, *each.fitted_to)]
        spaces = dict.fromkeys("given" if space == "vectors" else space for space in read)
        return (*spaces, "ids")

    def check_given(self, given: Any) -> None:
        for _, each in self._named():
            if each.vectorizer == WORDLLAMA:
                texts_to_vectors(given[:1])
            if given.dtype == object:
                continue
            remedy = "X holds numbers; pass texts to the classifier (encoder='text')"
            if _has_label_vectors(each):
                raise TypeError(f"{each!r} compares texts of labels with samples, and {remedy}")
            if reads_texts(each.vectorizer):
                raise TypeError(f"{each!r} has a vectorizer of texts, and {remedy}")

    def check_labels(self, names: Array) -> None:
        for _, each in self._named():
            if "labels" in each.fitted_to:
                each.check_labels(names)

    def labels_without_samples(self) -> list[Any]:
        return [label for _, each in self._named() for label in each.labels_without_samples()]

    def with_params_of(self, ranker: Ranker) -> Ranker:
        changed: Any = super().with_params_of(ranker)
        if key_of(self._named()) == key_of(changed._named()):
            return changed  # type: ignore[no-any-return]
        before, now = self._needs(), changed._needs()
        if before.keys() != now.keys():
            raise ValueError(
                f"retrievers={changed.retrievers!r} need other spaces of the training samples, "
                "another number of features, or other texts of labels, than are remembered: fit "
                "again"
            )
        of_vectors = {key: names for key, names in before.items() if key[0] == "vectors"}
        changed.places_ = {
            name: self.places_[names[0]] for key, names in of_vectors.items() for name in now[key]
        }
        changed.retrievers_, changed.indexes_ = None, {}
        return changed  # type: ignore[no-any-return]

    def _needs(self) -> dict[Any, list[str]]:
        """Return the names of the retrievers by what of samples and labels they need remembered."""
        readers: dict[Any, list[tuple[str, Retriever]]] = {}
        for name, each in self._named():
            texts = each.texts_of(self.names_) if _has_label_vectors(each) else None
            for space in dict.fromkeys((*each.reads, *each.fitted_to)):
                own = {"vectors": each.vectorizer, "labels": texts}.get(space)
                readers.setdefault((space, key_of(own)), []).append((name, each))
        found = {}
        for key, sharing in readers.items():
            limits = [each.max_features_per_sample for _, each in sharing]
            most = None if None in limits else max(limits)
            found[*key, most] = [name for name, _ in sharing]
        return found

    # --- what retrievers read -----------------------------------------------------------------

    def begin(self, samples: Samples) -> None:
        features = samples.get("features")
        self.axes_ = np.empty((0, 0)) if features is None else leading_axes(features)

    def _check_axes(self) -> None:
        """Raise ValueError unless the axes of a loaded ranker are those of what it remembers."""
        features = self.memory_["samples"].get("features", np.empty((0, 0), np.int8))
        axes: Any = self.axes_
        is_matrix = isinstance(axes, np.ndarray) and axes.ndim == 2 and axes.dtype.kind == "f"
        if not (is_matrix and axes.shape[1:] == features.shape[1:] and np.isfinite(axes).all()):
            raise ValueError(
                "a saved ranker remembers features on other axes than its own: fit again"
            )

    def _fit_vectorizers(self, samples: Samples) -> None:
        """Fit the vectorizers of the retrievers to samples, as they came, and texts of labels.

        Equal vectorizers are fitted once, to the texts of all retrievers that have one.
        """
        readers: dict[Any, list[tuple[str, Retriever]]] = {}
        for name, each in self._named():
            if "vectors" in each.reads:
                readers.setdefault(key_of(each.vectorizer), []).append((name, each))
        self.vectorizers_, self.places_ = [], {}
        for place, sharing in enumerate(readers.values()):
            self.places_ |= {name: place for name, _ in sharing}
            vectorizer = sharing[0][1].vectorizer
            vectorizer = word_weights() if vectorizer is None else vectorizer
            with_texts = [each for _, each in sharing if _has_label_vectors(each)]
            texts = [each.texts_of(self.names_) for each in with_texts]
            if vectorizer != WORDLLAMA:
                given = samples["given"]
                given = np.concatenate([given, *texts]) if texts else given
                vectorizer = cloned(vectorizer).fit(given)
            self.vectorizers_.append(vectorizer)

    def _with_vectors(self, samples: Samples, to_remember: bool = False) -> dict[str, Any]:
        """Return samples with the spaces of vectorizers; "given" only if a retriever reads it.

        `to_remember`: rounded, and only what retrievers are fitted to.
        """
        found = {space: X for space, X in samples.items() if space != "given"}
        if "features" in found:
            found["features"] = self._compared(found["features"])
        read = {n: each.fitted_to if to_remember else each.reads for n, each in self._named()}
        for place, vectorizer in enumerate(self.vectorizers_):
            here = [(name, each) for name, each in self._named() if self.places_.get(name) == place]
            is_read = any("vectors" in read[name] for name, _ in here)
            if not is_read or _space(place) in samples:  # of remembered samples
                continue
            if to_remember:
                most = max([each.max_features_per_sample or 32 for _, each in here])
                found[_space(place)] = rounded_by(vectorizer, samples["given"], most)
            else:
                found[_space(place)] = vectors_by(vectorizer, samples["given"])
        if any("given" in spaces for spaces in read.values()):
            found["given"] = samples["given"]
        return found

    def _compared(self, features: Array) -> Array:
        """Return features as they are compared: on axes, in eight bits."""
        if self.axes_ is None or not self.axes_.size or self._are_compared(features):
            return features
        return integer_rows(on_axes(features, self.axes_), np.int8)

    def _are_compared(self, features: Array | None) -> bool:
        width = None if self.axes_ is None else self.axes_.shape[1]
        return features is not None and features.dtype == np.int8 and features.shape[1] == width

    def _read_by(self, samples: Samples) -> Callable[[str], Spaces]:
        """Return what the retriever of a name reads of samples; equal readers share it."""
        spaces: dict[int | None, Spaces] = {None: Spaces(samples)}
        for place in range(len(self.vectorizers_)):
            if _space(place) in samples:
                spaces[place] = Spaces({**samples, "vectors": samples[_space(place)]})
        return lambda name: spaces.get(self.places_.get(name), spaces[None])

    def _labels_for(self, name: str, retriever: Retriever) -> Any:
        """Return the labels as a retriever reads them: their names, or vectors of their texts."""
        if not _has_label_vectors(retriever):
            return self.names_
        texts = retriever.texts_of(self.names_)
        vectors = vectors_by(self.vectorizers_[self.places_[name]], texts)
        has_text = (texts != "").astype(np.float32)
        if sp.issparse(vectors):
            return as_csr(sp.diags_array(has_text) @ vectors)
        return vectors * has_text[:, None]

    def shortened(self, samples: Samples) -> dict[str, Any]:
        found = self._with_vectors(samples, to_remember=True) if "given" in samples else samples
        if "features" in found:
            found = {**found, "features": self._compared(found["features"])}
        X: Any = found.get("input")
        if not (sp.issparse(X) and self._keeps_heaviest(X)):
            return dict(found)
        readers = [each for _, each in self._named() if "input" in (*each.reads, *each.fitted_to)]
        limits = [each.max_features_per_sample for each in readers]
        if not limits:
            return {**found, "input": sp.csr_array(X.shape, dtype=np.float32)}
        return {**found, "input": X if None in limits else heaviest(as_csr(X), max(limits))}

    def _keeps_heaviest(self, X: Any) -> bool:
        """Return whether samples are compared by their heaviest features, as those before are.

        A few samples may have more zeros than all, or fewer.
        """
        before = self.remembered
        if not (before and before[1].shape[0]):
            return is_mostly_zeros(X)
        known = before[0].get("input")
        return sp.issparse(known) and known.nnz < SPARSE_SHARE * known.shape[0] * known.shape[1]


def _has_label_vectors(retriever: Retriever) -> bool:
    """Return whether a retriever compares vectors of samples and of labels' texts."""
    return "labels" in retriever.fitted_to and "vectors" in retriever.reads


def _space(place: int) -> str:
    """Return the name of the space of a vectorizer."""
    return f"vectors {place}"
