"""The life of a classifier, step by random step: what always holds, whatever came before.

One machine over every kind of classifier: `fit`, `partial_fit` with known and with later labels,
`remove_labels`, `forget`, `recalibrate`, `set_params`, warm starts, interrupts, calls that fail,
and round trips through copies and files, in any order. After each step the predictions agree with
each other and with what the model was told. A short life runs with every test run; a long one by

    SKLEARN_XLC_LIFE=1000 python -m pytest -m slow tests/attack/test_life.py
"""

import copy
import io
import os
import pickle
import re
import tempfile
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from skorch.callbacks import Callback

from _factories import quick
from sklearn_xlc import compress, explain_topk, load, save
from sklearn_xlc.decisions import Threshold, TopK
from sklearn_xlc.ranking import BoostedRanker

N_FEATURES, POOL = 8, np.array(list("abcdefgh"))
TREES = HistGradientBoostingClassifier(max_iter=4, early_stopping=False)
RANKER = BoostedRanker(estimator=TREES)
#: Classifiers by name, and the forms of y that they take.
KINDS = {
    "flat": ("classes", "tags"),
    "flat-rank": ("classes", "tags"),
    "cascade": ("classes", "tags"),
    "product": ("classes",),
    "powerset": ("tags",),
    "sampling": ("classes",),
    "dft": ("classes", "tags"),
    "bottleneck": ("tags",),
    "etf": ("classes", "tags"),
    "pick-all": ("tags",),
    "bags": ("tags",),
}
#: What a kind refuses, always or in some states, with a part of its message.
REFUSED = {
    ("powerset", "remove"): "cannot",
    ("powerset", "later"): "no room",
    ("etf", "later"): "has room for",
}
rows = st.integers(0, 2**16)


class Interrupt(Callback):
    """Ctrl-C after some steps."""

    def __init__(self, after):
        self.left = after

    def on_batch_end(self, net, training=False, **_):
        self.left -= training
        if self.left == 0:
            raise KeyboardInterrupt


