"""A model of sklearn_xlc over HTTP.

    XLC_MODEL=model.skops uvicorn app:create_app --factory --app-dir examples/serving

`docs/serving.md` has the variables and the requests.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import prometheus_client
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import Counter, Histogram, multiprocess
from pydantic import BaseModel, Field
from service import Batcher, Busy, Model, ModelFile, read_model, tidy

REQUESTS = Counter("xlc_requests", "Requests for predictions.", ["status"])
SECONDS = Histogram(
    "xlc_request_seconds",
    "Seconds from the arrival of a request to its answer.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
BATCH_ROWS = Histogram(
    "xlc_batch_rows", "Samples of a prediction.", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
)
LOADS = Counter("xlc_model_loads", "Models read, or refused.", ["result"])


class SparseRow(BaseModel):
    """The entries of a row that are not zero."""

    columns: list[int]
    values: list[float]


class Samples(BaseModel):
    """Samples of one kind, as the model takes them, and how many labels of each to name."""

    samples: Annotated[
        list[str] | list[SparseRow] | list[list[float]], Field(min_length=1, max_length=1000)
    ]
    k: Annotated[int, Field(ge=1, le=100)] = 5


class Answer(BaseModel):
    """The best labels of each sample, best first, and the probabilities of these."""

    labels: list[list[Any]]
    probabilities: list[list[float]]


class Health(BaseModel):
    """Which model answers, and what is wrong with the file if it is not the file's."""

    status: str
    model: str
    loaded: float
    error: str | None


def create_app(
    path: str | os.PathLike[str] | None = None, read: Callable[[Any], Model] = read_model
) -> FastAPI:
    """Make the application, with the settings of the environment.

    Parameters
    ----------
    path : str or path-like, default=None
        File of the model. None: that of the variable ``XLC_MODEL``.
    read : callable, default=read_model
        Makes a model of a file.
    """
    file = ModelFile(path or os.environ["XLC_MODEL"], read)

    def predict(samples: list, k: int) -> Any:
        BATCH_ROWS.observe(len(samples))
        return file.model.answer(samples, k)

    batcher = Batcher(
        predict,
        max_rows=int(os.environ.get("XLC_MAX_ROWS", "256")),
        max_wait=float(os.environ.get("XLC_MAX_WAIT_MS", "0")) / 1e3,
    )
    app = FastAPI(title="sklearn_xlc", lifespan=_lifespan(file, batcher))

    @app.post("/predict")
    async def predictions(request: Samples) -> Answer:
        samples = [
            (sample.columns, sample.values) if isinstance(sample, SparseRow) else sample
            for sample in request.samples
        ]
        try:
            labels, probabilities = await batcher.ask(samples, request.k)
        except (ValueError, TypeError) as error:
            raise HTTPException(422, str(error)) from error
        except Busy as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from error
        return Answer.model_construct(labels=labels, probabilities=probabilities)

    @app.get("/health")
    async def health() -> Health:
        status = "ok" if file.error is None else "old model"
        version = file.model.version
        return Health(status=status, model=version, loaded=file.loaded, error=file.error)

    @app.get("/metrics")
    def metrics() -> Response:
        registry = prometheus_client.REGISTRY
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # those of all workers
            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    app.add_middleware(Measured)
    return app


class Measured:
    """Counts and times requests for predictions, those that are refused included."""

    def __init__(self, app: Callable) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http" or scope["path"] != "/predict":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def note(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, note)
        finally:
            SECONDS.observe(time.perf_counter() - start)
            REQUESTS.labels(str(status)).inc()


def _lifespan(file: ModelFile, batcher: Batcher) -> Callable[[FastAPI], Any]:
    """Context of the application: batches are answered, and the file is watched."""
    interval = float(os.environ.get("XLC_WATCH_SECONDS", "1"))

    async def watch() -> None:
        while True:
            await asyncio.sleep(interval)
            worked = await asyncio.to_thread(file.refresh)
            if worked is not None:
                LOADS.labels("read" if worked else "refused").inc()
            if worked:
                await asyncio.sleep(interval)  # the last answers of the old model are out
                tidy()

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> Any:
        tasks = [asyncio.create_task(work()) for work in (batcher.run, watch)]
        LOADS.labels("read").inc()
        tidy()
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    return running
