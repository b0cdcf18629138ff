"""Label embeddings of bags, for the attention of :class:`~sklearn_xlc.MIMLClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.validation import check_numbers
from sklearn_xlc.estimators.eagle import EAGLETransformer
from sklearn_xlc.groups import Groups


def embeddings_of_bags(
    attention: Any, rows: Rows, multiplicity: str, memory_limit: int, seed: int
) -> np.ndarray:
    """Learn the label embeddings of bags.

    Parameters
    ----------
    attention : {"eagle", "mean"} or EAGLETransformer
        As in :class:`~sklearn_xlc.MIMLClassifier`.
    rows : Rows
        Bags of samples.
    multiplicity : {"top", "ignore"}
        Meaning of numbers above one, where `attention` is a name; so too the others:
    memory_limit : int
        Limit in bytes of the working storage.
    seed : int
        Seed of the embeddings.

    Returns
    -------
    ndarray of shape (n_labels, n_features)

    Raises
    ------
    ValueError, MemoryError
        If samples are not rows of numbers, or the embeddings would exceed the dense limit.
    """
    check_numbers(rows.X, "attention other than attention=None")
    n_labels, n_features = rows.Y.shape[1], rows.X.shape[1]
    check_dense_size((n_labels, n_features), rows.X.dtype, "attention=None")
    if isinstance(attention, str):
        eagle = EAGLETransformer(
            multiplicity=multiplicity, memory_limit=memory_limit, random_state=seed
        )
        if attention == "mean":
            eagle.set_params(n_iter=0, n_components=0)
    else:
        eagle = clone(attention)
    n_samples = rows.X.shape[0]
    assert rows.bags is not None
    groups = Groups(np.arange(n_samples), rows.bags, None, n_samples)
    embeddings = eagle.fit(rows.X, rows.Y, groups).label_embeddings_
    embeddings = embeddings.toarray() if sp.issparse(embeddings) else embeddings
    return np.ascontiguousarray(embeddings, dtype=rows.X.dtype)
