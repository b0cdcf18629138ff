"""Strings in: hashed tokens, and everything that scikit-learn does with a list of texts."""

import pickle
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from skorch.callbacks import Callback

from _factories import built
from sklearn_xlc import ETFNeuralCollapseClassifier, MIMLClassifier, MultiHeadClassifier, load, save
from sklearn_xlc.encoders import MLP, Text, TextEncoder
from sklearn_xlc.encoders.text import words
from sklearn_xlc.training import CollapseMonitor

TEXTS = [
    "a large body of water",
    "a body of salt water",
    "a small stream of water",
    "an animal that barks",
    "a small animal that purrs",
    "a large animal with a trunk",
] * 5
KINDS = ["water", "water", "water", "animal", "animal", "animal"] * 5
NEW = ["a stream of salt water", "an animal with fur"]
SMALL = Text(n_buckets=2**12, hidden_layer_sizes=(8,))


def letters(text):
    return list(text)


def quick(encoder=SMALL, **params):
    defaults = {"max_epochs": 20, "learning_rate": 0.02, "random_state": 0}
    return MultiHeadClassifier(encoder=encoder, **{**defaults, **params})


# --- tokens -----------------------------------------------------------------------------------


def dense(encoder, texts):
    rows = encoder.collate(texts)
    out = np.zeros((len(rows), rows.n_features))
    samples = np.repeat(np.arange(len(rows)), rows.indptr.diff())
    out[samples, rows.indices] = rows.data
    return out


def test_words():
    assert words("An Ångström, or 0.1 nm!") == ["an", "ångström", "or", "0", "1", "nm"]


def test_values_are_logarithms_of_counts_with_norm_one():
    encoder = TextEncoder(10_000, (4,))
    rows = dense(encoder, ["to be or not to be", "", "be"])
    log2 = 1 + np.log(2)
    expected = np.array([log2, log2, 1, 1]) / np.sqrt(2 * log2**2 + 2)
    np.testing.assert_allclose(sorted(rows[0][rows[0] > 0]), sorted(expected), rtol=1e-6)
    assert not rows[1].any()
    assert rows[2].sum() == rows[2].max() == 1
    assert rows[0][rows[2].argmax()] == pytest.approx(expected[0])


def test_rare_tokens_weigh_more_as_in_scikit_learn():
    texts = ["to be or not to be", "to go", "", "be"]
    encoder = TextEncoder(10_000, (4,))
    rows = encoder.fit_vectorize(texts)
    tfidf = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+").fit(texts)
    at = [encoder._buckets(word)[0] for word in tfidf.get_feature_names_out()]
    expected = tfidf.transform([*texts, "go where"]).toarray()
    np.testing.assert_allclose(rows[:, at].toarray(), expected[:-1], rtol=1e-6)
    new = encoder.vectorize(["go where"])
    assert new.nnz == 2  # a new word weighs as much as can be
    assert new[0, encoder._buckets("where")[0]] > new[0, at[1]] > 0
    plain = TextEncoder(10_000, (4,), use_idf=False)
    np.testing.assert_array_equal(plain.fit_vectorize(texts).data, plain.vectorize(texts).data)


def test_rows_of_the_table_without_tokens_are_zero():
    encoder = TextEncoder(1000, (4,))
    assert encoder.input.weight.any(1).all()
    seen = encoder.fit_vectorize(["to be", "be"]).indices
    assert encoder.input.weight.any(1).nonzero()[:, 0].tolist() == sorted(set(seen))


def test_texts_are_tokenized_once_a_fit():
    calls = []

    def tokenizer(text):
        calls.append(text)
        return text.split()

    clf = quick(built(SMALL, tokenizer=tokenizer), max_epochs=7).fit(TEXTS, KINDS)
    assert sorted(calls) == sorted(TEXTS)
    clf.set_params(warm_start=True, early_stopping=True).fit(TEXTS, KINDS)
    assert len(calls) == 2 * len(TEXTS)
    before = clf.net_.module_.encoder.idf.clone()
    clf.partial_fit(["soft thick hair"] * 30, KINDS)
    assert torch.equal(clf.net_.module_.encoder.idf, before)  # the network knows these weights


