"""Answer single requests in batches; reload the model when its file changes.

Nothing here knows of HTTP: `app.py` does.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp

import sklearn_xlc
from sklearn_xlc._files import check_ordinary
from sklearn_xlc.serving.answering import Answering

#: Best labels and their probabilities, of all samples: as many of each as were asked for.
Answers = tuple[Sequence[Sequence[Any]], Sequence[Sequence[float]]]
_LOG = logging.getLogger("uvicorn.error")


# --- models ------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A model and its name.

    Attributes
    ----------
    answer : callable
        ``answer(samples, k)`` returns the best labels of samples, and their probabilities.
    version : str
        Name of the model, for ``/health``.
    label_sets : callable or None
        ``label_sets(samples)`` returns the predicted labels of samples.
    explain : callable or None
        ``explain(samples, k, n_words, n_examples)`` returns explanations, as of
        :meth:`Answering.explain`.
    """

    answer: Callable[[list, int], Answers]
    version: str
    label_sets: Callable[[list], list] | None = None
    explain: Callable[[list, int, int, int | None], list] | None = None


def read_model(path: str | os.PathLike[str]) -> Model:
    """Load a file of ``sklearn_xlc.save``, or map one of joblib to share weights among workers.

    joblib runs code of the file: give it your own files only.

    Parameters
    ----------
    path : str or path-like
        File of an estimator with labels. One of joblib ends in ".joblib".

    Returns
    -------
    Model
        Functions to answer.

    Raises
    ------
    ValueError
        If the file cannot be read, or holds no classifier.
    OSError
        If there is no such file.
    """
    check_ordinary(path)
    is_mapped = os.fspath(path).endswith(".joblib")
    estimator = joblib.load(path, mmap_mode="r") if is_mapped else sklearn_xlc.load(path)
    answering = Answering(estimator, path)
    version = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
    n_columns = getattr(estimator, "n_features_in_", None)  # None: it takes text
    names = answering.column_names()
    return Model(
        lambda samples, k: answering.topk(as_input(samples, n_columns, names), k),
        version,
        lambda samples: answering.label_sets(as_input(samples, n_columns, names)),
        lambda samples, *limits: answering.explain(as_input(samples, n_columns, names), *limits),
    )


def as_input(samples: list, n_columns: int | None, columns: Sequence[str] = ()) -> Any:
    """Make X of samples.

    Parameters
    ----------
    samples : list
        Texts, dicts of texts by column, lists of numbers, or pairs (columns, values) of sparse
        rows.
    n_columns : int or None
        Width of X; None: the model takes texts.
    columns : sequence of str, default=()
        Columns of tables that the model takes beside texts.

    Returns
    -------
    list, dict, ndarray or CSR matrix
        Texts, a table, or rows.

    Raises
    ------
    ValueError
        If samples are not of one kind, or of none that the model takes.
    """
    kinds = {type(sample) for sample in samples}
    if len(kinds) > 1:
        raise ValueError("all samples must be of one kind")
    if kinds == {str}:
        return samples
    if kinds == {dict} and columns:
        wrong = next((each for each in samples if each.keys() != set(columns)), None)
        if wrong is not None:
            raise ValueError(f"a sample has the columns {list(columns)}, got {list(wrong)}")
        return {name: [sample[name] for sample in samples] for name in columns}
    if n_columns is None:
        also = f", or objects with the columns {list(columns)}" if columns else ""
        raise ValueError(f"this model takes texts{also}")
    if kinds == {dict}:
        raise ValueError("this model takes rows of numbers")
    if kinds == {list}:
        lengths = list(map(len, samples))
        if len(set(lengths)) > 1:
            wrong = next(row for row, length in enumerate(lengths) if length != n_columns)
            raise ValueError(
                f"this model takes rows of {n_columns} numbers, and row {wrong} has "
                f"{lengths[wrong]}"
            )
        return np.asarray(samples, dtype=np.float64)  # float32 would blur seconds since 1970
    sizes = [len(columns) for columns, _ in samples]
    if sizes != [len(values) for _, values in samples]:
        raise ValueError("a sparse row has as many values as columns")
    named = [column for columns, _ in samples for column in columns]
    if named and not 0 <= min(named) <= max(named) < n_columns:
        raise ValueError(f"columns of a sparse row must be from 0 to {n_columns - 1}")
    indices = np.asarray(named, dtype=np.int64)
    values = np.concatenate([np.asarray(values, dtype=np.float64) for _, values in samples])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_matrix((values, indices, starts), shape=(len(samples), n_columns))


