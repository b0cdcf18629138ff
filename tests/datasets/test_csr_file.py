"""CSR matrices in files: the same when mapped, written by blocks, and refused when damaged."""

import errno
import json
import os
import re
import tempfile
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import _csr, _files
from sklearn_xlc.datasets import _csr_file, dump_xmc_file, load_xmc_file, open_csr, save_csr
from sklearn_xlc.datasets._csr_file import GrowingCSR

X = sp.random(50, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
Y = (sp.random(50, 9, 0.3, format="csr", random_state=1) != 0).astype(np.int8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.csr"


def blocks(*matrices, size=7):
    for start in range(0, matrices[0].shape[0], size):
        cut = tuple(matrix[start : start + size] for matrix in matrices)
        yield cut if len(cut) > 1 else cut[0]


def assert_same(found, expected):
    assert type(found) is sp.csr_matrix
    assert found.shape == expected.shape
    for name in ("data", "indices", "indptr"):
        left, right = getattr(found, name), getattr(expected, name)
        assert isinstance(left, np.memmap)
        assert not left.flags.writeable
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


# --- what is saved comes back -------------------------------------------------------------------


@pytest.mark.parametrize("given", [X, sp.csr_array(X), X.tocsc(), X.tocoo(), X.toarray()])
@pytest.mark.parametrize("verify", [True, False, np.True_])
def test_a_matrix_comes_back(path, given, verify):
    save_csr(path, given)
    assert_same(open_csr(str(path), verify=verify), X)


@pytest.mark.parametrize("size", [1, 7, 50, 99])
def test_blocks_are_the_matrix(path, size):
    save_csr(path, blocks(X, size=size))
    whole = path.read_bytes()
    assert_same(open_csr(path), X)
    save_csr(path, list(blocks(X.toarray(), size=size)))
    assert path.read_bytes() == whole
    save_csr(path, X)
    assert path.read_bytes() == whole
    assert os.listdir(path.parent) == [path.name]


def test_a_tuple_stays_together(path):
    for given in ((X, Y), blocks(X, Y), [(X, Y)]):
        save_csr(path, given)
        found = open_csr(path)
        assert type(found) is tuple
        for matrix, expected in zip(found, (X, Y), strict=True):
            assert_same(matrix, expected)
    save_csr(path, (X,))
    assert_same(open_csr(path)[0], X)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (3, 2)])
def test_matrices_without_entries(path, shape):
    for given in (sp.csr_matrix(shape), [sp.csr_matrix(shape)]):
        save_csr(path, given)
        assert open_csr(path).shape == shape
        assert open_csr(path).nnz == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
def test_types_of_entries(path, dtype):
    given = Y.astype(dtype)
    save_csr(path, given)
    assert open_csr(path).dtype == given.dtype
    save_csr(path, blocks(Y), dtype=dtype)
    assert open_csr(path).dtype == given.dtype
    assert (open_csr(path) != Y).nnz == 0


def test_repeated_entries_are_added_and_zeros_dropped(path):
    untidy = sp.csr_matrix(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 4]), shape=(1, 3))
    for given in (untidy, [untidy]):
        save_csr(path, given)
        np.testing.assert_array_equal(open_csr(path).data, [2, 4])
    assert untidy.nnz == 4
    save_csr(path, sp.csr_matrix([[1e-60, 1.0]]), dtype=np.float32)
    assert open_csr(path).nnz == 1


def test_nan_and_infinity_are_kept(path):
    save_csr(path, sp.csr_matrix([[np.nan, np.inf, -np.inf]]), dtype="float32")
    np.testing.assert_array_equal(open_csr(path).data, [np.nan, np.inf, -np.inf])


def test_types_of_a_tuple(path):
    save_csr(path, blocks(X, Y), dtype=("float64", "bool"))
    assert [matrix.dtype for matrix in open_csr(path)] == ["float64", "bool"]
    save_csr(path, (X, Y), dtype=(None, "float32"))
    assert [matrix.dtype for matrix in open_csr(path)] == ["float32", "float32"]


def test_a_mapped_file_may_be_replaced(path):
    save_csr(path, X)
    old = open_csr(path)
    save_csr(path, 2 * old)
    assert_same(old, X)
    assert_same(open_csr(path), 2 * X)
    save_csr(path, open_csr(path))  # a file may take its own content
    assert_same(open_csr(path), 2 * X)


def test_pointers_of_64_bits_become_narrow(path):
    wide = sp.csr_matrix(X.shape, dtype=X.dtype)
    wide.data = X.data
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    save_csr(path, wide)
    assert_same(open_csr(path), X)


