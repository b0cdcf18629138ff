"""Rank of the output layer under cross-entropy and squared loss (Figure 5, Theorems 2 and 3).

    python benchmarks/papers/heads_low_rank.py DATA --figures docs/figures

`rank` of `heads.Flat` makes its weights a product of two matrices (Equation 17). First, as
in Figure 5a and b, on 100 random samples of 100 classes: accuracy and rank of the matrix of softmax
outputs, epoch by epoch, at rank 1. Then training accuracy over ranks on the same samples, and, as
in Figure 5c, test accuracy over ranks on real data, with an encoder before that layer.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from _experiment import WIDTH, parser, print_table, save
from _heads import classes_of, digits, grouped, measure, with_error
from _measure import rarest_labels
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from skorch.callbacks import Callback

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Flat, SquaredError

MINUTES = 3
DATA = True

N = 100
EPOCHS = 4000
LEARNING_RATE = 0.05
RANKS = (1, 2, 4, 10, 30, 100)
#: None: the plain layer.
REAL_RANKS = {"mnist": (1, 2, 3, 5, 9, None), "debtags": (1, 2, 4, 8, 32, 128, None)}
COLOURS = {"cross-entropy": "tab:blue", "squared loss": "tab:orange"}


class Identity(torch.nn.Module):
    """Samples as features."""

    def __init__(self, n_features):
        super().__init__()
        self.n_outputs = n_features

    def forward(self, X):
        return X


class Curve(Callback):
    """Accuracy on the training samples, and the rank of their softmax outputs, at some epochs."""

    def __init__(self, X, every=20):
        self.X, self.every = X, every

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) % self.every:
            return
        with torch.no_grad():
            outputs = net.module_.head.scores(torch.as_tensor(self.X))
        right = outputs.argmax(1) == torch.arange(len(outputs))
        net.history.record("accuracy", 100 * right.double().mean().item())
        rank = torch.linalg.matrix_rank(outputs.softmax(1).double(), rtol=1e-6)
        net.history.record("rank", int(rank))


LOSSES = {"cross-entropy": "ce", "squared loss": SquaredError()}


def main():
    arguments = parser(__doc__, data=True).parse_args()
    curves = {loss: random_samples(loss, 1, 0, EPOCHS) for loss in LOSSES}
    rows = [{"data": "random", **over_ranks(loss, rank, seed)}
            for loss in LOSSES for rank in RANKS for seed in range(2)]  # fmt: skip
    parts = {
        "mnist": digits(arguments.data, 6000),
        "debtags": classes_of(arguments.data, "debtags", 8000, choose=rarest_labels),
    }
    for name, data in parts.items():
        for loss in LOSSES:
            rows += [{"data": name, **on_real_data(data, loss, rank)} for rank in REAL_RANKS[name]]
    print_table([{"loss": loss, **curve[-1]} for loss, curve in curves.items()])
    print_table(list(summary(rows)))
    save(arguments, "heads_low_rank", {"curves": curves, "ranks": rows}, draw(curves, rows))


def random_samples(loss, rank, seed, n_epochs):
    """Curves of a two-layer linear network on random samples, each of a class of its own."""
    X = np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)
    classifier = MultiHeadClassifier(
        Flat(rank=rank),
        loss=LOSSES[loss],
        encoder=Identity,
        ranker=None,
        callbacks=[Curve(X)],
        max_epochs=n_epochs,
        batch_size=N,
        learning_rate=LEARNING_RATE,
        precision="float32",
        random_state=seed,
    ).fit(X, np.arange(N))
    history = [epoch for epoch in classifier.net_.history if "rank" in epoch]
    return [{name: epoch[name] for name in ("epoch", "accuracy", "rank")} for epoch in history]


def over_ranks(loss, rank, seed):
    """Accuracy after a tenth of the epochs, on random samples."""
    last = random_samples(loss, rank, seed, EPOCHS // 10)[-1]
    return {"loss": loss, "rank": rank, "seed": seed, "training": last["accuracy"]}


def on_real_data(data, loss, rank):
    """Accuracy of a network whose output layer has this rank."""
    classifier = MultiHeadClassifier(
        Flat(rank=rank),
        loss=LOSSES[loss],
        encoder=MLP((256,), dropout=0.2),
        ranker=None,
        max_epochs=8,
        batch_size=128,
        learning_rate=0.006,
        random_state=0,
    ).fit(data.X, data.y)
    found = measure(classifier, data)
    return {"loss": loss, "rank": rank, "training": found["train P@1"], "test": found["P@1"]}


def summary(rows):
    """Accuracy by rank; means over the seeds of the random samples."""
    for (data, loss, rank), cell in grouped(rows, "data", "loss", "rank"):
        line = {"data": data, "loss": loss, "rank": rank or "plain"}
        line["training"] = with_error([row["training"] for row in cell])
        line["test"] = f"{cell[0]['test']:.1f}" if "test" in cell[0] else ""
        yield line


def draw(curves, rows):
    figure, axes = plt.subplots(2, 3, figsize=(WIDTH, 5), layout="constrained")
    letters = dict(zip(("squared loss", "cross-entropy"), "ab"))
    for axis, (loss, letter) in zip(axes[0], letters.items()):
        epochs = [point["epoch"] for point in curves[loss]]
        for name, style in (("accuracy", "-"), ("rank", "--")):
            values = [point[name] for point in curves[loss]]
            label = {"accuracy": "training accuracy, %", "rank": "rank of softmax outputs"}[name]
            axis.plot(epochs, values, style, color=COLOURS[loss], label=label)
        axis.set(title=f"({letter}) {loss}, rank 1", xlabel="epoch", ylim=(-3, 103))
        axis.legend(fontsize=7)
    titles = {"random": "(c) random samples", "mnist": "(d) mnist", "debtags": "(e) debtags"}
    for axis, ((data,), panel) in zip([axes[0, 2], *axes[1]], grouped(rows, "data")):
        for (loss,), line in grouped(panel, "loss"):
            for part, style in (("training", "--"), ("test", "-")):
                if part not in line[0]:
                    continue
                points = {rank: [row[part] for row in cell] for (rank,), cell in
                          grouped(line, "rank")}  # fmt: skip
                plain = points.pop(None, None)
                if plain and part == "test":
                    axis.axhline(np.mean(plain), color=COLOURS[loss], ls=":", lw=1)
                ranks, mean = list(points), [np.mean(values) for values in points.values()]
                axis.plot(ranks, mean, style, marker="o", markersize=3, color=COLOURS[loss])
        axis.set(title=titles[data], xlabel="rank of the output layer", ylim=(-3, 103))
        axis.set_xscale("log")
        axis.set_xticks(ranks, ranks)
        axis.xaxis.set_minor_locator(NullLocator())
    legend = [Line2D([], [], color=colour, label=loss) for loss, colour in COLOURS.items()]
    legend += [Line2D([], [], color="gray", ls=style, label=f"{part} samples")
               for part, style in (("training", "--"), ("test", "-"))]  # fmt: skip
    legend.append(Line2D([], [], color="gray", ls=":", lw=1, label="test, plain layer"))
    axes[1, 2].axis("off")
    axes[1, 2].legend(handles=legend, loc="center", frameon=False, title="(c) to (e): accuracy")
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy, %")
    return figure


if __name__ == "__main__":
    main()
