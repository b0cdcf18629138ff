"""Search against brute force; a query's result does not depend on the queries beside it."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.ranking import search
from sklearn_xlc.ranking.search import (
    Spaces,
    best_entries,
    best_items,
    dense_index,
    find_pairs,
    heaviest,
    integer_rows,
    inverse_norms,
    only_columns,
    pair_cosines,
    sparse_pair_products,
)

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


@given(matrices(5, 40), st.integers(1, 4))
def test_the_heaviest_entries_of_rows_that_are_not_sorted(X, n):
    csr = sp.csr_array(X)
    order = np.lexsort((-csr.indices, np.repeat(np.arange(len(X)), np.diff(csr.indptr))))
    unsorted = sp.csr_array((csr.data[order], csr.indices[order], csr.indptr), shape=X.shape)
    found, expected = heaviest(unsorted, n), heaviest(csr, n)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


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


def forms(queries, items, is_sparse):
    """Return queries and index in the form of a search, and the cosines that it compares."""
    if is_sparse:
        queries, items = (sp.csr_array(unit(X).astype(np.float32)) for X in (queries, items))
        return queries, sp.csr_array(items.T), (queries @ items.T).toarray()
    queries, items = integer_rows(queries), integer_rows(items)
    products = queries.astype(np.int64) @ items.T.astype(np.int64)
    cosines = products.astype(np.float32) * inverse_norms(items) * inverse_norms(queries)[:, None]
    return queries, dense_index(items), cosines


@pytest.mark.parametrize("is_sparse", [False, True])
@given(queries=matrices(5, 6), items=matrices(12, 6), n=st.integers(1, 14))
def test_items_with_the_largest_positive_cosine(is_sparse, queries, items, n):
    queries, index, exact = forms(queries, items, is_sparse)
    found, cosines = best_items(queries, index, n)
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


@pytest.mark.parametrize("is_sparse, share", [(False, 0), (True, 0), (True, 9)])
def test_many_items_in_blocks_equal_brute_force_and_single_queries(
    is_sparse, share, rng, monkeypatch
):
    monkeypatch.setattr(search, "_MANY", share)  # sums in dense rows, or sparse products
    items = np.round(rng.random((700, 30)) * (rng.random((700, 30)) < 0.2), 1)
    items[300:] = items[:400]  # twins: ties
    queries, index, exact = forms(items[::11], items, is_sparse)
    whole = best_items(queries, index, 20)
    for i, best in enumerate(brute_best(exact, 20)):
        assert whole[0][i].tolist() == [j if -value > 0 else -1 for value, j in best]
    singles = [best_items(queries[[i]], index, 20) for i in range(queries.shape[0])]
    for k in (0, 1):
        np.testing.assert_array_equal(whole[k], np.concatenate([one[k] for one in singles]))
    monkeypatch.setattr(search, "BLOCK_ENTRIES", 3000)
    monkeypatch.setattr(search, "FEW_ENTRIES", 100)
    for k, part in enumerate(best_items(queries, index, 20)):
        np.testing.assert_array_equal(whole[k], part)


def test_lists_of_similar_items(rng, monkeypatch):
    """With all lists the search is exact; with few of them it finds most of the nearest items."""
    around = rng.normal(size=(40, 16))
    items = around[rng.integers(40, size=2000)] + rng.normal(size=(2000, 16))
    items[-5:] = 0
    queries, index, _ = forms(items[::17] + 0.1, items, False)
    exact = best_items(queries, index, 10)
    monkeypatch.setattr(search, "_FEW_ITEMS", 1000)
    queries, index, _ = forms(items[::17] + 0.1, items, False)
    np.testing.assert_array_equal(np.sort(index["ids"]), np.arange(2000))
    some = best_items(queries, index, 10)
    share = np.mean([np.isin(some[0][i], exact[0][i]).mean() for i in range(len(queries))])
    assert 0.82 < share < 1  # .886 on average over twelve seeds, their standard deviation .013
    singles = [best_items(queries[[i]], index, 10) for i in range(len(queries))]
    monkeypatch.setattr(search, "BLOCK_ENTRIES", 3000)
    for k, part in enumerate(best_items(queries, index, 10)):
        np.testing.assert_array_equal(some[k], part)
        np.testing.assert_array_equal(some[k], np.concatenate([one[k] for one in singles]))
    monkeypatch.setattr(search, "_SHARE", 1.0)
    for k, part in enumerate(best_items(queries, index, 10)):
        np.testing.assert_array_equal(exact[k], part)


@pytest.mark.parametrize("n", [1, 7, 60])
def test_lists_of_items_with_ties(rng, n, monkeypatch):
    items, queries = rng.integers(-3, 4, size=(800, 3)), rng.integers(-3, 4, size=(50, 3))
    forms = [integer_rows(each.astype(float)) for each in (items, queries)]
    exact = best_items(forms[1], dense_index(forms[0]), n)
    monkeypatch.setattr(search, "_FEW_ITEMS", 50)
    monkeypatch.setattr(search, "_SHARE", 1.0)
    index = dense_index(forms[0])
    assert len(index["starts"]) > 20
    for found, expected in zip(best_items(forms[1], index, n), exact):
        np.testing.assert_array_equal(found, expected)


def test_lists_of_equal_items(monkeypatch):
    monkeypatch.setattr(search, "_FEW_ITEMS", 50)
    index = dense_index(integer_rows(np.ones((100, 3))))
    found, cosines = best_items(integer_rows(np.ones((1, 3))), index, 4)
    np.testing.assert_array_equal(found, [[0, 1, 2, 3]])
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)


def test_centers_of_other_items_do_not_serve(rng, monkeypatch):
    monkeypatch.setattr(search, "_FEW_ITEMS", 100)
    X = integer_rows(rng.normal(size=(800, 8)))
    centers = dense_index(X[:400])["centers"]
    assert dense_index(X[:600], centers)["centers"] is centers
    far = integer_rows(rng.normal(size=(200, 8)) * 0.1 + np.arange(8))  # as in a sorted stream
    index = dense_index(np.concatenate([X[:400], far]), centers)
    assert index["centers"] is not centers


@pytest.mark.parametrize("n_features", [1, 3, 256, 1000])
def test_products_of_integer_rows_are_exact(n_features, rng):
    X = integer_rows(rng.normal(size=(50, n_features)) * 10.0 ** rng.integers(-9, 9, (50, 1)))
    Z = integer_rows(rng.choice([-1.0, 1.0], size=(50, n_features)))  # the largest products
    for left, right in ((X, X), (X, Z), (Z, Z)):
        exact = left.astype(np.int64) @ right.T.astype(np.int64)
        np.testing.assert_array_equal(left @ right.T, exact)
    np.testing.assert_array_equal(integer_rows(np.array([[3, -127]], np.int8)), [[3, -127]])
    assert np.abs(np.linalg.norm(X, axis=1) * inverse_norms(X) - 1).max() < 1e-6
    np.testing.assert_array_equal(inverse_norms(integer_rows(np.zeros((1, n_features)))), 0)


@given(queries=matrices(5, 6), items=matrices(30, 6), n=st.integers(1, 4))
def test_dense_sums_equal_sparse_products(queries, items, n):
    queries, index = (
        sp.csr_array(unit(queries), dtype="f4"),
        sp.csr_array(unit(items).T, dtype="f4"),
    )
    before, found = search._MANY, []
    try:
        for search._MANY in (0, 1e9):
            found.append(best_items(queries, index.copy(), n))
    finally:
        search._MANY = before
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_in_cache, is_dense", [(1000, False), (100, True)])
def test_sums_of_items_beyond_the_cache_are_dense_sooner(n_in_cache, is_dense, rng, monkeypatch):
    items = rng.random((500, 100)) * (rng.random((500, 100)) < 0.03)
    queries, index, _ = forms(items[:20], items, True)
    share = (np.diff(index.indptr) ** 2.0).sum() / 500**2
    assert search._MANY_BEYOND < share < search._MANY
    before, used, summed = best_items(queries, index.copy(), 5), [], search._summed_blocks
    monkeypatch.setattr(search, "_IN_CACHE", n_in_cache)
    monkeypatch.setattr(search, "_summed_blocks", lambda *a: used.append(a) or summed(*a))
    for one, other in zip(best_items(queries, index, 5), before):
        np.testing.assert_array_equal(one, other)
    assert bool(used) == is_dense


def test_blocks_follow_the_working_memory(rng, monkeypatch):
    sizes = []
    X = integer_rows(rng.normal(size=(300, 8)))
    index = dense_index(X)
    monkeypatch.setattr(search, "row_blocks", _recorded(search.row_blocks, sizes))
    with sklearn.config_context(working_memory=0.1):
        small = best_items(X, index, 3)
    assert max(sizes[:-1]) * 300 * 32 <= 0.1 * 2**20
    whole = best_items(X, index, 3)
    np.testing.assert_array_equal(small[0], whole[0])


def _recorded(function, sizes):
    def recorded(*args):
        blocks = function(*args)
        sizes.extend(part.stop - part.start for part in blocks if args[0] == 300)
        return blocks

    return recorded


def test_cosines_of_pairs(rng):
    left, right = (rng.normal(size=(n, 5)) for n in (4, 6))
    rows, items = np.array([0, 0, 3]), np.array([5, 1, 2])
    expected = (unit(left) @ unit(right).T)[rows, items]
    left, right = integer_rows(left), integer_rows(right)
    np.testing.assert_allclose(pair_cosines(left, right, rows, items), expected, atol=1e-3)
    assert pair_cosines(left, right, rows[:0], items[:0]).shape == (0,)


@pytest.mark.parametrize("block", [16, 200, 2**16])
def test_products_of_sparse_pairs(block, rng, monkeypatch):
    monkeypatch.setattr(search, "BLOCK_ENTRIES", block)
    left, right = (np.round(rng.random((n, 9)) * (rng.random((n, 9)) < 0.4), 1) for n in (4, 6))
    rows, items = np.repeat(np.arange(4), 6), np.tile(np.arange(6), 4)
    found = sparse_pair_products(sp.csr_array(left), sp.csr_array(right), rows, items)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (left @ right.T).ravel(), rtol=1e-6)
    assert (
        sparse_pair_products(sp.csr_array(left), sp.csr_array(right), rows[:0], items[:0]).size == 0
    )


def test_a_sample_alone_has_the_products_and_the_best_entries_that_it_has_among_others(rng):
    left, right = (
        sp.random_array((n, 300), density=0.2, format="csr", dtype="f4", random_state=rng)
        for n in (4, 90)
    )
    rows, items = np.repeat(np.arange(4), 90), np.tile(np.arange(90), 4)
    together = sparse_pair_products(left, right, rows, items)
    for row in range(4):
        alone = sparse_pair_products(left[[row]], right, rows[:90], items[:90])
        np.testing.assert_array_equal(alone, together[rows == row])
    values = np.round(together, 1)  # with ties
    best, ids = best_entries(values, items, np.arange(5) * 90, 7)
    for row in range(4):
        alone = best_entries(values[rows == row], items[:90], np.array([0, 90]), 7)
        np.testing.assert_array_equal(alone[0][0], best[row])
        np.testing.assert_array_equal(alone[1][0], ids[row])


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
            if sparse:
                norms = np.linalg.norm(dense[0], axis=1)
                assert np.isclose(norms, 1).sum() + (norms == 0).sum() == 40
            assert all((np.count_nonzero(one, axis=1) <= 3).all() for one in dense if sparse)
    assert not Spaces({"features": few}).is_sparse("features")


@pytest.mark.parametrize("n_features", [256, 3072])
def test_products_of_integers_of_eight_bits_are_exact(n_features, rng):
    signs = rng.choice([-1.0, 1.0], size=(20, n_features))  # the largest products
    signs[:, 1:] = np.abs(signs[:, 1:])
    kept = integer_rows(signs, np.int8)
    assert kept.dtype == np.int8
    items, queries = integer_rows(kept), integer_rows(signs)
    exact = queries.astype(np.int64) @ items.T.astype(np.int64)
    assert np.abs(exact).max() <= 2**24
    np.testing.assert_array_equal(queries @ items.T, exact)


@pytest.mark.parametrize("columns", [[], [0], [3, 4, 29], range(30)])
def test_only_some_columns(columns, rng):
    X, columns = (
        np.where(rng.random((12, 30)) < 0.3, rng.random((12, 30)), 0),
        np.array(columns, int),
    )
    found = only_columns(sp.csr_array(X), columns)
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), X[:, columns])


LABELLED = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 9)), max_size=30)
WANTED = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=20)


@pytest.mark.parametrize("table", [1, 20, 2**20])
@given(entries=LABELLED, wanted=WANTED)
def test_last_entries_and_sums(table, entries, wanted):
    entries = sorted(entries, key=lambda entry: entry[0])
    rows, labels, values = (np.array([e[i] for e in entries], dtype=int) for i in range(3))
    indptr = np.searchsorted(rows, np.arange(6))
    last, total = np.zeros((5, 7)), np.zeros((5, 7))
    for row, label, value in entries:
        last[row, label] = value
        total[row, label] += value
    at = np.array(sorted(wanted), dtype=int).reshape(-1, 2)
    before = search._TABLE
    try:
        search._TABLE = table
        found, of_pair = find_pairs(at[:, 0], at[:, 1], (5, 7), indptr, labels)
    finally:
        search._TABLE = before
    numbers = np.zeros(len(at))
    numbers[of_pair] = values[found]
    np.testing.assert_array_equal(numbers, last[at[:, 0], at[:, 1]])
    assert (np.diff(found) > 0).all()
    sums = np.bincount(of_pair, values[found], len(at))
    np.testing.assert_array_equal(sums, total[at[:, 0], at[:, 1]])