def test_indices_are_wide_where_pointers_need_it(path, monkeypatch):
    # Fewer than entries, more than columns.
    monkeypatch.setattr(_csr, "INT32_MAX", 60)
    monkeypatch.setattr(_csr_file, "_BLOCK", 7)
    save_csr(path, blocks(X))
    found = open_csr(path)
    assert found.indices.dtype == found.indptr.dtype == np.int64
    assert (found != X).nnz == 0
    files = [tempfile.TemporaryFile() for _ in range(3)]
    matrix = GrowingCSR(iter(files).__next__, 30, np.float32)
    matrix.append(X)
    assert matrix.arrays()["indices"].dtype == np.int64
    for file in files:
        file.close()


def test_writing_blocks_takes_little_memory(path):
    block = sp.random(50, 4000, 0.1, format="csr", random_state=0, dtype=np.float32)

    def peak(n):
        tracemalloc.start()
        save_csr(path, (block for _ in range(n)))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)
    assert peak(60) - peak(5) < 55 * block.data.nbytes / 10
    assert open_csr(path, verify=False).nnz == 5 * block.nnz


# --- what cannot be saved -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, dtype, message",
    [
        (None, None, "X must be a matrix, a tuple of matrices, or an iterable of blocks"),
        (3, None, "X must be a matrix.*got int"),
        ([], None, "X has no block of rows"),
        ((), None, r"a tuple must have the same number of rows, X has \[\]"),
        ((X, Y[1:]), None, r"must have the same number of rows, X has \[50, 49\]"),
        ([[1.0, 2.0]], None, "block 0 of X must be a sparse matrix or an array, got list"),
        ("X.csr", None, "block 0 of X must be a sparse matrix or an array, got str"),
        ([X, X[:, 1:]], None, "block 1 of X has a matrix of 29 columns, but block 0 has a matrix"),
        ([X, (X,)], None, "block 1 of X has a tuple of matrices of 30 columns"),
        ([X, X.astype(float)], None, "block 1 of X holds float64, but block 0 holds float32; give"),
        ([(X, Y), (X, Y[1:])], None, r"block 1 of X has \[50, 49\]"),
        (X, "str", "dtype must be a type of numbers"),
        (X, "nonsense", "dtype must be a type of numbers or None, got 'nonsense'"),
        (X, np.float16, "that SciPy knows"),
        (X, (None, None), "dtype must be one type or 1, a type for each matrix"),
        (X, np.int8, "X holds numbers that int8 cannot hold"),
        (sp.csr_matrix([[1e300]]), np.float32, "X holds numbers that float32 cannot hold"),
        (X.astype(complex), None, "X must be a two-dimensional matrix of numbers"),
        (X.astype(np.longdouble), None, "X holds (longdouble|float128); a file holds"),
        (np.zeros((2, 2, 2)), None, "X must be a two-dimensional matrix of numbers"),
        ((X, np.array([["a"]] * 50)), None, r"X\[1\] must be a two-dimensional matrix of numbers"),
    ],
)
def test_what_is_refused(path, given, dtype, message):
    with pytest.raises(ValueError, match=message):
        save_csr(path, given, dtype=dtype)
    assert not os.listdir(path.parent)


def test_a_block_that_fails_leaves_the_old_file(path):
    save_csr(path, X)

    def failing():
        yield X
        raise KeyError("the source")

    with pytest.raises(KeyError, match="the source"):
        save_csr(path, failing())
    with pytest.raises(ValueError, match="block 1"):
        save_csr(path, [X, Y])
    assert_same(open_csr(path), X)
    assert os.listdir(path.parent) == [path.name]


def test_paths_and_flags(path, monkeypatch):
    for wrong in (3, b"some.csr", None):
        with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
            save_csr(wrong, X)
        with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
            open_csr(wrong)
    save_csr(path, X)
    with pytest.raises(TypeError, match="verify must be a bool, got 1"):
        open_csr(path, verify=1)
    with pytest.raises(FileNotFoundError, match=re.escape("missing")):
        open_csr(path.with_name("missing"))
    for given in (X, [X]):
        with pytest.raises(OSError, match="nowhere"):
            save_csr(path.parent / "nowhere" / "X.csr", given)

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        save_csr(path, [2 * X])
    assert_same(open_csr(path), X)


# --- damage -------------------------------------------------------------------------------------


def test_every_changed_byte_is_noticed(path):
    save_csr(path, (X[:4], Y[:4]))
    content = path.read_bytes()
    for at in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=re.escape(f"cannot read {path}")):
            open_csr(path)


