"""Preference of a ranker for rare labels: precision against propensity-scored precision.

    python benchmarks/rare_labels.py DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1

Of the training samples, drawn anew for each seed, an eighth is left out and predicted. Another
eighth is left out for the ranker, which is learnt once for each weight of rare labels
(`tail_weight`), and lists them in each order (`tail_order`). Prints P@1/3/5 and PSP@1/3/5, means
over seeds. Then, for each set, the values that the other sets choose: the largest mean of PSP@1/3/5
among values that lose at most 0.1 of the largest mean P@1.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k, propensities, psp_at_k
from sklearn_xlc.ranking import BoostedRanker

WEIGHTS, ORDERS = (0.0, 0.25, 0.5), (0.0, 0.01, 0.02, 0.04, 0.08)
CUTOFFS = (1, 3, 5)
#: Points of mean P@1 that rare labels may cost.
LOSS = 0.1


def measured(X, Y, seed):
    """Return P@1/3/5 and PSP@1/3/5 by weight and order."""
    parts = np.array_split(np.random.RandomState(seed + 50).permutation(X.shape[0]), 8)
    test, held, train = (np.sort(part) for part in (*parts[:2], np.concatenate(parts[2:])))
    clf = MultiHeadClassifier(ranker="boosted", random_state=seed).fit(X[train], Y[train])
    propensity, found = propensities(Y[train]), []
    for weight in WEIGHTS:
        clf.recalibrate(X[held], Y[held], ranker=BoostedRanker(tail_weight=weight))
        for order in ORDERS:
            clf.ranker_.tail_order = order
            labels = clf.predict_topk(X[test], max(CUTOFFS))[0]
            found.append(
                [precision_at_k(Y[test], labels, k=k) for k in CUTOFFS]
                + [psp_at_k(Y[test], labels, k=k, propensities=propensity) for k in CUTOFFS]
            )
    return 100 * np.array(found)


def chosen(others):
    """Return the place of the value that sets of shape (n_sets, n_values, 6) choose."""
    means = others.mean(axis=0)
    allowed = means[:, 0] >= means[:, 0].max() - LOSS
    return int(np.argmax(np.where(allowed, means[:, 3:].mean(axis=1), -np.inf)))


def line(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def written(numbers):
    return "/".join(f"{value:.1f}" for value in numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    args = parser.parse_args()
    values = list(itertools.product(WEIGHTS, ORDERS))
    line("set", "tail_weight", "tail_order", "P@1/3/5", "PSP@1/3/5")
    line(*5 * ["---"])
    found = []
    for folder in args.folders:
        X, Y = load_part(folder, "trn")
        found.append(np.mean([measured(X, Y, seed) for seed in args.seeds], axis=0))
        for (weight, order), numbers in zip(values, found[-1]):
            line(folder.name, f"{weight}", f"{order}", written(numbers[:3]), written(numbers[3:]))
    for place, folder in enumerate(args.folders):
        others = np.delete(np.array(found), place, axis=0)
        if len(others):
            best = chosen(others)
            print(f"without {folder.name}: tail_weight, tail_order = {values[best]}")


if __name__ == "__main__":
    main()
