"""Output of `verbose=1`: a line for each epoch, and a bar within it."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import numpy as np
from skorch.callbacks import Callback, ProgressBar

from sklearn_xlc.batches.randomness import as_global, new_generators
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.training.foreign import may_draw

#: Values of k of the printed P@k.
RANKS = (1, 5)


class EpochLines(Callback):
    """Print a line for each epoch, and record P@1 and P@5 of held-out samples.

    A line has the epoch, the training loss per label, the duration of the epoch and the time left.
    With held-out samples it also has ``valid_loss`` and P@k.
    """

    def __init__(self, n_losses: int = 1) -> None:
        self.n_losses = n_losses

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Start the clock."""
        self._began = self._ended = time.monotonic()
        self._first = 0
        self._printed = 0

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Store the number of the first epoch; in a resumed fit it is not 1."""
        if not self._first:
            self._first, self._began = len(net.history), time.monotonic()
            self._ended = self._began

    def on_epoch_end(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Compute the precision, and print the line."""
        if dataset_valid is not None:
            for k, value in _precisions(net, dataset_valid).items():
                net.history.record(f"valid_precision_at_{k}", value)
        self._print(net)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Print the line of an epoch cut short by an interrupt or another callback."""
        if self._first and len(net.history) != self._printed:
            self._print(net, goes_on=False)

    def _print(self, net: Any, goes_on: bool = True) -> None:
        row, now = net.history[-1], time.monotonic()
        epoch, width = len(net.history), len(str(net.max_epochs))
        name = "loss" if self.n_losses == 1 else "loss per label"
        parts = [
            f"epoch {epoch:>{width}}/{net.max_epochs}",
            f"{name} {row['train_loss'] / self.n_losses:<8.3g}",
        ]
        if "valid_loss" in row:
            parts.append(f"held out {row['valid_loss'] / self.n_losses:<8.3g}")
        for k in RANKS:
            if f"valid_precision_at_{k}" in row:
                parts.append(f"P@{k} {row[f'valid_precision_at_{k}']:.3f}")
        parts.append(duration(now - self._ended))
        if goes_on and epoch < net.max_epochs:
            per_epoch = (now - self._began) / (epoch + 1 - self._first)
            parts.append(f"{duration((net.max_epochs - epoch) * per_epoch)} left")
        print("  ".join(parts), flush=True)
        self._ended, self._printed = now, epoch


class EpochBar(ProgressBar):
    """Progress bar of the steps of an epoch, cleared at its end and when training stops."""

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Create the bar; in notebooks without ipywidgets (where skorch's fails), a plain one."""
        from tqdm.auto import tqdm

        self.pbar_ = tqdm(total=self.batches_per_epoch, leave=False)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Clear the bar of an unfinished epoch."""
        if hasattr(self, "pbar_"):
            self.pbar_.close()


def shows_bars() -> bool:
    """Return whether standard error is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or ProgressBar().in_ipynb()


def duration(seconds: float) -> str:
    """Format seconds as text, such as "59.9 s" or "2 h 03 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) // 60 % 60:02d} min"


def _precisions(net: Any, held: Any) -> dict[int, float]:
    """Compute P@k of held-out samples, by k."""
    n_labels = net.module_.head.n_labels
    # Whether there are lines or not makes no difference to what the fit draws next.
    alone = as_global(new_generators(0)) if may_draw(net.module_) else contextlib.nullcontext()
    with alone:
        labels, _ = net.predict_topk(held.X, min(max(RANKS), n_labels))
    if np.ndim(held.labels) == 1:  # each sample has one label: P@5 could not exceed 1/5
        return {1: float(np.mean(labels[:, 0] == held.labels))}
    return {k: float(precision_at_k(held.labels, labels, k)) for k in RANKS if k <= n_labels}
