"""Check and fit a decision, and pass it the scores or features of a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import canonical, occurring_columns, pointers_of, row_blocks, row_numbers
from sklearn_xlc._part import cloned, is_auto, named_part
from sklearn_xlc._tags import in_form
from sklearn_xlc.batches import Rows, one_thread_of_blas, usual_modes
from sklearn_xlc.decisions import DECISIONS, Decision, TopK
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, refuse_beyond
from sklearn_xlc.engine.predictor import Encoded, Predictor
from sklearn_xlc.engine.ranker import (
    HeldLists,
    fit_ranker,
    follow,
    is_enough,
    labels_of,
    n_candidates,
    remembering,
    stacked,
    subsample,
)
from sklearn_xlc.engine.resolve import Facts, choose_decision
from sklearn_xlc.engine.telling import number, tell
from sklearn_xlc.heads import Head

#: Inputs and keyword arguments of a decision for a batch.
Inputs = tuple[np.ndarray, dict[str, Any]]


@dataclass(frozen=True)
class Decider:
    """Predict label sets with a decision on the scores or features of a network.

    `n_usual`: candidate labels of a sample for a decision that names no number.
    """

    predictor: Predictor
    decision: Any
    n_usual: int

    # --- fit --------------------------------------------------------------------------------

    def fitting_inputs(
        self, samples: Rows, held: HeldLists | None = None
    ) -> tuple[Any, sp.csr_matrix, dict[str, Any]]:
        """Return scores or features of samples, their labels, and further keyword arguments.

        `held`: lists of the samples from which the ranker was learnt.
        """
        decision, n_labels = self.decision, self.predictor.n_labels
        if decision.reads == "ranked":
            k = self._n_candidates()
            samples = subsample(samples, k)
            if held is not None and held.samples is samples and held.network[1].shape[1] >= k:
                ranked, labels = self.predictor.completed(held.ranked, held.network, k)
                return ranked, labels_of(self.predictor.code, samples), {"labels": labels}
        elif decision.reads in ("scores", "sets"):
            samples = subsample(samples, n_labels)
        elif not decision.in_blocks:
            width = max(n_labels, width_of_inputs(self.predictor.head))
            samples = subsample(samples, width, labelled=True)
        asked = f"inputs of {type(decision).__name__}"
        each = self._each(samples, decision.reads, asked, self._inputs)
        blocks, Y = (of_batch for _, of_batch in each), labels_of(self.predictor.code, samples)
        if decision.reads == "features":
            layer = layer_of(self.predictor.head, self.predictor.code)
            parts = (part for part, _ in blocks)
            return parts if decision.in_blocks else np.concatenate(list(parts)), Y, {"layer": layer}
        inputs, beside = zip(*blocks)
        joined = {name: stacked([of_batch[name] for of_batch in beside]) for name in beside[0]}
        return np.concatenate(inputs), Y, joined

    def _n_candidates(self) -> int:
        """Return the first number of candidate labels for each sample."""
        n_labels, decision = self.predictor.n_labels, self.decision
        if decision.needs_own_samples and not self.predictor.head.searches_all:
            decision = cloned(decision)  # as many as in `fit`: a beam finds others for fewer
        return min(n_labels, decision.n_candidates(n_labels) or self.n_usual)

    def _n_sets(self) -> int:
        """Return the number of candidate label sets for each sample."""
        n_labels = self.predictor.n_labels
        return min(2**n_labels, self.decision.n_candidates(n_labels) or 1)

    # --- predict ----------------------------------------------------------------------------

    def bytes_per_row(self, reads: str, k: int | None = None) -> int:
        """Estimate the bytes needed to decide on one sample."""
        head = self.predictor.head
        if reads == "ranked":  # classes share a normaliser
            is_shared = self.predictor.link == "softmax" and not self.predictor.code.multilabel
            return head.bytes_per_row(None if is_shared else k or self._n_candidates())
        if reads == "sets":
            return head.bytes_per_row_of_sets(self._n_sets())
        width = self.predictor.n_labels
        if reads == "features":  # the decision may multiply them with the layer
            width += width_of_inputs(head)
            return 4 * width * 8
        return head.bytes_per_row() + 3 * 8 * width

    def _inputs(self, batch: Encoded, reads: str, k: int | None = None) -> Inputs:
        """Return inputs and keyword arguments of the decision for a batch, with `k` labels."""
        head, predictor = self.predictor.head, self.predictor
        is_shared = predictor.link is not None and not predictor.code.multilabel
        if reads == "features":
            layer = layer_of(head, predictor.code)
            return head.layer_inputs(batch.features).cpu().numpy(), {"layer": layer}
        if reads == "sets":
            best, sets = predictor.best_sets(batch.features, self._n_sets())
            return best, {"sets": sets}
        if reads == "scores":
            if is_shared:
                return predictor.all_probabilities(batch).log().cpu().numpy(), {}
            scores = predictor.all_scores(batch)
            scores = scores.log_softmax(1) if head.link == "softmax" else scores
            return scores.cpu().numpy(), {}
        ranked, labels = predictor.ranked(batch, k or self._n_candidates())
        if not predictor.code.multilabel:
            if is_shared:
                with np.errstate(divide="ignore"):
                    ranked = np.log(predictor.probabilities_of(batch, ranked, labels))
            return ranked, {"labels": labels}
        if head.link == "softmax":  # log-probabilities are comparable across samples
            ranked -= predictor.all_scores(batch).logsumexp(1)[:, None].cpu().numpy()
        return ranked, {"labels": labels}

    def _inputs_of_parts(
        self, batch: Encoded, reads: str, rows: np.ndarray | None = None, k: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
        """Yield rows of a batch with the inputs and keyword arguments of a fitted decision.

        Rows are ranked again if the decision needs more than `k` of their labels.
        """
        decision, head, n_labels = self.decision, self.predictor.head, self.predictor.n_labels
        rows = np.arange(len(batch)) if rows is None else rows
        k = self._n_candidates() if k is None else k
        inputs, beside = self._inputs(batch, reads, k)
        if reads != "ranked" or k >= n_labels or not decision.needs_more(inputs):
            yield rows, inputs, beside
            return
        more = np.array([decision.needs_more(row) for row in inputs[:, None]])
        if batch.is_divisible and not more.all():
            yield rows[~more], inputs[~more], {"labels": beside["labels"][~more]}
        del inputs, beside
        k = min(n_labels, 2 * k)
        if head.searches_all and not decision.in_order:
            reads = "scores"
        if not batch.is_divisible:
            yield from self._inputs_of_parts(batch, reads, rows, k)
            return
        at = np.flatnonzero(more)
        for part in row_blocks(len(at), self.bytes_per_row(reads, k), memory_limit()):
            yield from self._inputs_of_parts(batch.take(at[part]), reads, rows[at[part]], k)

    def _decode(self, _: slice, batch: Encoded) -> sp.csr_matrix:
        """Return the label sets of a batch, an indicator with one column a label id."""
        return self._applied(self._checked_sets, batch, self.decision.reads)

    def _applied(self, rule: Callable[..., Any], batch: Encoded, reads: str) -> Any:
        """Apply a rule to the parts of a batch, and join the results in the order of the batch."""
        rows, parts = [], []
        for part, inputs, beside in self._inputs_of_parts(batch, reads):
            rows.append(part)
            parts.append(rule(inputs, **beside))
        return parts[0] if len(parts) == 1 else stacked(parts)[np.argsort(np.concatenate(rows))]

    def _checked_sets(self, inputs: np.ndarray, **beside: Any) -> sp.csr_matrix:
        """Return the label sets of the decision as canonical CSR, after a check."""
        sets = sp.csr_matrix(self.decision.decode(inputs, **beside))
        expected = len(inputs), self.predictor.n_labels
        if sets.shape != expected:
            raise ValueError(
                f"{type(self.decision).__name__}.decode returned label sets of shape "
                f"{sets.shape}, but must return {expected}: a row for each sample, a column for "
                "each label"
            )
        return canonical(sets)

    def predict(self, X: Rows) -> Any:
        """Return the label sets of validated samples as an indicator, dense or sparse."""
        return (self._sparse_sets if self.predictor.code.sparse_output else self._dense_sets)(X)

    def _dense_sets(self, X: Rows) -> np.ndarray:
        predictor = self.predictor
        shape, dtype = (len(X), predictor.n_labels), np.dtype(predictor.code.dtype)
        row_bytes = self.bytes_per_row(self.decision.reads)
        n_rows = predictor.rows_beside(shape, dtype, "a sparse y in fit", row_bytes)
        out = np.zeros(shape, dtype=dtype)
        for rows, sets in predictor.each(X, n_rows, "label sets", self._decode):
            out[rows][row_numbers(sets.indptr), sets.indices] = 1
        return out

    def _sparse_sets(self, X: Rows) -> sp.csr_matrix:
        predictor = self.predictor
        sizes, ids, asked = np.zeros(len(X), dtype=np.int64), [], SMALL
        n_rows = predictor.rows_at_once(self.bytes_per_row(self.decision.reads))
        for rows, sets in predictor.each(X, n_rows, "label sets", self._decode):
            sizes[rows] = np.diff(sets.indptr)
            ids.append(sets.indices)
            # Only now the number of predicted labels is known: joined ids, and ones for them.
            needed = int(sizes.sum()) * (2 * sets.indices.itemsize + predictor.code.dtype.itemsize)
            if needed > asked:
                what = f"an indicator of {int(sizes.sum()):,} labels of {rows.stop:,} samples"
                refuse_beyond(needed, what, "fewer rows of X")
                asked = 2 * needed
        return predictor.code.label_sets(pointers_of(sizes), np.concatenate(ids))

    def sets_of_classes(self, X: Rows, index: Any) -> Any:
        """Return the sets of class labels of validated samples, as an array of lists."""
        sets = self._for_all(X, self.decision.reads, "sets", self._checked_sets)
        return in_form(sets, self.predictor.code.classes, "list of list", index=index)

    def distances(self, X: Rows) -> np.ndarray:
        """Return the distances of the best and second best label set of validated samples."""
        decision: Any = self.decision
        if not self.predictor.code.multilabel:
            raise ValueError("predict_label_set_scores needs a classifier fitted on an indicator y")
        reads = decision.distances_read
        return self._for_all(X, reads, "distances of label sets", decision.distances)

    def _for_all(self, X: Rows, reads: str, asked: str, rule: Callable[..., Any]) -> Any:
        """Apply a rule to validated samples, batch by batch, and join the results."""
        results = self._each(X, reads, asked, partial(self._applied, rule))
        return stacked([result for _, result in results])

    def _each(self, X: Rows, reads: str, asked: str, compute: Callable[..., Any]) -> Iterator[Any]:
        """Yield slices of batches, and what is computed of a batch and the kind of its inputs."""
        n_rows = self.predictor.rows_at_once(self.bytes_per_row(reads))
        return self.predictor.each(X, n_rows, asked, lambda _, batch: compute(batch, reads))


@one_thread_of_blas()
def fit_decision(
    classifier: Any, plan: Any, train: Rows, held: Rows | None, part: Any = None
) -> None:
    """Fit ranker and decision of a classifier by a plan, or update them by a later batch.

    The function sets `ranker_` and `decision_`. `held` is None if there are no such samples.
    `part`: the second classifier of "refit", whose ranker and decision are used. `plan.lists`:
    those of `train` before the network trained on it, in calls of `partial_fit`. `plan.own`:
    samples for a decision that needs some of its own.
    """
    decision, facts, first, of_held = plan.settings["decision"], plan.facts, not plan.is_later, None
    if plan.lists is not None:
        follow(classifier, plan, train)
    elif part is not None:
        classifier.ranker_ = classifier._waiting = None
        classifier.ranker_ = remembering(classifier, part.ranker_, train)
    else:
        of_held = fit_ranker(classifier, plan.settings, facts, train, held)
    if plan.own is None:
        decide(classifier, decision, facts, train, held, first=first, part=part, lists=of_held)
    if first and part is None and not classifier._is_part:
        for rows in (each for each in (held, plan.stopping) if each is not None):
            classifier.ranker_ = remembering(classifier, classifier.ranker_, rows, more=True)
    if plan.own is not None:  # their scores are made as those of new samples
        decide(classifier, decision, facts, train, plan.own, first=first, part=part)


def decide(
    classifier: Any,
    decision: Any,
    facts: Facts,
    train: Rows | None,
    held: Rows | None,
    *,
    first: bool = True,
    part: Any = None,
    lists: HeldLists | None = None,
) -> None:
    """Fit the decision of a classifier, or update it; `train` None: the samples are not kept.

    `lists`: those of `held` from which the ranker was learnt.
    """
    code, head = classifier._code, classifier.net_.module_.head
    if not (code.multilabel or (decision != "auto" and decision.needs_own_samples)):
        none = np.empty((0, code.n_labels))
        classifier.decision_ = TopK(1).fit(None, none, sizes=np.ones(1, np.int64))
        note_learnt(classifier, "decision")
        return
    if part is not None and (is_auto(decision) or decision.fitted_on == "held"):
        classifier.decision_ = part.decision_
        return
    before: Any = None if first else classifier.decision_
    if is_auto(decision):
        suffices = is_enough(held, facts, train) or is_learnt_by_auto(before, head)
        decision = chosen_decision(head, suffices)
    decision, goes_on = _going_on(classifier, decision, before)
    if train is None:
        _check_samples(decision, held)
        n_of_size = classifier._set_sizes
        sizes = np.minimum(np.repeat(np.arange(len(n_of_size)), n_of_size), code.n_labels)
        Y = sp.csr_matrix((0, code.n_labels), dtype=np.int8)
    else:
        Y = labels_of(code, train)
        each = [Y] if held is None else [Y, labels_of(code, held)]
        sizes = np.concatenate([np.diff(some.indptr) for some in each])
    link = score_link(head)
    link = link if code.multilabel or link is None else "exp"  # classes have log probabilities
    context: dict[str, Any] = {"sizes": sizes, "link": link, "classes": code.classes}
    ranker = classifier.ranker_
    names_labels = ranker is not None and "labels" in ranker.reads  # by their texts
    if classifier._is_part and train is not None and not names_labels:
        context["known"] = occurring_columns(code.from_positions(train.Y))
    inputs = None
    samples = {"train": train, "held": held}.get(str(decision.fitted_on))
    if samples is not None and (samples is train or train is None or samples.Y.nnz):
        tell(classifier, "{!r} learns from {}", decision, number(len(samples), "sample"))
        inputs, Y, beside = decider_of(classifier, decision).fitting_inputs(samples, lists)
        context |= beside
    (decision.partial_fit if goes_on else decision.fit)(inputs, Y, **context)
    classifier.decision_ = decision.set_params(**resolved(decision))


def _going_on(classifier: Any, decision: Decision, before: Any) -> tuple[Any, bool]:
    """Return a decision to fit, or the fitted one `before` to update, and whether it is that one.

    A decision that was set after the fit is another one. If it is learnt from held-out samples, of
    which `partial_fit` has none, it waits for `recalibrate`.
    """
    if before is not None and "decision" in classifier._unlearnt:
        if decision.fitted_on == "held":
            decision = before
        else:
            note_learnt(classifier, "decision")
            before = None
    if type(before) is not type(decision):
        return cloned(decision), False
    return copy.copy(before).set_params(**decision.get_params(deep=False)), True


def note_learnt(classifier: Any, *names: str) -> None:
    """Note parts of a fitted classifier as learnt."""
    for notes in ("_unlearnt", "_of_fit"):
        noted = getattr(classifier, notes).items()
        left = {name: value for name, value in noted if name.partition("__")[0] not in names}
        setattr(classifier, notes, left)


def _check_samples(decision: Decision, held: Rows | None) -> None:
    """Raise ValueError if a decision is learnt from other samples than `held`, if any."""
    if decision.fitted_on == "train":
        raise ValueError(
            f"decision={decision!r} is learnt from the training samples of the network: fit again"
        )
    if decision.fitted_on == "held" and held is None:
        raise ValueError(
            f"decision={decision!r} is learnt from samples that the network has not seen: give X "
            "and y, or a decision that is not, such as TopK(3) or Threshold(0.3)"
        )


def predicted_sets(classifier: Any, X: Rows, index: Any) -> Any:
    """Return the sets of validated samples by a decision with samples of its own."""
    decision, code = classifier.decision_, classifier._code
    if not decision.needs_own_samples:
        raise ValueError(
            f"predict_set needs a decision with a guarantee, and the classifier has {decision!r}; "
            "call recalibrate(X, y, decision=RiskControl()) with samples that it has not seen, or "
            "fit with it"
        )
    decider = decider_of(classifier)
    if code.multilabel:
        return code.give(decider.predict(X), index)
    return decider.sets_of_classes(X, index)


def decider_of(classifier: Any, decision: Any = None) -> Decider:
    """Return the fitted decision, or another one, with the predictor it reads."""
    decision = classifier.decision_ if decision is None else decision
    return Decider(classifier._predictor, decision, n_candidates(classifier._set_sizes, decision))


def compares_sets(classifier: Any) -> bool:
    """Return whether the decision of a classifier has distances of label sets."""
    is_learnt = classifier._is_fitted and classifier._code.multilabel
    decision = classifier.decision_ if is_learnt else named_part(classifier.decision, DECISIONS)
    return getattr(decision, "distances", None) is not None


def chosen_decision(head: Any, suffices: bool) -> Decision:
    """Return the decision for "auto"."""
    name, params = choose_decision(score_link(head), head.ranks_sets, suffices)
    return DECISIONS[name]().set_params(**params)


def is_learnt_by_auto(decision: Any, head: Any) -> bool:
    """Return whether a fitted decision is what "auto" learns from enough held-out samples."""
    learnt = chosen_decision(head, suffices=True)
    return type(decision) is type(learnt) and decision.fitted_on == learnt.fitted_on == "held"


def resolved(decision: Decision) -> dict[str, Any]:
    """Return the fitted values of the parameters "auto" and None of a decision."""
    params = decision.get_params(deep=False).items()
    open_ = [name for name, value in params if value is None or is_auto(value)]
    return {n: getattr(decision, f"{n}_") for n in open_ if hasattr(decision, f"{n}_")}


def check_decision(
    classifier: Any, decision: Any, Y: sp.csr_matrix, code: LabelCode, head: Any = None
) -> None:
    """Raise ValueError if a decision does not suit labels Y or, once built, the head.

    Class labels read few decisions: the others need not suit the head.
    """
    if decision == "auto":
        return
    if head is None:
        has_features = classifier._has_features or not code.multilabel
        if decision.reads == "features" and not has_features:
            raise ValueError(
                f"decision={decision!r} reads features of samples, but bags have none of "
                "their own; use decision='threshold', 'topk' or 'divergence'"
            )
        decision.check_labels(Y)
        decision.check_classes(code.classes)
        return
    if not (code.multilabel or decision.needs_own_samples):
        return
    if decision.reads == "sets" and not head.ranks_sets:
        raise ValueError(
            f"decision={decision!r} reads the best label sets, which {type(head).__name__} "
            "does not rank; use a head that does, such as head='product' of "
            "MultiHeadClassifier, or another decision"
        )
    width, layer = width_of_inputs(head), layer_of(head, code)
    decision.check_head(Y, link=score_link(head), n_features=width, layer=layer)


class HeadLayer:
    """Linear classifier of a head on arrays, in the order of the labels.

    It replaces :class:`~sklearn_xlc.decisions.LinearLayer` for heads without a stored weight
    matrix.
    """

    def __init__(self, head: Any, code: LabelCode) -> None:
        self._head, self._code, self.is_simplex = head, code, head.is_simplex

    def products(self, features: np.ndarray) -> np.ndarray:
        """Multiply features with the weights, without biases."""
        with usual_modes(training=False):
            inputs = torch.from_numpy(features).to(_like(self._head).device)
            products = self._head.layer_products(inputs)
        return self._code.by_label(products.cpu().numpy())

    @property
    def weights(self) -> np.ndarray:
        """Weights of the labels, of shape (n_labels, n_features)."""
        head = self._head
        with usual_modes(training=False):
            held = head.classifier(_like(head), head.shard.labels(head.n_labels))
            rows = head.shard.joined(held).cpu().numpy()
        return self._code.by_label(rows.T).T


def _like(head: Head) -> torch.Tensor:
    """Return a tensor with type and device of a head."""
    return next(head.parameters(), torch.zeros((), device="cpu"))


def layer_of(head: Head, code: LabelCode) -> HeadLayer | None:
    """Return the linear classifier of a head; None if it has none."""
    return HeadLayer(head, code) if head.is_linear else None


def width_of_inputs(head: Head) -> int:
    """Return the number of inputs of the last layer."""
    with torch.no_grad():
        return head.layer_inputs(_like(head).new_zeros(1, head.n_features)).shape[1]


def score_link(head: Head) -> str | None:
    """Return the link from scores to probabilities; "exp" for a softmax."""
    return "exp" if head.link == "softmax" else head.link
