"""The one place that imports what scikit-learn does not promise to keep."""

from sklearn.base import _fit_context
from sklearn.utils._metadata_requests import _routing_enabled
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.multiclass import _check_partial_fit_first_call
from sklearn.utils.validation import _check_method_params, _check_sample_weight, validate_data

__all__ = [
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
