"""What any part by a stranger must do: pass scikit-learn's checks, learn, and be carried."""

import joblib
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k

#: A small network that learns in few passes.
QUICK = {"encoder": MLP((16,)), "max_epochs": 10, "learning_rate": 0.06, "random_state": 0}


def scikit_learn_checks(classifier, **options):
    """Test that a classifier with a stranger's part passes scikit-learn's checks.

    Slow: what is not the part's own is checked by default with the parts of the package. The
    checks ask for a fit that separates blobs, not for a good one: few, long steps.
    """
    classifier.set_params(max_epochs=8, learning_rate=0.06)

    @pytest.mark.slow
    @parametrize_with_checks([classifier], **options)
    def test(estimator, check):
        check(estimator)

    return test


def hit_rate(clf, X, Y):
    """Share of the samples whose best label is one of theirs."""
    return precision_at_k(Y, clf.predict_topk(X, k=1)[0], 1)


def check_carried(clf, X, y, folder):
    """Check that a loaded classifier answers as the saved one and goes on; return the loaded."""
    joblib.dump(clf, folder / "model.joblib")
    loaded = joblib.load(folder / "model.joblib")
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        answer, expected = (getattr(each, method)(X) for each in (loaded, clf))
        assert (answer != expected).sum() == 0, method
    before = loaded.decision_function(X)
    assert (loaded.partial_fit(X, y).decision_function(X) != before).any()
    return loaded
