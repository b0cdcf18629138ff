"""Fit defaults to few samples of multi-label data sets.

    python benchmarks/small_data.py DATA_FOLDER [DATA_FOLDER ...] --samples 60 300 900 --seeds 0 1 2

Samples are drawn from the training part of a set, and 1500 others of it are predicted: no test
sample is read. The network gets the words and labels of its samples only. Prints P@1/3/5, the
percentage of samples that get no label, example-F1/micro-F1 of the predicted label sets, log loss
of a sample, calibration error of the best label, and CPU seconds of the fit, as means over the
seeds. Another version of the package on PYTHONPATH is measured by the same script.
"""

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import Clock, add_device, device, load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import expected_calibration_error, precision_at_k

N_OTHERS = 1500


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, nargs="+", default=[60, 120, 300, 600, 900, 1100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--head", default="auto")
    add_device(parser)
    return parser.parse_args()


def draw(X, Y, n_samples, seed):
    """Samples, and others with a label of theirs, by the columns that the samples use."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    rows, others = order[:n_samples], order[n_samples : n_samples + N_OTHERS]
    words, labels = (np.unique(matrix[rows].indices) for matrix in (X, Y))
    others = others[np.diff(Y[others][:, labels].indptr) > 0]
    return [(X[part][:, words], Y[part][:, labels]) for part in (rows, others)]


def measure(X, Y, n_samples, seed, head):
    """Scores in percent and CPU seconds of one fit."""
    known, (X_other, truth) = draw(X, Y, n_samples, seed)
    model = MultiHeadClassifier(head, random_state=seed, device=device())
    with Clock() as spent:
        model.fit(*known)
    best = model.predict_topk(X_other, k=5)[0]
    sets = sp.csr_matrix(model.predict(X_other))
    right, sizes, real = (
        np.asarray(each.sum(axis=1)).ravel() for each in (sets.multiply(truth), sets, truth)
    )
    scores = [precision_at_k(truth, best, k=k) for k in (1, 3, 5)]
    scores += [np.mean(sizes == 0), np.mean(2 * right / (sizes + real))]
    scores += [2 * right.sum() / (sizes.sum() + real.sum())]
    return [*(100 * float(score) for score in scores), *errors(model, X_other, truth), spent.cpu]


def errors(model, X, truth):
    """Log loss a sample, of all its labels, and calibration error of the best label."""
    labels, chances = model.predict_topk(X, k=1, proba=True)
    known = model.predict_proba(X)
    truth = truth.toarray() > 0
    loss = -np.log(np.clip(np.where(truth, known, 1 - known), 1e-6, None)).sum(axis=1).mean()
    return float(loss), float(expected_calibration_error(truth.astype(np.int8), labels, chances)[0])


def main():
    options = parse_arguments()
    warnings.simplefilter("ignore")
    print("| set, samples | P@1/3/5 | no label | F1 | log loss | calibration error | CPU s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for folder in options.folders:
        X, Y = load_part(folder, "trn")
        for n_samples in options.samples:
            if n_samples + N_OTHERS > X.shape[0]:
                continue
            runs = [measure(X, Y, n_samples, seed, options.head) for seed in options.seeds]
            *means, loss, error, cpu = map(statistics.mean, zip(*runs))
            means = [f"{mean:.1f}" for mean in means]
            cells = ["/".join(means[:3]), means[3], "/".join(means[4:])]
            cells += [f"{loss:.2f}", f"{error:.3f}", f"{cpu:.1f}"]
            name = f"{folder.resolve().name}, {n_samples}"
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
