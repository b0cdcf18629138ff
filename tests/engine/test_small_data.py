"""Few samples by default parameters: no cliff, and no empty set where every sample has a label."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.engine.resolve import SMALL_DATA
from sklearn_xlc.metrics import precision_at_k

N_LABELS, N_OTHERS = 60, 1000
#: What is tested is how networks are trained.
pytestmark = pytest.mark.usefixtures("ten_trees")
OF_LABEL = np.arange(N_LABELS, 0, -1) / np.arange(N_LABELS + 1).sum()


@pytest.fixture(scope="module")
def texts():
    """Texts of eight words: one for each of three labels, and five of no meaning."""
    rng = np.random.default_rng(0)
    Y, found = np.zeros((2100, N_LABELS), dtype=int), []
    for row in Y:
        labels = rng.choice(N_LABELS, 3, replace=False, p=OF_LABEL)
        row[labels] = 1
        words = [*(8 * labels + rng.integers(0, 8, 3)), *rng.integers(0, 8 * N_LABELS, 5)]
        found.append(" ".join(f"w{word}" for word in words))
    return found, Y


def fitted(texts, n_samples, **params):
    """Classifier of the first texts, its label sets of the last, and P@1 there."""
    given, Y = texts
    vectorizer = TfidfVectorizer()
    X = vectorizer.fit_transform(given[:n_samples])
    clf = MultiHeadClassifier(random_state=0, **params).fit(X, Y[:n_samples])
    X, Y = vectorizer.transform(given[-N_OTHERS:]), Y[-N_OTHERS:]
    return clf, clf.predict(X), precision_at_k(Y, clf.predict_topk(X, k=1)[0], k=1)


@pytest.mark.integration
@pytest.mark.parametrize(
    "pair",
    [*(pytest.param(p, marks=pytest.mark.slow) for p in [(900, 1100), (1000, 1001)]), (256, 258)],
    ids=str,
)
def test_few_texts_are_trained_as_more_are(texts, pair):
    few, more = (fitted(texts, n_samples) for n_samples in pair)
    assert 0.45 <= few[0].t_ / more[0].t_ <= 1.1
    assert few[2] > more[2] - 0.05
    for _, sets, _ in (few, more):
        assert sets.any(axis=1).all()


@pytest.mark.integration
def test_there_is_no_cliff_where_weights_begin_to_stand_for_samples(texts):
    few, more = (fitted(texts, n_samples) for n_samples in (SMALL_DATA, SMALL_DATA + 1))
    assert abs(few[2] - more[2]) < 0.05
    for clf, sets, _ in (few, more):
        assert (clf.decision_.threshold, clf.decision_.min_labels) == (0.0, 1)
        assert sets.any(axis=1).all()


def test_sets_may_be_empty_if_a_sample_has_no_label(texts):
    given, Y = texts
    Y = Y.copy()
    Y[7] = 0
    clf, sets, _ = fitted((given, Y), 200)
    assert clf.decision_.min_labels == 0
    assert not sets.any(axis=1).all()


def test_passes_name_a_label_until_a_sample_has_none(texts):
    given, Y = texts
    X = TfidfVectorizer().fit_transform(given[:300])
    clf = MultiHeadClassifier(random_state=0)
    clf.partial_fit(X[:100], Y[:100], classes=np.arange(N_LABELS))
    assert clf.predict(X).any(axis=1).all()
    clf.partial_fit(X[100:200], Y[100:200])
    assert clf.predict(X).any(axis=1).all()
    clf.partial_fit(X[200:], Y[200:300] * (np.arange(100) > 0)[:, None])
    assert not clf.predict(X).any(axis=1).all()
    clf.partial_fit(X[:100], Y[:100])  # one was seen
    assert clf.decision_.min_labels == 0


@pytest.mark.parametrize("n_seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_dense_samples_of_one_class_are_as_good_as_by_a_linear_model(n_seeds):
    X, y = load_iris(return_X_y=True)
    scores = []
    for seed in range(n_seeds):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, train_size=100, random_state=seed, stratify=y
        )
        models = MultiHeadClassifier(random_state=0), LogisticRegression(max_iter=5000)
        scores.append([model.fit(X_train, y_train).score(X_test, y_test) for model in models])
    ours, linear = np.mean(scores, axis=0)
    assert ours > linear - 0.02
