"""Train `DFTSigmoidClassifier` by its defaults, and by the rules of `MultiHeadClassifier`.

    python benchmarks/fourier_training.py DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1

Prints P@1/3/5 and F1@10 in per cent, and CPU seconds of the fit. The rules give width, dropout and
epochs by the size of the data (`sklearn_xlc.engine.searched`); the optimiser is "mixed", at the
rate of their output layer.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _measure import add_device, device, load_part

from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.metrics import f1_at_k, precision_at_k


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    add_device(parser)
    return parser.parse_args()


def by_rules(X):
    """Parameters that `MultiHeadClassifier("flat")` would take for so many samples and entries."""
    n_samples = X.shape[0]
    return {
        "optimizer": "mixed",
        "learning_rate": 4e-3,
        "hidden_layer_sizes": (64 * int(8 * np.clip((X.nnz / 2.5e6) ** 0.5, 1, 2)),),
        "dropout": float(np.clip(0.5 - 0.3 * np.log10(n_samples / 1e4), 0.2, 0.5)),
        "max_epochs": max(3, round(4 * (50_000 / n_samples) ** 0.4)),
    }


def measure(params, seed, train, test):
    """Quality and cost of one fit, as a row of the table."""
    classifier = DFTSigmoidClassifier(random_state=seed, device=device(), **params)
    start = time.process_time()
    classifier.fit(*train)
    seconds = time.process_time() - start
    top, _ = classifier.predict_topk(test[0], k=10)
    quality = [100 * precision_at_k(test[1], top, k=k) for k in (1, 3, 5)]
    f1 = 100 * f1_at_k(test[1], top, k=10)
    return f"{'/'.join(f'{value:.1f}' for value in quality)} | {f1:.1f} | {seconds:.1f}"


def text(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main():
    arguments = parse_arguments()
    print("| data | seed | parameters | P@1/3/5 | F1@10 | CPU s |\n|---|---|---|---|---|---|")
    for folder in arguments.folders:
        train, test = load_part(folder, "trn"), load_part(folder, "tst")
        for seed in arguments.seeds:
            for params in ({}, by_rules(train[0])):
                named = ", ".join(f"{key}={text(value)}" for key, value in params.items())
                row = measure(params, seed, train, test)
                print(
                    f"| {folder.resolve().name} | {seed} | {named or 'defaults'} | {row} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
