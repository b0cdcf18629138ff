"""Losses over chunks of labels, for every head whose logits are linear in what it reads."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc.batches import Targets
from sklearn_xlc.heads._base import Head, Update, merge_topk, row_weights

#: Labels a chunk: a batch of 256 logits in float32 then stays within the second-level cache.
CHUNK = 4096


class ChunkedHead(Head):
    """Head whose loss, gradient and ranking go through chunks of labels.

    Neither the logits nor the gradients of all labels are ever held at once: the loss takes each
    chunk's optimiser step as soon as its gradient is known. (Multi-class keeps the logits where
    they fit into `memory_limit`, and computes them twice where they do not.)

    Subclasses say how the logits of a chunk come about in :meth:`logits`, and their derivative in
    :meth:`backward`. With `link` "sigmoid" the loss is the sum over labels of the binary
    cross-entropy; with "softmax" it is the cross-entropy of one label a row, or of all labels that
    a row has (pick-all-labels).

    Parameters
    ----------
    n_features, n_labels, multilabel
        See :class:`~sklearn_xlc.heads.Head`.
    memory_limit : int, default=2**30
        Bytes that temporary logits may take.

    Attributes
    ----------
    mean_positive : bool
        Whether the pick-all-labels loss of a row is the mean over its labels, not the sum.
    competition : float
        Share of the loss in which the labels of a row compete with each other, as they do in the
        pick-all-labels loss. In the rest each competes only with those that the row has not.
    """

    mean_positive, competition = False, 1.0

    def __init__(
        self, n_features: int, n_labels: int, multilabel: bool, memory_limit: int = 2**30
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.link = "sigmoid" if multilabel else "softmax"
        self.memory_limit = memory_limit

    def inputs(self, features: Tensor) -> Tensor:
        """What the chunks read: the features, or an ordinary differentiable function of them."""
        return features

    @abstractmethod
    def logits(self, inputs: Tensor, chunk: slice) -> Tensor:
        """Logits of the labels of one chunk, of shape (n_rows, chunk)."""

    @abstractmethod
    def backward(
        self, inputs: Tensor, chunk: slice, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        """Take a chunk's logit gradient: add the inputs' part to `into`, `update` the weights."""

    def chunk_size(self) -> int:
        """Labels a chunk."""
        return CHUNK

    def chunks(self) -> list[slice]:
        """Slices of labels, in order."""
        size = self.chunk_size()
        starts = range(0, self.n_labels, size)
        return [slice(start, min(start + size, self.n_labels)) for start in starts]

    def loss(  # noqa: D102
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        inputs, weights = self.inputs(features), row_weights(sample_weight, features)
        compute = _bce if self.link == "sigmoid" else _softmax
        if not torch.is_grad_enabled():
            loss, _ = compute(self, inputs, targets, weights, None)
            return loss + self.penalty(inputs, weights)
        gradients: dict[nn.Parameter, Tensor] = {}

        def collect(parameter: nn.Parameter, rows: slice, gradient: Tensor) -> None:
            if parameter not in gradients:
                gradients[parameter] = torch.zeros_like(parameter)
            gradients[parameter][rows] += gradient

        loss, into = compute(self, inputs.detach(), targets, weights, update or collect)
        loss = _Precomputed.apply(loss, [into, *gradients.values()], inputs, *gradients)
        return loss + self.penalty(inputs, weights)

    def penalty(self, inputs: Tensor, weights: Tensor) -> Tensor | float:
        """What is added to the loss for the inputs themselves."""
        return 0.0

    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        best, inputs = None, self.inputs(features)
        for chunk in self.chunks():
            best = merge_topk(best, self.logits(inputs, chunk), chunk.start, k)
        assert best is not None
        return best

    def scores(self, features: Tensor) -> Tensor:  # noqa: D102
        inputs = self.inputs(features)
        return torch.cat([self.logits(inputs, chunk) for chunk in self.chunks()], dim=1)


class _Precomputed(torch.autograd.Function):
    """A loss whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: list[Tensor], *variables: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors))


class _Positives(NamedTuple):
    """Positives within a chunk, and their weights in the loss."""

    rows: Tensor
    columns: Tensor
    weights: Tensor

    def take_from(self, logits: Tensor) -> Tensor:
        """Their logits, which are set to minus infinity."""
        values = logits[self.rows, self.columns]
        logits[self.rows, self.columns] = float("-inf")
        return values

    def subtract_from(self, gradient: Tensor) -> None:
        """Take the weight of each positive off its place."""
        gradient[self.rows, self.columns] -= self.weights


