"""A file is written whole or not at all, and says so when it is damaged."""

import json
import math
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

from sklearn_xlc import _files
from sklearn_xlc._files import Streamed, digest, read, read_mapped, write

DOCUMENT = {"n": 3, "names": ["a", "é", "\ud800"], "x": [0.1, -0.0, 1e-320, 2**70], "none": None}
ARRAYS = {
    "weights": np.random.default_rng(0).normal(size=(30, 7)).astype(np.float32),
    "flags": np.array([True, False]),
    "one": np.array(2.5),
    "nothing": np.zeros((0, 3), np.int16),
}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert second[name].dtype == array.dtype.newbyteorder("=")
        assert second[name].shape == array.shape
        np.testing.assert_array_equal(second[name], array)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "file.xlc", DOCUMENT, ARRAYS, kind="model")
    return tmp_path / "file.xlc"


# --- round trips ------------------------------------------------------------------------------

numbers = st.integers(-(2**80), 2**80) | st.floats()
leaves = st.none() | st.booleans() | numbers | st.text(st.characters(codec=None))
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
dtypes = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes(endianness="?")
    | hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64))
    | hnp.complex_number_dtypes(sizes=(64,))
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0, max_dims=3))


@settings(max_examples=60, deadline=None)
@given(documents, st.dictionaries(st.text(max_size=5), arrays, max_size=3), st.booleans())
def test_round_trip(tmp_path_factory, document, content, transposed):
    path = tmp_path_factory.getbasetemp() / "round_trip.xlc"
    content = {name: array.T if transposed else array for name, array in content.items()}
    write(path, document, content, kind="model")
    document_again, content_again = read(path, kind="model")
    assert repr(document_again) == repr(document)  # NaN, -0.0 and the types of numbers too
    assert_same(content, content_again)
    assert digest(document, content_again) == digest(
        document,
        {name: array.astype(array.dtype.newbyteorder("=")) for name, array in content.items()},
    )


def test_arrays_are_writable_and_other_tools_read_them(path):
    _, content = read(path, kind="model")
    content["weights"][0] = 1.0
    with safe_open(path, framework="numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("weights"), ARRAYS["weights"])
        assert json.loads(file.metadata()["versions"])["numpy"] == np.__version__


def test_tuples_come_back_as_lists(tmp_path):
    write(tmp_path / "file", {"a": (1, (2,))}, {}, kind="model")
    assert read(tmp_path / "file", kind="model") == ({"a": [1, [2]]}, {})


@pytest.mark.parametrize(
    "document, match",
    [
        ({"a": [{1: 2}]}, r"document\['a'\]\[0\] has the key 1"),
        ({"a": [{1, 2}]}, r"document\['a'\]\[0\] is a set"),
        (np.float32(1), "document is a float32"),
    ],
)
def test_a_document_that_json_would_change_is_refused(tmp_path, document, match):
    with pytest.raises(TypeError, match=match):
        write(tmp_path / "file", document, {}, kind="model")
    assert not list(tmp_path.iterdir())


def test_a_document_that_holds_itself_is_refused(tmp_path):
    document = []
    document.append(document)
    with pytest.raises(ValueError, match="holds itself"):
        write(tmp_path / "file", document, {}, kind="model")


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.zeros(2, complex), [1.0]])
def test_an_array_that_cannot_be_stored_is_refused(tmp_path, array):
    with pytest.raises(TypeError, match="array 'x' is of type"):
        write(tmp_path / "file", {}, {"x": array}, kind="model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["document.json", "__metadata__", "\ud800"])
def test_a_name_that_cannot_be_stored_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="must not have the name|surrogates not allowed"):
        write(tmp_path / "file", {}, {name: np.zeros(1)}, kind="model")
    assert not list(tmp_path.iterdir())


def test_a_digest_depends_on_everything():
    changed = [
        (DOCUMENT, ARRAYS),
        ({**DOCUMENT, "n": 4}, ARRAYS),
        ({**DOCUMENT, "n": 3.0}, ARRAYS),
        (DOCUMENT, {**ARRAYS, "one": np.array([2.5])}),
        (DOCUMENT, {**ARRAYS, "one": np.array(2.5).view(np.int64)}),
        (DOCUMENT, {**ARRAYS, "two": ARRAYS["one"]}),
    ]
    assert len({digest(*both) for both in changed}) == len(changed)
    assert digest(DOCUMENT, ARRAYS) == digest(DOCUMENT, dict(reversed(ARRAYS.items())))


