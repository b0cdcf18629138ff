"""Columns of X are read in units of their own."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import make_classification
from torch import nn

from sklearn_xlc import MIMLClassifier, MultiHeadClassifier, explain_topk, load, predict_topk, save
from sklearn_xlc.batches import Rows, SparseRows
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP, InputLinear, MLPEncoder
from sklearn_xlc.engine import columns
from sklearn_xlc.engine.columns import long_tails, moments, rescale, sizes_of_entries
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.training.direct import DirectStep


def dense_data(n_samples=90):
    """Samples of two classes, which the difference of two columns of 1000 and more tells apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, 4)) + [0, 1000, 1000, 5]
    return X.astype(np.float32), (X[:, 1] > X[:, 2]).astype(int)


def test_units_of_dense_columns_do_not_matter():
    """Powers of two leave every digit as it is."""
    (X, y), unit = dense_data(), 2.0**30
    plain = MultiHeadClassifier(random_state=0).fit(X, y)
    scaled = MultiHeadClassifier(random_state=0).fit(X * unit, y)
    assert plain.score(X, y) > 0.9
    np.testing.assert_array_equal(plain.predict_proba(X), scaled.predict_proba(X * unit))


@pytest.mark.parametrize(
    "how, n_samples", [("fit", 64), ("fit", 65), ("partial_fit", 9), ("partial_fit", 10)]
)
def test_a_fit_to_65_samples_and_more_standardises_columns(how, n_samples):
    """Later passes and batches keep the means."""
    expected = n_samples in (10, 65)
    X, y = dense_data(n_samples)
    clf = MultiHeadClassifier(random_state=0, max_epochs=1)
    clf = clf.fit(X, y) if how == "fit" else clf.partial_fit(X, y, classes=[0, 1])
    mean = clf.net_.module_.encoder.input.mean.clone()
    np.testing.assert_allclose(mean.numpy(), X.mean(0) if expected else 0, rtol=1e-5)
    clf.partial_fit(X + 7, y)
    assert torch.equal(clf.net_.module_.encoder.input.mean, mean)
    assert clf.settings_["optimizer"] == ("mixed" if expected else "adam")


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_means_far_from_zero_have_all_digits(how):
    """Such as seconds since 1970: float32 rounds them to multiples of 128."""
    rng = np.random.default_rng(0)
    X = np.c_[1.7e9 + 37 + rng.normal(size=90), rng.normal(size=90)]
    clf = MultiHeadClassifier(random_state=0, max_epochs=1)
    y = np.arange(90) % 2
    clf = clf.fit(X, y) if how == "fit" else clf.partial_fit(X, y, classes=[0, 1])
    layer = clf.net_.module_.encoder.input
    np.testing.assert_allclose(layer.mean.numpy(), X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(columns.as_read(layer, X).mean(0), 0, atol=1e-3)


@pytest.mark.parametrize("value", [1.7e9, 1234567890123456789.0])
def test_a_constant_column_far_from_zero_hides_no_other(value):
    """The rounding error of its mean is not learnt from: divided by small units it were large."""
    X, y = dense_data()
    X = np.c_[X.astype(np.float64), np.full(len(X), value)]
    clf = MultiHeadClassifier(random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert np.abs(columns.as_read(clf.net_.module_.encoder.input, X)[:, -1]).max() < 1e-5


def test_files_keep_means_and_scales(tmp_path):
    X, y = dense_data()
    clf = MultiHeadClassifier(random_state=0, max_epochs=2).fit(X, y)
    save(clf, tmp_path / "clf.skops", exact=True)
    for again in (pickle.loads(pickle.dumps(clf)), load(tmp_path / "clf.skops")):
        assert again.net_.module_.encoder.input.is_standardised()
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
        again.partial_fit(X, y)


# --- long tails -------------------------------------------------------------------------------


def test_columns_with_a_wide_tail_beside_their_quartiles_are_long():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=2000)
    rare = (normal > 2).astype(float)
    wide = np.exp(2 * normal)
    amounts = np.where(rng.random(2000) < 0.3, wide, 0)
    years = np.where(rng.random(2000) < 0.3, 0, 2000 + 10 * rng.normal(size=2000))
    words = np.where(normal > 1, 5 + 0.01 * rng.normal(size=2000), 0)
    short = [normal, rng.laplace(size=2000), rare, np.ones(2000), words]
    centre, reach = long_tails(X := np.stack([*short, wide, amounts, years], axis=1))
    np.testing.assert_array_equal(reach > 0, [False] * 5 + [True] * 3)
    assert not centre[:5].any()
    assert centre[7] == pytest.approx(2000, abs=5)
    # Of a log-normal distribution with deviation 2 the mode is exp(-4).
    assert 0 < reach[5] < centre[5] < 0.1
    within = np.abs(wide - centre[5]) <= reach[5]
    assert 0.1 <= within.mean() < 0.11
    for unit in (2.0**-40, 2.0**40):
        np.testing.assert_array_equal(long_tails(X * unit), [centre * unit, reach * unit])


def test_the_reach_is_more_than_rounding():
    for step, expected in ((1.0, 5.0), (1e-9, 0.01)):
        values = np.concatenate([np.zeros(90), step * np.arange(1, 100), [10.0**10]])
        _, reach = long_tails(values[:, None])
        np.testing.assert_allclose(reach, expected)


def test_columns_of_few_values_stay_as_they_are():
    nearly = np.array([0.1 * 3, 0.3])  # one value, but for rounding
    values = np.concatenate([np.zeros(90), nearly, np.arange(1, 17), [10.0**10]])
    assert not long_tails(values[:, None])[1].any()


def tailed_data(n_samples=600):
    """Samples of four classes, which amounts of any size and normal columns tell apart."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n_samples, 6))
    X = np.where(np.arange(6) < 4, np.exp(2.5 * Z), Z)
    return X, (Z @ rng.normal(size=(6, 4))).argmax(axis=1)


def test_a_code_for_missing_values_hides_nothing():
    X, y = make_classification(2000, 20, n_informative=6, n_classes=4, random_state=0)
    X = 2000 + 10 * X
    X[np.random.default_rng(0).random(X.shape) < 0.1] = 0
    clf = MultiHeadClassifier(random_state=0).fit(X[:1500], y[:1500])
    assert clf.score(X[1500:], y[1500:]) > 0.45


@pytest.mark.parametrize("share", [0.03, 0.4, 0.7])
def test_tails_of_sparse_columns_are_those_of_dense_ones_without_most_zeros(share, monkeypatch):
    """Written out, columns of 10 000 samples took half of the time of a fit."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((2000, 12)) < share, np.exp(rng.normal(0, 2, (2000, 12))), 0)
    rows, expected, read = Rows(X, sparse=True), long_tails(X), []
    monkeypatch.setattr(columns, "long_tails", lambda X: (read.append(X.size), long_tails(X))[1])
    found = columns._long_tails_of_entries(rows, np.ones(12, dtype=bool))
    np.testing.assert_array_equal(found, expected)
    assert (found[1] > 0).any()
    assert sum(read) <= 2 * rows.X.nnz


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_long_tails_hide_nothing(form, tmp_path):
    X, y = tailed_data(1200)
    clf = MultiHeadClassifier(random_state=0).fit(form(X[:800]), y[:800])
    layer = clf.net_.module_.encoder.input
    np.testing.assert_array_equal(layer.reach.numpy() > 0, [True] * 4 + [False] * 2)
    shown = layer.standardised(torch.from_numpy(X[:800])).numpy()
    np.testing.assert_allclose(shown.mean(axis=0), 0, atol=1e-4)
    assert (np.abs(shown) < 8).all()
    assert clf.score(form(X[800:]), y[800:]) > 0.8
    save(clf, tmp_path / "clf.skops", exact=True)
    for again in (pickle.loads(pickle.dumps(clf)), load(tmp_path / "clf.skops")):
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("encoder", [MLPEncoder, nn.Linear(4, 3)])
def test_encoders_that_are_given_read_columns_as_they_are(encoder):
    X, y = dense_data()
    clf = MultiHeadClassifier(encoder=encoder, random_state=0, max_epochs=1).fit(X, y)
    assert clf.settings_["optimizer"] == "adam"


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("weighted", [True, False])
def test_moments_of_columns_are_those_of_the_chosen_samples(form, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * [1, 1e-3, 1e5, 1] + [0, 5, 1e5, 0]
    X[:, 3] = 0.1  # constant
    weight = rng.integers(1, 4, 50).astype(float) if weighted else None
    chosen = np.arange(1, 50, 3)
    mean, deviation = moments(Rows(form(X), sample_weight=weight).select(chosen))
    repeated = np.repeat(chosen, 1 if weight is None else weight[chosen].astype(int))
    np.testing.assert_allclose(mean, X[repeated].mean(0))
    np.testing.assert_allclose(deviation[:3], X[repeated][:, :3].std(0))
    assert deviation[3] == 0


@pytest.mark.parametrize("scale", [1e-30, 1e13, 1e30])
def test_moments_of_columns_follow_ratios_of_weights(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) + [0, 100, 0]
    X[:, 2] = 0.1  # constant
    weight = rng.integers(1, 4, 50).astype(float)
    found = moments(Rows(X, sample_weight=scale * weight))
    np.testing.assert_allclose(found, moments(Rows(X, sample_weight=weight)), rtol=1e-10)


# --- sparse columns ---------------------------------------------------------------------------


def sparse_data(make=make_extreme_multilabel, n_samples=600):
    """Samples whose non-zeros are alike, and a factor for each column: three have other units."""
    X, Y = make(n_samples, 600, 30, random_state=0)
    factors = np.ones(600)
    frequent = np.argsort(-np.bincount(sp.csr_matrix(X).indices))
    factors[frequent[:3]] = 2.0**14, 2.0**-12, 2.0**14
    return sp.csr_matrix(X != 0) * np.float32(1.5), Y, factors


def in_units(X, factors):
    return sp.csr_matrix(X @ sp.diags(factors)).astype(X.dtype)


@pytest.mark.parametrize("make", [make_extreme_multilabel, make_extreme_multiclass])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"ranker": None},
        {"head": "cascade"},
        {"encoder": MLP(n_members=2)},
        {"encoder": MLP([32, 16])},
        {"optimizer": "adam"},
    ],
)
def test_units_of_sparse_columns_do_not_matter(make, parameters, tmp_path):
    """Powers of two leave every digit as it is."""
    X, Y, factors = sparse_data(make)
    scaled = in_units(X, factors)
    plain = MultiHeadClassifier(random_state=0, max_epochs=2, **parameters).fit(X, Y)
    clf = MultiHeadClassifier(random_state=0, max_epochs=2, **parameters).fit(scaled, Y)
    assert plain.net_.module_.encoder.input.scale is None
    np.testing.assert_array_equal(clf.net_.module_.encoder.input.scale, factors)
    expected = plain.decision_function(X)
    for each in (scaled, scaled.toarray()):
        np.testing.assert_array_equal(clf.decision_function(each), expected)
    if parameters:
        return
    by_plain, by_clf = explain_topk(plain, X[:3], k=2), explain_topk(clf, scaled[:3], k=2)
    np.testing.assert_array_equal(by_clf.contributions, by_plain.contributions)
    save(clf, tmp_path / "clf.skops", exact=True)
    for again in (pickle.loads(pickle.dumps(clf)), load(tmp_path / "clf.skops")):
        np.testing.assert_array_equal(again.decision_function(scaled), expected)
        again.partial_fit(scaled[:100], Y[:100])
    plain.partial_fit(X[:100], Y[:100])
    np.testing.assert_array_equal(again.decision_function(scaled), plain.decision_function(X))


