"""Best labels of classifiers with and without `predict_topk`."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from _factories import make_learnable, quick
from sklearn_xlc.metrics import best_labels


@pytest.mark.parametrize("proba", [False, True])
def test_a_classifier_of_ours_ranks_its_labels_itself(proba):
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=2).fit(X, Y)
    expected = clf.predict_topk(X, 3, proba=proba)
    for found, of_clf in zip(best_labels(clf, X, 3, proba), expected):
        np.testing.assert_array_equal(found, of_clf)


@pytest.mark.parametrize(
    "clf", [OneVsRestClassifier(LogisticRegression()), RandomForestClassifier(5, random_state=0)]
)
def test_another_classifier_ranks_all_probabilities(clf):
    X, Y = make_learnable(True)
    X, Y = X.toarray(), Y[:, :5].toarray()  # of which each is in some samples, but not in all
    model = make_pipeline(FunctionTransformer(), clf).fit(X, Y)
    found = model.predict_proba(X)
    p = found if isinstance(clf, OneVsRestClassifier) else np.stack([p[:, 1] for p in found]).T
    labels, best = best_labels(model, X, None, proba=True)
    order = np.argsort(-p, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(labels, order)
    np.testing.assert_array_equal(best, np.take_along_axis(p, order, axis=1))


def test_without_probabilities():
    X, y = make_learnable(False)
    clf = RidgeClassifier().fit(X, y)
    assert best_labels(clf, X, 1)[0][:, 0].tolist() == clf.predict(X).tolist()
    with pytest.raises(TypeError, match="RidgeClassifier has none of them"):
        best_labels(clf, X, 1, proba=True)
