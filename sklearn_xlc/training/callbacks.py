"""Callbacks of the training loop: learning-rate schedule, weight averaging, collapse."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from skorch.callbacks import Callback

from sklearn_xlc._bounds import check_integer, check_option, check_real
from sklearn_xlc._carrying import carried
from sklearn_xlc.batches import BatchIterator, Rows
from sklearn_xlc.encoders import accepted_forms, own_collate
from sklearn_xlc.metrics import neural_collapse
from sklearn_xlc.training.devices import numpy_dtype


def callback_of(entry: Any) -> Any:
    """Return the callback of an entry of `callbacks`, with or without a name."""
    return entry[-1] if isinstance(entry, tuple) and entry else entry


def _kind_of(entry: Any) -> type:
    """Return the class of a callback, given as an instance or as the class."""
    callback = callback_of(entry)
    return callback if isinstance(callback, type) else type(callback)


def of_kind(callbacks: Any, *kinds: type[Callback]) -> list[Any]:
    """Return the entries of `callbacks`, a list or None, of some classes."""
    return [entry for entry in callbacks or [] if issubclass(_kind_of(entry), kinds)]


def copied(callbacks: Any) -> list[Any]:
    """Return deep copies of the user's callbacks.

    Parts without a deep copy, such as the writer of a log, are shared with the copy.

    Parameters
    ----------
    callbacks : list of skorch callbacks or of (name, callback) pairs, or None
        Callbacks given by the user.

    Returns
    -------
    list
        One copy per entry.
    """
    for entry in callbacks or []:
        if not issubclass(_kind_of(entry), Callback):
            raise TypeError(
                f"callbacks must hold skorch callbacks or (name, callback) pairs, got {entry!r}"
            )
    memo: dict[int, Any] = {}  # one for all: callbacks may hold each other
    return [copy_of(entry, memo) for entry in callbacks or []]


def copies_of(callbacks: Any) -> Any:
    """Copy callbacks, or return what are none; what several of them share is copied once."""
    is_list = isinstance(callbacks, list | tuple)
    return type(callbacks)(copied(callbacks)) if is_list else callbacks


def copy_of(entry: Any, memo: dict[int, Any]) -> Any:
    """Deep copy an entry of `callbacks`; share parts without a deep copy, such as locks."""
    if isinstance(entry, tuple):
        return (*entry[:-1], copy_of(entry[-1], memo)) if entry else entry
    try:
        return _deep_copy(entry, memo)
    except Exception:
        own = copy.copy(entry)
        for name, value in vars(entry).items():
            with contextlib.suppress(Exception):
                setattr(own, name, _deep_copy(value, memo))
        return own


def _deep_copy(value: Any, memo: dict[int, Any]) -> Any:
    trial = dict(memo)  # a copy that fails leaves parts of objects there
    copied = copy.deepcopy(value, trial)
    memo.update(trial)
    return copied


class CosineSchedule(Callback):
    """Set the learning rate of each step: linear warm-up, then a half cosine down to zero.

    Parameters
    ----------
    n_steps : int
        Number of steps of the whole training.
    warmup : float, default=0.05
        Fraction of warm-up steps.
    """

    def __init__(self, n_steps: int, warmup: float = 0.05) -> None:
        self.n_steps = check_integer(n_steps, "n_steps")
        self.warmup = check_real(warmup, "warmup", 0, 1)

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Start at step 0."""
        self.step_ = 0

    def on_batch_begin(
        self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any
    ) -> None:
        """Scale each group's peak rate for the next step."""
        if not training:
            return
        n_warmup = max(1, round(self.warmup * self.n_steps))
        if self.step_ < n_warmup:
            factor = (self.step_ + 1) / n_warmup
        else:
            progress = (self.step_ - n_warmup) / max(1, self.n_steps - n_warmup)
            factor = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        for group in net.optimizer_.param_groups:
            group["lr"] = group["peak_lr"] * factor
        self.step_ += 1

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Restore the learning rates, for `partial_fit`."""
        for group in net.optimizer_.param_groups:
            group["lr"] = group["peak_lr"]


@carried
class WeightAveraging(Callback):
    """Average the weights, and load the average when training ends.

    Parameters
    ----------
    method : {"swa", "ema"}
        "swa" averages the weights at the ends of the epochs of the last quarter; "ema" keeps an
        exponential moving average over steps.
    decay : float, default=0.99
        Decay of the moving average.

    Notes
    -----
    Training holds a second copy of the model. `partial_fit` does not average.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.training import WeightAveraging
    >>> clf = MultiHeadClassifier(callbacks=[WeightAveraging("ema")])
    """

    def __init__(self, method: str, decay: float = 0.99) -> None:
        self.method = check_option(method, "method", "swa", "ema")
        self.decay = check_real(decay, "decay", 0, 1)

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Start a new average."""
        self.count_, self.epoch_ = 0, 0
        self.average_: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def _include(self, net: Any, share: float) -> None:
        parameters = {name for name, _ in net.module_.named_parameters()}
        for name, value in net.module_.state_dict().items():
            if name not in self.average_:
                self.average_[name] = value.clone()
            elif value.is_floating_point():
                average = self.average_[name].lerp_(value, share)
                if name not in parameters:  # the mean of infinities, as in a mask, would be NaN
                    average.copy_(average.where(value.isfinite(), value))

    def on_batch_end(
        self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any
    ) -> None:
        """Update the moving average (ema)."""
        if training and self.method == "ema":
            self.count_ += 1
            # A plain mean at first, so that the initial weights do not dominate.
            self._include(net, max(1 - self.decay, 1 / self.count_))

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Update the mean over epochs (swa)."""
        self.epoch_ += 1
        if self.method == "swa" and self.epoch_ > 0.75 * net.max_epochs:
            self.count_ += 1
            self._include(net, 1 / self.count_)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Load the average into the module."""
        if self.average_:
            net.module_.load_state_dict(self.average_)
            self.average_ = {}


