"""Let the ranker of a classifier learn from the batches of `partial_fit`."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_xlc._part import cloned, is_auto
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.held_out import labels_of
from sklearn_xlc.engine.ranker import can_rank, in_use, read_of, with_retrievers
from sklearn_xlc.engine.resolve import Facts, choose_ranker
from sklearn_xlc.ranking import RANKERS

#: Scores and labels of the network's lists of samples.
Lists = tuple[np.ndarray, np.ndarray]


def listed_before(classifier: Any, rows: Rows) -> Lists:
    """List labels of samples by the network as it is; without columns if nobody asks for lists."""
    ranker = in_use(classifier)
    if ranker is None or not ranker.reads:
        return np.empty((len(rows), 0)), np.empty((len(rows), 0), dtype=np.int64)
    predictor = replace(classifier._predictor, ranker=None)
    head, multilabel = predictor.head, classifier._code.multilabel
    n_known = head.n_labels - (0 if head.free is None else int(head.free.sum()))
    k = ranker.n_listed(n_known, "sigmoid" if multilabel else "softmax")
    scores, labels = [], []
    n_rows = predictor.rows_at_once(head.bytes_per_row(k))
    for _, batch in predictor.encoded(rows.without_labels(), n_rows, ""):
        with predictor.net.predicting(batch.features):
            best, ids = predictor.best(batch, k, normalised=not multilabel)
        scores.append(best.cpu().numpy())
        labels.append(ids)
    return np.concatenate(scores), np.concatenate(labels)


def follow(
    classifier: Any,
    ranker: Any,
    decision: Any,
    facts: Facts,
    train: Rows,
    lists: Lists,
    *,
    first: bool,
) -> None:
    """Give the ranker a batch with the lists from before the network trained on it.

    `first`: nothing was fitted before. A ranker that has learnt too little waits in `_waiting`, and
    `ranker_` is None.
    """
    if first:
        classifier.ranker_ = None
        classifier._waiting = _new_ranker(classifier, ranker, decision, facts)
    before = in_use(classifier)
    if before is None or not before.reads:
        return
    multilabel, read = classifier._code.multilabel, read_of(classifier, before, train)
    scores, labels = lists
    stream = copy.copy(before).partial_fit(
        scores,
        labels_of(classifier._code, train),
        labels,
        read,
        sample_weight=train.sample_weight,
        link="sigmoid" if multilabel else "softmax",
    )
    is_waiting = stream.waits
    classifier.ranker_ = None if is_waiting else stream
    classifier._waiting = stream if is_waiting else None


def _new_ranker(classifier: Any, ranker: Any, decision: Any, facts: Facts) -> Any:
    """Return a ranker that begins without `fit`; None: the network ranks alone."""
    if not can_rank(classifier.net_.module_.head, classifier._code.multilabel):
        return None
    if is_auto(ranker):
        ranker = RANKERS[choose_ranker(facts, decision)]()
    if ranker is None or not ranker.streams:
        return None
    return cloned(with_retrievers(ranker, facts))
