"""Output layers that `algorithm` names: what each reads and needs, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from sklearn_xlc.codes import label_order
from sklearn_xlc.engine.building import block_lengths_of, lengths_of, user_head
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.head_scores import HeadScores
from sklearn_xlc.engine.label_code import LabelCode, code_of
from sklearn_xlc.engine.searched import SearchedLayers
from sklearn_xlc.engine.validation import TrainingData, check_numbers
from sklearn_xlc.heads import (
    CascadeHead,
    FlatHead,
    Head,
    Loss,
    PowersetHead,
    ProductHead,
    SamplingHead,
    SoftmaxCrossEntropy,
)

#: Algorithms that need exactly one label per sample.
MULTI_CLASS_ONLY = ("sampling",)
#: Algorithms that read each parameter of a head.
_READ_BY = {
    **dict.fromkeys(("n_heads", "head_lengths"), ("product", "cascade", "sampling")),
    "n_groups": ("product",),
    **dict.fromkeys(
        ("embedding_dim", "beam_width", "path_exponent", "level_weighting"), ("cascade",)
    ),
    **dict.fromkeys(("n_sampled_heads", "shared_heads", "correction"), ("sampling",)),
    **dict.fromkeys(("n_negatives", "rank"), ("flat",)),
}
_HEADS: dict[str, type[Head]] = {"flat": FlatHead, "product": ProductHead}
_HEADS |= {"cascade": CascadeHead, "sampling": SamplingHead}


class NamedAlgorithms(HeadScores, SearchedLayers, BaseXLCClassifier):
    """Checks and builds the output layer of :class:`~sklearn_xlc.MultiHeadClassifier`."""

    algorithm: str
    head_lengths: Sequence[int] | None
    label_order: Any
    loss: str | Loss
    head: Callable[[int, int, bool], Head] | None
    n_groups: int
    beam_width: int
    path_exponent: float
    level_weighting: str
    n_sampled_heads: int
    shared_heads: bool
    margin: float
    scale: float
    correction: bool
    n_members: int
    rank: int | None

    def _algorithm(self, code: LabelCode) -> str:
        if self.head is not None:
            return "custom"
        return self._by_cost(code) if self.algorithm == "auto" else self.algorithm

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        algorithm = self._algorithm(code)
        if self.n_members > 1 and (algorithm != "flat" or self.encoder is not None):
            needs = f"n_members={self.n_members} needs algorithm='flat' and encoder=None"
            raise ValueError(f"{needs}, got {algorithm=} and encoder={self.encoder!r}")
        if self.n_members > 1 and self.rank is not None:
            raise ValueError(
                f"n_members={self.n_members} needs rank=None, got rank={self.rank}: members have "
                "features of their own, which one layer would mix"
            )
        if self.head is not None:
            if self.algorithm != "auto" or not self._is("auto"):
                raise ValueError(
                    f"head={self.head!r} replaces algorithm and loss; leave both at 'auto', "
                    f"got algorithm={self.algorithm!r} and loss={self.loss!r}"
                )
            return
        if code.multilabel and algorithm in MULTI_CLASS_ONLY:
            raise ValueError(
                f"algorithm={self.algorithm!r} needs exactly one label per sample (1-D y), but y "
                "holds label sets; use algorithm='cascade' or 'flat'"
            )
        kind = PowersetHead if self._is_powerset(code) else _HEADS[algorithm]
        criterion = kind.resolve_loss(self.loss, code.multilabel, f"{algorithm=}")
        is_ce = criterion.needs_normaliser and not self._is("joint_ce")
        # Where "auto" picks another algorithm, `_unread` warns.
        is_read = algorithm == "product" and is_ce
        if self.n_groups > 1 and not is_read and algorithm in (self.algorithm, "product"):
            raise ValueError(
                f"n_groups={self.n_groups} needs algorithm='product' with loss='ce', got "
                f"algorithm={algorithm!r} with loss={self.loss!r}"
            )
        if code is not getattr(self, "_code", None):  # otherwise training goes on with those in use
            self._lengths(code)

    def _reads_soft_labels(self, Y: sp.csr_matrix) -> bool:
        # A node of a cascade would be as probable as its labels, and so would they given the node.
        is_flat = self._algorithm(code_of(Y, Y)) == "flat"
        return is_flat and (self._is("auto") or self._is("bce"))

    def _scores_apart(self, code: LabelCode) -> bool:
        if self.head is not None or self._is_powerset(code):
            return False
        kind = _HEADS[self._algorithm(code)]
        return not kind.resolve_loss(self.loss, code.multilabel).needs_normaliser

    def _unread(self, code: LabelCode) -> dict[str, str]:
        algorithm = self._algorithm(code)
        in_use = f"with algorithm={algorithm!r}" if self.head is None else "with a head of your own"
        if algorithm not in (self.algorithm, "custom"):
            in_use += f", which 'auto' picks for {code.n_labels} labels: name another algorithm"
        unread = {name: in_use for name, read_by in _READ_BY.items() if algorithm not in read_by}
        if self._is_powerset(code):
            unread["n_heads"] = "with algorithm='product' on an indicator: give head_lengths"
        if self.head_lengths is not None and "head_lengths" not in unread:
            unread["n_heads"] = "where head_lengths is given"
        if not code.multilabel:
            for name in ("path_exponent", "level_weighting"):
                unread.setdefault(name, "with one class per sample")
        if not self._is("arcface"):
            unread |= dict.fromkeys(("margin", "scale"), "without loss='arcface'")
        return unread

    def _is(self, loss: str) -> bool:
        return isinstance(self.loss, str) and self.loss == loss

    def _is_powerset(self, code: LabelCode) -> bool:
        """Whether the label set of a sample is one class, of which heads score the digits."""
        return code.multilabel and self._algorithm(code) == "product"

    def _lengths(self, code: LabelCode) -> tuple[int, ...]:
        algorithm = self._algorithm(code)
        if algorithm in ("flat", "custom"):
            return (code.n_labels,)
        if self._is_powerset(code):
            return block_lengths_of(code.n_labels, self.head_lengths)
        return lengths_of(algorithm, code.n_labels, self.n_heads, self.head_lengths)

    def _order_labels(self, data: TrainingData, rng: np.random.RandomState) -> np.ndarray | None:
        if isinstance(self.label_order, str) and self.label_order == "given":
            return None
        X, Y, n_labels = data.rows.X, data.rows.Y, data.code.n_labels
        if isinstance(self.label_order, str) and self.label_order == "clustered":
            X = X if data.rows.members is None else X[data.rows.members]
            check_numbers(X, "label_order='clustered'")
        lengths = self._lengths(data.code)
        if self._is_powerset(data.code):  # blocks of labels side by side
            lengths = (len(lengths), max(lengths).bit_length() - 1)
        try:
            return label_order(self.label_order, n_labels, X, Y, lengths, random_state=rng)
        except ValueError as error:
            raise ValueError(f"label_order is not valid: {error}") from error

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        algorithm, lengths = self._algorithm(code), self._lengths(code)
        self.algorithm_, self.head_lengths_ = algorithm, lengths
        size = (n_features, code.n_labels, code.multilabel)
        if self.head is not None:
            return user_head(self.head, *size)
        precision = "bfloat16" if self._bfloat16 else "float32"
        if algorithm == "flat":
            shape: dict[str, Any] = {"n_negatives": self._n_negatives(code)}
            shape |= {"n_members": self.n_members, "loss": self.loss, "width": self.rank}
            return FlatHead(*size, self.memory_limit, precision, **shape)
        if self._is_powerset(code):
            return PowersetHead(*size, lengths, self.loss, self.n_groups, self.memory_limit)
        if algorithm == "product":
            return ProductHead(*size, lengths, self.loss, self.n_groups)
        if algorithm == "cascade":
            beam = (self.embedding_dim, self.beam_width, self.path_exponent)
            return CascadeHead(*size, lengths, *beam, self.loss, precision, self.level_weighting)
        names = ("loss", "n_sampled_heads", "margin", "scale", "correction", "shared_heads")
        return SamplingHead(*size, lengths[1], **{name: getattr(self, name) for name in names})

    def _head_grown(self, head: Head) -> None:
        super()._head_grown(head)
        if self.algorithm_ == "sampling":
            assert isinstance(head, SamplingHead)
            self.head_lengths_ = (head.n_heads, head.length)
        elif self.algorithm_ in ("flat", "custom"):
            self.head_lengths_ = (head.n_labels,)
        else:
            self.head_lengths_ = cast(Any, head).code.lengths

    def _ranks_sets(self) -> bool:
        if hasattr(self, "net_"):
            return super()._ranks_sets()
        return self.head is not None or self.algorithm == "product"

    def _smaller_model(self) -> str:
        algorithm = getattr(self, "algorithm_", None)
        if self.head is None and algorithm == "product" and self._code.multilabel:
            return "shorter head_lengths, or " + super()._smaller_model()
        if self.head is not None or algorithm in (None, "product"):
            return super()._smaller_model()
        other = "a smaller embedding_dim, or " if algorithm == "cascade" else ""
        if algorithm in ("flat", "sampling") or not self._code.multilabel:
            other += f"algorithm={'cascade' if self._code.multilabel else 'product'!r}, or "
        return other + super()._smaller_model()

    def _has_probabilities(self) -> bool:
        if hasattr(self, "net_") or self.head is not None:
            return super()._has_probabilities()
        if self.algorithm == "product":
            return self._is("auto") or self._is("ce") or isinstance(self.loss, SoftmaxCrossEntropy)
        if self._is("joint_ce") or self._is("arcface"):
            return False
        return not isinstance(self.loss, Loss) or self.loss.link is not None
