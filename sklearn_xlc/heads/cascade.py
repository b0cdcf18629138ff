"""Multi-Head Cascade: each head refines the label groups kept by the previous head."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer, check_option, check_real
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import MAX_HEADS, MixedRadix
from sklearn_xlc.heads._base import (
    DigitPart,
    HalfLinear,
    Head,
    draw_rows,
    origins,
)
from sklearn_xlc.heads._whole import WHOLE, ShardOf, Whole, whole
from sklearn_xlc.heads.child_logits import ChildLogits
from sklearn_xlc.heads.losses import Labels, Loss, PointwiseLoss, SoftmaxCrossEntropy
from sklearn_xlc.heads.ranking import topk_by_position


class _Pairs(NamedTuple):
    """(row, node) pairs, with the log score of the path (in a beam) or the target of the node."""

    rows: Tensor
    nodes: Tensor
    values: Tensor


class CascadeHead(Head):
    """Cascade of H heads (multi-label and multi-class).

    The first head scores the values of a label's first digit. Each later head scores the children
    of the nodes kept so far: child c of a kept parent scores ``table[c] . query + bias[c]`` with a
    query of `embedding_dim` numbers per sample (Eq. 12 of [1]_). Of the tables, only the rows of
    kept parents are read and updated.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    lengths : sequence of int
        Number of outputs of each head, for at least two heads.
    embedding_dim, beam_width, path_exponent : int or float, default=256 and 10 and 0.5
        As of :class:`Cascade`.
    loss : str or Loss, default="auto"
        Loss of the nodes' logits: any pointwise loss without parameters per label (multi-label), or
        "ce" (multi-class). "auto" is "bce" for multi-label targets and "ce" otherwise.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the products with all nodes of the first level and with the weights of the
        queries, in training; weights and sums keep theirs.
    level_weighting : {"sum", "mean"}, default="sum"
        As of :class:`Cascade`.
    shard_of : callable, default=whole
        As of :class:`ChunkedHead`.

    Notes
    -----
    Multi-label training keeps the `beam_width` best parents *and every parent that holds a
    positive*; the nodes of a level are those of the first head, or the existing children of kept
    parents. The loss of a sample is the sum over levels. The target of a node is the largest target
    of its labels. Multi-class training follows the true digits: their surprises (minus log
    probabilities) add up to the surprise of the label.

    **Differences from the paper**

    - The loss sums over the nodes of a level; for the mean of [1]_ see `level_weighting`. Sums
      ranked better on one data set, and alike on two (docs/papers.md).
    - Scores weigh ancestors by `path_exponent`; [1]_ has 1. True parents are always kept; adding
      targets to raw logits (Algorithm 3 of [1]_) does not ensure that.
    - Labels that do not exist are never ranked.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification", section 4.2.
    """

    kinds_of_loss = (PointwiseLoss, SoftmaxCrossEntropy)
    per_label_losses = False
    searches_all = False
    leaves_out = True
    #: Rows of each table in this process: subtrees. The rest of the head is small, and whole.
    table_shards: Sequence[Whole] = (WHOLE,) * MAX_HEADS

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        lengths: Sequence[int],
        embedding_dim: int = 256,
        beam_width: int = 10,
        path_exponent: float = 0.5,
        loss: str | Loss = "auto",
        precision: str = "float32",
        level_weighting: str = "sum",
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.level_weighting = check_option(level_weighting, "level_weighting", "sum", "mean")
        self.low_precision = precision == "bfloat16"
        self.code = MixedRadix(n_labels, lengths)
        self.criterion = self.resolve_loss(loss, multilabel)
        self.link = "exp" if self.criterion.link == "softmax" else self.criterion.link
        self.embedding_dim = check_integer(embedding_dim, "embedding_dim")
        self.beam_width = check_integer(beam_width, "beam_width")
        check_real(path_exponent, "path_exponent", 0, 1000)
        self.path_exponent = path_exponent if multilabel else 1.0
        self.n_nodes = self._count_nodes(n_labels)
        self.first = HalfLinear(n_features, self.n_nodes[0], self.low_precision)
        nn.init.normal_(self.first.weight, std=n_features**-0.5 / 2)
        nn.init.zeros_(self.first.bias)
        # One row per parent: its children's embeddings, each followed by the child's bias.
        later = list(zip(self.n_nodes[:-1], self.code.lengths[1:]))
        self.queries = nn.ModuleList(
            HalfLinear(n_features, embedding_dim, self.low_precision) for _ in later
        )
        self.take_shards(shard_of)
        self.tables = nn.ParameterList(
            nn.Parameter(torch.empty(shard.n_held(n_parents), length * (embedding_dim + 1)))
            for shard, (n_parents, length) in zip(self.table_shards, later)
        )
        for table, shard in zip(self.tables, self.table_shards):
            children = table.data.unflatten(1, (-1, embedding_dim + 1))
            shard.draw_normal(children, embedding_dim**-0.5 / 2)
            children[..., -1] = 0.0

    def row_parameters(self) -> list[nn.Parameter]:
        return list(self.tables)

    def sharded_parameters(self) -> dict[nn.Parameter, Any]:
        found: dict[nn.Parameter, Any] = {}
        for table, shard in zip(self.tables, self.table_shards):
            found |= shard.of([table])
        return found

    def take_shards(self, shard_of: ShardOf) -> None:
        self.table_shards = [shard_of(n_parents) for n_parents in self.n_nodes[:-1]]

    def forget_shards(self) -> None:
        vars(self).pop("table_shards", None)

    def bias_columns(self) -> list[tuple[nn.Parameter, int, int]]:
        return [(table, self.embedding_dim + 1, self.embedding_dim) for table in self.tables]

    def bytes_per_row(self, k: int | None = None) -> int:
        # Nodes and log scores of the beam's children, in the widest level; with their copies.
        width = max(self.n_nodes) if k is None else self._beam_for(k)
        levels = zip(self.n_nodes[:-1], self.code.lengths[1:])
        widest = max(min(width, n_nodes) * length for n_nodes, length in levels)
        return max(widest, self.n_nodes[0]) * 6 * (self._itemsize + 8)

    def _beam_for(self, k: int) -> int:
        """Return the beam width for k labels."""
        # Every kept parent has all its children, except the last node of a level.
        n_free = 0 if self.free is None else int(self.free.sum())
        return max(self.beam_width, -(-(k - 1 + n_free) // self.code.lengths[-1]) + 1)

    def set_prior(self, frequency: Tensor) -> None:
        """Start nodes at their frequency, in later levels among samples with the parent in beam."""
        with torch.no_grad():
            for level, bias in enumerate(self._first_biases(frequency)):
                held = self._weights(level)[1]
                first = self.table_shards[level - 1].start * self.code.lengths[level] * (level > 0)
                own = bias[first : first + len(held)]
                held[: len(own)] = own

    def _first_biases(self, frequency: Tensor) -> Iterator[Tensor]:
        """Compute the initial biases of the nodes of each level."""
        labels = torch.arange(self.n_labels, device=frequency.device)
        parents = frequency  # not read on the first level
        for level, n_nodes in enumerate(self.n_nodes):
            nodes = labels // int(self.code.place_values[level])
            mass = frequency.new_zeros(n_nodes).index_add(0, nodes, frequency)
            chance = mass.clamp(1e-7, 1 - 1e-3)
            if level:
                parent = torch.arange(n_nodes, device=mass.device) // self.code.lengths[level]
                # Multi-label children are scored wherever the beam keeps their parent.
                kept = min(1.0, self.beam_width / len(parents)) if self.multilabel else 1e-9
                chance = (mass / parents.clamp_min(kept)[parent]).clamp(1e-4, 1 - 1e-3)
            yield torch.logit(chance) if self.multilabel else chance.log()
            parents = mass

    def _weights(self, level: int) -> tuple[Tensor, Tensor]:
        """Return weights and biases of the nodes of a level, then of codes without a node."""
        if level == 0:
            return self.first.weight.data, self.first.bias.data
        nodes = self.tables[level - 1].data.view(-1, self.embedding_dim + 1)
        return nodes[:, :-1], nodes[:, -1]

    # --- labels that come later, or go ----------------------------------------------------

    def label_rows(self) -> list[tuple[Tensor, int]]:
        return [(self.tables[-1], self.embedding_dim + 1)]

    def _without_label(self, level: int) -> Tensor | None:
        """Return the mask of ignored nodes of a level, without any label; None: there are none.

        In multi-label a node has its own probability, so only nodes of single labels are ignored.
        """
        is_last = level + 1 == self.code.n_heads
        if self.free is None or is_last or self.multilabel:
            return self.free if is_last else None
        labels = (~self.free).nonzero()[:, 0] // int(self.code.place_values[level])
        return ~torch.isin(torch.arange(self.n_nodes[level], device=labels.device), labels)

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        n_nodes, device = self._count_nodes(n_labels), self.first.weight.device
        n_more = [new - old for old, new in zip(self.n_nodes, n_nodes)]
        tensors = [(self.first.weight, 0), (self.first.bias, 0), *zip(self.tables, range(99))]
        return [
            (tensor, origins(self.n_nodes[level], n_more[level], device))
            for tensor, level in tensors
            if n_more[level]
        ]

    def set_n_labels(self, n_labels: int) -> None:
        super().set_n_labels(n_labels)
        self.code, self.n_nodes = self.code.longer(n_labels), self._count_nodes(n_labels)

    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        known = self._others(positions).nonzero()[:, 0]
        for level, bias in enumerate(self._first_biases(frequency)):
            nodes = (positions // int(self.code.place_values[level])).unique()
            nodes = nodes[~torch.isin(nodes, known // int(self.code.place_values[level]))]
            weights, biases = self._weights(level)
            draw_rows(weights, nodes, weights.shape[1] ** -0.5 / 2)
            biases[nodes] = bias[nodes].to(biases)

    def _count_nodes(self, n_labels: int) -> list[int]:
        """Count the nodes of each level with at least one label below."""
        return [(n_labels - 1) // int(p) + 1 for p in self.code.place_values]

    # --- scores of the children of kept parents -------------------------------------------

    def _child_logits(self, level: int, features: Tensor, rows: Tensor, parents: Tensor) -> Tensor:
        """Compute the logits of the children of (row, parent) pairs, (n_pairs, length)."""
        logits, held = self._held_logits(level, features, rows, parents)
        return self.table_shards[level - 1].joined_sum(logits, held, len(rows))

    def _held_logits(
        self, level: int, features: Tensor, rows: Tensor, parents: Tensor
    ) -> tuple[Tensor, Labels]:
        """Compute the same for the pairs with parents in this process, and their selection."""
        table, length = self.tables[level - 1], self.code.lengths[level]
        shard = self.table_shards[level - 1]
        query, held = shard.read_by_all(self._query(level, features)), shard.holds(parents)
        return ChildLogits.apply(table, query, rows[held], shard.own(parents[held]), length), held

    def _all_child_logits(self, level: int, features: Tensor) -> Tensor:
        """Compute the logits of the children of all nodes, (n_rows, n_parents, length)."""
        shard, length = self.table_shards[level - 1], self.code.lengths[level]
        parents = torch.arange(self.n_nodes[level - 1], device=features.device)
        children = self.tables[level - 1].unflatten(1, (length, -1))
        own = children @ self._query(level, features).T  # one product, as no pair is left out
        return shard.joined_sum(own, shard.holds(parents), len(parents)).permute(2, 0, 1)

    def _query(self, level: int, features: Tensor) -> Tensor:
        """Compute what children are compared with, and one for their bias."""
        return F.pad(self.queries[level - 1](features), (0, 1), value=1.0)

    def _children(self, level: int, parents: Tensor) -> tuple[Tensor, Tensor]:
        """Return the children of parents, (n_pairs, length), and whether they exist."""
        length = self.code.lengths[level]
        children = parents[:, None] * length + torch.arange(length, device=parents.device)
        exist, without = children < self.n_nodes[level], self._without_label(level)
        if without is not None:
            exist = exist & ~without[children.clamp(max=len(without) - 1)]
        return children, exist

    def _first_logits(self, features: Tensor) -> Tensor:
        logits, without = self.first(features), self._without_label(0)
        return logits if without is None else logits.masked_fill(without, -torch.inf)

    # --- training -------------------------------------------------------------------------

    def loss_of(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        if self.multilabel:
            return self._multilabel_loss(features, targets, weights)
        surprise = -self._path_to(targets.ids, targets.rows, features)
        share = self.criterion.share(weights, targets.rows, targets.values_like(features))
        return share @ self.criterion.value(surprise)

    def _multilabel_loss(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        logits = self._first_logits(features)
        values = targets.values_like(features)
        true = self._true_nodes(0, targets, values)
        multi_hot = torch.zeros_like(logits)
        multi_hot[true.rows, true.nodes] = true.values
        of_nodes = weights if self.level_weighting == "sum" else weights / logits.shape[1]
        loss = of_nodes @ self.criterion(logits, multi_hot).sum(1)
        nodes, path = self._first_beam(logits.detach(), self.beam_width)
        rows = torch.arange(len(nodes), device=nodes.device).repeat_interleave(nodes.shape[1])
        kept = _Pairs(rows, nodes.reshape(-1), path.reshape(-1))
        for level in range(1, self.code.n_heads):
            rows, parents, path = self._with_true(kept, true, level)
            true, shard = self._true_nodes(level, targets, values), self.table_shards[level - 1]
            of_nodes = self._node_weights(weights, rows, parents, level)
            is_last, length = level + 1 == self.code.n_heads, self.code.lengths[level]
            if is_last:  # the beam asks for no logits of others any more
                parents, rows, of_nodes = shard.chosen(parents, rows, of_nodes)
                nodes, *others = shard.chosen(true.nodes, true.rows, true.values, unit=length)
                true = _Pairs(others[0], nodes, others[1])
            children, exist = self._children(level, parents)
            multi_hot = self._mark(rows, parents, true, level)
            pairs = level, features, rows, parents
            logits = self._held_logits(*pairs)[0] if is_last else self._child_logits(*pairs)
            of_level = of_nodes @ (self.criterion(logits, multi_hot) * exist).sum(1)
            loss = loss + (shard.sum_of_all(of_level) if is_last else of_level)
            if not is_last:
                scores = path[:, None] + F.logsigmoid(logits.detach())
                kept = self._beam(rows, children, scores.masked_fill(~exist, -torch.inf))
        return loss

    def _node_weights(self, weights: Tensor, rows: Tensor, parents: Tensor, level: int) -> Tensor:
        """Return the weight of the loss of each pair's children."""
        if self.level_weighting == "sum":
            return weights[rows]
        _, exist = self._children(level, parents)
        n_nodes = torch.zeros_like(weights).index_add(0, rows, exist.sum(1).to(weights.dtype))
        return (weights / n_nodes)[rows]

    def _beam(self, rows: Tensor, children: Tensor, scores: Tensor) -> _Pairs:
        """Return the best `beam_width` children of each row, over pairs in any order."""
        rows = rows.repeat_interleave(children.shape[1])
        scores = scores.reshape(-1)
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[rows[order].argsort(stable=True)]  # by row, then best first
        counts = torch.bincount(rows)
        start = counts.cumsum(0) - counts
        rank = torch.arange(len(order), device=order.device) - start[rows[order]]
        keep = order[(rank < self.beam_width) & (scores[order] > -torch.inf)]
        return _Pairs(rows[keep], children.reshape(-1)[keep], scores[keep])

    def _true_nodes(self, level: int, targets: Targets, values: Tensor) -> _Pairs:
        """Return the distinct (row, node) pairs with a positive, sorted, and their targets."""
        n_nodes = self.n_nodes[level]
        nodes = targets.ids // int(self.code.place_values[level])
        key, inverse = torch.unique(targets.rows * n_nodes + nodes, return_inverse=True)
        highest = values.new_zeros(len(key)).scatter_reduce(0, inverse, values, "amax")
        return _Pairs(key // n_nodes, key % n_nodes, highest)

    def _with_true(self, kept: _Pairs, true: _Pairs, level: int) -> _Pairs:
        """Join the beam with every parent of a positive."""
        n_nodes = self.n_nodes[level - 1]
        key = kept.rows * n_nodes + kept.nodes
        true_key = true.rows * n_nodes + true.nodes
        missing = true_key[~torch.isin(true_key, key)]
        # A parent outside the beam enters with probability one half, whatever its score.
        path = torch.cat([kept.values, kept.values.new_full((len(missing),), -0.6931)])
        key = torch.cat([key, missing])
        return _Pairs(key // n_nodes, key % n_nodes, path)

    def _mark(self, rows: Tensor, parents: Tensor, true: _Pairs, level: int) -> Tensor:
        """Return multi-hot targets of the pairs' children, of shape (n_pairs, length)."""
        length, n_parents = self.code.lengths[level], self.n_nodes[level - 1]
        key, order = (rows * n_parents + parents).sort()
        # Every true node's parent is among the pairs, so the search always hits.
        at = order[torch.searchsorted(key, true.rows * n_parents + true.nodes // length)]
        marked = true.values.new_zeros(len(rows), length)
        marked[at, true.nodes % length] = true.values
        return marked

    # --- prediction -----------------------------------------------------------------------

    def _squash(self, logits: Tensor, exist: Tensor | None = None) -> Tensor:
        """Compute log probabilities of nodes, each on its own (multi-label) or given its parent."""
        if self.multilabel:
            return F.logsigmoid(logits)
        if exist is not None:
            logits = logits.masked_fill(~exist, -torch.inf)
        return logits.log_softmax(-1)

    def _first_beam(self, logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return nodes and log scores of the best first digits, both (n_rows, width)."""
        best, nodes = topk_by_position(logits, min(width, self.n_nodes[0]))
        if self.multilabel:
            return nodes, F.logsigmoid(best)
        return nodes, best - logits.logsumexp(1, keepdim=True)

    def _leaves(self, features: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return the leaves below the beam and their final scores, -inf where none exists."""
        n_rows = features.shape[0]
        nodes, path = self._first_beam(self._first_logits(features), width)
        for level in range(1, self.code.n_heads):
            rows = torch.arange(n_rows, device=nodes.device).repeat_interleave(nodes.shape[1])
            logits = self._child_logits(level, features, rows, nodes.reshape(-1))
            children, exist = self._children(level, nodes.reshape(-1))
            shape = (*nodes.shape, -1)
            path = self._of_children(level, path, logits.view(shape), exist.view(shape))
            nodes = children.view(n_rows, -1)
            if level + 1 < self.code.n_heads:
                path, nodes = topk_by_position(path, min(width, self.n_nodes[level]), nodes)
                nodes = nodes.clamp_max(self.n_nodes[level] - 1)
        return nodes, path

    def _of_children(self, level: int, path: Tensor, logits: Tensor, exist: Tensor) -> Tensor:
        """Compute the log scores, of leaves the final scores, of the children of kept nodes."""
        last = level + 1 == self.code.n_heads
        own = self._squash(logits, exist)
        scores = (self.path_exponent if last else 1.0) * path[..., None] + own
        scores = self._finish(scores) if last else scores
        # A beam slot without a node has path -inf; its children inherit that.
        void = ~exist | (path[..., None] == -torch.inf)
        return scores.masked_fill(void, -torch.inf).flatten(1)

    def _finish(self, scores: Tensor) -> Tensor:
        """Convert log probabilities to scores: in multi-label to log odds."""
        if not self.multilabel:
            return scores
        scores = scores.clamp(max=-torch.finfo(scores.dtype).tiny)
        return scores - torch.log(-torch.expm1(scores))

    def _candidates(self, features: Tensor, k: int) -> tuple[Tensor, Tensor | None]:
        """Return scores and positions below the beam; widen the beam if it has fewer labels."""
        nodes, path = self._leaves(features, self._beam_for(k))
        return path, nodes

    @torch.no_grad()
    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        scores, positions = self._candidates(features, k)
        return topk_by_position(scores, k, positions)

    def _for_graph(self, k: int) -> Head:
        head, width = copy.copy(self), self._beam_for(k)
        without = [self._without_label(level) for level in range(self.code.n_heads)]
        vars(head).update(_beam_for=lambda k: width, _without_label=without.__getitem__)
        vars(head)["_child_logits"] = self._child_logits_in_graph
        return head

    def _child_logits_in_graph(
        self, level: int, features: Tensor, rows: Tensor, parents: Tensor
    ) -> Tensor:
        """Compute the logits of the children of pairs, with a product for each pair."""
        query = self._query(level, features)
        children = self.tables[level - 1].index_select(0, parents)
        children = children.unflatten(1, (self.code.lengths[level], -1))
        return (children @ query.index_select(0, rows)[:, :, None])[:, :, 0]

    @torch.no_grad()
    def scores(self, features: Tensor) -> Tensor:
        """Compute the scores of every label, with all nodes in the beam."""
        path = self._squash(self._first_logits(features))
        for level in range(1, self.code.n_heads):
            logits = self._all_child_logits(level, features)
            parents = torch.arange(logits.shape[1], device=logits.device)
            exist = self._children(level, parents)[1]
            path = self._of_children(level, path, logits, exist)[:, : self.n_nodes[level]]
        return path.contiguous()

    def label_vectors(self) -> Tensor:
        self.table_shards[0].refuse_part()
        return self.tables[-1].view(-1, self.embedding_dim + 1)[: self.n_labels, :-1]

    def scores_at(self, features: Tensor, positions: Tensor) -> Tensor:
        self.table_shards[0].refuse_part()
        rows = torch.arange(len(features), device=positions.device)
        rows = rows.repeat_interleave(positions.shape[1])
        path = self._path_to(positions.reshape(-1), rows, features)
        return self._finish(path).view_as(positions)

    def _path_to(self, ids: Tensor, rows: Tensor, features: Tensor) -> Tensor:
        """Compute the log score of the path to the label of each (row, label) pair."""
        nodes = ids // int(self.code.place_values[0])
        path = self._squash(self._first_logits(features))[rows, nodes]
        for level in range(1, self.code.n_heads):
            logits, held = self._held_logits(level, features, rows, nodes)
            own = self._squash(logits, self._children(level, nodes[held])[1])
            nodes = ids // int(self.code.place_values[level])
            digits = nodes[held] % self.code.lengths[level]
            found = own.gather(1, digits[:, None])[:, 0]
            last = level + 1 == self.code.n_heads
            exponent = self.path_exponent if last else 1.0
            shard = self.table_shards[level - 1]
            path = exponent * path + shard.joined_sum(found, held, len(rows))
        return path


@dataclass(eq=False, repr=False, kw_only=True)
class Cascade(DigitPart):
    """From coarse to fine: each head scores only the children of the previous head's best nodes.

    For class labels and label sets.

    Parameters
    ----------
    n_heads : int, default=2
        Number of heads, at least 2. Every additional head adds an approximation error (Eq. 14 of
        [1]_).
    lengths : sequence of int, default=None
        Number of outputs of each head, the most significant digit first; their product must be at
        least the number of labels. None: descending lengths by
        :func:`~sklearn_xlc.codes.head_lengths`.
    label_order : str or array-like of shape (n_labels,), default="given"
        Order of the labels in the code, in which neighbours share digits: the order of ``classes_``
        ("given"), a random order ("random"), an order by balanced clustering of the label centroids
        ("clustered"), or an array with the position of each label.
    embedding_dim : int, default=256
        Width of the node embeddings.
    beam_width : int, default=10
        Nodes kept per sample and level.
    path_exponent : float, default=0.5
        Weight of a node's ancestors in its score (label sets), at most 1000; 1 multiplies the
        probabilities along the path, as in [1]_.
    level_weighting : {"sum", "mean"}, default="sum"
        What the loss takes of the losses of a level's nodes (label sets): their sum, so that levels
        of many nodes weigh more, or their mean, as in [1]_.

    See Also
    --------
    CascadeHead : The module.

    Notes
    -----
    :meth:`~sklearn_xlc.MultiHeadClassifier.predict_topk` ranks only the labels below the beam,
    `decision_function` scores all. With class labels `path_exponent` and `level_weighting` have no
    meaning.

    References
    ----------
    .. [1] D. Liang, H. Zhang, D. Yuan and M. Zhang, "Multi-Head Encoding for Extreme Label
       Classification".

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.heads import Cascade
    >>> clf = MultiHeadClassifier(Cascade(beam_width=20))
    >>> clf.set_params(head__embedding_dim=64).head
    Cascade(beam_width=20, embedding_dim=64)
    """

    head = CascadeHead

    embedding_dim: int = 256
    beam_width: int = 10
    path_exponent: float = 0.5
    level_weighting: str = "sum"

    _parameter_constraints = {
        **DigitPart._parameter_constraints,
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "beam_width": [Interval(Integral, 1, None, closed="left")],
        "path_exponent": [Interval(Real, 0, 1000, closed="both")],
        "level_weighting": [StrOptions({"sum", "mean"})],
    }

    def _lengths_for(self, n_labels: int, multilabel: bool) -> tuple[int, ...]:
        lengths = super()._lengths_for(n_labels, multilabel)
        if len(lengths) < 2:
            raise ValueError(
                f"Cascade needs n_heads or lengths of at least two heads, got lengths {lengths}; "
                "use head='flat' for one"
            )
        return lengths
