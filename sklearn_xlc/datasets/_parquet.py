"""Blocks of samples from Parquet files, for data larger than the memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np


def iter_parquet(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    features: str,
    labels: str | None = None,
    *,
    block_rows: int = 2**14,
) -> Iterator[Any]:
    """Read samples from Parquet files, a block of rows at a time.

    Pass the blocks to `partial_fit`, or, vectorized, to :func:`~sklearn_xlc.datasets.save_csr`.
    Needs polars (the extra ``parquet``).

    Parameters
    ----------
    paths : str or os.PathLike, or iterable of such
        Files in order, or a pattern such as ``"train-*.parquet"``: its files sorted by name.
    features : str
        Column of strings, or of equally long lists of numbers.
    labels : str, default=None
        Column of lists of labels, or of one class label a row. None: features only.
    block_rows : int, default=16384
        Rows of a block; the last of each file may have fewer.

    Returns
    -------
    iterator
        Blocks X, or pairs ``(X, y)`` where `labels` is given. X is an ndarray of shape (n_rows,) of
        strings, or of shape (n_rows, n_features) and dtype float32. y is a list of lists of labels,
        or an ndarray of shape (n_rows,) of class labels.

    Raises
    ------
    ImportError
        If polars is not installed.
    ValueError
        If a file is damaged, a column is missing or has the wrong type, or a value is missing. The
        message names file and row, counted from 0.
    OSError
        If a file does not exist or cannot be opened.

    See Also
    --------
    save_csr : Writes blocks to a file that is mapped into memory.

    Examples
    --------
    >>> import os, tempfile
    >>> import polars as pl
    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> from sklearn.preprocessing import MultiLabelBinarizer
    >>> from sklearn_xlc.datasets import iter_parquet, open_csr, save_csr
    >>> table = pl.DataFrame({"text": ["a cat", "dogs"], "tags": [["pet", "cat"], ["pet"]]})
    >>> words, tags = HashingVectorizer(n_features=64), MultiLabelBinarizer(sparse_output=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "0.parquet")
    ...     table.write_parquet(path)
    ...     _ = tags.fit(tag_set for _, y in iter_parquet(path, "text", "tags") for tag_set in y)
    ...     blocks = iter_parquet(path, "text", "tags")
    ...     save_csr(path + ".csr", ((words.transform(X), tags.transform(y)) for X, y in blocks))
    ...     X, Y = open_csr(path + ".csr")
    >>> X.shape, Y.toarray().tolist(), tags.classes_.tolist()
    ((2, 64), [[1, 1], [0, 1]], ['cat', 'pet'])
    """
    is_number = isinstance(block_rows, Integral) and not isinstance(block_rows, bool)
    if not (is_number and block_rows >= 1):
        raise ValueError(f"block_rows must be an int from 1 on, got {block_rows!r}")
    for name, column in (("features", features), ("labels", labels)):
        if not (isinstance(column, str) or (column is None and name == "labels")):
            raise TypeError(f"{name} must be the name of a column, got {type(column).__name__}")
    try:
        import polars
    except ImportError as error:
        raise ImportError(
            "iter_parquet needs polars; install it by: pip install 'sklearn_xlc[parquet]'"
        ) from error
    files = _files(paths)
    return (
        block
        for file in files
        for block in _blocks(polars, file, features, labels, int(block_rows))
    )


def _files(paths: Any) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        path = os.fspath(paths)
        found = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not found:
            raise FileNotFoundError(f"there is no file {path}")
        return found
    try:
        given = list(paths)
    except TypeError:
        given = [paths]
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"paths must hold str or os.PathLike, got {type(path).__name__}")
    if not given:
        raise ValueError("paths has no file; give at least one")
    return [file for path in given for file in _files(path)]


def _blocks(
    polars: Any, file: str, features: str, labels: str | None, block_rows: int
) -> Iterator[Any]:
    with open(file, "rb"):
        pass  # errors of `open` are clearer than errors of the library
    names = [features] if labels is None else [features, labels]
    try:
        table = polars.scan_parquet(file, glob=False)
        known = table.collect_schema().names()
        n_rows = table.select(polars.len()).collect().item()
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"cannot read {file}: it is damaged, or no Parquet ({error})") from error
    for name in names:
        if name not in known:
            raise ValueError(f"{file} has no column {name!r}; it has {', '.join(known)}")
    for start in range(0, n_rows, block_rows):
        try:
            block = table.select(list(dict.fromkeys(names))).slice(start, block_rows).collect()
        except polars.exceptions.PolarsError as error:
            raise ValueError(f"cannot read {file}: it is damaged ({error})") from error
        for name in names:
            _check_filled(block[name], f"{file}, row", start)
        X = _samples(polars, block[features], file, start)
        yield X if labels is None else (X, _labels(polars, block[labels], file))


def _check_filled(column: Any, where: str, start: int) -> None:
    """Raise ValueError for the first missing value, also within a list."""
    missing = column.is_null()
    if not missing.any() and column.dtype.is_nested():
        lists = _as_lists(column)
        missing = lists.list.drop_nulls().list.len() < lists.list.len()
    if missing.any():
        row = start + int(missing.arg_max())
        raise ValueError(f"{where} {row}: a value of {column.name!r} is missing")


def _as_lists(column: Any) -> Any:
    return column.arr.to_list() if hasattr(column.dtype, "shape") else column


def _samples(polars: Any, column: Any, file: str, start: int) -> np.ndarray:
    if column.dtype == polars.String:
        return np.array(column.to_list(), dtype=object)
    inner = getattr(column.dtype, "inner", None)
    if inner is None or not inner.is_numeric():
        raise ValueError(
            f"{file}: column {column.name!r} is of type {column.dtype}; features are strings or "
            "lists of numbers"
        )
    lists = _as_lists(column)
    sizes = lists.list.len().to_numpy()
    if (sizes != sizes[0]).any():
        row = int((sizes != sizes[0]).argmax())
        raise ValueError(
            f"{file}, row {start + row}: {column.name!r} has {sizes[row]} numbers, but {sizes[0]} "
            f"in row {start}; all rows must have the same"
        )
    values = lists.explode() if sizes[0] else lists.explode().clear()
    return values.to_numpy().astype(np.float32).reshape(len(sizes), sizes[0])


def _labels(polars: Any, column: Any, file: str) -> Any:
    inner = getattr(column.dtype, "inner", column.dtype)
    if not (inner == polars.String or inner.is_integer() or inner == polars.Null):
        raise ValueError(
            f"{file}: column {column.name!r} is of type {column.dtype}; labels are strings or "
            "integers, or lists of them"
        )
    return column.to_list() if column.dtype.is_nested() else np.asarray(column.to_list())