# --- what is no file, or a damaged one --------------------------------------------------------


def test_every_flipped_bit_and_truncation_is_found(path):
    rng = np.random.default_rng(0)
    whole = path.read_bytes()
    for trial in range(200):
        if trial % 2:
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        else:
            damaged = whole[: rng.integers(len(whole))]
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot read .*file\.xlc: it "):
            read(path, kind="model")


def header_of(text):
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        pickle.dumps(list(range(1000))),
        (2**63).to_bytes(8, "little") + b" " * 100,
        header_of(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        header_of(
            b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
            b'"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
        )
        + bytes(12),
        header_of(b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}') + bytes(4),
        header_of(b'{"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}'),
        header_of(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}') + bytes(9),
    ],
    ids=["empty", "short", "pickle", "huge", "missing", "overlap", "bfloat16", "shape", "longer"],
)
def test_anything_else_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="cannot read .*file: it is .*no file of sklearn_xlc"):
        read(tmp_path / "file", kind="model")


def test_a_file_of_another_program_is_refused(tmp_path):
    save_file({"a": np.zeros(3)}, tmp_path / "file")
    with pytest.raises(ValueError, match="it has no format and digest"):
        read(tmp_path / "file", kind="model")


@pytest.mark.parametrize("other", [2, 4])
def test_another_format_and_another_kind_are_refused(path, monkeypatch, other):
    with pytest.raises(ValueError, match="it is a model of sklearn_xlc, not a checkpoint"):
        read(path, kind="checkpoint")
    monkeypatch.setattr(_files, "FORMAT", other)
    write(path, {}, {}, kind="model")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"it has format {other}, and this version .* reads 3"):
        read(path, kind="model")


def test_an_array_that_is_made_as_it_is_written(path, tmp_path):
    blocks = np.array_split(ARRAYS["weights"], 4)
    streamed = Streamed((30, 7), np.dtype(np.float32), lambda: iter(blocks))
    write(tmp_path / "streamed", DOCUMENT, {**ARRAYS, "weights": streamed}, kind="model")
    assert (tmp_path / "streamed").read_bytes() == path.read_bytes()
    np.testing.assert_array_equal(streamed.array(), ARRAYS["weights"])
    short = streamed._replace(shape=(31, 7))
    with pytest.raises(AssertionError, match="28 bytes short"):
        write(tmp_path / "short", {}, {"weights": short}, kind="model")
    assert not (tmp_path / "short").exists()


def test_versions_that_are_none_are_refused(path, monkeypatch):
    monkeypatch.setattr(_files, "versions", lambda: 5)
    write(path, None, {}, "model")
    with pytest.raises(ValueError, match="cannot read"):
        read(path, "model")


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", kind="model")
    with pytest.raises(IsADirectoryError):
        read(tmp_path, kind="model")


def test_builds_of_one_version_are_not_warned_of(path, monkeypatch):
    versions = {"torch": torch.__version__.partition("+")[0] + "+cu128", "numpy": "0.1"}
    monkeypatch.setattr(_files, "versions", lambda: versions)
    write(path, {}, {}, kind="model")
    monkeypatch.undo()
    read(path, kind="model")


@pytest.mark.parametrize("package", ["sklearn_xlc", "scikit-learn", "torch"])
def test_other_versions_are_warned_of(path, monkeypatch, package):
    monkeypatch.setattr(_files, "versions", lambda: {package: "0.0.1"})
    write(path, {}, {}, kind="model")
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=f"was written with {package} 0.0.1, this is"):
        read(path, kind="model")


# --- whole or not at all ----------------------------------------------------------------------

