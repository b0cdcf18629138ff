"""Groups of labels by frequency: recall and precision against counting by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from _factories import QUICK
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.plotting import LabelFrequencyDisplay
from sklearn_xlc.plotting._label_frequency import _groups


@pytest.fixture
def drawn():
    """40 labels of falling frequency, and a ranking that is right about half of them."""
    rng = np.random.default_rng(0)
    chance = 0.5 / np.arange(1, 41)
    Y_train, Y = (sp.csr_array((rng.random((n, 40)) < chance).astype(int)) for n in (300, 80))
    scores = Y.toarray() * (rng.random((80, 40)) < 0.5) + 0.5 * rng.random((80, 40))
    return Y_train, Y, scores


def by_hand(counts, ranges, Y, top, metric):
    """Recall or precision of each group, entry by entry."""
    found = []
    for low, high in ranges:
        n_hits = n_true = n_predicted = 0
        for row, best in zip(Y, top):
            for label, count in enumerate(counts):
                if low <= count <= high:
                    n_true += row[label]
                    n_predicted += label in best
                    n_hits += row[label] and label in best
        of = n_true if metric == "recall" else n_predicted
        found.append(n_hits / of if of else np.nan)
    return found


@pytest.mark.parametrize("metric", ["recall", "precision"])
def test_counted_by_hand(drawn, metric):
    Y_train, Y, scores = drawn
    display = LabelFrequencyDisplay.from_predictions(
        Y, scores, Y_train, k=3, metric=metric, n_groups=5, name="half"
    )
    counts, top = Y_train.sum(axis=0), np.argsort(-scores, axis=1)[:, :3]
    most = np.tile(np.argsort(-counts, kind="stable")[:3], (80, 1))
    expected = by_hand(counts, display.ranges, Y.toarray(), top, metric)
    baseline = by_hand(counts, display.ranges, Y.toarray(), most, metric)
    np.testing.assert_allclose(display.values, expected)
    np.testing.assert_allclose(display.baseline, baseline)
    np.testing.assert_array_equal(display.line_.get_ydata(), display.values)
    np.testing.assert_array_equal(display.baseline_.get_ydata(), display.baseline)
    shares = [Y[:, (low <= counts) & (counts <= high)].sum() for low, high in display.ranges]
    np.testing.assert_allclose(display.shares, np.array(shares) / Y.sum())
    np.testing.assert_allclose([bar.get_height() for bar in display.bars_], display.shares)
    if metric == "precision":
        assert display.total == pytest.approx(precision_at_k(Y, scores, k=3))
    assert f"{metric}@3" in display.ax_.get_ylabel()
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert f"half (all labels: {display.total:.2f})" in texts


def test_tags_are_counted_as_the_columns_of_an_indicator(drawn):
    Y_train, Y, scores = drawn
    seen = Y_train.sum(axis=0) > 0
    Y_train, Y, scores = Y_train[:, seen].toarray(), Y[:5][:, seen].toarray(), scores[:5, seen]
    names = np.array([f"label {number:02}" for number in range(seen.sum())])
    tags, train = ([names[row > 0].tolist() for row in sets] for sets in (Y, Y_train))
    best = names[np.argsort(-scores, axis=1)[:, :2]]  # most labels are neither true nor predicted
    expected = LabelFrequencyDisplay.from_predictions(Y, scores, Y_train, k=2, n_groups=4)
    numbers = [np.flatnonzero(row).tolist() for row in Y_train]
    for given in ((tags, best, train), (Y, scores, numbers)):
        of_tags = LabelFrequencyDisplay.from_predictions(*given, k=2, n_groups=4)
        assert of_tags.ranges == expected.ranges
        np.testing.assert_array_equal(of_tags.values, expected.values)
        np.testing.assert_array_equal(of_tags.baseline, expected.baseline)


def test_a_second_classifier_on_the_same_axes(drawn):
    Y_train, Y, scores = drawn
    first = LabelFrequencyDisplay.from_predictions(Y, scores, Y_train, name="first")
    second = LabelFrequencyDisplay.from_predictions(
        Y, -scores, Y_train, name="second", ax=first.ax_, baseline=False
    )
    assert second.ax_ is first.ax_
    assert second.baseline_ is second.bars_ is None
    assert second.line_.get_color() != first.line_.get_color()
    assert second.line_.get_marker() != first.line_.get_marker()
    assert len(first.ax_.lines) == 3
    assert len(first.ax_.get_legend().get_texts()) == 4


def test_groups_are_of_about_equal_size_and_keep_equal_counts_together():
    counts = np.random.default_rng(0).permutation(np.arange(1, 101))
    groups, ranges = _groups(counts, 10)
    assert ranges == [(10 * i + 1, 10 * i + 10) for i in range(10)]
    assert np.bincount(groups).tolist() == [10] * 10
    groups, ranges = _groups(np.array([0, 1, 1, 1, 1, 1, 7, 0]), 3)
    assert ranges == [(0, 0), (1, 1), (7, 7)]
    assert groups.tolist() == [0, 1, 1, 1, 1, 1, 2, 0]
    assert _groups(np.zeros(3, dtype=int), 4)[1] == [(0, 0)]


TEXTS = ["red pear", "green pear", "red apple", "blue apple", "red plum"] * 8
TAGS = [["pear"], ["pear", "green"], ["apple"], ["apple"], ["plum"]] * 8


def test_through_a_pipeline_with_tags():
    model = make_pipeline(TfidfVectorizer(), MultiHeadClassifier(**QUICK)).fit(TEXTS, TAGS)
    display = LabelFrequencyDisplay.from_estimator(
        model, [*TEXTS, "a fig"], [*TAGS, ["fig"]], TAGS, k=2
    )
    assert display.ranges == [(0, 0), (8, 8), (16, 16)]
    np.testing.assert_array_equal(display.values, [0, 1, 1])  # figs were never seen
    assert display.name == "MultiHeadClassifier"
    labels = model[-1].predict_topk(model[:-1].transform(TEXTS), 2)[0]
    same = LabelFrequencyDisplay.from_predictions(TAGS, labels, TAGS, k=2)
    assert same.ranges == [(8, 8), (16, 16)]
    np.testing.assert_array_equal(same.values, [1, 1])
    frame = pd.DataFrame({name: [int(name in tags) for tags in TAGS] for name in ("pear", "plum")})
    clf = MultiHeadClassifier(**QUICK).fit(np.eye(5).repeat(8, 0).reshape(40, 5), frame)
    found = LabelFrequencyDisplay.from_estimator(clf, np.eye(5)[:2], frame[:2], frame, k=1)
    assert found.ranges == [(8, 8), (16, 16)]


def test_classes():
    X, y = np.tile(np.eye(3), (4, 1)), np.array(["a", "b", "c"] * 4)
    y[3] = "b"
    clf = LogisticRegression(C=1e3).fit(X[4:], y[4:])
    display = LabelFrequencyDisplay.from_estimator(clf, X, np.append(y[:-1], "new"), y[4:], k=1)
    assert display.ranges == [(0, 0), (2, 2), (3, 3)]  # "new", "a", and both others
    np.testing.assert_allclose(display.values, [0, 1, 7 / 8])
    known = LabelFrequencyDisplay.from_estimator(clf, X, y, y[4:], k=1)
    assert known.ranges == [(2, 2), (3, 3)]  # no group of labels that do not exist
    by_name = LabelFrequencyDisplay.from_predictions(y, clf.predict(X)[:, None], y[4:], k=1)
    assert by_name.ranges == known.ranges
    np.testing.assert_array_equal(by_name.values, known.values)
    np.testing.assert_array_equal(by_name.baseline, known.baseline)
    ids = np.array([0, 1, 2] * 4)
    scores = np.eye(3)[ids]
    found = LabelFrequencyDisplay.from_predictions(ids, scores, ids, k=1)
    np.testing.assert_array_equal(found.values, [1])
    ranked = LabelFrequencyDisplay.from_predictions(ids, ids[:, None], [0, 0, 1, 2, 3], k=1)
    assert ranked.ranges == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"metric": "ndcg"}, ValueError, "metric must be 'recall' or 'precision', got 'ndcg'"),
        ({"n_groups": 0}, ValueError, "n_groups must be an integer >= 1, got 0"),
        ({"k": 0}, ValueError, "k must be an integer >= 1, got 0"),
        ({"y_train": [["a"], ["b"]]}, ValueError, "y_train has no label of y_true"),
        ({"y_train": [0.5, 1.5]}, ValueError, "y_train has no label of y_true"),
        ({"y_train": None}, ValueError, "y_train must be a two-dimensional matrix"),
    ],
)
def test_bad_parameters(drawn, params, error, message):
    Y_train, Y, scores = drawn
    arguments = {"y_train": Y_train, **params}
    with pytest.raises(error, match=message):
        LabelFrequencyDisplay.from_predictions(Y, scores, **arguments)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_training_labels_with_other_columns_are_refused(drawn, make):
    Y_train, Y, scores = drawn
    for columns in (slice(3), [*range(Y.shape[1]), 0]):
        other = make(sp.csr_matrix(Y_train)[:, columns].toarray())
        with pytest.raises(ValueError, match=r"y_train and y_true must have equally many labels"):
            LabelFrequencyDisplay.from_predictions(Y, scores, other)


@pytest.mark.parametrize("metric", ["recall", "precision"])
def test_label_sets_by_frequency(metric):
    train = [["a", "b", "c"]] + [["a", "b"]] * 2 + [["a"]] * 3
    true = [["a", "b"], ["c", "new"], ["a"], ["b"]]
    predicted = [["a"], ["c", "b"], ["a", "c"], ["b", "a"]]
    display = LabelFrequencyDisplay.from_label_sets(
        true, predicted, train, metric=metric, n_groups=3, name="sets"
    )
    assert display.ranges == [(0, 0), (1, 1), (3, 3), (6, 6)]
    expected = [0, 1, 1 / 2, 1] if metric == "recall" else [np.nan, 1 / 2, 1 / 2, 2 / 3]
    np.testing.assert_allclose(display.values, expected)
    np.testing.assert_allclose(display.shares, np.array([1, 1, 2, 2]) / 6)
    assert display.total == pytest.approx(4 / 6 if metric == "recall" else 4 / 7)
    np.testing.assert_array_equal(display.line_.get_ydata(), display.values)
    assert display.baseline_ is None
    assert display.ax_.get_ylabel().startswith(f"{metric}: share of")
    ids = {"a": 0, "b": 1, "c": 2, "new": 3}
    as_columns = [
        [[tag in row for tag in ids] for row in tags] for tags in (true, predicted, train)
    ]
    other = LabelFrequencyDisplay.from_label_sets(
        *(sp.csr_matrix(np.array(Y, dtype=int)) for Y in as_columns), metric=metric, n_groups=3
    )
    np.testing.assert_allclose(other.values, expected)


def test_label_sets_of_another_form():
    with pytest.raises(ValueError, match="y_train has no label of y_true or y_pred"):
        LabelFrequencyDisplay.from_label_sets([["a"]], [["a"]], np.eye(2))
    with pytest.raises(ValueError, match="metric must be 'recall'"):
        LabelFrequencyDisplay.from_label_sets([["a"]], [["a"]], [["a"]], metric="f1")
