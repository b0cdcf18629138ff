"""Figs. 1, 2 right and 3 of the sigmoid bottleneck paper: regions of a layer of two features.

    python benchmarks/papers/sigmoid_regions.py --figures docs/figures

Each region holds the features for which the layer predicts one label set. The circle in it is its
Chebyshev ball (Eq. 3, centres inside the dotted box): the radius up to which noise on the centre
changes no label (Definition 3).

Left: three labels, six of the eight sets (Figs. 1 left and 2 right). Middle: biases add one
(footnote 1). Right: four labels whose maximal minors are all positive: exactly the sets with at
most one change of sign (Theorem 3, Fig. 3).
"""

import itertools

import numpy as np
from _experiment import parser, print_table, save

from sklearn_xlc.geometry import count_argmaxable, verify_argmaxable

MINUTES = 0.2
BOX = 1.0


def main():
    arguments = parser(__doc__).parse_args()
    layers = {
        "three labels": (directions(90, 210, 330), None),
        "with biases": (directions(90, 210, 330), np.full(3, 0.3)),
        "positive minors": (directions(15, 60, 105, 150), None),
    }
    rows, reports = [], {}
    for name, (coef, intercept) in layers.items():
        Y = np.array(list(itertools.product([1, 0], repeat=len(coef))))
        reports[name] = verify_argmaxable(coef, Y, intercept, box=BOX, search_radius=True)
        rows += [row(name, y, reports[name], i) for i, y in enumerate(Y)]
        count = count_argmaxable(len(coef), 2, intercept=intercept is not None)
        print(f"{name}: {reports[name].n_argmaxable} of {len(Y)} sets, by Theorem 1 {count}")
    print_table(rows)
    save(arguments, "sigmoid_regions", rows, draw(layers, reports))


def directions(*degrees):
    """Unit weights with the given angles."""
    angles = np.radians(degrees)
    return np.column_stack([np.cos(angles), np.sin(angles)])


def row(name, y, report, i):
    """One label set: its verdict, and the number of its changes of sign (Eq. 6)."""
    return {
        "layer": name,
        "set": signs(y),
        "changes of sign": int(np.abs(np.diff(y)).sum()),
        "argmaxable": "yes" if report.status[i] == 1 else "no",
        "radius": float(report.radius[i]),
    }


def signs(y):
    return "".join("+" if active else "\N{MINUS SIGN}" for active in y)


def draw(layers, reports):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), layout="constrained")
    for ax, (name, (coef, intercept)) in zip(axes, layers.items()):
        report = reports[name]
        limit = 1.12 * (BOX + report.radius[report.status == 1].max())
        draw_regions(ax, coef, intercept, limit)
        for i in np.flatnonzero(report.status == 1):
            y = coef @ report.witness[i] + (0 if intercept is None else intercept) > 0
            ax.add_patch(
                plt.Circle(report.witness[i], report.radius[i], fill=False, color="0.2", lw=1.2)
            )
            thin = "\N{THIN SPACE}".join(signs(y))
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(
                *report.witness[i],
                thin,
                ha="center",
                va="center",
                fontsize=7,
                weight="bold",
                bbox=plate,
            )
        ax.add_patch(plt.Rectangle((-BOX, -BOX), 2 * BOX, 2 * BOX, fill=False, ls=":", color="0.2"))
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        ax.set(xlabel="first feature", ylabel="second feature")
        ax.set_title(f"{name}: {report.n_argmaxable} of {len(report)} sets")
    return figure


def draw_regions(ax, coef, intercept, limit):
    """Colour each region, and draw the boundary of each label (dashed)."""
    line = np.linspace(-limit, limit, 500)
    x, y = np.meshgrid(line, line)
    biases = np.zeros(len(coef)) if intercept is None else intercept
    logits = np.einsum("lf,fij->lij", coef, np.stack([x, y])) + biases[:, None, None]
    which = np.unique(np.packbits(logits > 0, axis=0)[0], return_inverse=True)[1]
    ax.imshow(
        which.reshape(x.shape),
        extent=(-limit, limit, -limit, limit),
        origin="lower",
        interpolation="nearest",
        cmap="Pastel1",
        vmin=-0.5,
        vmax=8.5,
    )
    for z in logits:
        ax.contour(x, y, z, levels=[0], colors="0.45", linestyles="--", linewidths=1)


if __name__ == "__main__":
    main()