def test_the_first_batch_of_a_stream_tells_the_units_of_sparse_columns():
    X, Y, factors = sparse_data()
    plain, clf = (MultiHeadClassifier(random_state=0) for _ in range(2))
    for part in (slice(0, 300), slice(300, 600)):
        plain.partial_fit(X[part], Y[part])
        clf.partial_fit(in_units(X, factors)[part], Y[part])
    np.testing.assert_array_equal(predict_topk(clf, in_units(X, factors)), predict_topk(plain, X))
    few = MultiHeadClassifier(random_state=0).partial_fit(in_units(X, factors)[:9], Y[:9])
    assert few.net_.module_.encoder.input.scale is None


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**-7, 2.0**10, 2.0**24])
def test_samples_of_any_norm_are_learnt_alike(factor):
    X, Y, _ = sparse_data()
    X = X * np.float32(0.7 / 1024)  # norms are below 0.1, and no factor makes counts of them
    expected = MultiHeadClassifier(random_state=0, max_epochs=2).fit(X, Y).decision_function(X)
    X = X * np.float32(factor)
    clf = MultiHeadClassifier(random_state=0, max_epochs=2).fit(X, Y)
    is_read_as_it_is = factor == 2.0**10
    assert (clf.net_.module_.encoder.input.scale is None) == is_read_as_it_is
    if not is_read_as_it_is:
        np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-2, atol=1e-2)


