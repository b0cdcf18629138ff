"""Vectors of the samples as they came, for retrievers with a vectorizer."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from numbers import Integral
from pathlib import Path
from pickle import PicklingError
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from sklearn_xlc._bounds import is_word
from sklearn_xlc._compat import (
    HasMethods,
    Interval,
    StrOptions,
    import_text,
    missing,
    without_surrogates,
)
from sklearn_xlc._csr import as_dense, is_mostly_zeros, pointers_of, row_blocks, unit_rows
from sklearn_xlc.ranking.base import Array, Retriever, Samples
from sklearn_xlc.ranking.search import as_csr, as_spaces, heaviest, integer_rows

#: Name of a vectorizer: static word vectors of the package of this name.
WORDLLAMA = "wordllama"
#: Files of this package, which its own loader would download.
_FILES = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
#: Texts that are vectorized at a time.
_BLOCK = 1024
#: Samples whose vectors are made and rounded at a time.
_ROUNDED_BLOCK = 2**14
#: Axes of the network's features that are compared, at most, and size of entries for lacking ones.
_AXES, _LITTLE = 64, 1e-5


class OfSpace(Retriever):
    """Base class of retrievers within one space of samples."""

    _parameter_constraints = {
        "max_features_per_sample": [Interval(Integral, 1, None, closed="left")],
        "space": [StrOptions({"input", "features"})],
        "vectorizer": [StrOptions({WORDLLAMA}), HasMethods(["fit", "transform"]), None],
    }
    refits = True
    space: str
    max_features_per_sample: int

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.space if self.vectorizer is None else "vectors",)

    def _unit(self, samples: Samples, is_sparse: bool) -> Any:
        (space,) = self.reads
        return as_spaces(samples).unit(space, self.max_features_per_sample, is_sparse)


def word_weights() -> Any:
    """Return an unfitted vectorizer of words and numbers, weighted as by TF-IDF.

    Words are hashed, so that later texts may hold new ones: these weigh most. Underscores part
    words, as in names of labels.
    """
    counts = HashingVectorizer(
        token_pattern=r"[^\W_]+",
        n_features=2**20,
        norm=None,
        alternate_sign=False,
        dtype=np.float32,
    )
    return make_pipeline(counts, TfidfTransformer(sublinear_tf=True))


def key_of(part: Any) -> Any:
    """Return a key, equal for estimators of one class with equal parameters; lists hold some.

    Functions without a name, which copies share, are equal to themselves alone.
    """
    if hasattr(part, "get_params") and not isinstance(part, type):
        params = part.get_params(deep=False)
        return type(part).__qualname__, *((name, key_of(params[name])) for name in sorted(params))
    if isinstance(part, list | tuple):
        return tuple(map(key_of, part))
    try:
        return joblib.hash(part)
    except PicklingError:
        return id(part)


def vectors_by(vectorizer: Any, given: Any) -> Any:
    """Return vectors of samples by a fitted vectorizer: dense, or canonical CSR.

    Raises ValueError if it does not return one for each sample.
    """
    if is_word(vectorizer, WORDLLAMA):
        return texts_to_vectors(given)
    vectors = vectorizer.transform(given)
    shape = getattr(vectors, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != given.shape[0]:
        raise ValueError(
            f"vectorizer={vectorizer!r} must return an array or sparse matrix with a row for each "
            f"of {given.shape[0]} samples, got {type(vectors).__name__} of shape {shape}"
        )
    return as_csr(vectors) if sp.issparse(vectors) else np.asarray(vectors, dtype=np.float32)


def rounded_by(vectorizer: Any, given: Any, n_heaviest: int) -> Any:
    """Return directions in few bytes: heaviest entries of sparse vectors, dense ones as int8.

    They are made in blocks of samples; the first one tells whether vectors are kept sparse.
    """
    blocks, is_sparse = [], None
    for start in range(0, max(1, given.shape[0]), _ROUNDED_BLOCK):
        vectors = vectors_by(vectorizer, given[start : start + _ROUNDED_BLOCK])
        if is_sparse is None:
            is_sparse = sp.issparse(vectors) and is_mostly_zeros(vectors)
        if is_sparse:
            blocks.append(heaviest(vectors, n_heaviest))
        else:
            blocks.append(integer_rows(as_dense(vectors), dtype=np.int8))
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, "csr") if is_sparse else np.concatenate(blocks)


def leading_axes(features: Any) -> Array:
    """Return the directions in which samples of norm one reach farthest, (n_features, n_axes).

    They are the first 64 right singular vectors; of fewer features all axes as they are.
    """
    n_features = features.shape[1]
    if n_features <= _AXES:
        return np.eye(n_features, dtype=np.float32)
    unit = unit_rows(np.asarray(features, dtype=np.float32))
    # A first batch may have fewer samples than there are axes: any others will do.
    others = np.random.RandomState(0).normal(0, _LITTLE, (_AXES, n_features)).astype(np.float32)
    with threadpool_limits(1):  # the same bits for any number of threads
        found = randomized_svd(np.concatenate([unit, others]), _AXES, random_state=0)
    return np.ascontiguousarray(found[2].T, dtype=np.float32)


def on_axes(features: Any, axes: Array) -> Array:
    """Return the coordinates of samples, float32: the same whatever samples are beside one."""
    out, axes = np.empty((len(features), axes.shape[1]), dtype=np.float32), axes.astype(np.float64)
    for part in row_blocks(len(features), features.shape[1]):
        out[part] = features[part] @ axes
    return out


# --- static word vectors ------------------------------------------------------------------------


def has_word_vectors() -> bool:
    """Return whether the packages for :func:`texts_to_vectors` are installed.

    Returns
    -------
    bool
        Whether they are.
    """
    return all(importlib.util.find_spec(name) for name in (WORDLLAMA, "tokenizers", "safetensors"))


def texts_to_vectors(texts: Array) -> Array:
    """Return the mean of the static word vectors of each text, of norm one.

    Parameters
    ----------
    texts : ndarray of str of shape (n_texts,)
        Texts.

    Returns
    -------
    ndarray of shape (n_texts, 256), float32
        Vectors; zero for a text without words.

    Raises
    ------
    ImportError
        If a package of the extra ``text`` is missing.
    TypeError
        If the samples are not texts.
    """
    if not (isinstance(texts, np.ndarray) and texts.dtype.kind == "O"):
        raise TypeError(
            f"vectorizer={WORDLLAMA!r} reads texts, and X holds numbers; pass texts to the "
            "classifier (encoder='text'), or take another vectorizer"
        )
    average = _word_vectors()
    starts = range(0, len(texts), _BLOCK)
    blocks = [average(without_surrogates(texts[i : i + _BLOCK])) for i in starts]
    return unit_rows(np.concatenate(blocks or [average([])]))


# They are loaded once a process, and belong to no estimator: clones and files stay small.


@functools.cache
def _word_vectors() -> Callable[[list[str]], Array]:
    """Return a function to average static vectors of the package wordllama over texts."""
    from_str = import_text("tokenizers").Tokenizer.from_str
    found = importlib.util.find_spec(WORDLLAMA)  # imported, it would set up logging
    if found is None or found.origin is None:
        raise missing(WORDLLAMA)
    weights, tokenizer = (Path(found.origin).parent / name for name in _FILES)
    (table,) = import_text("safetensors.numpy").load_file(weights).values()
    table, tokens = table.astype(np.float32), from_str(tokenizer.read_text(encoding="utf-8"))
    tokens.no_padding()
    tokens.no_truncation()

    def vectors(texts: list[str]) -> Array:
        encoded = tokens.encode_batch_fast(texts, add_special_tokens=False)  # without offsets
        ids = [encoding.ids for encoding in encoded]
        sizes = np.array([len(row) for row in ids], dtype=np.int64)
        indices = np.fromiter((token for row in ids for token in row), np.int32, sizes.sum())
        weights = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
        indptr = pointers_of(sizes)
        return sp.csr_matrix((weights, indices, indptr), (len(ids), len(table))) @ table

    return vectors


def reads_texts(transformer: Any) -> bool:
    """Return whether a transformer of scikit-learn, or the first of a pipeline, reads texts."""
    first = getattr(transformer, "steps", [("", transformer)])[0][1]
    if not hasattr(first, "__sklearn_tags__"):
        return False
    reads = first.__sklearn_tags__().input_tags
    return bool(reads.string and not reads.two_d_array)