class ModelFile:
    """The model of a file; the file may be replaced at any time.

    A new file that cannot be read changes nothing, but `error` says so.

    Parameters
    ----------
    path : str or path-like
        File of the model.
    read : callable, default=None
        Makes a :class:`Model` of the file. None: :func:`read_model`.
    """

    def __init__(
        self, path: str | os.PathLike[str], read: Callable[[Any], Model] | None = None
    ) -> None:
        self.path, self.read = path, read or read_model
        self._seen: tuple[int, ...] = self._state()
        self.model = self.read(path)
        self.loaded = time.time()
        self.error: str | None = None

    def refresh(self) -> bool | None:
        """Read the file again if it has changed.

        Returns
        -------
        bool or None
            Whether that worked; None if it has not changed.
        """
        try:
            state = self._state()
        except OSError as error:
            is_known, self.error, self._seen = not self._seen, str(error), ()  # what comes is new
            return None if is_known else False
        if state == self._seen:
            return None
        self._seen = state
        gc.collect()  # earlier models with cycles, as a user's parts may have; quick after `tidy`
        try:
            # One assignment: a prediction sees the old model or the new one.
            self.model = self.read(self.path)
        except Exception as error:  # whatever is wrong with the file, the old model is not
            self.error = str(error)
            _LOG.error("the old model stays: %s", error)
            return False
        self.loaded, self.error = time.time(), None
        return True

    def _state(self) -> tuple[int, ...]:
        found = os.stat(self.path)
        return found.st_ino, found.st_size, found.st_mtime_ns


def tidy() -> None:
    """Exempt all objects from garbage collection.

    Otherwise it goes through those of torch now and then: a pause of a quarter of a second. Models
    that come later have few, and are freed when the last answer of theirs is out.
    """
    gc.collect()
    gc.freeze()


# --- batches -----------------------------------------------------------------------------------


class Busy(Exception):
    """Raised if too many requests wait."""


class _Request(NamedTuple):
    samples: list
    k: int
    answers: asyncio.Future


class Batcher:
    """Predictions of many small requests at a time, in one thread.

    While the model is busy, requests wait; when it is free, it gets all of them. So a lone request
    waits for nobody, and batches grow with the load.

    Parameters
    ----------
    predict : callable
        ``predict(samples, k)`` returns the labels and probabilities of a list of samples.
    max_rows : int, default=256
        Samples of a batch, unless a single request has more.
    max_wait : float, default=0.0
        Seconds that a batch with less than `max_rows` samples waits for more.
    max_waiting : int, default=1024
        Requests that wait, before others are refused by :class:`Busy`.
    """

    def __init__(
        self,
        predict: Callable[[list, int], Answers],
        max_rows: int = 256,
        max_wait: float = 0.0,
        max_waiting: int = 1024,
    ) -> None:
        self.predict, self.max_rows, self.max_wait = predict, max_rows, max_wait
        self.max_waiting, self._n_alone = max_waiting, 0
        self._waiting: asyncio.Queue[_Request] = asyncio.Queue(max_waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._turn = asyncio.Lock()

    async def ask(self, samples: list, k: int) -> Answers:
        """Labels and probabilities of samples, when their turn has come."""
        request = _Request(samples, k, asyncio.get_running_loop().create_future())
        try:
            self._waiting.put_nowait(request)
        except asyncio.QueueFull:
            raise Busy(f"{self._waiting.qsize()} requests wait already") from None
        return await request.answers

    async def alone(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the thread of the predictions, when its turn has come.

        A batch that waits comes after one such call, however many there are.
        """
        if self._n_alone >= self.max_waiting:
            raise Busy(f"{self._n_alone} requests wait already")
        self._n_alone += 1
        try:
            async with self._turn:
                work = self._thread.submit(function, *args)
                try:
                    return await asyncio.wrap_future(work)
                finally:  # a call goes on after its client has left, and so does its turn
                    if work.running():
                        await asyncio.gather(asyncio.wrap_future(work), return_exceptions=True)
        finally:
            self._n_alone -= 1

    async def run(self) -> None:
        """Answer requests until cancelled."""
        held = None
        try:
            while True:
                batch, held = await self._collect(held)
                await self._answer(batch)
        finally:
            self._thread.shutdown(wait=False)

    async def _collect(self, first: _Request | None) -> tuple[list[_Request], _Request | None]:
        """Return a batch, and the request too large for it."""
        batch = [first or await self._waiting.get()]
        n_rows = len(batch[0].samples)
        end = time.monotonic() + self.max_wait
        while n_rows < self.max_rows:
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    request = await self._waiting.get()
            except TimeoutError:
                break
            n_rows += len(request.samples)
            if n_rows > self.max_rows:
                return batch, request
            batch.append(request)
        return batch, None

    async def _answer(self, batch: list[_Request]) -> None:
        batch = [request for request in batch if not request.answers.done()]  # nobody listens
        if not batch:
            return
        samples = [sample for request in batch for sample in request.samples]
        k = max(request.k for request in batch)
        loop = asyncio.get_running_loop()
        try:
            labels, scores = await loop.run_in_executor(self._thread, self.predict, samples, k)
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0], error=error)
            else:  # only the one that is to blame fails
                middle = len(batch) // 2
                await self._answer(batch[:middle])
                await self._answer(batch[middle:])
            return
        start = 0
        for request in batch:
            rows = slice(start, start := start + len(request.samples))
            of_request = [[row[: request.k] for row in part[rows]] for part in (labels, scores)]
            _settle(request, (of_request[0], of_request[1]))


def _settle(request: _Request, answers: Any = None, error: Exception | None = None) -> None:
    if request.answers.done():
        return
    if error is None:
        request.answers.set_result(answers)
    else:
        request.answers.set_exception(error)
