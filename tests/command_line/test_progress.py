"""What is said about a fit."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from skorch.callbacks import PrintLog

from _factories import make_learnable
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.command_line import progress
from sklearn_xlc.encoders import MLP


def test_progress_in_words(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    X, Y = make_learnable(True, n_rows=90)
    params = {"encoder": MLP((4,)), "ranker": None, "max_epochs": 3, "random_state": 0}
    MultiHeadClassifier(callbacks=[progress.Progress()], **params).fit(X, Y)
    said = capsys.readouterr()
    assert said.out == ""
    first, *epochs = said.err.splitlines()
    assert re.fullmatch(r"training a network on \d+ rows: 3 epochs", first)
    for number, line in enumerate(epochs, 1):
        told = rf"epoch {number} of 3, loss [\d.]+, about \d+ s to go"
        assert re.fullmatch(told, line)
    assert len(epochs) == 3


@pytest.mark.parametrize("callback", [progress.Progress, PrintLog])
def test_showing_a_training_does_not_change_it(callback, rng, capsys):
    """Callbacks that only print leave the second network, which decides, as it is."""
    X = sp.random(300, 200, 0.05, format="csr", random_state=rng)
    Y = (X @ rng.random((200, 12)) > 2.5).astype(int)
    params = {"encoder": MLP((8,)), "max_epochs": 2, "random_state": 0}
    shown, usual = (
        MultiHeadClassifier(callbacks=each, **params).fit(X, Y) for each in ([callback()], None)
    )
    capsys.readouterr()
    assert usual.settings_["validation_fraction"] == "refit"
    assert shown.settings_ == usual.settings_
    np.testing.assert_array_equal(shown.decision_function(X), usual.decision_function(X))


def test_settings_and_retrievers():
    settings = {"head": "flat", "loss": "bce", "ranker": None, "ranker__retrievers": "words"}
    first, second = progress.told(settings).splitlines()
    assert first == "settings: head=flat, loss=bce"
    assert "'sklearn-xlc[text]'" in second
    assert "and by the meaning" in progress.told({"ranker__retrievers": "texts"})
    assert progress.told({"head": "flat"}) == "settings: head=flat"
