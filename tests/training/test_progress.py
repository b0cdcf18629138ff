"""Lines and bars of `verbose`: what they say, where they are shown, and that fits do not change."""

import builtins
import re
import signal
import sys

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback
from torch import nn

from _factories import MULTI_LABEL, make_learnable, quick
from sklearn_xlc.engine import trainer
from sklearn_xlc.training.progress import duration, shows_bars

LINE = re.compile(
    r"epoch +(?P<epoch>\d+)/(?P<of>\d+)  (?P<loss>loss|loss per label) (?P<train>[\d.e-]+) *"
    r"(  held out (?P<valid>[\d.e-]+) *)?(  P@1 (?P<one>[\d.]+))?(  P@5 (?P<five>[\d.]+))?"
    r"  (?P<took>\d+\.\d s)(  (?P<left>\d+\.\d s) left)?"
)


def lines_of(capsys):
    captured = capsys.readouterr()
    return [LINE.fullmatch(line) for line in captured.out.splitlines()], captured.err


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_line_for_each_epoch(multilabel, early_stopping, capsys):
    X, y = make_learnable(multilabel)
    params = {"verbose": 1, "max_epochs": 3, "batch_size": 50, "early_stopping": early_stopping}
    clf = quick("flat", **params).fit(X, y)
    lines, errors = lines_of(capsys)
    assert errors == ""  # not a terminal: no bar
    assert [line["epoch"] for line in lines] == ["1", "2", "3"]
    assert [line["left"] is None for line in lines] == [False, False, True]
    n_losses = len(clf.classes_) if multilabel else 1
    for line, row in zip(lines, clf.history_, strict=True):
        assert line["loss"] == ("loss per label" if multilabel else "loss")
        assert float(line["train"]) == pytest.approx(row["train_loss"] / n_losses, rel=0.01)
        assert (line["valid"] is None) is (line["one"] is None) is not early_stopping
        if early_stopping:
            assert float(line["valid"]) == pytest.approx(row["valid_loss"] / n_losses, rel=0.01)
            assert float(line["one"]) == pytest.approx(row["valid_precision_at_1"], abs=6e-4)
        assert (line["five"] is None) is ("valid_precision_at_5" not in row)
        assert ("valid_precision_at_5" in row) is (early_stopping and multilabel)


def test_nothing_is_shown_or_measured_without_it(capsys):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2, early_stopping=True).fit(X, y)
    assert capsys.readouterr() == ("", "")
    assert [sorted(row) for row in clf.history_] == [["epoch", "train_loss", "valid_loss"]] * 2


def test_samples_held_out_for_the_decision_are_measured(capsys):
    X, Y = make_learnable(True)
    clf = quick("cascade", head__label_order="random", decision="threshold", max_epochs=60)
    clf.set_params(verbose=1).fit(X, Y)
    lines, _ = lines_of(capsys)
    assert {(line["valid"], line["one"] is None) for line in lines} == {(None, False)}
    # A loss takes a pass over them, and may draw random numbers; it is left to early stopping.
    assert "valid_loss" not in clf.history_[-1]
    assert clf.history_[0]["valid_precision_at_1"] < clf.history_[-1]["valid_precision_at_1"]
    assert clf.history_[-1]["valid_precision_at_1"] > 0.5


@pytest.mark.parametrize("name", [*MULTI_LABEL, "product", "sampling"])
def test_the_fit_is_the_same(name, capsys):
    X, y = make_learnable(name not in ("product", "sampling"))
    params = {"max_epochs": 2, "batch_size": 50, "early_stopping": True, "encoder__dropout": 0.2}
    quiet = quick(name, **params).fit(X, y)
    shown = quick(name, **params, verbose=1).fit(X, y)
    assert len(lines_of(capsys)[0]) == 2
    assert quiet.loss_curve_ == shown.loss_curve_
    states = [clf.net_.module_.state_dict() for clf in (quiet, shown)]
    assert all(value.equal(states[1][key]) for key, value in states[0].items())


class Noisy(nn.Linear):
    """An encoder of the user that draws from torch's global generator, in prediction too."""

    def forward(self, rows):
        return super().forward(rows + 0.1 * torch.rand_like(rows))


def test_the_fit_is_the_same_where_prediction_draws():
    X, Y = make_learnable(True, dtype=np.float32)
    X, encoder = X.toarray(), Noisy(60, 8)
    losses = [
        quick("flat", encoder=encoder, max_epochs=3, decision="threshold", verbose=verbose)
        .fit(X, Y)
        .loss_curve_
        for verbose in (0, 1)
    ]
    assert losses[0] == losses[1]


def test_a_bar_within_an_epoch_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(trainer, "shows_bars", lambda: True)
    X, y = make_learnable(False)
    quick("flat", verbose=1, max_epochs=2, batch_size=50).fit(X, y)
    lines, errors = lines_of(capsys)
    assert all(lines)
    assert "/3 [" in errors  # steps of an epoch
    assert errors.endswith("\r")  # cleared


def test_the_bar_of_an_interrupted_epoch_is_cleared(monkeypatch, capsys):
    class Press(Callback):
        def on_batch_end(self, net, **kwargs):
            if len(net.history) == 2:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(trainer, "shows_bars", lambda: True)
    X, y = make_learnable(False)
    clf = quick("flat", verbose=1, max_epochs=4, batch_size=50, callbacks=[Press()])
    with pytest.warns(UserWarning, match="interrupted by user in epoch 2 of 4"):
        clf.fit(X, y)
    lines, errors = lines_of(capsys)
    assert [(line["epoch"], line["left"] is None) for line in lines] == [("1", False), ("2", True)]
    assert errors.endswith("\r")


def test_where_bars_are_shown(monkeypatch):
    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert not shows_bars()
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert shows_bars()
    monkeypatch.delattr(builtins, "get_ipython")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert shows_bars()


def test_a_resumed_fit_shows_the_epochs_that_are_left(tmp_path, capsys):
    class Fail(Callback):
        def on_epoch_begin(self, net, **kwargs):
            if len(net.history) == 3 and not list(tmp_path.glob("second")):
                (tmp_path / "second").touch()
                raise RuntimeError("killed")

    X, y = make_learnable(False)
    params = {"checkpoint": str(tmp_path / "fits"), "verbose": 1, "max_epochs": 5}
    clf = quick("flat", callbacks=[Fail()], **params)
    with pytest.raises(RuntimeError, match="killed"):
        clf.fit(X, y)
    clf.fit(X, y)
    epochs = [int(line["epoch"]) for line in lines_of(capsys)[0]]
    assert epochs[:2] == [1, 2]
    assert epochs[2] > 1
    assert epochs[2:] == list(range(epochs[2], 6))


@pytest.mark.parametrize(
    "seconds, text",
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (3600, "1 h 00 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
