"""Generated data: contracts, label frequencies, memory, and that something can be learned."""

import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import normalize
from sklearn.utils.multiclass import type_of_target

from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel

BOTH = pytest.mark.parametrize("make", [make_extreme_multiclass, make_extreme_multilabel])
SETTINGS = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def centroid_ranking(X, Y, X_new):
    """Ids of the labels whose normalised mean row is closest, best first."""
    centroids = normalize(Y.T @ X)
    return np.argsort(-(X_new @ centroids.T).toarray(), axis=1)


def one_hot(y, n_labels):
    return sp.csr_matrix((np.ones(len(y)), y, np.arange(len(y) + 1)), shape=(len(y), n_labels))


@SETTINGS
@given(
    n_samples=st.integers(1, 30),
    n_features=st.integers(1, 30),
    n_labels=st.integers(1, 30),
    exponent=st.floats(0, 3),
    noise=st.floats(0, 1),
    own=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size_gives_well_formed_data(
    n_samples, n_features, n_labels, exponent, noise, own, seed
):
    sizes = (n_samples, n_features, n_labels)
    shared = {"zipf_exponent": exponent, "noise": noise, "n_features_per_label": own}
    X, y = make_extreme_multiclass(*sizes, random_state=seed, **shared)
    assert y.shape == (n_samples,)
    assert y.dtype == np.int64
    assert y.min() >= 0
    assert y.max() < n_labels
    X_multi, Y = make_extreme_multilabel(*sizes, n_labels_per_row=1, random_state=seed, **shared)
    assert Y.shape == (n_samples, n_labels)
    np.testing.assert_array_equal(Y.data, 1)
    np.testing.assert_array_equal(np.diff(Y.indptr), 1)
    for rows in (X, X_multi):
        assert rows.shape == (n_samples, n_features)
        assert rows.dtype == np.float32
        assert rows.has_canonical_format
        assert rows.data.min() > 0
        assert np.diff(rows.indptr).max() <= own
        np.testing.assert_allclose(sp.linalg.norm(rows, axis=1), 1, rtol=1e-6)


@BOTH
def test_same_seed_same_bytes(make):
    def raw(seed):
        X, y = make(200, 50, 300, random_state=seed)
        arrays = [X.data, X.indices, X.indptr, *([y] if y.ndim == 1 else [y.indices, y.indptr])]
        return b"".join(array.tobytes() for array in arrays)

    assert raw(3) == raw(3)
    assert raw(3) == raw(np.random.RandomState(3))
    assert raw(3) != raw(4)


@BOTH
def test_dense_equals_sparse(make):
    X, y = make(60, 40, 30, random_state=0)
    X_dense, y_again = make(60, 40, 30, sparse=False, random_state=0)
    assert isinstance(X_dense, np.ndarray)
    np.testing.assert_array_equal(X_dense, X.toarray())
    assert (y_again != y).sum() == 0


def test_scikit_learn_recognises_the_targets():
    assert type_of_target(make_extreme_multiclass(random_state=0)[1]) == "multiclass"
    assert type_of_target(make_extreme_multilabel(random_state=0)[1]) == "multilabel-indicator"


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_frequencies_follow_zipf(exponent):
    n_samples, n_labels = 200_000, 1000
    _, y = make_extreme_multiclass(
        n_samples, 5, n_labels, zipf_exponent=exponent, n_features_per_label=1, random_state=0
    )
    share = np.arange(1, n_labels + 1) ** -exponent
    share /= share.sum()
    counts = np.bincount(y, minlength=n_labels)
    observed = np.sort(counts)[::-1].cumsum() / n_samples
    # Sorting favours lucky labels of equal share, so the head of a flat law needs slack.
    slack = 0.05 if exponent == 0 else 0.01
    np.testing.assert_allclose(observed[[0, 9, 99]], share.cumsum()[[0, 9, 99]], atol=slack)


def test_ids_carry_no_order_of_frequency():
    _, y = make_extreme_multiclass(50_000, 5, 1000, n_features_per_label=1, random_state=0)
    counts = np.bincount(y, minlength=1000)
    assert abs(np.corrcoef(np.arange(1000), counts)[0, 1]) < 0.15
    assert counts.argmax() != 0


@pytest.mark.parametrize("mean", [1, 2.5, 10])
@pytest.mark.parametrize("allow_unlabeled", [False, True])
def test_labels_a_row(mean, allow_unlabeled):
    _, Y = make_extreme_multilabel(
        20_000,
        50,
        500,
        n_labels_per_row=mean,
        allow_unlabeled=allow_unlabeled,
        n_features_per_label=1,
        random_state=0,
    )
    counts = np.diff(Y.indptr)
    least = 0 if allow_unlabeled else 1
    assert Y.has_canonical_format
    assert counts.mean() == pytest.approx(mean, abs=0.05)
    assert counts.var() == pytest.approx(mean - least, abs=0.3)  # Poisson above the minimum
    empty = np.exp(-mean) if allow_unlabeled else 0
    assert (counts == 0).mean() == pytest.approx(empty, rel=0.1, abs=1e-4 * allow_unlabeled)


def test_label_sets_are_drawn_without_replacement():
    # Two draws give the pair {a, b} with probability p_a p_b (1 / (1 - p_a) + 1 / (1 - p_b)).
    p = np.array([1, 1 / 2, 1 / 3])
    p /= p.sum()
    _, Y = make_extreme_multilabel(
        60_000, 3, 3, n_labels_per_row=1.5, n_features_per_label=1, random_state=0
    )
    pairs = Y[np.diff(Y.indptr) == 2].toarray()
    order = np.argsort(-Y[np.diff(Y.indptr) == 1].sum(axis=0).A1)
    share = [(pairs[:, order[a]] & pairs[:, order[b]]).mean() for a, b in ((0, 1), (0, 2), (1, 2))]
    expected = [
        p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b])) for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert sum(expected) == pytest.approx(1)
    np.testing.assert_allclose(share, expected, atol=0.01)


