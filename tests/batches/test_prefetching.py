"""Batches prepared in the background are those that are cut when asked for, and the thread ends."""

import contextlib
import pickle
import signal
import threading
import traceback

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _distributed import in_threads
from sklearn.base import clone
from skorch.callbacks import Callback, EarlyStopping

from _factories import make_learnable, quick
from sklearn_xlc.batches import Bags, BatchIterator, Columns, Rows, make_batch, prefetching
from sklearn_xlc.batches import rows as rows_module
from sklearn_xlc.batches.randomness import new_generators
from sklearn_xlc.batches.rows import WHOLE_BATCHES
from sklearn_xlc.datasets import open_csr, save_csr
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.distributed.sharing import SharedBatches
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.engine import predictor
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.training import EncoderHead, XLCNet

CPU, META = torch.device("cpu"), torch.device("meta")
NAME = "sklearn_xlc-batches"


@pytest.fixture
def ahead(monkeypatch):
    """Batches for the CPU, too, are prepared in the background."""
    monkeypatch.setattr(prefetching, "IN_PLACE", set())


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


def make_rows(n_rows=23, sparse=True, **given):
    X = sp.random(n_rows, 9, 0.3, format="csr", random_state=0)
    Y = sp.random(n_rows, 5, 0.4, format="csr", random_state=1)
    return Rows(X if sparse else X.toarray(), Y, np.arange(n_rows) + 0.5, sparse, **given)


def tensors(batch):
    """All numbers that a step may read."""
    inputs = batch.inputs.instances if isinstance(batch.inputs, Bags) else batch.inputs
    labels = batch.targets
    found = [labels.indptr, labels.ids, labels.values, labels.rows, batch.sample_weight]
    if isinstance(inputs, torch.Tensor):
        return [*found, inputs]
    return [*found, inputs.indptr, inputs.indices, inputs.data, *inputs.transpose]


@pytest.mark.parametrize("entries", [1, 60, 10**6])
@pytest.mark.parametrize("kind", ["sparse", "dense", "bags", "processes"])
def test_batches_are_those_cut_when_asked_for(kind, entries, monkeypatch):
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", entries)
    rows = make_rows(sparse=kind != "dense")
    if kind == "bags":
        bags = np.array([0, 3, 4, 9, 11, 14, 18, 20, 23])
        rows = Rows(rows.X, rows.Y[:8], rows.sample_weight[:8], True, bags)
    cutter = SharedBatches(Processes(1, 2)) if kind == "processes" else WHOLE_BATCHES
    states, found = [], []
    for in_place in ({"cpu"}, set()):
        monkeypatch.setattr(prefetching, "IN_PLACE", in_place)
        rng = np.random.default_rng(0)
        iterator = BatchIterator(rows, 4, rng, CPU, cutter)
        found.append([batch for _ in range(2) for batch in iterator])
        states.append(rng.bit_generator.state)
    assert states[0] == states[1]
    for batch, other in zip(*found, strict=True):
        assert (len(batch), batch.own) == (len(other), other.own)
        for expected, tensor in zip(tensors(batch), tensors(other), strict=True):
            assert torch.equal(expected, tensor)
    assert not threads()


def test_no_more_than_two_items_are_prepared_beside_the_one_in_use():
    begun, go_on = [], threading.Semaphore(0)

    def items():
        for number in range(9):
            begun.append(number)
            go_on.release()
            yield number

    found = prefetching.prefetched(items(), CPU)
    for number in range(9):
        assert next(found) == number
        for _ in range(3 if number == 0 else number < 7):
            go_on.acquire(timeout=60)
        assert begun == list(range(min(9, number + 3)))
    assert next(found, None) is None
    assert not threads()


def test_an_exception_comes_in_its_turn_with_its_traceback():
    def cut(number):
        if number == 2:
            raise MemoryError("a row of the file is not to be had")
        return number

    found = prefetching.prefetched((cut(number) for number in range(5)), CPU)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(MemoryError, match="not to be had") as caught:
        next(found)
    assert "raise MemoryError" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert not threads()


