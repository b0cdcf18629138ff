"""Axes are made only where none are given, and matplotlib is needed only for that."""

import sys

import pytest

from sklearn_xlc.plotting import NeuralCollapseDisplay
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
