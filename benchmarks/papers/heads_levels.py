"""Loss and score of a cascade (Algorithm 3 of Multi-Head Encoding): sums or means over a level.

    python benchmarks/papers/heads_levels.py DATA

The paper takes the mean of the losses of a level's nodes, and ranks a label by the product of all
sigmoids on the way to it. Here the losses of a level add up, so that levels of many nodes weigh
more, and a score takes the square root of the ancestors' probabilities. Measured: P@1/3/5 of
"cascade" with default parameters otherwise, mean and standard deviation over seeds.
"""

import numpy as np
from _experiment import parser, print_table, save
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.heads import Cascade
from sklearn_xlc.metrics import precision_at_k

MINUTES = 3
FULL_MINUTES = 6
DATA = True

SETTINGS = {
    "sum, exponent 0.5 (default)": {},
    "mean, exponent 0.5": {"level_weighting": "mean"},
    "sum, exponent 1": {"path_exponent": 1.0},
    "mean, exponent 1 (paper)": {"level_weighting": "mean", "path_exponent": 1.0},
}


def main():
    options = parser(__doc__, data=True)
    options.add_argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags"])
    options.add_argument("--seeds", nargs="+", type=int, default=None)
    arguments = options.parse_args()
    seeds = arguments.seeds or range(5 if arguments.full else 2)
    rows = []
    for name in arguments.sets:
        parts = [load_part(arguments.data / name, part) for part in ("trn", "tst")]
        for setting, parameters in SETTINGS.items():
            found = np.array([precisions(*parts, parameters, seed) for seed in seeds])
            cells = (f"{m:.1f} ± {s:.1f}" for m, s in zip(found.mean(axis=0), found.std(axis=0)))
            rows.append({"data": name, "loss and score": setting})
            rows[-1] |= dict(zip(("P@1", "P@3", "P@5"), cells))
    print_table(rows)
    save(arguments, "heads_levels", rows)


def precisions(train, test, parameters, seed):
    """P@1, P@3 and P@5 in percent."""
    model = MultiHeadClassifier(Cascade(**parameters), ranker=None, random_state=seed).fit(*train)
    scores = model.predict_topk_sparse(test[0], k=5)
    return [100 * precision_at_k(test[1], scores, k=k) for k in (1, 3, 5)]


if __name__ == "__main__":
    main()
