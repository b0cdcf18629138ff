"""Bags of instances: concepts, attention between labels and instances, and pooling over bags."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sklearn_xlc._bounds import check_integer, check_real
from sklearn_xlc.batches import Bags, Targets, products
from sklearn_xlc.heads._base import Head, draw_rows
from sklearn_xlc.heads.chunked import Positives, positives_by_chunk, slices
from sklearn_xlc.heads.losses import Labels, Loss, PointwiseLoss, SoftmaxCrossEntropy
from sklearn_xlc.heads.ranking import topk_of_chunks

#: Highest initial probability of a label in an instance.
MAX_PRIOR = 0.5


class MIMLHead(Head):
    r"""Multi-instance multi-label head: scores the labels of a bag by its instances.

    Each label has `n_concepts` linear units; the largest unit is the logit :math:`v_{ik}` of label
    k in instance i. One instance of the bag decides on a label: the instance with the largest logit
    (Deep-MIML [1]_) or, given label embeddings, with the largest logit *and* attention (the
    co-attention of [2]_).

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    n_concepts : int, default=5
        Number of linear units of each label.
    temperature : float, default=1.0
        Divisor in the attention ``M = g softmax(X L' / temperature)`` over the g instances of a
        bag, with X and embeddings L of unit norm (`by_cosine`); :math:`1 / \tau` in [2]_.
    mask : {"select", "multiply"}, default="select"
        How the attention acts. "multiply" is [2]_: the attention multiplies the logits (after a
        ReLU; labels have a bias after pooling). "select": the logarithm of the attention is added
        to the logits to select an instance, and the bag has the unmasked logit of this instance.
        Attention is 1 in a bag of one instance, which the training with "multiply" then serves
        less well.
    counts : bool, default=False
        Whether a target c means that the label holds in exactly c instances.
    memory_limit : int, default=2**30
        Approximate limit in bytes of the logits of a batch; beyond it, labels are computed in
        chunks, and twice.
    loss : str or Loss, default="auto"
        Loss of the logits of bags: any pointwise loss (multi-label), or "ce" (multi-class). "auto"
        is "bce" for multi-label targets and "ce" otherwise.
    by_cosine : bool, default=True
        Whether the attention compares instances with label embeddings by their cosine; otherwise by
        the inner product with the instance as given, as in [2]_.

    Attributes
    ----------
    weight : Parameter of shape (n_labels, n_concepts, n_features)
    concept_bias : Parameter of shape (n_labels, n_concepts)
    bias : Parameter of shape (n_labels,), or None
        Added after pooling; "multiply" only.
    label_embeddings : buffer of shape (n_columns, n_labels), or None
        Set by :meth:`attend`.

    Notes
    -----
    **Differences from the paper**

    - "select" is an addition, and so is the bias of "multiply".
    - The attention compares by cosine; [2]_ by inner product (`by_cosine`). Learning `counts` is
      an addition.

    References
    ----------
    .. [1] J. Feng, Z.-H. Zhou. Deep MIML Network. AAAI 2017.
    .. [2] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 6.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.batches import Bags
    >>> from sklearn_xlc.heads import MIMLHead
    >>> features = torch.zeros(4, 8)
    >>> bags = Bags(features, torch.tensor([0, 1, 3, 4]), features)  # of 1, 2 and 1 instances
    >>> MIMLHead(n_features=8, n_labels=5, multilabel=True).scores(bags).shape
    torch.Size([3, 5])
    """

    kinds_of_loss = (PointwiseLoss, SoftmaxCrossEntropy)
    leaves_out = True
    _no_graph = "its samples come in bags"
    label_embeddings: Tensor | None

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        n_concepts: int = 5,
        temperature: float = 1.0,
        mask: str = "select",
        counts: bool = False,
        memory_limit: int = 2**30,
        loss: str | Loss = "auto",
        by_cosine: bool = True,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.by_cosine = by_cosine
        self.criterion = self.resolve_loss(loss, multilabel)
        self.link = self.criterion.link
        check_integer(n_concepts, "n_concepts")
        self.temperature = check_real(temperature, "temperature", 0, closed=False)
        self.mask, self.counts = mask, counts
        self.memory_limit = check_integer(memory_limit, "memory_limit")
        self.weight = nn.Parameter(torch.empty(n_labels, n_concepts, n_features))
        self.concept_bias = nn.Parameter(torch.zeros(n_labels, n_concepts))
        self.bias = nn.Parameter(torch.zeros(n_labels)) if mask == "multiply" else None
        self.register_buffer("label_embeddings", None)
        nn.init.normal_(self.weight, std=n_features**-0.5 / 2)

    def attend(self, label_embeddings: Tensor) -> None:
        """Set the label vectors of the attention, of shape (n_labels, n_columns).

        They are scaled to norm one. The vectors are constants; zero vectors attend to all instances
        equally.
        """
        rows = F.normalize(label_embeddings, dim=1)
        self.label_embeddings = rows.T.contiguous().to(self.weight)

    def check_filled(self, n_columns: int | None) -> None:
        vectors, shape, dtype = self.label_embeddings, (n_columns, self.n_labels), self.weight.dtype
        if vectors is not None and (vectors.shape != shape or vectors.dtype != dtype):
            raise ValueError(
                f"the saved model has label_embeddings of shape {tuple(vectors.shape)} and type "
                f"{vectors.dtype}, and needs {shape} and {dtype}"
            )

    def set_prior(self, frequency: Tensor) -> None:
        self._set_prior(slice(None), frequency)

    @torch.no_grad()
    def _set_prior(self, labels: Labels, frequency: Tensor) -> None:
        prior = torch.logit(frequency.clamp(1e-7, MAX_PRIOR)).to(self.weight)
        if self.bias is not None:
            self.bias[labels] = prior
        else:
            self.concept_bias[labels] = prior[:, None]

    # --- labels that come later, or go ------------------------------------------------------

    def label_rows(self) -> list[tuple[Tensor, int]]:
        return [(p, math.prod(p.shape[1:])) for p in self.parameters()]

    def set_n_labels(self, n_labels: int) -> None:
        if self.label_embeddings is not None:
            self.label_embeddings = F.pad(self.label_embeddings, (0, n_labels - self.n_labels))
        super().set_n_labels(n_labels)

    def set_free(self, free: Tensor) -> None:
        super().set_free(free)
        if self.label_embeddings is not None:
            self.label_embeddings = self.label_embeddings.masked_fill(free, 0.0)

    @torch.no_grad()
    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        draw_rows(self.weight, positions, self.n_features**-0.5 / 2)
        self.concept_bias[positions] = 0.0
        self._set_prior(positions, frequency[positions])

    def loss_of(self, features: Any, targets: Targets, weights: Tensor) -> Tensor:
        values, chunks = targets.values_like(self.weight), self._chunks(features)
        again = len(chunks) > 1 and torch.is_grad_enabled()
        run = partial(checkpoint, use_reentrant=False) if again else operator.call
        if self.multilabel:
            found = targets.ids, targets.rows, values, weights[targets.rows]
            parts = positives_by_chunk(chunks, found)
            losses = [run(self._label_losses, features, *part) for part in parts]
            return weights @ torch.stack(losses).sum(0)
        share = self.criterion.share(weights, targets.rows, values)
        parts = positives_by_chunk(chunks, (targets.ids, targets.rows, values, share))
        terms = [run(self._softmax_terms, features, chunk, found.at) for chunk, found in parts]
        total = torch.stack([total for total, _ in terms]).logsumexp(0)
        rows = torch.cat([found.rows for _, found in parts])
        surprise = total[rows] - torch.cat([positive for _, positive in terms])
        return torch.cat([found.weights for _, found in parts]) @ self.criterion.value(surprise)

    def topk(self, features: Bags, k: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        chunks = self._chunks(features)
        return topk_of_chunks(((c.start, self._bag_logits(features, c)) for c in chunks), k)

    def scores(self, features: Bags) -> Tensor:  # type: ignore[override]
        chunks = self._chunks(features)
        return torch.cat([self._bag_logits(features, chunk) for chunk in chunks], dim=1)

    def label_vectors(self) -> Tensor:
        return self.weight.flatten(1)

    # --- instances ------------------------------------------------------------------------

    def instance_logits(self, bags: Bags, chunk: slice) -> Tensor:
        """Compute the largest concept of each label of a chunk, (n_instances, chunk)."""
        weight, bias = self.weight[chunk], self.concept_bias[chunk]
        concepts = F.linear(bags.features, weight.flatten(0, 1), bias.flatten())
        return concepts.unflatten(1, bias.shape).amax(2)  # (n_instances, chunk, n_concepts)

    def log_mask(self, bags: Bags, chunk: slice) -> Tensor | None:
        """Compute the log of the attention mask M, (n_instances, chunk); None if all ones.

        ``M = g softmax(similarity / temperature)`` over the g instances of a bag (Section 6 of the
        paper): the mean of each of its columns over a bag is one.
        """
        if self.label_embeddings is None or len(bags) == len(bags.instances):
            return None
        with torch.no_grad():
            owner = bags.owner
            vectors = self.label_embeddings[:, chunk]
            affinity = _similarities(bags.instances, vectors, self.by_cosine) / self.temperature
            affinity = affinity - segment_max(affinity, owner, len(bags))[owner]
            total = affinity.new_zeros(len(bags), affinity.shape[1])
            total.index_add_(0, owner, affinity.exp())
            mean = total / bags.indptr.diff()[:, None]
            return affinity - mean.log()[owner]

    def _keys_and_values(self, bags: Bags, chunk: slice) -> tuple[Tensor, Tensor]:
        """Compute the ranking keys of instances for each label, and their logits for the bag."""
        logits, log_mask = self.instance_logits(bags, chunk), self.log_mask(bags, chunk)
        if self.bias is None:
            return logits.detach() if log_mask is None else logits.detach() + log_mask, logits
        # A small weight would raise a negative logit: the ReLU comes first. A sigmoid of a
        # positive number never falls below one half: the bias comes last.
        masked = F.relu(logits)
        if log_mask is not None:
            masked = masked * log_mask.exp()
        return masked.detach(), masked + self.bias[chunk]

    # --- bags -----------------------------------------------------------------------------

    def _bag_logits(self, bags: Bags, chunk: slice) -> Tensor:
        """Compute the logits of bags, (n_bags, chunk), from the first-ranked instances."""
        keys, values = self._keys_and_values(bags, chunk)
        logits = values.gather(0, first_of_segments(keys, bags.owner, len(bags)))
        return self._labelled(logits, chunk)

    def _label_losses(self, bags: Bags, chunk: slice, found: Positives) -> Tensor:
        """Compute the loss of each bag, summed over the labels of a chunk."""
        counts = self.weight.new_zeros(len(bags), chunk.stop - chunk.start)
        counts.index_put_(found.at, found.targets)
        if not self.counts:
            logits = self._labelled(self._bag_logits(bags, chunk), chunk, 0.0)
            losses = self.criterion(logits, counts.clamp(max=1), chunk)
            return self._labelled(losses, chunk, 0.0).sum(1)
        keys, values = self._keys_and_values(bags, chunk)
        # Exactly c instances hold a label: the c-th in rank does, the next one does not.
        order = sort_segments(keys, bags.owner)
        start, size = bags.indptr[:-1, None], bags.indptr.diff()[:, None]
        rank = start + counts.long()
        held = values.gather(0, order.gather(0, (rank - 1).clamp(min=0)))
        not_held = values.gather(0, order.gather(0, rank.clamp(max=len(keys) - 1)))
        losses = (counts > 0) * self.criterion.positive(held, chunk)
        losses = losses + (counts < size) * self.criterion.negative(not_held)
        return self._labelled(losses, chunk, 0.0).sum(1)

    def _softmax_terms(
        self, bags: Bags, chunk: slice, at: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Compute the log-sum-exp of each bag's logits of a chunk, and its positives' logits."""
        logits = self._bag_logits(bags, chunk)
        return logits.logsumexp(1), logits[at]

    def _chunks(self, bags: Bags) -> list[slice]:
        """Return slices of labels; concepts and temporaries of each fit the memory limit."""
        n_concepts = self.weight.shape[1]
        size = 2 * len(bags.instances) * (n_concepts + 4) * self.weight.element_size()
        most = max(1, self.memory_limit // max(1, size))
        return slices(0, self.n_labels, most, math.ceil(self.n_labels / most))


def segment_max(values: Tensor, owner: Tensor, n_segments: int) -> Tensor:
    """Return the largest value of each segment and column, (n_segments, n_columns)."""
    lowest = values.new_full((n_segments, values.shape[1]), float("-inf"))
    return lowest.scatter_reduce(0, owner[:, None].expand_as(values), values, "amax")


def first_of_segments(keys: Tensor, owner: Tensor, n_segments: int) -> Tensor:
    """Return the row of the largest key of each segment and column, the first one on ties."""
    is_largest = keys == segment_max(keys, owner, n_segments)[owner]
    numbers = torch.arange(len(keys), device=keys.device)[:, None].expand_as(keys)
    numbers = torch.where(is_largest, numbers, len(keys))
    none = numbers.new_full((n_segments, keys.shape[1]), len(keys))
    first = none.scatter_reduce(0, owner[:, None].expand_as(keys), numbers, "amin")
    return first.clamp(max=len(keys) - 1)  # a NaN is not equal to itself


def sort_segments(keys: Tensor, owner: Tensor) -> Tensor:
    """Sort rows by decreasing key within each segment; ties keep their order."""
    order = keys.argsort(dim=0, descending=True, stable=True)
    return order.gather(0, owner[order].argsort(dim=0, stable=True))


def _similarities(instances: Any, vectors: Tensor, by_cosine: bool) -> Tensor:
    """Multiply instances with unit vectors (n_columns, n_vectors), or compute their cosines.

    Cosines of empty instances are 0.
    """
    if isinstance(instances, Tensor):
        return (F.normalize(instances, dim=1) if by_cosine else instances) @ vectors
    found = products(instances, vectors.contiguous())
    if not by_cosine:
        return found
    squares = found.new_zeros(len(instances))
    sizes = instances.indptr.diff()
    rows = torch.repeat_interleave(sizes, output_size=len(instances.indices))
    squares.index_add_(0, rows, instances.data.square())
    return found / squares.sqrt().clamp(min=1e-12)[:, None]
