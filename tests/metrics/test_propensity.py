"""The propensity model and the propensity-scored metrics on cases done by hand."""

import pickle
from unittest.mock import Mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc._tags import _of_frame, _of_tags
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.metrics import (
    expected_calibration_error,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psp_at_k,
    topk_scorer,
)

Y_TRUE = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
PROPENSITIES = np.array([1, 1 / 2, 1 / 4, 1 / 8])  # weights 1, 2, 4, 8
Y_PRED = np.array([[0, 3], [3, 2], [3, 2]])
LOG3 = np.log2(3)


def test_propensities_of_hand_counted_labels():
    Y = np.zeros((100, 3), dtype=int)
    Y[:10, 0] = 1
    Y[:99, 1] = 1
    scale = (np.log(100) - 1) * 2.5**0.55
    expected = [1 / (1 + scale * (count + 1.5) ** -0.55) for count in (10, 99, 0)]
    np.testing.assert_allclose(propensities(Y), expected, rtol=1e-14)
    np.testing.assert_allclose(propensities(csr_array(Y)), expected, rtol=1e-14)


def test_propensities_with_the_wikipedia_constants():
    Y = np.eye(50, dtype=int)
    expected = 1 / (1 + (np.log(50) - 1) * 1.4**0.5 / 1.4**0.5)  # each label occurs once
    np.testing.assert_allclose(propensities(Y, a=0.5, b=0.4), expected, rtol=1e-14)
    np.testing.assert_allclose(propensities(np.arange(50), 0.5, 0.4), expected, rtol=1e-14)


def test_propensities_grow_with_the_count_and_stay_probabilities(rng):
    Y = rng.random((400, 30)) < np.linspace(0, 1, 30)
    p = propensities(Y)
    order = np.argsort(Y.sum(axis=0), kind="stable")
    assert p.shape == (30,)
    assert np.all(np.diff(p[order]) >= 0)
    assert 0 < p.min() < p.max() < 1


@pytest.mark.parametrize(
    "k, expected, raw",
    [
        (1, 1 / (2 + 4), 1 / 3),
        (2, (1 + 4) / (3 + 4), (1 / 2 + 4 / 2) / 3),
    ],
)
def test_psp_toy_values(k, expected, raw):
    given = {"propensities": PROPENSITIES}
    assert psp_at_k(Y_TRUE, Y_PRED, k, **given) == pytest.approx(expected, rel=1e-14)
    assert psp_at_k(Y_TRUE, Y_PRED, k, normalize=False, **given) == pytest.approx(raw, rel=1e-14)


def test_psp_ratio_of_sums_is_not_the_mean_of_ratios():
    value = psp_at_k(Y_TRUE, Y_PRED, 2, propensities=PROPENSITIES)
    assert value == pytest.approx(5 / 7, rel=1e-14)
    assert value != pytest.approx((1 / 3 + 1) / 2, abs=1e-3)


def test_psndcg_toy_values():
    first, second = 1 / (1 + 1 / LOG3), (4 / LOG3) / 1
    best_first, best_second = (2 + 1 / LOG3) / (1 + 1 / LOG3), 4
    given = {"propensities": PROPENSITIES}
    expected = (first + second) / (best_first + best_second)
    assert psndcg_at_k(Y_TRUE, Y_PRED, 2, **given) == pytest.approx(expected, rel=1e-14)
    raw = psndcg_at_k(Y_TRUE, Y_PRED, 2, normalize=False, **given)
    assert raw == pytest.approx((first + second) / 3, rel=1e-14)
    weighted = psndcg_at_k(Y_TRUE, Y_PRED, 2, sample_weight=[3, 1, 9], **given)
    expected = (3 * first + second) / (3 * best_first + best_second)
    assert weighted == pytest.approx(expected, rel=1e-14)


def test_propensity_one_gives_the_plain_precision_up_to_its_ceiling(rng):
    y_true = rng.random((30, 10)) < 0.3
    y_score = rng.random((30, 10))
    plain = precision_at_k(y_true, y_score, 3)
    ones = np.ones(10)
    raw = psp_at_k(y_true, y_score, 3, propensities=ones, normalize=False)
    assert raw == pytest.approx(plain, rel=1e-14)
    ceiling = precision_at_k(y_true, y_true.astype(float), 3)
    assert psp_at_k(y_true, y_score, 3, propensities=ones) == pytest.approx(plain / ceiling)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            {"Y_train": np.eye(2, dtype=int)},
            ValueError,
            r"Y_train must have at least 3 rows, got 2",
        ),
        (
            {"Y_train": np.eye(4) * 2},
            ValueError,
            r"Y_train must hold 0 and 1 only, got 2\.0 in row 0",
        ),
        ({"a": 0}, ValueError, r"a must be finite and above 0, got 0"),
        ({"b": -1.5}, ValueError, r"b must be finite and above 0, got -1\.5"),
        ({"b": np.nan}, ValueError, r"b must be finite and above 0, got nan"),
        ({"a": "0.5"}, TypeError, r"a must be finite and above 0, got '0\.5'"),
        ({"a": True}, TypeError, r"a must be finite and above 0, got True"),
    ],
)
def test_propensities_refuse(arguments, error, message):
    with pytest.raises(error, match=message):
        propensities(**{"Y_train": np.eye(4, dtype=int), **arguments})


