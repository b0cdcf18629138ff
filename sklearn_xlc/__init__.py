"""Extreme label classification for scikit-learn: thousands to millions of classes or labels.

Submodules that need no network (`codes`, `datasets`, `metrics`) load without torch; the estimators,
`save`, `load`, `compress`, `to_onnx`, `predict_topk`, `explain_topk` and `label_report` come when
they are first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sklearn_xlc._config import config_context, get_config, set_config, show_versions

if TYPE_CHECKING:
    from sklearn_xlc import distributed
    from sklearn_xlc.engine.files import compress, load, save
    from sklearn_xlc.estimators.aggregated_label import AggregatedLabelClassifier
    from sklearn_xlc.estimators.dft_sigmoid import DFTSigmoidClassifier
    from sklearn_xlc.estimators.eagle import EAGLETransformer
    from sklearn_xlc.estimators.miml import MIMLClassifier
    from sklearn_xlc.estimators.multi_head import MultiHeadClassifier
    from sklearn_xlc.estimators.neural_collapse import ETFNeuralCollapseClassifier
    from sklearn_xlc.estimators.sentence_vectorizer import SentenceVectorizer
    from sklearn_xlc.estimators.text_columns import TextColumns
    from sklearn_xlc.inspection import explain_topk, label_report, predict_topk, to_onnx

__version__ = "0.1.0.dev0"

_LAZY = {
    "AggregatedLabelClassifier": "sklearn_xlc.estimators.aggregated_label",
    "DFTSigmoidClassifier": "sklearn_xlc.estimators.dft_sigmoid",
    "EAGLETransformer": "sklearn_xlc.estimators.eagle",
    "ETFNeuralCollapseClassifier": "sklearn_xlc.estimators.neural_collapse",
    "MIMLClassifier": "sklearn_xlc.estimators.miml",
    "MultiHeadClassifier": "sklearn_xlc.estimators.multi_head",
    "SentenceVectorizer": "sklearn_xlc.estimators.sentence_vectorizer",
    "TextColumns": "sklearn_xlc.estimators.text_columns",
    "compress": "sklearn_xlc.engine.files",
    "explain_topk": "sklearn_xlc.inspection",
    "label_report": "sklearn_xlc.inspection",
    "load": "sklearn_xlc.engine.files",
    "predict_topk": "sklearn_xlc.inspection",
    "save": "sklearn_xlc.engine.files",
    "to_onnx": "sklearn_xlc.inspection",
}

__all__ = [
    "AggregatedLabelClassifier",
    "DFTSigmoidClassifier",
    "EAGLETransformer",
    "ETFNeuralCollapseClassifier",
    "MIMLClassifier",
    "MultiHeadClassifier",
    "SentenceVectorizer",
    "TextColumns",
    "__version__",
    "compress",
    "config_context",
    "distributed",
    "explain_topk",
    "get_config",
    "label_report",
    "load",
    "predict_topk",
    "save",
    "set_config",
    "show_versions",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    if name == "distributed":
        return importlib.import_module("sklearn_xlc.distributed")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
