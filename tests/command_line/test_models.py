"""Files of models, and the columns that models know."""

import os
import zipfile

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from _factories import quick
from sklearn_xlc import TextColumns, save
from sklearn_xlc.command_line.models import check_target, columns_of, is_model, loaded
from sklearn_xlc.encoders import Text
from sklearn_xlc.serving import Answering

TEXTS, TAGS = ["salt water", "a dog"] * 10, [["sea"], ["animal"]] * 10


def test_columns_are_those_of_the_model_unless_given():
    table = {"text": TEXTS}
    columns = TextColumns("text", labels="tags", separator=";")
    clf = quick("flat", encoder=Text(n_buckets=64), max_epochs=1)
    answering = Answering(make_pipeline(columns, clf).fit(table, TAGS))
    nothing = {"columns": None, "labels": None}
    assert columns_of(answering, nothing).get_params() == columns.get_params()
    found = columns_of(answering, {"columns": ["body"], "labels": None, "ids": "name"})
    assert (found.columns, found.labels, found.ids) == (["body"], "tags", "name")
    other = Answering(
        make_pipeline(TfidfVectorizer(), quick("flat", max_epochs=1)).fit(TEXTS, TAGS)
    )
    with pytest.raises(ValueError, match="name those of the texts by --text"):
        columns_of(other, nothing)
    assert columns_of(other, {"columns": ["body"]}).columns == ["body"]


def test_models_are_replaced_and_other_files_are_not(tmp_path):
    model, other = tmp_path / "model.skops", tmp_path / "table.csv"
    assert check_target(str(model)) is False
    save(quick("flat"), model)
    other.write_text("title,tags\n")
    with zipfile.ZipFile(tmp_path / "sheet.xlsx", "w") as archive:
        archive.writestr("sheet.xml", "")
    assert is_model(str(model))
    assert check_target(str(model)) is True
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    for path in (other, tmp_path / "sheet.xlsx", tmp_path / "pipe"):
        assert not is_model(str(path))
        with pytest.raises(ValueError, match="holds no model, and is not replaced"):
            check_target(str(path))
    with pytest.raises(ValueError, match="is a folder"):
        check_target(str(tmp_path))
    with pytest.raises(ValueError, match="there is no folder .*none"):
        check_target(str(tmp_path / "none" / "model.skops"))


def test_what_is_no_classifier_is_refused(tmp_path):
    save(TfidfVectorizer().fit(TEXTS), tmp_path / "words.skops")
    with pytest.raises(ValueError, match=r"words\.skops holds a TfidfVectorizer, which predicts"):
        loaded(str(tmp_path / "words.skops"))
    (tmp_path / "table.csv").write_text("a")
    with pytest.raises(ValueError, match=r"cannot read .*table\.csv"):
        loaded(str(tmp_path / "table.csv"))
    with pytest.raises(OSError, match="No such file"):
        loaded(str(tmp_path / "none.skops"))
