"""Reader and writer of the text format of the Extreme Classification Repository."""

import gzip
import os
import secrets
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr, check_indicator, raise_for_entries
from sklearn_xlc._csr import canonical, row_blocks
from sklearn_xlc.datasets._csr_file import GrowingCSR
from sklearn_xlc.datasets._xmc_cache import cache_of, load_mapped

# Number of rows formatted at a time, to bound the memory for strings.
_BLOCK_ROWS = 4096
# Bytes of the longest line: room for a sample with a million features. Without a limit, one line of
# a small compressed file could fill the memory.
_MAX_LINE = 2**24
_GZIP_MAGIC = b"\x1f\x8b"
# Number of parsed entries in memory before they move to disk: tens of megabytes.
_BLOCK_ENTRIES = 2**21
_INT32_MAX = np.iinfo(np.int32).max


def load_xmc_file(
    path: str | os.PathLike[str],
    *,
    dtype: Any = np.float32,
    mmap: bool | str | os.PathLike[str] = False,
    out: str | os.PathLike[str] | None = None,
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    r"""Read features and labels from a file of the Extreme Classification Repository.

    The first line holds ``n_samples n_features n_labels``. Every further line is one sample,
    ``l1,l2,... f1:v1 f2:v2 ...``, with label and feature ids counted from 0. The line of a sample
    without labels starts with a space, the line of a sample without features ends after the labels,
    and an empty line is a sample with neither. Parsing takes little more memory than the result.

    Parameters
    ----------
    path : str or os.PathLike
        File to read. It is decompressed if its name ends in ``.gz`` or its content starts like a
        gzip file.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        Type of the feature values.
    mmap : bool, str or os.PathLike, default=False
        Whether to map the arrays of both matrices from a cache file, for data larger than the
        memory or loaded often. The first call parses the text, with little memory, and writes the
        cache ``<name>.<dtype>.xlc`` beside it; later calls take a moment. A path: folder for the
        cache, created if needed. The cache is rewritten if size or modification time of the text
        have changed; writing takes twice its size on the disk. The arrays are read-only.
        Classifiers train on them batch by batch.
    out : str or os.PathLike, default=None
        Path of the cache file, instead of `mmap`. ``X, Y = open_csr(out)`` maps it, also without
        the text.

    Returns
    -------
    X : csr_matrix of shape (n_samples, n_features)
        Features, with sorted indices. Explicit zeros in the file, as in ``3:0``, are stored.
    Y : csr_matrix of shape (n_samples, n_labels) and dtype int32
        Label indicator, with sorted indices.

    Raises
    ------
    ValueError
        If the file breaks the format: the header is missing or wrong; an id is not a whole number
        or is out of the range of the header; a value is not a finite number; a sample has a label
        or feature twice; a line is longer than 16 MiB; there are more or fewer samples than the
        header announces. The message names the file, the line (the header is line 1) and the error.
        If both `mmap` and `out` are given.
    OSError
        If the file cannot be read, or the arrays cannot be written.

    See Also
    --------
    dump_xmc_file : Writes such a file.
    open_csr : Maps the matrices written with `out`.

    References
    ----------
    .. [1] K. Bhatia, K. Dahiya, H. Jain, P. Kar, A. Mittal, Y. Prabhu, M. Varma,
       "The extreme classification repository: Multi-label datasets and code", 2016.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_xlc.datasets import load_xmc_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text("2 4 3\n0,2 1:0.5 3:2\n 0:1\n")
    ...     X, Y = load_xmc_file(path)
    >>> X.toarray()
    array([[0. , 0.5, 0. , 2. ],
           [1. , 0. , 0. , 0. ]], dtype=float32)
    >>> Y.toarray()
    array([[1, 0, 1],
           [0, 0, 0]], dtype=int32)

    With arrays mapped from a file:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text("2 4 3\n0,2 1:0.5 3:2\n 0:1\n")
    ...     X, Y = load_xmc_file(path, mmap=True)
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['train.txt', 'train.txt.float32.xlc']
    >>> X.data.flags.writeable
    False
    """
    path = _check_path(path)
    dtype = _check_dtype(dtype)
    cache = cache_of(path, dtype, mmap, out)
    if cache is None:
        return _parse(path, dtype).matrices()

    def parse(new_file: Callable[[], Any]) -> list[GrowingCSR]:
        return _parse(path, dtype, new_file).on_disk()

    X, Y = load_mapped(path, dtype, cache, parse)
    return X, Y


def _parse(
    path: Path, dtype: np.dtype[Any], new_file: Callable[[], Any] | None = None
) -> "_RowParser":
    """Parse a file, with rows on disk if `new_file` is given; return the parser."""
    line_number = 1
    try:
        with _open_to_read(path) as file:
            parser = _RowParser(*_parse_header(_read_line(file)), dtype, new_file)
            line_number += 1
            while line := _read_line(file):
                parser.add(line)
                line_number += 1
            parser.check_complete()
    except (_FormatError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, line {line_number}: {error}") from error
    return parser


def dump_xmc_file(X: Any, Y: Any, path: str | os.PathLike[str]) -> None:
    """Write features and labels to a file of the Extreme Classification Repository.

    Values are written with the fewest digits that restore the same bits, so `load_xmc_file` with
    the dtype of `X` returns equal matrices. The file gets its name when it is complete: an
    interrupted call does not change an existing file.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Features. Float32 and float64 are written exactly, integers and booleans as float64. Stored
        zeros of a sparse `X` are written, zeros of a dense `X` are not. Repeated entries of a
        sparse `X` are summed.
    Y : {array-like, sparse matrix} of shape (n_samples, n_labels)
        Label indicator of zeros and ones. Stored zeros are not written.
    path : str or os.PathLike
        File to write. It is compressed if its name ends in ``.gz``. The same input gives the same
        bytes.

    Raises
    ------
    ValueError
        If `X` and `Y` are not two-dimensional with the same number of rows, `X` is not finite, or
        `Y` holds values other than 0 and 1.

    See Also
    --------
    load_xmc_file : Reads such a file; describes the format.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_xlc.datasets import dump_xmc_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     dump_xmc_file([[0.0, 0.5], [1.0, 0.0]], [[1, 0, 1], [0, 0, 0]], path)
    ...     print(path.read_text())
    2 2 3
    0,2 1:0.5
     0:1
    """
    path = _check_path(path)
    X = _check_features(X)
    Y = check_indicator(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            f"X and Y must have the same number of rows, got {X.shape[0]} and {Y.shape[0]}"
        )
    # In the folder of the target, because a rename is atomic only within one file system.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(partial, "xb") as raw:
            if path.suffix == ".gz":
                # No time stamp and no name, so that equal data give equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                    _write(file, X, Y)
            else:
                _write(raw, X, Y)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class _FormatError(Exception):
    """Error for an invalid line; the caller adds file and line number."""


class _RowParser:
    """Parser of lines into the arrays of both matrices; raises for malformed lines."""

    def __init__(
        self,
        n_samples: int,
        n_features: int,
        n_labels: int,
        dtype: np.dtype[Any],
        new_file: Callable[[], Any] | None,
    ) -> None:
        self.shape = (n_samples, n_features, n_labels)
        self.dtype = dtype
        self.n_rows = 0
        # Values from this limit on round to infinity: the midpoint above the largest float32.
        self.limit = inf if dtype == np.float64 else float(np.finfo(dtype).max) * (1 + 2.0**-25)
        self._start_block()
        self.disk: list[GrowingCSR] = []
        if new_file is not None:
            self.disk = [GrowingCSR(new_file, n_features, dtype)]
            self.disk += [GrowingCSR(new_file, n_labels, np.int32)]

    def _start_block(self) -> None:
        _, n_features, n_labels = self.shape
        self.values: array[float] = array(self.dtype.char)
        self.features = array("i" if n_features <= _INT32_MAX else "q")
        self.labels = array("i" if n_labels <= _INT32_MAX else "q")
        self.feature_indptr = array("q", [0])
        self.label_indptr = array("q", [0])

    def add(self, line: bytes) -> None:
        """Parse one line into one row."""
        n_samples, n_features, n_labels = self.shape
        tokens = line.split()
        if self.n_rows == n_samples:
            if tokens:
                raise _FormatError(f"the header announces {n_samples} rows, but here is another")
            return  # blank lines after the last row
        if b"_" in line:  # int and float would ignore it
            raise _FormatError("'_' does not belong in a number")
        labels: list[int] = []
        # A token with a colon is never a list of labels, whether or not a space precedes it.
        if tokens and not line[:1].isspace() and b":" not in tokens[0]:
            labels = _parse_ids(tokens.pop(0).split(b","), n_labels, "label")
        names, numbers = _split_pairs(tokens)
        features = _parse_ids(names, n_features, "feature")
        values = self._parse_values(numbers)
        self.labels.extend(labels)
        self.features.extend(features)
        self.values.extend(values)
        self.label_indptr.append(len(self.labels))
        self.feature_indptr.append(len(self.features))
        self.n_rows += 1
        if self.disk and len(self.features) + len(self.labels) >= _BLOCK_ENTRIES:
            self._move_to_disk()

    def _parse_values(self, texts: Sequence[bytes]) -> list[float]:
        """Parse feature values; raise for values not finite in the dtype."""
        try:
            values = list(map(float, texts))
        except ValueError:
            bad = next(text for text in texts if not _converts(float, text))
            raise _FormatError(f"feature value {_show(bad)} is not a number") from None
        if values and not (
            all(map(isfinite, values)) and -self.limit < min(values) and max(values) < self.limit
        ):
            bad = next(t for t, v in zip(texts, values) if not -self.limit < v < self.limit)
            raise _FormatError(f"feature value {_show(bad)} is not finite in {self.dtype}")
        return values

    def check_complete(self) -> None:
        """Raise if the file ended early."""
        if self.n_rows < self.shape[0]:
            raise _FormatError(
                f"the file ends here with {self.n_rows} rows, its header announces {self.shape[0]}"
            )

    def matrices(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Return both matrices, canonical, of the rows in memory."""
        _, n_features, n_labels = self.shape
        values = np.frombuffer(self.values, dtype=self.dtype)
        ones = np.ones(len(self.labels), dtype=np.int32)
        return (
            _csr(values, self.features, self.feature_indptr, n_features),
            _csr(ones, self.labels, self.label_indptr, n_labels),
        )

    def _move_to_disk(self) -> None:
        for matrix, block in zip(self.disk, self.matrices()):
            matrix.append(block)
        self._start_block()

    def on_disk(self) -> list[GrowingCSR]:
        """Return both matrices, canonical, from disk."""
        self._move_to_disk()
        return self.disk


def _csr(
    data: npt.NDArray[Any], indices: "array[int]", indptr: "array[int]", n_columns: int
) -> sp.csr_matrix:
    """Build a CSR matrix with sorted indices from the arrays of the parser."""
    shape = (len(indptr) - 1, n_columns)
    ids = np.frombuffer(indices, dtype=indices.typecode)
    matrix = sp.csr_matrix((data, ids, np.frombuffer(indptr, dtype=np.int64)), shape=shape)
    matrix.sort_indices()
    return matrix


def _read_line(file: Any) -> bytes:
    """Read the next line; empty at the end of the file."""
    line: bytes = file.readline(_MAX_LINE + 1)
    if len(line) > _MAX_LINE:
        raise _FormatError(f"the line is longer than {_MAX_LINE} bytes, the most that is read")
    return line


def _parse_header(line: bytes) -> tuple[int, int, int]:
    """Parse the numbers of samples, features and labels in the first line."""
    texts = line.split()
    if len(texts) != 3 or not all(text.isdigit() for text in texts):
        raise _FormatError(
            "the header must be three whole numbers 'n_samples n_features n_labels', "
            f"got {_show(line.strip())}"
        )
    longest = max(texts, key=len)
    # Check the number of digits first: Python refuses to convert thousands of them.
    if len(longest) > 19 or max(map(int, texts)) > np.iinfo(np.int64).max:
        raise _FormatError(f"the header's count {_show(longest)} does not fit 64 bits")
    n_samples, n_features, n_labels = map(int, texts)
    return n_samples, n_features, n_labels


def _split_pairs(tokens: list[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Split tokens ``f:v`` into their left and right sides."""
    if not tokens:
        return (), ()
    try:
        features, values = zip(*[token.split(b":") for token in tokens], strict=True)
    except ValueError:
        bad = next(token for token in tokens if token.count(b":") != 1)
        raise _FormatError(f"{_show(bad)} is not of the form feature:value") from None
    return features, values


def _parse_ids(texts: Iterable[bytes], n_ids: int, kind: str) -> list[int]:
    """Parse the ids of a sample; raise unless they are distinct and in ``range(n_ids)``."""
    try:
        ids = list(map(int, texts))
    except ValueError:
        unread = next(text for text in texts if not _converts(int, text))
        # Python refuses to convert thousands of digits.
        fault = f"is out of range, the header announces {n_ids} {kind}s"
        fault = fault if unread.isdigit() else "is not a whole number"
        raise _FormatError(f"{kind} id {_show(unread)} {fault}") from None
    if ids:
        if min(ids) < 0 or max(ids) >= n_ids:
            bad = next(i for i in ids if not 0 <= i < n_ids)
            raise _FormatError(
                f"{kind} id {bad} is out of range, the header announces {n_ids} {kind}s "
                f"counted from 0"
            )
        if len(set(ids)) < len(ids):
            seen: set[int] = set()
            bad = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise _FormatError(f"{kind} id {bad} occurs twice in the row")
    return ids


def _converts(number_type: Any, text: bytes) -> bool:
    """Return whether `number_type` can parse the text."""
    try:
        number_type(text)
    except ValueError:
        return False
    return True


def _show(piece: bytes) -> str:
    """Return the shortened repr of a piece of the file."""
    text = piece.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _open_to_read(path: Path) -> Any:
    """Open the text as a binary file, decompressed if needed."""
    file = open(path, "rb")  # noqa: SIM115 - handed to the caller
    compressed = path.suffix == ".gz" or file.peek(2)[:2] == _GZIP_MAGIC
    if not compressed:
        return file
    file.close()
    return gzip.open(path, "rb")


def _check_path(path: Any) -> Path:
    """Validate a path; return a Path."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or os.PathLike, got {type(path).__name__}")
    return Path(path)


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    """Validate the dtype: float32 or float64."""
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        dtype = None if not isinstance(dtype, str) else dtype
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")
    return dtype


def _check_features(X: Any) -> sp.csr_array:
    """Validate features; return canonical CSR of float32 or float64, with stored zeros."""
    X = check_csr(X, "X")
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    X = canonical(X, keep_zeros=True)
    raise_for_entries(X, ~np.isfinite(X.data), "X must be finite")
    return X


def _write(file: IO[bytes] | gzip.GzipFile, X: sp.csr_array, Y: sp.csr_array) -> None:
    """Write header and samples, one block at a time."""
    file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode("ascii"))
    for rows in row_blocks(X.shape[0], 1, _BLOCK_ROWS):
        features = slice(X.indptr[rows.start], X.indptr[rows.stop])
        values = _shortest(X.data[features])
        pairs = [f"{i}:{value}" for i, value in zip(X.indices[features].tolist(), values)]
        labels = Y.indices[Y.indptr[rows.start] : Y.indptr[rows.stop]]
        left = _join_rows([str(label) for label in labels.tolist()], Y.indptr, rows, ",")
        right = _join_rows(pairs, X.indptr, rows, " ")
        lines = [f"{row_labels} {row_pairs}\n" for row_labels, row_pairs in zip(left, right)]
        file.write("".join(lines).encode("ascii"))


def _join_rows(
    texts: list[str], indptr: npt.NDArray[Any], rows: slice, separator: str
) -> list[str]:
    """Join the texts of each row of a block."""
    local = (indptr[rows.start : rows.stop + 1] - indptr[rows.start]).tolist()
    return [separator.join(texts[a:b]) for a, b in zip(local, local[1:])]


def _shortest(values: npt.NDArray[Any]) -> list[str]:
    """Format values with the fewest digits that restore the same bits of the dtype."""
    bits = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
    # Distinct bit patterns, because 0.0 == -0.0; data often hold few distinct values.
    distinct, inverse = np.unique(bits, return_inverse=True)
    distinct = distinct.view(values.dtype)
    texts = distinct.astype(str)
    # The reader rounds twice, to float64 and to float32; if that changes a value, all digits of
    # its float64 are written.
    missed = texts.astype(np.float64).astype(values.dtype) != distinct
    wide = distinct.astype(np.float64)
    shortest = [
        repr(float(exact)) if miss else text
        for text, exact, miss in zip(texts.tolist(), wide.tolist(), missed.tolist())
    ]
    shortest = [text.removesuffix(".0") for text in shortest]
    return [shortest[number] for number in inverse.tolist()]
