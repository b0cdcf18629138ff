"""P@1 of classifiers that learnt from labels of groups, against the labels given to every member.

    python benchmarks/labels_of_groups.py --seeds 0 1 2
    python benchmarks/labels_of_groups.py --quick --sets debtags --learners logistic
    python benchmarks/labels_of_groups.py --related --seeds 0 1 2

The 60 most frequent labels of a set (chapters and blocks of ``icd10cm``), and 1500 of its
training rows, in groups: random ones of 4 and of 10, 4 consecutive rows, and clusters of 4 similar
ones. Rows are drawn in blocks of 4 that follow each other, so that consecutive rows stay so. A
learner is trained on all labels of the group of each row ("all"), by `AggregatedLabelClassifier`
("ours"), and on the labels of the rows ("truth"): scikit-learn's one-vs-rest logistic regression
("logistic") and `MultiHeadClassifier` ("multihead"). ``--part validation`` measures on training
rows that were left out, in place of the test rows. ``--related`` makes twelve sets instead, of 600
rows in groups whose members share most or little: `RELATED` has their number of features, the share
of the variance of a label's score that is the group's, the size of groups and the number of labels.

Writes ``labels_of_groups.jsonl`` and prints a table. Cells that the file holds are not run again.
"""

import argparse
import gzip
import json
import os
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated
from sklearn_xlc.metrics import topk_scorer

SETS = ("bibtex", "debtags", "icd10cm")
GROUPINGS = ("random 4", "random 10", "consecutive 4", "clusters 4")
LEARNERS = ("logistic", "multihead")
N_LABELS, BLOCK = 60, 4
RELATED = (
    *((40, 0.8, 4, 10), (40, 0.95, 4, 10), (150, 0.9, 4, 10), (40, 0.5, 4, 10)),
    *((40, 0.9, 8, 20), (150, 0.7, 4, 20), (20, 0.8, 3, 30), (60, 0.6, 6, 15)),
    *((40, 0.95, 2, 10), (100, 0.8, 10, 20), (40, 0.0, 4, 10), (80, 0.3, 5, 20)),
)
KEYS = ("set", "learner", "grouping", "seed", "rows", "part")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("SKLEARN_XLC_DATA"))
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders in --data")
    parser.add_argument("--groupings", nargs="+", choices=GROUPINGS, default=GROUPINGS)
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=LEARNERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--quick", action="store_true", help="1000 rows")
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--related", action="store_true", help="synthetic sets, logistic only")
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


def label_names(folder):
    """Lines of ``labels.txt.gz``."""
    with gzip.open(folder / "labels.txt.gz", "rt") as stream:
        return [line.strip() for line in stream]


