"""Decisions: how scores, or features, become label sets.

A classifier takes one as its parameter `decision`, by name or as an object. :class:`Threshold` cuts
at a probability or a score, :class:`TopK` takes a number of labels, :class:`Divergence`,
:class:`Nearest` and :class:`Seen` compare whole label sets. A rule of your own is a subclass of
:class:`Decision`. Arrays go in, sparse indicators come out; torch is not needed.
"""

from sklearn_xlc.decisions._base import Decision, LinearLayer
from sklearn_xlc.decisions.divergence import Divergence
from sklearn_xlc.decisions.nearest import Nearest
from sklearn_xlc.decisions.seen import Seen
from sklearn_xlc.decisions.threshold import Threshold
from sklearn_xlc.decisions.topk import TopK

__all__ = ["Decision", "Divergence", "LinearLayer", "Nearest", "Seen", "Threshold", "TopK"]
