"""Encoders are built, and heads start from what the data show."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc import MultiHeadClassifier, load, save
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP, MLPEncoder, TextEncoder
from sklearn_xlc.engine.building import (
    inputs_for,
    long_tails,
    moments,
    output_width,
    reads_sparse,
)

EYE = np.eye(20, dtype=np.float32)
FULL = np.ones((20, 20), dtype=np.float32)
TEXTS = np.array(["a b", "c"], dtype=object)


class OnlyCSR(MLPEncoder):
    """Reads CSR rows alone."""

    accepts = ("csr",)


def test_rows_of_columns_that_no_sample_has_are_zero(rng):
    X = rng.random((40, 6)) + 1.0
    X[:, 3] = 0.0
    clf = MultiHeadClassifier(encoder=MLP((4,)), max_epochs=1, random_state=0)
    weight = clf.fit(X, np.arange(40) % 3).net_.module_.encoder.input.weight
    assert weight.any(1).tolist() == [True, True, True, False, True, True]


@pytest.mark.parametrize(
    "encoder, X, sparse",
    [
        (MLPEncoder, EYE, True),
        (MLPEncoder, sp.csr_matrix(EYE), True),
        (MLPEncoder, sp.csr_matrix(FULL), False),
        (nn.Linear(20, 3), sp.csr_matrix(EYE), False),
        (OnlyCSR(20, (3,)), FULL, True),
        (TextEncoder, TEXTS, False),
    ],
)
def test_sparse_by_zeros_not_by_container(encoder, X, sparse):
    assert reads_sparse(encoder, Rows(X)) is sparse


def test_inputs_hold_samples_and_no_labels():
    encoder = MLPEncoder(20, (3,))
    rows = inputs_for(encoder, Rows(EYE, sp.csr_matrix(EYE), np.ones(20)), sparse=True)
    assert sp.issparse(rows.X)
    assert rows.Y is rows.sample_weight is None
    own = TextEncoder(n_buckets=50)
    assert inputs_for(own, Rows(TEXTS), sparse=False).collate == own.collate
    for usual in (encoder, nn.Linear(2, 2)):  # batches need not be cut one by one
        assert inputs_for(usual, Rows(EYE), sparse=False).collate is None


def test_output_width():
    rows = Rows(np.zeros((3, 4), dtype=np.float32))
    assert output_width(nn.Linear(4, 6), rows) == 6
    assert output_width(MLPEncoder(4, (5, 2)), rows) == 2
    assert output_width(nn.Linear(4, 6), Rows(np.zeros((1, 4)))) == 6
    assert output_width(nn.Sequential(MLPEncoder(20, (5, 2))), Rows(EYE, sparse=True)) == 2
    with pytest.raises(ValueError, match=r"encoder cannot read 2 sample\(s\) of 4 columns"):
        output_width(nn.Linear(5, 6), rows)


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
    words = np.where(normal > 1, 5 + 0.01 * rng.normal(size=2000), 0)
    short = [normal, rng.laplace(size=2000), rare, np.ones(2000), words]
    centre, reach = long_tails(X := np.stack([*short, wide, amounts], axis=1))
    np.testing.assert_array_equal(reach > 0, [False] * 5 + [True] * 2)
    assert not centre[:5].any()
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


@pytest.mark.parametrize("is_stream", [False, True])
def test_labels_of_a_stream_start_halfway_between_their_frequency_and_the_mean(is_stream):
    Y = np.zeros((20, 3), dtype=int)
    Y[:15, 0] = Y[:3, 1] = 1
    clf = MultiHeadClassifier("flat", learning_rate=1e-30, max_epochs=1, random_state=0)
    (clf.partial_fit if is_stream else clf.fit)(EYE, Y)
    share = np.array([0.525, 0.225, 0.15] if is_stream else [0.75, 0.15, 1e-6])
    start = torch.sigmoid(clf.net_.module_.head.bias).detach().numpy()
    np.testing.assert_allclose(start, share, rtol=1e-4)


@pytest.mark.parametrize("name", ["centre", "reach"])
def test_saved_tails_of_other_columns_are_refused(name):
    X = np.exp(3 * np.random.default_rng(0).normal(size=(200, 4)))
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, X[:, :3] > 1)
    state = clf.__getstate__()
    weights = state["_net"]["weights"]
    for array in (np.ones(3), np.ones((4, 4)), np.full(4, np.nan), "x"):
        changed = {**weights, f"encoder.input.{name}": array}
        with pytest.raises(ValueError, match=f"encoder.input.{name}"):
            clf.__setstate__({**state, "_net": {**state["_net"], "weights": changed}})
    del weights[f"encoder.input.{name}"]  # of one alone nothing is made
    clf.__setstate__(state)
    assert np.isfinite(clf.decision_function(X)).all()
