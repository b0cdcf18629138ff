"""Nearest samples by an index of the user's, against the search without one and brute force."""

import copy
import io
import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import skops.io
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsTransformer, RadiusNeighborsTransformer

from sklearn_xlc import load, save
from sklearn_xlc.ranking import BoostedRanker, LabelTexts, NearestSamples, neighbor_index
from sklearn_xlc.ranking.neighbor_index import fitted_index, nearest
from sklearn_xlc.ranking.search import best_items, dense_index, integer_rows

#: Neighbours, and features of a sparse sample.
N, N_FEATURES = 12, 4
pytestmark = pytest.mark.usefixtures("few_waiting", "ten_trees")


@pytest.fixture
def few_waiting(monkeypatch):
    """Fit an index to more than 20 samples."""
    monkeypatch.setattr(neighbor_index, "MOST_WAITING", 20)


def make_data(rng, is_sparse, n=300):
    """Return samples without equal cosines, some of them zero, and labels."""
    X = rng.normal(size=(n, 80 if is_sparse else 30))
    X = np.where(rng.random(X.shape) < 0.08, X, 0) if is_sparse else X
    X[::50] = 0
    Y = sp.csr_array((rng.random((n, 6)) < 0.3).astype(int))
    return (sp.csr_array(X) if is_sparse else X), Y


def brute(**params):
    return KNeighborsTransformer(**{"n_neighbors": N, "metric": "cosine", **params})


def near(index=None, **params):
    params = {"n_neighbors": (3, N), "max_features_per_sample": N_FEATURES, "max_df": 1.0, **params}
    return NearestSamples(index=index, **params)


def n_indexed(retriever):
    return 0 if retriever.fitted_index_ is None else retriever.fitted_index_["n_samples"]


def check_equal(one, other, X):
    """Both find neighbours with the same cosines, and say the same of labels."""
    a, b = (each.search({"input": X}, None, None) for each in (one, other))
    np.testing.assert_allclose(a.cosines, b.cosines, atol=2e-6)
    np.testing.assert_array_equal(a.items < 0, b.items < 0)
    n_labels = one.labels_.shape[1]
    rows, labels = (
        np.repeat(np.arange(X.shape[0]), n_labels),
        np.tile(np.arange(n_labels), len(a[0])),
    )
    numbers = (each.numbers(found, rows, labels) for each, found in ((one, a), (other, b)))
    np.testing.assert_allclose(*numbers, atol=2e-5)
    listed = np.tile(np.arange(n_labels), (X.shape[0], 1))
    (ids, values), (others, other_values) = (
        each.examples({"input": X}, listed, 4) for each in (one, other)
    )
    np.testing.assert_allclose(values, other_values, atol=2e-6)
    assert (ids == others).mean() > 0.99


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "index",
    [
        brute(),
        brute(algorithm="brute", n_neighbors=40),
        brute(metric="euclidean"),
        brute(metric="euclidean", mode="connectivity"),
        RadiusNeighborsTransformer(radius=1.5),
    ],
    ids=["cosine", "more neighbours", "euclidean", "ones", "radius"],
)
def test_exact_indexes_find_what_the_search_without_one_finds(index, is_sparse, rng):
    X, Y = make_data(rng, is_sparse)
    queries = make_data(rng, is_sparse, 20)[0]
    own, other = (near(each).fit({"input": X}, Y) for each in (None, index))
    assert n_indexed(other) == 300
    assert not hasattr(index, "n_features_in_")
    check_equal(own, other, queries)
    alone = other.search({"input": queries[7:8]}, None, None)
    whole = other.search({"input": queries}, None, None)
    np.testing.assert_allclose(alone.cosines[0], whole.cosines[7], atol=1e-6)
    if is_sparse:  # dense arrays of few entries are given as CSR, too
        from_dense = clone(other).fit({"input": X.toarray()}, Y)
        again = from_dense.search({"input": queries.toarray()}, None, None)
        np.testing.assert_array_equal(again.items, whole.items)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_weights_and_frequent_features(is_sparse, rng):
    X, Y = make_data(rng, is_sparse)
    weight = rng.integers(1, 4, 300)
    own = near().fit({"input": X}, Y, weight)
    check_equal(own, near(brute(), max_df=0.001).fit({"input": X}, Y, weight), X[:20])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_later_samples_are_searched_beside_the_index(is_sparse, rng):
    X, Y = make_data(rng, is_sparse)
    retriever, sizes, indexes = near(brute()), [], []
    for n in (20, 100, 101, 145, 160, 300):
        retriever.fit({"input": X[:n]}, Y[:n])
        check_equal(near().fit({"input": X[:n]}, Y[:n]), retriever, X[:50])
        sizes.append(n_indexed(retriever))
        indexes.append(None if n == 20 else retriever.fitted_index_["index"])
    assert sizes == [0, 100, 100, 100, 160, 300]
    assert indexes[1] is indexes[2] is indexes[3]
    assert len(set(map(id, indexes))) == 4


