"""A disk that is full: an OSError names the path, and what was there before is whole."""

import resource
import tempfile
from pathlib import Path

import numpy as np

import sklearn_xlc
from attack._fits import answers_of, data_of, digest_of, fitted, model_of
from attack._processes import counted, forked
from attack._trials import SEED
from sklearn_xlc.training import WeightAveraging, checkpoints

SOME = ["flat", "cascade", "bags"]
FIT = {"max_epochs": 6, "callbacks": [WeightAveraging("ema")]}


def _limit(size):
    """No file of this process may grow beyond that many bytes; Python turns it into an OSError."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _save(model, path, size):
    """Message of the OSError that `save` raises for want of room, None if there is enough."""
    _limit(size)
    try:
        sklearn_xlc.save(model, path, exact=True)
    except OSError as error:
        return str(error)
    return None


def _fit(name, folder, size=None):
    """Digest of a fit with checkpoints, or the message of its OSError."""
    checkpoints.PAUSE = 0
    X, y = data_of(name)
    earlier = fitted(name, seed=7)
    before = digest_of(earlier, X)
    model = earlier.set_params(**FIT, checkpoint=folder, random_state=0)
    if size is not None:
        _limit(size)
    try:
        return digest_of(model.fit(X, y), X)
    except OSError as error:
        assert digest_of(model, X) == before, "the earlier model answers otherwise"
        return f"OSError: {error}"


def saves(names, n_trials, seed=SEED):
    """Failures among calls of `save` on a full disk."""
    rng = np.random.default_rng(seed)
    failures = []
    models = {name: (fitted(name), fitted(name, seed=1), data_of(name)[0]) for name in names}
    for trial in range(n_trials):
        name = names[trial % len(names)]
        old, new, X = models[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.skops"
            sklearn_xlc.save(new, path, exact=True)
            needed = path.stat().st_size
            sklearn_xlc.save(old, path, exact=True)
            whole = path.read_bytes()
            size = {0: 0, 5: needed - 1}.get(trial % 10, int(rng.integers(needed)))
            outcome = forked(_save, new, path, size)
            said = outcome.error or outcome.value or "nothing is raised"
            if str(path) not in said or outcome.error:
                failures.append(f"trial {trial}, {name}, {size} of {needed} bytes: {said}")
            same = path.read_bytes() == whole
            if not same or answers_of(sklearn_xlc.load(path), X) != answers_of(old, X):
                failures.append(f"trial {trial}, {name}, {size} bytes: the old file has changed")
            if len(list(Path(folder).iterdir())) > 1:
                failures.append(f"trial {trial}, {name}, {size} bytes: a part of a file is left")
    return n_trials, failures


def fits(names, n_trials, seed=SEED):
    """Failures among fits whose checkpoints find no room, at once or after the first ones."""
    rng = np.random.default_rng(seed)
    failures, known = [], {}
    for trial in range(n_trials):
        name = names[trial % len(names)]
        with tempfile.TemporaryDirectory() as folder:
            if name not in known:
                right = digest_of(model_of(name, **FIT).fit(*data_of(name)), data_of(name)[0])
                assert _fit(name, folder) == right
                sizes = [path.stat().st_size for path in Path(folder).glob("*.pt")]
                known[name] = right, max(sizes)
        right, largest = known[name]
        with tempfile.TemporaryDirectory() as folder:
            size = int(rng.integers(largest - 1))
            said = forked(_fit, name, folder, size)
            message = said.error or said.value
            if said.error or not message.startswith("OSError") or folder not in message:
                failures.append(f"trial {trial}, {name}, {size} of {largest} bytes: {message}")
            if any(path.suffix == ".tmp" for path in Path(folder).iterdir()):
                failures.append(f"trial {trial}, {name}, {size} bytes: a part of a file is left")
            after = forked(_fit, name, folder)
            if after.value != right:
                failures.append(
                    f"trial {trial}, {name}, {size} bytes: with room again, "
                    f"{after.error or 'the fit ends in other bytes'}"
                )
    return n_trials, failures


test_saves_on_a_full_disk = counted(
    "saves on a full disk", saves, small=(["flat"], 3), whole=(SOME, 50), limit=3600
)
test_fits_on_a_full_disk = counted(
    "fits on a full disk", fits, small=(["flat"], 1), whole=(SOME, 30), limit=3600
)
