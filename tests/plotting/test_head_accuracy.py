"""The display of the accuracy of heads draws what the classifier computes."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from _factories import make_learnable, quick
from sklearn_xlc.plotting import HeadAccuracyDisplay


@pytest.mark.parametrize("name, multilabel", [("powerset", True), ("product", False)])
def test_training_and_test_samples_in_one_picture(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=3).fit(X[:100], y[:100])
    display = HeadAccuracyDisplay.from_estimator(clf, X[:100], y[:100], name="training")
    other = HeadAccuracyDisplay.from_estimator(clf, X[100:], y[100:], name="test", ax=display.ax_)
    assert other.ax_ is display.ax_
    assert other.figure_ is display.figure_
    np.testing.assert_array_equal(display.line_.get_ydata(), clf.score_heads(X[:100], y[:100]))
    np.testing.assert_array_equal(other.line_.get_ydata(), clf.score_heads(X[100:], y[100:]))
    assert display.line_.get_color() != other.line_.get_color()
    assert len(display.ax_.lines) == 4  # heads and all heads, twice
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == [
        f"training (all heads: {display.combined:.2f})",
        f"test (all heads: {other.combined:.2f})",
    ]
    assert display.combined == pytest.approx(accuracy_score(y[:100], clf.predict(X[:100])))


def test_names_and_the_dashed_line_are_optional():
    display = HeadAccuracyDisplay([0.5, 1.0]).plot(color="k")
    assert display.ax_.get_legend() is None
    assert len(display.ax_.lines) == 1
    assert display.line_.get_color() == "k"
