"""An index of one's own in a classifier, and one of scikit-learn, through all that a user does."""

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from _strangers import QUICK, hit_rate
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.neighbors import KNeighborsTransformer

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier, explain_topk
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.ranking import BoostedRanker, NearestSamples

QUICK = {**QUICK, "max_epochs": 2, "learning_rate": 0.01}
N_LABELS = 40
pytestmark = pytest.mark.usefixtures("ten_trees")


class Projected(BaseEstimator):
    """Find the samples with most signs of random projections in common."""

    def __init__(self, n_neighbors=50, n_bits=256):
        self.n_neighbors, self.n_bits = n_neighbors, n_bits

    def fit(self, X):
        rng = np.random.default_rng(0)
        self.planes_ = rng.normal(size=(X.shape[1], self.n_bits)).astype(np.float32)
        self.signs_ = np.sign(X @ self.planes_)
        return self

    def transform(self, X):
        common = np.sign(X @ self.planes_) @ self.signs_.T
        near = np.argsort(-common, axis=1, kind="stable")[:, : self.n_neighbors]
        ends = np.arange(0, near.size + 1, self.n_neighbors)
        return sp.csr_matrix((np.ones(near.size), near.ravel(), ends), shape=common.shape)


def classifier(index, **params):
    near = NearestSamples(max_df=1.0, index=index)
    return MultiHeadClassifier("flat", ranker=BoostedRanker([("near", near)]), **QUICK, **params)


@pytest.fixture(scope="module", params=["sparse", "dense"])
def data(request):
    X, Y = make_extreme_multilabel(1500, 200, N_LABELS, noise=0.3, random_state=1)
    return (X if request.param == "sparse" else X.toarray() + 0.01), sp.csr_matrix(Y)


def exact(n_neighbors=50):
    return KNeighborsTransformer(n_neighbors=n_neighbors, metric="cosine", algorithm="brute")


def check_equal(one, other, X):
    """Probabilities and examples are those of the search without an index, to rounding."""
    p, q = (clf.predict_topk(X, 5, proba=True)[1] for clf in (one, other))
    assert np.abs(p - q).mean() < 1e-4
    a, b = (explain_topk(clf, X[:5], k=3, examples=2).examples for clf in (one, other))
    assert np.mean([x == y for x, y in zip(np.ravel(a), np.ravel(b))]) > 0.9


def indexed(clf):
    (found,) = clf.ranker_.indexes_.values()
    return found["n_samples"]


@pytest.mark.integration
def test_an_exact_index_predicts_as_the_search_without_one(data, tmp_path):
    X, Y = data
    early = np.arange(N_LABELS - 5)
    one, other = (classifier(each).fit(X[:1100], Y[:1100, early]) for each in (None, exact()))
    queries = X[1200:1240]
    assert indexed(other) == 1100
    check_equal(one, other, queries)

    sklearn_xlc.save(other, tmp_path / "model.skops", exact=True)
    joblib.dump(other, tmp_path / "model.joblib")
    for loaded in (
        sklearn_xlc.load(tmp_path / "model.skops"),
        joblib.load(tmp_path / "model.joblib", mmap_mode="r"),
    ):
        np.testing.assert_array_equal(
            loaded.decision_function(queries), other.decision_function(queries)
        )

    for clf in (one, other):  # with five more labels
        clf.partial_fit(X[1100:1200], Y[1100:1200], classes=np.arange(N_LABELS))
    check_equal(one, other, queries)
    assert indexed(other) == 1100
    for clf in (one, other):
        clf.remove_labels([0, 7]).forget(np.arange(100))
    check_equal(one, other, queries)
    assert indexed(other) == 1100
    found = explain_topk(other, queries, k=3, examples=5).examples
    assert set(range(100)).isdisjoint(np.ravel(found).tolist())
    assert {0, 7}.isdisjoint(np.ravel(other.predict_topk(queries, 5)[0]).tolist())


@pytest.mark.integration
@pytest.mark.parametrize("data", ["sparse"], indirect=True)
def test_an_index_of_ones_own(data, tmp_path):
    X, Y = data
    network, clf = (
        clf.fit(X[:1300], Y[:1300])
        for clf in (classifier(None).set_params(ranker=None), classifier(Projected()))
    )
    one, other = (hit_rate(each, X[1300:], Y[1300:]) for each in (network, clf))
    assert other > one + 0.1
    sklearn_xlc.save(clf, tmp_path / "model.skops", exact=True)
    with pytest.raises(
        ValueError, match=r"Projected, which is not part of .* load\(path, trusted="
    ):
        sklearn_xlc.load(tmp_path / "model.skops")
    loaded = sklearn_xlc.load(tmp_path / "model.skops", trusted=[f"{__name__}.Projected"])
    queries = X[1300:1400]
    np.testing.assert_array_equal(loaded.decision_function(queries), clf.decision_function(queries))


@pytest.mark.integration
def test_parameters_of_an_index_are_searched():
    X, Y = make_extreme_multilabel(1300, 200, N_LABELS, noise=0.3, random_state=1)
    clf = clone(classifier(Projected())).set_params(ranker__near__index__n_bits=8)
    assert clf.get_params()["ranker__near__index__n_bits"] == 8
    grid = {"ranker__near__index__n_bits": [4, 256]}
    cv = ShuffleSplit(1, test_size=100, random_state=0)
    search = GridSearchCV(clf, grid, scoring=topk_scorer("precision", k=5), cv=cv, refit=False)
    few, many = search.fit(X, Y).cv_results_["mean_test_score"]
    assert clf.ranker.retrievers[0][1].index.n_bits == 8
    assert few < many


@pytest.mark.parametrize(
    "index, error, message",
    [
        (KNeighborsTransformer(metric="cosine"), ValueError, "finds 5 neighbours.*asks for 30"),
        (KNeighborsTransformer, TypeError, "an object, got a class"),
        ("faiss", ValueError, "'index' parameter of NearestSamples"),
    ],
)
def test_a_wrong_index_raises_before_training(index, error, message, data):
    clf = classifier(index)
    with pytest.raises(error, match=message):
        clf.fit(*data)
    assert not hasattr(clf, "settings_")
