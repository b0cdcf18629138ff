"""Processes with little memory: a model fits, or is refused by a MemoryError with a remedy."""

import resource

import numpy as np
import scipy.sparse as sp

from attack._fits import fitted, model_of
from attack._processes import counted, forked
from attack._trials import is_clear

#: Heads and numbers of labels: 22 pairs.
MULTI_LABEL = ["flat", "cascade", "dft", "etf", "pick-all", "bags"]
PAIRS = [(name, 10**power) for name in MULTI_LABEL for power in (5, 6, 7)]
PAIRS += [(name, 10**power) for name in ("product", "sampling") for power in (5, 6)]
#: Bytes that a process may still take.
ROOM = [2**26, 2**28, 2**30]


def _limit(room):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _try(name, n_labels, room):
    """What becomes of a fit and of predictions, or of the first of them that is refused."""
    X = sp.random(40, 300, 0.1, format="csr", random_state=0, dtype=np.float32)
    rng = np.random.default_rng(0)
    labels = rng.integers(n_labels, size=40)
    Y = sp.csr_matrix((np.ones(40, np.int8), labels, np.arange(41)), shape=(40, n_labels))
    model = model_of(name, max_epochs=1)
    _limit(room)
    steps = {
        "fit": lambda: model.fit(X, Y),
        "predict_topk": lambda: model.predict_topk(X),
        "predict": lambda: model.predict(X),
        "decision_function": lambda: model.decision_function(X),
    }
    if name in ("product", "sampling"):
        steps["fit"] = lambda: model.partial_fit(X, labels, classes=np.arange(n_labels))
    for step, run in steps.items():
        try:
            run()
        except MemoryError as error:
            if not (is_clear(error) and type(error) is MemoryError and "use" in str(error)):
                raise
            if step == "fit":
                return f"{step} is refused"
    return "fits"


def limited(pairs, rooms):
    """Failures among fits and predictions in processes with that many bytes left."""
    count, failures = 0, []
    for name in {name for name, _ in pairs}:
        fitted(name)  # what fits import is imported once
    for name, n_labels in pairs:
        for room in rooms:
            outcome = forked(_try, name, n_labels, room, limit=120)
            count += 1
            if outcome.error:
                failures.append(f"{name}, {n_labels} labels, {room} bytes: {outcome.error[-1500:]}")
    return count, failures


test_memory_limits = counted(
    "memory limits", limited, small=(PAIRS[1:2], [2**28]), whole=(PAIRS, ROOM), limit=3600
)
