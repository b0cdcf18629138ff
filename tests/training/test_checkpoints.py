"""Checkpoints: a fit that was killed goes on, and ends in the same bytes."""

import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import re
import resource
import signal
import time
import tracemalloc
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _distributed import in_threads
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback, EarlyStopping, LoadInitState, LRScheduler, TrainEndCheckpoint
from skorch.callbacks import Checkpoint as SkorchCheckpoint
from torch import nn

import sklearn_xlc
from _factories import EVERY, make_learnable, named, once, quick
from sklearn_xlc import MIMLClassifier, MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.encoders import MLP, TextEncoder
from sklearn_xlc.heads import Cascade, Flat
from sklearn_xlc.optimizers import SGD
from sklearn_xlc.training import WeightAveraging, checkpoints
from sklearn_xlc.training.digests import identity


class Killed(BaseException):
    """No `except Exception` stops it, as with SIGKILL."""


class Die(Callback):
    """Die at a moment: the n-th call of a method. All instances are one, as parameters go."""

    plan = types.SimpleNamespace(moment=None)  # a constant would be part of the class's code

    def on_train_begin(self, net, **kwargs):
        self.count("on_train_begin")

    def on_epoch_begin(self, net, **kwargs):
        self.count("on_epoch_begin")

    def on_batch_begin(self, net, training=False, **kwargs):
        self.count("on_batch_begin" if training else "on_validation_begin")

    def on_grad_computed(self, net, **kwargs):
        self.count("on_grad_computed")

    def on_batch_end(self, net, training=False, **kwargs):
        self.count("on_batch_end" if training else "on_validation_end")

    def on_epoch_end(self, net, **kwargs):
        self.count("on_epoch_end")

    def on_train_end(self, net, **kwargs):
        self.count("on_train_end")

    @classmethod
    def count(cls, method):
        if cls.plan.moment is not None and cls.plan.moment[0] == method:
            cls.plan.moment = (method, cls.plan.moment[1] - 1)
            if cls.plan.moment[1] == 0:
                raise Killed


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch):
    """A checkpoint after every epoch, however long it takes to write; nobody dies."""
    monkeypatch.setattr("sklearn_xlc.training.checkpoints.PAUSE", 0)
    monkeypatch.setattr(Die.plan, "moment", None)


def state_of(clf):
    """All that a fit leaves but for times: weights, optimiser, history, attributes, decision."""
    times = ("dur", "left")
    history = [{k: v for k, v in row.items() if k not in times} for row in clf.net_.history]
    decision = {k: v for k, v in vars(clf.decision_).items() if k.endswith("_")}
    return [
        [*clf.net_.module_.named_parameters(), *clf.net_.module_.named_buffers()],
        clf.net_.optimizer_.state_dict(),
        json.dumps(history),
        [clf.loss_curve_, clf.n_iter_, clf.t_, clf.label_order_, clf.n_parameters_],
        decision,
    ]


def assert_same(clf, other):
    for one, another in zip(state_of(clf), state_of(other), strict=True):
        assert identity(one) == identity(another)


def fit_killed(clf, fit, *moments):
    """Fit, dying at each of the moments in turn."""
    for moment in moments:
        Die.plan.moment = moment
        with pytest.raises(Killed):
            fit(clf)
        assert not hasattr(clf, "net_") or clf.warm_start
    Die.plan.moment = None
    return fit(clf)


def check_resume(tmp_path, clf, data, *moments):
    """Check that a killed fit ends as one without checkpoints; return both."""
    whole = clf.set_params(callbacks=[*(clf.callbacks or []), Die()]).fit(*data)
    return whole, check_resumed(tmp_path, whole, data, *moments)


def check_resumed(tmp_path, whole, data, *moments):
    """Check that a fit that is killed ends as the one given; return it."""

    def fit(clf):
        return clf.fit(*data)

    folder = tmp_path / "new" / "folder"
    resumed = type(whole)(**{**whole.get_params(deep=False), "checkpoint": folder})
    fit_killed(resumed, fit, *moments)
    assert_same(whole, resumed)
    return resumed