def test_unlabeled_rows_hold_noise_only():
    X, Y = make_extreme_multilabel(
        300,
        10_000,
        5,
        n_labels_per_row=1,
        noise=0,
        n_features_per_label=3,
        allow_unlabeled=True,
        random_state=0,
    )
    empty = np.diff(Y.indptr) == 0
    assert 0 < empty.sum() < 300
    # Without noise, all labelled rows together show the features of 5 labels at most.
    assert len(np.unique(X[~empty].indices)) <= 15
    assert len(np.unique(X[empty].indices)) > 2 * empty.sum()


def test_without_noise_a_row_is_its_label():
    X, y = make_extreme_multiclass(500, 1000, 20, noise=0, random_state=0)
    dense = X.toarray()
    for label in np.unique(y):
        rows = dense[y == label]
        np.testing.assert_array_equal(rows, np.tile(rows[0], (len(rows), 1)))
    first = dense[[np.flatnonzero(y == label)[0] for label in np.unique(y)]]
    assert len(np.unique(first, axis=0)) == len(first)


def test_pure_noise_teaches_nothing():
    X, y = make_extreme_multiclass(4000, 200, 50, zipf_exponent=0, noise=1.0, random_state=0)
    best = centroid_ranking(X[:3000], one_hot(y, 50)[:3000], X[3000:])[:, 0]
    assert accuracy_score(y[3000:], best) < 0.06  # chance: 0.02


def test_multiclass_is_learnable():
    X, y = make_extreme_multiclass(6000, 500, 200, random_state=0)
    best = centroid_ranking(X[:5000], one_hot(y, 200)[:5000], X[5000:])[:, 0]
    assert accuracy_score(y[5000:], best) > 0.9
    assert np.bincount(y).max() < 0.2 * len(y)


def test_multilabel_is_learnable():
    X, Y = make_extreme_multilabel(6000, 500, 200, random_state=0)
    best = centroid_ranking(X[:5000], Y[:5000], X[5000:])[:, 0]
    hits = Y[5000:].toarray()[np.arange(1000), best].mean()
    frequent = Y[5000:, int(np.argmax(Y[:5000].sum(axis=0)))].mean()
    assert hits > 0.85
    assert hits > 1.5 * frequent


def test_all_classes_occur_when_asked():
    _, y = make_extreme_multiclass(300, 20, 300, all_classes=True, random_state=0)
    np.testing.assert_array_equal(np.sort(y), np.arange(300))
    _, y = make_extreme_multiclass(5000, 20, 300, all_classes=True, random_state=0)
    assert len(np.unique(y)) == 300
    assert np.bincount(y).max() > 300
    _, y = make_extreme_multiclass(300, 20, 300, random_state=0)
    assert len(np.unique(y)) < 300


@BOTH
def test_a_million_labels_in_little_memory(make):
    tracemalloc.start()
    start = time.process_time()
    X, y = make(5000, 10_000, 1_000_000, random_state=0)
    elapsed = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert X.shape == (5000, 10_000)
    assert y.shape[0] == 5000
    assert peak < 40e6
    assert elapsed < 10


WRONG = {
    "n_samples zero": ({"n_samples": 0}, ValueError, "n_samples must be an integer >= 1, got 0"),
    "n_features float": (
        {"n_features": 2.0},
        TypeError,
        "n_features must be an integer >= 1, got 2.0",
    ),
    "n_labels bool": ({"n_labels": True}, TypeError, "n_labels must be an integer >= 1, got True"),
    "exponent": ({"zipf_exponent": -1}, ValueError, "zipf_exponent must be .* at least 0, got -1"),
    "exponent inf": ({"zipf_exponent": np.inf}, ValueError, "zipf_exponent must be finite"),
    "own": (
        {"n_features_per_label": 0},
        ValueError,
        "n_features_per_label must be an integer >= 1",
    ),
    "noise": ({"noise": 1.5}, ValueError, r"noise must be finite and in \[0, 1\], got 1.5"),
    "noise nan": ({"noise": np.nan}, ValueError, "noise must be finite"),
    "noise text": ({"noise": "much"}, TypeError, "noise must be finite .* got 'much' of type str"),
}


@BOTH
@pytest.mark.parametrize("wrong, error, message", WRONG.values(), ids=WRONG)
def test_wrong_parameters_are_refused(make, wrong, error, message):
    with pytest.raises(error, match=message):
        make(**wrong)


def test_impossible_demands_are_refused():
    with pytest.raises(ValueError, match="all_classes=True needs n_samples >= n_labels"):
        make_extreme_multiclass(10, 5, 11, all_classes=True)
    with pytest.raises(ValueError, match=r"n_labels_per_row must be finite and in \[1, 20\]"):
        make_extreme_multilabel(10, 5, 20, n_labels_per_row=0.5)
    with pytest.raises(ValueError, match=r"n_labels_per_row must be finite and in \[0, 20\]"):
        make_extreme_multilabel(10, 5, 20, n_labels_per_row=21, allow_unlabeled=True)
