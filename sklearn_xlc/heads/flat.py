"""One output per label: the vanilla classifier, and the baseline of all others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc.heads._base import Head, Targets, Update, merge_topk, row_weights

#: Labels a chunk: a batch of 256 logits in float32 then stays within the second-level cache.
CHUNK = 4096


class FlatHead(Head):
    """Linear classifier with one row of weights per label.

    The loss is fused with the optimiser's step over chunks of labels, so neither the logits nor
    the gradient of all labels is ever held (multi-class keeps the logits where they fit into
    `memory_limit`, and computes them twice where they do not).

    Parameters
    ----------
    n_features, n_labels, multilabel
        See :class:`~sklearn_xlc.heads.Head`. Multi-label trains the sum over labels of the
        binary cross-entropy, multi-class the softmax cross-entropy.
    memory_limit : int, default=2**30
        Bytes that temporary logits may take.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the fused loss's matrix products; weights and sums stay as they are.

    Attributes
    ----------
    weight : Parameter of shape (n_labels, n_features)
    bias : Parameter of shape (n_labels,)

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import FlatHead
    >>> head = FlatHead(n_features=4, n_labels=10, multilabel=False)
    >>> scores, ids = head.topk(torch.zeros(3, 4), k=2)
    >>> ids.shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        memory_limit: int = 2**30,
        precision: str = "float32",
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.link = "sigmoid" if multilabel else "softmax"
        self.memory_limit, self.low_precision = memory_limit, precision == "bfloat16"
        self.weight = nn.Parameter(torch.empty(n_labels, n_features))
        self.bias = nn.Parameter(torch.zeros(n_labels))
        nn.init.normal_(self.weight, std=n_features**-0.5 / 2)

    def fused_parameters(self) -> list[nn.Parameter]:  # noqa: D102
        return [self.weight, self.bias]

    def set_prior(self, frequency: Tensor) -> None:  # noqa: D102
        prior = frequency.clamp(1e-7, 1 - 1e-3)
        with torch.no_grad():
            self.bias.copy_(torch.logit(prior) if self.multilabel else prior.log())

    def loss(  # noqa: D102
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        weights = row_weights(sample_weight, features)
        if update is None:
            return self._plain_loss(features, targets, weights)
        fused = _fused_bce if self.multilabel else _fused_softmax
        loss, gradient = fused(self, features.detach(), targets, weights, update)
        return _Precomputed.apply(features, loss, gradient)

    def _plain_loss(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        logits = F.linear(features, self.weight, self.bias)
        if self.multilabel:
            negative = F.softplus(logits).sum(1)
            positive = logits.new_zeros(len(logits)).index_add(
                0, targets.rows, logits[targets.rows, targets.ids]
            )
            return weights @ (negative - positive)
        return weights @ F.cross_entropy(logits, targets.ids, reduction="none")

    def chunks(self) -> list[slice]:
        """Slices of labels, in order."""
        starts = range(0, self.n_labels, CHUNK)
        return [slice(start, min(start + CHUNK, self.n_labels)) for start in starts]

    def logits(self, features: Tensor, chunk: slice) -> Tensor:
        """Logits of the labels of one chunk, of shape (n_rows, chunk)."""
        if self.training and self.low_precision:
            return self.product(features, self.weight[chunk].T).add_(self.bias[chunk])
        return F.linear(features, self.weight[chunk], self.bias[chunk])

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """Matrix product at the head's precision, in the dtype of `left`."""
        if not self.low_precision:
            return left @ right
        return (left.bfloat16() @ right.bfloat16()).to(left.dtype)

    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        best = None
        for chunk in self.chunks():
            best = merge_topk(best, self.logits(features, chunk), chunk.start, k)
        assert best is not None
        return best

    def scores(self, features: Tensor) -> Tensor:  # noqa: D102
        return F.linear(features, self.weight, self.bias)


class _Precomputed(torch.autograd.Function):
    """A loss whose gradient with respect to the features is already known."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0], None, None


def _positives_by_label(head: FlatHead, targets: Targets) -> tuple[Tensor, Tensor, list[int]]:
    """Rows and ids of the positives sorted by id, and where each chunk's positives begin."""
    ids, order = targets.ids.sort()
    edges = torch.tensor(
        [*(chunk.start for chunk in head.chunks()), head.n_labels], device=ids.device
    )
    return targets.rows[order], ids, torch.searchsorted(ids, edges).tolist()


@torch.no_grad()
def _step(
    head: FlatHead,
    features: Tensor,
    chunk: slice,
    gradient: Tensor,
    into: Tensor,
    update: Update,
) -> None:
    """Add the chunk's part of the features' gradient to `into`, then update its weights."""
    into += head.product(gradient, head.weight[chunk])
    update(head.weight, chunk, head.product(gradient.T, features))
    update(head.bias, chunk, gradient.sum(0))


@torch.no_grad()
def _fused_bce(
    head: FlatHead, features: Tensor, targets: Targets, weights: Tensor, update: Update
) -> tuple[Tensor, Tensor]:
    rows, ids, starts = _positives_by_label(head, targets)
    loss, into = features.new_zeros(()), torch.zeros_like(features)
    for number, chunk in enumerate(head.chunks()):
        logits = head.logits(features, chunk)
        here = slice(starts[number], starts[number + 1])
        at = (rows[here], ids[here] - chunk.start)
        # BCE = softplus(z) - y z, and its derivative is sigmoid(z) - y.
        loss += weights @ F.softplus(logits).sum(1) - weights[at[0]] @ logits[at]
        gradient = logits.sigmoid_()
        gradient[at] -= 1.0
        _step(head, features, chunk, gradient.mul_(weights[:, None]), into, update)
    return loss, into


@torch.no_grad()
def _fused_softmax(
    head: FlatHead, features: Tensor, targets: Targets, weights: Tensor, update: Update
) -> tuple[Tensor, Tensor]:
    rows, ids, starts = _positives_by_label(head, targets)
    keep = len(features) * head.n_labels * features.element_size() <= head.memory_limit
    kept, normaliser = [], features.new_full((len(features),), float("-inf"))
    positive = features.new_zeros(len(features))
    for number, chunk in enumerate(head.chunks()):
        logits = head.logits(features, chunk)
        normaliser = torch.logaddexp(normaliser, logits.logsumexp(1))
        here = slice(starts[number], starts[number + 1])
        positive[rows[here]] = logits[rows[here], ids[here] - chunk.start]
        if keep:
            kept.append(logits)
    loss, into = weights @ (normaliser - positive), torch.zeros_like(features)
    for number, chunk in enumerate(head.chunks()):
        logits = kept[number] if keep else head.logits(features, chunk)
        gradient = logits.sub_(normaliser[:, None]).exp_()
        here = slice(starts[number], starts[number + 1])
        gradient[rows[here], ids[here] - chunk.start] -= 1.0
        _step(head, features, chunk, gradient.mul_(weights[:, None]), into, update)
    return loss, into