def test_truncated_and_foreign_files(path):
    save_csr(path, X)
    content = path.read_bytes()
    for verify in (True, False):
        for cut in (b"", b"PK", content[:-1], content[:200], content + b"\0", b"PK" + bytes(99)):
            path.write_bytes(cut)
            with pytest.raises(ValueError, match=re.escape(f"cannot read {path}")):
                open_csr(path, verify=verify)
        _files.write(path, None, {}, kind="model")
        with pytest.raises(ValueError, match="it is a model of sklearn_xlc, not a CSR matrix"):
            open_csr(path, verify=verify)
    path.write_bytes(re.sub(rb'"format": "\d+"', b'"format": "9"', content))
    with pytest.raises(ValueError, match="it has format 9, and this version"):
        open_csr(path, verify=False)


def parts(**changed):
    return {name: getattr(X, name) for name in ("data", "indices", "indptr")} | changed


def with_value(array, at, value):
    array = array.copy()
    array[at] = value
    return array


FORGED = {
    "index beyond": parts(indices=with_value(X.indices, 3, 30)),
    "index below": parts(indices=with_value(X.indices, 3, -1)),
    "unsorted": parts(indices=X.indices[::-1].copy()),
    "pointer falls": parts(indptr=with_value(X.indptr, 3, 50)),
    "pointer starts": parts(indptr=with_value(X.indptr, 0, 1)),
    "pointer ends": parts(indptr=with_value(X.indptr, -1, 10)),
    "wide": parts(indptr=X.indptr.astype(np.int64)),
    "float": parts(indices=X.indices.astype(float)),
    "no pointers": parts(indptr=X.indptr[:0]),
    "few entries": parts(data=X.data[1:]),
    "complex": parts(data=X.data.astype(np.complex64)),
    "matrix": parts(indptr=X.indptr[None]),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused(path, name):
    """Its digest is right, and its arrays would lead SciPy out of bounds."""
    _csr_file.write_matrices(path, [FORGED[name]], [30], False)
    _forge_shape(path)
    with pytest.raises(ValueError, match=re.escape(f"cannot read {path}: it is damaged")):
        open_csr(path)


def _forge_shape(path):
    document, arrays = _files.read(path, kind=_csr_file.KIND)
    _files.write(path, document | {"shapes": [list(X.shape)]}, arrays, kind=_csr_file.KIND)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"shapes": [], "is_tuple": False, "source": None},
        {"shapes": [[50]], "is_tuple": False, "source": None},
        {"shapes": [["50", 30]], "is_tuple": False, "source": None},
        {"shapes": [[50, -1]], "is_tuple": False, "source": None},
        {"shapes": [[50, 30], [50, 9]], "is_tuple": True, "source": None},
        {"shapes": 3, "is_tuple": False, "source": None},
    ],
    ids=json.dumps,
)
def test_a_forged_document_is_refused(path, document):
    arrays = {f"0.{name}": part for name, part in parts().items()}
    _files.write(path, document, arrays, kind=_csr_file.KIND)
    with pytest.raises(ValueError, match=re.escape(f"cannot read {path}: it is damaged")):
        open_csr(path)


# --- text files ---------------------------------------------------------------------------------


def test_a_text_file_is_streamed_into_it(tmp_path, path):
    dump_xmc_file(X, Y, tmp_path / "train.txt")
    for _ in range(2):
        for found in (load_xmc_file(tmp_path / "train.txt", out=path), open_csr(path)):
            assert_same(found[0], X)
            assert_same(found[1], Y.astype(np.int32))
    assert {file.name for file in tmp_path.iterdir()} == {"train.txt", path.name}


def test_a_file_of_another_text_or_type_is_written_anew(tmp_path, path):
    dump_xmc_file(X, Y, tmp_path / "train.txt")
    dump_xmc_file(X[::-1], Y, tmp_path / "test.txt")
    for name in ("train.txt", "test.txt"):
        os.utime(tmp_path / name, ns=(5, 5))
    load_xmc_file(tmp_path / "train.txt", out=path)
    assert load_xmc_file(tmp_path / "train.txt", out=path, dtype=np.float64)[0].dtype == np.float64
    assert_same(load_xmc_file(tmp_path / "test.txt", out=str(path))[0], X[::-1].sorted_indices())
    save_csr(path, X)
    assert_same(load_xmc_file(tmp_path / "train.txt", out=path)[0], X)


def test_out_is_checked(tmp_path, path):
    text = tmp_path / "train.txt"
    dump_xmc_file(X, Y, text)
    with pytest.raises(ValueError, match="give mmap or out, not both"):
        load_xmc_file(text, mmap=True, out=path)
    with pytest.raises(ValueError, match=r"train.txt itself, which would be overwritten"):
        load_xmc_file(text, out=str(text))
    with pytest.raises(TypeError, match="out must be a str, os.PathLike or None, got int"):
        load_xmc_file(text, out=3)
    text.write_text("1 2 3\n0 0:x\n")
    with pytest.raises(ValueError, match="line 2"):
        load_xmc_file(text, out=path)
    assert not path.exists()
