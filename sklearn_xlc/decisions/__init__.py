"""Decisions: rules from scores, or features, to label sets.

A classifier takes a decision as its parameter `decision`, by name or as an object.
:class:`Threshold` predicts labels above a probability or a score, :class:`TopK` predicts a fixed
number of labels; :class:`Divergence`, :class:`Nearest` and :class:`Seen` compare whole label sets,
and :class:`JointMode` takes the most probable one. :class:`Calibration` corrects probabilities.
To write your own rule, subclass :class:`Decision`. Decisions read arrays, return sparse indicators,
and do not need torch. (scikit-learn's
:class:`~sklearn.model_selection.FixedThresholdClassifier` and
:class:`~sklearn.model_selection.TunedThresholdClassifierCV` wrap binary classifiers only.)
"""

from sklearn_xlc.decisions._base import Decision, LinearLayer
from sklearn_xlc.decisions.calibration import Calibration
from sklearn_xlc.decisions.divergence import Divergence
from sklearn_xlc.decisions.joint_mode import JointMode
from sklearn_xlc.decisions.nearest import Nearest
from sklearn_xlc.decisions.seen import Seen
from sklearn_xlc.decisions.threshold import Threshold
from sklearn_xlc.decisions.topk import TopK

__all__ = [
    "Calibration",
    "Decision",
    "Divergence",
    "JointMode",
    "LinearLayer",
    "Nearest",
    "Seen",
    "Threshold",
    "TopK",
]