def _positives_by_chunk(
    head: ChunkedHead, targets: Targets, weights: Tensor
) -> list[tuple[slice, _Positives]]:
    """Every chunk with its positives; `weights` belong to rows."""
    ids, order = targets.ids.sort()
    rows, chunks = targets.rows[order], head.chunks()
    edges = torch.tensor([*(chunk.start for chunk in chunks), head.n_labels], device=ids.device)
    starts = torch.searchsorted(ids, edges).tolist()
    return [
        (chunk, _Positives(rows[a:b], ids[a:b] - chunk.start, weights[rows[a:b]]))
        for chunk, a, b in zip(chunks, starts[:-1], starts[1:])
    ]


@torch.no_grad()
def _bce(
    head: ChunkedHead, inputs: Tensor, targets: Targets, weights: Tensor, update: Update | None
) -> tuple[Tensor, Tensor]:
    loss, into = inputs.new_zeros(()), torch.zeros_like(inputs)
    for chunk, positives in _positives_by_chunk(head, targets, weights):
        logits = head.logits(inputs, chunk)
        # BCE = softplus(z) - y z, and its derivative is sigmoid(z) - y.
        loss += weights @ F.softplus(logits).sum(1)
        loss -= positives.weights @ logits[positives.rows, positives.columns]
        if update is not None:
            gradient = logits.sigmoid_().mul_(weights[:, None])
            positives.subtract_from(gradient)
            head.backward(inputs, chunk, gradient, into, update)
    return loss, into


@torch.no_grad()
def _softmax(
    head: ChunkedHead, inputs: Tensor, targets: Targets, weights: Tensor, update: Update | None
) -> tuple[Tensor, Tensor]:
    # Each positive k of row i adds its weight times
    #   competition * (log sum_j exp z_j - z_k)                           pick-all-labels
    #   + (1 - competition) * (log(exp z_k + sum_{j not in S} exp z_j) - z_k).
    n_positives = targets.indptr.diff().to(weights)
    each = weights / (n_positives.clamp(min=1) if head.mean_positive else 1.0)
    size = len(inputs) * head.n_labels * inputs.element_size()
    keep = update is not None and size <= head.memory_limit
    parts = _positives_by_chunk(head, targets, each)
    kept, found = [], []
    # Finite, so that rows with all labels have no infinite differences.
    negative = inputs.new_full((len(inputs),), torch.finfo(inputs.dtype).min / 4)
    for chunk, positives in parts:
        logits = head.logits(inputs, chunk)
        found.append(positives.take_from(logits))
        negative = torch.logaddexp(negative, logits.logsumexp(1))
        if keep:
            kept.append(logits)
    loss, on_negative, on_positive = _softmax_of_rows(head.competition, parts, found, negative)
    into = torch.zeros_like(inputs)
    if update is None:
        return loss, into
    for number, (chunk, positives) in enumerate(parts):
        if keep:
            logits = kept[number]
        else:
            logits = head.logits(inputs, chunk)
            positives.take_from(logits)
        gradient = logits.sub_(negative[:, None]).exp_().mul_(on_negative[:, None])
        gradient[positives.rows, positives.columns] = on_positive[number]
        head.backward(inputs, chunk, gradient, into, update)
    return loss, into


def _softmax_of_rows(
    competition: float,
    parts: list[tuple[slice, _Positives]],
    found: list[Tensor],
    negative: Tensor,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss, its gradient at the sum of negatives, and at each positive, from their logits."""
    rows = torch.cat([positives.rows for _, positives in parts])
    weight, logits = torch.cat([positives.weights for _, positives in parts]), torch.cat(found)
    highest = negative.scatter_reduce(0, rows, logits, "amax")
    total = (negative - highest).exp().index_add(0, rows, (logits - highest[rows]).exp())
    everything = highest + total.log()  # log-sum-exp over all labels
    margin = negative[rows] - logits
    loss = weight @ (
        competition * (everything[rows] - logits) + (1 - competition) * F.softplus(margin)
    )
    alone = (1 - competition) * weight * margin.sigmoid()
    mass = competition * torch.zeros_like(negative).index_add(0, rows, weight)
    on_negative = (mass * (negative - everything).exp()).index_add(0, rows, alone)
    shared = mass[rows] * (logits - everything[rows]).exp() - competition * weight
    on_positive = (shared - alone).split([len(part) for part in found])
    return loss, on_negative, list(on_positive)
