"""Invariants of every metric, each stated once, and all of them against slow plain Python."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_xlc import metrics

N_LABELS = 12
PROPENSITIES = np.linspace(0.1, 1, N_LABELS)[::-1] ** 1.5

METRICS = {
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
    "r_precision": metrics.r_precision_at_k,
    "f1": metrics.f1_at_k,
    "ndcg": metrics.ndcg_at_k,
    "coverage": metrics.coverage_at_k,
    "psp": partial(metrics.psp_at_k, propensities=PROPENSITIES),
    "psndcg": partial(metrics.psndcg_at_k, propensities=PROPENSITIES),
    "psp raw": partial(metrics.psp_at_k, propensities=PROPENSITIES, normalize=False),
    "psndcg raw": partial(metrics.psndcg_at_k, propensities=PROPENSITIES, normalize=False),
}
BOUNDED = [name for name in METRICS if "raw" not in name]

SPARSE_FORMATS = [
    sp.csr_array,
    sp.csr_matrix,
    sp.csc_array,
    sp.coo_array,
    sp.lil_array,
]


@pytest.fixture
def data(rng):
    """Truth with an empty row, an empty column and a hit, and scores without ties."""
    y_true = (rng.random((20, N_LABELS)) < 0.25).astype(int)
    y_true[3] = 0
    y_true[:, 5] = 0
    y_score = rng.permuted(np.tile(np.arange(N_LABELS) / 7 - 0.5, (20, 1)), axis=1)
    y_score[0, 5] = -1.0
    y_true[0, y_score[0].argmax()] = 1  # one hit at least
    return y_true, y_score


def best_ids(y_score, k):
    return np.argsort(-y_score, axis=1, kind="stable")[:, :k]


all_metrics = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
each_k = pytest.mark.parametrize("k", [1, 3, 5, N_LABELS])


@all_metrics
@each_k
def test_any_form_of_the_same_data_gives_the_same_value(metric, data, k):
    y_true, y_score = data
    expected = metric(y_true, y_score, k)
    assert isinstance(expected, float)
    assert expected > 0
    full = sp.coo_array(
        (y_score.ravel(), np.indices(y_score.shape).reshape(2, -1)), shape=y_score.shape
    )  # stores every score, zeros as well
    for truth in (y_true, y_true.astype(bool), y_true.astype(np.float32), y_true.tolist()):
        assert metric(truth, y_score, k) == expected
    for make in SPARSE_FORMATS:
        assert metric(make(y_true), y_score, k) == expected
        assert metric(make(y_true), make(full), k) == expected
        assert metric(make(y_true), best_ids(y_score, k), k) == expected
    assert metric(y_true, best_ids(y_score, N_LABELS).astype(np.uint8).tolist(), k) == expected


@all_metrics
@each_k
def test_not_stored_is_minus_infinity_is_minus_one(metric, data, k, rng, global_random_seed):
    y_true, y_score = data
    stored = rng.random(y_score.shape) < 0.3
    dense = np.where(stored, y_score, -np.inf)
    rows, columns = np.nonzero(stored)
    ids = best_ids(dense, N_LABELS)
    ids[np.take_along_axis(dense, ids, axis=1) == -np.inf] = -1
    expected = metric(y_true, dense, k)
    csr = sp.csr_array((y_score[stored], (rows, columns)), shape=y_score.shape)
    assert metric(y_true, csr, k) == expected
    assert metric(y_true, ids, k) == expected
    if global_random_seed == 0:  # the data of another seed may have equal values by chance
        assert expected != metric(y_true, y_score, k)


@all_metrics
@each_k
def test_order_of_rows_does_not_matter(metric, data, k, rng):
    y_true, y_score = data
    order = rng.permutation(len(y_true))
    assert metric(y_true[order], y_score[order], k) == pytest.approx(
        metric(y_true, y_score, k), rel=1e-14
    )


@pytest.mark.parametrize("name", METRICS)
@each_k
def test_names_of_labels_do_not_matter(name, data, k, rng):
    y_true, y_score = data
    order = rng.permutation(N_LABELS)
    renamed = METRICS[name]
    if isinstance(renamed, partial):
        renamed = partial(renamed, propensities=PROPENSITIES[order])
    assert renamed(y_true[:, order], y_score[:, order], k) == pytest.approx(
        METRICS[name](y_true, y_score, k), rel=1e-14
    )


@all_metrics
@each_k
def test_only_the_order_of_scores_matters(metric, data, k):
    y_true, y_score = data
    expected = metric(y_true, y_score, k)
    assert metric(y_true, np.exp(3 * y_score), k) == expected
    assert metric(y_true, (y_score - 100).astype(np.float32), k) == expected
    assert metric(y_true, sp.csr_array(y_score - 100), k) == expected
    assert metric(y_true, np.asfortranarray(y_score), k) == expected


@all_metrics
@each_k
def test_ties_go_to_the_smaller_label(metric, data, k):
    y_true, y_score = data
    coarse = np.round(y_score)  # three values over twelve labels
    expected = metric(y_true, best_ids(coarse, k), k)
    assert metric(y_true, coarse, k) == expected
    assert metric(y_true, sp.csr_array(coarse + 5), k) == expected
    assert metric(y_true, np.zeros_like(y_score), k) == metric(
        y_true, np.tile(np.arange(N_LABELS), (len(y_true), 1)), k
    )


@all_metrics
@each_k
def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row(
    metric, data, k, rng, global_random_seed
):
    y_true, y_score = data
    weight = rng.integers(0, 4, len(y_true))
    repeated = np.repeat(np.arange(len(y_true)), weight)
    expected = metric(y_true[repeated], y_score[repeated], k)
    if global_random_seed == 0 and metric is not metrics.coverage_at_k:
        assert expected != metric(y_true, y_score, k)
    weighted = partial(metric, y_true, y_score, k)
    assert weighted(sample_weight=weight) == pytest.approx(expected, rel=1e-13)
    assert weighted(sample_weight=weight / 8) == weighted(sample_weight=weight)
    assert weighted(sample_weight=np.ones(len(y_true))) == weighted()


@all_metrics
def test_nothing_found_is_zero(metric, data):
    y_true, _ = data
    assert metric(y_true, np.where(y_true, -1.0, 1.0), 1) == 0
    assert metric(y_true, np.full((len(y_true), 5), -1)) == 0
    assert metric(y_true, sp.csr_array(y_true.shape)) == 0
    assert metric(np.zeros_like(y_true), np.ones(y_true.shape)) == 0


@pytest.mark.parametrize("name", BOUNDED)
@each_k
def test_perfect_ranking_is_one_where_every_row_has_enough_labels(name, k, rng):
    y_true = (rng.random((30, N_LABELS)) < 0.5).astype(int)
    y_true = y_true[y_true.any(axis=1)]
    if name in ("precision", "f1"):  # cannot reach 1 with fewer than k true labels in a row
        y_true = np.ones_like(y_true)
    if name in ("recall", "f1", "coverage"):  # cannot reach 1 with more than k true labels
        k = N_LABELS
    y_score = y_true / PROPENSITIES  # the rarest true labels first
    assert METRICS[name](y_true, y_score, k) == 1
    assert METRICS[name](y_true, y_score, k, sample_weight=rng.random(len(y_true))) == 1


@pytest.mark.parametrize("name", BOUNDED)
def test_one_id_a_row_is_the_indicator_with_one_label(name, rng):
    y = rng.integers(N_LABELS, size=25)
    indicator = np.eye(N_LABELS, dtype=int)[y]
    y_score = rng.random((25, N_LABELS))
    for k in (1, 4):
        expected = METRICS[name](indicator, y_score, k)
        assert METRICS[name](y, y_score, k) == expected
        assert METRICS[name](y.astype(np.uint16), best_ids(y_score, k), k) == expected


@all_metrics
def test_arguments_are_not_changed(metric, data):
    y_true, y_score = data
    truth = sp.csr_matrix(y_true)
    truth.indices[: truth.indptr[1]] = truth.indices[: truth.indptr[1]][::-1]  # unsorted
    truth.has_sorted_indices = False
    scores = sp.csr_matrix(y_score)
    ids = best_ids(y_score, 5)
    parts = [y_true, y_score, ids, *(m.data for m in (truth, scores)), truth.indices]
    before = [part.copy() for part in parts]
    for prediction in (y_score, scores, ids):
        assert metric(truth, prediction) == metric(y_true, prediction)
    for part, copy in zip(parts, before):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("name", [name for name in METRICS if "ps" not in name])
def test_a_billion_labels_cost_nothing(name):
    rows = np.arange(1000)
    columns = rows * 999_983
    y_true = sp.csr_array((np.ones(1000), (rows, columns)), shape=(1000, 10**9))
    y_pred = np.column_stack([columns[::-1], columns])
    scores = sp.csr_array(
        (np.tile([2.0, 1.0], 1000), (np.repeat(rows, 2), y_pred.ravel())), shape=y_true.shape
    )
    value = METRICS[name](y_true, y_pred, 2)
    assert value == METRICS[name](y_true, scores, 2) == METRICS[name](columns, y_pred, 2)
    expected = {"precision": 0.5, "f1": 2 / 3, "ndcg": 1 / np.log2(3)}
    expected |= {"recall": 1, "r_precision": 1, "coverage": 1}
    assert value == pytest.approx(expected[name], rel=1e-12)


# Plain Python, written from the definitions: sets, lists and loops only.


def slow_ranking(scores, k):
    """Ids of a {label: score} mapping, best first, ties by id."""
    return sorted(scores, key=lambda label: (-scores[label], label))[:k]


def slow_gain(places):
    return sum(value / math.log2(place + 2) for place, value in enumerate(places))


def slow_metrics(truth, ranked, weight, k, propensity):
    total = sum(weight)
    sums = dict.fromkeys(
        ["precision", "recall", "ndcg", "psp", "best psp", "psndcg", "best psndcg"], 0.0
    )
    found, occurring = set(), set()
    for true, top, w in zip(truth, ranked, weight):
        if w > 0:
            occurring |= true
            found |= true & set(top)
        hits = [label in true for label in top]
        sums["precision"] += w * sum(hits) / k
        gains = [hit / propensity[label] for label, hit in zip(top, hits)]
        best = sorted((1 / propensity[label] for label in true), reverse=True)[:k]
        sums["psp"] += w * sum(gains) / k
        sums["best psp"] += w * sum(best) / k
        if true:
            ideal = slow_gain([1] * min(k, len(true)))
            sums["recall"] += w * sum(hits) / len(true)
            sums["ndcg"] += w * slow_gain(hits) / ideal
            sums["psndcg"] += w * slow_gain(gains) / ideal
            sums["best psndcg"] += w * slow_gain(best) / ideal
    value = {name: total_value / total for name, total_value in sums.items()}
    p, r = value["precision"], value["recall"]
    value["f1"] = 2 * p * r / (p + r) if p + r else 0.0
    value["coverage"] = len(found) / len(occurring) if occurring else 0.0
    for name in ("psp", "psndcg"):
        value[f"{name} raw"] = value[name]
        best = value.pop(f"best {name}")
        value[name] = value[name] / best if best else 0.0
    return value


@st.composite
def problems(draw):
    n_samples, n_labels = draw(st.integers(1, 5)), draw(st.integers(1, N_LABELS))
    labels = st.integers(0, n_labels - 1)
    truth = draw(st.lists(st.sets(labels), min_size=n_samples, max_size=n_samples))
    scores = st.dictionaries(labels, st.integers(-3, 3))  # ties are frequent, zeros explicit
    predicted = draw(st.lists(scores, min_size=n_samples, max_size=n_samples))
    weight = st.lists(st.sampled_from([0, 0.5, 1, 3]), min_size=n_samples, max_size=n_samples)
    k = draw(st.integers(1, N_LABELS + 2))
    return n_labels, truth, predicted, draw(weight.filter(any)), k


@settings(derandomize=True, max_examples=25, deadline=None)
@given(problems())
def test_equals_plain_python(problem):
    n_labels, truth, predicted, weight, k = problem
    n_samples, propensity = len(truth), PROPENSITIES[:n_labels]
    y_true = np.array([[label in true for label in range(n_labels)] for true in truth])
    ranked = [slow_ranking(scores, k) for scores in predicted]
    ids = np.array([top + [-1] * (k - len(top)) for top in ranked])
    dense = np.full((n_samples, n_labels), -np.inf)
    for row, scores in enumerate(predicted):
        for label, score in scores.items():
            dense[row, label] = score
    rows, columns = np.nonzero(dense > -np.inf)
    csr = sp.csr_array((dense[rows, columns].astype(int), (rows, columns)), shape=dense.shape)
    for name, expected in slow_metrics(truth, ranked, weight, k, propensity.tolist()).items():
        metric = METRICS[name]
        if isinstance(metric, partial):
            metric = partial(metric, propensities=propensity)
        for y_pred in (dense, csr, ids):
            value = metric(y_true, y_pred, k, sample_weight=weight)
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-15)
            assert name not in BOUNDED or 0 <= value <= 1
