"""Split samples as a splitter of scikit-learn, or pairs of positions, say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from sklearn_xlc._checks import as_array
from sklearn_xlc._compat import HasMethods, Interval, StrOptions
from sklearn_xlc._csr import IntArray, places_of
from sklearn_xlc.engine.label_code import SoftLabels
from sklearn_xlc.engine.validation import TrainingData

#: Constraints of `validation_fraction`.
FORMS_OF_SPLITS: list[Any] = [
    StrOptions({"refit"}),
    Interval(Real, 0, 1, closed="neither"),
    HasMethods(["split", "get_n_splits"]),
    list,
    tuple,
]


def split_by(splitter: Any, X: Any, y: Any, data: TrainingData) -> TrainingData:
    """Return training data with the samples to train on and to hold out.

    These are the last pair of `splitter`: the one of `TimeSeriesSplit` with the most samples. A
    fraction or a word leaves the data as they are. `X`, `y`: as they came. A splitter sees them,
    and where X is not rows, such as bags, as many rows of zeros.
    """
    if isinstance(splitter, str | Real):
        return data
    are_given = isinstance(splitter, list | tuple)
    if not are_given and (not data.indexes or isinstance(X, Mapping) or isinstance(y, SoftLabels)):
        X, y = np.zeros((data.n_given, 1)), None
    try:
        pairs = splitter if are_given else splitter.split(X, y)
        train, held = _last_pair(pairs, data.n_given)
    except (ValueError, TypeError) as error:
        needed = None if are_given else _needed(splitter, str(error), data)
        if needed is None:
            raise
        raise ValueError(f"{splitter!r} needs {needed}") from error
    n_named = len(train) + len(held)
    if are_given and n_named < data.n_given:
        raise ValueError(
            f"the last pair of validation_fraction has {n_named} of the {data.n_given} samples of "
            "X: it must name each of them, to train on or to hold out"
        )
    if data.kept is not None:
        place = places_of(data.kept, data.n_given)
        train, held = (positions[positions >= 0] for positions in (place[train], place[held]))
    if not (len(train) and len(held)):
        raise ValueError(
            "validation_fraction must leave samples of positive weight to train on and to hold "
            f"out, got {len(train)} and {len(held)}"
        )
    return replace(data, split=(train, held))


def _needed(splitter: Any, error: str, data: TrainingData) -> str | None:
    """Return what a splitter that raised an error lacks, and what to give; None if unknown."""
    if data.code.multilabel and "Stratified" in type(splitter).__name__:
        return (
            "class labels, and y holds label sets; give another splitter, or pairs of positions to "
            "train on and to hold out: validation_fraction=[(train, held_out)]"
        )
    if "groups" in error and "groups for any class" not in error:  # which are classes
        return (
            "the groups of the samples; give its pairs: validation_fraction="
            "list(splitter.split(X, y, groups))"
        )
    return None


def _last_pair(pairs: Any, n_samples: int) -> tuple[IntArray, IntArray]:
    """Return the last of some pairs of positions, each part in order."""
    pair: Any = None
    for each in pairs:
        pair = each
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(
            "validation_fraction must be a fraction, 'refit', a splitter, or a list of pairs of "
            f"positions, to train on and to hold out; the last pair is {pair!r}"
        )
    parts = [as_array(part, "each part of a pair of validation_fraction") for part in pair]
    if any(part.ndim != 1 or (part.size and part.dtype.kind not in "iu") for part in parts):
        raise ValueError("positions in the pairs of validation_fraction must be integers")
    train, held = (np.sort(part).astype(np.int64) for part in parts)
    both = np.concatenate([train, held])
    if both.size and (both.min() < 0 or both.max() >= n_samples):
        raise ValueError(
            f"a pair of validation_fraction has positions from {both.min()} to {both.max()}, and X "
            f"has {n_samples} samples"
        )
    if len(np.unique(both)) < len(both):
        raise ValueError("a pair of validation_fraction has a sample twice")
    return train, held
