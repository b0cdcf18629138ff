"""Train `DFTSigmoidClassifier` by its defaults, and as where nothing was searched for.

    python benchmarks/fourier_training.py DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1

Prints P@1/3/5 and F1@10 in per cent, and CPU seconds of the fit. The defaults are rules by the size
of the data (`sklearn_xlc.engine.resolve`); the others are Adam, 1024 units and ten passes.
"""

import argparse
import time
from pathlib import Path

from _measure import add_device, device, load_part

from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.batches import n_batches
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import f1_at_k, precision_at_k


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    add_device(parser)
    return parser.parse_args()


def without_search(n_samples):
    """Parameters that "auto" stands for where nothing was searched for: the former defaults."""
    return {
        "optimizer": "adam",
        "learning_rate": 2e-3,
        "encoder": MLP((1024,), dropout=0.7),
        "batch_size": 256,
        "max_epochs": max(10, -(-300 // n_batches(n_samples, 256))),
        "precision": "float32",
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


def main():
    arguments = parse_arguments()
    print("| data | seed | training | P@1/3/5 | F1@10 | CPU s |\n|---|---|---|---|---|---|")
    for folder in arguments.folders:
        train, test = load_part(folder, "trn"), load_part(folder, "tst")
        for seed in arguments.seeds:
            for name, params in (("defaults", {}), ("before", without_search(train[0].shape[0]))):
                row = measure(params, seed, train, test)
                print(f"| {folder.resolve().name} | {seed} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
