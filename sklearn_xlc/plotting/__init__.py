"""Display classes in the style of scikit-learn; drawing needs matplotlib (the `plot` extra).

An argument of an invalid type, shape or value raises a `TypeError` or `ValueError` that names it.
"""

from sklearn_xlc.plotting._argmaxability import ArgmaxabilityDisplay
from sklearn_xlc.plotting._head_accuracy import HeadAccuracyDisplay
from sklearn_xlc.plotting._label_frequency import LabelFrequencyDisplay
from sklearn_xlc.plotting._label_map import LabelMapDisplay
from sklearn_xlc.plotting._neural_collapse import NeuralCollapseDisplay
from sklearn_xlc.plotting._reliability import ReliabilityDisplay
from sklearn_xlc.plotting._threshold import ThresholdDisplay
from sklearn_xlc.plotting._training_curve import TrainingCurveDisplay

__all__ = [
    "ArgmaxabilityDisplay",
    "HeadAccuracyDisplay",
    "LabelFrequencyDisplay",
    "LabelMapDisplay",
    "NeuralCollapseDisplay",
    "ReliabilityDisplay",
    "ThresholdDisplay",
    "TrainingCurveDisplay",
]
