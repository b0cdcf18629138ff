"""Predictions: in the types that came in, and never larger than allowed."""

import threading
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError

from _factories import QUICK, built, make_X, make_y
from sklearn_xlc import MultiHeadClassifier, config_context
from sklearn_xlc.batches import threads
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine import deciding, memory, predictor
from sklearn_xlc.heads import Product, screening
from sklearn_xlc.heads.screening import largest_input

N_LABELS = 9


quick = partial(built, MultiHeadClassifier(**{**QUICK, "encoder": MLP((8,)), "max_epochs": 4}))


@pytest.mark.parametrize("density", [0.05, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_few_samples_is_that_of_the_model(dtype, density):
    X, y = make_X(density).astype(dtype), make_y(False)
    clf = quick().fit(X, y)
    assert {p.dtype for p in clf.net_.module_.parameters()} == {getattr(torch, dtype.__name__)}
    outputs = [clf.decision_function(X), clf.predict_proba(X), clf.transform(X)]
    assert {output.dtype for output in outputs} == {np.dtype(dtype)}
    assert clf.predict_topk(X)[1].dtype == clf.predict_topk_sparse(X).dtype == dtype
    other = np.float64 if dtype == np.float32 else np.float32
    assert clf.transform(X.astype(other)).dtype == other
    assert clf.partial_fit(X.astype(other), y).transform(X).dtype == dtype
    assert clf.decision_function(X.astype(other)).dtype == dtype


def test_a_probability_of_zero_has_a_logarithm(monkeypatch):
    clf = quick().fit(make_X(0.5), make_y(False))
    some = np.array([[0.0, 1.0]], dtype=np.float32)
    monkeypatch.setattr(MultiHeadClassifier, "predict_proba", lambda self, X: some.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clf.predict_log_proba(make_X(0.5)[:1])
    assert found.tolist() == [[-np.inf, 0]]
    assert found.dtype == np.float32


@pytest.mark.parametrize("ranker", ["boosted", "calibration", None])
@pytest.mark.parametrize("multilabel", [False, True])
def test_values_of_all_labels_are_the_same_a_few_samples_at_a_time(ranker, multilabel, monkeypatch):
    X, Y = make_extreme_multilabel(600, 100, 21, random_state=0)
    y = Y if multilabel else (X.indices[X.indptr[:-1]] % 21).astype(str)
    clf = quick(ranker=ranker).fit(X, y)
    assert (clf.ranker_ is None) == (ranker is None)
    found = []
    for at_once in (2**18, 50):
        monkeypatch.setattr(predictor, "_IN_CACHES", at_once)
        found.append([clf.decision_function(X), clf.predict_proba(X)])
    for whole, parts in zip(*found):
        np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("n", [1, 3, 16, 63, 64, 65, 200])
def test_equal_log_odds_are_equal_probabilities(n):
    clf = quick(ranker=None).fit(*make_extreme_multilabel(60, 20, N_LABELS, random_state=0))
    for odds in np.linspace(-9, 9, 40, dtype=np.float32):
        found = clf._predictor._alone(torch.full((n, 3), float(odds)))
        assert found.unique().numel() == 1
        assert found.shape == (n, 3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("precision, n_repeats", [("auto", 17), ("float32", 1), ("bfloat16", 1)])
def test_precision_is_single_whatever_X_has(precision, n_repeats, sparse):
    X, y = np.tile(make_X(0.5), (n_repeats, 1)), np.tile(make_y(False), n_repeats)
    X = sp.csr_matrix(X) if sparse else X
    clf, single = (quick(precision=precision, max_epochs=1) for _ in range(2))
    clf.fit(X, y)
    assert {p.dtype for p in clf.net_.module_.parameters()} == {torch.float32}
    single.fit(X.astype(np.float32), y)
    np.testing.assert_array_equal(clf.decision_function(X), single.decision_function(X))
    assert clf.predict_proba(X).dtype == np.float32
    assert clf.transform(X).dtype == np.float64
    np.testing.assert_array_equal(clf.transform(X), single.transform(X.astype(np.float32)))
    too_large = 1e30 * X
    with pytest.raises(ValueError, match="X"):
        quick(precision=precision).fit(too_large, y)


@pytest.mark.parametrize("offset, precision", [(1e3, "float32"), (1e8, "float64")])
def test_columns_far_from_zero_keep_their_digits(offset, precision):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 1500)
    X = rng.normal(size=(1500, 8))
    X[np.arange(1500), y] += 4
    X[:, 7] = 1.0  # a constant column has no digits to keep
    fits = [
        MultiHeadClassifier("flat", precision=p, max_epochs=3, random_state=0).fit(at, y)
        for p, at in [("auto", X + offset), (precision, X)]
    ]
    assert fits[0].net_.module_.head.weight.dtype == getattr(torch, precision)
    found, expected = (f.predict(at) for f, at in zip(fits, [X + offset, X]))
    assert np.mean(found == expected) > 0.99


def test_integers_become_double_precision():
    X = (make_X(0.5) * 10).astype(int)
    assert quick().fit(X, make_y(False)).transform(X).dtype == np.float64


@pytest.mark.parametrize(
    "names",
    [
        np.array(list("abcdefghi")),
        np.array(list("abcdefghi"), dtype=object),
        np.arange(N_LABELS) - 5,
        np.arange(N_LABELS) * 10**12,
        np.arange(N_LABELS, dtype=np.uint8),
        np.arange(N_LABELS) / 1.0,
    ],
    ids=lambda names: f"{names.dtype}{names[0]}",
)
def test_labels_of_any_type_come_back(names):
    X, y = make_X(0.5), make_y(False)
    clf = quick().fit(X, names[y])
    np.testing.assert_array_equal(clf.classes_, names)
    expected = names[quick().fit(X, y).predict(X)]
    for predicted in (clf.predict(X), clf.predict_topk(X, k=1)[0][:, 0]):
        np.testing.assert_array_equal(predicted, expected)
        assert predicted.dtype == names.dtype


@pytest.mark.parametrize("names", [np.array([False, True]), np.array(["no", "yes"])])
def test_two_labels(names):
    X = make_X(0.5)
    y = names[(X[:, 0] > 0).astype(int)]
    clf = quick(max_epochs=60).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert clf.decision_function(X).shape == (len(X),)
    np.testing.assert_array_equal(clf.predict(X), names[(clf.decision_function(X) > 0).astype(int)])
    np.testing.assert_array_equal(clf.predict(X), names[clf.predict_proba(X).argmax(1)])


def test_categorical_labels_of_pandas():
    X, y = make_X(0.5), make_y(False)
    names = pd.Series(pd.Categorical(np.array(list("abcdefghi"))[y]))
    assert set(quick().fit(X, names).predict(X)) <= set("abcdefghi")


DENSE = ["decision_function", "predict_proba", "predict", "transform"]


@pytest.mark.parametrize("method", DENSE)
def test_dense_results_over_the_limit_are_refused_before_they_are_allocated(method):
    X, Y = make_X(0.5), make_y(True)
    clf = quick(encoder__hidden_layer_sizes=(N_LABELS,)).fit(X, Y)
    many = np.tile(X, (200, 1))
    size = len(many) * N_LABELS * 8
    with config_context(dense_limit=size * 9 // 8):  # temporaries count too
        assert getattr(clf, method)(many).nbytes == size
    remedy = {"predict": "a sparse y in fit", "transform": "parts of X"}
    with config_context(dense_limit=size):
        tracemalloc.start()
        with pytest.raises(MemoryError, match=remedy.get(method, "predict_topk")) as caught:
            getattr(clf, method)(many)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert f"{size:,}" in str(caught.value)
    assert f"dense_limit={size:,}" in str(caught.value)
    assert peak < size / 2


def test_sparse_label_sets_are_under_no_limit():
    X, Y = make_X(0.5), make_y(True)
    clf = quick(max_epochs=60).fit(X, sp.csr_matrix(Y))
    with config_context(dense_limit=1):
        assert clf.predict(X).nnz


@pytest.mark.parametrize("names", [np.arange(N_LABELS), np.array([f"{i:020}" for i in range(9)])])
@pytest.mark.parametrize("method", ["predict_topk", "predict_topk_sparse"])
def test_ranked_labels_are_under_the_limit_with_ids_scores_and_names(method, names):
    X, y = make_X(0.5), make_y(False)
    clf = quick().fit(X, names[y])
    many = np.tile(X, (200, 1))
    of_name = names.itemsize if method == "predict_topk" else 4
    size = len(many) * 3 * (8 + 8 + of_name)
    with config_context(dense_limit=size), pytest.raises(MemoryError, match="use a smaller k"):
        getattr(clf, method)(many, 3)
    with config_context(dense_limit=size * 9 // 8):
        getattr(clf, method)(many, 3)


def test_label_sets_beyond_the_memory_are_refused(monkeypatch):
    X, Y = make_X(0.5), make_y(True)
    clf = quick(max_epochs=60).fit(X, sp.csr_matrix(Y))
    for module in (deciding, predictor):
        monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda device: 10)
    with pytest.raises(MemoryError, match=r"an indicator of \d+ labels .* use fewer rows of X"):
        clf.predict(X)
    with pytest.raises(MemoryError, match="a dense result of shape .* of which 10 are available"):
        clf.decision_function(X)


def test_batches_shrink_to_the_memory_that_is_left(monkeypatch):
    X = make_X(0.5)
    clf = quick().fit(X, make_y(False))
    expected, sizes = clf.decision_function(X), []
    batches = predictor.Predictor.batches
    monkeypatch.setattr(predictor, "SMALL", 0)
    for left in (2 * expected.nbytes, float("inf")):
        monkeypatch.setattr(memory, "available_memory", lambda device, left=left: left)
        monkeypatch.setattr(
            predictor.Predictor,
            "batches",
            lambda self, X, n: sizes.append(n) or batches(self, X, n),
        )
        np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-12)
    assert sizes[0] < len(X) == sizes[1]


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("head", ["flat", "cascade", "product", "sampling"])
def test_batches_shrink_to_the_memory_limit(monkeypatch, head, multilabel):
    if multilabel and head == "sampling":
        pytest.skip("for class labels only")
    X, y = make_X(0.5), make_y(multilabel)
    clf = quick(head=head).fit(X, y)
    found = {m: getattr(clf, m)(X) for m in ("predict", "decision_function", "predict_topk")}
    rows = []
    features = type(clf.net_).features
    monkeypatch.setattr(
        type(clf.net_), "features", lambda s, batch: rows.append(len(batch)) or features(s, batch)
    )
    limit = 3 * clf.net_.module_.head.bytes_per_row()
    for method, expected in found.items():
        rows.clear()
        with config_context(working_memory=limit / 2**20):
            again = getattr(clf, method)(X)
        assert sum(rows) == len(X)
        assert method == "predict_topk" or max(rows) <= 3
        for one, other in zip(np.atleast_2d(again), np.atleast_2d(expected)):
            # A matrix product of fewer rows may add up in another order.
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not largest_input(), reason="no fast products of eight-bit integers here")
@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("params", [{}, {"encoder__n_members": 2}], ids=str)
def test_search_for_the_best_labels_changes_no_prediction(monkeypatch, params, multilabel):
    rng = np.random.default_rng(0)
    X = sp.random(700, 30, 0.2, "csr", dtype=np.float32, random_state=rng)
    y = rng.integers(0, 120, 700)
    Y = sp.csr_matrix((np.ones(700), (np.arange(700), y)), shape=(700, 120)) if multilabel else y
    clf = quick(head="flat", precision="float32", ranker=None, **params).fit(X, Y)
    labels, scores = clf.predict_topk(X, 2)
    decided = clf.predict(X)
    monkeypatch.setattr(screening, "_WORTH", 1)
    monkeypatch.setattr(screening, "_FEWEST", 1)
    assert clf.net_.module_.head._screening is None
    in_parts = [clf.predict_topk(X[start : start + 100], 2) for start in range(0, 700, 100)]
    one_by_one = [clf.predict_topk(X[row], 2) for row in range(20)]
    for same in (
        clf.predict_topk(X, 2),
        clf.predict_topk(X.toarray(), 2),
        tuple(map(np.concatenate, zip(*in_parts))),
        tuple(map(np.concatenate, zip(*one_by_one))),
    ):
        np.testing.assert_array_equal(same[0], labels[: len(same[0])])
        np.testing.assert_allclose(same[1], scores[: len(same[0])], rtol=1e-4, atol=1e-5)
    again = clf.predict(X)
    assert ((again != decided).nnz if multilabel else (again != decided).sum()) == 0
    assert clf.net_.module_.head._screening is not None
    scores = clf.partial_fit(X, Y).decision_function(X)  # the search is made anew
    np.testing.assert_array_equal(clf.predict_topk(X, 1)[0][:, 0], scores.argmax(1))


class Counting(torch.nn.Linear):
    """Encoder of which nobody knows what it holds of a sample."""

    n_outputs = 8

    def forward(self, rows):
        self.largest = max(len(rows), getattr(self, "largest", 0))
        return super().forward(rows)


def test_batches_are_larger_where_the_memory_of_a_sample_is_known(monkeypatch):
    X, y = make_X(0.5).astype(np.float32), make_y(False)
    monkeypatch.setattr(predictor, "PREDICT_BATCH", 8)
    own = quick(encoder=Counting(X.shape[1], 8)).fit(X, y)
    own.net_.module_.encoder.largest = 0
    own.predict_topk(X)
    assert own.net_.module_.encoder.largest <= 9  # the last has one more, rather than one alone
    clf = quick().fit(X, y)
    assert clf._predictor.most_at_once() == 32
    expected = clf.predict_topk(X)
    monkeypatch.setattr(predictor, "_FEATURES", 16 * 8)
    assert clf._predictor.most_at_once() == 16
    for found, same in zip(clf.predict_topk(X), expected):
        np.testing.assert_allclose(found, same, rtol=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_samples_that_are_ready_are_checked_as_all_others(convert):
    X = make_X(0.5)
    clf = quick().fit(convert(X), make_y(False))
    for value, message in ((np.nan, "NaN"), (np.inf, "infinity"), (1e200, "overflow")):
        wrong = X.copy()
        wrong[2, 1] = value
        with pytest.raises(ValueError, match=message):
            clf.predict_topk(convert(wrong))
    for wrong, message in ((X[:, :-1], "features"), (X[:0], "0 sample")):
        with pytest.raises(ValueError, match=message):
            clf.predict_topk(convert(wrong))


def test_samples_may_be_read_only_and_stay_as_they_are():
    X = sp.csr_matrix(make_X(0.05))
    clf = quick().fit(X, make_y(False))
    labels, before = clf.predict_topk(X)[0], X.copy()
    X.data.flags.writeable = False
    for sample in (X, X[:1]):
        sample.data.flags.writeable = False
        np.testing.assert_array_equal(clf.predict_topk(sample)[0], labels[: sample.shape[0]])
    assert (X != before).nnz == 0


# --- label sets -------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_best_label_sets_are_those_of_all(sparse, monkeypatch):
    X, Y = make_X(0.5), make_y(True)
    Y = sp.csr_matrix(Y) if sparse else Y
    clf = quick(head=Product(lengths=(8, 4, 16), label_order="random")).fit(X, Y)
    every, scores = clf.predict_topk_sets(X, k=2**N_LABELS)
    assert all(sets.shape == Y.shape and sp.issparse(sets) for sets in every)
    probabilities = np.exp(scores)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-6)
    marginals = sum(probabilities[:, [rank]] * sets.toarray() for rank, sets in enumerate(every))
    np.testing.assert_allclose(marginals, clf.predict_proba(X), atol=1e-6)
    monkeypatch.setattr(predictor, "PREDICT_BATCH", 7)
    best, scores_of_best = clf.predict_topk_sets(X, k=3)
    np.testing.assert_allclose(scores_of_best, scores[:, :3], rtol=1e-6)
    for rank in range(3):
        np.testing.assert_array_equal(best[rank].toarray(), every[rank].toarray())
    predicted = clf.predict(X)
    np.testing.assert_array_equal(sp.csr_matrix(predicted).toarray(), best[0].toarray())


def test_label_sets_exist_where_a_head_ranks_them():
    X, Y, y = make_X(0.5), make_y(True), make_y(False)
    clf = quick(head="product")
    with pytest.raises(NotFittedError):
        clf.predict_topk_sets(X)
    assert not hasattr(clf.fit(X, y), "predict_topk_sets")
    assert not hasattr(quick(head="flat").fit(X, Y), "predict_topk_sets")
    clf.fit(X, Y)
    for k in (0, 2**N_LABELS + 1):
        with pytest.raises(ValueError, match=f"k.*{k}"):
            clf.predict_topk_sets(X, k=k)
    with config_context(dense_limit=2**10), pytest.raises(MemoryError, match="a smaller k"):
        clf.predict_topk_sets(X, k=100)


# --- several batches side by side ---------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("head", ["flat", "cascade"])
def test_batches_side_by_side_predict_the_same(monkeypatch, two_threads, head, multilabel):
    X, Y = make_extreme_multilabel(1050, 120, 40, random_state=0)  # two batches, and a short one
    y = Y if multilabel else np.asarray(Y.argmax(axis=1)).ravel()
    clf = MultiHeadClassifier(head, max_epochs=2, random_state=0).fit(X[:500], y[:500])
    assert (clf.ranker_ is not None) or not multilabel
    monkeypatch.setattr(threads, "ENOUGH", np.inf)
    methods = [clf.predict_topk, clf.predict, clf.decision_function, clf.predict_proba]
    alone = [method(X) for method in methods]
    used, start = set(), predictor.Predictor._features
    monkeypatch.setattr(
        predictor.Predictor,
        "_features",
        lambda *args: used.add(threading.current_thread().name) or start(*args),
    )
    monkeypatch.setattr(threads, "ENOUGH", 1)
    beside = [method(X) for method in methods]
    assert len(used) == 2
    np.testing.assert_array_equal(beside[0][0], alone[0][0])
    for one, other in zip(beside[1:], alone[1:]):
        one, other = (each.toarray() if sp.issparse(each) else each for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_parts_of_the_user_predict_on_one_thread(monkeypatch, two_threads):
    X, Y = make_extreme_multilabel(1200, 100, 50, random_state=0)
    clf = MultiHeadClassifier("flat", max_epochs=1, random_state=0).fit(X, Y)
    monkeypatch.setattr(threads, "ENOUGH", 1)
    assert clf._predictor._threads(1200).n == 2
    assert clf._predictor._threads(300).n == 1  # as long as a batch

    class Own(type(clf.net_.module_.encoder)):
        """Encoder of a user, which may keep what it has seen."""

    monkeypatch.setattr(clf.net_.module_.encoder, "__class__", Own)
    assert clf._predictor._threads(1200).n == 1
