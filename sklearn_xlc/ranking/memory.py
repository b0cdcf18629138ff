"""Memory of a ranker: samples in each space with ids, labels and weights."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import moved_columns
from sklearn_xlc._ids import as_ids, holds_booleans
from sklearn_xlc.ranking.base import Array

#: "samples": dict of arrays and CSR matrices by space, "ids" among them; "labels": CSR; "weights".
Memory = dict[str, Any]

#: Share of an array that is allocated beyond it, for samples to come.
_SPARE = 0.125
_claiming = threading.Lock()


class _Room(np.ndarray):
    """Room for growing arrays; `n_used`: entries in use by one of them."""

    n_used = 0


def taken(memory: Memory, index: Any) -> Memory:
    """Return the samples of an index, a mask or a slice."""
    return _each(lambda X: X[index], memory)


def joined(before: Memory, more: Memory) -> Memory:
    """Return samples and later ones in the same spaces."""
    return _each(joined_rows, before, more)


def _each(function: Callable[..., Any], *memories: Memory) -> Memory:
    """Apply a function to the arrays of memories, space by space, and to labels and weights."""
    samples, *others = (memory["samples"] for memory in memories)
    spaces = {space: function(X, *(each[space] for each in others)) for space, X in samples.items()}
    beside = {key: function(*(each[key] for each in memories)) for key in ("labels", "weights")}
    return {"samples": spaces, **beside}


def joined_rows(above: Any, below: Any) -> Any:
    """Return two arrays or CSR matrices, one below the other; a large `above` is rarely copied."""
    if sp.issparse(above) != sp.issparse(below):  # a batch may have fewer zeros than others
        below = sp.csr_array(below) if sp.issparse(above) else below.toarray()
    if not sp.issparse(above):
        return _appended(above, below)
    n_entries = above.nnz, below.nnz
    if above.indices.dtype != below.indices.dtype or sum(n_entries) > np.iinfo(np.int32).max:
        return sp.vstack([above, below], "csr")
    parts = [(X.data[:n], X.indices[:n]) for X, n in zip((above, below), n_entries)]
    data, indices = (_appended(*both) for both in zip(*parts))
    ends = np.concatenate([above.indptr, below.indptr[1:] + above.indptr[-1]])
    return sp.csr_array((data, indices, ends), shape=(len(ends) - 1, above.shape[1]))


def _appended(above: Array, below: Array) -> Array:
    """Concatenate arrays, in the room behind the first one unless another array grew into it."""
    if above.dtype != below.dtype or above.shape[1:] != below.shape[1:]:
        return np.concatenate([above, below])
    room: Any = above
    n_more, stop = len(below), -1
    while getattr(room, "base", None) is not None:
        room = room.base
    with _claiming:
        if isinstance(room, _Room) and room.size and room.strides == above.strides:
            start = (above.ctypes.data - room.ctypes.data) // room.strides[0]
            if start + len(above) == room.n_used <= len(room) - n_more:
                stop = room.n_used
                room.n_used += n_more
    if stop < 0:
        start, stop = 0, len(above)
        n_all = stop + n_more
        room = _Room((n_all + int(_SPARE * n_all), *above.shape[1:]), above.dtype)
        room[:stop], room.n_used = above, n_all
    room[stop : stop + n_more] = below
    return np.asarray(room)[start : stop + n_more]


def last(memory: Memory, n: int) -> Memory:
    """Return the last n samples, in the same memory."""
    return _each(lambda X: _last(X, n), memory)


def _last(X: Any, n: int) -> Any:
    if not sp.issparse(X):
        return X[len(X) - n :]
    first = X.indptr[X.shape[0] - n]
    ends = X.indptr[X.shape[0] - n :] - first
    return sp.csr_array((X.data[first:], X.indices[first:], ends), shape=(n, X.shape[1]))


def without(memory: Memory, ids: Any) -> Memory:
    """Return the samples with other ids; raise ValueError if there is no sample with an id."""
    if holds_booleans(ids):
        raise ValueError("ids must be ids of samples, got booleans; give ids[mask]")
    asked, known = set(as_ids(ids).tolist()), memory["samples"]["ids"].tolist()
    unknown = asked.difference(known)
    if unknown:
        raise ValueError(
            f"ids of samples that are not remembered: {sorted(unknown, key=str)}; an id is an "
            f"entry of the index of X or y in fit, else a position, such as {known[:1]}"
        )
    return taken(memory, np.array([each not in asked for each in known], dtype=bool))


def with_labels(memory: Memory, origin: Array) -> Memory:
    """Return the samples with changed labels; `origin`: former index of each label, or -1."""
    return {**memory, "labels": moved_columns(memory["labels"], origin)}


def check_memory(memory: Memory) -> None:
    """Raise ValueError unless there are as many labels, weights and rows in each space."""
    found: Any = [memory.get(key) for key in ("samples", "labels", "weights")]
    samples, labels, weights = found
    if not (isinstance(samples, dict) and "ids" in samples and sp.issparse(labels)):
        raise ValueError("what a saved ranker remembers has no samples, ids or labels")
    if not (labels.data == 1).all():
        raise ValueError("a saved ranker remembers labels other than zeros and ones")
    n_samples = labels.shape[0]
    for name, values in [*samples.items(), ("weights", weights)]:
        shape = getattr(values, "shape", ())
        is_flat = name in ("ids", "keys", "weights")
        if len(shape) != (1 if is_flat else 2) and name != "given" or shape[:1] != (n_samples,):
            raise ValueError(
                f"a saved ranker remembers {name} of shape {shape}, and labels of {n_samples} "
                "samples"
            )
        if name not in ("ids", "given") and values.dtype.kind not in "biuf":
            raise ValueError(f"a saved ranker remembers {name} of type {values.dtype}")
    if not np.isfinite(weights).all():
        raise ValueError("a saved ranker remembers weights that are not finite")