def load(folder, rows, part, seed):
    """Rows in blocks, their frequent labels, and the rows to test on that have some of these."""
    X, Y = load_part(folder, "trn")
    X_test, Y_test = load_part(folder, "tst")
    if folder.name == "icd10cm":
        wanted = ("block:", "chapter:")
        kept = [i for i, name in enumerate(label_names(folder)) if name.startswith(wanted)]
        Y, Y_test = Y[:, kept], Y_test[:, kept]
    blocks = np.random.default_rng(seed).permutation(X.shape[0] // BLOCK)
    n_blocks = min(rows // BLOCK, len(blocks) * 3 // 4)
    drawn, left = blocks[:n_blocks], blocks[n_blocks : 2 * n_blocks]
    drawn, left = (
        (np.sort(each)[:, None] * BLOCK + np.arange(BLOCK)).ravel() for each in (drawn, left)
    )
    if part == "validation":
        X_test, Y_test = X[left], Y[left]
    X, Y = X[drawn], Y[drawn]
    frequency = np.asarray((Y != 0).sum(axis=0)).ravel()
    kept = np.argsort(-frequency, kind="stable")[:N_LABELS]
    kept = np.sort(kept[frequency[kept] > 0])
    Y, Y_test = (sp.csr_matrix(each[:, kept] != 0, dtype=np.int8) for each in (Y, Y_test))
    filled = np.flatnonzero(np.diff(Y_test.indptr))
    filled = filled[:: -(-len(filled) // 4000)]  # sets may be in alphabetical order
    return X, Y, X_test[filled], Y_test[filled]


def make_related(n_features, shared, size, n_labels, seed):
    """Rows in consecutive groups of `size`, as many to train on as to test on.

    A row has the labels whose normal scores are large; groups have a share of each in common.
    """
    rng, n_groups = np.random.default_rng(seed), 600 // size
    vectors = rng.normal(size=(n_labels, n_features))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    of_group = np.repeat(rng.normal(size=(2 * n_groups, n_labels)), size, axis=0)
    own = rng.normal(size=of_group.shape)
    scores = np.sqrt(shared) * of_group + np.sqrt(1 - shared) * own
    X = scores @ vectors + rng.normal(size=(len(scores), n_features))
    Y = sp.csr_matrix(scores > np.linspace(0, 1 + n_labels / 30, n_labels), dtype=np.int8)
    n, filled = n_groups * size, np.flatnonzero(np.diff(Y.indptr))
    tested = filled[filled >= n_groups * size]
    return X[:n], Y[:n], X[tested], Y[tested]


def groups_of(grouping, X, Y, seed):
    """Labels of each row's group, and the ids of the groups."""
    kind, size = grouping.split()
    if kind == "consecutive":
        groups = np.arange(Y.shape[0]) // int(size)
        member = sp.csr_matrix((np.ones(len(groups), np.int8), (groups, np.arange(len(groups)))))
        return sp.csr_matrix((member @ Y)[groups] != 0, dtype=np.int8), groups
    method = "cluster" if kind == "clusters" else "random"
    return make_aggregated(Y, int(size), X, method, random_state=seed)


def make_learner(name, seed):
    if name == "multihead":
        return MultiHeadClassifier(random_state=seed)
    C = 0.1 if name == "logistic, C = 0.1" else 10
    return OneVsRestClassifier(LogisticRegression(C=C, solver="liblinear"))


def measure(key, data, all_truth):
    """One row of the results; what does not depend on the groups is measured once."""
    set_name, learner, grouping, seed, *_ = key
    X, Y, X_test, Y_test = data
    score = topk_scorer("precision", k=1)
    grouped, groups = groups_of(grouping, X, Y, seed)
    if (set_name, learner, seed) not in all_truth:
        fitted = make_learner(learner, seed).fit(X, Y)
        all_truth[set_name, learner, seed] = score(fitted, X_test, Y_test)
    every = make_learner(learner, seed).fit(X, grouped)
    start = time.process_time()
    clf = AggregatedLabelClassifier(
        make_learner(learner, seed), EAGLETransformer(random_state=seed)
    )
    clf.fit(X, grouped, groups)
    seconds = time.process_time() - start
    assigned = sp.csr_matrix(clf.assigned_)
    chosen = "probabilities" if clf.posterior_ is not None else "labels"
    if assigned.nnz == grouped.nnz:
        chosen = f"all, {chosen}" if clf.posterior_ is not None else "all"
    return {
        **dict(zip(KEYS, key)),
        "all": score(every, X_test, Y_test),
        "ours": score(clf, X_test, Y_test),
        "truth": all_truth[set_name, learner, seed],
        "chosen": chosen,
        "cpu_s": seconds,
    }


def table(rows):
    """Means over seeds as Markdown, P@1 in percent, and the spread of "ours" minus "all"."""
    lines = ["| set | learner | groups | seeds | all | ours | truth | ours - all | trained on |"]
    lines.append("|---" * 9 + "|")
    for place in dict.fromkeys(tuple(row[key] for key in KEYS[:3]) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in KEYS[:3]) == place]
        every, ours, truth = (
            100 * np.array([row[name] for row in own]) for name in ("all", "ours", "truth")
        )
        gain = ours - every
        spread = f" ± {gain.std():.1f}" if len(own) > 1 else ""
        means = " | ".join(f"{values.mean():.1f}" for values in (every, ours, truth))
        chosen = ", ".join(sorted({row["chosen"] for row in own}))
        start = " | ".join(map(str, (*place, len(own), means)))
        lines.append(f"| {start} | {gain.mean():+.1f}{spread} | {chosen} |")
    return "\n".join(lines)


def main():
    arguments = parse_arguments()
    # Labels that all rows of a fold have, or none, are to be expected here.
    warnings.filterwarnings("ignore", message="Label (not )?[0-9]+ is present")
    warnings.filterwarnings("ignore", message=".*cannot be learnt")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "labels_of_groups.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    n_rows, truth, asked = 1000 if arguments.quick else arguments.rows, {}, []
    learners, sets = arguments.learners, dict.fromkeys(arguments.sets, arguments.groupings)
    if arguments.related:
        n_rows, learners = 600, ["logistic, C = 0.1"]
        sets = {f"related {kind}": [f"consecutive {kind[2]}"] for kind in RELATED}
    for seed in arguments.seeds:
        for number, (set_name, groupings) in enumerate(sets.items()):
            data = None
            for learner, grouping in product(learners, groupings):
                key = (set_name, learner, grouping, seed, n_rows, arguments.part)
                asked.append(key)
                if any(tuple(row[name] for name in KEYS) == key for row in rows):
                    continue
                if data is None and arguments.related:
                    data = make_related(*RELATED[number], seed)
                elif data is None:
                    data = load(arguments.data / set_name, n_rows, arguments.part, seed)
                rows.append(measure(key, data, truth))
                print(rows[-1], flush=True)
                with file.open("a") as stream:
                    stream.write(json.dumps(rows[-1]) + "\n")
    by_key = {tuple(row[name] for name in KEYS): row for row in rows}
    print(table([by_key[key] for key in sorted(asked, key=lambda key: key[:3])]))


if __name__ == "__main__":
    main()
