"""What is refused, with which words; and the ranking kernels on their own."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from sklearn_xlc.metrics import precision_at_k, soft_label_mass
from sklearn_xlc.metrics._validation import check_labels, check_prediction, rank_scores

Y_TRUE = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
SCORES = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
IDS = np.array([[0, 1], [1, 0]])
NAN = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, np.nan, 0.2, 0.1]])


@pytest.mark.parametrize(
    "y_true, message",
    [
        (Y_TRUE * 2, r"y_true must hold 0 and 1 only, got 2 in row 0"),
        (Y_TRUE[::-1] * [1, -1, 1, 1], r"got -1 in row 0"),
        (Y_TRUE * [1, np.nan, 1, 1], r"got nan in row 0"),
        (sp.csr_array(Y_TRUE * [1, 3, 1, 1]), r"y_true must hold 0 and 1 only, got 3 in row 1"),
        (sp.coo_array(([1, 1], ([1, 1], [2, 2])), shape=(2, 4)), r"got 2 in row 1"),
        (
            np.array([["a", "b"], ["c", "d"]]),
            r"y_true must be a two-dimensional matrix of numbers, got shape \(2, 2\) and dtype <U1",
        ),
        (np.array([[3], [2]]), r"got 3 in row 0, column 0; class ids go in a 1-D array"),
        (Y_TRUE[None], r"y_true must be an indicator .* got shape \(1, 2, 4\)"),
        (1, r"y_true must be an indicator .* got shape \(\)"),
        (sp.coo_array(np.array([0, 1])), r"y_true must be an indicator .* got shape \(2,\)"),
        (Y_TRUE[:0], r"y_true must have at least one row and one label, got shape \(0, 4\)"),
        ([[1, 0], [0.5]], r"y_true\[1\] holds the tag 0.5 of type float; tags are str or int"),
        ([[1, 0], 1], r"y_true\[1\] is 1, but others are sets of tags; give \[1\] for a single"),
        (np.array([0, -2]), r"y_true holds class id -2 in row 1; accepted are 0 to 3"),
        (np.array([0, 4]), r"y_true holds class id 4 in row 1; accepted are 0 to 3"),
        (Y_TRUE[:1], r"y_true and y_pred must have equally many rows, got 1 and 2"),
        (Y_TRUE[:, :3], r"y_pred holds scores of shape \(2, 4\), y_true has shape \(2, 3\)"),
    ],
)
def test_truth_refused(y_true, message):
    with pytest.raises(ValueError, match=message):
        precision_at_k(y_true, SCORES, 2)


@pytest.mark.parametrize("y_true", [np.array(["a", "b"]), np.array([0.0, 1.0]), [True, False]])
def test_class_labels_that_are_no_ids_are_refused(y_true):
    with pytest.raises(
        TypeError, match=r"1-D y_true holds integer class ids, got dtype .*topk_scorer"
    ):
        precision_at_k(y_true, SCORES, 2)


def test_class_ids_beyond_64_bit_keys_are_refused():
    with pytest.raises(
        ValueError, match=r"class id 10000000000 in row 0; accepted are 0 to 2147483647"
    ):
        precision_at_k(np.array([10**10, 0]), IDS, 2)


@pytest.mark.parametrize(
    "y_pred, message",
    [
        (NAN, r"y_pred holds NaN in row 1"),
        (sp.csr_array(NAN), r"y_pred holds NaN in row 1"),
        (SCORES[0], r"y_pred must be 2-D, got shape \(4,\)"),
        (SCORES[:, :3], r"scores of shape \(2, 3\), y_true has shape \(2, 4\).*integer array"),
        (sp.csr_array(SCORES[:, :3]), r"scores of shape \(2, 3\), y_true has shape \(2, 4\)"),
        (sp.csr_array(SCORES + 1j), r"a sparse y_pred must be .* real scores.*complex128"),
        ([[0.5, 0.5], [1.0]], r"y_pred must be a rectangular array or a sparse matrix"),
        (IDS[:, :1], r"y_pred holds 1 label ids per sample, k=2 needs at least 2; fill with -1"),
        (IDS[:1], r"equally many rows, got 2 and 1"),
        (np.array([[0, 1], [1, 4]]), r"label id 4 in row 1: accepted are 0 to 3, and -1 for none"),
        (
            np.array([[0, 1], [-2, 1]]),
            r"label id -2 in row 1: accepted are 0 to 3, and -1 for none",
        ),
        (np.array([[0, 1, 9], [1, 2, 3]]), r"label id 9 in row 0"),
        (np.array([[0, 1], [2, 2]]), r"label id 2 in row 1 more than once.*read as label ids"),
        (np.array([[3, 1, 3], [0, 1, 2]]), r"label id 3 in row 0 more than once"),
        (Y_TRUE, r"looks like an indicator.*y_pred\.astype\(float\)"),
    ],
)
def test_prediction_refused(y_pred, message):
    with pytest.raises(ValueError, match=message):
        precision_at_k(Y_TRUE, y_pred, 2)


@pytest.mark.parametrize(
    "y_pred", [SCORES > 0.2, SCORES.astype(object), SCORES + 1j, SCORES.astype(str)]
)
def test_prediction_of_no_accepted_type_is_refused(y_pred):
    with pytest.raises(
        TypeError, match=r"y_pred must not be of dtype .*: y_pred is either floating"
    ):
        precision_at_k(Y_TRUE, y_pred, 2)


def test_minus_one_may_repeat_anywhere():
    assert precision_at_k(Y_TRUE, np.array([[-1, 2, -1], [-1, -1, 1]]), 3) == (1 / 3 + 1 / 3) / 2


@pytest.mark.parametrize(
    "k, error",
    [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError), (True, TypeError)],
)
def test_k_refused(k, error):
    with pytest.raises(error, match=r"k must be an integer >= 1, got "):
        precision_at_k(Y_TRUE, SCORES, k)


def test_k_of_numpy_integer_type_is_accepted():
    assert precision_at_k(Y_TRUE, SCORES, np.int32(2)) == 1 / 2


@pytest.mark.parametrize(
    "weight, message",
    [
        ([1, 2, 3], r"sample_weight.shape == \(3,\), expected \(2,\)"),
        ([[1], [2]], "must be 1D"),
        (["a", "b"], "could not convert string to float"),
        ([1, -1], "sample_weight must be finite and at least 0, got -1.0 in row 1"),
        ([np.nan, 1], "sample_weight must be finite and at least 0, got nan in row 0"),
        ([1, np.inf], "sample_weight must be finite and at least 0, got inf in row 1"),
        ([0, 0], "at least one non-zero"),
        ([10**400, 1], "sample_weight: int too large"),
        (np.nan, "sample_weight must be finite and at least 0, got nan"),
        (np.inf, "sample_weight must be finite and at least 0, got inf"),
        pytest.param(10**400, "sample_weight must be finite and at least 0", id="huge"),
        (1j, "sample_weight must be finite and at least 0, got 1j of type complex"),
    ],
)
def test_weight_refused(weight, message):
    with pytest.raises((TypeError, ValueError), match=message):
        precision_at_k(Y_TRUE, SCORES, 2, sample_weight=weight)


def test_explicit_zeros_are_no_labels_but_are_scores():
    stored = sp.csr_array(([0, 1, 0], ([0, 0, 1], [0, 2, 1])), shape=(2, 4))
    assert check_labels(stored, "y").indices.tolist() == [2]
    assert stored.nnz == 3
    assert rank_scores(stored, 2).tolist() == [[2, 0], [1, -1]]
    assert precision_at_k(Y_TRUE, stored, 1) == 1


def test_stored_log_probabilities_rank_above_what_is_not_stored():
    scores = sp.csr_array(([-9.0, -0.1, -np.inf], ([0, 0, 1], [3, 1, 2])), shape=(2, 5))
    assert rank_scores(scores, 4).tolist() == [[1, 3, -1, -1], [-1, -1, -1, -1]]


def test_ranking_by_blocks_is_the_ranking_at_once(rng, monkeypatch):
    scores = rng.integers(0, 4, (50, 9)).astype(np.float32)
    expected = np.argsort(-scores, axis=1, kind="stable")
    for block_size in (1, 40, 10**6):
        monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", block_size)
        for k in range(1, 12):
            np.testing.assert_array_equal(rank_scores(scores, k), expected[:, :k])


def test_infinite_scores_are_ranked_first_and_last():
    scores = np.array([[0.0, np.inf, -np.inf, -0.0, np.inf]])
    assert rank_scores(scores, 5).tolist() == [[1, 4, 0, 3, -1]]
    assert rank_scores(scores, 1).tolist() == [[1]]


def test_nan_in_a_later_block_is_named_by_its_own_row(monkeypatch):
    monkeypatch.setattr("sklearn_xlc._csr.BLOCK_ENTRIES", 8)
    scores = np.zeros((9, 4))
    scores[7, 1] = np.nan
    with pytest.raises(ValueError, match=r"y_pred holds NaN in row 7"):
        rank_scores(scores, 2)


def test_scores_are_made_canonical_and_left_alone():
    messy = sp.csr_matrix(
        (np.array([1.0, 2.0, 4.0]), np.array([3, 0, 3]), np.array([0, 3])), shape=(1, 5)
    )
    clean = check_prediction(messy)
    assert clean.indices.tolist() == [0, 3]
    assert clean.data.tolist() == [2, 5]
    assert messy.indices.tolist() == [3, 0, 3]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_the_same_columns_in_two_orders_are_refused(frame):
    true = frame(dict(zip("abcd", Y_TRUE.T)))
    scores = frame(dict(zip("abcd", SCORES.T)))
    message = r"columns of y_true and y_pred are the same labels in two orders; give y_pred\[y_true"
    assert precision_at_k(true, scores, 2) == precision_at_k(Y_TRUE, SCORES, 2)
    with pytest.raises(ValueError, match=message):
        precision_at_k(true, scores[list("dcba")], 2)
    shares = frame(dict(zip("abcd", SCORES.T / SCORES.sum())))
    assert soft_label_mass(true, shares) == soft_label_mass(Y_TRUE, SCORES / SCORES.sum())
    with pytest.raises(ValueError, match="of y_true and y_proba are the same labels in two orders"):
        soft_label_mass(true, shares[list("dcba")])


@pytest.mark.parametrize("form", [list, np.array, pd.Series, pl.Series])
def test_class_labels_may_be_strings_where_strings_are_predicted(form):
    best = np.array([["cat", "dog"], ["dog", "ox"], ["cat", "ox"]])
    assert precision_at_k(form(["dog", "dog", "ox"]), best, 1) == 1 / 3
    assert precision_at_k(form(["dog", "dog", "ox"]), best.astype(object), 2) == 1 / 2


@pytest.mark.parametrize("dtype", [object, "str", "string"])
def test_missing_names_are_no_labels(dtype):
    best = pd.DataFrame([["a", None, None], ["b", "a", None]], dtype=dtype)
    for truth in ([["a"], ["b"]], ["a", "b"]):
        assert precision_at_k(truth, best, 3) == 1 / 3


def test_a_sparse_vector_beside_names_is_refused_by_name():
    with pytest.raises((TypeError, ValueError), match="y_pred must not be of dtype"):
        precision_at_k(sp.coo_array(np.array([1.0, 0, 1])), np.full((3, 2), "a"), k=2)
