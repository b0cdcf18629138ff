"""Labels that come later, and labels that are removed."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import make_classification
from skorch.callbacks import Callback

from _factories import EVERY, N_LABELS, make_learnable, quick
from sklearn_xlc import MultiHeadClassifier, explain_topk, load, save
from sklearn_xlc._labels import listable
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.decisions import Divergence, Seen, Threshold, TopK
from sklearn_xlc.engine import later_labels
from sklearn_xlc.heads import PowersetHead

#: Number of labels of the first call.
FIRST = 17
#: Output layers that have no room for labels that come later, or cannot leave one out.
NO_ROOM = ("etf", "product-groups")
SHARED = ("powerset",)
GROWING = [(name, multi) for name, multi in EVERY if not name.startswith(NO_ROOM)]
LEAVING = [(name, multi) for name, multi in EVERY if not name.startswith(SHARED)]


class Grab(Callback):
    """Keeps scores, weights and the optimiser's state with which training begins."""

    X = None

    def on_train_begin(self, net, **kwargs):
        type(self).scores = net.classifier.decision_function(self.X)
        type(self).head = pickle.loads(pickle.dumps(net.module_.head))
        type(self).state = [
            {key: value.clone() for key, value in net.optimizer_.state[parameter].items()}
            for parameter in net.module_.head.parameters()
        ]


class Fails(Callback):
    def on_batch_end(self, net, **kwargs):
        raise RuntimeError("on purpose")


def in_two_parts(name, multi, then=None, **params):
    """Classifier that meets the last labels in its second call; with all samples."""
    X, y = make_learnable(multi)
    clf = quick(name, **params)
    if multi:
        clf.partial_fit(X, y[:, :FIRST])
    else:
        clf.partial_fit(X[y < FIRST], y[y < FIRST], classes=np.arange(FIRST))
    clf.set_params(**(then or {}))
    return clf, X, y


def rows_of(head, tensor):
    width = dict(head.label_rows())[tensor]
    return tensor.detach().view(-1, width)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*the guarantee does not cover")
@pytest.mark.parametrize(
    "name, multi, optimizer",
    [(*case, "adam") for case in GROWING]
    + [("flat", True, "adagrad"), ("sampling", False, "adagrad"), ("cascade", True, "adagrad")],
)
def test_the_others_stay_as_they_are(name, multi, optimizer):
    clf, X, y = in_two_parts(name, multi, {"callbacks": [Grab()]}, optimizer=optimizer)
    before, state = clf.net_.module_.head, clf.net_.optimizer_.state
    scores, origin = clf.decision_function(X), dict(before.room_for(N_LABELS))
    Grab.X = X
    clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    np.testing.assert_array_equal(clf.classes_, np.arange(N_LABELS))
    assert clf.label_order_.tolist() == list(range(N_LABELS))
    head = Grab.head
    shift = Grab.scores[:, :FIRST] - scores
    if head.link == "exp" or name == "product-joint":
        # That of the normaliser: of all labels or digits, or of those of a node.
        n_siblings = head.code.lengths[-1] if name.startswith("cascade") else FIRST
        first = np.arange(FIRST) // n_siblings * n_siblings
        shift = shift - shift[:, first]
    np.testing.assert_allclose(shift, 0, rtol=0, atol=1e-13)
    for old, new in zip(dict(before.label_rows()), dict(head.label_rows())):
        assert torch.equal(rows_of(head, new)[:FIRST], rows_of(before, old)[:FIRST])
    for old, moments in zip(before.parameters(), Grab.state):
        assert state[old].keys() == moments.keys()
        for key, value in moments.items():
            known = state[old][key]
            if value.ndim:
                rows = origin.get(old, torch.arange(len(old)))
                known = known[rows]
                known[rows < 0] = 0
            assert torch.equal(value, known)


@pytest.mark.parametrize("name, multi", [("flat", True), ("sampling", False), ("pick-all", True)])
def test_new_labels_are_learnt(name, multi):
    clf, X, y = in_two_parts(name, multi, learning_rate=0.06)
    clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    for _ in range(20):
        clf.partial_fit(X, y)
    new = np.flatnonzero(y.tocsc()[:, FIRST:].getnnz(axis=1)) if multi else y >= FIRST
    assert clf.score(X[new], y[new]) > 0.9


