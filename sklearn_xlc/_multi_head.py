"""MultiHeadClassifier: output cost that grows as the H-th root of the number of labels."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from sklearn_xlc._base import BaseXLCClassifier, _Data
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._label_code import LabelCode
from sklearn_xlc.codes import MixedRadix, head_lengths, label_order
from sklearn_xlc.heads import CascadeHead, FlatHead, Head, ProductHead, SamplingHead

#: Up to this many labels one output per label is as fast as the heads that avoid it.
FLAT_LIMIT = {False: 4096, True: 4096}
_LOSSES = {
    "flat": {"ce", "bce"},
    "product": {"ce", "bce", "joint_ce"},
    "cascade": {"ce", "bce"},
    "sampling": {"ce", "arcface"},
}


class MultiHeadClassifier(BaseXLCClassifier):
    """Classifier for thousands to millions of classes or labels."""

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "algorithm": [StrOptions({"auto", "product", "cascade", "sampling", "flat"})],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "head_lengths": [None, "array-like"],
        "label_order": [StrOptions({"given", "random", "clustered"}), "array-like"],
        "loss": [StrOptions({"auto", "ce", "bce", "joint_ce", "arcface"})],
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "beam_width": [Interval(Integral, 1, None, closed="left")],
        "path_exponent": [Interval(Real, 0, None, closed="left")],
        "n_sampled_heads": [Interval(Integral, 0, None, closed="left")],
        "margin": [Interval(Real, 0, np.pi, closed="left")],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "correction": ["boolean"],
    }

    def __init__(
        self,
        algorithm: str = "auto",
        *,
        n_heads: int = 2,
        head_lengths: Sequence[int] | None = None,
        label_order: Any = "given",
        loss: str = "auto",
        n_groups: int = 1,
        embedding_dim: int = 256,
        beam_width: int = 10,
        path_exponent: float = 0.5,
        n_sampled_heads: int = 0,
        margin: float = 0.5,
        scale: float = 64.0,
        correction: bool = False,
        hidden_layer_sizes: Any = (1024,),
        dropout: Any = "auto",
        encoder: Any = None,
        optimizer: str = "auto",
        learning_rate: float = 2e-3,
        weight_decay: float = 0.0,
        batch_size: Any = "auto",
        max_epochs: Any = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        average_weights: str | None = None,
        precision: str = "float32",
        callbacks: Any = None,
        device: Any = "auto",
        memory_limit: int = 2**30,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: Any = 0,
    ) -> None:
        self.algorithm = algorithm
        self.n_heads = n_heads
        self.head_lengths = head_lengths
        self.label_order = label_order
        self.loss = loss
        self.n_groups = n_groups
        self.embedding_dim = embedding_dim
        self.beam_width = beam_width
        self.path_exponent = path_exponent
        self.n_sampled_heads = n_sampled_heads
        self.margin = margin
        self.scale = scale
        self.correction = correction
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.encoder = encoder
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.average_weights = average_weights
        self.precision = precision
        self.callbacks = callbacks
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def _algorithm(self, code: LabelCode) -> str:
        if self.algorithm != "auto":
            return self.algorithm
        if code.n_labels <= FLAT_LIMIT[code.multilabel]:
            return "flat"
        return "cascade" if code.multilabel else "product"

    def _check_task(self, code: LabelCode) -> None:
        algorithm = self._algorithm(code)
        if code.multilabel and algorithm in ("product", "sampling"):
            raise ValueError(
                f"algorithm={self.algorithm!r} needs exactly one label a row (1-D y), but y is an "
                "indicator; use algorithm='cascade' or 'flat'"
            )
        allowed = {"auto", *_LOSSES[algorithm]}
        if algorithm in ("flat", "cascade"):
            allowed = {"auto", "bce" if code.multilabel else "ce"}
        if self.loss not in allowed:
            task = "multi-label" if code.multilabel else "multi-class"
            raise ValueError(
                f"loss={self.loss!r} is not defined for algorithm={algorithm!r} with {task} y; "
                f"use one of {sorted(allowed)}"
            )
        if self.n_groups > 1 and (algorithm != "product" or self.loss not in ("auto", "ce")):
            raise ValueError(
                f"n_groups={self.n_groups} needs algorithm='product' with loss='ce', got "
                f"algorithm={algorithm!r} with loss={self.loss!r}"
            )
        self._lengths(code)

    def _lengths(self, code: LabelCode) -> tuple[int, ...]:
        algorithm = self._algorithm(code)
        if algorithm == "flat":
            return (code.n_labels,)
        if self.head_lengths is not None:
            lengths = tuple(np.asarray(self.head_lengths).tolist())
            MixedRadix(code.n_labels, lengths)  # refuses what does not cover the labels
        else:
            rule = "equal" if algorithm == "product" else "descending"
            lengths = head_lengths(code.n_labels, self.n_heads, rule)
        if algorithm == "cascade" and len(lengths) < 2:
            raise ValueError(
                f"algorithm='cascade' needs at least two heads, got lengths {lengths}; "
                "use algorithm='flat' for one"
            )
        if algorithm == "sampling" and len(lengths) != 2:
            raise ValueError(
                "algorithm='sampling' takes head_lengths=(number of sub-heads, labels in each), "
                f"got {lengths}"
            )
        return lengths

    def _order_labels(self, data: _Data, rng: np.random.RandomState) -> np.ndarray | None:
        if isinstance(self.label_order, str) and self.label_order == "given":
            return None
        rows = data.rows
        lengths = self._lengths(data.code)
        return label_order(
            self.label_order, data.code.n_labels, rows.X, rows.Y, lengths, random_state=rng
        )

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        algorithm, lengths = self._algorithm(code), self._lengths(code)
        self.algorithm_, self.head_lengths_ = algorithm, lengths
        size = (n_features, code.n_labels, code.multilabel)
        loss = "ce" if self.loss == "auto" else self.loss
        if algorithm == "flat":
            return FlatHead(*size, memory_limit=self.memory_limit)
        if algorithm == "product":
            return ProductHead(*size, lengths, loss, self.n_groups)
        if algorithm == "cascade":
            return CascadeHead(
                *size, lengths, self.embedding_dim, self.beam_width, self.path_exponent
            )
        return SamplingHead(
            *size,
            lengths[1],
            loss,
            self.n_sampled_heads,
            self.margin,
            self.scale,
            self.correction,
        )

    def _has_probabilities(self) -> bool:
        if self.algorithm == "product" or self.algorithm == "auto":
            return self.loss in ("auto", "ce", "bce")
        return self.loss != "arcface"