class Life(RuleBasedStateMachine):
    """A classifier, and what it was told."""

    @initialize(
        kind=st.sampled_from([(name, form) for name, forms in KINDS.items() for form in forms]),
        ranker=st.sampled_from(["auto", "boosted", "calibration", None]),
        seed=rows,
    )
    def begin(self, kind, ranker, seed):
        self.name, self.form = kind
        self.n_made, self.removed, self.alive = 0, set(), {}
        self.clf = quick(self.name, max_epochs=2, batch_size=32, random_state=0)
        ranks = self.name in ("flat", "flat-rank", "cascade", "sampling", "product")
        if ranks and not (self.name == "product" and self.form == "tags"):
            self.clf.set_params(ranker=RANKER if ranker == "boosted" else ranker)
        self.probe = self.samples(np.random.default_rng(5), 12, POOL)[0]
        self.fit(seed, 5)

    # --- samples --------------------------------------------------------------------------------

    def samples(self, rng, n, pool):
        """Samples that show their labels, with names of their own."""
        ids = [f"s{self.n_made + i}" for i in range(n)]
        self.n_made += n
        has = rng.random((n, len(pool))) < 0.3
        has[np.arange(n), np.arange(n) % len(pool)] = True
        X = rng.normal(0, 0.1, (n, N_FEATURES))
        X[:, np.searchsorted(POOL, pool)] += has
        X = pd.DataFrame(X.round(3), index=ids, columns=[f"x{i}" for i in range(N_FEATURES)])
        if self.form == "classes":
            return X, pd.Series(pool[np.arange(n) % len(pool)], index=ids)
        return X, pd.Series([pool[row].tolist() for row in has], index=ids)

    def asked(self, action, call):
        """Call; what may be refused leaves the classifier as it was."""
        before, error = self.answers(), error_of(call)
        if error is None:
            return True
        assert re.search(REFUSED.get((self.name, action), "never"), str(error)), (action, error)
        self.same(self.answers(), before)
        return False

    # --- steps ----------------------------------------------------------------------------------

    @rule(seed=rows, n_labels=st.integers(3, 8))
    def fit(self, seed, n_labels):
        rng = np.random.default_rng(seed)
        pool = np.sort(rng.permutation(POOL)[:n_labels])  # later labels come before and after
        X, y = self.samples(rng, 150, pool)
        self.clf.set_params(warm_start=False).fit(X, y)
        self.known, self.removed, self.alive = set(pool), set(), told(y)

    @rule(seed=rows)
    def warm(self, seed):
        X, y = self.samples(np.random.default_rng(seed), 60, self.clf.classes_)
        if self.asked("warm", lambda: self.clf.set_params(warm_start=True).fit(X, y)):
            self.alive = told(y)
        self.clf.set_params(warm_start=False)

    @rule(seed=rows, n=st.integers(1, 40))
    def stream(self, seed, n):
        X, y = self.samples(np.random.default_rng(seed), n, self.clf.classes_)
        self.clf.partial_fit(X, y)
        self.alive |= told(y)

    @rule(seed=rows, n=st.integers(8, 30))
    def later(self, seed, n):
        X, y = self.samples(np.random.default_rng(seed), n, POOL)
        if self.asked("later", lambda: self.clf.partial_fit(X, y, classes=POOL)):
            self.known, self.removed = set(POOL), set()
            self.alive |= told(y)

    @precondition(lambda self: len(self.clf.classes_) > 3)
    @rule(number=rows)
    def remove(self, number):
        label = self.clf.classes_[number % len(self.clf.classes_)]
        if self.asked("remove", lambda: self.clf.remove_labels([label])):
            self.known.discard(label)
            self.removed.add(label)
            self.alive = {name: labels - {label} for name, labels in self.alive.items()}

    def remembers(self):
        return self.clf.ranker_ is not None and bool(self.clf.ranker_.reads)

    @precondition(remembers)
    @rule(number=rows, everything=st.booleans())
    def forget(self, number, everything):
        if everything:
            self.clf.forget()
            self.alive = {}
        else:
            gone = sorted(self.alive)[number % max(1, len(self.alive)) :][:3]
            self.clf.forget(gone)
            self.alive = {k: labels for k, labels in self.alive.items() if k not in gone}

    @rule(seed=rows, decision=st.sampled_from(["keep", "auto", Threshold(0.3), TopK(2)]))
    def recalibrate(self, seed, decision):
        X, y = self.samples(np.random.default_rng(seed), 120, self.clf.classes_)
        self.asked("recalibrate", lambda: self.clf.recalibrate(X, y, decision=clone_of(decision)))

    @rule(decision=st.sampled_from([Threshold(0.3), TopK(2)]))
    def decide(self, decision):
        self.asked("decide", lambda: self.clf.recalibrate(decision=clone_of(decision)))

    @rule(decision=st.sampled_from(["auto", Threshold(0.4)]))
    def set_params(self, decision):
        before = self.answers()
        self.clf.set_params(decision=clone_of(decision))
        self.same(self.answers(), before)

    @rule(seed=rows, after=st.integers(1, 6))
    def interrupt(self, seed, after):
        X, y = self.samples(np.random.default_rng(seed), 150, POOL[:5])
        self.clf.set_params(callbacks=[Interrupt(after)])
        before = self.answers()
        try:
            self.clf.fit(X, y)
            self.known, self.removed, self.alive = set(POOL[:5]), set(), told(y)
        except KeyboardInterrupt:
            self.same(self.answers(), before)
        self.clf.set_params(callbacks=None)

    @rule(seed=rows, fault=st.sampled_from(["nan", "columns", "rows", "strings", "weights"]))
    def fail(self, seed, fault):
        rng = np.random.default_rng(seed)
        made = self.n_made
        X, y = self.samples(rng, 20, self.clf.classes_)
        weight = np.ones(20)
        if fault == "nan":
            X.iloc[3, 2] = np.nan
        elif fault == "columns":
            X = X.iloc[:, 1:]
        elif fault == "rows":
            y = y.iloc[1:]
        elif fault == "strings":
            X["x1"] = "a"
        else:
            weight[2] = -1.0
        before = self.answers()
        methods = [self.clf.partial_fit, *([] if fault == "columns" else [self.clf.fit])]
        for method in methods:
            with pytest.raises((ValueError, TypeError)):
                method(X, y, sample_weight=weight)
        self.same(self.answers(), before)
        self.n_made = made

    @rule(way=st.sampled_from(["copy", "pickle", "joblib", "mapped", "save", "clone"]))
    def travel(self, way):
        before, closed = self.answers(), self.clf
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            if way == "copy":
                self.clf = copy.deepcopy(closed)
            elif way == "pickle":
                self.clf = pickle.loads(pickle.dumps(closed))
            elif way == "joblib":
                joblib.dump(closed, file := io.BytesIO())
                self.clf = joblib.load(file)
            elif way == "mapped":
                joblib.dump(closed, path)
                mapped = joblib.load(path, mmap_mode="r")
                self.same(self.answers(mapped), before, rtol=1e-5)
                del mapped
            elif way == "save":
                save(closed, path, exact=True)
                self.clf = load(path)
            else:
                assert not hasattr(clone(closed), "net_")
        self.same(self.answers(), before)

    @rule()
    def small(self):
        """Rounded weights are a copy; the classifier goes on with its own."""
        before = self.answers()
        rounded = compress(self.clf)
        assert self.answers(rounded).keys() == before.keys()
        self.same(self.answers(), before)

    # --- what always holds ------------------------------------------------------------------------

    def answers(self, clf=None):
        clf, found = self.clf if clf is None else clf, {}
        found["classes"] = clf.classes_.tolist()
        found["labels"], found["topk"] = clf.predict_topk(self.probe, len(clf.classes_))
        found["scores"] = clf.decision_function(self.probe)
        found["predicted"] = clf.predict(self.probe).tolist()
        if hasattr(clf, "predict_proba"):
            found["probabilities"] = clf.predict_proba(self.probe)
        return found

    def same(self, found, expected, rtol=0.0):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if rtol and isinstance(value, np.ndarray) and value.dtype.kind == "f":
                np.testing.assert_allclose(found[name], value, rtol=rtol, atol=1e-6)
            elif isinstance(value, list):
                assert rtol or found[name] == value, name
            elif not rtol:
                np.testing.assert_array_equal(found[name], value, err_msg=name)

    @invariant()
    def agrees(self):
        if not hasattr(self, "clf"):
            return
        clf, found = self.clf, self.answers()
        classes = found["classes"]
        assert len(set(classes)) == len(classes)
        assert set(classes) == self.known
        scores = found["scores"]
        assert scores.shape == (12, len(classes))
        assert not np.isnan(scores).any()
        order = [[classes.index(label) for label in row] for row in found["labels"].tolist()]
        assert all(sorted(row) == list(range(len(classes))) for row in order)
        by_rank = np.take_along_axis(scores, np.array(order), axis=1)
        if self.name != "cascade":  # its beam computes labels of the lists in another way
            np.testing.assert_allclose(by_rank, found["topk"], rtol=1e-4, atol=1e-4)
        assert (np.diff(found["topk"], axis=1) <= 1e-5).all()
        if "probabilities" in found:
            probabilities = found["probabilities"]
            assert (probabilities >= 0).all()
            assert (probabilities <= 1 + 1e-6).all()
            if self.form == "classes":
                np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
        if self.form == "classes":
            assert found["predicted"] == found["labels"][:, 0].tolist()
        else:
            assert all(set(row) <= self.known for row in found["predicted"])
        assert clf.n_features_in_ == N_FEATURES
        assert "auto" not in map(str, clf.settings_.values())

    @precondition(lambda self: hasattr(self, "clf") and self.remembers())
    @invariant()
    def remembers_whom_it_was_told(self):
        found = explain_topk(self.clf, self.probe, k=2, examples=3, n_columns=1, n_steps=1)
        labels = np.broadcast_to(found.labels[..., None], found.examples.shape)
        for name, label in zip(found.examples.ravel(), labels.ravel()):
            assert name is None or label in self.alive[name]


def told(y):
    """The labels of each sample by its name."""
    return {name: {each} if isinstance(each, str) else set(each) for name, each in y.items()}


def error_of(call):
    try:
        call()
    except ValueError as error:
        return error
    return None


def clone_of(decision):
    return decision if isinstance(decision, str) else clone(decision)


def live(n_examples, n_steps):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        run_state_machine_as_test(
            Life,
            settings=settings(
                max_examples=n_examples,
                stateful_step_count=n_steps,
                derandomize="SKLEARN_XLC_LIFE" not in os.environ,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )


def test_a_short_life():
    live(5, 8)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_long_life():
    live(int(os.environ.get("SKLEARN_XLC_LIFE", 100)), 25)