def test_numbers_beside_words_hide_no_word():
    X, Y = make_extreme_multilabel(1500, 900, 40, random_state=0)
    rng = np.random.default_rng(0)
    years, prices = 1990 + rng.integers(30, size=1500), np.exp(rng.normal(7, 2, 1500))
    beside = sp.csr_matrix(sp.hstack([X, np.stack([years, prices], axis=1)]))
    precision = []
    for samples in (X, beside):
        clf = MultiHeadClassifier(random_state=0).fit(samples[:1000], Y[:1000])
        found, _ = predict_topk(clf, samples[1000:], k=1)
        precision.append(precision_at_k(Y[1000:], found, k=1))
    assert precision[0] > 0.5
    assert precision[1] > precision[0] - 0.05
    layer = clf.net_.module_.encoder.input
    np.testing.assert_array_equal(np.flatnonzero(layer.scale != 1), [900, 901])
    np.testing.assert_array_equal(np.flatnonzero(layer.reach), [901])  # the tail of prices
    read = layer.rescaled(SparseRows.from_csr(beside[:1000])).data.numpy()
    sizes = [np.sqrt((read[beside[:1000].indices == at] ** 2).mean()) for at in (900, 901)]
    words = np.sort(np.abs(X.data))
    np.testing.assert_allclose(sizes, np.median(words), rtol=0.2)
    zeros = sp.csr_matrix(beside.shape, dtype=np.float32)[:1]
    (found,) = (layer(SparseRows.from_csr(zeros)) - layer.bias).detach().numpy()
    assert not found.any()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("weighted", [True, False])
