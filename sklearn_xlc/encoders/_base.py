"""Base classes of encoders and of their parts."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from typing import Any, ClassVar

from torch import nn

from sklearn_xlc._ids import as_list
from sklearn_xlc._part import Part, called, named_by
from sklearn_xlc.batches import collate

#: Forms of X, as messages name them.
FORMS = {
    "dense": "dense rows of numbers",
    "csr": "CSR rows of numbers",
    "text": "strings",
    "mapping": "a mapping of arrays",
}


class Encoder(nn.Module):
    """Base class of encoders for sparse rows, strings or mappings, or with own learning rates.

    Any other `torch.nn.Module` is an encoder of dense rows; a call on two samples gives its number
    of outputs. A module may also define any of the attributes and methods below without this base
    class.

    Attributes
    ----------
    accepts : collection of {"dense", "csr", "text", "mapping"}, default=("dense",)
        Forms of X that the encoder reads.

        - "dense", "csr": rows of numbers. An encoder that accepts both receives CSR if at most a
          tenth of the entries of X are non-zero, however X is stored.
        - "text": one string per sample (list, Series or array).
        - "mapping": arrays of equal length by name (a dict, or the columns of a data frame).
    n_outputs : int
        Number of features.

    Notes
    -----
    An encoder of strings or mappings whose `forward` reads
    :class:`~sklearn_xlc.batches.SparseRows` may have a method ``vectorize(samples)`` that returns
    CSR rows. Training then calls it once for all samples, in place of `collate` for every batch of
    every epoch, and takes the values of "auto" for sparse rows. If there is a method
    ``fit_vectorize(samples)``, it is called for the training samples of the first `fit`, or of the
    first `partial_fit`; it may learn from them.

    A saved classifier holds the parameters and buffers of its encoder, and builds the module again.
    What else the module learns, such as a vocabulary, it returns from ``get_extra_state``, and
    takes in ``set_extra_state(state)``, two methods of ``torch.nn.Module``.

    Examples
    --------
    An encoder of a weekday and a vector; the embeddings of the weekdays have a low learning rate:

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
        """Convert the samples of a batch to the inputs of :meth:`forward`.

        Inputs are a tensor, an object with a method ``to(device)``, or a list, tuple or dict of
        these. The base class calls :func:`sklearn_xlc.batches.collate`.
        """
        return collate(samples)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return parameters with a learning rate or weight decay of their own.

        Returns
        -------
        groups : list of dict
            Each group has ``params``, an iterable of parameters of the encoder, and ``lr``,
            ``weight_decay`` or both. ``lr`` is the peak rate of the classifier's schedule.
            Parameters outside all groups have the classifier's `learning_rate` and `weight_decay`.
        """
        return []

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with a sparse gradient: a batch uses few of their rows."""
        return []

    def input_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with a separate update rule in "mixed".

        By default those of :meth:`row_parameters`.
        """
        return self.row_parameters()


class EncoderPart(Part):
    """Base class of encoders as parameters: a part checks its values and builds a module.

    A subclass names its parameters in ``__init__``, and sets `module`. It defines :meth:`build`
    where parameters of the module have other names, or come from elsewhere. The class attributes
    `accepts` and `vectorize` of the module say what the encoder reads.

    Attributes
    ----------
    module : type of Module
        Class of the built encoder.
    """

    module: Any
    #: Networks side by side in the module.
    n_members: int = 1
    #: Whether the module can be built without weights, to say how much memory it takes.
    is_planned: ClassVar[bool] = False
    #: Whether the module has a layer `input` that can standardise the columns of dense X.
    standardises: ClassVar[bool] = False

    def reads_sparse(self, is_mostly_zeros: bool) -> bool:
        """Return whether rules for sparse samples hold: by default, if it makes CSR rows."""
        return vectorizes(self)

    @property
    def shown(self) -> Any:
        """Value of `encoder_`."""
        return self

    def build(self, n_features: int | None, sparse: bool) -> nn.Module:
        """Build the module, for CSR rows if `sparse`.

        `n_features` is None where X holds strings or a mapping. By default the module gets these
        arguments and the parameters of the part, as far as its constructor names them.
        """
        given = {"n_features": n_features, "sparse": sparse, **self.get_params(deep=False)}
        return self.module(**named_by(self.module, given))

    def rebuild(self, n_features: int | None, sparse: bool, learnt: Any = None) -> nn.Module:
        """Build the encoder of a saved model, whose tensors are then replaced.

        `learnt` is the result of the module's `get_extra_state`, if it defines this method of
        torch.
        """
        return self.build(n_features, sparse)


class GivenEncoder(EncoderPart):
    """Encoder given as a module, a class or a function.

    Parameters
    ----------
    encoder : Module or callable
        A module, which is copied; or a callable for making one from the number of columns of X
        (without an argument if X holds strings or a mapping).
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    @property
    def module(self) -> Any:  # type: ignore[override]
        """The module, class or function."""
        return self.encoder

    @property
    def shown(self) -> Any:
        # The trained copy of a module is part of the net; the given one would be saved beside it.
        return None if isinstance(self.encoder, nn.Module) else self.encoder

    def build(self, n_features: int | None, sparse: bool) -> nn.Module:
        if isinstance(self.encoder, nn.Module):
            return copy.deepcopy(self.encoder)
        columns = {} if n_features is None else {"n_features": n_features}
        made = called("encoder", self.encoder, columns)
        if not isinstance(made, nn.Module):
            raise TypeError(
                "encoder must be a torch.nn.Module or a function of n_features that returns one, "
                f"but it returned {type(made).__name__}"
            )
        return made


def accepted_forms(encoder: Any) -> tuple[str, ...]:
    """Return the accepted forms of X of an encoder, or of a class or function for making one.

    Parameters
    ----------
    encoder : Module, EncoderPart, class, function or functools.partial
        An encoder, or what makes one. Without an attribute ``accepts``, it reads dense
        rows.

    Returns
    -------
    tuple of str
        Some of "dense", "csr", "text" and "mapping".

    Examples
    --------
    >>> from sklearn_xlc.encoders import MLPEncoder, accepted_forms
    >>> accepted_forms(MLPEncoder)
    ('dense', 'csr')
    """
    accepts = getattr(_maker(encoder), "accepts", Encoder.accepts)
    accepts = tuple(as_list(accepts))
    unknown = [form for form in accepts if form not in FORMS]
    if unknown or not accepts:
        raise ValueError(f"encoder.accepts must name some of {list(FORMS)}, got {list(accepts)}")
    return accepts


def own_collate(encoder: Any) -> Any:
    """Return the method by which an encoder makes batches in its own way; None: it has none."""
    collate = getattr(encoder, "collate", None)
    return None if getattr(collate, "__func__", None) is Encoder.collate else collate


def vectorizes(encoder: Any) -> bool:
    """Return whether an encoder, or a class of encoders, converts samples to CSR rows.

    Parameters
    ----------
    encoder : Module, EncoderPart, class, function or functools.partial
        An encoder, or what makes one.

    Returns
    -------
    bool
        Whether it has a method ``vectorize``.
    """
    return hasattr(_maker(encoder), "vectorize")


def _maker(encoder: Any) -> Any:
    """Return the innermost class or function for making an encoder."""
    if isinstance(encoder, EncoderPart):
        encoder = encoder.module
    while isinstance(encoder, functools.partial):
        encoder = encoder.func
    return encoder
