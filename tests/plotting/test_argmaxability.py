"""The picture of a report shows every label set once, and its radius where there is one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from _factories import quick
from sklearn_xlc.geometry import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.plotting import ArgmaxabilityDisplay


def make_report(status, radius, n_active, reason="linear program"):
    n = len(status)
    return ArgmaxabilityReport(
        status=np.array(status, dtype=np.int8),
        radius=np.array(radius, dtype=float),
        witness=np.full((n, 2), np.nan),
        reason=np.array([reason] * n),
        conflicts=[None] * n,
        n_active=np.array(n_active),
        n_labels=9,
        min_radius=1e-8,
    )


def drawn(ax):
    """Points of every group by its name."""
    return {
        group.get_label().split(" (")[0]: np.asarray(group.get_offsets())
        for group in ax.collections
        if not group.get_label().startswith("_")
    }


def test_every_set_is_drawn_once_at_its_radius():
    radius = [2.0, 1e-3, 1e-12, 0.0, np.nan, 0.0]
    report = make_report([1, 1, 1, 0, -1, 1], radius, [1, 2, 5, 3, 4, 2])
    display = ArgmaxabilityDisplay.from_report(report)
    points = drawn(display.ax_)
    assert {name: len(group) for name, group in points.items()} == {
        "argmaxable": 4,
        "unknown": 1,
        "not argmaxable": 1,
    }
    np.testing.assert_allclose(points["argmaxable"][:3, 1], radius[:3])
    np.testing.assert_allclose(points["argmaxable"][:, 0], [1, 2, 5, 2], atol=0.3)
    strip = [points["argmaxable"][3, 1], points["unknown"][0, 1], points["not argmaxable"][0, 1]]
    bottom, top = display.ax_.get_ylim()
    assert bottom < min(strip)
    assert max(strip) < 1e-12
    assert top > 2.0
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["argmaxable (4)", "not argmaxable (1)", "unknown (1)"]
    assert display.ax_.get_yticks().min() >= 1e-13  # no numbers beside the strip


@pytest.mark.parametrize("names", [list("cab"), [7, 3, 5]])
def test_tags_and_frames_of_a_classifier(names):
    X, Y = (
        np.eye(3).repeat(9, axis=0),
        np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]]).repeat(9, axis=0),
    )
    tags = [[names[i] for i in np.flatnonzero(row)] for row in Y]
    clf = quick("dft", max_active=1, n_slack=2).fit(X, tags)
    expected = verify_argmaxable(clf, np.array(Y)[:, np.argsort(names)])
    frame = pd.DataFrame(Y, columns=names)
    for sets in (tags, [set(row) for row in tags], frame, frame[sorted(names)]):
        report = ArgmaxabilityDisplay.from_estimator(clf, sets).report
        np.testing.assert_array_equal(report.status, expected.status)
        np.testing.assert_array_equal(report.n_active, Y.sum(axis=1))
    with pytest.raises(ValueError, match="Y holds the label .*, which is not one of the 3 labels"):
        ArgmaxabilityDisplay.from_estimator(clf, [names[:1], [names[0] * 2]])


@pytest.mark.parametrize("status", [1, 0, -1])
def test_one_answer_only(status):
    report = make_report([status] * 3, [1.0 if status == 1 else np.nan] * 3, [1, 2, 3])
    display = ArgmaxabilityDisplay(report).plot()
    assert [len(group) for group in drawn(display.ax_).values()] == [3]
    display.figure_.canvas.draw()


def test_lower_bounds_are_told_from_radii():
    report = make_report([1, 1, 0], [5.0, 1e-3, 0.0], [1, 2, 3])
    report.reason[:] = ["linear program", "perceptron", "certificate"]
    display = ArgmaxabilityDisplay.from_report(report)
    points = drawn(display.ax_)
    np.testing.assert_allclose(points["argmaxable"][:, 1], [5.0])
    np.testing.assert_allclose(points["argmaxable, radius at least"][:, 1], [1e-3])
    filled, hollow, _ = display.ax_.collections[:3]
    assert len(filled.get_facecolors()) == 1
    assert len(hollow.get_facecolors()) == 0


@pytest.mark.parametrize("radius", [0.0, 1e-300, np.inf])
def test_radii_off_the_scale_stand_in_the_strip(radius):
    display = ArgmaxabilityDisplay.from_report(make_report([1, 1], [2.0, radius], [1, 2]))
    known, off_scale = drawn(display.ax_)["argmaxable"][:, 1]
    bottom, top = display.ax_.get_ylim()
    assert 0 < bottom < off_scale < 0.7 < known == 2.0 < top < np.inf
    display.figure_.canvas.draw()


def test_narrow_sets_are_set_off_by_a_line():
    for radius, n_lines in [(1e-3, 0), (1e-12, 1)]:
        display = ArgmaxabilityDisplay.from_report(make_report([1, 1], [2.0, radius], [1, 2]))
        assert [line.get_ydata()[0] for line in display.ax_.lines] == [1e-8] * n_lines


def test_from_a_fitted_estimator():
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    Y = (X @ rng.normal(size=(2, 5)) + rng.normal(size=5) > 0).astype(int)
    model = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    sets = (np.arange(32)[:, None] >> np.arange(5)) & 1
    _, ax = plt.subplots()
    display = ArgmaxabilityDisplay.from_estimator(model, sets, ax=ax, time_limit=5.0)
    assert display.ax_ is ax
    np.testing.assert_array_equal(display.report.status, verify_argmaxable(model, sets).status)
    assert display.report.n_unargmaxable >= 16  # at most 16 regions of 5 lines in the plane
