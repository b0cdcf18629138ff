"""The order of a pass: every sample once, a pure function of the seed, near each other if many.

Of mapped matrices, the pages asked for are those of the rows, and the samples are the same.
"""

import mmap

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import BatchIterator, Rows, order
from sklearn_xlc.batches.order import fetched, is_mapped, regrouped, shuffled
from sklearn_xlc.datasets import open_csr, save_csr

N, WIDTH = 3000, 50


@pytest.fixture
def many(monkeypatch):
    """Few entries are many: blocks of 5 samples of 4 entries, 3 of them mixed."""
    monkeypatch.setattr(order, "MANY_ENTRIES", 50)
    monkeypatch.setattr(order, "_BLOCK", 20)
    monkeypatch.setattr(order, "_TOGETHER", 3)


def test_few_entries_are_shuffled_whole():
    (found,) = shuffled(50, 200, np.random.default_rng(3))
    np.testing.assert_array_equal(found, np.random.default_rng(3).permutation(50))


@pytest.mark.parametrize("n_samples", [13, 15, 47, 60])
def test_every_sample_comes_once_beside_its_neighbours(many, n_samples):
    pieces = list(shuffled(n_samples, 4 * n_samples, np.random.default_rng(0)))
    assert len(pieces) == -(-n_samples // 15)
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), np.arange(n_samples))
    for piece in pieces:
        assert len(np.unique(piece // 5)) <= 3
        assert len(piece) < 6 or (np.diff(piece) != 1).any()
    again = shuffled(n_samples, 4 * n_samples, np.random.default_rng(0))
    for piece, other in zip(pieces, again, strict=True):
        np.testing.assert_array_equal(piece, other)


def test_samples_with_more_entries_than_a_block(many):
    pieces = list(shuffled(7, 700, np.random.default_rng(0)))
    assert [len(piece) for piece in pieces] == [3, 3, 1]


def test_passes_differ_and_draw_before_the_first_sample(many):
    rng = np.random.default_rng(0)
    first = shuffled(60, 240, rng)
    one = next(first)
    state = rng.bit_generator.state
    rest = list(first)
    assert rng.bit_generator.state == state
    two = np.concatenate(list(shuffled(60, 240, rng)))
    assert (np.concatenate([one, *rest]) != two).any()


@pytest.mark.parametrize("sizes", [[1] * 10, [10], [3, 3, 4], [7, 3]])
def test_regrouped(sizes):
    pieces = iter(np.split(np.arange(10), [2, 2, 7]))
    found = list(regrouped(pieces, sizes))
    assert [len(piece) for piece in found] == sizes
    np.testing.assert_array_equal(np.concatenate(found), np.arange(10))


@pytest.mark.parametrize("members", [None, np.arange(1, 60, 2)])
@pytest.mark.parametrize("sparse", [True, False])
def test_batches_hold_every_row_once_with_its_label(many, members, sparse):
    X = sp.csr_matrix(np.arange(1.0, 61)[:, None] * np.ones(4))
    Y = sp.csr_matrix(np.eye(60))
    chosen = np.arange(60) if members is None else members
    rows = Rows(X, Y[chosen], sparse=sparse, members=members)
    values, labels = [], []
    for batch in BatchIterator(rows, 7, np.random.default_rng(0), torch.device("cpu")):
        inputs = batch.inputs.data.reshape(-1, 4) if sparse else batch.inputs
        values += inputs[:, 0].tolist()
        labels += batch.targets.ids.tolist()
    assert sorted(labels) == chosen.tolist()
    assert [value - 1 for value in values] == labels
    assert labels != sorted(labels)
    assert len({label // 5 for label in labels[:7]}) <= (3 if members is None else 6)


# --- rows of memory-mapped files ------------------------------------------------------------------


@pytest.fixture
def X():
    return sp.random(N, 400, 0.1, "csr", np.float32, random_state=np.random.default_rng(0))


@pytest.fixture
def mapped(X, tmp_path):
    save_csr(tmp_path / "X.csr", X)
    return open_csr(tmp_path / "X.csr")


@pytest.fixture
def asked(monkeypatch):
    """Advice given within the test: (advice, start, length)."""
    if not hasattr(mmap.mmap, "madvise"):
        pytest.skip("the system takes no advice on mapped files")
    given = []
    advise = order._advise

    def recorded(mapping, *advice):
        given.append(advice)
        advise(mapping, *advice)

    monkeypatch.setattr(order, "_advise", recorded)
    return given


def pages_of(array, begins, ends, mapping):
    """Pages with bytes of the elements of an array between each two places."""
    origin = np.frombuffer(mapping, np.uint8).ctypes.data
    first = array.ctypes.data - origin
    pages = set()
    for begin, end in zip(begins, ends):
        if end > begin:
            start, stop = (first + place * array.itemsize for place in (begin, end))
            pages |= set(range(start // mmap.PAGESIZE, -(stop // -mmap.PAGESIZE)))
    return pages


def wanted(asked):
    """Pages that were asked for since random reading was announced."""
    ranges = [(a, n) for advice, a, n in asked if advice == mmap.MADV_WILLNEED]
    assert all(start % mmap.PAGESIZE == 0 for start, _ in ranges)
    bounds = [(start // mmap.PAGESIZE, -((start + n) // -mmap.PAGESIZE)) for start, n in ranges]
    return [page for both in bounds for page in range(*both)]


@pytest.mark.parametrize("rows", [[7], [0, N - 1], [5, 6, 7, 900, 901, 2000], range(N)], ids=len)
def test_asks_for_the_pages_of_the_rows_of_csr(mapped, asked, rows):
    rows = np.random.default_rng(0).permutation(np.asarray(rows))
    for _ in fetched(iter([rows]), mapped, lambda piece: piece):
        got = wanted(asked)
    bounds = mapped.indptr[rows], mapped.indptr[rows + 1]
    parts = mapped.data, mapped.indices
    assert sorted(got) == sorted(p for part in parts for p in pages_of(part, *bounds, part._mmap))


def test_asks_for_the_pages_of_the_rows_of_a_dense_matrix(tmp_path, asked):
    np.save(tmp_path / "X.npy", np.ones((N, WIDTH), np.float32))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    for part in (X, X[100:]):
        asked.clear()
        rows = np.array([3, 4, 1500])
        for _ in fetched(iter([rows]), part, lambda piece: piece):
            got = wanted(asked)
        assert set(got) == pages_of(part, rows * WIDTH, (rows + 1) * WIDTH, X._mmap)


@pytest.mark.parametrize("end", ["whole", "abandoned", "failed"])
def test_reading_ahead_is_off_until_the_last_piece(mapped, asked, end):
    def pieces():
        yield np.arange(3)
        if end == "failed":
            raise OSError("gone")
        yield np.arange(5, 9)

    found = fetched(pieces(), mapped, lambda piece: piece)
    next(found)
    assert asked[0][0] == mmap.MADV_RANDOM
    assert mmap.MADV_NORMAL not in [advice for advice, *_ in asked]
    if end == "failed":
        with pytest.raises(OSError, match="gone"):
            next(found)
    elif end == "abandoned":
        found.close()
    else:
        assert len(list(found)) == 1
    assert asked[-1][0] == mmap.MADV_NORMAL
    assert sorted(asked[0][1:]) == sorted(asked[-1][1:])


def test_matrices_in_memory_are_left_alone(X, asked):
    assert not is_mapped(X.data)
    pieces = [np.arange(3), np.arange(5, 9)]
    assert [len(piece) for piece in fetched(iter(pieces), X, None)] == [3, 4]
    assert asked == []


@pytest.mark.parametrize("form", ["samples", "members", "bags"])
def test_batches_of_a_mapped_matrix_are_those_of_the_same_in_memory(
    mapped, X, asked, monkeypatch, form
):
    def passed(matrix):
        beside = {"bags": np.arange(0, N + 1, 5)} if form == "bags" else {}
        rows = Rows(matrix, sparse=True, **beside)
        if form == "members":
            rows = rows.select(np.random.default_rng(1).permutation(N)[:1000])
        batches = BatchIterator(rows, 64, np.random.default_rng(0), torch.device("cpu"))
        inputs = (batch.inputs for batch in batches)
        return [getattr(some, "instances", some) for some in inputs]

    whole = passed(mapped)
    assert asked == []  # few entries: shuffled whole
    monkeypatch.setattr(order, "MANY_ENTRIES", 1000)
    monkeypatch.setattr(order, "_BLOCK", 500)
    for one, other in zip(passed(mapped), passed(X), strict=True):
        assert torch.equal(one.data, other.data)
        assert torch.equal(one.indices, other.indices)
    assert len(whole) > 5
    assert mmap.MADV_WILLNEED in [advice for advice, *_ in asked]