@pytest.mark.parametrize("name", ["flat", "sampling"])
def test_a_call_that_fails_changes_nothing(name):
    clf, X, y = in_two_parts(name, False)
    before, classes = clf.decision_function(X), np.arange(N_LABELS)
    clf.set_params(callbacks=[Fails()])
    with pytest.raises(RuntimeError, match="on purpose"):
        clf.partial_fit(X, y, classes=classes)
    np.testing.assert_array_equal(clf.classes_, np.arange(FIRST))
    np.testing.assert_array_equal(clf.decision_function(X), before)
    clf.set_params(callbacks=None)
    again = pickle.loads(pickle.dumps(clf)).partial_fit(X, y, classes=classes)
    assert again.decision_function(X).shape == (len(y), N_LABELS)


def test_class_labels_stay_sorted():
    X, y = make_learnable(False)
    names = np.array([f"label {9 * i % N_LABELS:02}" for i in range(N_LABELS)])
    some = y < FIRST
    clf = quick("flat").partial_fit(X[some], names[y[some]], classes=names[:FIRST])
    with pytest.raises(ValueError, match=r"'label .*', which is not one of the 17 classes"):
        clf.partial_fit(X, names[y])
    clf.partial_fit(X, names[y], classes=names)
    np.testing.assert_array_equal(clf.classes_, np.unique(names))
    known = np.searchsorted(clf.classes_, np.unique(names[:FIRST]))
    np.testing.assert_array_equal(clf.label_order_[known], np.arange(FIRST))
    for _ in range(40):
        clf.partial_fit(X, names[y], classes=[*names, "z"])
    assert clf.score(X, names[y]) > 0.95
    assert clf.classes_[-1] == "z"


DATES = np.arange("2020-01-01", "2020-01-06", dtype="M8[D]")


@pytest.mark.parametrize(
    "classes",
    [
        *(DATES.astype(f"M8[{unit}]") for unit in ("D", "s", "us", "ns")),
        np.arange(5, dtype="m8[h]"),
        np.arange(5),
        np.arange(5, dtype=np.uint8),
        np.arange(5, dtype=np.float32),
        np.arange(5.0),
    ],
)
@pytest.mark.parametrize("form", [list, np.asarray, np.ndarray.tolist, pd.Index, pd.Series])
def test_later_classes_are_values_of_the_type_of_the_first(classes, form):
    X, ids = make_learnable(False)
    ids = ids % 5
    if form is np.ndarray.tolist and classes.dtype == "M8[ns]":
        form = pd.Index  # of these NumPy makes numbers
    few = ids < 4
    clf = quick("flat", max_epochs=1).fit(X[few], classes[ids[few]])
    clf.partial_fit(X[few], classes[ids[few]], classes=form(classes[:4]))
    np.testing.assert_array_equal(clf.classes_, listable(classes[:4]), strict=True)
    clf.partial_fit(X, classes[ids], classes=form(classes[[4, 0, 1, 2, 3]]))
    assert clf.classes_.dtype.kind == classes.dtype.kind or classes.dtype.kind == "u"
    np.testing.assert_array_equal(clf.classes_, classes)
    clf.partial_fit(X, classes[ids])
    clf.remove_labels(form(classes[:1]))
    assert clf.classes_.tolist() == listable(classes[1:]).tolist()


def test_whole_numbers_stay_what_they_were():
    X, ids = make_learnable(False)
    clf = quick("flat", max_epochs=1).fit(X, ids % 4)
    clf.partial_fit(X, ids % 5, classes=np.arange(5.0))
    np.testing.assert_array_equal(clf.classes_, np.arange(5), strict=True)


