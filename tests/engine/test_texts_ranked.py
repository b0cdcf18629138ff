"""Texts ranked by their words and by vectors of retrievers' own."""

import zlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sklearn_xlc
from _factories import quick
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import Text
from sklearn_xlc.engine import deciding, ranker
from sklearn_xlc.ranking import (
    BoostedRanker,
    Calibration,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
    vectors,
)

N_LABELS = 30
#: What is tested is what the trees read, not how well they rank.
pytestmark = pytest.mark.usefixtures("ten_trees")


def hashed(texts):
    """Return vectors of the first letters of words: those of a meaning have one first letter."""
    table = np.random.RandomState(0).normal(size=(64, 16)).astype(np.float32)
    rows = [[zlib.crc32(word[:1].encode()) % 64 for word in text.split()] for text in texts]
    return np.stack([table[row].mean(axis=0) if row else np.zeros(16) for row in rows])


class Letters(TransformerMixin, BaseEstimator):
    """The same, as a transformer that counts the texts that it has transformed."""

    n_transformed = 0

    def __init__(self, factor=1.0):
        self.factor = factor

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        Letters.n_transformed += len(X)
        return self.factor * hashed(X)


@pytest.fixture
def words_with_meaning(monkeypatch):
    monkeypatch.setattr(vectors, "_word_vectors", lambda: hashed)
    monkeypatch.setattr(ranker, "has_word_vectors", lambda: True)


@pytest.fixture(scope="module")
def data():
    """Labels are letters; each text has words of its letters, most of which no other text has."""
    rng = np.random.RandomState(3)
    letters = "abcdefghijklmnopqrstuvwxyzäöüß"
    own = [rng.choice(N_LABELS, size=rng.randint(1, 4), replace=False) for _ in range(1200)]
    texts = [
        " ".join(f"{letters[i]}{rng.randint(60)}" for i in rng.permutation(np.repeat(labels, 2)))
        for labels in own
    ]
    return np.array(texts, dtype=object), [sorted(letters[i] for i in labels) for labels in own]


def text_classifier(**params):
    encoder = Text(2**10, hidden_layer_sizes=(16,), dropout=0.0)
    return quick("flat", encoder=encoder, max_epochs=6, **params)


def precision(clf, X, Y):
    labels = clf.predict_topk(X, 1)[0]
    return np.mean([best in row for best, row in zip(labels[:, 0], Y)])


@pytest.mark.integration
def test_words_and_their_meaning(data, words_with_meaning):
    (X, Y), found = data, {}
    for kind in ("calibration", BoostedRanker("words"), "auto"):
        clf = text_classifier(ranker=kind).fit(X[:900], Y[:900])
        found[str(kind)] = precision(clf, X[900:], Y[900:])
    assert clf.settings_["ranker__retrievers"] == "texts"
    names = clf.ranker_.get_feature_names_out()
    assert {"near_in_meaning__votes_of_3", "centroids_in_meaning__centroid"} <= set(names)
    network, words, texts = found.values()
    assert texts > max(words, network) + 0.1


def test_without_the_extra_only_words_are_read(data, monkeypatch):
    monkeypatch.setattr(ranker, "has_word_vectors", lambda: False)
    X, Y = data
    clf = text_classifier().fit(X[:600], Y[:600])
    assert type(clf.ranker_) is BoostedRanker
    assert clf.settings_["ranker__retrievers"] == "words"


@pytest.mark.integration
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_vectorizer_of_ones_own(data, form, tmp_path):
    X, Y = data
    pairs = TfidfVectorizer(analyzer="char", ngram_range=(2, 2))
    of_own = Letters() if form == "dense" else pairs
    named = [("words", NearestSamples()), ("letters", NearestSamples(vectorizer=of_own))]
    clf = text_classifier(ranker=BoostedRanker(named)).fit(X[:900], Y[:900])
    memory = clf.ranker_.memory_["samples"]
    assert memory.keys() == {"input", "vectors 0", "ids"}
    assert len(clf.ranker_.memory_["weights"]) == 900
    kept = memory["vectors 0"]
    assert sp.issparse(kept) if form == "sparse" else kept.dtype == np.int8
    expected = clf.decision_function(X[900:915])
    single = np.concatenate([clf.decision_function(X[i : i + 1]) for i in range(900, 915)])
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    assert precision(clf, X[900:], Y[900:]) > 0.6
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    trusted = [f"{Letters.__module__}.Letters"]
    loaded = sklearn_xlc.load(tmp_path / "model", trusted=trusted)
    np.testing.assert_array_equal(loaded.decision_function(X[900:915]), expected)
    before = precision(clf, X[1000:1100], Y[1000:1100])
    clf.partial_fit(X[1000:1100], Y[1000:1100])
    assert len(clf.ranker_.memory_["weights"]) == 999  # one was there already, with equal labels
    assert precision(clf, X[1000:1100], Y[1000:1100]) >= max(0.9, before)
    clf.recalibrate(X[1100:], Y[1100:], ranker=BoostedRanker(named, tail_order=0.0))
    assert len(clf.ranker_.memory_["weights"]) == 999


