"""Multi-Head Sampling as pretraining: which sub-heads does a sample need? (Eq. 13 of the paper)

    python benchmarks/sampled_heads.py --classes 2000 --length 20 --seeds 0 1 2

Synthetic multi-class data. "flat" trains the whole softmax; "batch" scores a sample by the
sub-heads of all samples of its batch, as `MultiHeadClassifier("sampling")` does; "MHS-S" by its
own sub-head and S - 1 others of its own. Measured: accuracy of the trained layer on test samples,
accuracy of the nearest class mean on the features (what is left when the layer is thrown away),
CPU seconds of fit.
"""

import argparse
import time
from functools import partial

import numpy as np
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.heads import FlatHead, SamplingHead


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


def heads(length):
    """Output layers by name."""
    sampling = partial(SamplingHead, length=length)
    return {
        "flat": FlatHead,
        "batch": sampling,
        **{
            f"MHS-{s}": partial(sampling, n_sampled_heads=s - 1, shared_heads=False)
            for s in (1, 2, 4)
        },
    }


def measure(head, seed, arguments):
    """Accuracy of the layer, of class means of the features, and CPU seconds."""
    X, y = make_extreme_multiclass(
        arguments.samples, arguments.features, arguments.classes, random_state=seed
    )
    half = arguments.samples // 2
    classifier = MultiHeadClassifier(
        head=head,
        hidden_layer_sizes=(arguments.width,),
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
    for name, head in heads(arguments.length).items():
        runs = [measure(head, seed, arguments) for seed in arguments.seeds]
        print("| " + " | ".join([name, *(f"{value:.1f}" for value in np.mean(runs, 0))]) + " |")


if __name__ == "__main__":
    main()