def test_rows_of_texts_are_never_dense(monkeypatch):
    """In training, on held-out samples, when a decision is tuned, and in prediction."""

    def refuse(self, *args, **kwargs):
        assert self.shape[1] < 2**12, "rows of texts became dense"
        return toarray(self, *args, **kwargs)

    toarray = sp.csr_matrix.toarray
    monkeypatch.setattr(sp.csr_matrix, "toarray", refuse)
    clf = quick(decision="threshold", early_stopping=True, max_epochs=3)
    clf.fit(TEXTS, [[kind, "all"] for kind in KINDS])
    assert len(clf.predict(NEW)) == 2


@pytest.mark.parametrize("callbacks", [None, [Callback()]])
def test_rows_of_texts_train_like_rows_of_numbers(callbacks):
    """The values of "auto" are those of sparse rows, with the step without autograd and without."""
    texts, Y = TEXTS * 40, np.array([[kind == "water", 1] for kind in KINDS * 40], dtype=int)
    encoder = built(SMALL, dropout=0.0)
    # A calibration would be that of another network, whose words are those of a part of the texts.
    shared = {"max_epochs": 2, "decision": "topk", "ranker": None, "random_state": 0}
    clf = MultiHeadClassifier(encoder=encoder, callbacks=callbacks, **shared).fit(texts, Y)
    rows = clf.net_.module_.encoder.vectorize(texts)
    plain = MultiHeadClassifier(encoder=MLP((8,), dropout=0.0), **shared).fit(rows, Y)
    np.testing.assert_array_equal(clf.predict_proba(texts), plain.predict_proba(rows))
    assert clf.t_ == plain.t_ == 10
    assert clf.net_.optimizer_rule == "mixed"


def test_tokens_are_hashed_alike_everywhere():
    assert TextEncoder(1000, (4,))._buckets("to be") == [756, 925]


@pytest.mark.parametrize(
    "ngram_range, phrases",
    [
        ((1, 1), ["a", "b", "c"]),
        ((1, 2), ["a", "b", "c", "a b", "b c"]),
        ((2, 3), ["a b", "b c", "a b c"]),
        ((4, 5), []),
    ],
)
def test_ngrams(ngram_range, phrases):
    encoder = TextEncoder(1000, (4,), ngram_range=ngram_range)
    alone = TextEncoder(1000, (4,), tokenizer=lambda text: [text])
    assert encoder._buckets("a b c") == [alone._buckets(phrase)[0] for phrase in phrases]


def test_a_tokenizer_of_the_user():
    encoder = TextEncoder(1000, (4,), tokenizer=letters)
    assert len(encoder._buckets("abc")) == 3


@pytest.mark.parametrize(
    "ngram_range, message",
    [
        ((0, 1), "ngram_range must be an integer >= 1, got 0"),
        ((2, 1), r"ngram_range must be two numbers of tokens.*got \(2, 1\)"),
    ],
)
def test_ngram_range_is_checked(ngram_range, message):
    with pytest.raises(ValueError, match=message):
        TextEncoder(10, (4,), ngram_range=ngram_range)


def test_the_gradient_of_the_table_is_row_sparse():
    encoder = TextEncoder(1000, (4,))
    encoder(encoder.collate(["to be", "be"])).sum().backward()
    gradient = encoder.input.weight.grad
    assert gradient.is_sparse
    assert gradient._nnz() == 2
    assert encoder.row_parameters() == [encoder.input.weight]


# --- scikit-learn -----------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["flat", "product", "cascade", "sampling"])
def test_list_of_str_in(head):
    clf = quick(head=head, learning_rate=0.05).fit(TEXTS, KINDS)
    assert clf.predict(NEW).tolist() == ["water", "animal"]
    assert clf.score(TEXTS, KINDS) == 1
    assert not hasattr(clf, "n_features_in_")
    assert clf.transform(NEW).shape == (2, 8)
    assert clf.predict_topk(NEW, k=2)[0].shape == clf.predict_proba(NEW).shape == (2, 2)
    assert clf.decision_function(NEW).dtype == np.float32
    assert get_tags(clf).input_tags.string
    assert not get_tags(clf).input_tags.two_d_array


def test_every_sequence_of_strings():
    clf = quick(max_epochs=2).fit(TEXTS, KINDS)
    expected = clf.decision_function(TEXTS)
    for make in (tuple, np.array, pd.Series, pl.Series, lambda t: np.array(t, dtype=object)):
        np.testing.assert_array_equal(clf.decision_function(make(TEXTS)), expected)
        again = quick(max_epochs=2).fit(make(TEXTS), KINDS)
        np.testing.assert_array_equal(again.decision_function(TEXTS), expected)


