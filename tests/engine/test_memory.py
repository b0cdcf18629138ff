"""Memory: what is left, what training needs, and refusals before anything is allocated."""

import resource
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from threadpoolctl import threadpool_limits
from torch.overrides import TorchFunctionMode

from _factories import built
from attack._processes import forked
from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    optimizers,
)
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import GLOBAL_LOCK
from sklearn_xlc.encoders import MLP, InputLinear, Text
from sklearn_xlc.engine import memory
from sklearn_xlc.engine.building import head_task
from sklearn_xlc.engine.memory import available_memory, training_bytes, without_weights
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.trainer import Trainer
from sklearn_xlc.engine.validation import TrainingData
from sklearn_xlc.heads import Cascade, Flat, FlatHead
from sklearn_xlc.training import WeightAveraging
from sklearn_xlc.training.scoring import Samples

QUICK = {"encoder": MLP((8,)), "max_epochs": 1, "random_state": 0}
MULTI_LABEL = {
    "flat": MultiHeadClassifier("flat", **QUICK),
    "flat-rank": MultiHeadClassifier(Flat(rank=3), **QUICK),
    "cascade": MultiHeadClassifier(Cascade(embedding_dim=4), **QUICK),
    "dft": DFTSigmoidClassifier(n_slack=3, **QUICK),
    "bottleneck": DFTSigmoidClassifier(n_slack=3, output="bottleneck", **QUICK),
    "etf": ETFNeuralCollapseClassifier(**QUICK),
    "fixed": ETFNeuralCollapseClassifier(feature_dim=8, **QUICK),
    "learned": ETFNeuralCollapseClassifier("learned", feature_dim=8, **QUICK),
    "miml": MIMLClassifier(**QUICK),
}
MULTI_CLASS = {
    "product": MultiHeadClassifier("product", **QUICK),
    "sampling": MultiHeadClassifier("sampling", **QUICK),
}
EVERY = {**MULTI_LABEL, **MULTI_CLASS}


@pytest.fixture(scope="module")
def data():
    X, y = sp.random(40, 30, 0.1, "csr", dtype=np.float32, random_state=0), np.arange(40) % 20
    return X, sp.csr_matrix(np.eye(20, dtype=np.int8)[y]), y


def fitted(name, data, **params):
    X, Y, y = data
    clf = built(EVERY[name], **params)
    return clf.fit(X, Y if name in MULTI_LABEL else y)


# --- available --------------------------------------------------------------------------------


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_memory_of_the_machine(tmp_path):
    root = tree(tmp_path, {"proc/meminfo": "MemTotal:  9 kB\nMemAvailable:    7 kB\n"})
    assert memory._physical_memory(root) == 7 * 1024
    with_swap = "MemAvailable:    7 kB\nSwapTotal:  9 kB\nSwapFree:   5 kB\n"
    assert memory._physical_memory(tree(tmp_path, {"proc/meminfo": with_swap})) == 12 * 1024
    assert memory._physical_memory(tmp_path / "none") > 2**20
    assert available_memory() > 2**20


@pytest.mark.parametrize("inner, left", [("500", 420), ("max", 950), ("2000", 950)])
def test_control_groups_and_their_parents(tmp_path, inner, left):
    group = "sys/fs/cgroup/slice"
    files = {
        "proc/self/cgroup": "0::/slice/job\n",
        f"{group}/memory.max": "1000\n",
        f"{group}/memory.current": "60\n",
        f"{group}/memory.stat": "anon 5\ninactive_file 3\nactive_file 7\n",
        f"{group}/job/memory.max": f"{inner}\n",
        f"{group}/job/memory.current": "80\n",
        f"{group}/job/memory.stat": "inactive_file 0\n",
    }
    assert memory._control_groups(tree(tmp_path, files)) == left


def test_control_groups_of_the_first_version(tmp_path):
    mount = "sys/fs/cgroup/memory"  # as a container sees it, without the path that it is named by
    files = {
        "proc/self/cgroup": "9:cpu,cpuacct:/\n4:memory:/docker/abc\n",
        f"{mount}/memory.limit_in_bytes": "1000\n",
        f"{mount}/memory.usage_in_bytes": "400\n",
        f"{mount}/memory.stat": "inactive_file 1\ntotal_inactive_file 60\ntotal_active_file 40\n",
    }
    assert memory._control_groups(tree(tmp_path, files)) == 700
    assert memory._control_groups(tmp_path / "none") == float("inf")


