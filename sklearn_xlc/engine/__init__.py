"""Engine: scikit-learn and skorch meet here. Fit, predictions, label code, persistence."""

from sklearn_xlc.engine.base import BaseXLCClassifier
from sklearn_xlc.engine.columns import scaled, scales_of
from sklearn_xlc.engine.deciding import compares_sets
from sklearn_xlc.engine.files import load
from sklearn_xlc.engine.label_code import LabelCode, SoftLabels, code_of
from sklearn_xlc.engine.predictor import PREDICT_BATCH, predictor_of, samples_of, truth_of
from sklearn_xlc.engine.ranker import can_rank, in_use, read_of, remembers
from sklearn_xlc.engine.resolve import (
    SMALL_DATA,
    WIDTH,
    Facts,
    Task,
    choose_head,
    choose_max_active,
)
from sklearn_xlc.engine.settings import Settings
from sklearn_xlc.engine.state import PlainState
from sklearn_xlc.engine.validation import (
    TrainingData,
    check_numbers,
    check_texts,
    model_dtype,
    named_labels,
    training_data,
)

__all__ = [
    "BaseXLCClassifier",
    "LabelCode",
]
