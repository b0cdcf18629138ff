"""Eq. 2 of EAGLE against the formula written out, and what Algorithm 1 makes of it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from _factories import make_groups
from sklearn_xlc.aggregation import (
    aggregation,
    grlr_objective,
    learn_embeddings,
    make_background,
    unit_rows,
)

SETTINGS = settings(derandomize=True, max_examples=20, deadline=None)


def literal(X, membership, labels, vectors):
    """Sum over the groups of a label of the largest inner product of a sample, label by label."""
    result = np.zeros(len(vectors))
    for k, e in enumerate(vectors):
        for j in range(membership.shape[1]):
            members = [i for i in range(len(X)) if membership[i, j]]
            if labels[j, k] and members:
                result[k] += max(sum(X[i] * e) for i in members)
    return result


@SETTINGS
@given(st.integers(0, 10**6), st.sampled_from([np.asarray, sp.csr_array, sp.csc_matrix]))
def test_eq_2(seed, convert):
    X, membership, labels = make_groups(seed, most=3)
    vectors = np.random.default_rng(seed).normal(size=(labels.shape[1], X.shape[1]))
    vectors[2] = 0
    data = aggregation(membership, labels)
    expected = literal(X, membership, labels, unit_rows(vectors))
    for rows in (X, sp.csr_array(X)):
        for limit, n_jobs in ((1, 2), (2**29, None)):
            found = grlr_objective(rows, data, convert(vectors), memory_limit=limit, n_jobs=n_jobs)
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


@SETTINGS
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