# --- needed -----------------------------------------------------------------------------------


def test_one_thread_at_a_time_builds_without_weights():
    free = []

    def build():
        thread = threading.Thread(target=lambda: free.append(GLOBAL_LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()

    without_weights(build)
    assert free == [False]


def test_a_module_without_weights_draws_nothing():
    before = torch.get_rng_state()
    head = without_weights(lambda: FlatHead(10**6, 10**6, True))
    assert head.weight.is_meta
    assert head.weight.shape == (10**6, 10**6)
    assert torch.equal(torch.get_rng_state(), before)

    def needs_values():
        return FlatHead(2, int(torch.ones(()).item()), True)

    assert without_weights(needs_values) is None


@pytest.mark.parametrize(
    "rule, momentum", [("adam", 0), ("mixed", 0), ("adagrad", 0), ("sgd", 0), ("sgd", 0.9)]
)
@pytest.mark.parametrize("name", EVERY)
def test_estimate_of_weights_and_optimizer_is_what_training_allocates(data, name, rule, momentum):
    optimizer = optimizers.OPTIMIZERS[rule](**({"momentum": momentum} if momentum else {}))
    params = {"optimizer": optimizer, "learning_rate": 1e-3}
    clf = fitted(name, data, warm_start=True, **params)  # which keeps the optimiser's state
    module = clf.net_.module_
    task = head_task(clf, clf._n_features_out, clf._code)
    planned = without_weights(lambda: clf._build_head(task))
    assert all(parameter.is_meta for parameter in planned.parameters())
    weights, beside = training_bytes(module.encoder, planned, 4, optimizer)
    buffers = list(planned.buffers())
    of_head = sum(p.numel() * 4 for p in module.head.parameters())
    assert weights == of_head + sum(b.numel() * b.element_size() for b in buffers)
    fused = {id(p) for p in module.head.fused_parameters()}
    by_rows = {id(p) for p in (*module.encoder.row_parameters(), *module.head.row_parameters())}
    gradients = sum(
        p.numel() * 4 for p in module.parameters() if id(p) not in fused and id(p) not in by_rows
    )
    state = sum(
        value.numel() * 4
        for values in clf.net_.optimizer_.state.values()
        for key, value in values.items()
        if key != "step"
    )
    assert beside == gradients + state


@pytest.mark.parametrize("name", ["cascade", "sampling"])
def test_gradients_of_row_parameters_are_sparse(data, name):
    clf = fitted(name, data)
    net, rows = clf.net_, Rows(data[0], data[1])
    trainer = Trainer(Plan(clf, TrainingData(rows, clf._code), going_on=True))
    batches = net.get_iterator(Samples(trainer.prepared(rows, net.module_)), training=True)
    net._loss(next(iter(batches))).backward()
    assert all(p.grad.is_sparse for p in net.module_.head.row_parameters())


# --- refused ----------------------------------------------------------------------------------


class Masks(TorchFunctionMode):
    """Notes the sizes of masks."""

    def __init__(self):
        super().__init__()
        self.sizes = [0]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dtype == torch.bool:
            self.sizes.append(found.nelement())
        return found


def test_a_table_of_words_beyond_the_memory_is_refused_before_its_rows_are_counted(monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.building.SMALL", 0)
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda *_: 999)
    clf = MultiHeadClassifier(encoder=Text(2**16, hidden_layer_sizes=(4,)))
    with Masks() as masks, pytest.raises(MemoryError, match="training with 2 labels takes"):
        clf.fit(["a b", "c"], [0, 1])
    assert max(masks.sizes) < 2**10


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_of_a_table_of_words_the_rows_that_are_used_must_fit(method, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.building.SMALL", 0)
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda *_: 10**6)
    encoder = Text(2**14, hidden_layer_sizes=(256,))  # 16 MB in all
    clf = MultiHeadClassifier("flat", encoder=encoder, max_epochs=1, ranker=None)
    classes = {} if method == "fit" else {"classes": [0, 1]}
    getattr(clf, method)(["a b", "c"] * 20, [0, 1] * 20, **classes)
    draws = []
    monkeypatch.setattr(InputLinear, "_draw", draws.append)
    many = [" ".join(f"w{i}" for i in range(n, n + 50)) for n in range(0, 2000, 50)]
    with pytest.raises(MemoryError, match="training with 2 labels takes about"):
        getattr(clone(clf), method)(many, [0, 1] * 20, **classes)
    assert not draws


@pytest.mark.parametrize("name", EVERY)
def test_a_model_beyond_the_memory_is_refused_before_it_is_allocated(data, name, monkeypatch):
    clf = fitted(name, data)
    before = dict(vars(clf))
    monkeypatch.setattr("sklearn_xlc.engine.building.SMALL", 0)
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda *_: 999)
    built = []
    register = torch.nn.Module.register_parameter
    monkeypatch.setattr(
        torch.nn.Module,
        "register_parameter",
        lambda s, n, p: built.append(p is None or p.is_meta) or register(s, n, p),
    )
    with pytest.raises(MemoryError) as caught:
        clf.fit(data[0], data[1] if name in MULTI_LABEL else data[2])
    for part in ("training with 20 labels takes about ", ", of which 999 are available; use ",
                 "hidden_layer_sizes", "optimizer='adagrad'"):  # fmt: skip
        assert part in str(caught.value)
    assert built
    assert all(built)
    assert vars(clf) == before


@pytest.mark.parametrize(
    "params, remedy",
    [
        ({"early_stopping": True}, "early_stopping=False and no WeightAveraging"),
        ({"callbacks": [WeightAveraging("ema")]}, "early_stopping=False and no WeightAveraging"),
        ({"encoder": torch.nn.Linear(30, 8)}, "a narrower encoder"),
        ({"optimizer": optimizers.SGD(momentum=0.5)}, "momentum=0.0, which keeps no second copy"),
        ({}, "head='cascade'"),
        ({"head": "cascade"}, "embedding_dim"),
    ],
)
def test_what_would_help_is_named(data, params, remedy, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.building.SMALL", 0)
    # The default encoder fits, the head does not.
    left = iter([10**9] if "encoder" not in params else [])
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda *_: next(left, 999))
    clf = MultiHeadClassifier(**{"head": "flat", **QUICK, **params})
    with pytest.raises(MemoryError, match=remedy):
        clf.fit(data[0].toarray(), data[1])


def test_a_head_that_needs_values_is_built_without_an_estimate(data):
    class Head(FlatHead):
        def __init__(self, *size):
            super().__init__(*size)
            self.scale = float(torch.ones(()))

    MultiHeadClassifier(head=Head, **QUICK).fit(data[0], data[1])


class Cached(FlatHead):
    """A user's head with a table that all its copies share."""

    table = None
    n_built = 0

    def __init__(self, *size):
        super().__init__(*size)
        Cached.n_built += 1
        if Cached.table is None:
            Cached.table = torch.ones(1)

    def logits(self, inputs, chunk):
        return super().logits(inputs, chunk) * Cached.table


class OwnClassifier(MultiHeadClassifier):
    def _build_head(self, task):
        return Cached(*task.size)


@pytest.mark.parametrize("clf", [MultiHeadClassifier(head=Cached, **QUICK), OwnClassifier(**QUICK)])
def test_a_head_of_the_user_is_built_once_and_then_estimated(data, clf, monkeypatch):
    monkeypatch.setattr(Cached, "n_built", 0)
    monkeypatch.setattr(Cached, "table", None)
    clf.fit(data[0], data[1])
    assert Cached.n_built == 1
    monkeypatch.setattr("sklearn_xlc.engine.building.SMALL", 0)
    # Encoder, encoder and unknown head, encoder and head.
    left = iter([10**9, 10**9, 999])
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda *_: next(left))
    with pytest.raises(MemoryError, match="training with 20 labels takes about"):
        clf.fit(data[0], data[1])


