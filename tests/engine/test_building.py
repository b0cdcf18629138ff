"""Encoders are built, and heads start from what the data show."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from torch import nn

from _factories import quick
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP, MLPEncoder, Text, TextEncoder
from sklearn_xlc.engine import memory
from sklearn_xlc.engine.building import (
    inputs_for,
    output_width,
    reads_sparse,
)
from sklearn_xlc.optimizers import SGD

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


@pytest.mark.parametrize("form", ["columns", "texts"])
def test_of_many_columns_those_with_an_entry_have_weights(form, monkeypatch):
    X, y = (
        sp.csr_matrix((np.ones(40), (np.arange(40), np.arange(40) % 9)), (40, 300)),
        np.arange(40) % 3,
    )
    encoder = MLP((4,)) if form == "columns" else Text(300, hidden_layer_sizes=(4,))
    X = X if form == "columns" else [f"word{column}" for column in X.indices]
    monkeypatch.setattr(nn.init, "xavier_uniform_", None)  # takes longer than an epoch
    fits = [
        MultiHeadClassifier(encoder=encoder, max_epochs=1, random_state=seed).fit(X, y)
        for seed in (0, 0, 1)
    ]
    first, again, other = (clf.net_.module_.encoder.input.weight for clf in fits)
    assert first.shape == (10, 4)
    assert first.any(1).tolist() == [False] + [True] * 9  # the first is that of empty columns
    assert fits[0].n_parameters_ == sum(p.numel() for p in fits[0].net_.module_.parameters())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0.1 < first.abs().max() < (6 / 304) ** 0.5 + 0.1  # of Xavier's rule, after an epoch


def hashed(seed=0, n_samples=60, last=40):
    """Rows of a table of 400 columns, of which few have an entry, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n_samples)
    columns = np.stack([7 * y, rng.integers(20, last, size=n_samples)], 1)
    X = sp.csr_matrix((np.ones(columns.size), columns.ravel(), 2 * np.arange(n_samples + 1)))
    X.resize(n_samples, 400)
    return X, y


def with_all_rows(clf):
    layer = clf.net_.module_.encoder.input
    before = layer.weight
    layer._hold_also(torch.arange(400))
    clf.net_.optimizer_.lengthen(before, layer.weight)
    assert layer.weight.shape[0] == 401
    return clf


def assert_same(one, other, X):
    for method in ("predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(one, method)(X), getattr(other, method)(X))


@pytest.mark.parametrize("optimizer", ["mixed", "adam", "adagrad", SGD(momentum=0.9)])
@pytest.mark.parametrize("carried", [copy.deepcopy, lambda clf: pickle.loads(pickle.dumps(clf))])
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_model_of_few_columns_is_that_of_all(optimizer, carried, is_warm):
    (X, y), (later, y_later) = hashed(), hashed(1, last=50)
    unfitted = quick("flat", optimizer=optimizer, warm_start=is_warm, ranker="calibration")
    clf, again, whole = (clone(unfitted).fit(X, y) for _ in range(3))
    assert clf.net_.module_.encoder.input.weight.shape[0] < 30
    with_all_rows(whole)
    assert_same(carried(clf), whole, later)
    for samples, labels in ((X, y), (later, y_later)):  # the first have no other columns
        clf.partial_fit(samples, labels)
        whole.partial_fit(samples, labels)
        assert_same(carried(clf), whole, later)
    if is_warm:
        expected = with_all_rows(copy.deepcopy(again)).fit(later, y_later)
        assert_same(carried(again).fit(later, y_later), expected, later)


@pytest.mark.parametrize("form", ["columns", "texts", "dense"])
def test_a_stream_has_weights_for_columns_that_occurred(form):
    batches = [hashed(seed, last=last) for seed, last in ((0, 40), (1, 60), (2, 300))]
    encoder = Text(400, hidden_layer_sizes=(16,)) if form == "texts" else MLP((16,), dropout=0.0)
    clf = MultiHeadClassifier(encoder=encoder, ranker=None, random_state=0)
    n_rows = []
    for X, y in batches:
        if form == "texts":
            X = [" ".join(f"w{column}" for column in row.indices) for row in X]
        X = X.toarray()[:, :290] + 0.5 if form == "dense" else X  # few zeros: no table
        clf.partial_fit(X, y, classes=np.arange(4))
        n_rows.append(len(clf.net_.module_.encoder.input.weight))
        assert clf.n_parameters_ == sum(p.numel() for p in clf.net_.module_.parameters())
    if form == "dense":
        assert n_rows == [290] * 3
        return
    assert 4 < n_rows[0] < n_rows[1] < n_rows[2] < 150
    if form == "columns":
        again = clone(clf).partial_fit(*batches[0], classes=np.arange(4))
        with_all_rows(again)
        for X, y in batches[1:]:
            again.partial_fit(X, y)
        assert_same(clf, again, X)


@pytest.mark.parametrize("optimizer, n_tables", [("mixed", 1), ("adam", 2)])
def test_rows_of_new_columns_must_fit_into_memory(optimizer, n_tables, monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    clf = quick("flat", optimizer=optimizer, ranker=None, early_stopping=False)
    clf.partial_fit(*hashed(), classes=np.arange(4))
    X, y = hashed(1, n_samples=200, last=300)
    n_rows = 1 + len(np.union1d(hashed()[0].indices, X.indices))
    n_bytes = (n_rows + n_rows // 4) * 16 * 8 * n_tables
    before = clf.predict_proba(X)
    monkeypatch.setattr(memory, "available_memory", lambda device: n_bytes - 1)
    with pytest.raises(MemoryError, match=f"a layer for {n_rows} columns takes about {n_bytes:,}"):
        clf.partial_fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), before)
    monkeypatch.setattr(memory, "available_memory", lambda device: n_bytes)
    clf.partial_fit(X, y)
    monkeypatch.setattr(memory, "available_memory", lambda device: 0)
    clf.partial_fit(X, y)  # there are no more


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.astype(np.int64),
        lambda rows: rows[:-1],
        lambda rows: rows - 1,
        lambda rows: rows + 1,
        lambda rows: rows[None],
        lambda rows: rows.tolist(),
    ],
)
def test_damaged_rows_of_columns_are_refused(change):
    clf = quick("flat", max_epochs=1).fit(*hashed())
    state = clf.__getstate__()
    weights = state["_net"]["weights"]
    weights["encoder.input.row_of"] = change(weights["encoder.input.row_of"])
    with pytest.raises(ValueError, match=r"encoder\.input\.(row_of|weight)"):
        clf.__setstate__(state)


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
