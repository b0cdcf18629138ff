"""Frozen sentence vectors: static ones that ship in a package, and those of a transformer."""

import pickle
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils import estimator_checks as checks

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier, SentenceVectorizer
from sklearn_xlc.encoders import MLP
from sklearn_xlc.ranking import vectors as word_vectors

TEXTS = ["a body of salt water", "a dog that barks", "the sea", "puppies"]


@pytest.fixture(autouse=True)
def without_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.fixture
def wordllama():
    pytest.importorskip("tokenizers")
    if find_spec("wordllama") is None:  # imported, it would set up logging
        pytest.skip("could not import 'wordllama'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("transformer")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=6, hidden_size=8, **sizes)
    transformers.BertModel(config).save_pretrained(path)
    words = ["[PAD]", "[UNK]", "a", "water", "dog", "sea"]
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize(
    "check",
    [
        checks.check_no_attributes_set_in_init,
        checks.check_parameters_default_constructible,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_estimator_tags_renamed,
    ],
)
def test_sklearn_checks(check):
    """Those that need no X: scikit-learn has none for estimators of strings."""
    check("SentenceVectorizer", SentenceVectorizer())


# --- static vectors ---------------------------------------------------------------------------


def test_similar_texts_have_similar_vectors(wordllama):
    vectors = SentenceVectorizer().fit_transform(TEXTS)
    assert vectors.shape == (4, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    cosines = vectors @ vectors.T
    assert cosines[0, 2] > 0.3 > cosines[0, 1]
    assert cosines[1, 3] > 0.3 > cosines[2, 3]


def test_vectors_are_those_of_the_package(wordllama):
    """Means of the rows of its table, counted out by its own arithmetic."""
    from tokenizers import Tokenizer

    path = Path(find_spec("wordllama").origin).parent
    load_file = pytest.importorskip("safetensors.numpy").load_file
    (table,) = load_file(path / word_vectors._FILES[0]).values()
    tokens = Tokenizer.from_file(str(path / word_vectors._FILES[1]))
    for text in TEXTS:
        mean = table[tokens.encode(text, add_special_tokens=False).ids].astype(np.float64).mean(0)
        found = SentenceVectorizer().fit_transform([text])[0]
        np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-6)


def test_every_sequence_of_strings(wordllama):
    expected = SentenceVectorizer().fit_transform(TEXTS)
    for make in (tuple, np.array, pd.Series, pl.Series, lambda t: np.array(t, dtype=object)):
        np.testing.assert_array_equal(SentenceVectorizer().transform(make(TEXTS)), expected)


def test_odd_texts(wordllama):
    vectors = SentenceVectorizer().fit_transform(["", "水 \x00 ünï 🙂", " ", "a" * 100_000])
    assert np.isfinite(vectors).all()
    assert not vectors[0].any()
    assert vectors[1].any()
    many = SentenceVectorizer().transform(TEXTS * 600)  # several blocks
    np.testing.assert_array_equal(many[-4:], SentenceVectorizer().transform(TEXTS))


@pytest.mark.parametrize(
    "X, message",
    [
        ("water", "X is one string"),
        (["water", None], r"X\[1\] is None of type NoneType"),
        (pd.Series(["water", 3.0]), r"X\[1\] is 3.0 of type float"),
        (np.eye(2), "X holds rows of numbers; give one string per sample"),
        ([], "X has 0 samples"),
    ],
)
def test_other_samples_are_refused(X, message, wordllama):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(SentenceVectorizer(), method)(X)


@pytest.mark.parametrize("name", ["tokenizers", "wordllama"])
def test_a_missing_package_is_named(name, monkeypatch):
    if name == "wordllama":
        pytest.importorskip("tokenizers")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, name, None)
    word_vectors._word_vectors.cache_clear()
    with pytest.raises(ImportError, match=rf"package {name} is missing.*sklearn-xlc\[text\]"):
        SentenceVectorizer().fit(TEXTS)


def test_in_pipelines_searches_and_files(wordllama, tmp_path):
    y = ["water", "animal", "water", "animal"] * 5
    clf = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=20, random_state=0)
    words = TfidfVectorizer(dtype=np.float32)
    model = make_pipeline(make_union(words, SentenceVectorizer()), clf)
    search = GridSearchCV(
        model, {"featureunion__tfidfvectorizer": ["drop", words]}, cv=2, error_score="raise"
    )
    search.fit(TEXTS * 5, y)
    assert search.predict(["the ocean", "a barking hound"]).tolist() == ["water", "animal"]
    fitted = search.best_estimator_
    expected = fitted.predict_proba(TEXTS)
    sklearn_xlc.save(fitted, tmp_path / "model", exact=True)
    loaded = sklearn_xlc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), expected)
    pickled = pickle.dumps(clone(SentenceVectorizer()).fit(TEXTS))
    assert len(pickled) < 1000  # no weights
    assert pickle.loads(pickled).get_feature_names_out().shape == (256,)


# --- transformers -----------------------------------------------------------------------------


def test_vectors_of_a_transformer(folder):
    vectorizer = SentenceVectorizer(folder, device="cpu")
    vectors = vectorizer.fit_transform(["a dog", "a sea of water", "", "水", "a dog"])
    assert vectors.shape == (5, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[4], rtol=0.05, atol=0.01)  # half precision
    first = clone(vectorizer).set_params(pooling="cls").fit_transform(["a dog"])
    assert not np.allclose(first, vectors[:1], atol=0.01)


@pytest.mark.parametrize("params", [{"max_length": 0}, {"pooling": "max"}, {"model": 3}])
def test_parameters_are_checked(params):
    with pytest.raises(ValueError, match=f"'{next(iter(params))}' parameter of SentenceVectorizer"):
        SentenceVectorizer(**params).fit(TEXTS)
