"""Theorems 1 and 2 of multi-label neural collapse: W, H and b as free variables.

    python benchmarks/papers/collapse_theorem.py

The objective of the paper (Eq. 4) is minimised over the last layer, the features and the biases by
L-BFGS from random starts. Panel 1: with label sets as frequent as others of their size, every start
ends in the optimum that `optimal_label_set_scales` computes. Panel 2: the scales C_m found and
computed. Panel 3: what is left of the structure where pairs are imbalanced, or one is missing,
which the theorem does not cover and section 3.2.1 claims from experiments.
"""

from itertools import combinations

import numpy as np
from _experiment import WIDTH, parser, print_table, save
from matplotlib import pyplot as plt
from scipy.optimize import minimize
from scipy.special import logsumexp

from sklearn_xlc.geometry import optimal_label_set_scales, simplex_etf
from sklearn_xlc.metrics import neural_collapse

MINUTES = 1
K, D = 10, 12
LAMBDA_B = 1e-2


def label_sets(n_labels, max_size):
    """Indicator of all label sets of at most max_size labels, sorted by size."""
    sets = [c for m in range(1, max_size + 1) for c in combinations(range(n_labels), m)]
    return np.array([np.isin(np.arange(n_labels), labels) for labels in sets], dtype=int)


def objective(W, H, b, Y, counts, lambda_w, lambda_h):
    """Equation 4 and its gradients; a row of H is the features of `counts` samples."""
    logits = H @ W.T + b
    surprise = logsumexp(logits, axis=1, keepdims=True) - logits
    share, decays = counts / counts.sum(), (lambda_w, lambda_h * counts[:, None], LAMBDA_B)
    value = share @ (Y * surprise).sum(1)
    by_logits = share[:, None] * (Y.sum(1, keepdims=True) * np.exp(-surprise) - Y)
    gradients = by_logits.T @ H, by_logits @ W, by_logits.sum(0)
    value += sum(np.sum(decay * part**2) for decay, part in zip(decays, (W, H, b)))
    return value, [g + 2 * decay * p for g, decay, p in zip(gradients, decays, (W, H, b))]


def descend(Y, counts, lambda_w, lambda_h, seed, tolerance=1e-10):
    """W, H and b after every step of L-BFGS, and the values of the objective."""
    shapes = [(Y.shape[1], D), (len(Y), D), (Y.shape[1],)]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def split(flat):
        return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes)]

    def value_and_gradient(flat):
        value, gradients = objective(*split(flat), Y, counts, lambda_w, lambda_h)
        return value, np.concatenate([gradient.ravel() for gradient in gradients])

    path = [np.random.default_rng(seed).standard_normal(sum(map(np.prod, shapes)))]
    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 0, "gtol": tolerance, "maxcor": 30}
    minimize(
        value_and_gradient,
        path[0],
        jac=True,
        method="L-BFGS-B",
        callback=lambda flat: path.append(flat.copy()),
        options=options,
    )
    return [split(flat) for flat in path], [value_and_gradient(flat)[0] for flat in path]


def numbers_of(Y, counts):
    """Numbers of samples with 1, 2, ... labels."""
    return np.bincount(Y.sum(1), counts)[1:]


def optimum(Y, counts, lambda_w, lambda_h):
    """Scales, norm and value that Theorem 1 gives."""
    scales, norm = optimal_label_set_scales(
        Y.shape[1],
        numbers_of(Y, counts),
        feature_decay=lambda_h * counts.sum(),
        weight_decay=lambda_w,
    )
    W = norm * simplex_etf(Y.shape[1], Y.shape[1])
    H = scales[Y.sum(1) - 1, None] * (Y @ W)
    value, _ = objective(W, H, np.zeros(len(W)), Y, counts, lambda_w, lambda_h)
    return scales, norm, value


