"""Label codes: how label ids become positions in the output heads.

:class:`MixedRadix` turns ids into one digit a head and back, and finds the best labels from the
heads' scores without ever naming a label that does not exist. :func:`head_lengths` and
:func:`confusion_degree` choose and judge the lengths of the heads, and :func:`label_order` decides
which label stands at which position. Arrays go in, arrays come out; torch is not needed.
"""

from sklearn_xlc.codes._head_lengths import confusion_degree, head_lengths
from sklearn_xlc.codes._label_order import label_order
from sklearn_xlc.codes._mixed_radix import MixedRadix

__all__ = ["MixedRadix", "confusion_degree", "head_lengths", "label_order"]
