"""Arrays of a parsed text: mapped, the same as parsed, and never those of another text."""

import errno
import os
import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.datasets import (
    _xmc_file,
    dump_xmc_file,
    load_xmc_file,
    open_csr,
    save_csr,
)

X = sp.random(50, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
Y = (sp.random(50, 9, 0.3, format="csr", random_state=1) != 0).astype(np.int32)


@pytest.fixture
def path(tmp_path):
    dump_xmc_file(X, Y, tmp_path / "train.txt")
    return tmp_path / "train.txt"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "train.csr"


@pytest.fixture
def parses(monkeypatch):
    """Files parsed so far."""
    done, parse = [], _xmc_file._blocks
    monkeypatch.setattr(
        _xmc_file, "_blocks", lambda *args: done.append(args[0].name) or parse(*args)
    )
    return done


def assert_same(pair, expected):
    for matrix, other in zip(pair, expected):
        assert type(matrix) is sp.csr_matrix
        assert matrix.shape == other.shape
        for name in ("data", "indices", "indptr"):
            left, right = getattr(matrix, name), getattr(other, name)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("block", [1, 7, 2**21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_mapped_arrays_are_those_that_parsing_gives(tmp_path, monkeypatch, name, dtype, block):
    monkeypatch.setattr(_xmc_file, "_BLOCK_ENTRIES", block)
    dump_xmc_file(X, Y, tmp_path / name)
    for _ in range(2):
        pair = load_xmc_file(tmp_path / name, dtype=dtype, out=tmp_path / "out")
        assert_same(pair, load_xmc_file(tmp_path / name, dtype=dtype))
        for matrix in pair:
            for array in (matrix.data, matrix.indices, matrix.indptr):
                assert isinstance(array, np.memmap)
                assert not array.flags.writeable
            again = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
            assert again.has_canonical_format


def test_ids_in_any_order_are_sorted(tmp_path):
    (tmp_path / "a").write_text("2 5 4\n3,0 4:1 0:2 2:3\n1 3:1 1:1\n")
    X, Y = load_xmc_file(tmp_path / "a", out=tmp_path / "out")
    np.testing.assert_array_equal(X.indices, [0, 2, 4, 1, 3])
    np.testing.assert_array_equal(X.data, [2, 3, 1, 1, 1])
    np.testing.assert_array_equal(Y.indices, [0, 3, 1])


@pytest.mark.parametrize("text", ["0 0 0\n", "2 3 4\n\n\n", "1 2 3\n 0:1\n", "1 2 3\n2 \n"])
def test_matrices_without_entries(tmp_path, text):
    (tmp_path / "a").write_text(text)
    assert_same(load_xmc_file(tmp_path / "a", out=tmp_path / "out"), load_xmc_file(tmp_path / "a"))


def test_a_text_is_parsed_once(path, out, parses):
    for given in (out, str(out), out):
        assert_same(load_xmc_file(path, out=given), (X, Y))
    assert len(parses) == 1
    assert_same(open_csr(out), (X, Y))
    assert {file.name for file in path.parent.iterdir()} == {path.name, out.name}


def test_another_text_or_type_is_parsed_anew(path, out, parses):
    old, _ = load_xmc_file(path, out=out)
    before = old.copy()
    dump_xmc_file(2 * X, Y, path)
    assert_same(load_xmc_file(path, out=out), (2 * X, Y))
    assert (old != before).nnz == 0  # what is mapped stays
    os.utime(path, ns=(5, 5))
    load_xmc_file(path, out=out)
    assert load_xmc_file(path, out=out, dtype=np.float64)[0].dtype == np.float64
    assert len(parses) == 4
    test = path.with_name("test.txt")
    dump_xmc_file(X[::-1], Y, test)
    os.utime(test, ns=(5, 5))
    assert_same(load_xmc_file(test, out=out), (X[::-1].sorted_indices(), Y))
    save_csr(out, X)
    assert_same(load_xmc_file(path, out=out), (2 * X, Y))


@pytest.mark.parametrize("damage", ["array", "manifest", "format"])
def test_a_folder_that_cannot_be_read_is_written_anew(path, out, parses, damage):
    load_xmc_file(path, out=out)
    manifest = out / "manifest.json"
    if damage == "array":
        array = next(out.glob("*/0.data.npy"))
        array.write_bytes(array.read_bytes()[:-1])
    else:
        text = manifest.read_text().replace('"format": 1', '"format": 99')
        manifest.write_text(text if damage == "format" else text[:-1])
    assert_same(load_xmc_file(path, out=out), (X, Y))
    assert len(parses) == 2
    assert_same(load_xmc_file(path, out=out), (X, Y))
    assert len(parses) == 2


@pytest.mark.parametrize("text", ["1 2 3\n0 0:x\n", "2 2 3\n0 0:1\n", "nothing\n"])
def test_a_bad_file_is_refused_as_without_out(tmp_path, text):
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError) as plain:
        load_xmc_file(tmp_path / "a")
    with pytest.raises(ValueError, match=re.escape(str(plain.value))):
        load_xmc_file(tmp_path / "a", out=tmp_path / "out")
    assert os.listdir(tmp_path) == ["a"]


def test_what_cannot_be_written_is_an_error(path, out, monkeypatch):
    with pytest.raises(FileNotFoundError, match="missing"):
        load_xmc_file(path.with_name("missing"), out=out)
    for wrong in (1, True, b"out"):
        with pytest.raises(TypeError, match="out must be a str or os.PathLike, got"):
            load_xmc_file(path, out=wrong)
    for taken in (path, path / "out"):
        with pytest.raises(NotADirectoryError, match="train.txt"):
            load_xmc_file(path, out=taken)
    assert_same(load_xmc_file(path), (X, Y))

    def refuse(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        load_xmc_file(path, out=out)
    assert not out.exists()


def test_a_file_that_changes_while_it_is_parsed_is_refused(path, out, monkeypatch):
    parse = _xmc_file._blocks

    def parse_and_change(*args):
        yield from parse(*args)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(_xmc_file, "_blocks", parse_and_change)
    with pytest.raises(ValueError, match="changed while it was read"):
        load_xmc_file(path, out=out)
    monkeypatch.undo()
    assert_same(load_xmc_file(path, out=out), (X, Y))


@pytest.mark.slow
def test_parsing_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_xmc_file, "_BLOCK_ENTRIES", 2**12)
    big = sp.random(4000, 500, 0.1, format="csr", random_state=0, dtype=np.float32)
    dump_xmc_file(big, np.ones((4000, 1)), tmp_path / "a")
    tracemalloc.start()
    X, _ = load_xmc_file(tmp_path / "a", out=tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (X != big).nnz == 0
    assert peak < X.data.nbytes / 2
