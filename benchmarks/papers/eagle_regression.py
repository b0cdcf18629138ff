"""Fig. 3, Fig. 6 (left) and Theorem 1 of EAGLE: regression on groups that have lost their rows.

    python benchmarks/papers/eagle_regression.py --spreads 0 0.1 1 5 10

The samples of a group scatter about its centre, and each has a response that is linear in it but
for noise; which response of the group belongs to which sample is not known. "Unassigned" regresses
the sum of a group's responses on the sum of its samples, "assigned" then gives every response to
the sample whose prediction is closest and regresses on samples (Eq. 3). Measured: the root mean
square error of the coefficients, divided by that of the regression that knows the rows. Beside it,
the quotient of the rates of Theorem 1, (4) and the first term of (5).
"""

import numpy as np
from _experiment import WIDTH, parser, print_table, save
from matplotlib import pyplot as plt

MINUTES = 1


def simulate(spread, rng, options):
    """Samples and responses of the groups, and the true coefficients."""
    n_groups = options.samples // options.size
    coef = rng.normal(size=(options.features, options.responses))
    coef *= options.norm / np.linalg.norm(coef, 2)
    centres = rng.normal(size=(n_groups, 1, options.features))
    X = centres + spread * rng.normal(size=(n_groups, options.size, options.features))
    Z = X @ coef + rng.normal(size=(n_groups, options.size, options.responses))
    return X, Z, coef


def estimates(X, Z):
    """Coefficients that know the rows, unassigned ones, and assigned ones (Eq. 3)."""
    known = regress(np.concatenate(X), np.concatenate(Z))
    unassigned = regress(X.sum(axis=1), Z.sum(axis=1))
    distances = np.linalg.norm(Z[:, :, None] - (X @ unassigned)[:, None], axis=3)
    closest = np.take_along_axis(X, distances.argmin(axis=2)[:, :, None], axis=1)
    assigned = regress(np.concatenate(closest), np.concatenate(Z))
    return known, unassigned, assigned


def regress(X, Z):
    """Least squares."""
    return np.linalg.lstsq(X, Z, rcond=None)[0]


def measure(spread, options):
    """Relative errors at one spread within groups, over all seeds."""
    errors = np.zeros((options.seeds, 3))
    for seed in range(options.seeds):
        X, Z, coef = simulate(spread, np.random.default_rng(seed), options)
        errors[seed] = [np.sqrt(np.mean((e - coef) ** 2)) for e in estimates(X, Z)]
    unassigned, assigned = (errors[:, 1:] / errors[:, :1]).T
    # Theorem 1: sqrt(1 / (g sigma_1^2 + sigma_2^2)) over sqrt(1 / (g (sigma_1^2 + sigma_2^2)))
    rates = np.sqrt(options.size * (1 + spread**2) / (options.size + spread**2))
    return {
        "spread": spread,
        "unassigned": unassigned.mean(),
        "rate of unassigned": rates,
        "assigned": assigned.mean(),
        "assigned is better": np.mean(assigned < unassigned - 1e-9),
        "error of unassigned": unassigned.std() / np.sqrt(options.seeds),
        "error of assigned": assigned.std() / np.sqrt(options.seeds),
    }


def draw(rows):
    """Relative errors over spreads, and the rates of the theorem."""
    figure, axis = plt.subplots(figsize=(0.7 * WIDTH, 3))
    spread = [row["spread"] for row in rows]
    for name, marker in (("unassigned", "s"), ("assigned", "o")):
        mean, error = ([row[key] for row in rows] for key in (name, f"error of {name}"))
        axis.errorbar(spread, mean, error, marker=marker, capsize=3, label=name)
    axis.plot(
        spread, [row["rate of unassigned"] for row in rows], "k:", label="unassigned, Theorem 1"
    )
    axis.axhline(1, color="black", linestyle="--", label="rows known")
    axis.set_xscale("symlog", linthresh=0.1)
    axis.set_xlim(-0.03, 1.3 * max(spread))
    axis.set_xticks(spread, [f"{value:g}" for value in spread])
    axis.minorticks_off()
    axis.set(xlabel="spread within groups ($\\sigma_2$; between: 1)", ylabel="relative RMS error")
    axis.legend(frameon=False)
    return figure


def main():
    options_of = parser(__doc__)
    options_of.add_argument("--samples", type=int, default=1000)
    options_of.add_argument("--size", type=int, default=10, help="samples of a group")
    options_of.add_argument("--features", type=int, default=10)
    options_of.add_argument("--responses", type=int, default=5)
    options_of.add_argument(
        "--norm", type=float, default=1, help="spectral norm of the coefficients"
    )
    options_of.add_argument("--spreads", nargs="+", type=float, default=[0, 0.1, 0.3, 1, 2, 5, 10])
    options_of.add_argument("--seeds", type=int, default=100, help="simulations of each spread")
    options = options_of.parse_args()
    rows = [measure(spread, options) for spread in options.spreads]
    print_table(rows)
    save(options, "eagle_regression", rows, draw(rows))


if __name__ == "__main__":
    main()
