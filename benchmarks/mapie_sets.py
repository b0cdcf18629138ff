"""`RiskControl` beside MAPIE, on the same probabilities and the same calibration samples.

    python benchmarks/mapie_sets.py DATA_FOLDER --splits 10

A classifier is fitted once, without a decision. The test samples are split into calibration samples
and new ones, again and again. One row for each way: mean risk of new samples, mean number of labels
of a set, CPU seconds of a calibration. MAPIE tries 100 cuts, evenly spaced (its default) or by
their logarithm, and, of 150 calibration samples, just below each probability of a true label ("all
cuts"), which must give `RiskControl`'s cut. Classes are the most frequent label of a sample.

Exits with status 1 if a cut differs from MAPIE's by more than rounding where both have all cuts, or
if sets are larger than MAPIE's by more than two standard errors of their differences.
"""

import argparse
import itertools
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import LACConformityScore, RAPSConformityScore
from mapie.risk_control import MultiLabelClassificationController
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.decisions import RiskControl

ALPHAS = (0.05, 0.1, 0.2)
#: Ways of ours, and of MAPIE for the same promise.
WAYS = {
    "miss": ({}, {"risk": "recall", "method": "crc"}),
    "miss, confidence .9": (
        {"confidence": 0.9},
        {"risk": "recall", "method": "rcps", "confidence_level": 0.9},
    ),
    "false discovery, confidence .9": (
        {"risk": "false_discovery", "confidence": 0.9},
        {"risk": "precision", "method": "ltt", "confidence_level": 0.9},
    ),
}
SCORES = {"LAC": LACConformityScore, "RAPS": RAPSConformityScore}
#: Cuts that MAPIE tries; None: its default.
CUTS = {"even": None, "logarithmic": np.geomspace(1e-5, 0.99, 100)}
#: Calibration samples with all cuts: MAPIE counts sample by sample and cut by cut.
FEW = 150
#: Most frequent labels that are the classes.
N_CLASSES = 30
#: Least samples of a class: RAPS splits the calibration samples once more, by class.
LEAST = 30


class Given(ClassifierMixin, BaseEstimator):
    """Classifier whose samples are their own probabilities, or log odds."""

    def __init__(self, n_classes=2):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        check_is_fitted(self)
        return X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def risk_of(sets, Y, risk):
    hits = (sets & Y).sum(axis=1)
    whole = (Y if risk == "miss" else sets).sum(axis=1)
    return np.mean((whole - hits) / np.maximum(1, whole))


def ours(odds, Y, new, alpha, **params):
    start = time.process_time()
    decision = RiskControl(alpha, min_labels=0, **params).fit(odds, Y)
    seconds = time.process_time() - start
    return decision.cut_, decision.decode(new).toarray() > 0, seconds


def theirs(odds, Y, new, alpha, cuts=None, **params):
    own = {} if cuts is None else {"predict_params": cuts}
    start = time.process_time()
    controller = MultiLabelClassificationController(
        lambda X: X, target_level=1 - alpha, **own, **params
    )
    controller.calibrate(1 / (1 + np.exp(-odds)), Y)
    seconds = time.process_time() - start
    sets = controller.predict(1 / (1 + np.exp(-new)))[..., 0] > 0
    return float(np.ravel(controller.best_predict_param)[0]), sets, seconds


