"""Forked, spawned and joblib's processes: after a fit on several threads, children answer too.

A fit in a child equals one of the parent with as many threads; a forked child has one.
"""

import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import joblib
import torch

from attack._fits import answers_of, digest_of
from attack._processes import counted, forked
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade
from sklearn_xlc.training import WeightAveraging

#: Wide enough for torch to use both threads.
WIDE = {"encoder": MLP((256,), dropout=0.2), "max_epochs": 2, "batch_size": 500}
#: How a model is trained, by a name for the report.
KINDS = {
    "flat": {"head": "flat"},
    "product": {"head": "product"},
    "cascade": {"head": Cascade(embedding_dim=64)},
    "averaged": {"head": "flat", "callbacks": [WeightAveraging("ema")], "optimizer": "mixed"},
}
#: Seconds until a child counts as hanging; each has work for less than one.
LIMIT = 40.0


def _data():
    return make_extreme_multiclass(1200, 200, 100, random_state=0)


def _fit(kind):
    X, y = _data()
    return MultiHeadClassifier(random_state=0, **WIDE, **KINDS[kind]).fit(X.toarray(), y)


def _digest(kind):
    return digest_of(_fit(kind), _data()[0].toarray())


def _answers(model):
    return answers_of(model, _data()[0].toarray())


def _references(kind):
    """A model, its answers, and digests of its fit with all threads and with one."""
    model = _fit(kind)
    digests = {_digest(kind)}
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    digests.add(_digest(kind))
    torch.set_num_threads(n_threads)
    _fit(kind)  # so that the children are forked from a process whose threads are there
    return model, _answers(model), digests


def _pool_in_child(model):
    """Answers of two children of this one, which is a forked child itself."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return [task.result(LIMIT) for task in [pool.submit(_answers, model)] * 2]


def _in_a_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def children(kinds):
    """Failures among forked children of a process that has fitted on two threads."""
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork")
    count, failures = 0, []
    for kind in kinds:
        model, right, digests = _references(kind)
        trials = {
            "predict": ([right], _answers, model),
            "fit": (digests, _digest, kind),
            "predict in a thread": ([right], _in_a_thread, _answers, model),
            "fit in a thread": (digests, _in_a_thread, _digest, kind),
            "pool of its own": ([[right, right]], _pool_in_child, model),
            "fit, then predict": ([right], lambda: (_fit("flat"), _answers(model))[1]),
        }
        for name, (expected, *call) in trials.items():
            outcome = forked(*call, limit=LIMIT)
            count += 1
            if outcome.error:
                failures.append(f"{kind}, {name}: {outcome.error}")
            elif outcome.value not in expected:
                failures.append(f"{kind}, {name}: differs from the parent")
        if _answers(model) != right or _digest(kind) not in digests:
            failures.append(f"{kind}: the parent itself answers otherwise after its children")
    return count, failures


def pools(kinds, methods):
    """Failures among pools of processes, forked or spawned by the standard library or by joblib."""
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork")
    count, failures = 0, []
    for kind in kinds:
        model, right, digests = _references(kind)
        for method in methods:
            if method == "loky":
                with joblib.Parallel(2, "loky", timeout=3 * LIMIT) as parallel:
                    answers = parallel([joblib.delayed(_answers)(model)] * 4)
                    fits = parallel([joblib.delayed(_digest)(kind)] * 2)
            else:
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    answers = pool.map_async(_answers, [model] * 4).get(3 * LIMIT)
                    fits = pool.map_async(_digest, [kind] * 2).get(3 * LIMIT)
            count += 6
            if answers != [right] * 4:
                failures.append(f"{kind}, {method}: answers differ from the parent")
            if not digests.issuperset(fits):
                failures.append(f"{kind}, {method}: fits differ from the parent")
    return count, failures


test_forked_children = counted(
    "forked children", children, small=None, whole=(list(KINDS),), threads=2
)
test_pools = counted(
    "pools of processes",
    pools,
    small=None,
    whole=(["flat", "cascade"], ["fork", "spawn", "loky"]),
    threads=2,
    limit=3600,
)
