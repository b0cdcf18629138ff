"""Risks of new samples under decisions with a guarantee, over many draws of calibration samples.

    python benchmarks/coverage.py DATA_FOLDER [DATA_FOLDER ...] --splits 100

A classifier is fitted once to each data set, and to a synthetic one. Its test samples are split
again and again into calibration samples and new ones, half each. One row for each risk and alpha:
mean risk of new samples with its standard error over splits, mean number of labels of a set, share
of splits in which the risk of all test samples is at most alpha. Lists are ranked once; for one
split `recalibrate` must give the same cut. Two more tables: groups, of which alone labels are
known, and lists of 100 000 labels with the memory they take. With ``--classes FOLDER`` (a folder
like ``icd10cm``), sets of classes only: by one cut, and adaptive ones (RAPS). Without folders,
those of bibtex and debtags in SKLEARN_XLC_DATA.

Exits with status 1 if a promise is broken: the mean risk is between alpha - .02 and alpha + two
standard errors; with confidence, the risk of all is at most alpha in as many of the splits.
"""

import argparse
import gzip
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.decisions import RiskControl

ALPHAS = (0.05, 0.1, 0.2)
WAYS = {
    "miss": {},
    "miss, confidence .9": {"confidence": 0.9},
    "false discovery, confidence .9": {"risk": "false_discovery", "confidence": 0.9},
}
#: Less than alpha by more is a waste, where cuts are fine enough.
WASTE = 0.02


def load(folder):
    if folder == "synthetic":
        X, Y = make_extreme_multilabel(8000, 500, 200, noise=0.3, random_state=0)
        X, Y = sp.csr_matrix(X), sp.csr_matrix(Y)
        return X[:4000], Y[:4000], X[4000:], Y[4000:]
    return [*load_part(folder, "trn"), *load_part(folder, "tst")]


def risks_of(sets, Y, risk):
    """Risk of each sample."""
    hits = np.asarray(sets.multiply(Y).sum(axis=1)).ravel()
    whole = np.asarray((Y if risk == "miss" else sets).sum(axis=1)).ravel()
    return (whole - hits) / np.maximum(1, whole)


