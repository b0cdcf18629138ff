"""States of estimators as JSON and NumPy arrays, for ways of saving that know no torch: skops."""

from __future__ import annotations

import copy
import functools
import json
import pkgutil
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from torch import nn

from sklearn_xlc._compat import LinksToDocs
from sklearn_xlc._files import Streamed, versions, warn_of_versions
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.engine.names import is_known
from sklearn_xlc.engine.object_tree import describe, rebuild

_FORMAT = 1


class Described:
    """Attributes that pickle stores as they are, and skops as JSON and NumPy arrays.

    Who saves an estimator cannot be told from the call of `__getstate__`, but pickle asks the
    parts of a state for `__reduce__`, and skops for `__getstate__`. skops must be told to trust
    this class; classes of the user are handed to it as such, so that it asks for them, too.

    Parameters
    ----------
    parts : dict of str to object
        Attributes.
    seal : callable, default=None
        Returns the checksums that a pickle holds, too, under the name "_seal".
    """

    def __init__(self, parts: dict[str, Any], seal: Callable[[], Any] | None = None) -> None:
        self.parts, self._seal = parts, seal

    def __reduce__(self) -> tuple[Any, ...]:
        seal = {} if self._seal is None else {"_seal": self._seal()}
        return dict, (self.parts | seal,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Described:
        return Described(copy.deepcopy(self.parts, memo))  # a copy needs no checksums

    def __getstate__(self) -> dict[str, Any]:
        document, arrays = describe(self.parts)
        found = [pkgutil.resolve_name(name) for name in document["names"]]
        return {
            "format": _FORMAT,
            "versions": versions(),
            "document": json.dumps(document),
            "arrays": {name: _plain(array) for name, array in arrays.items()},
            "trusted": [item for item in found if not is_known(item)],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if (found := state.get("format")) != _FORMAT:
            raise ValueError(
                f"the saved classifier has format {found}; this version of sklearn_xlc reads "
                f"{_FORMAT}"
            )
        warn_of_versions("the saved classifier", state["versions"])
        # Names would be taken for classes that the user trusts.
        if not all(isinstance(item, type | FunctionType) for item in state["trusted"]):
            raise ValueError("the saved classifier is not valid: it trusts what is no class")
        try:
            document = json.loads(state["document"])
        except RecursionError:
            raise ValueError("the saved classifier is not valid: it is nested too deeply") from None
        with usual_modes(training=True):
            parts = rebuild(document, state["arrays"], state["trusted"])
        self.__init__(parts)  # type: ignore[misc]


class DescribedStateMixin(LinksToDocs):
    """State of an estimator that pickle, skops and `save` each store in their way."""

    def _full_state(self) -> dict[str, Any]:
        """Attributes to save, as `save` describes them, in an order that copies keep."""
        return dict(sorted(super().__getstate__().items()))  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return split_state(self._full_state())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(joined_state(self, state))  # type: ignore[misc]


def split_state(state: dict[str, Any], seal: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Move attributes of classes other than scikit-learn's and NumPy's into a `Described`."""
    parts = {name: value for name, value in state.items() if _needs_description(value)}
    rest = {name: value for name, value in state.items() if name not in parts}
    if "_metadata_request" in rest:  # it holds the estimator, which skops would never finish
        rest["_requests"] = rest.pop("_metadata_request")._serialize()
    return rest | ({"_parts": Described(parts, seal)} if parts else {})


def joined_state(estimator: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Reverse :func:`split_state`; a full state stays as it is."""
    state = dict(state)
    parts = state.pop("_parts", {})
    if requests := state.pop("_requests", {}):
        made = estimator._get_metadata_request()
        for method, of_method in requests.items():
            for name, alias in of_method.items():
                getattr(made, method).add_request(param=name, alias=alias)
        state["_metadata_request"] = made
    return state | (parts.parts if isinstance(parts, Described) else parts)


def _needs_description(value: Any) -> bool:
    """Whether an attribute is, or holds, an object of this package, of skorch or of torch."""
    if isinstance(value, functools.partial):
        return _needs_description((value.func, value.args, value.keywords))
    if isinstance(value, dict | list | tuple):
        return any(map(_needs_description, value.values() if isinstance(value, dict) else value))
    kind = value if isinstance(value, type | FunctionType) else type(value)
    described = kind.__module__.partition(".")[0] in ("sklearn_xlc", "skorch", "torch")
    return described or isinstance(value, nn.Module | np.memmap | np.dtype)


def _plain(array: np.ndarray | Streamed) -> np.ndarray:
    return array.array() if isinstance(array, Streamed) else np.asarray(array)
