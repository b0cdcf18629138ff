"""Ranking of dask collections, partition by partition, by models that processes load once.

Nothing of dask is loaded before one of its collections is given.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.engine.files import load
from sklearn_xlc.metrics._scorer import unwrapped
from sklearn_xlc.training.devices import numpy_dtype
from sklearn_xlc.training.heap import memory_kept

#: ``rank(estimator, X, k, proba)`` gives labels and scores of samples in memory.
Rank = Callable[[Any, Any, int, bool], tuple[np.ndarray, np.ndarray]]

#: Models of files that a process keeps; a worker may serve several computations.
KEPT = 4
_loading = threading.Lock()


def is_path(value: Any) -> bool:
    """Whether a model is given by the path of its file."""
    return isinstance(value, str | os.PathLike)


def opened(path: str | os.PathLike[str]) -> Any:
    """Estimator of a file, mapped into memory; loaded once, and anew when the file is replaced."""
    found = os.stat(path)
    with _loading:  # threads that begin together would all load it
        return _mapped(
            os.path.abspath(path), found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
        )


@functools.lru_cache(maxsize=KEPT)
def _mapped(path: str, *version: int) -> Any:
    return load(path, mmap=True)


def is_collection(X: Any) -> bool:
    """Whether X is a collection of dask: who has one has imported dask."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X))


def rank_partitions(rank: Rank, model: Any, X: Any, k: int, proba: bool) -> tuple[Any, Any]:
    """Labels and scores as dask arrays with a chunk for each partition of X.

    One task ranks a partition; both chunks come from it.
    """
    import dask
    import dask.array as da

    estimator = opened(model) if is_path(model) else model
    labels, scores = _types(estimator, check_integer(k, "k"))
    parts, sizes = _parts(X)
    # A path travels with each task, an estimator as a result that all tasks take.
    held = os.path.abspath(model) if is_path(model) else dask.delayed(model, traverse=False)
    ranked = dask.delayed(_rank_part, nout=2, pure=False)
    found = [ranked(rank, held, part, k, proba, labels, scores) for part in parts]
    return tuple(  # type: ignore[return-value]
        da.concatenate(
            [da.from_delayed(one[i], (size, k), dtype) for one, size in zip(found, sizes)]
        )
        for i, dtype in enumerate((labels, scores))
    )


def _parts(X: Any) -> tuple[list[Any], list[float]]:
    """Delayed partitions of a collection, and the number of samples of each; nan: not known."""
    kind = type(X)
    if not (hasattr(kind, "to_delayed") and hasattr(kind, "ndim")):
        raise TypeError(
            "X must be an array, a dataframe or a series of dask, or samples in memory, got a "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    if not hasattr(X, "chunks"):
        parts = list(X.to_delayed())
        return parts, [np.nan] * len(parts)
    if any(number > 1 for number in X.numblocks[1:]):  # a sample is not cut
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    return X.to_delayed().ravel().tolist(), list(X.chunks[0])


def _types(estimator: Any, k: int) -> tuple[np.dtype, np.dtype]:
    """Types of labels and scores before anything is ranked; double where others compute scores."""
    check_is_fitted(estimator)
    found, _ = unwrapped(estimator)
    classes = getattr(found, "classes_", None)
    named = hasattr(found, "predict_topk") or not (
        isinstance(classes, list) or getattr(found, "multilabel_", False)
    )
    if classes is not None and k > len(classes):
        raise ValueError(f"k={k} must be at most the number of labels, {len(classes)}")
    while not hasattr(found, "net_") and hasattr(found, "estimator_"):
        found = found.estimator_
    network = getattr(found, "net_", None)
    scores = np.float64 if network is None else numpy_dtype(network.module_)
    labels = np.int64 if classes is None or not named else np.asarray(classes).dtype
    return np.dtype(labels), np.dtype(scores)


def _rank_part(
    rank: Rank, model: Any, X: Any, k: int, proba: bool, labels: np.dtype, scores: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of a partition, which may be empty."""
    if not X.shape[0]:
        return np.empty((0, k), dtype=labels), np.empty((0, k), dtype=scores)
    with memory_kept():  # workers of dask hand freed memory back at once: half as long again
        found, values = rank(opened(model) if is_path(model) else model, X, k, proba)
    return found, values.astype(scores, copy=False)
