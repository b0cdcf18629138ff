"""The service over HTTP: answers, refusals, a model that is replaced, health and metrics."""

import importlib
import json
import os
import socket
import threading
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from _factories import make_learnable, quick
from _serving import OTHER, TAGS, TEXTS, running
from sklearn_xlc import MultiHeadClassifier, TextColumns, explain_topk, load, predict_topk, save
from sklearn_xlc.encoders import Text
from sklearn_xlc.serving import create_app, read_model

for name in ("fastapi", "prometheus_client", "uvicorn"):
    pytest.importorskip(name)
application = importlib.import_module("sklearn_xlc.serving.app")


@pytest.fixture(scope="module", autouse=True)
def tidied():
    """When garbage was to be tidied up: among all objects of the suite it takes a second."""
    times = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "tidy", lambda: times.append(time.monotonic()))
        yield times


@pytest.fixture(scope="module")
def client(text_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.skops"
    save(text_model, path, exact=True)
    with running(create_app(path)) as client:
        yield client


def test_texts_are_answered_as_by_the_model(text_model, client):
    expected = predict_topk(text_model, TEXTS[:3], k=3, proba=True)
    found = client.ask(TEXTS[:3])
    assert found["labels"] == expected.labels.tolist()
    np.testing.assert_allclose(found["probabilities"], expected.scores, rtol=1e-5)


def test_rows_of_numbers_are_answered_as_by_the_model(path):
    X, y = make_learnable(True)
    save(quick("flat", max_epochs=2).fit(X, y), path)
    expected = predict_topk(load(path), X[:4], k=3, proba=True)
    dense = X[:4].toarray() if hasattr(X, "toarray") else X[:4]
    columns = [np.flatnonzero(row).tolist() for row in dense]
    sparse = [
        {"columns": names, "values": row[names].tolist()} for names, row in zip(columns, dense)
    ]
    with running(create_app(path)) as client:
        for samples in (dense.tolist(), sparse):
            found = client.ask(samples)
            assert found["labels"] == expected.labels.tolist()
            np.testing.assert_allclose(found["probabilities"], expected.scores, rtol=1e-4)


def test_rows_of_two_lengths_are_told(path):
    X, y = make_learnable(True)
    save(quick("flat", max_epochs=1).fit(X, y), path)
    n_columns = X.shape[1]
    with running(create_app(path)) as client:
        status, said, _ = client.post({"samples": [[0.0] * n_columns, [0.0] * 3]})
    assert status == 422
    assert f"takes rows of {n_columns} numbers, and row 1 has 3" in str(said)


@pytest.mark.parametrize(
    "body",
    [
        {"samples": [], "k": 1},
        {"samples": ["a"], "k": 0},
        {"samples": ["a", 3]},
        {"samples": [[1.0]]},
        {"samples": [{"columns": [0], "values": [1.0]}]},
        {},
    ],
)
def test_what_cannot_be_answered_is_refused(client, body):
    assert client.post(body)[0] == 422
    assert client.ask(["salt water"], k=1)["labels"] == [["water"]]


def test_a_model_of_fewer_labels_names_all_of_them(client):
    found = client.ask(TEXTS[:1], k=100)  # a client need not know what the newest model has
    assert set(found["labels"][0]) == {"animal", "dog", "river", "water"}
    assert len(found["probabilities"][0]) == 4


def test_a_service_without_room_says_so(client, monkeypatch):
    async def busy(batcher, samples, k):
        raise application.Busy("1024 requests wait already")

    monkeypatch.setattr(application.Batcher, "ask", busy)
    status, _, headers = client.post({"samples": ["a"]})
    assert (status, headers["Retry-After"]) == (503, "1")


def test_a_replaced_model_answers_and_a_broken_one_shows_in_health(
    text_model, path, monkeypatch, tidied
):
    monkeypatch.setenv("XLC_WATCH_SECONDS", "0.01")
    tidied.clear()

    def wait_for(client, wanted):
        for _ in range(1000):
            health = client.health()
            if wanted(health):
                return health
            time.sleep(0.01)
        raise AssertionError(health)

    with running(create_app(path)) as client:
        first = client.health()
        assert (first["status"], first["error"]) == ("ok", None)
        save(clone(text_model).fit(TEXTS, OTHER), path)
        wait_for(client, lambda health: health["model"] != first["model"])
        assert client.ask(["salt water"], k=1)["labels"] == [["water!"]]
        broken = path.with_name("broken")
        broken.write_bytes(b"no model")
        os.replace(broken, path)
        health = wait_for(client, lambda health: health["status"] != "ok")
        assert health["status"] == "old model"
        assert len(tidied) == 1  # it would stop all answers
        assert "model.skops" in health["error"]
        assert client.ask(["salt water"], k=1)["labels"] == [["water!"]]


@pytest.mark.slow
def test_no_request_fails_while_the_file_is_replaced(text_model, path, monkeypatch):
    monkeypatch.setenv("XLC_WATCH_SECONDS", "0.05")
    save(clone(text_model).fit(TEXTS, OTHER), other := path.with_name("other"))
    contents = [other.read_bytes(), b"broken", path.read_bytes()]
    done, answers = threading.Event(), []

    def ask_on(client):
        while not done.is_set():
            answers.append(client.ask(["salt water"], k=1)["labels"])

    with running(create_app(path)) as client:
        threads = [threading.Thread(target=ask_on, args=[client]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(30):
            path.with_name("new").write_bytes(contents[number % 3])
            os.replace(path.with_name("new"), path)
            time.sleep(0.2)
        done.set()
        for thread in threads:
            thread.join()
    found = {label for labels in answers for label in labels[0]}
    assert found == {"water", "water!"}
    assert all(labels in ([["water"]], [["water!"]]) for labels in answers)


def test_metrics_count(client):
    def value(name):
        lines = client.get("/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    names = ("xlc_requests_total", 'xlc_requests_total{status="422"}', "xlc_batch_rows_sum")
    names += ("xlc_request_seconds_count",)
    before = [value(name) for name in names]
    client.ask(TEXTS[:3])
    client.post({"samples": []})
    client.health()
    assert [value(name) - old for name, old in zip(names, before)] == [2, 1, 3, 2]
    assert value('xlc_model_loads_total{result="read"}') >= 1


def test_a_model_that_cannot_be_read_does_not_start(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        create_app(tmp_path / "none.skops")


# --- label sets, explanations, tables ----------------------------------------------------------


LONG = TEXTS * 12


@pytest.fixture(scope="module")
def table_model():
    """A pipeline that reads tables, and remembers its training samples."""
    titles, bodies = zip(*((text[:6], f"{text[6:]} word{i % 40}") for i, text in enumerate(LONG)))
    table = {"title": titles, "body": bodies}
    encoder = Text(n_buckets=2**12)
    clf = MultiHeadClassifier(encoder=encoder, ranker="boosted", max_epochs=3, random_state=0)
    return make_pipeline(TextColumns(["title", "body"]), clf).fit(table, TAGS * 12)


@pytest.fixture(scope="module")
def table_client(table_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.skops"
    save(table_model, path, exact=True)
    with running(create_app(path)) as client:
        yield client


def test_label_sets_are_those_of_predict(table_model, table_client):
    found = table_client.answer("/label_sets", samples=TEXTS[:3])
    assert found == {"labels": table_model.predict(TEXTS[:3]).tolist()}


def test_explanations_are_those_of_the_model(table_model, table_client):
    texts = ["a body of salt water word3", "an animal word4"]
    expected = explain_topk(table_model, texts, k=2, examples=1, n_columns=3)
    body = {"samples": texts, "k": 2, "examples": 1, "words": 3}
    found = table_client.answer("/explain", **body)["explanations"]
    ranked = predict_topk(table_model, texts, k=2, proba=True)
    for sample, labels in enumerate(found):
        assert [label["label"] for label in labels] == expected.labels[sample].tolist()
        probabilities = [label["probability"] for label in labels]
        np.testing.assert_allclose(probabilities, ranked.scores[sample], rtol=1e-5)
        for rank, label in enumerate(labels):
            names = [each["column"] for each in label["columns"]]
            assert names == [name for name in expected.columns[sample, rank] if name]
            near = [each["example"] for each in label["examples"]]
            assert near == [each for each in expected.examples[sample, rank] if each is not None]
    # Three training samples, unless a number is given.
    (labels,) = table_client.answer("/explain", samples=texts[:1])["explanations"]
    assert max(len(label["examples"]) for label in labels) == 3


def test_a_model_that_remembers_nothing_is_explained_by_words(client):
    (labels,) = client.answer("/explain", samples=["salt water"], k=1)["explanations"]
    assert [label["examples"] for label in labels] == [[]]
    assert {each["column"] for each in labels[0]["columns"]} <= {"salt", "water"}
    status, answer, _ = client.post({"samples": ["salt water"], "examples": 2}, "/explain")
    assert (status, "remembers no training samples" in answer["detail"]) == (422, True)


def test_rows_of_tables_are_texts(table_client):
    row = {"title": TEXTS[0][:6], "body": TEXTS[0][6:]}
    joined = f"{row['title']} {row['body']}"
    assert table_client.ask([row]) == table_client.ask([joined])
    missing = table_client.post({"samples": [{"title": "a"}]})
    assert (missing[0], "['title', 'body'], got ['title']" in missing[1]["detail"]) == (422, True)


def test_rows_of_tables_are_refused_by_a_model_of_texts(client):
    status, answer, _ = client.post({"samples": [{"title": "a"}]})
    assert (status, answer["detail"]) == (422, "this model takes texts")


@pytest.mark.parametrize(
    "path, body",
    [
        ("/predict", {"samples": ["a"], "top": 3}),
        ("/predict", {"samples": [{"columns": [0], "values": [1.0], "size": 2}]}),
        ("/label_sets", {"samples": ["a"], "k": 3}),
        ("/explain", {"samples": ["a"], "n_examples": 3}),
        ("/explain", {"samples": ["a"] * 21}),
    ],
)
def test_unknown_fields_are_refused(client, path, body):
    assert client.post(body, path)[0] == 422


@pytest.mark.parametrize(
    "body",
    [
        '{"samples": [' + ",".join(["0"] * 300_000) + "]}",
        '{"samples": [[' + ",".join(['"a"'] * 300_000) + "]]}",
        '{"samples": [' + ",".join(['"a"'] * 300_000) + "]}",
        '{"samples": ["a"], ' + ",".join(f'"a{i}": 1' for i in range(100_000)) + "}",
        '{"samples": [NaN]}',
        '{"samples": [[NaN, null]]}',
        '{"samples": ["a"], "k": 1e999}',
        '{"samples": ["a"], "\\ud800": 1}',
        '{"samples": ["a"], "k": NaN}',
    ],
    ids=lambda body: body[:24],
)
def test_a_refusal_is_short_and_quick_whatever_the_request_holds(client, body):
    start = time.process_time()
    status, answer, _ = client.post(body.encode())
    assert status == 422
    assert 1 <= len(answer["detail"]) <= 5
    assert all(each.keys() == {"type", "loc", "msg"} for each in answer["detail"])
    assert len(str(answer)) < 1000
    assert time.process_time() - start < 5  # where all forms were compared, it was minutes


def test_nothing_is_computed_for_clients_that_have_gone(text_model, path):
    save(text_model, path)
    computing, go_on, sizes = threading.Event(), threading.Event(), []

    def read(path):
        model = read_model(path)

        def answer(samples, k):
            computing.set()
            assert go_on.wait(30)
            sizes.append(len(samples))
            return model.answer(samples, k)

        return model._replace(answer=answer)

    with running(create_app(path, read)) as client:
        host, port = client.url.removeprefix("http://").split(":")
        body = json.dumps({"samples": TEXTS[:2]}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        before = gone(client)
        for _ in range(4):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(head.encode() + body)
                assert computing.wait(30)  # the first one is computed already
                time.sleep(0.05)
        deadline = time.monotonic() + 30
        while gone(client) < before + 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        go_on.set()
        assert len(client.ask(TEXTS[:3])["labels"]) == 3
    assert sizes == [2, 3]


def gone(client):
    lines = client.get("/metrics").splitlines()
    name = 'xlc_requests_total{status="499"}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_service_without_a_model_says_so(monkeypatch):
    monkeypatch.delenv("XLC_MODEL", raising=False)
    with pytest.raises(ValueError, match="there is no model: set XLC_MODEL"):
        create_app()


@pytest.mark.parametrize(
    "name, text",
    [
        ("XLC_MAX_ROWS", "many"),
        ("XLC_MAX_ROWS", "0"),
        ("XLC_MAX_BYTES", "1e6"),
        ("XLC_MAX_WAIT_MS", "-1"),
        ("XLC_WATCH_SECONDS", "0"),
        ("XLC_WATCH_SECONDS", "nan"),
    ],
)
def test_a_wrong_setting_is_named(path, monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{name} must be a .*number of at least .*, got '{text}'"):
        create_app(path)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_another_type_of_content_is_named(client, kind):
    """It is what curl sends unless told otherwise."""
    request = Request(f"{client.url}/predict", b'{"samples": ["a"]}', {"Content-Type": kind})
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    assert refused.value.code == 422
    assert "Content-Type must be application/json" in refused.value.read().decode()
    refused.value.close()


def test_a_body_has_a_largest_size(path, monkeypatch):
    monkeypatch.setenv("XLC_MAX_BYTES", "1000")
    with running(create_app(path)) as client:
        assert client.post({"samples": ["a" * 900]})[0] == 200
        status, answer, _ = client.post({"samples": ["a" * 1000]})
        assert (status, answer["detail"]) == (413, "a request has at most 1000 bytes")
        # A body in chunks, whose size no header tells, is cut off in time, too.
        host, port = client.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            head = "POST /explain HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
            for _ in range(3):
                connection.sendall(b"200\r\n" + b" " * 512 + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_too_many_explanations_are_refused(client, monkeypatch):
    async def busy(batcher, *args):
        raise application.Busy("1024 requests wait already")

    monkeypatch.setattr(application.Batcher, "alone", busy)
    assert client.post({"samples": ["a"]}, "/explain")[0] == 503
    assert client.post({"samples": ["a"]}, "/label_sets")[0] == 503
