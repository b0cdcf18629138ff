"""The commands, in this process: tables in, results out, and what is said."""

import csv
import json
import random
import socket

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

from sklearn_xlc import (
    AggregatedLabelClassifier,
    MultiHeadClassifier,
    TextColumns,
    load,
    predict_topk,
    save,
)
from sklearn_xlc.__main__ import main
from sklearn_xlc.serving import Answering

ANIMALS = ("dog", "cat", "cow", "hen")
PLACES = ("farm", "house", "wood")


def make_rows(n_rows, seed=0):
    """Texts of two columns, and the animal and the place in them."""
    rng = random.Random(seed)
    rows = []
    for number in range(n_rows):
        animal, place = rng.choice(ANIMALS), rng.choice(PLACES)
        body = f"it lives at the {place} number{rng.randrange(40)}"
        tags = "; ".join(rng.sample([animal, place], 2))
        rows.append((f"n{number}", f"A {animal}", body, tags, animal))
    return rows


def write(path, rows, header=("name", "title", "body", "tags", "kind")):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def read(path, delimiter=","):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.fixture
def run(capsys):
    """Run a command; return what it wrote and said. It must succeed."""

    def run(*args, code=0):
        capsys.readouterr()
        assert main(list(map(str, args))) == code, capsys.readouterr().err
        return capsys.readouterr()

    return run


