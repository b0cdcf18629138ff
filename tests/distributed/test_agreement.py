"""What processes must have alike, told before they meet."""

import copy

import numpy as np
import pytest
from _distributed import in_threads

from _factories import make_learnable, quick
from sklearn_xlc import config_context
from sklearn_xlc.distributed.agreement import agreed_batch, check_labels
from sklearn_xlc.distributed.parts import share_out


def said_by_parts(monkeypatch, clf, predict):
    """What errors say in two processes that hold a model in parts, and its whole prediction."""

    def run(processes):
        own = copy.deepcopy(clf)
        share_out(own.net_.module_, processes)
        with pytest.raises(ValueError, match=r"distributed\.gather") as said:
            predict(own, processes.rank)
        return str(said.value)

    return in_threads(monkeypatch, 2, run)


@pytest.mark.parametrize("name", ["flat", "cascade", "sampling"])
@pytest.mark.parametrize(
    "method", ["predict", "predict_topk", "predict_topk_sparse", "decision_function"]
)
def test_own_rows_are_refused_where_the_model_is_in_parts(monkeypatch, name, method):
    X, y = make_learnable(name != "sampling")
    clf = quick(name, max_epochs=1).fit(X, y)
    for n_more, what in [(0, "digest of samples"), (3, "shape of X")]:
        said = said_by_parts(
            monkeypatch,
            clf,
            lambda own, rank, n_more=n_more: getattr(own, method)(
                X[20 * rank : 20 + (20 + n_more) * rank]
            ),
        )
        assert said[0] == said[1]
        assert f"but the {what} in process 1 is " in said[0]


def test_other_questions_are_refused_where_the_model_is_in_parts(monkeypatch):
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=1).fit(X, Y)
    said = said_by_parts(monkeypatch, clf, lambda own, rank: own.predict_topk(X, 3 + rank))
    assert "prediction in process 1 is the best 4 labels, proba=False, and in" in said[0]
    said = said_by_parts(
        monkeypatch, clf, lambda own, rank: own.predict_proba(X) if rank else own.predict_topk(X, 3)
    )
    assert "in process 1 is scores of all labels" in said[1]
    said = said_by_parts(monkeypatch, clf, lambda own, rank: own.predict_topk(X, 3, rank == 1))
    assert "proba=True" in said[0]
    said = said_by_parts(monkeypatch, clf, lambda own, rank: own.score(X[rank : rank + 9], Y[:9]))
    assert said[0] == said[1]


def test_batches_are_of_the_process_with_the_least_memory(monkeypatch):
    """Processes ask for the memory that is left, each on its own."""
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=1).fit(X, Y)
    head = clf.net_.module_.head

    def run(processes):
        own = copy.deepcopy(clf)
        share_out(own.net_.module_, processes)
        n_rows = agreed_batch(
            own.net_.module_.head, 50 - processes.rank, lambda: {"asked": "scores"}
        )
        with config_context(working_memory=4000 * (3 - processes.rank) / 2**20):
            return n_rows, own.decision_function(X)

    assert agreed_batch(head, 50, pytest.fail) == 50  # alone: nothing is compared
    for n_rows, scores in in_threads(monkeypatch, 2, run):
        assert n_rows == 49
        np.testing.assert_allclose(scores, clf.decision_function(X))


def test_features_of_own_rows_meet_nobody(monkeypatch):
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=1).fit(X, Y)

    def run(processes):
        own = copy.deepcopy(clf)
        share_out(own.net_.module_, processes)
        return own.transform(X[: 9 + processes.rank])

    for rank, features in enumerate(in_threads(monkeypatch, 2, run)):
        np.testing.assert_array_equal(features, clf.transform(X[: 9 + rank]))


def test_labels_that_differ(monkeypatch):
    def run(processes):
        check_labels(processes, "labels", lambda: "12")
        with pytest.raises(ValueError, match="all processes must give the same labels"):
            check_labels(processes, "labels", lambda: f"1{2 + processes.rank}")
        with pytest.raises(ValueError, match="a set of Python has another order"):
            check_labels(processes, "labels", lambda: "12"[:: 1 - 2 * processes.rank])

    in_threads(monkeypatch, 2, run)
