"""Label order and head lengths of multi-head encoding: Tables 3, 7 and 9, Figures 8 and 9.

    python benchmarks/papers/heads_order.py DATA --full --figures docs/figures

Labels in the given order, in a random one (the paper's LRD) and clustered (LC), with a small
encoder, which underfits, and a large one, which fits the training samples; on classes by "product",
"cascade" and "sampling", and on many labels by "cascade". "sampling" is MHS-2: a step scores a
sample by the sub-head of its class and by one other. The heads of a batch, as in Algorithm 4, would
be all heads of so few classes, and the classifier the vanilla one ("flat") without its biases.
"first head" is the share of test samples whose best label has the first digit of a true one, as in
Figure 8. Scores are those of the heads, with no ranker after them. One seed; with ``--full`` three.
``--only classes`` (8 CPU minutes with ``--full``) or ``--only labels`` is one of its two figures.
"""

import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
from _experiment import WIDTH, parser, print_table, save
from _heads import classes_of, digits, grouped, labels_of, mean_and_error, measure, with_error
from matplotlib.lines import Line2D

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP

MINUTES = 6
FULL_MINUTES = 16
DATA = True

ORDERS = {"given": "gray", "random": "tab:orange", "clustered": "tab:blue"}
#: Lengths and orders that make no difference: "flat" has no order.
UNORDERED = [(None, "random"), (None, "clustered")]
#: Training on classes, whatever the defaults are.
TRAINING = {"optimizer": "adam", "learning_rate": 2e-3, "precision": "float32"}
IMAGES = {**TRAINING, "max_epochs": 10, "batch_size": 128}
TAGS = {**TRAINING, "max_epochs": 5}
LABELS = {"max_epochs": 8}
PRODUCT = {"head": "product"}
CASCADE = {"head": "cascade", "head__embedding_dim": 64}
SAMPLING = {"head": "sampling", "head__shared_heads": False, "head__n_sampled_heads": 1}


def images(folder):
    return digits(folder, 6000)


def tags(folder):
    return classes_of(folder, "debtags", 12000)


#: Title, samples, parameters, widths of the two encoders, head lengths (None: "flat").
PANELS = {
    "classes": [
        (
            "mnist: product",
            images,
            {**IMAGES, **PRODUCT},
            {"small": 6, "large": 256},
            [None, (5, 2), (2, 5), (3, 2, 2)],
        ),
        (
            "mnist: cascade",
            images,
            {**IMAGES, **CASCADE},
            {"small": 6, "large": 256},
            [(5, 2), (2, 5), (3, 2, 2)],
        ),
        ("mnist: sampling", images, {**IMAGES, **SAMPLING}, {"small": 6, "large": 256}, [(5, 2)]),
        (
            "debtags, one tag: product",
            tags,
            {**TAGS, **PRODUCT},
            {"small": 8, "large": 256},
            [None, (28, 3), (10, 9), (3, 28), (5, 5, 4)],
        ),
        (
            "debtags, one tag: sampling",
            tags,
            {**TAGS, **SAMPLING},
            {"small": 8, "large": 256},
            [(28, 3), (10, 9), (3, 28)],
        ),
    ],
    "labels": [
        (
            "debtags: cascade, 580 labels",
            lambda folder: labels_of(folder, "debtags", 4000),
            {**LABELS, **CASCADE},
            {"small": 16, "large": 256},
            [(73, 8), (25, 24), (9, 9, 8)],
        ),
        (
            "wordnet: cascade, 17 152 labels",
            lambda folder: labels_of(folder, "wordnet_noun_closure", 4000),
            {**LABELS, **CASCADE},
            {"small": 16, "large": 256},
            [(688, 25), (131, 131), (26, 26, 26)],
        ),
        (
            "eurlex57k: cascade, 4271 labels",
            lambda folder: labels_of(folder, "eurlex57k", 3000),
            {**LABELS, **CASCADE},
            {"small": 16, "large": 256},
            [(268, 16), (66, 65), (17, 16, 16)],
        ),
    ],
}


def main():
    options = parser(__doc__, data=True)
    options.add_argument("--only", nargs="+", choices=PANELS, default=list(PANELS))
    arguments = options.parse_args()
    for group in arguments.only:
        rows = measure_panels(arguments, PANELS[group])
        print_table(list(cells(rows)))
        print_table(list(gaps(rows)))
        save(arguments, f"heads_order_{group}", rows, draw(rows))