@pytest.mark.parametrize("is_sparse", [False, True])
def test_an_index_of_other_samples_or_parameters_is_fitted_anew(is_sparse, rng):
    X, Y = make_data(rng, is_sparse)
    before = near(brute()).fit({"input": X[:200]}, Y[:200]).fitted_index_
    assert fitted_before(before, brute(), X[:210], Y[:210]) is before
    turned = X.tolil() if is_sparse else X.copy()
    turned[199] = X[[10]] if is_sparse else X[10]
    changed = sp.csr_array(turned) if is_sparse else turned
    for index, data in (
        (brute(), changed[:210]),
        (brute(), X[1:210]),
        (brute(), X[:199]),
        (brute(n_neighbors=N + 1), X[:210]),
    ):
        n = data.shape[0]
        anew = fitted_before(before, index, data, Y[:n])
        assert anew["index"] is not before["index"]
        assert anew["n_samples"] == n
    retriever = near()
    retriever.fitted_index_ = before
    assert retriever.fit({"input": X}, Y).fitted_index_ is None


def fitted_before(before, index, X, Y):
    retriever = near(index)
    retriever.fitted_index_ = before
    return retriever.fit({"input": X}, Y).fitted_index_


def test_a_digest_is_of_numbers_not_of_types(rng):
    X = make_data(rng, True)[0].astype(np.float32)
    wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape)
    before = fitted_index(brute(), X[:250], None)
    assert fitted_index(brute(), wide, before) is before


class Given(BaseEstimator):
    """Return a given graph."""

    def __init__(self, graph=None):
        self.graph = graph

    def fit(self, X):
        return self

    def transform(self, X):
        return self.graph(X) if callable(self.graph) else self.graph


