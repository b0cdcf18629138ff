"""Parts: parameters of an estimator with parameters of their own, given by name or as objects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import clone as cloned  # noqa: F401 - also for heads, which know no sklearn
from sklearn.utils.validation import _is_fitted

from sklearn_xlc._bounds import is_word
from sklearn_xlc._compat import LinksToDocs, is_number

#: Parts of a parameter by name: classes, or functions without arguments.
Names = Mapping[str, Callable[[], Any]]

#: How to search where only some of the parts have a parameter.
_SEARCH = "a search over several parts is a list of dicts, one for each part"

#: Names of the parameters of each class.
_NAMES: WeakKeyDictionary[type, list[str]] = WeakKeyDictionary()


def sets_state(function: Callable[[Any, Any], Any]) -> Any:
    """Decorate a function of an object and its saved state: ValueError if that is damaged."""

    @functools.wraps(function)
    def checked(owner: Any, state: Any) -> Any:
        try:
            return function(owner, state)
        except (AssertionError, AttributeError, LookupError, TypeError) as error:
            what = f"{type(owner).__name__} is damaged: {type(error).__name__}: {error}"
            raise ValueError(f"the saved {what}") from error

    return checked


def check_parameters(owner: BaseEstimator, attributes: Mapping[str, Any]) -> None:
    """Raise ValueError if the saved attributes of an object lack a parameter."""
    kind = type(owner)
    for name in kind._get_param_names():
        if name not in attributes and not isinstance(getattr(kind, name, None), property):
            raise ValueError(f"the saved {kind.__name__} is damaged: it lacks {name}")


def check_parts(owner: Any, parts: Mapping[str, Names]) -> None:
    """Raise ValueError or TypeError if one of the parts of an estimator is not valid."""
    for name, names in parts.items():
        part = named_part(getattr(owner, name), names)
        if is_class(part, Part):
            kind = part.__name__
            raise TypeError(f"{name}={kind} is a class of parts: give an object, {name}={kind}()")
        if isinstance(part, Part):
            part.check()


def is_class(value: Any, of: type) -> bool:
    """Return whether a value is a class, `of` or one below it."""
    return isinstance(value, type) and issubclass(value, of)


def called(name: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call the user's function that is the parameter `name`; TypeError if it takes others."""
    try:
        signature = inspect.signature(make)
    except ValueError:  # of some compiled functions
        return make(*arguments.values())
    try:
        signature.bind(*arguments.values())
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function of ({', '.join(arguments)}), got one of {signature}: "
            f"{error}"
        ) from None
    return make(*arguments.values())


def named_by(make: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that a constructor names, in its order.

    One with ``**kwargs`` passes on what the constructor of its base names.
    """
    names: dict[str, Any] = {}
    for kind in getattr(make, "__mro__", [make]):
        parameters = inspect.signature(kind).parameters
        names |= parameters
        if all(each.kind != each.VAR_KEYWORD for each in parameters.values()):
            break
    return {name: values[name] for name in names if name in values}


class HasParts(BaseEstimator):
    """Base class of estimators with parts: nested parameters, also where a part is a name."""

    #: Parts by name, for each parameter that takes names.
    _parts: ClassVar[Mapping[str, Names]] = {}

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also of parts.

        Parameters
        ----------
        **params : dict
            Parameters. ``part__name`` sets a parameter of a part; the name of a part is first
            replaced by an object.

        Returns
        -------
        self : object
            The estimator.

        Raises
        ------
        ValueError
            If there is no such parameter, or the part is "auto" or None.
        """
        return super().set_params(**nested_parts(self, self._parts, params))


class Part(LinksToDocs, HasParts):
    """Base class of parts: parameters and their constraints.

    A part follows scikit-learn's rules for estimators: `__init__` only stores its parameters, as
    clones and searches need it.

    Attributes
    ----------
    in_repr : tuple of str, default=()
        Fitted attributes in the `repr`, after the parameters: numbers, arrays by their range, and
        parts.
    """

    _parameter_constraints: dict[str, list[Any]] = {}
    in_repr: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Return the names of the parameters.

        The signature is read once: reading it at every call took a tenth of a small fit.
        """
        if cls not in _NAMES:
            _NAMES[cls] = BaseEstimator._get_param_names.__func__(cls)  # type: ignore[attr-defined]
        return list(_NAMES[cls])

    def check(self) -> None:
        """Raise ValueError if a parameter is not valid."""
        self._validate_params()

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        check_parameters(self, state)
        super().__setstate__(state)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        names = self.in_repr if _is_fitted(self) else ()
        fitted = {name: _brief(getattr(self, name, None)) for name in names}
        numbers = ", ".join(f"{name}={value}" for name, value in fitted.items() if value)
        return f"{text}: {numbers}" if numbers else text


def _brief(value: Any) -> str:
    """Return a number, the range of an array, or a part as text; "" for other values."""
    if is_number(value):
        return f"{value:.4g}"
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.size and value.dtype.kind == "f":
        return f"{value.min():.4g} to {value.max():.4g}"
    return repr(value) if isinstance(value, Part) else ""


class Parameters:
    """Parameter methods for a class other than a BaseEstimator, such as a torch module."""

    _get_param_names = vars(Part)["_get_param_names"]
    get_params = BaseEstimator.get_params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, by calling the constructor again."""
        unknown = sorted(params.keys() - set(self._get_param_names()))
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no parameter of {type(self).__name__}, which has "
                f"{self._get_param_names()}"
            )
        type(self).__init__(self, **{**self.get_params(deep=False), **params})
        return self


