"""Figs. 4 and 6 of multi-label neural collapse: up to three labels, and all labels at once.

    python benchmarks/papers/collapse_multiplicities.py DATA

Panels 1 and 2, in place of SVHN: stacked MNIST with one, two or three digits, the classes alone
equally often, pairs and triples imbalanced as in SVHN; the measures for each number of labels over
the epochs. Panel 3: digits 0, 1 and 2 with two features; the images of all three digits, of which
the theorem says nothing, gather at the origin, which is the sum of the three corners (the paper has
cars, trains and trucks of COCO).
"""

import numpy as np
import torch
from _experiment import WIDTH, parser, print_table, save
from _stacked import classifier, load_digits, stack
from matplotlib import pyplot as plt

from sklearn_xlc.plotting import NeuralCollapseDisplay
from sklearn_xlc.training import CollapseMonitor

MINUTES = 2
FULL_MINUTES = 15
DATA = True
MEASURES = {
    "nc1": "NC1, one digit",
    "nc1_2": "NC1, two",
    "nc1_3": "NC1, three",
    "nc2_means": "NC2, means",
    "nc3": "NC3",
    "ncm_2": "NCm, two digits",
    "ncm_3": "NCm, three",
}


def up_to_three(arguments, axes):
    """Panels 1 and 2."""
    factor, epochs = (5, 100) if arguments.full else (1, 30)
    numbers = {"n_per_class": 500, "n_per_pair": (100, 40, 10, 2), "n_per_triple": (16, 6, 1)}
    numbers = {name: (factor * np.asarray(value)).tolist() for name, value in numbers.items()}
    X, Y = stack(*load_digits(arguments.data, "train"), **numbers, random_state=0)
    torch.manual_seed(0)
    monitor = CollapseMonitor(X[:3000], Y[:3000])
    history = classifier("learned", 16, epochs, 0, callbacks=[monitor]).fit(X, Y).net_.history
    x, rows = np.arange(1, epochs + 1), []
    for measure, name in MEASURES.items():
        axis = axes[0] if measure.startswith("nc1") else axes[1]
        axis.plot(x, history[:, measure], lw=1.2, label=name)
        rows.append({"measure": name, "first": history[0, measure], "last": history[-1, measure]})
    axes[0].set_ylabel("NC measures, no unit")
    for axis in axes:
        axis.set(xlabel="epoch", yscale="log", title="one to three digits")
        lowest = min(line.get_ydata().min() for line in axis.lines)
        axis.set_ylim(bottom=10 ** np.floor(np.log10(lowest)))
        axis.legend(fontsize=6)
        axis.grid(alpha=0.3)
    rows.append({"measure": "images", "first": len(X), "last": len(X)})
    return rows


def all_labels(arguments, axis):
    """Panel 3: norms of mean features, relative to those of one label."""
    images, y = load_digits(arguments.data, "train")
    images, y = images[y < 3], y[y < 3]
    numbers = {"n_per_class": 600, "n_per_pair": 400, "n_per_triple": 600}
    X, Y = stack(images, y, **numbers, random_state=0)
    torch.manual_seed(0)
    clf = classifier("learned", 2, 100 if arguments.full else 30, 0).fit(X, Y)
    features, sizes = clf.transform(X), Y.sum(1)
    NeuralCollapseDisplay.from_features(features, Y, clf.output_weights_, ax=axis)
    axis.set(title="three labels, two features", xlabel="")
    axis.legend(fontsize=6, title=None, loc="upper left", bbox_to_anchor=(1, 1))
    sets = np.unique(Y, axis=0)
    means = np.array([features[(labels == Y).all(1)].mean(0) for labels in sets])
    norms = np.linalg.norm(means, axis=1)
    unit = norms[sets.sum(1) == 1].mean()
    rows = [
        {"digits": str(np.flatnonzero(labels).tolist()), "norm of the mean": norm / unit}
        for labels, norm in zip(sets, norms)
    ]
    rows.append({"digits": "all images", "norm of the mean": np.linalg.norm(means.mean(0)) / unit})
    report = clf.collapse_report(X, Y)
    for name, value in {"NC1": report["nc1"], "NCm": report["ncm"][2]}.items():
        rows.append({"digits": name, "norm of the mean": value})
    distances = np.linalg.norm(features[sizes == 3], axis=1) / unit
    rows.append({"digits": "median norm of [0, 1, 2]", "norm of the mean": np.median(distances)})
    return rows


def main():
    arguments = parser(__doc__, data=True).parse_args()
    figure, axes = plt.subplots(1, 3, figsize=(1.25 * WIDTH, 2.9), layout="constrained")
    rows = {"up to three": up_to_three(arguments, axes[:2])}
    print_table(rows["up to three"])
    rows["all labels"] = all_labels(arguments, axes[2])
    print_table(rows["all labels"])
    for axis in axes:
        axis.title.set_fontsize(9)
    save(arguments, "collapse_multiplicities", rows, figure)


if __name__ == "__main__":
    main()
