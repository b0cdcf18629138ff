"""Look-ups at pairs equal look-ups in a dense matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.ranking import pairs as module
from sklearn_xlc.ranking.pairs import Pairs

ENTRIES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 9)), max_size=30)
WANTED = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=20)


@pytest.mark.parametrize("table", [1, 20, 2**20])
@given(entries=ENTRIES, wanted=WANTED)
def test_last_entries_and_sums(table, entries, wanted):
    entries = sorted(entries, key=lambda entry: entry[0])
    rows, labels, values = (np.array([e[i] for e in entries], dtype=int) for i in range(3))
    indptr = np.searchsorted(rows, np.arange(6))
    last, total = np.zeros((5, 7)), np.zeros((5, 7))
    for row, label, value in entries:
        last[row, label] = value
        total[row, label] += value
    at = np.array(sorted(wanted), dtype=int).reshape(-1, 2)
    before = module._TABLE
    try:
        module._TABLE = table
        pairs = Pairs(at[:, 0], at[:, 1], (5, 7))
    finally:
        module._TABLE = before
    np.testing.assert_array_equal(
        pairs.entries(indptr, labels, values.astype(np.float32)), last[at[:, 0], at[:, 1]]
    )
    np.testing.assert_array_equal(pairs.sums(indptr, labels, values), total[at[:, 0], at[:, 1]])
