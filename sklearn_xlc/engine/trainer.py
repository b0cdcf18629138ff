"""Train a network by a plan: build the module, run the skorch net, set fitted attributes."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from skorch.callbacks import (
    EarlyStopping,
    EpochScoring,
    LRScheduler,
    PrintLog,
    ProgressBar,
)

from sklearn_xlc._checks import unchanged_on_error
from sklearn_xlc._compat import is_number
from sklearn_xlc._config import get_config
from sklearn_xlc._labels import plain
from sklearn_xlc._part import is_auto
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import (
    Generators,
    Rows,
    n_batches,
    new_generators,
    usual_modes,
    with_device,
)
from sklearn_xlc.distributed import ALONE, Alone, processes_for
from sklearn_xlc.engine import later_labels
from sklearn_xlc.engine.building import (
    build_module,
    draw_rows,
    inputs_for,
    n_weights,
    take_columns,
    vectorized,
)
from sklearn_xlc.engine.class_weights import mean_one, weigh_labels
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.ranker import labels_of, listed_before
from sklearn_xlc.engine.telling import number, tell
from sklearn_xlc.engine.validation import model_dtype
from sklearn_xlc.training import (
    CosineSchedule,
    EncoderHead,
    HeldOutPrecision,
    RowOptimizer,
    TimeLeft,
    WeightAveraging,
    XLCNet,
    callback_of,
    check_weights,
    copied,
    device_of_loaded,
    of_kind,
    resolve_device,
    rule_of,
)


@contextlib.contextmanager
def fitting(classifier: Any) -> Iterator[Alone]:
    """Context of a fit: restore the classifier on errors, set torch's modes, name the processes."""
    processes = processes_for(get_config()["distributed"])
    with unchanged_on_error(classifier), usual_modes(training=True):
        yield processes