def test_sizes_of_columns_are_those_of_the_chosen_samples(form, weighted):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 5)) < 0.4, rng.normal(size=(50, 5)), 0)
    X[:, 4] = 0
    weight = rng.integers(1, 4, 50).astype(float) if weighted else None
    chosen = np.arange(1, 50, 3)
    sizes, n_entries = sizes_of_entries(Rows(form(X), sample_weight=weight).select(chosen))
    X = X[np.repeat(chosen, 1 if weight is None else weight[chosen].astype(int))]
    np.testing.assert_allclose(n_entries, (X != 0).mean(axis=0))
    expected = [np.sqrt((column[column != 0] ** 2).mean()) for column in X[:, :4].T]
    np.testing.assert_allclose(sizes, [*expected, 0])


def scale_of(X):
    layer = InputLinear(X.shape[1], 2)
    rescale(layer, Rows(sp.csr_matrix(X)))
    return None if layer.scale is None else layer.scale.detach().numpy()


def test_columns_of_one_unit_keep_their_sizes():
    sizes = np.ones(30)
    sizes[:4] = 9, 8, 0.12, 2.9
    X = np.ones((40, 30)) * sizes
    X[1:, :2] = 0  # rare columns
    assert scale_of(X) is None
    assert scale_of(np.zeros((5, 4))) is None


