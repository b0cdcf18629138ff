"""The life of an estimator, step by random step: what always holds, whatever came before.

One machine over every public estimator and part (`_lives.py`): `fit`, `partial_fit` with known and
with later labels, `remove_labels`, `forget`, `recalibrate`, `set_params`, warm starts, interrupts,
calls that fail, and round trips through copies and files, in any order; of these the steps that
the estimator knows. After each step the predictions agree with each other and with what the model
was told; a call that fails leaves its state. A short life runs with every test run; a long one by

    SKLEARN_XLC_LIFE=1000 python -m pytest -m slow tests/attack/test_life.py
"""

import copy
import importlib
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
import scipy.sparse as sp
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
from sklearn.base import BaseEstimator, clone

from attack._lives import (
    ANCESTORS,
    FAULTS,
    KINDS,
    POOL,
    Interrupt,
    classes_drawn,
    samples,
    spoilt,
    tiny,
)
from sklearn_xlc import compress, explain_topk, heads, load, save
from sklearn_xlc.decisions import RiskControl, Taxonomy

#: What parts are refused for that do not go together.
UNSUITED = "needs |scores have none|bags have none"
#: What an action is refused for, always or in some states: a part of the message.
REFUSED = {
    "decide": f"learnt from|{UNSUITED}",
    "forget": "not remembered",
    "later": "no room|has room for",
    "recalibrate": f"learnt from the training samples|{UNSUITED}",
    "remove": "cannot",
    "warm": "needs samples that the network has not seen",
}
#: Base classes and what only the package makes, of which nothing is drawn.
BASES = {
    *("BaseXLCClassifier", "Decision", "DigitPart", "EncoderPart", "HeadPart", "Loss", "Optimizer"),
    *("PointwiseLoss", "Ranker", "Retriever", "RowwiseLoss", "XLCNet"),
}
ANSWERS = ("decision_function", "predict", "predict_proba", "transform", "labels_of", "ids_of")
FILE = Path(__file__).parents[1] / "public_api.txt"
rows = st.integers(0, 2**16)


def knows(method):
    """Let a rule run for estimators with a method."""
    return precondition(lambda self: hasattr(self.clf, method))


