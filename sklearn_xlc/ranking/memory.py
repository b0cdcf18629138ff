"""Training samples that a ranker remembers: samples in each space with ids, labels and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._ids import as_ids
from sklearn_xlc.ranking.base import Array

#: "samples": dict of arrays and CSR matrices by space, "ids" among them; "labels": CSR; "weights".
Memory = dict[str, Any]


def taken(memory: Memory, index: Any) -> Memory:
    """Return the samples of an index, a mask or a slice."""
    return {
        "samples": {space: X[index] for space, X in memory["samples"].items()},
        "labels": memory["labels"][index],
        "weights": memory["weights"][index],
    }


def joined(before: Memory, more: Memory) -> Memory:
    """Return samples and later ones in the same spaces."""
    samples = before["samples"].items()
    return {
        "samples": {space: _joined(X, more["samples"][space]) for space, X in samples},
        "labels": _joined(before["labels"], more["labels"]),
        "weights": _joined(before["weights"], more["weights"]),
    }


def _joined(above: Any, below: Any) -> Any:
    return (
        sp.vstack([above, below], "csr") if sp.issparse(above) else np.concatenate([above, below])
    )


def without(memory: Memory, ids: Any) -> Memory:
    """Return the samples with other ids; raise ValueError if there is no sample with an id."""
    asked, known = set(as_ids(ids).tolist()), memory["samples"]["ids"].tolist()
    unknown = asked.difference(known)
    if unknown:
        raise ValueError(f"ids of samples that are not remembered: {sorted(unknown, key=str)}")
    return taken(memory, np.array([each not in asked for each in known], dtype=bool))


def with_labels(memory: Memory, origin: Array) -> Memory:
    """Return the samples with changed labels; `origin`: former index of each label, or -1."""
    Y = memory["labels"]
    place = np.full(Y.shape[1], -1)
    place[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
    labels = place[Y.indices]
    ends = np.concatenate([[0], np.cumsum(labels >= 0)])[Y.indptr]
    kept = Y.data[labels >= 0], labels[labels >= 0], ends
    Y = sp.csr_array(kept, shape=(Y.shape[0], len(origin)))
    Y.sort_indices()
    return {**memory, "labels": Y}
