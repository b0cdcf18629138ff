"""The application: requests and answers, health and metrics.

    XLC_MODEL=model.skops uvicorn sklearn_xlc.serving:create_app --factory

`docs/serving.md` has the variables and the requests.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import prometheus_client
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter, Histogram, multiprocess
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Tag,
    model_validator,
)
from typing_extensions import TypeAliasType

from sklearn_xlc.serving.service import Batcher, Busy, Model, ModelFile, tidy

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


#: Requests that the metrics count.
PATHS = ("/predict", "/label_sets", "/explain")


class Given(BaseModel):
    """Request of a client; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > 2 * len(cls.model_fields):
            raise ValueError(f"there are no other fields than {', '.join(cls.model_fields)}")
        return given


class SparseRow(Given):
    """Non-zero entries of a row."""

    columns: Annotated[list[int], FailFast()]
    values: Annotated[list[float], FailFast()]


def _kind(samples: Any) -> str | None:
    """Return the kind of samples by the first one, so that only one form is compared to them."""
    match samples:
        case [str(), *_]:
            return "texts"
        case [dict(first), *_]:
            return "sparse" if set(first) == _SPARSE else "columns"
        case [list(), *_]:
            return "rows"
    return None


_SPARSE = {"columns", "values"}
#: Of many samples that are wrong the first one is named.
_FIRST, _MANY = FailFast(), Field(min_length=1, max_length=1000)
Texts = TypeAliasType("Texts", Annotated[list[str], _FIRST, _MANY])
#: Columns and values, without their type.
Entries = Annotated[SparseRow, AfterValidator(lambda row: (row.columns, row.values))]
SparseRows = TypeAliasType("SparseRows", Annotated[list[Entries], _FIRST, _MANY])
Tables = TypeAliasType("Tables", Annotated[list[dict[str, str | None]], _FIRST, _MANY])
Rows = TypeAliasType("Rows", Annotated[list[Annotated[list[float], _FIRST]], _FIRST, _MANY])
#: Samples of one kind: texts, sparse rows, texts by column, or rows.
Samples = Annotated[
    Annotated[Texts, Tag("texts")]
    | Annotated[SparseRows, Tag("sparse")]
    | Annotated[Tables, Tag("columns")]
    | Annotated[Rows, Tag("rows")],
    Discriminator(
        _kind,
        custom_error_type="samples",
        custom_error_message="samples must be a list of texts, of objects, or of rows of numbers",
    ),
]


def _few(samples: list) -> list:
    """Return the samples of a request for explanations, which take a hundred times as long."""
    if len(samples) > 20:
        raise ValueError("samples must be at most 20")
    return samples


class ToPredict(Given):
    """Samples of one kind, as the model takes them."""

    samples: Samples


class ToRank(ToPredict):
    """Samples, and how many labels of each to name."""

    k: Annotated[int, Field(ge=1, le=100)] = 5


class ToExplain(ToPredict):
    """Samples, and how many labels, words and training samples to name."""

    samples: Annotated[Samples, AfterValidator(_few)]
    k: Annotated[int, Field(ge=1, le=20)] = 3
    words: Annotated[int, Field(ge=1, le=100)] = 10
    #: None: three, if the model remembers training samples.
    examples: Annotated[int, Field(ge=0, le=20)] | None = None


class LabelSets(BaseModel):
    """The predicted labels of each sample; of a model of classes, one."""

    labels: list[list[Any]]


class Explanations(BaseModel):
    """The best labels of each sample, with the words and training samples behind them."""

    explanations: list[list[dict[str, Any]]]


class Answer(BaseModel):
    """The best labels of each sample, best first, and the probabilities of these."""

    labels: list[list[Any]]
    probabilities: list[list[float]]


class Health(BaseModel):
    """Name of the model in use, and the error of a newer file."""

    status: str
    model: str
    loaded: float
    error: str | None


