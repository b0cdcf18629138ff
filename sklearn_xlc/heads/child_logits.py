"""Logits of the children of kept parents, for cascades: batched products of gathered rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sklearn_xlc.batches import sparse_gradient


class Meetings(NamedTuple):
    """Pairs of rows and parents, sorted by the number of rows per parent."""

    parents: Tensor
    order: Tensor  # of the pairs, parent by parent
    groups: list[tuple[int, int]]  # number of parents, and of the rows that each of them meets

    @classmethod
    def of(cls, parents: Tensor) -> Meetings:
        unique, inverse, counts = torch.unique(parents, return_inverse=True, return_counts=True)
        by_count = counts.argsort(stable=True)
        rank = torch.empty_like(by_count)
        rank[by_count] = torch.arange(len(by_count), device=rank.device)
        order = rank[inverse].argsort(stable=True)
        sizes, numbers = torch.unique_consecutive(counts[by_count], return_counts=True)
        pairs = torch.stack([numbers, sizes], 1).tolist()  # a GPU is waited for once
        groups = [(number, size) for number, size in pairs]
        return cls(unique[by_count], order, groups)

    def each(self, *by_pair: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield the parents of each group, and views (n_parents, n_rows, ...) of its pairs."""
        parent = pair = 0
        for number, size in self.groups:
            pairs = slice(pair, pair + number * size)
            of_group = [tensor[pairs].view(number, size, -1) for tensor in by_pair]
            yield slice(parent, parent + number), of_group
            parent, pair = parent + number, pairs.stop


class ChildLogits(torch.autograd.Function):
    """Logits of the children of (row, parent) pairs, with a row-sparse gradient of the table.

    A parent's embeddings are gathered once however many rows keep it: parents with equal numbers of
    rows share one batched product. (These are too small to be faster in bfloat16.)
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, query: Tensor, rows: Tensor, parents: Tensor, length: int
    ) -> Tensor:
        pairs = Meetings.of(parents)
        rows = rows[pairs.order]
        weight = table.index_select(0, pairs.parents).unflatten(1, (length, -1))
        queries = query.index_select(0, rows)
        products = queries.new_empty(len(rows), length)
        for some, (q, out) in pairs.each(queries, products):
            torch.bmm(q, weight[some].transpose(1, 2), out=out)
        logits = torch.empty_like(products)
        logits[pairs.order] = products
        ctx.save_for_backward(weight, queries, rows)
        ctx.pairs, ctx.shapes = pairs, (table.shape, query.shape)
        return logits

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (weight, queries, rows), pairs = ctx.saved_tensors, ctx.pairs
        slopes = grad_outputs[0].index_select(0, pairs.order)
        to_weight, to_queries = torch.empty_like(weight), torch.empty_like(queries)
        for some, (slope, q, out) in pairs.each(slopes, queries, to_queries):
            torch.bmm(slope.transpose(1, 2), q, out=to_weight[some])
            torch.bmm(slope, weight[some], out=out)
        of_table, of_query = ctx.shapes
        to_table = sparse_gradient(pairs.parents, to_weight.flatten(1), of_table)
        to_query = queries.new_zeros(of_query).index_add_(0, rows, to_queries)
        return to_table, to_query, None, None, None
