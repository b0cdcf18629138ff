"""Tables from files, and rows to files."""

import gzip
import importlib
import io
import json
import sys
import tracemalloc
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pandas as pd
import polars as pl
import pytest

from sklearn_xlc.command_line.tables import (
    format_of,
    output_format,
    read_table,
    write_rows,
    write_table,
)

CSV = 'title,tags\n"a, b","x\ny"\n\nc,z\n'


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.csv", CSV),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv", gzip.compress(CSV.encode(), mtime=0)),  # whatever its name says
        ("a.csv", b"\xef\xbb\xbf" + CSV.encode()),  # as Excel writes it
        ("a.csv", CSV.replace("\n", "\r\n").replace("x\r\n", "x\n")),
        ("a.tsv", 'title\ttags\na, b\t"x\ny"\n\nc\tz'),
    ],
)
def test_csv_and_tsv(tmp_path, name, content):
    table = read_table(written(tmp_path, name, content))
    assert table == {"title": ["a, b", "c"], "tags": ["x\ny", "z"]}
    assert table.index == ["line 2", "line 5"]
    assert table.n_rows == 2


def test_forms_and_delimiters_that_the_name_does_not_say(tmp_path):
    path = written(tmp_path, "a.txt", "title;tags\na;b\n")
    with pytest.raises(ValueError, match=r"a\.txt: the name does not say .* --format csv"):
        read_table(path)
    assert read_table(path, "csv", ";") == {"title": ["a"], "tags": ["b"]}
    assert read_table(path, "csv") == {"title;tags": ["a;b"]}


def test_a_closed_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="standard input is closed"):
        read_table("-")


def test_the_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CSV.encode())))
    table = read_table("-")
    assert (table.name, table["title"]) == ("standard input", ["a, b", "c"])


def test_json_lines(tmp_path):
    lines = '{"title": "a\u2028b", "tags": ["x"]}\n\n{"title": null, "n": 3}\n'
    table = read_table(written(tmp_path, "a.jsonl", lines))
    assert table == {"title": ["a\u2028b", None], "tags": [["x"], None], "n": [None, 3]}
    assert table.index == ["line 1", "line 3"]
    listed = read_table(written(tmp_path, "a.json", '[{"title": "a"},\n {"title": "b"}]'))
    assert (listed, listed.index) == ({"title": ["a", "b"]}, ["row 0", "row 1"])


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"title": ["a", None], "tags": [["x", "y"], []]}).write_parquet(path)
    table = read_table(str(path))
    assert table == {"title": ["a", None], "tags": [["x", "y"], []]}
    assert table.index == ["row 0", "row 1"]
    with pytest.raises(ValueError, match=r"b\.parquet: no Parquet"):
        read_table(written(tmp_path, "b.parquet", b"PAR0" * 9))


