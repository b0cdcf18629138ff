"""Logits of the children of kept parents, against one product for each pair."""

import pytest
import torch
from torch.autograd import gradcheck

from sklearn_xlc.heads.child_logits import ChildLogits, Meetings

ROWS, PARENTS = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([1, 3, 3, 0, 1, 3])


def test_products_and_gradients():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(4, 2 * 3, dtype=torch.float64, generator=generator, requires_grad=True)
    query = torch.randn(3, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    logits = ChildLogits.apply(table, query, ROWS, PARENTS, 2)
    expected = torch.einsum("pcd,pd->pc", table.view(4, 2, 3)[PARENTS], query[ROWS])
    torch.testing.assert_close(logits, expected)
    assert gradcheck(lambda q: ChildLogits.apply(table.detach(), q, ROWS, PARENTS, 2), query)
    (found,) = torch.autograd.grad(logits.square().sum(), table)
    (plain,) = torch.autograd.grad(expected.square().sum(), table)
    assert found.is_sparse
    torch.testing.assert_close(found.to_dense(), plain)


def test_parents_of_equally_many_rows_are_neighbours():
    pairs = Meetings.of(PARENTS)
    assert pairs.parents.tolist() == [0, 1, 3]
    assert pairs.groups == [(1, 1), (1, 2), (1, 3)]
    assert PARENTS[pairs.order].tolist() == [0, 1, 1, 3, 3, 3]


LENGTH = 3


def by_gather(table, query, rows, parents):
    weight = table[parents].unflatten(1, (LENGTH, -1))
    return torch.einsum("ple,pe->pl", weight, query[rows])


@pytest.mark.parametrize("n_pairs", [0, 1, 7, 40])
def test_products_and_gradients_are_those_of_a_gather(n_pairs):
    torch.manual_seed(0)
    table = torch.randn(5, LENGTH * 2, dtype=torch.float64, requires_grad=True)
    query = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    rows, parents = torch.randint(4, (n_pairs,)), torch.randint(5, (n_pairs,))
    found = ChildLogits.apply(table, query, rows, parents, LENGTH)
    expected = by_gather(table, query, rows, parents)
    torch.testing.assert_close(found, expected)
    slopes = torch.randn_like(found)
    to_table, to_query = torch.autograd.grad(found, [table, query], slopes)
    expected_to = torch.autograd.grad(expected, [table, query], slopes)
    torch.testing.assert_close(to_table.to_dense(), expected_to[0])
    torch.testing.assert_close(to_query, expected_to[1])
    assert to_table.coalesce().indices()[0].tolist() == parents.unique().tolist()
