"""The report of labels: counts by brute force, forms of y, the order, and what is shown."""

import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from sklearn_xlc import label_report
from sklearn_xlc.inspection import LabelReport, reporting


def draw(seed, n_samples=60, n_labels=8):
    rng = np.random.default_rng(seed)
    true = (rng.random((n_samples, n_labels)) < 0.25).astype(int)
    predicted = np.where(rng.random(true.shape) < 0.2, 1 - true, true)
    true[:, 3] = predicted[:, 3] = 0  # occurs nowhere
    true[:, 4] = predicted[:, 5] = 0  # never true, never predicted
    return true, predicted


def confusions(true, predicted):
    """Pairs of a missed and a wrongly predicted label, counted sample by sample."""
    pairs = Counter()
    for before, after in zip(true, predicted):
        missed, wrong = np.flatnonzero(before > after), np.flatnonzero(after > before)
        pairs.update((int(a), int(b)) for a in missed for b in wrong)
    return pairs


def most_frequent(counts, k):
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
    return best + [(None, 0)] * (k - len(best))


@pytest.mark.parametrize("pairs_at_once", [10**7, 5])
def test_counts_and_confusions_of_every_label(monkeypatch, pairs_at_once):
    monkeypatch.setattr(reporting, "_PAIRS", pairs_at_once)
    true, predicted = draw(0)
    report = label_report(true, sp.csr_matrix(predicted), n_confused=3)
    assert sorted(report.labels.tolist()) == [0, 1, 2, 4, 5, 6, 7]
    at = report.labels
    np.testing.assert_array_equal(report.support, true.sum(axis=0)[at])
    np.testing.assert_array_equal(report.predicted, predicted.sum(axis=0)[at])
    np.testing.assert_array_equal(report.hits, (true * predicted).sum(axis=0)[at])
    expected = precision_recall_fscore_support(true, predicted, zero_division=np.nan)
    np.testing.assert_allclose(report.precision, expected[0][at])
    np.testing.assert_allclose(report.recall, expected[1][at])
    np.testing.assert_allclose(report.f1, expected[2][at])
    pairs = confusions(true, predicted)
    for row, label in enumerate(report.labels):
        instead = most_frequent({b: n for (a, b), n in pairs.items() if a == label}, 3)
        found = zip(report.predicted_instead[row], report.n_predicted_instead[row])
        assert list(found) == instead
        of = most_frequent({a: n for (a, b), n in pairs.items() if b == label}, 3)
        assert list(zip(report.instead_of[row], report.n_instead_of[row])) == of


def test_labels_with_most_errors_come_first():
    true, predicted = draw(1)
    report = label_report(true, predicted)
    errors = (true != predicted).sum(axis=0)[report.labels]
    keys = list(zip(-errors, report.f1, report.labels))
    assert keys == sorted(keys)


def test_forms_of_y():
    true, predicted = draw(2)
    names = np.array([f"label {i}" for i in range(8)], dtype=object)
    expected = label_report(true, predicted, labels=names).to_frame()
    tags = [[set(names[row == 1]) for row in Y] for Y in (true, predicted)]
    frames = [pd.DataFrame(Y, columns=names) for Y in (true, predicted)]
    mixed = label_report(tags[0], sp.csr_matrix(predicted), labels=names)
    for report in (label_report(*tags), label_report(*frames), mixed):
        pd.testing.assert_frame_equal(report.to_frame(), expected, check_dtype=False)
    with pytest.raises(ValueError, match="labels= names the columns of indicators"):
        label_report(*tags, labels=names)


def test_confusions_of_classes_are_the_confusion_matrix():
    rng = np.random.default_rng(0)
    true, predicted = rng.choice(list("abc"), size=(2, 50))
    matrix = confusion_matrix(true, predicted)
    report = label_report(true, predicted, n_confused=2)
    for row, name in enumerate(report.labels):
        found = dict(zip(report.predicted_instead[row], report.n_predicted_instead[row]))
        own = dict(zip("abc", matrix["abc".index(name)].tolist()))
        assert found == {other: n for other, n in own.items() if other != name}


def test_a_hundred_thousand_labels():
    rng = np.random.default_rng(0)
    n_samples, n_labels = 2000, 100_000
    ids = rng.integers(n_labels // 5, size=(n_samples, 5)) * 5 + np.arange(5)
    indptr = np.arange(0, 5 * n_samples + 1, 5)
    true = sp.csr_array((np.ones(ids.size), ids.ravel(), indptr), shape=(n_samples, n_labels))
    moved = np.where(np.arange(5) == 0, ids + 5 - 10 * (ids >= n_labels - 5), ids)
    predicted = sp.csr_array((np.ones(ids.size), moved.ravel(), indptr), shape=true.shape)
    report = label_report(true, predicted, n_confused=1)
    missed = report.support > report.hits
    assert missed.sum() == len(np.unique(ids[:, 0]))
    assert (abs(report.predicted_instead[missed, 0] - report.labels[missed]) == 5).all()


def test_what_is_shown():
    tags = [["a<b"], ["dog"], ["fox"]] + [[f"label {i}"] for i in range(12)]
    report = label_report(tags, [["dog"], ["dog"], []] + tags[3:])
    lines = repr(report).splitlines()
    assert lines[0] == "LabelReport of 15 samples, 15 labels: precision 0.929, recall 0.867"
    assert lines[2].split() == ["a<b", "1", "0", "-", "0.00", "0.00", "dog", "(1)"]
    assert lines[3].split() == ["fox", "1", "0", "-", "0.00", "0.00"]
    assert lines[4].split() == ["dog", "1", "2", "0.50", "1.00", "0.67", "a<b", "(1)"]
    assert lines[-1] == "... 5 more labels"
    assert len(lines) == 2 + report.N_SHOWN + 1
    page = report._repr_html_()
    assert "<td>a&lt;b</td>" in page
    assert page.count("<tr>") == 2 + report.N_SHOWN
    frame = report.to_frame()
    assert frame["predicted_instead"][0] == "dog (1)"
    assert frame["precision"].isna().tolist()[:3] == [True, True, False]
    assert frame["label"].tolist() == report.labels.tolist()


def test_nothing_wrong_and_nothing_at_all():
    right = label_report([["a"], ["b"]], [["a"], ["b"]])
    assert right.f1.tolist() == [1.0, 1.0]
    assert right.instead_of.tolist() == [[None] * 3] * 2
    empty = label_report([[], []], [[], []])
    assert len(empty.labels) == 0
    assert "2 samples, 0 labels" in repr(empty)
    assert isinstance(pickle.loads(pickle.dumps(empty)), LabelReport)
    with pytest.raises(ValueError, match="n_confused must be an integer >= 1, got 0"):
        label_report([["a"]], [["a"]], n_confused=0)