# --- resume is exact --------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("name, multilabel", once(EVERY))
def test_every_classifier(name, multilabel, tmp_path):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2, batch_size=75, encoder__dropout=0.3)
    whole, resumed = check_resume(tmp_path, clf, (X, y), ("on_batch_end", 3))
    assert whole.n_iter_ == 2
    np.testing.assert_array_equal(whole.decision_function(X), resumed.decision_function(X))


@functools.cache
def averaged(average):
    """A fit that nothing has killed, whatever the moment; no test changes it."""
    clf = quick(
        "flat",
        max_epochs=5,
        batch_size=70,
        encoder__dropout=0.3,
        early_stopping=True,
        callbacks=[EarlyStopping(patience=4, load_best=True), WeightAveraging(average), Die()],
        decision="threshold",
    )
    return clf.fit(*make_learnable(True))


@pytest.mark.integration
@pytest.mark.parametrize(
    "average, method, times",
    [
        ("ema", "on_train_begin", 1),
        ("swa", "on_epoch_begin", 1),
        ("ema", "on_epoch_begin", 3),
        ("ema", "on_batch_begin", 1),
        ("ema", "on_batch_begin", 4),
        ("swa", "on_grad_computed", 5),
        ("ema", "on_batch_end", 6),
        ("ema", "on_validation_begin", 2),
        ("swa", "on_validation_end", 3),
        ("ema", "on_epoch_end", 1),
        ("swa", "on_epoch_end", 4),
        ("ema", "on_epoch_end", 5),
        ("swa", "on_train_end", 1),
        ("ema", "on_train_end", 1),
    ],
)
def test_every_moment(average, method, times, tmp_path):
    check_resumed(tmp_path, averaged(average), make_learnable(True), (method, times))


def test_killed_again_and_again(tmp_path):
    X, y = make_learnable(False)
    clf = quick("sampling-corrected", max_epochs=6, batch_size=40, encoder__dropout=0.3)
    moments = [("on_batch_end", 3), ("on_epoch_end", 2), ("on_epoch_end", 1), ("on_batch_end", 1)]
    check_resume(tmp_path, clf, (X, y), *moments, ("on_epoch_begin", 3), ("on_train_end", 1))


def normed(n_features):
    """Layers with buffers, with dropout of torch's own, in an order of memory of its own."""
    first = nn.Linear(n_features, 16)
    first.weight = nn.Parameter(torch.randn(n_features, 16).T / 8)
    assert not first.weight.is_contiguous()
    return nn.Sequential(first, nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 8), nn.Tanh())


STOPS_EARLY = {
    "early_stopping": True,
    "callbacks": [EarlyStopping(patience=1, load_best=True)],
    "learning_rate": 0.5,
}


@pytest.mark.integration
@pytest.mark.parametrize(
    "form, params",
    [
        ("csr32", {"optimizer": "mixed"}),
        ("csr64", {"optimizer": "adagrad", "weight_decay": 0.01}),
        ("dense32", {"optimizer": "sgd"}),
        ("csr32", {"optimizer": SGD(momentum=0.9, nesterov=True), "head": Flat(n_negatives=5)}),
        ("dense64", {"optimizer": "adam"}),
        ("dense32", {"precision": "bfloat16"}),
        ("dense32", {"callbacks": [WeightAveraging("ema")], "encoder": normed}),
        ("dense64", {"encoder": normed, **STOPS_EARLY}),
        ("csr32", {"random_state": np.random.RandomState(3)}),
        ("csr64", {"head": Cascade(n_heads=3, label_order="clustered")}),
    ],
    ids=named,
)
def test_parameters(form, params, tmp_path):
    X, y = make_learnable(True, dtype=np.dtype(f"f{int(form[-2:]) // 8}"))
    X = X if "csr" in form else X.toarray()
    weight = np.random.default_rng(0).random(150)
    shared = {"head": "flat", "encoder": MLP((16,), dropout=0.3), "max_epochs": 4}
    params = {**shared, "batch_size": 40, "random_state": 0, **params}
    params["callbacks"] = [*params.get("callbacks", []), Die()]

    def fit(clf):
        if params["random_state"] != 0:  # a restarted process has the generator where it was
            clf.set_params(random_state=np.random.RandomState(3))
        return clf.fit(X, y, weight)

    whole = fit(MultiHeadClassifier(**params))
    resumed = MultiHeadClassifier(**params, checkpoint=tmp_path)
    assert_same(whole, fit_killed(resumed, fit, ("on_batch_end", 7)))


