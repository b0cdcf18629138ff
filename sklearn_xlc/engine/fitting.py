"""The one place that knows scikit-learn and skorch: validate, encode, build the net, fit, predict.

A classifier is an encoder, a head and a label code. Subclasses name their parameters and override
`_build_head`; nothing else here depends on which head it is.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted
from skorch.callbacks import EarlyStopping, ProgressBar
from torch import nn

from sklearn_xlc._checks import check_y, is_indicator, unchanged_on_error
from sklearn_xlc._compat import (
    Interval,
    StrOptions,
    _check_partial_fit_first_call,
    _check_sample_weight,
    _fit_context,
    validate_data,
)
from sklearn_xlc._csr import canonical, is_mostly_zeros
from sklearn_xlc.batches import Rows, make_batch
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.engine.label_code import LabelCode, code_of
from sklearn_xlc.engine.persistence import is_borrowed, load_module, save_module
from sklearn_xlc.engine.prediction import PredictionMixin
from sklearn_xlc.heads import Head, Loss
from sklearn_xlc.training import CosineSchedule, EncoderHead, WeightAveraging, XLCNet, copied
from sklearn_xlc.training.devices import DTYPES, TORCH_DTYPES, numpy_dtype, resolve_device, seeded

#: Label frequencies are not taken to be below this when a head starts from them.
RARE = 1e-6
#: Up to this many rows the whole data is one batch, and nothing random (dropout) is needed.
SMALL_DATA = 1000


@dataclass
class _Data:
    """Validated training data: rows, ragged labels as positions in the head, weights."""

    rows: Rows
    code: LabelCode


class BaseXLCClassifier(PredictionMixin, ClassifierMixin, BaseEstimator, ABC):
    """Base of all classifiers here: everything but the head."""

    _parameter_constraints: dict[str, list[Any]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "dropout": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "encoder": [None, callable, nn.Module],
        "optimizer": [StrOptions({"adam", "mixed", "adagrad", "sgd"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_epochs": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "average_weights": [None, StrOptions({"swa", "ema"})],
        "precision": [StrOptions({"float32", "bfloat16"})],
        "callbacks": [None, list, tuple],
        "device": [str, torch.device],
        "memory_limit": [Interval(Integral, 2**20, None, closed="left")],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }

    #: Share of hidden units that "auto" drops on rows that are mostly zeros.
    _sparse_dropout = 0.7

    # --- hooks of subclasses ----------------------------------------------------------------

    @abstractmethod
    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        """Head for `n_features` features and the labels of `code`; sets its fitted attributes."""

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        """Refuse parameters that do not fit the labels, whose indicator is `Y`."""

    def _calibrates(self) -> bool:
        """Whether rows are held out to choose how label sets are decided on."""
        return False

    def _calibrate(self, train: Rows, held: Rows | None, first: bool) -> None:
        """Choose that, from rows that the net was trained on, and from those held out.

        `first` is false where `partial_fit` goes on with a classifier that has chosen before.
        """

    def _order_labels(self, data: _Data, rng: np.random.RandomState) -> np.ndarray | None:
        """Position of each label in the head, or None to keep the given order."""
        return None

    # --- fit --------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BaseXLCClassifier:
        """Fit encoder and head.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples; float32 and float64 are kept, and decide the precision of the model.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Class labels of any type, or a 0/1 indicator of labels. Rows without any label and
            columns without any row are allowed.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss. Rows of weight zero are dropped first.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If a parameter, X, y or `sample_weight` is not valid. A classifier that was fitted
            before is then left as it was.
        """
        with unchanged_on_error(self):
            going_on = self.warm_start and hasattr(self, "net_")
            code = self._code if going_on else None
            data = self._validate_fit(X, y, sample_weight, code, reset=not going_on)
            rng = check_random_state(self.random_state)
            train, validation = self._split(data, rng)
            with seeded(rng):
                if going_on:  # a copy, so that an interrupt leaves the old one as it was
                    module = copy.deepcopy(self.net_.module_)
                else:
                    module = self._start(data, train, rng)
                net = self._make_net(module, train, validation, rng)
                net.fit(train)
            self._finish(net)
            self._calibrate(train, validation, first=True)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BaseXLCClassifier:
        """Make one pass over a part of the data, at a constant learning rate.

        The network is trained in place: a pass that is interrupted keeps the steps it has taken.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Class labels, or a 0/1 indicator of labels.
        classes : array-like of shape (n_classes,), default=None
            All classes that will ever occur; needed in the first call with class labels. With an
            indicator its columns are the labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss.

        Returns
        -------
        self : object
            Classifier after the pass.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call, or y holds other labels.
        """
        with unchanged_on_error(self):
            first = not hasattr(self, "net_")
            code = None if first else self._code
            if not is_indicator(y) and _check_partial_fit_first_call(self, classes):
                code = code_of(self.classes_, self.classes_)
            data = self._validate_fit(X, y, sample_weight, code, reset=first)
            rng = check_random_state(self.random_state)
            rng = np.random.RandomState((rng.randint(2**31 - 1) + getattr(self, "t_", 0)) % 2**32)
            with seeded(rng):
                borrowed = getattr(self, "_weights_borrowed", False)
                module = self._start(data, None, rng) if first else self.net_.module_
                module = copy.deepcopy(module) if borrowed else module
                net = self._make_net(module, data.rows, None, rng, one_pass=True)
                if not (first or borrowed):
                    net.initialize()
                    net.optimizer_ = self.net_.optimizer_
                net.partial_fit(data.rows)
            self._finish(net, keep_optimizer=True)
            self._calibrate(data.rows, None, first=first)
        return self

    def _validate_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        code: LabelCode | None,
        reset: bool = True,
    ) -> _Data:
        X = self._validate_X(X, reset)
        checked = check_y(y)
        check_consistent_length(X, checked)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=X.dtype, ensure_non_negative=True
            )
        code = code or code_of(y, checked)
        rows = Rows(X, code.encode(checked), sample_weight)
        self._check_task(code, rows.Y)
        return self._placed(rows, code)

    def _validate_X(self, X: Any, reset: bool) -> Any:
        dtype = DTYPES if reset else numpy_dtype(self.net_.module_)
        return canonical(validate_data(self, X, accept_sparse="csr", dtype=dtype, reset=reset))

    def _placed(self, rows: Rows, code: LabelCode) -> _Data:
        """Samples of positive weight, with labels in the places of a net that is there already."""
        if rows.sample_weight is not None and not rows.sample_weight.all():
            rows = rows.take(np.flatnonzero(rows.sample_weight))
        if code is getattr(self, "_code", None):
            rows.Y = code.to_positions(rows.Y)
            rows.sparse = self._sparse_inputs
        elif rows.Y.nnz == 0:
            raise ValueError(
                "no row of y has a label: at least one row of an indicator must hold a one"
            )
        return _Data(rows, code)

    def _split(self, data: _Data, rng: np.random.RandomState) -> tuple[Rows, Rows | None]:
        if not (self.early_stopping or (data.code.multilabel and self._calibrates())):
            return data.rows, None
        index = np.arange(len(data.rows))
        if np.ceil(self.validation_fraction * len(index)) >= len(index):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves no row to train on: X has "
                f"{len(index)} row(s) of positive weight"
            )
        train, held = train_test_split(
            index, test_size=self.validation_fraction, random_state=rng.randint(2**31 - 1)
        )
        return data.rows.take(np.sort(train)), data.rows.take(np.sort(held))

    def _start(self, data: _Data, train: Rows | None, rng: np.random.RandomState) -> EncoderHead:
        """Build encoder and head, and set what the fitted estimator is known by."""
        rows, code = data.rows, data.code
        self._code, self.classes_ = code, code.classes
        self.loss_curve_, self.n_iter_, self.t_ = [], 0, 0
        counts = np.diff(rows.Y.indptr)
        self._typical_size = int(counts.max(initial=1))
        encoder = self._build_encoder(rows)
        self._sparse_inputs = rows.sparse
        width = output_width(encoder, rows)
        self._code = code = code.reordered(self._order_labels(data, rng))
        head = self._build_head(width, code)
        for part in {id(r): r for r in (rows, train) if r is not None}.values():
            part.sparse = rows.sparse
            part.Y = code.to_positions(part.Y)
        module = EncoderHead(encoder, head).to(TORCH_DTYPES[rows.X.dtype])
        counts, n_samples = label_counts(rows if train is None else train)
        for part in head.modules():
            if isinstance(part, Loss):
                part.fit(counts, n_samples)
        if train is not None:
            head.set_prior(frequency(train))
        self._n_features_out = width
        self.n_parameters_ = sum(p.numel() for p in module.parameters() if p.requires_grad)
        return module

    def _build_encoder(self, rows: Rows) -> nn.Module:
        if self.encoder is None:
            rows.sparse = is_mostly_zeros(rows.X)
            sizes = np.atleast_1d(self.hidden_layer_sizes).tolist()
            if not sizes:
                raise ValueError("hidden_layer_sizes is empty; give at least one width")
            for size in sizes:
                check_scalar(size, "hidden_layer_sizes", Integral, min_val=1)
            return MLPEncoder(rows.X.shape[1], sizes, self._dropout(rows), rows.sparse)
        if isinstance(self.encoder, nn.Module):
            encoder = copy.deepcopy(self.encoder)
        else:
            encoder = self.encoder(rows.X.shape[1])
            if not isinstance(encoder, nn.Module):
                raise TypeError(
                    "encoder must be a torch.nn.Module or a function of n_features that returns "
                    f"one, but it returned {type(encoder).__name__}"
                )
        rows.sparse = getattr(encoder, "accepts_sparse", False) and is_mostly_zeros(rows.X)
        return encoder

    def _dropout(self, rows: Rows) -> float:
        if self.dropout != "auto":
            return float(self.dropout)
        if len(rows) <= SMALL_DATA:
            return 0.0
        # Rare words are easily learnt by heart; dense columns all occur in every row.
        return self._sparse_dropout if rows.sparse else 0.2

    def _batch_size(self, n_samples: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        return 256 if n_samples > SMALL_DATA else max(1, n_samples)

    def _max_epochs(self, n_samples: int) -> int:
        if self.max_epochs != "auto":
            return int(self.max_epochs)
        if n_samples <= SMALL_DATA:
            return 200
        return max(10, -(-300 // -(-n_samples // self._batch_size(n_samples))))

    def _make_net(
        self,
        module: EncoderHead,
        train: Rows,
        validation: Rows | None,
        rng: np.random.RandomState,
        one_pass: bool = False,
    ) -> XLCNet:
        n_samples = len(train)
        max_epochs = 1 if one_pass else self._max_epochs(n_samples)
        batch_size = min(self._batch_size(n_samples), max(1, n_samples))
        callbacks = copied(self.callbacks)
        if not one_pass:
            callbacks.append(CosineSchedule(max_epochs * -(-n_samples // batch_size)))
            if self.early_stopping:
                callbacks.append(EarlyStopping(patience=self.n_iter_no_change, load_best=True))
            if self.average_weights:
                callbacks.append(WeightAveraging(self.average_weights, max_epochs))
        if self.verbose:
            callbacks.append(ProgressBar())
        return XLCNet(
            module,
            rng=np.random.default_rng(rng.randint(2**31 - 1)),
            validation=validation if self.early_stopping else None,
            precision=self.precision,
            optimizer_rule=self.optimizer,
            optimizer__weight_decay=self.weight_decay,
            lr=self.learning_rate,
            max_epochs=max_epochs,
            batch_size=batch_size,
            device=resolve_device(self.device),
            callbacks=callbacks,
            callbacks__print_log=None,
            verbose=0,
        )

    def _finish(self, net: XLCNet, keep_optimizer: bool = False) -> None:
        net.check_loss()
        losses = [float(row["train_loss"]) for row in net.history]
        self.loss_curve_ = [*self.loss_curve_, *losses]
        self._weights_borrowed = False
        self.n_iter_ += len(losses)
        self.t_ += sum(row["train_batch_count"] for row in net.history)
        if not (keep_optimizer or self.warm_start):
            net.optimizer_.state.clear()
        net.validation = None
        self.net_ = net

    @property
    def label_order_(self) -> np.ndarray:
        """Position of each label in the head."""
        check_is_fitted(self, "net_")
        return self._code.label_order

    # --- persistence and tags -----------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "net_" in state:
            net = state.pop("net_")
            state["_saved_module"] = save_module(net.module_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        saved = state.pop("_saved_module", None)
        super().__setstate__(state)
        if saved is not None:
            self._code.classes = self.classes_
            self._weights_borrowed = is_borrowed(saved)
            module = load_module(saved)
            rng = np.random.RandomState(0)
            dtype = numpy_dtype(module)
            empty = Rows(np.empty((0, self.n_features_in_), dtype=dtype))
            self.net_ = self._make_net(module, empty, None, rng, one_pass=True).initialize()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def frequency(rows: Rows) -> torch.Tensor:
    """Weighted share of the rows that hold each label, of shape (n_labels,)."""
    weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    share = rows.Y.T.astype(np.float64) @ (weight / weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def label_counts(rows: Rows) -> tuple[torch.Tensor, float]:
    """Weighted number of the samples that hold each label, (n_labels,), and of all samples."""
    weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    return torch.from_numpy(rows.Y.T.astype(np.float64) @ weight), float(weight.sum())


def output_width(encoder: nn.Module, rows: Rows) -> int:
    """Number of features, asked of the encoder or seen on two rows."""
    if hasattr(encoder, "n_outputs"):
        return encoder.n_outputs
    encoder.to(TORCH_DTYPES[rows.X.dtype]).eval()
    batch = make_batch(Rows(rows.X[:2], sparse=rows.sparse))
    try:
        with torch.no_grad():
            features = encoder(batch.inputs)
    except RuntimeError as error:
        raise ValueError(
            f"encoder cannot read {len(batch)} row(s) of {rows.X.shape[1]} columns: {error}"
        ) from error
    is_tensor = isinstance(features, torch.Tensor)
    if not is_tensor or features.ndim != 2 or len(features) != len(batch):
        got = f"shape {tuple(features.shape)}" if is_tensor else type(features).__name__
        raise ValueError(
            "encoder must return a tensor of features of shape (n_rows, n_outputs), but for "
            f"{len(batch)} row(s) it returned {got}"
        )
    return features.shape[1]
