"""Fig. 6 (right) of EAGLE: classes of groups whose samples are alike, or of all classes.

    python benchmarks/papers/eagle_classification.py --weights 0 0.1 1 5 10

A sample is the vector of its class plus noise; its label is the class whose vector has the largest
inner product with it. A group draws its classes evenly, or prefers one class exp(weight) times. How
often each label occurs in a group is known, not in which sample. "All labels" gives every sample
all labels of its group, in equal shares. "Sums" regresses the counts on the sum of the group's
samples; "assigned" then gives every label to the sample whose prediction is closest, and regresses
on samples (Eq. 3 with one-hot responses). "EAGLE" assigns by Algorithms 1 and 2 instead, ours by
`EAGLETransformer(multiplicity="top")`. Measured: the share of wrong classes among new samples that
are drawn evenly, and the error of the predicted one-hot vectors divided by that of the regression
that knows the labels.
"""

import numpy as np
from _experiment import WIDTH, parser, print_table, save
from eagle_regression import regress
from matplotlib import pyplot as plt

from sklearn_xlc import EAGLETransformer

MINUTES = 1

METHODS = {"all labels": "D", "sums": "s", "assigned": "o", "EAGLE": "v", "ours": "^"}


def draw_samples(labels, vectors, noise, rng):
    """Samples of the classes, and their labels: the best classes of the noisy samples."""
    X = vectors[labels] + noise * rng.normal(size=(*labels.shape, vectors.shape[1]))
    return X, (X @ vectors.T).argmax(axis=-1)


def simulate(weight, rng, options):
    """Groups of samples with their labels, and new samples with theirs."""
    n_groups, n_labels = options.samples // options.size, options.labels
    vectors = rng.normal(size=(n_labels, options.features))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shares = np.ones((n_groups, n_labels))
    shares[np.arange(n_groups), rng.integers(n_labels, size=n_groups)] = np.exp(weight)
    shares /= shares.sum(axis=1, keepdims=True)
    drawn = np.array([rng.choice(n_labels, options.size, p=p) for p in shares])
    even = rng.integers(n_labels, size=10000)
    return (
        *draw_samples(drawn, vectors, options.noise, rng),
        *draw_samples(even, vectors, options.noise, rng),
    )


def assigned_to_closest(X, Z, coef):
    """Sample of the group whose prediction is closest to each response (Eq. 3)."""
    distances = np.linalg.norm(Z[:, :, None] - (X @ coef)[:, None], axis=3)
    return np.take_along_axis(X, distances.argmin(axis=2)[:, :, None], axis=1)


def by_eagle(X, Z, **parameters):
    """Samples and one-hot labels as `EAGLETransformer` pairs them, from counts of labels."""
    groups = np.repeat(np.arange(len(X)), X.shape[1])
    rows, counts = np.concatenate(X), Z.sum(axis=1).astype(int)
    eagle = EAGLETransformer(multiplicity="top", random_state=0, **parameters)
    assigned = eagle.fit(rows, counts, groups).assign(rows, counts, groups).tocoo()
    return rows[assigned.row], np.eye(Z.shape[2])[assigned.col]


def errors(weight, seed, options):
    """Share of wrong classes, and error of the one-hot vectors, by each method."""
    X, y, X_new, y_new = simulate(weight, np.random.default_rng(seed), options)
    Z, Z_new = np.eye(options.labels)[y], np.eye(options.labels)[y_new]
    sums = regress(X.sum(axis=1), Z.sum(axis=1))
    closest = assigned_to_closest(X, Z, sums)
    shares = np.broadcast_to(Z.mean(axis=1, keepdims=True), Z.shape)
    coefs = {
        "known": regress(np.concatenate(X), np.concatenate(Z)),
        "all labels": regress(np.concatenate(X), np.concatenate(shares)),
        "sums": sums,
        "assigned": regress(np.concatenate(closest), np.concatenate(Z)),
        "EAGLE": regress(*by_eagle(X, Z, contrast=None, sharing=None)),
        "ours": regress(*by_eagle(X, Z, sharing=None)),
    }
    wrong, rms = {}, {}
    for name, coef in coefs.items():
        scores = X_new @ coef
        wrong[name] = 100 * np.mean(scores.argmax(axis=1) != y_new)
        rms[name] = np.sqrt(np.mean((scores - Z_new) ** 2))
    return wrong, rms


def measure(weight, options):
    """Means over seeds at one weight."""
    found = [errors(weight, seed, options) for seed in range(options.seeds)]
    row = {"weight": weight, "known, wrong %": np.mean([wrong["known"] for wrong, _ in found])}
    for name in METHODS:
        row[f"{name}, wrong %"] = np.mean([wrong[name] for wrong, _ in found])
        row[f"{name}, rel. error"] = np.mean([rms[name] / rms["known"] for _, rms in found])
    return row


def draw(rows):
    """Relative errors over the weight of a group's own class."""
    figure, axis = plt.subplots(figsize=(0.7 * WIDTH, 3))
    weights = [row["weight"] for row in rows]
    for name, marker in METHODS.items():
        axis.plot(weights, [row[f"{name}, rel. error"] for row in rows], marker=marker, label=name)
    axis.axhline(1, color="black", linestyle="--", label="labels known")
    axis.set_xscale("symlog", linthresh=0.1)
    axis.set_xlim(-0.03, 1.3 * max(weights))
    axis.set_xticks(weights, [f"{value:g}" for value in weights])
    axis.set_yscale("log", base=2)
    axis.set_yticks([1, 2, 4], ["1", "2", "4"])
    axis.minorticks_off()
    axis.set(xlabel="log weight of the class that a group prefers", ylabel="relative RMS error")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def main():
    options_of = parser(__doc__)
    options_of.add_argument("--samples", type=int, default=1000)
    options_of.add_argument("--size", type=int, default=10, help="samples of a group")
    options_of.add_argument("--features", type=int, default=10)
    options_of.add_argument("--labels", type=int, default=5)
    options_of.add_argument("--noise", type=float, default=0.1)
    options_of.add_argument("--weights", nargs="+", type=float, default=[0, 0.1, 1, 2, 5, 10])
    options_of.add_argument("--seeds", type=int, default=20, help="simulations of each weight")
    options = options_of.parse_args()
    rows = [measure(weight, options) for weight in options.weights]
    print_table(rows)
    save(options, "eagle_classification", rows, draw(rows))


if __name__ == "__main__":
    main()
