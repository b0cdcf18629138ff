"""MultiHeadClassifier: one output per label, or H short heads for millions of labels."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import check_sample_weight
from sklearn_xlc._compat import StrOptions
from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import row_blocks
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc._labels import class_ids
from sklearn_xlc._part import Names, is_word, named_part
from sklearn_xlc.codes import LabelBlocks, MixedRadix, label_order
from sklearn_xlc.encoders import encoder_part
from sklearn_xlc.engine import (
    WIDTH,
    BaseXLCClassifier,
    LabelCode,
    Settings,
    Task,
    TrainingData,
    check_numbers,
    choose_head,
    code_of,
)
from sklearn_xlc.heads import HEADS, FlatHead, Head, HeadPart, HeadTask, ProductHead, head_part


class MultiHeadClassifier(BaseXLCClassifier):
    """Classifier for thousands to millions of classes or labels (Multi-Head Encoding).

    A neural network with an output for each label ("flat"), or with a short output: each label is
    written as a tuple of digits (a mixed-radix number), and each *head*, a short output layer,
    scores one digit [1]_. The cost is then the sum of the head lengths, in place of their product.

    Parameters
    ----------
    head : {"auto", "flat", "product", "cascade", "sampling"}, HeadPart or callable, default="auto"
        Output layer. A callable gets ``(n_features, n_labels, multilabel)`` and returns a
        :class:`~sklearn_xlc.heads.Head` with its own loss.

        - "flat": :class:`~sklearn_xlc.heads.Flat`, one output per label.
        - "product": :class:`~sklearn_xlc.heads.Product`, independent heads.
        - "cascade": :class:`~sklearn_xlc.heads.Cascade`, heads from coarse to fine.
        - "sampling": :class:`~sklearn_xlc.heads.Sampling`, to pretrain an encoder on class labels.
        - "auto": "flat"; "cascade" if far cheaper, from about 170 000 labels or 77 000 classes.
    {parameters}

    Attributes
    ----------
    {attributes}
    head_ : HeadPart
        Head with its resolved parameters, such as ``head_.lengths``; or the given function.
    label_order_ : ndarray of shape (n_labels,)
        Position of each label in the head.

    See Also
    --------
    sklearn.neural_network.MLPClassifier : One output per label, for small label spaces.
    sklearn_xlc.metrics.topk_scorer : Scorers for model selection.

    Notes
    -----
    :meth:`predict_proba` is not available with the losses "arcface" and "joint_ce". With "product"
    it needs the loss "ce".

    **Differences from the paper**

    - Those of "product", "cascade" and "sampling" stand with these parts.

    References
    ----------
    .. [1] D. Liang, H. Zhang, D. Yuan and M. Zhang, "Multi-Head Encoding for Extreme Label
       Classification".

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(2000, 300, 50, random_state=0)
    >>> clf = MultiHeadClassifier("product", encoder="mlp", random_state=0)
    >>> clf.set_params(encoder__hidden_layer_sizes=(64,)).fit(X[:1500], y[:1500]).head_.lengths
    (8, 7)
    >>> clf.predict_topk(X[1500:], k=3)[0].shape, bool(clf.score(X[1500:], y[1500:]) > 0.8)
    ((500, 3), True)
    """

    _loss_doc = """For "product" also "joint_ce", for "sampling" "arcface".
        "auto": "ce" for class labels and "product", else "bce"."""

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "head": [StrOptions({"auto", *HEADS}), HeadPart, callable],
    }
    _parts: ClassVar[Mapping[str, Names]] = {"head": HEADS, **BaseXLCClassifier._parts}
    _head_parameter = "head"

    def __init__(self, head: Any = "auto", **parameters: Any) -> None:
        super().__init__(**parameters)
        self.head = head

    # --- head -------------------------------------------------------------------------------

    def _head_part_for(self, settings: Settings, code: LabelCode) -> HeadPart:
        head, encoder = settings["head"], encoder_part(settings["encoder"])
        if head == "auto":
            sizes = getattr(encoder, "hidden_layer_sizes", "auto") if encoder.is_planned else "auto"
            last = np.ravel(np.asarray(sizes, dtype=object))[-1:].tolist()
            width = int(last[0]) if last and isinstance(last[0], Integral) else WIDTH
            task = Task(code.n_first or code.n_labels, code.labels_per_sample, width)
            head = choose_head(task, code.multilabel)
        part = head_part(head)
        if encoder.n_members > 1 and not part.takes_members:
            raise ValueError(f"n_members={encoder.n_members} needs head='flat', got head={head!r}")
        return part

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        part = head_part(self.head)
        if code is self._code:  # training goes on with the lengths in use
            part.check_loss(code.multilabel, self.loss)
        else:
            part.check_task(code.n_labels, code.multilabel, self.loss)

    def _build_head(self, task: HeadTask) -> Head:
        return self.head_.build(task)

    def _reads_soft_labels(self, Y: sp.csr_matrix) -> bool:
        # A node of a cascade would be as probable as its labels, and so would they given the node.
        settings = Settings(self.get_params(deep=False), self._parts)
        takes_them = self._head_part_for(settings, code_of(Y, Y)).takes_soft_labels
        return takes_them and self.loss in ("auto", "bce")

    def _order_labels(
        self, head: Any, data: TrainingData, rng: np.random.RandomState
    ) -> np.ndarray | None:
        order = head.label_order
        if is_word(order, "given"):
            return None
        X, Y, n_labels = data.rows.X, data.rows.Y, data.code.n_labels
        if is_word(order, "clustered"):
            X = data.rows.as_given()
            check_numbers(X, "label_order='clustered'")
        lengths = head.order_lengths(data.code.multilabel)
        try:
            return label_order(order, n_labels, X, Y, lengths, random_state=rng)
        except ValueError as error:
            raise ValueError(f"label_order is not valid: {error}") from error

    def _smaller_model(self) -> str:
        part, code = getattr(self, "head_", None), self._code
        others = super()._smaller_model()
        kind = self._head_kind(part)
        if kind == "product" and code is not None and code.multilabel:
            return "shorter lengths of heads.Product, or " + others
        if code is None or kind in ("custom", "product"):
            return others
        other = "a smaller embedding_dim of heads.Cascade, or " if kind == "cascade" else ""
        if kind in ("flat", "sampling") or not code.multilabel:
            other += f"head={'cascade' if code.multilabel else 'product'!r}, or "
        return other + others

    # --- what exists before `fit` -------------------------------------------------------------

    def _ranks_sets(self) -> bool:
        if self._is_fitted:
            return super()._ranks_sets()
        kind = head_part(self.head).head_for(True)
        return kind is None or kind.ranks_sets

    def _has_probabilities(self) -> bool:
        if self._is_fitted:
            return super()._has_probabilities()
        part, loss = head_part(self.head), named_part(self.loss, self._parts["loss"])
        if part.head_for(False) is None or loss == "auto":
            return True
        if part.head_for(False) is ProductHead:
            return loss.needs_normaliser and not loss.needs
        return loss.link is not None and not loss.needs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = "multi-label" in head_part(self.head).tasks
        return tags

    # --- output layer -------------------------------------------------------------------------

    @property
    def output_weights_(self) -> np.ndarray:
        """Weights of the labels in the head "flat", ``(n_labels, n_inputs)``."""
        return self._code.by_label(self._flat_layer()[0].T).T

    @property
    def output_biases_(self) -> np.ndarray:
        """Biases of the labels in the head "flat", ``(n_labels,)``."""
        return self._code.by_label(self._flat_layer()[1][None])[0]

    def _flat_layer(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and biases by position in the head."""
        check_is_fitted(self, "net_")
        head = self.net_.module_.head
        if not isinstance(head, FlatHead):
            raise AttributeError(
                f"only the head 'flat' has a linear output layer, not {type(head).__name__}"
            )
        weight = head.label_vectors().detach().cpu().numpy()
        bias = np.zeros(len(weight)) if head.bias is None else head.bias.detach().cpu().numpy()
        return weight, bias

    # --- accuracy of heads --------------------------------------------------------------------

    def _has_digits(self) -> bool:
        """Return whether predictions have a digit for each head; before `fit`, whether they may."""
        if not self._is_fitted:
            return True
        return not self._code.multilabel or self.net_.module_.head.ranks_sets

    @available_if(lambda self: self._has_digits())
    def score_heads(
        self, X: Any, y: Any, sample_weight: Any = None, *, return_combined: bool = False
    ) -> Any:
        """Compute the accuracy of each head: its share of samples with a correct digit.

        Digits are taken from the best class or the most probable label set, whatever `decision`
        predicts. Available for class labels, and for label sets with "product".

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : {array-like, sparse matrix, dataframe} or sequence of label sets
            True labels, in any form that :meth:`fit` takes. Classes not seen in `fit` count as
            wrong in every head; tags not seen in `fit` are ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        return_combined : bool, default=False
            Whether to return also the accuracy of all heads together.

        Returns
        -------
        accuracy : ndarray of shape (n_heads,)
            Accuracy of each head.
        combined : float
            Share of the samples for which all heads are right. Only if `return_combined` is true.
        """
        warn_of_order(X, y, sample_weight)
        X, y = self._validate_predict(X), self._truth(y)
        check_consistent_length(X, y)
        weight = check_sample_weight(sample_weight, np.empty(len(X)))
        digits = self._digits_of_sets if self._code.multilabel else self._digits_of_classes
        lengths = getattr(self.head_, "lengths", None) or (len(self.classes_),)
        hits, all_hit = np.zeros(len(lengths)), 0.0
        for rows in row_blocks(len(X), 16 * len(hits), memory_limit()):
            found, true = digits(X.take(rows), y[rows], lengths)
            hits += weight[rows] @ (found == true)
            all_hit += weight[rows] @ (found == true).all(axis=1)
        accuracy = hits / weight.sum()
        return (accuracy, float(all_hit / weight.sum())) if return_combined else accuracy

    def _digits_of_sets(self, X: Any, Y: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the digits of the most probable label sets and of the true ones."""
        code, digits = self._code, LabelBlocks(len(self.classes_), lengths)
        found = self.predict_topk_sets(X, k=1)[0][0]
        true = Y[:, : code.n_labels]
        return digits.encode(code.to_positions(found)), digits.encode(code.to_positions(true))

    def _digits_of_classes(self, X: Any, y: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the digits of the best classes and of the true ones; -1 for unseen classes."""
        code = self._code
        digits = MixedRadix(code.n_positions or code.n_labels, lengths)
        self._code.encode(y[:0])  # raises if y is an indicator
        true = class_ids(y, self.classes_)
        found, true_digits = (
            digits.encode(code.label_order[ids])
            for ids in (self._predictor.topk(X, 1)[0][:, 0], np.maximum(true, 0))
        )
        true_digits[true < 0] = -1
        return found, true_digits