def over_splits(decision, lists, Y, sizes, link, n_splits):
    """For each split: mean risk of new samples, size of their sets, mean risk of all samples."""
    scores, labels = lists
    found = []
    for seed in range(n_splits):
        order = np.random.RandomState(seed).permutation(len(scores))
        own, new = np.split(order, [len(order) // 2])
        decision.fit(scores[own], Y[own], labels=labels[own], sizes=sizes, link=link)
        sets = decision.decode(scores, labels)
        risks = risks_of(sets, Y, decision.risk)
        found.append((risks[new].mean(), sets[new].nnz / len(new), risks.mean()))
    return np.array(found)


def check(name, decision, risks, of_all):
    """Name what a promise is broken by; None: it is kept."""
    alpha, mean, error = decision.alpha, risks.mean(), risks.std() / np.sqrt(len(risks))
    if decision.confidence is None:
        wrong = not alpha - WASTE <= mean <= alpha + 2 * error
    else:
        # The risk of all samples stands for the expected one: that of half of them varies more.
        wrong = (of_all <= alpha).mean() < decision.confidence
    return f"{name}, {decision}: mean risk {mean:.4f}" if wrong else None


def measure(name, n_splits):
    X, Y, X_test, Y_test = load(name)
    Y_test = sp.csr_matrix(Y_test > 0, dtype=np.int8)
    name, start = Path(name).name, time.process_time()
    clf = MultiHeadClassifier(random_state=0).fit(X, Y)
    fitted = time.process_time() - start
    labels, scores = clf.predict_topk(X_test, min(1000, Y.shape[1]))
    sizes = np.diff(Y.indptr)
    order = np.random.RandomState(0).permutation(len(scores))[: len(scores) // 2]
    broken = []
    for way, params in WAYS.items():
        for alpha in ALPHAS:
            decision, start = RiskControl(alpha, **params), time.process_time()
            try:
                found = over_splits(decision, (scores, labels), Y_test, sizes, "sigmoid", n_splits)
            except ValueError as error:
                print(f"| {name} | {way} | {alpha} | refused: {error} | | | | |", flush=True)
                continue
            seconds = (time.process_time() - start) / n_splits
            risks, error = found[:, 0], found[:, 0].std() / np.sqrt(n_splits)
            print(
                f"| {name} | {way} | {alpha} | {risks.mean():.4f} ± {error:.4f} | "
                f"{found[:, 1].mean():.2f} | {(found[:, 2] <= alpha).mean():.2f} | {seconds:.3f} |",
                flush=True,
            )
            broken.append(check(f"{name}, {way}", decision, risks, found[:, 2]))
    clf.recalibrate(X_test[order], Y_test[order], decision=RiskControl(0.1))
    direct = RiskControl(0.1).fit(scores[order], Y_test[order], labels=labels[order], sizes=sizes)
    if not np.isclose(clf.decision_.cut_, direct.cut_, rtol=1e-5):
        broken.append(f"{name}: recalibrate gives another cut, {clf.decision_}, than {direct}")
    print(
        f"| {name} | labels of a sample: {Y_test.nnz / len(scores):.2f}; unreachable: "
        f"{direct.unreachable_:.4f}; fit {fitted:.0f} CPU s | | | | | |",
        flush=True,
    )
    return broken


def measure_groups(n_splits):
    """600 groups train, 600 others are split; no label of a sample is known."""
    X, Y = make_extreme_multilabel(4800, 300, 50, noise=0.3, random_state=0)
    grouped, groups = make_aggregated(Y, group_size=4, random_state=0)
    names, groups = np.unique(groups, return_inverse=True)
    train = groups < 600
    y = sp.csr_matrix(grouped)[np.unique(groups, return_index=True)[1]]
    clf = AggregatedLabelClassifier(
        MultiHeadClassifier("flat", ranker=None, random_state=0),
        EAGLETransformer(random_state=0),
        n_rounds=1,
    ).fit(X[train], y[:600], groups[train])
    labels, scores = clf.predict_topk(X[~train], 50)
    group, y, broken = groups[~train] - 600, y[600:], []
    for alpha in ALPHAS:
        found = []
        for seed in range(n_splits):
            order = np.random.RandomState(seed).permutation(y.shape[0])
            position = np.full(y.shape[0], -1)
            position[order[:300]] = np.arange(300)
            at = position[group]
            own, new = at >= 0, at < 0
            decision = RiskControl(alpha, min_labels=0)
            decision.fit(scores[own], y[order[:300]], labels=labels[own], groups=at[own])
            sets = decision.decode(scores[new], labels[new])
            member = sp.csr_matrix((np.ones(new.sum()), (group[new], np.arange(new.sum()))))
            claimed = sp.csr_matrix(member @ sets > 0, dtype=np.int8)[order[300:]]
            found.append((risks_of(claimed, y[order[300:]], "miss").mean(), sets.nnz / new.sum()))
        found = np.array(found)
        risks, error = found[:, 0], found[:, 0].std() / np.sqrt(n_splits)
        print(
            f"| {alpha} | {risks.mean():.4f} ± {error:.4f} | {found[:, 1].mean():.2f} |", flush=True
        )
        broken.append(check("groups", decision, risks, None))
    return broken


def measure_many_labels():
    """Lists of 500 of 100 000 labels, for 20 000 samples."""
    rng = np.random.default_rng(0)
    n_samples, n_labels, width = 20_000, 100_000, 500
    labels = rng.integers(n_labels, size=(n_samples, 1)) + 7 * np.arange(width)
    labels %= n_labels
    scores = -np.sort(-rng.normal(-3, 2, (n_samples, width)), axis=1).astype(np.float32)
    at = np.unique(rng.geometric(0.05, (n_samples, 5)).clip(max=width) - 1, axis=1)
    rows = np.repeat(np.arange(n_samples), at.shape[1])
    true = labels[rows, at.ravel()]
    Y = sp.csr_matrix((np.ones(len(true)), (rows, true)), shape=(n_samples, n_labels))
    Y = sp.csr_matrix(Y > 0, dtype=np.int8)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for way, params in WAYS.items():
        start = time.process_time()
        decision = RiskControl(0.95 if "risk" in params else 0.1, **params)
        sets = decision.fit(scores, Y, labels=labels).decode(scores, labels)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.process_time() - start
        print(f"| {way} | {seconds:.1f} | {peak - held:.0f} | {sets.nnz / n_samples:.1f} |")


def measure_classes(folder, n_splits):
    """Sets of classes by a cut of the probability, and by RAPS without randomisation.

    The class of a text is the first three characters of its first label. RAPS (arXiv:2009.14193)
    adds the probabilities of the best classes up to a class, and a penalty of `weight` for each
    class after the first `n_free`.
    """
    X = load_part(folder, "trn")[0]
    with gzip.open(Path(folder, "trn.jsonl.gz"), "rt", encoding="utf-8") as lines:
        names = [json.loads(line)["labels"][0][:3] for line in lines]
    y = np.unique(names, return_inverse=True)[1]
    test, train = np.split(np.random.RandomState(99).permutation(len(y))[:12_000], 2)
    clf = MultiHeadClassifier(random_state=0).fit(X[train], y[train])
    test = test[np.isin(y[test], clf.classes_)]
    labels, p = clf.predict_topk(X[test], 400, proba=True)
    Y = sp.csr_matrix((np.ones(len(test), np.int8), y[test], np.arange(len(test) + 1)))
    Y.resize(len(test), y.max() + 1)
    ways, rank = {"one cut": np.log(np.maximum(p, 1e-30))}, np.arange(1, p.shape[1] + 1)
    for weight in (0.001, 0.01, 0.1):
        for n_free in (1, 5):
            penalty = weight * np.maximum(0, rank - n_free)
            ways[f"RAPS {weight:g}, {n_free}"] = -(np.cumsum(p, axis=1) + penalty)
    print("| sets | alpha | outside | classes |\n|---|---|---|---|")
    for way, scores in ways.items():
        for alpha in (0.1, 0.2):
            decision, sizes = RiskControl(alpha), np.ones(1)
            found = over_splits(decision, (scores, labels), Y, sizes, "exp", n_splits)
            print(f"| {way} | {alpha} | {found[:, 0].mean():.3f} | {found[:, 1].mean():.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--classes", metavar="FOLDER")
    args = parser.parse_args()
    if args.classes:
        measure_classes(args.classes, args.splits)
        return
    data = os.environ.get("SKLEARN_XLC_DATA")
    folders = args.folders or [os.path.join(data, name) for name in ("bibtex", "debtags") if data]
    broken = []
    print("| data | risk | alpha | mean risk of new ones | labels | all within alpha | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for folder in [*folders, "synthetic"]:
        broken += measure(folder, args.splits)
    print("\n| alpha | mean risk of groups | labels of a sample |\n|---|---|---|")
    broken += measure_groups(args.splits)
    print("\n| 100 000 labels, risk | CPU s | further MiB | labels |\n|---|---|---|---|")
    measure_many_labels()
    broken = [each for each in broken if each]
    print("\n" + ("\n".join(broken) or "every promise is kept"))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