@pytest.mark.parametrize("metric", [psp_at_k, psndcg_at_k])
@pytest.mark.parametrize(
    "values, message",
    [
        (PROPENSITIES[:3], r"propensities and y_true must have equally many labels, got 3 and 4"),
        (
            PROPENSITIES[None],
            r"propensities must have shape \(n_labels,\), got shape \(1, 4\)",
        ),
        (list("abcd"), r"propensities: could not convert string"),
        (None, r"propensities must have shape \(n_labels,\), got shape \(\)"),
        ([1, 0, 1, 1], r"above 0 and at most 1, got 0\.0 for label 1"),
        ([1, np.nan, 1, 1], r"propensities contains NaN"),
        (1 / PROPENSITIES, r"got 2\.0 for label 1; values above 1 look like inverse propensities"),
    ],
)
def test_metrics_refuse_propensities(metric, values, message):
    with pytest.raises(ValueError, match=message):
        metric(Y_TRUE, Y_PRED, 2, propensities=values)


def test_propensities_bound_the_class_ids():
    with pytest.raises(ValueError, match=r"y_true holds class id 4 in row 1; accepted are 0 to 3"):
        psp_at_k(np.array([0, 4]), np.array([[0], [1]]), 1, propensities=PROPENSITIES)
    with pytest.raises(ValueError, match=r"y_pred names label id 9 in row 0: accepted are 0 to 3"):
        psp_at_k(np.array([0, 3]), np.array([[9], [1]]), 1, propensities=PROPENSITIES)
    assert psp_at_k(np.array([0, 3]), np.array([[0], [1]]), 1, propensities=PROPENSITIES) == 1 / 9


@pytest.mark.parametrize("params", [{"a": 1e308}, {"a": 10.0, "b": 2**70 * 10**30}])
def test_propensities_that_overflow_are_refused(params):
    with pytest.raises(ValueError, match="are too large"):
        propensities(np.eye(3, dtype=int), **params)


def test_propensities_of_tags_go_by_name():
    train = [["a", "b"], ["a"], ["a", "c"], []]
    matrix = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    named, expected = propensities(train), propensities(matrix)
    assert named == dict(zip("abc", expected))
    assert named["never"] == expected[3]
    assert pickle.loads(pickle.dumps(named))["never"] == expected[3]
    np.testing.assert_array_equal(propensities(pd.DataFrame(matrix)), expected)
    frame = pd.DataFrame(matrix[:, ::-1], columns=list("dcba"))
    assert propensities(frame) == dict(zip("abcd", expected))
    assert propensities(pl.from_pandas(frame)) == dict(zip("abcd", expected))
    true, best = [["b", "new"], ["a"]], np.array([["new", "c"], ["a", "b"]], dtype=object)
    indicator, ids = np.array([[0, 1, 0, 1], [1, 0, 0, 0]]), np.array([[3, 2], [0, 1]])
    for metric in (psp_at_k, psndcg_at_k):
        value = metric(true, best, 2, propensities=named)
        assert value == metric(indicator, ids, 2, propensities=expected)
        with pytest.raises(TypeError, match="by name need labels with names: y_true must hold"):
            metric(indicator, ids, 2, propensities=named)
        with pytest.raises(TypeError, match="tags, which have no order: give propensities by name"):
            metric(true, best, 2, propensities=expected)
        frame = pd.DataFrame(indicator, columns=["a", "b", "c", "new"])
        assert metric(frame, best, 2, propensities=expected) == value
        with pytest.raises(ValueError, match="no value for the label 'new'; compute them by"):
            metric(true, best, 2, propensities={"a": 0.5, "b": 0.5, "c": 0.5})


@pytest.mark.parametrize("y_true", [Y_TRUE, csr_array(Y_TRUE), np.array([0, 3, 2])])
@pytest.mark.parametrize("metric", [psp_at_k, psndcg_at_k])
def test_a_series_numbers_columns_and_class_ids(metric, y_true):
    expected = metric(y_true, Y_PRED, 2, propensities=PROPENSITIES)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        series = pd.Series(PROPENSITIES[order], order)
        for given in (series, series.to_dict()):
            assert metric(y_true, Y_PRED, 2, propensities=given) == expected


