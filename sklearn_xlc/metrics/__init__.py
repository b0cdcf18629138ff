"""Metrics of ranked predictions over large label spaces, and of the geometry of features.

Every ranking metric takes ``(y_true, y_pred, k=5)`` and returns a float. True and predicted labels
may be dense or sparse; `y_pred` may also hold label ids from ``predict_topk``. No metric builds an
array of shape ``(n_samples, n_labels)`` unless an argument has this shape.

========  ==================================================================================
argument  accepted
========  ==================================================================================
y_true    indicator of 0 and 1, dense or any SciPy sparse format, ``(n_samples, n_labels)``;
          or the integer class ids of a multi-class problem, ``(n_samples,)``
y_pred    *floating* scores, ``(n_samples, n_labels)``; minus infinity means "not ranked"
y_pred    *sparse* scores, ``(n_samples, n_labels)``, of any number type: all stored entries are
          ranked, also negative ones (such as log probabilities); entries not stored are not
y_pred    *integer* array of label ids, best first, ``(n_samples, >=k)``; -1 names no label
========  ==================================================================================

Equal scores are ranked by label id, smaller first. Samples without true labels count as zero, as in
the tools of the Extreme Classification Repository. An argument of an invalid type, shape or value
raises a `TypeError` or `ValueError` that names the argument and the row.

:func:`neural_collapse` evaluates features and a classifier, :func:`expected_calibration_error` and
:func:`soft_label_mass` evaluate probabilities. :func:`label_set_score` evaluates predicted label
sets by scikit-learn's metrics, in all forms of y.
"""

from sklearn_xlc.metrics._aggregated import aggregated_precision_at_k
from sklearn_xlc.metrics._best_labels import best_labels, classes_of, truth_and_best
from sklearn_xlc.metrics._calibration import (
    calibration_error,
    check_calibration,
    expected_calibration_error,
    reliability,
)
from sklearn_xlc.metrics._collapse import neural_collapse, soft_label_mass
from sklearn_xlc.metrics._label_sets import (
    check_label_sets,
    label_set_score,
    label_set_scorer,
)
from sklearn_xlc.metrics._propensity import propensities, psndcg_at_k, psp_at_k
from sklearn_xlc.metrics._ranking import (
    coverage_at_k,
    f1_at_k,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
    recall_at_k,
)
from sklearn_xlc.metrics._scorer import (
    all_scores,
    beyond_others,
    cross_val_topk,
    get_scorer,
    innermost,
    rank,
    scores_of_ones,
    topk_scorer,
    topk_scorers,
    true_labels,
    unwrapped,
)
from sklearn_xlc.metrics._taxonomy import ancestors_of, pairs_with_ancestors, plain_parents
from sklearn_xlc.metrics._validation import (
    check_labels,
    check_ranking,
    check_weight,
    refuse_tags,
)

__all__ = [
    "aggregated_precision_at_k",
    "coverage_at_k",
    "cross_val_topk",
    "expected_calibration_error",
    "f1_at_k",
    "get_scorer",
    "label_set_score",
    "label_set_scorer",
    "ndcg_at_k",
    "neural_collapse",
    "precision_at_k",
    "propensities",
    "psndcg_at_k",
    "psp_at_k",
    "r_precision_at_k",
    "recall_at_k",
    "soft_label_mass",
    "topk_scorer",
    "topk_scorers",
]
