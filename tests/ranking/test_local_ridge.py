"""Weights of neighbours against dense linear algebra; those of a query stand alone."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc._csr import unit_rows
from sklearn_xlc.ranking import local_ridge
from sklearn_xlc.ranking.local_ridge import ridge_weights
from sklearn_xlc.ranking.search import integer_rows


def expected(queries, vectors, items, penalties):
    """Solve the equations of each query by themselves."""
    found = np.zeros(items.shape)
    for row, x in enumerate(queries):
        has = items[row] >= 0
        N = vectors[items[row][has]]
        found[row, has] = np.linalg.solve(N @ N.T + np.diag(penalties[row][has]), N @ x)
    return found


def make(seed, n_queries, n_neighbors, n_features, share, is_sparse):
    """Return queries, vectors, neighbours and penalties; the first two dense and as they are."""
    rng = np.random.default_rng(seed)
    shape = (n_queries + 30, n_features)
    X = np.where(rng.random(shape) < share, rng.normal(size=shape), 0)
    X[rng.random(len(X)) < 0.1] = 0
    X[-1] = X[-2]
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    dense = X / np.where(norms > 0, norms, 1)
    given = unit_rows(sp.csr_array(X)).astype(np.float32) if is_sparse else integer_rows(X)
    items = np.stack([rng.permutation(30)[:n_neighbors] for _ in range(n_queries)])
    items[np.arange(n_neighbors) >= rng.integers(0, n_neighbors + 1, (n_queries, 1))] = -1
    penalties = rng.uniform(0.1, 2, items.shape)
    return (
        dense[:n_queries],
        dense[n_queries:],
        given[:n_queries],
        given[n_queries:],
        items,
        penalties,
    )


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 20),
    st.sampled_from([0.1, 0.5, 1]),
    st.booleans(),
)
def test_weights_solve_the_equations(seed, n_queries, n_neighbors, n_features, share, is_sparse):
    queries, vectors, *given, items, penalties = make(
        seed, n_queries, n_neighbors, n_features, share, is_sparse
    )
    found = ridge_weights(*given, items, penalties)
    wanted = expected(queries, vectors, items, penalties)
    np.testing.assert_allclose(found, wanted, atol=2e-2 if is_sparse else 5e-3)
    assert not found[items < 0].any()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_sums_are_exact(is_sparse):
    """The cosines of rounded vectors are, so that only the rounding of them is left."""
    queries, vectors, *given, items, penalties = make(0, 200, 20, 300, 0.1, is_sparse)
    rounded = [A.toarray().astype(float) if is_sparse else A.astype(float) for A in given]
    if is_sparse:
        rounded = [np.rint(np.float32(A) * np.float32(4000)) / 4000 for A in rounded]
    else:
        norms = [np.linalg.norm(A, axis=1, keepdims=True) for A in rounded]
        rounded = [A / np.where(n > 0, n, 1) for A, n in zip(rounded, norms)]
    found = ridge_weights(*given, items, penalties)
    np.testing.assert_allclose(found, expected(*rounded, items, penalties), atol=1e-6)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_weights_do_not_depend_on_the_queries_beside(is_sparse, monkeypatch):
    *_, queries, vectors, items, penalties = make(1, 120, 12, 40, 0.2, is_sparse)
    whole = ridge_weights(queries, vectors, items, penalties)
    alone = [
        ridge_weights(queries[[i]], vectors, items[[i]], penalties[[i]])[0] for i in range(120)
    ]
    np.testing.assert_array_equal(whole, alone)
    monkeypatch.setattr(local_ridge, "_BLOCK", 300)
    np.testing.assert_array_equal(whole, ridge_weights(queries, vectors, items, penalties))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_no_queries_no_neighbours_no_samples(is_sparse):
    *_, queries, vectors, items, penalties = make(2, 5, 3, 10, 0.5, is_sparse)
    none = np.full_like(items, -1)
    assert ridge_weights(queries[:0], vectors, items[:0], penalties[:0]).shape == (0, 3)
    assert ridge_weights(queries, vectors, items[:, :0], penalties[:, :0]).shape == (5, 0)
    assert not ridge_weights(queries, vectors, none, penalties).any()
    assert not ridge_weights(queries, vectors[:0], none, penalties).any()


def test_columns_beyond_32_bits_of_keys():
    """A query's features are told apart from another's where columns are large."""
    far = 2**31 - 5
    rows = sp.csr_array(
        (np.ones(300, np.float32), np.tile([0, far, far + 1], 100), np.arange(301)),
        shape=(300, far + 2),
    )
    items = np.stack([np.arange(i, i + 3) for i in range(0, 290, 3)])
    queries = rows[np.arange(1, 291, 3)]
    found = ridge_weights(queries, rows, items, np.ones(items.shape))
    np.testing.assert_allclose(found, np.tile([0, 0.5, 0], (len(items), 1)), atol=1e-6)


@pytest.mark.parametrize("bits", [1, 4, 17])
@pytest.mark.parametrize("largest", [2, 9, 2**40])
def test_last_entries_of_keys(bits, largest, rng, monkeypatch):
    """Keys that meet in one place are told apart, however few places there are."""
    monkeypatch.setattr(local_ridge, "_PLACES", bits)
    keys = rng.integers(largest, size=60)
    keys = np.concatenate([[2**bits], keys, rng.permutation(keys)[:40]])
    last = [int(np.flatnonzero(keys == key)[-1]) for key in keys]
    assert local_ridge._last_entries(keys).tolist() == last
    assert not len(local_ridge._last_entries(keys[:0]))


def test_blocks_of_queries_change_no_bit(monkeypatch):
    *_, queries, vectors, items, penalties = make(3, 150, 12, 200, 0.05, True)
    whole = ridge_weights(queries, vectors, items, penalties)
    monkeypatch.setattr(local_ridge, "_BLOCK", 200)
    monkeypatch.setattr(local_ridge, "_PLACES", 5)
    np.testing.assert_array_equal(ridge_weights(queries, vectors, items, penalties), whole)


def test_hashed_columns_take_no_memory_of_their_own():
    """Each thread would hold as much; looking through them took most of a request's time."""
    n_features = 2**24
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(n_features, size=(300, 8)), axis=1).ravel()
    parts = np.full(2400, 8**-0.5, np.float32), columns, np.arange(0, 2401, 8)
    rows = sp.csr_array(parts, shape=(300, n_features))
    items = rng.integers(300, size=(300, 10))
    tracemalloc.start()
    try:
        ridge_weights(rows, rows, items, np.ones(items.shape))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_features
