"""Gradients of a step for callbacks, including gradients of single rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback
from torch import Tensor, nn

from sklearn_xlc.batches import sparse_gradient
from sklearn_xlc.training.optimizer import RowOptimizer


def reads_gradients(observer: Any) -> bool:
    """Return whether a callback or net overrides ``on_grad_computed``."""
    method = type(observer).on_grad_computed
    return method not in (Callback.on_grad_computed, NeuralNet.on_grad_computed)


class CollectedGradients:
    """Gradients of one step; callbacks may change or replace them.

    Callbacks receive parameters with a dense gradient unchanged. In place of any other parameter
    they receive one with only the rows that have a gradient: rows read by a sparse layer or table,
    and chunks of labels of a head with fused updates. The head then collects its gradients here
    instead of updating its weights, and all of them are in memory at once.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._fused: list[tuple[nn.Parameter, slice | Tensor, nn.Parameter]] = []
        self._sparse: list[tuple[nn.Parameter, nn.Parameter]] = []

    def collect(self, parameter: nn.Parameter, rows: slice | Tensor, gradient: Tensor) -> None:
        """Store a gradient; called in place of :meth:`RowOptimizer.update`."""
        self._fused.append((parameter, rows, _some_rows(parameter, rows, gradient)))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield parameters, or their rows with a gradient, by name."""
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        collected = {parameter for parameter, *_ in self._fused}
        for parameter, name in names.items():
            if parameter in collected:
                continue
            if parameter.grad is None or not parameter.grad.is_sparse:
                yield name, parameter
                continue
            parameter.grad = parameter.grad.coalesce()
            rows = parameter.grad.indices()[0]
            own = _some_rows(parameter, rows, parameter.grad.values())
            self._sparse.append((parameter, own))
            yield name, own
        for parameter, _, own in self._fused:
            yield names[parameter], own

    def apply(self, optimizer: RowOptimizer) -> None:
        """Write sparse gradients back to their parameters, and update fused rows."""
        for parameter, own in self._sparse:
            old, new = parameter.grad, own.grad
            if old is not None and new is not None:
                parameter.grad = sparse_gradient(old.indices()[0], new, old.shape, True)
            else:
                parameter.grad = None
        for parameter, rows, own in self._fused:
            if own.grad is not None:
                optimizer.update(parameter, rows, own.grad)


def _some_rows(parameter: nn.Parameter, rows: slice | Tensor, gradient: Tensor) -> nn.Parameter:
    table = torch.atleast_1d(parameter.detach())
    own = nn.Parameter(table[rows].to(gradient.dtype))
    own.grad = gradient.reshape(own.shape)
    return own
