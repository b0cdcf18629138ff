"""Resolved parameters of one fit: parts as objects, and values in place of "auto"."""

from __future__ import annotations

import copy
import html
from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator

from sklearn_xlc._labels import are_texts
from sklearn_xlc._part import Names, Part, cloned, is_auto, name_of_part, named_part, plain
from sklearn_xlc.heads import Loss

#: Parameters left out of settings: parameters without influence on a fit, objects, and rates, which
#: the optimiser's part has unless they were given.
_LEFT_OUT = {
    "callbacks",
    "checkpoint",
    "device",
    "learning_rate",
    "random_state",
    "verbose",
    "warm_start",
    "weight_decay",
}
#: Rates that a classifier hands to its optimiser, with the values for "not given".
RATES = {"learning_rate": "auto", "weight_decay": 0.0}


class Settings:
    """Parameters of one fit, without nested ones; parts are copied, and nothing changes them."""

    def __init__(self, params: Mapping[str, Any], tables: Mapping[str, Names]) -> None:
        self._tables = tables
        self._values = dict(params)
        for name, table in tables.items():
            value = named_part(params[name], table)
            self._values[name] = cloned(value) if isinstance(value, Part) else value

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def flat(self) -> dict[str, Any]:
        """Return all parameters, nested ones included."""
        nested = {
            f"{name}__{key}": value
            for name in self._tables
            for key, value in parameters_in(self._values[name]).items()
        }
        return {**self._values, **nested}

    def replaced(self, found: Mapping[str, Any]) -> Settings:
        """Return settings with other values: parts for names; others unknown to a part are ignored.

        A part with another value is a copy.
        """
        changed = copy.copy(self)
        changed._values = values = dict(self._values)
        for name, value in found.items():
            if "__" not in name:
                values[name] = named_part(value, self._tables.get(name, {}))
        for name, value in found.items():
            owner, delimiter, inner = name.partition("__")
            if delimiter and inner in parameters_in(values[owner]):
                values[owner] = copy.copy(values[owner]).set_params(**{inner: value})
        return changed

    def plain(self) -> dict[str, Any]:
        """Return the settings as numbers, strings, tuples, dicts and None, for `set_params`.

        Other values, such as the user's modules and dicts without string keys, are left out.
        """
        out: dict[str, Any] = {}
        for name, value in self._values.items():
            if name in _LEFT_OUT or is_auto(value):  # "auto": left to the user's head
                continue
            if name in self._tables:
                out |= plain_part(name, value, self._tables[name])
            elif isinstance(value, dict) and are_texts(value):
                out[name] = {key: plain(each) for key, each in value.items()}
            else:
                out |= plain_of({name: value})
        for name, default in RATES.items():
            if self._values[name] != default:  # a rate is given in one place
                out |= plain_of({name: self._values[name], f"optimizer__{name}": None})
        return out


def plain_part(parameter: str, part: Any, names: Names) -> dict[str, Any]:
    """Return name and plain parameters of a part, for `set_params`; None stands for no part.

    A part of the user has no name; "auto" is left to the part. The name of a part with other values
    than plain ones is left out, too: it would stand for a part without them.
    """
    name, params = name_of_part(part, names), parameters_in(part)
    given = {f"{parameter}__{key}": each for key, each in params.items() if not is_auto(each)}
    found = plain_of(given)
    is_named = part is None or (name is not None and len(found) == len(given))
    return {parameter: name, **found} if is_named else found


def parameters_of(classifier: Any) -> dict[str, Any]:
    """Return all parameters of a classifier, without nested ones.

    A subclass may name fewer parameters in its constructor than its base class; the others are
    attributes.
    """
    kinds: Any = [kind for kind in type(classifier).__mro__ if issubclass(kind, BaseEstimator)]
    names = dict.fromkeys(name for kind in kinds for name in kind._get_param_names())
    return {name: getattr(classifier, name) for name in names if hasattr(classifier, name)}


def check_settings(classifier: Any, attributes: dict[str, Any]) -> None:
    """Let the settings tell all of encoder and head; ValueError if they name others."""
    for name in {"encoder", "head"} & classifier._parts.keys():
        part, said = attributes[f"{name}_"], attributes["settings_"].get(name)
        if said not in (None, name_of_part(part, classifier._parts[name])):
            raise ValueError(f"the saved classifier has {part!r}: its settings name another {name}")
        if isinstance(part, Part):  # of an earlier version, which had fewer parameters
            attributes["settings_"] |= plain_part(name, part, classifier._parts[name])


def settings_table(settings: Mapping[str, Any]) -> str:
    """Return an HTML table of settings; empty if there are none."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td>{html.escape(repr(value))}"
        for name, value in sorted(settings.items())
    )
    shown = f"<details><summary>settings_</summary><table>{rows}</table></details>"
    return shown if rows else ""


def parameters_in(part: Any) -> dict[str, Any]:
    """Return the parameters of a part; empty for other objects."""
    return part.get_params(deep=False) if isinstance(part, Part | Loss) else {}


def plain_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are numbers, strings, tuples of these, or None."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = plain(value)
        except TypeError:
            continue
    return found