def test_an_iterator_that_is_left_ends_its_thread(ahead):
    batches = iter(BatchIterator(make_rows(), 4, None, CPU))
    assert not threads()
    next(batches)
    assert len(threads()) == 1
    del batches
    assert not threads()
    ended = []

    def items():
        try:
            yield from range(9)
        finally:
            ended.append(threading.current_thread())

    given = items()
    with contextlib.closing(prefetching.prefetched(given, CPU)) as numbers:
        assert next(numbers) == 0
        assert not ended
    assert ended == [threading.current_thread()]
    assert not threads()


def test_code_of_the_user_runs_in_the_thread_that_trains(ahead):
    seen = []

    def collate(samples):
        seen.append(threading.current_thread())
        return torch.rand(samples.shape[0], generator=torch.Generator())

    for batch in BatchIterator(make_rows(sparse=False, collate=collate), 4, None, CPU):
        assert len(batch.inputs) == len(batch)
    assert set(seen) == {threading.current_thread()}


def test_copies_have_all_that_was_prepared(monkeypatch):
    copies = []

    def pin_memory(tensor):
        copies.append(tensor.clone())
        return copies[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    rows, bags = make_rows(), np.array([0, 3, 23])
    for batch in (
        make_batch(rows),
        make_batch(make_rows(sparse=False)),
        make_batch(Rows(rows.X, rows.Y[:2], rows.sample_weight[:2], True, bags)),
    ):
        expected = tensors(batch)  # computes the transpose and the rows
        copies.clear()
        pinned = batch.pin_memory()
        assert all(any(tensor is copy for copy in copies) for tensor in tensors(pinned))
        for tensor, other in zip(expected, tensors(pinned), strict=True):
            assert torch.equal(tensor, other)
        moved = pinned.to(META)
        assert all(tensor.is_meta for tensor in tensors(moved))
        assert [tensor.shape for tensor in tensors(moved)] == [each.shape for each in expected]
    mapping = make_batch(Rows(Columns({"a": [1, 2], "b": np.eye(2)}))).pin_memory()
    assert mapping.targets is mapping.sample_weight is None
    assert {name: values.tolist() for name, values in mapping.inputs.items()} == {
        "a": [1, 2],
        "b": [[1, 0], [0, 1]],
    }
    hard = make_batch(Rows(np.eye(2), sp.csr_matrix([[0], [1]]))).pin_memory()
    assert hard.targets.values is None


def test_batches_for_a_gpu_are_pinned_and_copied_without_waiting(monkeypatch):
    """The lines for CUDA, on a machine without: what they call, in which thread."""
    calls = []

    def noted(name):
        def call(tensor, *args, **kwargs):
            calls.append((name, threading.current_thread().name.startswith(NAME), args, kwargs))
            return tensor

        return call

    monkeypatch.setattr(torch.Tensor, "pin_memory", noted("pin"))
    monkeypatch.setattr(torch.Tensor, "to", noted("to"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: calls.append(("device", number)))
    gpu = torch.device("cuda:3")
    rows = make_rows()
    batches = list(BatchIterator(rows, 4, np.random.default_rng(0), gpu))
    assert sum(map(len, batches)) == 23
    assert calls.pop(0) == ("device", 3)
    n = 12 * len(batches)  # three arrays and the transpose, four of the labels, weights
    assert [call[:2] for call in calls if call[0] == "pin"] == [("pin", True)] * n
    copies = [call for call in calls if call[0] == "to"]
    assert copies == [("to", False, (gpu,), {"non_blocking": True})] * n
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    calls.clear()
    assert len(list(BatchIterator(rows, 4, None, torch.device("cuda")))) == len(batches)
    assert calls[0] == ("device", 2)


# --- fits ---------------------------------------------------------------------------------------


def fitted(X, y, name="flat", **params):
    small = {"encoder__dropout": 0.3, "max_epochs": 2, "batch_size": 40}
    small["encoder__hidden_layer_sizes"] = (8,)
    clf = quick(name, **small | params).fit(X, y)
    assert not threads()
    return clf


def same(monkeypatch, fit):
    """Whether losses and scores are equal with batches prepared ahead and without."""
    found = []
    for in_place in ({"cpu"}, set()):
        monkeypatch.setattr(prefetching, "IN_PLACE", in_place)
        clf, X = fit()
        scores = clf.predict_topk(X, 3)[1]
        found.append((clf.loss_curve_, scores.tobytes(), clf.net_.rng.bit_generator.state))
        assert not threads()
    return found[0] == found[1]


@pytest.mark.parametrize("form", ["csr", "dense", "mapped"])
@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", False)])
def test_fits_are_equal_to_the_bit(name, multilabel, form, monkeypatch, tmp_path):
    X, y = make_learnable(multilabel)
    if form == "dense":
        X = X.toarray()
    if form == "mapped":
        save_csr(tmp_path / "X", X)
        X = open_csr(tmp_path / "X")
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", 300)
    monkeypatch.setattr(rows_module, "_ENTRIES_OF_FILE", 300)
    assert same(monkeypatch, lambda: (fitted(X, y, name, early_stopping=True), X))


def epochs(rows, processes):
    """Losses and weights of a net that several processes train."""
    head = FlatHead(8, rows.Y.shape[1], True, shard_of=sharding(processes))
    module = EncoderHead(MLPEncoder(60, (8,), dropout=0.5), head)
    with torch.no_grad():
        for parameter in module.parameters():  # threads share the generator that has drawn them
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    net = XLCNet(
        module,
        rng=np.random.default_rng(0),
        generators=new_generators(3),
        processes=processes,
        batch_size=40,
        max_epochs=2,
        verbose=0,
        callbacks__print_log=None,
    )
    net.fit(rows)
    weights = [parameter.detach().numpy().tobytes() for parameter in module.parameters()]
    return net.history[:, "train_loss"], weights


def test_a_fit_over_processes_is_equal_to_the_bit(monkeypatch):
    X, Y = make_learnable(True, dtype=np.float32)
    rows, found = Rows(X, Y, sparse=True), []
    for in_place in ({"cpu"}, set()):
        monkeypatch.setattr(prefetching, "IN_PLACE", in_place)
        found.append(in_threads(monkeypatch, 2, lambda processes: epochs(rows, processes)))
        assert not threads()
    assert found[0] == found[1]
    losses = [losses for losses, _ in found[0]]
    assert losses[0] == losses[1]


class Ends(Callback):
    """Do something in the middle of an epoch; meanwhile there is a thread."""

    def __init__(self, how):
        self.how = how

    def on_batch_end(self, net, **kwargs):
        if len(net.history[-1]["batches"]) == 2:
            assert len(threads()) == 1
            self.how()


def fail(*args):
    raise RuntimeError("of a callback")


def test_what_ends_an_epoch_ends_the_thread(ahead, monkeypatch):
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", 1)
    X, y = make_learnable(False)
    with pytest.raises(RuntimeError, match="of a callback") as caught:
        fitted(X, y, callbacks=[Ends(fail)])
    assert not threads()  # although the traceback holds all frames
    assert caught.tb is not None
    interrupt = Ends(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.warns(UserWarning, match="interrupted by user in epoch 1"):
        fitted(X, y, callbacks=[interrupt])


def test_a_prediction_that_fails_ends_its_thread(ahead, monkeypatch):
    X, y = make_learnable(False)
    clf = fitted(X, y, max_epochs=1)
    monkeypatch.setattr(predictor, "PREDICT_BATCH", 20)
    head, topk = clf.net_.module_.head, clf.net_.module_.head.topk

    def second(features, k):
        assert len(threads()) == 1
        monkeypatch.setattr(head, "topk", fail)
        return topk(features, k)

    monkeypatch.setattr(head, "topk", second)
    with pytest.raises(RuntimeError, match="of a callback") as caught:
        clf.predict_topk(X, 3)
    assert not threads()
    assert caught.tb is not None


def test_early_stopping_copies_and_pickles(ahead):
    X, y = make_learnable(False)
    stop = EarlyStopping("train_loss", patience=1, threshold=10.0, threshold_mode="abs")
    clf = fitted(X, y, callbacks=[stop], max_epochs=5)
    assert clf.n_iter_ < 5
    copy = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copy.predict(X), clf.predict(X))
    assert (
        fitted(X, y, max_epochs=1).loss_curve_
        == clone(copy).set_params(max_epochs=1, callbacks=None).fit(X, y).loss_curve_
    )
