"""Texts of labels: lists and numbers by brute force, forms of the texts, what is refused."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_xlc.ranking import BoostedRanker, LabelTexts, NearestSamples
from sklearn_xlc.ranking.search import integer_rows

TEXTS = {"I10": "high blood pressure", "J45": "asthma", "R05": "cough"}
CODES = np.array(["I10", "J45", "R05"], dtype=object)


def unit(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_lists_and_numbers_are_cosines(is_sparse, rng):
    share = 0.04 if is_sparse else 0.9
    labels, samples = (
        np.where(rng.random((n, 50)) < share, rng.random((n, 50)) - 0.2, 0).astype(np.float32)
        for n in (40, 25)
    )
    labels[7] = samples[4] = 0  # without a text; without words
    form = sp.csr_array if is_sparse else np.asarray
    names = LabelTexts(n_nearest=6).fit({"labels": form(labels)}, None)
    assert sp.issparse(names.index_) == is_sparse
    if not is_sparse:
        labels, samples = integer_rows(labels), integer_rows(samples)
    expected = unit(samples.astype(float)) @ unit(labels.astype(float)).T
    found = names.search({"vectors": form(samples)}, None, None)
    rows, ids = np.repeat(np.arange(25), 40), np.tile(np.arange(40), 25)
    numbers = names.numbers(found, rows, ids)
    assert numbers.shape == (1000, 1)
    np.testing.assert_allclose(numbers.reshape(25, 40), expected, atol=2e-6)
    listed = names.candidates(found)
    assert listed.shape == (25, 6)
    for row, cosines in zip(listed, expected):
        best = [i for i in np.argsort(-cosines, kind="stable")[:6] if cosines[i] > 1e-9]
        assert row.tolist() == best + [-1] * (6 - len(best))
    assert (listed != 7).all()
    assert (listed[4] == -1).all()
    single = [names.search({"vectors": form(samples[i : i + 1])}, None, None) for i in range(25)]
    np.testing.assert_array_equal(np.concatenate([each[1] for each in single]), listed)


@pytest.mark.parametrize("texts", [TEXTS, pd.Series(TEXTS)])
def test_texts_by_label(texts):
    names = LabelTexts(texts)
    names.check()
    assert names.texts_of(CODES[::-1]).tolist() == [TEXTS[code] for code in CODES[::-1]]
    assert names.texts_of(np.array(["I10", None, "Z99"], dtype=object)).tolist() == [
        "high blood pressure", "", ""
    ]  # fmt: skip
    assert names.labels_without_samples() == list(TEXTS)
    copied = clone(names)
    assert copied.texts is texts
    carried = pickle.loads(pickle.dumps(names))
    assert carried.texts == TEXTS
    numbered = LabelTexts({3: "three", 7: "seven"})
    assert numbered.texts_of(np.array([7, 3])).tolist() == ["seven", "three"]
    assert pickle.loads(pickle.dumps(numbered)).texts == numbered.texts


def test_labels_are_their_own_texts():
    names = LabelTexts()
    names.check_labels(CODES)
    assert names.texts_of(CODES).tolist() == CODES.tolist()
    assert names.texts_of(CODES.astype("U3")).tolist() == CODES.tolist()
    assert names.labels_without_samples() == []
    assert names.texts_of(np.array(["a", None], dtype=object)).tolist() == ["a", ""]
    with pytest.raises(ValueError, match="labels such as 3 are no texts; give LabelTexts a dict"):
        names.check_labels(np.array([3, 4]))


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"texts": {"a": 3}}, "must be strings, got 3 for the label 'a'"),
        ({"texts": {"a": "x", "b": np.nan}}, "must be strings, got nan for the label 'b'"),
        ({"texts": pd.Series(["x", "y"], ["a", "a"])}, "the label 'a' twice"),
        ({"texts": ["a", "b"]}, "texts"),
        ({"vectorizer": "bert"}, "vectorizer"),
        ({"n_nearest": 0}, "n_nearest"),
    ],
)
def test_wrong_parameters_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        LabelTexts(**wrong).check()


def test_labels_without_a_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LabelTexts(TEXTS).check_labels(np.array([*CODES, "Z1", "Z2", "Z3"], dtype=object))
    with pytest.warns(UserWarning, match="no text of 4 of 7 labels, such as 'Z1'"):
        LabelTexts(TEXTS).check_labels(np.array([*CODES, "Z1", "Z2", "Z3", "Z4"], dtype=object))
    with pytest.raises(ValueError, match=r"names labels like \['I10'\], .* labels like \[1\]"):
        LabelTexts(TEXTS).check_labels(np.array([1, 2]))


class Biased(CountVectorizer):
    """Count words, and one more than there are."""

    def transform(self, raw_documents):
        return np.asarray(super().transform(raw_documents).todense()) + 1.0


@pytest.mark.parametrize("vectorizer", [None, Biased(), CountVectorizer()])
def test_a_ranker_compares_samples_with_texts_of_labels(vectorizer):
    samples = np.array(["a bad cough", "blood", "cough cough", "pain"], dtype=object)
    Y = sp.csr_array((np.ones(4), ([0, 1, 2, 3], [2, 0, 2, 3])), shape=(4, 4))
    named = [("names", LabelTexts(TEXTS, vectorizer)), ("near", NearestSamples())]
    ranker = BoostedRanker(named)
    assert ranker.reads == ("given", "labels", "input", "ids")
    read = {"given": samples, "input": np.eye(4), "ids": np.arange(4)}
    with pytest.raises(ValueError, match="reads labels: give an array of 4"):
        ranker.remember(read, Y)
    labels = np.array([*CODES, "R52"], dtype=object)
    ranker.remember({**read, "labels": labels}, Y)
    # Samples are not compared with each other by these vectors, and not kept.
    assert ranker.memory_["samples"].keys() == {"input", "ids"}
    names = dict(ranker.retrievers_)["names"]
    words = ranker.vectorizers_[0]
    found = ranker._with_vectors({"given": np.array(["a cough, then asthma"], dtype=object)})
    listed = names.search(ranker._read_by(found)("names"), None, None)
    best = names.candidates(listed)[0]
    assert set(best[:2]) == {1, 2}
    assert 3 not in best  # it has no text, whatever a vectorizer makes of none
    if vectorizer is not None:  # words of labels that no sample has are words, too
        assert {"asthma", "pressure", "bad"} <= set(words.vocabulary_)


def test_a_vectorizer_of_samples_and_labels_is_one():
    samples = np.array(["a bad cough", "blood", "cough cough", "pain"], dtype=object)
    Y = sp.csr_array(np.eye(4)[:, :3])
    named = [
        ("names", LabelTexts(TEXTS, CountVectorizer())),
        ("near", NearestSamples(vectorizer=CountVectorizer())),
    ]
    ranker = BoostedRanker(named).remember(
        {"given": samples, "ids": np.arange(4), "labels": CODES}, Y
    )
    assert ranker.places_ == {"names": 0, "near": 0}
    assert ranker.memory_["samples"].keys() == {"vectors 0", "ids"}


def test_numbers_are_no_texts():
    ranker = BoostedRanker([("names", LabelTexts(TEXTS))])
    with pytest.raises(TypeError, match="compares texts of labels with samples"):
        ranker.check_given(np.eye(3))
    ranker.check_given(np.array(["a"], dtype=object))


def test_texts_of_days_are_found_by_the_days_of_numpy():
    days = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    assert LabelTexts(dict(zip(days, "ab"))).texts_of(days).tolist() == ["a", "b"]


@pytest.mark.parametrize("vectorizer", [CountVectorizer(), Biased()])
def test_labels_that_come_and_go_keep_the_index_of_samples(vectorizer):
    samples = np.array(["a bad cough", "blood", "cough cough", "pain"] * 20, dtype=object)
    Y = sp.csr_array(np.tile(np.eye(4)[[2, 0, 2, 3]], (20, 1)))
    words = {**TEXTS, "R52": "pain", "new": "a bad pain"}
    named = [("names", LabelTexts(words, vectorizer)), ("near", NearestSamples())]
    read = {"given": samples, "input": sp.eye_array(80, format="csr"), "ids": np.arange(80)}
    labels = np.array([*CODES, "R52"], dtype=object)
    ranker = BoostedRanker(named).remember({**read, "labels": labels}, Y)
    before = dict(ranker.retrievers_)
    fewer = ranker.for_labels(np.array([3, 0, 2]))
    changed = fewer.for_labels(np.array([0, -1, 1, 2]))
    more = {space: X[:2] for space, X in read.items()}
    more |= {"ids": np.array([80, 81]), "labels": np.array(["R52", "new", "I10", "R05"])}
    first = sp.csr_array(np.eye(4)[[1, 1]])
    changed.partial_fit(np.zeros((2, 1)), first, np.zeros((2, 1), int), more)
    queries = ranker._read_by(ranker._with_vectors({"given": samples[:4]}))("names")
    for each in (fewer, changed):
        held = dict(each.retrievers_)
        assert held["near"].index_ is before["near"].index_  # not made anew
        anew = copy.copy(each)._index()
        names, again = held["names"], dict(anew.retrievers_)["names"]
        found, expected = names.search(queries, None, None), again.search(queries, None, None)
        np.testing.assert_array_equal(names.candidates(found), again.candidates(expected))
        pairs = np.divmod(np.arange(4 * len(each.names_)), len(each.names_))
        numbers = names.numbers(found, *pairs)
        np.testing.assert_array_equal(numbers, again.numbers(expected, *pairs))
        assert (numbers.max(axis=0) > 0).all()
    assert before["names"] is dict(ranker.retrievers_)["names"]
    assert before["names"].labels_.shape[0] == 4
