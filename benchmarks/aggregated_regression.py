"""Fig. 3 of EAGLE: regression on groups whose responses have lost their rows (Theorem 1).

    python benchmarks/aggregated_regression.py

The rows of a group scatter about its centre, and each has a response that is linear in it but for
noise; which response of the group belongs to which row is not known. "Unassigned" regresses the
sum of a group's responses on the sum of its rows, "assigned" then gives every response to the row
whose prediction is closest and regresses on rows (Eq. 3 of the paper). Measured: the root mean
square error of the coefficients, divided by that of the regression that knows the rows. Writes
``aggregated_regression.json`` and ``.md``.
"""

import argparse
import json
from pathlib import Path

import numpy as np


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--size", type=int, default=10, help="rows a group")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--responses", type=int, default=5)
    parser.add_argument("--norm", type=float, default=1, help="spectral norm of the coefficients")
    parser.add_argument("--spreads", nargs="+", type=float, default=[0, 0.1, 1, 5, 10])
    parser.add_argument("--seeds", type=int, default=100, help="simulations of each spread")
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


def simulate(spread, rng, options):
    """Rows and responses of the groups, and the true coefficients."""
    n_groups = options.samples // options.size
    coef = rng.normal(size=(options.features, options.responses))
    coef *= options.norm / np.linalg.norm(coef, 2)
    centres = rng.normal(size=(n_groups, 1, options.features))
    X = centres + spread * rng.normal(size=(n_groups, options.size, options.features))
    Z = X @ coef + rng.normal(size=(n_groups, options.size, options.responses))
    return X, Z, coef


def estimates(X, Z):
    """Coefficients that know the rows, unassigned ones, and assigned ones."""
    known = regress(np.concatenate(X), np.concatenate(Z))
    unassigned = regress(X.sum(axis=1), Z.sum(axis=1))
    distances = np.linalg.norm(Z[:, :, None] - (X @ unassigned)[:, None], axis=3)
    closest = np.take_along_axis(X, distances.argmin(axis=2)[:, :, None], axis=1)
    assigned = regress(np.concatenate(closest), np.concatenate(Z))
    return known, unassigned, assigned


def regress(X, Z):
    """Least squares."""
    return np.linalg.lstsq(X, Z, rcond=None)[0]


def main():
    options = parse_arguments()
    rows = []
    for spread in options.spreads:
        errors = np.zeros((options.seeds, 3))
        for seed in range(options.seeds):
            X, Z, coef = simulate(spread, np.random.default_rng(seed), options)
            errors[seed] = [np.sqrt(np.mean((e - coef) ** 2)) for e in estimates(X, Z)]
        relative = errors[:, 1:] / errors[:, :1]
        rows.append(
            {
                "spread": spread,
                "unassigned": relative[:, 0].mean(),
                "assigned": relative[:, 1].mean(),
                "assigned_is_better": float(np.mean(relative[:, 1] < relative[:, 0] - 1e-9)),
                "standard_error": (relative.std(axis=0) / np.sqrt(options.seeds)).tolist(),
            }
        )
    lines = [
        "| spread in a group | unassigned | assigned | assigned is better |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['spread']:g} | {row['unassigned']:.2f} ± {row['standard_error'][0]:.2f} "
            f"| {row['assigned']:.2f} ± {row['standard_error'][1]:.2f} "
            f"| {100 * row['assigned_is_better']:.0f}% |"
        )
    text = "\n".join(lines) + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"options": vars(options), "rows": rows}
    stem = options.out / "aggregated_regression"
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1, default=str) + "\n")
    stem.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
