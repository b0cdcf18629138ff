"""Labels without training samples, found by their own texts.

    python benchmarks/unseen_labels.py [SET ...] --seeds 0 1 2

Data sets are folders with texts (``trn.jsonl.gz``) and names of labels (``labels.txt.gz``), in the
folder that the environment variable SKLEARN_XLC_DATA names. The classifier is fitted to the
training part, and its labels include those that only the test part has. Prints a table: the share
of these labels that are among the best ten (and in a list at all), the precision of all test
samples, and CPU seconds; means over seeds. The extra ``text`` must be installed.
"""

import argparse
import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import (
    BoostedRanker,
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    LabelTexts,
    NearestSamples,
)

SETS = ["icd10cm", "debdeps", "wordnet_noun_closure"]
WORDS = [
    ("near", NearestSamples()),
    ("centroids", LabelCentroids()),
    ("votes", FeatureVotes()),
    ("together", CooccurringLabels()),
]
RETRIEVERS = {
    "words": WORDS,
    "texts": [
        *WORDS,
        ("near_in_meaning", NearestSamples(vectorizer="wordllama")),
        ("centroids_in_meaning", LabelCentroids(vectorizer="wordllama")),
    ],
}
RANKERS = {
    "words": ("words", []),
    "words, texts of labels": ("words", ["names"]),
    "words and meaning": ("texts", []),
    "words and meaning, texts of labels": ("texts", ["names", "names_in_meaning"]),
}


def texts_of(folder, part):
    with gzip.open(folder / f"{part}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return np.array([json.loads(line)["text"] for line in lines], dtype=object)


def names_of(folder):
    """Text of each label: the last column of the file."""
    with gzip.open(folder / "labels.txt.gz", "rt", encoding="utf-8") as lines:
        return dict(enumerate(line.rstrip("\n").split("\t")[-1] for line in lines))


def ranker_of(kind, names, texts):
    every = {"names": LabelTexts(texts), "names_in_meaning": LabelTexts(texts, "wordllama")}
    return BoostedRanker([*RETRIEVERS[kind], *((name, every[name]) for name in names)])


def only(Y, labels):
    """Return an indicator with the entries of some labels alone."""
    left = Y.copy()
    left.data[~labels[left.indices]] = 0
    left.eliminate_zeros()
    return left


def share_found(labels, wanted):
    """Return the share of the entries of an indicator that are in lists of labels."""
    rows = np.repeat(np.arange(wanted.shape[0]), np.diff(wanted.indptr))
    return (labels[rows] == wanted.indices[:, None]).any(axis=1).mean()


def measured(train, test, unseen, ranker, seed):
    """Return the share of unseen labels found, P@1, P@3, P@5, and CPU seconds."""
    clf = MultiHeadClassifier(encoder="text", ranker=ranker, random_state=seed)
    start = time.process_time()
    clf.fit(*train)
    fitted = time.process_time()
    labels = clf.predict_topk(test[0], 10)[0]
    end = time.process_time()
    precisions = [precision_at_k(test[1], labels, k) for k in (1, 3, 5)]
    return (
        *(100 * np.array([share_found(labels, unseen), *precisions])),
        fitted - start,
        end - fitted,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rankers", nargs="+", choices=list(RANKERS), default=list(RANKERS))
    parser.add_argument("--samples", type=int, help="training samples, at most: for a quick look")
    args = parser.parse_args()
    print("| set | ranker | unseen labels among the best 10 | P@1/3/5 | fit, predict: CPU s |")
    print("|---|---|---|---|---|")
    for name in args.sets:
        folder = Path(os.environ["SKLEARN_XLC_DATA"], name)
        train, test = (
            (texts_of(folder, part), load_part(folder, part)[1]) for part in ("trn", "tst")
        )
        train, names = tuple(each[: args.samples] for each in train), names_of(folder)
        unseen = only(test[1], np.bincount(train[1].indices, minlength=len(names)) == 0)
        for kind in args.rankers:
            ranker = ranker_of(*RANKERS[kind], names)
            runs = [measured(train, test, unseen, ranker, seed) for seed in args.seeds]
            found, *precisions, fit, predict = np.mean(runs, axis=0)
            precisions = "/".join(f"{value:.1f}" for value in precisions)
            print(
                f"| {name} ({unseen.nnz}) | {kind} | {found:.1f} | {precisions} | "
                f"{fit:.0f}, {predict:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
