"""The map of labels: neighbours are neighbours, and no name hides another."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import N_LABELS, make_learnable, quick
from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer
from sklearn_xlc.plotting import LabelMapDisplay


def overlapping(texts):
    boxes = [text.get_window_extent() for text in texts]
    return [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])]


@pytest.mark.parametrize(
    "name, multilabel",
    [
        ("flat", True),
        ("ensemble", True),
        ("product", False),
        ("product-groups", False),
        ("cascade", True),
        ("sampling", False),
        ("dft", True),
        ("etf", True),
        ("etf-frame", True),
        ("bags", True),
    ],
)
def test_every_head_with_a_vector_for_each_label(name, multilabel):
    X, y = make_learnable(multilabel)
    model = make_pipeline(MaxAbsScaler(), quick(name, max_epochs=1)).fit(X, y)
    display = LabelMapDisplay.from_estimator(model)
    assert display.points.shape == (N_LABELS, 2)
    assert display.names.tolist() == model[-1].classes_.tolist()
    assert not overlapping(display.texts_)


def test_labels_of_the_same_samples_are_neighbours():
    """Of labels in the order of the head, whatever it is, vectors are those of the label."""
    rng = np.random.default_rng(0)
    topic = rng.integers(3, size=300)
    X = np.eye(3)[topic] + 0.1 * rng.normal(size=(300, 3))
    y = 10 * topic + rng.integers(4, size=300)
    clf = quick("sampling", head__label_order="random", max_epochs=20).fit(X, y)
    assert (clf._code.label_order != np.arange(12)).any()
    points = LabelMapDisplay.from_estimator(clf).points
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    same = clf.classes_[:, None] // 10 == clf.classes_ // 10
    assert distances[same].max() < distances[~same].min()


def test_other_estimators():
    X, y = make_learnable(True)
    groups = np.arange(150) // 2
    bags = y[::2]
    few = {"max_epochs": 1}
    meta = AggregatedLabelClassifier(quick("flat", **few)).fit(X, bags, groups=groups)
    assert LabelMapDisplay.from_estimator(meta).points.shape == (N_LABELS, 2)
    eagle = EAGLETransformer().fit(X, bags, groups)
    assert LabelMapDisplay.from_estimator(eagle).points.shape == (N_LABELS, 2)
    X, y = np.eye(4), np.arange(4)
    linear = LogisticRegression().fit(X, y)
    assert LabelMapDisplay.from_estimator(linear, names=list("abcd")).names.tolist() == list("abcd")
    X, y = make_learnable(True)
    with pytest.raises(TypeError, match="PowersetHead has no vector for each label"):
        LabelMapDisplay.from_estimator(quick("powerset", **few).fit(X, y))
    with pytest.raises(TypeError, match="MaxAbsScaler has no vector for each label"):
        LabelMapDisplay.from_estimator(MaxAbsScaler().fit(X))


def test_names_do_not_hide_each_other():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 3))
    names = [f"a long name {i}" for i in range(200)]
    counts = rng.permutation(np.arange(1, 201))
    display = LabelMapDisplay.from_vectors(vectors, names=names, counts=counts, n_names=40)
    assert 20 < len(display.texts_) <= 40
    assert not overlapping(display.texts_)
    assert display.texts_[0].get_text() == names[int(counts.argmax())]
    inside = display.ax_.get_window_extent()
    assert all(inside.contains(*text.get_window_extent().min) for text in display.texts_)
    assert len(display.figure_.axes) == 2  # with a scale for the counts
    assert LabelMapDisplay.from_vectors(vectors, n_names=5).texts_ == []


def test_the_most_frequent_are_drawn():
    rng = np.random.default_rng(0)
    vectors, counts = rng.normal(size=(9, 4)), np.arange(9) * 10
    display = LabelMapDisplay.from_vectors(vectors, names=range(9), counts=counts, max_labels=3)
    assert display.names.tolist() == [8, 7, 6]
    assert display.counts.tolist() == [80, 70, 60]
    again = LabelMapDisplay.from_vectors(vectors[[8, 7, 6]])
    np.testing.assert_allclose(display.points, again.points)
    assert sum(display.variance) == pytest.approx(1)  # three points lie in a plane


@pytest.mark.parametrize("names", [list("cab"), [2, 0, 1]])
def test_counts_of_any_form(names):
    vectors, counts = np.random.default_rng(0).normal(size=(3, 4)), np.array([0, 200, 7])
    series = pd.Series(counts, names)
    for given in (counts.astype(np.uint8), counts.tolist(), series, series[::-1]):
        display = LabelMapDisplay.from_vectors(vectors, names=names, counts=given, max_labels=2)
        assert display.names.tolist() == names[1:]
        assert display.counts.tolist() == [200, 7]


def test_a_series_of_counts_is_read_by_the_labels_of_a_classifier():
    X, y = make_learnable(False)
    counts = pd.Series(y).value_counts()
    display = LabelMapDisplay.from_estimator(
        quick("flat", max_epochs=1).fit(X, y),
        names=[f"class {i}" for i in range(N_LABELS)],
        counts=counts,
    )
    assert display.counts.tolist() == counts.tolist()
    assert {f"class {i}" for i in counts.index[:1]} == set(display.names[:1])


def test_counts_by_class_beside_names_that_are_other_classes():
    X, y = make_learnable(False)
    model, counts = quick("flat", max_epochs=1).fit(X, y), pd.Series(y).value_counts()
    expected = LabelMapDisplay.from_estimator(model, counts=counts)
    moved = LabelMapDisplay.from_estimator(model, names=model.classes_[::-1], counts=counts)
    assert moved.names.tolist() == (N_LABELS - 1 - expected.names).tolist()
    assert moved.counts.tolist() == expected.counts.tolist()


def test_frequent_labels_lie_over_rare_ones_and_own_styles_count():
    vectors, counts = np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) + 1
    display = LabelMapDisplay.from_vectors(vectors, counts=counts)
    np.testing.assert_array_equal(display.scatter_.get_offsets()[-1], display.points[0])
    assert display.scatter_.get_sizes().argmax() == 8
    own = LabelMapDisplay(display.points, display.variance, counts=display.counts)
    own.plot(c=np.arange(9), s=np.arange(9))
    np.testing.assert_array_equal(own.scatter_.get_offsets(), display.points)
    np.testing.assert_array_equal(own.scatter_.get_array(), np.arange(9))
    assert len(own.figure_.axes) == 1  # no scale of counts for colours of something else
    plain = LabelMapDisplay.from_vectors(vectors, color="k")
    assert plain.scatter_.get_facecolor()[0, :3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "params, message",
    [
        ({"vectors": np.eye(1)}, "minimum of 2"),
        ({"names": ["a"]}, r"names and vectors must have equally many labels"),
        ({"counts": [1, 2]}, r"counts and vectors must have equally many labels"),
        ({"max_labels": 1}, "max_labels must be an integer >= 2, got 1"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        LabelMapDisplay.from_vectors(**{"vectors": np.eye(3), **params})
