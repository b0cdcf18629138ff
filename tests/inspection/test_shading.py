"""Texts with shaded words."""

import re
from html import unescape

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union

from _factories import quick
from sklearn_xlc import explain_topk
from sklearn_xlc.inspection.shading import LONG, shaded, style, texts_of

SPAN = re.compile(r'<span style="[^"]*" title="([^"]*)">(.*?)</span>')


def words_of(page):
    return [(unescape(word), float(value)) for value, word in SPAN.findall(page)]


def plain(page):
    return unescape(re.sub("<[^>]*>", "", page))


@pytest.mark.parametrize("container", [list, tuple, np.array, pd.Series, pl.Series])
def test_sequences_of_strings_are_texts(container):
    assert texts_of(container(["a", "b c"])) == ["a", "b c"]


@pytest.mark.parametrize(
    "X", [[1, 2], [["a"]], np.eye(2), sp.eye(2), pd.DataFrame({"a": ["b"]}), {"a": ["b"]}, 3]
)
def test_other_samples_are_no_texts(X):
    assert texts_of(X) is None


def test_whole_words_before_parts_of_words():
    page, rest = shaded("Cat, cats; CAT", [("cat", 1.0)], 1.0)
    assert words_of(page) == [("Cat", 1.0), ("CAT", 1.0)]
    assert rest == []
    page, _ = shaded("category", [("categor", 1.0)], 1.0)  # a stem
    assert words_of(page) == [("categor", 1.0)]


def test_phrases_stand_across_punctuation_and_overlaps_add_up():
    page, rest = shaded("New-York city", [("new york", 0.5), ("york city", -0.2)], 1.0)
    assert words_of(page) == [("New-", 0.5), ("York", 0.3), (" city", -0.2)]
    assert rest == []


def test_names_of_a_union_and_of_one_row_of_a_hash_table():
    page, rest = shaded("react and go", [("title__react", 0.4), ("go | rust", 0.1)], 1.0)
    assert words_of(page) == [("react", 0.4), ("go", 0.1)]
    assert rest == []


def test_what_stands_nowhere_is_returned():
    assert shaded("a <b>", [("x1", 0.5), ("", 0.1)], 1.0) == (
        "a &lt;b&gt;",
        [("x1", 0.5), ("", 0.1)],
    )


def test_long_stretches_are_cut():
    text = "start " * LONG + "word" + " end" * LONG
    page, _ = shaded(text, [("word", 1.0)], 1.0)
    assert len(plain(page)) < 2 * LONG
    assert page.count("…") == 2
    assert words_of(page) == [("word", 1.0)]


@given(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=3))
def test_the_text_stays_the_same(text, names):
    page, rest = shaded(text, [(name, 0.5) for name in names], 1.0)
    assert plain(page) == text
    assert {name for name, _ in rest} <= set(names)


def test_stronger_contributions_are_darker():
    strengths = [float(re.findall(r",([.0-9]+)\)", style(v, 2.0))[0]) for v in (0.1, 1.0, 2.0, 9.0)]
    assert strengths == sorted(strengths)
    assert strengths[2] == strengths[3]
    assert style(1.0, 2.0) != style(-1.0, 2.0)


@pytest.mark.parametrize("union", [False, True])
def test_explanations_of_texts_show_the_texts(union):
    texts = ["a cat on a mat", "a dog on a bed", "a cat & a dog"] * 10
    tags = [["cat"], ["dog"], ["cat", "dog"]] * 10
    words = TfidfVectorizer(token_pattern=r"\w+")
    model = make_pipeline(make_union(words) if union else words, quick("flat")).fit(texts, tags)
    found = explain_topk(model, pd.Series(["one cat & <one> dog"]), k=1)
    page = found._repr_html_()
    assert "&amp; &lt;one&gt;" in page
    shown = {word for word, _ in words_of(page)}
    assert shown == {name.split("__")[-1] for name in found.columns[0, 0] if name}
    assert "white-space" not in page  # no word stands beside the text
    columns = explain_topk(model[-1], model[:-1].transform(texts[:1]), k=1)
    assert columns.texts is None
    assert "white-space" in columns._repr_html_()