@pytest.mark.parametrize(
    "known, more, message",
    [
        (np.arange(4), 4.5, "classes adds 4.5, which is no whole number"),
        (np.arange(4.0), 4.5, "classes adds 4.5, which is no whole number"),
        (np.arange(4.0), np.nan, "classes adds nan, which is no whole number"),
        (np.arange(4.0), np.inf, "classes adds inf, which is no whole number"),
        (np.arange(4), np.datetime64("2020-01-05"), r"classes adds .* of another type, like 0"),
        (DATES[:4], "tomorrow", "classes: .*tomorrow"),
        (DATES[:4], np.datetime64("2020-01-05T12"), "classes holds 2020-01-05T12, .* of type M8.D"),
        (DATES[:4], np.datetime64("NaT"), "classes holds NaT, .* of type M8.D"),
        (DATES[:4], pd.Timestamp("2020-01-05 12:00"), "classes holds 2020-01-05T12:00.* type M8"),
    ],
)
def test_later_classes_that_no_sample_can_have_are_refused(known, more, message):
    X, ids = make_learnable(False)
    y = known[ids % 4]
    clf = quick("flat", max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(X, y, classes=[*known, more])
    np.testing.assert_array_equal(clf.classes_, known, strict=True)


@pytest.mark.parametrize("decision", [TopK(), Divergence(), Threshold(0.3)])
def test_sets_are_no_larger_than_the_labels_that_are_left(decision):
    X = make_learnable(True)[0]
    Y = np.ones((X.shape[0], 6), dtype=int)
    Y[0] = 0
    clf = quick("flat", max_epochs=1, decision=decision).fit(X, Y).remove_labels([0, 1, 4, 5])
    assert clf.predict(X).shape == (len(Y), 2)
    clf.partial_fit(X[1:], Y[1:, :2])
    assert clf.predict(X).all()
    assert clf.recalibrate(decision=decision).predict(X).all()


@pytest.mark.parametrize("steps", [(3, 5), (4, 5), (3, 4, 5)])
def test_label_sets_that_grew_step_by_step_come_back(steps, tmp_path):
    X, Y = make_learnable(True)
    clf = quick("powerset", max_epochs=1).fit(X, Y[:, :2])
    for n_labels in steps:
        clf.partial_fit(X, Y[:, :n_labels], classes=range(n_labels))
    save(clf, tmp_path / "clf", exact=True)
    for again in (pickle.loads(pickle.dumps(clf)), load(tmp_path / "clf")):
        np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
        again.partial_fit(X, Y[:, :7], classes=range(7))
        scores = pickle.loads(pickle.dumps(again)).decision_function(X)
        np.testing.assert_array_equal(scores, again.decision_function(X))


def test_a_head_that_passes_arguments_on_comes_back_as_it_grew():
    class Passing(PowersetHead):
        def __init__(self, n_features, n_labels, multilabel, **params):
            super().__init__(n_features, n_labels, multilabel, **params)

    head = Passing(6, 2, True, lengths=None)
    for n_labels in (3, 5):
        head.set_n_labels(n_labels)
    args, params = head.made_with
    assert Passing(*args, **params).code.lengths == head.code.lengths


@pytest.mark.parametrize("streams", [False, True])
def test_remembered_samples_keep_their_classes(streams):
    X, y = make_extreme_multiclass(400, 40, 6, random_state=0)
    y = np.array(list("bcdefg"), dtype=object)[y]
    clf = quick("flat", max_epochs=1, ranker="boosted")
    clf = clf.partial_fit(X[:300], y[:300], np.unique(y)) if streams else clf.fit(X[:300], y[:300])

    def remembered():
        ids, labels = (clf.ranker_ or clf._waiting).remembered
        names = [clf.classes_[row.indices].tolist() for row in labels]
        return dict(zip(ids["ids"].tolist(), names))

    assert set(map(len, remembered().values())) == {1}
    clf.partial_fit(X[300:301], ["a"], classes=["a", *clf.classes_])
    y[300] = "a"
    assert all(names == [y[i]] for i, names in remembered().items())
    clf.remove_labels(["c"])
    clf.partial_fit(X[301:302], ["aa"], classes=["aa", "c", *clf.classes_])
    y[301] = "aa"
    assert clf.classes_.tolist() == ["a", "aa", *"bcdefg"]
    assert all(names == [y[i]] * (y[i] != "c") for i, names in remembered().items())


@pytest.mark.parametrize(
    "form", [sp.csr_matrix, lambda Y: Y.toarray(), lambda Y: Y.toarray().tolist()]
)
@pytest.mark.parametrize("n_names", [2, N_LABELS + 3])
def test_the_first_indicator_has_as_many_columns_as_there_are_names(form, n_names):
    X, Y = make_learnable(True)
    clf = quick("flat")
    with pytest.raises(
        ValueError, match=f"classes has {n_names} names, and y .* {N_LABELS} columns"
    ):
        clf.partial_fit(X, form(Y), classes=range(n_names))
    assert not hasattr(clf, "net_")


def test_tags_and_columns():
    X, Y = make_learnable(True)
    frame = pd.DataFrame.sparse.from_spmatrix(Y, columns=[f"tag {i}" for i in range(N_LABELS)])
    frame = frame.sparse.to_dense()
    tags = [frame.columns[row.indices].tolist() for row in Y]
    first = [[tag for tag in of if int(tag[4:]) < FIRST] for of in tags]
    known, names = frame.columns[:FIRST], list(frame.columns)
    clfs = [quick("flat") for _ in range(3)]
    for clf, y in zip(clfs, (Y[:, :FIRST], frame[known], first)):
        clf.partial_fit(X, y, classes=known)
    with pytest.raises(ValueError, match="y holds the label .* not one of the 17 labels"):
        clfs[2].partial_fit(X, tags)
    for clf, y in zip(clfs, (Y, frame, tags)):
        clf.partial_fit(X, y, classes=names)
    expected = clfs[0].decision_function(X)
    for clf in clfs:
        assert clf.classes_.tolist() == names
        np.testing.assert_array_equal(clf.decision_function(X), expected)
    clfs[1].remove_labels(["tag 3"])
    assert clfs[1].classes_.tolist() == [name for name in names if name != "tag 3"]
    assert clfs[1].predict(X).shape == (X.shape[0], N_LABELS - 1)


@pytest.mark.integration
@pytest.mark.parametrize("name, multi", LEAVING)
def test_labels_that_are_removed(name, multi, tmp_path):
    X, y = make_learnable(multi)
    clf = quick(name, max_epochs=3, ranker=None).fit(X, y)
    before, ranked = clf.decision_function(X), clf.predict_topk(X, N_LABELS)
    gone = [22, 2, 7]
    kept = np.setdiff1d(np.arange(N_LABELS), gone)
    assert clf.remove_labels(gone) is clf
    after, (labels, scores) = clf.decision_function(X), clf.predict_topk(X, len(kept))
    expected = before[:, kept]
    best = ~np.isin(ranked[0], gone)
    if name.startswith("cascade") and not multi:  # siblings have the probability of those removed
        node = kept // clf.net_.module_.head.code.lengths[-1]
        shift = after - expected
        np.testing.assert_allclose(shift, shift[:, np.searchsorted(node, node)], atol=1e-12)
        assert (np.diff(np.take_along_axis(after, np.searchsorted(kept, labels), 1)) <= 0).all()
    elif clf.net_.module_.head.link == "exp":  # log probabilities of what is left
        expected = expected - np.logaddexp.reduce(expected, axis=1)[:, None]
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(labels, ranked[0][best].reshape(labels.shape))
    else:
        np.testing.assert_array_equal(after, expected)
        np.testing.assert_array_equal(scores, ranked[1][best].reshape(scores.shape))
        np.testing.assert_array_equal(labels, ranked[0][best].reshape(labels.shape))
    assert clf.predict(X).shape == (y[:, kept].shape if multi else y.shape)
    np.testing.assert_array_equal(clf.classes_, kept)
    if hasattr(clf, "predict_proba"):
        sums = clf.predict_proba(X).sum(axis=1)
        assert multi or np.allclose(sums, 1)
    save(clf, tmp_path / "model", exact=True)
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), after)