class Failing(torch.nn.Module):
    def __init__(self, message):
        super().__init__()
        self.linear, self.message, self.n_outputs = torch.nn.Linear(30, 4), message, 4

    def forward(self, rows):
        if self.message and (self.training or self.message != "fit"):
            raise RuntimeError(self.message)
        return self.linear(rows)


@pytest.mark.parametrize(
    "text", ["DefaultCPUAllocator: can't allocate memory", "CUDA out of memory"]
)
def test_errors_of_allocators_become_memory_errors(data, text):
    X, Y = data[0].toarray(), data[1]
    with pytest.raises(MemoryError, match="not enough memory for training: .*; use a"):
        MultiHeadClassifier(**{**QUICK, "encoder": Failing(text)}).fit(X, Y)
    clf = MultiHeadClassifier(**{**QUICK, "encoder": Failing("")}).fit(X, Y)
    clf.net_.module_.encoder.message = text
    for method in ("predict", "decision_function", "predict_proba", "transform", "predict_topk"):
        with pytest.raises(MemoryError, match="this prediction: .*; use fewer rows of X"):
            getattr(clf, method)(X)
    clf.net_.module_.encoder.message = "another"
    with pytest.raises(ValueError, match="the encoder Failing failed: another"):
        clf.predict(X)


def test_errors_of_a_gpu_do_not_name_the_memory_of_the_host():
    @memory.memory_explained("training", lambda self: "a smaller batch_size")
    def fit(self):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="for training on the GPU; use a smaller batch_size"):
        fit(None)


