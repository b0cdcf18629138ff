"""Batches of requests, and a model that is replaced."""

import asyncio
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from sklearn.base import clone

from _factories import quick
from _serving import OTHER, TEXTS
from sklearn_xlc import load, predict_topk, save
from sklearn_xlc.serving import service

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


def answer_all(predict, requests, **params):
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


def test_requests_that_wait_are_one_batch_and_each_gets_its_own():
    predict = Lengths()
    predict.may_answer.clear()
    requests = [(["x" * n] * (1 + n % 3), 1 + n % 4) for n in range(40)]
    answers = answer_all(predict, requests)
    for (samples, k), (labels, scores) in zip(requests, answers):
        assert labels == [[len(samples[0]) + rank for rank in range(k)]] * len(samples)
        assert scores == [[1.0] * k] * len(samples)
    assert len(predict.seen) <= 2
    assert sum(map(len, predict.seen)) == sum(len(samples) for samples, _ in requests)


def test_a_batch_has_a_largest_size_but_a_request_is_never_cut():
    predict = Lengths()
    sizes = [3, 3, 3, 20, 1, 7, 1]
    answer_all(predict, [(["x"] * size, 1) for size in sizes], max_rows=8)
    assert [len(samples) for samples in predict.seen] == [6, 3, 20, 8, 1]


def test_a_batch_may_wait_for_more():
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


def test_only_the_request_that_is_to_blame_fails():
    answers = answer_all(Lengths(), [(["a"], 1), (["bad"], 1), (["ccc"], 1)])
    assert answers[0] == ([[1]], [[1.0]])
    assert isinstance(answers[1], ValueError)
    assert answers[2] == ([[3]], [[1.0]])


def test_others_of_a_failed_batch_stay_together():
    predict = Lengths()
    predict.may_answer.clear()
    requests = [(["x" * n], 1) for n in range(1, 64)]
    requests.insert(20, (["bad"], 1))
    answers = answer_all(predict, requests)
    assert isinstance(answers.pop(20), ValueError)
    assert answers == [([[n]], [[1.0]]) for n in range(1, 64)]
    assert len(predict.seen) < 16  # of 64 requests


def test_too_many_requests_are_refused():
    predict = Lengths()
    predict.may_answer.clear()
    answers = answer_all(predict, [(["a"], 1)] * 9, max_waiting=5)
    refused = [isinstance(answer, service.Busy) for answer in answers]
    assert refused == [False] * 5 + [True] * 4


def test_nothing_is_predicted_for_whoever_has_gone():
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


def test_calls_alone_wait_for_their_turn_and_are_limited():
    async def ask():
        may_end = threading.Event()
        batcher = service.Batcher(Lengths(), max_waiting=2)
        slow = [asyncio.create_task(batcher.alone(may_end.wait, 30)) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(service.Busy):
            await batcher.alone(len, "abc")
        may_end.set()
        await asyncio.gather(*slow)
        return await batcher.alone(len, "abc")

    assert asyncio.run(ask()) == 3


def order_of_calls(n_alone, n_leaving=0):
    """Which calls alone, and when the batch beside them, were done; some clients leave before."""
    done, may_end = [], threading.Event()

    def alone(number):
        may_end.wait(30)
        done.append(number)

    async def ask():
        batcher = service.Batcher(lambda samples, k: (done.append("batch"), [[1]], [[1.0]])[1:])
        task = asyncio.create_task(batcher.run())
        calls = [asyncio.create_task(batcher.alone(alone, number)) for number in range(n_alone)]
        await asyncio.sleep(0.05)
        for each in calls[:n_leaving]:
            each.cancel()
        await asyncio.sleep(0.05)
        asked = asyncio.create_task(batcher.ask(["a text"], 1))
        await asyncio.sleep(0.05)
        may_end.set()
        await asyncio.gather(asked, *calls[n_leaving:])
        task.cancel()

    asyncio.run(ask())
    return done


def test_a_batch_waits_for_one_call_alone_however_many_there_are():
    assert order_of_calls(5) == [0, "batch", 1, 2, 3, 4]


def test_the_turn_of_a_client_that_leaves_ends_with_its_call():
    # The first call goes on; the second one waits, and is dropped.
    assert order_of_calls(3, n_leaving=2) == [0, "batch", 2]


# --- the model of a file -----------------------------------------------------------------------


def test_samples_of_every_kind():
    X = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, -1.0]], dtype=np.float32)
    assert service.as_input(["a", "b"], None) == ["a", "b"]
    np.testing.assert_array_equal(service.as_input(X.tolist(), 3), X)
    sparse = service.as_input([([1], [2.0]), ([2, 0], [-1.0, 1.0])], 3)
    np.testing.assert_array_equal(sparse.toarray(), X)
    assert service.as_input([([], [])], 3).shape == (1, 3)


