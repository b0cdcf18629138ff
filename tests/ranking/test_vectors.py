"""Vectors of samples as they came."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import FunctionTransformer

from sklearn_xlc.ranking import vectors
from sklearn_xlc.ranking.vectors import (
    WORDLLAMA,
    key_of,
    leading_axes,
    on_axes,
    rounded_by,
    texts_to_vectors,
    vectors_by,
    word_weights,
)

TEXTS = np.array(["salt water", "a dog", "", "salt"], dtype=object)


def cosines(X):
    X = X.astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return (X / np.where(norms > 0, norms, 1)) @ (X / np.where(norms > 0, norms, 1)).T


def rounded(X, n_heaviest):
    return rounded_by(FunctionTransformer(), X, n_heaviest)


def test_equal_vectorizers_are_one():
    words, twice = TfidfVectorizer(), FunctionTransformer(lambda X: X)
    named = {
        "a": words,
        "b": clone(words),
        "c": TfidfVectorizer(min_df=2),
        "d": WORDLLAMA,
        "e": twice,
        "f": WORDLLAMA,
        "g": twice,
    }
    keys = [key_of(vectorizer) for vectorizer in named.values()]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 3, 4, 3, 4]


@given(arrays(np.float64, (6, 12), elements=st.floats(-1e3, 1e3).map(lambda x: round(x, 3))))
def test_rounded_vectors_keep_their_directions(X):
    X[0] = 0
    kept = rounded(X, 3)
    assert kept.dtype == np.int8
    np.testing.assert_array_equal(kept[0], 0)
    np.testing.assert_allclose(cosines(kept), cosines(X), atol=0.03)


def test_many_rounded_dimensions_change_cosines_by_less(rng):
    X = rng.normal(size=(50, 256)).astype(np.float32)
    np.testing.assert_allclose(cosines(rounded(X, 3)), cosines(X), atol=0.005)


def test_sparse_vectors_keep_their_heaviest_features(rng):
    X = sp.random(20, 400, 0.03, format="csr", random_state=0)
    kept = rounded(sp.csr_array(X), 4)
    assert np.diff(kept.indptr).max() == 4
    few_zeros = sp.csr_array(rng.random((5, 4)) + 0.1)
    assert rounded(few_zeros, 2).dtype == np.int8


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_vectors_are_rounded_in_blocks_as_in_one(form, monkeypatch):
    X = form(sp.random(20, 400, 0.03, format="csr", random_state=0).toarray())
    whole = rounded(X, 4)
    monkeypatch.setattr(vectors, "_ROUNDED_BLOCK", 7)
    blocks = rounded(X, 4)
    assert type(blocks) is type(whole)
    assert blocks.dtype == whole.dtype
    as_dense = [each.toarray() if sp.issparse(each) else each for each in (whole, blocks)]
    np.testing.assert_array_equal(*as_dense)


def test_vectors_are_sparse_where_those_of_the_first_block_are(monkeypatch):
    monkeypatch.setattr(vectors, "_ROUNDED_BLOCK", 10)
    X = sp.random(20, 40, 0.03, format="lil", random_state=0)
    X[15] = 1.0
    kept = rounded(X.tocsr(), 4)
    assert sp.issparse(kept)
    assert np.diff(kept.indptr).max() == 4
    assert rounded(X.tocsr()[10:], 4).dtype == np.int8


def test_vectors_of_a_transformer_are_floats():
    words = TfidfVectorizer().fit(TEXTS)
    found = vectors_by(words, TEXTS)
    assert sp.issparse(found)
    assert found.has_canonical_format
    integers = FunctionTransformer(lambda X: np.ones((len(X), 2), dtype=int))
    assert vectors_by(integers, TEXTS).dtype == np.float32


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((3, 2)), [[1.0]] * 4])
def test_wrong_shapes_are_named(wrong):
    with pytest.raises(ValueError, match="a row for each of 4 samples"):
        vectors_by(FunctionTransformer(lambda X: wrong), TEXTS)


def test_texts_in_blocks_and_texts_without_words(monkeypatch):
    def lengths(texts):
        return np.array([[len(text), 2 * text.count("a")] for text in texts]).reshape(-1, 2)

    monkeypatch.setattr(vectors, "_word_vectors", lambda: lengths)
    whole = texts_to_vectors(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), [1, 1, 0, 1])
    monkeypatch.setattr(vectors, "_BLOCK", 3)
    np.testing.assert_array_equal(vectors_by(WORDLLAMA, TEXTS), whole)
    assert texts_to_vectors(TEXTS[:0]).shape == (0, 2)
    for numbers in (np.eye(2), sp.csr_matrix(np.eye(2))):
        with pytest.raises(TypeError, match="reads texts, and X holds numbers"):
            texts_to_vectors(numbers)


def test_halves_of_surrogate_pairs_are_read(monkeypatch):
    def sizes(texts):  # tokenizers encodes texts, too
        return np.array([[len(text.encode()), 1.0] for text in texts])

    monkeypatch.setattr(vectors, "_word_vectors", lambda: sizes)
    texts = np.array(["\ud800 lone", "? lone", "caf\u00e9 \U0001f600"], dtype=object)
    found = texts_to_vectors(texts)
    np.testing.assert_array_equal(found[0], found[1])
    assert found[2, 0] / found[2, 1] == pytest.approx(10)


def test_weights_of_words_know_later_words():
    words = word_weights().fit(["a red dog", "a red cat", "machine_learning"])
    X = words.transform(
        ["a Zebra", "a red", "machine learning", "learning", "", "a a a b"]
    ).toarray()
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), [1, 1, 1, 1, 0, 1], rtol=1e-6)
    idf = 1 + np.log(4 / np.array([3, 1]))  # of words that two and none of the texts have
    np.testing.assert_allclose(np.sort(X[0])[-2:], idf[:2] / np.linalg.norm(idf[:2]), rtol=1e-6)
    np.testing.assert_allclose(np.sort(X[3])[-1:], [1])
    many = idf[0] * (1 + np.log(3)), idf[1]
    np.testing.assert_allclose(np.sort(X[5])[-2:], np.sort(many / np.linalg.norm(many)), rtol=1e-6)
    np.testing.assert_allclose(X[2].max(), 1 / np.sqrt(2), rtol=1e-6)
    assert X.dtype == np.float32


# --- features of a network on their leading axes -------------------------------------------------


def test_leading_axes_are_singular_vectors():
    X = np.random.default_rng(0).normal(size=(300, 90)) * np.linspace(3, 0.1, 90)
    axes = leading_axes(X.astype(np.float32))
    assert axes.shape == (90, 64)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    singular = np.linalg.svd(unit)[1]
    np.testing.assert_allclose(np.sum((unit @ axes) ** 2), np.sum(singular[:64] ** 2), rtol=1e-3)
    np.testing.assert_allclose(axes.T @ axes, np.eye(64), atol=1e-5)
    np.testing.assert_array_equal(leading_axes(X.astype(np.float32)), axes)


@pytest.mark.parametrize("n_samples", [0, 1, 20])
def test_there_are_axes_for_samples_to_come(n_samples):
    X = np.random.default_rng(0).normal(size=(n_samples, 90)).astype(np.float32)
    axes = leading_axes(X)
    assert axes.shape == (90, 64)
    np.testing.assert_allclose(axes.T @ axes, np.eye(64), atol=1e-5)
    np.testing.assert_allclose(np.sum((X @ axes) ** 2), np.sum(X**2), rtol=1e-3)


@pytest.mark.parametrize("n_features", [1, 64])
def test_few_features_are_compared_as_they_are(n_features):
    X = np.random.default_rng(0).normal(size=(5, n_features)).astype(np.float32)
    np.testing.assert_array_equal(on_axes(X, leading_axes(X)), X)


def test_coordinates_of_a_sample_do_not_depend_on_others():
    X = np.random.default_rng(0).normal(size=(200, 500)).astype(np.float32)
    axes = leading_axes(X)
    together = on_axes(X, axes)
    np.testing.assert_allclose(together, X @ axes, atol=1e-4)
    for n in (1, 7):
        alone = np.concatenate([on_axes(X[i : i + n], axes) for i in range(0, 200, n)])
        np.testing.assert_array_equal(alone, together)