def label_sets(odds, Y, n_splits):
    """For each way and alpha: results of both, of each split."""
    broken = []
    for (way, (params, other)), (spacing, cuts) in itertools.product(WAYS.items(), CUTS.items()):
        way, other = f"{way}; {spacing} cuts", {**other, "cuts": cuts}
        for alpha in ALPHAS:
            found = []
            for seed in range(n_splits):
                order = np.random.RandomState(seed).permutation(len(odds))
                own, new = np.split(order, [len(order) // 2])
                row = []
                for rule, given in ((ours, params), (theirs, other)):
                    try:
                        _, sets, seconds = rule(odds[own], Y[own], odds[new], alpha, **given)
                    except ValueError as error:
                        print(f"| {way} | {alpha} | {rule.__name__}: {error} | | |")
                        break
                    risk = risk_of(sets, Y[new], params.get("risk", "miss"))
                    row += [risk, sets.sum(axis=1).mean(), seconds]
                if len(row) < 6:
                    break
                found.append(row)
            else:
                broken.append(tell(way, alpha, np.array(found), params.get("risk", "miss")))
    return broken


def tell(way, alpha, found, risk):
    mean = found.mean(axis=0)
    error = (found[:, 1] - found[:, 4]).std() / len(found) ** 0.5
    print(
        f"| {way} | {alpha} | {mean[0]:.3f}, {mean[3]:.3f} | {mean[1]:.2f}, {mean[4]:.2f} "
        f"| {mean[2]:.3f}, {mean[5]:.3f} |",
        flush=True,
    )
    more = mean[1] - mean[4] if risk == "miss" else mean[4] - mean[1]  # of discoveries: the more
    return f"{way}, {alpha}: sets of {mean[1]:.2f}, {mean[4]:.2f}" if more > 2 * error else None


def same_cut(odds, Y):
    """Cuts of both on few samples, MAPIE with every cut that matters."""
    broken = []
    p = np.unique(1 / (1 + np.exp(-odds[:FEW][Y[:FEW]])))
    cuts = p * (1 - 1e-9)  # MAPIE predicts labels above a cut, RiskControl also those at it
    for alpha in ALPHAS:
        few = odds[:FEW], Y[:FEW], odds[:FEW], alpha
        cut, sets, _ = ours(*few)
        other, others, _ = theirs(*few, cuts, risk="recall", method="crc")
        at = p[np.searchsorted(p, other)]
        print(f"| {alpha} | {1 / (1 + np.exp(-cut)):.8f} | {at:.8f} | {(sets != others).sum()} |")
        if not np.isclose(1 / (1 + np.exp(-cut)), at, rtol=1e-9) or (sets != others).any():
            broken.append(f"cut at alpha {alpha}: {cut}, {other}")
    return broken


def class_sets(odds, Y, n_splits):
    """Sets of classes: mean miss, mean size and seconds."""
    frequent = np.argsort(-Y.sum(axis=0), kind="stable")[:N_CLASSES]
    y = Y[:, frequent].argmax(axis=1)
    enough = np.bincount(y, minlength=N_CLASSES) >= LEAST
    kept = np.flatnonzero(Y[:, frequent].any(axis=1) & enough[y])
    y = (np.cumsum(enough) - 1)[y[kept]]
    p = softmax(odds[kept][:, frequent[enough]], axis=1)
    broken = []
    for name, score in SCORES.items():
        for alpha in ALPHAS:
            found = []
            for seed in range(n_splits):
                order = np.random.RandomState(seed).permutation(len(y))
                own, new = np.split(order, [len(order) // 2])
                truth = np.eye(p.shape[1], dtype=bool)
                start = time.process_time()
                decision = RiskControl(alpha, min_labels=0).fit(
                    np.log(p[own]), sp.csr_matrix(truth[y[own]]), link="exp"
                )
                seconds = time.process_time() - start
                sets = decision.decode(np.log(p[new])).toarray() > 0
                row = [risk_of(sets, truth[y[new]], "miss"), sets.sum(axis=1).mean(), seconds]
                start = time.process_time()
                conformal = SplitConformalClassifier(
                    Given(p.shape[1]), confidence_level=1 - alpha, conformity_score=score()
                )
                conformal.conformalize(p[own], y[own])
                seconds = time.process_time() - start
                sets = conformal.predict_set(p[new])[1][..., 0] > 0
                row += [risk_of(sets, truth[y[new]], "miss"), sets.sum(axis=1).mean(), seconds]
                found.append(row)
            broken.append(tell(f"classes, {name}", alpha, np.array(found), "miss"))
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", choices=("labels", "classes"), help="default: both")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    X, Y = load_part(arguments.folder, "trn")
    clf = MultiHeadClassifier(decision="topk", random_state=0).fit(X, Y)
    X, Y = load_part(arguments.folder, "tst")
    labelled = np.flatnonzero(np.diff(sp.csr_matrix(Y).indptr))  # others MAPIE refuses
    odds, Y = clf.decision_function(X[labelled]).astype(np.float64), Y[labelled].toarray() > 0
    print("| alpha | cut, ours | MAPIE, all cuts | labels that differ |\n|---|---|---|---|")
    broken = same_cut(odds, Y)
    print("\n| | alpha | risk: ours, MAPIE | labels of a set | CPU s |\n|---|---|---|---|---|")
    if arguments.only != "classes":
        broken += label_sets(odds, Y, arguments.splits)
    if arguments.only != "labels":
        broken += class_sets(odds, Y, arguments.splits)
    for each in filter(None, broken):
        print(each)
    sys.exit(any(broken))


if __name__ == "__main__":
    main()