def test_a_frequent_column_may_be_less_large_than_a_rare_one():
    X = np.full((20, 30), 0.5)  # no counts
    X[:, 0] = 2
    expected = np.where(np.arange(30) == 0, 4.0, 1.0)
    np.testing.assert_allclose(scale_of(X), expected, rtol=1e-6)
    X[1:, 0] = 0
    assert scale_of(X) is None


def test_a_column_of_another_unit_gets_the_median_size():
    X = np.ones((20, 30)) * np.repeat([1, 2, 3], 10)
    X[:, [0, 1]] = 100.0, 0.1
    np.testing.assert_allclose(scale_of(X), [50, 0.05, *[1] * 28], rtol=1e-6)


def test_columns_get_one_size_where_units_differ_everywhere():
    for n_others in (6, 10):
        sizes = np.repeat([0.3, 1.0, 2.9], [n_others, 30 - n_others, 10])
        np.testing.assert_allclose(scale_of(np.ones((20, 40)) * sizes), sizes, rtol=1e-6)
    sizes = np.repeat([0.3, 1.0, 2.9], [1, 30, 9])  # few of them differ by three
    assert scale_of(np.ones((20, 40)) * sizes) is None


def test_a_frequent_word_of_small_entries_leaves_the_sizes_of_the_rest():
    X = sp.random_array((200, 30), density=0.1, rng=0, data_sampler=lambda size: np.ones(size))
    X = sp.hstack([np.full((200, 1), 0.3), X]).toarray()  # a quarter of the non-zeros
    assert scale_of(X) is None


def test_words_of_long_samples_are_small_and_keep_their_sizes():
    ones = {"density": 0.2, "rng": 0, "data_sampler": lambda size: np.ones(size)}
    X = sp.random_array((200, 400), **ones).toarray()
    X[:100] *= 0.3
    X[:100, :200] = X[100:, 200:] = 0  # their own words
    assert scale_of(X) is None
    # So they do beside a column of another unit, which is most of each sample.
    prices = np.random.default_rng(0).lognormal(5, 2, 200)
    scale = scale_of(np.column_stack([X, prices]))
    np.testing.assert_array_equal(scale[:-1], 1)
    assert scale[-1] > 10
    # With units of their own they have one size, long samples or not.
    units = np.exp(np.random.default_rng(0).normal(0, 0.7, 400))
    scale = scale_of(X * units)
    np.testing.assert_allclose(
        scale[:200] / scale[:200].mean(), units[:200] / units[:200].mean(), rtol=1e-5
    )


def test_many_columns_of_other_units_leave_the_sizes_of_the_rest():
    sizes = np.repeat([1.5, 2.5, 50.0], [7, 7, 10])
    expected = np.where(sizes > 3, 20.0, 1.0)
    np.testing.assert_allclose(scale_of(np.ones((20, 24)) * sizes), expected, rtol=1e-6)


def test_scales_are_numbers_that_the_layer_can_divide_by():
    X = np.full((20, 30), 1e15, dtype=np.float32)
    X[:, 0] = 1e-45
    scale = scale_of(X)
    assert (scale > 0).all()
    assert np.isfinite(X / scale).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_sizes_of_many_samples_are_those_of_all_parts(weighted, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 5)) < 0.4, rng.normal(size=(50, 5)), 0)
    rows = Rows(sp.csr_matrix(X), sample_weight=rng.random(50) + 0.1 if weighted else None)
    expected = sizes_of_entries(rows)
    monkeypatch.setattr(columns, "FEW_ENTRIES", 16)
    np.testing.assert_allclose(sizes_of_entries(rows), expected)


