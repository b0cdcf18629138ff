"""Inspection: rank, explain, report and export, for fitted estimators in pipelines and searches."""

from sklearn_xlc.inspection.drift import DriftReport, drift_report
from sklearn_xlc.inspection.explaining import Explanation, explain_topk, remembers_samples
from sklearn_xlc.inspection.onnx_export import to_onnx
from sklearn_xlc.inspection.reporting import LabelReport, label_report
from sklearn_xlc.inspection.topk import LazyTopLabels, TopLabels, predict_topk

__all__ = [
    "DriftReport",
    "Explanation",
    "LabelReport",
    "LazyTopLabels",
    "TopLabels",
    "drift_report",
    "explain_topk",
    "label_report",
    "predict_topk",
    "to_onnx",
]
