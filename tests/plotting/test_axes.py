"""Axes are made only where none are given; keyword arguments reach matplotlib."""

import sys

import pytest
from sklearn.linear_model import LinearRegression

from sklearn_xlc.geometry import verify_argmaxable
from sklearn_xlc.plotting import (
    ArgmaxabilityDisplay,
    HeadAccuracyDisplay,
    NeuralCollapseDisplay,
    ReliabilityDisplay,
    ThresholdDisplay,
    TrainingCurveDisplay,
)
from sklearn_xlc.plotting._axes import new_axes


def test_given_axes_are_used():
    given = object()
    assert new_axes(given) is given
    assert new_axes().figure.axes


def test_matplotlib_is_needed_only_to_draw(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    display = NeuralCollapseDisplay({"nc1": [1.0]})
    with pytest.raises(ImportError, match=r"pip install .sklearn-xlc\[plot\]"):
        display.plot()


@pytest.mark.parametrize(
    "display",
    [
        ArgmaxabilityDisplay(verify_argmaxable([[1.0], [2.0]], [[1, 1], [1, 0]])),
        HeadAccuracyDisplay([0.9, 0.8]),
        NeuralCollapseDisplay({"nc1": [1.0, 0.5]}),
        TrainingCurveDisplay([{"train_loss": 2.0}, {"train_loss": 1.0}]),
    ],
    ids=lambda display: type(display).__name__,
)
def test_keyword_arguments_reach_matplotlib(display):
    ax = display.plot(alpha=0.125).ax_
    assert {drawn.get_alpha() for drawn in ax.lines[:1] or ax.collections} == {0.125}
    with pytest.raises(AttributeError, match="unknown_option"):
        display.plot(ax, unknown_option=1)


@pytest.mark.parametrize("display", [ReliabilityDisplay, ThresholdDisplay])
def test_a_regressor_ranks_no_labels(display):
    regressor = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(TypeError, match="ranked by classifiers; LinearRegression has none"):
        display.from_estimator(regressor, [[0.0], [1.0]], [0, 1])
