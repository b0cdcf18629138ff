"""GRLR against a literal Algorithm 1, its invariances, and the variants with a background."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn import config_context
from sklearn.preprocessing import normalize

from _factories import make_groups
from sklearn_xlc.aggregation import _products as products
from sklearn_xlc.aggregation import (
    aggregation,
    grlr_objective,
    learn_embeddings,
    make_background,
    unit_rows,
)
from sklearn_xlc.aggregation._embeddings import _start_pairs
from sklearn_xlc.aggregation._pairs import make_pairs

SETTINGS = settings(derandomize=True, max_examples=25, deadline=None)


def proj(x):
    length = np.linalg.norm(x)
    return x / length if length > 0 else x


def grlr(X, membership, group_labels, n_iter, step, similar=None):
    """Algorithm 1 of the paper, label by label and group by group.

    Sums are of the rows of X, similarities of those of `similar`.
    """
    similar = X if similar is None else similar
    embeddings = []
    for label in range(group_labels.shape[1]):
        groups = [np.flatnonzero(membership[:, j]) for j in np.flatnonzero(group_labels[:, label])]
        e = proj(sum((X[rows].sum(axis=0) for rows in groups), np.zeros(X.shape[1])))
        for _ in range(n_iter):
            g = np.zeros(X.shape[1])
            for rows in groups:
                if len(rows):
                    scores = similar[rows] @ e
                    g += X[rows[scores >= scores.max() - 1e-14]].sum(axis=0)
            e = proj(e + step * proj(g))
        embeddings.append(e)
    return np.array(embeddings)


def dense(embeddings):
    return embeddings.block(0, len(embeddings.weights))


def variants(X):
    """Settings of every kind, as keyword arguments."""
    background = make_background(X, 3, 0.05, np.random.RandomState(0))
    soft = {"step_size": None, "temperature": 0.3, "n_iter": 2}
    return [
        {"n_iter": 20},
        {"n_iter": 3, "background": background},
        {"background": background, **soft},
        {"background": background, "use_counts": True, **soft},
    ]


@SETTINGS
@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([0.1, 1.0, 7.0]))
def test_algorithm_1(seed, n_iter, step):
    X, membership, labels = make_groups(seed)
    data = aggregation(membership, labels)
    found = learn_embeddings(X, data, n_iter=n_iter, step_size=step)
    np.testing.assert_allclose(dense(found), grlr(X, membership, labels, n_iter, step), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_longest_steps_are_directions(dtype):
    """Proj has no scale, so that e + lambda g tends to g; no sum overflows."""
    X, membership, labels = make_groups(0)
    X, data = X.astype(dtype), aggregation(membership, labels)
    expected = dense(learn_embeddings(X, data, n_iter=3, step_size=None))
    for step in (1e6, 1.7e308):
        found = dense(learn_embeddings(X, data, n_iter=3, step_size=step))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@SETTINGS
@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([0.1, 1.0]), st.booleans())
def test_choice_by_cosine_and_sums_of_samples_as_given(seed, n_iter, step, sparse):
    """Algorithm 1 with the cosines of Table 4 for its brackets, on samples of any norm."""
    X, membership, labels = make_groups(seed)
    data, units = aggregation(membership, labels), unit_rows(X)
    norms = np.geomspace(0.2, 5, len(X))[np.random.default_rng(seed).permutation(len(X))]
    norms[~X.any(axis=1)] = 0
    given = units * norms[:, None]
    expected = grlr(given, membership, labels, n_iter, step, similar=units)
    rows = sp.csr_array(units) if sparse else units
    found = learn_embeddings(rows, data, n_iter=n_iter, step_size=step, sample_weight=norms)
    np.testing.assert_allclose(dense(found), expected, atol=1e-12)


@pytest.mark.parametrize("n_iter", [1, 6])
@pytest.mark.parametrize("n_components", [0, 2])
def test_algorithm_1_in_the_metric_of_the_background(rng, n_components, n_iter):
    """Samples less their mean, and inner products with the matrix I - D'D."""
    X = unit_rows(rng.normal(size=(60, 5)) + 0.5)
    members = np.arange(60).reshape(12, 5)
    labels = (rng.random((12, 4)) < 0.6).astype(int)
    background = make_background(X, n_components, 0.05, np.random.RandomState(0))
    centred, metric = (
        X - X.mean(axis=0),
        np.eye(5) - background.directions.T @ background.directions,
    )

    def project(x):
        return x / np.sqrt(x @ metric @ x)

    expected = []
    for k in range(4):
        groups = members[labels[:, k] == 1]
        e = project(centred[groups.ravel()].sum(axis=0))
        for _ in range(n_iter):
            best = [rows[(X[rows] @ metric @ e).argmax()] for rows in groups]
            e = project(e + 0.1 * project(centred[best].sum(axis=0)))
        expected.append(proj(metric @ e))
    data = aggregation(np.repeat(np.eye(12), 5, axis=0), labels)
    found = learn_embeddings(X, data, background=background, n_iter=n_iter)
    np.testing.assert_allclose(dense(found), expected, atol=1e-12)


