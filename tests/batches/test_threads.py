"""Threads: little work takes one, parts are computed side by side, and forks take one."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import Callback
from threadpoolctl import threadpool_limits
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import GLOBAL_LOCK, one_thread_of_blas, threads
from sklearn_xlc.batches.threads import ONE_THREAD, Threads, threads_for
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Flat

# --- threads for little work --------------------------------------------------------------------


def test_little_work_has_one_thread_for_the_moment(two_threads):
    def fail():
        with threads_for(threads.MANY - 1):
            assert torch.get_num_threads() == 1
            with threads_for(0):
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert torch.get_num_threads() == 2
    with threads_for(threads.MANY):
        assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with threads_for(0):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 1


def test_a_thread_that_starts_meanwhile_has_the_number_of_the_caller(two_threads):
    seen = []

    def compute():
        for work in (threads.MANY, 0, threads.MANY):
            with threads_for(work):
                seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    with threads_for(0):
        for _ in range(2):
            thread = threading.Thread(target=compute)
            thread.start()
            thread.join()
        assert torch.get_num_threads() == 1
    assert seen == 2 * [2, 1, 2, 2]
    assert torch.get_num_threads() == 2


class Witness(nn.Module):
    """Keeps the number of threads with which it computes."""

    n_outputs = 5
    seen: list = []

    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 5)

    def forward(self, rows):
        self.seen.append(torch.get_num_threads())
        if len(self.seen) > 20:
            raise RuntimeError("no more")
        return self.layer(rows)


@pytest.mark.parametrize("many, expected", [(threads.MANY, 1), (0, 2)])
def test_steps_and_predictions_decide_by_their_work(monkeypatch, two_threads, many, expected):
    monkeypatch.setattr(threads, "MANY", many)
    monkeypatch.setattr(Witness, "seen", [])
    X, y = np.eye(5, dtype=np.float32), np.arange(5)
    clf = MultiHeadClassifier("flat", encoder=Witness, max_epochs=2).fit(X, y)
    for predict in (clf.predict, clf.predict_topk, clf.predict_proba, clf.transform):
        predict(X)
    assert set(Witness.seen[-6:]) == {expected}
    with pytest.raises(ValueError, match="no more"):
        clf.set_params(max_epochs=30).fit(X, y)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("many, expected", [(threads.MANY, 1), (0, 2)])
def test_batches_are_cut_on_as_many_threads_as_steps_take(monkeypatch, two_threads, many, expected):
    seen = []

    class Seen(Callback):
        def on_batch_begin(self, net, **kwargs):  # between two cuts
            seen.append(torch.get_num_threads())

    monkeypatch.setattr(threads, "MANY", many)
    X, y = np.eye(5, dtype=np.float32), np.arange(5)
    MultiHeadClassifier("flat", max_epochs=2, callbacks=[Seen()]).fit(X, y)
    assert set(seen) == {expected}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n_negatives, expected", [(None, 2), (5, 1)])
def test_labels_that_are_not_drawn_are_no_work(monkeypatch, two_threads, n_negatives, expected):
    n_labels, seen = 2000, []

    class Seen(Callback):
        def on_batch_begin(self, net, **kwargs):
            seen.append(torch.get_num_threads())

    X, y = np.eye(8, dtype=np.float32)[:, :4], np.arange(8)
    encoder, head = MLP((4,)), Flat(n_negatives=n_negatives)
    monkeypatch.setattr(threads, "MANY", 8 * 4 * n_labels)
    clf = MultiHeadClassifier(head, encoder=encoder, max_epochs=2, batch_size=8, callbacks=[Seen()])
    Y = sp.csr_matrix((np.ones(8), y, np.arange(9)), (8, n_labels))
    clf.fit(X, Y)
    assert set(seen) == {expected}


# --- side by side -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_results_come_in_the_order_of_the_parts(n):
    started, lock, running, most = [], threading.Lock(), set(), []

    def compute(part):
        with lock:
            started.append(part)
            running.add(part)
            most.append(len(running))
        result = torch.full((100,), part).sum() / 100
        with lock:
            running.discard(part)
        return int(result), torch.get_num_threads()

    parts = iter(range(20))
    results = Threads(n).map(compute, parts)
    assert next(results)[0] == 0
    assert max(started) < n + 1  # no more parts are in memory than there are threads
    found = [0, *(part for part, _ in results)]
    assert found == list(range(20))
    assert sorted(started) == found
    assert max(most) <= n


def test_threads_beside_have_one_thread_of_torch_and_leave_the_callers(two_threads):
    def seen(_):
        with threads_for(threads.MANY):
            return torch.get_num_threads()

    assert list(Threads(2).map(seen, range(4))) == [1, 1, 1, 1]
    assert torch.get_num_threads() == 2
    of_new = []
    thread = threading.Thread(target=lambda: of_new.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert of_new == [2]


def test_first_threads_of_a_process_have_one_thread_of_torch():
    code = """
