"""Encoder of strings by hashed words and phrases, without a vectorizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import pointers_of, unit_rows
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import SparseRows
from sklearn_xlc.encoders._base import EncoderPart
from sklearn_xlc.encoders.mlp import MLPEncoder

_WORD = re.compile(r"\w+")
#: Texts to judge words by, at least and at most (hashes of more meet by chance), and the share of
#: those without a word of another, from which on to warn.
_LEAST_JUDGED, _MOST_JUDGED, _ALONE = 500, 20_000, 0.5


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case: letters, digits and underscores."""
    return _WORD.findall(text.lower())


class TextEncoder(MLPEncoder):
    """Multilayer perceptron over hashed tokens of strings, without a vectorizer.

    The tokens of a text, and phrases of several tokens, are hashed to rows of a table; the weighted
    sum of these rows enters the first hidden layer. The weight of a token is
    ``1 + log(occurrences)``, times its inverse document frequency, scaled so that the weights of a
    text have norm one. There is no vocabulary: `partial_fit` takes texts with new words.

    Parameters
    ----------
    n_buckets, hidden_layer_sizes, dropout : object, default=2**18 and (256,) and 0.5
        As of :class:`Text`.
    ngram_range, tokenizer, use_idf : object, default=(1, 1) and None and True
        As of :class:`Text`.
    negative_slope : float, default=0.0
        As of :class:`Text`.

    Attributes
    ----------
    accepts : tuple
        ``("text",)``.
    n_outputs : int
        Number of features.
    idf : Tensor of shape (n_buckets,)
        Factors of the tokens; all one before `fit_vectorize`, and without `use_idf`.

    See Also
    --------
    TransformerEncoder : A pretrained transformer, fine-tuned: slower by a factor of hundreds.
    sklearn_xlc.SentenceVectorizer : Frozen sentence vectors.

    Examples
    --------
    >>> from sklearn_xlc.encoders import TextEncoder
    >>> TextEncoder(n_buckets=16).vectorize(["salt water"]).shape
    (1, 16)
    """

    accepts = ("text",)

    def __init__(
        self,
        n_buckets: int = 2**18,
        hidden_layer_sizes: Sequence[int] = (256,),
        dropout: float = 0.5,
        ngram_range: tuple[int, int] = (1, 1),
        tokenizer: Callable[[str], Iterable[str]] | None = None,
        use_idf: bool = True,
        negative_slope: float = 0.0,
    ) -> None:
        check_integer(n_buckets, "n_buckets")
        low, high = (check_integer(n, "ngram_range") for n in ngram_range)
        if low > high:
            raise ValueError(
                f"ngram_range must be two numbers of tokens, the smaller first, got {ngram_range}"
            )
        super().__init__(n_buckets, hidden_layer_sizes, dropout, negative_slope=negative_slope)
        self.n_buckets, self.ngram_range, self.use_idf = n_buckets, ngram_range, use_idf
        self.tokenizer = words if tokenizer is None else tokenizer
        self.idf: Tensor
        self.register_buffer("idf", torch.ones(n_buckets))

    def collate(self, samples: Sequence[str]) -> SparseRows:
        """Convert texts to CSR rows of hashed tokens, of shape (n_samples, n_buckets)."""
        return SparseRows.from_csr(self.vectorize(samples))

    def vectorize(self, samples: Sequence[str]) -> sp.csr_matrix:
        """Convert texts to CSR rows of token weights, (n_samples, n_buckets), of norm one."""
        return self._weighted(self._counts(samples))

    def fit_vectorize(self, samples: Sequence[str]) -> sp.csr_matrix:
        """Learn the frequencies of tokens; set rows of the table without a token to zero.

        Of 500 texts and more it warns if half share no word with another, and words are tokens.
        Training does not change these rows, so new tokens of later texts have no effect.
        """
        counts = self._counts(samples)
        frequency = torch.from_numpy(np.bincount(counts.indices, minlength=self.n_buckets))
        if self.tokenizer is words:
            _warn_of_names(counts[:_MOST_JUDGED])
        self.input._keep(frequency > 0)
        if self.use_idf:
            self.idf.copy_(1 + torch.log((1 + counts.shape[0]) / (1 + frequency)))
        return self._weighted(counts)

    def _weighted(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        counts.data = 1 + np.log(counts.data)
        counts.data *= self.idf.numpy(force=True)[counts.indices]
        return unit_rows(counts).astype(str(self.input.weight.dtype).removeprefix("torch."))

    def _counts(self, samples: Sequence[str]) -> sp.csr_matrix:
        """Count each token and phrase in each text."""
        rows = [self._buckets(text) for text in samples]
        indptr = pointers_of([len(row) for row in rows])
        indices = np.fromiter((bucket for row in rows for bucket in row), np.int32, indptr[-1])
        counts = sp.csr_matrix(
            (np.ones(len(indices)), indices, indptr), shape=(len(rows), self.n_buckets)
        )
        counts.sum_duplicates()
        return counts

    def tokens_of(self, text: str) -> dict[int, str]:
        """Return tokens and phrases of a text by table row; join the ones with equal rows."""
        found: dict[int, list[str]] = {}
        for phrase, bucket in zip(self._phrases(text), self._buckets(text)):
            found.setdefault(bucket, []).append(phrase)
        return {bucket: " | ".join(dict.fromkeys(phrases)) for bucket, phrases in found.items()}

    def _buckets(self, text: str) -> list[int]:
        """Return the table row of each token and phrase of a text."""
        # CRC-32 is the same in every process and on every machine, other than `hash`.
        return [crc32(phrase.encode()) % self.n_buckets for phrase in self._phrases(text)]

    def _phrases(self, text: str) -> list[str]:
        """Return the tokens of a text, and its phrases of adjacent tokens."""
        tokens = list(self.tokenizer(text))
        least, largest = self.ngram_range
        phrases = tokens if least == 1 else []
        for size in range(max(2, least), largest + 1):
            phrases = phrases + [" ".join(run) for run in zip(*(tokens[i:] for i in range(size)))]
        return phrases


def _warn_of_names(counts: sp.csr_matrix) -> None:
    """Warn where most texts have no word in common with another: their words say nothing."""
    n_texts, is_shared = counts.shape[0], np.bincount(counts.indices)[counts.indices] > 1
    n_shared = sp.csr_array((is_shared, counts.indices, counts.indptr), counts.shape).sum(axis=1)
    n_alone = np.count_nonzero(n_shared == 0)
    if n_texts >= _LEAST_JUDGED and n_alone >= _ALONE * n_texts:
        warn(
            f"{n_alone} of {n_texts} texts share no word with another: of names, identifiers or "
            "codes the encoder must read pieces, by Text(tokenizer=), such as TfidfVectorizer("
            "analyzer='char_wb', ngram_range=(1, 4)).build_analyzer()"
        )


class Text(EncoderPart):
    """Perceptron over hashed words of strings, without a vectorizer.

    Parameters
    ----------
    n_buckets : int, default=2**18
        Number of rows of the table. Tokens that share a row are not distinguished: take 2**20 for
        pairs of words.
    hidden_layer_sizes : sequence of int, default=(256,)
        Widths of the hidden layers, at least one.
    dropout : float or "auto", default="auto"
        Fraction of the features that training drops. "auto": as of :class:`MLP`, for twice as many
        samples: 0.5 up to 20 000 and none from 63 000 on.
    ngram_range : pair of int, default=(1, 1)
        Smallest and largest number of tokens of a phrase; ``(1, 2)`` adds pairs of adjacent tokens.
    tokenizer : callable, default=None
        Turns a text into a list of tokens (str). None: words in lower case. To save the classifier,
        use a function that can be pickled.
    use_idf : bool, default=True
        Whether rare tokens weigh more: by ``1 + log((1 + n) / (1 + df))``, where a token is in `df`
        of the `n` texts of the first `fit` or `partial_fit`, as in
        :class:`~sklearn.feature_extraction.text.TfidfTransformer`.
    negative_slope : float or "auto", default="auto"
        Slope of the activation for negative inputs; 0.0 is ReLU. "auto": 0.25 for classes of more
        than 64 samples.

    See Also
    --------
    TextEncoder : The module.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.encoders import Text
    >>> texts = ["a body of salt water", "an animal that barks", "a stream of water"] * 10
    >>> y = ["water", "animal", "water"] * 10
    >>> encoder = Text(hidden_layer_sizes=(16,), ngram_range=(1, 2))
    >>> clf = MultiHeadClassifier(encoder=encoder, max_epochs=20, random_state=0).fit(texts, y)
    >>> clf.predict(["salt water", "an animal"]).tolist()
    ['water', 'animal']
    """

    module = TextEncoder

    _parameter_constraints = {
        "n_buckets": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "dropout": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "ngram_range": ["array-like"],
        "tokenizer": [None, callable],
        "use_idf": ["boolean"],
        "negative_slope": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        n_buckets: int = 2**18,
        *,
        hidden_layer_sizes: Any = (256,),
        dropout: Any = "auto",
        ngram_range: Any = (1, 1),
        tokenizer: Any = None,
        use_idf: bool = True,
        negative_slope: Any = "auto",
    ) -> None:
        self.n_buckets = n_buckets
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.ngram_range = ngram_range
        self.tokenizer = tokenizer
        self.use_idf = use_idf
        self.negative_slope = negative_slope

    def __setstate__(self, state: Any) -> None:
        # Files of before had no such parameter.
        super().__setstate__({"negative_slope": 0.0, **state})
