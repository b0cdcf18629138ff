"""TopK: as many labels for every sample."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc.decisions import TopK


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_the_best_labels_of_every_sample(seed, k):
    scores = np.random.default_rng(seed).integers(0, 4, size=(7, 6)).astype(float)
    sets = TopK(k).fit(None, np.eye(6)).decode(scores).toarray()
    for row, taken in zip(scores, sets):
        best = sorted(range(6), key=lambda label: (-row[label], label))[:k]
        assert sorted(best) == np.flatnonzero(taken).tolist()


def test_none_is_the_mean_number_of_labels():
    Y = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    assert TopK().fit(None, Y).k_ == 2
    assert TopK().fit(None, Y, sizes=np.array([3, 3, 2])).k_ == 3
    assert TopK().fit(None, np.zeros((4, 4))).k_ == 1


def test_samples_of_later_batches_count_as_those_of_the_first(rng):
    Y = rng.random((60, 9)) < rng.random((60, 1))
    for cuts in ([1], [20, 21], range(1, 60)):
        decision = TopK().fit(None, Y[: cuts[0]])
        for start, stop in zip(cuts, [*cuts[1:], 60]):
            decision.partial_fit(None, Y[start:stop])
        assert decision.k_ == TopK().fit(None, Y).k_ == round(Y.sum() / 60)
    assert decision.set_params(k=3).partial_fit(None, np.eye(9)).k_ == 3


@pytest.mark.parametrize(
    "k, message", [(0, "'k' parameter of TopK must be"), (5, "k=5 is more than the 4 labels of y")]
)
def test_bad_numbers(k, message):
    with pytest.raises(ValueError, match=message):
        TopK(k).check_labels(sp.csr_matrix(np.eye(4)))
