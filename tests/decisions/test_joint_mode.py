"""The most probable label set."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from sklearn_xlc.decisions import JointMode


def test_the_first_set_of_every_sample_is_predicted():
    rng = np.random.default_rng(0)
    sets = sp.csr_matrix(rng.integers(0, 2, size=(12, 5)))
    decision = clone(JointMode()).fit(None, sets)
    assert decision.n_labels_ == 5
    assert decision.n_candidates(5) == 1
    for n_candidates in (1, 3):
        scores = np.zeros((12 // n_candidates, n_candidates))
        decoded = decision.decode(scores, sets=sets)
        np.testing.assert_array_equal(decoded.toarray(), sets.toarray()[::n_candidates])