def test_texts(tmp_path):
    texts = [f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "klmn"]
    y = [text[0] + text[2] for text in texts]
    encoder = TextEncoder(hidden_layer_sizes=(8,), n_buckets=64)
    clf = quick("flat", max_epochs=3, batch_size=20, encoder=encoder)
    check_resume(tmp_path, clf, (texts, y), ("on_batch_end", 6))


def test_bags(tmp_path):
    X, Y = make_learnable(True)
    groups = np.arange(150) // 3
    Y = sp.csr_matrix((sp.csr_matrix((np.ones(150), (groups, np.arange(150)))) @ Y) > 0).astype(int)
    clf = MIMLClassifier(
        encoder=MLP((8,)), max_epochs=4, batch_size=12, random_state=0, callbacks=[Die()]
    )
    whole = clf.fit(X, Y, groups)
    again = MIMLClassifier(**clf.get_params(deep=False)).set_params(checkpoint=str(tmp_path))
    fit_killed(again, lambda clf: clf.fit(X, Y, groups), ("on_batch_end", 9))
    assert_same(whole, again)


def test_warm_start(tmp_path):
    X, y = make_learnable(False)
    clfs = []
    for checkpoint in (None, tmp_path):
        clf = quick("flat", max_epochs=3, batch_size=40, warm_start=True, callbacks=[Die()])
        clf.set_params(checkpoint=checkpoint).fit(X, y)
        fit = type(clf).fit
        for _ in range(2):  # each goes on from other weights, and is another fit
            moments = [("on_batch_end", 7)] if checkpoint else []
            fit_killed(clf, lambda clf: fit(clf, X, y), *moments)
        clfs.append(clf.partial_fit(X, y))
    assert clfs[0].n_iter_ == 10
    assert_same(*clfs)
    assert len(list(tmp_path.iterdir())) == 3


def test_without_a_seed_the_killed_fit_gives_it(tmp_path):
    X, y = make_learnable(True)
    clf = quick(
        "cascade", max_epochs=4, batch_size=40, random_state=None, head__label_order="random"
    )
    clf.set_params(checkpoint=tmp_path, callbacks=[Die()], early_stopping=True)
    Die.plan.moment = ("on_batch_end", 7)
    with pytest.raises(Killed):
        clf.fit(X, y)
    (path,) = tmp_path.iterdir()
    seed = torch.load(path, weights_only=True)["seed"]
    Die.plan.moment = None
    resumed = clf.fit(X, y)
    whole = type(clf)(**{**clf.get_params(deep=False), "checkpoint": None})
    whole.set_params(random_state=np.random.RandomState(seed)).fit(X, y)
    assert_same(whole, resumed)
    assert (clf.set_params(checkpoint=None).fit(X, y).loss_curve_) != whole.loss_curve_


# --- callbacks --------------------------------------------------------------------------------


class Drawing:
    """Random generators in an object with a state of its own."""

    def __init__(self):
        self.numpy, self.torch = np.random.default_rng(0), torch.Generator().manual_seed(3)

    def state_dict(self):
        return {"numpy": self.numpy.bit_generator.state, "torch": self.torch.get_state()}

    def load_state_dict(self, state):
        self.numpy.bit_generator.state = state["numpy"]
        self.torch.set_state(state["torch"])