@pytest.mark.integration
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("name, multi", [("flat", True), ("sampling", False), ("flat", False)])
def test_places_of_removed_labels_are_taken_anew(name, multi, optimizer):
    X, y = make_learnable(multi)
    classes = None if multi else np.arange(N_LABELS)
    clf = quick(name, optimizer=optimizer).partial_fit(X, y, classes=classes)
    clf.remove_labels([4, 20])
    head = clf.net_.module_.head
    kept = np.delete(np.arange(N_LABELS), [4, 20])
    rows = np.ones(X.shape[0], bool) if multi else ~np.isin(y, [4, 20])
    some = y[:, kept] if multi else y[rows]
    clf.partial_fit(X[rows], some)  # what is left goes on
    for tensor in dict(head.label_rows()):
        assert not rows_of(head, tensor)[[4, 20]].any()
    for value in clf.net_.optimizer_.state[head.weight].values():
        if value.shape == head.weight.shape:
            assert not value.view(-1, dict(head.label_rows())[head.weight])[[4, 20]].any()
    new = [*clf.classes_, 30, 31, 32]
    later = sp.hstack([some, y[:, [4, 20]], y[:, :1]], "csr") if multi else some
    clf.partial_fit(X[rows], later, classes=new)
    assert clf.net_.module_.head.n_labels == N_LABELS + 1
    assert clf.label_order_[-3:].tolist() == [4, 20, 23]
    assert clf.classes_[-3:].tolist() == [30, 31, 32]
    assert clf.net_.module_.head.free is None
    classes = None if multi else new
    known = quick(name, optimizer=optimizer).partial_fit(X[rows], later, classes=classes)
    for _ in range(20 if optimizer == "adam" else 0):
        clf.partial_fit(X[rows], later)
        known.partial_fit(X[rows], later)
    if optimizer == "adam":
        assert clf.score(X[rows], later) > 0.95 * known.score(X[rows], later)


