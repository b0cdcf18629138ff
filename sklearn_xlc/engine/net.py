"""The net of a classifier: training parameters, and their values for "auto"."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy
import sklearn
import torch
from sklearn.utils import check_random_state
from skorch.callbacks import (
    Callback,
    EarlyStopping,
    EpochScoring,
    LRScheduler,
    PrintLog,
    ProgressBar,
)
from torch import nn

import sklearn_xlc
from sklearn_xlc._checks import unchanged_on_error
from sklearn_xlc.batches import Rows, n_batches
from sklearn_xlc.batches.fetching import Fetching
from sklearn_xlc.batches.processes import (
    Processes,
    all_processes,
    training_processes,
    training_with,
)
from sklearn_xlc.batches.randomness import Generators, usual_modes, with_device
from sklearn_xlc.engine.agreement import check_agreement, digest_of_some
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, available_memory, refuse_beyond, training_bytes
from sklearn_xlc.engine.validation import SMALL_DATA, TrainingData, model_dtype
from sklearn_xlc.heads import PointwiseLoss
from sklearn_xlc.training import CosineSchedule, EncoderHead, WeightAveraging, XLCNet, copied
from sklearn_xlc.training.checkpoints import FORMAT, Checkpoints
from sklearn_xlc.training.devices import resolve_device
from sklearn_xlc.training.encoding import identity
from sklearn_xlc.training.finite import check_weights
from sklearn_xlc.training.parts import module_on_first
from sklearn_xlc.training.progress import EpochBar, EpochLines, shows_bars

#: Parameters with which a fit may go on from checkpoints of other values: the weights that it ends
#: in do not depend on them. (Of the random state its numbers count, of warm_start the weights.)
_OF_NO_EFFECT = {
    "checkpoint",
    "device",
    "distributed",
    "memory_limit",
    "random_state",
    "verbose",
    "warm_start",
}


class TrainingMixin:
    """Build the net from the training parameters that all classifiers share, and take it over."""

    encoder: Any
    dropout: Any
    hidden_layer_sizes: Any
    batch_size: Any
    max_epochs: Any
    early_stopping: bool
    n_iter_no_change: int
    average_weights: str | None
    precision: str
    optimizer: str
    #: Momentum of "sgd", and whether it is Nesterov's, for subclasses without these parameters.
    momentum: float = 0.0
    nesterov: bool = False
    learning_rate: Any
    weight_decay: float
    callbacks: Any
    device: Any
    warm_start: bool
    verbose: Any
    get_params: Any
    random_state: Any
    #: Number of networks side by side, for subclasses without this parameter.
    n_members: Any = 1
    #: Folder of checkpoints, and weights of labels, for subclasses without these parameters.
    checkpoint: Any = None
    class_weight: Any = None
    #: Whether processes train together, for subclasses without this parameter.
    distributed: Any = "auto"
    _sparse_inputs: bool
    net_: XLCNet
    _bfloat16: bool
    _labels_of: Any
    _code: LabelCode
    classes_: np.ndarray
    history_: list[dict[str, Any]]
    loss_curve_: list[float]
    n_iter_: int
    t_: int

    #: Parameters that set how many weights the model has.
    _sizes: tuple[str, ...] = ("hidden_layer_sizes",)

    #: Fraction of hidden units that dropout="auto" drops if X is mostly zeros.
    _sparse_dropout = 0.7

    def _hidden_sizes(self, rows: Rows) -> Any:
        """Widths of the hidden layers."""
        return self.hidden_layer_sizes

    def _dropout(self, rows: Rows) -> float:
        if self.dropout != "auto":
            return float(self.dropout)
        if rows.n_instances <= SMALL_DATA:
            return 0.0
        # Networks overfit rare words; columns of dense X occur in every sample.
        return self._sparse_dropout if self._sparse_inputs else 0.2

    def _rule(self, n_samples: int) -> str:
        """Optimisation algorithm."""
        return "adam" if self.optimizer == "auto" else self.optimizer

    def _unread_by_optimizer(self) -> dict[str, str]:
        if self.optimizer != "sgd":
            return dict.fromkeys(("momentum", "nesterov"), "without optimizer='sgd'")
        return {} if self.momentum else {"nesterov": "with momentum=0.0"}

    def _negative_slope(self, rows: Rows) -> float:
        """Slope of the activation below zero."""
        return 0.0

    def _rates(self, rows: Rows) -> tuple[float, float]:
        """Peak learning rates of encoder and head."""
        return self.learning_rate, self.learning_rate

    def _batch_size(self, n_samples: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        return 256 if n_samples > SMALL_DATA else max(1, n_samples)

    def _max_epochs(self, n_samples: int) -> int:
        if self.max_epochs != "auto":
            return int(self.max_epochs)
        if n_samples <= SMALL_DATA:
            return 200
        return max(10, -(-300 // n_batches(n_samples, self._batch_size(n_samples))))

    def _row_momentum(self, n_samples: int) -> bool:
        """Whether Adam on rows has a first moment."""
        return True

    def _uses_bfloat16(self, n_samples: int) -> bool:
        """Whether matrix products of training have half precision."""
        return self.precision == "bfloat16"

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        """Context of a fit: as it was if anything fails, torch's modes, all processes."""
        processes = self._processes()
        with unchanged_on_error(self), usual_modes(training=True), training_with(processes):
            yield

    def _processes(self) -> Processes | None:
        """Processes that take part in a fit; None: this one is alone."""
        processes = all_processes() if self.distributed else None
        if processes is None and self.distributed is True:
            raise ValueError(
                "distributed=True needs a process group of several processes: start the program "
                "with torchrun and call sklearn_xlc.distributed.init() first, or set "
                "distributed='auto'"
            )
        return processes

    def _check_agreement(self, data: TrainingData, processes: Processes, n_steps: int) -> None:
        """Raise ValueError unless all processes fit the same classifier to the same data."""
        rows = data.rows
        about = {
            "class": type(self).__name__,
            **{
                f"parameter {name}": _comparable(value) for name, value in self.get_params().items()
            },
            "shape of X": tuple(rows.X.shape),
            "number of samples": len(rows),
            "shape of y": rows.Y.shape,
            "number of steps before": n_steps,
            "number and sum of labels": (rows.Y.nnz, int(rows.Y.indices.sum(dtype=np.int64))),
            "digest of samples, labels and weights": digest_of_some(rows),
        }
        check_agreement(
            processes,
            about,
            "all processes must fit the same classifier to the same data",
            "whatever draws at random before a fit, such as a split or EAGLETransformer, needs a "
            "random_state",
        )

    def _agreed_random_state(self, data: TrainingData, going_on: bool) -> np.random.RandomState:
        """Random state of a fit: the first process's, once all fit the same to the same data."""
        rng, processes = check_random_state(self.random_state), training_processes()
        shards = self.net_.module_.head.sharded_parameters().values() if going_on else ()
        for shard in shards:
            if shard.processes != processes:
                shard.refuse_part()
        if processes is None:
            return rng
        self._check_agreement(data, processes, self.t_ if going_on else 0)
        if rng is check_random_state(None):
            return np.random.RandomState(processes.of_first(rng.randint(2**31 - 1)))
        rng.set_state(processes.of_first(rng.get_state()))
        return rng

    def _begin(
        self, data: TrainingData, going_on: bool
    ) -> tuple[np.random.RandomState, Checkpoints | None]:
        """Random state of a fit, and its checkpoints.

        A fit that was killed must find its own checkpoints when it is started again, and no fit
        those of another: a digest of all that determines the result is part of their name.
        """
        rng = self._agreed_random_state(data, going_on)
        is_seeded = check_random_state(self.random_state) is not check_random_state(None)
        if self.checkpoint is None:
            return rng, None
        rows, code = data.rows, data.code
        params = self.get_params(deep=False).items()
        with Fetching() as fetching:  # the first process names the files
            name = identity(
                [
                    FORMAT,
                    [package.__version__ for package in (sklearn_xlc, torch, np, scipy, sklearn)],
                    type(self),
                    {name: value for name, value in params if name not in _OF_NO_EFFECT},
                    [rows.X, rows.members, rows.bags, rows.Y, rows.sample_weight],
                    [code.classes, code.multilabel],
                    rng.get_state() if is_seeded else None,
                    module_on_first(self.net_.module_, fetching) if going_on else None,
                ]
            )
        checkpoints = Checkpoints(self.checkpoint, f"{type(self).__name__}-{name[:32]}")
        if not is_seeded:  # the first weights and the order must be those of the killed fit
            rng = np.random.RandomState(checkpoints.seed_or(rng.randint(2**31 - 1)))
        return rng, checkpoints

    def _check_memory(
        self, encoder: nn.Module | None, head: Any, rows: Rows, n_labels: int
    ) -> None:
        """Raise MemoryError for a model that does not fit, before its weights are allocated.

        `encoder` and `head` are as :func:`without_weights` makes them, or have their weights
        already; None: unknown.
        """
        if encoder is None:
            return
        itemsize, n_samples = model_dtype(rows.X).itemsize, len(rows)
        copies = int(self.early_stopping) + int(self.average_weights is not None)
        rule, momentum = self._rule(n_samples), self.momentum
        weights, beside = training_bytes(encoder, head, itemsize, rule, copies, momentum)
        if head is not None:
            beside += head.step_bytes(min(n_samples, self._batch_size(n_samples)))
        if weights + beside < SMALL:
            return
        what, remedy = f"training with {n_labels:,} labels", self._smaller_model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given when the net is made
            device = resolve_device(self.device)
        on_host = weights + (beside if device == "cpu" else 0)
        refuse_beyond(on_host, available_memory(), what, remedy)
        if device != "cpu":
            refuse_beyond(weights + beside, available_memory(device), f"{what} on {device}", remedy)

    def _smaller_model(self) -> str:
        """Parameters that make training take less memory, for messages."""
        names = [name for name in self._sizes if name != "hidden_layer_sizes" or not self.encoder]
        helps = [f"a smaller {' or '.join(names)}" if names else "a narrower encoder"]
        if self.optimizer not in ("adagrad", "sgd"):
            helps.append("optimizer='adagrad', which keeps one number for each row of weights")
        if self.optimizer == "sgd" and self.momentum:
            helps.append("momentum=0.0, which keeps no second copy of the weights")
        if self.early_stopping or self.average_weights:
            helps.append("early_stopping=False and average_weights=None, which keep copies")
        return ", or ".join([*helps, "a smaller batch_size"])

    def _make_net(
        self,
        module: EncoderHead,
        rows: Rows,
        validation: Rows | None,
        rng: np.random.RandomState,
        generators: Generators = (),
        one_pass: bool = False,
    ) -> XLCNet:
        device, n_samples = resolve_device(self.device), len(rows)
        max_epochs = 1 if one_pass else self._max_epochs(n_samples)
        batch_size = min(self._batch_size(n_samples), max(1, n_samples))
        rate, head_rate = self._rates(rows)
        callbacks = copied(self.callbacks)
        if validation is None and not one_pass:
            _warn_of_scores(callbacks)
        n_steps = n_batches(n_samples, batch_size)
        verbose = bool(self.verbose) or _has(callbacks, PrintLog)  # which prints for such nets only
        processes = training_processes()
        if processes is not None and processes.rank:  # the first one speaks for all
            verbose = False
        if self.verbose and verbose:
            callbacks.extend(self._shown(callbacks, module.head, n_steps))
        if not one_pass:
            if not _has(callbacks, LRScheduler):
                callbacks.append(CosineSchedule(max_epochs * n_steps))
            if self.early_stopping:
                callbacks.append(EarlyStopping(patience=self.n_iter_no_change, load_best=True))
            if self.average_weights:
                callbacks.append(WeightAveraging(self.average_weights, max_epochs))
        return XLCNet(
            module,
            rng=np.random.default_rng(rng.randint(2**31 - 1)),
            generators=with_device(generators, torch.device(device)),
            validation=validation,
            with_valid_loss=self.early_stopping,
            keeps_interrupted=not one_pass and processes is None,
            precision="bfloat16" if self._bfloat16 else "float32",
            optimizer_rule=self._rule(n_samples),
            optimizer__weight_decay=self.weight_decay,
            optimizer__momentum=self.momentum,
            optimizer__nesterov=self.nesterov,
            lr=rate,
            head_lr=head_rate,
            row_momentum=self._row_momentum(n_samples),
            max_epochs=max_epochs,
            batch_size=batch_size,
            device=device,
            processes=processes,
            callbacks=callbacks,
            callbacks__print_log=None,
            verbose=int(verbose),
        )

    def _shown(self, callbacks: list[Any], head: Any, n_steps: int) -> list[Callback]:
        """Callbacks for `verbose`, unless the user's do the same."""
        shown: list[Callback] = []
        if shows_bars() and not _has(callbacks, ProgressBar):
            shown.append(EpochBar(n_steps, postfix_keys=["train_loss"]))
        if not _has(callbacks, PrintLog):
            is_sum = head.multilabel and any(isinstance(p, PointwiseLoss) for p in head.modules())
            shown.append(EpochLines(head.n_labels if is_sum else 1))
        return shown

    def _warn_of_interrupt(self, net: XLCNet) -> None:
        if net.interrupted_:
            warnings.warn(
                f"Training interrupted by user in epoch {len(net.history)} of {net.max_epochs}: "
                "the model has the weights of its last step; fit with warm_start=True trains it "
                "further",
                UserWarning,
                stacklevel=5,
            )

    def _scored_by(self, net: XLCNet) -> Any:
        """Copy of the classifier that predicts with a net in training, for scores of callbacks."""
        view = object.__new__(type(self))
        view.__dict__ = {**vars(self), "net_": net}
        if self._code.multilabel:
            view.classes_ = np.arange(len(self.classes_))  # columns of the indicator
        return view

    def _given_labels(self, rows: Rows) -> Any:
        """Labels of samples as scorers read them: classes, or a CSR indicator."""
        Y = self._labels_of(rows)
        return Y if self._code.multilabel else self.classes_[Y.indices]

    def _finish(self, net: XLCNet, keep_optimizer: bool = False) -> None:
        if not keep_optimizer:
            check_weights(net.module_)
        rows, earlier = list(net.history), getattr(self, "history_", [])  # old files have none
        numbers = [{**_numbers(row), "epoch": self.n_iter_ + i} for i, row in enumerate(rows, 1)]
        self.history_ = [*earlier, *numbers]
        self.loss_curve_ = [*self.loss_curve_, *(row["train_loss"] for row in numbers)]
        self._weights_borrowed = False
        self.n_iter_ += len(rows)
        self.t_ += sum(row["train_batch_count"] for row in rows)
        for group in net.optimizer_.param_groups:  # schedules of the user leave the last rate
            group["lr"] = group["peak_lr"]
        if not (keep_optimizer or self.warm_start):
            net.optimizer_.state.clear()
        net.validation, net.checkpoints, net.generators = None, None, ()
        net.classifier = net.processes = None
        self.net_ = net