def nested_parts(
    estimator: BaseEstimator, tables: Mapping[str, Names], params: dict[str, Any]
) -> dict[str, Any]:
    """Replace the name of a part by an object if `params` has nested parameters of it.

    Parameters
    ----------
    estimator : estimator
        Owner of the parameters.
    tables : dict of str to dict
        Parts by name, for each parameter.
    params : dict
        Arguments of `set_params`.

    Returns
    -------
    dict
        Arguments for :meth:`sklearn.base.BaseEstimator.set_params`.

    Raises
    ------
    ValueError
        If the parameter is None or no name in `tables`, or the part has no such parameter.
    """
    asked: dict[str, list[str]] = {}
    for key in params:
        name, delimiter, inner = key.partition("__")
        if delimiter and name in estimator._get_param_names():
            asked.setdefault(name, []).append(inner.partition("__")[0])
    made = {}
    for name, inside in asked.items():
        value, names = params.get(name, getattr(estimator, name)), tables.get(name, {})
        if is_word(value, *names):
            made[name] = value = names[value]()
        elif value is None or isinstance(value, str):
            others = f"one of {sorted(names)}, or to an object" if names else "an object"
            raise ValueError(
                f"{name}__{inside[0]} sets a parameter of a part, but {name}={value!r} has none; "
                f"set {name} to {others}, in the same call; {_SEARCH}"
            )
        has_any = hasattr(value, "get_params") and not isinstance(value, type)
        known = value.get_params(deep=True) if has_any else {}
        unknown = [each for each in inside if each not in known]
        if unknown:
            raise ValueError(
                f"{name}={value!r} has no parameter {unknown[0]!r}, but {sorted(known)}; {_SEARCH}"
            )
    return {**params, **made}


def named_part(value: Any, names: Names) -> Any:
    """Make the part with a name; return other values unchanged."""
    return names[value]() if is_word(value, *names) else value


def is_auto(value: Any) -> bool:
    """Return whether a value, which may be an array, is "auto"."""
    return is_word(value, "auto")


def name_of_part(part: Any, names: Names) -> str | None:
    """Return the name of a part's class; None if it has none."""
    return next((name for name, kind in names.items() if type(part) is kind), None)


def refuse_unusable(part: Any, reasons: Mapping[str, str]) -> None:
    """Raise ValueError if an unusable parameter is not at its default.

    Parameters
    ----------
    part : estimator
        Part or estimator.
    reasons : dict of str to str
        Unusable parameters by name, with the end of a sentence that says why.

    Raises
    ------
    ValueError
        If a parameter in `reasons` is not at its default.
    """
    defaults = inspect.signature(type(part)).parameters
    for name in filter(defaults.__contains__, reasons):
        value, default = getattr(part, name), defaults[name].default
        if value is default or (default is not None and np.ndim(value) == 0 and value == default):
            continue
        raise ValueError(
            f"{name}={value!r} cannot be used {reasons[name]}; leave it at its default, {default!r}"
        )


def plain(value: Any) -> Any:
    """Return a parameter as a number, string, None, or tuple of these.

    Raises
    ------
    TypeError
        If the parameter has another type.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and len(value) <= 100:
        return tuple(value.tolist())
    raise TypeError(f"{type(value).__name__} is not plain")


def joined_signature(own: Any, of_base: Any) -> inspect.Signature:
    """Return the signature of a constructor; the base's parameters replace `**parameters`."""
    signature, base = inspect.signature(own), inspect.signature(of_base)
    parameters = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
    if len(parameters) == len(signature.parameters):
        return signature
    names = {p.name for p in parameters}
    inherited = [
        p.replace(kind=p.KEYWORD_ONLY) for name, p in base.parameters.items() if name not in names
    ]
    return signature.replace(parameters=[*parameters, *inherited])
