"""Engine: scikit-learn and skorch meet here. Fitting, prediction, label code, persistence."""

from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode

__all__ = ["BaseXLCClassifier", "LabelCode"]
