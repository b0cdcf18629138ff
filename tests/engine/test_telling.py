"""Messages of `verbose`."""

import numpy as np
import pytest

from _factories import quick
from sklearn_xlc._part import Part
from sklearn_xlc.engine.telling import number, tell


@pytest.mark.parametrize(
    "n, expected", [(0, "0 samples"), (1, "1 sample"), (45_000, "45 000 samples")]
)
def test_numbers_of_things(n, expected):
    assert number(n, "sample") == expected


def test_the_second_network_is_named(capsys):
    clf = quick("flat", verbose=1)
    tell(clf, "begins")
    clf._is_part = True
    tell(clf, "begins")
    tell(clf.set_params(verbose=0), "is silent")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "[MultiHeadClassifier] begins"
    assert second == "[MultiHeadClassifier, second network] begins"


def test_no_part_is_written_out_where_nothing_is_printed(monkeypatch):
    def of(part, n_most=0):
        raise AssertionError(f"the text of {type(part).__name__} was made")

    monkeypatch.setattr(Part, "__repr__", of)
    Y = np.tile(np.eye(4, dtype=int), (30, 1))
    clf = quick("flat", ranker="boosted", decision="threshold", validation_fraction=0.3)
    clf.fit(Y.astype(float), Y)