class TimeLeft(Callback):
    """Record how many seconds the remaining epochs take, at the mean of those before, as ``left``.

    Callbacks may end the training earlier.
    """

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Record the estimate."""
        seconds = net.history[:, "dur"]
        left = (net.max_epochs - len(seconds)) * sum(seconds) / len(seconds)
        net.history.record("left", math.ceil(left))


@carried
class CollapseMonitor(Callback):
    """Record measures of neural collapse after every epoch.

    The history of the net receives ``nc1``, ``nc2_means``, ``nc2_weights``, ``nc3``, and ``ncm_2``,
    ``ncm_3``, ..., ``nc1_2``, ``nc1_3``, ... for every size of label sets in the data.
    ``nc2_weights`` and ``nc3`` are NaN except for
    :class:`~sklearn_xlc.ETFNeuralCollapseClassifier`. The samples are not saved with a model.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features), or list of str
        Samples to watch, such as some of the training samples.
    y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_labels)
        Their labels: integer class ids from 0 on, or an indicator.

    See Also
    --------
    sklearn_xlc.plotting.NeuralCollapseDisplay : Plots the recorded measures.
    sklearn_xlc.metrics.neural_collapse : The measures.

    Examples
    --------
    >>> from sklearn_xlc import ETFNeuralCollapseClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> from sklearn_xlc.training import CollapseMonitor
    >>> X, Y = make_extreme_multilabel(300, 50, 10, random_state=0)
    >>> clf = ETFNeuralCollapseClassifier(callbacks=[CollapseMonitor(X, Y)], max_epochs=3)
    >>> clf.fit(X, Y).net_.history[:, "nc1"][0] > 0
    True
    """

    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = X, y

    def __deepcopy__(self, memo: dict[int, Any]) -> CollapseMonitor:
        return CollapseMonitor(self.X, self.y)  # the data are only read

    def __getstate__(self) -> dict[str, Any]:
        return {"X": None, "y": None}

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Record the measures, unless the monitor was loaded from a file, without samples."""
        if self.X is None:
            return
        head, encoder = net.module_.head, net.module_.encoder
        parameter = next(net.module_.parameters())
        X = self.X.tocsr() if sp.issparse(self.X) else np.asarray(self.X)
        is_text = X.dtype.kind in "UO"
        X = X.astype(object if is_text else numpy_dtype(net.module_), copy=False)
        sparse = sp.issparse(X) and "csr" in accepted_forms(encoder)
        rows = Rows(X, sparse=sparse, collate=own_collate(encoder))
        with torch.inference_mode():
            batches = BatchIterator(rows, net.batch_size, None, parameter.device)
            features = torch.cat([head.layer_inputs(net.features(batch)) for batch in batches])
            weights = head.classifier(features) if head.is_linear else None
        if weights is not None:
            weights = weights.detach().cpu().numpy()
        report = neural_collapse(features.cpu().numpy(), self.y, weights)
        for name, short in (("ncm", "ncm"), ("nc1m", "nc1")):
            of_sets = report.pop(name).items()  # "nc1" is that of one label
            report |= {f"{short}_{m}": value for m, value in of_sets if m > 1}
        for name, value in report.items():
            net.history.record(name, float(value))
