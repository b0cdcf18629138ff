"""Weights of classes and labels in the loss, from the parameter `class_weight`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sklearn_xlc._bounds import is_number
from sklearn_xlc._checks import plain
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.label_counts import label_counts
from sklearn_xlc.heads import (
    Head,
    Loss,
    WeightedPointwiseLoss,
    inverse_propensities,
    with_label_weight,
)


def class_weights(class_weight: Any, code: LabelCode, rows: Rows) -> np.ndarray:
    """Compute the weight of each label id (n_labels,) by a dict of names or a rule."""
    if isinstance(class_weight, Mapping):
        return _by_name(class_weight, code)
    counts, n_samples = label_counts(rows.Y, rows.sample_weight)
    if class_weight == "propensity":
        return inverse_propensities(counts, n_samples).numpy()
    # For class labels this is the formula of scikit-learn: n_samples / (n_classes * counts).
    occurring = counts > 0
    balanced = counts.sum() / (occurring.sum() * counts)
    return torch.where(occurring, balanced, 1.0).numpy()


def check_weights_of_part(class_weight: Any) -> None:
    """Raise ValueError if weights need all labels: `partial_fit` sees only a part of the data."""
    if isinstance(class_weight, str):
        raise ValueError(
            f"class_weight={class_weight!r} is computed from all labels, of which partial_fit sees "
            "a part; give a dict of weights by label"
        )


def _by_name(class_weight: Mapping[Any, Any], code: LabelCode) -> np.ndarray:
    ids = {name: i for i, name in enumerate(code.classes.tolist())}
    weights = np.ones(code.n_labels)
    for name, weight in class_weight.items():
        if not (is_number(weight) and 0 <= weight < np.inf):
            raise ValueError(
                f"class_weight must map labels to finite numbers from zero on, got {weight!r} for "
                f"the label {plain(name)!r}"
            )
        if name in ids:
            weights[ids[name]] = weight
    unknown = [plain(name) for name in class_weight if name not in ids]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        known = ", ".join(repr(name) for name in list(ids)[:3])
        warnings.warn(
            f"class_weight names labels that y does not have: {unknown[:3]}{more}; labels of y are "
            f"named like {known}",
            UserWarning,
            stacklevel=2,
        )
    return weights


def weigh_samples(class_weight: Any, rows: Rows, code: LabelCode) -> Rows:
    """Multiply sample weights by class weights, if y is class labels."""
    if class_weight is None or code.multilabel:
        return rows
    of_samples = rows.Y.astype(np.float64) @ class_weights(class_weight, code, rows)
    weight = of_samples if rows.sample_weight is None else of_samples * rows.sample_weight
    return replace(rows, sample_weight=weight)


def weigh_labels(class_weight: Any, head: Head, rows: Rows, code: LabelCode) -> None:
    """Set the label weights of the loss of a head, if samples have label sets."""
    loss = getattr(head, "criterion", None)
    if not (code.multilabel and isinstance(loss, Loss)):
        if code.multilabel and class_weight is not None:
            raise ValueError(
                f"class_weight needs the loss of {type(head).__name__} as its attribute `criterion`"
            )
        return
    weights = None
    if class_weight is not None:
        if not type(head).accepts(WeightedPointwiseLoss, True):
            raise ValueError(
                f"class_weight is not defined for label sets by {type(head).__name__}, whose "
                "outputs are no labels; use another head, such as 'flat', or sample_weight"
            )
        by_id = torch.from_numpy(class_weights(class_weight, code, rows))
        weights = code.by_position(by_id, 1.0).to(next(head.parameters(), torch.zeros(())))
    head.criterion = with_label_weight(loss, weights)
