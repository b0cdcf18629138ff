"""Lines of precision and recall are scikit-learn's of the labels above each threshold."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from _factories import make_learnable, quick
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.plotting import ThresholdDisplay


def test_lines_are_precision_and_recall_above_each_threshold():
    rng = np.random.default_rng(0)
    Y = (rng.random((12, 5)) < 0.4).astype(int)
    p = np.round(0.5 * Y * rng.random(Y.shape) + 0.5 * rng.random(Y.shape), 1)
    labels = np.argsort(-p, axis=1, kind="stable")
    display = ThresholdDisplay.from_predictions(Y, labels, np.take_along_axis(p, labels, axis=1))
    np.testing.assert_array_equal(display.thresholds, np.unique(p))
    for threshold, precision, recall in zip(
        display.thresholds, display.precision, display.recall, strict=True
    ):
        assert precision == pytest.approx(precision_score(Y, p >= threshold, average="micro"))
        assert recall == pytest.approx(recall_score(Y, p >= threshold, average="micro"))
    for line, values in zip(display.lines_, (display.precision, display.recall), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert display.threshold_line_ is None
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == [
        "precision",
        "recall",
    ]


def test_points_that_no_drawing_tells_apart_are_left_out():
    rng = np.random.default_rng(0)
    Y = (rng.random((2000, 20)) < 0.1).astype(int)
    p = rng.random(Y.shape)
    labels = np.argsort(-p, axis=1)
    display = ThresholdDisplay.from_predictions(Y, labels, np.take_along_axis(p, labels, axis=1))
    assert len(display.thresholds) == 40_000
    for line, values in zip(display.lines_, (display.precision, display.recall), strict=True):
        x, y = line.get_xdata(), line.get_ydata()
        assert len(x) < 20_000
        assert (x[0], x[-1]) == (display.thresholds[0], display.thresholds[-1])
        at = np.searchsorted(x, display.thresholds)  # a step ends at its point
        assert np.abs(y[at] - values).max() < 1e-3


def test_without_thresholds_lines_are_empty():
    display = ThresholdDisplay(np.array([]), np.array([]), np.array([])).plot()
    assert [len(line.get_xdata()) for line in display.lines_] == [0, 0]


def test_the_threshold_in_use_lies_where_the_rule_says():
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=5, decision=Threshold(0.25)).fit(X, Y)
    piped = make_pipeline(FunctionTransformer(accept_sparse=True), clf).fit(X, Y)
    display = ThresholdDisplay.from_estimator(piped, X, Y, name="five")
    assert display.threshold == pytest.approx(0.25)
    assert display.threshold_line_.get_xdata()[0] == display.threshold
    at = np.searchsorted(display.thresholds, 0.25)
    sets = piped.predict(X)
    expected = precision_score(Y, sets, average="micro"), recall_score(Y, sets, average="micro")
    assert (display.precision[at], display.recall[at]) == pytest.approx(expected)
    other = ThresholdDisplay.from_estimator(
        clf, X, Y, k=2, threshold=None, ax=display.ax_, linestyle="--"
    )
    assert other.ax_ is display.ax_
    assert other.recall[0] < 1 == display.recall[0]
    assert other.lines_[0].get_linestyle() == "--"


@pytest.mark.parametrize(
    "form", [list, lambda tags: pd.Series(list(map(set, tags))), lambda tags: ["a", "b"]]
)
def test_forms_of_y(form):
    labels, p = np.array([["a", "b"], ["b", "c"]], dtype=object), [[0.9, 0.1], [0.5, 0.4]]
    display = ThresholdDisplay.from_predictions(form([["a"], ["b"]]), labels, p)
    assert display.recall.tolist() == [1, 1, 1, 0.5]


def test_no_label():
    with pytest.raises(ValueError, match="y_true has no label"):
        ThresholdDisplay.from_predictions(np.zeros((1, 2)), [[0, 1]], [[0.5, 0.5]])
