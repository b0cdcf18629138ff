"""Counts of labels by weight, and weights of labels in the loss from `class_weight`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sklearn_xlc._compat import is_number
from sklearn_xlc._csr import FEW_ENTRIES, row_blocks
from sklearn_xlc._labels import plain
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.heads import (
    Head,
    Loss,
    WeightedPointwiseLoss,
    inverse_propensities,
    with_label_weight,
)

#: Lower bound of label frequencies in the first scores of a head.
RARE = 1e-6


def frequency(Y: Any, sample_weight: np.ndarray | None) -> torch.Tensor:
    """Compute the weighted frequency of each label, of shape (n_labels,)."""
    weight = _weights(Y) if sample_weight is None else mean_one(sample_weight)
    # Whole numbers above one are counts that only label embeddings read.
    at_most = np.inf if Y.dtype.kind == "f" else 1
    share = _sums_by_label(Y, weight, at_most, total=weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def label_counts(Y: Any, sample_weight: np.ndarray | None) -> tuple[torch.Tensor, float]:
    """Count the samples with each label, (n_labels,), and all samples, by weight."""
    weight = _weights(Y) if sample_weight is None else sample_weight
    # Bags may count labels; soft labels are below one.
    return torch.from_numpy(_sums_by_label(Y, weight, at_most=1)), float(weight.sum())


def _weights(Y: Any) -> np.ndarray:
    """Return ones for all samples, in the memory of a single number."""
    return np.broadcast_to(np.float64(1), Y.shape[0])


def _sums_by_label(Y: Any, weight: np.ndarray, at_most: float, total: float = 1.0) -> np.ndarray:
    """Sum weight / total times entry over the samples of each label, in their order.

    By blocks: a sparse product would hold nine bytes an entry beside Y, which may be mapped.
    """
    sums = np.zeros(Y.shape[1])
    for rows in row_blocks(Y.shape[0], 1 + Y.nnz // max(1, Y.shape[0]), FEW_ENTRIES):
        part = Y[rows]
        of_entry = np.repeat(weight[rows] / total, np.diff(part.indptr))
        # One pass: a sum of sums by block would be rounded differently.
        np.add.at(sums, part.indices.astype(np.intp), of_entry * np.minimum(part.data, at_most))
    return sums


def mean_one(sample_weight: np.ndarray) -> np.ndarray:
    """Scale positive weights to a mean of one, in float64.

    Weights of 1e37 or 1e-40 then train as ones do: they are scaled before they become float32.
    """
    relative = sample_weight.astype(np.float64) / sample_weight.max()
    return relative / relative.mean()


# --- the parameter `class_weight` ----------------------------------------------------------------


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
    given = {plain(name): weight for name, weight in class_weight.items()}
    for name, weight in given.items():
        if not (is_number(weight) and 0 <= weight < np.inf):
            raise ValueError(
                f"class_weight must map labels to finite numbers from zero on, got {weight!r} for "
                f"the label {name!r}"
            )
        if name in ids:
            weights[ids[name]] = weight
    unknown = [name for name in given if name not in ids]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        known = ", ".join(repr(name) for name in list(ids)[:3])
        warn(
            f"class_weight names labels that y does not have: {unknown[:3]}{more}; labels of y are "
            f"named like {known}"
        )
    return weights


def weigh_samples(class_weight: Any, rows: Rows, code: LabelCode) -> tuple[Rows, float]:
    """Multiply sample weights by class weights, if y is class labels.

    Also return the mean class weight of the samples of positive weight, divided by that of all
    classes. The batches of a stream differ in it.
    """
    if class_weight is None or code.multilabel:
        return rows, 1.0
    of_classes = class_weights(class_weight, code, rows)
    of_samples = rows.Y.astype(np.float64) @ of_classes
    given = 1.0 if rows.sample_weight is None else rows.sample_weight
    weight = of_samples * given
    if not weight.any():
        raise ValueError(f"class_weight={class_weight!r} leaves no sample of positive weight")
    mean = np.average(of_samples, weights=mean_one(given * (of_samples > 0)))
    return replace(rows, sample_weight=weight), float(mean / of_classes.mean())


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
