"""The order of `fit` and `partial_fit`, and the base of all classifiers."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted
from torch import nn

from sklearn_xlc._checks import check_y, is_indicator, warn_unread
from sklearn_xlc._compat import (
    RANDOM_STATE,
    Interval,
    StrOptions,
    _check_partial_fit_first_call,
    _check_sample_weight,
    _fit_context,
)
from sklearn_xlc._tags import named_sets, plain_sets
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import Generators, as_global, new_generators
from sklearn_xlc.decisions import Decision
from sklearn_xlc.encoders import MLPEncoder, accepted_forms
from sklearn_xlc.engine.building import (
    default_encoder,
    frequency,
    inputs_for,
    label_counts,
    mean_one,
    n_weights,
    output_width,
    reads_sparse,
    user_encoder,
    vectorized,
    zero_rows,
)
from sklearn_xlc.engine.changing_labels import ChangingLabelsMixin
from sklearn_xlc.engine.class_weights import check_weights_of_part, weigh_labels, weigh_samples
from sklearn_xlc.engine.deciding import DECISIONS
from sklearn_xlc.engine.label_code import LabelCode, code_of
from sklearn_xlc.engine.memory import memory_explained, without_weights
from sklearn_xlc.engine.persistence import PersistenceMixin
from sklearn_xlc.engine.prediction import PredictionMixin
from sklearn_xlc.engine.soft_labels import SoftLabels
from sklearn_xlc.engine.validation import TrainingData, model_dtype, validate_X
from sklearn_xlc.heads import Head, Loss
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.callbacks import copy_of
from sklearn_xlc.training.devices import TORCH_DTYPES, numpy_dtype
from sklearn_xlc.training.foreign import is_ours
from sklearn_xlc.training.optimizer import RowOptimizer
from sklearn_xlc.training.parts import copied


class BaseXLCClassifier(
    PersistenceMixin, ChangingLabelsMixin, PredictionMixin, ClassifierMixin, BaseEstimator, ABC
):
    """Base of all classifiers: encoder, label code, training and prediction, but no head.

    To write a classifier of your own, subclass this base, name its parameters in ``__init__`` and
    build its head in ``_build_head``. The base adds `fit`, `partial_fit`, all prediction methods,
    saving and loading. ``__init__`` only stores its parameters, as in every scikit-learn estimator:
    the parameters that all classifiers share (see :class:`~sklearn_xlc.MultiHeadClassifier` for
    their meaning), and your own, with constraints in ``_parameter_constraints``. There are six
    hooks; only the first is required:

    - ``_build_head(n_features, code)`` returns a :class:`~sklearn_xlc.heads.Head`, and may set
      fitted attributes. ``code.n_labels`` and ``code.multilabel`` describe the labels.
    - ``_check_task(code, Y)`` raises ValueError for parameters that do not suit the labels.
    - ``_unread(code)`` names parameters without effect, and why; `fit` warns of those that are set.
    - ``_order_labels(data, rng)`` returns the position of each label in the head, or None to keep
      the order.
    - ``_auto_decision(head)`` returns the :class:`~sklearn_xlc.decisions.Decision` for
      ``decision="auto"``, also used by a classifier without the parameter `decision`; `head` is
      None before it is built.
    - ``_has_probabilities()`` says whether `predict_proba` exists.

    See Also
    --------
    sklearn_xlc.heads.Head : Loss, scores and best labels.
    sklearn_xlc.encoders.Encoder : Features of samples.

    Examples
    --------
    A classifier with a narrow linear layer between encoder and output:

    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> from sklearn_xlc.engine import BaseXLCClassifier
    >>> from sklearn_xlc.heads import FlatHead
    >>> class NarrowClassifier(BaseXLCClassifier):
    ...     def __init__(
    ...         self, width=8, *, hidden_layer_sizes=(64,), dropout="auto", encoder=None,
    ...         optimizer="adam", learning_rate=2e-3, weight_decay=0.0, batch_size="auto",
    ...         max_epochs="auto", early_stopping=False, validation_fraction=0.1,
    ...         n_iter_no_change=3, average_weights=None, precision="auto", callbacks=None,
    ...         device="auto", memory_limit=2**30, random_state=None, warm_start=False, verbose=0,
    ...     ):
    ...         parameters = {name: value for name, value in locals().items() if name != "self"}
    ...         vars(self).update(parameters)
    ...
    ...     def _build_head(self, n_features, code):
    ...         return FlatHead(n_features, code.n_labels, code.multilabel, width=self.width)
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> NarrowClassifier(random_state=0).fit(X, y).predict_topk(X, k=2)[0].shape
    (300, 2)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "dropout": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "encoder": [None, callable, nn.Module],
        "optimizer": [StrOptions({"auto", "adam", "mixed", "adagrad", "sgd"})],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "nesterov": ["boolean"],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="both")],
        "class_weight": [None, dict, StrOptions({"balanced", "propensity"})],
        "decision": [StrOptions({"auto", *DECISIONS}), Decision],
        "calibration": [None, StrOptions({"auto"})],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "average_weights": [None, StrOptions({"swa", "ema"})],
        "precision": [StrOptions({"auto", "float32", "bfloat16"})],
        "callbacks": [None, list, tuple],
        "device": [str, torch.device],
        "memory_limit": [Interval(Integral, 2**20, None, closed="left")],
        "random_state": RANDOM_STATE,
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "checkpoint": [None, str, os.PathLike],
        "distributed": [StrOptions({"auto"}), "boolean"],
    }

    #: Whether y may hold counts of labels.
    _takes_counts = False

    # --- hooks of subclasses ----------------------------------------------------------------

    @abstractmethod
    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        """Build the head for `n_features` features and the labels of `code`."""

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        """Raise ValueError if parameters do not suit the labels with indicator `Y`."""

    def _reads_soft_labels(self, Y: sp.csr_matrix) -> bool:
        """Whether `fit` takes :class:`SoftLabels` in place of labels such as the indicator `Y`."""
        return False

    def _unread(self, code: LabelCode) -> dict[str, str]:
        """Parameters that have no effect, and why ("without attention")."""
        return {}

    def _order_labels(self, data: TrainingData, rng: np.random.RandomState) -> np.ndarray | None:
        """Position of each label in the head, or None to keep the given order."""
        return None

    # --- fit --------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    @memory_explained("training", lambda self: self._smaller_model())
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BaseXLCClassifier:
        """Fit encoder and head.

        An interrupt by the user (Ctrl-C) ends the training after the current step, with a warning;
        the model has the weights of that step. A second one is raised, and so is one before the
        first step, after the last, or within a search or an ensemble: the classifier is then as it
        was before.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples. The type of the model is given by `precision`. X may also hold strings
            or be a mapping of arrays, if the `encoder` accepts them.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Class labels of any type; or a 0/1 indicator of labels, where the columns of a frame
            are the labels; or tags: a list, array or column with a list, tuple, set or array of
            strings or integers per sample. Samples without any label and columns without any
            sample are allowed. A list of equally long lists of 0 and 1 is an indicator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss; only their ratios matter. Samples of weight zero
            are dropped first.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If a parameter, X, y or `sample_weight` is not valid. An earlier fit is then kept.
        OSError
            If a checkpoint cannot be written. Earlier ones are then kept, too.
        MemoryError
            If weights, gradients and optimiser would not fit into the memory that is left.

        Warns
        -----
        UserWarning
            If the user has interrupted the training.
        """
        with self._fitting():
            going_on = self.warm_start and hasattr(self, "net_")
            code = self._code if going_on else None
            data = self._validate_fit(X, y, sample_weight, code, reset=not going_on)
            self._check_decision(data.code, data.rows.Y)
            rng, checkpoints = self._begin(data, going_on)
            if not going_on:
                unread = self._unread(data.code) | self._unread_by_optimizer()
                warn_unread(self, unread | self._unread_by_holdout(data.code))
            train, validation = self._split(data, rng)
            generators = new_generators(rng.randint(2**31 - 1))
            if going_on:  # a copy: an interrupt leaves the fitted module as it was
                module = copied(self.net_.module_)
                weigh_labels(self.class_weight, module.head, train, data.code)
            else:
                module = self._start(data, train, rng, generators)
            self._check_decision(data.code, data.rows.Y, module.head)
            train = self._for_training(train, module, first=not going_on)
            if validation is not None:
                validation = self._for_training(validation, module)
            net = self._make_net(module, train, validation, rng, generators)
            net.checkpoints, net.classifier = checkpoints, self._scored_by(net)
            net.fit(train)
            self._finish(net)
            self._warn_of_interrupt(net)
            part = None
            if self._needs_part(data.rows, data.code) and not net.interrupted_:
                part = self._fitted_on_part(X, y, sample_weight, rng.randint(2**31 - 1))
            self._fit_decision(train, validation, first=True, part=part)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    @memory_explained("training", lambda self: self._smaller_model())
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BaseXLCClassifier:
        """Train for one pass over a part of the data, at a constant learning rate.

        The network is trained in place: after an interrupt it keeps the steps taken so far.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Class labels, an indicator of labels or tags, as in :meth:`fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes or tags that will occur; required in the first call with class labels. A
            later call may name more than those in ``classes_``, which are then added; None adds
            none. With an indicator the columns are the labels: name as many as there are.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss; only their ratios within a call matter.

        Returns
        -------
        self : object
            Classifier after the pass.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call, lacks known labels in a later one, or adds
            some for which the output layer has no room; or if y holds labels outside of them.
        """
        with self._fitting():
            first = not hasattr(self, "net_")
            check_weights_of_part(self.class_weight)
            added = np.empty(0, np.int64) if first else self._take_in(classes)
            code = None if first else self._code
            y = self._named(y, code, classes)
            is_new = first and not is_indicator(plain_sets(y))
            if is_new and _check_partial_fit_first_call(self, classes):
                code = code_of(self.classes_, self.classes_)
            data = self._validate_fit(X, y, sample_weight, code, reset=first)
            self._check_decision(data.code, data.rows.Y)
            rng = self._agreed_random_state(data, going_on=not first)
            rng = np.random.RandomState((rng.randint(2**31 - 1) + getattr(self, "t_", 0)) % 2**32)
            generators = new_generators(rng.randint(2**31 - 1))
            if first:
                warn_unread(self, self._unread(data.code) | self._unread_by_optimizer())
            optimizer: RowOptimizer | None = None
            if first:
                module = self._start(data, None, rng, generators)
            else:
                module, optimizer = self._going_on(data.rows, added, generators)
            weigh_labels(self.class_weight, module.head, data.rows, data.code)
            self._check_decision(data.code, data.rows.Y, module.head)
            rows = self._for_training(data.rows, module, first)
            net = self._make_net(module, rows, None, rng, generators, one_pass=True)
            if optimizer is not None and optimizer.state:
                net.initialize()
                net.optimizer_ = optimizer
            net.classifier = self._scored_by(net)
            net.partial_fit(rows)
            self._finish(net, keep_optimizer=True)
            self._fit_decision(rows, None, first=first)
        return self

    def _validate_fit(
        self, X: Any, y: Any, sample_weight: Any, code: LabelCode | None, reset: bool = True
    ) -> TrainingData:
        X = self._validate_X(X, reset)
        if isinstance(y, SoftLabels):
            checked = y.probabilities
        else:
            y = self._named(y, code)
            checked = check_y(plain_sets(y))
        check_consistent_length(X, checked)
        if sample_weight is not None:
            like = np.empty(X.shape[0])
            sample_weight = _check_sample_weight(
                sample_weight, like, dtype=np.float64, ensure_non_negative=True
            )
        code = code or code_of(y, checked, sample_weight)
        rows = Rows(X, code.encode(checked), sample_weight)
        self._check_task(code, rows.Y)
        return self._training_data(rows, code)

    def _named(self, y: Any, code: LabelCode | None, classes: Any = None) -> Any:
        """Label sets with the names of their labels, where labels have names; otherwise y."""
        known = code.classes if code is not None and code.multilabel else classes
        sets = named_sets(y, known, counts=self._takes_counts)
        return y if sets is None else sets

    def _validate_X(self, X: Any, reset: bool) -> Any:
        X = validate_X(self, X, reset)
        if reset or X.dtype == object:
            return X
        return X.astype(numpy_dtype(self.net_.module_), copy=False)

    def _training_data(self, rows: Rows, code: LabelCode) -> TrainingData:
        """Select the samples of positive weight; in the first fit one of them must have a label."""
        rows = weigh_samples(self.class_weight, rows, code)
        weight = rows.sample_weight
        if weight is not None:
            with np.errstate(over="ignore"):
                if np.isinf(weight.sum()):
                    raise ValueError(
                        "the sum of sample_weight is beyond float64; divide sample_weight by its "
                        "maximum"
                    )
            if not weight.all():
                rows = rows.select(np.flatnonzero(weight))
        if code is not getattr(self, "_code", None) and rows.Y.nnz == 0:
            raise ValueError(
                "no row of y has a label: at least one row of an indicator must hold a one"
            )
        return TrainingData(rows, code)

    def _split(self, data: TrainingData, rng: np.random.RandomState) -> tuple[Rows, Rows | None]:
        n_held, index = self._n_held(data.rows, data.code), np.arange(len(data.rows))
        if not n_held:
            return data.rows, None
        if n_held >= len(index):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves no sample to train on: X "
                f"has {len(index)} sample(s) of positive weight; use a smaller fraction"
            )
        sizes = {"train_size": len(index) - n_held, "test_size": self._n_scored(n_held)}
        train, held = train_test_split(index, **sizes, random_state=rng.randint(2**31 - 1))
        del index  # in place, and one copy less: there may be very many rows
        train.sort()
        held.sort()
        return data.rows.select(train), data.rows.select(held)

    def _unread_by_holdout(self, code: LabelCode) -> dict[str, str]:
        if self.early_stopping:
            return {}
        unread = {"n_iter_no_change": "without early_stopping=True"}
        if not (self._holds_out(code) or self._is_auto(code)):
            unread["validation_fraction"] = (
                "without early_stopping=True, or a decision that is tuned on held-out samples"
            )
        return unread

    def _start(
        self,
        data: TrainingData,
        train: Rows | None,
        rng: np.random.RandomState,
        generators: Generators,
    ) -> EncoderHead:
        """Build encoder and head, and set the fitted attributes."""
        rows, code = data.rows, data.code
        self._code, self.classes_ = code, code.classes
        self.history_, self.loss_curve_, self.n_iter_, self.t_ = [], [], 0, 0
        self._typical_size = int(np.diff(rows.Y.indptr).max(initial=1))
        with as_global(generators):  # one thread at a time, as briefly as can be
            encoder = self._build_encoder(rows)
            width = output_width(encoder, inputs_for(encoder, rows, self._sparse_inputs))
        self._bfloat16 = self._uses_bfloat16(len(rows))
        if train is not None and self.encoder is None and isinstance(encoder, MLPEncoder):
            # Training leaves their first weights as they are, and prediction would read these.
            zero_rows(encoder.input.weight, ~train.occurring_columns())
        self._code = code = code.reordered(self._order_labels(data, rng))
        with as_global(generators):
            head = self._checked_head(encoder, rows, width)
            module = EncoderHead(encoder, head).to(TORCH_DTYPES[model_dtype(rows.X)])
            known = rows if train is None else train
            weigh_labels(self.class_weight, head, known, code)
            counts, n_samples = label_counts(known.Y, known.sample_weight)
            counts = code.by_position(counts)
            for part in head.modules():
                if isinstance(part, Loss):
                    part.fit(counts, n_samples)
            if train is not None:
                head.set_prior(code.by_position(frequency(train.Y, train.sample_weight)))
        self._n_features_out = width
        self.n_parameters_ = n_weights(module)
        if not self.n_parameters_:
            raise ValueError(
                "there is no parameter to train: neither the encoder nor the head has one that "
                "requires a gradient; pass another encoder, or a head with weights or biases"
            )
        return module

    def _checked_head(self, encoder: nn.Module, rows: Rows, width: int) -> Head:
        """Build the head, if it fits into memory."""
        code = self._code
        build = functools.partial(self._build_head, width, code)
        # Code of the user is called once, and not to make tensors without values.
        is_planned = getattr(self, "head", None) is None and is_ours(type(self)._build_head)
        planned = without_weights(build) if is_planned else None
        self._check_memory(encoder, planned, rows, code.n_labels)
        head = build()
        if planned is None:
            self._check_memory(encoder, head, rows, code.n_labels)
        return head

    def _build_encoder(self, rows: Rows) -> nn.Module:
        X = rows.X
        if self.encoder is None:
            self._sparse_inputs = reads_sparse(MLPEncoder, rows)
            sizes, dropout = self._hidden_sizes(rows), self._dropout(rows)
            layers = (X.shape[1], sizes, dropout, self._sparse_inputs, self.n_members)
            build = functools.partial(default_encoder, *layers, self._negative_slope(rows))
            self._check_memory(without_weights(build), None, rows, self._code.n_labels)
            return build()
        encoder = user_encoder(self.encoder, X)
        self._sparse_inputs = reads_sparse(encoder, rows)
        return encoder

    def _for_training(self, rows: Rows, module: EncoderHead, first: bool = False) -> Rows:
        """Samples in the form from which batches are cut, with positions in place of labels."""
        inputs = inputs_for(module.encoder, rows, self._sparse_inputs)
        inputs = vectorized(module.encoder, inputs, first)
        weight = rows.sample_weight
        if weight is not None:
            weight = mean_one(weight).astype(model_dtype(rows.X))
        return replace(inputs, Y=self._code.to_positions(rows.Y), sample_weight=weight)

    def __sklearn_clone__(self) -> Any:
        """Clone; callbacks are copied as `fit` does, since an open file or a lock has no copy."""
        if not isinstance(self.callbacks, list | tuple):
            return super().__sklearn_clone__()
        bare: BaseXLCClassifier = object.__new__(type(self))
        bare.__dict__ = {**vars(self), "callbacks": None}
        cloned = super(BaseXLCClassifier, bare).__sklearn_clone__()
        memo: dict[int, Any] = {}
        cloned.callbacks = type(self.callbacks)(copy_of(each, memo) for each in self.callbacks)
        return cloned

    @property
    def label_order_(self) -> np.ndarray:
        """Position of each label in the head."""
        check_is_fitted(self, "net_")
        return self._code.label_order

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        accepts = accepted_forms(MLPEncoder if self.encoder is None else self.encoder)
        tags.input_tags.two_d_array = tags.input_tags.sparse = bool({"dense", "csr"} & set(accepts))
        tags.input_tags.string = "text" in accepts
        tags.input_tags.dict = "mapping" in accepts
        tags.classifier_tags.multi_label = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