class Life(RuleBasedStateMachine):
    """An estimator, and what it was told."""

    @initialize(
        name=st.sampled_from([name for name, kind in KINDS.items() if kind.is_installed()]),
        data=st.data(),
        seed=rows,
    )
    def begin(self, name, data, seed):
        self.kind, self.n_made = KINDS[name], 0
        self.input = data.draw(st.sampled_from(self.kind.inputs), "input")
        self.clf = clone(self.kind.estimator)
        for name, value in self.clf.get_params().items():
            if isinstance(value, str) and value == "tiny":
                self.clf.set_params(**{name: tiny().name})
        for name, values in self.kind.parts.items():
            self.clf.set_params(**{name: clone_of(data.draw(st.sampled_from(values), name))})
        self.probe, self.y_probe = self.samples(np.random.default_rng(5), 12, POOL)
        if error := error_of(lambda: self.fit(seed, 5)):
            assert re.search(UNSUITED, str(error)), error
            assert not hasattr(self.clf, "classes_")
            self.clf.set_params(decision="auto", ranker="auto")
            self.fit(seed, 5)

    # --- samples --------------------------------------------------------------------------------

    def samples(self, rng, n, pool):
        """Samples with names of their own; in groups of two, labels of the group."""
        names = [f"s{self.n_made + i}" for i in range(n)]
        self.n_made += n
        X, y = samples(self.kind, self.input, rng, names, pool)
        return X, in_groups(y) if self.kind.is_grouped else y

    def tell(self, method, X, y, **params):
        """Call a method with samples, and with their groups where it reads groups."""
        groups = {"groups": np.arange(X.shape[0]) // 2} if self.kind.is_grouped else {}
        return method(X, y, **groups, **params)

    def learnt(self, y):
        """Note what a fit was told."""
        self.alive, ranker = told(y), getattr(self.clf, "ranker", None)
        self.sets_apart = isinstance(getattr(self.clf, "decision_", None), RiskControl)
        self.known = set().union(*self.alive.values())
        retrievers = getattr(ranker, "retrievers", "auto")
        for _, retriever in retrievers if isinstance(retrievers, list) else ():
            self.known |= set(getattr(retriever, "texts", ()))

    def asked(self, action, call):
        """Call; what may be refused leaves the estimator as it was."""
        before, error = self.state(self.found), error_of(call)
        if error is None:
            return True
        assert re.search(REFUSED.get(action, "never"), str(error)), (action, error)
        self.same(self.state(), before)
        return False

    # --- steps ----------------------------------------------------------------------------------

    @rule(seed=rows, n_labels=st.integers(3, 8))
    def fit(self, seed, n_labels):
        rng = np.random.default_rng(seed)
        pool = np.sort(rng.permutation(POOL)[:n_labels])  # later labels come before and after
        X, y = self.samples(rng, 150, pool)
        if "warm_start" in self.clf.get_params():
            self.clf.set_params(warm_start=False)
        self.tell(self.clf.fit, X, y)
        self.learnt(y)

    @knows("partial_fit")
    @rule(seed=rows)
    def warm(self, seed):
        X, y = self.samples(np.random.default_rng(seed), 60, self.clf.classes_)
        self.clf.set_params(warm_start=True)
        if self.asked("warm", lambda: self.clf.fit(X, y)):
            self.alive = told(y)
        self.clf.set_params(warm_start=False)

    @knows("partial_fit")
    @rule(seed=rows, n=st.integers(1, 40))
    def stream(self, seed, n):
        X, y = self.samples(np.random.default_rng(seed), n, self.clf.classes_)
        self.clf.partial_fit(X, y)
        self.alive |= told(y)

    @knows("partial_fit")
    @rule(seed=rows, n=st.integers(8, 30))
    def later(self, seed, n):
        X, y = self.samples(np.random.default_rng(seed), n, POOL)
        if self.asked("later", lambda: self.clf.partial_fit(X, y, classes=POOL)):
            self.known = set(POOL)
            self.alive |= told(y)

    @precondition(lambda self: hasattr(self.clf, "remove_labels") and len(self.clf.classes_) > 3)
    @rule(number=rows)
    def remove(self, number):
        label = self.clf.classes_[number % len(self.clf.classes_)]
        if self.asked("remove", lambda: self.clf.remove_labels([label])):
            self.known.discard(label)
            self.alive = {name: labels - {label} for name, labels in self.alive.items()}

    def remembers(self):
        return bool(getattr(getattr(self.clf, "ranker_", None), "reads", ()))

    @precondition(remembers)
    @rule(number=rows, everything=st.booleans())
    def forget(self, number, everything):
        if everything:
            self.clf.forget()
            self.alive = {}
        else:
            gone = sorted(self.alive)[number % max(1, len(self.alive)) :][:3]
            if self.asked("forget", lambda: self.clf.forget(gone)):
                self.alive = {k: labels for k, labels in self.alive.items() if k not in gone}
            else:
                assert self.sets_apart

    @knows("recalibrate")
    @rule(seed=rows, data=st.data())
    def recalibrate(self, seed, data):
        decision = data.draw(st.sampled_from(["keep", *self.kind.parts["decision"]]))
        X, y = self.samples(np.random.default_rng(seed), 120, self.clf.classes_)
        self.asked("recalibrate", lambda: self.clf.recalibrate(X, y, decision=clone_of(decision)))

    @knows("recalibrate")
    @rule(data=st.data())
    def decide(self, data):
        decision = data.draw(st.sampled_from(self.kind.parts["decision"]))
        self.asked("decide", lambda: self.clf.recalibrate(decision=clone_of(decision)))

    @rule(data=st.data())
    def set_params(self, data):
        before = self.found
        for name, values in self.kind.later.items():
            self.clf.set_params(**{name: clone_of(data.draw(st.sampled_from(values), name))})
        self.same(self.answers(), before)

    @knows("net_")
    @rule(seed=rows, after=st.integers(1, 6))
    def interrupt(self, seed, after):
        X, y = self.samples(np.random.default_rng(seed), 150, POOL[:5])
        self.clf.set_params(callbacks=[Interrupt(after)])
        before = self.state(self.found)
        try:
            self.clf.fit(X, y)
            self.learnt(y)
        except KeyboardInterrupt:
            self.same(self.state(), before)
        self.clf.set_params(callbacks=None)

    @rule(seed=rows, data=st.data())
    def fail(self, seed, data):
        reads_y, of_X = hasattr(self.clf, "classes_"), FAULTS[self.input]
        fault = data.draw(st.sampled_from([*of_X, *["rows", "weights"] * reads_y]), "fault")
        made = self.n_made
        X, y = self.samples(np.random.default_rng(seed), 20, POOL)
        X, y, weight = spoilt(X, y, np.ones(20), fault)
        weights = {"sample_weight": weight} if fault == "weights" else {}
        calls = {"set_params": lambda method: method(nonsense=1)}
        for name in ("fit", "partial_fit", "recalibrate", "assign"):
            calls[name] = lambda method: self.tell(method, X, y, **weights)
        for name in ("transform", "predict", "predict_topk") if fault in of_X else ():
            calls[name] = lambda method: method(X)
        if fault == "columns" and self.input != "table":
            del calls["fit"]
        before = self.state(self.found)
        for name, call in calls.items():
            if hasattr(self.clf, name):
                with pytest.raises((ValueError, TypeError)):
                    call(getattr(self.clf, name))
                self.same(self.state(), before)
        self.n_made = made

    @rule(way=st.sampled_from(["copy", "pickle", "joblib", "mapped", "save", "clone"]))
    def travel(self, way):
        before, closed = self.found, self.clf
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
                self.clf = load(path, trusted=self.kind.trusted)
            else:
                assert not [name for name in vars(clone(closed)) if name.endswith("_")]
        self.same(self.answers(), before)

    @knows("net_")
    @rule()
    def small(self):
        """Rounded weights are a copy; the classifier goes on with its own."""
        before = self.state(self.found)
        rounded = compress(self.clf)
        assert self.answers(rounded).keys() | {"state"} == before.keys()
        self.same(self.state(), before)

    # --- what always holds ------------------------------------------------------------------------

    def answers(self, clf=None):
        """All that an estimator says of the probe."""
        clf, found = self.clf if clf is None else clf, {}
        if hasattr(clf, "classes_"):
            found["classes"] = clf.classes_.tolist()
        if hasattr(clf, "predict_topk"):
            found["labels"], found["topk"] = clf.predict_topk(self.probe, len(clf.classes_))
        names = [name for name in ANSWERS if hasattr(clf, name)]
        if hasattr(clf, "predict_set") and isinstance(clf.decision_, RiskControl):
            names.append("predict_set")
        for name in names:
            found[name] = plain(getattr(clf, name)(self.probe))
        if hasattr(clf, "assign"):
            found["assign"] = plain(self.tell(clf.assign, *self.of_known()))
        return found

    def of_known(self):
        """The probe with labels that the estimator knows."""
        first = self.clf.classes_[0]
        if self.kind.form == "classes":
            return self.probe, self.y_probe.where(self.y_probe.isin(self.known), first)
        return self.probe, self.y_probe.map(lambda row: sorted({*row} & self.known) or [first])

    def state(self, found=None):
        """All that an estimator says, unless it has just been found, and holds."""
        return (found or self.answers()) | {"state": list(contents(self.clf))}

    def same(self, found, expected, rtol=0.0):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if rtol and isinstance(value, np.ndarray) and value.dtype.kind == "f":
                np.testing.assert_allclose(found[name], value, rtol=rtol, atol=1e-6)
            elif isinstance(value, list):
                differ = [pair for pair in zip(found[name], value) if pair[0] != pair[1]]
                assert rtol or found[name] == value, (name, differ[:3])
            elif not rtol:
                np.testing.assert_array_equal(found[name], value, err_msg=name)

    @invariant()
    def agrees(self):
        if hasattr(self, "known"):
            found = self.found = self.answers()
            if "classes" in found:
                assert len(set(found["classes"])) == len(found["classes"])
                assert set(found["classes"]) == self.known
            if self.input != "texts" and self.input != "table":
                assert self.clf.n_features_in_ == len(POOL)
            checks = self.ranks if "labels" in found else self.transforms
            checks(found)

    def transforms(self, found):
        """What holds of a transformer."""
        if "assign" in found:
            _, y = self.of_known()
            own = np.array([[label in row for label in found["classes"]] for row in y])
            assert found["transform"].shape == found["assign"].shape == own.shape
            assert (found["assign"] <= own).all()
            assert (found["assign"][::2] + found["assign"][1::2] >= own[::2]).all()
            assert (np.abs(found["transform"]) <= 1 + 1e-5).all()
        elif "ids_of" in found:
            assert found["ids_of"] == self.probe.index.tolist()
            assert found["labels_of"] == self.y_probe.tolist()
            expected = (self.probe["title"] + " " + self.probe["body"]).tolist()
            assert found["transform"].tolist() == expected
        else:
            np.testing.assert_allclose(np.linalg.norm(found["transform"], axis=1), 1, rtol=1e-5)

    def ranks(self, found):
        """What holds of a classifier."""
        classes, scores, topk = (found[name] for name in ("classes", "decision_function", "topk"))
        assert scores.shape == (12, len(classes))
        assert not np.isnan(scores).any()
        order = [[classes.index(label) for label in row] for row in found["labels"].tolist()]
        assert all(sorted(row) == list(range(len(classes))) for row in order)
        by_rank = np.take_along_axis(scores, np.array(order), axis=1)
        if getattr(self.clf, "head", "") != "cascade":  # its beam computes labels of lists apart
            np.testing.assert_allclose(by_rank, topk, rtol=1e-4, atol=1e-4)
        assert (np.diff(topk, axis=1) <= 1e-5).all()
        if "predict_proba" in found:
            probabilities = found["predict_proba"]
            assert (probabilities >= 0).all()
            assert (probabilities <= 1 + 1e-6).all()
            if self.kind.form == "classes":
                np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
        if self.kind.form == "classes":
            assert found["predict"] == found["labels"][:, 0].tolist()
        else:
            assert all(set(row) <= self.known for row in found["predict"])
        if isinstance(getattr(self.clf, "decision_", None), Taxonomy):
            for row in found["predict"]:
                above = set().union(*(ANCESTORS.get(label, ()) for label in row))
                assert above & self.known <= set(row)
        assert "auto" not in map(str, getattr(self.clf, "settings_", {}).values())

    def can_explain(self):
        return hasattr(self, "known") and self.remembers() and self.kind.needs == "sklearn_xlc"

    @precondition(can_explain)
    @invariant()
    def remembers_whom_it_was_told(self):
        found = explain_topk(self.clf, self.probe, k=2, examples=3, n_columns=1, n_steps=1)
        labels = np.broadcast_to(found.labels[..., None], found.examples.shape)
        for name, label in zip(found.examples.ravel(), labels.ravel()):
            assert name is None or label in self.alive[name]


def told(y):
    """The labels of each sample by its name."""
    return {name: {each} if isinstance(each, str) else set(each) for name, each in y.items()}


def in_groups(y):
    """Labels of the groups of two samples, for each sample."""
    pairs = y.groupby(np.arange(len(y)) // 2)
    if isinstance(y.iloc[0], str):
        return pairs.transform("first")
    labels = pairs.agg(lambda rows: sorted({label for row in rows for label in row}))
    return pd.Series(labels.repeat(2).tolist()[: len(y)], index=y.index)


def plain(answer):
    """An answer as an array of numbers, or as a list of labels, label sets or texts."""
    answer = answer.toarray() if sp.issparse(answer) else answer
    is_named = isinstance(answer, np.ndarray) and answer.dtype.kind in "OU"
    return answer.tolist() if is_named else answer


def contents(value, path=""):
    """Names of all that a value holds, with a number, a text or a digest of each."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        parts = [(type(value).__name__, value.__getstate__())]
    else:
        is_plain = isinstance(value, bool | int | str | None)
        yield path, value if is_plain else joblib.hash(value)
        return
    for name, part in parts:
        yield from contents(part, f"{path}.{name}")


def error_of(call):
    try:
        call()
    except ValueError as error:
        return error
    return None


def clone_of(value):
    return clone(value) if hasattr(value, "get_params") else value


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


def test_every_public_estimator_and_part_is_drawn():
    listed = set()
    for line in FILE.read_text().splitlines():
        module, _, name = line.split("(")[0].rpartition(".")
        if name[0].isupper() and module.count(".") < 2:
            found = getattr(importlib.import_module(module), name)
            if isinstance(found, type) and issubclass(found, BaseEstimator | heads.Loss):
                listed.add(found.__name__)
    assert listed - BASES == {each.__name__ for each in classes_drawn()} & listed
    assert BASES <= listed


def test_a_short_life():
    live(5, 8)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_long_life():
    live(int(os.environ.get("SKLEARN_XLC_LIFE", 100)), 25)
