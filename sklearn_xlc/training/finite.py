"""Refuse a step before it leaves a weight, a moment or a running statistic that is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: Buffers of up to so many numbers are taken for running statistics, which a forward pass moves;
#: larger ones are constants, such as pretrained tables, which no step copies.
STATISTICS_SIZE = 2**16


def largest(dtype: torch.dtype) -> float:
    """Norm that no features, gradient or move of a weight may reach.

    Squares of smaller numbers are finite, and fewer than 1e19 moves cannot add up to infinity.
    """
    return torch.finfo(dtype).max ** 0.5


def running_statistics(module: nn.Module) -> list[Tensor]:
    """Finite buffers that a forward pass may move, such as those of batch normalisation."""
    small = [buffer for buffer in module.buffers() if 0 < buffer.numel() <= STATISTICS_SIZE]
    return [buffer for buffer in small if buffer.isfinite().all()]


def check_forward(features: Any, statistics: Sequence[Tensor]) -> None:
    """Raise FloatingPointError if features, or statistics that they have moved, are too large."""
    _check_norm(getattr(features, "features", features), "features")  # bags hold instances'
    for buffer in statistics:
        if buffer.is_floating_point():
            _check_norm(buffer, "running statistics of the encoder")


def _check_norm(values: Tensor, what: str) -> None:
    norm = float(torch.linalg.vector_norm(values.detach()))
    if not norm < largest(values.dtype):
        raise FloatingPointError(f"the norm of the {what} became {norm:.2g}")


def check_weights(module: nn.Module) -> None:
    """Raise ValueError if training has left a weight that is not finite, or a buffer with NaN.

    A buffer may hold infinities of its own, such as the mask of an attention.
    """
    trained = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
    for name, values in [*module.named_parameters(), *module.named_buffers()]:
        if not values.is_floating_point() or not values.numel():
            continue
        low, high = torch.aminmax(values.detach())  # NaN if any value is
        if low.isnan() or (id(values) in trained and (low.isinf() or high.isinf())):
            raise ValueError(
                f"training has left a value that is not finite in {name}: lower learning_rate or "
                "scale X"
            )
