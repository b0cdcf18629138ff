"""Blocks of samples from Parquet files, for data larger than the memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._compat import imported
from sklearn_xlc._ids import as_list
from sklearn_xlc._labels import are_texts
from sklearn_xlc.datasets._csr_folder import check_path

#: Bytes of the blocks read at once, or of one if it is larger. Each time, polars decodes lists from
#: the first row of a row group on: one block after another would take a square of its blocks.
_READ_BYTES = 2**26


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
    save_csr : Writes blocks to files that are mapped into memory.

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
    block_rows = check_integer(block_rows, "block_rows")
    columns = [features] if labels is None else [features, labels]
    if not are_texts(columns):
        raise TypeError(f"features and labels must be names of columns, got {columns}")
    polars = imported(
        "polars", "iter_parquet needs polars; install it by: pip install 'sklearn_xlc[parquet]'"
    )
    return (
        block
        for file in _files(paths)
        for block in _blocks(polars, file, features, labels, block_rows)
    )


def _files(paths: Any) -> list[str]:
    files = []
    for path in as_list(paths):
        path = check_path(path, "each of paths")
        found = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not found:
            raise FileNotFoundError(f"there is no file {path}")
        files += found
    if not files:
        raise ValueError("paths has no file; give at least one")
    return files


def _blocks(
    polars: Any, file: str, features: str, labels: str | None, block_rows: int
) -> Iterator[Any]:
    with open(file, "rb"):
        pass  # errors of `open` are clearer than errors of the library
    try:
        table = polars.scan_parquet(file, glob=False)
        types = table.collect_schema()
        _check_types(polars, file, types, features, labels)
        names = dict.fromkeys(column for column in (features, labels) if column is not None)
        table = table.select(
            polars.col(name).arr.to_list() if isinstance(types[name], polars.Array) else name
            for name in names
        )
        for start, block in _slices(table, table.select(polars.len()).collect().item(), block_rows):
            for name in names:
                _check_filled(polars, block[name], f"{file}, row", start)
            X = _samples(block[features], file, start)
            if labels is None:
                yield X
            else:
                y = block[labels].to_list()
                yield X, y if types[labels].is_nested() else np.asarray(y)
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"cannot read {file}: it is damaged, or no Parquet ({error})") from error


def _slices(table: Any, n_rows: int, block_rows: int) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a table in blocks, with the number of the first row of each."""
    start, n_read = 0, block_rows
    while start < n_rows:
        read = table.slice(start, n_read).collect()
        for i, block in enumerate(read.iter_slices(block_rows)):
            yield start + i * block_rows, block
        start += n_read
        n_blocks = _READ_BYTES * read.height // (block_rows * max(1, read.estimated_size()))
        n_read = block_rows * max(1, n_blocks)


def _check_types(polars: Any, file: str, types: Any, features: str, labels: str | None) -> None:
    """Raise ValueError for a missing column, or one without samples or labels."""
    for name in (features, labels):
        if name is not None and name not in types:
            raise ValueError(f"{file} has no column {name!r}; it has {', '.join(types)}")
    inner = getattr(types[features], "inner", None)
    if types[features] != polars.String and not (inner is not None and inner.is_numeric()):
        raise ValueError(
            f"{file}: column {features!r} is of type {types[features]}; features are strings or "
            "lists of numbers"
        )
    if labels is not None:
        inner = getattr(types[labels], "inner", types[labels])
        if not (inner in (polars.String, polars.Null) or inner.is_integer()):
            raise ValueError(
                f"{file}: column {labels!r} is of type {types[labels]}; labels are strings or "
                "integers, or lists of them"
            )


def _check_filled(polars: Any, column: Any, where: str, start: int) -> None:
    """Raise ValueError for the first missing value, also within a list."""
    missing = column.is_null()
    if column.dtype.is_nested():
        missing |= column.list.eval(polars.element().is_null()).list.any()
    if missing.any():
        row = start + int(missing.arg_max())
        raise ValueError(f"{where} {row}: a value of {column.name!r} is missing")


def _samples(column: Any, file: str, start: int) -> np.ndarray:
    """Return texts, or the rows of an array."""
    if not column.dtype.is_nested():
        return np.array(column.to_list(), dtype=object)
    sizes = column.list.len().to_numpy()
    if (sizes != sizes[0]).any():
        row = int((sizes != sizes[0]).argmax())
        raise ValueError(
            f"{file}, row {start + row}: {column.name!r} has {sizes[row]} numbers, but {sizes[0]} "
            f"in row {start}; all rows must have the same"
        )
    values = column.explode() if sizes[0] else column.explode().clear()
    return values.to_numpy().astype(np.float32).reshape(len(sizes), sizes[0])