@pytest.mark.parametrize("wrong", [np.ones(3), -np.ones(4), np.full(4, np.nan), np.ones((4, 1))])
def test_bad_sample_weights(wrong):
    data = aggregation(np.eye(4), np.eye(4))
    with pytest.raises(ValueError, match="sample_weight"):
        learn_embeddings(np.eye(4), data, sample_weight=wrong)


def test_all_rows_of_a_tie_count():
    X = np.eye(3)[[0, 1, 0, 2]]
    data = aggregation(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), [[1], [1]])
    e0 = np.array([2, 1, 1]) / np.sqrt(6)
    both = dense(learn_embeddings(X, data, n_iter=1, step_size=None))
    np.testing.assert_allclose(both, [[1, 0, 0]], atol=1e-15)
    # Rows 1 and 3 alone tie with nothing; two equal groups of e1 and e2 tie throughout.
    tied = aggregation([[0], [1], [0], [1]], [[1]])
    once = dense(learn_embeddings(X, tied, n_iter=1, step_size=None))
    np.testing.assert_allclose(once, [[0, np.sqrt(0.5), np.sqrt(0.5)]], atol=1e-15)
    np.testing.assert_allclose(dense(learn_embeddings(X, data, n_iter=0)), [e0], atol=1e-15)


@pytest.mark.parametrize("n_iter", [0, 1, 20])
def test_groups_of_one_are_parabels_embedding(rng, n_iter):
    X = unit_rows(rng.random((30, 8)))
    Y = (rng.random((30, 5)) < 0.3).astype(int)
    found = dense(learn_embeddings(X, aggregation(np.eye(30), Y), n_iter=n_iter))
    np.testing.assert_allclose(found, normalize(Y.T @ X), atol=1e-13)


@SETTINGS
@given(st.integers(0, 10**6))
def test_the_objective_does_not_fall(seed):
    X, membership, labels = make_groups(seed)
    X[~X.any(axis=1)] = np.eye(5)[0]
    data = aggregation(membership, labels)
    values = [grlr_objective(X, data, learn_embeddings(X, data, n_iter=t)) for t in range(8)]
    assert (np.diff(values, axis=0) > -1e-12).all()


@pytest.mark.parametrize("number", range(4))
def test_result_is_the_same_in_any_block_and_any_number_of_jobs(number):
    X, membership, labels = make_groups(3, n_rows=60, n_groups=15, n_labels=12)
    data = aggregation(membership, labels)
    for rows in (X, sp.csr_array(X)):
        settings = variants(rows)[number]
        expected = dense(learn_embeddings(rows, data, **settings))
        for limit, n_jobs in ((1, None), (1, 2), (3000, None), (10**8, 2)):
            with config_context(working_memory=limit / 2**20):
                found = learn_embeddings(rows, data, n_jobs=n_jobs, **settings)
            np.testing.assert_array_equal(dense(found), expected)


def test_joblib_backend_of_the_context(monkeypatch):
    X, membership, labels = make_groups(5)
    data = aggregation(membership, labels)
    with config_context(working_memory=2**-20):
        expected = dense(learn_embeddings(X, data))
        with parallel_config("sequential"):
            found = dense(learn_embeddings(X, data, n_jobs=2))
    np.testing.assert_array_equal(found, expected)