FULL_DISK = """
import resource, sys
import numpy as np
from sklearn_xlc._files import write
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    write(sys.argv[1], {}, {"x": np.zeros(100_000)}, kind="model")
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file(path):
    before = path.read_bytes()
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large; nothing was written" in done.stdout
    assert str(path) in done.stdout
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left"), MemoryError])
@pytest.mark.parametrize("function", ["os.fsync", "os.replace", "sklearn_xlc._files._blocks"])
def test_an_interrupted_write_leaves_the_old_file(path, monkeypatch, error, function):
    def fails(*args):
        raise error

    before = path.read_bytes()
    if function.endswith("_bytes"):
        monkeypatch.setattr(_files, "digest", lambda *args: "")
    monkeypatch.setattr(function, fails)
    with pytest.raises(error if isinstance(error, type) else OSError):
        write(path, {}, {"x": np.zeros(100)}, kind="model")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_open_would_refuse_is_refused(path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="nothing was written"):
        write(path.parent / "no" / "folder", {}, {}, kind="model")
    with pytest.raises(OSError, match="not an ordinary file"):
        write(path.parent, {}, {}, kind="model")
    with pytest.raises(OSError, match="not an ordinary file"):
        write(os.devnull, {}, {}, kind="model")
    monkeypatch.setattr("os.access", lambda *args: False)
    with pytest.raises(PermissionError, match="read-only"):
        write(path, {}, {}, kind="model")


@pytest.mark.skipif(os.name == "nt", reason="modes and links of POSIX")
def test_modes_and_links_are_those_of_open(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "new", {}, {}, kind="model")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").chmod(0o604)
    (tmp_path / "link").symlink_to("plain")
    write(tmp_path / "link", {}, {}, kind="model")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").stat().st_mode & 0o777 == 0o604
    assert read(tmp_path / "plain", kind="model") == ({}, {})


def test_readers_see_one_file_or_the_other(path):
    def fill(number):
        write(path, number, {"x": np.full(20_000, number)}, kind="model")

    def keep_reading():
        while not done.is_set():
            number, content = read(path, kind="model")
            if (content["x"] != number).any():
                wrong.append(number)

    fill(0)
    done, wrong = threading.Event(), []
    readers = [threading.Thread(target=keep_reading) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(40):
        fill(number)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_folder_that_cannot_be_synced_is_no_failure(path, monkeypatch):
    def fails(*args):
        raise OSError

    monkeypatch.setattr("os.open", fails)
    write(path, math.pi, {}, kind="model")
    assert read(path, kind="model") == (math.pi, {})


# --- arrays that stay in the file ----------------------------------------------------------------


def test_mapped_arrays_are_those_that_are_read(path):
    document, content = read_mapped(path, kind="model")
    again, expected = read(path, kind="model")
    assert document == again
    assert_same(content, expected)
    assert not any(array.flags.writeable for array in content.values())
    before = content["weights"].copy()
    write(path, None, {"weights": np.zeros(3)}, kind="model")  # a mapped file may be replaced
    np.testing.assert_array_equal(content["weights"], before)


def test_a_mapped_file_is_checked_on_request(path, monkeypatch):
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    read_mapped(path, kind="model")
    with pytest.raises(ValueError, match="does not match its digest"):
        read_mapped(path, kind="model", verify=True)
    path.write_bytes(content.replace(b'"F64"', b'"G64"'))
    with pytest.raises(ValueError, match="cannot read .*G64"):
        read_mapped(path, kind="model")
    path.write_bytes(content)
    monkeypatch.setattr("sklearn_xlc.__version__", "0")
    with pytest.warns(UserWarning, match="was written with sklearn_xlc"):
        read_mapped(path, kind="model", verify=True)


def test_a_file_that_cannot_be_mapped_is_refused(path, monkeypatch):
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    for cut in (0, 7, 8, size - 1, size, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=f"cannot read {path}"):
            read_mapped(path, kind="model")
    path.write_bytes(content)
    with pytest.raises(ValueError, match="it is a model of sklearn_xlc, not a checkpoint"):
        read_mapped(path, kind="checkpoint")
    monkeypatch.setattr(_files, "READ", (1,))
    with pytest.raises(ValueError, match="it has format 3"):
        read_mapped(path, kind="model")
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="no file of sklearn_xlc"):
        read_mapped(path, kind="model")