@pytest.mark.parametrize("y_true", [Y_TRUE, csr_array(Y_TRUE), np.array([0, 3, 2])])
@pytest.mark.parametrize("index", [[1, 2, 3, 4], [0, 2, 4, 6], [9, 8, 7, 6], [*"abcd"]])
def test_a_series_of_other_columns_or_class_ids_is_refused(index, y_true):
    """By position it had the propensities of others."""
    series = pd.Series(PROPENSITIES, index)
    for given in (series, series.to_dict()):
        with pytest.raises(TypeError, match="names of columns and class ids are 0, 1, 2"):
            psp_at_k(y_true, Y_PRED, 2, propensities=given)


def test_a_default_index_names_columns_that_are_numbers():
    frame = pd.DataFrame(Y_TRUE, columns=[3, 0, 1, 2])
    ids = np.array([[3, 0], [1, 3], [2, 0]])
    by_name = dict(enumerate(PROPENSITIES))
    for metric in (psp_at_k, psndcg_at_k):
        found = metric(frame, ids, 2, propensities=pd.Series(PROPENSITIES))
        assert found == metric(frame, ids, 2, propensities=by_name)


def test_a_series_names_the_labels_of_its_propensities():
    frame = pd.DataFrame([[1, 0, 1], [0, 1, 0], [1, 1, 0]], columns=["b", "c", "a"])
    named = np.array([["b", "a"], ["c", "b"], ["c", "a"]], dtype=object)
    values = pd.Series([0.2, 0.5, 0.9], index=["b", "c", "a"])
    tags = [frame.columns[row > 0].tolist() for row in frame.to_numpy()]
    for metric in (psp_at_k, psndcg_at_k):
        expected = metric(frame, named, 2, propensities=values.to_numpy())
        for given in (values, values[["a", "b", "c"]], values.to_dict()):
            assert metric(frame, named, 2, propensities=given) == expected
            assert metric(tags, named, 2, propensities=given) == pytest.approx(expected)
        plain = values.reset_index(drop=True)  # a default index names nothing
        assert metric(frame, named, 2, propensities=plain) == expected
        twice = pd.concat([values, values[:1] / 2])
        with pytest.raises(ValueError, match="the index of propensities holds 'b' twice"):
            metric(frame, named, 2, propensities=twice)


def test_classes_that_are_strings_have_no_order():
    named = np.array([["a"], ["c"]])
    with pytest.raises(TypeError, match="give propensities by name"):
        psp_at_k(["b", "c"], named, 1, propensities=[0.1, 0.5, 0.5])
    by_name = {"a": 0.1, "b": 0.5, "c": 0.5}
    assert psp_at_k(["b", "c"], named, 1, propensities=by_name) == 0.5


@pytest.mark.parametrize("columns", [slice(None), slice(None, None, -1)])
def test_propensities_of_a_frame_are_found_by_name(columns):
    X, Y = make_extreme_multilabel(300, 50, 12, random_state=0)
    frame = pd.DataFrame(Y.toarray(), columns=[f"L{j}" for j in range(12)])  # L10 before L2
    tags = [list(frame.columns[row > 0]) for row in Y.toarray()]
    train, test = frame[:200], frame[200:]
    given = propensities(train[train.columns[columns]])
    for y in (train, tags[:200]):
        clf = MultiHeadClassifier(max_epochs=2, random_state=0).fit(X[:200], y)
        true, best = tags[200:], clf.predict_topk(X[200:], 3)[0]
        expected = psp_at_k(true, best, 3, propensities=propensities(tags[:200]))
        assert topk_scorer("psp", k=3, propensities=given)(clf, X[200:], test) == expected
        assert psp_at_k(test, best, 3, propensities=given) == expected


@pytest.mark.parametrize(
    "y_true", [[["a"], ["b"], ["a"]], pd.DataFrame({"a": [1, 0], "b": [0, 1]})]
)
def test_true_labels_are_read_once(y_true, monkeypatch):
    monkeypatch.setattr("sklearn_xlc._tags._of_tags", tags := Mock(wraps=_of_tags))
    monkeypatch.setattr("sklearn_xlc._tags._of_frame", frames := Mock(wraps=_of_frame))
    y_pred = np.array([["a"]] * len(y_true), dtype=object)
    psp_at_k(y_true, y_pred, 1, propensities={"a": 0.5, "b": 0.25})
    expected_calibration_error(y_true, y_pred, np.full(y_pred.shape, 0.5))
    assert tags.call_count + frames.call_count == 2


def test_propensities_of_columns_hide_no_order_of_samples():
    y_true = pd.DataFrame({"a": [1, 0], "b": [0, 1]}, index=["x", "y"])
    scores = pd.DataFrame({"a": [0.5, 0.2], "b": [0.1, 0.7]}, index=["y", "x"])
    with pytest.warns(UserWarning, match="y_true and y_pred have the same index in different"):
        psp_at_k(y_true, scores, 1, propensities=[0.5, 0.25])