class Noise(Callback):
    """Adds numbers to the weights that depend on all that it has seen."""

    def __init__(self):
        self.seen_ = {"losses": [], 3: (np.float32(0.1), None, {"a"})}
        self.drawing_ = Drawing()
        self.mean_ = torch.zeros(3, 2, dtype=torch.bfloat16)[:, 1]
        self.layer_ = nn.Linear(2, 2)
        torch.nn.init.ones_(self.layer_.weight)
        self.resource = open(os.devnull)  # no state: no final underscore

    def __deepcopy__(self, memo):
        return type(self)()

    def on_epoch_end(self, net, **kwargs):
        self.seen_["losses"].append(np.float64(net.history[-1, "train_loss"]))
        noise = self.drawing_.numpy.normal() + np.mean(self.seen_["losses"])
        self.mean_ += torch.rand(3, generator=self.drawing_.torch)
        with torch.no_grad():
            self.layer_.weight.mul_(1.1)
            weight = next(net.module_.parameters())
            weight += 1e-3 * (noise + float(self.mean_.sum()) + float(self.layer_.weight.sum()))

    def __del__(self):
        self.resource.close()


def test_state_of_callbacks(tmp_path):
    X, y = make_learnable(False)
    callbacks = [
        Noise(),
        ("rates", LRScheduler("StepLR", step_size=2)),
        TrainEndCheckpoint(dirname=str(tmp_path / "skorch")),
    ]
    clf = quick("flat", max_epochs=5, batch_size=40, callbacks=callbacks, verbose=1)
    check_resume(tmp_path, clf, (X, y), ("on_batch_end", 7), ("on_batch_end", 7))


class Holding(Callback):
    def __init__(self, value):
        self.value = value

    def on_train_begin(self, net, **kwargs):
        self.held_ = self.value


@pytest.mark.parametrize(
    "value",
    [object(), np.zeros(3), np.random.default_rng(0), torch.eye(2).to_sparse(), np.longdouble(1)],
    ids=lambda value: type(value).__name__,
)
def test_a_callback_whose_state_no_file_can_hold(value, tmp_path):
    X, y = make_learnable(False)
    clf = quick("flat", checkpoint=tmp_path, callbacks=[Holding({"a": [value]}), Die()])
    Die.plan.moment = ("on_batch_begin", 1)  # it is refused before that
    kind = type(value).__name__
    with pytest.raises(
        TypeError, match=rf"callbacks\.Holding\.held_\.a\[0\] .* type {kind}, .* does not end in"
    ):
        clf.fit(X, y)


def test_a_history_that_was_loaded_is_refused(tmp_path):
    X, y = make_learnable(False)
    checkpoint = SkorchCheckpoint(monitor=None, dirname=tmp_path)
    quick("flat", max_epochs=2, callbacks=[checkpoint]).fit(X, y)
    with pytest.raises(ValueError, match="LoadInitState .* use checkpoint="):
        quick("flat", max_epochs=2, callbacks=[LoadInitState(checkpoint)]).fit(X, y)


# --- files ------------------------------------------------------------------------------------


def small(folder, **params):
    return quick(
        "flat", max_epochs=6, batch_size=40, checkpoint=folder, callbacks=[Die()], **params
    )


@functools.cache
def whole_small():
    """The same without checkpoints, fitted; no test changes it."""
    return small(None).fit(*make_learnable(False))


def kill(clf, X, y, n_epochs=4):
    """Die in the epoch after `n_epochs`; return the two checkpoints, oldest first."""
    Die.plan.moment = ("on_batch_end", 4 * n_epochs + 1)
    with pytest.raises(Killed):
        clf.fit(X, y)
    Die.plan.moment = None
    return sorted(Path(clf.checkpoint).iterdir())


