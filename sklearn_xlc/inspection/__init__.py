"""Inspection: rank, explain and export fitted estimators, through pipelines and searches."""

from sklearn_xlc.inspection.explaining import Explanation, explain_topk
from sklearn_xlc.inspection.onnx_export import to_onnx
from sklearn_xlc.inspection.topk import LazyTopLabels, TopLabels, predict_topk

__all__ = [
    "Explanation",
    "LazyTopLabels",
    "TopLabels",
    "explain_topk",
    "predict_topk",
    "to_onnx",
]
