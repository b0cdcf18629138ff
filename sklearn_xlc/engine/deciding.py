"""Check and fit a decision, and pass it the scores or features of a network."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import _num_samples

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import canonical, row_blocks, row_numbers
from sklearn_xlc._part import cloned, is_auto, name_of_part, plain
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.decisions import DECISIONS, Decision, Threshold, TopK
from sklearn_xlc.encoders import vectorizes
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, available_memory, refuse_beyond
from sklearn_xlc.engine.predictor import Encoded, Predictor
from sklearn_xlc.engine.resolve import (
    LEAST_HELD,
    MOST_RANKED,
    Facts,
    choose_decision,
    choose_ranker,
)
from sklearn_xlc.heads import Head
from sklearn_xlc.ranking import RANKERS

#: Inputs and keyword arguments of a decision for a batch.
Inputs = tuple[np.ndarray, dict[str, Any]]


@dataclass(frozen=True)
class Decider:
    """Predict label sets with a decision on the scores or features of a network.

    `typical_size`: the largest number of labels of a training sample.
    """

    predictor: Predictor
    decision: Any
    typical_size: int

    @property
    def _head(self) -> Any:
        return self.predictor.head

    # --- fit --------------------------------------------------------------------------------

    def fitting_inputs(self, samples: Rows) -> tuple[Any, sp.csr_matrix, dict[str, Any]]:
        """Return scores or features of samples, their labels, and further keyword arguments."""
        decision, n_labels = self.decision, self.predictor.n_labels
        if decision.reads == "ranked":
            samples = _subsample(samples, self._n_candidates())
        elif decision.reads in ("scores", "sets"):
            samples = _subsample(samples, n_labels)
        elif not decision.in_blocks:
            width = max(n_labels, width_of_inputs(self._head))
            samples = _subsample(samples, width, labelled=True)
        blocks, Y = self._blocks(samples), labels_of(self.predictor.code, samples)
        if decision.reads == "features":
            layer, parts = layer_of(self._head, self.predictor.code), (part for part, _ in blocks)
            return parts if decision.in_blocks else np.concatenate(list(parts)), Y, {"layer": layer}
        inputs, beside = zip(*blocks)
        if decision.reads == "scores":
            return np.concatenate(inputs), Y, {}
        if decision.reads == "sets":
            sets = sp.vstack([b["sets"] for b in beside], "csr")
            return np.concatenate(inputs), Y, {"sets": sets}
        return np.concatenate(inputs), Y, {"labels": np.concatenate([b["labels"] for b in beside])}

    def _blocks(self, samples: Rows) -> Iterator[Inputs]:
        decision = self.decision
        n_rows = self.predictor.rows_at_once(self.bytes_per_row(decision.reads))
        asked = f"inputs of {type(decision).__name__}"
        for _, batch in self.predictor.encoded(samples, n_rows, asked):
            with self.predictor.net.predicting(batch.features):
                inputs = self._inputs(batch, decision.reads)
            yield inputs

    def _n_candidates(self) -> int:
        """Return the first number of candidate labels for each sample."""
        n_labels = self.predictor.n_labels
        return min(n_labels, self.decision.n_candidates(n_labels) or 2 * self.typical_size)

    def _n_sets(self) -> int:
        """Return the number of candidate label sets for each sample."""
        n_labels = self.predictor.n_labels
        return min(2**n_labels, self.decision.n_candidates(n_labels) or 1)

    # --- predict ----------------------------------------------------------------------------

    def bytes_per_row(self, reads: str, k: int | None = None) -> int:
        """Estimate the bytes needed to decide on one sample."""
        head = self._head
        if reads == "ranked":
            return head.bytes_per_row(k or self._n_candidates())
        if reads == "sets":
            return head.bytes_per_row_of_sets(self._n_sets())
        width = self.predictor.n_labels
        if reads == "features":  # the decision may multiply them with the layer
            width += width_of_inputs(head)
            return 4 * width * 8
        return head.bytes_per_row() + 3 * 8 * width

    def _inputs(self, batch: Encoded, reads: str, k: int | None = None) -> Inputs:
        """Return inputs and keyword arguments of the decision for a batch, with `k` labels."""
        head, predictor = self._head, self.predictor
        if reads == "features":
            layer = layer_of(head, predictor.code)
            return head.layer_inputs(batch.features).cpu().numpy(), {"layer": layer}
        if reads == "sets":
            best, sets = predictor.best_sets(batch.features, self._n_sets())
            return best, {"sets": sets}
        if reads == "scores":
            scores = predictor.all_scores(batch)
            scores = scores.log_softmax(1) if head.link == "softmax" else scores
            return scores.cpu().numpy(), {}
        ranked, labels = predictor.ranked(batch, k or self._n_candidates())
        if head.link == "softmax":  # log-probabilities are comparable across samples
            ranked -= predictor.all_scores(batch).logsumexp(1)[:, None].cpu().numpy()
        return ranked, {"labels": labels}

    def _inputs_of_parts(
        self, batch: Encoded, reads: str, rows: np.ndarray | None = None, k: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
        """Yield rows of a batch with the inputs and keyword arguments of a fitted decision.

        Rows are ranked again if the decision needs more than `k` of their labels.
        """
        decision, head, n_labels = self.decision, self._head, self.predictor.n_labels
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

    def _decode(self, batch: Encoded) -> sp.csr_matrix:
        """Return the label sets of a batch, an indicator with one column a label id."""
        rule, join = self._checked_sets, functools.partial(sp.vstack, format="csr")
        return self._applied(rule, batch, self.decision.reads, join)

    def _applied(
        self, rule: Callable[..., Any], batch: Encoded, reads: str, join: Callable[..., Any]
    ) -> Any:
        """Apply a rule to the parts of a batch, and join the results in the order of the batch."""
        rows, parts = [], []
        with self.predictor.net.predicting(batch.features):
            for part, inputs, beside in self._inputs_of_parts(batch, reads):
                rows.append(part)
                parts.append(rule(inputs, **beside))
        return parts[0] if len(parts) == 1 else join(parts)[np.argsort(np.concatenate(rows))]

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

    def predict(self, X: Any) -> Any:
        """Return the label sets of validated samples as an indicator, dense or sparse."""
        return (self._sparse_sets if self.predictor.code.sparse_output else self._dense_sets)(X)

    def _dense_sets(self, X: Any) -> np.ndarray:
        predictor = self.predictor
        shape, dtype = (_num_samples(X), predictor.n_labels), np.dtype(predictor.code.dtype)
        row_bytes = self.bytes_per_row(self.decision.reads)
        n_rows = predictor.rows_beside(shape, dtype, "a sparse y in fit", row_bytes)
        out = np.zeros(shape, dtype=dtype)
        for rows, batch in predictor.encoded(X, n_rows, "label sets"):
            sets = self._decode(batch)
            out[rows][row_numbers(sets.indptr), sets.indices] = 1
        return out

    def _sparse_sets(self, X: Any) -> sp.csr_matrix:
        predictor = self.predictor
        sizes, ids, asked = np.zeros(_num_samples(X), dtype=np.int64), [], SMALL
        n_rows = predictor.rows_at_once(self.bytes_per_row(self.decision.reads))
        for rows, batch in predictor.encoded(X, n_rows, "label sets"):
            sets = self._decode(batch)
            sizes[rows] = np.diff(sets.indptr)
            ids.append(sets.indices)
            # Only now the number of predicted labels is known: joined ids, and ones for them.
            needed = int(sizes.sum()) * (2 * sets.indices.itemsize + predictor.code.dtype.itemsize)
            if needed > asked:
                what = f"an indicator of {int(sizes.sum()):,} labels of {rows.stop:,} samples"
                refuse_beyond(needed, available_memory(), what, "fewer rows of X")
                asked = 2 * needed
        return predictor.code.indicator(
            np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(ids)
        )

    def distances(self, X: Any) -> np.ndarray:
        """Return the distances of the best and second best label set of validated samples."""
        decision: Any = self.decision
        reads = getattr(decision, "distances_read", decision.reads)
        distances, join = [], np.concatenate
        n_rows = self.predictor.rows_at_once(self.bytes_per_row(reads))
        for _, batch in self.predictor.encoded(X, n_rows, "distances of label sets"):
            distances.append(self._applied(decision.distances, batch, reads, join))
        return np.concatenate(distances)


def fit_decision(
    classifier: Any,
    decision: Any,
    ranker: Any,
    facts: Facts,
    train: Rows,
    held: Rows | None,
    *,
    first: bool,
    part: Any = None,
) -> None:
    """Fit ranker and decision of a classifier, or update the decision in later calls.

    The function sets `ranker_` and `decision_`. `train` and `held` are None if there are no such
    samples. `first`: a new fit rather than a later call of `partial_fit`. `part`: the second
    classifier of "refit", whose ranker and decision are used.
    """
    code, head = classifier._code, classifier.net_.module_.head
    Y, is_auto = labels_of(code, train), decision == "auto"
    is_enough = _is_enough(held, facts)
    if first:
        classifier.ranker_ = None
        if part is not None:
            classifier.ranker_ = _remembering(classifier, part.ranker_, train)
        else:
            fit_ranker(classifier, ranker, decision, facts, train, held)
    elif classifier.ranker_ is not None and classifier.ranker_.reads:
        later = copy.copy(classifier.ranker_)
        read = _read_all(classifier, later, train)
        classifier.ranker_ = later.remember_more(read, Y, sample_weight=train.sample_weight)
    if not code.multilabel:
        classifier.decision_ = TopK(1).fit(None, Y)
        return
    if part is not None and (is_auto or decision.fitted_on == "held"):
        classifier.decision_ = part.decision_
        return
    before: Any = None if first else classifier.decision_
    if is_auto:
        was_tuned = isinstance(before, Threshold) and before.fitted_on == "held"
        decision = _chosen(facts, head, is_enough or was_tuned)
    goes_on = type(before) is type(decision)
    if goes_on:
        decision = copy.copy(before).set_params(**decision.get_params(deep=False))
    else:
        decision = cloned(decision)
    context: dict[str, Any] = {"sizes": np.diff(Y.indptr), "link": score_link(head)}
    inputs = None
    samples = {"train": train, "held": held}.get(str(decision.fitted_on))
    if samples is not None and (samples is train or samples.Y.nnz):
        inputs, Y, beside = classifier._decider(decision).fitting_inputs(samples)
        context |= beside
    (decision.partial_fit if goes_on else decision.fit)(inputs, Y, **context)
    classifier.decision_ = decision.set_params(**_resolved(decision))


def _is_enough(held: Rows | None, facts: Facts) -> bool:
    """Return whether held-out samples suffice for a ranker and a tuned threshold."""
    is_apart = facts.pointwise or facts.one_softmax
    return held is not None and held.Y.nnz > 0 and len(held) >= LEAST_HELD and is_apart


def _chosen(facts: Facts, head: Any, is_enough: bool) -> Decision:
    """Return the decision for "auto"."""
    link, ranks_sets = score_link(head), head.ranks_sets
    chosen = choose_decision(facts, link=link, ranks_sets=ranks_sets, is_enough=is_enough)
    decision = DECISIONS[chosen.pop("decision")]()
    return decision.set_params(**{name.partition("__")[2]: v for name, v in chosen.items()})


def _resolved(decision: Decision) -> dict[str, Any]:
    """Return the fitted values of the parameters "auto" and None of a decision."""
    params = decision.get_params(deep=False).items()
    open_ = [name for name, value in params if value is None or is_auto(value)]
    return {n: getattr(decision, f"{n}_") for n in open_ if hasattr(decision, f"{n}_")}


def fit_ranker(
    classifier: Any,
    ranker: Any,
    decision: Any,
    facts: Facts,
    train: Rows | None,
    held: Rows | None,
) -> None:
    """Fit the ranker of a classifier to held-out samples, and set `ranker_`.

    `train`: samples to remember; None: the ranker keeps those that it has.
    """
    before = getattr(classifier, "ranker_", None)
    classifier.ranker_ = None
    head, multilabel = classifier.net_.module_.head, classifier._code.multilabel
    if held is None or not held.Y.nnz or not can_rank(head, multilabel):
        return
    if ranker == "auto":
        chosen = choose_ranker(facts, decision) if _is_enough(held, facts) else None
        ranker = None if chosen is None else RANKERS[chosen]()
    if ranker is None:
        return
    if train is not None:
        ranker = _remembering(classifier, cloned(ranker), train)
    elif ranker.reads:
        ranker = _kept(before, ranker)
    else:
        ranker = cloned(ranker)
    predictor = replace(classifier._predictor, ranker=ranker)
    n_labels, link = predictor.n_labels, "sigmoid" if multilabel else "softmax"
    k = ranker.n_listed(n_labels, link)
    all_held, held = held, _subsample(held, max(k, memory_limit() // (16 * MOST_RANKED)))
    scores, labels, read = [], [], []
    for _, batch in predictor.encoded(held, predictor.rows_at_once(head.bytes_per_row(k)), ""):
        with predictor.net.predicting(batch.features):
            best, ids = predictor.best(batch, k, normalised=not multilabel)
        scores.append(best.cpu().numpy())
        labels.append(ids)
        read.append(batch.read)
    Y = labels_of(classifier._code, held)
    given = np.concatenate(scores), Y, np.concatenate(labels)
    samples = {space: _stacked([each[space] for each in read]) for space in read[0]}
    ranker.fit(*given, samples=samples, sample_weight=held.sample_weight, link=link)
    if train is not None:
        ranker = _remembering(classifier, ranker, train, all_held)
    classifier.ranker_ = ranker


def _stacked(parts: list[Any]) -> Any:
    return sp.vstack(parts, "csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def _remembering(classifier: Any, ranker: Any, *samples: Rows) -> Any:
    """Let a ranker remember training samples, if it reads any."""
    if ranker is None or not ranker.reads:
        return ranker
    read = _read_all(classifier, ranker, *samples)
    Y = sp.vstack([labels_of(classifier._code, each) for each in samples], "csr")
    weights = [each.sample_weight for each in samples if each.sample_weight is not None]
    weight = np.concatenate(weights) if weights else None
    return ranker.remember(read, Y, sample_weight=weight)


def _read_all(classifier: Any, ranker: Any, *samples: Rows) -> dict[str, Any]:
    """Return samples in the spaces that a ranker reads."""
    predictor, read = replace(classifier._predictor, ranker=ranker), {}
    if "input" in ranker.reads:
        parts = [  # in blocks: X may be mapped from a file
            ranker.shortened({"input": predictor.inputs(each.take(part))})["input"]
            for each in samples
            for part in row_blocks(len(each), max(1, each.n_stored() // max(1, len(each))))
        ]
        read["input"] = _stacked(parts)
    if "features" in ranker.reads:
        width = classifier._n_features_out
        parts = [predictor.dense_features(each, width) for each in samples]
        read["features"] = np.concatenate(parts)
    return read


def _kept(before: Any, ranker: Any) -> Any:
    """Return a copy of the fitted ranker, which remembers training samples, with new parameters."""
    if type(before) is not type(ranker):
        raise ValueError(
            f"ranker={ranker!r} remembers the training samples of the network, and recalibrate has "
            "none: fit again"
        )
    return copy.copy(before).set_params(**ranker.get_params(deep=False))


def can_rank(head: Any, multilabel: bool) -> bool:
    """Return whether a ranker can correct the scores of a head."""
    return head.link == "sigmoid" if multilabel else head.link in ("softmax", "exp")


def decide_again(classifier: Any, ranker: Any, decision: Any, held: Rows | None) -> None:
    """Fit ranker and decision of a fitted classifier anew, without its training samples.

    `held`: prepared samples that the network has not seen; None: there are none. `ranker` and
    `decision` are parts or "auto"; the ranker "keep" stays.
    """
    code, head = classifier._code, classifier.net_.module_.head
    multilabel = code.multilabel
    facts = Facts(
        n_samples=0 if held is None else len(held),
        n_labels=code.n_labels,
        multilabel=multilabel,
        pointwise=head.link == "sigmoid",
        one_softmax=not multilabel and can_rank(head, multilabel),
    )
    if held is None and not (ranker is None or isinstance(ranker, str) and ranker == "keep"):
        raise ValueError(f"ranker={ranker!r} is learnt from samples: give X and y")
    if held is not None:
        fit_ranker(classifier, ranker, decision, facts, None, held)
    elif ranker is None:
        classifier.ranker_ = None
    if not multilabel:
        return
    if decision == "auto":
        decision = _chosen(facts, head, _is_enough(held, facts))
    decision = cloned(decision)
    if decision.fitted_on == "train":
        raise ValueError(
            f"decision={decision!r} is learnt from the training samples of the network: fit again"
        )
    if decision.fitted_on == "held" and held is None:
        raise ValueError(
            f"decision={decision!r} is learnt from samples that the network has not seen: give X "
            "and y, or a decision that is not, such as TopK(3) or Threshold(0.3)"
        )
    sizes = np.repeat(np.arange(len(classifier._set_sizes)), classifier._set_sizes)
    inputs, beside, Y = None, {}, sp.csr_matrix((0, code.n_labels), dtype=np.int8)
    if held is not None and decision.fitted_on == "held":
        inputs, Y, beside = classifier._decider(decision).fitting_inputs(held)
    decision.fit(inputs, Y, sizes=sizes, link=score_link(head), **beside)
    classifier.decision_ = decision.set_params(**_resolved(decision))


def described(classifier: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with what ranker and decision have become."""
    found = {k: v for k, v in settings.items() if not k.startswith(("decision", "ranker"))}
    found |= _settings_of("ranker", classifier.ranker_, RANKERS)
    return found | _settings_of("decision", classifier.decision_, DECISIONS)


