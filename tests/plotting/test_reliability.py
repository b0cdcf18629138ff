"""The reliability diagram draws the bins of which the calibration error is the mean."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from _factories import N_LABELS, make_learnable, quick
from sklearn_xlc import predict_topk
from sklearn_xlc.metrics import expected_calibration_error
from sklearn_xlc.plotting import ReliabilityDisplay, ThresholdDisplay


@pytest.mark.parametrize("multilabel, n_bins", [(True, 15), (False, 15), (True, 2)])
def test_lines_are_the_bins_of_the_ranks(multilabel, n_bins):
    X, y = make_learnable(multilabel)
    clf = quick("flat", max_epochs=3).fit(X, y)
    labels, p = clf.predict_topk(X, 2, proba=True)
    display = ReliabilityDisplay.from_estimator(clf, X, y, k=2, n_bins=n_bins)
    errors = expected_calibration_error(y, labels, p, n_bins=n_bins)
    distance = np.abs(display.mean_probability - display.share_true)
    weights = display.n_predictions / len(p)
    np.testing.assert_allclose(np.nansum(weights * distance, axis=1), errors)
    for line, mean, share in zip(display.lines_, display.mean_probability, display.share_true):
        used = ~np.isnan(mean)
        np.testing.assert_array_equal(line.get_xydata(), np.c_[mean, share][used])
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["perfect", *(f"rank {r} (ECE {e:.2f})" for r, e in enumerate(errors, 1))]
    np.testing.assert_array_equal(display.diagonal_.get_xydata(), [[0, 0], [1, 1]])


def test_pooled_ranks_two_classifiers_and_a_pipeline():
    X, Y = make_learnable(True)
    first, second = (quick("flat", max_epochs=n).fit(X, Y) for n in (1, 5))
    display = ReliabilityDisplay.from_estimator(first, X, Y, pooled=True, name="one epoch")
    assert display.n_predictions.sum() == 3 * Y.shape[0]
    piped = make_pipeline(FunctionTransformer(accept_sparse=True), second).fit(X, Y)
    other = ReliabilityDisplay.from_estimator(
        piped, X, Y, k=1, pooled=True, name="five", ax=display.ax_, linestyle="--"
    )
    assert other.ax_ is display.ax_
    assert other.figure_ is display.figure_
    assert other.diagonal_ is display.diagonal_
    assert len(other.ax_.lines) == 3
    assert other.lines_[0].get_linestyle() == "--"
    texts = [text.get_text() for text in other.ax_.get_legend().get_texts()]
    assert texts == ["perfect", "one epoch, ranks 1 to 3", "five, rank 1"]


@pytest.mark.parametrize("display", [ReliabilityDisplay, ThresholdDisplay])
@pytest.mark.parametrize("multilabel", [False, True])
def test_classifiers_of_scikit_learn_have_probabilities(display, multilabel):
    X, y = make_learnable(multilabel)
    y = y[:, :5] if multilabel else y  # of which each is in some samples, but not in all
    clf = LogisticRegression()
    clf = (OneVsRestClassifier(clf) if multilabel else clf).fit(X, y)
    given = predict_topk(clf, X, 3, proba=True)
    drawn = display.from_estimator(clf, X, y, k=3).lines_
    for line, expected in zip(drawn, display.from_predictions(y, *given).lines_, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), expected.get_xydata())
    with pytest.raises(TypeError, match="RidgeClassifier has none of them"):
        display.from_estimator(RidgeClassifier().fit(X, make_learnable(False)[1]), X, y)


@pytest.mark.parametrize("display", [ReliabilityDisplay, ThresholdDisplay])
@pytest.mark.parametrize("form", [sp.csr_matrix, lambda Y: Y.toarray()])
def test_columns_of_an_indicator_are_the_labels_of_the_classifier(display, form):
    X, Y = make_learnable(True)
    names = [f"tag {i}" for i in range(N_LABELS)][::-1]
    plain = quick("flat").partial_fit(X, Y).remove_labels([3])
    named = quick("flat").partial_fit(X, Y, classes=names).remove_labels([names[3]])
    kept = form(Y[:, np.delete(np.arange(N_LABELS), 3)])
    tags = [named.classes_[row.indices].tolist() for row in sp.csr_matrix(kept)]
    expected = display.from_estimator(named, X, tags).lines_
    for clf in (plain, named):
        for line, other in zip(display.from_estimator(clf, X, kept).lines_, expected, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), other.get_xydata())


def test_bad_arguments():
    with pytest.raises(ValueError, match="n_bins must be"):
        ReliabilityDisplay.from_predictions([0, 1], [[0], [1]], [[0.5], [0.5]], n_bins=0)


@pytest.mark.parametrize("form", [lambda y: y[:, None], lambda y: pd.DataFrame({"class": y})])
def test_classes_in_a_column_are_classes(rng, form):
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 1.5).astype(int)
    clf, few = LogisticRegression().fit(X, y), X[:, 0] < 0  # where class 0 is always best
    for display, name in ((ReliabilityDisplay, "share_true"), (ThresholdDisplay, "precision")):
        expected, found = (
            getattr(display.from_estimator(clf, X[few], each, k=1), name)
            for each in (y[few], form(y[few]))
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns", [[1, 2, 3, 4], [10, 20, 30, 40], [3, 2, 1, 0]])
def test_columns_of_classifiers_without_names_are_read_by_place(rng, columns):
    X = rng.normal(size=(200, 5))
    Y = ((X @ rng.normal(size=(5, 4))) > 0.5).astype(int)
    displays = []
    for names in (list("abcd"), columns):
        frame = pd.DataFrame(Y, columns=names)
        forest = RandomForestClassifier(5, random_state=0).fit(X, frame)
        displays.append(
            (
                ReliabilityDisplay.from_estimator(forest, X, frame, k=1).share_true,
                ThresholdDisplay.from_estimator(forest, X, frame).recall,
            )
        )
    np.testing.assert_array_equal(displays[1][0], displays[0][0])
    np.testing.assert_array_equal(displays[1][1], displays[0][1])
