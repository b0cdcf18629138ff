"""Lines and bars of `verbose`: what they say, where they are shown, and that fits do not change."""

import builtins
import re
import sys

import numpy as np
import pytest
import torch
from skorch.callbacks import PrintLog
from torch import nn

from _factories import MULTI_LABEL, make_learnable, quick

NUMBER = re.compile(r"\x1b\[\d+m")  # colours of the best values


def tables_of(capsys):
    """Rows of what was printed, by the names of its columns, and what went to standard error."""
    captured = capsys.readouterr()
    lines = [line for line in captured.out.splitlines() if not line.startswith("[")]
    head, _, *rows = [NUMBER.sub("", line).split() for line in lines]
    return [dict(zip(head, map(float, row), strict=True)) for row in rows], captured.err


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_line_for_each_epoch(multilabel, early_stopping, capsys):
    X, y = make_learnable(multilabel)
    params = {"verbose": 1, "max_epochs": 3, "batch_size": 50, "early_stopping": early_stopping}
    clf = quick("flat", **params, ranker=None, decision="topk").fit(X, y)
    rows, errors = tables_of(capsys)
    assert errors == ""  # not a terminal: no bar
    for row, kept in zip(rows, clf.history_, strict=True):
        assert row.pop("dur") >= 0
        assert (row.pop("left") == 0) is (row["epoch"] == 3)
        assert row == pytest.approx(kept, abs=6e-5)
        assert ("valid_loss" in row) is ("valid_precision_at_1" in row) is early_stopping
        assert ("valid_precision_at_5" in row) is (early_stopping and multilabel)


def test_nothing_is_shown_or_measured_without_it(capsys):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2, early_stopping=True).fit(X, y)
    assert capsys.readouterr() == ("", "")
    assert [sorted(row) for row in clf.history_] == [["epoch", "train_loss", "valid_loss"]] * 2


def test_samples_held_out_for_the_decision_are_measured(capsys):
    X, Y = make_learnable(True, n_rows=300)
    clf = quick("cascade", head__label_order="random", decision="threshold", max_epochs=3)
    clf.set_params(verbose=1, batch_size=32).fit(X, Y)
    # A loss takes a pass over them, and may draw random numbers; it is left to early stopping.
    assert "valid_loss" not in clf.history_[-1]
    assert clf.history_[0]["valid_precision_at_1"] < clf.history_[-1]["valid_precision_at_1"]
    assert clf.history_[-1]["valid_precision_at_1"] > 0.5


@pytest.mark.parametrize(
    "name",  # variants of a head are measured as it is
    [
        *(pytest.param(n, marks=pytest.mark.slow if "-" in n else ()) for n in MULTI_LABEL),
        *("product", "sampling"),
    ],
)
def test_the_fit_is_the_same(name, capsys):
    X, y = make_learnable(name not in ("product", "sampling"))
    params = {"max_epochs": 2, "batch_size": 50, "early_stopping": True, "encoder__dropout": 0.2}
    quiet = quick(name, **params).fit(X, y)
    shown = quick(name, **params, verbose=1).fit(X, y)
    assert len(tables_of(capsys)[0]) == 2
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
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    X, y = make_learnable(False)
    quick("flat", verbose=1, max_epochs=2, batch_size=50, ranker=None).fit(X, y)
    rows, errors = tables_of(capsys)
    assert len(rows) == 2
    assert "/3 [" in errors  # steps of an epoch
    assert errors.endswith("\r")  # cleared


def test_a_bar_in_a_notebook(monkeypatch, capsys):
    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    X, y = make_learnable(False)
    quick("flat", verbose=1, max_epochs=1, batch_size=50).fit(X, y)
    assert "/3 [" in capsys.readouterr().err  # of text: widgets would need ipywidgets


def test_the_users_own_take_their_place(capsys):
    lines, params = [], {"max_epochs": 2, "early_stopping": True, "verbose": 1}
    X, y = make_learnable(False)
    quick("flat", callbacks=[PrintLog(sink=lines.append)], **params).fit(X, y)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert all(line.startswith("[") for line in captured.out.splitlines())
    assert "valid_precision_at_1" in lines[0]
    assert len(lines) == 4


def test_stages_are_told_in_words(capsys):
    X, y = make_learnable(True, n_rows=1000)
    clf = quick("flat", verbose=1, max_epochs=2, ranker="boosted").fit(X, y)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert told[0].startswith("[MultiHeadClassifier] 1 000 samples, 23 labels; MLP and Flat, ")
    assert told[0].endswith(f"2 epochs of {clf.t_ // 2} steps")
    assert any("BoostedRanker" in line and "remembers" in line for line in told[1:])
    assert any("Threshold" in line and "learns from" in line for line in told[1:])