def csr(rows, width, **params):
    """Return CSR with these columns, unchecked."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.array([item for row in rows for item in row], dtype=np.int32)
    graph = sp.csr_matrix((len(rows), width), **params)
    graph.indices, graph.indptr = indices, indptr.astype(np.int32)
    graph.data = np.zeros(len(indices))
    return graph


def test_few_none_and_repeated_neighbours(rng):
    X = integer_rows(rng.normal(size=(40, 5)))
    graph = csr([[3, 1, 3, -1], [], [-1, -1], [39, 0, 7]], 30)
    graph.indices[graph.indices == 39] = 29
    index = fitted_index(Given(graph), X[:30], None)
    waiting = dense_index(X[30:])
    items, cosines = nearest(index, X[30:34], X, waiting, 20)
    later, of_later = best_items(X[30:34], waiting, 20)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for i, own in enumerate(({1, 3}, set(), set(), {29, 0, 7})):
        every = own | {int(each) + 30 for each in later[i] if each >= 0}
        expected = {each for each in every if unit[30 + i] @ unit[each] > 0}
        found = items[i][items[i] >= 0]
        assert set(found.tolist()) == expected
        assert len(found) == len(expected)
        np.testing.assert_allclose(cosines[i, : len(found)], unit[found] @ unit[30 + i], atol=1e-6)
        assert (np.diff(cosines[i]) <= 0).all()
        assert not cosines[i, len(found) :].any()


@pytest.mark.parametrize(
    "graph, message",
    [
        (lambda X: X, r"must return a sparse matrix of shape \(5, 294\).* ndarray of shape"),
        (lambda X: None, "NoneType of shape None"),
        (lambda X: sp.csr_matrix((5, 299)), r"csr_matrix of shape \(5, 299\)"),
        (lambda X: sp.csr_matrix((294, 294)), r"csr_matrix of shape \(294, 294\)"),
        (lambda X: csr([[294]] * 5, 294), "found sample 294 of 294 samples"),
    ],
)
def test_what_is_no_graph_of_neighbours_raises(graph, message, rng):
    X, Y = make_data(rng, False)
    retriever = near(Given(graph)).fit({"input": X}, Y)
    with pytest.raises(ValueError, match=message):
        retriever.search({"input": X[:5]}, None, None)


@pytest.mark.parametrize(
    "index, error, message",
    [
        (3, ValueError, "'index' parameter of NearestSamples must be .* 'fit', 'transform'"),
        (KNeighborsTransformer, TypeError, "an object, got a class: KNeighborsTransformer"),
        (TfidfVectorizer(), TypeError, r"index=TfidfVectorizer\(\) reads texts, and is to find"),
        (KNeighborsTransformer(), ValueError, r"finds 5 neighbours, and n_neighbors=\(3, 12\)"),
    ],
)
def test_wrong_indexes_raise_before_work(index, error, message):
    with pytest.raises(error, match=message):
        BoostedRanker([("near", near(index))]).check()


def test_the_output_of_an_index_is_not_turned_into_a_frame(rng):
    X, Y = make_data(rng, False)
    retriever = near(brute()).fit({"input": X}, Y)
    with config_context(transform_output="pandas"):
        check_equal(near().fit({"input": X}, Y), retriever, X[:9])


# --- in a ranker ------------------------------------------------------------------------------


class Counted(KNeighborsTransformer):
    """Count fits."""

    n_fits = 0

    def fit(self, X, y=None):
        Counted.n_fits += 1
        return super().fit(X)


def make_ranker(rng, is_sparse=True, index=None, n=200, **params):
    """Return a fitted ranker with an index, and what it ranks."""
    X, Y = make_data(rng, is_sparse)
    scores = -np.sort(-rng.normal(size=(300, 3)), axis=1)
    labels = np.argsort(rng.random((300, 6)), axis=1)[:, :3]
    index = index or Counted(n_neighbors=N, metric="cosine")
    ranker = BoostedRanker([("near", near(index))], **params)
    ranker.remember({"input": X[:n]}, Y[:n])
    ranker.fit(scores[n:], Y[n:], labels[n:], {"input": X[n:]})
    return ranker, (scores, labels, {"input": X}), Y


def more(ranker, data, Y, start, stop):
    return copy.copy(ranker).remember_more({"input": data[2]["input"][start:stop]}, Y[start:stop])


def without_index(ranker):
    other = copy.deepcopy(ranker).set_params(near__index=None)
    other.retrievers_, other.indexes_ = None, {}
    return other


def check_same_ranks(one, other, data, atol=1e-5):
    for a, b in zip(*(each.rank(*data) for each in (one, other))):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_ranker_hands_its_index_on(is_sparse, rng):
    ranker, data, Y = make_ranker(rng, is_sparse)
    (index,) = (each["index"] for each in ranker.indexes_.values())
    check_same_ranks(ranker, without_index(ranker), data)
    larger = more(ranker, data, Y, 200, 280)
    check_same_ranks(larger, without_index(larger), data)
    assert larger.indexes_["near"]["index"] is index
    labels = larger.for_labels(np.array([0, -1, 2, 3, 4, 5, 1]))  # as after remove_labels, too
    assert labels.examples(data[2], np.full((300, 1), 6), 3)[0].shape == (300, 1, 3)
    assert labels.indexes_["near"]["index"] is index
    n_fits = Counted.n_fits
    largest = more(larger, data, Y, 280, 300)
    more_again = more(largest, data, Y, 0, 20)
    check_same_ranks(more_again, without_index(more_again), data)
    assert more_again.indexes_["near"]["n_samples"] == 320
    assert Counted.n_fits == n_fits + 1


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_later", [0, 40])
def test_forgotten_samples_are_in_no_index(n_later, is_sparse, rng):
    ranker, data, Y = make_ranker(rng, is_sparse)
    gone = dense(dict(ranker.retrievers_)["near"].vectors_)[[10, 190]]
    gone = gone / np.linalg.norm(gone, axis=1, keepdims=True)
    assert (nearest_distance(ranker, gone) < 1e-6).all()
    ranker = more(ranker, data, Y, 200, 200 + n_later)
    changed = ranker.forget([10, 190])
    assert changed.indexes_ == {}
    check_same_ranks(changed, without_index(changed), data)
    assert (nearest_distance(changed, gone) > 1e-3).all()
    assert changed.indexes_["near"]["n_samples"] == 198 + n_later
    assert ranker.forget().get_params().keys().isdisjoint({"retrievers"})


def dense(vectors):
    return vectors.toarray() if sp.issparse(vectors) else vectors


def nearest_distance(ranker, vectors):
    """Return the distances of vectors to the nearest one that the index holds."""
    held = dense(ranker.indexes_["near"]["index"]._fit_X)
    return np.linalg.norm(held[:, None] - vectors, axis=2).min(axis=0)


def test_samples_that_go_by_their_number_are_in_no_index(rng):
    ranker, data, Y = make_ranker(rng, max_samples=200)
    assert ranker.indexes_["near"]["n_samples"] == 200
    larger = more(ranker, data, Y, 200, 230)
    assert larger.indexes_ == {}
    check_same_ranks(larger, without_index(larger), data)
    assert larger.indexes_["near"]["n_samples"] == 200


def through_joblib(ranker, path):
    file = path / f"{len(list(path.iterdir()))}.joblib"
    joblib.dump(ranker, file)
    return joblib.load(file, mmap_mode="r")


def through_skops(ranker, path):
    data = skops.io.dumps(ranker)
    return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "carry",
    [lambda ranker, path: pickle.load(io.BytesIO(pickle.dumps(ranker))), through_joblib,
     through_skops, lambda ranker, path: copy.deepcopy(ranker)],
    ids=["pickle", "joblib", "skops", "copy"],
)  # fmt: skip
def test_files_carry_the_index(carry, is_sparse, rng, tmp_path):
    ranker, data, Y = make_ranker(rng, is_sparse)
    n_fits = Counted.n_fits
    copied = carry(ranker, tmp_path)
    check_same_ranks(ranker, copied, data, atol=0)
    larger = [more(each, data, Y, 200, 260) for each in (ranker, copied)]
    check_same_ranks(*larger, data, atol=0)  # without an index in between
    copied = carry(larger[0], tmp_path)
    check_same_ranks(larger[1], copied, data, atol=0)
    assert Counted.n_fits == n_fits
    assert copied.indexes_["near"]["n_samples"] == 200
    assert pickle.dumps(ranker).count(b"_fit_X") == 1


@pytest.mark.parametrize("is_sparse", [False, True])
def test_brute_force_of_scikit_learn_needs_no_trust(is_sparse, rng, tmp_path):
    ranker, data, _ = make_ranker(rng, is_sparse, brute(algorithm="brute"))
    assert sp.issparse(ranker.indexes_["near"]["index"]._fit_X) == is_sparse
    save(ranker, tmp_path / "ranker")
    check_same_ranks(ranker, load(tmp_path / "ranker"), data, atol=0)


def test_an_index_of_samples_that_are_not_remembered_is_refused(rng):
    ranker, _, _ = make_ranker(rng)
    for rows in (np.arange(196) + 5, np.arange(196) - 1, np.zeros(196)):
        ranker.indexes_["near"]["rows"] = rows
        with pytest.raises(ValueError, match="the saved index 'near' holds samples"):
            copy.deepcopy(ranker)


def test_an_index_of_other_samples_in_a_state_is_not_used(rng):
    ranker, data, _ = make_ranker(rng)
    other, _, _ = make_ranker(np.random.default_rng(99))
    state = ranker.__getstate__()
    state["indexes_"] = {"near": {**other.indexes_["near"]}}
    loaded = BoostedRanker()
    loaded.__setstate__(state)
    check_same_ranks(ranker, loaded, data, atol=0)


def test_withheld_labels_take_the_same_index(rng):
    X, Y = make_data(rng, True)
    names = np.array([f"label {i}" for i in range(6)], dtype=object)
    given = np.array([f"a text of label {i % 6}" for i in range(300)], dtype=object)
    named = [("near", near(Counted(n_neighbors=N, metric="cosine"))), ("names", LabelTexts())]
    n_fits = Counted.n_fits
    ranker = BoostedRanker(named).remember(
        {"input": X[:200], "given": given[:200], "labels": names}, Y[:200]
    )
    labels = np.argsort(rng.random((100, 6)), axis=1)
    ranker.fit(np.zeros((100, 6)), Y[200:], labels, {"input": X[200:], "given": given[200:]})
    assert Counted.n_fits == n_fits + 1


def test_names_of_new_labels_bring_no_index_of_dropped_samples_back(rng):
    X, Y = make_data(rng, True)
    named = [("near", near(brute(algorithm="brute"))), ("names", LabelTexts())]
    names = np.array([f"label {i}" for i in range(7)], dtype=object)
    given = np.array([f"a text of label {i % 6}" for i in range(300)], dtype=object)
    read = {"input": X, "given": given, "ids": np.arange(300)}
    ranker = BoostedRanker(named, max_samples=200)
    ranker.remember({**{s: each[:200] for s, each in read.items()}, "labels": names[:6]}, Y[:200])
    changed = ranker.for_labels(np.append(np.arange(6), -1))
    assert not changed.is_threadsafe
    later = {s: each[200:205] for s, each in read.items()}
    first = sp.csr_array(np.eye(7, dtype=int)[[6] * 5])
    lists = np.zeros((5, 1)), first, np.zeros((5, 1), int)
    changed.partial_fit(*lists, {**later, "labels": names})
    assert changed.retrievers_ is not None
    assert changed.indexes_ == {}
    assert not changed.is_threadsafe
    assert changed.log_counts_[6] > 0
    assert pickle.loads(pickle.dumps(changed)).indexes_ == {}  # else it is refused


def test_a_stream_learns_as_without_an_index(rng):
    """While trees are learnt, held-out samples are in no index."""
    X, Y = make_data(rng, True, 900)
    index = Counted(n_neighbors=N, metric="cosine")
    one, other = (BoostedRanker([("near", near(each))]) for each in (None, index))
    n_fits = Counted.n_fits
    for start in range(0, 900, 50):
        part, labels = slice(start, start + 50), np.argsort(rng.random((50, 6)), axis=1)[:, :3]
        scores, samples = -np.sort(rng.random((50, 3)), axis=1), {"input": X[part]}
        for ranker in (one, other):
            ranker.partial_fit(scores, Y[part], labels, samples)
        if not other.waits:
            check_same_ranks(one, other, (scores, labels, samples))
    assert other.trees_ is not None
    assert 2 <= Counted.n_fits - n_fits <= 12
