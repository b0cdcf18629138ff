"""Cuts: the best of all, with equal scores taken together."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc._ranking import find_hits
from sklearn_xlc.decisions._tuning import best_cut, best_cuts_per_label, cut_reaching


def test_hits():
    Y = sp.csr_matrix([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
    labels = np.array([[2, 1], [0, 1], [1, 2]])
    np.testing.assert_array_equal(find_hits(labels, Y), [[True, False], [False] * 2, [True] * 2])


@pytest.mark.parametrize("seed", range(20))
def test_best_cut_equals_a_search_over_all_cuts(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=(15, 1)).astype(float)
    Y = sp.csr_matrix((rng.random((15, 2)) < 0.4).astype(int))
    labels = np.zeros((15, 1), dtype=int)
    hits = find_hits(labels, Y)

    def f1(cut):
        taken = scores > cut
        return 2 * hits[taken].sum() / (taken.sum() + Y.nnz)

    best = max(f1(cut) for cut in np.arange(-0.5, 6))
    assert f1(best_cut("micro_f1", scores, labels, hits, Y)) == pytest.approx(best)


def test_nothing_at_all_may_be_best():
    scores, Y = np.array([[3.0, 1.0], [2.0, 0.0]]), sp.csr_matrix((2, 2), dtype=int)
    labels = np.array([[0, 1], [1, 0]])
    cut = best_cut("subset_accuracy", scores, labels, find_hits(labels, Y), Y)
    assert cut == 3.0


def test_a_label_beyond_the_candidates_takes_the_common_cut():
    scores, labels = np.array([[3.0], [2.0], [-4.0]]), np.array([[0], [0], [1]])
    Y = sp.csr_matrix([[1, 0, 1], [1, 0, 0], [0, 0, 0]])
    hits = find_hits(labels, Y)
    common = best_cut("micro_f1", scores, labels, hits, Y)
    for criterion in ("micro_f1", "macro_f1"):
        cuts = best_cuts_per_label(criterion, scores, labels, hits, Y)
        assert cuts[2] == cuts[1] == common
        assert cuts[0] < 2.0


@pytest.mark.parametrize("criterion", ["precision", "recall"])
@pytest.mark.parametrize("seed", range(20))
def test_the_cut_that_reaches_a_value_is_the_extreme_of_all(criterion, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 8, size=(10, 2)).astype(float)
    hits = rng.random((10, 2)) < 0.1 + 0.1 * scores
    n_true = int(hits.sum()) + 2
    cuts = np.arange(-0.5, 7)[[(scores > cut).any() for cut in np.arange(-0.5, 7)]]
    n_hits, taken = (
        np.array([found[scores > cut].sum() for cut in cuts])
        for found in (hits, np.ones_like(hits))
    )
    values = n_hits / (taken if criterion == "precision" else n_true)
    for at_least in (0.2, 0.5, 0.8, 1.0):
        cut, value = cut_reaching(criterion, at_least, scores, hits, n_true)
        reaching = values >= min(at_least, values.max())
        chosen = cuts[reaching][0 if criterion == "precision" else -1]
        np.testing.assert_array_equal(scores > cut, scores > chosen)
        assert value == values[cuts == chosen][0]


def test_no_candidate_is_true():
    scores = np.array([[3.0, 1.0], [2.0, 0.0]])
    for criterion in ("precision", "recall"):
        found = cut_reaching(criterion, 0.5, scores, np.zeros((2, 2), dtype=bool), 4)
        assert found == (3.0, 0.0)