def test_equal_vectorizers_are_called_once_and_others_apart(data):
    X, Y = data
    named = [
        ("near", NearestSamples(vectorizer=Letters())),
        ("centroids", LabelCentroids(vectorizer=Letters())),
        ("other", LabelCentroids(vectorizer=Letters(2.0))),
        ("votes", FeatureVotes()),
    ]
    clf = text_classifier(ranker=BoostedRanker(named), validation_fraction=0.1).fit(X, Y)
    assert clf.ranker_.places_ == {"near": 0, "centroids": 0, "other": 1}
    Letters.n_transformed = 0
    clf.predict_topk(X[:40], 3)
    assert Letters.n_transformed == 80
    names = list(clf.ranker_.get_feature_names_out())
    assert names.index("other__centroid") > names.index("centroids__centroid")


def test_a_vectorizer_takes_columns_of_a_matrix(data):
    X, Y = data
    words = TfidfVectorizer(dtype=np.float32)
    both = sp.hstack([words.fit_transform(X), hashed(X)], "csr").astype(np.float32)
    n_words = both.shape[1] - 16
    columns = FunctionTransformer(last_columns, kw_args={"first": n_words}, accept_sparse=True)
    named = [("words", NearestSamples()), ("letters", NearestSamples(vectorizer=columns))]
    clf = quick("flat", max_epochs=6, ranker=BoostedRanker(named)).fit(both[:900], Y[:900])
    assert clf.ranker_.memory_["samples"]["vectors 0"].shape == (900, 16)
    assert precision(clf, both[900:], Y[900:]) > 0.6


def last_columns(X, first):
    return X[:, first:].toarray()


def test_what_cannot_be_vectorized_is_refused_before_work_starts(data, monkeypatch):
    X, Y = data
    monkeypatch.setattr(deciding, "fit_ranker", None)
    matrix = sp.random(300, 20, 0.3, format="csr", random_state=0)
    meaning = BoostedRanker("texts")
    with pytest.raises(TypeError, match="reads texts, and X holds numbers"):
        quick("flat", ranker=meaning).fit(matrix, Y[:300])
    with pytest.raises(ValueError, match="compares samples, and X holds bags"):
        quick("bags", ranker=meaning).fit(
            matrix, np.tile(np.eye(2), (75, 1)), groups=np.arange(300) // 2
        )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    vectors._word_vectors.cache_clear()
    with pytest.raises(ImportError, match=r"pip install sklearn-xlc\[text\]"):
        text_classifier(ranker=meaning).fit(X[:300], Y[:300])


@pytest.mark.parametrize("wrong", [lambda X: np.zeros(len(X)), lambda X: np.zeros((3, 2)), list])
def test_wrong_vectors_are_named(data, wrong):
    X, Y = data
    named = [("near", NearestSamples(vectorizer=FunctionTransformer(wrong)))]
    with pytest.raises(ValueError, match="a row for each of"):
        text_classifier(ranker=BoostedRanker(named)).fit(X[:600], Y[:600])


def test_series_of_texts_keep_their_rows(data, words_with_meaning):
    X, Y = data
    frame = pd.Series(X, index=np.arange(len(X))[::-1])
    clf = make_pipeline(text_classifier()).fit(frame[:900], Y[:900])
    shuffled = frame[900:].sample(frac=1, random_state=0)
    alone = clf.predict_proba(frame[900:])
    order = [frame[900:].index.get_loc(each) for each in shuffled.index]
    np.testing.assert_allclose(clf.predict_proba(shuffled), alone[order], rtol=1e-5)


def test_a_decision_is_fitted_to_samples_that_the_ranker_does_not_remember(data, monkeypatch):
    X, Y = data
    numbers, fitting_inputs = [], deciding.Decider.fitting_inputs

    def counted(self, samples, *lists):
        numbers.append((len(self.predictor.ranker.memory_["weights"]), len(samples)))
        return fitting_inputs(self, samples, *lists)

    monkeypatch.setattr(deciding.Decider, "fitting_inputs", counted)
    params = {"decision": Threshold("tuned"), "validation_fraction": 0.2}
    clf = text_classifier(ranker=BoostedRanker("words"), **params).fit(X, Y)
    assert numbers == [(960, 240)]
    assert len(clf.ranker_.memory_["weights"]) == 1200


def test_a_calibration_reads_no_texts(data):
    X, Y = data
    clf = text_classifier(ranker="calibration").fit(X[:600], Y[:600])
    assert type(clf.ranker_) is Calibration
