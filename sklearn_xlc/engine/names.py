"""Classes and functions by name: which ones a saved file may use, and which the user must trust."""

from __future__ import annotations

import pkgutil
import sys
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from skorch.callbacks import Callback
from torch import nn

#: Files of torch.nn.modules whose layers are parameters and plain attributes.
_TORCH_FILES = (
    *("activation", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout"),
    *("flatten", "fold", "instancenorm", "linear", "normalization", "padding", "pixelshuffle"),
    *("pooling", "sparse", "upsampling"),
)
_PREFIXES = (
    *("sklearn.", "sklearn_xlc.", "numpy.", "builtins."),
    *(f"torch.nn.modules.{file}." for file in _TORCH_FILES),
)
#: Parts of scikit-learn's estimators that are no estimators themselves.
_SKLEARN_PARTS = {
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.metrics._scorer._CurveScorer",
    "sklearn.metrics._scorer._MultimetricScorer",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
}
#: Its state is a description: within another one, it would hide what it names.
_NESTED = "sklearn_xlc.engine.described.Described"
#: Functions compute and do nothing else.
_FUNCTIONS = (
    *("sklearn.feature_selection.", "sklearn.metrics."),
    *("sklearn_xlc.metrics.", "sklearn_xlc.encoders.text.words"),
)


def name_of(value: Any) -> str:
    """Full name of a class or function.

    Raises
    ------
    ValueError
        If it cannot be found again by this name.
    """
    name = _own_name(value)
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not value:
        kind = "class" if isinstance(value, type) else "function"
        raise ValueError(
            f"the {kind} {name} cannot be found again by its name; use `def` or `class` "
            "at the top level of a module"
        )
    return name


def is_known(value: Any) -> bool:
    """Whether a class or function needs no trust: it belongs to this package or its relatives."""
    name = _own_name(value)
    if not name.startswith(_PREFIXES) or name == _NESTED:
        return False
    if not isinstance(value, type):
        return isinstance(value, types.FunctionType) and name.startswith(_FUNCTIONS)
    if name.startswith("sklearn_xlc."):
        return _is_plain(value)
    if name.startswith("sklearn.model_selection._split.") or name in _SKLEARN_PARTS:
        return True
    if name.startswith("builtins."):
        return value in (bool, int, float, complex, str, bytes)
    kinds = {"sklearn": BaseEstimator, "torch": nn.Module, "numpy": np.generic}
    return issubclass(value, kinds[name.partition(".")[0]])


def _is_plain(kind: type) -> bool:
    """Whether a class of this package takes a state without reading more from it.

    A net of skorch, for one, has a `__setstate__` that unpickles a part of its state.
    """
    bases = {base.__module__.partition(".")[0] for base in kind.__mro__}
    own = bases <= {"sklearn_xlc", "sklearn", "builtins", "abc", "typing"}
    return own or issubclass(kind, nn.Module | Callback)


class Finder:
    """Finds classes and functions by name, after a check of all of them.

    Parameters
    ----------
    names : iterable of str
        Full names of everything that will be looked for.
    trusted : iterable of class, function or str
        What may be found beyond what is known: itself, or its full name.

    Raises
    ------
    ValueError
        If a name is neither known nor trusted, or there is nothing of this name.
    """

    def __init__(self, names: Iterable[str], trusted: Iterable[Any] = ()) -> None:
        if isinstance(trusted, str | type):
            raise TypeError(f"trusted must be a list of classes and names, got {trusted!r}")
        given = {}
        for item in trusted:
            if not isinstance(item, str) and not hasattr(item, "__qualname__"):
                raise TypeError(f"trusted must hold classes, functions and names, got {item!r}")
            given[item if isinstance(item, str) else _own_name(item)] = item
        self._found: dict[str, Any] = {}
        unknown = []
        for name in names:
            item = given.get(name)
            if item is not None and not isinstance(item, str):
                self._found[name] = item
            elif item is not None or _may_be_known(name):
                self._found[name] = _import(name)
            if item is None and not is_known(self._found.get(name)):
                unknown.append(name)
        if unknown:
            raise ValueError(
                f"it uses {', '.join(unknown)}, which is not part of sklearn_xlc, scikit-learn's "
                f"estimators or torch's layers; if you trust it, pass load(path, trusted={unknown})"
            )

    def find(self, name: str) -> Any:
        """Class or function of a name that was checked."""
        return self._found[name]


def _own_name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', '')}"


def _may_be_known(name: str) -> bool:
    """Whether to import the module of a name; modules of tests run code of their own."""
    parts = name.split(".")
    if parts[0] in ("numpy", "builtins"):
        return len(parts) == 2
    return name.startswith(_PREFIXES) and not {"tests", "conftest", "externals"} & set(parts)


def _import(name: str) -> Any:
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"it uses {name}, which does not exist here ({error})") from error
    own = _own_name(found)
    if own != name:
        raise ValueError(f"it uses {name}, which is no class or function, or another name of {own}")
    return found
