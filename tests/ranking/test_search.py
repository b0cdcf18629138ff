"""Search against brute force; a query's result does not depend on the queries beside it."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.ranking import search
from sklearn_xlc.ranking.search import Spaces, best_entries, best_items, heaviest, pair_products

#: Few values, so that there are ties.
SMALL = st.integers(-2, 2)


def matrices(n_rows, n_columns):
    row = st.lists(SMALL, min_size=n_columns, max_size=n_columns)
    return st.lists(row, min_size=1, max_size=n_rows).map(lambda rows: np.array(rows, float))


def brute_best(values, n):
    """Return (value, id) of the n largest entries of each row, ties by the smaller id."""
    return [sorted(zip(-row, range(len(row))))[:n] for row in values]


@given(matrices(6, 9), st.integers(1, 10))
def test_the_heaviest_entries_by_magnitude(X, n):
    found = heaviest(sp.csr_array(X), n)
    expected = np.zeros_like(X)
    for i, row in enumerate(np.abs(X)):
        kept = [j for _, j in sorted(zip(-row, range(len(row))))[:n]]
        expected[i, kept] = X[i, kept]
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.has_canonical_format


@given(matrices(5, 30), st.integers(1, 4))
def test_best_entries_of_long_and_short_rows(X, n):
    csr = sp.csr_array(X)
    values, ids = best_entries(csr.data, csr.indices, csr.indptr, n)
    for i in range(len(X)):
        expected = [(value, j) for value, j in brute_best(np.where(X == 0, -9, X), n)[i]]
        expected = [
            (-value, j) for value, j in expected if -value > 0
        ]  # below zero may be left out
        found = [(v, j) for v, j in zip(values[i], ids[i]) if v > 0]
        assert found == expected


def test_best_entries_do_not_need_sorted_ids(rng):
    values, ids = rng.integers(1, 4, 300).astype(float), rng.permutation(300)
    found, best = best_entries(values, ids, np.array([0, 0, 300]), 7)
    order = np.lexsort((ids, -values))[:7]
    np.testing.assert_array_equal(best, [[-1] * 7, ids[order]])
    np.testing.assert_array_equal(found[1], values[order])


def unit(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


@pytest.mark.parametrize("is_sparse", [False, True])
@given(queries=matrices(5, 6), items=matrices(12, 6), n=st.integers(1, 14))
def test_items_with_the_largest_positive_cosine(is_sparse, queries, items, n):
    queries, items = (unit(X).astype(np.float32) for X in (queries, items))
    given_queries = sp.csr_array(queries) if is_sparse else queries
    index = sp.csr_array(items.T) if is_sparse else items
    found, cosines = best_items(given_queries, index, n)
    if is_sparse:  # float32, summed feature by feature
        exact = (sp.csr_array(queries) @ sp.csr_array(items.T)).toarray()
    else:
        exact = (queries.astype(float) @ items.T.astype(float)).astype(np.float32)
    for i, best in enumerate(brute_best(exact, n)):
        best = [(-value, j) for value, j in best if -value > 0]
        padding = n - len(best)
        assert found[i].tolist() == [j for _, j in best] + [-1] * padding
        np.testing.assert_allclose(cosines[i], [v for v, _ in best] + [0] * padding, rtol=1e-6)


def test_a_long_row_before_a_short_one_with_larger_values():
    """The bound of the last long row is made of its own entries."""
    values = np.concatenate([np.full(9, 0.5), [1.0]]).astype(np.float32)
    best, ids = best_entries(values, np.arange(10), np.array([0, 9, 10]), 1)
    np.testing.assert_array_equal(ids, [[0], [9]])
    np.testing.assert_array_equal(best, [[0.5], [1.0]])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_many_items_in_blocks_equal_brute_force_and_single_queries(is_sparse, rng, monkeypatch):
    items = np.round(rng.random((700, 30)) * (rng.random((700, 30)) < 0.2), 1)
    items[300:] = items[:400]  # twins: ties
    queries = unit(items[::11]).astype(np.float32)
    items = unit(items).astype(np.float32)
    given_queries = sp.csr_array(queries) if is_sparse else queries
    index = sp.csr_array(items.T) if is_sparse else items
    whole = best_items(given_queries, index, 20)
    exact = given_queries @ index if is_sparse else sp.csr_array(queries) @ items.T.astype(float)
    exact = np.asarray(exact.toarray() if sp.issparse(exact) else exact).astype(np.float32)
    for i, best in enumerate(brute_best(exact, 20)):
        assert whole[0][i].tolist() == [j if -value > 0 else -1 for value, j in best]
    singles = [best_items(given_queries[[i]], index, 20) for i in range(len(queries))]
    for k in (0, 1):
        np.testing.assert_array_equal(whole[k], np.concatenate([one[k] for one in singles]))
    monkeypatch.setattr(search, "BLOCK_ENTRIES", 3000)
    monkeypatch.setattr(search, "FEW_ENTRIES", 100)
    for k, part in enumerate(best_items(given_queries, index, 20)):
        np.testing.assert_array_equal(whole[k], part)


def test_blocks_follow_the_working_memory(rng, monkeypatch):
    sizes = []
    monkeypatch.setattr(search, "row_blocks", _recorded(search.row_blocks, sizes))
    X = unit(rng.normal(size=(300, 8))).astype(np.float32)
    with sklearn.config_context(working_memory=0.1):
        small = best_items(X, X, 3)
    assert max(sizes[:-1]) * 300 * 32 <= 0.1 * 2**20
    whole = best_items(X, X, 3)
    np.testing.assert_array_equal(small[0], whole[0])


def _recorded(function, sizes):
    def recorded(*args):
        blocks = function(*args)
        sizes.extend(part.stop - part.start for part in blocks if args[0] == 300)
        return blocks

    return recorded


def test_products_of_pairs(rng):
    left, right = (rng.normal(size=(n, 5)).astype(np.float32) for n in (4, 6))
    rows, items = np.array([0, 0, 3]), np.array([5, 1, 2])
    expected = (left.astype(float) @ right.T.astype(float))[rows, items]
    np.testing.assert_allclose(pair_products(left, right, rows, items), expected, rtol=1e-6)
    assert pair_products(left, right, rows[:0], items[:0]).shape == (0,)


def test_a_space_is_sparse_or_dense_by_its_content_not_by_its_form(rng):
    few = np.where(rng.random((40, 30)) < 0.05, 1.0, 0)
    many = rng.random((40, 30))
    for X, is_sparse in ((few, True), (many, False)):
        forms = [Spaces({"input": form}) for form in (X, sp.csr_array(X), sp.csr_matrix(X))]
        assert [each.is_sparse("input") for each in forms] == [is_sparse] * 3
        for sparse in (False, True):
            units = [each.unit("input", 3, sparse) for each in forms]
            dense = [one.toarray() if sparse else one for one in units]
            assert all(np.array_equal(dense[0], one) for one in dense)
            assert dense[0].dtype == np.float32
            norms = np.linalg.norm(dense[0], axis=1)
            assert np.isclose(norms, 1).sum() + (norms == 0).sum() == 40
            assert all((np.count_nonzero(one, axis=1) <= 3).all() for one in dense if sparse)
    assert not Spaces({"features": few}).is_sparse("features")
