"""SentenceVectorizer: turn texts into vectors by a frozen, pretrained model."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize

from sklearn_xlc._compat import Interval, StrOptions, fit_context
from sklearn_xlc.encoders import TransformerEncoder
from sklearn_xlc.engine import check_texts
from sklearn_xlc.ranking import WORDLLAMA, texts_to_vectors
from sklearn_xlc.training import multiplies_bfloat16, resolve_device

#: Texts that pass through a transformer in one block.
_BLOCK = 1024


class SentenceVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn texts into dense vectors by a frozen model, without network access.

    Words of similar meaning have similar vectors, even if they do not occur in the training texts.
    The vectors help with few samples, or in a :class:`~sklearn.pipeline.FeatureUnion` with a
    :class:`~sklearn.feature_extraction.text.TfidfVectorizer`; alone they have less detail than the
    words. Each text is vectorized once, not in every epoch.

    It needs the packages of ``pip install sklearn-xlc[text]``.

    Parameters
    ----------
    model : str or path-like, default="wordllama"
        "wordllama": mean of static word vectors in 256 dimensions, from the package of this name;
        thousands of texts a second. Otherwise a transformer: a folder in the format of
        `save_pretrained` (such as a sentence transformer's), or a name, see
        :class:`~sklearn_xlc.encoders.TransformerEncoder`.
    max_length : int, default=128
        Largest number of tokens of a text for a transformer; unused by "wordllama".
    pooling : {"mean", "cls"}, default="mean"
        Vector of a text: the mean of its tokens, or the first token; unused by "wordllama".
    device : str or torch.device, default="auto"
        Device of a transformer; "auto" is the GPU if there is one.

    Attributes
    ----------
    n_features_out_ : int
        Number of dimensions.

    See Also
    --------
    sklearn_xlc.encoders.TransformerEncoder : Fine-tunes a transformer.
    sklearn_xlc.encoders.TextEncoder : Vectors of words, trained from scratch.

    Notes
    -----
    Vectors have norm one; with "wordllama" a text without tokens has the vector zero. Saved
    estimators hold the parameters only, so the model must still be there when they are loaded.
    Transformers run in half precision on processors and GPUs with fast half-precision products.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier, SentenceVectorizer
    >>> model = make_pipeline(SentenceVectorizer(), MultiHeadClassifier(random_state=0))
    >>> model.fit(texts, tags)  # doctest: +SKIP
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "model": [str, os.PathLike],
        "max_length": [Interval(Integral, 1, None, closed="left")],
        "pooling": [StrOptions({"mean", "cls"})],
        "device": [str, torch.device],
    }

    def __init__(
        self,
        model: Any = "wordllama",
        *,
        max_length: int = 128,
        pooling: str = "mean",
        device: Any = "auto",
    ) -> None:
        self.model = model
        self.max_length = max_length
        self.pooling = pooling
        self.device = device

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> SentenceVectorizer:
        """Check texts and load the model.

        Parameters
        ----------
        X : list, Series or array of str of shape (n_samples,)
            Texts.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
            The vectorizer.

        Raises
        ------
        ImportError
            If a package of the extra ``text`` is missing.
        """
        check_texts(X)
        self.n_features_out_ = self._vectors(np.array([""], dtype=object)).shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Turn texts into vectors.

        Parameters
        ----------
        X : list, Series or array of str of shape (n_samples,)
            Texts.

        Returns
        -------
        ndarray of shape (n_samples, `n_features_out_`)
            Vectors of norm one, float32.
        """
        return self._vectors(check_texts(X))

    def _vectors(self, texts: np.ndarray) -> np.ndarray:
        if self.model == WORDLLAMA:
            return texts_to_vectors(texts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a GPU that cannot be used: as a classifier warns
            device = str(resolve_device(self.device))
        model = os.fspath(self.model)
        vectors = _transformer(model, self.max_length, self.pooling, device)
        blocks = [texts[i : i + _BLOCK].tolist() for i in range(0, len(texts), _BLOCK)]
        return np.concatenate([normalize(vectors(block)) for block in blocks])

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


# Models are loaded once a process, and belong to no estimator: clones and files stay small.


@functools.lru_cache(maxsize=2)
def _transformer(
    model: str, max_length: int, pooling: str, device: str
) -> Callable[[list[str]], np.ndarray]:
    """Return a function to compute features of texts by a frozen transformer."""
    frozen = TransformerEncoder(model, learning_rate=0.0, max_length=max_length, pooling=pooling)
    frozen.to(device).eval()
    kind, half = torch.device(device).type, multiplies_bfloat16(device)

    def vectors(texts: list[str]) -> np.ndarray:
        inputs = {name: part.to(device) for name, part in frozen.collate(texts).items()}
        with torch.no_grad(), torch.autocast(kind, torch.bfloat16, enabled=half):
            return frozen(inputs).float().cpu().numpy()

    return vectors
