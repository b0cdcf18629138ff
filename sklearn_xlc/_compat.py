"""The one place that imports what scikit-learn does not promise to keep."""

import math
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._metadata_requests import _routing_enabled
from sklearn.utils._param_validation import HasMethods, Options, StrOptions
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils.multiclass import _check_partial_fit_first_call
from sklearn.utils.validation import _check_method_params, validate_data
from sklearn.utils.validation import _check_sample_weight as _weights_of_sklearn

__all__ = [
    "N_JOBS",
    "RANDOM_STATE",
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "_check_method_params",
    "_check_partial_fit_first_call",
    "_check_sample_weight",
    "_fit_context",
    "_routing_enabled",
    "validate_data",
]


def _check_sample_weight(*args: Any, **kwargs: Any) -> np.ndarray:
    """Check weights as scikit-learn does, whose older versions accept weights that are all zero."""
    weight = _weights_of_sklearn(*args, **kwargs)
    if len(weight) and not weight.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


class Interval(_Interval):
    """Interval of numbers, in which True and infinity are none, and integers have 64 bits."""

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str) -> None:
        if type is Integral and right is None:
            right, closed = 2**63 - 1, "both" if closed in ("left", "both") else "right"
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value lies in the interval."""
        if isinstance(val, bool | np.bool_) or not super().is_satisfied_by(val):
            return False
        return abs(int(val)) < 2**64 if isinstance(val, Integral) else math.isfinite(val)


#: Constraints of a parameter `n_jobs`; 0 means nothing to joblib, and each job is a thread.
N_JOBS = [
    None,
    Interval(Integral, -(2**15), -1, closed="both"),
    Interval(Integral, 1, 2**15, closed="both"),
]
#: Constraints of a parameter `random_state`.
RANDOM_STATE = [Interval(Integral, 0, 2**32 - 1, closed="both"), np.random.RandomState, None]
