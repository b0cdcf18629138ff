"""Plot of the radii of label-set regions against the number of active labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc.geometry import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.plotting._axes import Display

#: Colour (safe for the colour-blind), marker and filling of each name in the legend.
STYLES = {
    "argmaxable": ("#0072B2", "o", True),
    "argmaxable, radius at least": ("#0072B2", "o", False),
    "not argmaxable": ("#D55E00", "x", True),
    "unknown": ("0.25", "D", True),
}
# Smaller radii, computed from logarithms, cannot be drawn.
SMALLEST = 1e-200
# Heights of the strip and of a legend entry, as shares of the height of the scale.
STRIP = 0.22
LEGEND_ENTRY = 0.09


class ArgmaxabilityDisplay(Display):
    """Plot of the radius of each label set's region against its number of active labels.

    A strip below the scale shows label sets without a known radius: sets that are not argmaxable,
    unknown sets, and sets with a witness at the limit of floats. A filled marker is the largest
    radius, found by the linear program. A hollow marker is the radius of the first witness found;
    the region may be larger by many orders of magnitude.

    Parameters
    ----------
    report : ArgmaxabilityReport
        Report of :func:`~sklearn_xlc.geometry.verify_argmaxable`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        Axes and figure of the last plot.

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
    ['argmaxable, radius at least (2)', 'not argmaxable (1)']
    """

    def __init__(self, report: ArgmaxabilityReport) -> None:
        self.report = report

    @classmethod
    def from_report(cls, report: ArgmaxabilityReport, ax: Any = None) -> ArgmaxabilityDisplay:
        """Draw a report.

        Parameters
        ----------
        report : ArgmaxabilityReport
            Report of :func:`~sklearn_xlc.geometry.verify_argmaxable`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.

        Returns
        -------
        ArgmaxabilityDisplay
            Drawn display.
        """
        return cls(report).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, Y: Any, ax: Any = None, **kwargs: Any
    ) -> ArgmaxabilityDisplay:
        """Verify label sets for a linear classifier, and draw the report.

        Parameters
        ----------
        estimator : fitted estimator, torch module or array-like
            Linear classifier, as in :func:`~sklearn_xlc.geometry.verify_argmaxable`.
        Y : {array-like, sparse matrix, dataframe} of shape (n_sets, n_labels), or sequence
            Label sets: an indicator, or tags if the classifier has `classes_`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None: a new figure.
        **kwargs : dict
            Parameters of :func:`~sklearn_xlc.geometry.verify_argmaxable`.

        Returns
        -------
        ArgmaxabilityDisplay
            Drawn display.
        """
        return cls(verify_argmaxable(estimator, Y, **kwargs)).plot(ax)

    def _draw(self, ax: Any, **kwargs: Any) -> None:
        report = self.report
        on_scale = report.status == 1
        on_scale &= (report.radius > SMALLEST) & np.isfinite(report.radius)
        lowest, highest = _limits(report.radius[on_scale])
        groups = _groups(report)
        decades = np.log10(highest / lowest)
        bottom = lowest / 10 ** (STRIP * decades)
        # Jitter: sets with equally many labels do not hide each other. The name of the strip is
        # above its points.
        rng = np.random.RandomState(0)
        x = report.n_active + rng.uniform(-0.25, 0.25, size=len(report))
        strip = bottom * 10 ** (STRIP * decades * rng.uniform(0.1, 0.65, size=len(report)))
        y = np.where(on_scale, report.radius, strip)
        for name, here in groups.items():
            colour, marker, filled = STYLES[name]
            faces = {"color": colour} if filled else {"facecolors": "none", "edgecolors": colour}
            style: dict[str, Any] = {**faces, "s": 16, "marker": marker, "alpha": 0.7}
            style["linewidths"] = 1.0 if marker == "x" or not filled else 0.0
            style["label"] = f"{name} ({int(here.sum())})"
            ax.scatter(x[here], y[here], **{**style, **kwargs})
        if not on_scale.all():
            _mark_strip(ax, bottom, lowest)
        else:
            bottom = lowest
        if report.narrow.any() and lowest < report.min_radius:
            ax.axhline(report.min_radius, color="0.5", linestyle=":", linewidth=1, zorder=0)
        top = highest * 10 ** (LEGEND_ENTRY * decades * len(groups))
        ax.set(yscale="log", ylim=(bottom, top), xlabel="active labels", ylabel="radius")
        _ticks_above(ax, lowest, top if on_scale.any() else lowest)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(fontsize="small", loc="upper right", framealpha=1.0)


def _groups(report: ArgmaxabilityReport) -> dict[str, Any]:
    """Return masks of the non-empty groups, by name."""
    reachable, sought = report.status == 1, report.reason == "linear program"
    masks = (reachable & sought, reachable & ~sought, report.status == 0, report.status == -1)
    return {name: mask for name, mask in zip(STYLES, masks) if mask.any()}


def _limits(radii: Any) -> tuple[float, float]:
    """Return lowest and highest radius with a margin, at least a factor of ten apart."""
    if not len(radii):
        return 1.0, 10.0
    lowest, highest = float(radii.min()), float(radii.max())
    margin = max((highest / lowest) ** 0.04, np.sqrt(10.0) if highest < 10 * lowest else 1.0)
    return lowest / margin, highest * margin


def _mark_strip(ax: Any, bottom: float, top: float) -> None:
    """Draw the grey background of the strip, and its name above the points."""
    ax.axhspan(bottom, top, color="0.93", zorder=-1)
    ax.annotate(
        "no region, or radius unknown",
        (0.01, top),
        xycoords=("axes fraction", "data"),
        xytext=(0, -2),
        textcoords="offset points",
        va="top",
        fontsize="x-small",
        color="0.3",
    )


def _ticks_above(ax: Any, lowest: float, highest: float) -> None:
    """Set ticks at powers of ten between two values; heights in the strip are no radii."""
    first, last = int(np.ceil(np.log10(lowest))), int(np.floor(np.log10(highest)))
    step = max(1, (last - first) // 7)
    ax.set_yticks(
        [10.0**power for power in range(first, last + 1, step)] if lowest < highest else []
    )
    ax.set_yticks([], minor=True)
