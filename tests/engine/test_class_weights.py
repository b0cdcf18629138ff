"""`class_weight`: weights of classes are those of samples, weights of labels those of positives."""

import copy
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

import sklearn_xlc
from _factories import N_LABELS, make_learnable, quick
from sklearn_xlc import MIMLClassifier, MultiHeadClassifier, explain_topk
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.class_weights import (
    class_weights,
    frequency,
    label_counts,
    mean_one,
)
from sklearn_xlc.engine.label_code import code_of
from sklearn_xlc.heads import Flat, Head
from sklearn_xlc.heads.label_weights import WeightedPointwiseLoss
from sklearn_xlc.metrics import propensities
from sklearn_xlc.optimizers import SGD

X, y = make_learnable(multilabel=False)
_, Y = make_learnable(multilabel=True)
names = np.array([f"class {i:02}" for i in range(N_LABELS)])[y]
SHORT = {"max_epochs": 5}


def weights_of(name, labels, sample_weight=None):
    code = code_of(labels, labels)
    return class_weights(name, code, Rows(X, code.encode(labels), sample_weight))


def test_balanced_is_the_formula_of_scikit_learn():
    expected = compute_class_weight("balanced", classes=np.unique(y), y=y)
    np.testing.assert_allclose(weights_of("balanced", y), expected)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    weights = weights_of("balanced", Y)
    held = counts > 0
    np.testing.assert_allclose((counts * weights)[held], Y.nnz / held.sum())
    assert weights[~held] == 1
    assert counts @ weights == pytest.approx(counts.sum())


def test_integer_sample_weights_count_as_repeated_samples():
    times = np.arange(len(y)) % 3 + 1
    for name in ("balanced", "propensity"):
        repeated = code_of(y, y).encode(np.repeat(y, times))
        expected = class_weights(
            name, code_of(y, y), Rows(np.repeat(X.toarray(), times, 0), repeated)
        )
        np.testing.assert_allclose(weights_of(name, y, times.astype(float)), expected)


def test_propensity_is_one_divided_by_the_propensities():
    np.testing.assert_allclose(weights_of("propensity", Y), 1 / propensities(Y))
    np.testing.assert_allclose(weights_of("propensity", y), 1 / propensities(y))


@pytest.mark.parametrize("name", ["flat", "product", "cascade", "sampling", "dft", "etf", "bags"])
def test_weights_of_classes_are_weights_of_samples(name):
    of_names = {f"class {i:02}": 1.0 + i for i in range(1, N_LABELS)}  # the first weighs one
    clf = quick(name, class_weight=of_names, **SHORT)
    expected = quick(name, **SHORT)
    fit = {"groups": np.arange(len(y))} if name == "bags" else {}
    clf.fit(X, names, **fit)
    expected.fit(X, names, **fit, sample_weight=1.0 + y)
    scores = [each.predict_topk(X, k=3)[1] for each in (clf, expected)]
    np.testing.assert_array_equal(*scores)
    both = np.where(np.arange(len(y)) % 2, 0.5, 2.0)
    clf.set_params(class_weight="balanced").fit(X, names, **fit, sample_weight=both)
    balanced = compute_sample_weight("balanced", y) if name != "bags" else None
    if balanced is None:
        return
    counts = np.bincount(y, both)
    expected.fit(X, names, sample_weight=both * (both.sum() / (N_LABELS * counts))[y])
    np.testing.assert_allclose(clf.predict_topk(X, k=3)[1], expected.predict_topk(X, k=3)[1])


@pytest.mark.parametrize(
    "name", ["flat", "ensemble", "dft", "bottleneck", "etf", "pick-all", "bags"]
)
def test_labels_that_weigh_more_are_more_probable(name):
    counts = np.asarray(Y.sum(axis=0)).ravel()
    rare = np.flatnonzero((counts > 0) & (counts <= np.median(counts)))
    given = dict.fromkeys(rare.tolist(), 10.0)
    params = {**SHORT, "ranker": None}
    plain, weighted = (quick(name, class_weight=weight, **params) for weight in (None, given))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no groups were given
        plain.fit(X, Y), weighted.fit(X, Y)
    shares = []
    for clf in (plain, weighted):
        probabilities = clf.predict_proba(X)
        shares.append(probabilities[:, rare].sum() / probabilities.sum())
    assert shares[1] > 1.2 * shares[0]


def test_weights_are_those_of_labels_and_go_into_files(tmp_path):
    given = {int(label): 1.0 + label for label in range(N_LABELS)}
    clf = quick("flat", class_weight=given, **SHORT).fit(X, Y)
    weight = clf.net_.module_.head.criterion.label_weight.numpy()
    np.testing.assert_array_equal(weight[clf.label_order_], 1.0 + np.arange(N_LABELS))
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    loaded = sklearn_xlc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(X)[1], clf.predict_topk(X)[1])
    assert loaded.class_weight == given


