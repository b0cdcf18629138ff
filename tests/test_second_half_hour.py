"""From a CSV file to a served model that is explained and kept up to date, by the command line."""

import csv
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

import sklearn_xlc
from sklearn_xlc.__main__ import main
from sklearn_xlc.datasets import load_wordnet_glosses

COMMAND = [sys.executable, "-m", "sklearn_xlc"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(sklearn_xlc.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",
}
NEW = "a small brown bird that eats insects"


def write_tables(folder, n_rows):
    """Tables to fit, to evaluate and to update: glosses cut into two columns of text."""
    glosses = load_wordnet_glosses()
    rows = [
        {
            "name": f"g{row}",
            "head": glosses.data[row].partition(" ")[0],
            "rest": glosses.data[row].partition(" ")[2],
            "tags": "; ".join(glosses.target_names[label] for label in glosses.target[row].indices),
        }
        for row in glosses.train_indices[: n_rows + 600]
    ]
    later = [{**row, "tags": f"{row['tags']}; later"} for row in rows[n_rows + 300 :]]
    parts = {"table": rows[:n_rows], "test": rows[n_rows : n_rows + 300], "later": later}
    for name, part in parts.items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(part)
    return parts


def in_process(*args, code=0):
    """Run a command in a process of its own; return what it writes and says."""
    done = subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, env=ENVIRONMENT, timeout=600
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def ask(url, path, **body):
    request = Request(f"{url}{path}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Service:
    """The command `serve`, from its first answer to the end of the block."""

    def __enter__(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = str(unused.getsockname()[1])
        self.log = open("serve.log", "w+")
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "m.skops", "--port", port],
            env={**ENVIRONMENT, "XLC_WATCH_SECONDS": "0.2"},
            stderr=self.log,
        )
        self.url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 300
        while True:
            try:
                self.health()
                return self
            except URLError:
                assert self.process.poll() is None, Path("serve.log").read_text()
                assert time.monotonic() < end, "the service does not answer"
                time.sleep(0.1)

    def health(self):
        with urlopen(f"{self.url}/health", timeout=60) as answer:
            return json.load(answer)

    def wait_for_another(self, model):
        """Wait until the service has seen that its file was replaced."""
        end = time.monotonic() + 60
        while (health := self.health())["model"] == model:
            assert time.monotonic() < end, health
            time.sleep(0.1)
        assert health["status"] == "ok"

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()


def second_half_hour(run, parts, least, at_least, *more):
    """Go through the commands; least precision at 1, and the precision to ask a threshold for."""
    text = ("--text", "head", "rest")
    labels = ("--labels", "tags", "--separator", ";")
    _, said = run("fit", "table.csv", *text, *labels, "--id", "name", "--model", "m.skops", *more)
    n_rows = len(parts["table"])
    for part in (f"{n_rows} rows, texts of head, rest", "training", "ranker=boosted", "saved m.sk"):
        assert part in said

    args = ("--train", "table.csv", "--report", "report.csv", "--json")
    before = json.loads(run("evaluate", "m.skops", "test.csv", *args)[0])
    with open("report.csv", newline="", encoding="utf-8") as file:
        report = list(csv.DictReader(file))
    n_true = sum(len(row["tags"].split("; ")) for row in parts["test"])
    assert sum(int(row["support"]) for row in report) == n_true
    assert before["precision_at_1"] > least
    assert before["calibration_error"] < 0.25
    assert 0 < before["psp_at_1"] < before["precision_at_1"]

    run("predict", "m.skops", "test.csv", "--output", "sets.csv")
    with open("sets.csv", newline="", encoding="utf-8") as file:
        predicted = list(csv.DictReader(file))
    assert [row["name"] for row in predicted] == [row["name"] for row in parts["test"]]
    best = list(
        csv.DictReader(run("predict", "m.skops", "test.csv", "--topk", "1")[0].splitlines())
    )
    true = {row["name"]: row["tags"].split("; ") for row in parts["test"]}
    right = sum(row["label"] in true[row["name"]] for row in best) / len(best)
    assert right == pytest.approx(before["precision_at_1"])

    out, _ = run("explain", "m.skops", "--string", NEW, "--train", "table.csv", "--json")
    told = json.loads(out)["labels"]
    names = {row["name"] for row in parts["table"]}
    near = [each for label in told for each in label["examples"]]
    assert near
    assert all(each["example"] in names and each["text"] for each in near)

    with Service() as service:
        (answer,) = ask(service.url, "/explain", samples=[NEW])["explanations"]
        # Both processes loaded the same file; sums of floats may differ between them.
        assert [label["label"] for label in answer] == [label["label"] for label in told]
        assert answer[0]["probability"] == pytest.approx(told[0]["probability"], rel=1e-4)
        assert [label["examples"] for label in answer] == [
            [{name: each[name] for name in ("example", "cosine")} for each in label["examples"]]
            for label in told
        ]
        row = {"head": "a", "rest": NEW.removeprefix("a ")}
        assert ask(service.url, "/predict", samples=[row], k=3)["labels"] == [
            [label["label"] for label in told]
        ]
        model = service.health()["model"]
        _, said = run("update", "m.skops", "later.csv")
        assert "such as " in said
        service.wait_for_another(model)
        updated = service.health()["model"]
        args = ("decision__criterion=precision", f"decision__at_least={at_least}")
        _, said = run("recalibrate", "m.skops", "test.csv", "--set", "decision=threshold", *args)
        precision = float(re.search(r"decision: Threshold\(.* precision_=([\d.]+)", said)[1])
        assert precision >= at_least
        service.wait_for_another(updated)
        first = parts["later"][0]
        rows = [{name: first[name] for name in ("head", "rest")}]
        ranked = ask(service.url, "/predict", samples=rows, k=100)["labels"][0]
        assert "later" in ranked
        assert isinstance(ask(service.url, "/label_sets", samples=rows)["labels"][0], list)
    after = json.loads(run("evaluate", "m.skops", "test.csv", "--json")[0])
    assert after["precision_micro"] == pytest.approx(precision, abs=0.03)  # of rounded weights


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_second_half_hour_of_some_hundred_texts(folder, capsys):
    """Only the service is a process of its own here: each takes seconds to load torch."""

    def run(*args):
        capsys.readouterr()
        assert main(args) == 0, capsys.readouterr().err
        return capsys.readouterr()

    few = ("--set", "encoder=text", "encoder__n_buckets=8192")  # each load has all weights
    second_half_hour(run, write_tables(folder, 400), 0.3, 0.3, *few)


@pytest.mark.slow
def test_second_half_hour(folder):
    second_half_hour(in_process, write_tables(folder, 5000), least=0.55, at_least=0.9)
