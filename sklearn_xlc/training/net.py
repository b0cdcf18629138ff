"""Train an encoder and a head in a net of skorch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import EarlyStopping
from skorch.utils import TeeGenerator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sklearn_xlc.batches import (
    Bags,
    Batch,
    BatchIterator,
    Generators,
    Rows,
    SparseRows,
    as_global,
    drawing_from,
    one_thread_after_fork,
    threads_for,
    usual_modes,
)
from sklearn_xlc.distributed import ALONE, Alone, batches_for, begin_together, stay_alike
from sklearn_xlc.heads import FlatHead, Head
from sklearn_xlc.training.callbacks import of_kind
from sklearn_xlc.training.checkpoints import Checkpoints
from sklearn_xlc.training.direct import DirectStep
from sklearn_xlc.training.errors import failure_of
from sklearn_xlc.training.finite import Statistic, check_forward, running_statistics
from sklearn_xlc.training.foreign import callback_may_draw, may_draw
from sklearn_xlc.training.gradients import CollectedGradients, reads_gradients
from sklearn_xlc.training.heap import keep_memory
from sklearn_xlc.training.interrupts import Interrupts
from sklearn_xlc.training.optimizer import RowOptimizer, parameter_groups, row_parameters
from sklearn_xlc.training.scoring import Samples, ScoredNet


class EncoderHead(nn.Module):
    """Module of an encoder and a head.

    Parameters
    ----------
    encoder : Module
        Maps a batch of inputs to features of shape (n_samples, n_features).
    head : Head
        Computes loss, scores and best labels from features.
    """

    #: Names of weights of a mapped file that nobody has read, and whether they may be infinite.
    unread: Mapping[str, bool] = {}

    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, inputs: Any) -> Any:
        """Compute the features of the inputs; for bags, return them as `Bags` of instances."""
        if isinstance(inputs, Bags):
            return replace(inputs, features=self.forward(inputs.instances))
        with failure_of(f"the encoder {type(self.encoder).__name__}"):
            return self.encoder(inputs)


class XLCNet(ScoredNet, NeuralNet):
    """Net of skorch for an :class:`EncoderHead` and :class:`~sklearn_xlc.batches.Rows`.

    A classifier builds a net in `fit` and keeps it as ``net_``. skorch provides the training loop,
    callbacks and history; this class provides batches, optimiser, training step and checkpoints.

    Parameters
    ----------
    module : EncoderHead
        Module to train in place; skorch makes no copy of it.
    rng : numpy Generator
        Generator that draws the order of the training samples.
    generators : tuple of torch.Generator, default=()
        Generators for all other random draws of training, such as dropout: one for the CPU and, if
        `device` is another, one for it. Modules and callbacks that may draw from torch's global
        generator run with these in its place, one thread at a time. Empty: the global ones.
    validation : Rows, default=None
        Held-out samples, for the validation loss and for scores of callbacks.
    with_valid_loss : bool, default=True
        Whether ``valid_loss`` of the held-out samples is computed after each epoch.
    keeps_interrupted : bool, default=False
        Whether an interrupt by the user or a callback ends the training after the current step and
        keeps the net; otherwise it is raised.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the encoder ("bfloat16": under autocast). The head has its own precision.
    optimizer_rule : {"adam", "mixed", "adagrad", "sgd"}, default="adam"
        Update rule of each kind of parameter, see
        :data:`~sklearn_xlc.training.optimizer.RULES`.
    row_momentum : bool, default=True
        Whether Adam on the rows of sparse layers and tables has a first moment. If steps rarely
        touch a row, the moment averages gradients of long ago. It takes a third of the update's
        time.
    head_lr : float, default=None
        Peak learning rate of the head. None: `lr`.
    checkpoints : Checkpoints, default=None
        Checkpoints to resume from and to write. None: none.
    processes : Alone or Processes, default=ALONE
        Processes of a distributed fit: each holds its shard of the head, and reads all of a batch
        or its part.
    **kwargs
        Parameters of :class:`skorch.NeuralNet`, such as `lr`, `max_epochs`, `batch_size`, `device`,
        `callbacks`, ``optimizer__weight_decay`` and ``optimizer__momentum``.

    Attributes
    ----------
    module_ : EncoderHead
        The module.
    optimizer_ : RowOptimizer
        Optimiser; its groups store their peak rates as ``peak_lr``.
    history : skorch.history.History
        One row per epoch, with ``train_loss`` and, given `validation`, ``valid_loss``.
    interrupted_ : bool
        Whether an interrupt ended the training.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from sklearn_xlc.batches import Rows
    >>> from sklearn_xlc.encoders import MLPEncoder
    >>> from sklearn_xlc.heads import FlatHead
    >>> from sklearn_xlc.training import EncoderHead, XLCNet
    >>> rows = Rows(np.eye(6, dtype=np.float32), sp.csr_matrix(np.eye(6)))
    >>> module = EncoderHead(MLPEncoder(6, (4,), sparse=False), FlatHead(4, 6, multilabel=False))
    >>> net = XLCNet(module, rng=np.random.default_rng(0), max_epochs=3, verbose=0)
    >>> len(net.fit(rows).history)
    3
    """

    _callbacks_may_draw = False
    _statistics: Sequence[Statistic] = ()
    _direct: DirectStep | None = None
    _reads_gradients = False
    _interrupts: Any = None
    #: Event by which another thread ends the training, with an error.
    cancelled: threading.Event | None = None
    n_met = 0

    def __init__(
        self,
        module: EncoderHead,
        *,
        rng: np.random.Generator,
        generators: Generators = (),
        validation: Rows | None = None,
        with_valid_loss: bool = True,
        keeps_interrupted: bool = False,
        precision: str = "float32",
        optimizer_rule: str = "adam",
        row_momentum: bool = True,
        head_lr: float | None = None,
        checkpoints: Checkpoints | None = None,
        processes: Alone = ALONE,
        **kwargs: Any,
    ) -> None:
        self.rng, self.generators, self.validation = rng, generators, validation
        self.with_valid_loss, self.keeps_interrupted = with_valid_loss, keeps_interrupted
        self.precision, self.optimizer_rule = precision, optimizer_rule
        self.row_momentum, self.head_lr = row_momentum, head_lr
        self.checkpoints, self.processes = checkpoints, processes
        super().__init__(
            module,
            criterion=nn.Identity,
            train_split=None,
            iterator_train=None,
            use_caching=False,  # steps do not compute the scores that callbacks could reuse
            **kwargs,
        )

    # --- what skorch asks for -------------------------------------------------------------

    def initialize_module(self) -> XLCNet:
        one_thread_after_fork()
        self.module_ = self.module
        few = row_parameters(self.module.encoder) | row_parameters(self.module.head)
        self.n_met = sum(p.numel() for p in self.module.parameters() if p not in few)
        return self

    def initialize_optimizer(self, triggered_directly: bool | None = None) -> XLCNet:
        decay = self.get_params_for("optimizer").get("weight_decay", 0.0)
        groups = parameter_groups(self.module_, self.optimizer_rule, self.lr, decay, self.head_lr)
        self.optimizer_ = RowOptimizer(groups, lr=self.lr, **self.get_params_for("optimizer"))
        for group in self.optimizer_.param_groups:
            group["row_momentum"] = self.row_momentum
            group["peak_lr"] = group["lr"]
        return self

    def partial_fit(self, X: Rows, y: Any = None, classes: Any = None, **fit_params: Any) -> XLCNet:
        """Train; on an interrupt by the user, raise it or set ``interrupted_``."""
        if not self.initialized_:
            self.initialize()
        self._callbacks_may_draw = any(callback_may_draw(c) for _, c in self.callbacks_)
        self._reads_gradients = any(map(reads_gradients, [self, *dict(self.callbacks_).values()]))
        begin_together(self, self.processes, self._reads_gradients)
        self._statistics = running_statistics(self.module_)
        with _freezing_as_before(self.module_):
            self.notify("on_train_begin", X=X, y=y)
            if self._run(X, y, **fit_params):
                self._save_checkpoint(finished=True)
            self.notify("on_train_end", X=X, y=y)
        stay_alike(self.module_, self.optimizer_, self.processes)  # callbacks may have changed it
        return self

    def _run(self, X: Rows, y: Any, **fit_params: Any) -> bool:
        """Run the loop; return False if an interrupt ended it."""
        self._interrupts = Interrupts(can_stop=self._has_stepped)
        try:
            with self._interrupts if self.keeps_interrupted else contextlib.nullcontext():
                self.fit_loop(X, y, **fit_params)
        except KeyboardInterrupt:
            if self._stopped_early():
                return True
            if not self.keeps_interrupted or self._interrupts.raised or not self._has_stepped():
                raise
            self._end_early()
            return False
        finally:
            self.interrupted_ = self._interrupts.asked
            self._direct = self._interrupts = None
        return True

    def _has_stepped(self) -> bool:
        """Return whether training has taken a step, now or before the checkpoint."""
        batches = self.history[0]["batches"] if self.history else []
        return bool(batches) and "train_loss" in batches[0]

    def _end_early(self) -> None:
        """Complete the history of an epoch cut short."""
        self._interrupts.asked = True  # also where a callback has raised the interrupt
        row = self.history[-1]
        steps = [batch for batch in row["batches"] if "train_batch_size" in batch]
        if not steps:
            self.history.pop()
        elif "train_loss" not in row:
            sizes = [batch["train_batch_size"] for batch in steps]
            losses = [batch["train_loss"] for batch in steps]
            row["train_loss"] = float(np.average(losses, weights=sizes))
            row["train_batch_count"] = len(steps)

    def _stopped_early(self) -> bool:
        """Return whether skorch raised the last interrupt for early stopping."""
        if self._interrupts.asked or self._interrupts.raised:
            return False
        rules = of_kind(self.callbacks_, EarlyStopping)
        return any(rule.misses_ == rule.patience for _, rule in rules)

    def fit_loop(self, X: Rows, y: Any = None, epochs: int | None = None, **kwargs: Any) -> Any:
        """Run all epochs, or the ones after the newest checkpoint."""
        if self.history:
            raise ValueError(
                "training begins with a history, which a callback has loaded: LoadInitState of "
                "skorch does not restore the order of the samples and dropout; use checkpoint="
            )
        finished = self.checkpoints is not None and self.checkpoints.resume(self)
        keep_memory()
        while not finished and len(self.history) < self.max_epochs:
            self._stop_if_asked()
            with drawing_from(self.generators):
                super().fit_loop(X, y, epochs=1, **kwargs)
            if len(self.history) < self.max_epochs:  # when all callbacks have seen the end
                self._save_checkpoint()
        return self

    def _stop_if_asked(self) -> None:
        if self._interrupts is not None and self._interrupts.asked:
            raise KeyboardInterrupt
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError

    def _save_checkpoint(self, finished: bool = False) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(self, finished)

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks, with the net's generators as torch's if they may draw."""
        with self._alone() if self._callbacks_may_draw else contextlib.nullcontext():
            super().notify(method_name, **kwargs)

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Take the steps of an epoch; one thread at a time if a module may draw."""
        if iterator is None:
            return
        if training:
            self._direct = self._direct_step()
        draws = may_draw(self.module_)
        step_fn = self._alone()(step_fn) if draws else step_fn
        rows = iterator.rows
        n_instances = self.batch_size * rows.n_instances // max(1, len(rows))
        # Closed at once, whatever ends the epoch: a thread may be preparing batches. Batches are
        # cut on as many threads as steps take: another would wait for the next cut, and spin.
        with (
            threads_for(n_instances * (self.n_met - (self._n_left_out if training else 0))),
            contextlib.closing(self._batches(iterator, draws)) as batches,
        ):
            super().run_single_epoch(batches, training, prefix, step_fn, **fit_params)
        if training:
            stay_alike(self.module_, self.optimizer_, self.processes)

    @property
    def _n_left_out(self) -> int:
        """Estimate the weights of labels that a sample does not meet in a step."""
        head = self.module_.head
        return head.weight.numel() - head.weights_met() if isinstance(head, FlatHead) else 0

    def _direct_step(self) -> DirectStep | None:
        """Return the step without autograd, or None if the module or a callback needs autograd."""
        is_usual = type(self) is XLCNet and type(self.module_) is EncoderHead
        if not is_usual or not self.generators or self._statistics:
            return None
        callbacks = [callback for _, callback in self.callbacks_]
        return DirectStep.of(self.module_, self.optimizer_, callbacks, self.batch_size)

    def _batches(self, iterator: BatchIterator, draws: bool) -> Generator[Batch]:
        """Yield batches until an interrupt; `collate` of an encoder may draw, too."""
        alone = self._alone if draws else contextlib.nullcontext
        with contextlib.closing(iter(iterator)) as batches:
            while True:
                with alone():
                    batch = next(batches, None)
                if batch is None:
                    return
                self._stop_if_asked()
                yield batch

    def _alone(self) -> Any:
        """Return a context, or decorator, with the net's generators as torch's global ones."""
        return as_global(self.generators)

    def get_split_datasets(self, X: Rows, y: Any = None, **fit_params: Any) -> Any:
        held = None if self.validation is None else Samples(self.validation, self.classifier)
        return Samples(X, self.classifier), held

    def get_iterator(self, dataset: Any, training: bool = False) -> BatchIterator | None:
        if not (training or self.with_valid_loss):
            return None
        rows, rng = dataset.X, self.rng if training else None
        cutter = batches_for(self.processes, self.module_, rows, self.batch_size)
        return BatchIterator(rows, self.batch_size, rng, torch.device(self.device), cutter)

    def _set_training(self, training: bool = True) -> None:
        # Setting the mode of every part at every step takes longer than looking at it.
        parts = self.module_.modules() if self._direct is None else self._direct.parts
        if any(part.training != training for part in parts):
            self.module_.train(training)

    def train_step(self, batch: Batch, **fit_params: Any) -> dict[str, Any]:
        """Take a step, or raise ValueError and keep no infinite or NaN values."""
        self._set_training(True)
        self.optimizer_.zero_grad(set_to_none=True)
        before = [statistic.kept() for statistic in self._statistics]
        try:
            loss = self._take_step(batch)
        except FloatingPointError as error:
            for put_back in before:
                put_back()
            self.optimizer_.zero_grad(set_to_none=True)
            raise self._refusal(str(error)) from error
        return {"loss": loss, "y_pred": None}

    def _take_step(self, batch: Batch) -> Tensor:
        if self._direct is not None and type(batch.inputs) is SparseRows:
            return self._direct.take(batch)
        gradients = CollectedGradients(self.module_) if self._reads_gradients else None
        update = self.optimizer_.update if gradients is None else gradients.collect
        loss = self._loss(batch, batch.own.update_of(self.module_.head, update))
        if loss.requires_grad:  # not where the encoder is frozen and the head has updated itself
            parts = (type(part).__name__ for part in (self.module_.encoder, self.module_.head))
            with failure_of("the gradient of the encoder {} or the head {}".format(*parts)):
                loss.backward()
        if gradients is not None:
            named = TeeGenerator(gradients.named_parameters())  # for each callback from the start
            self.notify("on_grad_computed", named_parameters=named, batch=batch, training=True)
            gradients.apply(self.optimizer_)
        return batch.own.step(self.module_.head, self.optimizer_, batch.inputs, loss)

    def validation_step(self, batch: Batch, **fit_params: Any) -> dict[str, Any]:
        self._set_training(False)
        with torch.no_grad():
            loss = batch.own.total(self.module_.head, self._loss(batch))
        if not np.isfinite(float(loss)):
            raise self._refusal(f"the validation loss became {float(loss)}")
        return {"loss": loss, "y_pred": None}

    def infer(self, x: Batch, **fit_params: Any) -> Tensor:
        with self._autocast():
            return self.module_(x.inputs)

    # --- what estimators ask for ----------------------------------------------------------

    @contextlib.contextmanager
    def predicting(self, inputs: Any = None) -> Iterator[None]:
        """Compute without gradients, by torch's usual device and type.

        Given the inputs or features of a batch, it also limits small computations to one thread.

        Yields
        ------
        None
            Nothing: this is a context manager.
        """
        with contextlib.ExitStack() as modes:
            if torch.get_default_dtype() != torch.float32 and may_draw(self.module_):
                modes.enter_context(as_global(()))
            modes.enter_context(usual_modes(training=False))
            if inputs is not None:
                modes.enter_context(threads_for(self._work(inputs, len(inputs))))
            yield

    def features(self, batch: Batch) -> Tensor:
        """Compute the features of a batch, in evaluation mode and without gradients."""
        self._set_training(False)
        with self.predicting(), threads_for(self._work(batch.inputs, len(batch))):
            return self.module_(batch.inputs).to(_dtype(self.module_))

    def _work(self, inputs: Any, n_samples: int) -> int:
        """Estimate the multiply-adds of a pass, from the weights used by every sample."""
        if isinstance(inputs, Bags) and inputs.indptr.is_cpu:  # a GPU would be waited for
            n_samples = int(inputs.indptr[-1])
        return n_samples * self.n_met

    def _refusal(self, what: str) -> ValueError:
        step = len(self.history[-1]["batches"]) if self.history else 0
        return ValueError(
            f"{what} in epoch {len(self.history)}, step {step}: lower learning_rate={self.lr} or "
            "scale X"
        )

    def _features(self, batch: Batch) -> Any:
        try:
            return self.infer(batch).to(_dtype(self.module_))
        except ValueError as error:
            if len(batch) > 1 or not any(isinstance(m, _BatchNorm) for m in self.module_.modules()):
                raise
            raise ValueError(
                "the encoder has batch normalisation, which cannot be trained on a batch of one "
                "sample: give at least two samples of positive weight and batch_size >= 2"
            ) from error

    def _loss(self, batch: Batch, update: Any = None) -> Tensor:
        own, head = batch.own, self.module_.head
        with own.reading():
            # None: the encoder does not draw as it likes.
            with own.drawing(lambda: self.generators if may_draw(self.module_) else None):
                features = self._features(batch)
            features, targets, weight = own.for_head(head, features, batch)
            if update is not None:  # before the head updates anything
                check_forward(features, self._statistics)
            with failure_of(f"the loss of the head {type(head).__name__}"):
                return head.loss(features, targets, weight, update)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision != "bfloat16":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


@contextlib.contextmanager
def _freezing_as_before(module: nn.Module) -> Iterator[None]:
    """Let what callbacks freeze or thaw be so in the block alone."""
    before = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    try:
        yield
    finally:
        for parameter, is_trained in before:
            parameter.requires_grad_(is_trained)


def _dtype(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype
