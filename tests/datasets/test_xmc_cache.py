"""Arrays of a parsed file: mapped, the same as parsed, and never those of another file."""

import errno
import os
import re
import tempfile
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import _files
from sklearn_xlc.datasets import _csr_file, _xmc_file, dump_xmc_file, load_xmc_file

X = sp.random(50, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
Y = (sp.random(50, 9, 0.3, format="csr", random_state=1) != 0).astype(np.int32)


@pytest.fixture
def path(tmp_path):
    dump_xmc_file(X, Y, tmp_path / "train.txt")
    return tmp_path / "train.txt"


@pytest.fixture
def parses(monkeypatch):
    """Files parsed so far."""
    done, parse = [], _xmc_file._parse
    monkeypatch.setattr(
        _xmc_file, "_parse", lambda *args: done.append(args[0].name) or parse(*args)
    )
    return done


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


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
        pair = load_xmc_file(tmp_path / name, dtype=dtype, mmap=True)
        assert_same(pair, load_xmc_file(tmp_path / name, dtype=dtype))
        for matrix in pair:
            for array in (matrix.data, matrix.indices, matrix.indptr):
                assert is_mapped(array)
                assert not array.flags.writeable
            again = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
            assert again.has_canonical_format


def test_ids_in_any_order_are_sorted(tmp_path):
    (tmp_path / "a").write_text("2 5 4\n3,0 4:1 0:2 2:3\n1 3:1 1:1\n")
    X, Y = load_xmc_file(tmp_path / "a", mmap=True)
    np.testing.assert_array_equal(X.indices, [0, 2, 4, 1, 3])
    np.testing.assert_array_equal(X.data, [2, 3, 1, 1, 1])
    np.testing.assert_array_equal(Y.indices, [0, 3, 1])


@pytest.mark.parametrize("text", ["0 0 0\n", "2 3 4\n\n\n", "1 2 3\n 0:1\n", "1 2 3\n2 \n"])
def test_matrices_without_entries(tmp_path, text):
    (tmp_path / "a").write_text(text)
    assert_same(load_xmc_file(tmp_path / "a", mmap=True), load_xmc_file(tmp_path / "a"))


def test_a_file_is_parsed_once(path, parses):
    for mmap in (True, np.True_, path.parent / "cache", str(path.parent / "cache")):
        load_xmc_file(path, mmap=mmap)
    assert len(parses) == 2
    load_xmc_file(path, mmap=True, dtype=np.float64)
    load_xmc_file(path, mmap=True)
    assert len(parses) == 3
    names = {file.name for file in path.parent.iterdir()}
    assert names == {"train.txt", "train.txt.float32.xlc", "train.txt.float64.xlc", "cache"}


def test_another_content_is_parsed_anew(path, parses):
    old, _ = load_xmc_file(path, mmap=True)
    before = old.copy()
    dump_xmc_file(2 * X, Y, path)
    assert_same(load_xmc_file(path, mmap=True), (2 * X, Y))
    assert (old != before).nnz == 0  # what is mapped stays
    os.utime(path, ns=(0, 0))
    load_xmc_file(path, mmap=True)
    assert len(parses) == 3


def test_files_of_the_same_name_share_a_folder(tmp_path, parses):
    for name, factor in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        dump_xmc_file(factor * X, Y, tmp_path / name / "train.txt")
    for _ in range(2):
        for name, factor in (("a", 1), ("b", 2)):
            pair = load_xmc_file(tmp_path / name / "train.txt", mmap=tmp_path / "new" / "cache")
            assert_same(pair, (factor * X, Y))
    assert len(parses) == 2


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "model", "format"])
def test_a_cache_that_cannot_be_read_is_written_anew(path, parses, monkeypatch, damage):
    load_xmc_file(path, mmap=True)
    cache = path.with_name("train.txt.float32.xlc")
    content = cache.read_bytes()
    if damage == "model":
        _files.write(cache, None, {}, kind="model")
    elif damage == "format":
        with monkeypatch.context() as later:
            later.setattr(_files, "FORMAT", 99)
            _files.write(cache, None, {}, kind=_csr_file.KIND)
    else:
        cuts = {"truncated": content[:-1], "empty": b"", "foreign": b"PK" + bytes(99)}
        cache.write_bytes(cuts[damage])
    assert_same(load_xmc_file(path, mmap=True), (X, Y))
    assert len(parses) == 2
    assert cache.read_bytes() == content


@pytest.mark.parametrize("text", ["1 2 3\n0 0:x\n", "2 2 3\n0 0:1\n", "nothing\n"])
def test_a_bad_file_is_refused_as_without_mmap(tmp_path, text):
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError) as plain:
        load_xmc_file(tmp_path / "a")
    with pytest.raises(ValueError, match=re.escape(str(plain.value))):
        load_xmc_file(tmp_path / "a", mmap=True)
    assert os.listdir(tmp_path) == ["a"]


def test_errors_name_the_file_and_the_remedy(path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="missing"):
        load_xmc_file(path.with_name("missing"), mmap=True)
    for wrong in (1, None, b"cache"):
        with pytest.raises(TypeError, match="mmap must be a bool, or a folder"):
            load_xmc_file(path, mmap=wrong)
    path.with_name("a file").touch()
    with pytest.raises(OSError, match=r"arrays of .*train.txt cannot be written.*give a folder"):
        load_xmc_file(path, mmap=path.with_name("a file"))

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match="No space left on device; give a folder") as caught:
        load_xmc_file(path, mmap=True)
    assert caught.value.errno == errno.ENOSPC


def test_a_file_that_changes_while_it_is_parsed_is_refused(path, monkeypatch):
    parse = _xmc_file._parse

    def parse_and_change(*args):
        parser = parse(*args)
        os.utime(path, ns=(1, 1))
        return parser

    monkeypatch.setattr(_xmc_file, "_parse", parse_and_change)
    with pytest.raises(ValueError, match="changed while it was read"):
        load_xmc_file(path, mmap=True)
    monkeypatch.undo()
    assert_same(load_xmc_file(path, mmap=True), (X, Y))


def test_parsing_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_xmc_file, "_BLOCK_ENTRIES", 2**12)
    big = sp.random(2000, 500, 0.1, format="csr", random_state=0, dtype=np.float32)
    dump_xmc_file(big, np.ones((2000, 1)), tmp_path / "a")
    tracemalloc.start()
    X, _ = load_xmc_file(tmp_path / "a", mmap=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (X != big).nnz == 0
    assert peak < X.data.nbytes / 2
