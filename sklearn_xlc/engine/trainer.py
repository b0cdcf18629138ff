"""Build a network and train it: resolve the settings, split, build, run the net of skorch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from skorch.callbacks import (
    Callback,
    EarlyStopping,
    EpochScoring,
    LRScheduler,
    PrintLog,
    ProgressBar,
)

import sklearn_xlc
from sklearn_xlc._checks import unchanged_on_error
from sklearn_xlc._config import get_config
from sklearn_xlc._part import named_part
from sklearn_xlc.batches import Rows, n_batches
from sklearn_xlc.batches.processes import (
    Processes,
    all_processes,
    training_processes,
    training_with,
)
from sklearn_xlc.batches.randomness import (
    Generators,
    usual_modes,
    with_device,
)
from sklearn_xlc.distributed.agreement import check_agreement
from sklearn_xlc.distributed.fetching import Fetching
from sklearn_xlc.distributed.parts import copied as copied_module
from sklearn_xlc.distributed.parts import module_on_first
from sklearn_xlc.encoders import MLP, MLPEncoder, vectorizes
from sklearn_xlc.engine.building import (
    Builder,
    inputs_for,
    reads_sparse,
    vectorized,
)
from sklearn_xlc.engine.class_weights import weigh_labels
from sklearn_xlc.engine.deciding import check_decision, ranks_sets
from sklearn_xlc.engine.label_counts import mean_one
from sklearn_xlc.engine.resolve import (
    MOST_SCORED,
    Facts,
    HeldOut,
    hold_out,
    resolve_model,
    resolve_training,
)
from sklearn_xlc.engine.settings import Settings
from sklearn_xlc.engine.validation import TrainingData, model_dtype
from sklearn_xlc.heads import Head, HeadPart, PointwiseLoss
from sklearn_xlc.training import (
    CosineSchedule,
    EncoderHead,
    WeightAveraging,
    XLCNet,
    copied,
)
from sklearn_xlc.training.callbacks import callback_of
from sklearn_xlc.training.checkpoints import FORMAT, Checkpoints
from sklearn_xlc.training.devices import (
    multiplies_bfloat16,
    resolve_device,
)
from sklearn_xlc.training.encoding import digest_of_some, identity
from sklearn_xlc.training.finite import check_weights
from sklearn_xlc.training.progress import EpochBar, EpochLines, shows_bars

#: Parameters with which a fit may go on from checkpoints of other values: the weights that it ends
#: in do not depend on them. (Of the random state its numbers count, of warm_start the weights.)
_OF_NO_EFFECT = {"checkpoint", "device", "random_state", "verbose", "warm_start"}


@contextlib.contextmanager
def fitting(classifier: Any) -> Iterator[None]:
    """Context of a fit: as it was if anything fails, torch's modes, all processes."""
    wanted = get_config()["distributed"]
    processes = all_processes() if wanted else None
    if processes is None and wanted is True:
        raise ValueError(
            "distributed=True needs a process group of several processes: start the program "
            "with torchrun and call sklearn_xlc.distributed.init() first, or set "
            "distributed='auto'"
        )
    with unchanged_on_error(classifier), usual_modes(training=True), training_with(processes):
        yield


