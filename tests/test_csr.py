"""Canonical CSR, and what counts as mostly zeros."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc._csr import canonical, is_mostly_zeros


@pytest.mark.parametrize("n_nonzero, expected", [(0, True), (9, True), (10, False), (100, False)])
def test_mostly_zeros_asks_for_values_not_for_storage(n_nonzero, expected):
    X = np.zeros(100)
    X[:n_nonzero] = 1.0
    X = X.reshape(10, 10)
    stored_zeros = sp.csr_matrix(np.ones((10, 10)))
    stored_zeros.data[:] = X.ravel()
    for given in (X, sp.csr_matrix(X), stored_zeros):
        assert is_mostly_zeros(given) is expected


def test_canonical():
    untidy = sp.csr_array(([1.0, 2.0, 3.0, 0.0], [2, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    before = copy.deepcopy(untidy)
    tidy = canonical(untidy)
    assert tidy.has_canonical_format
    assert tidy.nnz == 2
    np.testing.assert_array_equal(tidy.toarray(), untidy.toarray())
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(untidy, part), getattr(before, part))
    assert canonical(tidy) is tidy
    X = np.eye(2)
    assert canonical(X) is X
