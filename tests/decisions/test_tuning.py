"""Cuts: the best of all, with equal scores taken together."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc._ranking import find_hits
from sklearn_xlc.decisions._tuning import best_cut, best_cuts_per_label


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
