"""Gather models held in parts by several processes."""

from __future__ import annotations

import contextlib
import copy
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

from sklearn_xlc._config import setting

#: While all processes read models together, those that hold parts of these; else None.
_SHARED: ContextVar[list[Any] | None] = ContextVar("shared", default=None)


def gather(estimator: Any) -> Any:
    """Copy an estimator fitted by several processes, with all weights in each copy.

    After a fit over processes each one holds the output weights of its part of the labels, and all
    of them predict together. The copies are estimators of one process: each predicts, saves and
    explains on its own. All processes call this function. Of estimators that one process has
    fitted it returns a copy, too.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier, or a Pipeline or search that holds one.

    Returns
    -------
    estimator : estimator
        Copy with whole weights, without the optimiser's state.

    Raises
    ------
    ConnectionError
        If another process has ended, or does not call it.

    Examples
    --------
    >>> import sklearn_xlc
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> clf = sklearn_xlc.MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> whole = sklearn_xlc.distributed.gather(clf)
    >>> bool((whole.predict(X) == clf.predict(X)).all())
    True
    """
    with reading_together():
        return copy.deepcopy(estimator)


def reading_together() -> contextlib.AbstractContextManager[list[Any]]:
    """Read the states of models with all weights; list the processes of models in parts.

    The list stays empty if no model is held in parts. All processes read the same.
    """
    return setting(_SHARED, [])


def gathered(head: Any, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return tensors as arrays with the rows of all processes; a collective call."""
    shards, shared = head.sharded_parameters(), _SHARED.get()
    if shards and shared is None:
        size = next(iter(shards.values())).processes.size
        raise ValueError(
            f"each of {size} processes holds the weights of some labels, and this one "
            "those of its own: sklearn_xlc.save stores them all if all processes call it, and "
            "sklearn_xlc.distributed.gather(estimator) gives each process all of them"
        )
    found = {}
    for name, tensor in tensors.items():
        whole = tensor.detach()
        if shared is not None and tensor in shards:
            shared.append(shards[tensor].processes)
            whole = shards[tensor].joined(whole)
        whole = whole.float() if whole.dtype == torch.bfloat16 else whole  # unknown to NumPy
        found[name] = whole.cpu().numpy()
    return found
