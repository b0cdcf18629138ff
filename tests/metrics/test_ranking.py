"""Values computed by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sklearn_xlc.metrics import (
    coverage_at_k,
    f1_at_k,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
    recall_at_k,
)

# Three rows over five labels: two labels true, one true, none true.
Y_TRUE = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
# Hits at ranks 1 and 3; at rank 2; nowhere.
Y_PRED = np.array([[2, 1, 0], [3, 1, 4], [0, 1, 2]])
LOG3 = np.log2(3)


@pytest.mark.parametrize(
    "metric, k, expected",
    [
        (precision_at_k, 1, 1 / 3),
        (precision_at_k, 2, (1 / 2 + 1 / 2) / 3),
        (precision_at_k, 3, (2 / 3 + 1 / 3) / 3),
        (recall_at_k, 1, (1 / 2) / 3),
        (recall_at_k, 2, (1 / 2 + 1) / 3),
        (recall_at_k, 3, (1 + 1) / 3),
        (r_precision_at_k, 1, 1 / 3),
        (r_precision_at_k, 2, (1 / 2 + 1) / 3),
        (r_precision_at_k, 3, (2 / 2 + 1) / 3),
        (f1_at_k, 1, 2 / (3 + 6)),
        (f1_at_k, 2, 2 / (3 + 2)),
        (f1_at_k, 3, 2 / (3 + 3 / 2)),
        (ndcg_at_k, 1, 1 / 3),
        (ndcg_at_k, 2, (1 / (1 + 1 / LOG3) + 1 / LOG3) / 3),
        (ndcg_at_k, 3, ((1 + 1 / 2) / (1 + 1 / LOG3) + 1 / LOG3) / 3),
        (coverage_at_k, 1, 1 / 3),
        (coverage_at_k, 2, 2 / 3),
        (coverage_at_k, 3, 3 / 3),
    ],
)
def test_toy_values(metric, k, expected):
    assert metric(Y_TRUE, Y_PRED, k) == pytest.approx(expected, rel=1e-14)


def test_toy_values_with_weights():
    weight = [1, 3, 4]
    assert precision_at_k(Y_TRUE, Y_PRED, 1, sample_weight=weight) == 1 / 8
    assert recall_at_k(Y_TRUE, Y_PRED, 2, sample_weight=weight) == (1 / 2 + 3) / 8
    assert coverage_at_k(Y_TRUE, Y_PRED, 3, sample_weight=[0, 1, 1]) == 1
    assert coverage_at_k(Y_TRUE, Y_PRED, 1, sample_weight=[0, 1, 1]) == 0


def test_f1_is_of_the_means_and_not_the_mean_of_f1():
    y_true = np.array([[1, 1, 0], [1, 0, 0]])
    y_pred = np.array([[0], [2]])
    # P = 1/2, R = 1/4; the mean of the rows' F1 would also be 1/3 * 1 = (2/3 + 0) / 2.
    assert f1_at_k(y_true, y_pred, 1) == pytest.approx(1 / 3, rel=1e-15)
    y_pred = np.array([[0, 2], [0, 2]])
    # P = (1/2 + 1/2) / 2, R = (1/2 + 1) / 2; rows' F1: (1/2 + 2/3) / 2 = 7/12.
    assert f1_at_k(y_true, y_pred, 2) == pytest.approx(3 / 5, rel=1e-15)


def test_k_is_five_unless_told():
    y_true = np.array([[1] * 5 + [0] * 2])
    ids = np.array([[0, 5, 6, 1, 2, 3, 4]])
    assert precision_at_k(y_true, ids) == 3 / 5
    assert recall_at_k(y_true, ids) == 3 / 5


def test_divisor_is_k_even_where_fewer_labels_exist():
    assert precision_at_k(np.array([[1, 1]]), np.array([[0.5, 0.4]]), k=8) == 2 / 8
    assert ndcg_at_k(np.array([[1, 1]]), np.array([[0.5, 0.4]]), k=8) == 1
    assert recall_at_k(np.array([[1, 1]]), np.array([[0.5, 0.4]]), k=8) == 1


def test_an_empty_place_takes_a_rank():
    y_true = np.array([[0, 0, 1]])
    assert ndcg_at_k(y_true, np.array([[-1, 2, -1]]), k=3) == pytest.approx(1 / LOG3, rel=1e-15)
    assert precision_at_k(y_true, np.array([[-1, 2, -1]]), k=1) == 0


def test_class_the_prediction_cannot_name_is_a_miss():
    assert precision_at_k(np.array([7, 1]), np.array([[0, 1], [1, 0]]), k=1) == 1 / 2
    assert recall_at_k(np.array([0, 1]), np.array([[9, 0], [1, 8]]), k=2) == 1


# --- labels with names ------------------------------------------------------------------------

TAGS = [["a", "c"], [], ["b"], ["c", "d"]]
NAMED = np.array([["c", "a"], ["b", "x"], ["x", "b"], ["a", None]], dtype=object)
AS_IDS = np.array([[2, 0], [1, 4], [4, 1], [0, -1]])
MATRIX = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 0]])


@pytest.mark.parametrize(
    "metric", [precision_at_k, recall_at_k, r_precision_at_k, f1_at_k, ndcg_at_k]
)
@pytest.mark.parametrize("k", [1, 2])
def test_tags_and_names_are_indicator_and_ids(metric, k):
    expected = metric(MATRIX, AS_IDS, k)
    assert metric(TAGS, NAMED, k) == expected
    assert metric([set(tags) for tags in TAGS], NAMED, k) == expected
    frame = pd.DataFrame(MATRIX, columns=list("abcdx"))
    assert metric(frame, NAMED, k) == metric(frame, AS_IDS, k) == expected
    numbers = [[ord(tag) for tag in tags] for tags in TAGS]
    ids = np.array([[99, 97], [98, 120], [120, 98], [97, -1]])
    assert metric(numbers, ids, k) == expected


def test_tags_have_no_columns():
    with pytest.raises(TypeError, match="y_true holds tags, whose columns have no order"):
        precision_at_k(TAGS, np.zeros((4, 4)), 1)
    with pytest.raises(TypeError, match="with the names of the best labels"):
        precision_at_k(TAGS, sp.csr_matrix((4, 4)), 1)
    with pytest.raises(ValueError, match=r"y_pred names label id 2 in row 0 more than once"):
        precision_at_k(TAGS, np.array([["c", "c"]] * 4, dtype=object), 2)
