"""Read tables from files, and write rows to files: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import contextlib
import csv
import gzip
import importlib
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sklearn_xlc._files import replacing

#: Forms by the end of a file's name, without ".gz".
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
#: Name of the standard input, and of the standard output.
STANDARD = "-"


class Table(dict[str, list[Any]]):
    """Columns of a table by name.

    Parameters
    ----------
    name : str
        Name of the source, for messages.
    columns : dict of str to list
        Entries of each column.
    index : list of str
        Where each row is: "line 17", or "row 3".
    """

    def __init__(self, name: str, columns: dict[str, list[Any]], index: list[str]) -> None:
        super().__init__(columns)
        self.name, self.index = name, index

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.index)


def format_of(path: str) -> str | None:
    """Return the format of a file by the end of its name; None if unknown."""
    return FORMATS.get(os.path.splitext(path.removesuffix(".gz").lower())[1])


def read_table(
    path: str, form: str | None = None, delimiter: str | None = None, encoding: str = "utf-8"
) -> Table:
    """Read a table.

    Parameters
    ----------
    path : str
        File, plain or of gzip, or "-" for the standard input.
    form : {"csv", "tsv", "jsonl", "parquet"}, default=None
        Form. None: by the end of the name; CSV for the standard input.
    delimiter : str, default=None
        What separates fields of CSV. None: a comma, in TSV a tab.
    encoding : str, default="utf-8"
        Encoding of text. A byte order mark is no part of the text.

    Returns
    -------
    Table
        Columns; strings, or in JSON lines and Parquet any values.

    Raises
    ------
    ValueError
        If the content is not a table; the message names the line.
    OSError
        If the file cannot be read.
    ImportError
        If no package that reads Parquet is installed.
    """
    is_standard = path == STANDARD
    name = "standard input" if is_standard else path
    form = form or ("csv" if is_standard else format_of(path))
    if form is None:
        raise ValueError(
            f"{name}: the name does not say what the file holds; name it by --format csv, tsv, "
            "jsonl or parquet"
        )
    if is_standard and sys.stdin is None:
        raise ValueError(f"{name} is closed")
    content = sys.stdin.buffer.read() if is_standard else Path(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name}: the file of gzip is damaged ({error})") from None
    if form == "parquet":
        table = _of_parquet(content, name)
    else:
        source = _Source(content, encoding, name)
        delimiter = delimiter or DELIMITERS.get(form, "")
        table = _of_json(source) if form == "jsonl" else _of_csv(source, delimiter)
    if not table.n_rows:
        raise ValueError(f"{name}: no rows" + (" below the header" if table else ", it is empty"))
    return table


class _Source(NamedTuple):
    """Bytes of a table of text."""

    content: bytes
    encoding: str
    name: str

    def text(self) -> str:
        """Decode all of it."""
        content, encoding, name = self
        try:
            return content.decode(encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            likely = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
            raise ValueError(
                f"{name}, line {line}: not in {encoding.upper()}; name the encoding, such as "
                f"--encoding {likely}"
            ) from None
        except LookupError:
            raise ValueError(f"no encoding {encoding!r}") from None

    def lines(self, newline: str) -> Iterator[str]:
        """Decode line by line: one letter of another script widens each character of a text."""
        file: Any
        try:
            file = io.TextIOWrapper(io.BytesIO(self.content), self.encoding, newline=newline)
            first = next(file, "")
        except (UnicodeError, LookupError):  # UTF-16 without a mark is none for a file
            file = io.StringIO(self.text(), newline=newline)
            first = next(file, "")
        yield first.removeprefix("\ufeff")
        try:
            yield from file
        except UnicodeError:
            self.text()  # its error names the line
            raise


def _of_csv(source: _Source, delimiter: str) -> Table:
    csv.field_size_limit(2**31 - 1)  # texts may be long
    reader, name = csv.reader(source.lines(""), delimiter=delimiter, strict=True), source.name
    rows, index, start = list[list[str]](), list[str](), 1
    try:
        for row in reader:
            if row:
                if rows and len(row) != len(rows[0]):
                    fields = f"{len(row)} field{'s' * (len(row) > 1)}"
                    raise ValueError(
                        f"{name}, line {start}: {fields}, but the header has {len(rows[0])}"
                    )
                rows.append(row)
                index.append(f"line {start}")
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{name}, line {start}: {error}") from None
    header = rows[0] if rows else []
    twice = next((column for column in header if header.count(column) > 1), None)
    if twice is not None:
        raise ValueError(f"{name}, line 1: two columns have the name {twice!r}")
    columns = [list(column) for column in zip(*rows[1:])] or [[] for _ in header]
    return Table(name, dict(zip(header, columns)), index[1:])


def _of_json(source: _Source) -> Table:
    """Read a JSON object in each line, or one list of objects."""
    name, objects, index = source.name, list[Any](), list[str]()
    for number, line in enumerate(source.lines("\n"), 1):
        if not objects and line.lstrip()[:1] == "[":
            objects = list(_loaded(source.text(), name, 1))
            index = [f"row {number}" for number in range(len(objects))]
            break
        if line.strip():
            objects.append(_loaded(line.removesuffix("\n"), name, number))
            index.append(f"line {number}")
    for place, each in zip(index, objects):
        if not isinstance(each, dict):
            raise ValueError(f"{name}, {place}: no JSON object, but {json.dumps(each)[:40]}")
        if isinstance(each, _Repeating):
            raise ValueError(f"{name}, {place}: two keys have the name {each.key!r}")
    names = dict.fromkeys(key for each in objects for key in each)
    return Table(name, {key: [each.get(key) for each in objects] for key in names}, index)


class _Repeating(dict[str, Any]):
    """Object of JSON with a key twice."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = _Repeating(found)
        keys = [key for key, _ in pairs]
        found.key = next(key for key in keys if keys.count(key) > 1)
    return found