def test_what_belongs_to_a_label_comes_and_goes_with_it():
    X, Y = make_learnable(True)
    weight = {0: 2.0, 20: 3.0}
    clf = quick("flat", loss="propensity_bce", class_weight=weight, decision=Threshold())
    with pytest.warns(UserWarning, match="class_weight names labels that y does not have"):
        clf.partial_fit(X, Y[:, :FIRST])
    clf.decision_.cut_ = np.arange(FIRST, dtype=float)
    inner = clf.net_.module_.head.criterion.loss
    known = {name: buffer.clone() for name, buffer in inner.named_buffers()}
    clf.partial_fit(X, Y, classes=np.arange(N_LABELS))
    criterion = clf.net_.module_.head.criterion
    assert criterion.label_weight[[0, 1, 20]].tolist() == [2.0, 1.0, 3.0]
    for name, buffer in criterion.loss.named_buffers():
        assert torch.equal(buffer[:FIRST], known[name])
        assert (buffer[FIRST:] > 1).all()
    assert clf.decision_.cut_.tolist() == [*range(FIRST), *[8.0] * (N_LABELS - FIRST)]
    clf.remove_labels([1, 22])
    assert clf.decision_.cut_[:3].tolist() == [0, 2, 3]
    clf.partial_fit(X, np.delete(Y.toarray(), [1, 22], axis=1))
    assert clf.net_.module_.head.criterion.label_weight[[0, 1, 20]].tolist() == [2.0, 1.0, 3.0]
    seen = quick("pick-all", decision=Seen(), max_epochs=2).fit(X, Y)
    seen.remove_labels([0, 1])
    assert seen.decision_.sets_.shape[1] == seen.predict(X).shape[1] == N_LABELS - 2


@pytest.mark.parametrize("name, multi", [e for e in EVERY if e not in GROWING])
def test_no_room(name, multi):
    clf, X, y = in_two_parts(name, multi)
    before = clf.decision_function(X)
    with pytest.raises(ValueError, match="room for 17 labels and none for 6 more: it .*; name all"):
        clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    np.testing.assert_array_equal(clf.decision_function(X), before)
    assert len(clf.classes_) == FIRST


@pytest.mark.parametrize("name, multi", [e for e in EVERY if e not in LEAVING])
def test_labels_that_cannot_be_left_out(name, multi):
    clf, X, _ = in_two_parts(name, multi)
    before = clf.decision_function(X)
    with pytest.raises(ValueError, match="cannot leave a label out: its outputs are sets"):
        clf.remove_labels([0])
    np.testing.assert_array_equal(clf.decision_function(X), before)


def test_codes_to_spare_serve_all_heads():
    """Mixtures of products have room up to the product of their lengths."""
    X, y = make_learnable(False)
    clf = quick("product-groups", head__lengths=(5, 5))
    clf.partial_fit(X[y < FIRST], y[y < FIRST], classes=np.arange(FIRST))
    clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    assert clf.head_.lengths == (5, 5)
    with pytest.raises(ValueError, match="has 25 codes"):
        clf.partial_fit(X, y, classes=np.arange(26))
    one = quick("product", head__lengths=(5, 5)).partial_fit(X, y, classes=np.arange(N_LABELS))
    one.partial_fit(X, y, classes=np.arange(51))
    assert one.head_.lengths == (11, 5)
    assert one.score_heads(X, y).shape == (2,)


@pytest.mark.integration
def test_a_layer_that_does_not_fit_is_refused(monkeypatch):
    clf, X, y = in_two_parts("flat", True)
    before = clf.decision_function(X)
    monkeypatch.setattr("sklearn_xlc.engine.memory.available_memory", lambda device: 1e6)
    wide = sp.hstack([y, sp.csr_matrix((y.shape[0], 10**6))], "csr")
    with pytest.raises(MemoryError, match="a layer for 1,000,023 labels takes about"):
        clf.partial_fit(X, wide, classes=range(wide.shape[1]))
    np.testing.assert_array_equal(clf.decision_function(X), before)