class Trainer:
    """Train the network of a classifier by a plan, and set its parts, net and history.

    :meth:`begin` sets `net`. `rng` and `generators` draw all that is random from then on.
    """

    net: XLCNet
    rng: np.random.RandomState
    generators: Generators = ()
    _samples: tuple[Rows, Rows | None]

    def __init__(self, plan: Plan) -> None:
        self.plan, self.one_pass = plan, plan.one_pass
        self.classifier, self.data = plan.classifier, plan.data

    def begin(self, rng: np.random.RandomState) -> Trainer:
        """Split the samples, and build the network."""
        plan = self.plan
        train, held = plan.split(rng)
        module, train, *_ = self._started(train, rng)
        held, plan.own, plan.stopping = (
            None if rows is None else self.prepared(rows, module)
            for rows in (held, plan.own, plan.stopping)
        )
        stopping = held if plan.stopping is None else plan.stopping
        self.net = self.net_for(module, train, stopping)
        self._samples = train, held
        return self

    def _started(
        self, rows: Rows, rng: np.random.RandomState, added: Any = ()
    ) -> tuple[EncoderHead, Rows, RowOptimizer | None, np.ndarray]:
        """Build the network, or take the fitted one with labels added at positions.

        Returned are the network, prepared samples to train it on, the optimiser to go on with, and
        the positions of known labels that have had no sample before.
        """
        self.rng, self.generators = rng, new_generators(rng.randint(2**31 - 1))
        if not self.plan.going_on:
            module = self.build(rows)
            return module, self.prepared(rows, module, first=True), None, np.empty(0, np.int64)
        module, optimizer, met = later_labels.going_on(self.plan, added, self.generators)
        weigh_labels(self.classifier.class_weight, module.head, rows, self.data.code)
        self.plan.check_decision(module.head)
        rows = self.prepared(rows, module)
        take_columns(self.plan, module, rows, optimizer)
        return module, rows, optimizer, met

    def train(self) -> tuple[Rows, Rows | None]:
        """Train the network; return the training and the held-out samples."""
        train, held = self._samples
        self._tell(self.net, train)
        self.net.fit(train)
        self.finish(self.net)
        self._count(unmet=self.classifier._unmet if self.plan.going_on else None)
        return train, held

    def partial_fit(self, added: np.ndarray, rng: np.random.RandomState) -> Rows:
        """Train for one pass over the samples and return them; `added`: positions of new labels."""
        classifier, rows, first = self.classifier, self.data.rows, not self.plan.going_on
        decision = self.plan.settings["decision"]
        needs_own = decision != "auto" and decision.needs_own_samples
        if needs_own and (first or not isinstance(classifier.decision_, type(decision))):
            raise ValueError(
                f"partial_fit holds no samples out, and {decision!r} needs some that nothing else "
                "is learnt from; use another decision, then call recalibrate(X, y, "
                f"decision={decision!r}) with samples of their own"
            )
        self.plan.lists = listed_before(classifier, rows)
        module, rows, optimizer, met = self._started(rows, rng, added)
        net = self.net_for(module, rows, None)
        if optimizer is not None and optimizer.state:
            self._go_on_from(optimizer, net)
        with later_labels.started(self.plan, module.head, met, self.generators):
            net.partial_fit(rows)
        self.finish(net)
        if not first:
            self._count(classifier._set_sizes, np.union1d(classifier._unmet, added))
        return rows

    def _count(self, before: Any = (), unmet: np.ndarray | None = None) -> None:
        """Count samples by their numbers of labels, and find labels without a sample.

        `before`, `unmet`: those of earlier samples.
        """
        classifier, Y = self.classifier, self.data.rows.Y
        found = np.bincount(np.diff(Y.indptr), minlength=len(before))
        found[: len(before)] += np.asarray(before, dtype=found.dtype)
        unmet = classifier._code.label_order if unmet is None else unmet
        met = later_labels.met_positions(classifier._code, Y)
        classifier._set_sizes, classifier._unmet = found, np.setdiff1d(unmet, met)

    def _go_on_from(self, before: RowOptimizer, net: XLCNet) -> None:
        """Give a net an optimiser with its moments, at the rates of today and what was set since.

        A rule that is "auto" stays as the first batch had it.
        """
        given, kept = self.classifier.optimizer, list[str]()
        if is_auto(given):  # of another rule rates are others
            net.optimizer_rule, kept = rule_of(before), ["momentum", "nesterov"]
        if is_auto(getattr(given, "row_momentum", "auto")):
            kept.append("row_momentum")
        groups = net.initialize().optimizer_.param_groups
        if rule_of(net.optimizer_) == rule_of(before):
            settings = {name: before.param_groups[0][name] for name in kept}
            before.regroup([{**group, **settings} for group in groups])
            net.optimizer_ = before

    def build(self, train: Rows) -> EncoderHead:
        """Build encoder and head, and set their fitted attributes."""
        classifier, code = self.classifier, self.data.code
        classifier.classes_, classifier._code = code.classes, code
        classifier.history_, classifier.loss_curve_ = [], []
        classifier.n_iter_ = classifier.t_ = 0
        self._count()
        self.plan.resolve(train)
        settings = self.plan.settings
        classifier.head_ = classifier._head_part_for(settings, code)
        classifier.encoder_ = settings["encoder"].shown
        module = build_module(self.plan, train, self.rng, self.generators)
        classifier._start_module(module, train, self.rng)
        self.plan.check_decision(module.head)
        return module

    # --- training ---------------------------------------------------------------------------

    def prepared(self, rows: Rows, module: EncoderHead, first: bool = False) -> Rows:
        """Prepare samples for batches, with positions in place of labels."""
        classifier = self.classifier
        inputs = inputs_for(module.encoder, rows, classifier._sparse_inputs)
        inputs = vectorized(module.encoder, inputs, first)
        if first:
            draw_rows(self.plan, module)
        weight = rows.sample_weight
        if weight is not None:
            # Batches of a stream differ in their mean class weight.
            weight = mean_one(weight) * (self.data.of_classes if self.one_pass else 1.0)
            weight = weight.astype(model_dtype(rows.X))
        return replace(inputs, Y=classifier._code.to_positions(rows.Y), sample_weight=weight)

    def net_for(self, module: EncoderHead, rows: Rows, validation: Rows | None) -> XLCNet:
        """Return a net to train a module on prepared samples."""
        self.plan.resolve(rows)
        settings, n_samples = self.plan.settings, len(rows)
        processes, optimizer = self.plan.processes, settings["optimizer"]
        device = resolve_device(settings["device"], processes)
        max_epochs = 1 if self.one_pass else settings["max_epochs"]
        batch_size = min(settings["batch_size"], max(1, n_samples))
        n_steps = n_batches(n_samples, batch_size)
        callbacks, verbose = self._callbacks(validation, max_epochs * n_steps)
        net = XLCNet(
            module,
            rng=np.random.default_rng(self.rng.randint(2**31 - 1)),
            generators=with_device(self.generators, torch.device(device)),
            validation=validation,
            with_valid_loss=settings["early_stopping"],
            # Other processes would wait for this one.
            keeps_interrupted=not self.one_pass and processes.size == 1,
            precision=self.classifier._precision,
            optimizer_rule=optimizer.rule,
            optimizer__weight_decay=optimizer.weight_decay,
            optimizer__momentum=optimizer.momentum,
            optimizer__nesterov=optimizer.nesterov,
            lr=optimizer.learning_rate,
            head_lr=optimizer.head_learning_rate,
            row_momentum=optimizer.row_momentum,
            max_epochs=max_epochs,
            batch_size=batch_size,
            device=device,
            processes=processes,
            callbacks=callbacks,
            callbacks__print_log=None,
            verbose=int(verbose),
        )
        net.checkpoints, net.classifier = self.plan.checkpoints, self._scored_by(net)
        return net

    def _tell(self, net: XLCNet, train: Rows) -> None:
        classifier, n_steps = self.classifier, n_batches(len(train), net.batch_size)
        parts = classifier.encoder_, classifier.head_
        built = " and ".join(type(part).__name__ for part in parts if part is not None)
        purpose = "for ranker and decision: " if classifier._is_part else ""
        sizes = f"{number(len(train), 'sample')}, {number(len(classifier.classes_), 'label')}"
        steps = f"{number(net.max_epochs, 'epoch')} of {number(n_steps, 'step')}"
        tell(classifier, f"{purpose}{sizes}; {built}, {steps}")

    def _callbacks(self, validation: Rows | None, n_steps: int) -> tuple[list[Any], bool]:
        """Return the user's callbacks and ours, and whether the net prints."""
        settings = self.plan.settings
        given = copied(settings["callbacks"])
        averages, stops = of_kind(given, WeightAveraging), of_kind(given, EarlyStopping)
        callbacks = [each for each in given if each not in averages and each not in stops]
        if self.one_pass or not settings["early_stopping"]:
            _refuse_held_out_loss(callbacks if self.one_pass else given)
        if validation is None and not self.one_pass:
            _warn_of_scores(callbacks)
        verbose = bool(settings["verbose"]) or bool(of_kind(callbacks, PrintLog))  # which needs it
        verbose = verbose and self.plan.processes.is_first
        if settings["verbose"] and verbose:
            callbacks = _shown(callbacks)
        if not self.one_pass:
            if not of_kind(callbacks, LRScheduler):
                callbacks.append(CosineSchedule(n_steps))
            if settings["early_stopping"] and not stops:
                stops = [EarlyStopping(patience=3, load_best=True)]
            callbacks += [*stops, *averages]
        return callbacks, verbose

    def _scored_by(self, net: XLCNet) -> Any:
        """Return a copy of the classifier to score a net in training, for callbacks."""
        classifier = self.classifier
        view = object.__new__(type(classifier))
        labels = functools.partial(_given_labels, classifier._code, classifier.classes_)
        view.__dict__ = {**vars(classifier), "net_": net, "ranker_": None, "labels_of": labels}
        if classifier._code.multilabel:
            view.classes_ = np.arange(len(classifier.classes_))  # columns of the indicator
        return view

    def finish(self, net: XLCNet) -> None:
        """Set the fitted attributes of a trained net."""
        classifier = self.classifier
        if not self.one_pass:
            check_weights(net.module_)
        rows, n_before = list(net.history), classifier.n_iter_
        numbers = [{**_numbers(row), "epoch": n_before + i} for i, row in enumerate(rows, 1)]
        classifier.history_ = [*classifier.history_, *numbers]
        classifier.loss_curve_ = [*classifier.loss_curve_, *(row["train_loss"] for row in numbers)]
        classifier._weights_borrowed = classifier._is_rounded = False
        classifier._is_stream = self.plan.is_stream
        classifier.n_parameters_ = n_weights(net.module_)
        classifier.n_iter_ += len(rows)
        classifier.t_ += sum(row["train_batch_count"] for row in rows)
        for group in net.optimizer_.param_groups:  # the user's schedules leave the last rate
            group["lr"] = group["peak_lr"]
        if not (self.one_pass or classifier.warm_start):
            net.optimizer_.state.clear()
        net.validation, net.checkpoints, net.generators = None, None, ()
        net.classifier, net.processes = None, ALONE
        classifier.net_ = net
        if net.interrupted_:
            warn(
                f"Training interrupted by user in epoch {len(net.history)} of {net.max_epochs}: "
                "the model has the weights of its last step; fit with warm_start=True trains it "
                "further"
            )