def test_labels_in_pieces(monkeypatch):
    X, membership, labels = make_groups(4)
    data = aggregation(membership, labels)
    for rows in (X, sp.csr_array(X)):
        for kwargs in variants(rows):
            expected = dense(learn_embeddings(rows, data, **kwargs))
            with monkeypatch.context() as patch:
                patch.setattr(products, "PIECE", 11)
                found = []
                for limit in (2**-20, 1000):
                    with config_context(working_memory=limit):
                        found.append(learn_embeddings(rows, data, **kwargs))
            np.testing.assert_allclose(dense(found[0]), expected, atol=1e-12)
            np.testing.assert_array_equal(dense(found[0]), dense(found[1]))


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_equals_sparse(number, dtype):
    X, membership, labels = make_groups(8)
    X = X.astype(dtype)
    data = aggregation(membership, labels)
    settings = variants(X)[number]
    found = [dense(learn_embeddings(rows, data, **settings)) for rows in (X, sp.csr_array(X))]
    assert found[0].dtype == found[1].dtype == dtype
    np.testing.assert_allclose(*found, atol=1e-4 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("number", range(4))
def test_order_of_rows_and_groups_and_rotation(number, rng):
    X, membership, labels = make_groups(9)
    labels *= rng.integers(1, 4, size=labels.shape)
    expected = dense(learn_embeddings(X, aggregation(membership, labels), **variants(X)[number]))
    rows, groups = rng.permutation(20), rng.permutation(6)
    data = aggregation(membership[rows][:, groups], labels[groups])
    found = dense(learn_embeddings(X[rows], data, **variants(X[rows])[number]))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    turned = X @ rotation
    data = aggregation(membership, labels)
    found = dense(learn_embeddings(turned, data, **variants(turned)[number]))
    np.testing.assert_allclose(found, expected @ rotation, atol=1e-9)


def test_contrast_with_all_rows_is_contrast_with_the_other_groups(rng):
    X = unit_rows(rng.random((40, 6)))
    membership = np.kron(np.eye(10), np.ones((4, 1)))
    labels = (rng.random((10, 5)) < 0.5).astype(int)
    labels[0], labels[1] = 0, 1  # groups with and without every label
    background = make_background(X, 0, 1.0, np.random.RandomState(0))
    found = dense(
        learn_embeddings(X, aggregation(membership, labels), background=background, n_iter=0)
    )
    candidates = (membership @ labels).T > 0
    differences = [X[mask].mean(axis=0) - X[~mask].mean(axis=0) for mask in candidates]
    np.testing.assert_allclose(found, normalize(differences), atol=1e-12)


def test_soft_weights_by_hand():
    X = np.eye(4)[[0, 1, 2, 3]]
    data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[3], [1]])
    # Start from counts: e0 ~ (3, 3, 1, 1), all similarities of a group equal, so weights 1/2 each;
    # times the counts, and never above 1.
    background = make_background(X, 0, 1.0, np.random.RandomState(0))
    found = learn_embeddings(
        X, data, background=background, n_iter=1, step_size=None, temperature=1.0, use_counts=True
    )
    expected = np.array([1, 1, 0.5, 0.5]) - 3 * 0.25
    np.testing.assert_allclose(dense(found), [expected / np.linalg.norm(expected)], atol=1e-12)


def test_temperature_near_zero_is_the_best_row(rng):
    X = unit_rows(rng.normal(size=(24, 5)))
    data = aggregation(np.kron(np.eye(6), np.ones((4, 1))), np.ones((6, 1)))
    hard, cold, warm = (
        dense(learn_embeddings(X, data, n_iter=3, step_size=1.0, temperature=t))
        for t in (0, 1e-6, 1.0)
    )
    np.testing.assert_allclose(cold, hard, atol=1e-12)
    assert np.abs(warm - hard).max() > 0.01


