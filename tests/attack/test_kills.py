"""Processes killed at random moments: fits go on from checkpoints, and `save` leaves a whole file.

Kills at random moments seldom hit the writing of a file. So half of the trials end the process
itself at a call of the system that writes, before or after it.
"""

import os
import signal
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import sklearn_xlc
from attack._fits import answers_of, data_of, digest_of, fitted, model_of
from attack._processes import counted, forked
from attack._trials import SEED
from sklearn_xlc.training import WeightAveraging, checkpoints

#: Fits that differ in what a checkpoint must hold.
FITS = [
    ("flat", {"callbacks": [WeightAveraging("ema")]}),
    ("cascade", {"optimizer": "mixed"}),
    ("sampling-corrected", {"optimizer": "adagrad"}),
    ("dft", {"callbacks": [WeightAveraging("swa")], "optimizer": "sgd"}),
    ("etf", {"early_stopping": True}),
    ("bags", {"early_stopping": True, "callbacks": [WeightAveraging("ema")]}),
    ("product", {"callbacks": [WeightAveraging("swa")]}),
    ("pick-all", {"optimizer": "mixed", "callbacks": [WeightAveraging("ema")]}),
    ("cascade-3-heads", {"early_stopping": True, "optimizer": "sgd"}),
    ("sampling-arcface", {"random_state": np.random.RandomState(3)}),
]
WRITES = ("write", "fsync", "replace", "unlink")


def _fit(name, params, folder, die_at=None):
    """Digest of a fit that writes a checkpoint after each epoch."""
    if die_at is not None:
        _die_at(*die_at)
    checkpoints.PAUSE = 0
    warnings.simplefilter("error")  # a checkpoint that cannot be read is warned of
    warnings.filterwarnings("ignore", "no groups")  # of bags of one
    X, y = data_of(name)
    model = model_of(name, **{"max_epochs": 8, **params, "checkpoint": folder})
    return digest_of(model.fit(X, y), X)


def _die_at(name, number, after):
    """Kill this process at a call of `os`, or of `write` of a file, before or after it."""
    left = [number]

    def dying(call):
        def wrapped(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = call(*args, **kwargs)
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        return wrapped

    def opened(*args):
        file = open(*args)
        file.write = dying(file.write)
        return file

    if name == "write":
        sklearn_xlc._files.open = opened
    else:
        setattr(os, name, dying(getattr(os, name)))


def _moment(rng, n_calls, names=WRITES):
    """A call to die at."""
    return names[rng.integers(len(names))], int(rng.integers(n_calls)), bool(rng.integers(2))


def killed_fits(n_kills, seed=SEED):
    """Failures among fits that are killed up to four times before they are left to end."""
    rng = np.random.default_rng(seed)
    kills, trial, failures, known = 0, 0, [], {}
    fitted("flat")  # what fits import is imported once
    while kills < n_kills:
        name, params = FITS[trial % len(FITS)]
        trial += 1
        with tempfile.TemporaryDirectory() as folder:
            if name not in known:
                start = time.perf_counter()
                whole = forked(_fit, name, params, None)
                seconds = time.perf_counter() - start
                known[name] = whole.value, seconds
                if whole.error:
                    failures.append(f"{name}, without checkpoints: {whole.error}")
            right, seconds = known[name]
            history = []
            for _ in range(rng.integers(1, 5)):
                if rng.integers(2):
                    moment = _moment(rng, 24)
                    outcome = forked(_fit, name, params, folder, moment, limit=60.0)
                else:
                    moment = rng.uniform(0, 1.5 * seconds)
                    outcome = forked(_fit, name, params, folder, kill_after=moment)
                history.append((moment, outcome.killed))
                kills += outcome.killed
                if not outcome.killed:
                    break
            if outcome.killed:
                outcome = forked(_fit, name, params, folder)
            rests = [path.name for path in Path(folder).iterdir() if path.suffix == ".pt"]
        if outcome.error or outcome.value != right:
            said = outcome.error or "ends in other bytes than the fit without a break"
            failures.append(f"trial {trial}, {name}, kills {history}: {said}")
        elif len(rests) != 1:
            failures.append(f"trial {trial}, {name}: the finished fit leaves {rests}")
    return kills, failures


def _save_in_turn(models, path, die_at=None):
    if die_at is not None:
        _die_at(*die_at)
    while True:
        for model in models:
            sklearn_xlc.save(model, path, exact=True)


def killed_saves(names, n_kills, seed=SEED):
    """Failures among processes killed while they replace a file by `save`."""
    rng = np.random.default_rng(seed)
    failures = []
    known = {name: ([fitted(name), fitted(name, seed=1)], data_of(name)[0]) for name in names}
    for trial in range(n_kills):
        name = names[trial % len(names)]
        models, X = known[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.skops"
            sklearn_xlc.save(models[0], path, exact=True)
            if trial % 2:
                moment = _moment(rng, 12, WRITES[:3])  # nothing is removed
                outcome = forked(_save_in_turn, models, path, moment)
            else:
                moment = rng.uniform(0, 0.3)
                outcome = forked(_save_in_turn, models, path, kill_after=moment)
            if not outcome.killed:
                failures.append(f"trial {trial}, {name}: {outcome.error}")
            try:
                answers = answers_of(sklearn_xlc.load(path), X)
                assert answers in [answers_of(model, X) for model in models], "answers of neither"
                sklearn_xlc.save(models[1], path, exact=True)
                assert answers_of(sklearn_xlc.load(path), X) == answers_of(models[1], X)
            except Exception as error:
                failures.append(f"trial {trial}, {name}, killed at {moment}: {error!r}")
    return n_kills, failures


test_killed_fits = counted("killed fits", killed_fits, small=(2,), whole=(100,), limit=3600)
test_killed_saves = counted(
    "killed saves",
    killed_saves,
    small=(["flat"], 2),
    whole=(["flat", "cascade", "bags"], 50),
    limit=600,
)
