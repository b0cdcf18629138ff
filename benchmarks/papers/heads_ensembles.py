"""Ensembles of cascades (Table 2 of Multi-Head Encoding): one network against three.

    python benchmarks/papers/heads_ensembles.py DATA

The paper averages three fine-tuned transformers of different kinds; on sets of few labels one of
them has a single head (H = 1). Here the members are perceptrons on TF-IDF that differ by their
seeds. Three networks are fitted one by one, and the mean of their probabilities ranks the labels;
"flat" also has ``encoders.MLP(n_members=3)``, three networks in one fit. "two cascades and flat" is
the mixture with H = 1. Measured: P@1/3/5 of single networks (the mean of the three) and of the
ensemble, and CPU seconds of training; means and standard errors over triples of seeds.
"""

import time

import numpy as np
from _experiment import parser, print_table, save
from _heads import grouped, labels_of, with_error

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k

MINUTES = 8
FULL_MINUTES = 12
DATA = True

#: Data set and training samples: `bibtex` is whole.
SETS = {"bibtex": 4880, "debtags": 8000, "eurlex57k": 8000}
CUTS = (1, 3, 5)


def main():
    arguments = parser(__doc__, data=True).parse_args()
    rows = []
    for name, n_train in SETS.items():
        data = labels_of(arguments.data, name, n_train)
        for triple in range(3 if arguments.full else 2):
            rows += [{"data": name, "triple": triple, **row} for row in compare(data, triple)]
        print(f"{name}: {time.process_time():.0f} CPU seconds so far", flush=True)
    print_table(list(summary(rows)))
    save(arguments, "heads_ensembles", rows)


def compare(data, triple):
    """Rows of single networks and of ensembles, for three seeds."""
    seeds = range(3 * triple, 3 * triple + 3)
    found = {head: [fit(data, head, seed) for seed in seeds] for head in ("flat", "cascade")}
    for head, members in found.items():
        yield row(f"{head}, one network", data, [[member] for member in members])
        yield row(f"{head}, three", data, [members])
    yield row("two cascades and flat", data, [[*found["cascade"][:2], found["flat"][2]]])
    yield row("flat, n_members=3", data, [[fit(data, "flat", seeds[0], n_members=3)]])


def fit(data, head, seed, n_members=1):
    """Probabilities of the labels of test samples, and CPU seconds of training."""
    encoder = MLP(n_members=n_members)
    classifier = MultiHeadClassifier(head, encoder=encoder, ranker=None, random_state=seed)
    start = time.process_time()
    classifier.fit(data.X, data.y)
    return classifier.predict_proba(data.X_test), time.process_time() - start


def row(name, data, ensembles):
    """Means over ensembles of P@1/3/5 in per cent, and of CPU seconds of training."""
    result = {"network": name}
    best = [np.argsort(-np.mean([found for found, _ in members], axis=0), axis=1, kind="stable")
            for members in ensembles]  # fmt: skip
    for k in CUTS:
        precisions = [precision_at_k(data.Y_test, order[:, :k], k=k) for order in best]
        result[f"P@{k}"] = 100 * np.mean(precisions)
    result["seconds"] = np.mean([sum(cost for _, cost in members) for members in ensembles])
    return result


def summary(rows):
    """Mean and standard error over triples of seeds."""
    for (data, network), group in grouped(rows, "data", "network"):
        columns = [*(f"P@{k}" for k in CUTS), "seconds"]
        values = {name: with_error([row[name] for row in group]) for name in columns}
        yield {"data": data, "network": network, **values}


if __name__ == "__main__":
    main()
