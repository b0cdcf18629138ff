"""How large the regions of label sets are, against the number of their labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc.geometry import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.plotting._axes import new_axes

#: Status, name in the legend, colour, marker.
STYLES = (
    (1, "argmaxable", "C0", "o"),
    (-1, "unknown", "C1", "D"),
    (0, "not argmaxable", "C3", "x"),
)


class ArgmaxabilityDisplay:
    """Radius of each label set's region against its number of active labels.

    Label sets that are not argmaxable have no region, and those that could not be decided, or whose
    witness is at the limit of floats, have no known radius: they stand in a strip below the axis.

    Parameters
    ----------
    report : ArgmaxabilityReport
        What :func:`~sklearn_xlc.geometry.verify_argmaxable` found.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last picture.
    figure_ : matplotlib Figure
        Its figure.

    See Also
    --------
    sklearn_xlc.geometry.verify_argmaxable : Makes the report.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.geometry import verify_argmaxable
    >>> from sklearn_xlc.plotting import ArgmaxabilityDisplay
    >>> coef = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    >>> report = verify_argmaxable(coef, [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    >>> display = ArgmaxabilityDisplay.from_report(report)
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['argmaxable (2)', 'not argmaxable (1)']
    """

    def __init__(self, report: ArgmaxabilityReport) -> None:
        self.report = report

    @classmethod
    def from_report(cls, report: ArgmaxabilityReport, ax: Any = None) -> ArgmaxabilityDisplay:
        """Draw a report.

        Parameters
        ----------
        report : ArgmaxabilityReport
            What was found.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        ArgmaxabilityDisplay
            Display, drawn.
        """
        return cls(report).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, Y: Any, ax: Any = None, **kwargs: Any
    ) -> ArgmaxabilityDisplay:
        """Ask a linear classifier about label sets, and draw the answers.

        Parameters
        ----------
        estimator : fitted estimator, torch module or array-like
            As for :func:`~sklearn_xlc.geometry.verify_argmaxable`.
        Y : {array-like, sparse matrix} of shape (n_sets, n_labels)
            Label sets.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.
        **kwargs : dict
            Passed on to :func:`~sklearn_xlc.geometry.verify_argmaxable`.

        Returns
        -------
        ArgmaxabilityDisplay
            Display, drawn.
        """
        return cls(verify_argmaxable(estimator, Y, **kwargs)).plot(ax)

    def plot(self, ax: Any = None) -> ArgmaxabilityDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        ArgmaxabilityDisplay
            Itself.
        """
        ax, report = new_axes(ax), self.report
        known = (report.status == 1) & (report.radius > 0)
        radii = report.radius[known]
        lowest = radii.min(initial=report.min_radius or 1.0) / 3
        highest = radii.max(initial=lowest * 10) * 3
        # The strip takes a sixth of the height, below the lowest radius.
        bottom = 10 ** (np.log10(lowest) - 0.2 * np.log10(highest / lowest))
        height = np.where(known, report.radius, np.sqrt(bottom * lowest))
        # Equal numbers of labels would hide each other: a fixed jitter in the strip and above.
        jitter = np.random.RandomState(0).uniform(-0.25, 0.25, size=len(report))
        wide = report.n_active + jitter
        spread = 10 ** (jitter * np.log10(lowest / bottom))
        height = np.where(known, height, height * spread)
        for status, name, colour, marker in STYLES:
            here = report.status == status
            if here.any():
                ax.scatter(
                    wide[here],
                    height[here],
                    s=14,
                    c=colour,
                    marker=marker,
                    alpha=0.6,
                    linewidths=1.0 if marker == "x" else 0.0,
                    label=f"{name} ({int(here.sum())})",
                )
        ax.axhspan(bottom, lowest, color="0.92", zorder=-1)
        ax.annotate(
            "no region, or no known radius",
            (0.99, 0.015),
            xycoords="axes fraction",
            ha="right",
            fontsize="x-small",
            color="0.35",
        )
        if lowest < report.min_radius < highest:
            ax.axhline(report.min_radius, color="0.5", linestyle=":", linewidth=1)
        ax.set(yscale="log", ylim=(bottom, highest), xlabel="active labels", ylabel="radius")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(fontsize="small", loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self
