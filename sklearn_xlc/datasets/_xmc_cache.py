"""Cache of parsed files as memory-mapped arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc.datasets._csr_file import (
    GrowingCSR,
    read_matrices,
    temporary_files,
    write_matrices,
)


def cache_of(path: Path, dtype: np.dtype, mmap: Any, out: Any = None) -> Path | None:
    """Return the path of the cache: `out`, beside the file, in the folder `mmap`, or None."""
    if out is not None:
        if not isinstance(out, str | os.PathLike):
            raise TypeError(f"out must be a str, os.PathLike or None, got {type(out).__name__}")
        if not isinstance(mmap, bool | np.bool_) or mmap:
            raise ValueError("give mmap or out, not both: each says where the arrays are written")
        if os.path.realpath(out) == os.path.realpath(path):
            raise ValueError(f"out is {path} itself, which would be overwritten; give another file")
        return Path(out)
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
    path: Path,
    dtype: np.dtype,
    cache: Path,
    parse: Callable[[Callable[[], Any]], list[GrowingCSR]],
) -> list[sp.csr_matrix]:
    """Map the matrices of a file from its cache; write the cache first if needed.

    The cache is valid if it stores the name, size and modification time of `path`, and `dtype`.
    `parse` computes the matrices, given a factory of temporary files. The matrices have read-only
    arrays.

    Raises
    ------
    OSError
        If the file does not exist, or the cache cannot be written.
    ValueError
        If the file changes while it is parsed.
    """
    stamp = _stamp(path, dtype)
    found = _read(cache, stamp)
    if found is None:
        try:
            os.makedirs(cache.parent, exist_ok=True)
            with temporary_files(cache) as new_file:
                grown = parse(new_file)
                parts = [matrix.arrays() for matrix in grown]
                write_matrices(cache, parts, [m.n_columns for m in grown], True, stamp)
        except OSError as error:
            if error.filename == os.fspath(path):
                raise
            raise OSError(
                error.errno,
                f"the parsed arrays of {path} cannot be written to {cache}: "
                f"{error.strerror or error}; give a folder that can be written, with room for "
                "twice the arrays, as mmap, or a file in it as out",
            ) from error
        found = _read(cache, _stamp(path, dtype))
    if found is None:
        raise ValueError(f"{path} was changed while it was read; load it again")
    return found


def _stamp(path: Path, dtype: np.dtype) -> dict[str, Any]:
    """Return name, size and modification time of a file, and the type of values."""
    stat = os.stat(path)
    size, time = stat.st_size, stat.st_mtime_ns
    return {"name": path.name, "size": size, "mtime_ns": time, "dtype": str(dtype)}


def _read(cache: Path, stamp: dict[str, Any]) -> list[sp.csr_matrix] | None:
    """Read the matrices of a cache; None if it is unreadable or its stamp differs."""
    try:
        document, matrices = read_matrices(cache, verify=False)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return matrices if document["source"] == stamp else None
