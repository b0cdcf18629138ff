"""Fig. 4 (right) and Fig. 9 of EAGLE: from groups of similar samples to random groups.

    python benchmarks/papers/eagle_heterogeneity.py DATA --datasets bibtex --size 10

Samples are clustered by features to which Gaussian noise was added, `--noise` times as long as the
features; the methods see the features without noise. The features are first projected on
`--dimension` random directions, which keeps cosines and the distribution of the noise. The axis of
the figure is the heterogeneity that results: one less the mean cosine of two samples of a group.
"""

import tempfile

import numpy as np
from _eagle import METHODS, Bench, panels
from _experiment import parser, print_table, save
from sklearn.preprocessing import normalize
from sklearn.random_projection import GaussianRandomProjection

from sklearn_xlc.datasets import make_aggregated
from sklearn_xlc.groups import check_groups

MINUTES = 1
DATA = True

#: Training and test samples of each data set; None: all.
ROWS = {"bibtex": (None, None), "debtags": (3000, 2000)}


def heterogeneity(X, groups):
    """One less the mean cosine of two samples of a group."""
    groups = check_groups(groups, X.shape[0])
    U = normalize(X)
    sums = groups.membership().T @ U
    n_pairs = (groups.sizes * (groups.sizes - 1)).sum()
    return 1 - (sums.multiply(sums).sum() - U.multiply(U).sum()) / n_pairs


def measure(name, options, scratch):
    """Rows of one data set; the first is that of the truth."""
    bench = Bench(options.data / name, scratch, *ROWS[name])
    project = GaussianRandomProjection(options.dimension, random_state=0)
    projected = normalize(project.fit_transform(bench.X))
    direction = np.random.default_rng(0).normal(size=projected.shape) / np.sqrt(options.dimension)
    rows = [{"part": name, "method": "truth", **bench.trained_on(bench.Y)}]
    for noise in options.noise:
        Y_grouped, groups = make_aggregated(
            bench.Y, options.size, projected + noise * direction, "cluster", random_state=0
        )
        case = {"part": name, "noise": noise, "x": heterogeneity(bench.X, groups)}
        rows += [{**case, **bench.row(method, Y_grouped, groups)} for method in METHODS]
    return rows


def main():
    options_of = parser(__doc__, data=True)
    options_of.add_argument("--datasets", nargs="+", choices=ROWS, default=list(ROWS))
    options_of.add_argument("--size", type=int, default=10, help="largest size of a group")
    options_of.add_argument("--noise", nargs="+", type=float, default=[0, 0.5, 1, 2, 100])
    options_of.add_argument("--dimension", type=int, default=256)
    options = options_of.parse_args()
    rows = []
    for name in options.datasets:
        with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
            rows += measure(name, options, scratch)
    columns = ["part", "noise", "x", "method", "P@1", "P@3", "P@5"]
    print_table(rows, [*columns, "assigned are true", "true are assigned", "eq_2", "cpu_s"])
    parts = [(name, f"heterogeneity, {name}", None) for name in options.datasets]
    save(options, "eagle_heterogeneity", rows, panels(rows, parts))


if __name__ == "__main__":
    main()