def _loaded(text: str, name: str, line: int) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name}, line {line + error.lineno - 1}: no JSON ({error.msg}, column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:  # integers of 5000 digits, lists in lists
        raise ValueError(f"{name}, line {line}: {error}") from None


def _of_parquet(content: bytes, name: str) -> Table:
    """Read Parquet by polars or else pandas, whichever can."""
    for library in ("polars", "pandas"):
        try:
            frame = importlib.import_module(library).read_parquet(io.BytesIO(content))
        except ImportError:
            continue
        except Exception as error:  # of polars, of Arrow
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ValueError(f"{name}: no Parquet ({said})") from None
        columns = {str(key): [_listed(each) for each in frame[key]] for key in frame.columns}
        return Table(name, columns, [f"row {number}" for number in range(len(frame))])
    raise ImportError(
        f"{name}: Parquet needs polars or pyarrow; pip install sklearn-xlc[parquet], or write CSV"
    )


def _listed(value: Any) -> Any:
    """Return lists of NumPy or polars as lists, and other values unchanged."""
    convert = getattr(value, "tolist", None) or getattr(value, "to_list", None)
    return value if convert is None else convert()


# --- output ------------------------------------------------------------------------------------


def write_rows(rows: Iterable[dict[str, Any]], file: Any, form: str) -> None:
    """Write dicts as lines of JSON, or as CSV or TSV with a header; lists in fields are JSON."""
    if form == "jsonl":
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
        file.writelines(f"{line}\n" for line in lines)
        return
    writer = csv.writer(file, delimiter=DELIMITERS[form], lineterminator="\n")
    for number, row in enumerate(rows):
        if number == 0:
            writer.writerow(row)
        writer.writerow([_field(value) for value in row.values()])


def _field(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def output_format(path: str) -> str:
    """Return the format of a file to write: CSV if its name, or the standard output, has no end."""
    end = os.path.splitext(path.removesuffix(".gz"))[1]
    form = format_of(path) or ("csv" if path == STANDARD or not end else None)
    if form is None or form == "parquet":
        raise ValueError(
            f"{path}: tables are written to files .csv, .tsv or .jsonl, or .gz of them"
        )
    return form


def write_table(rows: Iterable[dict[str, Any]], path: str, form: str) -> None:
    """Write rows to a file, whole or not at all, or to the standard output for "-"."""
    if path == STANDARD:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as files, and what is read
        write_rows(rows, sys.stdout, form)
        sys.stdout.flush()
        return
    with replacing(path) as file, contextlib.ExitStack() as stack:
        inner: Any = file
        if path.endswith(".gz"):
            inner = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        text = io.TextIOWrapper(inner, encoding="utf-8", newline="", write_through=True)
        write_rows(rows, text, form)
        text.detach()
