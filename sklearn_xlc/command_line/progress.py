"""What the commands say on the standard error: progress of training, and what "auto" chose."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from typing import Any

from skorch.callbacks import PrintLog

from sklearn_xlc.command_line import say

#: Seconds between two lines about one training.
SECONDS = 5.0
#: Settings that a line about "auto" names, in this order.
TOLD = ("encoder", "head", "loss", "max_epochs", "batch_size", "ranker", "decision")
#: What is said of the retrievers of similar texts.
RETRIEVERS = {
    "texts": "\nsimilar texts are found by their words and by the meaning of sentences",
    "words": "\nsimilar texts are found by their words; with pip install 'sklearn-xlc[text]' by "
    "the meaning of sentences, too",
}


class Progress(PrintLog):
    """Says how far the training of a network is."""

    def on_train_begin(self, net: Any, X: Any = None, **kwargs: Any) -> None:
        """Say how long it will be."""
        self.start = self.last = time.monotonic()
        say(f"training a network on {len(X)} rows: {net.max_epochs} epochs")

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Say how far it is, every few seconds."""
        now, n_done = time.monotonic(), len(net.history)
        if now - self.last < SECONDS:
            return
        self.last = now
        left = (now - self.start) / n_done * (net.max_epochs - n_done)
        loss = net.history[-1, "train_loss"]
        say(f"epoch {n_done} of {net.max_epochs}, loss {loss:.4g}, about {left:.0f} s to go")


def log_apart(quiet: bool) -> contextlib.AbstractContextManager[Any]:
    """Print the log of a fit (``verbose=1``) where progress is said: the results stand alone."""
    is_said = not quiet and sys.stderr is not None
    return contextlib.redirect_stdout(sys.stderr if is_said else io.StringIO())


def told(settings: dict[str, Any]) -> str:
    """Return lines on the settings of a fit, and on the retrievers of similar texts, if any."""
    shown = [f"{name}={settings[name]}" for name in TOLD if settings.get(name) is not None]
    retrievers = RETRIEVERS.get(str(settings.get("ranker__retrievers")), "")
    return f"settings: {', '.join(shown)}{retrievers}"
