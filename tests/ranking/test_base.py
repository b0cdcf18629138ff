"""The order of lists: scores strictly decrease, as little below the given ones as floats allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.ranking import Calibration, Ranker, log_shares
from sklearn_xlc.ranking.base import strictly_decreasing

#: Few distinct values, so that there are ties, and neighbours of zero.
VALUES = st.sampled_from([2.0, 1.0, 1e-45, 0.0, -0.0, -1e-45, -1.0, -1.0000001, -3e38])


def one_by_one(row):
    """Return the largest strictly decreasing row below `row`, number by number."""
    found = []
    for value in row:
        if found and not value < found[-1]:
            value = np.nextafter(found[-1], row.dtype.type(-np.inf))
        found.append(value)
    return np.array(found, dtype=row.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.lists(st.lists(VALUES, min_size=4, max_size=4), min_size=1, max_size=5))
def test_ties_step_to_the_next_float(dtype, rows):
    values = -np.sort(-np.array(rows, dtype=dtype), axis=1)
    found = strictly_decreasing(values)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [one_by_one(row) for row in values])


def test_padding_stays_minus_infinity():
    values = np.array([[1.0, 1.0, -np.inf, -np.inf], [-np.inf] * 4])
    found = strictly_decreasing(values)
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(values))
    assert found[0, 1] == np.nextafter(1.0, 0.0)
    assert strictly_decreasing(np.empty((0, 3))).shape == (0, 3)
    assert strictly_decreasing(np.empty((2, 0))).shape == (2, 0)


def test_a_calibration_keeps_the_lists_of_the_network(rng):
    scores = -np.sort(-rng.normal(size=(50, 4)).astype(np.float32), axis=1)
    scores[3, 1:3] = scores[3, 1]
    labels = np.argsort(rng.random((50, 4)), axis=1)
    scores[5, 2:], labels[6, 3] = -np.inf, -1
    calibration = Calibration().fit(scores, rng.random((50, 4)) < 0.4, labels)
    odds, ranked = calibration.rank(scores, labels)
    listed = ~np.isneginf(scores) & (labels >= 0)
    np.testing.assert_array_equal(ranked, np.where(listed, labels, -1))
    np.testing.assert_array_equal(np.isneginf(odds), ~listed)
    assert odds.dtype == np.float32
    np.testing.assert_allclose(odds[listed], calibration(scores)[listed], rtol=1e-6, atol=1e-6)
    with np.errstate(invalid="ignore"):
        steps = np.diff(odds, axis=1)
    assert (steps[listed[:, 1:]] < 0).all()


def test_weights_of_a_calibration_equal_repeated_samples(rng):
    scores, Y = rng.normal(size=(40, 3)), (rng.random((40, 3)) < 0.5).astype(int)
    weights = rng.integers(0, 3, 40)
    repeated = np.repeat(np.arange(40), weights)
    weighted = Calibration().fit(scores, Y, sample_weight=weights)
    copied = Calibration().fit(scores[repeated], Y[repeated])
    assert weighted.slope_ == pytest.approx(copied.slope_, rel=1e-5)
    assert weighted.offset_ == pytest.approx(copied.offset_, rel=1e-4, abs=1e-5)


def test_a_ranker_reads_scores_alone_unless_it_says_more():
    ranker = Ranker()
    assert ranker.reads == ()
    assert (ranker.n_listed(1000), ranker.n_listed(2)) == (5, 2)
    assert ranker.remember({}, np.eye(2)) is ranker


def test_a_ranker_that_reads_shares_ranks_by_them_when_it_is_fitted():
    class Plain(Ranker):
        keeps_order, reads_shares = False, True

        def __call__(self, scores):
            return scores

    scores, labels, Y = np.log([[0.3, 0.1]]), np.array([[0, 1]]), np.array([[1, 0, 0]])
    for link, read in (("softmax", log_shares(scores)), ("sigmoid", scores)):
        for found, expected in zip(
            Plain().fit_rank(scores, Y, labels, link=link), Plain().rank(read, labels)
        ):
            np.testing.assert_array_equal(found, expected)
