"""A classifier with public names only: a plain layer behind one of few units."""

import pytest
from _strangers import QUICK, hit_rate, scikit_learn_checks
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.engine import BaseXLCClassifier
from sklearn_xlc.heads import FlatHead


class Narrow(BaseXLCClassifier):
    """A plain layer behind one of few units, by a parameter of its own."""

    def __init__(self, width=8, **parameters):
        super().__init__(**parameters)
        self.width = width

    def _build_head(self, task):
        return FlatHead(*task.size, width=self.width)


test_scikit_learn_checks = scikit_learn_checks(Narrow(**QUICK))


def test_it_has_all_shared_parameters():
    shared = set(MultiHeadClassifier().get_params()) - {"head"}
    clf = Narrow(3, encoder="mlp", max_epochs=2, random_state=0)
    assert set(clf.get_params(deep=False)) == {"width", *shared}
    copy = clone(clf).set_params(encoder__dropout=0.5)
    assert isinstance(copy, BaseEstimator)
    assert (copy.width, copy.max_epochs, copy.encoder.dropout) == (3, 2, 0.5)
    with pytest.raises(TypeError, match="depth"):
        Narrow(depth=3)


def test_its_parameter_is_searched():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    clf = Narrow(**QUICK)
    search = GridSearchCV(clf, {"width": [1, 8]}, cv=2, scoring="f1_micro").fit(X, Y)
    assert search.best_params_ == {"width": 8}
    best = search.best_estimator_
    assert best.net_.module_.head.projection.out_features == 8
    assert hit_rate(best, X, Y) > 0.7
