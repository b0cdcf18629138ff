"""Head lengths cover the labels, waste nothing and follow their rule in exact arithmetic."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sklearn_xlc.codes import confusion_degree, head_lengths

RULES = ["equal", "descending"]


def assert_minimal_cover(lengths, n_labels, n_heads):
    assert len(lengths) == n_heads
    assert all(isinstance(length, int) and length >= 1 for length in lengths)
    assert list(lengths) == sorted(lengths, reverse=True)
    product = math.prod(lengths)
    assert product >= n_labels
    for length in lengths:
        if length > 1:
            assert product // length * (length - 1) < n_labels


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 7])
def test_minimal_cover_of_every_small_label_space(rule, n_heads):
    for n_labels in range(1, 300):
        assert_minimal_cover(head_lengths(n_labels, n_heads, rule), n_labels, n_heads)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(1, 2**40), st.integers(1, 50), st.sampled_from(RULES))
def test_minimal_cover_to_2_40(n_labels, n_heads, rule):
    assert_minimal_cover(head_lengths(n_labels, n_heads, rule), n_labels, n_heads)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(1, 2**20), st.integers(1, 6))
def test_equal_is_the_exact_root_or_one_less(root, n_heads):
    n_labels = root**n_heads
    assume(n_labels + 1 < 2**63)  # numbers beyond are refused
    assert head_lengths(n_labels, n_heads) == (root,) * n_heads
    # One label more is where a root taken in floating point goes wrong.
    assert head_lengths(n_labels + 1, n_heads)[0] == root + 1
    lengths = head_lengths(n_labels + 1, n_heads)
    assert max(lengths) - min(lengths) <= 1


def test_equal_has_the_least_sum_of_two_lengths():
    for n_labels in range(1, 500):
        least = min(first - (-n_labels // first) for first in range(1, n_labels + 1))
        assert sum(head_lengths(n_labels, 2)) == least


@pytest.mark.parametrize("n_labels", [2**6, 5_000, 10**6, 2**40])
@pytest.mark.parametrize("n_heads", [2, 3, 4])
def test_descending_has_smaller_confusion_and_later_heads_of_the_stated_length(n_labels, n_heads):
    descending = head_lengths(n_labels, n_heads, "descending")
    later = descending[-1]
    assert descending[1:] == (later,) * (n_heads - 1)
    assert later ** (n_heads + 1) <= n_labels < (later + 1) ** (n_heads + 1)
    assert confusion_degree(descending) < confusion_degree(head_lengths(n_labels, n_heads))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "n_labels, n_heads, expected",
    [
        (1, 1, (1,)),
        (1, 3, (1, 1, 1)),
        (2, 1, (2,)),
        (2, 2, (2, 1)),
        (3, 2, (2, 2)),
        (3, 4, (2, 2, 1, 1)),
        (4, 2, (2, 2)),
        (5, 10, (2, 2, 2, 1, 1, 1, 1, 1, 1, 1)),
    ],
)
def test_tiny_label_spaces(rule, n_labels, n_heads, expected):
    assert head_lengths(n_labels, n_heads, rule) == expected


def test_numpy_integers_give_python_integers():
    lengths = head_lengths(np.int32(10), np.int64(2))
    assert lengths == (4, 3)
    assert all(type(length) is int for length in lengths)


@pytest.mark.parametrize(
    "lengths, expected",
    [
        ((7,), 1.0),
        ((172, 23), 23 / 172),
        ((10, 10), 1.0),
        ((40, 1), 1 / 40),
        ((4, 5, 6), (5 * 6 / 4) * (6 / 5)),
        ((2, 3, 4, 5), (3 * 4 * 5 / 2) * (4 * 5 / 3) * (5 / 4)),
    ],
)
def test_confusion_degree_by_hand(lengths, expected):
    assert confusion_degree(lengths) == pytest.approx(expected, rel=1e-15)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=4))
def test_descending_arrangement_has_least_confusion(lengths):
    swapped = sorted(lengths, reverse=True)
    assert confusion_degree(swapped) <= confusion_degree(lengths) * (1 + 1e-12)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_ascending_arrangement_has_most_confusion(lengths):
    of_all = [confusion_degree(order) for order in itertools.permutations(lengths)]
    assert confusion_degree(lengths, worst=True) == pytest.approx(max(of_all), rel=1e-12)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((0, 2), ValueError, "n_labels"),
        ((10, 0), ValueError, "n_heads"),
        ((10.0, 2), TypeError, "n_labels"),
        ((10, "2"), TypeError, "n_heads"),
        ((10, 2, "root"), ValueError, "rule must be 'equal' or 'descending', got 'root'"),
    ],
)
def test_bad_input_of_head_lengths(arguments, error, message):
    with pytest.raises(error, match=message):
        head_lengths(*arguments)


@pytest.mark.parametrize(
    "lengths, error, message",
    [
        ((), ValueError, "lengths is empty"),
        ((3, 0), ValueError, r"lengths\[1\]"),
        ((3, 2.0), TypeError, r"lengths\[1\]"),
    ],
)
def test_bad_input_of_confusion_degree(lengths, error, message):
    with pytest.raises(error, match=message):
        confusion_degree(lengths)
