"""Engine: scikit-learn and skorch meet here. Fit, predictions, label code, persistence."""

from sklearn_xlc.engine.base import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode

__all__ = [
    "BaseXLCClassifier",
    "LabelCode",
]
