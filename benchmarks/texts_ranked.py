"""Texts ranked by words, and by words and meaning, beside the network's order.

    python benchmarks/texts_ranked.py DATA_FOLDER [DATA_FOLDER ...] --seeds 0 1 2

A folder holds a training part and ``trn.jsonl.gz`` with a "text" in each line. An eighth of the
training texts, drawn anew for each seed, is left out and predicted. The extra ``text`` must be
installed. "fixed" is the default with the dropout and the slope of few samples. With ``--classes``
the rarest label of a sample is its class, and P@k the share of samples whose class is among the
best k. Prints a table, means over seeds.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
from _measure import load_part, rarest_labels

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import Text
from sklearn_xlc.ranking import BoostedRanker

RANKERS = {
    "calibration": ("calibration", Text()),
    "words": (BoostedRanker("words"), Text()),
    "words and meaning": (BoostedRanker("texts"), Text()),
    "fixed": (BoostedRanker("texts"), Text(dropout=0.5, negative_slope=0.0)),
}


def measured(texts, Y, way, seed):
    """Return P@1, P@3, P@5, and CPU seconds of the fit and of the predictions."""
    ranker, encoder = way
    order = np.random.RandomState(seed + 50).permutation(len(texts))
    held, train = np.sort(order[: len(texts) // 8]), np.sort(order[len(texts) // 8 :])
    clf = MultiHeadClassifier(encoder=encoder, ranker=ranker, random_state=seed)
    start = time.process_time()
    clf.fit(texts[train], Y[train])
    fitted = time.process_time()
    labels = clf.predict_topk(texts[held], 5)[0]
    end = time.process_time()
    if Y.ndim == 1:
        found = [100 * (labels[:, :k] == Y[held, None]).any(axis=1).mean() for k in (1, 3, 5)]
    else:
        hits = Y[held].toarray()[np.arange(len(held))[:, None], labels]
        found = [100 * hits[:, :k].mean() for k in (1, 3, 5)]
    return [*found, fitted - start, end - fitted]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rankers", nargs="+", choices=RANKERS, default=list(RANKERS))
    parser.add_argument("--classes", action="store_true")
    args = parser.parse_args()
    print("| set | ranker | P@1/3/5 | fit, CPU s | all predictions, CPU s |\n|---|---|---|---|---|")
    for folder in args.folders:
        with gzip.open(folder / "trn.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts = np.array([json.loads(line)["text"] for line in lines], dtype=object)
        Y = load_part(folder, "trn")[1]
        if args.classes:
            rows, Y = rarest_labels(Y, np.asarray(Y.sum(axis=0)).ravel())
            texts = texts[rows]
        for name in args.rankers:
            runs = np.mean([measured(texts, Y, RANKERS[name], s) for s in args.seeds], axis=0)
            precisions = "/".join(f"{value:.1f}" for value in runs[:3])
            print(
                f"| {folder.name} | {name} | {precisions} | {runs[3]:.1f} | {runs[4]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
