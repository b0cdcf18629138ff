"""All rows of a table in one process: nothing is copied, and nothing is computed."""

import torch

from sklearn_xlc.heads._whole import WHOLE, whole


def test_tensors_pass_through():
    table, rows = torch.randn(5, 3), torch.tensor([4, 0])
    for same in (WHOLE.own, WHOLE.joined, WHOLE.read_by_all, WHOLE.sum_of_all):
        assert same(table) is table
    for same in (WHOLE.logsumexp, WHOLE.joined_columns):
        assert same(table) is table
    assert WHOLE.sum(table, rows) == (table, rows)
    assert WHOLE.chosen(rows, table, unit=2) == (rows, table)
    assert WHOLE.merged(table, rows, 2) == (table, rows)
    assert WHOLE.joined_sum(table, slice(None), 5) is table
    assert WHOLE.positions(rows, table, 3) is rows


def test_all_rows_are_held():
    assert whole(7, unit=2) is WHOLE
    assert (WHOLE.start, WHOLE.n_held(7)) == (0, 7)
    assert WHOLE.labels(7) == slice(0, 7)
    assert WHOLE.holds(torch.arange(7)) == slice(None)
    assert WHOLE.of([torch.nn.Parameter(torch.zeros(3))]) == {}
    WHOLE.refuse_part()


def test_weights_are_drawn_as_torch_draws_them():
    torch.manual_seed(0)
    expected = torch.empty(6, 4).normal_(std=0.3)
    torch.manual_seed(0)
    table = torch.empty(2, 12)
    WHOLE.draw_normal(table.unflatten(1, (3, 4)), 0.3)
    assert torch.equal(table.view(6, 4), expected)
    assert torch.equal(WHOLE.rows_at(table, torch.tensor([1])), table[1:])


def test_cross_entropy_and_what_it_consists_of():
    torch.manual_seed(0)
    logits, true = torch.randn(4, 5).double(), torch.tensor([0, 4, 2, 2])
    rows = torch.arange(4)
    each = torch.nn.functional.cross_entropy(logits, true, reduction="none")
    torch.testing.assert_close(WHOLE.surprises(logits, (rows, true)), each)
    positive = logits[rows, true]
    negative = logits.index_put((rows, true), torch.tensor(-torch.inf).double()).logsumexp(1)
    highest = torch.maximum(negative, positive)
    found, everything = WHOLE.normalisers(negative, highest, rows, positive)
    assert found is negative
    torch.testing.assert_close(everything, logits.logsumexp(1))
