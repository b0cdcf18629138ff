"""Steps of the default network without autograd: its forward and backward pass, written out.

Autograd, modules and gradients that parameters hold take half a millisecond a step, whatever there
is to compute. A step of a perceptron with one hidden layer under a flat head calls the same kernels
here, in the same order, so that weights are equal to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from skorch.callbacks import (
    EarlyStopping,
    EpochTimer,
    PassthroughScoring,
    PrintLog,
    ProgressBar,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from sklearn_xlc.batches import Batch, SparseRows, Targets, generator_for
from sklearn_xlc.batches.randomness import is_ours
from sklearn_xlc.encoders import MLPEncoder, TextEncoder
from sklearn_xlc.encoders.mlp import Dropout, InputLinear
from sklearn_xlc.heads import BinaryCrossEntropy, FlatHead, check_finite, row_weights
from sklearn_xlc.training.finite import check_forward
from sklearn_xlc.training.foreign import may_draw
from sklearn_xlc.training.optimizer import RowOptimizer

_kernels = torch.ops.aten
#: Overloads, as choosing one takes longer than a small kernel; the first may write over its input.
_where_above = _kernels.threshold_backward.grad_input
_leaky_backward = _kernels.leaky_relu_backward.default
_norm_backward = _kernels.native_layer_norm_backward.default
#: Layers of the default network.
_LAYERS = [
    [InputLinear, nn.LayerNorm, activation, *dropout, nn.Identity]
    for activation in (nn.ReLU, nn.LeakyReLU)
    for dropout in ([], [Dropout])
]
#: Callbacks of skorch that leave steps alone.
_QUIET = {EarlyStopping, EpochTimer, PassthroughScoring, PrintLog, ProgressBar}


class _Kept(NamedTuple):
    """What the backward pass of the encoder reads of its forward pass."""

    summed: Tensor
    mean: Tensor
    scale: Tensor
    normal: Tensor
    numbers: Tensor | None
    least: float
    factor: float


class DirectStep:
    """Step of an encoder :class:`MLPEncoder` with one hidden layer and a :class:`FlatHead`.

    Parameters
    ----------
    module : EncoderHead
        Module with such parts.
    optimizer : RowOptimizer
        Optimiser of its parameters.

    Attributes
    ----------
    parts : list of Module
        All modules within the module.
    """

    def __init__(self, module: Any, optimizer: RowOptimizer) -> None:
        self.parts, self.optimizer = list(module.modules()), optimizer
        self.input, self.head = module.encoder.input, module.head
        self.norm, activation, *dropout = module.encoder.layers
        self.slope = getattr(activation, "negative_slope", 0.0)
        self.dropout = dropout[0] if dropout else None

    @classmethod
    def of(cls, module: Any, optimizer: RowOptimizer, callbacks: list[Any]) -> DirectStep | None:
        """Step of an encoder with a head; None where the general one is asked for.

        That is, if a layer or a weight is another than those of the default network, or has a hook,
        or if a callback may read or change what a step leaves.
        """
        encoder, head = module.encoder, module.head
        is_mlp = type(encoder) in (MLPEncoder, TextEncoder)
        if not is_mlp or type(head) is not FlatHead or head.n_members > 1:
            return None
        layers = [encoder.input, *encoder.layers, head.projection]
        is_default = (
            [type(layer) for layer in layers] in _LAYERS
            and all(0 < layer.p < 1 for layer in layers if isinstance(layer, Dropout))
            and not may_draw(module)
            and not any(map(_is_special, module.parameters()))
            and not _has_hooks(optimizer)
            and all(type(each) in _QUIET or is_ours(type(each)) for each in callbacks)
        )
        return cls(module, optimizer) if is_default else None

    @torch.no_grad()
    def take(self, batch: Batch) -> Tensor:
        """Take a step and return its loss.

        Raises
        ------
        FloatingPointError
            As a step of :class:`XLCNet` does.
        """
        features, kept = self._forward(batch.inputs)
        check_forward(features, ())
        weights = row_weights(batch.sample_weight, features)
        loss, gradient = self._loss_and_gradient(features, cast(Targets, batch.targets), weights)
        gradients = self._backward(batch.inputs, features, kept, gradient)
        check_finite(loss)
        self.optimizer.apply(gradients)
        return loss

    def _forward(self, rows: SparseRows) -> tuple[Tensor, _Kept]:
        norm = self.norm
        summed = _sum_rows(self.input.weight.detach(), rows).add_(self.input.bias)
        normal, mean, scale = torch.native_layer_norm(
            summed, norm.normalized_shape, norm.weight, norm.bias, norm.eps
        )
        # In place where nothing reads the values before: what a step touches should stay in caches.
        features = F.leaky_relu(normal, self.slope) if self.slope else normal.relu_()
        if self.dropout is None:
            return features, _Kept(summed, mean, scale, normal, None, 0.0, 1.0)
        drawn = self.dropout.draw(features, generator_for(features.device))
        numbers, least, factor = drawn
        _where_above(features, numbers, least, grad_input=features).mul_(factor)
        return features, _Kept(summed, mean, scale, normal, *drawn)

    def _loss_and_gradient(
        self, features: Tensor, targets: Targets, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        head, update = self.head, self.optimizer.update
        drawn = head.drawn_here(targets)
        plain = type(head.criterion) is BinaryCrossEntropy and targets.values is None
        if drawn is not None or not plain or head.n_labels > head.chunk_size():
            return head.loss_and_gradient(features, targets, weights, update, drawn)
        # All labels as negatives first, then the difference that the positives make.
        logits, inputs, weight = self._logits(features)
        targets, of_positives = head.shard.select(targets, weights[targets.rows])
        at = targets.rows, head.shard.own(targets.ids)
        loss = weights @ F.softplus(logits).sum(1)
        loss -= of_positives @ logits[at]
        check_finite(loss)
        slopes = logits.sigmoid_().mul_(weights[:, None])
        slopes.index_put_(at, -of_positives, accumulate=True)
        to_bias, low = slopes.sum(0), slopes.to(weight.dtype)
        gradient = (low @ weight).to(features.dtype)
        update(head.weight, slice(None), (low.T @ inputs).to(features.dtype))
        if head.bias is not None:
            update(head.bias, slice(None), to_bias)
        loss, gradient = head.shard.sum(loss, gradient)
        return loss, gradient

    def _logits(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of all labels, with inputs and weights as products read them."""
        head = self.head
        if not head.low_precision:
            return F.linear(features, head.weight, head.bias), features, head.weight
        inputs, weight = features.bfloat16(), head.weight.bfloat16()
        logits = (inputs @ weight.T).to(features.dtype)
        return logits if head.bias is None else logits.add_(head.bias), inputs, weight

    def _backward(
        self, rows: SparseRows, features: Tensor, kept: _Kept, gradient: Tensor
    ) -> dict[Tensor, Any]:
        norm, layer = self.norm, self.input
        if kept.numbers is not None:
            gradient = gradient.mul_(kept.factor)
        if self.slope:
            if kept.numbers is not None:
                _where_above(gradient, kept.numbers, kept.least, grad_input=gradient)
            gradient = _leaky_backward(gradient, kept.normal, self.slope, False)
        else:  # features are above zero where both ReLU and dropout let them pass
            _where_above(gradient, features, 0, grad_input=gradient)
        to_sum, to_weight, to_bias = _norm_backward(
            gradient,
            kept.summed,
            norm.normalized_shape,
            kept.mean,
            kept.scale,
            norm.weight,
            norm.bias,
            [True, True, True],
        )
        by_column, whole = rows.transpose, slice(None)
        return {
            layer.weight: (by_column.columns, _sum_rows(to_sum, by_column)),
            layer.bias: (whole, to_sum.sum(0)),
            norm.weight: (whole, to_weight),
            norm.bias: (whole, to_bias),
        }


def _sum_rows(table: Tensor, rows: Any) -> Tensor:
    # What F.embedding_bag calls after checks that take as long as a small batch.
    return torch.embedding_bag(table, rows.indices, rows.indptr, False, 0, False, rows.data, True)[
        0
    ]


def _is_special(parameter: nn.Parameter) -> bool:
    """Whether a parameter is frozen, has hooks, or is not on the CPU."""
    hooks = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
    return any(hooks) or not (parameter.requires_grad and parameter.is_cpu)


def _has_hooks(optimizer: RowOptimizer) -> bool:
    """Whether anything is called at each step of the optimiser, or of all modules."""
    return bool(
        "step" in vars(optimizer)  # a schedule of torch counts the calls
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers._global_optimizer_pre_hooks
        or optimizers._global_optimizer_post_hooks
        or modules._has_any_global_hook()
    )
