"""A ranker from the literature, written with public names only: temperature scaling.

C. Guo, G. Pleiss, Y. Sun, K. Weinberger. On Calibration of Modern Neural Networks. ICML 2017.
"""

import copy

import numpy as np
import pytest
from _strangers import QUICK, check_carried, scikit_learn_checks
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.ranking import Ranker


class TemperatureScaling(Ranker):
    """Divide log odds by the temperature with the highest likelihood of the best labels."""

    in_repr = ("temperature_",)

    def __init__(self, largest=10.0):
        self.largest = largest

    def fit(self, scores, Y, labels=None, samples=None, sample_weight=None, link="sigmoid"):
        hits = np.asarray(Y[np.arange(len(labels))[:, None], labels].todense())
        bounds = (1 / self.largest, self.largest)

        def loss(temperature):
            losses = np.logaddexp(0, np.where(hits, -scores, scores) / temperature)
            return np.average(losses.sum(axis=1), weights=sample_weight)

        self.temperature_ = minimize_scalar(loss, bounds=bounds, method="bounded").x
        return self

    def __call__(self, scores):
        return scores / self.temperature_


@pytest.fixture(scope="module")
def data():
    return make_extreme_multilabel(1200, 60, 12, noise=0.5, random_state=0)


WEIGHTS = "check_sample_weight_equivalence_on"
#: A ranker that is given has held-out samples, even if few: repeated ones are drawn singly.
SPLIT = dict.fromkeys([f"{WEIGHTS}_dense_data", f"{WEIGHTS}_sparse_data"], "samples are held out")


test_scikit_learn_checks = pytest.mark.filterwarnings("ignore:.* not by partial_fit:UserWarning")(
    scikit_learn_checks(
        MultiHeadClassifier(ranker=TemperatureScaling(), **QUICK),
        expected_failed_checks=lambda _: SPLIT,
    )
)


def test_probabilities_are_those_of_the_ranker(data, tmp_path):
    clf = MultiHeadClassifier(ranker=TemperatureScaling(), **QUICK).fit(*data)
    scores, temperature = clf.decision_function(data[0]), clf.ranker_.temperature_
    assert temperature != 1
    np.testing.assert_allclose(clf.predict_proba(data[0]), expit(scores), rtol=1e-5)
    network = copy.copy(clf)
    network.ranker_ = None
    of_network = network.decision_function(data[0])
    np.testing.assert_allclose(scores, of_network / temperature, rtol=1e-5)
    assert f"temperature_={temperature:.4g}" in repr(clf.ranker_)
    check_carried(clf, *data, tmp_path)


@pytest.mark.integration
def test_a_search_sets_its_parameters(data):
    clf = MultiHeadClassifier(ranker=TemperatureScaling(), **QUICK)
    grid = {"ranker__largest": [2.0, 10.0]}
    search = GridSearchCV(clf, grid, scoring=topk_scorer("precision", k=1), cv=2).fit(*data)
    assert search.best_estimator_.ranker.largest in grid["ranker__largest"]