COLUMNS = ("--text", "title", "body", "--labels", "tags", "--separator", ";")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and models of it."""
    folder = tmp_path_factory.mktemp("commands")
    table = write(folder / "table.csv", make_rows(300))
    write(folder / "new.csv", make_rows(40, seed=1))
    quick = ("--set", "max_epochs=4", "encoder__hidden_layer_sizes=[16]", "encoder__n_buckets=512")
    fit = ("fit", table, "--quiet", "--exact", *quick)
    assert main([*fit, *COLUMNS, "--id", "name", "--model", str(folder / "sets.skops")]) == 0
    # A model of classes, without lists.
    classes = ["--text", "title", "--labels", "kind", "--model", str(folder / "classes.skops")]
    assert main([*fit, "ranker=calibration", *classes]) == 0
    return folder


def test_what_fit_says_and_saves(folder, tmp_path, run):
    args = ("--text", "title", "--labels", "kind", "--model", tmp_path / "m.skops", "--set")
    args += ("max_epochs=1", "ranker=calibration", "encoder__n_buckets=512")
    said = run("fit", folder / "table.csv", *args, "--test-size", ".2", "--seed", "3")
    for part in ("300 rows, texts of title; 4 classes", "training a network on 2", "settings: "):
        assert part in said.err
    assert "scores of 60 rows that were not trained on" in said.err
    assert "in place of" not in said.err
    lines = dict(line.rsplit(maxsplit=1) for line in said.out.splitlines())
    assert lines["rows"] == "60"
    assert 0 <= float(lines["accuracy@1"]) <= float(lines["accuracy@3"]) <= 1
    model = load(tmp_path / "m.skops")
    assert model[-1].callbacks is None
    assert model[-1].random_state == 3
    again = run("fit", folder / "table.csv", *args, "--test-size", "60", "--seed", "3", "--json")
    assert json.loads(again.out)["n_samples"] == 60
    assert "in place of the model before" in again.err
    same = load(tmp_path / "m.skops").decision_function(["A dog"])
    np.testing.assert_array_equal(same, model.decision_function(["A dog"]))


def test_quiet_says_nothing(folder, tmp_path, run):
    args = ("--text", "title", "--labels", "kind", "--model", tmp_path / "m.skops", "--quiet")
    said = run(
        "fit",
        folder / "table.csv",
        *args,
        "--set",
        "max_epochs=1",
        "ranker=calibration",
        "encoder__n_buckets=512",
    )
    assert (said.out, said.err) == ("", "")


def test_the_log_of_training_is_no_result(folder, tmp_path, run):
    target = tmp_path / "m.skops"
    args = ("fit", folder / "table.csv", *COLUMNS, "--model", target, "--test-size", ".2", "--json")
    args += ("--set", "verbose=1", "max_epochs=1", "ranker=calibration", "encoder__n_buckets=512")
    said = run(*args)
    assert json.loads(said.out)["n_samples"] == 60
    assert "[MultiHeadClassifier]" in said.err
    said = run(*args, "--quiet")
    assert json.loads(said.out)["n_samples"] == 60
    assert said.err == ""
    for command, log in (("update", "train_loss"), ("recalibrate", "[MultiHeadClassifier]")):
        said = run(command, target, folder / "table.csv")
        assert said.out == ""
        assert log in said.err
        said = run(command, target, folder / "table.csv", "--quiet")
        assert (said.out, said.err) == ("", "")


def test_joined_labels_are_noticed(folder, tmp_path, run):
    args = ("--text", "title", "--labels", "tags", "--model", tmp_path / "m.skops")
    quick = ("--set", "max_epochs=1", "ranker=calibration", "encoder__n_buckets=512")
    said = run("fit", folder / "table.csv", *args, *quick).err
    assert "24 classes, one a row" in said
    assert "if these are several labels, give --separator ';'" in said
    assert said.count("note: ") == 1


def test_label_sets_are_written_as_they_were_read(folder, tmp_path, run):
    model = load(folder / "sets.skops")
    new = read(folder / "new.csv")
    expected = model.predict({name: [row[name] for row in new] for name in new[0]})
    run("predict", folder / "sets.skops", folder / "new.csv", "--output", tmp_path / "out.tsv")
    rows = read(tmp_path / "out.tsv", "\t")
    assert [row["name"] for row in rows] == [row["name"] for row in new]
    assert [row["tags"].split(";") for row in rows] == list(map(list, expected))
    assert any(len(each) == 2 for each in expected)
    lines = run("predict", folder / "sets.skops", folder / "new.csv", "--json", "--quiet").out
    found = [json.loads(line) for line in lines.splitlines()]
    assert [row["tags"] for row in found] == list(map(list, expected))
    # What was predicted is a table to evaluate.
    write(
        tmp_path / "in.csv",
        [(*old.values(), *row.values()) for old, row in zip(new, rows)],
        (*new[0], "row", "predicted"),
    )
    scores = run(
        "evaluate", folder / "sets.skops", tmp_path / "in.csv", "--labels", "predicted", "--json"
    ).out
    assert json.loads(scores)["f1_micro"] == 1


def test_best_labels_and_blocks(folder, run, monkeypatch):
    expected = predict_topk(load(folder / "sets.skops"), ["A dog it lives"], k=2, proba=True)
    monkeypatch.setattr("sklearn_xlc.command_line.commands.BLOCK", 16)
    said = run("predict", folder / "sets.skops", folder / "new.csv", "--topk", 2)
    rows = list(csv.DictReader(said.out.splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2"] * 40
    assert [row["name"] for row in rows[::2]] == [f"n{number}" for number in range(40)]
    assert "32 of 40 rows" in said.err
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    assert expected.labels.shape == (1, 2)
    assert len(run("predict", folder / "sets.skops", folder / "new.csv", "--topk", 99).out) > 0


def test_classes(folder, run):
    rows = list(
        csv.DictReader(
            run("predict", folder / "classes.skops", folder / "new.csv").out.splitlines()
        )
    )
    assert list(rows[0]) == ["row", "kind"]
    assert [row["row"] for row in rows] == list(map(str, range(40)))
    right = np.mean(
        [row["kind"] == true["kind"] for row, true in zip(rows, read(folder / "new.csv"))]
    )
    found = json.loads(run("evaluate", folder / "classes.skops", folder / "new.csv", "--json").out)
    assert found["accuracy_at_1"] == pytest.approx(right)


def test_evaluate_with_the_training_table(folder, run):
    said = run(
        "evaluate", folder / "sets.skops", folder / "new.csv", "--train", folder / "table.csv"
    )
    assert "PSP@5" in said.out
    assert "PSP@5" not in run("evaluate", folder / "sets.skops", folder / "new.csv").out


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_report_of_labels(folder, tmp_path, run, ending):
    path = tmp_path / f"report.{ending}"
    out = run("evaluate", folder / "sets.skops", folder / "new.csv", "--report", path, "--json").out
    rows = read(path) if ending == "csv" else list(map(json.loads, path.read_text().splitlines()))
    assert {row["label"] for row in rows} == {*ANIMALS, *PLACES}
    assert sum(int(row["support"]) for row in rows) == 80
    n_predicted = sum(int(row["predicted"]) for row in rows)
    hits = sum(float(row["recall"]) * int(row["support"]) for row in rows)
    assert json.loads(out)["precision_micro"] == pytest.approx(hits / n_predicted)
    assert json.loads(out)["recall_micro"] == pytest.approx(hits / 80)


def test_a_report_predicts_label_sets_once(folder, tmp_path, run, monkeypatch):
    calls, label_sets = [], Answering.label_sets
    monkeypatch.setattr(Answering, "label_sets", lambda *a: calls.append(a) or label_sets(*a))
    run("evaluate", folder / "sets.skops", folder / "new.csv", "--report", tmp_path / "report.csv")
    assert len(calls) == 1


def test_unknown_labels_are_noticed(folder, tmp_path, run):
    table = write(tmp_path / "odd.csv", [("n", "A dog", "it", "dog;emu", "emu")])
    said = run("evaluate", folder / "sets.skops", table)
    assert "does not know 1 of the labels, such as 'emu'" in said.err
    assert "P@1" in said.out


def test_explanations_name_rows_and_show_their_texts(folder, run):
    args = ("explain", folder / "sets.skops", folder / "new.csv", "--row", 3, "--train")
    said = json.loads(run(*args, folder / "table.csv", "--json", "--words", 2).out)
    new = read(folder / "new.csv")[3]
    assert (said["row"], said["text"]) == ("n3", f"{new['title']} {new['body']}")
    texts = {row["name"]: f"{row['title']} {row['body']}" for row in read(folder / "table.csv")}
    near = [each for label in said["labels"] for each in label["examples"]]
    assert near
    assert all(each["text"] == texts[each["example"]] for each in near)
    assert all(len(label["columns"]) <= 2 for label in said["labels"])
    shown = run(*args, folder / "table.csv").out
    assert shown.startswith("n3: ")
    assert f"like {near[0]['example']} (" in shown
    text = run("explain", folder / "sets.skops", "--string", "a cow", "--topk", 1).out
    assert text.startswith("a cow\n0.")


def test_texts_of_rows_with_one_name_are_not_shown(folder, tmp_path, run):
    rows = read(folder / "table.csv")
    again = [*rows, {**rows[3], "name": rows[0]["name"]}]
    table = write(tmp_path / "again.csv", [tuple(row.values()) for row in again])
    args = ("explain", folder / "sets.skops", "--string", f"{rows[0]['title']} {rows[0]['body']}")
    said = run(*args, "--json", "--train", table)
    assert f"such as '{rows[0]['name']}': their texts are not shown" in said.err
    near = [each for label in json.loads(said.out)["labels"] for each in label["examples"]]
    first = [each for each in near if each["example"] == rows[0]["name"]]
    assert first
    assert not any("text" in each for each in first)
    assert any("text" in each for each in near)


def test_names_of_rows_after_a_split(folder, tmp_path, run):
    """Rows are counted in the table, not among the rows that were trained on."""
    args = ("--text", "title", "body", "--labels", "tags", "--separator", ";")
    quick = ("--set", "max_epochs=2", "ranker=boosted", "encoder__n_buckets=512")
    run(
        "fit",
        folder / "table.csv",
        *args,
        "--model",
        tmp_path / "m.skops",
        "--test-size",
        20,
        *quick,
    )
    text = "A dog it lives at the farm number3"
    said = run(
        "explain", tmp_path / "m.skops", "--string", text, "--json", "--train", folder / "table.csv"
    )
    near = [each for label in json.loads(said.out)["labels"] for each in label["examples"]]
    assert near
    assert all("number3" in each["text"].split() or each["cosine"] < 0.9 for each in near)
    assert max(each["cosine"] for each in near) > 0.5


def test_rows_of_an_update_are_named_by_their_table(folder, tmp_path, run):
    """Numbers of another table would name rows of the first: their texts would be shown."""
    args = ("--text", "title", "body", "--labels", "tags", "--separator", ";")
    quick = ("--set", "max_epochs=2", "ranker=boosted", "encoder__n_buckets=512")
    model = tmp_path / "m.skops"
    run("fit", folder / "table.csv", *args, "--model", model, "--test-size", 100, *quick)
    more = write(tmp_path / "more.csv", make_rows(60, seed=5))
    run("update", model, more)
    texts = [f"{row['title']} {row['body']}" for row in read(tmp_path / "more.csv")]
    said = run("explain", model, "--string", texts[7], "--json", "--train", folder / "table.csv")
    near = [each for label in json.loads(said.out)["labels"] for each in label["examples"]]
    old = read(folder / "table.csv")
    assert any(str(each["example"]).startswith(f"{more}, line ") for each in near)
    for each in near:
        if "text" in each:
            row = old[each["example"]]
            assert each["text"] == f"{row['title']} {row['body']}"
        else:
            assert str(each["example"]).startswith(f"{more}, line ")


def test_update_adds_labels_and_recalibrate_decides_anew(folder, tmp_path, run):
    rows = [(f"m{i}", "An emu", f"it runs number{i % 40}", "emu; farm", "emu") for i in range(30)]
    table, target = write(tmp_path / "more.csv", rows), tmp_path / "m.skops"
    said = run("update", folder / "sets.skops", table, "--output", target)
    assert "1 new labels, such as 'emu'" in said.err
    model = load(target)
    assert set(model.classes_) == {*ANIMALS, *PLACES, "emu"}
    assert set(load(folder / "sets.skops").classes_) == {*ANIMALS, *PLACES}  # as it was
    top = json.loads(run("explain", target, "--string", "An emu it runs", "--json").out)["labels"]
    assert any(each["example"].startswith("m") for label in top for each in label["examples"])

    assert "\n0 new labels\n" in run("update", target, table).err

    write(tmp_path / "odd.csv", [*make_rows(150, seed=2), ("n", "A yak", "it", "yak;farm", "yak")])
    args = ("--decision", "topk", "--set", "decision__k=1")
    said = run("recalibrate", target, tmp_path / "odd.csv", *args)
    assert "does not know 1 of the labels, such as 'yak'; they are left out" in said.err
    assert "decision: TopK(k=1)" in said.err
    assert "in place of the model before" in said.err
    out = run("predict", target, folder / "new.csv").out
    assert not any(";" in row["tags"] for row in csv.DictReader(out.splitlines()))


def test_recalibration_of_classes_leaves_out_rows_of_unknown_ones(folder, tmp_path, run):
    table = write(
        tmp_path / "odd.csv", [*make_rows(150, seed=2), ("n", "A yak", "it", "yak", "yak")]
    )
    target = ("--output", tmp_path / "m.skops")
    run("recalibrate", folder / "classes.skops", table, *target)
    yaks = write(tmp_path / "yaks.csv", [("n", "A yak", "it", "yak", "yak")])
    for model in ("classes.skops", "sets.skops"):
        said = run("recalibrate", folder / model, yaks, *target, code=2)
        assert "the model knows none of the labels" in said.err


@pytest.mark.parametrize(
    "args, message",
    [
        (("predict", "sets.skops", "table.csv", "--text", "head"), "table.csv: no column 'head'; "),
        (("predict", "sets.skops", "new.csv", "--id", "key"), "new.csv: no column 'key'; the col"),
        (("explain", "sets.skops", "new.csv", "--id", "key"), "new.csv: no column 'key'; the col"),
        (("predict", "none.skops", "table.csv"), "none.skops: No such file"),
        (("predict", "table.csv", "table.csv"), "cannot read table.csv: it is damaged, or no file"),
        (("predict", "sets.skops", "none.csv"), "none.csv: No such file"),
        (("predict", "sets.skops", "new.csv", "--output", "new.csv"), "new.csv is read, and would"),
        (
            ("predict", "sets.skops", "new.csv", "--output", "classes.skops"),
            "is a model, and is no",
        ),
        (("predict", "sets.skops", "new.csv", "--output", "a.parquet"), "a.parquet: tables are wr"),
        (("predict", "sets.skops", "new.csv", "--output", "a.xlsx"), "a.xlsx: tables are written"),
        (("evaluate", "sets.skops", "table.csv", "--report", "a.xlsx"), "to files .csv, .tsv"),
        (
            ("evaluate", "sets.skops", "new.csv", "--train", "table.csv", "--report", "table.csv"),
            "table.csv is read, and would be replaced",
        ),
        (("explain", "sets.skops", "new.csv", "--row", "40"), "is none of its rows, 0 to 39"),
        (("explain", "sets.skops"), "explain takes a table, or --string"),
        (("explain", "classes.skops", "--string", "a", "--examples", "2"), "remembers no training"),
        (
            ("evaluate", "sets.skops", "new.csv", "--labels", "tag"),
            "new.csv: no column 'tag'; the ",
        ),
        (
            ("update", "classes.skops", "new.csv", "--labels", "tags", "--separator", ";"),
            "one class",
        ),
        (
            ("recalibrate", "sets.skops", "new.csv", "--set", "head=flat"),
            "sets decision and ranker",
        ),
        (("fit", "empty.csv", *COLUMNS, "--model", "m.skops"), "column 'tags' has no labels"),
        (("fit", "ragged.csv", *COLUMNS, "--model", "m.skops"), "ragged.csv, line 3: 2 fields"),
        (
            ("fit", "hole.csv", *COLUMNS[:-2], "--model", "m.skops"),
            "hole.csv: at line 3: column 't",
        ),
        (("fit", "table.csv", *COLUMNS, "--model", "new.csv"), "holds no model, and is not replac"),
        (("fit", "table.csv", *COLUMNS, "--model", "m.skops", "--id", "key"), "no column 'key'"),
        (
            ("fit", "table.csv", *COLUMNS, "--model", "m.skops", "--set", "heed=1"),
            "parameter 'heed'",
        ),
        (
            ("fit", "table.csv", *COLUMNS, "--model", "m.skops", "--set", "callbacks="),
            "--set has no value for callbacks",
        ),
        (
            ("fit", "table.csv", *COLUMNS, "--model", "m.skops", "--set", "heed"),
            "--set takes name=",
        ),
        (("fit", "table.csv", *COLUMNS, "--model", "m.skops", "--decision", "best"), "decision"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_errors_are_one_line_and_leave_files_as_they_are(folder, run, monkeypatch, args, message):
    monkeypatch.chdir(folder)
    write("empty.csv", [("n", "a", "b", " ; ", "")] * 3)
    write("hole.csv", [("n", "a", "b", "x", ""), ("n", "a", "b", "", "")])
    with open("ragged.csv", "w") as file:
        file.write("title,body,tags\na,b,c\na,b\n")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    said = run(*args, "--quiet", code=2)
    assert said.err.count("\n") == 1
    assert said.err.startswith("sklearn-xlc: error: ")
    assert message in said.err
    assert said.out == ""
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "labels, classes",
    [
        ([0, 1], [0, 1]),
        ([True, False], [False, True]),
        ([1.0, 2.0], [1.0, 2.0]),
        ([[0], [1]], [0, 1]),
        ([[0], [0, 1]], [0, 1]),
        ([[0, 1], [0, 1]], [0, 1]),
    ],
    ids=str,
)
def test_labels_that_are_no_strings(run, tmp_path, labels, classes):
    """No list is taken for an indicator, and scores are those of any other labels."""
    table, model = tmp_path / "table.jsonl", tmp_path / "m.skops"
    lines = [{"text": ("dog", "cat")[row % 2], "label": labels[row % 2]} for row in range(80)]
    table.write_text("\n".join(map(json.dumps, lines)))
    args = ("--text", "text", "--labels", "label", "--model", model, "--json", "--set")
    args += ("max_epochs=1", "ranker=calibration", "encoder__n_buckets=512", "decision=topk")
    found = json.loads(run("fit", table, *args, "--test-size", 20).out)
    assert found["n_samples"] == 20
    assert load(model).classes_.tolist() == classes
    report = tmp_path / "report.jsonl"
    found = json.loads(run("evaluate", model, table, "--report", report, "--json").out)
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert sorted(row["label"] for row in rows) == classes
    assert sum(row["support"] for row in rows) == sum(len(np.ravel(each)) for each in labels) * 40
    assert 0 < found["f1_micro"] <= 1
    for command in ("update", "recalibrate"):
        run(command, model, table)
    assert load(model).classes_.tolist() == classes


@pytest.mark.parametrize("n_rows", [3, 5])
def test_a_fit_to_two_rows_is_scored_without_psp(tmp_path, run, n_rows):
    table = write(tmp_path / "table.csv", make_rows(n_rows))
    args = (*COLUMNS, "--model", tmp_path / "m.skops", "--set", "max_epochs=1", "--json")
    found = json.loads(run("fit", table, *args, "--test-size", n_rows - 2).out)
    assert found["n_samples"] == n_rows - 2
    assert not any(name.startswith("psp") for name in found)


OF_EACH = OneVsRestClassifier(LogisticRegression())


@pytest.mark.parametrize(
    "clf, is_sets",
    [
        (LogisticRegression(), False),
        (OF_EACH, True),
        (KNeighborsClassifier(1), True),
        (AggregatedLabelClassifier(OF_EACH, n_rounds=1), True),
        (AggregatedLabelClassifier(MultiHeadClassifier(random_state=0), n_rounds=1), True),
    ],
    ids=str,
)
def test_any_classifier_predicts(run, tmp_path, clf, is_sets):
    texts, y = {"text": ["a cat", "two dogs"] * 20}, np.array([[1, 0, 1], [0, 1, 0]] * 20)
    has_groups = isinstance(clf, AggregatedLabelClassifier)
    groups = {"clf__groups": np.arange(40)} if has_groups else {}
    columns = TextColumns("text", labels="tags", separator="; ")
    model = Pipeline([("columns", columns), ("words", TfidfVectorizer()), ("clf", clf)])
    save(model.fit(texts, y if is_sets else y[:, 1], **groups), tmp_path / "model.skops")
    table = write(tmp_path / "new.csv", [("dogs",), ("cat",)], ("text",))
    run("predict", tmp_path / "model.skops", table, "--output", tmp_path / "out.csv")
    expected = ["1", "0; 2"] if is_sets else ["1", "0"]
    assert [row["tags"] for row in read(tmp_path / "out.csv")] == expected
    lines = run("predict", tmp_path / "model.skops", table, "--json").out.splitlines()
    assert [json.loads(line)["tags"] for line in lines] == ([[1], [0, 2]] if is_sets else [1, 0])
    found = run("evaluate", tmp_path / "model.skops", tmp_path / "out.csv", "--text", "tags").out
    assert "micro-F1" in found
    for command in ("update", "recalibrate"):
        said = run(command, tmp_path / "model.skops", table, code=2).err
        assert f"{command} takes a model of sklearn_xlc with a network" in said
        assert type(clf).__name__ in said


def test_a_label_with_the_separator_in_it_is_not_torn(folder, tmp_path, run):
    """It would be read as two. JSON has lists."""
    clf = MultiHeadClassifier(encoder="text", max_epochs=1, ranker=None, decision="topk")
    columns = TextColumns(["title", "body"], labels="tags", separator=";")
    model = Pipeline([("columns", columns), ("clf", clf)])
    frame = {"title": ["A dog"] * 20, "body": ["it"] * 20}
    save(model.fit(frame, [["a;b", "c"]] * 20), tmp_path / "m.skops")
    said = run("predict", tmp_path / "m.skops", folder / "new.csv", code=2).err
    assert "the label 'a;b' holds the separator ';'" in said
    args = ("predict", tmp_path / "m.skops", folder / "new.csv")
    assert json.loads(run(*args, "--json").out.splitlines()[0])["tags"] == ["a;b", "c"]


def test_names_of_rows_are_not_lost_to_a_column_of_predictions(folder, tmp_path, run):
    model, rows = folder / "sets.skops", make_rows(5)
    for column, options in [("label", ("--topk", 2)), ("rank", ("--topk", 2)), ("tags", ())]:
        header = [column if name == "name" else name for name in ("name", "title", "body", "kind")]
        table = write(tmp_path / "new.csv", [(*row[:3], row[4]) for row in rows], header)
        said = run("predict", model, table, "--id", column, *options, code=2)
        assert f"the column '{column}' of --id would be lost" in said.err
        assert said.out == ""


def test_a_model_that_cannot_be_written_is_told_before_training(folder, tmp_path, run, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.command_line.commands.read_table", None)
    monkeypatch.setattr("os.access", lambda *args: False)
    for args in (
        ("fit", folder / "table.csv", *COLUMNS, "--model", folder / "sets.skops"),
        ("update", folder / "sets.skops", folder / "table.csv"),
    ):
        assert "sets.skops: the file is read-only" in run(*args, code=2).err


def test_an_address_that_cannot_be_served_is_told_on_one_line(folder, run):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("serve", folder / "sets.skops", "--port", port, code=2)
    assert said.err.count("\n") == 1
    assert f"cannot serve at 127.0.0.1, port {port}" in said.err


def test_a_wrong_setting_of_the_service_is_told_before_workers_start(folder, run, monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    pytest.importorskip("prometheus_client")
    # Workers that cannot start are started again for ever.
    monkeypatch.setattr(uvicorn, "run", lambda *args, **kwargs: pytest.fail("workers start"))
    monkeypatch.setenv("XLC_MODEL", "")
    monkeypatch.setenv("XLC_WATCH_SECONDS", "often")
    said = run("serve", folder / "sets.skops", "--port", 0, "--workers", 2, code=2)
    assert said.err.count("\n") == 1
    assert "XLC_WATCH_SECONDS must be a number" in said.err


def test_slow_workers_may_start_and_slow_clients_do_not_keep_a_service(folder, run, monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    pytest.importorskip("prometheus_client")
    given = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: given.update(options))
    monkeypatch.setenv("XLC_MODEL", "")
    run("serve", folder / "sets.skops", "--port", 0, "--workers", 2)
    config = uvicorn.Config(None, **given)
    assert config.timeout_worker_healthcheck > 60  # 5: six that start on one core were ended
    assert config.timeout_graceful_shutdown < 30  # None: half a request kept it for ever
