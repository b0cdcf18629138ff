"""Losses with a weight of each label's positives."""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from torch import Tensor

from sklearn_xlc.heads.losses import Labels, Loss, PointwiseLoss, RowwiseLoss


class _LabelWeighted(Loss, ABC):
    r"""Loss with a weight of each label, by position.

    The weight w of label l multiplies the loss of l in samples with l; the loss of l in other
    samples stays. With soft target y the loss of a logit is
    :math:`w y \ell_1(z) + (1 - y) \ell_0(z)`.
    """

    per_label = True
    label_weight: Tensor
    loss: Any

    def __init__(self, loss: Loss, label_weight: Tensor) -> None:
        super().__init__()
        self.loss, self.link = loss, loss.link  # type: ignore[misc]
        self.register_buffer("label_weight", label_weight)

    def fit(self, label_counts: Tensor, n_samples: float) -> None:
        """Fit the loss."""
        self.loss.fit(label_counts, n_samples)


class WeightedPointwiseLoss(_LabelWeighted, PointwiseLoss):
    """Pointwise loss with label weights on the positives."""

    def prior(self, frequency: Tensor) -> Tensor:
        weighted = self.label_weight.to(frequency) * frequency
        return self.loss.prior(weighted / (weighted + 1 - frequency))

    def shared(self, weights: Tensor, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss.shared(weights, rows, targets)

    def negative(self, logits: Tensor) -> Tensor:
        return self.loss.negative(logits)

    def negative_derivative(self, logits: Tensor) -> Tensor:
        return self.loss.negative_derivative(logits)

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        return self.label_weight[labels] * self.loss.positive(logits, labels)

    def correction(self, logits: Tensor, targets: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        weight = self.label_weight[labels]
        value, slope = self.loss.correction(logits, targets, labels)
        more = (weight - 1) * targets
        value = weight * value + more * self.loss.negative(logits)
        return value, weight * slope + more * self.loss.negative_derivative(logits.clone())


class WeightedRowwiseLoss(_LabelWeighted, RowwiseLoss):
    """Row-wise loss with label weights on the positives."""

    @property
    def smoothing(self) -> float:  # type: ignore[override]
        return self.loss.smoothing

    def prior(self, frequency: Tensor) -> Tensor:
        weighted = self.label_weight.to(frequency) * frequency
        return self.loss.prior(weighted * (frequency.sum() / weighted.sum()))

    def value(self, surprise: Tensor, margin: Tensor) -> Tensor:
        return self.loss.value(surprise, margin)

    def derivative(self, surprise: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
        return self.loss.derivative(surprise, margin)

    def share(
        self, weights: Tensor, rows: Tensor, targets: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        return self.loss.share(weights, rows, targets) * self.label_weight[labels]


def with_label_weight(loss: Loss, label_weight: Tensor | None) -> Loss:
    """Return a loss with label weights (n_labels,) on positives, in place of present weights."""
    plain = loss.loss if isinstance(loss, _LabelWeighted) else loss
    if label_weight is None:
        return plain
    kind = WeightedRowwiseLoss if plain.needs_normaliser else WeightedPointwiseLoss
    return kind(plain, torch.clone(label_weight))
