"""Extreme label classification for scikit-learn: thousands to millions of classes or labels.

Submodules that need no network (`codes`, `datasets`, `metrics`) load without torch; the estimators
load when they are first asked for.
"""

import importlib
from typing import Any

from sklearn_xlc._config import config_context, get_config, set_config
from sklearn_xlc._show_versions import show_versions
from sklearn_xlc._version import __version__

_ESTIMATORS = {
    "AggregatedLabelClassifier": "sklearn_xlc._aggregated_classifier",
    "DFTSigmoidClassifier": "sklearn_xlc._dft_sigmoid",
    "EAGLETransformer": "sklearn_xlc._aggregated",
    "ETFNeuralCollapseClassifier": "sklearn_xlc._neural_collapse",
    "MIMLClassifier": "sklearn_xlc._miml",
    "MultiHeadClassifier": "sklearn_xlc._multi_head",
}

__all__ = [
    "AggregatedLabelClassifier",
    "DFTSigmoidClassifier",
    "EAGLETransformer",
    "ETFNeuralCollapseClassifier",
    "MIMLClassifier",
    "MultiHeadClassifier",
    "__version__",
    "config_context",
    "get_config",
    "set_config",
    "show_versions",
]


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(importlib.import_module(_ESTIMATORS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ESTIMATORS])
