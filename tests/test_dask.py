"""Searches, EAGLE and bulk prediction by worker processes of a real cluster of dask."""

import logging
import os
import signal
import threading
import time
from concurrent.futures import CancelledError

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from skorch.callbacks import Callback

from sklearn_xlc import (
    AggregatedLabelClassifier,
    EAGLETransformer,
    MultiHeadClassifier,
    predict_topk,
    save,
)
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.inspection import topk as partitions
from sklearn_xlc.metrics import topk_scorer

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
#: Processes and sockets that dask closes late.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

#: Bytes of heartbeats, and of what tasks have beside their data.
SMALL = 10**5
CLASSIFIER = MultiHeadClassifier("flat", encoder=MLP(8), ranker=None, max_epochs=2, random_state=0)
EAGLE = EAGLETransformer(random_state=0, n_components=20)


@pytest.fixture(scope="module", autouse=True)
def environment():
    """Dask sets variables of threads in this process, too, for the processes that it starts."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def start_cluster(n_workers=2):
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )


TWO_WORKERS = pytest.param(2, marks=pytest.mark.slow)
#: Joblib sends nothing to a single worker of a single thread.
by_two_workers = pytest.mark.parametrize("client", [TWO_WORKERS], indirect=True)


@pytest.fixture(scope="module", params=[1, TWO_WORKERS])
def client(request):
    """Client of a cluster; by default of one worker, as each takes seconds to import torch."""
    with start_cluster(request.param) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def problem():
    X, Y = make_extreme_multilabel(2000, 400, 50, random_state=0)
    X = sp.csr_matrix(X.toarray() + np.float32(1e-3))  # large, as dask must not send it often
    return X, sp.csr_matrix(Y), *make_aggregated(Y, group_size=5, random_state=0)


@pytest.fixture
def sent(monkeypatch):
    """Numbers of bytes that this process, of client and scheduler, sends."""
    from distributed.comm.tcp import TCP

    sizes, write = [], TCP.write

    async def counted(*args, **options):
        size = await write(*args, **options)
        sizes.append(size)
        return size

    monkeypatch.setattr(TCP, "write", counted)
    return sizes


def n_bytes(*matrices):
    return sum(each.data.nbytes + each.indices.nbytes + each.indptr.nbytes for each in matrices)


# --- searches ----------------------------------------------------------------------------------


def search(n_values=4):
    grid = {"learning_rate": np.geomspace(1e-2, 0.3, n_values).tolist()}
    scorer = topk_scorer("precision", k=3)
    return GridSearchCV(CLASSIFIER, grid, scoring=scorer, cv=2, refit=False, error_score="raise")


def test_a_search_sends_its_data_once(client, problem, sent):
    X, Y, *_ = problem
    expected = search().fit(X, Y).cv_results_["mean_test_score"]
    assert len(set(expected)) == 4, expected
    with joblib.parallel_config("dask", scatter=[X, Y]):
        found = search().fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)
    # Eight tasks; once from here, and perhaps once through the scheduler, to each worker.
    assert n_bytes(X, Y) < sum(sent) < 4.5 * n_bytes(X, Y)


# --- learning from groups ----------------------------------------------------------------------


def assert_same_eagle(found, expected, X, y, groups):
    for name in ("sums", "weights", "low_rank"):
        left, right = (getattr(each._embeddings, name) for each in (found, expected))
        left, right = (each.toarray() if sp.issparse(each) else each for each in (left, right))
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(found.sharing_rates_, expected.sharing_rates_)
    assigned = [each.assign(X, y, groups) for each in (found, expected)]
    assert (assigned[0] != assigned[1]).nnz == 0


@by_two_workers
def test_blocks_of_labels_go_to_the_workers(client, problem, sent):
    X, _, y, groups = problem
    expected = clone(EAGLE).fit(X, y, groups)
    assert sum(sent) < SMALL
    with joblib.parallel_config("dask"), config_context(working_memory=1):
        found = clone(EAGLE).set_params(n_jobs=2).fit(X, y, groups)
        # Samples and labels for each of three calls, however many blocks, to each of two workers.
        assert n_bytes(X) < sum(sent) < 3 * 4.5 * n_bytes(X)
        assert_same_eagle(found, expected, X, y, groups)
    serial = clone(EAGLE).set_params(n_jobs=1)
    sent.clear()
    with joblib.parallel_config("dask"):
        serial.fit(X, y, groups)
    assert sum(sent) < SMALL


@by_two_workers
def test_folds_go_to_the_workers(client, problem, sent):
    X, _, y, groups = problem
    clf = AggregatedLabelClassifier(CLASSIFIER, EAGLE, n_rounds=2, n_folds=4, n_jobs=4)
    expected = clone(clf).set_params(n_jobs=1).fit(X, y, groups)
    with joblib.parallel_config("dask"):
        found = clone(clf).set_params(assigner__n_jobs=1).fit(X, y, groups)
    assert n_bytes(X) < sum(sent) < 4.5 * (n_bytes(X) + 2 * n_bytes(expected.posterior_))
    assert (found.posterior_ != expected.posterior_).nnz == 0
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))


@pytest.mark.slow
def test_fits_of_a_search_over_groups_stay_in_their_workers(client, problem, sent, routing):
    X, _, y, groups = (each[:500] for each in problem)
    clf = AggregatedLabelClassifier(CLASSIFIER, EAGLE, n_rounds=2).set_fit_request(groups=True)
    params = {"scoring": topk_scorer("precision", k=3), "cv": GroupKFold(2), "refit": False}
    grid = {"assigner__n_iter": [0, 2], "n_folds": [2, 3]}
    expected = GridSearchCV(clf, grid, **params).fit(X, y, groups=groups).cv_results_
    assert sum(sent) < SMALL
    with joblib.parallel_config("dask", scatter=[X, y]):
        found = GridSearchCV(clf, grid, **params).fit(X, y, groups=groups).cv_results_
    np.testing.assert_array_equal(found["mean_test_score"], expected["mean_test_score"])
    assert sum(sent) < 4.5 * n_bytes(X, y) + 8 * 2 * 4 * groups.nbytes + SMALL


# --- bulk prediction ---------------------------------------------------------------------------


@pytest.mark.slow
def test_partitions_are_ranked_by_the_workers(client, problem, tmp_path, ten_trees):
    da = pytest.importorskip("dask.array")
    X, Y = (array[:1000] for array in problem[:2])
    model = clone(CLASSIFIER).set_params(ranker="boosted").fit(X, Y)
    save(model, tmp_path / "model.skops", exact=True)
    expected = [predict_topk(model, X[i : i + 250], 3) for i in range(0, 1000, 250)]
    labels, scores = (np.concatenate(parts) for parts in zip(*expected))
    samples = da.from_array(X.toarray(), chunks=(250, -1))
    for given in (tmp_path / "model.skops", model):
        for each in (samples, samples.map_blocks(sp.csr_matrix)):
            found = predict_topk(given, each, 3).compute()
            np.testing.assert_array_equal(found.labels, labels)
            np.testing.assert_allclose(found.scores, scores, rtol=1e-5)
    # Each worker has the file open once, and keeps it.
    kept = client.run(lambda: partitions._loaded.cache_info())
    assert [info.misses for info in kept.values()] == [1] * len(kept)
    assert sum(info.hits for info in kept.values()) == 2 * 4 - len(kept)


# --- a worker that dies ------------------------------------------------------------------------


@pytest.fixture
def dying():
    """Client of a cluster, one of whose workers is killed as soon as both have tasks."""
    with start_cluster() as cluster, distributed.Client(cluster) as client:
        client.run(lambda: partitions)  # loads torch
        victim, *_ = client.run(os.getpid).values()
        killed = threading.Event()

        def kill():
            while not killed.is_set():
                time.sleep(0.01)
                if len(client.processing()) and all(client.processing().values()):
                    time.sleep(0.1)
                    os.kill(victim, signal.SIGKILL)
                    killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        yield client
        was_killed = killed.is_set()
        killed.set()
        thread.join()
        assert was_killed


def slow_part(block):
    time.sleep(0.2)
    return block


@pytest.mark.slow
def test_a_search_ends_rightly_when_a_worker_is_killed(problem, dying):
    X, Y, *_ = problem
    expected = search(16).fit(X, Y).cv_results_["mean_test_score"]
    dying.amm.stop()  # it would drop copies of the data between two fits
    with joblib.parallel_config("dask", scatter=[X, Y]):
        found = search(16).fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_eagle_ends_rightly_when_a_worker_is_killed(dying):
    X, Y = make_extreme_multilabel(30_000, 500, 400, n_labels_per_row=8, random_state=0)
    y, groups = make_aggregated(Y, group_size=10, random_state=0)
    X = X.toarray()
    expected = clone(EAGLE).fit(X, y, groups)
    with joblib.parallel_config("dask"):
        found = clone(EAGLE).set_params(n_jobs=2).fit(X, y, groups)
    assert_same_eagle(found, expected, X, y, groups)


@pytest.mark.slow
def test_bulk_prediction_ends_rightly_when_a_worker_is_killed(problem, dying, tmp_path):
    da = pytest.importorskip("dask.array")
    X, Y, *_ = problem
    model = clone(CLASSIFIER).fit(X, Y)
    save(model, tmp_path / "model.skops", exact=True)
    samples = da.from_array(X.toarray(), chunks=(50, -1)).map_blocks(slow_part)
    found = predict_topk(tmp_path / "model.skops", samples, 3).compute()
    np.testing.assert_array_equal(found.labels, predict_topk(model, X, 3).labels)


@pytest.mark.slow
def test_a_fit_that_kills_its_workers_is_named(problem):
    class Deadly(Callback):
        def on_epoch_end(self, net, **kwargs):
            os.kill(os.getpid(), signal.SIGKILL)

    X, Y, *_ = problem
    killing = search().set_params(estimator__callbacks=[Deadly()])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        start_cluster() as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask", scatter=[X, Y]),
        pytest.raises((distributed.KilledWorker, CancelledError), match="_fit_and_score"),
    ):
        killing.fit(X, Y)
