"""Fig. 4 of the sigmoid bottleneck paper: radii of regions, against labels and slack columns.

    python benchmarks/papers/sigmoid_radii.py --figures docs/figures

For random sets of k active labels of n it finds the radius of each set's region in a Fourier layer
(Eq. 3, box of 10^4), and draws the radius that 1% of the sets fall short of. Left: more labels.
Middle: the same with 16 random slack columns. Right: more slack columns. Hollow: a lower bound,
that of the first witness proven. Solvers do not find balls so small, and may not end within the
time limit.
"""

import numpy as np
from _experiment import parser, print_table, save

from sklearn_xlc.geometry import fourier_matrix, verify_argmaxable

MINUTES = 3
FULL_MINUTES = 12
ACTIVE = (1, 3, 5, 10)
LABELS = (32, 128, 512, 2048)
SLACK = (0, 4, 8, 16, 32)
N_SLACK, N_LABELS = 16, 512
SHARE = 0.01
#: Smallest radius that the paper asks of a solver.
ACCURACY = 1e-8


def main():
    arguments = parser(__doc__).parse_args()
    n_sets = 400 if arguments.full else 100
    cells = [(n, k, s) for k in ACTIVE for s in (0, N_SLACK) for n in LABELS]
    cells += [(N_LABELS, k, s) for k in ACTIVE for s in SLACK if s not in (0, N_SLACK)]
    rows = [measure(*cell, n_sets) for cell in cells]
    print_table(rows)
    save(arguments, "sigmoid_radii", rows, draw(rows))


def measure(n_labels, k, n_slack, n_sets):
    """Radii of random sets of k labels: those that 1% and half of them fall short of."""
    rng = np.random.default_rng([n_labels, k, n_slack])
    Y = np.zeros((n_sets, n_labels), dtype=np.int8)
    for y in Y:
        y[rng.choice(n_labels, k, replace=False)] = 1
    bound = max(1, n_slack) ** -0.5  # as torch starts the weights of a layer
    slack = rng.uniform(-bound, bound, size=(n_labels, n_slack))
    coef = np.hstack([fourier_matrix(n_labels, k), slack])
    report = verify_argmaxable(coef, Y, max_active=k, search_radius=True)
    assert report.n_argmaxable == n_sets
    return {
        "n": n_labels,
        "k": k,
        "slack": n_slack,
        "radius (1%)": float(np.quantile(report.radius, SHARE)),
        "radius (median)": float(np.median(report.radius)),
        "narrower than 1e-8": int(report.narrow.sum()),
        "sets": n_sets,
    }


def draw(rows):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained", sharey=True)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(ACTIVE)))
    views = (
        (axes[0], "n", {"slack": 0}, "no slack columns", "labels n"),
        (axes[1], "n", {"slack": N_SLACK}, f"{N_SLACK} slack columns", "labels n"),
        (axes[2], "slack", {"n": N_LABELS}, f"{N_LABELS} labels", "slack columns"),
    )
    for ax, x, fixed, title, label in views:
        for k, colour, marker in zip(ACTIVE, colours, "osv^"):
            chosen = [r for r in rows if r["k"] == k and fixed.items() <= r.items()]
            chosen.sort(key=lambda r: r[x])
            at, radii = (np.array([r[key] for r in chosen]) for key in (x, "radius (1%)"))
            ax.plot(at, radii, color=colour, marker=marker, ms=5, label=f"k = {k}")
            low = radii < ACCURACY
            ax.plot(at[low], radii[low], marker, color=colour, mfc="white", ms=5)
        ax.axhline(ACCURACY, color="0.4", ls=":", lw=1)
        ax.set(xlabel=label, title=title, yscale="log")
        ax.grid(alpha=0.3)
    for ax in axes[:2]:
        ax.set_xscale("log", base=2)
        ax.set_xticks(LABELS, LABELS)
    axes[2].set_xticks(SLACK, SLACK)
    axes[0].set_ylabel("radius that 1% of the sets fall short of")
    axes[0].legend(fontsize="small")
    axes[2].text(SLACK[-1], 0.5 * ACCURACY, "accuracy of solvers", ha="right", va="top", fontsize=8)
    return figure


if __name__ == "__main__":
    main()