import torch
torch.set_num_threads(2)
from sklearn_xlc.batches.threads import Threads, beside
print(list(Threads(2).map(lambda _: torch.get_num_threads(), range(4))))
with beside(torch.get_num_threads, lambda: None) as other:
    print([other(), torch.get_num_threads()])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[1, 1, 1, 1]", "[1, 2]"]


def test_a_part_that_fails_raises_in_its_turn_and_nothing_goes_on(two_threads):
    done, go_on = [], threading.Event()

    def compute(part):
        if part == 1:
            raise ValueError("part 1")
        if part == 2:
            go_on.wait(10)
        done.append(part)
        return part

    def consume():
        for part in Threads(2).map(compute, range(50)):
            found.append(part)
            go_on.set()

    found = []
    with pytest.raises(ValueError, match="part 1"):
        consume()
    n_done = len(done)
    assert found == [0]
    assert list(Threads(2).map(abs, [-1])) == [1]
    assert len(done) == n_done <= 3


def test_each_thread_has_enough_work(monkeypatch, two_threads):
    assert Threads.for_work(2 * threads.ENOUGH - 1).n == 1
    assert Threads.for_work(2 * threads.ENOUGH).n == 2
    assert Threads.for_work(100 * threads.ENOUGH).n == 2
    monkeypatch.setattr(threads, "usual_threads", lambda: 16)
    assert Threads.for_work(3 * threads.ENOUGH).n == 3
    monkeypatch.undo()
    with threads_for(0):  # within a step all is on one thread
        assert Threads.for_work(2 * threads.ENOUGH).n == 1
    assert ONE_THREAD.n == 1


@pytest.fixture
def of_blas():
    """Numbers of threads of NumPy's libraries, two before and after a test."""
    controller = threads._Blas.libraries()
    if not controller.lib_controllers:
        pytest.skip("no library of linear algebra is known")

    def limits():
        return {library["num_threads"] for library in controller.info()}

    with controller.limit(limits=2):
        if limits() != {2}:
            pytest.skip("the library has one thread")
    before = controller.limit(limits=2)
    threads._Blas.give_back()
    yield limits
    before.restore_original_limits()
    threads._Blas.give_back()


def test_numpy_multiplies_on_one_thread_while_anybody_asks_for_it(of_blas):
    def enter():
        with one_thread_of_blas():
            held.set()
            left.wait(30)

    held, left = threading.Event(), threading.Event()
    entered = threading.Thread(target=enter)
    with GLOBAL_LOCK:  # held by a step of training in another thread
        entered.start()
        assert held.wait(30)
    with one_thread_of_blas():
        assert of_blas() == {1}
    assert of_blas() == {1}  # the other thread still asks
    left.set()
    entered.join()
    assert of_blas() == {2}


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(30)
    return found[0]


def test_the_last_thread_restores_the_limit_of_blas(of_blas):
    held, left = threading.Event(), threading.Event()

    def enter():
        with one_thread_of_blas():
            held.set()
            left.wait(30)

    later = threading.Thread(target=enter)
    with one_thread_of_blas():
        later.start()
        assert held.wait(30)
    assert of_blas() == {1}  # the first one left first
    left.set()
    later.join()
    assert of_blas() == {2}


