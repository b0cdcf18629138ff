"""Learning from the labels of groups: label embeddings and the assignment of labels to rows.

:func:`aggregation` brings groups and their labels into one structure, :func:`learn_embeddings`
finds a vector for each label (Algorithm 1 of EAGLE, and variants that discount what all rows have
in common), and :func:`assign_labels` gives the labels of a group to its rows (Algorithm 2). All of
it works on the (row, label) pairs that the groups leave open, in blocks of labels under a memory
limit. Arrays go in, arrays come out; torch is not needed.
"""

from sklearn_xlc.aggregation._assignment import assign_labels
from sklearn_xlc.aggregation._background import Background, make_background
from sklearn_xlc.aggregation._embeddings import Embeddings, expected_rows, learn_embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, aggregation
from sklearn_xlc.aggregation._products import unit_rows
from sklearn_xlc.aggregation._scored import assign_by_scores
from sklearn_xlc.aggregation._sharing import sharing_rates

__all__ = [
    "Aggregation",
    "Background",
    "Embeddings",
    "aggregation",
    "assign_by_scores",
    "assign_labels",
    "expected_rows",
    "learn_embeddings",
    "make_background",
    "sharing_rates",
    "unit_rows",
]