def _settings_of(parameter: str, part: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and parameters of a fitted part, or None.

    Parts of a class without a name have parameters only.
    """
    if part is None:
        return {parameter: None}
    name = name_of_part(part, table)
    found = {} if name is None else {parameter: name}
    for key, value in part.get_params(deep=False).items():
        if not is_auto(value):  # left to the part
            with contextlib.suppress(TypeError):
                found[f"{parameter}__{key}"] = plain(value)
    return found


def warn_of_unlearnt(names: tuple[str, ...]) -> None:
    """Warn of parts that were set after the fit and have no effect yet."""
    remedies = {
        name: "recalibrate" if name in ("ranker", "decision") else "fit again" for name in names
    }
    parts = ", ".join(f"{name} ({remedy})" for name, remedy in remedies.items())
    warnings.warn(
        f"parts were set after fit and have no effect until they are learnt: {parts}",
        UserWarning,
        stacklevel=4,
    )


def check_decision(
    decision: Decision, Y: sp.csr_matrix, head: Any, code: LabelCode, has_features: bool
) -> None:
    """Raise ValueError if a decision does not suit labels Y or, once built, the head."""
    if head is None:
        if decision.reads == "features" and not has_features:
            raise ValueError(
                f"decision={decision!r} reads features of samples, but bags have none of "
                "their own; use decision='threshold', 'topk' or 'divergence'"
            )
        decision.check_labels(Y)
        return
    if decision.reads == "sets" and not head.ranks_sets:
        raise ValueError(
            f"decision={decision!r} reads the best label sets, which {type(head).__name__} "
            "does not rank; use a head that does, such as head='product' of "
            "MultiHeadClassifier, or another decision"
        )
    width, layer = width_of_inputs(head), layer_of(head, code)
    decision.check_head(Y, link=score_link(head), n_features=width, layer=layer)


def check_spaces(ranker: Any, rows: Rows, encoder: Any, processes: Any) -> None:
    """Raise ValueError if a ranker cannot read the samples."""
    if ranker.reads and processes.size > 1:
        raise ValueError(
            f"ranker={ranker!r} remembers training samples, and several processes share no memory; "
            "use ranker='calibration'"
        )
    is_read = rows.bags is None and (rows.X.dtype != object or vectorizes(encoder))
    if "input" in ranker.reads and not is_read:
        held = "bags" if rows.bags is not None else "samples without columns"
        raise ValueError(
            f"ranker={ranker!r} compares rows of X, and X holds {held}; use "
            "ranker='calibration', or retrievers with space='features'"
        )


def check_ranker(ranker: Any, head: Any, code: LabelCode, loss: Any) -> None:
    """Raise ValueError if a ranker cannot correct the scores of a head."""
    if not can_rank(head, code.multilabel):
        raise ValueError(
            f"ranker={ranker!r} needs scores of labels as log odds, or of classes as log "
            f"probabilities, and {type(head).__name__} with loss={loss!r} has none; use "
            "ranker=None, or a loss such as 'bce' or 'ce'"
        )


def labels_of(code: LabelCode, samples: Rows) -> sp.csr_matrix:
    """Return the indicator of the samples' labels, with one column a label id."""
    Y = code.from_positions(samples.Y)
    if Y.dtype.kind == "f":  # soft labels, or counts
        Y = sp.csr_matrix(Y > 0.5, dtype=np.int8)
    if (Y.data != 1).any():  # bags may count their labels
        ones = np.ones(len(Y.data), dtype=np.int8)
        Y = sp.csr_matrix((ones, Y.indices, Y.indptr), shape=Y.shape)
    return Y


def _subsample(samples: Rows, width: int, labelled: bool = False) -> Rows:
    """Return evenly spaced samples, only labelled ones if asked, within `working_memory`."""
    n_rows = max(1, memory_limit() // (16 * width))
    if n_rows >= len(samples):
        return samples
    pool = np.arange(len(samples))
    if labelled and samples.Y.nnz:
        pool = np.flatnonzero(np.diff(samples.Y.indptr))
    n_rows = min(n_rows, len(pool))
    return samples.select(pool[np.linspace(0, len(pool) - 1, n_rows).astype(np.int64)])


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
            rows = head.shard.rows_of(head.classifier, _like(head)).cpu().numpy()
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
