"""Metrics of ranked predictions over large label spaces, and of the geometry of features.

Every metric of a ranking takes ``(y_true, y_pred, k=5)`` and returns a float. Truth and prediction
may be dense or sparse, and a prediction may also be the label ids that ``predict_topk`` returns:
nothing of the size ``(n_samples, n_labels)`` is made unless the caller brings it.

========  ==================================================================================
argument  accepted
========  ==================================================================================
y_true    indicator of 0 and 1, dense or any SciPy sparse format, ``(n_samples, n_labels)``;
          or the integer class ids of a multi-class problem, ``(n_samples,)``
y_pred    *floating* scores, ``(n_samples, n_labels)``; minus infinity means "not ranked"
y_pred    *sparse* scores, ``(n_samples, n_labels)``, of any number type: entries that are not
          stored are not ranked, stored ones are, whatever their value (log-probabilities too)
y_pred    *integer* array of label ids, best first, ``(n_samples, >=k)``; -1 names no label
========  ==================================================================================

Equal scores are ranked by label id, smaller first. Samples without any true label count as zero, as
in the tools of the extreme classification repository.

:func:`neural_collapse` measures features and a classifier, :func:`soft_label_mass` probabilities.
For predicted label sets use scikit-learn's own metrics, which accept CSR indicators: `f1_score`,
`accuracy_score` (subset accuracy) and `jaccard_score` with ``average="samples"`` (set IoU).
"""

from sklearn_xlc.metrics._aggregated import aggregated_precision_at_k
from sklearn_xlc.metrics._collapse import neural_collapse, soft_label_mass
from sklearn_xlc.metrics._propensity import propensities, psndcg_at_k, psp_at_k
from sklearn_xlc.metrics._ranking import (
    coverage_at_k,
    f1_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)
from sklearn_xlc.metrics._scorer import cross_val_topk, topk_scorer

__all__ = [
    "aggregated_precision_at_k",
    "coverage_at_k",
    "cross_val_topk",
    "f1_at_k",
    "ndcg_at_k",
    "neural_collapse",
    "precision_at_k",
    "propensities",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "soft_label_mass",
    "topk_scorer",
]
