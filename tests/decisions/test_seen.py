"""Seen: the nearest mean among the label sets that occurred."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc import config_context
from sklearn_xlc.decisions import Seen


def make_data(seed, n_samples=40):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, 5)) < 0.3).astype(int)
    return rng.normal(size=(n_samples, 3)), Y


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_nearest_mean_of_the_sets_that_occur(seed):
    features, Y = make_data(seed)
    decision = Seen().fit(features, Y)
    sets, index = np.unique(Y, axis=0, return_inverse=True)
    means = np.stack([features[index.ravel() == i].mean(axis=0) for i in range(len(sets))])
    distances = np.square(features[:, None] - means).sum(axis=2)
    np.testing.assert_array_equal(
        decision.decode(features).toarray(), sets[distances.argmin(axis=1)]
    )
    np.testing.assert_allclose(
        decision.distances(features), np.sort(distances, axis=1)[:, :2], atol=1e-12
    )


def test_features_may_come_in_blocks():
    features, Y = make_data(0)
    whole = Seen().fit(features, Y)
    parts = Seen().fit((features[start : start + 7] for start in range(0, 40, 7)), Y)
    np.testing.assert_array_equal(parts.means_, whole.means_)
    assert Seen.in_blocks
    assert Seen().fit(features.astype(np.float32), Y).means_.dtype == np.float32


def test_later_sets_join_and_known_ones_have_new_means():
    features, Y = np.array([[0.0], [2.0]]), np.array([[1, 0, 0], [0, 1, 0]])
    decision = Seen().fit(features, Y)
    decision.partial_fit(np.array([[10.0], [5.0]]), np.array([[0, 1, 0], [0, 1, 1]]))
    found = {tuple(s): m.tolist() for s, m in zip(decision.sets_.toarray(), decision.means_)}
    assert found == {(1, 0, 0): [0.0], (0, 1, 0): [10.0], (0, 1, 1): [5.0]}


def test_means_are_bounded():
    Y = sp.csr_matrix(np.eye(10))
    Seen().check_head(Y, link=None, n_features=25)
    with config_context(dense_limit=999), pytest.raises(MemoryError, match="another decision"):
        Seen().check_head(Y, link=None, n_features=25)