def measure_panels(arguments, panels):
    rows = []
    for title, load, params, widths, lengths in panels:
        data = load(arguments.data)
        for each in itertools.product(range(3 if arguments.full else 1), widths, lengths, ORDERS):
            if each[-2:] not in UNORDERED:
                rows.append({"data": title, **run(data, params, widths, *each)})
        print(f"{title}: {time.process_time():.0f} CPU seconds so far", flush=True)
    return rows


def run(data, params, widths, seed, encoder, lengths, order):
    """Measures of one fit."""
    mlp = MLP((widths[encoder],), dropout=0.0)
    classifier = MultiHeadClassifier(encoder=mlp, ranker=None, random_state=seed)
    about = {"seed": seed, "encoder": encoder, "order": order}
    if lengths is None:
        classifier.set_params(**{**params, "head": "flat"})
        about["lengths"] = "flat"
    else:
        classifier.set_params(**params, head__lengths=lengths, head__label_order=order)
        about["lengths"] = "{" + "; ".join(map(str, lengths)) + "}"  # as the paper writes them
    classifier.fit(data.X, data.y)
    return {**about, **measure(classifier, data)}


def cells(rows):
    """Mean and standard error over seeds of everything measured, by cell."""
    keys = ("data", "encoder", "lengths", "order")
    measures = ("P@1", "P@3", "P@5", "first head", "train P@1")
    for key, group in grouped(rows, *keys):
        values = {name: with_error([row[name] for row in group]) for name in measures}
        yield {**dict(zip(keys, key)), **values}


def gaps(rows):
    """P@1 of an order less that of the random one, over the lengths: the paper's question."""
    with_heads = [row for row in rows if row["lengths"] != "flat"]
    for (data, encoder), group in grouped(with_heads, "data", "encoder"):
        by_seed = {key: np.mean([row["P@1"] for row in some]) for key, some in
                   grouped(group, "seed", "order")}  # fmt: skip
        seeds = sorted({seed for seed, _ in by_seed})
        row = {"data": data, "encoder": encoder}
        row["train P@1"] = with_error([row["train P@1"] for row in group])
        row["random"] = with_error([by_seed[seed, "random"] for seed in seeds])
        for order in ("clustered", "given"):
            differences = [by_seed[seed, order] - by_seed[seed, "random"] for seed in seeds]
            row[f"{order} - random"] = with_error(differences)
        yield row


def draw(rows):
    panels = grouped(rows, "data")
    n_rows = 1 + len(panels) // 2
    figure, axes = plt.subplots(n_rows, 2, figsize=(WIDTH, 2.3 * n_rows), layout="constrained")
    for axis, ((title,), panel) in zip(axes.flat, panels):
        lengths = list(dict.fromkeys(row["lengths"] for row in panel))
        for (encoder, length, order), group in grouped(panel, "encoder", "lengths", "order"):
            mean, error = mean_and_error([row["P@1"] for row in group])
            at = lengths.index(length) + 0.18 * (list(ORDERS).index(order) - 1)
            colour = ORDERS[order]
            face = colour if encoder == "large" else "white"
            style = {"marker": "o", "color": colour, "markerfacecolor": face, "capsize": 2}
            axis.errorbar(at, mean, np.nan_to_num(error), **style)
        axis.set_xticks(range(len(lengths)), lengths, fontsize="small")
        axis.set_title(title, fontsize="medium")
        axis.set(xlabel="head lengths", ylabel="P@1, test, %")
        axis.set_xlim(-0.5, len(lengths) - 0.5)
        axis.grid(axis="y", alpha=0.3)
    legend = [Line2D([], [], color=colour, marker="o", linestyle="", label=f"{order} order")
              for order, colour in ORDERS.items()]  # fmt: skip
    legend += [
        Line2D([], [], color="black", marker="o", linestyle="", label="large encoder (fits)"),
        Line2D([], [], color="black", marker="o", linestyle="", label="small encoder (underfits)",
               markerfacecolor="white"),
    ]  # fmt: skip
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(handles=legend, loc="center", frameon=False)
    return figure


if __name__ == "__main__":
    main()
