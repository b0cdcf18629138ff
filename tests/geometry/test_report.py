"""Reports count, tabulate and print what was found."""

import sys

import numpy as np
import pytest

from sklearn_xlc.geometry import ArgmaxabilityReport


@pytest.fixture
def report():
    return ArgmaxabilityReport(
        status=np.array([1, 1, 0, -1], dtype=np.int8),
        radius=np.array([2.0, 1e-9, 0.0, np.nan]),
        witness=np.array([[1.0], [2.0], [np.nan], [np.nan]]),
        reason=np.array(["point", "linear program", "certificate", "time limit"]),
        conflicts=[None, None, np.array([0, 2]), None],
        n_active=np.array([1, 2, 3, 4]),
        n_labels=5,
        min_radius=1e-8,
    )


def test_counts(report):
    assert len(report) == report.n_sets == 4
    assert (report.n_argmaxable, report.n_unargmaxable, report.n_unknown) == (2, 1, 1)
    assert report.narrow.tolist() == [False, True, False, False]


def test_repr(report):
    assert repr(report) == (
        "ArgmaxabilityReport(n_sets=4, argmaxable=2 (narrow: 1), not argmaxable=1, unknown=1)"
    )


def test_html_has_a_row_for_every_reason(report):
    text = report._repr_html_()
    assert text.count("<tr>") == 5
    assert "4 label sets of 5 labels" in text
    assert "<td>not argmaxable</td><td>certificate</td><td>1</td><td>3.0</td>" in text


def test_frame(report):
    frame = report.to_frame()
    assert frame["status"].tolist() == ["argmaxable", "argmaxable", "not argmaxable", "unknown"]
    assert frame["n_active"].tolist() == [1, 2, 3, 4]
    assert frame["conflict"][2].tolist() == [0, 2]
    assert frame["conflict"][0] is None


def test_frame_names_what_is_missing(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        report.to_frame()