def test_two_files_while_training_and_one_after_it(tmp_path):
    X, y = make_learnable(False)
    first, last = kill(small(tmp_path), X, y)
    assert first.name.endswith("-3.pt")
    assert last.name.endswith("-4.pt")
    document = torch.load(last, weights_only=True)
    assert not document["finished"]
    assert document["state"]["module"]["state_dict"]["head.weight"].shape == (23, 16)
    small(tmp_path).fit(X, y)
    (only,) = tmp_path.iterdir()
    assert only.name == last.name.replace("-4", "-6")
    assert torch.load(only, weights_only=True)["finished"]
    before = only.stat().st_mtime_ns
    Die.plan.moment = ("on_batch_begin", 1)
    small(tmp_path).fit(X, y)  # takes no step
    assert only.stat().st_mtime_ns == before


def test_what_a_kill_at_the_end_leaves_is_removed_by_the_next_fit(tmp_path, monkeypatch):
    clf, (X, y) = small(tmp_path), make_learnable(False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        clf.fit(X, y)
    assert len(list(tmp_path.iterdir())) > 1
    clf.fit(X, y)
    assert len(list(tmp_path.iterdir())) == 1


def damaged(path, how):
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = bytes([content[middle] ^ 4])
    ends = {"flip": flipped + content[middle + 1 :], "truncate": b""}
    path.write_bytes(content[:middle] + ends[how] if how in ends else b"")


@pytest.mark.parametrize(
    "n_damaged, how", [(1, "flip"), (1, "truncate"), (2, "truncate"), (1, "empty")]
)
def test_a_damaged_file_falls_back_to_the_one_before(n_damaged, how, tmp_path):
    X, y = make_learnable(False)
    older, newer = kill(small(tmp_path), X, y)
    damaged(newer, how)
    expected = [rf"checkpoint: cannot read {newer}.*; the one before it is tried"]
    if n_damaged == 2:
        damaged(older, how)
        expected += [rf"checkpoint: cannot read {older}.*; training begins anew"]
    Die.plan.moment = ("on_batch_begin", 4 * (3 if n_damaged == 1 else 6))  # the last step
    with pytest.warns(UserWarning, match="training begins|tried") as found, pytest.raises(Killed):
        small(tmp_path).fit(X, y)
    assert len(found) == n_damaged
    for warning, message in zip(found, expected):
        assert re.fullmatch(message, str(warning.message))
    Die.plan.moment = None
    assert_same(whole_small(), small(tmp_path).fit(X, y))
    assert len(list(tmp_path.iterdir())) == 1


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond a few kilobytes; not even the report of the tests."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk(tmp_path):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2, batch_size=40).fit(X, y)
    before = vars(clf).copy()
    files = kill(small(tmp_path), X, y)
    contents = [path.read_bytes() for path in files]
    clf.set_params(**small(tmp_path).get_params(deep=False))
    message = rf"checkpoint='{tmp_path}': nothing .* epoch 5: .*; make room"
    with full_disk(), pytest.raises(OSError, match=message):
        clf.fit(X, y)
    assert clf.net_ is before["net_"]  # as after any error
    assert sorted(tmp_path.iterdir()) == files
    assert [path.read_bytes() for path in files] == contents


def test_after_a_full_disk_it_goes_on(tmp_path):
    X, y = make_learnable(False)
    kill(small(tmp_path), X, y)
    with full_disk(), pytest.raises(OSError, match="make room"):
        small(tmp_path).fit(X, y)
    assert_same(whole_small(), small(tmp_path).fit(X, y))


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/none", ""])
def test_a_folder_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    X, y = make_learnable(False)
    folder = str(tmp_path / folder) if folder.startswith("file") else folder
    Die.plan.moment = ("on_train_begin", 1)
    with pytest.raises((OSError, ValueError), match=rf"checkpoint='{folder}'.* folder"):
        small(folder).fit(X, y)


def test_the_folder_is_checked_like_a_parameter():
    X, y = make_learnable(False)
    with pytest.raises(ValueError, match="'checkpoint' parameter"):
        small(3).fit(X, y)


def test_rests_of_killed_writes_are_removed(tmp_path):
    X, y = make_learnable(False)
    old, new, other = (
        tmp_path / name for name in (".sklearn_xlc-1.tmp", ".sklearn_xlc-2.tmp", "a")
    )
    for path in (old, new, other):
        path.write_text("half")
        os.utime(path, (0, 0))
    new.touch()
    small(tmp_path).fit(X, y)
    assert not old.exists()  # another fit may be writing to the new one
    assert new.exists()
    assert other.exists()


def test_files_that_another_process_removes_meanwhile(tmp_path, recwarn):
    X, y = make_learnable(False)
    older, newer = kill(small(tmp_path), X, y)
    newer.unlink()
    for path in (newer, tmp_path / ".sklearn_xlc-1.tmp"):
        path.symlink_to(tmp_path / "nowhere")  # listed, but gone when it is looked at
    Die.plan.moment = ("on_batch_begin", 4 * 3)  # the last step of three epochs
    with pytest.raises(Killed):
        small(tmp_path).fit(X, y)
    assert not recwarn.list


class Moving(Callback):
    def on_epoch_end(self, net, **kwargs):
        os.chdir("/")


def test_the_folder_is_that_of_the_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick("flat", max_epochs=2, checkpoint="below", callbacks=[Moving()]).fit(
        *make_learnable(False)
    )
    assert len(list((tmp_path / "below").iterdir())) == 1


# --- which fit a file belongs to --------------------------------------------------------------


@pytest.mark.integration
def test_fits_share_a_folder(tmp_path):
    X, y = make_learnable(False)
    weight = np.ones(150)
    weight[3] = 2
    other_X = X.copy()
    other_X.data[5] += 1

    def shorter(folder):
        return small(folder).set_params(max_epochs=3)

    fits = [
        lambda clf: clf.fit(X, y),
        lambda clf: clf.set_params(learning_rate=0.01).fit(X, y),
        lambda clf: clf.set_params(random_state=1).fit(X, y),
        lambda clf: clf.fit(other_X, y),
        lambda clf: clf.fit(X, (y + 1) % 23),
        lambda clf: clf.fit(X, y, weight),
        lambda clf: clf.set_params(encoder=normed).fit(X.toarray(), y),
    ]
    for fit in fits:  # all are killed before the first goes on
        Die.plan.moment = ("on_batch_end", 6)
        with pytest.raises(Killed):
            fit(shorter(tmp_path))
    Die.plan.moment = None
    assert len(list(tmp_path.iterdir())) == len(fits)
    for fit in fits:
        assert_same(fit(shorter(None)), fit(shorter(tmp_path)))
    assert len(list(tmp_path.iterdir())) == len(fits)


def test_parameters_that_may_differ(tmp_path):
    X, y = make_learnable(False)
    kill(small(tmp_path), X, y)
    Die.plan.moment = ("on_batch_begin", 9)  # two epochs are left
    changed = small(str(tmp_path), device="cpu", verbose=1, warm_start=True)
    with sklearn_xlc.config_context(working_memory=32):
        changed.fit(X, y)
    Die.plan.moment = None
    assert_same(changed, small(None, warm_start=True).fit(X, y))


def test_a_file_of_a_gpu_goes_on_where_the_fit_is(tmp_path, monkeypatch):
    """A file names the device of each tensor."""
    X, y = make_learnable(False)
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        kill(small(tmp_path), X, y)
    Die.plan.moment = ("on_batch_begin", 9)  # two epochs are left
    resumed = small(tmp_path).fit(X, y)
    Die.plan.moment = None
    assert_same(small(None).fit(X, y), resumed)


@pytest.mark.parametrize("before", [True, False])
def test_a_fit_goes_on_with_the_generators_of_another_device(before, tmp_path, monkeypatch):
    """A GPU has a second one, which is made again from the seed."""
    X, y = make_learnable(False)

    def as_on_a_gpu(generators, device):
        return (*generators, torch.Generator().manual_seed(generators[0].initial_seed()))

    with monkeypatch.context() as patch:
        if before:
            patch.setattr("sklearn_xlc.engine.trainer.with_device", as_on_a_gpu)
        kill(small(tmp_path), X, y)
    if not before:
        monkeypatch.setattr("sklearn_xlc.engine.trainer.with_device", as_on_a_gpu)
    Die.plan.moment = ("on_batch_begin", 9)
    resumed = small(tmp_path).fit(X, y)
    Die.plan.moment = None
    assert_same(small(None).fit(X, y), resumed)


class Drifting:
    """An encoder whose first weights are drawn without a seed."""

    drawn = types.SimpleNamespace(scale=1.0)

    def __call__(self, n_features):
        layer = nn.Linear(n_features, 8)
        with torch.no_grad():
            layer.weight.mul_(Drifting.drawn.scale)
        return layer


def test_other_first_weights_begin_anew(tmp_path, monkeypatch):
    X, y = make_learnable(False)
    X = X.toarray()
    kill(small(tmp_path, encoder=Drifting()), X, y)
    monkeypatch.setattr(Drifting.drawn, "scale", 2.0)
    with pytest.warns(UserWarning, match="began with other weights"):
        resumed = small(tmp_path, encoder=Drifting()).fit(X, y)
    assert_same(small(None, encoder=Drifting()).fit(X, y), resumed)


def test_a_search_goes_on(tmp_path):
    X, y = make_learnable(True)
    grid = {"learning_rate": [0.01, 0.02], "decision": ["auto", "topk"]}

    def shorter(folder):
        return small(folder).set_params(max_epochs=3)

    def search():
        return GridSearchCV(
            shorter(tmp_path), grid, cv=2, error_score="raise", scoring="f1_micro"
        ).fit(X, y)

    Die.plan.moment = ("on_train_end", 4)  # the fourth of eight fits has trained
    with pytest.raises(Killed):
        search()
    Die.plan.moment = ("on_batch_begin", 4 * 3 * 2 + 3 * 4 + 1)  # four are left, and the refit
    found = search()
    assert Die.plan.moment[1] == 1
    Die.plan.moment = None
    assert_same(found.best_estimator_, shorter(None).set_params(**found.best_params_).fit(X, y))


def test_a_subclass_without_the_parameter():
    class Fewer(MultiHeadClassifier):
        def __init__(self, encoder="mlp"):
            super().__init__(encoder=encoder, max_epochs=2)

    X, y = make_learnable(False)
    clf = Fewer().fit(X, y)
    assert clf.n_iter_ == clf.settings_["max_epochs"] == 2
    assert list(clf.get_params(deep=False)) == ["encoder"]


def test_writing_takes_its_share_of_the_time(tmp_path, monkeypatch):
    X, y = make_learnable(False)
    written = []
    monkeypatch.setattr("sklearn_xlc.training.checkpoints.PAUSE", 20)
    monkeypatch.setattr(
        "sklearn_xlc.training.checkpoints.Checkpoints._write",
        lambda checkpoints, document, n_epochs: written.append(n_epochs),
    )
    clock = iter(range(10**6))
    monkeypatch.setattr("sklearn_xlc.training.checkpoints.time.monotonic", lambda: next(clock))
    quick("flat", max_epochs=50, checkpoint=tmp_path).fit(X, y)
    assert written == [1, 21, 41, 50]


def test_no_copy_is_held_while_it_is_written(tmp_path):
    weights = torch.zeros(2**20)
    document = {"weights": weights, "finished": False}
    tracemalloc.start()
    checkpoints.Checkpoints(tmp_path, "fit")._write(document, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < weights.nbytes / 4
    content = (tmp_path / "fit-1.pt").read_bytes()
    assert content[-32:] == hashlib.sha256(content[:-32]).digest()


def test_ctrl_c_while_it_is_written(tmp_path, monkeypatch):
    written = checkpoints.Checkpoints(tmp_path, "fit")
    monkeypatch.setattr(hashlib, "sha256", lambda: types.SimpleNamespace(update=interrupted))
    with pytest.raises(KeyboardInterrupt):
        written._write({"weights": torch.zeros(9)}, 1)
    assert list(tmp_path.iterdir()) == []


def interrupted(data):
    raise KeyboardInterrupt


# --- several processes ------------------------------------------------------------------------


def test_what_one_process_meets_all_answer(tmp_path, monkeypatch):
    """A file that cannot be used, and then one that cannot be written."""
    monkeypatch.setattr(checkpoints, "_state", lambda net: {"module": 3})

    def restore(net, state):
        if state["epoch"] == 2:
            raise ValueError("hostile")
        restored.append(state["epoch"])

    restored = []
    monkeypatch.setattr(checkpoints, "_restore", restore)
    earlier = checkpoints.Checkpoints(tmp_path, "fit")
    for epoch in (1, 2):
        about = {"start": identity(3), "seed": epoch, "finished": False}
        assert earlier._write({"state": {"epoch": epoch}, **about}, epoch) is None
    monkeypatch.setattr(
        checkpoints.Checkpoints, "_write", lambda *args: OSError(28, "no space left")
    )

    def run(processes):
        made, net = checkpoints.Checkpoints(tmp_path, "fit", processes), None
        assert made.seed_or(7) == 2
        assert not made.resume(net)
        with pytest.raises(OSError, match="no space left"):
            made.save(types.SimpleNamespace(history=[]))

    with pytest.warns(UserWarning, match=r"cannot use .*fit-2.pt: .*hostile.*; the one before"):
        in_threads(monkeypatch, 3, run)
    assert restored == [1, 1, 1]


# --- kills from outside -----------------------------------------------------------------------


def job(folder, out):
    """Fit, and write all that matters to a file."""
    torch.set_num_threads(1)
    X, Y = make_extreme_multilabel(2000, 300, 200, random_state=0)
    clf = MultiHeadClassifier(
        "cascade",
        encoder=MLP((256,)),
        max_epochs=30,
        early_stopping=True,
        callbacks=[EarlyStopping(patience=1000, load_best=True), WeightAveraging("ema")],
        random_state=0,
        checkpoint=folder,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no file may be found damaged
        clf.fit(X, Y)
    tensors = clf.net_.module_.state_dict().values()
    np.savez(out, clf.loss_curve_, *(tensor.numpy() for tensor in tensors))


def run_job(*args, seconds=None, writing=False):
    """Run the job in a process of its own; return whether it ended before it was killed.

    It is killed after some seconds, or, if `writing`, when it begins to write a file after these.
    """
    process = multiprocessing.get_context("fork").Process(target=job, args=args)
    process.start()
    process.join(seconds)
    while writing and process.is_alive() and not list(args[0].glob(".sklearn_xlc-*.tmp")):
        pass
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills(tmp_path):
    """At random moments, some in quick succession, some while a file is being written."""
    rng = np.random.default_rng(0)
    started = time.monotonic()
    assert run_job(None, tmp_path / "whole.npz")
    duration = time.monotonic() - started
    n_kills = n_fits = n_writing = 0
    while n_kills < 50:
        folder, out = tmp_path / f"fit-{n_fits}", tmp_path / f"{n_fits}.npz"
        while not run_job(
            folder,
            out,
            seconds=duration * rng.choice([0.05, 0.3, 1]) * rng.random(),
            writing=rng.random() < 0.4,
        ):
            n_kills += 1
            for path in folder.glob("*.pt"):
                assert zipfile.ZipFile(path).testzip() is None  # whole
            for path in folder.glob(".sklearn_xlc-*.tmp"):
                n_writing += 1
                path.unlink()
        n_fits += 1
        assert len(list(folder.iterdir())) == 1
        with np.load(tmp_path / "whole.npz") as whole, np.load(out) as resumed:
            assert whole.files == resumed.files
            for name in whole.files:
                assert whole[name].tobytes() == resumed[name].tobytes()
    print(f"{n_kills} kills, {n_writing} of them while writing, in {n_fits} fits")
