"""Shares of labels, and sums of their rows, against dense sums."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.ranking import shares
from sklearn_xlc.ranking.shares import (
    numbers_at,
    pattern,
    product,
    shares_of,
    suits_table,
    weighted,
    weights_of_rows,
)


def draw(rng, n_rows, n_columns, density=0.3):
    values = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    return sp.csr_array(np.where(rng.random(values.shape) < density, values, 0))


def test_shares_in_blocks_are_those_of_the_whole(rng, monkeypatch):
    has, Y = abs(draw(rng, 30, 50)), sp.csr_array((rng.random((50, 12)) < 0.2).astype(int))
    totals = rng.random(30) * 10 + 1
    expected = has.toarray() @ Y.toarray() / totals[:, None]
    expected[expected < 0.1] = 0
    found = shares_of(has, Y, totals, 0.1)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    monkeypatch.setattr(shares, "BLOCK_ENTRIES", 40)
    in_blocks = shares_of(has, Y, totals, 0.1)
    np.testing.assert_array_equal(in_blocks.toarray(), found.toarray())


@pytest.mark.parametrize("n_rows", [1, 200])
def test_a_table_changes_no_bit(n_rows, rng, monkeypatch):
    left, right = draw(rng, n_rows, 40), draw(rng, 40, 9)
    assert suits_table(right)
    of_table = product(left, right)
    assert sp.issparse(of_table) == (n_rows == 1)  # a table of few rows would not pay
    monkeypatch.setattr(shares, "SMALL", 0)
    assert not suits_table(right)
    of_rows = product(left, right).toarray()
    pairs = np.repeat(np.arange(n_rows), 9), np.tile(np.arange(9), n_rows)
    np.testing.assert_array_equal(numbers_at(of_table, *pairs)[:, 0], of_rows[pairs])


def test_tables_are_for_few_labels_and_many_entries(rng):
    assert suits_table(draw(rng, 100, 20, 0.1))
    assert not suits_table(draw(rng, 100, 20, 0.02))
    assert not suits_table(sp.csr_array(np.ones((1, shares._FEW_LABELS + 1))))


def test_rows_are_summed_with_the_weights_that_are_present(rng):
    matrix = draw(rng, 6, 5)
    rows = np.array([[2, 5, 0], [1, -1, -1], [-1, -1, -1]])
    weights, present = rng.random(rows.shape), rows >= 0
    sums = weights_of_rows(present, weights, rows[present], matrix) @ matrix
    of_rows = np.where(present, weights, 0)[:, :, None] * matrix.toarray()[rows]
    np.testing.assert_allclose(sums.toarray(), of_rows.sum(1), rtol=1e-6)
    with pytest.raises(IndexError, match="row 6 of a matrix of 6 rows"):
        weights_of_rows(present, weights, rows[present] + 1, matrix)


def test_numbers_at_pairs(rng):
    found = draw(rng, 20, 8)
    rows, labels = np.nonzero(rng.random(found.shape) < 0.4)
    expected = found.toarray()[rows, labels, None]
    np.testing.assert_array_equal(numbers_at(found, rows, labels), expected)
    np.testing.assert_array_equal(numbers_at(found.toarray(), rows, labels), expected)
    np.testing.assert_array_equal(numbers_at(None, rows, labels), np.zeros_like(expected))


def test_columns_have_weights(rng):
    X, weights = draw(rng, 9, 7), rng.random(7)
    expected = X.toarray() * weights.astype(np.float32)
    np.testing.assert_allclose(weighted(X.copy(), weights).toarray(), expected, rtol=1e-6)
    assert weighted(X, None) is X
    np.testing.assert_array_equal(pattern(X).toarray(), X.toarray() != 0)