def test_numbers_far_from_zero_are_answered_as_by_the_model(tmp_path):
    """In single precision seconds since 1970 have steps of 128."""
    rng = np.random.default_rng(0)
    X = np.column_stack([1.7e9 + rng.integers(0, 400, 200), rng.normal(size=200)])
    y = np.where(X[:, 0] < 1.7e9 + 200, "early", "late")
    save(quick("flat", max_epochs=20).fit(X, y), tmp_path / "model.skops", exact=True)
    model, expected = service.read_model(tmp_path / "model.skops"), load(tmp_path / "model.skops")
    expected = predict_topk(expected, X, k=2, proba=True)
    sparse = [([0, 1], row) for row in X.tolist()]
    for samples in (X.tolist(), sparse):
        labels, probabilities = model.answer(samples, 2)
        assert labels == expected.labels.tolist()
        np.testing.assert_allclose(probabilities, expected.scores, rtol=1e-6)
    assert np.mean(expected.labels[:, 0] == y) > 0.9


@pytest.mark.parametrize(
    "samples, match",
    [
        (["a", [1.0]], "of one kind"),
        ([[1.0], [1.0, 2.0]], "takes rows of 3 numbers, and row 0 has 1"),
        ([[1.0] * 3, [1.0] * 3, [], [1.0]], "takes rows of 3 numbers, and row 2 has 0"),
        ([([3], [1.0])], "from 0 to 2"),
        ([([-1], [1.0])], "from 0 to 2"),
        ([([10**25], [1.0])], "from 0 to 2"),
        ([([1, 2], [1.0]), ([1], [1.0, 2.0])], "as many values as columns"),
    ],
)
def test_samples_that_are_none_are_refused(samples, match):
    with pytest.raises(ValueError, match=match):
        service.as_input(samples, 3)


def test_rows_of_a_table_become_columns():
    rows = [{"title": "a", "body": "b"}, {"body": "d", "title": "c"}]
    columns = {"title": ["a", "c"], "body": ["b", "d"]}
    assert service.as_input(rows, None, ["title", "body"]) == columns
    with pytest.raises(ValueError, match="takes texts, or objects with the columns"):
        service.as_input([[1.0]], None, ["title"])
    with pytest.raises(ValueError, match="takes rows of numbers"):
        service.as_input([{"title": "a"}], 3)


def test_sparse_rows_for_a_model_of_texts_are_refused():
    with pytest.raises(ValueError, match="takes texts"):
        service.as_input([([1], [1.0])], None)


def test_a_new_file_is_read_and_a_broken_one_is_not(path, text_model):
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
    assert file.refresh() is False
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


def test_a_file_without_a_classifier_changes_nothing(path, text_model):
    file = service.ModelFile(path)
    save(text_model[0], path)
    assert file.refresh() is False
    assert file.error.endswith("holds a TfidfVectorizer, which predicts no labels")
    assert file.model.answer(["salt water"], 1)[0] == [["water"]]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["x.joblib", "x.skops"])
def test_what_is_no_ordinary_file_is_refused_at_once(name, tmp_path):
    path = tmp_path / name
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/null")):
        make(path)
        with pytest.raises(ValueError, match=f"cannot read .*{name}: it is no ordinary file"):
            service.read_model(path)
        (os.rmdir if path.is_dir() else os.unlink)(path)


@pytest.mark.slow
def test_a_model_that_was_replaced_is_freed(path, text_model, monkeypatch):
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
    assert [found() is None for found in loaded] == [True, False]


def test_replaced_models_with_cycles_are_freed(path):
    class Cycle:
        def __init__(self, path):
            self.itself = self
            models.append(weakref.ref(self))

    models = []
    file = service.ModelFile(path, Cycle)
    gc.disable()  # of itself it comes after dozens of models
    try:
        for second in range(5):
            os.utime(path, (second, second))
            assert file.refresh() is True
        assert sum(found() is not None for found in models) <= 2
    finally:
        gc.enable()