@pytest.mark.parametrize(
    "encoder",
    [
        SMALL,
        built(SMALL, tokenizer=letters),
        *(pytest.param(e, marks=pytest.mark.slow) for e in ("text", TextEncoder)),  # large
        partial(TextEncoder, n_buckets=2**12, hidden_layer_sizes=(8,)),
    ],
)
def test_saved_and_cloned(encoder, tmp_path):
    clf = clone(quick(encoder, max_epochs=2)).fit(TEXTS, KINDS)
    expected = clf.decision_function(NEW)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).decision_function(NEW), expected)
    joblib.dump(clf, tmp_path / "clf")
    for mode in (None, "r"):
        loaded = joblib.load(tmp_path / "clf", mmap_mode=mode)
        np.testing.assert_array_equal(loaded.decision_function(NEW), expected)
        loaded.partial_fit(TEXTS, KINDS)
        assert not np.array_equal(loaded.decision_function(NEW), expected)
        assert not hasattr(loaded, "n_features_in_")


def test_partial_fit_takes_new_words():
    clf = quick(max_epochs=1, learning_rate=0.05)
    for _ in range(14):
        clf.partial_fit(TEXTS, KINDS, classes=["animal", "fur", "water"])
        clf.partial_fit(["soft thick hair"], ["fur"])
    assert clf.predict(["thick hair", *NEW[:1]]).tolist() == ["fur", "water"]


def test_early_stopping_and_weights():
    clf = quick(early_stopping=True, learning_rate=0.05).fit(
        TEXTS, KINDS, sample_weight=np.ones(30)
    )
    assert clf.score(TEXTS, KINDS) == 1
    weight = np.array([1.0, 1, 1, 0, 0, 0] * 5)
    assert set(quick().fit(TEXTS, KINDS, weight).predict(TEXTS)) == {"water"}


def test_warm_start_goes_on():
    clf = quick(warm_start=True, max_epochs=2).fit(TEXTS, KINDS)
    assert clf.fit(TEXTS, KINDS).n_iter_ == 4


def test_multilabel_with_calibration():
    Y = np.array([[kind == "water", kind == "animal"] for kind in KINDS], dtype=int)
    clf = ETFNeuralCollapseClassifier(encoder=SMALL, max_epochs=30, random_state=0).fit(TEXTS, Y)
    np.testing.assert_array_equal(clf.predict(TEXTS), Y)


def test_collapse_of_texts_is_watched():
    Y = np.array([[kind == "water", kind == "animal"] for kind in KINDS], dtype=int)
    for given in (TEXTS, pd.Series(TEXTS)):
        monitor = CollapseMonitor(given, Y)
        clf = ETFNeuralCollapseClassifier(
            encoder=SMALL, max_epochs=20, callbacks=[monitor], random_state=0
        ).fit(TEXTS, Y)
        assert clf.net_.history[-1, "nc1"] < clf.net_.history[0, "nc1"]


@pytest.mark.integration
def test_auto_rules_count_samples():
    many = TEXTS * 40
    clf = quick(max_epochs="auto").fit(TEXTS, KINDS)
    assert clf.n_iter_ == clf.t_ == 200
    clf = quick(max_epochs=1).fit(many, KINDS * 40)
    assert clf.t_ == -(-len(many) // 256)


def test_pipeline_and_grid_search():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    model = Pipeline([("lower", lower), ("clf", quick(max_epochs=10))])
    grid = {"clf__encoder__ngram_range": [(1, 1), (1, 2)]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(TEXTS, KINDS)
    assert search.score(TEXTS, KINDS) == 1
    assert search.predict(NEW).tolist() == ["water", "animal"]
    assert make_pipeline(quick()).fit(pd.Series(TEXTS), KINDS).predict(NEW).tolist() == [
        "water",
        "animal",
    ]


def test_the_seed_covers_the_weights():
    torch.manual_seed(1)
    first = quick().fit(TEXTS, KINDS).decision_function(NEW)
    torch.manual_seed(2)
    np.testing.assert_array_equal(quick().fit(TEXTS, KINDS).decision_function(NEW), first)


def test_bags_of_texts():
    groups = np.arange(30) // 3
    y = np.array(KINDS)[::3]
    membership = np.eye(10, dtype=int)[groups]
    clf = MIMLClassifier(None, encoder=SMALL, max_epochs=40, learning_rate=0.02, random_state=0)
    clf.fit(TEXTS, y, membership)
    assert clf.predict(TEXTS, membership).tolist() == y.tolist()
    with pytest.raises(ValueError, match="attention=None"):
        clone(clf).set_params(attention="eagle").fit(TEXTS, y, membership)


PIECES = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)).build_analyzer()