def test_limits_of_other_threads_work_after_ours(of_blas):
    def ours():
        with one_thread_of_blas():
            return of_blas()

    def theirs():
        with threadpool_limits(1):
            return of_blas()

    assert ours() == {1}
    assert in_a_thread(ours) == in_a_thread(theirs) == {1}
    assert of_blas() == {2}


def test_a_limit_that_ends_within_ours_does_not_stay(of_blas):
    """Ours began under the limit of another thread, and would restore that one."""
    entered, left = threading.Event(), threading.Event()

    def theirs():
        with threadpool_limits(1):
            entered.set()
            left.wait(30)

    other = threading.Thread(target=theirs)
    other.start()
    assert entered.wait(30)
    with one_thread_of_blas():
        left.set()
        other.join()
        theirs_ended = of_blas()
    assert of_blas() == theirs_ended == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_begins_without_the_limits_of_its_parents_threads(of_blas):
    threads.one_thread_after_fork()
    with one_thread_of_blas():
        child = os.fork()
        if not child:
            os._exit(threads._Blas.n_callers)
    assert os.waitpid(child, 0)[1] == 0


# --- threads after a fork -----------------------------------------------------------------------

FORK = """
import multiprocessing, os, signal
import numpy as np
import torch
from threadpoolctl import threadpool_limits
from sklearn_xlc import EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k

X, Y = make_extreme_multilabel(300, 60, 500, random_state=0)
grouped, groups = make_aggregated(Y, group_size=4, random_state=0)

def fit():
    return MultiHeadClassifier(encoder=MLP(256), max_epochs=2, random_state=0).fit(X, Y)

def work(_=None):
    scores = clf.decision_function(X)
    np.testing.assert_allclose(fit().decision_function(X), scores, rtol=1e-6, atol=1e-6)
    eagle = EAGLETransformer(contrast=None, n_iter=0, random_state=0).fit(X, grouped, groups)
    return torch.get_num_threads(), precision_at_k(Y, scores, k=3), eagle.label_embeddings_.sum()

clf = fit()
before = work()
child = os.fork()
if not child:
    signal.alarm(60)
    after = work()
    np.testing.assert_allclose(after[1:], before[1:])
    os._exit(after[0])
_, status = os.waitpid(child, 0)
signal.alarm(60)
with multiprocessing.get_context("fork").Pool(1) as pool:
    threads = [result[0] for result in pool.map(work, range(1))]
print(before[0], os.waitstatus_to_exitcode(status), *threads, torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_with_one_thread():
    """With more, it waits forever for threads of its parent that it does not have."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.stdout.split() == ["2", "1", "1", "2"], done.stderr


@pytest.mark.parametrize("one_class", [False, True])
def test_fits_with_as_many_threads_are_equal_and_others_close(monkeypatch, two_threads, one_class):
    rng = np.random.default_rng(0)
    X = sp.random(700, 500, 0.02, "csr", dtype=np.float32, random_state=rng)
    y = rng.integers(0, 60, 700) if one_class else sp.random(700, 60, 0.05, "csr", random_state=rng)
    y = y if one_class else (y > 0).astype(int)
    params = {"precision": "float32", "max_epochs": 3, "random_state": 0}
    clf = MultiHeadClassifier("flat", ranker=None, **params)

    def scores(enough):
        monkeypatch.setattr(threads, "OF_STEP", enough)
        return clf.fit(X, y).decision_function(X)

    beside, alone = scores(1), scores(np.inf)
    np.testing.assert_array_equal(scores(1), beside)
    np.testing.assert_allclose(beside, alone, rtol=1e-3, atol=1e-3)
    assert (beside != alone).any() != one_class  # sums of two halves; a softmax takes one thread
    torch.set_num_threads(1)
    np.testing.assert_array_equal(scores(1), alone)