@pytest.mark.parametrize("params", [{}, {"head__rank": 5}, {"encoder__n_members": 2}])
def test_new_labels_start_from_their_samples(params):
    clf, X, y = in_two_parts("flat", False, {"callbacks": [Grab()]}, **params)
    features = clf.transform(X).astype(np.float64)
    known = clf.net_.module_.head.weight.detach().norm(dim=1)
    Grab.X = X
    clf.partial_fit(X, y, classes=np.arange(N_LABELS + 1))  # no sample has the last one
    head, new = Grab.head, np.arange(FIRST, N_LABELS)
    dense = (y[:, None] == new).astype(float)
    means = torch.from_numpy((dense.T @ features) / dense.sum(axis=0)[:, None])
    inputs, middle = (
        head.inputs(each).detach()
        for each in (means, torch.from_numpy(features.mean(axis=0))[None])
    )
    rows = head.weight.detach()[new]
    cosines = torch.cosine_similarity(rows, inputs - middle)
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)
    np.testing.assert_allclose(rows.norm(dim=1), known.median().item(), rtol=1e-6)
    # The mean score is that of a frequency: half of the samples so far are of this call.
    n_first, n_later = np.count_nonzero(y < FIRST), len(y)
    prior = np.log(dense.mean(axis=0) * np.sqrt(n_later / (n_first + n_later)))
    np.testing.assert_allclose(Grab.scores[:, new].mean(axis=0), prior, atol=1e-5)


class Refuses(Callback):
    """Fails before the first step."""

    def on_train_begin(self, *args, **kwargs):
        raise RuntimeError("on purpose")


def labels_of(y):
    """Return the labels that have a sample."""
    return np.unique(y if isinstance(y, np.ndarray) else y.tocsr().indices)


@pytest.mark.parametrize("multi", [True, False])
@pytest.mark.parametrize("streams", [True, False])
def test_labels_named_before_their_first_sample_start_as_new_ones(multi, streams):
    X, y = make_learnable(multi)
    has = (y.tocsc()[:, FIRST:].getnnz(axis=1) if multi else y >= FIRST) > 0
    part, classes = (X[~has], y[~has]), None if multi else np.arange(N_LABELS)
    clf = quick("flat", max_epochs=2, learning_rate=0.01, ranker=None)
    if multi and not streams:
        clf.fit(*part)
    else:  # classes of a `fit` have samples
        clf = clf if streams else clf.fit(*part)
        clf.partial_fit(*part, classes=classes)
    np.testing.assert_array_equal(clf._unmet, np.setdiff1d(np.arange(N_LABELS), labels_of(y[~has])))
    new = np.intersect1d(clf._unmet, labels_of(y))
    old = np.setdiff1d(np.arange(N_LABELS), clf._unmet)
    before = clf.decision_function(X)
    with pytest.raises(RuntimeError, match="on purpose"):
        clf.set_params(callbacks=[Refuses()]).partial_fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), before)
    clf.set_params(callbacks=None, learning_rate=1e-9)  # labels start, and nothing is learnt
    clf = pickle.loads(pickle.dumps(clf)).partial_fit(X, y)
    assert not np.intersect1d(clf._unmet, labels_of(y)).size
    after = clf.decision_function(X)
    np.testing.assert_allclose(after[:, old], before[:, old], atol=1e-5)
    share = y.toarray().mean(axis=0) if multi else np.bincount(y, minlength=N_LABELS) / len(y)
    share = share[new] * np.sqrt(X.shape[0] / clf._n_seen)
    prior = np.log(share / (1 - share)) if multi else np.log(share)
    np.testing.assert_allclose(after[:, new].mean(axis=0), prior, atol=0.5)
    assert np.abs(after - before)[:, new].mean() > 0.1
    again = clf.partial_fit(X, y).decision_function(X)  # they have been met
    np.testing.assert_allclose(again, after, atol=1e-5)