def test_targets_multiply_soft_weights(rng):
    X = unit_rows(rng.normal(size=(24, 5)))
    data = aggregation(np.kron(np.eye(6), np.ones((4, 1))), np.eye(6)[:, :2])
    settings = {"n_iter": 1, "step_size": None, "temperature": 0.5}
    plain = dense(learn_embeddings(X, data, **settings))
    # One group: three rows of four is nearly a plain sum, and one row a group changes nothing.
    ones = dense(learn_embeddings(X, data, targets=np.ones(2), **settings))
    np.testing.assert_array_equal(ones, plain)
    all_rows = dense(learn_embeddings(X, data, targets=np.full(2, 1e9), **settings))
    start = dense(learn_embeddings(X, data, n_iter=0))
    np.testing.assert_allclose(all_rows, start, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_degenerate_labels(dtype):
    X = np.array([[1.0, 0], [0, 0], [0, 0], [-1.0, 0]], dtype=dtype)
    membership = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1]]
    # No group; an empty group; empty rows only; x and -x; one row.
    labels = [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    for rows in (X, sp.csr_array(X)):
        for n_iter in (0, 5):
            found = dense(learn_embeddings(rows, aggregation(membership, labels), n_iter=n_iter))
            assert found.dtype == dtype
            np.testing.assert_array_equal(found[:3], 0)
            assert np.abs(found[3]).tolist() == [1, 0]
            np.testing.assert_array_equal(found[4], [-1, 0])


def test_a_label_of_all_groups_is_no_contrast():
    """Its sum less the mean is rounding; it starts from one row, as after a sum of zero."""
    rng = np.random.default_rng(0)
    X = unit_rows(rng.random((400, 30)).astype(np.float32))
    data = aggregation(np.kron(np.eye(100), np.ones((4, 1))), np.ones((100, 1)))
    background = make_background(X, 0, 1.0, np.random.RandomState(0))
    found = dense(learn_embeddings(X, data, background=background, n_iter=0))[0]
    assert np.linalg.norm(found) == pytest.approx(1, rel=1e-5)
    centred = normalize(X - X.mean(axis=0))
    assert (centred @ found).max() == pytest.approx(1, rel=1e-4)


def test_unit_length(rng):
    X, membership, labels = make_groups(1)
    for kwargs in variants(X):
        lengths = np.linalg.norm(
            dense(learn_embeddings(X, aggregation(membership, labels), **kwargs)), axis=1
        )
        has_rows = ((membership[X.any(axis=1)] @ labels) > 0).any(axis=0)
        np.testing.assert_allclose(lengths, has_rows, atol=1e-9)


# --- labels whose samples sum to zero ---

BOTH = pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])


def starts(X, data, labels, seed):
    pairs = make_pairs(data, 0, data.n_labels)
    return pairs.samples[_start_pairs(X, data, pairs, np.asarray(labels), seed)]


@BOTH
@pytest.mark.parametrize("seed", range(30))
def test_identical_labels_start_from_opposite_rows(convert, seed):
    x = np.array([1.0, 2.0, 0.0])
    X = convert(np.array([x, -x, x, -x, x, -x]))
    data = aggregation(np.kron(np.eye(3), np.ones((2, 1))), np.ones((3, 2)))
    first, second = starts(X, data, [0, 1], seed)
    assert first // 2 == second // 2
    assert first != second


def test_the_seed_reaches_every_row():
    data = aggregation(np.kron(np.eye(2), np.ones((2, 1))), np.ones((2, 1)))
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    assert {int(starts(X, data, [0], seed)[0]) for seed in range(50)} == {0, 1, 2, 3}


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_later_twins_take_what_is_less_like_the_first(convert, seed):
    angles = np.array([0.0, 0.5, 3.0, 1.5])
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    data = aggregation(np.ones((4, 1)), np.ones((1, 6)))
    rows = starts(convert(X), data, np.arange(6), seed)
    order = [rows[0], *sorted({0, 1, 2, 3} - {rows[0]}, key=lambda row: X[row] @ X[rows[0]])]
    assert rows.tolist() == [*order, *order[:2]]


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_empty_rows_are_never_picked(convert, seed):
    X = convert(np.array([[0.0], [1.0], [0.0], [-1.0], [0.0]]))
    membership = [[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]]
    data = aggregation(membership, np.array([[1, 1, 0], [0, 0, 1]]))
    assert sorted(starts(X, data, [0, 1], seed)) == [1, 3]
    assert len(starts(X, data, [2], seed)) == 0
    assert len(starts(X, data, [0, 1, 2], seed)) == 2