def create_app(
    path: str | os.PathLike[str] | None = None, read: Callable[[Any], Model] | None = None
) -> FastAPI:
    """Make the application, with the settings of the environment."""
    path = path or os.environ.get("XLC_MODEL")
    if path is None:
        raise ValueError("there is no model: set XLC_MODEL to its file")
    file = ModelFile(path, read)

    def predict(samples: list, k: int) -> Any:
        BATCH_ROWS.observe(len(samples))
        return file.model.answer(samples, k)

    batcher = Batcher(
        predict,
        max_rows=_setting(int, "XLC_MAX_ROWS", 256, least=1),
        max_wait=_setting(float, "XLC_MAX_WAIT_MS", 0) / 1e3,
    )
    app = FastAPI(title="sklearn_xlc", lifespan=_lifespan(file, batcher))
    app.add_exception_handler(RequestValidationError, _refused)
    _add_predictions(app, file, batcher)

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

    app.add_middleware(Limited, max_bytes=_setting(int, "XLC_MAX_BYTES", 2**23))
    app.add_middleware(Measured)
    return app


def _setting(kind: type, name: str, default: float, least: float = 0) -> Any:
    """Return a number of the environment."""
    text = os.environ.get(name, str(default))
    with contextlib.suppress(ValueError):
        if least <= (value := kind(text)) < float("inf"):
            return value
    what = "a whole number" if kind is int else "a number"
    raise ValueError(f"{name} must be {what} of at least {least}, got {text!r}")


async def _refused(request: Any, error: Any) -> Response:
    """Answer a request that is no valid one by the reasons, without what it held."""
    said = [{key: each[key] for key in ("type", "loc", "msg")} for each in error.errors()[:5]]
    if "json" not in request.headers.get("content-type", ""):  # curl -d names another type
        message = "the header Content-Type must be application/json"
        said = [{"type": "content_type", "loc": ["header", "content-type"], "msg": message}]
    # A name of a field may be one that UTF-8 does not have.
    return Response(json.dumps({"detail": said}), 422, media_type="application/json")


def _add_predictions(app: FastAPI, file: ModelFile, batcher: Batcher) -> None:
    """Add the paths of predictions."""

    @app.post("/predict")
    async def predictions(request: ToRank, http: Request) -> Answer:
        with _refusing():
            asked = batcher.ask(request.samples, request.k)
            labels, probabilities = await _while_heard(http, asked)
        return Answer.model_construct(labels=labels, probabilities=probabilities)

    @app.post("/label_sets")
    async def label_sets(request: ToPredict, http: Request) -> LabelSets:
        with _refusing():
            function = _known(file.model.label_sets, "label sets")
            found = await _while_heard(http, batcher.alone(function, request.samples))
        return LabelSets.model_construct(labels=found)

    @app.post("/explain")
    async def explanations(request: ToExplain, http: Request) -> Explanations:
        with _refusing():
            function = _known(file.model.explain, "explanations")
            limits = request.k, request.words, request.examples
            found = await _while_heard(http, batcher.alone(function, request.samples, *limits))
        return Explanations.model_construct(explanations=found)


async def _while_heard(http: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of work, or cancel it when the client has gone."""
    answer, gone = asyncio.ensure_future(work), asyncio.ensure_future(http.receive())
    try:
        # After the body the next message is that the client has gone.
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise HTTPException(499, "the client has gone")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


def _known(function: Callable | None, what: str) -> Callable:
    if function is None:
        raise ValueError(f"this model has no {what}")
    return function


@contextlib.contextmanager
def _refusing() -> Any:
    """Answer errors of the model by 422, and too many requests by 503."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise HTTPException(422, str(error)) from error
    except Busy as error:
        raise HTTPException(503, str(error), {"Retry-After": "1"}) from error


class Limited:
    """Refuse bodies of more than a number of bytes, whatever their headers say."""

    def __init__(self, app: Callable, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        n_bytes = 0

        async def limited() -> Any:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.max_bytes:  # the framework answers by this status
                raise HTTPException(413, f"a request has at most {self.max_bytes} bytes")
            return message

        await self.app(scope, limited, send)


class Measured:
    """Count and time requests for predictions, including refused ones."""

    def __init__(self, app: Callable) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
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
    interval = _setting(float, "XLC_WATCH_SECONDS", 1, least=0.001)

    async def watch() -> None:
        while True:
            await asyncio.sleep(interval)
            worked = await asyncio.to_thread(file.refresh)
            if worked is not None:
                LOADS.labels("read" if worked else "refused").inc()

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