def test_going_on_takes_the_weights_of_now():
    clf = quick("flat", class_weight="balanced", warm_start=True, **SHORT).fit(X, Y)
    clf.set_params(class_weight={3: 7.0}).fit(X, Y)
    expected = torch.ones(N_LABELS).double()
    expected[3] = 7
    assert (clf.net_.module_.head.criterion.label_weight == expected).all()
    clf.partial_fit(X, Y)
    clf.set_params(class_weight=None).partial_fit(X, Y)
    assert not isinstance(clf.net_.module_.head.criterion, WeightedPointwiseLoss)


def test_partial_fit_takes_a_dict_only():
    clf = quick("flat", class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight='balanced' is computed from all labels"):
        clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    clf.set_params(class_weight={2: 5.0}).partial_fit(X, y, classes=np.arange(N_LABELS))


def test_batches_of_a_stream_weigh_as_their_classes_do():
    """One step of plain SGD on any batch is the sum of the gradients by class, times its weight."""
    given = {2: 5.0, 4: 0.5}
    of_class = np.array([given.get(label, 1.0) for label in range(N_LABELS)])
    start = quick("flat", optimizer=SGD(momentum=0), learning_rate=1e-3, ranker=None, batch_size=64)
    start.partial_fit(X, y, classes=np.arange(N_LABELS))

    def step(labels, weighted):
        rows = np.concatenate([np.flatnonzero(y == label)[:4] for label in labels])
        clf = copy.deepcopy(start).set_params(class_weight=given if weighted else None)
        clf.partial_fit(X[rows], y[rows])
        before, after = (each.net_.module_.state_dict() for each in (start, clf))
        return len(rows) * (after["head.weight"] - before["head.weight"]).numpy()

    for labels in ([2], [4], [3], [2, 4], [2, 3, 4]):
        each = [of_class[label] / of_class.mean() * step([label], False) for label in labels]
        np.testing.assert_allclose(step(labels, True), sum(each), rtol=1e-6, atol=1e-12)


def test_batches_of_a_stream_do_not_depend_on_classes_of_weight_zero():
    start = quick("flat", optimizer=SGD(momentum=0), learning_rate=1e-3, ranker=None, batch_size=64)
    start.set_params(class_weight={2: 0.0, 4: 3.0}).partial_fit(X, y, classes=np.arange(N_LABELS))
    rows = np.concatenate([np.flatnonzero(y == label)[:4] for label in (1, 4, 2)])
    found = []
    for some in (rows, rows[y[rows] != 2]):
        clf = copy.deepcopy(start).partial_fit(X[some], y[some])
        found.append(clf.net_.module_.state_dict()["head.weight"])
    np.testing.assert_allclose(*found, rtol=0, atol=1e-15)


@pytest.mark.parametrize("method", ["fit", "partial_fit", "recalibrate"])
def test_weights_of_zero_for_all_samples_are_refused(method):
    clf = quick("flat", class_weight={2: 0.0}, **SHORT).fit(X, y)
    before = clf.decision_function(X)
    if method == "fit":
        clf.set_params(class_weight=dict.fromkeys(range(N_LABELS), 0))
    with pytest.raises(ValueError, match="class_weight=.* leaves no sample of positive weight"):
        getattr(clf, method)(*((X, y) if method == "fit" else (X[y == 2], y[y == 2])))
    np.testing.assert_array_equal(clf.decision_function(X), before)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_weights_follow_the_labels_to_their_positions(method):
    class Reversed(Flat):
        label_order = np.arange(N_LABELS)[::-1]

    clf = quick("flat", head=Reversed(), class_weight={0: 5.0}, max_epochs=1)
    getattr(clf, method)(X, Y)
    assert clf.net_.module_.head.criterion.label_weight.tolist() == [1] * (N_LABELS - 1) + [5]


def test_tags_are_named_by_their_names():
    tags = [[f"tag {i}" for i in ids] for ids in np.split(Y.indices, Y.indptr[1:-1])]
    clf = MultiHeadClassifier("flat", class_weight={"tag 4": 3.0}, max_epochs=1).fit(X, tags)
    weight = clf.net_.module_.head.criterion.label_weight.numpy()
    assert weight[list(clf.classes_).index("tag 4")] == 3
    assert (weight == 1).sum() == len(weight) - 1


def test_names_that_y_does_not_have_are_told():
    clf = quick("flat", class_weight={"clas 03": 2.0, "class 04": 2.0}, **SHORT)
    with pytest.warns(UserWarning, match=r"\['clas 03'\]; labels of y are named like 'class 00'"):
        clf.fit(X, names)


@pytest.mark.parametrize("name", ["cascade", "powerset"])
def test_outputs_that_are_no_labels_have_no_weights(name):
    with pytest.raises(ValueError, match="class_weight is not defined for label sets by"):
        quick(name, class_weight="balanced").fit(X, Y)


def test_a_head_of_the_users_own_needs_its_loss_where_it_is_found():
    class Own(Head):
        link = "sigmoid"

        def __init__(self, n_features, n_labels, multilabel):
            super().__init__(n_features, n_labels, multilabel)
            self.layer = torch.nn.Linear(n_features, n_labels)

        def loss(self, features, targets, sample_weight=None, update=None):
            return self.layer(features).square().mean()

        def scores(self, features):
            return self.layer(features)

        def topk(self, features, k):
            return self.scores(features).topk(k)

    clf = MultiHeadClassifier(head=Own, max_epochs=1, class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight needs the loss of Own as its attribute"):
        clf.fit(X, Y)
    clf.fit(X, y)  # weights of samples ask nothing of a head


def test_counts_of_labels_in_bags():
    """A label in three samples of a bag weighs once: bags are what is counted."""
    counted = Y.copy()
    counted.data[:] = 1
    counted.data[::2] = 3
    groups = np.arange(len(y)) // 5
    bags = counted[::5]
    clf = MIMLClassifier(class_weight="balanced", encoder=MLP(8), max_epochs=1)
    clf.fit(X, bags, groups)
    held = np.asarray((bags > 0).sum(axis=0)).ravel()
    expected = np.where(held > 0, held.sum() / ((held > 0).sum() * np.maximum(held, 1)), 1)
    np.testing.assert_allclose(clf.net_.module_.head.criterion.label_weight, expected, rtol=1e-6)


# --- counts -----------------------------------------------------------------------------------


def test_frequency():
    Y = sp.csr_matrix([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(frequency(Y, None), [0.75, 0.5, 1e-6], rtol=1e-6)
    weight = np.array([1.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(frequency(Y, weight), [0.25, 0.75, 1e-6], rtol=1e-6)


def test_equal_weights_are_no_weights_bit_by_bit():
    Y = sp.csr_matrix(np.eye(7, dtype=np.float32))
    ones = np.ones(7, dtype=np.float32)
    assert torch.equal(frequency(Y, ones), frequency(Y, None))
    assert torch.equal(label_counts(Y, ones)[0], label_counts(Y, None)[0])


@pytest.mark.parametrize("weight, expected", [(None, ([1, 2, 0], 2)), ([2.0, 1.0], ([2, 3, 0], 3))])
def test_label_counts_are_of_samples(weight, expected):
    """A bag of which three instances hold a label is one sample with it."""
    Y = sp.csr_matrix([[3.0, 1.0, 0.0], [0.0, 2.0, 0.0]])
    counts, n_samples = label_counts(Y, None if weight is None else np.array(weight))
    assert (counts.tolist(), n_samples) == expected


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_by_blocks_have_the_bits_of_one_pass(monkeypatch, weighted):
    rng = np.random.default_rng(0)
    Y = sp.random(200, 7, 0.3, format="csr", random_state=0)
    weight = rng.random(200) if weighted else np.ones(200)
    rows = np.repeat(np.arange(200), np.diff(Y.indptr))
    total = mean_one(weight).sum()
    share = np.bincount(Y.indices, mean_one(weight)[rows] / total * Y.data)
    counts = np.bincount(Y.indices, weight[rows] * np.minimum(Y.data, 1))
    given = weight if weighted else None
    for block in (1, 50, 2**16):
        monkeypatch.setattr("sklearn_xlc.engine.class_weights.FEW_ENTRIES", block)
        np.testing.assert_array_equal(frequency(Y, given), share)
        np.testing.assert_array_equal(label_counts(Y, given)[0], counts)
        assert label_counts(Y, given)[1] == weight.sum()


@pytest.mark.parametrize("count", [frequency, label_counts])
def test_counts_of_many_labels_need_little_memory(count):
    n_rows, n_entries = 2**18, 2**20
    ids = np.tile(np.arange(4, dtype=np.int32), n_rows)
    edges = np.arange(0, n_entries + 1, 4, dtype=np.int32)
    Y = sp.csr_matrix((np.ones(n_entries, np.int8), ids, edges), (n_rows, 4))
    tracemalloc.start()
    count(Y, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n_entries  # an array of double precision would take twice as much


@pytest.mark.parametrize("scale", [1.0, 1e37, 1e-40])
def test_the_scale_of_weights_does_not_matter(scale):
    weight = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(mean_one(scale * weight), weight * 3 / 8, rtol=1e-12)


def test_days_are_labels_of_weights_and_of_explanations():
    X = np.random.default_rng(0).normal(size=(200, 5))
    days = np.datetime64("2020-01-01") + X[:, :3].argmax(axis=1)
    weight = {days.min(): 5.0}
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0, class_weight=weight)
    clf.fit(X, days)
    numbers = (days - days.min()).astype(int)
    same = clone(clf).set_params(class_weight={0: 5.0}).fit(X, numbers)
    np.testing.assert_array_equal(clf.decision_function(X), same.decision_function(X))
    explained = explain_topk(clf, X[:1], labels=[clf.classes_[0]])
    assert explained.labels.tolist() == [[clf.classes_[0]]]
