"""Flipped bits and truncation: a damaged file is refused, it never loads to something else."""

import io
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from unittest.mock import patch

import joblib
import numpy as np

import sklearn_xlc
from attack._fits import answers_of, data_of, fitted
from attack._processes import counted, forked
from attack._trials import SEED
from sklearn_xlc.engine import state

SOME = ["flat", "cascade", "dft", "etf", "bags"]
#: Events of Python's audit that tell of code in a file, or of a process, being started.
RUNNING = ("pickle.find_class", "exec", "os.system", "os.exec", "os.posix_spawn")
EXECUTED = []


def _watch(event, args):
    if event in (*RUNNING, "os.spawn", "os.fork", "subprocess.Popen"):
        EXECUTED.append((event, str(args)[:200]))


def _load(path):
    """Model of the file; asserts that loading runs none of its content."""
    EXECUTED.clear()
    try:
        return sklearn_xlc.load(path)
    finally:
        assert not EXECUTED, f"loading executes {EXECUTED[:3]}"


def _damaged(data, rng):
    """A copy of the bytes with one flipped bit, a few, a block of noise, or without its end."""
    kind = ["bit", "bit", "bits", "noise", "cut", "longer"][rng.integers(6)]
    changed = bytearray(data)
    at = int(rng.integers(len(data)))
    if rng.random() < 0.3:  # where the structure is: at the head
        at = int(rng.integers(min(len(data), 4096)))
    if kind == "bit":
        changed[at] ^= 1 << int(rng.integers(8))
    elif kind == "bits":
        for place in rng.integers(len(data), size=5):
            changed[place] ^= 1 << int(rng.integers(8))
    elif kind == "noise":
        changed[at : at + 64] = rng.bytes(len(changed[at : at + 64]))
    elif kind == "cut":
        del changed[at:]
    else:
        changed += bytes(8)
    return kind, at, bytes(changed)


def _described(model):
    """All that a model is: parameters, fitted attributes and weights."""
    pickled = io.BytesIO()
    joblib.dump(model, pickled)
    return pickled.getvalue()


def _known(name, path):
    """Bytes of a file, samples, and what the model in the file says and is."""
    X = data_of(name)[0]
    sklearn_xlc.save(fitted(name), path)
    model = _load(path)
    return path.read_bytes(), X, (answers_of(model, X), _described(model))


def _try(path, right, X):
    """What becomes of a damaged file: "refused", "same" or a failure."""
    warnings.simplefilter("ignore")
    sys.addaudithook(_watch)
    try:
        model = _load(path)
    except AssertionError:
        raise
    except Exception as error:
        if not (isinstance(error, ValueError) and str(path) in str(error)):
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} does not name the file: {error} ({frame})"
        return "refused"
    try:
        if answers_of(model, X) == right[0]:
            return "same" if _described(model) == right[1] else "same answers"
    except Exception as error:
        return f"loads, and then raises {error!r}"
    return "loads silently, and answers otherwise"


@patch.object(state, "SMALL", 1)  # so that models this small are rounded
def damaged_files(names, n_trials, seed=SEED):
    """Failures among damaged files of `save`."""
    rng = np.random.default_rng(seed)
    failures, refused = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.skops"
        known = {name: _known(name, path) for name in names}
        for trial in range(n_trials):
            name = names[trial % len(names)]
            data, X, right = known[name]
            kind, at, changed = _damaged(data, rng)
            path.write_bytes(changed)
            outcome = forked(_try, path, right, X)
            said = outcome.value or outcome.error
            refused += said == "refused"
            if said != "refused":
                failures.append(f"trial {trial}, {name}, {kind} at {at} of {len(data)}: {said}")
    return n_trials, failures, refused


test_damaged_files_of_save = counted(
    "damaged files of save",
    damaged_files,
    small=(["flat"], 10),
    whole=(SOME, 400),
    limit=3600,
)