def pieces_of(text):
    return PIECES(text)


@pytest.mark.parametrize("tokenizer", [PIECES, pieces_of], ids=["built", "function"])
def test_pieces_of_words_tell_names_apart(tokenizer, tmp_path):
    names = [f"{kind}{i}{i % 7}" for i in range(60) for kind in ("libfoo", "python", "golang")]
    kinds = ["lib", "py", "go"] * 60
    params = {"max_epochs": 5, "random_state": 0}
    whole = MultiHeadClassifier(encoder=Text(64), **params).fit(names[:90], kinds[:90])
    encoder = Text(2**12, hidden_layer_sizes=(32,), tokenizer=tokenizer)
    clf = clone(MultiHeadClassifier(encoder=encoder, **params)).fit(names[:90], kinds[:90])
    assert clf.score(names[90:], kinds[90:]) > 0.9 > 0.6 > whole.score(names[90:], kinds[90:])
    save(clf, tmp_path / "model", exact=True)
    if tokenizer is pieces_of:
        loaded = load(tmp_path / "model", trusted=[pieces_of])
        assert loaded.predict(names).tolist() == clf.predict(names).tolist()
    else:  # by the names that the message lists
        with pytest.raises(ValueError, match="it uses functools.partial, .*_char_wb_ngrams"):
            load(tmp_path / "model")
    assert pickle.loads(pickle.dumps(clf)).predict(names).tolist() == clf.predict(names).tolist()


def test_names_that_share_no_word_are_warned_of(rng):
    """Before, their labels were guessed without a word: nothing of a new name was known."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    names = [
        "".join(rng.choice(letters, 8)) + ending for ending in ("ova", "sson") for _ in range(300)
    ]
    y = ["east", "north"] * 300
    y.sort()
    few = {"max_epochs": 1, "random_state": 0}
    with pytest.warns(UserWarning, match=r"texts share no word .*Text\(tokenizer=\)") as told:
        MultiHeadClassifier(encoder=SMALL, **few).fit(names, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)).build_analyzer()
    clf = MultiHeadClassifier(encoder=Text(tokenizer=pieces), max_epochs=5, random_state=0)
    assert clf.fit(names[::2], y[::2]).score(names[1::2], y[1::2]) > 0.9
    MultiHeadClassifier(encoder=SMALL, **few).fit(names[:400], y[:400])  # too few to judge
    shared = [f"{name} {place}" if place % 5 else name for place, name in enumerate(names)]
    MultiHeadClassifier(encoder=SMALL, **few).fit([f"a {name}" for name in shared], y)
    words_of_two = [f"{name} {place // 2}" for place, name in enumerate(names)]
    MultiHeadClassifier(encoder=SMALL, **few).fit(words_of_two, y)


def test_a_file_of_before_has_a_slope_of_zero():
    clf = quick(Text(n_buckets=99, dropout=0.5, negative_slope=0.0), max_epochs=1)
    clf.fit(TEXTS * 3, KINDS * 3)
    del clf.encoder_.negative_slope, clf.settings_["encoder__negative_slope"]
    again = pickle.loads(pickle.dumps(clf))
    assert again.encoder_.negative_slope == again.settings_["encoder__negative_slope"] == 0
    np.testing.assert_array_equal(again.predict_topk(TEXTS, k=2), clf.predict_topk(TEXTS, k=2))


def test_classes_have_a_slope_and_the_module_takes_it():
    assert TextEncoder(9, negative_slope=0.3).layers[1].negative_slope == 0.3
    texts, kinds = [f"{text} {number}" for number in range(30) for text in TEXTS], KINDS * 30
    clf = quick(Text(n_buckets=99), max_epochs=1).fit(texts, kinds)
    assert clf.settings_["encoder__negative_slope"] == 0.25
    assert clf.net_.module_.encoder.layers[1].negative_slope == 0.25
