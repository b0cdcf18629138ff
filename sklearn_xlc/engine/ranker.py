"""Fit the ranker of a classifier: what it remembers, what it learns, what it can read."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import row_blocks
from sklearn_xlc._part import cloned
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import vectorizes
from sklearn_xlc.engine.held_out import is_enough, labels_of, subsample
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.resolve import MOST_RANKED, Facts, choose_ranker
from sklearn_xlc.ranking import RANKERS


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
        chosen = choose_ranker(facts, decision) if is_enough(held, facts) else None
        ranker = None if chosen is None else RANKERS[chosen]()
    if ranker is None:
        return
    if train is not None:
        ranker = remembering(classifier, cloned(ranker), train)
    elif ranker.reads:
        ranker = _kept(before, ranker)
    else:
        ranker = cloned(ranker)
    predictor = replace(classifier._predictor, ranker=ranker)
    n_labels, link = predictor.n_labels, "sigmoid" if multilabel else "softmax"
    k = ranker.n_listed(n_labels, link)
    all_held, held = held, subsample(held, max(k, memory_limit() // (16 * MOST_RANKED)))
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
        ranker = remembering(classifier, ranker, train, all_held)
    classifier.ranker_ = ranker


def _stacked(parts: list[Any]) -> Any:
    return sp.vstack(parts, "csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def remembering(classifier: Any, ranker: Any, *samples: Rows) -> Any:
    """Let a ranker remember training samples, if it reads any."""
    if ranker is None or not ranker.reads:
        return ranker
    read = read_all(classifier, ranker, *samples)
    Y = sp.vstack([labels_of(classifier._code, each) for each in samples], "csr")
    weights = [each.sample_weight for each in samples if each.sample_weight is not None]
    weight = np.concatenate(weights) if weights else None
    return ranker.remember(read, Y, sample_weight=weight)


def read_all(classifier: Any, ranker: Any, *samples: Rows) -> dict[str, Any]:
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
