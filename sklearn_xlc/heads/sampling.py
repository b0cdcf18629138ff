"""Multi-Head Sampling for pretraining: train only the label groups of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._compat import Interval
from sklearn_xlc._part import named_by
from sklearn_xlc.batches import Targets, generator_for
from sklearn_xlc.heads._base import (
    DigitPart,
    Head,
    HeadPart,
    HeadTask,
    draw_rows,
    origins,
)
from sklearn_xlc.heads._whole import ShardOf, whole
from sklearn_xlc.heads.chunked import CHUNK, slices
from sklearn_xlc.heads.losses import ArcFace, Loss, SoftmaxCrossEntropy
from sklearn_xlc.heads.ranking import WIDTH, topk_of_chunks


class SamplingHead(Head):
    """Linear classifier without bias; a step trains only the sub-heads with a label of the batch.

    The weight is viewed as (n_heads, length, n_features): label y lives in sub-head ``y // length``
    (Algorithm 4 of [1]_). Each step scores the sub-heads of the batch and `n_sampled_heads` random
    others; every sample is scored by all of them, so the sub-heads of the other samples serve as
    negatives. With ``shared_heads=False`` a sample is scored by its own sub-head, and by
    `n_sampled_heads` others that are drawn for it alone: MHS-S of [1]_ with S = 1 +
    n_sampled_heads (Eq. 13), MHS-1 by default. Prediction scores every label.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`; a sample has exactly one label.
    length : int
        Number of labels in a sub-head.
    loss : str or Loss, default="auto"
        "auto", "ce" or an object of its kind: softmax cross-entropy. "arcface" or
        :class:`ArcFace`: with an additive angular margin [2]_, on normalised features and weights.
    n_sampled_heads, correction, shared_heads : int or bool, default=0 and False and True
        As of :class:`Sampling`. The correction subtracts the logarithm of a label's expected count
        from its logit while training.
    shard_of : callable, default=whole
        Returns the sub-heads in this process, as :meth:`Head.take_shards` reads it.

    Notes
    -----
    Features are about equally good with any number of negatives; the layer itself is better with
    more (docs/papers.md).

    **Differences from the paper**

    - Line 29 of Algorithm 4 is corrected to ``position of the head * length + local label``;
      negatives besides the batch, with shared sub-heads, and `correction` are additions.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification", section 4.3.
    .. [2] J. Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition".

    Examples
    --------
    >>> from sklearn_xlc.heads import SamplingHead
    >>> head = SamplingHead(4, 30, False, length=10, n_sampled_heads=1, shared_heads=False)  # MHS-2
    >>> head.n_heads
    3
    """

    head_frequency: Tensor
    kinds_of_loss = (SoftmaxCrossEntropy,)
    offers = ("cosines",)
    leaves_out = True

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        length: int,
        loss: str | Loss = "auto",
        n_sampled_heads: int = 0,
        correction: bool = False,
        shared_heads: bool = True,
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.criterion = self.resolve_loss(loss, multilabel)
        self.link = self.criterion.link
        self.length = check_integer(length, "length")
        self.n_heads = -(-n_labels // length)
        self.take_shards(shard_of)
        self.n_sampled_heads = check_integer(n_sampled_heads, "n_sampled_heads", 0)
        self.correction = correction
        self.shared_heads = shared_heads
        # One row per sub-head, so that a step gathers and updates whole sub-heads.
        n_held = self.shard.n_held(self.n_heads)
        self.weight = nn.Parameter(torch.empty(n_held, length * n_features))
        self.shard.draw_normal(self.weight, n_features**-0.5 / 2)
        # Mean number of labels per sample in each sub-head, set by `set_prior`.
        self.register_buffer("head_frequency", torch.zeros(self.n_heads))

    @property
    def angular(self) -> ArcFace | None:
        """Loss of cosines, or None if scores are products."""
        return self.criterion if self.criterion.needs == "cosines" else None

    def row_parameters(self) -> list[nn.Parameter]:
        return [self.weight]

    def take_shards(self, shard_of: ShardOf) -> None:
        self.shard = shard_of(self.n_labels, self.length)

    def bytes_per_row(self, k: int | None = None) -> int:
        if k is None:
            return 3 * self.n_labels * self._itemsize
        width = min(self.n_labels, max(WIDTH * k, self._on_device(CHUNK)))
        return 3 * width * (self._itemsize + 8)

    def set_prior(self, frequency: Tensor) -> None:
        """Store the share of samples with a label of each sub-head."""
        padded = F.pad(frequency, (0, self.n_heads * self.length - self.n_labels))
        self.head_frequency.copy_(padded.view(self.n_heads, self.length).sum(1))

    def label_rows(self) -> list[tuple[Tensor, int]]:
        return [(self.weight, self.n_features)]

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        n_more = -(-n_labels // self.length) - self.n_heads
        rows = origins(self.n_heads, n_more, self.weight.device)
        return [(self.weight, rows), (self.head_frequency, rows)]

    def set_n_labels(self, n_labels: int) -> None:
        super().set_n_labels(n_labels)
        self.n_heads = -(-n_labels // self.length)

    @torch.no_grad()
    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        draw_rows(self._rows(), positions, self.n_features**-0.5 / 2)
        added = frequency[positions].to(self.head_frequency)
        self.head_frequency.index_add_(0, positions // self.length, added)

    def loss_of(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        features = self.shard.read_by_all(features)
        own = targets.ids // self.length
        if self.shared_heads:
            heads, drawn = None, self._draw_negatives(torch.unique(own))
        else:
            heads = self._draw_for_rows(own)
            drawn, heads = torch.unique(heads, return_inverse=True)
        held, true = self.shard.holds(drawn), self.shard.holds(own)
        ids = drawn[held][:, None] * self.length + torch.arange(self.length, device=drawn.device)
        at = targets.rows[true], torch.searchsorted(ids.view(-1), targets.ids[true])
        logits = self._logits_of(features, drawn[held], at)
        if self.correction:
            position = torch.searchsorted(drawn, own)
            counts = self._log_expected_count(drawn, len(own), position)[..., held]
            logits = logits - counts.repeat_interleave(self.length, -1)
        # Finite: a process may hold no label that a row scores, and its derivative is then zero.
        never = torch.finfo(logits.dtype).min / 4
        logits = logits.masked_fill(self._missing(ids).view(-1), never)
        if heads is not None:  # Eq. 13: only the heads of the row
            others = torch.ones(len(own), len(drawn), dtype=torch.bool, device=own.device)
            others.scatter_(1, heads, False)
            others = others[:, held].repeat_interleave(self.length, 1)
            logits = logits.masked_fill(others, never)
        share = self.criterion.share(weights, targets.rows, targets.values_like(features))
        return share @ self.criterion.value(self.shard.surprises(logits, at))

    def _missing(self, ids: Tensor) -> Tensor:
        """Return the mask of the positions without a label."""
        if self.free is None:
            return ids >= self.n_labels
        return ~F.pad(~self.free, (0, self.n_heads * self.length - self.n_labels))[ids]

    def _logits_of(self, features: Tensor, heads: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the logits of sub-heads with weights in this process."""
        rows = cast(Tensor, self.shard.own(heads))
        weight = F.embedding(rows, self.weight, sparse=True).view(-1, self.n_features)
        loss = self.angular
        return features @ weight.T if loss is None else _angular_logits(loss, features, weight, at)

    def _draw_negatives(self, heads: Tensor) -> Tensor:
        """Draw the sub-heads of the batch and up to `n_sampled_heads` random others, ascending."""
        n_more = min(self.n_sampled_heads, self.n_heads - len(heads))
        if not n_more or not self.training:
            return heads
        free = torch.ones(self.n_heads, dtype=torch.bool, device=heads.device)
        free[heads] = False
        others = free.nonzero().squeeze(1)
        order = torch.randperm(
            len(others), device=heads.device, generator=generator_for(heads.device)
        )
        return torch.cat([heads, others[order[:n_more]]]).sort().values

    def _draw_for_rows(self, own: Tensor) -> Tensor:
        """Draw the sub-heads of each row: its own, then `n_sampled_heads` distinct others."""
        n_others = self.n_heads - 1
        n_more = min(self.n_sampled_heads, n_others) if self.training else 0
        drawn = own.new_empty(len(own), n_more)
        for column, largest in enumerate(range(n_others - n_more, n_others)):  # Floyd's algorithm
            new = torch.randint(
                largest + 1, (len(own),), device=own.device, generator=generator_for(own.device)
            )
            taken = (drawn[:, :column] == new[:, None]).any(1)
            drawn[:, column] = torch.where(taken, largest, new)
        drawn += drawn >= own[:, None]  # all heads but the own one
        return torch.cat([own[:, None], drawn], 1)

    def _log_expected_count(self, drawn: Tensor, n_rows: int, position: Tensor) -> Tensor:
        """Compute log P(sub-head scores a row) of each, (n_drawn,), or (n_rows, n_drawn).

        A shared sub-head scores all rows if it has a label of the batch or is drawn. Otherwise
        `position` is the place of each row's own sub-head.
        """
        if not self.shared_heads:
            rate = min(1.0, self.n_sampled_heads / max(1, self.n_heads - 1))
            chance = self.head_frequency.new_full((n_rows, len(drawn)), rate)
            chance.scatter_(1, position[:, None], 1.0)
            return chance.clamp_min(1e-12).log()
        absent = (1 - self.head_frequency.clamp(max=1.0)).pow(n_rows)
        rate = min(1.0, self.n_sampled_heads / self.n_heads)
        chance = 1 - absent[drawn] * (1 - rate)
        return chance.clamp_min(1e-12).log()

    @property
    def _scale(self) -> float:
        return 1.0 if self.angular is None else float(self.angular.scale)

    def _rows(self) -> Tensor:
        """Return the weights of the labels in this process, then of places without a label."""
        return self.weight.view(-1, self.n_features)

    def _scores_of(self, features: Tensor, labels: slice) -> Tensor:
        """Compute the scores of labels with weights in this process."""
        first = self.shard.labels(self.n_labels).start
        weight = self._rows()[labels.start - first : labels.stop - first]
        if self.angular is None:
            return self._labelled(features @ weight.T, labels)
        cosines = F.normalize(features) @ F.normalize(weight).T
        return self._labelled(self._scale * cosines, labels)

    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        labels = self.shard.labels(self.n_labels)
        parts = slices(labels.start, labels.stop, self._on_device(CHUNK))
        chunks = ((part.start, self._scores_of(features, part)) for part in parts)
        return self.shard.merged(*topk_of_chunks(chunks, min(k, labels.stop - labels.start)), k)

    def scores(self, features: Tensor) -> Tensor:
        scores = self._scores_of(features, self.shard.labels(self.n_labels))
        return self.shard.joined_columns(scores)

    def label_vectors(self) -> Tensor:
        self.shard.refuse_part()
        return self._rows()[: self.n_labels]

    def scores_at(self, features: Tensor, positions: Tensor) -> Tensor:
        weight = self.shard.rows_at(self._rows(), positions, self.length)
        if self.angular is not None:
            features, weight = F.normalize(features), F.normalize(weight, dim=2)
        return self._scale * torch.einsum("nf,nkf->nk", features, weight)


@dataclass(eq=False, repr=False, kw_only=True)
class Sampling(DigitPart):
    """One output per label; a step trains only the groups of outputs with its labels.

    For class labels; for pretraining an encoder, used through
    :meth:`~sklearn_xlc.MultiHeadClassifier.transform`.

    Parameters
    ----------
    n_heads : int, default=2
        Number of digits of a label, which must be 2: its sub-head, and its place there.
    lengths : pair of int, default=None
        Number of sub-heads, and of labels in each. None: by
        :func:`~sklearn_xlc.codes.head_lengths`.
    label_order : str or array-like of shape (n_labels,), default="given"
        As of :class:`Cascade`.
    n_sampled_heads : int, default=0
        Random negative sub-heads per step, in addition to the sub-heads of the batch; with
        ``shared_heads=False`` per sample, in addition to its own.
    shared_heads : bool, default=True
        Whether all sub-heads of a step score all of its samples, as [1]_ does for speed. False: the
        sub-head of its label and others drawn for it alone score a sample (MHS-S of [1]_ with
        ``n_sampled_heads=S - 1``).
    correction : bool, default=False
        Correct the softmax over sampled labels for the probability with which each label is drawn;
        an addition to [1]_.

    See Also
    --------
    SamplingHead : The module.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification", section 4.3.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.heads import Sampling
    >>> MultiHeadClassifier(Sampling(shared_heads=False, n_sampled_heads=1))
    MultiHeadClassifier(head=Sampling(n_sampled_heads=1, shared_heads=False))
    """

    head = SamplingHead
    tasks = ("multi-class",)

    n_sampled_heads: int = 0
    shared_heads: bool = True
    correction: bool = False

    _parameter_constraints = {
        **DigitPart._parameter_constraints,
        "n_sampled_heads": [Interval(Integral, 0, None, closed="left")],
        "shared_heads": ["boolean"],
        "correction": ["boolean"],
    }

    def _lengths_for(self, n_labels: int, multilabel: bool) -> tuple[int, ...]:
        lengths = super()._lengths_for(n_labels, multilabel)
        if len(lengths) != 2:
            raise ValueError(
                "Sampling takes n_heads=2 or lengths=(number of sub-heads, labels in each), got "
                f"lengths {lengths}"
            )
        return lengths

    def grown(self, head: Any) -> HeadPart:
        return self._with_lengths((head.n_heads, head.length))

    def build(self, task: HeadTask) -> Head:
        own = named_by(SamplingHead, self.get_params(deep=False))
        return task.build(SamplingHead, length=self.lengths[1], **own)


def _angular_logits(
    loss: ArcFace, features: Tensor, weight: Tensor, at: tuple[Tensor, Tensor]
) -> Tensor:
    """Return scaled cosines, with the margin added to the angle of the true label ([2], Eq. 3)."""
    margin = loss.margin
    cosine = (F.normalize(features) @ F.normalize(weight).T).clamp(-1.0, 1.0)
    true = cosine[at]
    sine = (1.0 - true.square()).clamp_min(1e-12).sqrt()
    shifted = true * math.cos(margin) - sine * math.sin(margin)
    # Beyond pi - margin the cosine of the sum would rise again: continue it linearly.
    shifted = torch.where(
        true > math.cos(math.pi - margin), shifted, true - margin * math.sin(margin)
    )
    return float(loss.scale) * cosine.index_put(at, shifted)