@pytest.mark.parametrize("form", [sp.csr_matrix, np.asarray])
def test_counts_are_read_as_their_logarithms(form):
    """Long documents and frequent words would take most of each step."""
    rng = np.random.default_rng(0)
    X, Y = make_extreme_multilabel(600, 600, 30, random_state=0)
    counts = form(rng.geometric(0.1, X.shape) * (X.toarray() != 0).astype(np.float32))
    assert counts.max() > 20
    logarithms = np.log1p(counts) if form is np.asarray else counts.log1p()
    by_counts = MultiHeadClassifier(ranker=None, random_state=0, max_epochs=2).fit(counts, Y)
    expected = MultiHeadClassifier(ranker=None, random_state=0, max_epochs=2).fit(logarithms, Y)
    found = by_counts.decision_function(counts)
    np.testing.assert_allclose(found, expected.decision_function(logarithms), rtol=1e-4, atol=1e-4)
    is_one = MultiHeadClassifier(ranker=None, max_epochs=1).fit(form(counts > 0), Y)
    assert is_one.net_.module_.encoder.input.scale is None


def test_a_number_of_another_unit_beside_counts_is_no_larger():
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 50), density=0.1, random_state=rng, format="csr")
    X.data = rng.geometric(0.5, X.nnz).astype(np.float32)
    years = sp.csr_array(1990.0 + rng.integers(30, size=(200, 1)))
    layer = InputLinear(51, 2)
    rescale(layer, Rows(sp.csr_matrix(sp.hstack([X, years]))))
    np.testing.assert_array_equal(np.flatnonzero(layer.scale != 1), [50])
    assert 4 < float(layer.scale[50]) < 20  # of a logarithm of 7.6


def test_later_values_of_any_sign_and_size_go_with_counts():
    X, Y = make_extreme_multilabel(600, 600, 30, random_state=0)
    counts = sp.csr_matrix(X != 0).astype(np.float32)
    clf = MultiHeadClassifier(max_epochs=2, random_state=0).fit(counts, Y)
    assert clf.settings_["ranker__retrievers"] == "counts"
    for factor in (-1.0, 0.5, 1e-3):
        assert np.isfinite(clf.decision_function(counts * np.float32(factor))).all()
    clf.partial_fit(-counts[:100], Y[:100])


def test_steps_of_scaled_columns_need_no_autograd(monkeypatch):
    """The steps with and without it are equal to the last bit."""
    X, Y, factors = sparse_data()
    steps, take = [], DirectStep.take
    monkeypatch.setattr(DirectStep, "take", lambda *args: steps.append(1) or take(*args))
    direct = MultiHeadClassifier(max_epochs=1, random_state=0).fit(in_units(X, factors), Y)
    n_direct = len(steps)
    assert n_direct > 0
    monkeypatch.setattr(DirectStep, "of", lambda *args, **kwargs: None)
    general = MultiHeadClassifier(max_epochs=1, random_state=0).fit(in_units(X, factors), Y)
    assert len(steps) == n_direct
    expected = general.net_.module_.state_dict()
    for name, value in direct.net_.module_.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(
    "damage",
    [
        lambda scale: -scale,
        lambda scale: 0 * scale,
        lambda scale: scale.double(),
        lambda scale: scale.long(),
        lambda scale: scale[:5],
    ],
)
def test_a_damaged_scale_is_refused_on_loading(damage, tmp_path):
    X, Y, factors = sparse_data()
    clf = MultiHeadClassifier(ranker=None, max_epochs=1, random_state=0)
    layer = clf.fit(in_units(X, factors), Y).net_.module_.encoder.input
    layer.scale = damage(layer.scale)
    save(clf, tmp_path / "clf", exact=True)
    with pytest.raises(ValueError, match=r"the saved (model|classifier) .*scale"):
        load(tmp_path / "clf")


def test_bags_are_read_as_they_are():
    X, _, factors = sparse_data()
    clf = MIMLClassifier(max_epochs=1, random_state=0)
    clf.fit(in_units(X, factors)[:300], np.eye(2)[np.arange(100) % 2], np.arange(300) // 3)
    assert clf.net_.module_.encoder.input.scale is None
