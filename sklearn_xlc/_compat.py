"""Private names of scikit-learn, imported in one place."""

import importlib
import math
import os
from collections.abc import Iterable
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import _fit_context as fit_context
from sklearn.multiclass import _ConstantPredictor as ConstantPredictor
from sklearn.utils._metadata_requests import _routing_enabled as routing_enabled
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils.metaestimators import _BaseComposition as Composition
from sklearn.utils.multiclass import _check_partial_fit_first_call as check_partial_fit_first_call
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight as weights_of_sklearn
from sklearn.utils.validation import validate_data

#: Variable of the environment with the address of the documentation, where it is published.
DOCS = "SKLEARN_XLC_DOCS"


class LinksToDocs:
    """Base of estimators whose HTML representation links to their page in the documentation.

    The pages are those of the address in `DOCS`, otherwise of a site built in this checkout.
    Without either, and for classes without a page, there is no link.
    """

    _doc_link_module = "sklearn_xlc"
    _doc_link_template = "{link}"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        built = Path(__file__).parents[1] / "docs" / "_build" / "html"
        site = os.environ.get(DOCS) or (built.as_uri() if built.is_dir() else "")
        page = _public_name(type(self))
        return {"link": f"{site.rstrip('/')}/generated/{page}.html" if site and page else ""}


def _public_name(cls: type) -> str:
    """Name under which a class of the package is offered; empty if it is not."""
    top, room, *_ = cls.__module__.split(".")
    for name in (top, f"{top}.{room}"):
        if cls.__name__ in getattr(importlib.import_module(name), "__all__", ()):
            return f"{name}.{cls.__name__}"
    return ""


#: Integral or Real for Python, and not what NumPy computes with.
_NO_NUMBERS = (bool, np.bool_, np.timedelta64, Fraction)


def is_number(value: Any, kind: Any = Real) -> bool:
    """Return whether a value is a number of a kind; True, a fraction and a duration are none."""
    return isinstance(value, kind) and not isinstance(value, _NO_NUMBERS)


class Interval(_Interval):
    """Interval of numbers, in which True and infinity are none, and integers have 64 bits."""

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str) -> None:
        if type is Integral and right is None:
            right, closed = 2**63 - 1, "both" if closed in ("left", "both") else "right"
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value lies in the interval."""
        if not is_number(val) or not super().is_satisfied_by(val):
            return False
        return abs(int(val)) < 2**64 if isinstance(val, Integral) else math.isfinite(val)


#: Constraints of a parameter `n_jobs`; 0 means nothing to joblib, and each job is a thread.
N_JOBS = [
    None,
    Interval(Integral, -(2**15), -1, closed="both"),
    Interval(Integral, 1, 2**15, closed="both"),
]
#: Constraints of a parameter that is a classifier with scores.
CLASSIFIER = [HasMethods(["fit", "predict_proba"]), HasMethods(["fit", "decision_function"])]
#: Constraints of a parameter `random_state`.
RANDOM_STATE = [Interval(Integral, 0, 2**32 - 1, closed="both"), np.random.RandomState, None]


def imported(name: str, message: str) -> Any:
    """Import a package that is not required; ImportError with a message on how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(message) from error


def import_text(name: str) -> Any:
    """Import a package of the extra ``text``; ImportError says how to install it."""
    return imported(name, str(missing(name)))


def without_surrogates(texts: Iterable[str]) -> list[str]:
    """Return texts for a tokenizer of tokenizers, which raises at halves of surrogate pairs."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]


def missing(name: str) -> ImportError:
    """Return the error for a missing package of the extra ``text``."""
    return ImportError(
        f"the package {name} is missing; install the extra text: pip install sklearn-xlc[text]"
    )