class Trainer:
    """Trains the network of a classifier on validated data.

    It sets the attributes of the classifier that describe the network: settings, parts, history.

    Parameters
    ----------
    classifier : BaseXLCClassifier
        Classifier that is fitted.
    data : TrainingData
        Validated samples.
    going_on : bool
        Whether the classifier is fitted, and its network is trained further.
    one_pass : bool, default=False
        Whether this is a call of `partial_fit`.
    """

    def __init__(
        self, classifier: Any, data: TrainingData, *, going_on: bool, one_pass: bool = False
    ) -> None:
        self.classifier, self.data = classifier, data
        self.going_on, self.one_pass = going_on, one_pass
        self.settings = Settings(classifier.get_params(deep=False), classifier._parts)
        self.encoder = _encoder_of(self.settings["encoder"])
        self.checkpoints: Checkpoints | None = None
        self._check_rates()
        self.head = self._head_part()
        self.facts = self._facts()
        self._name_loss()
        self.check_decision()

    # --- settings ---------------------------------------------------------------------------

    def _check_rates(self) -> None:
        """Raise ValueError if a rate is given in the classifier and in its optimiser."""
        optimizer = self.settings["optimizer"]
        if isinstance(optimizer, str):
            return
        for name, default in (("learning_rate", "auto"), ("weight_decay", 0.0)):
            own, given = getattr(optimizer, name), self.settings[name]
            if own is not None and given != default:
                raise ValueError(
                    f"{name}={given!r} is given, and optimizer={optimizer!r} has {name}={own!r}: "
                    "give it in one place"
                )

    def _head_part(self) -> HeadPart | None:
        """Head as a part, with what follows from the labels; None: the classifier builds it."""
        if self.going_on:
            return self.classifier.head_
        code = self.data.code
        part = self.classifier._head_part_for(self.settings, code)
        if isinstance(part, HeadPart):
            part = part.for_labels(code.n_labels, code.multilabel)
        return part

    def _name_loss(self) -> None:
        """Put the loss in the place of "auto", where the head is known."""
        multilabel = self.data.code.multilabel
        kind = self.classifier._head_class(self.head, multilabel)
        if kind is not None and isinstance(self.settings["loss"], str):
            loss = self.classifier._loss_for(multilabel)
            self.settings.update({"loss": kind.resolve_loss(loss, multilabel)})

    def _facts(self) -> Facts:
        rows, code, encoder = self.data.rows, self.data.code, self.encoder
        if isinstance(encoder, MLP):
            sparse = reads_sparse(MLPEncoder, rows)
        else:
            sparse = vectorizes(encoder)
        kind = self.classifier._head_class(self.head, code.multilabel)
        loss = self.classifier._loss_for(code.multilabel)
        has_numbers = rows.X.dtype != object
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given when the net is made
            is_fast = multiplies_bfloat16(resolve_device(self.settings["device"]))
        facts = Facts(
            n_samples=len(rows),
            n_labels=code.n_labels,
            multilabel=code.multilabel,
            head=self.classifier._head_kind(self.head),
            sparse=sparse,
            n_instances=rows.n_instances,
            n_nonzeros=rows.n_stored() if has_numbers else 0,
            labels_per_sample=code.labels_per_sample,
            most_labels=int(np.diff(rows.Y.indptr).max(initial=1)),
            pointwise=kind is not None
            and not ranks_sets(kind)
            and not kind.resolve_loss(loss, code.multilabel).needs_normaliser,
            soft=rows.Y.dtype.kind == "f",
            bag_size=0.0 if rows.bags is None else rows.n_instances / max(1, len(rows)),
            n_train=len(rows),
            fast_bfloat16=is_fast,
            double=model_dtype(rows.X) == np.float64,
        )
        return self.classifier._further_facts(facts, self.settings, code)

    def check_decision(self, head: Head | None = None) -> None:
        """Raise ValueError if the decision does not suit the labels or, once built, the head."""
        code, decision = self.data.code, self.settings["decision"]
        if code.multilabel and not isinstance(decision, str):
            has_features = self.classifier._has_features
            check_decision(decision, self.data.rows.Y, head, code, has_features)

    # --- before training --------------------------------------------------------------------

    def begin(self) -> np.random.RandomState:
        """Return the random state of the fit, and open its checkpoints.

        A fit that was killed must find its own checkpoints when it is started again, and no fit
        those of another: a digest of all that determines the result is part of their name.
        """
        classifier, data = self.classifier, self.data
        rng = agreed_random_state(classifier, data, self.going_on)
        is_seeded = check_random_state(classifier.random_state) is not check_random_state(None)
        if classifier.checkpoint is None:
            return rng
        rows, code = data.rows, data.code
        params = classifier.get_params(deep=False).items()
        with Fetching() as fetching:  # the first process names the files
            name = identity(
                [
                    FORMAT,
                    [package.__version__ for package in (sklearn_xlc, torch, np, scipy, sklearn)],
                    type(classifier),
                    {name: value for name, value in params if name not in _OF_NO_EFFECT},
                    [rows.X, rows.members, rows.bags, rows.Y, rows.sample_weight],
                    [code.classes, code.multilabel],
                    rng.get_state() if is_seeded else None,
                    module_on_first(classifier.net_.module_, fetching) if self.going_on else None,
                ]
            )
        fit = f"{type(classifier).__name__}-{name[:32]}"
        self.checkpoints = Checkpoints(classifier.checkpoint, fit)
        if not is_seeded:  # the first weights and the order must be those of the killed fit
            rng = np.random.RandomState(self.checkpoints.seed_or(rng.randint(2**31 - 1)))
        return rng

    def split(self, rng: np.random.RandomState) -> tuple[Rows, Rows | None]:
        """Hold samples out from training, where early stopping, decision or ranker ask for it."""
        rows, settings = self.data.rows, self.settings
        self.held_out = plan = self._hold_out()
        settings.update({"validation_fraction": plan.validation_fraction})
        index = np.arange(len(rows))
        if not plan.n_held:
            return rows, None
        if plan.n_held >= len(index):
            raise ValueError(
                f"validation_fraction={self.classifier.validation_fraction} leaves no sample to "
                f"train on: X has {len(index)} sample(s) of positive weight; use a smaller fraction"
            )
        is_part = self.classifier._is_part
        n_scored = min(plan.n_held, MOST_SCORED) if is_part else plan.n_held
        sizes = {"train_size": len(index) - plan.n_held, "test_size": n_scored}
        train, held = train_test_split(index, **sizes, random_state=rng.randint(2**31 - 1))
        del index  # in place, and one copy less: there may be very many rows
        train.sort()
        held.sort()
        return rows.select(train), rows.select(held)

    def _hold_out(self) -> HeldOut:
        plain_callbacks = (WeightAveraging, EarlyStopping)  # which leave a second network alone
        callbacks = self.settings["callbacks"] or []
        others = [each for each in callbacks if not isinstance(callback_of(each), plain_callbacks)]
        params = {**self.settings.flat(), "callbacks": others}
        return hold_out(params, self.facts, params["decision"], is_part=self.classifier._is_part)

    def build(
        self, train: Rows | None, rng: np.random.RandomState, generators: Generators
    ) -> EncoderHead:
        """Build encoder and head, and set the attributes that describe them."""
        classifier, rows, code = self.classifier, self.data.rows, self.data.code
        known = rows if train is None else train
        classifier.classes_, classifier._code = code.classes, code
        classifier.history_, classifier.loss_curve_ = [], []
        classifier.n_iter_ = classifier.t_ = 0
        classifier._typical_size = self.facts.most_labels
        self.count_train(known)
        name = classifier._head_parameter
        self.settings.update({"encoder": self.encoder} | ({name: self.head} if name else {}))
        self.settings.update(resolve_model(self.settings.flat(), self.facts))
        self._resolve_training(known)
        classifier.head_, classifier.encoder_ = self.head, self.encoder
        module = Builder(classifier, self.data, self.settings).build(train, rng, generators)
        classifier._start_module(module, known, rng)
        self.check_decision(module.head)
        return module

    def count_train(self, train: Rows) -> None:
        """Add what is known of the samples trained on to the facts."""
        bag_size = 0.0 if train.bags is None else train.X.shape[0] / len(train)
        self.facts = replace(self.facts, n_train=len(train), bag_size=bag_size)

    # --- training ---------------------------------------------------------------------------

    def prepared(self, rows: Rows, module: EncoderHead, first: bool = False) -> Rows:
        """Samples in the form from which batches are cut, with positions in place of labels."""
        classifier = self.classifier
        inputs = inputs_for(module.encoder, rows, classifier._sparse_inputs)
        inputs = vectorized(module.encoder, inputs, first)
        weight = rows.sample_weight
        if weight is not None:
            weight = mean_one(weight).astype(model_dtype(rows.X))
        return replace(inputs, Y=classifier._code.to_positions(rows.Y), sample_weight=weight)

    def _resolve_training(self, rows: Rows) -> None:
        """Resolve steps, optimiser and rates for the samples trained on."""
        has_numbers = rows.X.dtype != object
        length = max(1.0, rows.n_stored() / rows.n_instances) if has_numbers else 1.0
        facts = replace(self.facts, n_train=len(rows), train_length=length)
        params = self.classifier.get_params(deep=False)
        optimizer = named_part(params["optimizer"], self.classifier._parts["optimizer"])
        given = Settings({**params, "optimizer": optimizer}, self.classifier._parts)
        found = resolve_training(given.flat(), facts)
        self.facts = facts
        self.settings.update({"optimizer": given["optimizer"]})
        self.settings.update(found)
        part = self.settings["optimizer"]
        if part.weight_decay is None:
            part.set_params(weight_decay=params["weight_decay"])

    def net(
        self,
        module: EncoderHead,
        rows: Rows,
        validation: Rows | None,
        rng: np.random.RandomState,
        generators: Generators = (),
    ) -> XLCNet:
        """Return the net that trains a module on prepared samples."""
        self._resolve_training(rows)
        settings, n_samples = self.settings, len(rows)
        device, optimizer = resolve_device(settings["device"]), settings["optimizer"]
        max_epochs = 1 if self.one_pass else settings["max_epochs"]
        batch_size = min(settings["batch_size"], max(1, n_samples))
        n_steps = n_batches(n_samples, batch_size)
        processes = training_processes()
        callbacks, verbose = self._callbacks(module, validation, n_steps, max_epochs)
        net = XLCNet(
            module,
            rng=np.random.default_rng(rng.randint(2**31 - 1)),
            generators=with_device(generators, torch.device(device)),
            validation=validation,
            with_valid_loss=settings["early_stopping"],
            keeps_interrupted=not self.one_pass and processes is None,
            precision="bfloat16" if self.classifier._precision == "bfloat16" else "float32",
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
        net.checkpoints, net.classifier = self.checkpoints, self._scored_by(net)
        return net

    def _callbacks(
        self, module: EncoderHead, validation: Rows | None, n_steps: int, max_epochs: int
    ) -> tuple[list[Any], bool]:
        """Callbacks of the user and ours, and whether the net prints."""
        settings, processes = self.settings, training_processes()
        given = copied(settings["callbacks"])
        averages = [each for each in given if isinstance(callback_of(each), WeightAveraging)]
        stops = [each for each in given if isinstance(callback_of(each), EarlyStopping)]
        callbacks = [each for each in given if each not in averages and each not in stops]
        if validation is None and not self.one_pass:
            _warn_of_scores(callbacks)
        verbose = bool(settings["verbose"]) or _has(callbacks, PrintLog)  # which needs it
        if processes is not None and processes.rank:  # the first one speaks for all
            verbose = False
        if settings["verbose"] and verbose:
            callbacks.extend(_shown(callbacks, module.head, n_steps))
        if not self.one_pass:
            if not _has(callbacks, LRScheduler):
                callbacks.append(CosineSchedule(max_epochs * n_steps))
            if settings["early_stopping"] and not stops:
                stops = [EarlyStopping(patience=3, load_best=True)]
            callbacks += [*stops, *averages]
        return callbacks, verbose

    def _scored_by(self, net: XLCNet) -> Any:
        """Copy of the classifier that predicts with a net in training, for scores of callbacks."""
        classifier = self.classifier
        view = object.__new__(type(classifier))
        view.__dict__ = {**vars(classifier), "net_": net, "ranker_": None}
        if classifier._code.multilabel:
            view.classes_ = np.arange(len(classifier.classes_))  # columns of the indicator
        return view

    def copied(self, train: Rows) -> EncoderHead:
        """Copy of the fitted module: an interrupt leaves the fitted one as it was."""
        classifier = self.classifier
        module = copied_module(classifier.net_.module_, training_processes())
        weigh_labels(classifier.class_weight, module.head, train, self.data.code)
        self.check_decision(module.head)
        self.count_train(train)
        return module

    def finish(self, net: XLCNet) -> None:
        """Keep a trained net, and what it recorded."""
        classifier = self.classifier
        if not self.one_pass:
            check_weights(net.module_)
        rows, earlier = list(net.history), classifier.history_
        n_before = classifier.n_iter_
        numbers = [{**_numbers(row), "epoch": n_before + i} for i, row in enumerate(rows, 1)]
        classifier.history_ = [*earlier, *numbers]
        losses = (row["train_loss"] for row in numbers)
        classifier.loss_curve_ = [*classifier.loss_curve_, *losses]
        classifier._weights_borrowed = False
        classifier.n_iter_ += len(rows)
        classifier.t_ += sum(row["train_batch_count"] for row in rows)
        for group in net.optimizer_.param_groups:  # schedules of the user leave the last rate
            group["lr"] = group["peak_lr"]
        if not (self.one_pass or classifier.warm_start):
            net.optimizer_.state.clear()
        net.validation, net.checkpoints, net.generators = None, None, ()
        net.classifier = net.processes = None
        classifier.net_ = net
        if net.interrupted_:
            warnings.warn(
                f"Training interrupted by user in epoch {len(net.history)} of {net.max_epochs}: "
                "the model has the weights of its last step; fit with warm_start=True trains it "
                "further",
                UserWarning,
                stacklevel=5,
            )

    # --- a second network -------------------------------------------------------------------

    def fitted_on_part(self, X: Any, y: Any, sample_weight: Any, seed: int) -> Any:
        """Return a classifier like this one that has not seen a part of the samples."""
        classifier = self.classifier
        part: Any = clone(classifier)
        part._is_part = True
        part.set_params(
            max_epochs=classifier.n_iter_,
            random_state=seed,
            verbose=0,
            checkpoint=None,
            validation_fraction=0.1,
            **self._by_rule(),
        )
        if classifier.verbose:
            print(
                "another network, of a part of the samples: for decision and ranker",
                flush=True,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given in the first fit
            return part.fit(X, y, sample_weight)

    def _by_rule(self) -> dict[str, Any]:
        """Parameters that count as "auto", since they have the values of the rules.

        A second network follows the rules for its number of samples, where the first one does.
        """
        params = self.classifier.get_params(deep=False)
        auto = {"batch_size": "auto", "optimizer": "auto", "learning_rate": "auto"}
        ruled = resolve_training({**params, **auto}, self.facts)
        found: dict[str, Any] = {}
        if params["batch_size"] == ruled["batch_size"]:
            found["batch_size"] = "auto"
        part = self.settings["optimizer"]
        values = {f"optimizer__{name}": v for name, v in part.get_params(deep=False).items()}
        same = all(
            values.get(name) == ruled[name] for name in ruled if name.startswith("optimizer__")
        )
        rule = named_part(ruled["optimizer"], self.classifier._parts["optimizer"])
        if (
            same
            and type(part) is type(rule)
            and params["max_epochs"] in ("auto", self.classifier.n_iter_)
        ):
            found |= {"optimizer": "auto", "learning_rate": "auto"}
            found["weight_decay"] = part.weight_decay
        return found


def agreed_random_state(
    classifier: Any, data: TrainingData, going_on: bool
) -> np.random.RandomState:
    """Random state of a fit: the first process's, once all fit the same to the same data."""
    rng, processes = check_random_state(classifier.random_state), training_processes()
    shards = classifier.net_.module_.head.sharded_parameters().values() if going_on else ()
    for shard in shards:
        if shard.processes != processes:
            shard.refuse_part()
    if processes is None:
        return rng
    _check_agreement(classifier, data, processes, classifier.t_ if going_on else 0)
    if rng is check_random_state(None):
        return np.random.RandomState(processes.of_first(rng.randint(2**31 - 1)))
    rng.set_state(processes.of_first(rng.get_state()))
    return rng


def _check_agreement(
    classifier: Any, data: TrainingData, processes: Processes, n_steps: int
) -> None:
    """Raise ValueError unless all processes fit the same classifier to the same data."""
    rows = data.rows
    about = {
        "class": type(classifier).__name__,
        **{
            f"parameter {name}": _comparable(value)
            for name, value in classifier.get_params().items()
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


def restored_net(module: EncoderHead, device: Any) -> XLCNet:
    """Return a net for predictions of a loaded module; training brings its own rules."""
    return XLCNet(
        module,
        rng=np.random.default_rng(0),
        max_epochs=1,
        device=resolve_device(device),
        callbacks__print_log=None,
        verbose=0,
    ).initialize()


def _encoder_of(encoder: Any) -> Any:
    return MLP() if isinstance(encoder, str) else encoder


def _comparable(value: Any) -> Any:
    """Value of a parameter, or the name of its class, where equal objects may look different."""
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return value if is_plain else type(value).__name__


def _has(callbacks: list[Any], kind: type[Callback]) -> bool:
    """Whether there is a callback of this class: an instance or the class, perhaps with a name."""
    found = map(callback_of, callbacks)
    return any(issubclass(c if isinstance(c, type) else type(c), kind) for c in found)


def _shown(callbacks: list[Any], head: Any, n_steps: int) -> list[Callback]:
    """Callbacks for `verbose`, unless the user's do the same."""
    shown: list[Callback] = []
    if shows_bars() and not _has(callbacks, ProgressBar):
        shown.append(EpochBar(n_steps, postfix_keys=["train_loss"]))
    if not _has(callbacks, PrintLog):
        is_sum = head.multilabel and any(isinstance(p, PointwiseLoss) for p in head.modules())
        shown.append(EpochLines(head.n_labels if is_sum else 1))
    return shown


def _warn_of_scores(callbacks: list[Any]) -> None:
    """Warn of scores of held-out samples where there are none, which skorch leaves out silently."""
    for callback in map(callback_of, callbacks):
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
