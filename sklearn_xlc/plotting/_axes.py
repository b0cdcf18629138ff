"""Base class of displays, and their axes."""

from __future__ import annotations

from typing import Any, Self

from sklearn_xlc._compat import imported


class Display:
    """Base class of displays: draws, and keeps the axes and the figure of the last plot."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, also of another display. None: a new figure.
        **kwargs : dict
            Keyword arguments of matplotlib, for the lines or points of the display.

        Returns
        -------
        self : object
            The display itself.
        """
        ax = new_axes(ax)
        self._draw(ax, **kwargs)
        return self._drawn_on(ax)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def _drawn_on(self, ax: Any) -> Self:
        self.ax_, self.figure_ = ax, ax.figure
        return self


def new_axes(ax: Any = None) -> Any:
    """Return the given axes, or the axes of a new figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    plt = imported("matplotlib.pyplot", "plots need matplotlib: pip install 'sklearn-xlc[plot]'")
    return plt.subplots(layout="constrained")[1]
