"""Accuracy and calibration error of class labels, by ranker and number of training samples.

    python benchmarks/class_labels.py DATA_FOLDER --sizes 3000 10000 40000

The folder holds a training part and ``trn.jsonl.gz``, as that of ``icd10cm`` does: the class of a
text is the first three characters of its first label. Measured on 6000 training texts that were
left out. Prints a table.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import expected_calibration_error

N_TEST = 6000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", type=int, default=[3000, 10_000, 40_000])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    X = load_part(args.folder, "trn")[0]
    with gzip.open(args.folder / "trn.jsonl.gz", "rt", encoding="utf-8") as lines:
        names = [json.loads(line)["labels"][0][:3] for line in lines]
    y = np.unique(names, return_inverse=True)[1]
    order = np.random.RandomState(99).permutation(len(y))
    test = order[:N_TEST]
    print("| samples | ranker | accuracy | among five | calibration error | fit CPU s |")
    print("|---|---|---|---|---|---|")
    for size in args.sizes:
        train = np.sort(order[N_TEST : N_TEST + size])
        for ranker in (None, "calibration", "boosted"):
            start = time.process_time()
            clf = MultiHeadClassifier(
                ranker=ranker,
                validation_fraction="refit" if size < 30_000 else 0.05,
                random_state=args.seed,
            ).fit(X[train], y[train])
            seconds = time.process_time() - start
            labels, p = clf.predict_topk(X[test], 5, proba=True)
            right = labels == y[test][:, None]
            truth = np.zeros((N_TEST, y.max() + 1), dtype=np.int8)
            truth[np.arange(N_TEST), y[test]] = 1
            error = expected_calibration_error(truth, labels[:, :1], p[:, :1])[0]
            print(
                f"| {size} | {ranker} | {100 * right[:, 0].mean():.1f} | "
                f"{100 * right.any(axis=1).mean():.1f} | {error:.3f} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
