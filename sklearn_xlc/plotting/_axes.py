"""Axes of displays."""

from __future__ import annotations

from typing import Any


def new_axes(ax: Any = None) -> Any:
    """Return the given axes, or the axes of a new figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'sklearn-xlc[plot]'") from error
    return plt.subplots(layout="constrained")[1]
