"""Label codes: labels as digits, one digit per output head.

:class:`MixedRadix` converts label ids to digits and back, and finds the best labels from the scores
of the heads; :class:`LabelBlocks` does the same for label sets. :func:`head_lengths` chooses the
lengths of the heads, :func:`confusion_degree` measures how many labels share a digit, and
:func:`label_order` assigns a position to each label. All functions work on arrays, without torch.
"""

from sklearn_xlc.codes._head_lengths import MAX_HEADS, confusion_degree, head_lengths
from sklearn_xlc.codes._label_blocks import LabelBlocks
from sklearn_xlc.codes._label_order import balanced_split, compact_rows, label_order
from sklearn_xlc.codes._mixed_radix import MixedRadix

__all__ = [
    "LabelBlocks",
    "MAX_HEADS",
    "MixedRadix",
    "confusion_degree",
    "head_lengths",
    "label_order",
]
