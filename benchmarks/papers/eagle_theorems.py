"""Theorems 3 and 4 of EAGLE as a simulation: errors of label embeddings beside their bounds.

    python benchmarks/papers/eagle_theorems.py --seeds 3

Each label has a true vector; all pairs of them have the distance `separation`. A sample is the
vector of its label plus Gaussian noise, scaled to norm one; random groups of `size` samples have
the labels of their samples. Definition 2 is taken literally: the largest influence f of the noise
over all subsets of groups is that of a single sample, ``f = max |eps_i|``.

Theorem 3 is about the maximiser of Eq. 2, which nobody can compute: "best" is the better, by
`grlr_objective`, of Algorithm 1 and of its full steps from the true vector. Theorem 4 is about full
steps (``step_size=None``; Eq. 26). Errors are ``1 - <e*, e>``, means over labels and seeds.
"""

import numpy as np
from _experiment import WIDTH, parser, print_table, save
from matplotlib import pyplot as plt

from sklearn_xlc.aggregation import aggregation, grlr_objective, learn_embeddings, unit_rows

MINUTES = 1

NOISES = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
SEPARATIONS = [0.1, 0.2, 0.4, 0.7, 1, 1.41]
SIZES = [2, 3, 4, 6, 8, 12]


class Simulation:
    """Samples in groups, the true vectors of the labels, and the quantities of Definition 2."""

    def __init__(self, options, seed, noise=0.1, separation=2**0.5, size=4):
        rng = np.random.default_rng(seed)
        n_labels, n_features = options.labels, options.features
        basis = np.linalg.qr(rng.normal(size=(n_features, n_labels + 1)))[0].T
        part = separation / np.sqrt(2)
        self.vectors = np.sqrt(1 - part**2) * basis[0] + part * basis[1:]
        self.labels = rng.integers(n_labels, size=(options.groups, size))
        true = self.vectors[self.labels.ravel()]
        spread = noise / np.sqrt(n_features)
        self.X = unit_rows(true + spread * rng.normal(size=true.shape))
        has_label = np.zeros((options.groups, n_labels), dtype=int)
        np.put_along_axis(has_label, self.labels, 1, axis=1)
        membership = np.kron(np.eye(options.groups, dtype=int), np.ones((size, 1), dtype=int))
        self.data, self.has_label = aggregation(membership, has_label), has_label
        both = (has_label.T @ has_label).astype(float)
        least = np.minimum.outer(np.diag(both), np.diag(both))
        np.fill_diagonal(both, 0)
        self.f = np.linalg.norm(self.X - true, axis=1).max()
        self.q, self.separation = (both / least).max(), separation

    def embeddings(self, **parameters):
        return learn_embeddings(self.X, self.data, **parameters).block(0, len(self.vectors))

    def cosines(self, embeddings):
        """Inner product of each label's embedding with its true vector."""
        return np.einsum("ij,ij->i", embeddings, self.vectors)

    def best_samples(self, label, vector):
        """The groups of a label, and the most similar sample of each."""
        groups = np.flatnonzero(self.has_label[:, label])
        scores = self.X.reshape(*self.labels.shape, -1)[groups] @ vector
        return groups, scores.argmax(axis=1)

    def from_truth(self, n_iter=20):
        """Embeddings by full steps of Algorithm 1 from the true vectors."""
        result, X = self.vectors.copy(), self.X.reshape(*self.labels.shape, -1)
        for label in range(len(result)):
            for _ in range(n_iter):
                groups, best = self.best_samples(label, result[label])
                result[label] = unit_rows(X[groups, best].sum(axis=0)[None])[0]
        return result

    def bound(self):
        """Theorem 3: least inner product of the best embedding with the true vector (Eq. 6)."""
        rest = 1 - self.q - 2 * self.f / self.separation
        if rest <= 0:
            return -np.inf
        r = 1 / rest - 1
        return 1 - r * self.f - (np.sqrt(2) * r + 2) * self.f**2