# --- objective ---


def literal(X, membership, labels, vectors):
    """Sum over the groups of a label of the largest inner product of a sample, label by label."""
    result = np.zeros(len(vectors))
    for k, e in enumerate(vectors):
        for j in range(membership.shape[1]):
            members = [i for i in range(len(X)) if membership[i, j]]
            if labels[j, k] and members:
                result[k] += max(sum(X[i] * e) for i in members)
    return result


@settings(SETTINGS, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([np.asarray, sp.csr_array, sp.csc_matrix]))
def test_eq_2(seed, convert):
    X, membership, labels = make_groups(seed, most=3)
    vectors = np.random.default_rng(seed).normal(size=(labels.shape[1], X.shape[1]))
    vectors[2] = 0
    data = aggregation(membership, labels)
    expected = literal(X, membership, labels, unit_rows(vectors))
    for rows in (X, sp.csr_array(X)):
        for limit, n_jobs in ((1, 2), (2**29, None)):
            with config_context(working_memory=limit / 2**20):
                found = grlr_objective(rows, data, convert(vectors), n_jobs=n_jobs)
            np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("with_background", [False, True])
def test_embeddings_are_their_vectors(with_background):
    X, membership, labels = make_groups(1)
    data = aggregation(membership, labels)
    background = make_background(X, 3, 0.05, np.random.RandomState(0)) if with_background else None
    embeddings = learn_embeddings(X, data, background=background)
    found = grlr_objective(X, data, embeddings)
    vectors = embeddings.block(0, data.n_labels)
    np.testing.assert_allclose(found, literal(X, membership, labels, vectors), atol=1e-13)


@settings(SETTINGS, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 3.0, None]))
def test_no_step_of_algorithm_1_decreases_it(seed, step):
    X, membership, labels = make_groups(seed)
    X = X[X.any(axis=1)]  # an empty sample ties with itself only, but may be left alone
    data = aggregation(membership[: len(X)], labels)
    steps = [learn_embeddings(X, data, n_iter=t, step_size=step) for t in range(8)]
    values = np.array([grlr_objective(X, data, embeddings) for embeddings in steps])
    assert (np.diff(values, axis=0) > -1e-12).all()
    assert (values <= np.diff(data.labels.indptr) + 1e-12).all()


def test_steps_along_a_tie_may_decrease_it():
    # Samples 0 and 1 always tie, and count twice in the direction; Eq. 2 counts their group once.
    tied = np.sqrt(0.75)
    X = np.array([[0.5, tied, 0], [0.5, -tied, 0], [0, 0, 1], [-0.6, 0, 0.8]])
    data = aggregation([[1, 0], [1, 0], [0, 1], [0, 1]], [[1], [1]])
    steps = [learn_embeddings(X, data, n_iter=t) for t in range(60)]
    values = [grlr_objective(X, data, embeddings)[0] for embeddings in steps]
    assert max(values) == pytest.approx(np.sqrt(1.25), abs=1e-3)  # at (0.5, 0, 1), the best
    assert values[-1] == pytest.approx(1.5 / np.sqrt(2), abs=1e-3)  # at (1, 0, 1), the limit


@pytest.mark.parametrize("wrong", [np.eye(3), np.eye(2, 6), np.ones(6), sp.eye_array(6)])
def test_one_vector_a_label(wrong):
    data = aggregation(np.kron(np.eye(3), [[1], [1]]), np.eye(3))
    with pytest.raises(ValueError, match="a row for each of the 3 labels and a column for each"):
        grlr_objective(np.eye(6), data, wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_to_sum(dtype):
    X = np.eye(3, dtype=dtype)
    nothing = grlr_objective(X, aggregation(np.zeros((3, 2)), np.zeros((2, 0))), np.zeros((0, 3)))
    np.testing.assert_array_equal(nothing, np.zeros(0), strict=True)
    empty = aggregation(np.eye(3)[:, :2], np.zeros((2, 4)))
    np.testing.assert_array_equal(grlr_objective(X, empty, np.ones((4, 3))), np.zeros(4))
