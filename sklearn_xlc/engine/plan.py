"""Plan of a fit: settings, facts of the data, random state and held-out samples."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from skorch.callbacks import EarlyStopping, PrintLog, ProgressBar

import sklearn_xlc
from sklearn_xlc.batches import Rows
from sklearn_xlc.distributed import ALONE, Alone, check_agreement, check_holders, module_on_first
from sklearn_xlc.encoders import MLPEncoder, encoder_part, vectorizes
from sklearn_xlc.engine.building import reads_sparse
from sklearn_xlc.engine.deciding import check_decision
from sklearn_xlc.engine.ranker import check_ranker, check_spaces, in_use
from sklearn_xlc.engine.resolve import (
    FEW_OF_STREAM,
    MOST_SCORED,
    OF_MODEL,
    RETRIEVED,
    SMALL_DATA,
    Facts,
    HeldOut,
    choose_ranker,
    hold_out,
    resolve,
)
from sklearn_xlc.engine.settings import RATES, Settings, parameters_of
from sklearn_xlc.engine.validation import TrainingData, model_dtype
from sklearn_xlc.heads import Head, HeadPart
from sklearn_xlc.training import (
    Checkpoints,
    WeightAveraging,
    digest_of,
    identity,
    multiplies_bfloat16,
    of_kind,
    resolve_device,
)

#: Parameters that may differ between a fit and its checkpoints: the final weights do not depend on
#: them. (The numbers drawn from random_state count, and the first weights with warm_start.)
_OF_NO_EFFECT = {"checkpoint", "device", "random_state", "verbose", "warm_start"}
#: Parameters that are resolved anew for the samples of each training.
_OF_TRAINING = "batch_size", "max_epochs", "optimizer"


class Plan:
    """Plan of a fit of a classifier to validated data, over `processes`.

    `going_on`: the fitted network is trained further. `given` are the parameters, `settings` those
    with values in place of "auto", `encoder` and `head` the parts before (None: no head).
    `one_pass`: it is a batch of a stream. :meth:`split` sets `held_out`, :meth:`begin` sets
    `checkpoints`. `own`: samples for the decision alone, set apart by :meth:`begin`; None: it needs
    none. `stopping`: samples for early stopping alone, set apart by :meth:`split`.
    """

    held_out: HeldOut
    own: Rows | None = None
    stopping: Rows | None = None

    def __init__(
        self,
        classifier: Any,
        data: TrainingData,
        *,
        going_on: bool,
        one_pass: bool = False,
        processes: Alone = ALONE,
    ) -> None:
        self.classifier, self.data, self.going_on = classifier, data, going_on
        self.one_pass = one_pass
        #: Whether no `fit` came before.
        self.is_stream = one_pass and (classifier._is_stream or not going_on)
        #: Whether it is a later batch, by which fitted parts are updated.
        self.is_later = one_pass and going_on
        self.processes = processes
        self.settings = self.given = Settings(parameters_of(classifier), classifier._parts)
        self.encoder = encoder_part(self.settings["encoder"])
        self.checkpoints: Checkpoints | None = None
        self.lists: tuple[Any, Any, dict[str, Any]] | None = None
        self._check_rates()
        name = classifier._head_parameter
        if going_on:  # the network stays as it was built
            kept = {each.partition("__")[0] for each in (*OF_MODEL, name)}
            built = classifier.settings_.items()
            found = {k: v for k, v in built if k.partition("__")[0] in kept}
            self.head = classifier.head_
        else:
            self.head = self._head_part()
            found = {"encoder": self.encoder} | ({name: self.head} if name else {})
        self.settings = self.settings.replaced(found)
        self.facts = self._facts(*self._resolve_loss())
        if self._remembers():
            self.data = data.with_ids()
        self.check_decision()

    # --- settings ---------------------------------------------------------------------------

    def _check_rates(self) -> None:
        """Raise ValueError if both classifier and optimiser set a rate."""
        optimizer = self.settings["optimizer"]
        if optimizer == "auto":
            return
        for name, default in RATES.items():
            own, given = getattr(optimizer, name), self.settings[name]
            if own is not None and given != default:
                raise ValueError(
                    f"{name}={given!r} is given, and optimizer={optimizer!r} has {name}={own!r}: "
                    "give it in one place"
                )

    def _head_part(self) -> HeadPart | None:
        """Return the head as a part, resolved for the labels; None: the classifier builds it."""
        code = self.data.code
        part = self.classifier._head_part_for(self.settings, code)
        return None if part is None else part.for_labels(code.n_labels, code.multilabel)

    def _resolve_loss(self) -> tuple[bool, bool]:
        """Resolve the loss, if the head is known; return `pointwise` and `one_softmax` of `Facts`.

        Raises ValueError if the head cannot train with the loss.
        """
        classifier, multilabel = self.classifier, self.data.code.multilabel
        kind = classifier._head_class(self.head, multilabel)
        if kind is None:
            return False, False
        loss, where = classifier._loss_for(multilabel), type(classifier).__name__
        loss = kind.resolve_loss(loss, multilabel, where)
        if self.settings["loss"] == "auto":
            self.settings = self.settings.replaced({"loss": loss})
        pointwise = not (kind.ranks_sets or loss.needs_normaliser)
        return pointwise, loss.link == "softmax" and (kind.searches_all or not multilabel)

    def _facts(self, pointwise: bool, one_softmax: bool) -> Facts:
        rows, code, n_seen = self.data.rows, self.data.code, self.data.n_seen
        sparse = self.encoder.reads_sparse(reads_sparse(MLPEncoder, rows))
        has_numbers = rows.X.dtype != object
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given when the net is made
            self.device = resolve_device(self.settings["device"], self.processes)
            is_fast = multiplies_bfloat16(self.device)
        facts = Facts(
            n_samples=len(rows),
            n_labels=code.n_labels,
            multilabel=code.multilabel,
            head=self.classifier._head_kind(self.head),
            sparse=sparse,
            standardised=self._standardises(sparse),
            n_instances=rows.n_instances,
            n_nonzeros=rows.n_stored() if has_numbers else 0,
            labels_per_sample=code.labels_per_sample,
            most_labels=int(np.diff(rows.Y.indptr).max(initial=1)),
            pointwise=pointwise,
            one_softmax=one_softmax,
            texts=not has_numbers and vectorizes(self.encoder),
            counts=sparse and self.data.rows.holds_counts(),
            soft=rows.Y.dtype.kind == "f",
            bag_size=0.0 if rows.bags is None else rows.n_instances / max(1, len(rows)),
            n_train=len(rows),
            fast_bfloat16=is_fast,
            double=model_dtype(rows.X) == np.float64,
            n_split=0 if self.data.split is None else len(self.data.split[1]),
            n_streamed=n_seen if self.is_stream or (self.one_pass and n_seen > SMALL_DATA) else 0,
            follows_fit=self.one_pass and not self.is_stream,
        )
        facts = replace(facts, retrieves=self._retrieves(facts))
        facts = replace(facts, lists=self._may_list(facts))
        return self.classifier._further_facts(facts, code)

    def _standardises(self, sparse: bool) -> bool:
        """Return whether the encoder standardises the columns of X, or does so already."""
        if not self.encoder.standardises or sparse:
            return False
        if self.going_on:
            return bool(self.classifier.net_.module_.encoder.input.is_standardised())
        return self.judges_columns()

    def judges_columns(self) -> bool:
        """Return whether a new encoder learns the scales of columns: there are enough samples."""
        rows, most = self.data.rows, FEW_OF_STREAM if self.one_pass else SMALL_DATA
        return self.encoder.standardises and rows.bags is None and len(rows) > most

    def _retrieves(self, facts: Facts) -> bool:
        """Return whether lists of labels of similar samples are of use."""
        rows = self.data.rows
        is_read = facts.sparse or sp.issparse(rows.X) or facts.standardised
        is_plain = rows.bags is None and is_read and not facts.soft
        return facts.is_ranked and is_plain and facts.head in RETRIEVED

    def _may_list(self, facts: Facts) -> bool:
        """Return whether the ranker may list labels of similar samples."""
        ranker = self.settings["ranker"]
        if ranker == "auto":
            return choose_ranker(facts, self.settings["decision"]) == "boosted"
        return ranker is not None and bool(ranker.reads)

    def _remembers(self) -> bool:
        """Return whether a ranker may remember the samples."""
        before = in_use(self.classifier)
        return self.facts.lists or (before is not None and bool(before.reads))

    def check_decision(self, head: Head | None = None) -> None:
        """Raise ValueError if decision or ranker do not suit the labels or the head, once built."""
        code, decision, ranker = self.data.code, self.settings["decision"], self.settings["ranker"]
        if head is None and ranker not in (None, "auto"):
            check_spaces(ranker, self.data.rows, self.encoder)
            ranker.check_labels(code.classes)
        check_decision(self.classifier, decision, self.data.rows.Y, code, head)
        if head is not None and ranker not in (None, "auto"):
            check_ranker(ranker, head, code, self.classifier.loss)

    # --- before training --------------------------------------------------------------------

    def agreed_random_state(self) -> np.random.RandomState:
        """Compare the fits of all processes; return the random state of the first."""
        classifier, processes = self.classifier, self.processes
        if self.going_on:
            check_holders(classifier.net_.module_.head, processes)
        check_agreement(
            processes,
            self._compared,
            "all processes must fit the same classifier to the same data",
            "whatever draws at random before a fit, such as a split or EAGLETransformer, needs a "
            "random_state",
        )
        return processes.random_state(check_random_state(classifier.random_state))

    def _compared(self) -> dict[str, Any]:
        """Return the values to compare between processes."""
        classifier, rows = self.classifier, self.data.rows
        is_mapped = any(self.processes.objects(rows.is_mapped()))
        return {
            "class": type(classifier).__name__,
            **{
                f"parameter {name}": _comparable(value)
                for name, value in classifier.get_params().items()
            },
            "shape of X": tuple(rows.X.shape),
            "number of samples": len(rows),
            "shape of y": rows.Y.shape,
            "number of steps before": classifier.t_ if self.going_on else 0,
            "digest of samples, labels and weights": digest_of(rows, whole=not is_mapped),
            "samples to hold out": identity(self.data.split),
        }

    def begin(self) -> np.random.RandomState:
        """Return the random state of the fit; open checkpoints, set samples of a decision apart."""
        rng = self.agreed_random_state()
        if self.classifier.checkpoint is not None:
            rng = self._with_checkpoints(rng)
        self._set_apart(rng)
        return rng

    def _with_checkpoints(self, rng: np.random.RandomState) -> np.random.RandomState:
        """Open checkpoints, and return the random state of a killed fit that goes on.

        The name of a checkpoint has a digest of everything the result depends on. A fit therefore
        finds its own checkpoints after a kill, and never those of another fit.
        """
        classifier, rows, code = self.classifier, self.data.rows, self.data.code
        is_seeded = check_random_state(classifier.random_state) is not check_random_state(None)
        params = classifier.get_params(deep=False).items()
        name = identity(  # that of the first process: it has the weights of all
            [
                [package.__version__ for package in (sklearn_xlc, torch, np, scipy, sklearn)],
                type(classifier),
                {name: value for name, value in params if name not in _OF_NO_EFFECT},
                [rows.X, rows.members, rows.bags, rows.Y, rows.sample_weight, self.data.split],
                [code.classes, code.multilabel],
                rng.get_state() if is_seeded else None,
                module_on_first(classifier.net_.module_) if self.going_on else None,
            ]
        )
        fit = f"{type(classifier).__name__}-{name[:32]}"
        self.checkpoints = Checkpoints(classifier.checkpoint, fit, self.processes, self.device)
        if not is_seeded:  # the first weights and the order must be those of the killed fit
            rng = np.random.RandomState(self.checkpoints.seed_or(rng.randint(2**31 - 1)))
        return rng

    def _set_apart(self, rng: np.random.RandomState) -> None:
        """Draw the decision's own samples; nothing after this reads them before the decision."""
        decision, rows = self.settings["decision"], self.data.rows
        if decision == "auto" or not decision.needs_own_samples:
            return
        if self.going_on:
            raise ValueError(
                f"{decision!r} needs samples that the network has not seen, and with "
                "warm_start=True it may have seen all; fit anew, or call recalibrate(X, y) with "
                "others"
            )
        if self.data.split is not None:
            raise ValueError(
                f"{decision!r} needs samples that nothing else is learnt from, and a splitter "
                "holds out some for all; give a fraction, or call recalibrate(X, y, "
                "decision=...) with samples of their own"
            )
        fraction = self.classifier.validation_fraction
        if fraction == "refit":
            raise ValueError(
                f"validation_fraction='refit' trains the network on all samples, and {decision!r} "
                "needs some that nothing else is learnt from; give a fraction"
            )
        n_own = int(np.ceil(fraction * len(rows)))
        self._check_rest(n_own)
        decision.check_samples(n_own)
        order = rng.permutation(len(rows))
        self.own = rows.select(np.sort(order[:n_own]))
        self.data = replace(self.data, rows=rows.select(np.sort(order[n_own:])))
        self.facts = self._facts(self.facts.pointwise, self.facts.one_softmax)

    def _check_rest(self, n_held: int) -> None:
        """Raise ValueError if no sample is left to train on."""
        n_samples = len(self.data.rows)
        if n_held >= n_samples:
            raise ValueError(
                f"validation_fraction={self.classifier.validation_fraction} leaves no sample to "
                f"train on: X has {n_samples} sample(s) of positive weight; use a smaller fraction"
            )

    def split(self, rng: np.random.RandomState) -> tuple[Rows, Rows | None]:
        """Hold out samples for early stopping, decision or ranker."""
        rows = self.data.rows
        self.held_out = plan = self._hold_out()
        self.settings = self.settings.replaced({"validation_fraction": plan.validation_fraction})
        if not plan.n_held:
            return rows, None
        if self.data.split is not None:
            train, held = self.data.split
        else:
            self._check_rest(plan.n_held)
            is_part = self.classifier._is_part
            n_scored = min(plan.n_held, MOST_SCORED) if is_part else plan.n_held
            sizes = {"train_size": len(rows) - plan.n_held, "test_size": n_scored}
            seed = rng.randint(2**31 - 1)
            train, held = train_test_split(np.arange(len(rows)), **sizes, random_state=seed)
        train.sort()  # in place: there may be very many rows
        if plan.n_stopping:
            held = rng.permutation(held)
            self.stopping = rows.select(np.sort(held[: plan.n_stopping]))
            held = held[plan.n_stopping :]
        held.sort()
        return rows.select(train), rows.select(held)

    def _hold_out(self) -> HeldOut:
        # Those that leave a second network alone, or only show its training.
        plain_callbacks = (WeightAveraging, EarlyStopping, PrintLog, ProgressBar)
        callbacks = self.settings["callbacks"] or []
        plain = of_kind(callbacks, *plain_callbacks)
        others = [each for each in callbacks if each not in plain]
        params = {**self.settings.flat(), "callbacks": others}
        return hold_out(params, self.facts, is_part=self.classifier._is_part)

    # --- settings of the network --------------------------------------------------------------

    def resolve(self, rows: Rows) -> None:
        """Resolve network and training for the training samples.

        The training is resolved anew in each call; of the network, what is in the settings stays.
        """
        has_numbers = rows.X.dtype != object
        length = max(1.0, rows.n_stored() / rows.n_instances) if has_numbers else 1.0
        bag_size = 0.0 if rows.bags is None else rows.n_instances / len(rows)
        self.facts = replace(self.facts, n_train=len(rows), train_length=length, bag_size=bag_size)
        anew = self.settings.replaced({name: self.given[name] for name in _OF_TRAINING})
        self.settings = resolve(anew, self.facts)
        if self.settings["optimizer"].weight_decay is None:
            decay = {"optimizer__weight_decay": self.given["weight_decay"]}
            self.settings = self.settings.replaced(decay)


def _comparable(value: Any) -> Any:
    """Return a plain value, or the class name of an object, for comparison among processes."""
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return value if is_plain else type(value).__name__
