"""What an encoder says of itself: the samples it reads, its width, its learning rates."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from torch import nn

from sklearn_xlc.batches import collate

#: Forms of X, as messages name them.
FORMS = {
    "dense": "dense rows of numbers",
    "csr": "CSR rows of numbers",
    "text": "strings",
    "mapping": "a mapping of arrays",
}


class Encoder(nn.Module):
    """Base of encoders that read more than dense rows, or that have learning rates of their own.

    Any other `torch.nn.Module` is an encoder too: one of dense rows, whose width is seen on two
    samples. An encoder may also have any of the attributes below without this base.

    Attributes
    ----------
    accepts : collection of {"dense", "csr", "text", "mapping"}, default=("dense",)
        Forms of X that the encoder reads.

        - "dense", "csr": rows of numbers. An encoder that accepts both is given CSR where at most
          a tenth of X is not zero, however X is stored.
        - "text": one string a sample (list, Series or array).
        - "mapping": equally long arrays by name (a dict, or the columns of a data frame).
    n_outputs : int
        Number of features.

    See Also
    --------
    MLPEncoder : Encoder of dense and CSR rows.
    TextEncoder : Encoder of strings.

    Examples
    --------
    An encoder of a day's number and a vector, whose embeddings learn slowly:

    >>> import numpy as np
    >>> import torch
    >>> from torch import nn
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.encoders import Encoder
    >>> class DayEncoder(Encoder):
    ...     accepts = ("mapping",)
    ...     n_outputs = 8
    ...
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.day, self.rest = nn.Embedding(7, 8), nn.Linear(3, 8)
    ...
    ...     def parameter_groups(self):
    ...         return [{"params": self.day.parameters(), "lr": 1e-4}]
    ...
    ...     def forward(self, inputs):
    ...         return self.day(inputs["day"]) + self.rest(inputs["rest"])
    >>> rng = np.random.default_rng(0)
    >>> X = {"day": rng.integers(7, size=50), "rest": rng.normal(size=(50, 3))}
    >>> clf = MultiHeadClassifier(encoder=DayEncoder, max_epochs=20, random_state=0)
    >>> clf.fit(X, X["day"]).predict(X).shape
    (50,)
    """

    accepts: Collection[str] = ("dense",)
    n_outputs: int

    def collate(self, samples: Any) -> Any:
        """Inputs of :meth:`forward` from the samples of a batch.

        Parameters
        ----------
        samples : ndarray, CSR matrix, list of str, or dict of arrays
            A few samples of X, in the form that is accepted.

        Returns
        -------
        inputs : object
            Tensors, objects with a method ``to(device)``, or lists, tuples and dicts of such. By
            default those of :func:`sklearn_xlc.batches.collate`.
        """
        return collate(samples)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameters with a learning rate or weight decay of their own.

        Returns
        -------
        groups : list of dict
            Each has ``params``, an iterable of parameters of the encoder, and ``lr``,
            ``weight_decay`` or both. The rate is the peak of the classifier's schedule. Parameters
            that are in no group have the classifier's `learning_rate` and `weight_decay`.
        """
        return []

    def row_parameters(self) -> list[nn.Parameter]:
        """Parameters with a sparse gradient: a batch touches few of their rows."""
        return []


def accepted_forms(encoder: Any) -> tuple[str, ...]:
    """Forms of X that an encoder reads, or that the encoders made by a function or class read.

    Parameters
    ----------
    encoder : Module, class, function or functools.partial
        A function says so by an attribute ``accepts``; without one it is taken to make encoders of
        dense rows.

    Returns
    -------
    tuple of str
        Some of "dense", "csr", "text" and "mapping".

    Raises
    ------
    ValueError
        If ``accepts`` names an unknown form.

    Examples
    --------
    >>> from sklearn_xlc.encoders import MLPEncoder, accepted_forms
    >>> accepted_forms(MLPEncoder)
    ('dense', 'csr')
    """
    while isinstance(encoder, functools.partial):
        encoder = encoder.func
    accepts = getattr(encoder, "accepts", Encoder.accepts)
    accepts = (accepts,) if isinstance(accepts, str) else tuple(accepts)
    unknown = [form for form in accepts if form not in FORMS]
    if unknown or not accepts:
        raise ValueError(f"encoder.accepts must name some of {list(FORMS)}, got {list(accepts)}")
    return accepts
