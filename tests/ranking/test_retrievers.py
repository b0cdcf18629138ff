"""Retrievers against sums over all training samples; results of a sample stand alone."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import RadiusNeighborsTransformer

from sklearn_xlc._csr import moved_columns, unit_rows
from sklearn_xlc.ranking import (
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
    Retriever,
    neighbor_index,
    retrievers,
    search,
    shares,
)

N_LABELS = 7


def make_data(rng, is_sparse, n=60, n_features=40):
    share = 0.08 if is_sparse else 0.9
    values = np.round(rng.normal(size=(n, n_features)) * 2) / 2
    X = np.where(rng.random((n, n_features)) < share, values, 0)
    X[4] = 0
    Y = (rng.random((n, N_LABELS - 1)) < 0.3).astype(int)
    return X, np.column_stack([Y, np.zeros(n, int)])  # nobody has the last label


def all_pairs(n):
    return np.repeat(np.arange(n), N_LABELS), np.tile(np.arange(N_LABELS), n)


def numbers_of(retriever, X, scores=None, labels=None):
    """Return the numbers of all labels, of shape (n_samples, n_labels, n_numbers)."""
    found = retriever.search({"input": X, "features": X}, scores, labels)
    return retriever.numbers(found, *all_pairs(X.shape[0])).reshape(X.shape[0], N_LABELS, -1)


def unit(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


def kept_features(X, n):
    """Zero all but the n entries of largest magnitude of each row."""
    kept = np.zeros_like(X)
    for i, row in enumerate(X):
        best = sorted(range(len(row)), key=lambda j: (-abs(row[j]), j))[:n]
        kept[i, best] = row[best]
    return kept


def in_integers(X):
    """Round rows to the largest integers of which products fit into float32."""
    largest = np.abs(X).max(axis=1, keepdims=True)
    return np.rint(X * (np.floor(np.sqrt(2**24 / X.shape[1])) / np.where(largest > 0, largest, 1)))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_votes_of_neighbours(is_sparse, weights, rng):
    X, Y = make_data(rng, is_sparse)
    queries = make_data(rng, is_sparse, 9)[0]
    weight = rng.integers(1, 4, len(X)) if weights else None
    near = NearestSamples(n_neighbors=(2, 5), max_features_per_sample=3)
    near.fit({"input": sp.csr_array(X)}, sp.csr_array(Y), weight)
    found = numbers_of(near, sp.csr_array(queries))
    assert sp.issparse(near.index_) == is_sparse
    forms = (kept_features(A, 3) if is_sparse else in_integers(A) for A in (queries, X))
    left, right = map(unit, forms)
    cosines = (left @ right.T).astype(np.float32).round(6)
    rounded = near.search({"input": queries}, None, None).cosines
    for i in range(len(queries)):
        order = [j for j in np.lexsort((np.arange(len(X)), -cosines[i])) if cosines[i, j] > 0]
        np.testing.assert_allclose(rounded[i][: len(order[:5])], cosines[i, order[:5]], atol=1e-5)
        for column, n in enumerate((2, 5)):
            of_n = cosines[i, order[:n]] * (1 if weight is None else weight[order[:n]])
            votes = of_n @ Y[order[:n]] / max(of_n.sum(), 1e-9)
            np.testing.assert_allclose(found[i, :, column], votes, atol=2e-5)
        best = [max([cosines[i, j] for j in order[:5] if Y[j, k]], default=0) for k in range(7)]
        np.testing.assert_allclose(found[i, :, 3], best, atol=1e-5)
        top = cosines[i, order[0]] if order else 0
        np.testing.assert_allclose(found[i, :, 4], top, atol=1e-5)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("n_regressed", [100, 3])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_ridge_regression_among_the_neighbours(is_sparse, n_regressed, weights, rng, monkeypatch):
    monkeypatch.setattr(retrievers, "_MOST_REGRESSED", n_regressed)
    X, Y = make_data(rng, is_sparse)
    queries = make_data(rng, is_sparse, 9)[0]
    weight = rng.integers(1, 4, len(X)) if weights else None
    near = NearestSamples(n_neighbors=(2, 8), max_features_per_sample=5, alpha=0.2)
    near.fit({"input": X}, sp.csr_array(Y), weight)
    neighbors = near.search({"input": queries}, None, None).items[:, :n_regressed]
    found = numbers_of(near, queries)[:, :, 2]
    forms = (kept_features(A, 5) if is_sparse else A for A in (queries, X))
    left, right = map(unit, forms)
    for x, items, numbers in zip(left, neighbors, found):
        items = items[items >= 0]
        if not len(items):
            assert not numbers.any()
            continue
        of_items = None if weight is None else weight[items] / weight.mean()
        ridge = Ridge(alpha=0.2, fit_intercept=False, solver="cholesky")
        ridge.fit(right[items], Y[items], sample_weight=of_items)
        np.testing.assert_allclose(numbers, ridge.predict(x[None])[0], atol=2e-3)


def test_near_duplicates_share_their_weight_in_the_ridge_regression():
    """Ten equal neighbours outvote two that are as near and differ; they do not outweigh them."""
    X = np.zeros((12, 30))
    X[:10, 0], X[10, 1], X[11, 2] = 1, 1, 1
    Y = sp.csr_array(np.repeat(np.eye(2, N_LABELS, dtype=int), [10, 2], axis=0))
    near = NearestSamples(n_neighbors=(12,)).fit({"input": X}, Y)
    queries = np.zeros((1, 30))
    queries[0, :3] = 1
    votes, ridge = numbers_of(near, queries)[0, :2, :2].T
    assert votes[0] == pytest.approx(10 / 12)
    x = 1 / np.sqrt(3)  # the cosine of each neighbour; ten equal ones have the eigenvalue 10
    np.testing.assert_allclose(ridge, [10 * x / 10.1, 2 * x / 1.1], rtol=1e-3)


@pytest.mark.parametrize("weight", [1e-320, 1e-300, 1e300])
def test_weights_of_any_size_leave_the_ridge_regression_finite(weight, rng):
    X, Y = make_data(rng, True)
    X[1] = X[0]
    for weights in (np.full(60, weight), np.r_[weight, np.ones(59)]):
        near = NearestSamples().fit({"input": X}, sp.csr_array(Y), weights)
        assert np.isfinite(numbers_of(near, X)).all()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_examples_are_the_nearest_samples_with_a_label(is_sparse, rng, monkeypatch):
    X, Y = make_data(rng, is_sparse)
    queries, labels = make_data(rng, is_sparse, 9)[0], np.array([[2, 6, 0]] * 9)
    names = np.array([f"s{i}" for i in range(len(X))], dtype=object)
    near = NearestSamples(max_features_per_sample=3)
    near.fit({"input": sp.csr_array(X), "ids": names}, sp.csr_array(Y))
    ids, cosines = near.examples({"input": sp.csr_array(queries)}, labels, 4)
    assert ids.shape == cosines.shape == (9, 3, 4)
    left, right = (unit(kept_features(A, 3) if is_sparse else A) for A in (queries, X))
    every = (left @ right.T).astype(np.float32)
    for i, rank in np.ndindex(9, 3):
        found = [int(each[1:]) for each in ids[i, rank] if each is not None]
        having = [j for j in np.flatnonzero(Y[:, labels[i, rank]]) if every[i, j] > 1e-6]
        if not is_sparse and (np.abs(every[i, Y[:, labels[i, rank]] == 1]) < 2e-3).any():
            continue  # integers may have another sign
        assert len(found) == min(4, len(having))
        assert set(found) <= set(having)
        best = np.sort(every[i, having])[::-1][:4]
        atol = 1e-5 if is_sparse else 2e-3  # of integers
        np.testing.assert_allclose(cosines[i, rank, : len(found)], best, atol=atol)
        np.testing.assert_allclose(every[i, found], best, atol=atol)
        assert not cosines[i, rank, len(found) :].any()
    by_position = near.fit({"input": sp.csr_array(X)}, sp.csr_array(Y))
    again = by_position.examples({"input": sp.csr_array(queries)}, labels, 4)[0]
    assert [None if each is None else f"s{each}" for each in again.ravel()] == ids.ravel().tolist()
    monkeypatch.setattr("sklearn_xlc.ranking.search._FEW_ITEMS", 10)  # dense items in lists
    in_lists = near.fit({"input": sp.csr_array(X)}, sp.csr_array(Y))
    found = in_lists.examples({"input": sp.csr_array(queries)}, labels, 4)
    np.testing.assert_array_equal(found[0], again)
    np.testing.assert_array_equal(found[1], cosines)


# An index of all samples whose cosine is positive, and of no other if rounding is left aside.
@pytest.mark.parametrize(
    "index", [None, RadiusNeighborsTransformer(radius=1.42, algorithm="brute")]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["sparse", "dense", "lists"])
def test_later_samples_are_found_as_if_all_had_come_at_once(
    form, weighted, index, rng, monkeypatch
):
    if form == "lists":
        monkeypatch.setattr(search, "_FEW_ITEMS", 50)
        monkeypatch.setattr(search, "_SHARE", 1.0)
    monkeypatch.setattr(neighbor_index, "MOST_WAITING", 90)
    X, Y = make_data(rng, form == "sparse", n=120)
    Y, weights = sp.csr_array(Y.astype(np.int8)), np.tile([1.0, 3.0], 60)
    ids = np.array([f"s{i}" for i in range(120)], dtype=object)

    def given(part):
        read = sp.csr_matrix(X[part]) if form == "sparse" else X[part]
        return {"input": read, "ids": ids[part]}, Y[part], weights[part] if weighted else None

    near = NearestSamples(max_df=1.0, index=index)
    whole, first = clone(near).fit(*given(slice(0, 120))), clone(near).fit(*given(slice(0, 100)))
    assert copy.copy(first).labels_ is first.labels_  # nothing is converted
    parts = [first]
    for part in (slice(100, 102), slice(102, 120)):
        parts.append(parts[-1].with_later(*given(part)))
    for n, each in zip((100, 102), parts):  # earlier ones stay as they are
        same = clone(near).fit(*given(slice(0, n)))
        np.testing.assert_array_equal(numbers_of(each, X), numbers_of(same, X))
    for each in (parts[-1], pickle.loads(pickle.dumps(parts[-1]))):
        found, expected = (one.search({"input": X}, None, None) for one in (each, whole))
        for column, right in zip(found, expected):
            np.testing.assert_array_equal(column, right)
        np.testing.assert_array_equal(each.candidates(found), whole.candidates(expected))
        np.testing.assert_array_equal(numbers_of(each, X), numbers_of(whole, X))
        labels = np.tile(np.arange(3), (120, 1))
        for names, right in zip(*(one.examples({"input": X}, labels, 4) for one in (each, whole))):
            np.testing.assert_array_equal(names, right)


def test_later_samples_are_compared_by_the_features_that_are_searched(rng):
    X = sp.random_array((320, 80), density=0.04, format="lil", random_state=rng)
    X[:, 0] = 1  # all have this feature
    X, Y = X.tocsr(), sp.csr_array(rng.random((320, 3)) < 0.3, dtype=int)
    first = NearestSamples((2, 5)).fit({"input": X[:300]}, Y[:300])
    later = first.with_later({"input": X[300:]}, Y[300:])
    whole = NearestSamples((2, 5)).fit({"input": X}, Y)
    found, expected = (each.search({"input": X}, None, None) for each in (later, whole))
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_array_equal(found.cosines, expected.cosines)


def test_candidates_are_the_labels_with_most_votes(rng):
    X, Y = make_data(rng, True)
    near = NearestSamples(n_neighbors=(1, 4, 9)).fit({"input": X}, sp.csr_array(Y))
    found = near.search({"input": X}, None, None)
    votes = numbers_of(near, X)[:, :, 1]
    for row, listed in zip(votes, near.candidates(found)):
        expected = [k for k in np.lexsort((np.arange(N_LABELS), -row.round(6))) if row[k] > 0]
        np.testing.assert_allclose(row[listed[listed >= 0]], row[expected], atol=1e-6)
    assert near.candidates(found).shape == (len(X), 8)


def test_frequent_features_are_not_searched(rng):
    X = np.zeros((200, 50))
    X[:, 0] = 1.0
    X[np.arange(200), 1 + np.arange(200) % 49] = 1.0
    Y = sp.csr_array(np.ones((200, 1), int))
    near = NearestSamples(n_neighbors=(300,), max_df=0.1).fit({"input": X}, Y)
    found = near.search({"input": X[:1]}, None, None)
    assert found.items[0][found.items[0] >= 0].tolist() == list(range(0, 200, 49))
    np.testing.assert_allclose(found.cosines[0, 0], 0.5, rtol=1e-6)  # of all features
    every = NearestSamples(n_neighbors=(300,), max_df=1.0).fit({"input": X}, Y)
    assert (every.search({"input": X[:1]}, None, None).items[0] >= 0).sum() == 200


def test_examples_are_compared_by_features_that_are_not_searched_too(rng):
    X = np.zeros((200, 50))
    X[:, 0] = 1 + np.arange(200) % 3
    X[np.arange(200), 1 + np.arange(200) % 49] = 1.0
    near = NearestSamples(max_df=0.1).fit({"input": X}, sp.csr_array(np.ones((200, 1), int)))
    ids, cosines = near.examples({"input": X[:1]}, np.zeros((1, 1), int), 60)
    expected = (unit(X[:1]) @ unit(X).T)[0]
    order = np.lexsort((np.arange(200), -expected.round(6)))[:60]
    assert ids[0, 0].tolist() == order.tolist()
    np.testing.assert_allclose(cosines[0, 0], expected[order], rtol=1e-6)


def test_centroids_are_searched_by_their_rarer_features_and_compared_by_all(monkeypatch):
    monkeypatch.setattr(retrievers, "SMALL", 0)
    X = sp.csr_array(np.hstack([np.ones((200, 1)), np.eye(200), np.zeros((200, 9))]))
    centroids = LabelCentroids(n_nearest=30).fit({"input": X}, sp.eye_array(200, format="csr"))
    found = centroids.search({"input": X[[7]]}, None, None)
    assert centroids.candidates(found).tolist() == [[7] + [-1] * 29]
    cosines = centroids.numbers(found, np.array([0, 0]), np.array([6, 7]))
    np.testing.assert_allclose(cosines[:, 0], [0.5, 1.0], rtol=1e-6)
    few = LabelCentroids(n_nearest=30).fit({"input": X[:40]}, sp.eye_array(40, format="csr"))
    listed = few.candidates(few.search({"input": X[[7]]}, None, None))
    assert listed[0, :3].tolist() == [7, 0, 1]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_cosines_of_centroids(is_sparse, rng):
    X, Y = make_data(rng, is_sparse)
    weight = rng.random(len(X)) + 0.5
    centroids = LabelCentroids(max_features_per_sample=3)
    centroids.fit({"input": X}, sp.csr_array(Y), weight)
    vectors = unit(kept_features(X, 3) if is_sparse else in_integers(X))
    means = (Y * weight[:, None]).T @ vectors
    if not is_sparse:  # rounded: in single precision, so that a half may go either way
        largest = np.where(means.any(axis=1), np.abs(means).max(axis=1), 1)
        exact = means * (np.floor(np.sqrt(2**24 / X.shape[1])) / largest)[:, None]
        assert np.abs(centroids.centroids_ - exact).max() < 0.5 + 1e-3
        means = centroids.centroids_
        np.testing.assert_array_equal(means, np.rint(means))
    cosines = vectors @ unit(means).T
    np.testing.assert_allclose(numbers_of(centroids, X)[:, :, 0], cosines, atol=1e-5)
    listed = centroids.candidates(centroids.search({"input": X}, None, None))
    assert (listed[:, 0] == np.where(cosines.max(1) > 1e-6, cosines.argmax(1), -1)).mean() > 0.95


def test_features_vote(rng):
    X, Y = make_data(rng, True)
    weight = rng.integers(1, 4, len(X))
    votes = FeatureVotes(max_features_per_sample=3).fit({"input": X}, sp.csr_array(Y), weight)
    has = (kept_features(X, 3) != 0).astype(float)
    expected = (has * weight[:, None]).T @ Y / ((has.T @ weight)[:, None] + 2)
    expected[expected < 0.02] = 0
    mean = has @ expected / np.maximum(has.sum(1), 1)[:, None]
    np.testing.assert_allclose(numbers_of(votes, X)[:, :, 0], mean, rtol=1e-5, atol=1e-7)
    assert not numbers_of(
        FeatureVotes().fit({"input": rng.random((60, 5))}, sp.csr_array(Y)), X
    ).any()


def test_companions_of_probable_labels(rng):
    _, Y = make_data(rng, True)
    weight = rng.integers(1, 4, len(Y))
    together = CooccurringLabels().fit({}, sp.csr_array(Y), weight)
    expected = (Y * weight[:, None]).T @ Y / ((Y.T @ weight)[:, None] + 3)
    expected[expected < 0.03] = 0
    np.fill_diagonal(expected, 0)
    scores = np.array([[2.0, 1.0, -np.inf], [0.0, -1.0, -2.0]])
    labels = np.array([[0, 3, 2], [5, 2, -1]])
    p = np.zeros((2, N_LABELS))
    p[0, [0, 3]], p[1, [5, 2]] = expit([2.0, 1.0]), expit([0.0, -1.0])
    found = numbers_of(together, np.zeros((2, 3)), scores, labels)
    np.testing.assert_allclose(found[:, :, 0], p @ expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "retriever", [LabelCentroids(), FeatureVotes(), CooccurringLabels()], ids=repr
)
def test_products_with_dense_tables_are_the_same(retriever, rng, monkeypatch):
    X, Y = make_data(rng, True, 200)
    scores = -np.sort(-rng.normal(size=(200, 4)), axis=1)
    labels = np.argsort(rng.random((200, N_LABELS)), axis=1)[:, :4]
    found = []
    for size in (0, 2**22):
        monkeypatch.setattr(retrievers, "SMALL", size)
        monkeypatch.setattr(shares, "SMALL", size)
        fitted = clone(retriever).fit({"input": X}, sp.csr_array(Y))
        assert fitted.entries_per_sample == N_LABELS or not size
        listed = fitted.candidates(fitted.search({"input": X}, scores, labels))
        found.append((numbers_of(fitted, X, scores, labels), listed))
    (sparse, dense), (of_sparse, of_dense) = zip(*found)
    assert sparse.any()
    if type(retriever) is LabelCentroids:  # sums in double precision, and in single precision
        np.testing.assert_allclose(sparse, dense, atol=1e-6)
        assert (of_sparse == of_dense).mean() > 0.99
    else:
        np.testing.assert_array_equal(sparse, dense)


ALL = [NearestSamples(), LabelCentroids(), FeatureVotes(), CooccurringLabels()]


@pytest.mark.parametrize("retriever", ALL, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_every_retriever(retriever, is_sparse, rng):
    """Dense and CSR, whole and single samples, copies and clones agree to the bit."""
    X, Y = make_data(rng, is_sparse, 200)
    scores = -np.sort(-rng.normal(size=(200, 4)), axis=1)
    labels = np.argsort(rng.random((200, N_LABELS)), axis=1)[:, :4]
    fitted = clone(retriever).fit({"input": X}, sp.csr_array(Y))
    whole = numbers_of(fitted, X, scores, labels)
    names = fitted.get_feature_names_out()
    assert whole.shape[2] == len(names) == len(fitted.monotonic) == len(set(names))
    assert np.isfinite(whole).all()
    of_csr = clone(retriever).fit({"input": sp.csr_matrix(X)}, sp.csr_array(Y))
    np.testing.assert_array_equal(numbers_of(of_csr, sp.csr_array(X), scores, labels), whole)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(numbers_of(copied, X, scores, labels), whole)
    found = fitted.search({"input": X}, scores, labels)
    listed = fitted.candidates(found)
    for i in range(0, 200, 17):
        alone = numbers_of(fitted, X[[i]], scores[[i]], labels[[i]])
        np.testing.assert_array_equal(alone[0], whole[i])
        one = fitted.candidates(fitted.search({"input": X[[i]]}, scores[[i]], labels[[i]]))
        np.testing.assert_array_equal(one, listed[[i]] if listed.size else listed)


@pytest.mark.parametrize("kind", [NearestSamples, LabelCentroids])
def test_features_are_compared_by_all_their_columns(kind, rng):
    X, Y = make_data(rng, True)
    retriever = kind(space="features", max_features_per_sample=1).fit(
        {"features": X}, sp.csr_array(Y)
    )
    assert retriever.reads == ("features",)
    dense = kind().fit({"features": X, "input": rng.random((60, 3))}, sp.csr_array(Y))
    assert type(retriever).__name__ == type(dense).__name__
    assert retriever.index_["vectors"].shape[1] == X.shape[1]


def test_wrong_parameters_are_named(rng):
    X, Y = make_data(rng, True)
    for wrong in ((), (0, 3), (2.5,)):
        with pytest.raises(ValueError, match="n_neighbors"):
            NearestSamples(n_neighbors=wrong).fit({"input": X}, sp.csr_array(Y))
    for wrong in (0, -1.0, "auto"):
        with pytest.raises(ValueError, match="alpha"):
            NearestSamples(alpha=wrong).fit({"input": X}, sp.csr_array(Y))
    with pytest.raises(ValueError, match="space"):
        LabelCentroids(space="somewhere").fit({"input": X}, sp.csr_array(Y))


def test_a_state_holds_plain_arrays_and_is_checked(rng):
    X, Y = make_data(rng, True)
    near = NearestSamples().fit({"input": X}, sp.csr_array(Y))
    state = near.__getstate__()
    assert not any(sp.issparse(value) for value in state.values())
    state["index_"] = {**state["index_"], "indices": state["index_"]["indices"] + 1000}
    with pytest.raises(ValueError, match="saved matrix of a ranker"):
        NearestSamples().__setstate__(state)


def test_parts_of_a_state_that_do_not_fit_raise(rng):
    """SciPy reads beyond the end of a matrix where indices are too large."""
    X, Y = make_data(rng, True)
    near = NearestSamples().fit({"input": X}, sp.csr_array(Y))
    found = near.search({"input": X}, None, None)
    near.labels_ = near.labels_[:3]
    with pytest.raises(IndexError):
        near.candidates(found)
    with pytest.raises(IndexError):
        near.numbers(found, *all_pairs(len(X)))
    together = CooccurringLabels().fit({}, sp.csr_array(Y))
    with pytest.raises(IndexError, match="row 1000000 of a matrix"):
        together.search({}, np.ones((1, 1)), np.array([[10**6]]))


def test_a_retriever_says_what_it_lacks():
    for call in (
        lambda: Retriever().search({}, None, None),
        lambda: Retriever().numbers(None, None, None),
        lambda: Retriever().get_feature_names_out(),
    ):
        with pytest.raises(NotImplementedError, match="Retriever defines no"):
            call()
    assert Retriever().candidates(None).size == 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("weight", [1e-40, 1e-300, 0.0])
def test_centroids_of_labels_with_tiny_weights(form, weight, rng):
    X = np.where(rng.random((60, 40)) < 0.05, rng.random((60, 40)), 0)
    Y = sp.csr_array(np.eye(4, dtype=int)[np.arange(60) % 4])
    weights = np.where(np.arange(60) % 4 == 1, weight, 1.0)
    tiny, plain = (LabelCentroids().fit({"input": form(X)}, Y, each) for each in (weights, None))
    (tiny, plain) = (each.centroids_ @ np.eye(40) for each in (tiny, plain))
    if not weight:
        assert not tiny[1].any()
        tiny[1] = plain[1]
    np.testing.assert_allclose(tiny, plain, atol=1e-6)


@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("few", [False, True])
def test_centroids_follow_later_samples_that_weigh_as_many(is_sparse, few, weigh, rng, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.ranking.retrievers._FEW_CENTROIDS", 1000 * few)
    X = sp.csr_array(sp.random(300, 200, 0.05, "csr", dtype=np.float32, random_state=rng))
    X = X if is_sparse else rng.normal(size=(300, 20)).astype(np.float32)
    Y = np.zeros((300, 9), dtype=np.int8)
    Y[np.arange(300), np.r_[rng.integers(6, size=200), rng.integers(9, size=100)]] = 1
    Y[:, 3] |= np.arange(300) % 5 == 0
    Y[[10, 210, 211], 6] = 1  # first one, then several
    weights = rng.random(300) + 0.5 if weigh else None

    def given(part):
        return {"input": X[part]}, sp.csr_array(Y[part]), None if weights is None else weights[part]

    first = LabelCentroids().fit(*given(slice(200)))
    later = first.with_later(*given(slice(200, 300)))
    alone, whole = (LabelCentroids().fit(*given(slice(start, 300))) for start in (200, 0))
    found, before, new, every = (
        unit_rows(dense_rows(each.centroids_)) for each in (later, first, alone, whole)
    )
    np.testing.assert_array_equal(found[:6], before[:6])
    np.testing.assert_allclose(found[7:], new[7:], atol=2e-3)
    assert not before[7:].any()
    assert found[7:].any(axis=1).all()
    assert found[6] @ every[6] > max(new[6] @ every[6], before[6] @ every[6])
    np.testing.assert_allclose(later.weights_[6:], whole.weights_[6:])
    np.testing.assert_array_equal(later.weights_[:6], first.weights_[:6])
    assert (later.candidates(later.search({"input": X[200:]}, None, None)) == 8).any()
    assert later.with_later(*given(slice(200, 201))) is later


@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("n_queries", [3, 120])  # many: products with dense tables
@pytest.mark.parametrize("kind", [FeatureVotes, CooccurringLabels])
def test_shares_of_later_samples_and_labels_are_those_of_a_fit_to_all(
    kind, n_queries, weigh, rng, monkeypatch
):
    X = sp.random_array((220, 60), density=0.06, format="csr", random_state=rng)
    Y = sp.csr_array(rng.random((220, 9)) < 0.3, dtype=np.int8)
    origin = np.array([4, -1, 2, 8, -1, 0, 1, 7])  # of labels, after the first 100 samples
    Y_later = Y[100:, :8]
    Y_whole = sp.vstack([moved_columns(Y[:100], origin), Y_later], "csr")
    weights = rng.random(220) + 0.5 if weigh else np.ones(220)
    scores, labels = rng.normal(size=(n_queries, 4)), np.argsort(rng.random((n_queries, 8)))[:, :4]
    pairs = np.repeat(np.arange(n_queries), 8), np.tile(np.arange(8), n_queries)

    def numbers(each):
        return each.numbers(each.search({"input": X[:n_queries]}, scores, labels), *pairs)

    def in_parts():
        first = kind().fit({"input": X[:100]}, Y[:100], weights[:100])._for_labels(origin)
        parts = [first]
        for start, stop in ((100, 101), (101, 190), (190, 220)):
            rows = slice(start, stop), slice(start - 100, stop - 100)
            given = {"input": X[rows[0]]}, Y_later[rows[1]], weights[rows[0]]
            parts.append(parts[-1].with_later(*given))
        return parts

    def whole():
        return kind().fit({"input": X}, Y_whole, weights)

    parts = in_parts()
    before = numbers(parts[0])
    bound = 4 * kind._least  # the fit, and each of three parts, leave smaller shares out
    bound *= 1 if kind is FeatureVotes else expit(scores).sum(axis=1).max()
    assert abs(numbers(parts[-1]) - numbers(whole())).max() < bound
    np.testing.assert_array_equal(numbers(parts[0]), before)  # earlier ones stay as they are
    assert (numbers(parts[-1]) != before).any()
    monkeypatch.setattr(kind, "_least", 0)  # nothing is left out
    np.testing.assert_allclose(numbers(in_parts()[-1]), numbers(whole()), atol=1e-5)


@pytest.mark.parametrize("kind", [FeatureVotes, CooccurringLabels])
def test_shares_count_samples_that_come_one_by_one(kind, rng):
    """One of hundreds of samples is a share that a fit leaves out; a hundred such are not."""
    X, Y = np.zeros((500, 30)), np.zeros((500, 2), dtype=np.int8)
    X[:, 0] = Y[:, 0] = 1
    Y[:, 1] = rng.random(500) < 0.5
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    later = kind().fit({"input": X[:400]}, Y[:400])
    for row in range(400, 500):
        later = later.with_later({"input": X[row : row + 1]}, Y[row : row + 1])
    found, whole = (
        each.numbers(each.search({"input": X[:1]}, np.ones((1, 1)), np.zeros((1, 1), int)), *pair)
        for each in (later, kind().fit({"input": X}, Y))
        for pair in [(np.zeros(1, int), np.ones(1, int))]
    )
    np.testing.assert_allclose(found, whole, rtol=1e-4)
    assert whole > 0.1


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("n_queries", [3, 120])  # many: products with dense tables
@pytest.mark.parametrize("kind", [FeatureVotes, CooccurringLabels, LabelCentroids])
def test_later_samples_of_extreme_weights_have_finite_numbers(kind, n_queries, rng):
    X = sp.random_array((220, 60), density=0.06, format="csr", random_state=rng)
    Y = sp.csr_array(rng.random((220, 9)) < 0.3, dtype=np.int8)
    scores, labels = np.ones((n_queries, 4)), np.argsort(rng.random((n_queries, 9)))[:, :4]
    pairs = np.repeat(np.arange(n_queries), 9), np.tile(np.arange(9), n_queries)
    each = kind().fit({"input": X[:100]}, Y[:100], np.where(np.arange(100) % 9 == 0, 1e308, 1.0))
    for row, weight in enumerate([1.0, 1e308, 1.0, 1e308, 1e39, 1e-300, 1e38, 1.0]):
        part = slice(100 + 15 * row, 115 + 15 * row)
        each = each.with_later({"input": X[part]}, Y[part], np.full(15, weight))
        found = each.search({"input": X[:n_queries]}, scores, labels)
        numbers = each.numbers(found, *pairs)
        assert np.isfinite(numbers).all()
        assert numbers.any()


def dense_rows(X):
    return X.toarray() if sp.issparse(X) else X
