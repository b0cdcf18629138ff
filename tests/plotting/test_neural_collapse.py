"""Displays of neural collapse draw what they are given."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import ETFNeuralCollapseClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.geometry import simplex_etf
from sklearn_xlc.plotting import NeuralCollapseDisplay
from sklearn_xlc.training import CollapseMonitor


def fit(callbacks):
    X, Y = make_extreme_multilabel(200, 50, 8, random_state=0)
    clf = ETFNeuralCollapseClassifier(
        encoder=MLP((16,)), max_epochs=4, callbacks=callbacks, random_state=0
    )
    return clf.fit(X, Y), X, Y


def test_curves_are_the_recorded_measures():
    X, Y = make_extreme_multilabel(200, 50, 8, random_state=0)
    clf, X, Y = fit([CollapseMonitor(X, Y)])
    display = NeuralCollapseDisplay.from_estimator(clf)
    assert set(display.history) >= {"nc1", "nc2_means", "nc2_weights", "nc3", "ncm_2", "nc1_2"}
    assert max(display.history["nc2_weights"]) < 1e-6  # not drawn: it is zero
    drawn = [
        values
        for name, values in display.history.items()
        if name != "nc2_weights" and np.isfinite(values).any()
    ]
    assert len(display.ax_.lines) == len(drawn)
    for line, values in zip(display.ax_.lines, drawn):
        np.testing.assert_array_equal(line.get_ydata(), values)
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
    report = clf.collapse_report(X, Y)
    assert display.history["nc1"][-1] == pytest.approx(report["nc1"], rel=1e-5)
    assert display.history["nc3"][-1] == pytest.approx(report["nc3"], rel=1e-5)
    assert display.figure_ is display.ax_.figure


def test_features_of_collapsed_rows_lie_on_sums_of_corners():
    W = simplex_etf(5, 6, 0)
    sets = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (3,), (0, 3)]
    Y = np.zeros((len(sets), 5), dtype=int)
    for row, labels in enumerate(sets):
        Y[row, list(labels)] = 1
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    display = NeuralCollapseDisplay.from_features(Y @ W, Y, W, ax=ax)
    assert display.ax_ is ax
    assert display.sets == sets[:6]
    points = display.points - (display.points[:3].mean(axis=0))
    for point, labels in zip(points, sets):
        expected = sum(display.corners[label] for label in labels)
        if len(labels) == 1:
            np.testing.assert_allclose(point, expected, atol=1e-12)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["{0}", "{1}", "{2}", "{0, 1}", "{0, 2}", "{1, 2}"]


def test_what_there_is_not_cannot_be_drawn():
    clf, X, Y = fit(None)
    with pytest.raises(ValueError, match="no recorded collapse.*CollapseMonitor"):
        NeuralCollapseDisplay.from_estimator(clf)
    with pytest.raises(ValueError, match="history is empty"):
        NeuralCollapseDisplay().plot()
    with pytest.raises(ValueError, match="from_features"):
        NeuralCollapseDisplay({"nc1": [1.0]}).plot_features()
    W = simplex_etf(8, 8)
    with pytest.raises(ValueError, match="three different label ids, got"):
        NeuralCollapseDisplay.from_features(np.ones((200, 8)), Y, W, labels=(1, 1, 2))
    with pytest.raises(ValueError, match="Y must have a sample with labels among"):
        NeuralCollapseDisplay.from_features(np.ones((2, 8)), np.ones((2, 8)), W)


def test_forms_of_labels_draw_the_same_points():
    features, weights = np.eye(3), np.eye(3)
    zero = sp.csr_matrix(([1, 0, 1, 1], [0, 1, 1, 2], [0, 2, 3, 4]), shape=(3, 3))
    unordered = sp.csr_matrix((np.ones(5, int), [1, 0, 0, 1, 2], [0, 2, 4, 5]), shape=(3, 3))
    draw = NeuralCollapseDisplay.from_features
    for Y in (zero, unordered):
        sparse, dense = (draw(features, each, weights) for each in (Y, Y.toarray()))
        assert sparse.sets == dense.sets
        np.testing.assert_array_equal(sparse.points, dense.points)
    assert draw(features, [0, 2, 1], weights).sets == [(0,), (2,), (1,)]


@pytest.mark.parametrize(
    "features, Y, message",
    [
        (np.eye(3), 2 * np.eye(3, dtype=int), "0 and 1"),
        (np.eye(3)[:2], np.eye(3, dtype=int), "rows"),
        (np.eye(3)[:, :2], np.eye(3, dtype=int), "columns"),
        (np.eye(3), np.eye(3, dtype=int)[:, :2], "label"),
    ],
)
def test_features_and_labels_that_do_not_fit(features, Y, message):
    with pytest.raises(ValueError, match=message):
        NeuralCollapseDisplay.from_features(features, Y, np.eye(3))
