"""Fit the ranker of a classifier, to held-out samples or to the batches of `partial_fit`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import evenly_spaced, occurring_columns, ones_at, row_blocks
from sklearn_xlc._part import cloned, is_auto
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import Columns, Rows, features_of, one_thread_of_blas
from sklearn_xlc.encoders import vectorizes
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.predictor import Lists
from sklearn_xlc.engine.resolve import (
    MOST_RANKED,
    Facts,
    choose_n_candidates,
    choose_ranker,
    choose_retrievers,
)
from sklearn_xlc.engine.telling import number, tell
from sklearn_xlc.ranking import RANKERS, choose_n_ranks, has_word_vectors

#: Samples from which a ranker learns how to shorten all.
_SOME = 2**11
#: Share of the training samples by whose sets the number of candidates is chosen.
_NEARLY_ALL = 0.999


class HeldLists(NamedTuple):
    """Lists of held-out samples, by the network and by the ranker; None: it keeps their order."""

    samples: Rows
    network: Lists
    ranked: Lists | None


def fit_ranker(
    classifier: Any, parts: Any, facts: Facts, train: Rows | None, held: Rows | None
) -> HeldLists | None:
    """Fit the ranker of a classifier to held-out samples, set `ranker_`, and return their lists.

    `parts`: the ranker and the decision by name, parts or "auto".
    `train`: samples to remember; None: the ranker keeps those that it has. Held-out samples are not
    remembered: the decision is fitted to their lists.
    """
    before, ranker = in_use(classifier), parts["ranker"]
    classifier.ranker_ = classifier._waiting = None
    head, multilabel = classifier.net_.module_.head, classifier._code.multilabel
    if held is None or not held.Y.nnz or not can_rank(head, multilabel):
        return None
    if ranker == "auto":
        is_learnt = is_enough(held, facts, train)
        chosen = choose_ranker(facts, parts["decision"], len(held))
        ranker = RANKERS[chosen]() if is_learnt else None
        if train is None and type(ranker) is type(before):
            ranker = before
    if ranker is None:
        return None
    ranker = by_rule(ranker, facts, before if train is None else None)
    if train is not None:
        ranker = remembering(classifier, cloned(ranker), train)
    else:
        ranker = _kept(before, ranker) if ranker.reads else cloned(ranker)
    predictor = replace(classifier._predictor, ranker=ranker)
    n_labels, link = predictor.n_labels, "sigmoid" if multilabel else "softmax"
    k = n_listed = ranker.n_listed(n_labels, link)
    if head.searches_all:  # a decision reads more; a wider beam finds other labels
        k = min(n_labels, max(k, n_candidates(classifier._set_sizes)))
    held = subsample(held, max(k, memory_limit() // (16 * MOST_RANKED)))
    tell(classifier, "{!r} learns from {}", ranker, number(len(held), "held-out sample"))
    scores, labels, samples = _lists(predictor, held, k)
    Y, best = labels_of(classifier._code, held), slice(n_listed)
    read = {"samples": samples, "sample_weight": held.sample_weight, "link": link}
    ranked = None
    if ranker.keeps_order:
        ranker.fit(scores[:, best], Y, labels[:, best], **read)
    else:
        ranked = ranker.fit_rank(scores[:, best], Y, labels[:, best], **read)
    classifier.ranker_ = ranker
    return HeldLists(held, (scores, labels), ranked)


def by_rule(ranker: Any, facts: Facts, before: Any = None) -> Any:
    """Return a copy of the ranker with values by rule in place of "auto".

    `before`: the ranker whose training samples it takes over, and with them the name of its list.
    """
    kept = getattr(before, "retrievers", None)
    is_named = isinstance(kept, str) and not is_auto(kept)
    rules = {
        "retrievers": lambda: kept if is_named else choose_retrievers(facts, has_word_vectors()),
        "n_candidates": lambda: choose_n_candidates(facts),
        "n_ranks": lambda: choose_n_ranks(facts.labels_per_sample),
    }
    params = ranker.get_params(deep=False)
    found = {name: rule() for name, rule in rules.items() if is_auto(params.get(name))}
    return cloned(ranker).set_params(**found) if found else ranker


def _lists(
    predictor: Any,
    samples: Rows,
    k: int,
    read_of_batch: Callable[[Any], dict[str, Any]] = attrgetter("read"),
    shortened: Callable[[dict[str, Any]], Any] = dict,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return scores and labels of the network's lists, and what the ranker reads, by space.

    Threads call `read_of_batch` side by side, and the caller's alone `shortened`.
    """
    normalised = not predictor.code.multilabel
    n_rows = predictor.rows_at_once(predictor.head.bytes_per_row(k))

    def best(_: slice, batch: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        return *predictor.best(batch, k, normalised=normalised), read_of_batch(batch)

    each = predictor.each(samples, n_rows, "", best)
    found = [(scores, labels, shortened(read)) for _, (scores, labels, read) in each]
    scores, labels, read = zip(*found)
    samples_read = {space: stacked([each[space] for each in read]) for space in read[0]}
    return np.concatenate(scores), np.concatenate(labels), samples_read


def stacked(parts: list[Any]) -> Any:
    """Join the rows of matrices, sparse or dense."""
    return sp.vstack(parts, "csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def _filled(parts: Iterator[Any], n_rows: int) -> Any:
    """Join the rows of matrices; dense ones as they come, without a second copy of all."""
    first = next(parts)
    if sp.issparse(first):
        return stacked([first, *parts])
    joined, start = np.empty((n_rows, *first.shape[1:]), first.dtype), 0
    for part in itertools.chain([first], parts):
        joined[start : start + len(part)] = part
        start += len(part)
    return joined


def remembering(classifier: Any, ranker: Any, samples: Rows, more: bool = False) -> Any:
    """Let a ranker remember training samples, if it reads any; `more`: keep earlier ones."""
    if ranker is None or not ranker.reads:
        return ranker
    most = len(samples) if ranker.max_samples is None else ranker.max_samples
    if not more and len(samples) > most:  # others are not even copied
        samples = samples.select(evenly_spaced(len(samples), most))
    tell(classifier, "{!r} remembers {}", ranker, number(len(samples), "sample"))
    if not more:
        _begin(classifier, ranker, samples)
    read = read_of(classifier, ranker, samples)
    Y = labels_of(classifier._code, samples).copy()  # the user may change theirs
    remember = copy.copy(ranker).remember_more if more else ranker.remember
    return remember(read, Y, sample_weight=samples.sample_weight)


def _begin(classifier: Any, ranker: Any, samples: Rows) -> None:
    """Let a ranker learn how to shorten samples from some of them."""
    some = samples.take(evenly_spaced(len(samples), _SOME))
    ranker.begin(dict(_raw(classifier, ranker.reads, some)))


def read_of(
    classifier: Any, ranker: Any, samples: Rows, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a ranker reads of training samples, by the names of its spaces.

    `known`: spaces that are read already, as from before the network trained on the samples.
    """
    read = dict(known or {})
    for space in ("input", "features"):
        if space in ranker.reads and space not in read:
            read[space] = _shortened(classifier, ranker, space, samples)
    if "given" in ranker.reads:
        read["given"] = samples.as_given()
    if "ids" in ranker.reads:
        read["ids"] = samples.ids
    if "labels" in ranker.reads:
        read["labels"] = classifier._code.classes
    return read


def _shortened(classifier: Any, ranker: Any, space: str, samples: Rows) -> Any:
    width = samples.n_stored() // max(1, len(samples))
    width = width if space == "input" else classifier._n_features_out
    parts = (  # in blocks: X may be mapped from a file
        ranker.shortened(dict(_raw(classifier, (space,), samples.take(part))))[space]
        for part in row_blocks(len(samples), max(1, width))
    )
    return _filled(parts, len(samples))


def _raw(classifier: Any, spaces: tuple[str, ...], samples: Rows) -> Iterator[tuple[str, Any]]:
    """Yield rows of X as the network reads them, and what its encoder makes of them."""
    predictor = replace(classifier._predictor, ranker=None)
    if "input" in spaces:
        yield "input", predictor.inputs(samples)
    if "features" in spaces:
        yield "features", predictor.dense_features(samples, classifier._n_features_out)


def in_use(classifier: Any) -> Any:
    """Return the ranker of a classifier, or the one waiting to learn from a stream, or None."""
    ranker = getattr(classifier, "ranker_", None)
    return classifier._waiting if ranker is None else ranker


def remembers(classifier: Any) -> Any:
    """Return the ranker of a classifier if it remembers samples; otherwise raise ValueError."""
    ranker = in_use(classifier)
    if ranker is None or not ranker.reads:
        kind = None if ranker is None else type(ranker).__name__
        raise ValueError(
            f"the ranker of the classifier, {kind}, remembers no training samples; fit with "
            "ranker='boosted', which does"
        )
    return ranker


def _kept(before: Any, ranker: Any) -> Any:
    """Return a copy of the fitted ranker, with its training samples and new parameters."""
    if type(before) is not type(ranker):
        raise ValueError(
            f"ranker={ranker!r} remembers the training samples of the network, and recalibrate has "
            "none: fit again"
        )
    changed = before.with_params_of(ranker)
    lacking = [space for space in changed.reads if space not in before.reads]
    if lacking:
        raise ValueError(
            f"ranker={ranker!r} reads {lacking}, and of the training samples that are remembered "
            f"there are {list(before.reads)}: fit again"
        )
    return changed


def can_rank(head: Any, multilabel: bool) -> bool:
    """Return whether a ranker can correct the scores of a head."""
    return head.link == "sigmoid" if multilabel else head.link in ("softmax", "exp")


def check_spaces(ranker: Any, rows: Rows, encoder: Any) -> None:
    """Raise ValueError if a ranker cannot read the samples."""
    if rows.bags is not None and {"input", "features", "given"}.intersection(ranker.reads):
        raise ValueError(
            f"ranker={ranker!r} compares samples, and X holds bags; use ranker='calibration'"
        )
    if "given" in ranker.reads and isinstance(rows.X, Columns):
        raise ValueError(
            f"ranker={ranker!r} has a vectorizer, which reads texts or rows of X, and X holds "
            "several columns; use retrievers with space='features'"
        )
    ranker.check_given(rows.X)
    is_read = rows.X.dtype != object or vectorizes(encoder)
    if "input" in ranker.reads and not is_read:
        raise ValueError(
            f"ranker={ranker!r} compares rows of X, and X holds samples without columns; use "
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


# --- held-out samples ---------------------------------------------------------------------------


def is_enough(held: Rows | None, facts: Facts, train: Rows | None) -> bool:
    """Return whether held-out samples suffice for a ranker and a tuned threshold.

    The network has to know a label of theirs.
    """
    if held is None or len(held) < facts.least_apart or not (facts.pointwise or facts.one_softmax):
        return False
    if train is None:
        return bool(held.Y.nnz)
    return bool(occurring_columns(train.Y)[held.Y.indices].any())


def n_candidates(set_sizes: np.ndarray, decision: Any = None) -> int:
    """Return how many labels of a sample may be true: twice those of nearly all training samples.

    Twice the most of any for a decision that never asks for more of them.

    `set_sizes`: number of training samples by their number of labels.
    """
    share = _NEARLY_ALL if decision is None or decision.asks_for_more else 1.0
    n_within = np.cumsum(set_sizes)
    return 2 * max(1, int(np.searchsorted(n_within, share * set_sizes.sum())))


def labels_of(code: LabelCode, samples: Rows) -> sp.csr_matrix:
    """Return the indicator of the samples' labels, with one column a label id; maybe the user's."""
    Y = code.from_positions(samples.Y)
    if Y.dtype.kind == "f":  # soft labels, or counts
        Y = sp.csr_matrix(Y > 0.5, dtype=np.int8)
    if (Y.data != 1).any():  # bags may count their labels
        Y = ones_at(Y.indices, Y.indptr, Y.shape[1])
    return Y


def subsample(samples: Rows, width: int, labelled: bool = False) -> Rows:
    """Return evenly spaced samples, only labelled ones if asked, within `working_memory`."""
    n_rows = max(1, memory_limit() // (16 * width))
    if n_rows >= len(samples):
        return samples
    pool = np.arange(len(samples))
    if labelled and samples.Y.nnz:
        pool = np.flatnonzero(np.diff(samples.Y.indptr))
    return samples.select(pool[evenly_spaced(len(pool), n_rows)])


# --- streams ------------------------------------------------------------------------------------


@one_thread_of_blas()
def listed_before(classifier: Any, rows: Rows) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """List labels of samples by the network as it is; without columns if nobody asks for lists.

    With them come features, if the ranker reads these: a sample that the network has trained on is
    described too well.
    """
    ranker = in_use(classifier)
    if ranker is None or not ranker.reads:
        return np.empty((len(rows), 0)), np.empty((len(rows), 0), dtype=np.int64), {}
    predictor = replace(classifier._predictor, ranker=None)
    head, multilabel = predictor.head, classifier._code.multilabel
    n_known = head.n_labels - (0 if head.free is None else int(head.free.sum()))
    k = ranker.n_listed(n_known, "sigmoid" if multilabel else "softmax")
    rows = rows.without_labels()

    def features(batch: Any) -> dict[str, Any]:
        return {"features": features_of(batch.features).cpu().numpy()}

    reads = (features, ranker.shortened) if "features" in ranker.reads else ()
    return _lists(predictor, rows, k, *reads)


def follow(classifier: Any, plan: Any, train: Rows) -> None:
    """Give the ranker a batch with the lists from before the network trained on it.

    A ranker that has learnt too little waits in `_waiting`, and `ranker_` is None.
    """
    if not plan.is_later:
        classifier.ranker_ = None
        classifier._waiting = _new_ranker(classifier, plan)
    before = in_use(classifier)
    if before is None or not before.reads:
        return
    if not plan.is_later:
        _begin(classifier, before, train)
    scores, labels, known = plan.lists
    multilabel, read = classifier._code.multilabel, read_of(classifier, before, train, known)
    stream = copy.copy(before).partial_fit(
        scores,
        labels_of(classifier._code, train).copy(),  # the user may change theirs
        labels,
        read,
        sample_weight=train.sample_weight,
        link="sigmoid" if multilabel else "softmax",
    )
    is_waiting = stream.waits
    classifier.ranker_ = None if is_waiting else stream
    classifier._waiting = stream if is_waiting else None


def _new_ranker(classifier: Any, plan: Any) -> Any:
    """Return an unfitted ranker for a stream; None: the network ranks alone."""
    if not can_rank(classifier.net_.module_.head, classifier._code.multilabel):
        return None
    ranker = plan.settings["ranker"]
    if is_auto(ranker):
        ranker = RANKERS[choose_ranker(plan.facts, plan.settings["decision"])]()
    if ranker is None:
        return None
    if ranker.streams:
        return cloned(by_rule(ranker, plan.facts))
    if not is_auto(plan.settings["ranker"]):
        warn(
            f"ranker={ranker!r} is learnt by fit, or by recalibrate(X, y), and not by partial_fit: "
            "until then the network ranks alone"
        )
    return None
