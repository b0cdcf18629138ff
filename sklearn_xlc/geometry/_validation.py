"""Validation of assignments and linear layers."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import (
    as_array,
    check_equal,
    check_indicator,
    check_numbers,
    check_sparse,
    without_tensor,
)
from sklearn_xlc._csr import FloatArray
from sklearn_xlc._tags import NamedSets, named_sets, numbers_columns


class LinearLayer(NamedTuple):
    """Weights of shape (n_labels, n_features) and biases of shape (n_labels,)."""

    coef: FloatArray
    intercept: FloatArray

    @property
    def is_cone(self) -> bool:
        """Whether no label has a bias: the regions are cones, which are easier to decide."""
        return not self.intercept.any()


def check_assignments(y: Any, name: str, n_labels: int | None = None) -> sp.csr_array:
    """Validate assignments; return a canonical CSR indicator, one row for a single assignment."""
    if not sp.issparse(y):
        y = as_array(y, name)
        y = y[None, :] if y.ndim == 1 else y
    sets = check_indicator(y, name)
    if sets.shape[1] == 0:
        raise ValueError(f"{name} must have at least one label, got shape {sets.shape}")
    if n_labels is not None:
        check_equal("labels", **{name: sets.shape[1], "the weights (coef)": n_labels})
    return sets


def named_assignments(model: Any, Y: Any, known: bool = True) -> NamedSets | None:
    """Read label sets with the names of a model's labels; None if Y has none, or none that count.

    With `known` columns are in the order of `classes_`, and other labels are refused.
    """
    classes, tags = getattr(model, "classes_", None), getattr(model, "_kind_of_tags", None)
    if numbers_columns(model) and len(getattr(Y, "columns", ())) > 1:
        return None
    given = classes if known else None
    as_tags = None if tags is None else tags == "i"
    named = named_sets(Y, given, "Y", needs_tags=False, as_tags=as_tags)
    if named is not None and np.ndim(classes) != 1:  # type: ignore[arg-type]
        raise ValueError(
            f"Y holds names of labels, but a {type(model).__name__} has no classes_ to compare "
            "them with: pass an indicator with one column per row of the weights"
        )
    return named


def check_assignment(y: Any) -> sp.csr_array:
    """Validate a single assignment; return a canonical CSR indicator of one row."""
    sets = check_assignments(y, "y")
    if sets.shape[0] != 1:
        raise ValueError(f"y must be one assignment, got {sets.shape[0]} rows")
    return sets


def check_layer(coef: Any, intercept: Any) -> LinearLayer:
    """Validate weights and biases: arrays, a fitted linear estimator, or a torch linear layer."""
    found = _layer_of_object(coef)
    if found is not None:
        if intercept is not None:
            raise ValueError("intercept must be None if coef is a model, which has its own biases")
        coef, intercept = found
    coef, intercept = without_tensor(coef, "coef"), without_tensor(intercept, "intercept")
    if sp.issparse(coef):
        coef = check_sparse(coef, "coef").toarray()
    weights = check_numbers(coef, "coef", dtype=np.float64, order="C")
    biases = as_array(0.0 if intercept is None else intercept, "intercept")
    biases = np.repeat(biases, len(weights)) if biases.size == 1 else biases
    biases = check_numbers(biases, "intercept", ensure_2d=False, dtype=np.float64)
    check_equal("labels", coef=weights.shape[:1], intercept=biases.shape)
    return LinearLayer(weights, biases)


def _layer_of_object(model: Any) -> tuple[Any, Any] | None:
    """Return weights and biases of an estimator or a module; None if it is array-like."""
    match model:
        case type():
            raise TypeError(f"coef must be an array or a fitted model, got the class {model!r}")
        case object(__array__=_):
            return None
        case object(weight=weights):
            return weights, getattr(model, "bias", None)
        case object(output_biases_=biases, output_weights_=weights):
            return weights, biases
        case object(max_active_=_, output_weights_=weights):
            return weights, None
        case object(coef_=weights):
            return weights, getattr(model, "intercept_", None)
        case object(estimators_=estimators):
            return _stacked(estimators)
        case object(steps=_):
            raise ValueError(
                "coef must be an array or a fitted linear model, not a pipeline: pass its last "
                "step, pipeline[-1]"
            )
        case object(fit=_):
            raise ValueError(
                f"coef must be an array or a fitted linear model: {type(model).__name__} has "
                "neither coef_ nor estimators_; is it fitted, and linear?"
            )
    return None


def _stacked(estimators: Any) -> tuple[FloatArray, FloatArray]:
    """Return weights and biases of binary classifiers, a row each."""
    parts = [_row_of_binary(estimator) for estimator in estimators]
    n_features = max((len(row) for row, _ in parts), default=0)
    rows = [row if len(row) else np.zeros(n_features) for row, _ in parts]
    if any(len(row) != n_features for row in rows):
        raise ValueError(
            "coef must be a model with the same features for all labels, but the estimators in "
            f"estimators_ have {sorted({len(row) for row in rows})} features"
        )
    return np.stack(rows), np.array([bias for _, bias in parts])


def _row_of_binary(estimator: Any) -> tuple[FloatArray, float]:
    """Return weights and bias of a binary classifier; an empty row and +-1 if it is constant."""
    if hasattr(estimator, "coef_"):
        weights = estimator.coef_
        weights = weights.toarray() if sp.issparse(weights) else np.asarray(weights)
        if weights.size == weights.shape[-1]:
            bias = np.asarray(getattr(estimator, "intercept_", 0.0)).reshape(-1)[0]
            return weights.reshape(-1).astype(np.float64), float(bias)
    elif hasattr(estimator, "y_"):
        # scikit-learn's constant classifier for a label of no sample, or of every sample.
        return np.zeros(0), 1.0 if np.any(estimator.y_) else -1.0
    raise ValueError(
        "every estimator in estimators_ must be a binary linear classifier with coef_ of shape "
        f"(1, n_features), got {type(estimator).__name__}"
    )
