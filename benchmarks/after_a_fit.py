"""Share of a fit's learning rates for `partial_fit` after it, judged on left-out training samples.

    python benchmarks/after_a_fit.py DATA_FOLDER ... --seeds 0 1

A fifth of the training samples is left out and predicted; P@1/3/5 in per cent. "A quarter": `fit`
reads three quarters of the others, and one call of `partial_fit` the rest; "by 32": calls of 32
samples, 960 in all. "Late": a tenth of the labels, drawn at random, and all samples that have one
of them are withheld from `fit`, and come in one call; P@1 in samples with a late label, and
in the others; "mixed": the call holds as many earlier samples, too. "before": without
`partial_fit`; "all": `fit` with all samples.

With ``--corrected 100``: that many samples left out come to `partial_fit`, each alone and to a copy
of the fitted model. Share of their own labels among as many best ones (R-precision), before and
after, and milliseconds of the call and of the next prediction.
"""

import argparse
import copy
import itertools
from pathlib import Path

import numpy as np
from _measure import Clock, load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.engine import resolve
from sklearn_xlc.metrics import precision_at_k

SHARES = [1.0, 0.5, 0.3, 0.1]


def precisions(Y, labels, ks=(1, 3, 5)):
    return "/".join(f"{100 * precision_at_k(Y, labels, k):.1f}" for k in ks)


def measure(folder, share, seed):
    """Return the cells of a row; `share`: a number, "before" or "all"."""
    X, Y = load_part(folder, "trn")
    rng = np.random.default_rng(seed)
    X, Y = X.tocsr(), Y[:, rng.permutation(Y.shape[1])].tocsr()
    order = rng.permutation(X.shape[0])
    out, others = np.split(order, [len(order) // 5])
    n_labels = Y.shape[1]
    n_first = n_labels - n_labels // 10
    is_late = np.diff(Y[:, n_first:].tocsr().indptr) > 0
    n_quarter = len(others) // 4

    def trained(first, then, size, n_known):
        """Return the best five labels of the samples left out."""
        key = first.tobytes(), n_known
        if share == "all":
            first, n_known = np.union1d(first, then), n_labels
        if key not in fitted or share == "all":
            clf = MultiHeadClassifier(random_state=seed)
            fitted[key] = clf.fit(X[first], Y[first][:, :n_known])
        clf = copy.deepcopy(fitted[key])
        if share not in ("all", "before"):
            resolve.AFTER_FIT = share
            for start in range(0, len(then), size):
                rows = then[start : start + size]
                clf.partial_fit(X[rows], Y[rows], classes=np.arange(n_labels))
        return clf.predict_topk(X[out], 5)[0]

    rest, quarter = others[n_quarter:], others[:n_quarter]
    late, known = others[is_late[others]], others[~is_late[others]]
    of_quarter = trained(rest, quarter, len(quarter), n_labels)
    by_32 = trained(rest, quarter[:960], 32, n_labels)
    earlier = rng.permutation(known)[: len(late)]
    beside = rng.permutation(np.concatenate([late, earlier]))
    has, of_late = is_late[out], []
    for then in (late, beside):
        found = trained(known, then, len(then), n_first)
        of_late += [precisions(Y[out][mask], found[mask], (1,)) for mask in (has, ~has)]
    return [*(precisions(Y[out], each) for each in (of_quarter, by_32)), *of_late]


def measure_corrections(folder, n_samples, seed):
    """Return the cells of a row: what a sample gains that is given with its labels."""
    X, Y = (part.tocsr() for part in load_part(folder, "trn"))
    order = np.random.default_rng(seed).permutation(X.shape[0])
    out, others = np.split(order, [len(order) // 5])
    whole = MultiHeadClassifier(random_state=seed).fit(X[others], Y[others])
    whole.predict_topk(X[out[:2]], 1)
    found = []
    for row in out[np.diff(Y[out].indptr) > 0][:n_samples]:
        clf, sample, labels = copy.deepcopy(whole), X[[row]], Y[[row]].indices
        before = clf.predict_topk(sample, len(labels))[0]
        with Clock() as call:
            clf.partial_fit(sample, Y[[row]])
        with Clock() as after:
            corrected = clf.predict_topk(sample, len(labels))[0]
        shares = [np.isin(each, labels).mean() for each in (before, corrected)]
        found.append([*shares, 1000 * call.cpu, 1000 * after.cpu])
    shares, times = np.mean(found, axis=0)[:2], np.median(found, axis=0)[2:]
    return [*(f"{100 * share:.1f}" for share in shares), *(f"{each:.1f}" for each in times)]


#: Fitted classifiers of a data set and seed.
fitted = {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--corrected", type=int)
    args = parser.parse_args()
    if args.corrected:
        print("| data, seed | R-precision before | after | `partial_fit`, ms | next, ms |")
        print("|" + 5 * "---|")
        for folder, seed in itertools.product(args.folders, args.seeds):
            cells = " | ".join(measure_corrections(folder, args.corrected, seed))
            print(f"| {folder.name}, {seed} | {cells} |", flush=True)
        return
    print("| data, seed | share | a quarter | by 32 | late | others | mixed: late | others |")
    print("|" + 8 * "---|")
    for folder in args.folders:
        for seed in args.seeds:
            fitted.clear()
            for share in ("before", *args.shares, "all"):
                cells = " | ".join(measure(folder, share, seed))
                print(f"| {folder.name}, {seed} | {share} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
