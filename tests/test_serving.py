"""The service of `examples/serving`: batches, a model that is replaced, health and metrics."""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from _factories import make_learnable, quick
from sklearn_xlc import MultiHeadClassifier, load, predict_topk, save
from sklearn_xlc.encoders import MLP

FOLDER = Path(__file__).parents[1] / "examples" / "serving"
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 8
TAGS = [["water"], ["animal", "dog"], ["water", "river"]] * 8
OTHER = [[f"{tag}!" for tag in tags] for tags in TAGS]


@pytest.fixture(scope="module", autouse=True)
def folder_on_path():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    gc.unfreeze()


@pytest.fixture
def service():
    return importlib.import_module("service")


@pytest.fixture(scope="module")
def app():
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        pytest.importorskip(name)
    return importlib.import_module("app")


class Client:
    """Sends requests to a server of this process."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path):
        with urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode()

    def health(self):
        return json.loads(self.get("/health"))

    def post(self, body):
        """Status, body and headers of an answer."""
        headers = {"Content-Type": "application/json"}
        request = Request(self.url + "/predict", json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer), answer.headers
        except HTTPError as error:
            return error.code, json.load(error), error.headers

    def ask(self, samples, k=3):
        status, answer, _ = self.post({"samples": samples, "k": k})
        assert status == 200, answer
        return answer


@contextlib.contextmanager
def running(app):
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield Client(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def text_model():
    network = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=2, random_state=0)
    return make_pipeline(TfidfVectorizer(), network).fit(TEXTS, TAGS)


@pytest.fixture
def path(tmp_path, text_model):
    """File of the model, which a test may replace."""
    save(text_model, tmp_path / "model.skops", exact=True)
    return tmp_path / "model.skops"


@pytest.fixture(scope="module")
def client(app, text_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.skops"
    save(text_model, path, exact=True)
    with running(app.create_app(path)) as client:
        yield client


# --- batches -----------------------------------------------------------------------------------


class Lengths:
    """Ranks numbers by their distance from the length of a text; remembers what it was given."""

    def __init__(self):
        self.seen = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, samples, k):
        self.may_answer.wait(timeout=30)
        self.seen.append(samples)
        if "bad" in samples:
            raise ValueError("a bad text")
        labels = [[len(sample) + rank for rank in range(k)] for sample in samples]
        return labels, [[1.0] * k for _ in samples]


def answer_all(service, predict, requests, **params):
    """Answers of a batcher, or its errors, to requests that all come at once."""

    async def ask_all():
        batcher = service.Batcher(predict, **params)
        task = asyncio.create_task(batcher.run())
        asked = [asyncio.create_task(batcher.ask(*request)) for request in requests]
        await asyncio.sleep(0.05)
        predict.may_answer.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        task.cancel()
        return answers

    return asyncio.run(ask_all())


def test_requests_that_wait_are_one_batch_and_each_gets_its_own(service):
    predict = Lengths()
    predict.may_answer.clear()
    requests = [(["x" * n] * (1 + n % 3), 1 + n % 4) for n in range(40)]
    answers = answer_all(service, predict, requests)
    for (samples, k), (labels, scores) in zip(requests, answers):
        assert labels == [[len(samples[0]) + rank for rank in range(k)]] * len(samples)
        assert scores == [[1.0] * k] * len(samples)
    assert len(predict.seen) <= 2
    assert sum(map(len, predict.seen)) == sum(len(samples) for samples, _ in requests)


def test_a_batch_has_a_largest_size_but_a_request_is_never_cut(service):
    predict = Lengths()
    sizes = [3, 3, 3, 20, 1, 7, 1]
    answer_all(service, predict, [(["x"] * size, 1) for size in sizes], max_rows=8)
    assert [len(samples) for samples in predict.seen] == [6, 3, 20, 8, 1]


def test_a_batch_may_wait_for_more(service):
    async def ask_two(max_wait):
        predict = Lengths()
        batcher = service.Batcher(predict, max_rows=2, max_wait=max_wait)
        task = asyncio.create_task(batcher.run())
        first = asyncio.create_task(batcher.ask(["a"], 1))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, batcher.ask(["bb"], 1))
        task.cancel()
        return predict.seen

    assert asyncio.run(ask_two(0.0)) == [["a"], ["bb"]]
    assert asyncio.run(ask_two(30.0)) == [["a", "bb"]]


def test_only_the_request_that_is_to_blame_fails(service):
    answers = answer_all(service, Lengths(), [(["a"], 1), (["bad"], 1), (["ccc"], 1)])
    assert answers[0] == ([[1]], [[1.0]])
    assert isinstance(answers[1], ValueError)
    assert answers[2] == ([[3]], [[1.0]])


def test_too_many_requests_are_refused(service):
    predict = Lengths()
    predict.may_answer.clear()
    answers = answer_all(service, predict, [(["a"], 1)] * 9, max_waiting=5)
    refused = [isinstance(answer, service.Busy) for answer in answers]
    assert refused == [False] * 5 + [True] * 4


def test_nothing_is_predicted_for_whoever_has_gone(service):
    async def leave():
        predict = Lengths()
        batcher = service.Batcher(predict)
        asked = asyncio.create_task(batcher.ask(["gone"], 1))
        await asyncio.sleep(0)
        asked.cancel()
        task = asyncio.create_task(batcher.run())
        answer = await batcher.ask(["here"], 1)
        task.cancel()
        return predict.seen, answer

    assert asyncio.run(leave()) == ([["here"]], ([[4]], [[1.0]]))


# --- the model of a file -----------------------------------------------------------------------


def test_samples_of_every_kind(service):
    X = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, -1.0]], dtype=np.float32)
    assert service.as_input(["a", "b"], None) == ["a", "b"]
    np.testing.assert_array_equal(service.as_input(X.tolist(), 3), X)
    sparse = service.as_input([([1], [2.0]), ([2, 0], [-1.0, 1.0])], 3)
    np.testing.assert_array_equal(sparse.toarray(), X)
    assert service.as_input([([], [])], 3).shape == (1, 3)


@pytest.mark.parametrize(
    "samples, match",
    [
        (["a", [1.0]], "of one kind"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
        ([([3], [1.0])], "from 0 to 2"),
        ([([-1], [1.0])], "from 0 to 2"),
        ([([10**25], [1.0])], "from 0 to 2"),
        ([([1, 2], [1.0]), ([1], [1.0, 2.0])], "as many values as columns"),
    ],
)
def test_samples_that_are_none_are_refused(service, samples, match):
    with pytest.raises(ValueError, match=match):
        service.as_input(samples, 3)


def test_sparse_rows_for_a_model_of_texts_are_refused(service):
    with pytest.raises(ValueError, match="takes texts"):
        service.as_input([([1], [1.0])], None)


def test_a_new_file_is_read_and_a_broken_one_is_not(service, path, text_model):
    file = service.ModelFile(path)
    first = file.model
    assert file.refresh() is None
    save(clone(text_model).fit(TEXTS, OTHER), path)
    assert file.refresh() is True
    second = file.model
    assert second.version != first.version
    broken = path.with_name("broken")
    broken.write_bytes(path.read_bytes()[:-1])
    os.replace(broken, path)
    assert file.refresh() is False
    assert file.model is second
    assert "it is damaged" in file.error
    assert file.refresh() is None  # it is not read again and again
    path.unlink()
    assert file.refresh() is None
    assert "No such file" in file.error
    assert file.model.answer(["salt water"], 1)[0] == [["water!"]]
    save(text_model, path, exact=True)
    assert file.refresh() is True
    assert file.error is None
    assert file.model.version == first.version
    hidden = path.rename(path.with_name("hidden"))
    file.refresh()
    hidden.rename(path)  # the same file, of the same time
    assert file.refresh() is True
    assert file.error is None


def test_a_file_without_a_classifier_changes_nothing(service, path, text_model):
    file = service.ModelFile(path)
    save(text_model[0], path)
    assert file.refresh() is False
    assert file.error.endswith("holds a TfidfVectorizer, which predicts no labels")
    assert file.model.answer(["salt water"], 1)[0] == [["water"]]


def test_a_model_that_was_replaced_is_freed(service, path, text_model, monkeypatch):
    loaded = []

    def load_noting(*args, **params):
        estimator = load(*args, **params)
        loaded.append(weakref.ref(estimator))
        return estimator

    monkeypatch.setattr("sklearn_xlc.load", load_noting)
    file = service.ModelFile(path)
    service.tidy()
    save(clone(text_model).fit(TEXTS, OTHER), path)
    assert file.refresh() is True
    service.tidy()
    assert [found() is None for found in loaded] == [True, False]


# --- over HTTP ---------------------------------------------------------------------------------


def test_texts_are_answered_as_by_the_model(text_model, client):
    expected = predict_topk(text_model, TEXTS[:3], k=3, proba=True)
    found = client.ask(TEXTS[:3])
    assert found["labels"] == expected.labels.tolist()
    np.testing.assert_allclose(found["probabilities"], expected.scores, rtol=1e-5)


def test_rows_of_numbers_are_answered_as_by_the_model(app, path):
    X, y = make_learnable(True)
    save(quick("flat", max_epochs=2).fit(X, y), path)
    expected = predict_topk(load(path), X[:4], k=3, proba=True)
    dense = X[:4].toarray() if hasattr(X, "toarray") else X[:4]
    columns = [np.flatnonzero(row).tolist() for row in dense]
    sparse = [
        {"columns": names, "values": row[names].tolist()} for names, row in zip(columns, dense)
    ]
    with running(app.create_app(path)) as client:
        for samples in (dense.tolist(), sparse):
            found = client.ask(samples)
            assert found["labels"] == expected.labels.tolist()
            np.testing.assert_allclose(found["probabilities"], expected.scores, rtol=1e-4)


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


def test_a_service_without_room_says_so(app, client, monkeypatch):
    async def busy(batcher, samples, k):
        raise app.Busy("1024 requests wait already")

    monkeypatch.setattr(app.Batcher, "ask", busy)
    status, _, headers = client.post({"samples": ["a"]})
    assert (status, headers["Retry-After"]) == (503, "1")


def test_a_replaced_model_answers_and_a_broken_one_shows_in_health(
    text_model, app, path, monkeypatch
):
    monkeypatch.setenv("XLC_WATCH_SECONDS", "0.01")

    def wait_for(client, wanted):
        for _ in range(1000):
            health = client.health()
            if wanted(health):
                return health
        raise AssertionError(health)

    with running(app.create_app(path)) as client:
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
        assert "model.skops" in health["error"]
        assert client.ask(["salt water"], k=1)["labels"] == [["water!"]]


@pytest.mark.slow
def test_no_request_fails_while_the_file_is_replaced(text_model, app, path, monkeypatch):
    monkeypatch.setenv("XLC_WATCH_SECONDS", "0.05")
    save(clone(text_model).fit(TEXTS, OTHER), other := path.with_name("other"))
    contents = [other.read_bytes(), b"broken", path.read_bytes()]
    done, answers = threading.Event(), []

    def ask_on(client):
        while not done.is_set():
            answers.append(client.ask(["salt water"], k=1)["labels"])

    with running(app.create_app(path)) as client:
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


def test_a_model_that_cannot_be_read_does_not_start(app, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        app.create_app(tmp_path / "none.skops")
