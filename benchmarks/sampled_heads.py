"""Multi-Head Sampling as pretraining: which sub-heads does a sample need? (Eq. 13 of the paper)

    python benchmarks/sampled_heads.py --classes 2000 --length 20 --seeds 0 1 2

Synthetic multi-class data. "flat" trains the whole softmax; "batch" scores a sample by the
sub-heads of all samples of its batch (`shared_heads=True`); "MHS-S" by its own sub-head and S - 1
others of its own. All train by the same rule and rates. Measured: accuracy of the trained layer
on test samples, accuracy of the nearest class mean on the features (what is left when the layer is
thrown away), CPU seconds of fit.
"""

import argparse
import time

import numpy as np
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import FlatHead, Sampling


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000, help="half of them for training")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=2000)
    parser.add_argument("--length", type=int, default=20, help="classes of a sub-head")
    parser.add_argument("--width", type=int, default=128, help="width of the encoder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    return parser.parse_args()


def layers(n_classes, length):
    """Heads by name."""
    lengths = -(-n_classes // length), length
    return {
        "flat": FlatHead,  # as a head of one's own, which trains by the same defaults
        "batch": Sampling(lengths=lengths),
        **{
            f"MHS-{s}": Sampling(lengths=lengths, n_sampled_heads=s - 1, shared_heads=False)
            for s in (1, 2, 4)
        },
    }


def measure(layer, seed, arguments):
    """Accuracy of the layer, of class means of the features, and CPU seconds."""
    X, y = make_extreme_multiclass(
        arguments.samples, arguments.features, arguments.classes, random_state=seed
    )
    half = arguments.samples // 2
    classifier = MultiHeadClassifier(
        layer,
        encoder=MLP((arguments.width,)),
        ranker=None,
        max_epochs=arguments.epochs,
        random_state=seed,
    )
    start = time.process_time()
    classifier.fit(X[:half], y[:half])
    seconds = time.process_time() - start
    features = normalize(classifier.transform(X))
    known = np.isin(y[half:], y[:half])
    means = NearestCentroid().fit(features[:half], y[:half])
    return (
        100 * np.mean(classifier.predict(X[half:])[known] == y[half:][known]),
        100 * np.mean(means.predict(features[half:])[known] == y[half:][known]),
        seconds,
    )


def main():
    arguments = parse_arguments()
    print("| sub-heads | accuracy | nearest class mean | fit, CPU s |\n|---|---|---|---|")
    for name, layer in layers(arguments.classes, arguments.length).items():
        runs = [measure(layer, seed, arguments) for seed in arguments.seeds]
        cells = [f"{mean:.1f} ± {std:.1f}" for mean, std in zip(np.mean(runs, 0), np.std(runs, 0))]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
