"""Calibration errors against sums in plain Python, for every form of labels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sklearn_xlc.metrics import expected_calibration_error, precision_at_k


def by_hand(true, labels, probabilities, n_bins, rank):
    """Mean distance of probability and share of hits, bin by bin."""
    bins = {}
    for i in range(len(labels)):
        if labels[i][rank] == -1:
            continue
        p = probabilities[i][rank]
        number = min(int(p * n_bins), n_bins - 1)
        bins.setdefault(number, []).append((p, labels[i][rank] in true[i]))
    n = sum(map(len, bins.values()))
    return sum(abs(sum(p - hit for p, hit in found)) for found in bins.values()) / n


@pytest.fixture
def data(rng):
    Y = (rng.random((60, 9)) < 0.3).astype(int)
    labels = rng.permuted(np.tile(np.arange(9), (60, 1)), axis=1)[:, :4]
    labels[::7, 3] = -1
    return Y, labels, rng.random((60, 4))


@pytest.mark.parametrize("n_bins", [1, 4, 15])
def test_it_is_the_mean_distance_from_the_diagonal(data, n_bins):
    Y, labels, p = data
    true = [set(np.flatnonzero(row)) for row in Y]
    expected = [by_hand(true, labels, p, n_bins, rank) for rank in range(4)]
    found = expected_calibration_error(Y, labels, p, n_bins)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_any_form_of_the_same_labels_gives_the_same_value(data):
    Y, labels, p = data
    names = np.array([*"abcdefghi"], dtype=object)
    named = np.where(labels < 0, None, names[labels])
    expected = expected_calibration_error(Y, labels, p)
    for truth in (sp.csr_array(Y), sp.coo_matrix(Y), Y.tolist(), Y.astype(bool)):
        np.testing.assert_array_equal(expected_calibration_error(truth, labels, p), expected)
    tags = [names[np.flatnonzero(row)].tolist() for row in Y]
    np.testing.assert_array_equal(expected_calibration_error(tags, named, p), expected)
    frame = pd.DataFrame(Y, columns=names)
    np.testing.assert_array_equal(expected_calibration_error(frame, named, p), expected)


@pytest.mark.parametrize("names", [np.array(["x", "y", "z"]), np.array([10, 20, 30])])
def test_one_class_a_sample(rng, names):
    ids, p = rng.integers(3, size=50), rng.random((50, 2))
    labels = rng.permuted(np.tile(np.arange(3), (50, 1)), axis=1)[:, :2]
    expected = [by_hand([{i} for i in ids], labels, p, 15, rank) for rank in range(2)]
    found = expected_calibration_error(names[ids], names[labels], p)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("none", [-1, None, np.nan, pd.NA])
@pytest.mark.parametrize("truth", [[{1}, {2}, {1}], [{"x"}, {"y"}, {"x"}], ["x", "y", "x"]])
def test_no_label_is_left_out_of_every_form(truth, none):
    first, second, _ = [next(iter(each)) for each in truth]
    if isinstance(truth[0], str):
        none = None if isinstance(none, int) else none  # -1 could be the name of a class
    labels = np.array([[first, second], [second, none], [first, none]], dtype=object)
    found = expected_calibration_error(truth, labels, [[0.5, 0.25], [0.5, 0.75], [0.5, 0.75]])
    np.testing.assert_allclose(found, [0.5, 0.25])
    if not isinstance(none, int):
        names = pd.DataFrame(labels).convert_dtypes()
        again = expected_calibration_error(truth, names, [[0.5, 0.25], [0.5, 0.75], [0.5, 0.75]])
        np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("truth", [["a", "a\0"], [{"a"}, {"a\0"}]])
def test_names_that_end_in_null_characters_differ(truth):
    right, wrong = [["a"], ["a\0"]], [["a\0"], ["a"]]
    assert expected_calibration_error(truth, right, np.ones((2, 1))).tolist() == [0]
    assert expected_calibration_error(truth, wrong, np.ones((2, 1))).tolist() == [1]
    assert precision_at_k(truth, wrong, 1) == 0


def test_perfect_and_worst_probabilities():
    Y, labels = np.eye(3, dtype=int), np.array([[0, 1], [1, 2], [2, 0]])
    assert expected_calibration_error(Y, labels, [[1.0, 0.0]] * 3).tolist() == [0, 0]
    assert expected_calibration_error(Y, labels, [[0.0, 1.0]] * 3).tolist() == [1, 1]


def test_the_error_of_perfect_probabilities_falls_with_the_root_of_the_samples(rng):
    errors = []
    for n in (1000, 16_000):
        p = rng.random((n, 1))
        ids = np.where(rng.random(n) < p[:, 0], 0, 1)
        errors.append(expected_calibration_error(ids, np.zeros((n, 1), dtype=int), p)[0])
        assert 0.15 < errors[-1] / np.sqrt(15 / n) < 0.6  # about 0.3
    assert errors[1] < errors[0] / 2


def test_a_rank_without_labels_has_no_error():
    found = expected_calibration_error(np.eye(2), np.array([[0, -1], [1, -1]]), np.ones((2, 2)))
    assert found[0] == 0
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"probabilities": [[1.5], [0.5]]}, ValueError, "between 0 and 1, got 1.5 in row 0"),
        ({"probabilities": [[np.nan], [0.5]]}, ValueError, "between 0 and 1, got nan"),
        ({"probabilities": [[0.5, 0.5]] * 2}, ValueError, "of the shape of labels"),
        ({"probabilities": [["a"], ["b"]]}, ValueError, "numbers of the shape"),
        ({"labels": [0, 1]}, ValueError, r"in shape \(n_samples, k\), got shape \(2,\)"),
        ({"labels": [[0.5], [0.2]]}, TypeError, "pass the labels, and then"),
        ({"labels": [[0], [7]]}, ValueError, "names label id 7 in row 1"),
        ({"y_true": np.eye(3)}, ValueError, "equally many rows"),
        ({"y_true": [0, 1, 1]}, ValueError, "equally many rows, got 3 and 2"),
        ({"y_true": ["0", "1"]}, ValueError, "both hold strings or both numbers"),
        ({"labels": [["0"], ["1"]], "y_true": [0, 1]}, ValueError, "both hold strings or both"),
        ({"y_true": [0, np.nan]}, ValueError, r"y_true\[1\] is NaN: every sample needs a class"),
        ({"n_bins": 0}, ValueError, "n_bins must be an integer >= 1"),
    ],
)
def test_bad_arguments(change, error, match):
    given = {"y_true": np.eye(2), "labels": [[0], [1]], "probabilities": [[0.5], [0.5]]} | change
    with pytest.raises(error, match=match):
        expected_calibration_error(**given)
