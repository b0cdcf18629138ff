"""A loaded ranker that would rank wrong is refused when its state is set."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.ranking import BoostedRanker
from sklearn_xlc.ranking.calibration import identity
from sklearn_xlc.ranking.loaded import check_loaded

UNSURE = identity()
UNSURE.slope_ = np.nan


@pytest.fixture(scope="module")
def ranker():
    rng = np.random.default_rng(0)
    X = sp.random(300, 40, 0.1, "csr", random_state=rng)
    Y = sp.csr_array((X[:, :10] > 0.5).astype(int))
    scores, labels = rng.normal(size=(300, 5)), np.tile(np.arange(5), (300, 1))
    fitted = BoostedRanker().remember({"input": X[:150]}, Y[:150])
    samples = {"input": X[150:]}
    return fitted.fit(-np.sort(-scores[150:]), Y[150:], labels[150:], samples)


def test_what_was_fitted_passes(ranker):
    check_loaded(ranker)
    assert pickle.loads(pickle.dumps(ranker)).trees_ is not None


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("line_", UNSURE, "log odds that are not finite"),
        ("network_share_", np.nan, "log odds that are not finite"),
        ("network_share_", 1.5, "log odds that are not finite"),
        ("network_share_", -1.0, "log odds that are not finite"),
        ("n_labels_", 10.0, "n_labels_ of a saved ranker is no integer"),
        ("log_counts_", np.zeros(9), "log_counts_ of a saved ranker are no 10 numbers"),
        ("propensities_", np.full(10, 2.0), "propensities_ of a saved ranker are no 10 numbers"),
        ("indexes_", {"near": {"rows": np.array([150])}}, "samples that are not remembered"),
        ("tail_order", 7.0, "tail_order"),
    ],
)
def test_what_would_rank_wrong_is_refused(ranker, name, value, message):
    changed = copy.copy(ranker)
    setattr(changed, name, value)
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(changed))


def test_retrievers_of_other_labels_are_refused(ranker):
    changed = copy.copy(ranker)
    changed.retrievers_ = [(name, copy.copy(each)) for name, each in ranker.retrievers_]
    centroids = next(each for name, each in changed.retrievers_ if name == "centroids")
    centroids.centroids_ = centroids.centroids_[:9]
    with pytest.raises(ValueError, match="knows other labels than its ranker"):
        check_loaded(changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"left_out": []},
        {"left_out": ["near"]},
        {"left_out": ["centroids", "near", "none", "together", "votes"]},
        {"left_out": [["near"]]},
        {"left_out": None},
        {"n_indexed_": 0, "left_out": []},
        {"retrievers_": None},
        {"retrievers_": [1]},
        {"memory_": None},
        {"memory_": 3},
    ],
)
def test_retrievers_are_left_out_if_they_are_fitted_again(ranker, changes):
    state = ranker.__getstate__()
    assert state["left_out"] == ["centroids", "near", "together", "votes"]
    object.__new__(BoostedRanker).__setstate__(copy.deepcopy(state))
    with pytest.raises(ValueError, match="saved"):
        object.__new__(BoostedRanker).__setstate__(state | changes)
