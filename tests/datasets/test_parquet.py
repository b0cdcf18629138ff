"""Blocks of Parquet files: every row once, in order, and clear errors."""

import re
import sys

import numpy as np
import pytest

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import iter_parquet
from sklearn_xlc.encoders import MLP

pl = pytest.importorskip("polars")

TABLE = pl.DataFrame(
    {
        "text": [f"word{i} {i}" for i in range(10)],
        "numbers": [[float(i), i / 2] for i in range(10)],
        "tags": [["even"] if i % 2 == 0 else ["odd", "five"] if i == 5 else [] for i in range(10)],
        "class": [i % 3 for i in range(10)],
        "price": np.arange(10.0),
        "pairs": [["a", "b"]] * 10,
        "ragged": [[1.0] * (1 + i // 7) for i in range(10)],
        "hole": [None if i == 4 else "text" for i in range(10)],
        "inner hole": [["a", None] if i == 6 else ["a"] for i in range(10)],
    }
).with_columns(pl.col("numbers").cast(pl.Array(pl.Float64, 2)).alias("array"))


@pytest.fixture
def path(tmp_path):
    TABLE[:6].write_parquet(tmp_path / "b.parquet")
    TABLE[6:].write_parquet(tmp_path / "c.parquet", row_group_size=2)
    return str(tmp_path / "*.parquet")


@pytest.mark.parametrize("block_rows", [1, 4, 100])
def test_every_row_comes_once_in_order(path, block_rows):
    blocks = list(iter_parquet(path, "text", "tags", block_rows=block_rows))
    assert [len(X) for X, _ in blocks] == {1: [1] * 10, 4: [4, 2, 4], 100: [6, 4]}[block_rows]
    assert np.concatenate([X for X, _ in blocks]).tolist() == TABLE["text"].to_list()
    assert [tags for _, y in blocks for tags in y] == TABLE["tags"].to_list()


@pytest.mark.parametrize("column", ["numbers", "array"])
def test_lists_of_numbers_are_an_array(path, column):
    for X, y in iter_parquet(path, column, "class"):
        assert X.dtype == np.float32
        np.testing.assert_array_equal(X[:, 1] * 2, X[:, 0])
        np.testing.assert_array_equal(X[:, 0] % 3, y)


@pytest.mark.parametrize(("limit", "most"), [(2**26, 2), (1, 30), (400, 16)])
def test_lists_are_not_decoded_from_the_first_row_for_each_block(
    limit, most, tmp_path, monkeypatch
):
    numbers = np.arange(200.0, dtype=np.float32).reshape(100, 2)
    table = pl.DataFrame({"numbers": numbers.tolist()}, schema={"numbers": pl.List(pl.Float32)})
    table.write_parquet(tmp_path / "a.parquet", row_group_size=100)
    reads, of_polars = [], pl.LazyFrame.slice
    monkeypatch.setattr("sklearn_xlc.datasets._parquet._READ_BYTES", limit)
    monkeypatch.setattr(
        pl.LazyFrame, "slice", lambda *args: reads.append(args[1:]) or of_polars(*args)
    )
    blocks = list(iter_parquet(tmp_path / "a.parquet", "numbers", block_rows=4))
    assert [len(block) for block in blocks] == [4] * 25
    np.testing.assert_array_equal(np.vstack(blocks), numbers)
    assert reads[0] == (0, 4)  # the first block comes at once
    assert len(reads) <= most


def test_paths(path, tmp_path):
    files = [tmp_path / "c.parquet", str(tmp_path / "b.parquet")]
    assert next(iter_parquet(files, "text"))[0] == "word6 6"
    assert len(np.concatenate(list(iter_parquet(iter(files), "text")))) == 10
    TABLE[:3].write_parquet(tmp_path / "[1].parquet")  # a name that is a pattern, too
    assert len(list(iter_parquet(tmp_path / "[1].parquet", "text"))) == 1
    TABLE[:0].write_parquet(tmp_path / "empty.parquet")
    assert not list(iter_parquet(tmp_path / "empty.parquet", "text"))


def test_lists_without_numbers_and_labels(tmp_path):
    schema = {"x": pl.List(pl.Float64), "y": pl.List(pl.String)}
    pl.DataFrame({"x": [[], []], "y": [[], []]}, schema=schema).write_parquet(tmp_path / "a")
    ((X, y),) = iter_parquet(tmp_path / "a", "x", "y")
    assert X.shape == (2, 0)
    assert y == [[], []]


def test_a_classifier_goes_on_block_by_block(path):
    clf = MultiHeadClassifier("flat", encoder=MLP((4,)), random_state=0)
    for X, y in iter_parquet(path, "array", "tags", block_rows=5):
        clf.partial_fit(X, y, classes=["even", "five", "odd"])
    assert clf.predict_topk(X, k=1)[0].shape == (4, 1)


@pytest.mark.parametrize(
    "features, labels, message",
    [
        ("words", None, "b.parquet has no column 'words'; it has text, numbers"),
        ("text", "label", "b.parquet has no column 'label'"),
        ("price", None, "column 'price' is of type Float64; features are strings or lists"),
        ("pairs", None, r"column 'pairs' is of type List\(String\); features are strings"),
        ("text", "price", "column 'price' is of type Float64; labels are strings or integers"),
        ("text", "numbers", "column 'numbers' is of type .*; labels are strings or integers"),
        ("ragged", None, "c.parquet, row 1: 'ragged' has 2 numbers, but 1 in row 0"),
        ("hole", None, "b.parquet, row 4: a value of 'hole' is missing"),
        ("text", "hole", "b.parquet, row 4: a value of 'hole' is missing"),
        ("text", "inner hole", "c.parquet, row 0: a value of 'inner hole' is missing"),
    ],
)
def test_columns_are_checked(path, features, labels, message):
    with pytest.raises(ValueError, match=message):
        list(iter_parquet(path, features, labels))


def test_arguments_are_checked_at_once(path, tmp_path, monkeypatch):
    for wrong in (0, 1.5, True, "9"):
        with pytest.raises((TypeError, ValueError), match="block_rows must be an int"):
            iter_parquet(path, "text", block_rows=wrong)
    with pytest.raises(TypeError, match=r"must be names of columns, got \[None\]"):
        iter_parquet(path, None)
    with pytest.raises(TypeError, match=r"must be names of columns, got \['text', 3\]"):
        iter_parquet(path, "text", 3)
    for wrong in (3, [3], [b"a"]):
        with pytest.raises(TypeError, match="each of paths must be a str or os.PathLike"):
            iter_parquet(wrong, "text")
    with pytest.raises(ValueError, match="paths has no file"):
        iter_parquet([], "text")
    with pytest.raises(FileNotFoundError, match="missing"):
        iter_parquet(tmp_path / "missing", "text")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'sklearn_xlc[parquet]'")):
        iter_parquet(path, "text")


def test_damaged_files_are_refused(path, tmp_path):
    content = (tmp_path / "b.parquet").read_bytes()
    for cut in (b"", b"PAR1", content[:-5], b"PK" + bytes(99), content[:4] + bytes(400)):
        (tmp_path / "b.parquet").write_bytes(cut)
        with pytest.raises(ValueError, match=r"cannot read .*b.parquet: it is damaged"):
            list(iter_parquet(tmp_path / "b.parquet", "text"))
