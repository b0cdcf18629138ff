"""Folders of CSR matrices for memory mapping, written at once or in blocks of rows."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from sklearn_xlc._bounds import check_flag, is_path
from sklearn_xlc._checks import check_csr, check_sparse
from sklearn_xlc._csr import canonical, index_dtype
from sklearn_xlc._files import replacing, sync_folder

#: Format of the folders: ``manifest.json`` names a folder beside it, which holds the arrays as
#: ``<number of the matrix>.<part>.npy``.
FORMAT = 1
_MANIFEST = "manifest.json"
_PARTS = ("data", "indices", "indptr")
_FOLDER = re.compile("[0-9a-f]{16}")
# What a folder may hold; systems and interrupted calls leave hidden files.
_OURS = re.compile(rf"{re.escape(_MANIFEST)}|{_FOLDER.pattern}|\..*")
# Type codes of entries: bool, integers and floats that SciPy knows, native.
_TYPES = "?bhilqBHILQfd"
# Number of indices converted at a time.
_BLOCK = 2**22
# Bytes read of a manifest: room for thousands of matrices.
_MAX_MANIFEST = 2**24
#: How often a header is parsed again that Python refused.
_TRIES = 9


def save_csr(path: str | os.PathLike[str], X: Any) -> None:
    """Write one or several CSR matrices to a folder for `open_csr`.

    The arrays are ``.npy`` files in a folder of their own, named by ``manifest.json``, which holds
    their types, shapes and digests. It is replaced last: an interrupted call leaves existing
    matrices, and processes reading them, undisturbed.

    Parameters
    ----------
    path : str or os.PathLike
        Folder to write, new or of an earlier call.
    X : {sparse matrix, ndarray}, tuple of such, or iterable of such blocks of rows
        Matrix of numbers. A tuple, such as ``(X, Y)`` of features and labels, holds matrices with
        the same number of rows. A list, generator or other iterable yields blocks of rows, each a
        matrix or a tuple of matrices, for data larger than the memory: one block is held at a time.
        Repeated entries are summed, and stored zeros dropped. Classifiers compute in float32, and
        convert X of another type as a whole: ``X.astype("float32")`` saves that.

    Raises
    ------
    OSError
        If the folder cannot be written, or has other content.

    See Also
    --------
    open_csr : Maps such a folder.
    load_xmc_file : Reads a text file, and writes such a folder with `out`.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets import open_csr, save_csr
    >>> blocks = (csr_matrix([[0, i], [1, 0]], dtype="float32") for i in range(1, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "X.csr")
    ...     save_csr(path, blocks)
    ...     X = open_csr(path)
    >>> X.shape, X.data
    ((6, 2), memmap([1., 1., 2., 1., 3., 1.], dtype=float32))
    """
    path = check_path(path)
    is_whole = sp.issparse(X) or isinstance(X, np.ndarray | tuple)
    try:
        blocks = iter([X] if is_whole else X)
    except TypeError:
        raise ValueError(
            f"X must be a matrix, a tuple of matrices, or an iterable of blocks of rows, got "
            f"{type(X).__name__}"
        ) from None
    given = next(blocks, None)
    if given is None:
        raise ValueError("X has no block of rows; give at least one, of 0 rows if need be")
    # Before any file is made: errors of the first block are raised as they are.
    first = _block(given, "X" if is_whole else "block 0 of X")
    rest = (_block(X, f"block {i} of X", first) for i, X in enumerate(blocks, start=1))
    write_blocks(path, itertools.chain([first], rest), isinstance(given, tuple))


def open_csr(path: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Map the CSR matrices of a folder into memory.

    Entries are read from the files when they are used, so they may be larger than the memory.
    Processes share the mapped memory. Classifiers train and predict batch by batch.

    Parameters
    ----------
    path : str or os.PathLike
        Folder written by :func:`save_csr` or ``load_xmc_file(..., out=path)``. These may replace
        its content, but its files must not be modified: truncating one would kill the processes
        reading it.
    verify : bool, default=True
        Whether to read all entries once and check their digests. If False, only the manifest, types
        and sizes of the files and row pointers are checked; `fit` and `predict` still raise for
        indices out of range.

    Returns
    -------
    csr_matrix of shape (n_rows, n_columns), or tuple of such
        Saved matrices in canonical format, with read-only arrays.

    Raises
    ------
    ValueError
        If a file is missing, damaged or truncated, the folder was not written by :func:`save_csr`,
        or it has the format of a later version.
    OSError
        If there is no such folder, or it cannot be opened.

    See Also
    --------
    save_csr : Writes such a folder.

    Examples
    --------
    >>> import os, tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets import open_csr, save_csr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.csr")
    ...     save_csr(path, (csr_matrix([[0.5, 0.0], [0.0, 1.5]]), csr_matrix([[0, 1], [1, 0]])))
    ...     X, Y = open_csr(path)
    >>> X.data, Y.indices, X.data.flags.writeable
    (memmap([0.5, 1.5]), memmap([1, 0], dtype=int32), False)
    """
    path = check_path(path)
    manifest, matrices = read_matrices(path, check_flag(verify, "verify"))
    return tuple(matrices) if manifest["is_tuple"] else matrices[0]


# --- writing ----------------------------------------------------------------------------------


def write_blocks(
    path: str, blocks: Iterable[Sequence[Any]], is_tuple: bool, source: Any = None
) -> None:
    """Write blocks of canonical matrices of equal widths; `source` is kept in the manifest."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    foreign = [name for name in os.listdir(path) if not _OURS.fullmatch(name)]
    if foreign:
        raise FileExistsError(errno.EEXIST, f"it has other content, such as {foreign[0]!r}", path)
    made = secrets.token_hex(8)
    unused = {made}
    try:
        folder = os.path.join(path, made)
        os.mkdir(folder)
        shapes = _write_arrays(folder, blocks)
        arrays = {name: _seal(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
        sync_folder(folder)
        manifest = {"format": FORMAT, "folder": made, "is_tuple": is_tuple, "source": source}
        manifest |= {"shapes": shapes, "arrays": arrays}
        unused |= _current(path)
        with replacing(os.path.join(path, _MANIFEST)) as file:
            file.write(json.dumps(manifest | {"digest": _digest(manifest)}).encode())
    finally:
        # Asked, not remembered: an interrupt may come right after the manifest was replaced, and
        # another process may have replaced it since.
        for name in unused - _current(path):
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, but after a first call that failed
            os.rmdir(path)


def _write_arrays(folder: str, blocks: Iterable[Sequence[Any]]) -> list[list[int]]:
    """Write the arrays of all blocks; return the shapes of the matrices."""
    matrices: list[_GrowingCSR] = []
    for block in blocks:
        for number, part in enumerate(block):
            if number == len(matrices):
                matrices.append(_GrowingCSR(os.path.join(folder, str(number)), part))
            matrices[number].append(part)
    return [matrix.shape for matrix in matrices]


class _GrowingCSR:
    """CSR matrix on disk, extended by blocks of rows, with the width and type of the first."""

    def __init__(self, stem: str, first: Any) -> None:
        self.shape = [0, first.shape[1]]
        self.data = _GrowingArray(f"{stem}.data.npy", first.dtype)
        self.indices = _GrowingArray(f"{stem}.indices.npy", np.int32)
        self.indptr = _GrowingArray(f"{stem}.indptr.npy", np.int32)
        self.indptr.append(np.zeros(1))

    def append(self, block: Any) -> None:
        before = np.int64(self.data.size)
        self.shape[0] += block.shape[0]
        dtype = index_dtype(before + block.nnz, *self.shape)  # SciPy would convert others
        self.indices, self.indptr = self.indices.widened(dtype), self.indptr.widened(dtype)
        self.data.append(block.data)
        self.indices.append(block.indices)
        self.indptr.append(block.indptr[1:] + before)


class _GrowingArray:
    """One-dimensional array in a ``.npy`` file, extended at its end."""

    def __init__(self, file: str, dtype: Any) -> None:
        self.file, self.dtype, self.size = file, np.dtype(dtype).newbyteorder("="), 0
        with open(file, "xb"):
            pass
        self.append(np.zeros(0))

    def append(self, block: np.ndarray) -> None:
        self.size += len(block)
        head = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.size,)}
        with open(self.file, "r+b") as file:
            npy.write_array_header_1_0(file, head)  # of one length, whatever the size
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(block, self.dtype).data)

    def widened(self, dtype: np.dtype) -> _GrowingArray:
        """Return the array in another type."""
        if dtype == self.dtype:
            return self
        narrow = f"{self.file}.narrow"
        os.replace(self.file, narrow)
        wide, array = _GrowingArray(self.file, dtype), _open(narrow)
        for start in range(0, len(array), _BLOCK):
            wide.append(array[start : start + _BLOCK])
        del array  # some systems keep the files of mapped arrays
        os.unlink(narrow)
        return wide


def _seal(file: str) -> list[Any]:
    """Sync an array to the disk; return its type, shape and digest."""
    array = _open(file)
    with open(file, "r+b") as handle:
        os.fsync(handle)
    return [array.dtype.str, list(array.shape), _file_digest(file)]


def _file_digest(file: str) -> str:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _block(given: Any, name: str, first: list[Any] | None = None) -> list[Any]:
    """Check a block of rows; return canonical CSR matrices, sharing their arrays if possible."""
    matrices, parts = [], {name: given}
    if isinstance(given, tuple):
        parts = {f"{name}[{i}]": matrix for i, matrix in enumerate(given)}
    for of, matrix in parts.items():
        if not (sp.issparse(matrix) or isinstance(matrix, np.ndarray)):
            kind = type(matrix).__name__
            raise ValueError(f"{of} must be a sparse matrix or an array, got {kind}")
        matrices.append(canonical(check_csr(matrix, of)))
        if matrices[-1].dtype.char not in _TYPES:
            held = matrices[-1].dtype
            raise ValueError(f"{of} holds {held}; a file holds bool, integers and floats")
    heights = [matrix.shape[0] for matrix in matrices]
    if len(set(heights)) != 1:
        raise ValueError(
            f"matrices of a tuple must have the same number of rows, {name} has {heights}"
        )
    found, expected = (
        [f"{matrix.shape[1]} columns of {matrix.dtype}" for matrix in some or matrices]
        for some in (matrices, first)
    )
    if found != expected:
        raise ValueError(
            f"{name} has {' and '.join(found)}, but block 0 has {' and '.join(expected)}; all "
            "blocks must have the same"
        )
    return matrices


# --- reading ----------------------------------------------------------------------------------


def read_matrices(path: str, verify: bool) -> tuple[dict[str, Any], list[sp.csr_matrix]]:
    """Map the matrices of a folder; return its manifest and them, as :func:`open_csr`."""
    manifest = _manifest(path)
    try:
        with _refusing(path):
            shapes = enumerate(manifest["shapes"])
            matrices = [_matrix(path, manifest, i, shape, verify) for i, shape in shapes]
            if not matrices:
                raise ValueError("it holds no matrix")
    except (FileNotFoundError, NotADirectoryError) as error:
        if _manifest(path) != manifest:  # replaced meanwhile
            return read_matrices(path, verify)
        raise ValueError(f"cannot read {path}: it lacks a file ({error})") from error
    return manifest, matrices


def _manifest(path: str) -> dict[str, Any]:
    os.stat(path)  # a missing folder is a FileNotFoundError with its name
    file = os.path.join(path, _MANIFEST)
    with _refusing(path):
        if not os.path.lexists(file):
            raise ValueError(f"it has no {_MANIFEST}")
        _check_ordinary(file)
        with open(file, "rb") as handle:
            text = handle.readline(_MAX_MANIFEST)
        manifest: dict[str, Any] = json.loads(text)
        if manifest["format"] != FORMAT:
            raise ValueError(
                f"it has format {manifest['format']}, and this version of sklearn_xlc reads "
                f"{FORMAT}; install the version that wrote it, or a later one"
            )
        is_whole = text == json.dumps(manifest).encode()  # readers differ in repeated names
        is_whole &= manifest.pop("digest") == _digest(manifest)
        if not (is_whole and _FOLDER.fullmatch(manifest["folder"])):
            raise ValueError(f"{_MANIFEST} does not match its digest")
    return manifest


def _current(path: str) -> set[str]:
    """Return the folder named by the manifest, if there is one."""
    try:
        return {_manifest(path)["folder"]}
    except (FileNotFoundError, ValueError):
        return set()


def _open(file: str) -> Any:
    """Map an array. Python 3.11 refuses headers at times if several threads parse at once."""
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):  # cpython issue 106905
            return npy.open_memmap(file, "r")
    return npy.open_memmap(file, "r")


@contextlib.contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Name the folder in whatever NumPy, SciPy and JSON raise for damaged files."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"cannot read {path}: it is damaged, or not written by save_csr ({error})"
        ) from error


def _check_ordinary(file: str) -> None:
    """Raise ValueError for links, and for pipes, where reading would wait."""
    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise ValueError(f"{os.path.basename(file)} is not an ordinary file")


def _matrix(
    path: str, manifest: dict[str, Any], number: int, shape: list[int], verify: bool
) -> sp.csr_matrix:
    names = [f"{number}.{part}.npy" for part in _PARTS]
    data, indices, indptr = (_mapped(path, manifest, name, verify) for name in names)
    n_rows, n_columns = shape
    if indptr.shape != (n_rows + 1,) or not data.shape == indices.shape == (indptr[-1],):
        raise ValueError("its arrays do not fit together")
    dtype = index_dtype(len(data), n_rows, n_columns)
    known = data.dtype.char in _TYPES and data.dtype.isnative
    if not (indices.dtype == indptr.dtype == dtype and known):
        raise ValueError("its arrays have the wrong type")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("its row pointers are wrong")
    # The constructor would read all 64-bit indices.
    matrix = sp.csr_matrix((n_rows, n_columns), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    if verify and not check_sparse(matrix, "X").has_canonical_format:
        raise ValueError("its indices are not sorted")
    matrix.has_canonical_format = True  # as written; SciPy would read all entries to check
    return matrix


def _mapped(path: str, manifest: dict[str, Any], name: str, verify: bool) -> np.ndarray:
    """Map an array; compare its type, shape and size, and its digest if asked, as written."""
    file = os.path.join(path, manifest["folder"], name)
    _check_ordinary(file)
    *written, digest = manifest["arrays"][name]
    array = _open(file)
    size = array.offset + array.nbytes
    if [array.dtype.str, list(array.shape)] != written or os.path.getsize(file) != size:
        raise ValueError(f"{name} has another type or size")
    if verify and _file_digest(file) != digest:
        raise ValueError(f"{name} does not match its digest")
    return array


def check_path(path: Any, name: str = "path") -> str:
    """Validate a path; return a str."""
    if not is_path(path):
        raise TypeError(f"{name} must be a str or os.PathLike, got {type(path).__name__}")
    return os.fsdecode(path)
