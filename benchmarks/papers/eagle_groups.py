"""Figs. 4 (left, middle), 7 and 8, Tables 2 and 5 of EAGLE: random groups and clusters that grow.

    python benchmarks/papers/eagle_groups.py DATA --datasets bibtex --sizes 2 4 10 --depths 6 8

The labels of the training samples are known for groups only: random ones of `--sizes` samples, or
clusters, the leaves of a balanced tree of 2-means of `--depths` levels (by default those whose
leaves have about the sizes of the paper's on EurLex-4K, 61 to 3.8 samples). A method gives the
labels to samples, and one tree of omikuji is trained on them. `eq_2` is the objective of Eq. 2
divided by the number of (group, label) pairs, also for the sums of the samples that truly carry a
label. The large data sets are cut to some of their samples; ``--full`` cuts less, and adds sizes
and the WordNet closure.
"""

import tempfile

import numpy as np
from _eagle import METHODS, Bench, panels
from _experiment import parser, print_table, save

from sklearn_xlc.datasets import make_aggregated

MINUTES = 3
FULL_MINUTES = 13
DATA = True

#: Training and test samples of each data set; None: all.
ROWS = {
    "bibtex": (None, None),
    "debtags": (4000, 2000),
    "eurlex57k": (1200, 1000),
}
FULL_ROWS = {
    "bibtex": (None, None),
    "debtags": (8000, 2000),
    "eurlex57k": (2500, 1000),
    "wordnet_noun_closure": (4000, 1500),
}
SIZES, FULL_SIZES = [2, 4, 10], [2, 4, 6, 8, 10]
#: Samples of a cluster in the paper: 15 539 in 2^12, ..., 2^8 clusters.
CLUSTERS, FULL_CLUSTERS = [3.8, 15.2, 60.7], [3.8, 7.6, 15.2, 30.3, 60.7]


def groupings(bench, options):
    """Kind of groups, mean size, and arguments of `make_aggregated` for each grouping."""
    n = bench.X.shape[0]
    for size in options.sizes or (FULL_SIZES if options.full else SIZES):
        yield "random", size, {"group_size": size}
    sizes = FULL_CLUSTERS if options.full else CLUSTERS
    for depth in options.depths or [round(np.log2(n / size)) for size in sizes]:
        yield "clusters", n / 2**depth, {"X": bench.X, "method": "cluster", "depth": depth}


def measure(name, options, scratch):
    """Rows of one data set; the first is that of the truth."""
    n_rows = FULL_ROWS if options.full or name not in ROWS else ROWS
    bench = Bench(options.data / name, scratch, *n_rows[name])
    rows = [{"data": name, "method": "truth", **bench.trained_on(bench.Y)}]
    for part, size, arguments in groupings(bench, options):
        Y_grouped, groups = make_aggregated(bench.Y, **arguments, random_state=0)
        case = {"data": name, "part": part, "x": size, "depth": arguments.get("depth", "")}
        for method in METHODS:
            rows.append({**case, **bench.row(method, Y_grouped, groups)})
        true = bench.mean_best(bench.true_embeddings(), Y_grouped, groups)
        rows.append({**case, "method": "truth", "eq_2": true})
    title = f"{name}: {bench.X.shape[0]} training samples, {bench.Y.shape[1]} labels"
    return rows, title


def main():
    options_of = parser(__doc__, data=True)
    options_of.add_argument("--datasets", nargs="+", choices=FULL_ROWS)
    options_of.add_argument("--sizes", nargs="+", type=int, help="samples of a random group")
    options_of.add_argument("--depths", nargs="+", type=int, help="levels of the cluster tree")
    options = options_of.parse_args()
    columns = ["part", "x", "depth", "method", "P@1", "P@3", "P@5"]
    columns += ["assigned are true", "true are assigned", "eq_2", "cpu_s"]
    parts = [
        ("random", "samples in a random group", "even"),
        ("clusters", "samples in a cluster", "log"),
    ]
    for name in options.datasets or (FULL_ROWS if options.full else ROWS):
        with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
            rows, title = measure(name, options, scratch)
        print(f"### {title}\n")
        print_table(rows, columns)
        save(options, f"eagle_groups_{name}", rows, panels(rows, parts, title))


if __name__ == "__main__":
    main()
