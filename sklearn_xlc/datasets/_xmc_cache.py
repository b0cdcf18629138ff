"""Parsed files kept as arrays that later loads map into memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._files import read_mapped, write

_KIND = "parsed data set"
# Indices that are converted at a time.
_BLOCK = 2**22
_INT32_MAX = np.iinfo(np.int32).max


class GrowingCSR:
    """CSR matrix on disk that grows by blocks of rows; only the row pointers are ever in memory.

    Parameters
    ----------
    new_file : callable
        Function that returns a new binary file, open to write and to read.
    n_columns : int
        Number of columns.
    dtype : dtype
        Type of the entries.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc.datasets._xmc_cache import GrowingCSR
    >>> with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as indices:
    ...     matrix = GrowingCSR(iter([data, indices]).__next__, 3, "int32")
    ...     matrix.append(csr_matrix([[0, 5, 6], [7, 0, 0]]))
    ...     matrix.append(csr_matrix([[0, 0, 8]]))
    ...     matrix.arrays()
    {'data': memmap([5, 6, 7, 8], dtype=int32),
     'indices': memmap([1, 2, 0, 2], dtype=int32),
     'indptr': array([0, 2, 3, 4], dtype=int32)}
    """

    def __init__(self, new_file: Callable[[], Any], n_columns: int, dtype: Any) -> None:
        self.new_file, self.n_columns, self.dtype = new_file, n_columns, np.dtype(dtype)
        # Narrow as long as the columns allow it: how many entries there will be is not known yet.
        self._narrow = np.dtype(np.int32 if n_columns <= _INT32_MAX else np.int64)
        self._data, self._indices = new_file(), new_file()
        self._ends = [np.zeros(1, dtype=np.int64)]

    def append(self, block: Any) -> None:
        """Add the rows of a CSR matrix with sorted indices."""
        self._data.write(block.data.astype(self.dtype, copy=False).data)
        self._indices.write(block.indices.astype(self._narrow, copy=False).data)
        self._ends.append(block.indptr[1:] + self._ends[-1][-1])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the matrix, with indices of the type that SciPy takes."""
        indptr = np.concatenate(self._ends)
        largest = max(indptr[-1], len(indptr) - 1, self.n_columns)
        dtype = np.dtype(np.int32 if largest <= _INT32_MAX else np.int64)
        indices = _mapped(self._indices, self._narrow)
        if dtype != self._narrow:
            wide = self.new_file()
            for start in range(0, len(indices), _BLOCK):
                wide.write(indices[start : start + _BLOCK].astype(dtype).data)
            indices = _mapped(wide, dtype)
        data = _mapped(self._data, self.dtype)
        return {"data": data, "indices": indices, "indptr": indptr.astype(dtype, copy=False)}


def _mapped(file: Any, dtype: np.dtype) -> np.ndarray:
    file.flush()
    size = os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
    return np.memmap(file, dtype, mode="r") if size else np.zeros(0, dtype)


def cache_of(path: Path, dtype: np.dtype, mmap: Any) -> Path | None:
    """File for the arrays of a parsed file: beside it, in the folder `mmap`, or none if False."""
    if isinstance(mmap, bool | np.bool_):
        return path.with_name(f"{path.name}.{dtype}.xlc") if mmap else None
    if not isinstance(mmap, str | os.PathLike):
        raise TypeError(
            f"mmap must be a bool, or a folder as str or os.PathLike, got {type(mmap).__name__}"
        )
    # Files in different folders often have the same name, such as train.txt.
    place = hashlib.sha256(os.fsencode(path.resolve().parent)).hexdigest()[:12]
    return Path(mmap) / f"{path.name}.{place}.{dtype}.xlc"


def load_mapped(
    path: Path, cache: Path, parse: Callable[[Callable[[], Any]], list[GrowingCSR]]
) -> list[sp.csr_matrix]:
    """Matrices of a file, mapped from its cache, which is written first if needed.

    Parameters
    ----------
    path : Path
        File that was, or will be, parsed.
    cache : Path
        File of the arrays. It is used only if `path` has the size and time that it had then.
    parse : callable
        Function that returns the matrices, given a function that makes temporary files.

    Returns
    -------
    list of csr_matrix
        Matrices with read-only arrays.

    Raises
    ------
    OSError
        If there is no such file, or the cache cannot be written.
    ValueError
        If the file changes while it is parsed.
    """
    stamp = _stamp(path)
    found = _read(cache, stamp)
    if found is None:
        try:
            os.makedirs(cache.parent, exist_ok=True)
            with contextlib.ExitStack() as files:
                # Files without names, so that a process that is killed leaves nothing behind.
                matrices = parse(
                    lambda: files.enter_context(tempfile.TemporaryFile(dir=cache.parent))
                )
                _write(cache, stamp, matrices)
        except OSError as error:
            if error.filename == os.fspath(path):
                raise
            raise OSError(
                error.errno,
                f"mmap: the parsed arrays of {path} cannot be written to {cache}: "
                f"{error.strerror or error}; give a folder that can be written, with room for "
                "twice the arrays, as mmap",
            ) from error
        found = _read(cache, _stamp(path))
    if found is None:
        raise ValueError(f"{path} was changed while it was read; load it again")
    return found


def _stamp(path: Path) -> dict[str, int]:
    """What changes with the content of a file, as build tools take it."""
    stat = os.stat(path)
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _write(cache: Path, stamp: dict[str, int], matrices: list[GrowingCSR]) -> None:
    named = [matrix.arrays() for matrix in matrices]
    shapes = [[len(parts["indptr"]) - 1, m.n_columns] for parts, m in zip(named, matrices)]
    arrays = {f"{i}.{name}": parts[name] for i, parts in enumerate(named) for name in parts}
    write(cache, {"source": stamp, "shapes": shapes}, arrays, kind=_KIND)


def _read(cache: Path, stamp: dict[str, int]) -> list[sp.csr_matrix] | None:
    """Matrices of a cache; None unless it can be read and belongs to the file of that stamp."""
    try:
        document, arrays = read_mapped(cache, kind=_KIND)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if document["source"] != stamp:
        return None
    matrices = []
    for i, shape in enumerate(document["shapes"]):
        parts = tuple(arrays[f"{i}.{name}"] for name in ("data", "indices", "indptr"))
        matrices.append(sp.csr_matrix(parts, shape=tuple(shape)))
        matrices[-1].has_canonical_format = True  # as it was written: no look at all of it
    return matrices
