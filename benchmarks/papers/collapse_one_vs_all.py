"""Table 1 of multi-label neural collapse: one nearest neighbour against one-vs-all.

    python benchmarks/papers/collapse_one_vs_all.py DATA

Both decoders read the same frozen features of a network with a fixed simplex, as in the paper:
one-vs-all trains a binary classifier a label on them and predicts above a probability of one half;
one nearest neighbour (ONN, our "seen") needs their means; our "nearest" also compares label sets
that did not occur. Stacked MNIST, a tenth of the paper's images: 150 a class, and 100, 75 or 50 a
pair ("large", "medium", "small"); and, in place of SVHN, images of up to three digits with
imbalanced pairs and triples. Test images show other digits. Mean of three seeds.
"""

import numpy as np
import torch
from _experiment import WIDTH, parser, print_table, save
from _stacked import BATCH, classifier, load_digits, stack
from matplotlib import pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier

from sklearn_xlc.decisions import LinearLayer, Nearest, Seen

MINUTES = 4
FULL_MINUTES = 75
DATA = True
SEEDS, WIDTH_OF_FEATURES = (0, 1, 2), 64
#: The feature decay of the paper's Table 1: 1e-5 times the sum over a batch of 128.
DECAY = 1e-5 * BATCH
IMAGES = {
    "large": {"n_per_class": 150, "n_per_pair": 100},
    "medium": {"n_per_class": 150, "n_per_pair": 75},
    "small": {"n_per_class": 150, "n_per_pair": 50},
    "up to three": {"n_per_class": 150, "n_per_pair": (80, 40, 10), "n_per_triple": (20, 10, 2)},
}
DECODERS = ("one-vs-all", "ONN", "nearest")


def make_data(name, arguments, seed):
    """Training images, and a fifth as many test images of other digits."""
    factor = 10 if arguments.full else 1
    train = {key: np.multiply(factor, value).tolist() for key, value in IMAGES[name].items()}
    test = {key: -(-np.asarray(value) // 5) for key, value in train.items()}
    test = {key: value.tolist() for key, value in test.items()}
    return (
        stack(*load_digits(arguments.data, "train"), **train, random_state=seed),
        stack(*load_digits(arguments.data, "test"), **test, random_state=seed + 100),
    )


def decode(name, arguments, seed):
    """Label sets of the test images by every decoder, and the sizes that operations depend on."""
    (X, Y), (X_test, Y_test) = make_data(name, arguments, seed)
    torch.manual_seed(seed)
    epochs = 60 if arguments.full else 20
    clf = classifier("etf", WIDTH_OF_FEATURES, epochs, seed, feature_decay=DECAY).fit(X, Y)
    features, unknown = clf.transform(X), clf.transform(X_test)
    layer = LinearLayer(clf.output_weights_, is_simplex=True)
    spread = features.std()
    one_vs_all = OneVsRestClassifier(LogisticRegression(C=100, max_iter=1000))
    sets = {
        "one-vs-all": one_vs_all.fit(features / spread, Y).predict(unknown / spread),
        "ONN": Seen().fit(features, Y).decode(unknown).toarray(),
        "nearest": Nearest().fit(features, Y, layer=layer).decode(unknown, layer).toarray(),
    }
    return sets, Y_test, len(X), len(np.unique(Y, axis=0))


def score(Y, predicted):
    """Micro-F1 and share of exact sets, in all and by number of labels."""
    sizes, result = Y.sum(1), {}
    for part, rows in {"all": sizes > 0, "1": sizes == 1, "2": sizes == 2, "3": sizes == 3}.items():
        if rows.any():
            f1 = f1_score(Y[rows], predicted[rows], average="micro")
            result[part] = (f1, accuracy_score(Y[rows], predicted[rows]))
    return result


def operations(decoder, n_samples, n_sets, n_labels=10, d=WIDTH_OF_FEATURES):
    """Operations to make the decoder, as the paper counts them, and those to decode one sample."""
    if decoder == "one-vs-all":  # two epochs, and forward and backward products
        return 2 * n_samples * 4 * d * n_labels, 2 * d * n_labels
    if decoder == "ONN":  # a sum of features; a product with each mean
        return n_samples * d, 2 * d * n_sets
    return n_samples * 2 * d * n_labels, 2 * d * n_labels + int(n_labels * np.log2(n_labels))


def main():
    arguments = parser(__doc__, data=True).parse_args()
    rows, scores = [], {}
    for name in IMAGES:
        runs = [decode(name, arguments, seed) for seed in SEEDS]
        for decoder in DECODERS:
            own = [score(Y, sets[decoder]) for sets, Y, _, _ in runs]
            scores[name, decoder] = own
            making, decoding = operations(decoder, *runs[0][2:])
            row = {"images": name, "training images": runs[0][2], "decoder": decoder}
            for part in ("all", "1", "2", "3"):
                if part in own[0]:
                    mean = np.mean([run[part] for run in own], axis=0)
                    spread = np.std([run[part][1] for run in own], ddof=1)
                    row[part] = f"{mean[0]:.3f} / {mean[1]:.3f} ± {spread:.3f}"
            row |= {"operations to make": f"{making:,}", "to decode one": f"{decoding:,}"}
            rows.append(row)
    print_table(rows, columns=list(rows[-1]))
    save(arguments, "collapse_one_vs_all", rows, draw(scores))


def draw(scores):
    """Share of exact sets of every seed, by data and by number of labels."""
    figure, axes = plt.subplots(1, 4, figsize=(WIDTH, 2.4), layout="constrained", sharey=True)
    for axis, part in zip(axes, ("all", "1", "2", "3")):
        for number, decoder in enumerate(DECODERS):
            for column, name in enumerate(IMAGES):
                values = [run[part][1] for run in scores[name, decoder] if part in run]
                x = np.full(len(values), column + 0.22 * (number - 1))
                label = decoder if column == len(IMAGES) - 1 else None
                axis.plot(x, values, "os^"[number], color=f"C{number}", ms=4, label=label)
        axis.set_xticks(range(len(IMAGES)), IMAGES, rotation=30, ha="right", fontsize=7)
        axis.set_xlim(-0.5, len(IMAGES) - 0.5)
        names = {"all": "all images", "1": "one label"}
        axis.set_title(names.get(part, f"{part} labels"), fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("share of exact sets")
    axes[3].legend(fontsize=6, loc="lower left")
    return figure


if __name__ == "__main__":
    main()
