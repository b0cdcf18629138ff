"""An optimiser from the literature, written with public names only: discriminative fine-tuning.

J. Howard, S. Ruder. Universal Language Model Fine-tuning for Text Classification. ACL 2018.
"""

from numbers import Real

import pytest
from _strangers import QUICK, check_carried, hit_rate
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.optimizers import Optimizer


class Discriminative(Optimizer):
    """The head learns `ratio` times as fast as the encoder."""

    rule = "adagrad"
    _parameter_constraints = {
        **Optimizer._parameter_constraints,
        "ratio": [Real],
    }

    def __init__(self, learning_rate=0.03, *, ratio=2.6, weight_decay=None):
        self.learning_rate = learning_rate
        self.ratio = ratio
        self.weight_decay = weight_decay

    @property
    def head_learning_rate(self):
        return self.ratio * self.learning_rate


QUICK = {**QUICK, "learning_rate": "auto"}  # the rule has its own


@pytest.fixture(scope="module")
def data():
    return make_extreme_multilabel(300, 60, 12, random_state=0)


def test_it_trains_is_saved_and_goes_on(data, tmp_path):
    X, Y = data
    clf = MultiHeadClassifier("flat", optimizer=Discriminative(ratio=2.0), **QUICK).fit(X, Y)
    groups = clf.net_.optimizer_.param_groups
    assert {group["rule"] for group in groups} == {"adagrad"}
    last = {group["lr"] for group in groups}
    assert max(last) == pytest.approx(2 * min(last))
    assert hit_rate(clf, X, Y) > 0.7
    check_carried(clf, X, Y, tmp_path)


def test_its_parameters_are_checked_and_searched(data):
    clf = MultiHeadClassifier("flat", optimizer=Discriminative(), **QUICK)
    with pytest.raises(ValueError, match="'ratio' parameter of Discriminative"):
        clone(clf).set_params(optimizer__ratio="twice").fit(*data)
    with pytest.raises(ValueError, match="learning_rate"):  # in two places
        clone(clf).set_params(learning_rate=0.1).fit(*data)
    grid = {"optimizer__ratio": [1e-3, 3.0]}
    search = GridSearchCV(clf, grid, cv=2, scoring="f1_micro").fit(*data)
    assert search.best_params_ == {"optimizer__ratio": 3.0}
    assert clf.optimizer.ratio == 2.6
