"""Steps of the default network without autograd.

Autograd, module calls and gradients of parameters take half a millisecond a step, however small the
batch. A step of a perceptron with one hidden layer under a flat head calls the same kernels by
:meth:`MLPEncoder.backward`, in the same order. The weights are equal to the last bit.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from skorch.callbacks import (
    EarlyStopping,
    EpochTimer,
    PassthroughScoring,
    PrintLog,
    ProgressBar,
)
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from sklearn_xlc.batches import Batch, Targets, Threads, is_ours
from sklearn_xlc.encoders import is_perceptron
from sklearn_xlc.heads import FlatHead, Step, check_finite, row_weights
from sklearn_xlc.training.finite import check_forward
from sklearn_xlc.training.foreign import may_draw
from sklearn_xlc.training.optimizer import RowOptimizer

#: Callbacks of skorch without effect on steps.
_QUIET = {EarlyStopping, EpochTimer, PassthroughScoring, PrintLog, ProgressBar}


class DirectStep:
    """Step of an encoder :class:`MLPEncoder` with one hidden layer and a :class:`FlatHead`."""

    def __init__(self, module: Any, optimizer: RowOptimizer, batch_size: int) -> None:
        self.parts, self.optimizer = list(module.modules()), optimizer
        self.encoder, self.head = module.encoder, module.head
        work = batch_size * self.head.weights_met()
        self.threads = Threads.for_work(work, in_step=True)

    @classmethod
    def of(
        cls, module: Any, optimizer: RowOptimizer, callbacks: list[Any], batch_size: int
    ) -> DirectStep | None:
        """Return the direct step for a module, or None if it needs the general step.

        It needs the general step if a layer or weight differs from the default network's or has a
        hook, or if a callback may read or change the results of a step.
        """
        encoder, head = module.encoder, module.head
        if not is_perceptron(encoder) or type(head) is not FlatHead or head.n_members > 1:
            return None
        is_default = (
            encoder.has_backward()
            and type(head.projection) is nn.Identity
            and not may_draw(module)
            and not any(map(_is_special, module.parameters()))
            and not _has_hooks(optimizer)
            and all(type(each) in _QUIET or is_ours(type(each)) for each in callbacks)
        )
        return cls(module, optimizer, batch_size) if is_default else None

    @torch.no_grad()
    def take(self, batch: Batch) -> Tensor:
        """Take a step and return its loss; FloatingPointError if numbers would not stay finite."""
        features, kept = self.encoder.forward_kept(batch.inputs)
        check_forward(features, ())
        weights, targets = row_weights(batch.sample_weight, features), cast(Targets, batch.targets)
        beside = self.optimizer.update, self.head.drawn_here(targets), self.threads
        loss, gradient = self.head.loss_and_gradient(Step(features, targets, weights, *beside))
        gradients = self.encoder.backward(batch.inputs, features, kept, gradient)
        check_finite(loss)
        self.optimizer.apply(gradients)
        return loss


def _is_special(parameter: nn.Parameter) -> bool:
    """Return whether a parameter is frozen, has hooks, or is not on the CPU."""
    hooks = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
    return any(hooks) or not (parameter.requires_grad and parameter.is_cpu)


def _has_hooks(optimizer: RowOptimizer) -> bool:
    """Return whether the optimiser's steps have hooks, or all modules global ones."""
    return bool(
        "step" in vars(optimizer)  # a schedule of torch counts the calls
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers._global_optimizer_pre_hooks
        or optimizers._global_optimizer_post_hooks
        or modules._global_forward_pre_hooks
        or modules._global_forward_hooks
        or modules._global_backward_pre_hooks
        or modules._global_backward_hooks
    )
