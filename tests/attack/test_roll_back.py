"""`fit` and `partial_fit` that fail at a random point leave what was there."""

import copy
import inspect
import itertools
import os
import sys
from functools import cache, partial

import numpy as np
import scipy.sparse as sp
import skorch
from skorch.callbacks import Callback
from torch import nn

from attack._models import (
    ESTIMATORS,
    N_LABELS,
    assert_same,
    assert_usable,
    build,
    make_X,
    make_y,
    outputs,
    state,
)
from attack._trials import PACKAGE, Trial, attack
from sklearn_xlc.decisions import Threshold

SKORCH = os.path.dirname(skorch.__file__) + os.sep


class Injected(RuntimeError):
    """An error that no code of the package knows."""


ERRORS = (Injected, KeyboardInterrupt, MemoryError)


class Calls:
    """Counts the calls of functions of the package and of skorch, and raises at some of them."""

    def __init__(self, error=None, at=()):
        self.error, self.at, self.n = error, at, 0
        self.fired = 0

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith((PACKAGE, SKORCH)):
            return
        # Errors of what Python throws away, among them unfinished generators, go no further.
        if code.co_name == "__del__" or code.co_flags & inspect.CO_GENERATOR:
            return
        self.n += 1
        if self.n in self.at:
            self.fired += 1
            sys.setprofile(self if self.n < max(self.at) else None)
            raise self.error

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


def arguments(method, name, multilabel, seed=5):
    """Other data than that of the model."""
    X, y = make_X(seed), make_y(multilabel, seed)
    return (sp.csr_matrix(X), y) if seed % 2 else (X, y)


@cache
def model(name, multilabel):
    """Fitted estimator, to be copied."""
    return build(name).fit(*arguments("fit", name, multilabel, seed=1))


def start(name, multilabel, scenario):
    if scenario == "first fit":
        return build(name)
    estimator = copy.deepcopy(model(name, multilabel))
    return estimator.set_params(warm_start=True) if scenario == "warm start" else estimator


def call(estimator, name, multilabel, scenario):
    X, y = arguments(scenario, name, multilabel)
    if scenario == "partial_fit":
        return estimator.partial_fit(X, y)
    if scenario == "new labels":
        wider = np.hstack([y, y[:, :2]]) if multilabel else y
        return estimator.partial_fit(X, wider, classes=range(N_LABELS + 2))
    if scenario == "removed labels":
        return estimator.remove_labels([1])
    return estimator.fit(X, y)


@cache
def n_calls(name, multilabel, scenario):
    """How many calls the method takes."""
    estimator = start(name, multilabel, scenario)
    with Calls() as calls:
        call(estimator, name, multilabel, scenario)
    return calls.n


@cache
def undisturbed(name, multilabel, scenario):
    """Results of an estimator after the method, to which nothing happens."""
    estimator = start(name, multilabel, scenario)
    return outputs(call(estimator, name, multilabel, scenario), make_X())


def check_after(estimator, before, predicted, name, multilabel, scenario):
    """What an estimator must be after a failed call."""
    X = make_X()
    if scenario == "partial_fit":
        assert_usable(estimator, X, len(X))
        call(estimator, name, multilabel, scenario)
        assert_usable(estimator, X, len(X))
        return
    assert state(estimator) == before, "the failed fit has changed the estimator"
    if scenario == "first fit":
        assert not hasattr(estimator, "classes_")
    else:
        assert_same(outputs(estimator, X), predicted)


def assert_raised(raised, error):
    """The error has come out, or the one that names the encoder or head in which it occurred."""
    found = raised.__cause__ if type(raised) is ValueError else raised
    assert isinstance(found, error), f"{error.__name__} became {raised!r}"


def ended_early(estimator, raised, error, scenario, predicts=True):
    """Whether an interrupt ended the training of a fit after a step, as Ctrl-C does.

    The model says so then, and predicts, unless its encoder goes on to raise.
    """
    if raised is not None or error is not KeyboardInterrupt:
        return False
    assert scenario in ("first fit", "refit", "warm start"), "the interrupt was lost"
    assert getattr(estimator, "estimator_", estimator).net_.interrupted_
    if predicts:
        assert_usable(estimator, make_X(), len(make_X()))
    return True


def interrupt(name, multilabel, scenario, error, moment, gap):
    """Raise at a call, and `gap` calls later; the error comes out, the estimator is as it was."""
    at = [1 + int(moment * n_calls(name, multilabel, scenario))]
    at += [at[0] + gap] if gap else []
    estimator = start(name, multilabel, scenario)
    before = state(estimator)
    predicted = None if scenario == "first fit" else outputs(estimator, make_X())
    raised = None
    with Calls(error, at) as calls:
        try:
            call(estimator, name, multilabel, scenario)
        except BaseException as caught:
            raised = caught
    if raised is None and error is not KeyboardInterrupt:
        # The estimate of memory is given up if it fails; nothing else may come of it.
        assert_same(outputs(estimator, make_X()), undisturbed(name, multilabel, scenario))
        return
    if not calls.fired:  # fewer calls than in the trial run
        assert raised is None
        return
    if ended_early(estimator, raised, error, scenario):
        return
    assert_raised(raised, error)
    check_after(estimator, before, predicted, name, multilabel, scenario)


