"""What a classifier loses if labels come one part after another, in place of all at once.

    python benchmarks/stream.py DATA_FOLDER --parts 10 --seeds 0 1

Labels are cut at random into equal parts, and a further part is known in each pass over the
training samples: `partial_fit` with `classes`. The other classifier takes the same passes and knows
all labels from the first on. P@k of the test samples, among all labels and in per cent, after the
last pass; P@1 also after some more passes in which no label is new, and of the samples with a label
of the last part. Beside them a `fit` with default parameters, whose learning rate falls to zero.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k

KS = (1, 3, 5)


def columns_in_order(train, test, seed):
    """Data with the columns of y in random order, so that the labels known are the first."""
    order = np.random.default_rng(seed).permutation(train[1].shape[1])
    return [(X, sp.csr_matrix(Y)[:, order]) for X, Y in (train, test)]


def passes(train, n_known, params, seed):
    """Classifier after each pass, in which so many labels are known."""
    X, Y = train
    clf = MultiHeadClassifier(random_state=seed, **params)
    for n_labels in n_known:
        yield clf.partial_fit(X, Y[:, :n_labels], classes=np.arange(n_labels))


def precisions(clf, X, Y):
    """P@1, P@3 and P@5 among the labels known, of which samples may have others."""
    labels, _ = clf.predict_topk(X, k=max(KS))
    return [100 * precision_at_k(Y, labels, k=k) for k in KS]


def run(folder, params, n_parts, n_more, seed):
    """P@1/3/5 after the last new labels, then P@1 after each further pass; both classifiers."""
    train, test = columns_in_order(*(load_part(folder, part) for part in ("trn", "tst")), seed)
    n_labels = train[1].shape[1]
    known = [round(n_labels * part / n_parts) for part in range(1, n_parts + 1)]
    has_new = np.flatnonzero(test[1][:, known[-2] :].getnnz(axis=1))
    results = {}
    for name, n_known in (("part by part", known), ("all at once", [n_labels] * n_parts)):
        began, later = time.process_time(), []
        for number, clf in enumerate(passes(train, n_known + [n_labels] * n_more, params, seed)):
            if number + 1 == n_parts:
                seconds = time.process_time() - began
                found = [*precisions(clf, *test), *precisions(clf, *(p[has_new] for p in test))[:1]]
            elif number >= n_parts:
                later.append(precisions(clf, *test)[0])
        results[name] = (found, later, seconds)
    began = time.process_time()
    clf = MultiHeadClassifier(random_state=seed, **params).fit(*train)
    seconds = time.process_time() - began
    found = [*precisions(clf, *test), *precisions(clf, *(part[has_new] for part in test))[:1]]
    return results | {"`fit`": (found, [], seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--head", default="flat")
    parser.add_argument("--parts", type=int, default=10, help="parts of the labels, and passes")
    parser.add_argument("--more", type=int, default=0, help="further passes")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    params = {"head": arguments.head}
    print(
        f"| {arguments.folder.name}, labels known | P@1/3/5 | P@1, last part | later P@1 | CPU s |"
    )
    print("|---|---|---|---|---|")
    shares = {"all at once": [], "`fit`": []}
    for seed in arguments.seeds:
        found = run(arguments.folder, params, arguments.parts, arguments.more, seed)
        for name, (values, later, seconds) in found.items():
            best, last = "/".join(f"{v:.1f}" for v in values[:3]), f"{values[3]:.1f}"
            after = " ".join(f"{value:.1f}" for value in later)
            print(f"| {name} | {best} | {last} | {after} | {seconds:.0f} |", flush=True)
        for name, of_seeds in shares.items():
            of_seeds.append(found["part by part"][0][0] / found[name][0][0])
    for name, of_seeds in shares.items():
        print(f"P@1 part by part is {100 * np.mean(of_seeds):.1f}% of that of {name}")


if __name__ == "__main__":
    main()
