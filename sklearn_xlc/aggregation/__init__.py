"""Learning from labels of groups: label embeddings, and assignment of labels to samples.

:func:`aggregation` joins :class:`~sklearn_xlc.groups.Groups` and their labels.
:func:`learn_embeddings` learns a vector for each label (Algorithm 1 of EAGLE and variants of it);
:func:`grlr_objective` is its objective. :func:`assign_labels` assigns the labels of a group to its
samples by these vectors (Algorithm 2), :func:`assign_by_scores` by given scores.
:func:`noisy_or_posterior` weighs the samples by the probabilities of a classifier, and
:func:`draw_labels` draws labels from the result. :func:`group_log_likelihood` judges a classifier
by the labels of groups.

The functions visit the possible (sample, label) pairs only: each sample with each label of its
groups. They run in blocks of labels within `working_memory` and do not need torch.
"""

from sklearn_xlc._csr import unit_rows
from sklearn_xlc.aggregation._assignment import assign_by_scores, assign_labels
from sklearn_xlc.aggregation._background import Background, make_background
from sklearn_xlc.aggregation._embeddings import Embeddings, grlr_objective, learn_embeddings
from sklearn_xlc.aggregation._pairs import Aggregation, aggregation
from sklearn_xlc.aggregation._parallel import run_tasks
from sklearn_xlc.aggregation._posterior import (
    EPSILON,
    draw_labels,
    group_log_likelihood,
    noisy_or_posterior,
)
from sklearn_xlc.aggregation._sharing import expected_samples, sharing_rates

__all__ = [
    "Aggregation",
    "Background",
    "Embeddings",
    "aggregation",
    "assign_by_scores",
    "assign_labels",
    "draw_labels",
    "expected_samples",
    "grlr_objective",
    "group_log_likelihood",
    "learn_embeddings",
    "make_background",
    "noisy_or_posterior",
    "sharing_rates",
    "unit_rows",
]
