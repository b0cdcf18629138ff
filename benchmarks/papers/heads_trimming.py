"""Tail labels trimmed from the training samples of a cascade (Table 10).

    python benchmarks/papers/heads_trimming.py DATA --figures docs/figures

The labels are ranked by their number of training samples, and the rarest share of them is removed
before training; test samples keep all their labels. Propensity-scored precision (PSP) counts rare
labels for more, so it says what the trimmed labels were worth.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from _experiment import WIDTH, parser, print_table, save
from _heads import grouped, labels_of, mean_and_error, with_error

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade
from sklearn_xlc.metrics import precision_at_k, propensities, psp_at_k

MINUTES = 2
DATA = True

#: Data set and training samples.
PANELS = [("eurlex57k", 8000), ("wordnet_noun_closure", 5000)]
SHARES = (0, 25, 50, 75, 90, 95)
PARAMS = {"encoder": MLP((256,), dropout=0.2), "ranker": None, "max_epochs": 8}
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def main():
    arguments = parser(__doc__, data=True).parse_args()
    rows = []
    for name, n_train in PANELS:
        data = labels_of(arguments.data, name, n_train)
        for seed in range(2):
            rows += [{"data": name, **run(data, share, seed)} for share in SHARES]
    print_table(list(summary(rows)))
    save(arguments, "heads_trimming", rows, draw(rows))


def run(data, share, seed):
    """Measures of a cascade trained without the rarest `share` per cent of the labels."""
    counts = np.asarray(data.y.sum(0)).ravel()
    n_seen = (counts > 0).sum()
    n_kept = round(n_seen * (1 - share / 100))
    kept = np.sort(np.argsort(-counts, kind="stable")[:n_kept])
    start = time.process_time()
    classifier = MultiHeadClassifier(Cascade(embedding_dim=64), random_state=seed, **PARAMS)
    classifier.fit(data.X, data.y[:, kept])
    seconds = time.process_time() - start
    top = kept[classifier.predict_topk(data.X_test, k=5)[0]]
    propensity = propensities(data.y)
    result = {
        "trimmed, %": share,
        "seed": seed,
        "labels": n_kept,
        "least count": int(counts[kept].min()),
        "label entries kept, %": 100 * float(counts[kept].sum() / counts.sum()),
        "fit, s": seconds,
    }
    for k in (1, 3, 5):
        result[f"P@{k}"] = 100 * precision_at_k(data.Y_test, top, k=k)
        result[f"PSP@{k}"] = 100 * psp_at_k(data.Y_test, top, propensities=propensity, k=k)
    return result


def summary(rows):
    """Means over the seeds."""
    for (data, share), cell in grouped(rows, "data", "trimmed, %"):
        first = cell[0]
        yield {
            "data": data,
            "trimmed, %": share,
            **{name: first[name] for name in ("labels", "least count", "label entries kept, %")},
            **{name: with_error([row[name] for row in cell]) for name in MEASURES},
            "fit, s": np.mean([row["fit, s"] for row in cell]),
        }


def draw(rows):
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.2), layout="constrained")
    for axis, ((data,), panel) in zip(axes, grouped(rows, "data")):
        for name, colour in zip(MEASURES, 2 * ("tab:blue", "tab:orange", "tab:green")):
            cells = [[row[name] for row in cell] for _, cell in grouped(panel, "trimmed, %")]
            mean, error = zip(*map(mean_and_error, cells))
            style = "--" if name.startswith("PSP") else "-"
            axis.errorbar(
                SHARES, mean, error, marker="o", markersize=4, label=name, color=colour, ls=style
            )
        entries = {row["trimmed, %"]: row["label entries kept, %"] for row in panel}
        axis.plot(entries.keys(), entries.values(), color="gray", ls=":", label="entries kept")
        axis.set(title=data, xlabel="labels trimmed, %", ylabel="%", ylim=(0, 102))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


if __name__ == "__main__":
    main()
