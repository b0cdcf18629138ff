"""Decisions: rules from scores, or features, to label sets.

A classifier takes a decision as its parameter `decision`, by name or as an object.
:class:`Threshold` predicts labels above a probability or a score, :class:`TopK` predicts a fixed
number of labels; :class:`Divergence`, :class:`Nearest` and :class:`Seen` compare whole label sets,
and :class:`JointMode` takes the most probable one. :class:`Taxonomy` predicts labels with all
their ancestors. :class:`RiskControl` keeps a risk, guaranteed.
To write a rule of your own, subclass :class:`Decision`. Decisions read arrays, return sparse
indicators, and do not need torch. (scikit-learn's
:class:`~sklearn.model_selection.FixedThresholdClassifier` and
:class:`~sklearn.model_selection.TunedThresholdClassifierCV` wrap binary classifiers only.)
"""

from sklearn_xlc.decisions._base import Decision, LinearLayer
from sklearn_xlc.decisions.divergence import Divergence
from sklearn_xlc.decisions.joint_mode import JointMode
from sklearn_xlc.decisions.nearest import Nearest
from sklearn_xlc.decisions.risk_control import RiskControl
from sklearn_xlc.decisions.seen import Seen
from sklearn_xlc.decisions.taxonomy import Taxonomy
from sklearn_xlc.decisions.threshold import Threshold
from sklearn_xlc.decisions.topk import TopK

#: Decisions by the names that the parameter `decision` takes, in addition to "auto".
DECISIONS: dict[str, type[Decision]] = {
    "threshold": Threshold,
    "topk": TopK,
    "divergence": Divergence,
    "nearest": Nearest,
    "seen": Seen,
    "joint_mode": JointMode,
    "risk_control": RiskControl,
}

__all__ = [
    "DECISIONS",
    "Decision",
    "Divergence",
    "JointMode",
    "LinearLayer",
    "Nearest",
    "RiskControl",
    "Seen",
    "Taxonomy",
    "Threshold",
    "TopK",
]