def draw_descents(axis):
    """Panel 1: measures over the steps of one descent, and the gaps of five."""
    Y = np.repeat(label_sets(5, 3), 3, axis=0)
    counts, decays = np.ones(len(Y)), (4e-3, 1e-3)
    best = optimum(Y, counts, *decays)[2]
    rows = []
    for seed in range(5):
        path, values = descend(Y, counts, *decays, seed)
        gaps = np.array(values) / best - 1
        axis.plot(
            np.maximum(gaps, 1e-13),
            color="0.6",
            lw=0.9,
            label="gap, 5 starts" if not seed else None,
        )
        rows.append({"seed": seed, "steps": len(path), "gap": gaps[-1], "optimum": best})
    reports = [neural_collapse(H, Y, W) for W, H, _ in path[:: max(1, len(path) // 100)]]
    for name, values in {
        "NC1": [r["nc1"] for r in reports],
        "NC2": [r["nc2_means"] for r in reports],
        "NC3": [r["nc3"] for r in reports],
        "NCm, pairs": [r["ncm"][2] for r in reports],
        "NCm, triples": [r["ncm"][3] for r in reports],
    }.items():
        axis.plot(np.arange(len(values)) * max(1, len(path) // 100), values, lw=1.2, label=name)
        rows[-1][name] = values[-1]
    axis.set(yscale="log", xlabel="step of L-BFGS", title="K = 5, sets of 1, 2, 3 labels")
    axis.set(ylim=(1e-13, 20), ylabel="relative gap, NC measures")
    axis.legend(fontsize=6, loc="lower left")
    return rows


def draw_scales(axis):
    """Panel 2: scales of the minimisers, and those computed, over the decay."""
    Y = label_sets(6, 4)
    counts = np.array([0, 60, 24, 9, 4])[Y.sum(1)]
    rows, lambdas = [], np.geomspace(1e-5, 1e-2, 40)
    curves = np.array([optimum(Y, counts, lam, lam / 100)[0] for lam in lambdas])
    for m, curve in enumerate(curves.T, start=1):
        axis.plot(lambdas, curve, color=f"C{m - 1}", lw=1.2, label=f"m = {m}")
    for lam in np.geomspace(1e-5, 1e-2, 7):
        scales, norm, best = optimum(Y, counts, lam, lam / 100)
        path, values = descend(Y, counts, lam, lam / 100, seed=0)
        W, H, b = path[-1]
        row = {"lambda_W": lam, "gap": values[-1] / best - 1, "largest bias": np.abs(b).max()}
        row |= {"norm": norm, "norm found": np.linalg.norm(W, axis=1).mean()}
        for m in range(1, 5):
            sums, features = Y[Y.sum(1) == m] @ W, H[Y.sum(1) == m]
            found = np.sum(sums * features) / np.sum(sums**2)
            axis.plot(lam, found, "o", color=f"C{m - 1}", ms=4)
            row |= {f"C_{m}": scales[m - 1], f"C_{m} found": found}
        rows.append(row)
    axis.set(xscale="log", xlabel=r"$\lambda_W = 100\,\lambda_H$", ylabel="$C_m$")
    axis.set(title="K = 6: computed (lines), found (dots)")
    axis.set_ylim(top=0.8)
    axis.legend(fontsize=6, loc="upper left")
    return rows


def draw_imbalance(axis):
    """Panel 3: measures of the optimum where pairs are not equally frequent."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation(K * (K - 1) // 2)
    thirds = np.empty(len(pairs), dtype=int)
    for group, members in enumerate(np.array_split(pairs, 3)):
        thirds[members] = group
    cases = {
        "500 / 500 / 500": (K, np.full(len(pairs), 500)),
        "500 / 50 / 5": (K, np.array([500, 50, 5])[thirds]),
        "one of 45 pairs missing": (K, np.where(np.arange(len(pairs)) == 0, 0, 200)),
        "K = 3, one pair missing": (3, np.array([0, 3000, 3000])),
    }
    rows, lambdas = [], np.geomspace(1e-5, 1e-2, 7)
    for color, (name, (n_labels, of_pairs)) in enumerate(cases.items()):
        Y, counts = label_sets(n_labels, 2), np.r_[np.full(n_labels, 5000), of_pairs]
        Y, counts = Y[counts > 0], counts[counts > 0]
        for lam in lambdas:  # lambda_H of a batch of 128, as the paper has it
            path, _ = descend(Y, counts, lam, lam * 128 / counts.sum(), 0, tolerance=1e-9)
            W, H, _ = path[-1]
            report = neural_collapse(H, Y, W)
            rows.append({"case": name, "lambda": lam, "norm": np.linalg.norm(W)})
            rows[-1] |= {"NC2": report["nc2_means"], "NC3": report["nc3"], "NCm": report["ncm"][2]}
        own = [row for row in rows if row["case"] == name]
        for measure, style in (("NC2", "-"), ("NCm", "--")):
            values = [max(row[measure], 1e-8) for row in own]
            label = name if measure == "NC2" else None
            axis.plot(lambdas, values, style, color=f"C{color}", marker=".", lw=1.1, label=label)
    axis.set(xscale="log", yscale="log", ylim=(1e-8, 1), xlabel=r"$\lambda$")
    axis.set(ylabel="NC2 (solid), NCm (dashed)", title="imbalanced pairs")
    axis.legend(fontsize=6, loc="center right", bbox_to_anchor=(1, 0.44))
    return rows


def main():
    arguments = parser(__doc__).parse_args()
    figure, axes = plt.subplots(1, 3, figsize=(1.25 * WIDTH, 2.7), layout="constrained")
    rows = {}
    for axis, draw in zip(axes, (draw_descents, draw_scales, draw_imbalance)):
        rows[draw.__name__] = draw(axis)
        print_table(rows[draw.__name__], columns=list(rows[draw.__name__][-1]))
        axis.title.set_fontsize(9)
    save(arguments, "collapse_theorem", rows, figure)


if __name__ == "__main__":
    main()
