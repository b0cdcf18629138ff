"""The second network of "refit", beside the first one or after it."""

import signal
import threading
import time

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import sklearn_xlc
from _factories import make_learnable, named
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc._config import memory_limit
from sklearn_xlc.batches.threads import beside
from sklearn_xlc.encoders import MLP
from sklearn_xlc.ranking import Calibration
from sklearn_xlc.training import WeightAveraging
from sklearn_xlc.training.net import XLCNet

PARAMS = {
    "ranker": "calibration",
    "validation_fraction": "refit",
    "max_epochs": 3,
    "random_state": 0,
}


class OfOthers(Calibration):
    pass


@pytest.fixture
def seen(monkeypatch):
    """Threads in which a calibration is fitted, and a setting there."""
    fit, found = Calibration.fit, []

    def watched(self, *args, **rest):
        found.append((threading.current_thread(), memory_limit()))
        return fit(self, *args, **rest)

    monkeypatch.setattr(Calibration, "fit", watched)
    return found


@pytest.fixture
def data():
    return make_learnable(True)


@pytest.fixture
def threads():
    """Set the number of threads of torch."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "n_threads, params, is_beside",
    [
        (1, {}, False),
        (2, {}, True),
        (2, {"verbose": 1}, False),
        (2, {"callbacks": [WeightAveraging("swa")]}, False),
        (2, {"ranker": OfOthers()}, False),
        (2, {"encoder": MLP((8,))}, True),
        (2, {"encoder": nn.Sequential(nn.Linear(60, 8), nn.Tanh())}, True),
        (2, {"encoder": nn.Sequential(nn.Linear(60, 8), nn.RReLU())}, False),
    ],
    ids=named,
)
def test_it_is_the_same_beside_and_after(data, threads, n_threads, params, is_beside, seen):
    X = data[0].toarray() if "encoder" in params else data[0]

    def fitted():
        seen.clear()
        return MultiHeadClassifier(**PARAMS | params).fit(X, data[1])

    threads(1)
    expected = fitted().predict_proba(X)
    threads(n_threads)
    with sklearn_xlc.config_context(working_memory=7):
        found = fitted()
    np.testing.assert_array_equal(found.predict_proba(X), expected)
    assert torch.get_num_threads() == n_threads
    assert {limit for _, limit in seen} == {7 * 2**20}
    is_main = {thread is threading.main_thread() for thread, _ in seen}
    assert is_main == {not is_beside}


def test_it_is_the_same_where_memory_does_not_hold_both(data, threads, seen, monkeypatch):
    threads(2)
    expected = MultiHeadClassifier(**PARAMS).fit(*data).predict_proba(data[0])
    monkeypatch.setattr("sklearn_xlc.engine.second.available_memory", lambda: 2**10)
    seen.clear()
    found = MultiHeadClassifier(**PARAMS).fit(*data).predict_proba(data[0])
    np.testing.assert_array_equal(found, expected)
    assert {thread for thread, _ in seen} == {threading.main_thread()}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_what_fails_in_it_fails_the_fit(data, threads, n_threads, monkeypatch):
    def fail(self, *args, **rest):
        raise RuntimeError("no line today")

    threads(n_threads)
    clf = MultiHeadClassifier(**PARAMS).fit(*data)
    expected = clf.predict_proba(data[0])
    monkeypatch.setattr(Calibration, "fit", fail)
    with pytest.raises(RuntimeError, match="no line today"):
        clf.fit(*data)
    np.testing.assert_array_equal(clf.predict_proba(data[0]), expected)


@pytest.fixture
def at_step(monkeypatch):
    """Call a function in the third step of the first network, where the second one has begun."""

    def of(function):
        step, n_steps = XLCNet.train_step, []
        going = threading.Event()

        def counted(self, *args, **rest):
            if threading.current_thread() is not threading.main_thread():
                going.set()
                time.sleep(0.01)  # it would take seconds
                return step(self, *args, **rest)
            n_steps.append(0)
            if len(n_steps) == 3:
                assert going.wait(10)
                function()
            return step(self, *args, **rest)

        monkeypatch.setattr(XLCNet, "train_step", counted)

    return of


def test_an_error_in_the_first_network_ends_it(data, threads, at_step):
    def fail():
        raise RuntimeError("the first one")

    threads(2)
    at_step(fail)
    clf, start = MultiHeadClassifier(**PARAMS | {"max_epochs": 1000}), time.perf_counter()
    with pytest.raises(RuntimeError, match="the first one"):
        clf.fit(*data)
    assert time.perf_counter() - start < 8
    with pytest.raises(NotFittedError):
        clf.predict(data[0])


def test_an_interrupt_of_the_first_network_ends_it(data, threads, at_step):
    threads(2)
    at_step(lambda: signal.raise_signal(signal.SIGINT))
    clf, start = MultiHeadClassifier(**PARAMS | {"max_epochs": 1000}), time.perf_counter()
    with pytest.warns(UserWarning, match="Training interrupted by user in epoch 3 of 1000"):
        clf.fit(*data)
    assert time.perf_counter() - start < 8
    assert clf.predict(data[0]).shape == data[1].shape


def test_a_late_interrupt_ends_it(data, threads, monkeypatch):
    """The first network has ended, and the fit waits for the second one."""
    step = XLCNet.train_step

    def slow(self, *args, **rest):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)
            if getattr(clf, "n_iter_", 0) == 40:  # the first network has ended
                monkeypatch.setattr(XLCNet, "train_step", step)
                signal.raise_signal(signal.SIGINT)
        return step(self, *args, **rest)

    threads(2)
    monkeypatch.setattr(XLCNet, "train_step", slow)
    clf = MultiHeadClassifier(**PARAMS | {"max_epochs": 40})
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*data)
    with pytest.raises(NotFittedError):
        clf.predict(data[0])


def test_all_is_done_when_the_block_ends():
    began, cancelled = threading.Event(), threading.Event()

    def function():
        began.set()
        return cancelled.wait(10)

    def fail():
        with beside(function, cancelled.set) as result:
            results.append(result)
            assert began.wait(10)
            raise RuntimeError("the caller")

    results = []
    with pytest.raises(RuntimeError, match="the caller"):
        fail()
    assert results[0]() is True
