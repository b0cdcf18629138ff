"""Check what a loaded ranker has learnt and remembers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sklearn_xlc.ranking.memory import check_memory
from sklearn_xlc.ranking.trees import check_trees

#: Largest log odds of scores of zero and one.
_MOST = 1e9


def check_loaded(ranker: Any, left_out: Collection[str] = ()) -> None:
    """Raise ValueError if a loaded :class:`BoostedRanker` would rank wrong, or fail later.

    Retrievers in `left_out` are not yet fitted.
    """
    ranker.check()
    check_memory(ranker.memory_)
    if "calibration_" in vars(ranker):
        with np.errstate(all="ignore"):
            odds = [ranker.line_(0.0), ranker.line_(1.0), ranker.calibration_(0.0)]
        is_usable = (np.abs(odds) < _MOST).all() and 0 <= ranker.network_share_ <= 1
        if not is_usable or not {"trees_", "estimator_"} <= vars(ranker).keys():
            raise ValueError("a saved ranker maps scores to log odds that are not finite")
    if ranker.trees_ is not None:
        check_trees(ranker.trees_)
    for name in ("n_seen_", "n_indexed_", "n_learnt_", "n_labels_"):
        if type(vars(ranker).get(name, 0)) is not int:
            raise ValueError(f"{name} of a saved ranker is no integer")
    n_samples, n_labels = ranker.memory_["labels"].shape
    for name, most in (("log_counts_", 50), ("propensities_", 1)):
        is_known = ranker.retrievers_ is not None
        values: Any = vars(ranker).get(name) if is_known else np.ones(n_labels)
        fits = isinstance(values, np.ndarray) and values.shape == (n_labels,)
        if not (fits and values.dtype.kind == "f" and (np.clip(values, 0, most) == values).all()):
            raise ValueError(f"{name} of a saved ranker are no {n_labels} numbers up to {most}")
    for name, found in ranker.indexes_.items():
        rows = np.asarray(found["rows"])
        if rows.ndim != 1 or rows.dtype.kind != "i" or (rows % max(1, n_samples) != rows).any():
            raise ValueError(f"the saved index {name!r} holds samples that are not remembered")
    fitted = [each for name, each in ranker.retrievers_ or () if name not in left_out]
    for each in fitted:
        own = [(vars(each)[name], axis) for name, axis in each._of_labels]
        if any(of is not None and of.shape[axis] != n_labels for of, axis in own):
            raise ValueError(f"a saved {each!r} knows other labels than its ranker")
