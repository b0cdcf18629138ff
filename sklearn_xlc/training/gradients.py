"""Gradients of a step as callbacks see them, those included that no parameter holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback
from torch import Tensor, nn

from sklearn_xlc.training.optimizer import RowOptimizer


def reads_gradients(observer: Any) -> bool:
    """Whether a callback, or a net, has an ``on_grad_computed`` of its own."""
    method = type(observer).on_grad_computed
    return method not in (Callback.on_grad_computed, NeuralNet.on_grad_computed)


class CollectedGradients:
    """Gradients of one step, which callbacks may change in place or replace.

    Parameters that torch gives a dense gradient are passed to callbacks as they are. Of others the
    callbacks see a parameter that holds only the rows with a gradient: rows that a sparse layer or
    a table read, and chunks of labels of a head that would update itself. For such a step the head
    hands its gradients over instead, and they are all held at once.

    Parameters
    ----------
    module : Module
        Module that is trained.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._fused: list[tuple[nn.Parameter, slice | Tensor, nn.Parameter]] = []
        self._sparse: list[tuple[nn.Parameter, nn.Parameter]] = []

    def collect(self, parameter: nn.Parameter, rows: slice | Tensor, gradient: Tensor) -> None:
        """Take a gradient in place of :meth:`RowOptimizer.update`."""
        self._fused.append((parameter, rows, _some_rows(parameter, rows, gradient)))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters, or those of their rows that have a gradient, by name."""
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
        """Put the gradients of rows where the optimiser's step finds them; update fused rows."""
        for parameter, own in self._sparse:
            old, new = parameter.grad, own.grad
            if old is not None and new is not None:
                parameter.grad = torch.sparse_coo_tensor(
                    old.indices(), new, old.shape, is_coalesced=True, check_invariants=False
                )
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