def test_parquet_without_a_library_names_the_remedy(tmp_path, monkeypatch):
    real = importlib.import_module

    def without(name, *args):
        if name in ("polars", "pandas"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=r"sklearn-xlc\[parquet\]"):
        read_table(written(tmp_path, "a.parquet", b"PAR1"))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "", "no rows, it is empty"),
        ("a.csv", "title,tags\n\n", "no rows below the header"),
        ("a.jsonl", "\n\n", "no rows"),
        ("a.csv", "t,g\n\n1,2\n1,2,3\n", "line 4: 3 fields, but the header has 2"),
        ("a.csv", 't,g\n"1\n1",2\n1\n', "line 4: 1 field, but the header has 2"),
        ("a.csv", 't,g\n1,2\n"1,2\n3,4\n', "line 3: unexpected end of data"),
        ("a.csv", "t,t\n1,2\n", "line 1: two columns have the name 't'"),
        ("a.csv", b"t,g\n1,2\n\xe9,2\n", "line 3: not in UTF-8; name the encoding"),
        ("a.jsonl", '{"t": 1}\n{"t": }\n', r"line 2: no JSON \(Expecting value, column 7\)"),
        ("a.jsonl", '{"t": 1}\n3\n', "line 2: no JSON object, but 3"),
        ("a.jsonl", '{"t": 1}\n{"g": 1, "t": 2, "g": 3}\n', "line 2: two keys have the name 'g'"),
        ("a.json", '[{"t": 1},\n {"t": 2, "t": 2}]', "row 1: two keys have the name 't'"),
        ("a.jsonl", '{"t": 1}\n{"t": ' + "1" * 5000 + "}\n", "line 2: Exceeds the limit"),
        ("a.jsonl", '{"t": ' + "[" * 10**5, "line 1: maximum recursion depth"),
        ("a.csv.gz", gzip.compress(b"t,g\n" * 50, mtime=0)[:-9], "the file of gzip is damaged"),
        (
            "a.csv.gz",
            gzip.compress(b"t,g\n", mtime=0)[:10] + b"\xff" * 20,
            "the file of gzip is damaged",
        ),
    ],
)
def test_what_is_no_table_is_refused_by_file_and_line(tmp_path, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(ValueError, match=rf"{name}[,:] {message}") as error:
        read_table(path)
    assert "\n" not in str(error.value)


def test_encodings(tmp_path):
    path = written(tmp_path, "a.csv", "t,g\né,ü\n".encode("latin-1"))
    assert read_table(path, encoding="latin-1") == {"t": ["é"], "g": ["ü"]}
    with pytest.raises(ValueError, match="no encoding 'martian'"):
        read_table(path, encoding="martian")
    for mark in ("\ufeff", ""):  # Excel writes one
        path = written(tmp_path, "a.csv", f"{mark}t,g\né,ü\n".encode())
        assert read_table(path, encoding="utf-8") == {"t": ["é"], "g": ["ü"]}
    path = written(tmp_path, "b.csv", "t,g\né,ü\n".encode("utf-16"))
    assert read_table(path, encoding="utf-16") == {"t": ["é"], "g": ["ü"]}
    with pytest.raises(ValueError, match="line 1: not in UTF-8; .*--encoding utf-16"):
        read_table(path)


def test_encodings_of_lines_and_an_error_far_down(tmp_path):
    unmarked = 't,g\r\n"é\r\nè",ü\r\n'.encode("utf-16")[2:]  # of the order of this machine
    assert read_table(written(tmp_path, "a.csv", unmarked), encoding="utf-16") == {
        "t": ["é\r\nè"],
        "g": ["ü"],
    }
    line = '{"t": "a\u2028b"}\n'.encode()
    content = line * 20_000 + b'{"t": "\xe9"}\n' + line
    for name, form in (("b.jsonl", None), ("c.txt", "csv")):
        with pytest.raises(ValueError, match="line 20001: not in UTF-8; .*--encoding latin-1"):
            read_table(written(tmp_path, name, content), form)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_one_letter_of_another_script_widens_no_other_text(tmp_path, name):
    texts = ["a" * 10_000] * 99 + ["\N{SNOWMAN}\N{GRINNING FACE}"]
    lines = ["t", *texts] if name == "a.csv" else [f'{{"t": "{text}"}}' for text in texts]
    path = written(tmp_path, name, "\n".join(lines))
    read_table(path)
    tracemalloc.start()
    try:
        assert read_table(path)["t"] == texts
        assert tracemalloc.get_traced_memory()[1] < 3 * 990_000
    finally:
        tracemalloc.stop()


def test_long_texts(tmp_path):
    table = read_table(written(tmp_path, "a.csv", f"t,g\n{'word ' * 100_000},1\n"))
    assert len(table["t"][0]) == 500_000


# --- writing ------------------------------------------------------------------------------------

ROWS = [{"row": 0, "tags": ["a", "é"]}, {"row": 1, "tags": []}]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("a.csv", 'row,tags\n0,"[""a"", ""é""]"\n1,[]\n'),
        ("a.tsv", 'row\ttags\n0\t"[""a"", ""é""]"\n1\t[]\n'),
        ("a.jsonl", '{"row": 0, "tags": ["a", "é"]}\n{"row": 1, "tags": []}\n'),
    ],
)
def test_rows_of_every_form(tmp_path, name, expected, capsys):
    path = tmp_path / name
    write_table(ROWS, str(path), format_of(name))
    assert path.read_text(encoding="utf-8") == expected
    write_table(ROWS, f"{path}.gz", format_of(name))
    assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()).decode() == expected
    write_table(ROWS, "-", format_of(name))
    assert capsys.readouterr().out == expected


def test_what_is_written_can_be_read(tmp_path):
    path = str(tmp_path / "a.csv")
    write_table([{"text": 'a "b"\nc, d', "n": 3}], path, "csv")
    assert read_table(path) == {"text": ['a "b"\nc, d'], "n": ["3"]}
    assert pd.read_csv(path).to_dict("list") == {"text": ['a "b"\nc, d'], "n": [3]}


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def rows():
        yield ROWS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(rows(), str(path), "csv")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_form_that_is_not_written_is_refused_before_the_work():
    for path in ("a.parquet", "a.parquet.gz", "a.xlsx"):
        with pytest.raises(ValueError, match=f"{path}: tables are written to files .csv"):
            output_format(path)


def test_names_of_every_type_are_written():
    """Parquet has dates and decimals."""
    row = {"row": date(2020, 1, 2), "tags": [Decimal("1.5")]}
    for form, expected in (
        ("jsonl", '{"row": "2020-01-02", "tags": ["1.5"]}\n'),
        ("csv", 'row,tags\n2020-01-02,"[""1.5""]"\n'),
    ):
        file = io.StringIO()
        write_rows([row], file, form)
        assert file.getvalue() == expected


def test_rows_of_json_are_streamed():
    file = io.StringIO()
    write_rows(iter(ROWS), file, "jsonl")
    assert [json.loads(line) for line in file.getvalue().splitlines()] == ROWS


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_what_goes_to_a_pipe_is_utf8_as_files_are(form, monkeypatch):
    sink = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(sink, encoding="latin-1"))
    write_table([{"label": "日本"}], "-", form)
    assert "日本" in sink.getvalue().decode()