def restored_net(module: EncoderHead, device: Any) -> XLCNet:
    """Return a net for predictions of a loaded module; training makes another one."""
    return XLCNet(
        module,
        rng=np.random.default_rng(0),
        max_epochs=1,
        device=device_of_loaded(device),
        callbacks__print_log=None,
        verbose=0,
    ).initialize()


def _given_labels(code: LabelCode, classes: np.ndarray, rows: Rows) -> Any:
    """Return the labels of prepared samples: classes, or a CSR indicator."""
    Y = labels_of(code, rows)
    return Y if code.multilabel else classes[Y.indices]


def _shown(callbacks: list[Any]) -> list[Any]:
    """Return the user's callbacks and those for `verbose`, unless the user has the same."""
    shown = [HeldOutPrecision(), TimeLeft(), *callbacks]
    is_seen = sys.stderr.isatty() or ProgressBar().in_ipynb()
    if is_seen and not of_kind(callbacks, ProgressBar):
        shown.append(ProgressBar(detect_notebook=False))  # which would need ipywidgets
    if not of_kind(callbacks, PrintLog):
        shown.append(PrintLog())
    return shown


def _warn_of_scores(callbacks: list[Any]) -> None:
    """Warn of EpochScoring without held-out samples: skorch would skip it silently."""
    for callback in map(callback_of, callbacks):
        if isinstance(callback, EpochScoring) and not callback.on_train:
            warn(
                "EpochScoring has no held-out samples to score: set early_stopping=True, which "
                "holds some out, or on_train=True"
            )


def _refuse_held_out_loss(callbacks: list[Any]) -> None:
    """Raise ValueError if a callback reads the loss of held-out samples, which is not computed."""
    for given in map(callback_of, callbacks):
        callback = given() if isinstance(given, type) else given
        monitor = getattr(callback, "monitor", None)
        if str(monitor).startswith("valid_loss"):
            raise ValueError(
                f"{type(callback).__name__}(monitor={monitor!r}) in callbacks reads the loss of "
                "held-out samples: fit holds some out with early_stopping=True, partial_fit never; "
                "give another monitor, such as 'train_loss'"
            )


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return losses and scores of a row of a history, without times: equal for equal fits."""
    return {
        name: plain(value)
        for name, value in row.items()
        if is_number(value) and name not in ("dur", "left") and not name.endswith("_batch_count")
    }