# --- under a limit ----------------------------------------------------------------------------


def attempt(said, method, *args, **kwargs):
    """Whether a call fits; if not, it names a remedy."""
    error = None
    try:
        method(*args, **kwargs)
    except MemoryError as refusal:
        error = str(refusal)
    said.append(f"{method.__name__} {'done' if error is None else error}")
    assert error is None or "; use " in error, error
    return error is None


def attempt_all(pairs, n=64):
    """What each call does under a limit of a gibibyte more than this process has."""
    warnings.simplefilter("ignore")
    threadpool_limits(1)  # a thread that cannot start ends the process
    rng, said = np.random.default_rng(0), []
    X = sp.random(n, 1000, 0.02, "csr", dtype=np.float32, random_state=0)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name, n_labels in pairs:
        clf, ids = EVERY[name].set_params(encoder=MLP((64,))), rng.integers(n_labels, size=n)
        if name in MULTI_LABEL:
            Y = sp.csr_matrix((np.ones(n, np.int8), (np.arange(n), ids)), shape=(n, n_labels))
            is_fitted = attempt(said, clf.partial_fit, X, Y)
        else:
            is_fitted = attempt(said, clf.partial_fit, X, ids, classes=np.arange(n_labels))
        for method in ("predict", "decision_function", "predict_proba"):
            if is_fitted and hasattr(clf, method):
                attempt(said, getattr(clf, method), X)
        for k in (5, n_labels // 10, n_labels) if is_fitted else ():
            attempt(said, clf.predict_topk, X, k)
            attempt(said, clf.predict_topk_sparse, X, k)
    return said


PAIRS = [("flat", 10**7), ("flat", 2 * 10**4)]
MORE = [
    *((name, size) for name in EVERY for size in (10**5, 10**6)),
    *((name, 10**7) for name in ("cascade", "product", "miml", "learned")),
]


@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.parametrize(
    "pairs", [PAIRS, *(pytest.param([pair], marks=pytest.mark.slow) for pair in MORE)]
)
def test_under_a_limit_of_one_gibibyte_each_call_fits_or_is_refused(pairs):
    outcome = forked(attempt_all, pairs, limit=600)
    assert not outcome.error
    said = " ".join(outcome.value)
    assert said.count("partial_fit ") == len(pairs)


def test_a_plan_that_fails_leaves_gradients_on():
    def build():
        torch.set_grad_enabled(False)  # as where an error interrupts the end of `no_grad`
        raise RuntimeError

    assert without_weights(build) is None
    assert torch.is_grad_enabled()
