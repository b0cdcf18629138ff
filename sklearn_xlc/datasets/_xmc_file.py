"""Reader and writer of the text format of the Extreme Classification Repository."""

import gzip
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._checks import check_csr, check_equal, check_indicator, raise_for_entries
from sklearn_xlc._csr import canonical, index_dtype, row_blocks
from sklearn_xlc._files import replacing
from sklearn_xlc.datasets._csr_folder import check_path, read_matrices, write_blocks

Matrices = tuple[sp.csr_matrix, ...]

# Number of rows formatted at a time, to bound the memory for strings.
_BLOCK_ROWS = 4096
# Bytes of the longest line: room for a sample with a million features. Without a limit, one line of
# a small compressed file could fill the memory.
_MAX_LINE = 2**24
_GZIP_MAGIC = b"\x1f\x8b"
# Number of parsed entries of a block on its way to the disk: tens of megabytes.
_BLOCK_ENTRIES = 2**21


def load_xmc_file(
    path: str | os.PathLike[str],
    *,
    dtype: Any = np.float32,
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
    out : str or os.PathLike, default=None
        Folder for the arrays of both matrices, which are then mapped from it: for data larger than
        the memory, or loaded often. The first call parses the text, with little memory; later calls
        take a moment. The folder is written again if `dtype`, or name, size or modification time of
        the text, have changed. The arrays are read-only. Classifiers train on them batch by batch.
        ``X, Y = open_csr(out)`` maps them, also without the text.

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
    OSError
        If the file cannot be read, or the arrays cannot be written.

    See Also
    --------
    dump_xmc_file : Writes such a file.

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
    ...     X, Y = load_xmc_file(path, out=Path(folder) / "train.csr")  # mapped from files
    >>> X.toarray()
    array([[0. , 0.5, 0. , 2. ],
           [1. , 0. , 0. , 0. ]], dtype=float32)
    >>> Y.toarray()
    array([[1, 0, 1],
           [0, 0, 0]], dtype=int32)
    """
    path, dtype = Path(check_path(path)), _check_dtype(dtype)
    if out is not None:
        return _mapped(path, dtype, check_path(out, "out"))
    [matrices] = _blocks(path, dtype)
    return matrices


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
    path = check_path(path)
    X = _check_features(X)
    Y = check_indicator(Y, "Y")
    check_equal("rows", X=X.shape[0], Y=Y.shape[0])
    with replacing(path) as raw:
        if path.endswith(".gz"):
            # No time stamp and no name, so that equal data give equal bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                _write(file, X, Y)
        else:
            _write(raw, X, Y)


def _mapped(path: Path, dtype: np.dtype[Any], out: str) -> Matrices:
    """Map the matrices of a text from a folder; write it first if it is of another text."""
    if (found := _written(out, _source(path, dtype))) is None:
        write_blocks(out, _blocks(path, dtype, _BLOCK_ENTRIES), True, _source(path, dtype))
        found = _written(out, _source(path, dtype))
    if found is None:
        raise ValueError(f"{path} was changed while it was read; load it again")
    return found


def _source(path: Path, dtype: np.dtype[Any]) -> dict[str, Any]:
    stat = os.stat(path)
    size, time = stat.st_size, stat.st_mtime_ns
    return {"name": path.name, "size": size, "mtime_ns": time, "dtype": str(dtype)}


def _written(out: str, source: dict[str, Any]) -> Matrices | None:
    """Return the matrices of a folder; None if it is damaged, or of another source."""
    try:
        manifest, matrices = read_matrices(out, verify=False)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return tuple(matrices) if manifest["source"] == source else None


def _blocks(path: Path, dtype: np.dtype[Any], n_entries: float = inf) -> Iterator[Matrices]:
    """Parse a file; yield its rows in blocks of little more than `n_entries` entries."""
    number = 1
    try:
        with _open_to_read(path) as file:
            n_rows, *widths = _parse_header(_read_line(file))
            block = _Block(widths, dtype)
            for row in range(n_rows):
                number += 1
                if not (line := _read_line(file)):
                    raise _FormatError(
                        f"the file ends here with {row} rows, its header announces {n_rows}"
                    )
                block.add(line)
                if len(block.features) + len(block.labels) >= n_entries:
                    yield block.matrices()
                    block = _Block(widths, dtype)
            number += 1
            while line := _read_line(file):
                if line.split():
                    raise _FormatError(f"the header announces {n_rows} rows, but here is another")
                number += 1
            yield block.matrices()
    except (_FormatError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


class _FormatError(Exception):
    """Error for an invalid line; the caller adds file and line number."""


class _Block:
    """Parsed rows; raises for malformed lines."""

    def __init__(self, widths: list[int], dtype: np.dtype[Any]) -> None:
        self.n_features, self.n_labels = widths
        self.dtype = dtype
        # Values from this limit on round to infinity: the midpoint above the largest float32.
        self.limit = inf if dtype == np.float64 else float(np.finfo(dtype).max) * (1 + 2.0**-25)
        self.values: array[float] = array(dtype.char)
        self.features = array(index_dtype(self.n_features).char)
        self.labels = array(index_dtype(self.n_labels).char)
        self.feature_ends, self.label_ends = array("q", [0]), array("q", [0])

    def add(self, line: bytes) -> None:
        """Parse one line into one row."""
        tokens = line.split()
        if b"_" in line:  # int and float would ignore it
            raise _FormatError("'_' does not belong in a number")
        # A token with a colon is never a list of labels, whether or not a space precedes it.
        if tokens and not line[:1].isspace() and b":" not in tokens[0]:
            self.labels.extend(_parse_ids(tokens.pop(0).split(b","), self.n_labels, "label"))
        if tokens:
            names, texts = _split_pairs(tokens)
            self.features.extend(_parse_ids(names, self.n_features, "feature"))
            values = _convert(float, texts, "feature value {} is not a number")
            if not all(map(self.limit.__gt__, map(abs, values))):
                bad = next(text for text, v in zip(texts, values) if not abs(v) < self.limit)
                raise _FormatError(f"feature value {_show(bad)} is not finite in {self.dtype}")
            self.values.extend(values)
        self.label_ends.append(len(self.labels))
        self.feature_ends.append(len(self.features))

    def matrices(self) -> Matrices:
        """Return the rows as canonical matrices."""
        values = np.frombuffer(self.values, dtype=self.dtype)
        ones = np.ones(len(self.labels), dtype=np.int32)
        return (
            _csr(values, self.features, self.feature_ends, self.n_features),
            _csr(ones, self.labels, self.label_ends, self.n_labels),
        )


def _csr(
    data: npt.NDArray[Any], indices: "array[int]", indptr: "array[int]", n_columns: int
) -> sp.csr_matrix:
    """Build a CSR matrix with sorted indices."""
    ids, ends = (np.frombuffer(part, dtype=part.typecode) for part in (indices, indptr))
    matrix = sp.csr_matrix((data, ids, ends), shape=(len(indptr) - 1, n_columns))
    matrix.sort_indices()
    return matrix


def _read_line(file: Any) -> bytes:
    """Read the next line; empty at the end of the file."""
    line: bytes = file.readline(_MAX_LINE + 1)
    if len(line) > _MAX_LINE:
        raise _FormatError(f"the line is longer than {_MAX_LINE} bytes, the most that is read")
    return line


def _parse_header(line: bytes) -> list[int]:
    """Parse the numbers of samples, features and labels in the first line."""
    texts = line.split()
    if len(texts) != 3 or not all(text.isdigit() for text in texts):
        raise _FormatError(
            "the header must be three whole numbers 'n_samples n_features n_labels', "
            f"got {_show(line.strip())}"
        )
    # As floats: Python refuses to convert thousands of digits to an int.
    if float(largest := max(texts, key=float)) >= 2.0**63:
        raise _FormatError(f"the header's count {_show(largest)} does not fit 64 bits")
    return list(map(int, texts))


def _split_pairs(tokens: list[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Split tokens ``f:v`` into their left and right sides."""
    try:
        features, values = zip(*[token.split(b":") for token in tokens], strict=True)
    except ValueError:
        bad = next(token for token in tokens if token.count(b":") != 1)
        raise _FormatError(f"{_show(bad)} is not of the form feature:value") from None
    return features, values


def _parse_ids(texts: Sequence[bytes], n_ids: int, kind: str) -> list[int]:
    """Parse the ids of a sample; raise unless they are distinct and in ``range(n_ids)``."""
    # What has thousands of digits is not converted by Python either.
    ids = _convert(int, texts, f"{kind} id {{}} is not a whole number below {n_ids}")
    if min(ids) < 0 or max(ids) >= n_ids:
        bad = next(i for i in ids if not 0 <= i < n_ids)
        raise _FormatError(
            f"{kind} id {bad} is out of range, the header announces {n_ids} {kind}s counted from 0"
        )
    if len(set(ids)) < len(ids):
        bad = Counter(ids).most_common(1)[0][0]
        raise _FormatError(f"{kind} id {bad} occurs twice in the row")
    return ids


def _convert(number_type: Any, texts: Sequence[bytes], fault: str) -> list[Any]:
    """Convert texts to numbers; raise for the first invalid one."""
    numbers: list[Any] = []
    try:
        numbers.extend(map(number_type, texts))
    except ValueError:  # those before the invalid text are in the list
        raise _FormatError(fault.format(_show(texts[len(numbers)]))) from None
    return numbers


def _show(piece: bytes) -> str:
    """Return the shortened repr of a piece of the file."""
    text = piece.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _open_to_read(path: Path) -> Any:
    """Open the text as a binary file, decompressed if needed."""
    with open(path, "rb") as file:
        compressed = path.suffix == ".gz" or file.read(2) == _GZIP_MAGIC
    return gzip.open(path) if compressed else open(path, "rb")


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    """Validate the dtype: float32 or float64."""
    for known in (np.dtype(np.float32), np.dtype(np.float64)):
        if dtype in (known, known.type, known.name):
            return known
    raise ValueError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")


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
    """Format values with the fewest digits to restore the same bits of the dtype."""
    # Distinct bit patterns, because 0.0 == -0.0; data often hold few distinct values.
    bits = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
    found, inverse = np.unique(bits, return_inverse=True)
    distinct = found.view(values.dtype)
    shortest = distinct.astype(str)
    texts = [text.removesuffix(".0") for text in shortest.tolist()]
    # The reader rounds twice, to float64 and to float32; if that changes a value, all digits of
    # its float64 are written.
    missed = shortest.astype(np.float64).astype(values.dtype) != distinct
    for place in np.flatnonzero(missed).tolist():
        texts[place] = repr(float(distinct[place]))
    return [texts[number] for number in inverse.tolist()]
