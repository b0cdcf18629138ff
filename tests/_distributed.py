"""Programs that several processes run together, found by the variables that torchrun sets.

`together` starts them and returns what each has found; ``python -m _distributed NAME FOLDER GIVEN``
loads torch once, forks the processes, and runs one of the functions below that have `program` on
them.
"""

import contextlib
import gc
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import skops.io  # noqa: F401 - loaded once, before the processes are forked
import torch
from sklearn.base import clone

import sklearn_xlc
from _factories import make_learnable, quick
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.distributed import processes, sharing
from sklearn_xlc.training import WeightAveraging, XLCNet, checkpoints

_PATHS = [str(Path(sklearn_xlc.__file__).parents[1]), str(Path(__file__).parent)]
_PROGRAMS = {}


def together(name, n_processes=2, folder=None, timeout=300, **arguments):
    """Run a program in several processes.

    Parameters
    ----------
    name : str
        Name of the program.
    n_processes : int
        Number of processes.
    folder : path, default=None
        Folder for the results. None: a new one.
    timeout : float
        Seconds after which the processes are killed.
    **arguments
        Arguments of the program, as JSON holds them.

    Returns
    -------
    list of (returncode, result, stderr)
        Of each process; no result (None) where it has ended early.

    Raises
    ------
    subprocess.TimeoutExpired
        If they take longer.
    """
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as found:
        folder = Path(folder or scratch)
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        found.close()
        given = json.dumps(arguments)
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(_PATHS),
            "WORLD_SIZE": str(n_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = [sys.executable, "-m", "_distributed", name, str(folder), given]
        start = subprocess.Popen(command, env=env, start_new_session=True)
        try:
            start.wait(timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(start.pid, signal.SIGKILL)
            start.wait()
        found = []
        for rank, code in enumerate(json.loads((folder / "codes.json").read_text())):
            path = folder / f"{name}-{rank}.json"
            result = json.loads(path.read_text()) if path.exists() else None
            found.append((code, result, path.with_suffix(".stderr").read_text()))
        return found


def program(function):
    """Make a function of the folder a program that `together` runs."""
    _PROGRAMS[function.__name__] = function
    return function


class ThreadsGroup:
    """What the package calls of torch.distributed, between threads that play processes."""

    def __init__(self, size):
        self.size, self.of_thread = size, threading.local()
        self.barrier, self.sent = threading.Barrier(size), [None] * size
        self.lines = {(i, j): queue.Queue() for i in range(size) for j in range(size)}

    def _exchanged(self, value):
        self.sent[self.of_thread.rank] = value
        self.barrier.wait(timeout=60)
        received = list(self.sent)
        self.barrier.wait(timeout=60)
        return received

    def all_reduce(self, tensor):
        parts = self._exchanged(tensor.clone())
        tensor.copy_(sum(parts[1:], parts[0]))

    def all_gather_single(self, out, part):
        out.copy_(torch.cat(self._exchanged(part)))

    def broadcast(self, tensor, src):
        tensor.copy_(self._exchanged(tensor.clone())[src])

    def is_available(self):
        return True

    is_initialized = is_available

    def get_world_size(self):
        return self.size

    def get_rank(self):
        return self.of_thread.rank

    def send(self, tensor, dst):
        self.lines[self.of_thread.rank, dst].put(tensor.clone())

    def recv(self, tensor, src):
        tensor.copy_(self.lines[src, self.of_thread.rank].get(timeout=60))

    def scatter(self, out, parts, src):
        out.copy_(self._exchanged(parts)[src][self.of_thread.rank])

    def all_gather_object(self, values, value):
        values[:] = self._exchanged(value)

    def broadcast_object_list(self, values):
        values[:] = self._exchanged(list(values))[0]


def in_threads(monkeypatch, size, function):
    """Results of ``function(Processes(rank, size))`` in threads that talk to each other."""
    group = ThreadsGroup(size)
    monkeypatch.setattr(processes, "_group", lambda: group)
    results = [None] * size

    def run(rank):
        group.of_thread.rank = rank
        try:
            results[rank] = function(processes.Processes(rank, size))
        except BaseException:
            group.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        for done in [pool.submit(run, rank) for rank in range(size)]:
            done.result()
    return results


# --- programs -----------------------------------------------------------------------------------


def _far(found, expected):
    """Largest difference, relative to the largest number."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(1e-300, np.abs(expected).max()))


def _small(name, **params):
    """Small classifier in float64, of several batches with dropout."""
    small = {
        "max_epochs": 2,
        "batch_size": 49,  # the last one has a sample less than two processes need
        "ranker": None,
    }
    if "encoder" not in params:
        small |= {"encoder__hidden_layer_sizes": (24,), "encoder__dropout": 0.25}
    return quick(name, **small | params)


def _alone():
    """Fits within it are those of this process alone."""
    return sklearn_xlc.config_context(distributed=False)


def _data(multilabel):
    return make_learnable(multilabel, n_rows=99)


class _Counted:
    """Messages and bytes of each training step, as the package gives them to torch."""

    def __init__(self, monkeypatch):
        self.steps, self.on = [], False
        take_step = XLCNet._take_step

        def counted_step(net, batch):
            self.steps.append([])
            self.on = True
            try:
                return take_step(net, batch)
            finally:
                self.on = False

        def counted(name):
            method = getattr(processes.Processes, name)

            def call(these, tensor, *args):
                if self.on:
                    self.steps[-1].append(tensor.nbytes)
                return method(these, tensor, *args)

            monkeypatch.setattr(processes.Processes, name, call)

        monkeypatch.setattr(XLCNet, "_take_step", counted_step)
        for name in ("sum", "joined", "take_first", "objects", "of_first"):
            counted(name)

    def of_largest_step(self):
        """Bytes of each message of the step with most of them."""
        return max(self.steps, key=sum)


@program
def fits(folder, kinds, ways):
    """How far classifiers that are fitted together are from those fitted alone.

    Each kind ends with the form of X: "dense", "sparse", or "apart", which is sparse, and each
    process computes the features of its own samples only, whatever the encoder costs. And how far
    those are that begin alone, and are trained further together in each of some ways.
    """
    rank, _ = sklearn_xlc.distributed.init(timeout=60)
    found = {}
    for name, multilabel, form in kinds:
        X, y = _data(multilabel)
        if form != "dense":  # few enough entries for batches of CSR rows
            X = X.toarray() if sp.issparse(X) else X
            X = sp.csr_matrix(X * (np.abs(X) > np.quantile(np.abs(X), 0.92)))
        given = {"groups": np.arange(99) // 2} if name.startswith("bags") else {}
        y = y[::2] if given else y
        with _alone():
            alone = _small(name).fit(X, y, **given)
        with pytest.MonkeyPatch.context() as monkeypatch:
            if form == "apart":
                monkeypatch.setattr(sharing, "_PER_BYTE", 0)
            counted = _Counted(monkeypatch)
            clf = _small(name).fit(X, y, **given)
        ids, scores = clf.predict_topk(X, 4, **given)
        expected_ids, expected = alone.predict_topk(X, 4, **given)
        whole = sklearn_xlc.distributed.gather(clf)
        found[f"{name}-{multilabel}-{form}"] = {
            "losses": _far(clf.loss_curve_, alone.loss_curve_),
            "scores": _far(scores, expected),
            "labels": float(np.mean(np.asarray(ids) == np.asarray(expected_ids))),
            "gathered": _far(
                whole.decision_function(X, **given), alone.decision_function(X, **given)
            ),
            "n_parameters": [clf.n_parameters_, alone.n_parameters_],
            "weights": _n_weights(clf) / _n_weights(whole),
            "sent": counted.of_largest_step(),
            "parts": _is_parted(clf),
        }
        for way in ways:
            path = folder / f"{name}-{multilabel}-{way}-{rank}.skops"
            pair = [_gone_on(way, alone, path, d, X, y, given) for d in ("auto", False)]
            scores = [each.predict_topk(X, 4, **given)[1] for each, _ in pair]
            found[f"{name}-{multilabel}-{form}"][way] = {
                "losses": _far(*(each.loss_curve_ for each, _ in pair)),
                "scores": _far(*scores),
                "parts": [_is_parted(each) for each, _ in pair],
                "grown": [grown for _, grown in pair],
            }
    return found


def _with_other_labels(clf, X, y, given):
    """A classifier to which labels come, of which some go, and come again, and whether they can.

    Where the labels of the head stay, or none can go, it is trained further on those it has.
    """
    clf.partial_fit(X, y, **given)
    names = clf.classes_
    if clf._code.multilabel:
        later, more = sp.hstack([y, y[:, :3]], "csr"), np.arange(len(names) + 3)
    else:
        later, more = y.copy(), np.array([*names, *names.max() + [1, 2, 3]])
        later[:30] = more[-np.arange(1, 31) % 3 - 3]
    try:
        clf.partial_fit(X, later, classes=more, **given)
        clf.remove_labels(more[[2, 9, -1]])
    except ValueError as error:
        if "has room for" not in str(error) and "cannot leave a label out" not in str(error):
            raise
        has_grown = len(clf.classes_) > len(names)  # but no label can be left out
        return clf.partial_fit(X, later if has_grown else y, **given), has_grown
    before = clf.predict_topk(X, 3, **given)[0]
    assert not np.isin(before, more[[2, 9, -1]]).any()
    kept = np.delete(np.arange(len(more)), [2, 9, len(more) - 1])
    if clf._code.multilabel:
        return clf.partial_fit(X, later[:, kept], **given), True
    clf.partial_fit(X, np.where(np.isin(later, more[kept]), later, more[0]), **given)
    return clf.partial_fit(X, later, classes=more, **given), True


def _is_parted(clf):
    return bool(clf.net_.module_.head.sharded_parameters())


def _gone_on(way, alone, path, distributed, X, y, given):
    """A classifier that was fitted alone, trained further in one of four ways; has it more labels?

    "grown" begins as "loaded" does.
    """
    if way == "steps":  # the optimiser has moments
        with _alone():
            clf = clone(alone).partial_fit(X, y, classes=alone.classes_, **given)
    else:
        sklearn_xlc.save(alone, path, exact=True)
        joblib.dump(alone, f"{path}.joblib")
        mapped = way == "mapped"
        clf = joblib.load(f"{path}.joblib", mmap_mode="r") if mapped else sklearn_xlc.load(path)
    with sklearn_xlc.config_context(distributed=distributed):
        if way == "grown":
            return _with_other_labels(clf, X, y, given)
        if way == "warm":
            return clf.set_params(warm_start=True).fit(X, y, **given).fit(X, y, **given), False
        return clf.partial_fit(X, y, **given).partial_fit(X, y, **given), False


def _n_weights(clf):
    """Number of weights of the head that this process holds."""
    return sum(p.numel() for p in clf.net_.module_.head.parameters())


@program
def everything(folder, kinds, ways):
    """Fits, files, checkpoints, foreign encoders, partial_fit, and what is refused."""
    import pickle

    from skorch.callbacks import Callback, Checkpoint, GradientNormClipping

    rank, n_processes = sklearn_xlc.distributed.init(timeout=60)
    X, Y = _data(True)
    found = {"joined": [rank, n_processes], "fits": fits(folder, kinds, ways)}

    with _alone():
        alone = _small("flat", early_stopping=True, max_epochs=2).fit(X, Y)
    clf = _small("flat", early_stopping=True, max_epochs=2, random_state=0).fit(X, Y)
    valid = [[row["valid_loss"] for row in each.history_] for each in (clf, alone)]
    found["valid"] = _far(*valid)
    found["pickle"] = _refusal(lambda: pickle.dumps(clf))
    found["explained"] = _refusal(lambda: clf.net_.module_.head.label_vectors())

    path = folder / "model.skops"
    sklearn_xlc.save(clf, path, exact=True)
    loaded = sklearn_xlc.load(path)
    found["file"] = _far(loaded.decision_function(X), alone.decision_function(X))
    sklearn_xlc.save(alone, folder / f"alone-{rank}.skops", exact=True)
    sizes = [file.stat().st_size for file in (path, folder / f"alone-{rank}.skops")]
    found["bytes"] = sizes[0] - sizes[1]

    class Stop(Callback):
        """The same in both fits: checkpoints are found by the parameters."""

        def on_epoch_begin(self, net, **kwargs):
            if "STOP" in os.environ and len(net.history) == 3:
                raise RuntimeError("stopped by the test")
            self.n_begun = getattr(self, "n_begun", 0) + 1

    checkpoints.PAUSE = 0
    kept = {"checkpoint": folder / "checkpoints"}
    copies = {
        "flat": {"callbacks": [WeightAveraging("ema")]},
        "cascade": {"callbacks": [], "early_stopping": True},
    }
    os.environ["STOP"] = ""
    for name, params in copies.items():  # callbacks hold copies of the weights
        params |= {"max_epochs": 4, "learning_rate": 0.1}
        stopped = _small(name, **{**kept, **params, "callbacks": [*params["callbacks"], Stop()]})
        found[f"stop-{name}"] = _refusal(lambda clf=stopped: clf.fit(X, Y))
    found["checkpoints"] = sorted(p.name for p in kept["checkpoint"].iterdir())
    del os.environ["STOP"]
    for name, params in copies.items():
        with _alone():
            expected = _small(name, **params).fit(X, Y)
        resumed = _small(name, **{**kept, **params, "callbacks": [*params["callbacks"], Stop()]})
        resumed.fit(X, Y)
        n_begun = [c.n_begun for _, c in resumed.net_.callbacks_ if isinstance(c, Stop)]
        found[f"begun-{name}"] = n_begun
        found[f"resumed-{name}"] = [
            _far(resumed.loss_curve_, expected.loss_curve_),
            _far(resumed.predict_topk(X, 3)[1], expected.predict_topk(X, 3)[1]),
        ]
        found[f"epochs-{name}"] = [row.get("epoch") for row in resumed.history_]

    twice = {"max_epochs": 1, "warm_start": True}
    together_ = _small("flat", checkpoint=folder / "twice", **twice).fit(X, Y).fit(X, Y)
    names = sorted(path.name for path in (folder / "twice").iterdir())
    copy = folder / f"twice-{rank}"
    shutil.copytree(folder / "twice", copy)
    with _alone():
        again = _small("flat", checkpoint=copy, **twice).fit(X, Y).fit(X, Y)
    found["twice"] = _far(again.loss_curve_, together_.loss_curve_)
    found["twice: files"] = [len(names), names == sorted(path.name for path in copy.iterdir())]

    first = _small("flat").partial_fit(X, Y).partial_fit(X, Y)
    with _alone():
        second = _small("flat").partial_fit(X, Y).partial_fit(X, Y)
    found["partial"] = _far(first.predict_topk(X, 3)[1], second.predict_topk(X, 3)[1])

    def encoder(n):
        return torch.nn.Sequential(torch.nn.Linear(n, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5))

    drawing = _small("flat", encoder=encoder, head__n_negatives=3, random_state=None).fit(X, Y)
    weights = drawing.net_.module_.encoder[0].weight.sum().item()
    found["drawing"] = weights  # equal in all processes
    found["other data"] = _refusal(lambda: _small("flat").fit(X[: 90 - rank], Y[: 90 - rank]))
    weights = np.arange(1.0, 91.0)[:: 1 - 2 * rank]
    one_weight, one_value = np.ones(90), X[:90].copy()
    one_weight[17] += rank
    one_value.data[1234] += rank
    found["other samples"] = [
        _refusal(lambda: _small("flat").fit(X[:90], Y[:90], sample_weight=one_weight)),
        _refusal(lambda: _small("flat").fit(one_value, Y[:90])),
        _refusal(lambda: _small("flat").fit(X[:90][:: 1 - 2 * rank], Y[:90])),
        _refusal(lambda: _small("flat").fit(X[:90], Y[:90], sample_weight=weights)),
    ]
    found["weights of users"] = _weights_of_users(rank, X.toarray(), Y)
    states = [{"random_state": np.random.RandomState(rank)}, {"random_state": None}]
    found["random states"] = [
        clf.partial_fit(X, Y).net_.module_.encoder.input.weight.sum().item()
        for clf in (_small("flat", **state) for state in states)
    ]
    for name in ("flat", "dft", "etf-frame"):
        params = {"decision": "nearest", "max_epochs": 1}
        together_ = _small(name, **params).fit(X, Y)
        with _alone():
            expected = _small(name, **params).fit(X, Y)
        differs = together_.predict(X) != expected.predict(X)
        found[f"nearest-{name}"] = int(differs.sum())
    part = _small("flat").fit(X, Y).set_params(warm_start=True)
    with _alone():
        found["alone after"] = [
            _refusal(lambda: part.partial_fit(X, Y)),
            _refusal(lambda: part.fit(X, Y)),
        ]
    writing = _small(
        "flat", callbacks=[Checkpoint(dirname=folder / "skorch", monitor="train_loss_best")]
    )
    found["writing"] = _refusal(lambda: writing.fit(X, Y))
    clipped = _small("flat", callbacks=[GradientNormClipping()])
    found["clipped"] = _refusal(lambda: clipped.fit(X, Y))
    found["one label"] = _refusal(lambda: _small("flat").fit(X, Y[:, :1]))

    tags = [[name] for name in "abcdefghij"] * 9
    tagged = _small("flat").fit(X[:90], tags)
    later = [*tagged.classes_, *["k", "l"][:: 1 - 2 * rank]]
    found["other labels"] = [
        _refusal(lambda: tagged.remove_labels(["ab"[rank]])),
        _refusal(lambda: tagged.partial_fit(X[:90], tags, classes=later)),
    ]
    parted = [_small(name).fit(X, Y) for name in ("flat", "cascade", "etf-frame")]
    torch.distributed.destroy_process_group()
    found["group gone"] = [_refusal(lambda clf=clf: clf.predict(X)) for clf in parted]
    return found


@program
def lists(folder):
    """How far the lists of processes are from those of one, by how samples were held out."""
    rank, _ = sklearn_xlc.distributed.init(timeout=60)
    X, Y = make_extreme_multilabel(600, 300, 40, random_state=0)
    ids = np.arange(600)
    found = {}

    def refit(clf):
        return clf.set_params(validation_fraction="refit").fit(X[:500], Y[:500])

    def held(clf):
        split = [(ids[:300], ids[300:500])]
        return clf.set_params(validation_fraction=split).fit(X[:500], Y[:500])

    def stream(clf):
        for start in range(0, 500, 100):
            batch = slice(start, start + 100)
            clf.partial_fit(X[batch], Y[batch], classes=np.arange(40))
        return clf.forget(ids[7:9]) or clf

    def learnt_again(clf):
        return held(clf).recalibrate(X[300:500], Y[300:500], ranker="keep")

    for way in (refit, held, stream, learnt_again):
        for name in ("flat", "cascade"):
            made = {"precision": "float64", "max_epochs": 4}
            clf = way(quick(name, **made))
            with _alone():
                alone = way(quick(name, **made))
            path = folder / f"{way.__name__}-{name}.skops"
            sklearn_xlc.save(clf, path, exact=True)
            X_new, k = X[500:], 30  # more than are listed
            expected = np.asarray(alone.predict_topk(X_new, k)[0])
            models = [clf, sklearn_xlc.distributed.gather(clf), sklearn_xlc.load(path)]
            found[f"{way.__name__}-{name}"] = {
                "ranker": [type(each.ranker_).__name__ for each in (*models, alone)],
                "labels": [
                    float((np.asarray(each.predict_topk(X_new, k)[0]) == expected).mean())
                    for each in models
                ],
                "scores": [
                    _far(each.decision_function(X_new), alone.decision_function(X_new))
                    for each in models
                ],
                "one": _far(clf.predict_topk(X_new[:1], 5)[1], alone.predict_topk(X_new[:1], 5)[1]),
                "examples": list(
                    sklearn_xlc.explain_topk(models[1], X_new[:1], 1, examples=2).examples.shape
                ),
                "samples": [len(each.ranker_.memory_["weights"]) for each in (clf, alone)],
            }
    return found


def _weights_of_users(rank, X, Y):
    """Weights and running means of an encoder that each process has drawn by itself."""
    torch.manual_seed(rank)
    encoder = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 8), torch.nn.BatchNorm1d(8))
    clf = _small("powerset", encoder=encoder, early_stopping=True).fit(X, Y)
    return [value.sum().item() for value in clf.net_.module_.encoder.state_dict().values()]


@program
def ends_early(folder, kind, how):
    """A process that ends, or hangs, in the middle of a step; the other says what it sees."""
    import time

    from skorch.callbacks import Callback

    rank, _ = sklearn_xlc.distributed.init(timeout=20)

    class End(Callback):
        def on_batch_begin(self, net, **kwargs):
            if rank and len(net.history) == 4 and len(net.history[-1]["batches"]) == 2:
                if how == "killed":
                    os._exit(9)
                time.sleep(60)

    X, Y = _data(True)
    start = time.monotonic()
    kept = {"checkpoint": folder / "checkpoints", "max_epochs": 6}
    said = _refusal(lambda: _small(kind, callbacks=[End()], **kept).fit(X, Y))
    return {"said": said, "seconds": time.monotonic() - start}


@program
def resumed(folder, kind):
    """The fit of `ends_early`, started again, beside one that was never ended."""
    sklearn_xlc.distributed.init(timeout=60)
    X, Y = _data(True)

    from skorch.callbacks import Callback

    class End(Callback):
        """Of the same name: checkpoints are found by the parameters."""

    kept = {"checkpoint": folder / "checkpoints", "max_epochs": 6}
    clf = _small(kind, callbacks=[End()], **kept).fit(X, Y)
    with _alone():
        alone = _small(kind, max_epochs=6).fit(X, Y)
    # Of the epochs in the file the times are there, too: nothing was trained again.
    return {
        "losses": _far(clf.loss_curve_, alone.loss_curve_),
        "scores": _far(clf.predict_topk(X, 3)[1], alone.predict_topk(X, 3)[1]),
        "n_epochs": len(clf.net_.history),
    }


def _refusal(function):
    """What an error says; empty without one."""
    try:
        function()
    except (ValueError, RuntimeError, OSError) as error:
        return str(error)
    return ""


def _main():
    name, folder, given = sys.argv[1:]
    torch.set_num_threads(1)
    gc.freeze()  # so that processes share the memory of what is loaded
    started = []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        started.append(os.fork())
        if not started[-1]:
            _run(name, Path(folder), given, str(rank))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
    (Path(folder) / "codes.json").write_text(json.dumps(codes))


def _run(name, folder, given, rank):
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
    path = folder / f"{name}-{rank}.json"
    with open(path.with_suffix(".stderr"), "wb") as stderr:
        os.dup2(stderr.fileno(), 2)
    code = 1
    try:
        path.write_text(json.dumps(_PROGRAMS[name](folder, **json.loads(given))))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main()
