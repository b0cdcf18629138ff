"""The result of `explain_topk`: a triple, a frame, and a coloured table that escapes its words."""

import pickle

import numpy as np
import pytest

from sklearn_xlc.engine.explanation import Explanation


@pytest.fixture
def made():
    """Two labels of eleven samples; the second label of each has one word only."""
    labels = np.array([["<cat>", "dog"]] * 11, dtype=object)
    columns = np.array([[["mat & co", "<b>rug</b>"], ["bed", ""]]] * 11, dtype=object)
    contributions = np.array([[[2.0, -1.0], [0.5, 0.0]]] * 11)
    scores, baselines = np.full((11, 2), 1.5), np.array([[0.25, 1.0]] * 11)
    return Explanation(labels, columns, contributions, scores, baselines, np.full((11, 2), 0.125))


def test_it_unpacks_and_adds_up(made):
    labels, columns, contributions = made
    assert (made.labels is labels, made.columns is columns) == (True, True)
    assert made.contributions is contributions
    np.testing.assert_allclose(made.errors, [[0.125, -0.125]] * 11)
    copy = pickle.loads(pickle.dumps(made))
    for name in ("labels", "columns", "contributions", "scores", "baselines", "others", "errors"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(made, name))


def test_frame(made):
    frame = made.to_frame()
    assert frame.columns.tolist() == [
        "sample", "rank", "label", "score", "baseline", "column", "contribution",
    ]  # fmt: skip
    assert len(frame) == 33
    assert frame.loc[4].tolist() == [1, 1, "<cat>", 1.5, 0.25, "<b>rug</b>", -1.0]
    assert frame.loc[5].tolist() == [1, 2, "dog", 1.5, 1.0, "bed", 0.5]


def test_text(made):
    lines = repr(made).splitlines()
    assert lines[1] == "0: <cat> 1.5: mat & co +2, <b>rug</b> -1"
    assert lines[2] == "0: dog 1.5: bed +0.5"
    assert lines[-1] == "...: 1 more samples"
    assert len(lines) == 22


def test_table(made):
    page = made._repr_html_()
    assert "&lt;cat&gt;" in page
    assert "mat &amp; co" in page
    assert "&lt;b&gt;rug&lt;/b&gt;" in page
    assert "<cat>" not in page
    assert "<b>rug" not in page
    assert page.count("<tr>") == 22
    words = page.split('<span style="background')
    assert len(words) == 31
    raising, lowering, weaker = words[1:4]
    assert "rgba(0,114,178,0.55)" in raising
    assert "rgba(230,120,0,0.32)" in lowering  # half as strong
    assert "rgba(0,114,178,0.20)" in weaker
    assert "1 more samples" in page


def test_a_sample_without_contributions():
    nothing = np.zeros((1, 1, 2))
    names = np.full((1, 1, 2), "", dtype=object)
    one = np.ones((1, 1))
    made = Explanation(np.array([["a"]]), names, nothing, one, one, one * 0)
    assert len(made.to_frame()) == 0
    assert repr(made).splitlines()[1] == "0: a 1: "
    assert "<span" not in made._repr_html_()
