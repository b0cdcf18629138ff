"""Learning from the labels of groups: label embeddings and the assignment of labels to samples.

:func:`aggregation` joins :class:`~sklearn_xlc.groups.Groups` and their labels,
:func:`learn_embeddings` finds a vector for each label (Algorithm 1 of EAGLE, and variants that
discount the background of all samples), and :func:`assign_labels` gives the labels of a group to
its samples (Algorithm 2). The kernels work on the (sample, label) pairs that the groups leave open,
in blocks of labels under a memory limit. Arrays go in, arrays come out; torch is not needed.
"""

from sklearn_xlc._csr import unit_rows
from sklearn_xlc.aggregation._assignment import assign_labels
from sklearn_xlc.aggregation._background import Background, make_background
from sklearn_xlc.aggregation._embeddings import Embeddings, expected_samples, learn_embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, aggregation
from sklearn_xlc.aggregation._scored import assign_by_scores
from sklearn_xlc.aggregation._sharing import sharing_rates

__all__ = [
    "Aggregation",
    "Background",
    "Embeddings",
    "aggregation",
    "assign_by_scores",
    "assign_labels",
    "expected_samples",
    "learn_embeddings",
    "make_background",
    "sharing_rates",
    "unit_rows",
]
