"""The one place that knows scikit-learn and skorch: validate, encode, build the net, fit, predict.

A classifier is an encoder, a head and a label code. Subclasses name their parameters and override
`_build_head`; nothing else here depends on which head it is.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state, check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from skorch.callbacks import EarlyStopping, ProgressBar
from torch import nn

from sklearn_xlc._compat import (
    Interval,
    StrOptions,
    _check_partial_fit_first_call,
    _check_sample_weight,
    _fit_context,
    validate_data,
)
from sklearn_xlc._config import get_config
from sklearn_xlc._label_code import LabelCode, check_y, code_of, is_indicator
from sklearn_xlc._persistence import is_borrowed, load_module, save_module
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.heads import Head
from sklearn_xlc.training import (
    BatchIterator,
    CosineSchedule,
    EncoderHead,
    Rows,
    WeightAveraging,
    XLCNet,
    make_batch,
)

#: Rows whose share of non-zeros is below this are cheaper to multiply as sparse ones.
SPARSE_SHARE = 0.1
#: Up to this many rows the whole data is one batch, and nothing random (dropout) is needed.
SMALL_DATA = 1000
#: Rows of a batch in prediction.
PREDICT_BATCH = 512
#: Label frequencies are not taken to be below this when a head starts from them.
RARE = 1e-6


@dataclass
class _Data:
    """Validated training data: rows, ragged labels in places of the head, weights."""

    rows: Rows
    code: LabelCode


class BaseXLCClassifier(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator, ABC
):
    """Base of all classifiers here: everything but the head."""

    _parameter_constraints: dict[str, list[Any]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "dropout": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "encoder": [None, callable, nn.Module],
        "optimizer": [StrOptions({"auto", "adam", "adagrad", "sgd"})],
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

    # --- hooks of subclasses ----------------------------------------------------------------

    @abstractmethod
    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        """Head for `n_features` features and the labels of `code`; sets its fitted attributes."""

    def _check_task(self, code: LabelCode) -> None:
        """Refuse parameters that do not fit the labels."""

    def _order_labels(self, data: _Data, rng: np.random.RandomState) -> np.ndarray | None:
        """Place of each label in the head, or None to keep the given order."""
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
        with self._unchanged_on_error():
            going_on = self.warm_start and hasattr(self, "net_")
            code = self._code if going_on else None
            data = self._validate_fit(X, y, sample_weight, code, reset=not going_on)
            rng = check_random_state(self.random_state)
            train, validation = self._split(data, rng)
            with _seeded(rng):
                if going_on:  # a copy, so that an interrupt leaves the old one as it was
                    module = copy.deepcopy(self.net_.module_)
                else:
                    module = self._start(data, train, rng)
                net = self._make_net(module, train, validation, rng)
                net.fit(train)
            self._finish(net)
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
        with self._unchanged_on_error():
            first = not hasattr(self, "net_")
            code = None if first else self._code
            if not is_indicator(y) and _check_partial_fit_first_call(self, classes):
                code = code_of(self.classes_, self.classes_)
            data = self._validate_fit(X, y, sample_weight, code, reset=first)
            rng = check_random_state(self.random_state)
            rng = np.random.RandomState((rng.randint(2**31 - 1) + getattr(self, "t_", 0)) % 2**32)
            with _seeded(rng):
                borrowed = getattr(self, "_weights_borrowed", False)
                module = self._start(data, None, rng) if first else self.net_.module_
                module = copy.deepcopy(module) if borrowed else module
                net = self._make_net(module, data.rows, None, rng, one_pass=True)
                if not (first or borrowed):
                    net.initialize()
                    net.optimizer_ = self.net_.optimizer_
                net.partial_fit(data.rows)
            self._finish(net, keep_optimizer=True)
        return self

    def _validate_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        code: LabelCode | None,
        reset: bool = True,
    ) -> _Data:
        dtype = _DTYPES if reset else _numpy_dtype(self.net_.module_)
        X = _canonical(validate_data(self, X, accept_sparse="csr", dtype=dtype, reset=reset))
        checked = check_y(y)
        check_consistent_length(X, checked)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=X.dtype, ensure_non_negative=True
            )
        code = code or code_of(y, checked)
        self._check_task(code)
        Y = code.encode(checked)
        order = getattr(self, "label_order_", None)
        rows = Rows(X, Y, sample_weight)
        if sample_weight is not None and not sample_weight.all():
            rows = rows.take(np.flatnonzero(sample_weight))
        if code is getattr(self, "_code", None) and order is not None:
            rows.Y = _move_columns(rows.Y, order)
            rows.sparse = self._sparse_inputs
        return _Data(rows, code)

    def _split(self, data: _Data, rng: np.random.RandomState) -> tuple[Rows, Rows | None]:
        if not self.early_stopping:
            return data.rows, None
        index = np.arange(len(data.rows))
        if np.ceil(self.validation_fraction * len(index)) >= len(index):
            raise ValueError(
                f"early_stopping=True with validation_fraction={self.validation_fraction} leaves "
                f"no row to train on: X has {len(index)} row(s) of positive weight"
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
        width = _output_width(encoder, rows)
        order = self._order_labels(data, rng)
        self.label_order_ = np.arange(code.n_labels) if order is None else order
        self._label_at = np.argsort(self.label_order_)
        head = self._build_head(width, code)
        for part in {id(r): r for r in (rows, train) if r is not None}.values():
            part.sparse = rows.sparse
            part.Y = _move_columns(part.Y, self.label_order_)
        if train is not None:
            head.set_prior(_frequency(train))
        module = EncoderHead(encoder, head).to(_TORCH_DTYPES[rows.X.dtype])
        self._n_features_out = width
        self.n_parameters_ = sum(p.numel() for p in module.parameters() if p.requires_grad)
        return module

    def _build_encoder(self, rows: Rows) -> nn.Module:
        if self.encoder is None:
            rows.sparse = _is_sparse(rows.X)
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
        rows.sparse = getattr(encoder, "accepts_sparse", False) and _is_sparse(rows.X)
        return encoder

    def _dropout(self, rows: Rows) -> float:
        if self.dropout != "auto":
            return float(self.dropout)
        if len(rows) <= SMALL_DATA:
            return 0.0
        # Rare words are easily learnt by heart; dense columns all occur in every row.
        return 0.7 if rows.sparse else 0.2

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
        callbacks = copy.deepcopy(list(self.callbacks or []))
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
            validation=validation,
            precision=self.precision,
            optimizer_rule=self.optimizer,
            optimizer__weight_decay=self.weight_decay,
            lr=self.learning_rate,
            max_epochs=max_epochs,
            batch_size=batch_size,
            device=_resolve_device(self.device),
            callbacks=callbacks,
            callbacks__print_log=None,
            verbose=0,
        )

    def _finish(self, net: XLCNet, keep_optimizer: bool = False) -> None:
        losses = [float(row["train_loss"]) for row in net.history]
        if not np.isfinite(losses).all():
            raise ValueError(
                f"the training loss became {losses[-1]} in epoch {len(losses)}: lower "
                f"learning_rate={self.learning_rate} or scale X"
            )
        self.loss_curve_ = [*self.loss_curve_, *losses]
        self._weights_borrowed = False
        self.n_iter_ += len(losses)
        self.t_ += sum(row["train_batch_count"] for row in net.history)
        if not (keep_optimizer or self.warm_start):
            net.optimizer_.state.clear()
        net.validation = None
        self.net_ = net

    @contextlib.contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # --- predict ----------------------------------------------------------------------------

    def _features(self, X: Any) -> Iterator[tuple[slice, torch.Tensor]]:
        """Features of validated rows, batch by batch."""
        net = self.net_
        rows = Rows(X.astype(_numpy_dtype(net.module_), copy=False), sparse=self._sparse_inputs)
        start = 0
        for batch in BatchIterator(rows, PREDICT_BATCH, None, torch.device(net.device)):
            stop = start + len(batch)
            yield slice(start, stop), net.features(batch)
            start = stop

    def _validate_predict(self, X: Any) -> Any:
        check_is_fitted(self, "net_")
        return _canonical(validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False))

    def _topk(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Label ids and scores of validated rows, both (n_samples, k)."""
        dtype = _numpy_dtype(self.net_.module_)
        ids = np.empty((X.shape[0], k), dtype=np.int64)
        scores = np.empty((X.shape[0], k), dtype=dtype)
        for rows, features in self._features(X):
            with torch.inference_mode():
                best, places = self.net_.module_.head.topk(features, k)
            scores[rows], ids[rows] = best.cpu().numpy(), self._label_at[places.cpu().numpy()]
        return ids, scores

    def predict_topk(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Best k labels of each row, without ever holding the scores of all labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels, at most the number of labels there are.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Labels, best first: entries of ``classes_``, which are column numbers in multi-label.
        scores : ndarray of shape (n_samples, k)
            Their scores, on the scale of :meth:`decision_function`.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of labels.
        """
        X = self._validate_predict(X)
        ids, scores = self._topk(X, self._check_k(k))
        return self.classes_[ids], scores

    def predict_topk_sparse(self, X: Any, k: int = 5) -> sp.csr_matrix:
        """Scores of the best k labels of each row as a sparse matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int, default=5
            Number of labels.

        Returns
        -------
        scores : CSR matrix of shape (n_samples, n_labels)
            Exactly k stored entries a row, in the order of the columns.
        """
        X = self._validate_predict(X)
        k = self._check_k(k)
        ids, scores = self._topk(X, k)
        order = np.argsort(ids, axis=1)
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
        indptr = np.arange(0, ids.size + 1, k)
        shape = (len(ids), len(self.classes_))
        return sp.csr_matrix((scores.ravel(), ids.ravel(), indptr), shape=shape)

    def predict(self, X: Any) -> Any:
        """Class labels, or an indicator of the labels whose score is positive.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix} of shape (n_samples, n_labels)
            Best class of each row; or the labels with probability above one half, sparse if `fit`
            saw a sparse y.

        Raises
        ------
        MemoryError
            If a dense indicator would exceed ``get_config()["dense_limit"]``.
        """
        X = self._validate_predict(X)
        if not self._code.multilabel:
            return self.classes_[self._topk(X, 1)[0][:, 0]]
        n_rows, n_labels = X.shape[0], len(self.classes_)
        if not self._code.sparse_output:
            self._check_dense(n_rows, n_labels, np.dtype(self._code.dtype), "a sparse y in fit")
        head, kept, counts = self.net_.module_.head, [], np.zeros(n_rows, dtype=np.int64)
        for rows, features in self._features(X):
            k = min(n_labels, 2 * self._typical_size)
            with torch.inference_mode():
                scores, places = head.topk(features, k)
                while k < n_labels and bool((scores[:, -1] > 0).any()):
                    k = min(n_labels, 2 * k)
                    scores, places = head.topk(features, k)
            positive = (scores > 0).cpu().numpy()
            counts[rows] = positive.sum(1)
            kept.append(self._label_at[places.cpu().numpy()[positive]])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return self._code.indicator(indptr, np.concatenate(kept))

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_labels), or (n_samples,) for two classes
            Multi-label: log odds, positive where a label is predicted. Multi-class: log
            probabilities up to a constant a row. Two classes: the difference of their scores.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        scores = self._dense_scores(self._validate_predict(X), lambda scores: scores)
        if not self._code.multilabel and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def _has_probabilities(self) -> bool:
        """Whether the method defines probabilities."""
        return True

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Multi-class: rows sum to one. Multi-label: each label on its own.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        link = _LINKS[self.net_.module_.head.link] if hasattr(self, "net_") else None
        return self._dense_scores(self._validate_predict(X), link)

    def transform(self, X: Any) -> np.ndarray:
        """Features of the rows: what the encoder learnt, for another estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            Output of the encoder.
        """
        X = self._validate_predict(X)
        dtype = _numpy_dtype(self.net_.module_)
        self._check_dense(X.shape[0], self._n_features_out, dtype, "parts of X")
        out = np.empty((X.shape[0], self._n_features_out), dtype=dtype)
        for rows, features in self._features(X):
            out[rows] = features.cpu().numpy()
        return out

    def _dense_scores(self, X: Any, link: Any) -> np.ndarray:
        n_labels, dtype = len(self.classes_), _numpy_dtype(self.net_.module_)
        self._check_dense(X.shape[0], n_labels, dtype, "predict_topk, which gives the best labels")
        places = torch.as_tensor(self.label_order_)
        out = np.empty((X.shape[0], n_labels), dtype=dtype)
        for rows, features in self._features(X):
            with torch.inference_mode():
                scores = self.net_.module_.head.scores(features)
                out[rows] = link(scores[:, places.to(scores.device)]).cpu().numpy()
        return out

    def _check_dense(self, n_rows: int, n_columns: int, dtype: np.dtype, remedy: str) -> None:
        size, limit = n_rows * n_columns * dtype.itemsize, get_config()["dense_limit"]
        if size > limit:
            raise MemoryError(
                f"a dense result of shape ({n_rows}, {n_columns}) takes {size:,} bytes, more than "
                f"dense_limit={limit:,}; use {remedy}, or raise the limit with "
                "sklearn_xlc.set_config(dense_limit=...)"
            )

    def _check_k(self, k: int) -> int:
        k = check_scalar(k, "k", Integral, min_val=1)
        if k > len(self.classes_):
            raise ValueError(f"k={k} asks for more labels than there are: {len(self.classes_)}")
        return int(k)

    # --- persistence and tags -----------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "net_" in state:
            net = state.pop("net_")
            state["_saved_module"] = save_module(net.module_)
            # With many labels every array counts: what follows from another one is not saved.
            state["_code"] = replace(self._code, classes=None)
            del state["_label_at"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        saved = state.pop("_saved_module", None)
        super().__setstate__(state)
        if saved is not None:
            self._code = replace(self._code, classes=self.classes_)
            self._label_at = np.argsort(self.label_order_)
            self._weights_borrowed = is_borrowed(saved)
            module = load_module(saved)
            rng = np.random.RandomState(0)
            dtype = _numpy_dtype(module)
            empty = Rows(np.empty((0, self.n_features_in_), dtype=dtype))
            self.net_ = self._make_net(module, empty, None, rng, one_pass=True).initialize()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_DTYPES = (np.float64, np.float32)
_TORCH_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}
_LINKS = {
    "softmax": lambda scores: scores.softmax(1),
    # Clipped: float32 rounds a sigmoid to one from 17 on.
    "sigmoid": lambda scores: scores.sigmoid().clamp(1e-7, 1 - 1e-7),
    "exp": torch.exp,
}


def _is_sparse(X: Any) -> bool:
    """Whether X is mostly zeros, however it is stored: dense and CSR then take the same path."""
    n_nonzero = X.count_nonzero() if sp.issparse(X) else np.count_nonzero(X)
    return n_nonzero < SPARSE_SHARE * X.shape[0] * X.shape[1]


def _canonical(X: Any) -> Any:
    """X with ascending, distinct columns and no stored zeros: the sums of a dense row, in order."""
    if sp.issparse(X) and not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def _move_columns(Y: sp.csr_matrix, places: np.ndarray) -> sp.csr_matrix:
    moved = sp.csr_matrix((Y.data, places[Y.indices], Y.indptr), shape=Y.shape)
    moved.sort_indices()
    return moved


def _frequency(rows: Rows) -> torch.Tensor:
    """Weighted share of the rows that hold each label, of shape (n_labels,)."""
    weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    share = rows.Y.T.astype(np.float64) @ (weight / weight.sum())
    return torch.from_numpy(np.maximum(share, RARE)).float()


def _output_width(encoder: nn.Module, rows: Rows) -> int:
    """Number of features, asked of the encoder or seen on one row."""
    if hasattr(encoder, "n_outputs"):
        return encoder.n_outputs
    encoder.to(_TORCH_DTYPES[rows.X.dtype]).eval()
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


def _numpy_dtype(module: nn.Module) -> np.dtype:
    return np.dtype(str(next(module.parameters()).dtype).removeprefix("torch."))


def _resolve_device(device: Any) -> str:
    if str(device) == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is neither 'auto' nor a torch device") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        warnings.warn(
            f"device={device!r} asks for a GPU that is not there; using the CPU", stacklevel=2
        )
        return "cpu"
    return str(resolved)


@contextlib.contextmanager
def _seeded(rng: np.random.RandomState) -> Iterator[None]:
    """Seed torch for a block and give the caller's generator back as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(rng.randint(2**31 - 1))
        yield