@pytest.mark.parametrize("loss", ["bce", "propensity_bce"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_an_error_puts_back_labels_that_had_no_sample(monkeypatch, loss, interrupted):
    X, y = make_learnable(True)
    has = y.tocsc()[:, FIRST:].getnnz(axis=1) > 0
    clf = quick("flat", max_epochs=1, ranker=None, loss=loss).fit(X[~has], y[~has])
    before = {name: value.clone() for name, value in clf.net_.module_.state_dict().items()}
    if interrupted:  # while labels start
        monkeypatch.setattr(later_labels, "_imprint", Refuses().on_train_begin)
    with pytest.raises(RuntimeError, match="on purpose"):
        clf.set_params(callbacks=[Refuses()]).partial_fit(X, y)
    for name, value in clf.net_.module_.state_dict().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_a_warm_start_forgets_no_label_that_was_met():
    X, y = make_learnable(True)
    has = y.tocsc()[:, FIRST:].getnnz(axis=1) > 0
    clf = quick("flat", max_epochs=1, ranker=None, warm_start=True).fit(X, y)
    unmet = clf._unmet
    assert len(unmet) < np.count_nonzero(has)
    np.testing.assert_array_equal(clf.fit(X[~has], y[~has])._unmet, unmet)


@pytest.mark.parametrize("head", ["flat", "cascade"])
def test_a_batch_of_a_new_label_alone_does_not_name_it_everywhere(head):
    """Users bring a dozen samples of a new tag by themselves: all of them have it."""
    X, Y = make_extreme_multilabel(900, 200, 40, random_state=0)
    has, late = Y[:, 39].toarray().ravel() > 0, np.arange(900) >= 600
    other, few = late & ~has, np.flatnonzero(has & ~late)[:12]
    clf = MultiHeadClassifier(head, ranker=None, decision="topk", random_state=0)
    clf.fit(X[~late & ~has], Y[~late & ~has][:, :39])
    before = clf.score(X[other], Y[other][:, :39])
    clf.partial_fit(X[few], Y[few], classes=range(40))
    first = clf.predict_topk(X[other], k=1)[0]
    assert (first == 39).mean() < 0.1
    assert clf.score(X[other], Y[other]) > before - 0.1


def test_classes_of_string_dtype_are_named():
    X, y = np.eye(3), np.array(["c", "a", "b"], np.dtypes.StringDType())
    clf = MultiHeadClassifier(max_epochs=1).partial_fit(X, y, classes=np.sort(y))
    assert clf.partial_fit(X, y, [*clf.classes_, "d"]).classes_.tolist() == list("abcd")


@pytest.mark.parametrize(
    "y",
    [
        ["a", "a\0", "b"],
        [["a"], ["a\0"], ["b"]],
        pd.DataFrame(np.eye(3, dtype=int), columns=["a", "a\0", "b"]),
    ],
    ids=["classes", "tags", "frame"],
)
def test_names_that_end_in_null_characters_are_kept(y):
    names, X = ["a", "a\0", "b"], np.eye(3)
    clf = MultiHeadClassifier(max_epochs=1).partial_fit(X, y, classes=names)
    assert clf.classes_.tolist() == clf.fit(X, y).classes_.tolist() == names


@pytest.mark.parametrize(
    "classes, message",
    [
        ([], "none is named; a classifier needs at least two classes"),
        (np.array([(0, 1)] * 3, "i8, i8"), r"array of 2 fields: give one of them, classes\['f0'\]"),
    ],
)
def test_a_first_call_without_classes_is_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        quick("flat").partial_fit(np.eye(9), np.arange(9) % 3, classes=classes)


@pytest.mark.parametrize(
    "classes, message",
    [
        ([*"abc", "a"], "classes names the label 'a' more than once"),
        ([*"abc", 3], "classes holds 3 of type int; labels are strings, or all are integers"),
        ([*"abc", None], "classes holds None of type NoneType"),
        ([*"abc", np.nan], "classes holds nan of type float"),
        ({"a", "b", "c"}, r"classes must be array-like of shape \(n_labels,\), got {"),
        ("abc", "classes must be array-like .*, got 'abc'"),
        ([["a", "b", "c"]], r"got an array of shape \(1, 3\)"),
        ([["a"], ["b", "c"]], "classes must be a rectangular array"),
        ([], "one of the 0 labels known so far"),
    ],
)
def test_names_of_tags_in_the_first_call_are_checked(classes, message):
    clf, tags = quick("flat"), [["a"], ["b", "c"]] * 10
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(np.eye(20), tags, classes=classes)
    assert not hasattr(clf, "classes_")
    clf.partial_fit(np.eye(20), tags, classes=np.array([*"cabd"]))
    assert clf.classes_.tolist() == [*"cabd"]


@pytest.mark.parametrize(
    "classes, message",
    [
        ([0, 0, 1], "the label 0 more than once"),
        (["a", "b", 1], "holds 1 of type int; labels are strings, or all are integers"),
        ([0, 1, 2.5], "holds 2.5 of type float"),
        ([0, 1, 2**64], "holds 18446744073709551616 of type int"),
    ],
)
def test_names_of_columns_in_the_first_call_are_checked(classes, message):
    clf, Y = quick("flat"), np.tile([[1, 0, 1], [0, 1, 0]], (10, 1))
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(np.eye(20), Y, classes=classes)
    assert clf.partial_fit(np.eye(20), Y, classes=[4, 9, 2]).classes_.tolist() == [4, 9, 2]


@pytest.mark.parametrize("name", ["flat", "dft", "etf", "bags"])
@pytest.mark.parametrize("form", [sp.csr_array, lambda Y: Y.toarray().astype(bool)])
def test_columns_of_an_indicator_are_named_by_the_first_call(name, form):
    X, Y = make_learnable(True)
    names = [f"tag {i}" for i in range(N_LABELS)][::-1]
    clf = quick(name, class_weight={"tag 3": 2.0}).partial_fit(X, form(Y), classes=names)
    same = quick(name, class_weight={names.index("tag 3"): 2.0}).partial_fit(X, Y)
    for _ in range(2):
        np.testing.assert_array_equal(clf.classes_, names)
        np.testing.assert_array_equal(clf.decision_function(X), same.decision_function(X))
        np.testing.assert_array_equal(
            clf.classes_[same.predict_topk(X, 2)[0]], clf.predict_topk(X, 2)[0]
        )
        again = clf.partial_fit(X, form(Y)).predict(X)
        assert type(again) is type(quick("flat").partial_fit(X, form(Y)).predict(X))
        same.partial_fit(X, Y)
    tags = [[names[i] for i in row.indices] for row in Y]
    assert clf.score(X, tags) == clf.score(X, Y)


@pytest.mark.parametrize("first", [None, [f"tag {i}" for i in range(N_LABELS)]])
def test_later_names_of_columns_are_those_known_and_then_new_ones(first):
    X, Y = make_learnable(True)
    clf = quick("flat").partial_fit(X, Y, classes=first)
    known = clf.classes_.tolist()
    new, wide = 50 if first is None else "new", sp.hstack([Y, Y[:, :1]], "csr")
    for wrong, message in (
        ([new, *known], "names the columns in another order than classes_"),
        ([*known, new, new], "or one of them twice"),
        ([*known, "new" if first is None else 50], "the labels known so far are of another type"),
        ([*known, 2.5], "the labels known so far are of another type"),
        ([*known[1:], new], "it lacks"),
        ([new] * len(known), "it lacks"),
    ):
        with pytest.raises(ValueError, match=message):
            clf.partial_fit(X, wide, classes=wrong)
        assert clf.classes_.tolist() == known
    with pytest.raises(ValueError, match="in another order than classes_"):
        clf.partial_fit(X, Y, classes=known[::-1])
    assert clf.partial_fit(X, wide, classes=[*known, new]).classes_.tolist() == [*known, new]


@pytest.mark.slow
def test_a_small_network_learns_late_classes():
    """From ten samples each, nine tenths as well as one that knew them from the start."""
    accuracy = np.zeros(2)
    for seed in range(3):
        X, y = make_classification(
            1500, 20, n_informative=12, n_classes=12, n_clusters_per_class=1, class_sep=1.5,
            random_state=seed,
        )  # fmt: skip
        place = np.array([np.count_nonzero(y[:i] == label) for i, label in enumerate(y)])
        train, test = place < np.where(y < 9, 25, 10), (place >= 25) & (y >= 9)
        for i, begin in enumerate((train & (y < 9), train)):
            clf = quick("flat")
            for _ in range(20):
                clf.partial_fit(X[begin], y[begin], classes=np.unique(y[begin]))
            for _ in range(30):
                clf.partial_fit(X[train], y[train], classes=np.arange(12))
            accuracy[i] += clf.score(X[test], y[test])
    assert accuracy[0] > 0.9 * accuracy[1]


@pytest.mark.parametrize("form", [np.array, torch.tensor])
def test_labels_to_remove_may_be_a_list_of_arrays_without_dimensions(form):
    X, y = make_extreme_multiclass(60, 20, 4, random_state=0)
    clf = quick("flat", max_epochs=1).fit(X, y)
    assert clf.remove_labels([form(3)]).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", [np.array, list, pd.Series, lambda mask: mask.astype(object)])
def test_a_mask_names_no_labels(form):
    X, y = make_extreme_multiclass(60, 20, 4, random_state=0)
    clf, mask = quick("flat", max_epochs=1).fit(X, y), np.arange(4) == 3
    for call in (clf.remove_labels, lambda labels: explain_topk(clf, X[:1], labels=labels)):
        with pytest.raises(ValueError, match=r"got booleans; give classes_\[mask\]"):
            call(form(mask))
    assert clf.remove_labels(clf.classes_[mask]).classes_.tolist() == [0, 1, 2]
    # Booleans may be the labels.
    truth = quick("flat", max_epochs=1).fit(X, y > 1)
    assert explain_topk(truth, X[:1], labels=[True]).labels.tolist() == [[True]]
    with pytest.raises(ValueError, match="1 of 2 labels cannot be removed"):
        truth.remove_labels([True])
