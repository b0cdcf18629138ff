"""Fig. 2 left of the sigmoid bottleneck paper, and Theorem 1: how many label sets are argmaxable.

    python benchmarks/papers/sigmoid_counts.py --figures docs/figures

Left: the share of all sets of a thousand labels that a layer of d features can predict, by Cover's
count (Eq. 2). Right: every set of a few labels verified one by one, for layers of random weights,
with and without biases, and for the Fourier layer; the lines are the counts.
"""

import itertools
import math

import numpy as np
from _experiment import WIDTH, parser, print_table, save

from sklearn_xlc.geometry import count_argmaxable, fourier_matrix, verify_argmaxable

MINUTES = 0.2
FULL_MINUTES = 2
N_MANY = 1000
#: Slanted strokes where an axis is cut.
CUT = {"marker": [(-1, -0.5), (1, 0.5)], "ms": 9, "ls": "none", "color": "black", "mew": 1}
KINDS = {
    "random": ("#0072B2", "o"),
    "random, with biases": ("#D55E00", "s"),
    "Fourier": ("black", "x"),
}


def main():
    arguments = parser(__doc__).parse_args()
    n_labels = 10 if arguments.full else 8
    Y = np.array(list(itertools.product([0, 1], repeat=n_labels)))
    rng = np.random.default_rng(0)
    rows = []
    for d in range(1, n_labels + 1):
        coef, intercept = rng.normal(size=(n_labels, d)), rng.normal(size=n_labels)
        rows.append(verify("random", Y, coef))
        rows.append(verify("random, with biases", Y, coef, intercept))
        if d % 2:
            rows.append(verify("Fourier", Y, fourier_matrix(n_labels, d // 2)))
    print_table(rows)
    print(f"share of the sets of {N_MANY} labels, in decades of a per cent:")
    shares = [{"d": d, "log10 of %": log_share(d)} for d in (50, 100, 200, 400, 480, 500, 1000)]
    print_table(shares)
    save(arguments, "sigmoid_counts", rows + shares, draw(rows, n_labels))


def verify(kind, Y, coef, intercept=None):
    report = verify_argmaxable(coef, Y, intercept)
    n_labels, d = coef.shape
    return {
        "layer": kind,
        "d": d,
        "sets": len(Y),
        "argmaxable": report.n_argmaxable,
        "not": report.n_unargmaxable,
        "unknown": report.n_unknown,
        "by the count": count_argmaxable(n_labels, d, intercept=intercept is not None),
    }


def log_share(d):
    """Logarithm to base ten of the percentage of the sets of many labels."""
    # Whole numbers of hundreds of digits: their logarithms fit a float, they do not.
    return math.log10(100 * count_argmaxable(N_MANY, d)) - N_MANY * math.log10(2)


def draw(rows, n_labels):
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(1.25 * WIDTH, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2)
    draw_shares(left)
    ax = right.subplots()
    widths = np.arange(1, n_labels + 1)
    for kind, (colour, marker) in KINDS.items():
        chosen = [row for row in rows if row["layer"] == kind]
        ax.plot(
            [row["d"] for row in chosen],
            [row["argmaxable"] for row in chosen],
            marker,
            color=colour,
            label=f"{kind}: verified",
        )
    for kind, biased in (("random", False), ("random, with biases", True)):
        counts = [count_argmaxable(n_labels, int(d), intercept=biased) for d in widths]
        name = "count, with biases" if biased else "Cover's count"
        ax.plot(widths, counts, color=KINDS[kind][0], zorder=0, lw=1, label=name)
    ax.axhline(2**n_labels, color="0.6", ls=":", lw=1)
    ax.text(1, 2**n_labels, f"all {2**n_labels}", va="bottom", fontsize="small")
    ax.set(xlabel="features d", ylabel="argmaxable sets", ylim=(0, 1.12 * 2**n_labels))
    ax.set_title(f"{n_labels} labels, every set verified")
    ax.legend(fontsize="small", loc="lower right")
    return figure


def draw_shares(figure):
    """Share against d on an axis of two parts, as in the paper: the fall starts at d = n / 2."""
    widths = np.unique(np.concatenate([np.arange(1, 20), np.arange(20, N_MANY + 1, 4)]))
    shares = [log_share(int(d)) for d in widths]
    top, bottom = figure.subplots(2, 1, sharex=True)
    for ax, limits, ticks, edge in (
        (top, (-10, 4), (-6, -2, 2), 0),
        (bottom, (-310, -10), (-300, -200, -100), 1),
    ):
        ax.plot(widths, shares, color="#0072B2")
        ax.set_ylim(limits)
        ax.set_yticks(ticks, [f"$10^{{{tick}}}$" for tick in ticks])
        ax.grid(alpha=0.3)
        ax.plot([0, 1], [edge, edge], transform=ax.transAxes, clip_on=False, **CUT)
    top.spines["bottom"].set_visible(False)
    top.tick_params(bottom=False)
    bottom.spines["top"].set_visible(False)
    top.set_title(f"argmaxable share of the $2^{{{N_MANY}}}$ sets")
    bottom.set_xlabel("features d")
    figure.supylabel("per cent")


if __name__ == "__main__":
    main()
