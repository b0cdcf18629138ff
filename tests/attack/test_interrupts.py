"""Ctrl-C at random moments: `fit` leaves the earlier model or, with a warning, a usable one.

`partial_fit` leaves a usable one, too.
"""

import os
import signal
import threading
import time
import warnings

import numpy as np

from attack._fits import answers_of, data_of, digest_of, fitted, model_of
from attack._processes import counted
from attack._trials import SEED
from sklearn_xlc.training import WeightAveraging

SOME = ["flat", "product", "cascade", "sampling", "dft", "etf", "pick-all", "bags"]
#: Long enough to be interrupted: tenths of a second.
LONG = {"max_epochs": 6, "callbacks": [WeightAveraging("ema")]}


class Interrupts:
    """Sends signals to this process in a while, and counts those that arrive while armed."""

    def __init__(self, delays):
        self.delays, self.arrived, self.armed = delays, 0, True
        self.before = signal.signal(signal.SIGINT, self._handle)
        self.sender = threading.Thread(target=self._send)
        self.sender.start()

    def _send(self):
        for delay in self.delays:
            time.sleep(delay)
            os.kill(os.getpid(), signal.SIGINT)

    def _handle(self, number, frame):
        self.arrived += 1
        if self.armed:
            raise KeyboardInterrupt

    def wait(self):
        """Wait for the last signal; two that arrive at once are one."""
        self.armed = False
        self.sender.join(60)
        signal.signal(signal.SIGINT, self.before)


def interrupted(action, delays):
    """How an action ended: "raised" KeyboardInterrupt, "warned" of one, or None if before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        signals, ended = Interrupts(delays), None
        try:
            try:
                action()
                warned = [w for w in caught if "interrupted by user" in str(w.message)]
                if warned:
                    ended = "warned"
                elif signals.arrived > 0:
                    ended = "swallowed"
            except KeyboardInterrupt:
                ended = "raised"
            signals.wait()
        except KeyboardInterrupt:  # the first after the action, or the second
            signals.wait()
    assert ended != "swallowed", "the interrupt was swallowed"
    return ended


def _duration(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _check_usable(model, X):
    scores = model.predict_topk(X)[1]
    assert np.isfinite(scores).any(), "no finite score"
    assert not np.isnan(scores).any(), "NaN among the scores"
    before = answers_of(model, X)
    assert answers_of(model, X) == before, "answers change from call to call"


def interrupted_fits(n_trials, seed=SEED):
    """Failures among fits that are interrupted, once or twice in quick succession."""
    rng = np.random.default_rng(seed)
    count, failures = 0, []
    for trial in range(n_trials):
        name = SOME[trial % len(SOME)]
        X, y = data_of(name)
        model = fitted(name).set_params(**LONG)
        before, parts = digest_of(model, X), dict(vars(model))
        twin = model_of(name, **LONG)
        seconds = _duration(lambda: twin.fit(X, y))
        delays = [rng.uniform(0, seconds), *rng.uniform(0, 0.003, size=trial % 2)]
        try:
            ended = interrupted(lambda: model.fit(X, y), delays)
            if ended is None:
                continue
            count += 1
            if ended == "raised":
                changed = [key for key, value in parts.items() if vars(model).get(key) is not value]
                changed += set(vars(model)) - set(parts)
                assert not changed, f"attributes have changed: {changed}"
                assert digest_of(model, X) == before, "the earlier model answers otherwise"
            else:
                _check_usable(model, X)
                assert np.isfinite(model.loss_curve_).all(), "the loss curve is not finite"
                assert len(model.history_) == len(model.loss_curve_) == model.n_iter_
            assert digest_of(model.fit(X, y), X) == digest_of(twin, X), "the next fit differs"
        except Exception as error:
            failures.append(f"trial {trial}, fit of {name}, {delays}: {error!r}")
    return count, failures


def interrupted_passes(n_trials, seed=1):
    """Failures among calls of `partial_fit` that are interrupted."""
    rng = np.random.default_rng(seed)
    count, failures = 0, []
    for trial in range(n_trials):
        name = SOME[trial % len(SOME)]
        X, y = data_of(name)
        model = fitted(name, batch_size=4)
        seconds = _duration(lambda: model.partial_fit(X, y))
        delays = [rng.uniform(0, seconds), *rng.uniform(0, 0.003, size=trial % 2)]
        try:
            ended = interrupted(lambda: model.partial_fit(X, y), delays)
            if ended is None:
                continue
            assert ended == "raised", "partial_fit went on"
            count += 1
            _check_usable(model, X)
            model.partial_fit(X, y)
            assert np.isfinite(model.loss_curve_).all(), "the next pass is not finite"
        except Exception as error:
            failures.append(f"trial {trial}, partial_fit of {name}, {delays}: {error!r}")
    return count, failures


test_interrupted_fits = counted(
    "Ctrl-C in fit", interrupted_fits, small=(2,), whole=(60,), limit=3600
)
test_interrupted_passes = counted(
    "Ctrl-C in partial_fit", interrupted_passes, small=(2,), whole=(60,), limit=3600
)
