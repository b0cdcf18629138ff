"""CSR matrices in folders: the same when mapped, written by blocks, and refused when damaged."""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from attack._processes import forked
from sklearn_xlc import _csr
from sklearn_xlc.datasets import _csr_folder, open_csr, save_csr

X = sp.random(50, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
Y = (sp.random(50, 9, 0.3, format="csr", random_state=1) != 0).astype(np.int8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.csr"


def content(path):
    """Manifest of a folder, and the bytes of its arrays by name; nothing else is in it."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert {entry.name for entry in path.iterdir()} == {"manifest.json", manifest["folder"]}
    arrays = {file.name: file.read_bytes() for file in (path / manifest["folder"]).iterdir()}
    assert manifest["arrays"].keys() == arrays.keys()
    return manifest, arrays


def array_file(path, name="0.data.npy"):
    return path / content(path)[0]["folder"] / name


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
    arrays = []
    for given in (blocks(X, size=size), list(blocks(X.toarray(), size=size)), X):
        save_csr(path, given)
        assert_same(open_csr(path), X)
        arrays.append(content(path)[1])
    assert arrays[0] == arrays[1] == arrays[2]
    assert os.listdir(path.parent) == [path.name]


def test_numpy_opens_the_arrays(path):
    save_csr(path, X)
    for part in ("data", "indices", "indptr"):
        found = np.load(array_file(path, f"0.{part}.npy"))
        np.testing.assert_array_equal(found, getattr(X, part))


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
    for each in (given, blocks(given)):
        save_csr(path, each)
        assert open_csr(path).dtype == given.dtype
        assert (open_csr(path) != given).nnz == 0


def test_repeated_entries_are_added_and_zeros_dropped(path):
    untidy = sp.csr_matrix(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 4]), shape=(1, 3))
    for given in (untidy, [untidy]):
        save_csr(path, given)
        np.testing.assert_array_equal(open_csr(path).data, [2, 4])
    assert untidy.nnz == 4


def test_nan_and_infinity_are_kept(path):
    save_csr(path, sp.csr_matrix([[np.nan, np.inf, -np.inf]]))
    np.testing.assert_array_equal(open_csr(path).data, [np.nan, np.inf, -np.inf])


def test_mapped_arrays_may_be_replaced(path):
    save_csr(path, X)
    old = open_csr(path)
    save_csr(path, 2 * old)
    assert_same(old, X)
    assert_same(open_csr(path), 2 * X)
    save_csr(path, open_csr(path))  # its own content
    assert_same(open_csr(path), 2 * X)
    assert_same(old, X)
    content(path)  # nothing of the old is left in it


def test_pointers_of_64_bits_become_narrow(path):
    wide = sp.csr_matrix(X.shape, dtype=X.dtype)
    wide.data = X.data
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    save_csr(path, wide)
    assert_same(open_csr(path), X)


def test_indices_are_wide_where_pointers_need_it(path, monkeypatch):
    # Fewer than entries, more than columns.
    monkeypatch.setattr(_csr, "INT32_MAX", 60)
    monkeypatch.setattr(_csr_folder, "_BLOCK", 7)
    save_csr(path, blocks(X))
    found = open_csr(path)
    assert found.indices.dtype == found.indptr.dtype == np.int64
    assert (found != X).nnz == 0
    save_csr(path, X)
    assert open_csr(path).indices.dtype == np.int64
    content(path)


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
    "given, message",
    [
        (None, "X must be a matrix, a tuple of matrices, or an iterable of blocks"),
        (3, "X must be a matrix.*got int"),
        ([], "X has no block of rows"),
        ((), r"a tuple must have the same number of rows, X has \[\]"),
        ((X, Y[1:]), r"must have the same number of rows, X has \[50, 49\]"),
        ([[1.0, 2.0]], "block 0 of X must be a sparse matrix or an array, got list"),
        ("X.csr", "block 0 of X must be a sparse matrix or an array, got str"),
        ([X, X[:, 1:]], "block 1 of X has 29 columns of float32, but block 0 has 30 columns"),
        ([X, (X, Y)], "block 1 of X has 30 columns of float32 and 9 columns of int8, but block 0"),
        ([X, X.astype(float)], "block 1 of X has 30 columns of float64, but block 0 has 30"),
        ([(X, Y), (X, Y[1:])], r"block 1 of X has \[50, 49\]"),
        (X.astype(complex), "X must be a two-dimensional matrix of numbers"),
        (X.astype(np.longdouble), "X holds (longdouble|float128); a file holds"),
        (np.zeros((2, 2, 2)), "X must be a two-dimensional matrix of numbers"),
        ((X, np.array([["a"]] * 50)), r"X\[1\] must be a two-dimensional matrix of numbers"),
    ],
)
def test_what_is_refused(path, given, message):
    with pytest.raises(ValueError, match=message):
        save_csr(path, given)
    assert not os.listdir(path.parent)


def no_space(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_call_that_fails_leaves_the_old_matrices(path, monkeypatch):
    def failing():
        yield X
        raise KeyError("the source")

    with pytest.raises(KeyError, match="the source"):
        save_csr(path, failing())
    assert not path.exists()
    save_csr(path, X)
    before = content(path)
    with pytest.raises(KeyError, match="the source"):
        save_csr(path, failing())
    with pytest.raises(ValueError, match="block 1"):
        save_csr(path, [X, Y])
    for name in ("fsync", "replace"):
        with monkeypatch.context() as full:
            full.setattr(os, name, no_space)
            with pytest.raises(OSError, match="No space left"):
                save_csr(path, 2 * X)
    assert content(path) == before
    assert os.listdir(path.parent) == [path.name]


def test_an_interrupt_after_the_replacement_leaves_the_new_matrices(path, monkeypatch):
    replace = os.replace

    def interrupted(*names):
        replace(*names)
        raise KeyboardInterrupt

    save_csr(path, X)
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_csr(path, 2 * X)
    assert_same(open_csr(path), 2 * X)
    content(path)


def test_other_content_is_left_alone(path):
    path.mkdir()
    (path / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match=r"other content, such as 'thesis.txt'.*some\.csr"):
        save_csr(path, X)
    assert os.listdir(path) == ["thesis.txt"]
    with pytest.raises(NotADirectoryError, match="thesis"):
        save_csr(path / "thesis.txt", X)
    (path / "thesis.txt").rename(path / ".hidden")
    save_csr(path, X)
    assert_same(open_csr(path), X)
    assert (path / ".hidden").exists()


def kill_while_saving(path, n_kills):
    """Number of matrices that were saved by processes that were killed, one after the other."""
    rng = np.random.default_rng(0)
    X = sp.random(3000, 3000, 0.05, "csr", np.float32, random_state=rng)
    save_csr(path, X)
    known = 1  # the last factor that is known to be saved
    for _ in range(n_kills):
        told, tell = os.pipe()
        child = os.fork()  # known + 1, known + 2, ..., each told before it is saved
        if not child:
            for factor in range(known + 1, 10**6):
                os.write(tell, bytes(8))
                save_csr(path, [factor * X[:1500], factor * X[1500:]])
        time.sleep(rng.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(tell)  # so that reading ends, if nothing was told
        begun = len(os.read(told, 2**16)) // 8
        os.close(told)
        found = open_csr(path)
        factor = round(found.data[0] / X.data[0])
        assert factor in (known + max(begun - 1, 0), known + begun), (factor, known, begun)
        assert (found != factor * X).nnz == 0
        known = factor
    return known


@pytest.mark.integration
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.parametrize("n_kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_kill_leaves_the_old_or_the_new_matrices(path, n_kills):
    outcome = forked(kill_while_saving, path, n_kills, limit=600)
    assert not outcome.error
    assert outcome.value > n_kills / 4


def test_a_header_is_parsed_again_where_python_mistakes_threads_for_an_error(path, monkeypatch):
    """Python 3.11, at times, if several threads parse at once: cpython issue 106905."""
    save_csr(path, X)
    open_memmap, calls = _csr_folder.npy.open_memmap, []

    def at_times(*given):
        calls.append(given)
        if len(calls) % 3:
            raise SystemError("AST constructor recursion depth mismatch")
        return open_memmap(*given)

    monkeypatch.setattr(_csr_folder.npy, "open_memmap", at_times)
    np.testing.assert_array_equal(open_csr(path).toarray(), X.toarray())
    assert len(calls) == 9


@pytest.mark.integration
def test_readers_and_writers_at_a_time(path):
    """A reader gets one or the other, whole, although what it opens may be deleted meanwhile."""
    save_csr(path, X)
    ended, faults = threading.Event(), []

    def write(factor):
        while not ended.is_set():
            try:
                save_csr(path, factor * X)
            except Exception as error:
                faults.append(error)

    writers = [threading.Thread(target=write, args=(factor,)) for factor in (2, 3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(100):
            found = open_csr(path)
            assert any((found != factor * X).nnz == 0 for factor in (1, 2, 3))
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    assert not faults


def test_paths_and_flags(path):
    for wrong in (3, b"some.csr", None):
        with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
            save_csr(wrong, X)
        with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
            open_csr(wrong)
    save_csr(path, X)
    with pytest.raises(TypeError, match="verify must be True or False, got 1"):
        open_csr(path, verify=1)
    with pytest.raises(FileNotFoundError, match=re.escape("missing")):
        open_csr(path.with_name("missing"))
    for given in (X, [X]):
        with pytest.raises(OSError, match="nowhere"):
            save_csr(path.parent / "nowhere" / "X.csr", given)
    path.with_name("link").symlink_to(path)
    save_csr(path.with_name("link"), 2 * X)
    assert_same(open_csr(path), 2 * X)


# --- damage -------------------------------------------------------------------------------------


def refused(path, verify=True, match=""):
    with pytest.raises(ValueError, match=re.escape(f"cannot read {path}") + f".*{match}"):
        open_csr(path, verify=verify)


def test_every_changed_byte_is_noticed(path):
    save_csr(path, (X[:4], Y[:4]))
    for file in (path / "manifest.json", *(array_file(path, name) for name in content(path)[1])):
        before = file.read_bytes()
        for at in range(0, len(before), 7):
            damaged = bytearray(before)
            damaged[at] ^= 1 << at % 8
            file.write_bytes(damaged)
            refused(path)
        file.write_bytes(before)
    open_csr(path)


@pytest.mark.parametrize("verify", [True, False])
def test_truncated_and_foreign_files(path, verify):
    save_csr(path, X)
    for file in (path / "manifest.json", *(array_file(path, name) for name in content(path)[1])):
        before = file.read_bytes()
        for other in (b"", b"PK", before[:-1], before[:100], b"PK" + bytes(999), b"\x93NUMPY\1\0"):
            file.write_bytes(other)
            refused(path, verify)
        file.write_bytes(before)
    array_file(path).write_bytes(array_file(path).read_bytes() + b"\0")
    refused(path, verify, "0.data.npy has another type or size")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["manifest.json", "0.data.npy"])
@pytest.mark.parametrize("kind", ["none", "fifo", "folder", "link", "device"])
def test_what_is_no_ordinary_file_is_refused(path, name, kind, verify):
    save_csr(path, X)
    file = path / name if name == "manifest.json" else array_file(path, name)
    file.rename(path.parent / "aside")
    make = {
        "none": lambda: None,
        "fifo": lambda: os.mkfifo(file),
        "folder": file.mkdir,
        "link": lambda: file.symlink_to(path.parent / "aside"),
        "device": lambda: file.symlink_to("/dev/zero"),
    }
    make[kind]()
    refused(
        path, verify, {"none": "it has no manifest|it lacks a file"}.get(kind, "not an ordinary")
    )


def test_a_pipe_and_a_file_in_its_place_are_refused(path):
    os.mkfifo(path)
    refused(path, match="it has no manifest.json")
    path.unlink()
    path.touch()
    refused(path, match="it has no manifest.json")
    path.unlink()
    save_csr(path, X)
    folder = path / content(path)[0]["folder"]
    shutil.rmtree(folder)
    folder.touch()
    refused(path, match="it lacks a file")


def test_swapped_arrays_are_refused(path):
    save_csr(path, (X, 2 * X))
    one, other = array_file(path, "0.data.npy"), array_file(path, "1.data.npy")
    one.rename(path.parent / "aside")
    other.rename(one)
    (path.parent / "aside").rename(other)
    refused(path, match="0.data.npy does not match its digest")


def forge(path, parts=None, **changed):
    """Write arrays and a manifest with the right digests."""
    manifest, _ = content(path)
    for part, array in (parts or {}).items():
        file = array_file(path, f"0.{part}.npy")
        np.save(file, array, allow_pickle=True)
        sealed = [array.dtype.str, list(array.shape), hashlib.sha256(file.read_bytes()).hexdigest()]
        manifest["arrays"][file.name] = sealed
    del manifest["digest"]
    manifest |= changed
    manifest["digest"] = _csr_folder._digest(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def with_value(array, at, value):
    array = array.copy()
    array[at] = value
    return array


FORGED = {
    "index beyond": {"indices": with_value(X.indices, 3, 30)},
    "index below": {"indices": with_value(X.indices, 3, -1)},
    "unsorted": {"indices": X.indices[::-1].copy()},
    "pointer falls": {"indptr": with_value(X.indptr, 3, 50)},
    "pointer starts": {"indptr": with_value(X.indptr, 0, 1)},
    "pointer ends": {"indptr": with_value(X.indptr, -1, 10)},
    "wide": {"indptr": X.indptr.astype(np.int64)},
    "float": {"indices": X.indices.astype(float)},
    "no pointers": {"indptr": X.indptr[:0]},
    "few entries": {"data": X.data[1:]},
    "complex": {"data": X.data.astype(np.complex64)},
    "half": {"data": X.data.astype(np.float16)},
    "foreign order": {"data": X.data.astype(">f4" if sys.byteorder == "little" else "<f4")},
    "objects": {"data": X.data.astype(object)},
    "fields": {"data": X.data.view([("x", "f4")])},
    "matrix": {"indptr": X.indptr[None]},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_are_refused(path, name):
    """Their digests are right, and they would lead SciPy out of bounds."""
    save_csr(path, X)
    forge(path, FORGED[name])
    refused(path)
    if name not in ("index beyond", "index below", "unsorted"):
        refused(path, verify=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"folder": "../../etc"},
        {"folder": ""},
        {"folder": 3},
        {"folder": "0" * 16},
        {"arrays": {}},
        {"arrays": []},
        {"shapes": []},
        {"shapes": [[50]]},
        {"shapes": [["50", 30]]},
        {"shapes": [[50, -1]]},
        {"shapes": [[50, 2**70]]},
        {"shapes": [[50, 30], [50, 9]]},
        {"shapes": 3},
    ],
    ids=json.dumps,
)
def test_a_forged_manifest_is_refused(path, changed):
    save_csr(path, X)
    forge(path, **changed)
    match = "it has format 2, and this version" if "format" in changed else ""
    for verify in (True, False):
        refused(path, verify, match)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 10**5, "1" * 5000, '{"format": 1}'])
def test_a_manifest_of_something_else_is_refused(path, text):
    save_csr(path, X)
    (path / "manifest.json").write_text(text)
    refused(path)


def test_a_name_twice_in_a_manifest_is_refused(path):
    save_csr(path, X)
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace("{", '{"is_tuple": true, ', 1))
    refused(path, match="does not match its digest")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 10L, }",
        "(" * 5000,
        "__import__('os').system('touch run')",
    ],
)
def test_a_hostile_header_is_refused(path, header, monkeypatch):
    monkeypatch.chdir(path.parent)
    save_csr(path, X)
    text = header.encode().ljust(9000) + b"\n"
    file = array_file(path)
    file.write_bytes(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(1000))
    refused(path, verify=False)
    assert os.listdir() == ["some.csr"]
