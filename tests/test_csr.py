"""Functions on matrices against brute force on dense ones."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklearn_xlc._csr import (
    bounded_rows,
    canonical,
    distinct_rows,
    find_entries,
    is_mostly_zeros,
    joined_ranges,
    kept_entries,
    mix_bits,
    moved_columns,
    moved_rows,
    occurring_columns,
    one_per_row,
    places_of,
    pointers_of,
    row_blocks,
    row_lengths,
    row_numbers,
    row_of,
    taken_rows,
    uneven_blocks,
    unit_rows,
    weighted_quantile,
)

EXAMPLES = settings(derandomize=True, max_examples=40, deadline=None)


@pytest.mark.parametrize("n_nonzero, expected", [(0, True), (9, True), (10, False), (100, False)])
def test_mostly_zeros_asks_for_values_not_for_storage(n_nonzero, expected):
    X = np.zeros(100)
    X[:n_nonzero] = 1.0
    X = X.reshape(10, 10)
    stored_zeros = sp.csr_matrix(np.ones((10, 10)))
    stored_zeros.data[:] = X.ravel()
    for form in (X, sp.csr_matrix(X), stored_zeros):
        assert is_mostly_zeros(form) is expected


def test_canonical():
    untidy = sp.csr_array(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    before = copy.deepcopy(untidy)
    tidy = canonical(untidy)
    assert tidy.has_canonical_format
    assert tidy.nnz == 2
    np.testing.assert_array_equal(tidy.toarray(), untidy.toarray())
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(untidy, part), getattr(before, part))
    assert canonical(tidy) is tidy
    X = np.eye(2)
    assert canonical(X) is X


def test_canonical_keeps_zeros_when_asked():
    untidy = sp.csc_matrix(([0.0, 2.0, 3.0], [2, 1, 1], [0, 3]), shape=(3, 1))
    tidy = canonical(untidy, keep_zeros=True)
    assert isinstance(tidy, sp.csc_matrix)
    assert tidy.indices.tolist() == [1, 2]
    assert tidy.data.tolist() == [5.0, 0.0]
    assert untidy.nnz == 3


#: Small integer matrices with many empty rows.
MATRICES = arrays(
    np.int64,
    st.tuples(st.integers(0, 6), st.integers(1, 5)),
    elements=st.sampled_from([0, 0, 1, 7]),
)


@EXAMPLES
@given(MATRICES)
def test_rows_of_entries(X):
    matrix = sp.csr_array(X)
    rows = row_numbers(matrix.indptr)
    np.testing.assert_array_equal(rows, X.nonzero()[0])
    assert [row_of(matrix, position) for position in range(matrix.nnz)] == rows.tolist()


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_joined_ranges(pairs):
    starts, lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = [start + i for start, length in pairs for i in range(length)]
    assert joined_ranges(starts, lengths).tolist() == expected


@EXAMPLES
@given(st.lists(st.integers(0, 4), min_size=1))
def test_pointers(sizes):
    pointers = pointers_of(np.array(sizes))
    assert pointers[0] == 0
    assert np.diff(pointers).tolist() == sizes


@EXAMPLES
@given(st.permutations(range(7)), st.integers(0, 7))
def test_places_of_numbers(order, n_known):
    ids = np.where(np.array(order) < n_known, order, -1)
    expected = [order.index(i) if i < n_known else -1 for i in range(9)]
    assert places_of(ids, 9).tolist() == expected


@pytest.mark.parametrize("n", [3, 3000])
def test_taken_rows_are_those_of_scipy(n, rng):
    X = sp.random_array((50, 20), density=0.3, format="csr", random_state=rng)
    rows = rng.integers(-50, 50, n)
    lengths, columns, values = taken_rows(X, rows)
    np.testing.assert_array_equal(lengths, np.diff(X[rows].indptr))
    np.testing.assert_array_equal(columns, X[rows].indices)
    np.testing.assert_array_equal(values, X[rows].data)


def test_row_lengths_count_from_the_end_too():
    indptr = np.array([0, 3, 3, 5, 9])
    rows = np.array([[3, 0, -1], [1, -2, -4]])
    np.testing.assert_array_equal(row_lengths(indptr, rows), np.diff(indptr)[rows])


@EXAMPLES
@given(MATRICES)
def test_entries_are_found(X):
    matrix = sp.csr_array(X)
    rows, columns = np.arange(X.shape[0])[:, None], np.arange(-1, X.shape[1])
    positions = find_entries(matrix, rows, columns)
    assert positions.shape == (X.shape[0], X.shape[1] + 1)
    assert (positions[:, 0] == -1).all()
    np.testing.assert_array_equal(positions[:, 1:] >= 0, X != 0)
    np.testing.assert_array_equal(np.append(matrix.data, 0)[positions[:, 1:]], X)
    csc = sp.csc_array(X)
    by_column = find_entries(csc.T, columns, rows)
    np.testing.assert_array_equal(np.append(csc.data, 0)[by_column[:, 1:]], X)


def test_moved_columns(rng):
    dense = rng.integers(0, 3, size=(20, 6))
    origin = np.array([4, -1, 0, 5, -1])
    expected = np.where(origin < 0, 0, dense[:, origin])
    for kind in (sp.csr_array, sp.csr_matrix):
        given = kind(dense)
        found = moved_columns(given, origin)
        np.testing.assert_array_equal(found.toarray(), expected)
        np.testing.assert_array_equal(given.toarray(), dense)
        assert type(found) is kind
        assert found.has_canonical_format


@pytest.mark.parametrize("kind", [np.array, sp.csr_array, sp.csr_matrix])
def test_moved_rows(kind, rng):
    dense = rng.integers(0, 3, size=(6, 20))
    origin = np.array([4, -1, 0, 5, -1])
    given = kind(dense)
    found = moved_rows(given, origin)
    assert type(found) is type(given)
    found, given = (X.toarray() if sp.issparse(X) else X for X in (found, given))
    np.testing.assert_array_equal(found, np.where(origin[:, None] < 0, 0, dense[origin]))
    np.testing.assert_array_equal(given, dense)


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_occurring_columns(block, rng, monkeypatch):
    monkeypatch.setattr("sklearn_xlc._csr.FEW_ENTRIES", block)
    X = rng.normal(size=(9, 40)) * (rng.random((9, 40)) < 0.1)
    expected = (X != 0).any(axis=0)
    assert 0 < expected.sum() < 40
    with_zeros = sp.csr_array(X)
    with_zeros.data[::3] = 0
    for matrix in (X, sp.csr_array(X), sp.csr_array((0, 40)), with_zeros):
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        np.testing.assert_array_equal(occurring_columns(matrix), (dense != 0).any(axis=0))


@EXAMPLES
@given(MATRICES)
def test_distinct_rows(X):
    first, inverse = distinct_rows(sp.csr_array(X))
    sets = [tuple(row) for row in X != 0]
    assert [sets[row] for row in first] == list(dict.fromkeys(sets))
    assert [sets[first[number]] for number in inverse] == sets
    assert (np.diff(first) > 0).all()


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows(make, dtype, rng):
    X = rng.normal(size=(20, 7)) * (rng.random((20, 7)) < 0.4) * np.arange(20)[:, None] * 1e9
    unit = unit_rows(make(X.astype(dtype)))
    assert unit.dtype == dtype
    dense = unit.toarray() if sp.issparse(unit) else unit
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(dense, X / np.where(norms, norms, 1), rtol=4 * np.finfo(dtype).eps)


def test_unit_rows_do_not_depend_on_the_order_in_memory(rng):
    X = rng.normal(size=(30, 7))
    unit = unit_rows(np.asfortranarray(X))
    np.testing.assert_array_equal(unit, unit_rows(X))
    assert unit.flags.c_contiguous


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e307])
def test_unit_rows_whose_squares_overflow_or_vanish(make, scale, rng):
    X = rng.uniform(-1, 1, size=(6, 5)) * np.array([[1], [scale], [0], [scale], [1], [1]])
    expected = unit_rows(make(X / np.array([[1], [scale], [1], [scale], [1], [1]])))
    unit = unit_rows(make(X))
    unit, expected = (m.toarray() if sp.issparse(m) else m for m in (unit, expected))
    np.testing.assert_allclose(unit, expected, rtol=1e-14)


def test_unit_rows_leave_unsorted_entries_where_they_are():
    X = sp.csr_array(([4.0, 3.0], [2, 0], [0, 2, 2]), shape=(2, 3))  # a row of zeros, too
    np.testing.assert_array_equal(unit_rows(X).toarray(), [[0.6, 0, 0.8], [0, 0, 0]])
    assert X.indices.tolist() == [2, 0]
    assert X.data.tolist() == [4, 3]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, np.ndarray.tolist])
def test_unit_rows_of_whole_numbers_are_floating(make):
    unit = unit_rows(make(np.array([[3, 4], [0, 0]])))
    np.testing.assert_allclose(unit.toarray() if sp.issparse(unit) else unit, [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_marked_entries_are_kept(kind):
    matrix = kind([[1, 0, 2], [0, 3, 4]])
    kept = kept_entries(matrix, matrix.data != 3)
    assert isinstance(kept, kind)
    assert kept.nnz == 3
    np.testing.assert_array_equal(kept.toarray(), [[1, 0, 2], [0, 0, 4]])
    np.testing.assert_array_equal(matrix.toarray(), [[1, 0, 2], [0, 3, 4]])


def test_one_per_row():
    indicator = one_per_row(np.array([2, 0, 2]), 4, np.int32)
    assert indicator.dtype == np.int32
    np.testing.assert_array_equal(indicator.toarray(), np.eye(4)[[2, 0, 2]])


@EXAMPLES
@given(st.integers(0, 30), st.integers(0, 12), st.integers(1, 40))
def test_blocks_cover_all_rows_once(n_rows, row_size, n_entries):
    blocks = row_blocks(n_rows, row_size, n_entries)
    assert [row for block in blocks for row in range(n_rows)[block]] == list(range(n_rows))
    sizes = [block.stop - block.start for block in blocks]
    assert all(size == 1 or size * row_size <= n_entries for size in sizes)


@EXAMPLES
@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 20))
def test_uneven_blocks(sizes, n_entries):
    blocks = uneven_blocks(np.array(sizes, dtype=np.int64), n_entries)
    assert [row for block in blocks for row in range(len(sizes))[block]] == list(range(len(sizes)))
    assert all(sum(sizes[block][1:]) < n_entries for block in blocks)


def test_hash_of_counters():
    # First outputs of SplitMix64 with seed 1234567, from its reference implementation.
    step = np.uint64(0x9E3779B97F4A7C15)
    counters = np.uint64(1234567) + step * np.arange(1, 4, dtype=np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix_bits(counters).tolist() == expected


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype, size", [(np.float32, 1e30), (np.float64, 1e-300), (int, 7)])
def test_bounded_rows_have_norms_up_to_one(convert, dtype, size, rng):
    X = (size * rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.5)).astype(dtype)
    found = bounded_rows(convert(X))
    assert found.dtype == (np.float64 if dtype is int else dtype)
    found = found.toarray() if sp.issparse(found) else found
    wide = X.astype(np.longdouble)
    expected = wide / np.sqrt((wide**2).sum(axis=1)).max()
    np.testing.assert_allclose(found, expected.astype(float), rtol=1e-6)
    assert not bounded_rows(convert(np.zeros((3, 2)))).sum()
    assert bounded_rows(convert(np.zeros((0, 2)))).shape == (0, 2)


@EXAMPLES
@given(arrays(np.int64, 12, elements=st.integers(0, 3)), st.sampled_from([0.1, 0.5, 1.0]))
def test_values_without_weight_are_no_quantile(weights, q):
    values = np.array([7.0, 1, 4, 2, 9, 3, 5, 0, 8, 6, 11, 10])
    repeated = np.repeat(values, weights)
    expected = np.sort(repeated)[int(np.ceil(q * len(repeated))) - 1] if len(repeated) else 0.0
    assert weighted_quantile(values, weights, q) == expected
