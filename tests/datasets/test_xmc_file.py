"""The XMC file format: exact round trips, and refusals that name file, line and fault."""

import gzip
import os
import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.utils.multiclass import type_of_target

from sklearn_xlc.datasets import dump_xmc_file, load_xmc_file

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def write(folder, text, name="data.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def assert_same_bits(left, right):
    assert left.dtype == right.dtype
    np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8))


def assert_same_csr(left, right):
    assert left.shape == right.shape
    np.testing.assert_array_equal(left.indptr, right.indptr)
    np.testing.assert_array_equal(left.indices, right.indices)
    assert_same_bits(left.data, right.data)


@st.composite
def problems(draw):
    """Canonical CSR pairs: any finite bits, stored zeros, empty rows and columns, no columns."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    n_samples, n_features, n_labels = (draw(st.integers(0, 6)) for _ in range(3))
    stored = draw(hnp.arrays(bool, (n_samples, n_features)))
    labelled = draw(hnp.arrays(bool, (n_samples, n_labels)))
    width = 32 if dtype == np.float32 else 64
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    values = draw(hnp.arrays(dtype, int(stored.sum()), elements=finite))
    X = sp.csr_matrix(stored.astype(dtype))
    X.data = values
    return X, sp.csr_matrix(labelled.astype(np.int32))


@SETTINGS
@given(problem=problems(), name=st.sampled_from(["data.txt", "data.txt.gz"]))
def test_round_trip_is_exact(tmp_path_factory, problem, name):
    X, Y = problem
    path = tmp_path_factory.mktemp("xmc") / name
    dump_xmc_file(X, Y, path)
    X_read, Y_read = load_xmc_file(path, dtype=X.dtype)
    assert_same_csr(X_read, X)
    assert_same_csr(Y_read, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_survive_bit_for_bit(tmp_path, rng, dtype):
    info = np.finfo(dtype)
    width = np.uint32 if dtype == np.float32 else np.uint64
    random_bits = rng.integers(np.iinfo(width).max, size=20_000, dtype=width).view(dtype)
    edges = [info.max, -info.max, info.tiny, info.smallest_subnormal, -0.0, 0.0, 1.0, 0.1, 2**24]
    values = np.concatenate([random_bits[np.isfinite(random_bits)], np.array(edges, dtype=dtype)])
    X = sp.csr_matrix((values, np.arange(len(values)), [0, len(values)]))
    dump_xmc_file(X, np.ones((1, 1)), tmp_path / "data.txt")
    assert_same_bits(load_xmc_file(tmp_path / "data.txt", dtype=dtype)[0].data, values)


def test_the_text_itself(tmp_path):
    X = np.array([[0, 0.1, 3.0], [0, 0, 0], [1e-5, 0, 0], [0, 0, 0]], dtype=np.float32)
    Y = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    dump_xmc_file(X, Y, str(tmp_path / "data.txt"))
    assert (tmp_path / "data.txt").read_text() == "4 3 3\n0,2 1:0.1 2:3\n1 \n 0:1e-05\n \n"


def test_reads_what_others_write(tmp_path):
    text = "5 4 3\r\n2,0\t3:1  0:2e-1 \r\n 1:-4.5\r\n1:7\r\n\r\n1\n\n\n"
    X, Y = load_xmc_file(write(tmp_path, text))
    expected = [[0.2, 0, 0, 1], [0, -4.5, 0, 0], [0, 7, 0, 0], [0] * 4, [0] * 4]
    np.testing.assert_array_equal(X.toarray(), np.array(expected, dtype=np.float32))
    np.testing.assert_array_equal(
        Y.toarray(), [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    )
    assert X.has_canonical_format
    assert Y.has_canonical_format
    assert type_of_target(Y) == "multilabel-indicator"


def test_stored_zeros_stay_stored(tmp_path):
    path = write(tmp_path, "1 3 1\n0 2:0 0:1\n")
    X, _ = load_xmc_file(path)
    np.testing.assert_array_equal(X.indices, [0, 2])
    np.testing.assert_array_equal(X.data, [1, 0])


def test_gzip_is_known_by_name_or_content(tmp_path):
    text = b"1 3 2\n0,1 2:0.5\n"
    plain = load_xmc_file(write(tmp_path, text))
    by_name = load_xmc_file(write(tmp_path, gzip.compress(text), "data.gz"))
    by_content = load_xmc_file(write(tmp_path, gzip.compress(text), "data.xmc"))
    for other in (by_name, by_content):
        assert_same_csr(other[0], plain[0])
        assert_same_csr(other[1], plain[1])


def test_gzip_bytes_are_reproducible(tmp_path, rng):
    X, Y = sp.random(50, 20, 0.3, format="csr", random_state=rng), np.eye(50)
    dump_xmc_file(X, Y, tmp_path / "a.gz")
    dump_xmc_file(X, Y, tmp_path / "b.gz")
    dump_xmc_file(X, Y, tmp_path / "plain")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == (tmp_path / "plain").read_bytes()


def test_wide_label_spaces_use_64_bit_ids(tmp_path):
    path = write(tmp_path, "1 5000000000 6000000000\n5999999999 4999999999:1\n")
    X, Y = load_xmc_file(path)
    assert X.shape == (1, 5_000_000_000)
    assert X.indices.tolist() == [4_999_999_999]
    assert Y.indices.tolist() == [5_999_999_999]


MALFORMED = {
    "no header at all": ("", 1, "header must be three whole numbers.*got ''"),
    "header of two": ("2 3\n", 1, "header must be three whole numbers.*'2 3'"),
    "header missing": ("0,1 1:0.5\n", 1, "header must be three whole numbers"),
    "negative header": ("1 -3 2\n", 1, "header must be three whole numbers"),
    "huge header": ("1 1 99999999999999999999\n", 1, "does not fit 64 bits"),
    "header of many digits": (f"1 {'1' * 5000} 1\n", 1, "'1111.*' does not fit 64 bits"),
    "label of many digits": (f"1 3 2\n{'1' * 5000} 0:1\n", 2, "label id '111.* not .* below 2"),
    "label too large": ("1 3 2\n2 0:1\n", 2, "label id 2 is out of range.*announces 2 labels"),
    "label negative": ("1 3 2\n-1 0:1\n", 2, "label id -1 is out of range"),
    "label no number": ("2 3 2\n0 0:1\nx 0:1\n", 3, "label id 'x' is not a whole number"),
    "label fraction": ("1 3 2\n1.0 0:1\n", 2, "label id '1.0' is not a whole number"),
    "label missing": ("1 3 2\n0,,1 0:1\n", 2, "label id '' is not a whole number"),
    "label twice": ("1 3 2\n1,0,1 0:1\n", 2, "label id 1 occurs twice"),
    "label with spaces": ("1 3 2\n0, 1 0:1\n", 2, "label id '' is not a whole number"),
    "label after space": ("1 3 2\n 1 0:1\n", 2, "'1' is not of the form feature:value"),
    "underscore": ("1 30 20\n1_0 0:1\n", 2, "'_' does not belong"),
    "feature too large": ("1 3 2\n0 3:1\n", 2, "feature id 3 is out of range.*3 features"),
    "feature negative": ("1 3 2\n0 -1:1\n", 2, "feature id -1 is out of range"),
    "feature no number": ("1 3 2\n0 a:1\n", 2, "feature id 'a' is not a whole number"),
    "feature twice": ("1 3 2\n0 1:1 2:1 1:2\n", 2, "feature id 1 occurs twice"),
    "no value": ("1 3 2\n0 1\n", 2, "'1' is not of the form feature:value"),
    "empty value": ("1 3 2\n0 1:\n", 2, "feature value '' is not a number"),
    "two colons": ("1 3 2\n0 1:2:3\n", 2, "'1:2:3' is not of the form feature:value"),
    "one of two colons": ("1 3 2\n0 0:1 1:2:3\n", 2, "'1:2:3' is not of the form"),
    "value no number": ("1 3 2\n0 1:one\n", 2, "feature value 'one' is not a number"),
    "nan": ("1 3 2\n0 0:1 1:nan\n", 2, "feature value 'nan' is not finite"),
    "inf": ("1 3 2\n0 1:-inf\n", 2, "feature value '-inf' is not finite"),
    "too large for float32": ("1 3 2\n0 1:1e39\n", 2, "'1e39' is not finite in float32"),
    "too few rows": ("3 3 2\n0 1:1\n", 3, "ends here with 1 rows, its header announces 3"),
    "too many rows": ("1 3 2\n0 1:1\n\n1 1:1\n", 4, "header announces 1 rows, but here is another"),
    "not text": (b"1 3 2\n0 \xff:1\n", 2, r"feature id '\\\\xff' is not a whole number"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("text, line, fault", MALFORMED.values(), ids=MALFORMED)
def test_malformed_file_is_refused_with_its_line(tmp_path, text, line, fault, packed):
    text = text.encode() if isinstance(text, str) else text
    path = write(tmp_path, gzip.compress(text) if packed else text, "some.txt")
    with pytest.raises(ValueError, match=rf"some\.txt, line {line}: .*{fault}"):
        load_xmc_file(path)


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_small_file_cannot_fill_the_memory(tmp_path, line):
    """A line of blanks that compresses to nothing; the reader stops at 16 MiB of it."""
    text = b"".join([b"2 3 2\n", b"0 1:1\n"][: line - 1]) + b" " * 2**25
    path = write(tmp_path, gzip.compress(text, 1), "bomb.gz")
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=rf"bomb\.gz, line {line}: the line is longer than 16777216"
    ):
        load_xmc_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


def test_a_long_sample_is_read(tmp_path):
    features = " ".join(f"{i}:1" for i in range(200_000))
    X, _ = load_xmc_file(write(tmp_path, f"1 200000 2\n0 {features}\n"))
    assert X.nnz == 200_000


def test_duplicates_in_a_long_sample_are_found_at_once(tmp_path):
    """Seconds, where comparing every id with all before it would take minutes."""
    features = " ".join(f"{i}:1" for i in [*range(200_000), 199_999])
    path = write(tmp_path, f"1 200000 2\n0 {features}\n")
    with pytest.raises(ValueError, match="line 2: feature id 199999 occurs twice"):
        load_xmc_file(path)


def test_first_bad_line_is_reported(tmp_path):
    path = write(tmp_path, "3 3 2\n0 1:nan\n5 1:1\n")
    with pytest.raises(ValueError, match="line 2: .*nan"):
        load_xmc_file(path)


def test_float64_holds_what_float32_does_not(tmp_path):
    path = write(tmp_path, "1 2 1\n0 1:1e39\n")
    assert load_xmc_file(path, dtype=np.float64)[0][0, 1] == 1e39
    with pytest.raises(ValueError, match="'1e309' is not finite in float64"):
        load_xmc_file(write(tmp_path, "1 2 1\n0 1:1e309\n"), dtype="float64")


def test_broken_gzip_is_refused(tmp_path):
    packed = gzip.compress("\n".join(["2000 3 2"] + ["0 1:1"] * 2000).encode())
    with pytest.raises(ValueError, match=r"cut\.gz, line \d+: .*end-of-stream"):
        load_xmc_file(write(tmp_path, packed[:-12], "cut.gz"))
    with pytest.raises(ValueError, match=r"plain\.gz, line 1: Not a gzipped file"):
        load_xmc_file(write(tmp_path, "1 3 2\n0 1:1\n", "plain.gz"))


@pytest.mark.parametrize("path", [3, None, b"data.txt"])
def test_path_must_be_a_path(path):
    with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
        load_xmc_file(path)
    with pytest.raises(TypeError, match="path must be a str or os.PathLike"):
        dump_xmc_file([[1.0]], [[1]], path)


@pytest.mark.parametrize("dtype", [np.int32, np.float16, "text", None.__class__])
def test_dtype_must_be_a_float(tmp_path, dtype):
    with pytest.raises(ValueError, match="dtype must be numpy.float32 or numpy.float64"):
        load_xmc_file(write(tmp_path, "0 1 1\n"), dtype=dtype)


REFUSED = {
    "rows": ([[1.0], [2.0]], [[1]], "equally many rows, got 2 and 1"),
    "X 1-D": ([1.0], [[1]], "X must be a two-dimensional matrix"),
    "Y 1-D": ([[1.0]], [1], "Y must be a two-dimensional matrix"),
    "X text": ([["a"]], [[1]], "X must be .* matrix of numbers.* dtype <U1"),
    "X complex": ([[1j]], [[1]], "X must be .* matrix of numbers.* dtype complex128"),
    "X nan": ([[1.0], [np.nan]], [[1], [1]], "X must be finite, got nan in row 1"),
    "X inf sparse": (
        sp.csr_array([[0.0, 0.0], [0.0, np.inf]]),
        np.eye(2),
        "X must be finite, got inf in row 1",
    ),
    "Y two": ([[1.0], [1.0]], [[1, 0], [0, 2]], "Y must hold 0 and 1 only, got 2 in row 1"),
    "Y half": ([[1.0]], [[0.5]], "got 0.5 in row 0"),
    "Y nan": ([[1.0]], [[np.nan]], "got nan in row 0"),
    "Y repeated": (
        [[1.0]],
        sp.csr_matrix(([1, 1], [0, 0], [0, 2]), shape=(1, 1)),
        "more than once, got 2 in row 0",
    ),
}


@pytest.mark.parametrize("X, Y, fault", REFUSED.values(), ids=REFUSED)
def test_dump_refuses_bad_input_and_leaves_no_file(tmp_path, X, Y, fault):
    with pytest.raises(ValueError, match=fault):
        dump_xmc_file(X, Y, tmp_path / "data.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [np.asarray, sp.coo_array, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64])
def test_dump_takes_any_container(tmp_path, make, dtype):
    X, Y = np.array([[0, 1], [1, 0]], dtype=dtype), np.array([[1, 0, 1], [0, 0, 0]], dtype=dtype)
    dump_xmc_file(make(X), make(Y), tmp_path / "data.txt")
    X_read, Y_read = load_xmc_file(tmp_path / "data.txt")
    np.testing.assert_array_equal(X_read.toarray(), X)
    np.testing.assert_array_equal(Y_read.toarray(), Y)


def test_dump_leaves_its_input_alone(tmp_path):
    X = sp.csr_matrix(([1.0, 2.0, 3.0], [1, 0, 1], [0, 3]), shape=(1, 2))
    Y = sp.csr_matrix(([0, 1], [0, 1], [0, 2]), shape=(1, 2))
    dump_xmc_file(X, Y, tmp_path / "data.txt")
    assert (tmp_path / "data.txt").read_text() == "1 2 2\n1 0:2 1:4\n"
    np.testing.assert_array_equal(X.data, [1, 2, 3])
    np.testing.assert_array_equal(X.indices, [1, 0, 1])
    np.testing.assert_array_equal(Y.data, [0, 1])


def test_interrupted_dump_keeps_the_older_file(tmp_path, monkeypatch):
    path = write(tmp_path, "old")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dump_xmc_file([[1.0]], [[1]], path)
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]
    assert path.read_text() == "old"


def test_blocks_join_without_a_seam(tmp_path, monkeypatch, rng):
    X = sp.random(50, 9, 0.3, format="csr", random_state=rng)
    Y = sp.csr_matrix(rng.random((50, 4)) < 0.3).astype(np.int32)
    dump_xmc_file(X, Y, tmp_path / "one.txt")
    monkeypatch.setattr("sklearn_xlc.datasets._xmc_file._BLOCK_ROWS", 7)
    dump_xmc_file(X, Y, tmp_path / "many.txt")
    assert (tmp_path / "one.txt").read_bytes() == (tmp_path / "many.txt").read_bytes()
    assert_same_csr(load_xmc_file(tmp_path / "many.txt", dtype=np.float64)[0], X)


def test_a_hundred_thousand_lines_take_seconds(tmp_path):
    """A fifth of them, in a fifth of the time."""
    path = write(tmp_path, "20000 50 9\n" + "1,3 4:0.25 7:1.5 20:3 33:0.125\n" * 20_000)
    start = time.process_time()
    X, Y = load_xmc_file(path)
    assert time.process_time() - start < 2
    assert X.nnz == 80_000
    assert Y.nnz == 40_000


@pytest.mark.slow
@pytest.mark.parametrize("part", ["trn", "tst"])
def test_bibtex_equals_its_matrices(data_dir, tmp_path, part):
    folder = data_dir / "bibtex"
    X, Y = load_xmc_file(folder / f"{part}.txt.gz")
    X_stored = sp.load_npz(folder / f"X_{part}.npz")
    Y_stored = sp.load_npz(folder / f"Y_{part}.npz")
    X_stored.sort_indices()
    Y_stored.sort_indices()
    assert_same_csr(X, X_stored)
    assert_same_csr(Y, Y_stored.astype(np.int32))
    dump_xmc_file(X, Y, tmp_path / "again.txt")
    theirs = gzip.decompress((folder / f"{part}.txt.gz").read_bytes()).splitlines()
    ours = (tmp_path / "again.txt").read_bytes().splitlines()
    assert [line.split() for line in ours] == [line.split() for line in theirs]