# --- faults in objects of the user's ----------------------------------------------------------


class BreakingCallback(Callback):
    """Raises at a method of the training loop."""

    def __init__(self, method="on_batch_end", error=Injected):
        self.method, self.error = method, error

    def raise_at(self, method):
        if method == self.method:
            raise self.error

    def on_train_begin(self, net, **kwargs):
        self.raise_at("on_train_begin")

    def on_epoch_end(self, net, **kwargs):
        self.raise_at("on_epoch_end")

    def on_batch_end(self, net, **kwargs):
        self.raise_at("on_batch_end")

    def on_grad_computed(self, net, named_parameters, **kwargs):
        self.raise_at("on_grad_computed")

    def on_train_end(self, net, **kwargs):
        self.raise_at("on_train_end")


class BreakingEncoder(nn.Module):
    """Raises at its n-th batch."""

    n_outputs = 3

    def __init__(self, n=1, error=Injected):
        super().__init__()
        self.layer, self.left, self.error = nn.Linear(make_X().shape[1], 3), n, error

    def forward(self, X):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.layer(X)


class BreakingDecision(Threshold):
    """Raises when it is fitted."""

    def fit(self, scores, Y, **context):
        raise Injected

    def partial_fit(self, scores, Y, **context):
        raise Injected


HOOKS = ["on_train_begin", "on_epoch_end", "on_batch_end", "on_grad_computed", "on_train_end"]


def broken_part(name, multilabel, scenario, error, part):
    """An object of the user's raises."""
    estimator = start(name, multilabel, scenario)
    predicted = None if scenario == "first fit" else outputs(estimator, make_X())
    whole = estimator.get_params(deep=False)
    estimator.set_params(**part)
    before = state(estimator)
    raised = None
    try:
        call(estimator, name, multilabel, scenario)
    except BaseException as caught:
        raised = caught
    if ended_early(estimator, raised, error, scenario, "encoder" not in part):
        return
    assert_raised(raised, error)
    if scenario != "partial_fit":
        assert state(estimator) == before, "the failed fit has changed the estimator"
    estimator.set_params(**{key: whole[key] for key in part})
    check_after(estimator, state(estimator), predicted, name, multilabel, scenario)


def random_part(rng, name, multilabel, scenario, error):
    """Parameter with an object that raises; a fitted network keeps its encoder."""
    parts = [{"callbacks": [BreakingCallback(HOOKS[rng.integers(len(HOOKS))], error)]}]
    if scenario in ("first fit", "refit") and name != "ensemble":
        parts.append({"encoder": BreakingEncoder(int(rng.integers(3)), error), "max_epochs": 3})
    if multilabel and error is Injected:
        parts.append({"decision": BreakingDecision(0.5, scale="score")})
    return parts[rng.integers(len(parts))]


NETS = [case for case in ESTIMATORS if case[0] not in ("eagle", "aggregated")]
SCENARIOS = list(itertools.product(["first fit", "refit", "warm start", "partial_fit"], NETS))
SCENARIOS += itertools.product(["first fit", "refit"], [c for c in ESTIMATORS if c not in NETS])
NO_ROOM, SHARED = ("etf", "product-groups"), ("powerset",)
SCENARIOS += [("new labels", case) for case in NETS if not case[0].startswith(NO_ROOM)]
SCENARIOS += [("removed labels", case) for case in NETS if not case[0].startswith(SHARED)]


@attack(small=10, whole=1200)
def test_roll_back(rng, index):
    """Errors at a random call of the package or of skorch, and in objects of the user's."""
    scenario, (name, multilabel) = SCENARIOS[index % len(SCENARIOS)]
    error = ERRORS[rng.integers(len(ERRORS))]
    title = f"{scenario} of {name} {'multi-label' if multilabel else 'multi-class'}"
    if index % 5 == 0 and (name, multilabel) in NETS and scenario != "removed labels":
        part = random_part(rng, name, multilabel, scenario, error)
        run = partial(broken_part, name, multilabel, scenario, error, part)
        return Trial(f"{title}, {error.__name__} in {list(part)[0]}", run, "result")
    gap = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0  # while the first is dealt with
    moment = rng.random()
    run = partial(interrupt, name, multilabel, scenario, error, moment, gap)
    return Trial(f"{title}, {error.__name__} at {moment:.3f} of all calls, +{gap}", run, "result")