def _comparable(value: Any) -> Any:
    """Value of a parameter, or the name of its class, where equal objects may look different."""
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return value if is_plain else type(value).__name__


def _has(callbacks: list[Any], kind: type[Callback]) -> bool:
    """Whether there is a callback of this class: an instance or the class, perhaps with a name."""
    found = (entry[-1] if isinstance(entry, tuple) else entry for entry in callbacks)
    return any(issubclass(c if isinstance(c, type) else type(c), kind) for c in found)


def _warn_of_scores(callbacks: list[Any]) -> None:
    """Warn of scores of held-out samples where there are none, which skorch leaves out silently."""
    for entry in callbacks:
        callback = entry[-1] if isinstance(entry, tuple) else entry
        if isinstance(callback, EpochScoring) and not callback.on_train:
            warnings.warn(
                "EpochScoring has no held-out samples to score: set early_stopping=True, which "
                "holds some out, or on_train=True",
                UserWarning,
                stacklevel=6,
            )


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Losses and scores in a row of a history: what is equal for equal fits, unlike times."""
    return {
        name: int(value) if isinstance(value, Integral) else float(value)
        for name, value in row.items()
        if isinstance(value, Real)
        and not isinstance(value, bool)
        and name != "dur"
        and not name.endswith("_batch_count")
    }