def theorem_3(options, **case):
    """Errors of Algorithm 1 and of the best embedding, and the bound, as means over seeds."""
    found = []
    for seed in range(options.seeds):
        simulation = Simulation(options, seed, **case)
        grlr, truth = simulation.embeddings(), simulation.from_truth()
        values = [grlr_objective(simulation.X, simulation.data, e) for e in (grlr, truth)]
        cosines = [simulation.cosines(e) for e in (grlr, truth)]
        best = np.where(values[0] >= values[1], *cosines)
        bound = simulation.bound()
        found.append(
            {
                "f": simulation.f,
                "q": simulation.q,
                "GRLR": 1 - cosines[0].mean(),
                "best": 1 - best.mean(),
                "bound": 1 - bound,
                "below bound": np.mean(best < bound),
                "GRLR lower in Eq. 2": np.mean(values[0] < values[1] - 1e-9),
            }
        )
    return {**case, **{key: np.mean([row[key] for row in found]) for key in found[0]}}


def theorem_4(options, **case):
    """Inner products with the true vector, share of good groups and bound, step by step."""
    found = np.zeros((options.seeds, options.steps + 1, 5))
    for seed in range(options.seeds):
        simulation = Simulation(options, seed, **case)
        steps = [simulation.embeddings(n_iter=t, step_size=None) for t in range(options.steps + 1)]
        cosine = np.array([simulation.cosines(e) for e in steps])
        good = np.array([[share_good(simulation, k, v) for k, v in enumerate(e)] for e in steps])
        distance = np.sqrt(np.maximum(0, 2 - 2 * cosine))
        bound = good + (1 - good) * (cosine - distance) - simulation.f
        printed = cosine <= 1 - 2 * ((1 - simulation.f / 2) / good - 1) ** 2
        falls = cosine[1:] < cosine[:-1] - 1e-12
        found[seed, :, :3] = np.stack([cosine, good, bound], axis=2).mean(axis=1)
        found[seed, :-1, 3] = (cosine[1:] < bound[:-1]).mean(axis=1)
        found[seed, :-1, 4] = (printed[:-1] & falls).mean(axis=1)
    names = ("cosine", "good groups", "bound of the next", "next below bound", "printed fails")
    means = found.mean(axis=0)
    return [{"step": t, **case, **dict(zip(names, row))} for t, row in enumerate(means.tolist())]


def share_good(simulation, label, vector):
    """Share of the label's groups whose most similar sample has the label."""
    groups, best = simulation.best_samples(label, vector)
    return np.mean(simulation.labels[groups, best] == label)


def draw(by_case, steps):
    """Three panels of Theorem 3, one of Theorem 4."""
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 5.6))
    labels = {"noise": "noise ($\\sigma$)", "separation": "separation ($\\delta$)"}
    labels["size"] = "samples in a group"
    for axis, (name, rows) in zip(axes.flat, by_case.items()):
        values = [row[name] for row in rows]
        axis.plot(values, [row["GRLR"] for row in rows], "o-", label="Algorithm 1")
        axis.plot(values, [row["best"] for row in rows], "s--", label="best of Eq. 2")
        axis.plot(values, [min(1, row["bound"]) for row in rows], "k:", label="Theorem 3")
        axis.set(xlabel=labels[name], yscale="log", ylabel="$1 - \\langle e^*, e \\rangle$")
        axis.set_xscale("log")
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.minorticks_off()
    axes[0, 0].legend(frameon=False)
    axis, time = axes[1, 1], [row["step"] for row in steps]
    axis.plot(time, [row["cosine"] for row in steps], "o-", label="$\\langle e^*, e^t \\rangle$")
    axis.plot(time, [row["good groups"] for row in steps], "^-", label="share of good groups")
    bounds = [row["bound of the next"] for row in steps[:-1]]
    axis.plot(time[1:], bounds, "k:", label="Theorem 4")
    axis.set(xlabel="full steps (t)", ylabel="inner product, share", ylim=(-1.9, 1.1))
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure


def main():
    options_of = parser(__doc__)
    options_of.add_argument("--labels", type=int, default=50)
    options_of.add_argument("--features", type=int, default=100)
    options_of.add_argument("--groups", type=int, default=500)
    options_of.add_argument("--steps", type=int, default=6)
    options_of.add_argument("--seeds", type=int, default=3)
    options = options_of.parse_args()
    by_case = {
        name: [theorem_3(options, **{name: value}) for value in values]
        for name, values in (("noise", NOISES), ("separation", SEPARATIONS), ("size", SIZES))
    }
    for rows in by_case.values():
        print_table(rows)
    steps = theorem_4(options, noise=1.0, separation=1.0, size=12)
    print_table(steps)
    rows = [row for part in by_case.values() for row in part] + steps
    save(options, "eagle_theorems", rows, draw(by_case, steps))


if __name__ == "__main__":
    main()
