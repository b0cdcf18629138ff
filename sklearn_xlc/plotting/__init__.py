"""Display classes in scikit-learn's manner; they need matplotlib (the `plot` extra) to draw."""

from sklearn_xlc.plotting._argmaxability import ArgmaxabilityDisplay
from sklearn_xlc.plotting._neural_collapse import NeuralCollapseDisplay

__all__ = ["ArgmaxabilityDisplay", "NeuralCollapseDisplay"]
