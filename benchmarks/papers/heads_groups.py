"""Groups of heads between product and flat (Equation 16, Figure 4a): quality, parameters, time.

    python benchmarks/papers/heads_groups.py DATA --figures docs/figures

A product with 1, 2, 4, ... groups, as `n_groups` of `heads.Product` has it (a mixture of products
of softmaxes) and as Equation 16 is printed (one softmax over a sum of products of raw outputs: a CP
decomposition of the logits, here a head of the user's own), beside the flat head. "ms, layer" is
CPU time of loss and gradients of the layer alone for a batch of 256, and "ms, step" that of the fit
over its steps.
"""

import math
import time
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import torch
from _experiment import WIDTH, parser, print_table, save
from _heads import classes_of, grouped, mean_and_error, measure, most_frequent_labels, with_error
from _measure import rarest_labels
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import head_lengths
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Head, Product, topk_by_position

MINUTES = 3
DATA = True

GROUPS = (1, 2, 4, 8, 16)
#: Title, data set, training samples, and which label of a sample is its class.
PANELS = [
    ("debtags, rarest label", "debtags", 12000, rarest_labels),
    ("eurlex57k, most frequent label", "eurlex57k", 5000, most_frequent_labels),
]
PARAMS = {
    "encoder": MLP((256,), dropout=0.2),
    "ranker": None,  # it would hide what the layers differ in
    "max_epochs": 8,
    "batch_size": 256,
}
#: Training of "product", whatever the defaults are.
PRODUCT = {"optimizer": "adam", "learning_rate": 2e-3, "precision": "float32"}
COLOURS = {"n_groups": "tab:blue", "Eq. 16 as printed": "tab:orange", "flat": "black"}


class SumOfProducts(Head):
    """Logits of two heads: the sum over groups of the products of their raw outputs (Eq. 16)."""

    link = "softmax"

    def __init__(self, n_features, n_labels, multilabel, n_groups=1):
        super().__init__(n_features, n_labels, multilabel)
        self.shape = head_lengths(n_labels, 2)
        self.heads = torch.nn.ModuleList(
            torch.nn.Linear(n_features, n_groups * length) for length in self.shape
        )
        for head in self.heads:  # products of outputs near zero would have no gradient
            torch.nn.init.normal_(head.bias, std=n_groups**-0.25)

    def scores(self, features):
        first, second = (
            head(features).view(len(features), -1, length)
            for head, length in zip(self.heads, self.shape)
        )
        products = torch.einsum("ngi,ngj->nij", first, second)
        return products.flatten(1)[:, : self.n_labels]

    def loss_of(self, features, targets, weights):
        surprise = -self.scores(features).log_softmax(1)[targets.rows, targets.ids]
        return weights[targets.rows] @ surprise

    def topk(self, features, k):
        return topk_by_position(self.scores(features), k)


def main():
    arguments = parser(__doc__, data=True).parse_args()
    rows = []
    for title, name, n_train, choose in PANELS:
        data = classes_of(arguments.data, name, n_train, choose=choose)
        for seed in range(2):
            for kind, n_groups in variants():
                rows.append({"data": title, **run(data, kind, n_groups, seed)})
    print_table(list(summary(rows)))
    save(arguments, "heads_groups", rows, draw(rows))


def variants():
    """Kinds of layers with their numbers of groups."""
    return [("flat", 0), *((kind, n) for kind in ("n_groups", "Eq. 16 as printed") for n in GROUPS)]


def run(data, kind, n_groups, seed):
    """Quality, size and time of one layer."""
    layer = {
        "flat": {"head": "flat"},
        "n_groups": {"head": Product(n_groups=max(n_groups, 1)), **PRODUCT},
        "Eq. 16 as printed": {"head": partial(SumOfProducts, n_groups=n_groups)},
    }[kind]
    classifier = MultiHeadClassifier(**layer, **PARAMS, random_state=seed)
    start = time.process_time()
    classifier.fit(data.X, data.y)
    seconds = time.process_time() - start
    n_steps = classifier.n_iter_ * math.ceil(len(data.y) / PARAMS["batch_size"])
    scores = measure(classifier, data)
    head = classifier.net_.module_.head
    return {
        "layer": kind,
        "groups": n_groups,
        "seed": seed,
        "parameters": sum(p.numel() for p in head.parameters()),
        "ms, layer": milliseconds(head),
        "ms, step": 1000 * seconds / n_steps,
        **{name: scores[name] for name in ("P@1", "P@5", "train P@1")},
    }


def milliseconds(head, n_rows=256, n_steps=15):
    """CPU time of the layer's loss and gradients: median over some steps."""
    features = torch.randn(n_rows, head.n_features, requires_grad=True)
    targets = Targets(torch.arange(n_rows + 1), torch.randint(head.n_labels, (n_rows,)))
    times = []
    for _ in range(n_steps):
        start = time.process_time()
        head.train().loss(features, targets).backward()
        times.append(1000 * (time.process_time() - start))
    return float(np.median(times))


def summary(rows):
    """Means over the seeds."""
    for (data, layer, groups), cell in grouped(rows, "data", "layer", "groups"):
        yield {
            "data": data,
            "layer": layer,
            "groups": groups or "",
            "parameters": cell[0]["parameters"],
            **{name: np.mean([row[name] for row in cell]) for name in ("ms, layer", "ms, step")},
            "accuracy": with_error([row["P@1"] for row in cell]),
            "class among 5 best": with_error([5 * row["P@5"] for row in cell]),
            "training accuracy": with_error([row["train P@1"] for row in cell]),
        }


def draw(rows):
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 6), sharey="row", layout="constrained")
    costs = {
        "parameters": "parameters, in thousands",
        "ms, layer": "CPU ms of a step",
    }
    for line, ((data,), panel) in zip(axes, grouped(rows, "data")):
        for axis, (cost, label) in zip(line, costs.items()):
            unit = 1000 if cost == "parameters" else 1
            for (layer,), curve in grouped(panel, "layer"):
                points = [cell for _, cell in grouped(curve, "groups")]
                x = [np.mean([row[cost] for row in cell]) / unit for cell in points]
                y, error = zip(*(mean_and_error([row["P@1"] for row in cell]) for cell in points))
                style = {"marker": "*" if layer == "flat" else "o", "capsize": 2}
                size = 11 if layer == "flat" else 4
                axis.errorbar(
                    x, y, error, label=layer, color=COLOURS[layer], markersize=size, **style
                )
                if layer == "n_groups":
                    for cell, at in zip(points, zip(x, y)):
                        text = f"G = {cell[0]['groups']}"
                        axis.annotate(text, at, (4, -10), textcoords="offset points", fontsize=7)
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.set(title=data, xlabel=label)
            axis.margins(x=0.18)
            axis.grid(alpha=0.3)
        line[0].set_ylabel("accuracy, test, %")
    axes[0, 0].legend()
    return figure


if __name__ == "__main__":
    main()
