"""Predictions of bags agree with each other and with those of single rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from torch import nn

from sklearn_xlc import MIMLClassifier, config_context
from sklearn_xlc.encoders import MLP, Encoder, TextEncoder

PARAMS = {"encoder": MLP((8,)), "max_epochs": 30, "learning_rate": 0.03, "random_state": 0}
#: How a fitted classifier answers, of rows and of what says which bags they are in.
ANSWERS = {
    "decision_function": lambda clf, X, groups: clf.decision_function(X, groups),
    "predict_proba": lambda clf, X, groups: clf.predict_proba(X, groups),
    "predict": lambda clf, X, groups: clf.predict(X, groups),
    "labels": lambda clf, X, groups: clf.predict_topk(X, 2, groups)[0],
    "scores": lambda clf, X, groups: clf.predict_topk(X, k=2, groups=groups)[1],
    "sparse": lambda clf, X, groups: clf.predict_topk_sparse(X, 2, groups).toarray(),
}
answers = pytest.mark.parametrize("answer", ANSWERS)


@pytest.fixture(scope="module", params=["multi-label", "multi-class"])
def fitted(request):
    rng = np.random.default_rng(0)
    X, sizes = rng.normal(size=(60, 6)), [1, 5, 2, 8, 4] * 3
    groups = np.repeat(rng.permutation(100)[:15], sizes)
    y = (rng.random((15, 4)) < 0.4).astype(int) if request.param == "multi-label" else None
    y = np.arange(15) % 4 if y is None else y
    order = rng.permutation(60)
    X, groups = X[order], groups[order]
    return MIMLClassifier(**PARAMS).fit(X, y, groups), X, y, groups


@answers
def test_bags_come_in_the_order_of_their_sorted_ids(fitted, answer):
    clf, X, _, groups = fitted
    found = ANSWERS[answer](clf, X, groups)
    for row, name in zip(found, np.unique(groups)):
        one = ANSWERS[answer](clf, X[groups == name], np.zeros((groups == name).sum()))
        np.testing.assert_allclose(one[0], row, rtol=1e-9)


@answers
def test_ids_and_membership_matrix(fitted, answer):
    clf, X, _, groups = fitted
    place = np.unique(groups, return_inverse=True)[1]
    matrix = sp.csc_array((np.ones(60), (np.arange(60), place)))
    expected = ANSWERS[answer](clf, X, groups)
    np.testing.assert_array_equal(ANSWERS[answer](clf, X, matrix), expected)
    turned = ANSWERS[answer](clf, X, matrix[:, ::-1].toarray())
    np.testing.assert_allclose(turned, expected[::-1], rtol=1e-9)


@answers
def test_batches_do_not_matter(fitted, answer, monkeypatch):
    clf, X, _, groups = fitted
    for form in (groups, None):
        expected = ANSWERS[answer](clf, X, form)
        with monkeypatch.context() as patch:
            patch.setattr("sklearn_xlc.engine.prediction.PREDICT_BATCH", 7)
            np.testing.assert_allclose(ANSWERS[answer](clf, X, form), expected, rtol=1e-9)


def test_the_best_row_decides(fitted):
    """A score of a bag is that of one of its rows; without attention of the best one."""
    clf, X, y, groups = fitted
    plain = MIMLClassifier(None, **PARAMS).fit(X, y, groups)
    for name in np.unique(groups):
        rows, ids = X[groups == name], groups[groups == name]
        scores = plain.decision_function(rows)
        np.testing.assert_allclose(plain.decision_function(rows, ids)[0], scores.max(axis=0))
        near = np.isclose(clf.decision_function(rows), clf.decision_function(rows, ids))
        assert near.any(axis=0).all()


def test_answers_agree(fitted):
    clf, X, _, groups = fitted
    scores, probabilities = clf.decision_function(X, groups), clf.predict_proba(X, groups)
    best = np.sort(scores, axis=1)[:, ::-1][:, :3]
    np.testing.assert_allclose(clf.predict_topk(X, 3, groups)[1], best)
    if scores.shape[1] == 4 and clf.predict(X).ndim == 2:
        np.testing.assert_array_equal(clf.predict(X, groups), probabilities > 0.5)
    else:
        np.testing.assert_array_equal(clf.predict(X, groups), scores.argmax(axis=1))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_score_is_the_share_of_bags_whose_best_label_is_right(fitted):
    clf, X, y, groups = fitted
    best = clf.predict_topk(X, 1, groups)[0][:, 0]
    right = y[np.arange(15), best] == 1 if np.ndim(y) == 2 else best == y
    place = np.unique(groups, return_inverse=True)[1]
    weight = np.arange(15.0)
    assert 0 < right.mean()
    assert clf.score(X, y, groups) == pytest.approx(right.mean())
    assert clf.score(X, y[place], groups) == pytest.approx(right.mean())
    expected = pytest.approx(np.average(right, weights=weight))
    assert clf.score(X, y, groups, sample_weight=weight) == expected
    assert clf.score(X, y[place], groups, sample_weight=weight[place]) == expected


def test_score_of_sparse_labels_and_of_counts():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(40, 5)), np.arange(40) // 4
    counts = rng.integers(0, 4, size=(10, 3))
    dense = MIMLClassifier(**PARAMS).fit(X, counts, groups)
    given = sp.csr_matrix(counts)
    clf = MIMLClassifier(**PARAMS).fit(X, given, groups)
    predicted = clf.predict(X, groups)
    assert sp.issparse(predicted)
    assert set(predicted.data) <= {1}
    np.testing.assert_array_equal(predicted.toarray(), dense.predict(X, groups))
    best = clf.predict_topk(X, 1, groups)[0][:, 0]
    expected = (counts[np.arange(10), best] > 0).mean()
    for y in (counts, given, (counts > 0).astype(int), given[groups]):
        assert clf.score(X, y, groups) == dense.score(X, y, groups) == pytest.approx(expected)
    with pytest.raises(ValueError, match="y must be an indicator with 3 columns"):
        clf.score(X, counts[:, :2], groups)


def test_score_of_other_forms_of_X():
    Y = np.eye(2, dtype=int)[np.arange(10) % 2]
    groups = np.repeat(np.arange(10), 2)
    texts = [word for row in Y for word in (["to be"] * 2 if row[0] else ["not me"] * 2)]
    numbers = np.repeat(Y, 2, axis=0).astype(np.float32)
    for X, encoder in ((texts, TextEncoder), ({"x": numbers}, Named)):
        clf = MIMLClassifier(None, encoder=encoder, max_epochs=30, random_state=0)
        clf.set_params(learning_rate=0.05).fit(X, Y, groups)
        assert clf.score(X, Y, groups) == 1.0


class Named(Encoder):
    accepts = ("mapping",)

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 8)

    def forward(self, inputs):
        return self.linear(inputs["x"])


def test_a_class_never_seen_is_never_right():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.array(list("ab") * 10)
    clf = MIMLClassifier(**PARAMS).fit(X, y)
    assert clf.decision_function(X).shape == (20,)
    assert clf.score(X, np.array(["c"] * 20)) == 0


def test_features_are_those_of_rows(fitted):
    clf, X, _, _ = fitted
    features = clf.transform(X)
    assert features.shape == (60, 8)
    np.testing.assert_allclose(clf.transform(X[7:9]), features[7:9])
    assert list(clf.get_feature_names_out())[:1] == ["mimlclassifier0"]


def test_bad_groups_are_named(fitted):
    clf, X, _, groups = fitted
    for answer in ANSWERS.values():
        with pytest.raises(ValueError, match="one id for each of the 60 samples"):
            answer(clf, X, groups[1:])
    with pytest.raises(ValueError, match="k=5 must be at most the number of labels, 4"):
        clf.predict_topk(X, 5, groups)


def test_large_dense_results_are_refused(fitted):
    clf, X, _, groups = fitted
    with config_context(dense_limit=15 * 4 * 8 + 400):  # with temporaries
        assert clf.decision_function(X, groups).shape == (15, 4)
        with pytest.raises(MemoryError, match=r"\(60, 4\)"):
            clf.decision_function(X)
