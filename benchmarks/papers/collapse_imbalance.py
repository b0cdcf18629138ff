"""Fig. 2 of multi-label neural collapse: pairs that are imbalanced, and a pair that is missing.

    python benchmarks/papers/collapse_imbalance.py DATA

Panels 1 and 2: stacked MNIST, all classes alone equally often, the 45 pairs in three groups with
200, 20 and 2 images a pair (with --full 500, 50 and 5, as in the paper; a class alone has ten times
as many); NC1 to NC3, and NCm of every group, over the epochs. Dotted: at the optimum of free
features for these numbers of images (`collapse_theorem.py`), which is near a simplex, but none.
Panels 3 and 4: three digits, one pair of which is missing, with two features; features after the
first and the last epoch. The paper has Cifar10 and a ResNet-18 (200 epochs) in the first two.
"""

import numpy as np
import torch
from _experiment import WIDTH, parser, print_table, save
from _stacked import PAPER_DECAY, classifier, load_digits, stack
from collapse_theorem import descend
from matplotlib import pyplot as plt
from skorch.callbacks import Callback

from sklearn_xlc.metrics import neural_collapse
from sklearn_xlc.plotting import NeuralCollapseDisplay
from sklearn_xlc.training import CollapseMonitor

MINUTES = 3
FULL_MINUTES = 20
DATA = True
N_WATCHED = 1000


class GroupMonitor(Callback):
    """Record the measures of every group of samples after every epoch, as GROUP_MEASURE."""

    def __init__(self, groups):
        self.groups = groups

    def __deepcopy__(self, memo):
        return GroupMonitor(self.groups)

    def on_epoch_end(self, net, **kwargs):
        for group, (X, Y) in self.groups.items():
            CollapseMonitor(X, Y).on_epoch_end(net)
            for measure in ("nc1", "nc1_2", "nc2_means", "nc2_weights", "nc3", "ncm_2"):
                net.history.record(f"{group}_{measure}", net.history[-1, measure])


def groups_of(X, Y, sizes):
    """Images of one digit with those of each group of pairs, at most N_WATCHED of either."""
    one = np.flatnonzero(Y.sum(1) == 1)[:N_WATCHED]
    two = np.flatnonzero(Y.sum(1) == 2)
    codes = Y[two] @ (2 ** np.arange(Y.shape[1]))
    _, pair, counts = np.unique(codes, return_inverse=True, return_counts=True)
    chosen = {size: two[counts[pair] == size][:N_WATCHED] for size in sizes}
    return {size: (X[np.r_[one, rows]], Y[np.r_[one, rows]]) for size, rows in chosen.items()}


def free_optimum(Y, lambda_w):
    """Measures of the minimiser of Eq. 4 for these label sets; NC1 is zero."""
    sets, counts = np.unique(Y, axis=0, return_counts=True)
    path, _ = descend(sets, counts, lambda_w, PAPER_DECAY / len(Y), seed=0, tolerance=1e-9)
    W, H, _ = path[-1]
    report = neural_collapse(H, sets, W)
    return report | {"ncm_2": report["ncm"][2]}


def imbalanced(arguments, axes):
    """Panels 1 and 2."""
    sizes, epochs = ((500, 50, 5), 100) if arguments.full else ((200, 20, 2), 30)
    n_per_class = 10 * sizes[0]
    digits = load_digits(arguments.data, "train")
    X, Y = stack(*digits, n_per_class=n_per_class, n_per_pair=sizes, random_state=0)
    torch.manual_seed(0)
    monitor = GroupMonitor(groups_of(X, Y, sizes))
    clf = classifier("learned", 16, epochs, 0, callbacks=[monitor]).fit(X, Y)
    history, rows = clf.net_.history, []
    x = np.arange(1, epochs + 1)
    names = {"nc1": "NC1", "nc2_means": "NC2, means", "nc2_weights": "NC2, weights", "nc3": "NC3"}
    free = free_optimum(Y, lambda_w=5e-4)
    for color, (measure, name) in enumerate(names.items()):
        values = history[:, f"{sizes[0]}_{measure}"]
        axes[0].plot(x, values, color=f"C{color}", label=name, lw=1.2)
        axes[0].axhline(max(free[measure], 1e-9), color=f"C{color}", ls=":", lw=1)
    axes[0].set_ylim(bottom=0.5 * min(history[-1, f"{sizes[0]}_nc1"], free["nc2_means"]))
    axes[1].axhline(free["ncm_2"], color="0.3", ls=":", lw=1, label="NCm, free features")
    for size in sizes:
        axes[1].plot(x, history[:, f"{size}_ncm_2"], label=f"NCm, {size} a pair", lw=1.2)
        axes[1].plot(
            x, history[:, f"{size}_nc1_2"], "--", color=axes[1].lines[-1].get_color(), lw=0.9
        )
        first, last = history[0], history[-1]
        rows.append({"images a pair": size})
        for measure in ("nc1", "nc1_2", "nc2_means", "nc2_weights", "nc3", "ncm_2"):
            key = f"{size}_{measure}"
            rows[-1][measure] = f"{first[key]:.3f} -> {last[key]:.4f}"
    measures = (*names, "ncm_2")
    rows.append({"images a pair": "free features"} | {name: free[name] for name in measures})
    axes[0].set(yscale="log", xlabel="epoch", title=f"{n_per_class} images a digit")
    axes[1].set(yscale="log", xlabel="epoch", title="groups of pairs (dashed: NC1)")
    axes[0].set_ylabel("NC measures, no unit")
    for axis in axes[:2]:
        axis.legend(fontsize=6)
        axis.grid(alpha=0.3)
    return rows


def missing_pair(arguments, axes):
    """Panels 3 and 4: digits 0, 1 and 2, no image of 0 and 1 together."""
    images, y = load_digits(arguments.data, "train")
    images, y = images[y < 3], y[y < 3]
    counts = {"n_per_class": 1000, "n_per_pair": 500}
    X, Y = stack(images, y, **counts, held_out=[(0, 1)], random_state=0)
    epochs = 100 if arguments.full else 30
    rows = []
    for axis, n_epochs in zip(axes, (1, epochs)):
        torch.manual_seed(0)
        clf = classifier("learned", 2, n_epochs, 0).fit(X, Y)
        report = clf.collapse_report(X, Y)
        rows.append({"epochs": n_epochs} | {name: report[name] for name in ("nc1", "nc2_means")})
        rows[-1] |= {"nc3": report["nc3"], "ncm_2": report["ncm"][2]}
        NeuralCollapseDisplay.from_features(clf.transform(X), Y, clf.output_weights_, ax=axis)
        axis.set(title=f"pair (0, 1) missing, epoch {n_epochs}", xlabel="", aspect="auto")
        axis.legend(fontsize=6, title=None)
    return rows


def main():
    arguments = parser(__doc__, data=True).parse_args()
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 0.85 * WIDTH), layout="constrained")
    rows = {"imbalanced": imbalanced(arguments, axes[0])}
    print_table(rows["imbalanced"])
    rows["missing pair"] = missing_pair(arguments, axes[1])
    print_table(rows["missing pair"])
    for axis in axes.flat:
        axis.title.set_fontsize(9)
    save(arguments, "collapse_imbalance", rows, figure)


if __name__ == "__main__":
    main()
