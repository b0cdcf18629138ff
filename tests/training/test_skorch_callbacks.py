"""Callbacks of skorch, the real classes, in the fit of a classifier."""

import copy
import json
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    GradientNormClipping,
    LRScheduler,
    MlflowLogger,
    PrintLog,
    ProgressBar,
    TensorBoard,
    Unfreezer,
)
from torch.optim.lr_scheduler import OneCycleLR

from _factories import EVERY, make_learnable, named, quick
from sklearn_xlc.metrics import get_scorer


def fitted(*callbacks, multilabel=True, name="flat", **params):
    X, y = make_learnable(multilabel)
    params = {"max_epochs": 4, "batch_size": 50, "decision": "topk", "ranker": None, **params}
    return quick(name, callbacks=list(callbacks), **params).fit(X, y)


def patient(n_epochs):
    """Early stopping after that many epochs without a lower loss."""
    return EarlyStopping(patience=n_epochs, load_best=True)


def precision_at_1(**params):
    scorer = get_scorer("precision_at_1")
    return EpochScoring(scorer, lower_is_better=False, name="p_at_1", **params)


def in_training(clf, kind):
    (found,) = [callback for _, callback in clf.net_.callbacks_ if isinstance(callback, kind)]
    return found


def test_print_log(capsys):
    clf = fitted(PrintLog(), patient(4), early_stopping=True)
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["epoch", "train_loss", "valid_loss", "dur"]
    assert [int(row.split()[0]) for row in rows[2:]] == [1, 2, 3, 4]
    lines = []
    fitted(PrintLog(sink=lines.append), verbose=1)
    assert len(lines) == 6
    said = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[") for line in said)  # stages, and no lines of epochs beside it
    assert "train_loss" in clf.history_[0]


@pytest.mark.parametrize("multilabel", [False, True])
def test_epoch_scoring_on_held_out_samples(multilabel, capsys):
    scoring = precision_at_1() if multilabel else EpochScoring("accuracy", False, name="p_at_1")
    params = {"early_stopping": True, "max_epochs": 15, "learning_rate": 0.04, "verbose": 1}
    clf = fitted(scoring, patient(30), multilabel=multilabel, **params)
    scores = [row["p_at_1"] for row in clf.history_]
    assert scores == [row["valid_precision_at_1"] for row in clf.history_]
    assert scores[0] < 0.79 < scores[-1]
    best = [row["p_at_1_best"] for row in clf.net_.history]
    assert best == [score > max(scores[:i], default=-1) for i, score in enumerate(scores)]


def test_epoch_scoring_on_training_samples_and_a_decision_that_holds_out():
    scoring = precision_at_1(on_train=True)
    clf = fitted(scoring, max_epochs=10)
    X, Y = make_learnable(True)
    assert clf.history_[-1]["p_at_1"] == clf.score(X, Y)
    unnamed = EpochScoring(get_scorer("precision_at_1"), lower_is_better=False)
    clf = fitted(unnamed, decision="threshold")
    assert [sorted(row) for row in clf.history_] == [["epoch", "precision_at_1", "train_loss"]] * 4


def test_epoch_scoring_without_held_out_samples_warns():
    with pytest.warns(UserWarning, match="EpochScoring has no held-out samples to score: set earl"):
        clf = fitted(precision_at_1())
    assert "p_at_1" not in clf.history_[0]


def test_tensor_board(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages below
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(tmp_path)
        clf = fitted(TensorBoard(writer), early_stopping=True)
        log = EventAccumulator(str(tmp_path)).Reload()
    for tag, name in (("Loss/train_loss", "train_loss"), ("Loss/valid_loss", "valid_loss")):
        found = [(event.step, event.value) for event in log.Scalars(tag)]
        expected = [(row["epoch"], row[name]) for row in clf.history_]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_mlflow(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes 20 seconds to make
    from mlflow.tracking import MlflowClient

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages below
        client = MlflowClient(tracking_uri=f"file://{tmp_path}/runs")
        where = client.create_experiment("fits", artifact_location=str(tmp_path / "files"))
        run = client.create_run(where)
        clf = fitted(MlflowLogger(run, client))
        found = client.get_metric_history(run.info.run_id, "train_loss")
        files = {Path(item.path).name for item in client.list_artifacts(run.info.run_id)}
        status = client.get_run(run.info.run_id).info.status
    assert [(each.step, each.value) for each in found] == list(enumerate(clf.loss_curve_, 1))
    assert files == {"params.pth", "optimizer.pth", "criterion.pth", "history.json"}
    assert status == "FINISHED"


def weights_of(clf):
    return {name: p.detach().clone() for name, p in clf.net_.module_.named_parameters()}


def moved(clf, before):
    """Names of the parameters that have changed."""
    return {name for name, p in weights_of(clf).items() if not torch.equal(p, before[name])}


@pytest.mark.parametrize("name, multilabel", EVERY)
def test_what_a_callback_has_frozen_is_trained_without_it(name, multilabel):
    X, y = make_learnable(multilabel)
    fit = {"groups": np.arange(150)} if name.startswith("bags") else {}
    clf = quick(name, max_epochs=2, warm_start=True).fit(X, y, **fit)
    names = {name for name, p in weights_of(clf).items() if p.numel()}
    for method in ("fit", "partial_fit"):
        before = weights_of(clf)
        getattr(clf.set_params(callbacks=[Freezer("*")]), method)(X, y, **fit)
        assert not moved(clf, before)
        getattr(clf.set_params(callbacks=None), method)(X, y, **fit)
        assert moved(clf, before) == names


def test_what_a_callback_has_thawed_is_frozen_without_it():
    frozen = torch.nn.Linear(60, 8).double().requires_grad_(False)
    X, y = make_learnable(True)
    clf = quick("flat", encoder=frozen, callbacks=[Unfreezer("encoder.*")], warm_start=True)
    clf.set_params(max_epochs=2).fit(X.toarray(), y)
    assert not torch.equal(clf.net_.module_.encoder.weight, frozen.weight)
    before = weights_of(clf)
    clf.set_params(callbacks=None).fit(X.toarray(), y)
    assert {name.partition(".")[0] for name in moved(clf, before)} == {"head"}


def test_a_failed_partial_fit_leaves_nothing_frozen():
    class Fail(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise RuntimeError("no more")

    clf = fitted()
    with pytest.raises(RuntimeError, match="no more"):
        clf.set_params(callbacks=[Freezer("*"), Fail()]).partial_fit(*make_learnable(True))
    assert all(p.requires_grad for p in clf.net_.module_.parameters())


@pytest.mark.parametrize("name", ["flat", "cascade"])
def test_gradient_norm_clipping(name):
    params = {"optimizer": "sgd", "batch_size": 150}
    free, loose, clipped = (
        fitted(*callbacks, name=name, **params).loss_curve_
        for callbacks in ([], [GradientNormClipping(1e9)], [GradientNormClipping(1e-9)])
    )
    assert free == loose
    assert free[-1] < 0.999 * free[0]
    np.testing.assert_allclose(clipped, clipped[0], rtol=1e-6)


def test_lr_scheduler_takes_over():
    seen = []

    class Rates(Callback):
        def on_batch_begin(self, net, **kwargs):
            seen.append([group["lr"] for group in net.optimizer_.param_groups])

    given = [LRScheduler("StepLR", step_size=1, gamma=0.5), Rates()]
    clf = fitted(*given, batch_size=150, optimizer="adam", learning_rate=0.02)
    rates = np.array(seen)
    np.testing.assert_allclose(rates / rates[0], 0.5 ** np.arange(4)[:, None] * np.ones_like(rates))
    assert set(rates[0]) == {0.02}
    assert [row["event_lr"] for row in clf.history_] == rates[:, 0].tolist()
    # Later passes are at a constant rate.
    assert [group["lr"] for group in clf.net_.optimizer_.param_groups] == rates[0].tolist()


def test_lr_scheduler_by_batch_and_by_score():
    one_cycle = {"policy": OneCycleLR, "max_lr": 0.05, "total_steps": 13, "step_every": "batch"}
    assert np.isfinite(fitted(LRScheduler(**one_cycle)).loss_curve_).all()
    on_score = LRScheduler("ReduceLROnPlateau", monitor="p_at_1", mode="max", patience=0)
    clf = fitted(precision_at_1(), on_score, patient(30), early_stopping=True, max_epochs=30)
    rates = [row["event_lr"] for row in clf.history_]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0]


def test_checkpoint(tmp_path):
    saves = Checkpoint(dirname=str(tmp_path), load_best=True, f_pickle="net.pkl")
    params = {"early_stopping": True, "learning_rate": 0.05}
    clf = fitted(saves, patient(99), max_epochs=40, **params)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"params.pt", "optimizer.pt", "criterion.pt", "history.json", "net.pkl"}
    losses = [row["valid_loss"] for row in json.loads((tmp_path / "history.json").read_text())]
    assert losses == [row["valid_loss"] for row in clf.history_]  # up to the best epoch
    assert min(losses) == losses[-1]
    assert len(losses) < 40
    state = torch.load(tmp_path / "params.pt", weights_only=True)
    assert all(value.equal(state[key]) for key, value in clf.net_.module_.state_dict().items())


@pytest.mark.parametrize(
    "callback",
    [EarlyStopping(), EarlyStopping, ("stop", EarlyStopping()), Checkpoint(monitor="valid_loss")],
    ids=named,
)
def test_the_loss_of_held_out_samples_needs_early_stopping(callback):
    """It is refused before training; skorch would find no such loss after an epoch."""
    with pytest.raises(ValueError, match="reads the loss of held-out samples.*early_stopping=True"):
        fitted(precision_at_1(on_train=True), callback)


def test_partial_fit_holds_no_samples_out_whatever_early_stopping_says():
    plateau = LRScheduler("ReduceLROnPlateau", monitor="valid_loss")
    clf, (X, Y) = fitted(plateau, early_stopping=True, max_epochs=2), make_learnable(True)
    before = clf.decision_function(X)
    with pytest.raises(ValueError, match="fit holds some out .*, partial_fit never; give another"):
        clf.partial_fit(X, Y)
    np.testing.assert_array_equal(clf.decision_function(X), before)


def test_early_stopping_on_a_score():
    stop = EarlyStopping("p_at_1", lower_is_better=False, patience=2, load_best=True)
    clf = fitted(precision_at_1(), stop, decision="threshold", max_epochs=80)
    scores = [row["p_at_1"] for row in clf.history_]
    assert len(scores) < 80
    assert max(scores) == scores[-3]


def test_early_stopping_given_as_a_class_takes_the_place_of_ours():
    assert in_training(fitted(EarlyStopping, early_stopping=True), EarlyStopping).patience == 5


def test_progress_bar(capsys):
    fitted(ProgressBar(), verbose=1)
    captured = capsys.readouterr()
    assert "/3 [" in captured.err
    table = [line for line in captured.out.splitlines() if not line.startswith("[")]
    assert len(table) == 6  # two of them its head


# --- objects that cannot be copied ------------------------------------------------------------


class Log(Callback):
    """Writes to an open file, under a lock."""

    def __init__(self, file):
        self.file, self.lock, self.seen = file, threading.Lock(), []

    def on_epoch_end(self, net, **kwargs):
        with self.lock:
            self.file.write(f"{net.history[-1, 'train_loss']}\n")
            self.seen.append(len(net.history))


def test_callbacks_with_open_files_and_locks(tmp_path):
    with open(tmp_path / "log", "w") as file:
        log = Log(file)
        with pytest.raises(TypeError):
            copy.deepcopy(log)
        clf = fitted(log, ("again", Log(file)))
        own = clf.net_.callbacks_[-3][1]
        assert own is not log
        assert (own.file, own.lock) == (file, log.lock)  # shared
        assert (own.seen, log.seen) == ([1, 2, 3, 4], [])  # not shared
    losses = [float(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert losses == np.repeat(clf.loss_curve_, 2).tolist()


def test_estimators_with_such_callbacks_can_be_cloned(tmp_path):
    X, y = make_learnable(False)
    with open(tmp_path / "log", "w") as file:
        clf = quick("flat", callbacks=[Log(file)], max_epochs=2)
        assert clone(clf).callbacks[0].file is file
        assert len(cross_val_score(clf, X, y % 2, cv=2)) == 2
        with pytest.raises(TypeError, match="callbacks must hold"):
            clone(clf.set_params(callbacks=[3])).fit(X, y)
    assert len((tmp_path / "log").read_text().splitlines()) == 4
