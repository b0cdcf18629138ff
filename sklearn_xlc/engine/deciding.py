"""Join a network and a decision: check it, fit it, and pass it scores or features."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._csr import canonical, row_blocks
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.decisions import (
    Calibration,
    Decision,
    Divergence,
    JointMode,
    Nearest,
    Seen,
    Threshold,
    TopK,
)
from sklearn_xlc.decisions.calibration import N_RANKS
from sklearn_xlc.engine.held_out import HeldOutMixin
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.heads import Head
from sklearn_xlc.training import XLCNet

#: Decisions by the names that the parameter `decision` takes, in addition to "auto".
DECISIONS: dict[str, type[Decision]] = {
    "threshold": Threshold,
    "topk": TopK,
    "divergence": Divergence,
    "nearest": Nearest,
    "seen": Seen,
}


class DecisionMixin(HeldOutMixin):
    """Label sets of a classifier; :class:`BaseXLCClassifier` sets the attributes it reads."""

    decision: Any = "auto"
    calibration: Any = None
    decision_: Decision
    #: Map from scores to calibrated log odds.
    calibration_: Calibration | None = None
    net_: XLCNet
    classes_: np.ndarray
    memory_limit: int
    _code: LabelCode
    _typical_size: int
    #: Whether the head reads a vector of features for each sample that is predicted.
    _has_features = True

    _features: Any
    _rows_at_once: Any
    _validate_predict: Any

    # --- which decision ---------------------------------------------------------------------

    def _new_decision(self, head: Head | None = None) -> Decision:
        """Unfitted decision from the parameters; `head` is None before it is built."""
        if isinstance(self.decision, Decision):
            return clone(self.decision)
        if self.decision != "auto":
            return DECISIONS[self.decision]()
        return self._auto_decision(head)

    def _auto_decision(self, head: Head | None) -> Decision:
        """Decision for "auto" without held-out samples, for a softmax, or for ranked sets."""
        if ranks_sets(head):
            return JointMode()
        if head is not None and head.link in ("softmax", "exp"):
            return Divergence()
        return Threshold(0.0, scale="score")

    def _check_decision(self, code: LabelCode, Y: sp.csr_matrix, head: Head | None = None) -> None:
        """Raise ValueError if the decision does not suit the labels or, once built, the head."""
        if not code.multilabel:
            return
        decision = self._new_decision(head)
        if head is not None:
            if decision.reads == "sets" and not ranks_sets(head):
                raise ValueError(
                    f"decision={decision!r} reads the best label sets, which {type(head).__name__} "
                    "does not rank; use a head that does, such as algorithm='product' of "
                    "MultiHeadClassifier, or another decision"
                )
            width = self._head_width(head) if self._has_features else head.n_features
            layer = layer_of(head, code)
            decision.check_head(Y, link=_link(head), n_features=width, layer=layer)
            return
        if decision.reads == "features" and not self._has_features:
            raise ValueError(
                f"decision={self.decision!r} reads features of samples, but bags have none of "
                "their own; use decision='threshold', 'topk' or 'divergence'"
            )
        decision.check_labels(Y)

    def _head_width(self, head: Head) -> int:
        """Number of features that the last layer reads."""
        like = next(head.parameters(), torch.zeros((), device="cpu"))
        with torch.no_grad():
            return _inputs(head, like.new_zeros(1, head.n_features)).shape[1]

    # --- fit --------------------------------------------------------------------------------

    def _fit_decision(self, train: Rows, held: Rows | None, first: bool, part: Any = None) -> None:
        """Fit the decision, or continue it in later calls of `partial_fit` (not `first`).

        With `part`, a classifier that has not seen many of the samples, "auto" is as fitted there.
        """
        if part and self.decision == "auto":
            self.decision_, self.calibration_ = part.decision_, part.calibration_
            return
        Y = self._labels_of(train)
        if not self._code.multilabel:
            self.decision_ = TopK(1).fit(None, Y)
            return
        head = self.net_.module_.head
        if first:
            self.calibration_ = part.calibration_ if part else self._new_calibration(held)
        decision, goes_on = self._decision_to_fit(held, first)
        context: dict[str, Any] = {"sizes": np.diff(Y.indptr), "link": _link(head)}
        context["calibration"] = self.calibration_
        inputs = None
        samples = {"train": train, "held": held}.get(str(decision.fitted_on))
        if samples is not None and (samples is train or samples.Y.nnz):
            inputs, Y, beside = self._fitting_inputs(decision, samples)
            context |= beside
        (decision.partial_fit if goes_on else decision.fit)(inputs, Y, **context)
        self.decision_ = decision

    def _decision_to_fit(self, held: Rows | None, first: bool) -> tuple[Decision, bool]:
        """Decision, and whether it goes on from the one that was fitted before."""
        before: Any = vars(self).get("decision_")
        decision = self._new_decision(self.net_.module_.head)
        if self.decision == "auto" and isinstance(decision, Threshold):
            is_tuned = not first and isinstance(before, Threshold) and before.threshold == "auto"
            if is_tuned or self._is_enough(held):
                decision = Threshold(min_labels="auto")
        if first or type(before) is not type(decision):
            return decision, False
        return copy.copy(before).set_params(**decision.get_params(deep=False)), True

    def _new_calibration(self, held: Rows | None) -> Calibration | None:
        """Calibration fitted on held-out samples, where scores are log odds of labels."""
        if self.calibration is None or _link(self.net_.module_.head) != "sigmoid":
            return None
        if held is None or not self._is_enough(held):
            return None
        best = TopK(min(N_RANKS, len(self.classes_))).fit(None, held.Y)
        scores, Y, beside = self._fitting_inputs(best, held)
        return Calibration().fit(scores, Y, beside["labels"])

    def _calibrated(self, scores: Any) -> Any:
        """Scores from which the head's link makes probabilities; an array or a tensor."""
        return scores if self.calibration_ is None else self.calibration_(scores)

    def _fitting_inputs(
        self, decision: Decision, samples: Rows
    ) -> tuple[Any, sp.csr_matrix, dict[str, Any]]:
        """Scores or features of samples, their labels, and further keyword arguments."""
        if decision.reads == "ranked":
            samples = self._subsample(samples, self._n_candidates(decision))
        elif decision.reads in ("scores", "sets"):
            samples = self._subsample(samples, len(self.classes_))
        elif not decision.in_blocks:
            width = self._head_width(self.net_.module_.head)
            samples = self._subsample(samples, max(len(self.classes_), width), labelled=True)
        blocks = self._blocks(decision, samples)
        Y = self._labels_of(samples)
        if decision.reads == "features":
            layer = layer_of(self.net_.module_.head, self._code)
            parts = (inputs for inputs, _ in blocks)
            return parts if decision.in_blocks else np.concatenate(list(parts)), Y, {"layer": layer}
        inputs, beside = zip(*blocks)
        if decision.reads == "scores":
            return np.concatenate(inputs), Y, {}
        if decision.reads == "sets":
            sets = sp.vstack([b["sets"] for b in beside], "csr")
            return np.concatenate(inputs), Y, {"sets": sets}
        return np.concatenate(inputs), Y, {"labels": np.concatenate([b["labels"] for b in beside])}

    def _blocks(self, decision: Decision, samples: Rows) -> Iterator[tuple[Any, dict[str, Any]]]:
        n_rows = self._rows_at_once(self._decision_bytes(decision, decision.reads))
        asked = f"inputs of {type(decision).__name__}"
        for _, features in self._features(samples, n_rows, asked):
            with self.net_.predicting(features):
                inputs = self._decision_inputs(decision, features, decision.reads)
            yield inputs

    def _subsample(self, samples: Rows, width: int, labelled: bool = False) -> Rows:
        """Evenly spaced samples, or those with labels: as many as fit into `memory_limit`."""
        n_rows = max(1, self.memory_limit // (16 * width))
        if n_rows >= len(samples):
            return samples
        pool = np.arange(len(samples))
        if labelled and samples.Y.nnz:
            pool = np.flatnonzero(np.diff(samples.Y.indptr))
        n_rows = min(n_rows, len(pool))
        return samples.select(pool[np.linspace(0, len(pool) - 1, n_rows).astype(np.int64)])

    def _n_candidates(self, decision: Decision) -> int:
        """Number of labels of a sample that a decision is given, at first."""
        n_labels = len(self.classes_)
        return min(n_labels, decision.n_candidates(n_labels) or 2 * self._typical_size)

    def _n_sets(self, decision: Decision) -> int:
        """Number of best label sets of a sample that a decision is given."""
        n_labels = len(self.classes_)
        return min(2**n_labels, decision.n_candidates(n_labels) or 1)

    def _labels_of(self, samples: Rows) -> sp.csr_matrix:
        """Indicator of the samples' labels, whose columns are label ids."""
        Y = self._code.from_positions(samples.Y)
        if Y.dtype.kind == "f":  # soft labels, or counts
            Y = sp.csr_matrix(Y > 0.5, dtype=np.int8)
        if (Y.data != 1).any():  # bags may count their labels
            ones = np.ones(len(Y.data), dtype=np.int8)
            Y = sp.csr_matrix((ones, Y.indices, Y.indptr), shape=Y.shape)
        return Y

    @property
    def threshold_(self) -> Any:
        """Threshold as a probability, if the decision is a threshold."""
        check_is_fitted(self, "net_")
        return self.decision_.threshold_  # type: ignore[attr-defined]

    # --- predict ----------------------------------------------------------------------------

    def _decision_bytes(self, decision: Decision, reads: str, k: int | None = None) -> int:
        """Estimate what the decision about a sample takes, in bytes."""
        head = self.net_.module_.head
        if reads == "ranked":
            return head.bytes_per_row(k or self._n_candidates(decision))
        if reads == "sets":
            return head.bytes_per_row_of_sets(self._n_sets(decision))  # type: ignore[operator]
        width = len(self.classes_)
        if reads == "features":  # the decision may multiply them with the layer
            width += self._head_width(head) if self._has_features else head.n_features
            return 4 * width * 8
        return head.bytes_per_row() + 3 * 8 * width

    def _decision_inputs(
        self, decision: Decision, features: Any, reads: str, k: int | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Inputs of the decision for a batch, and its keyword arguments; `k` best labels."""
        head, code = self.net_.module_.head, self._code
        if reads == "features":
            return _inputs(head, features).cpu().numpy(), {"layer": layer_of(head, code)}
        if reads == "sets":
            best, sets = self._best_sets(head, features, self._n_sets(decision))
            return best, {"sets": sets}
        if reads == "scores":
            scores = head.scores(features)
            scores = scores.log_softmax(1) if head.link == "softmax" else scores
            return code.by_label(scores.cpu().numpy()), {}
        ranked, labels = self._ranked(head, features, k or self._n_candidates(decision))
        return ranked, {"labels": labels}

    def _inputs_of_parts(
        self,
        decision: Decision,
        features: Any,
        reads: str,
        rows: np.ndarray | None = None,
        k: int | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
        """Rows of a batch, and the inputs with which a fitted decision can decide on these rows.

        Only rows of which the decision needs more than `k` labels are ranked again.
        """
        head, n_labels = self.net_.module_.head, len(self.classes_)
        rows = np.arange(len(features)) if rows is None else rows
        k = self._n_candidates(decision) if k is None else k
        inputs, beside = self._decision_inputs(decision, features, reads, k)
        if reads != "ranked" or k >= n_labels or not decision.needs_more(inputs):
            yield rows, inputs, beside
            return
        more = np.array([decision.needs_more(row) for row in inputs[:, None]])
        is_split = isinstance(features, torch.Tensor)  # the samples of bags stay together
        if is_split and not more.all():
            yield rows[~more], inputs[~more], {"labels": beside["labels"][~more]}
        del inputs, beside
        k = min(n_labels, 2 * k)
        if head.searches_all and not decision.in_order:
            reads = "scores"
        if not is_split:
            yield from self._inputs_of_parts(decision, features, reads, rows, k)
            return
        at = np.flatnonzero(more)
        for part in row_blocks(
            len(at), self._decision_bytes(decision, reads, k), self.memory_limit
        ):
            chosen = features[torch.from_numpy(at[part]).to(features.device)]
            yield from self._inputs_of_parts(decision, chosen, reads, rows[at[part]], k)

    def _ranked(self, head: Head, features: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores and ids of the k best labels."""
        scores, positions = head.topk(features, k)
        if head.link == "softmax":  # as log-probabilities, which other samples' compare with
            scores = scores - head.scores(features).logsumexp(1)[:, None]
        return scores.cpu().numpy(), self._code.to_ids(positions.cpu().numpy())

    def _best_sets(self, head: Any, features: Any, k: int) -> tuple[np.ndarray, sp.csr_matrix]:
        """Scores of the k best label sets of each sample, and the sets, k rows for a sample."""
        scores, sets = head.topk_sets(features, k)
        ids = self._code.to_ids(sets.ids.cpu().numpy())
        return scores.cpu().numpy(), self._code.label_sets(sets.indptr.cpu().numpy(), ids)

    def _decode(self, features: Any) -> sp.csr_matrix:
        """Label sets of a batch: an indicator whose columns are label ids."""
        decision, rows, parts = self.decision_, [], []
        with self.net_.predicting(features):
            for part, inputs, beside in self._inputs_of_parts(decision, features, decision.reads):
                rows.append(part)
                parts.append(self._checked_sets(decision.decode(inputs, **beside), len(inputs)))
        return parts[0] if len(parts) == 1 else sp.vstack(parts, "csr")[_inverse(rows)]

    def _checked_sets(self, sets: Any, n_rows: int) -> sp.csr_matrix:
        """Label sets that a decision returned, as canonical CSR."""
        sets, expected = sp.csr_matrix(sets), (n_rows, len(self.classes_))
        if sets.shape != expected:
            raise ValueError(
                f"{type(self.decision_).__name__}.decode returned label sets of shape "
                f"{sets.shape}, but must return {expected}: a row for each sample, a column for "
                "each label"
            )
        return canonical(sets)

    def _compares_sets(self) -> bool:
        """Whether the decision measures the distance of the second best label set."""
        is_fitted = hasattr(self, "decision_") and self._code.multilabel
        return hasattr(self.decision_ if is_fitted else self._new_decision(), "distances")

    @available_if(lambda self: self._compares_sets())
    def predict_label_set_scores(self, X: Any) -> np.ndarray:
        """Compute the distances of the predicted and of the second best label set.

        Defined for decisions that compare label sets: "divergence", "nearest", "seen", or a
        decision of your own with a method `distances`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        distances : ndarray of shape (n_samples, 2)
            Distance of the label set that :meth:`predict` returns, and of the next one:
            Kullback-Leibler divergences for "divergence", squared Euclidean distances for "nearest"
            and "seen". The closer the two, the less certain the prediction.

        Raises
        ------
        ValueError
            If the classifier was fitted on class labels.
        """
        X = self._validate_predict(X)
        if not self._code.multilabel:
            raise ValueError("predict_label_set_scores needs a classifier fitted on an indicator y")
        decision: Any = self.decision_
        reads = getattr(decision, "distances_read", decision.reads)
        distances = []
        n_rows = self._rows_at_once(self._decision_bytes(decision, reads))
        for _, features in self._features(X, n_rows, "distances of label sets"):
            rows, parts = [], []
            with self.net_.predicting(features):
                for part, inputs, beside in self._inputs_of_parts(decision, features, reads):
                    rows.append(part)
                    parts.append(decision.distances(inputs, **beside))
            distances.append(np.concatenate(parts)[_inverse(rows)])
        return np.concatenate(distances)


class HeadLayer:
    """The linear classifier of a head on arrays, in the order of the labels.

    Replaces :class:`~sklearn_xlc.decisions.LinearLayer` for heads that compute with weights they
    never store.
    """

    def __init__(self, head: Any, code: LabelCode) -> None:
        self._head, self._code = head, code
        self.is_simplex = getattr(head, "is_simplex", False)

    def products(self, features: np.ndarray) -> np.ndarray:
        """Multiply features with the weights, without biases."""
        head = self._head
        like = next(head.parameters(), torch.zeros((), device="cpu"))
        with usual_modes(training=False):
            inputs = torch.from_numpy(features).to(like.device)
            products = (
                head.products(inputs)
                if hasattr(type(head), "products")
                else inputs @ self._rows(inputs).T
            )
        return self._code.by_label(products.cpu().numpy())

    @property
    def weights(self) -> np.ndarray:
        """Weights of the labels, of shape (n_labels, n_features)."""
        like = next(self._head.parameters(), torch.zeros((), device="cpu"))
        with usual_modes(training=False):
            rows = self._rows(like).cpu().numpy()
        return self._code.by_label(rows.T).T

    def _rows(self, like: torch.Tensor) -> torch.Tensor:
        shard = self._head.shard
        if shard is None:
            return self._head.classifier(like)
        return shard.joined(self._head.classifier(like, shard.labels))


def _inverse(rows: list[np.ndarray]) -> np.ndarray:
    """Order that puts parts of a batch back, from the rows of each part."""
    return np.argsort(np.concatenate(rows))


def ranks_sets(head: Any) -> bool:
    """Whether a head ranks whole label sets; None, a head that is not built yet, does not."""
    return hasattr(type(head), "topk_sets")


def layer_of(head: Head, code: LabelCode) -> HeadLayer | None:
    """Linear classifier of a head; None if it has none."""
    return HeadLayer(head, code) if hasattr(type(head), "classifier") else None


def _inputs(head: Any, features: torch.Tensor) -> torch.Tensor:
    """Inputs of the last layer: the encoder's features, or the head's transform of them."""
    return head.inputs(features) if hasattr(type(head), "inputs") else features


def _link(head: Head) -> str | None:
    """Link from scores to probabilities; scores of a softmax are normalised log-probabilities."""
    return "exp" if head.link == "softmax" else head.link
