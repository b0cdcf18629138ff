"""MultiHeadClassifier: its heads, their lengths, the order of labels, the accuracy of heads."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from _factories import EVERY, N_LABELS, make_learnable, quick
from sklearn_xlc import MultiHeadClassifier, compress, config_context
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.settings import Settings
from sklearn_xlc.heads import (
    Cascade,
    Flat,
    FlatHead,
    PowersetHead,
    Product,
    ProductHead,
    Sampling,
    SamplingHead,
)

#: Classifiers whose labels have an order.
ORDERED = [
    (name, multilabel)
    for name, multilabel in EVERY
    if name.startswith(("product", "powerset", "cascade", "sampling")) and name != "cascade-narrow"
]


# --- heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [True, False])
def test_auto_takes_the_head_that_suits_the_labels(multilabel, monkeypatch):
    X, y = make_learnable(multilabel)
    assert type(quick("flat", head="auto", max_epochs=1).fit(X, y).head_) is Flat
    monkeypatch.setattr("sklearn_xlc.engine.resolve.WORTH", -(10**9))
    clf = quick("flat", head="auto", max_epochs=1).fit(X, y)
    assert type(clf.head_) is Cascade
    assert clf.settings_["head"] == "cascade"


@pytest.mark.parametrize(
    "n_labels, labels_per_sample, params, head",
    [
        (100_000, 5.0, {}, Flat),
        (185_000, 5.0, {}, Cascade),
        (80_000, None, {}, Cascade),
        (40_000, 5.0, {"encoder": MLP((64, 1024))}, Cascade),
        (200_000, 5.0, {"encoder": MLP(256)}, Flat),
        (200_000, 5.0, {"encoder": object}, Cascade),
        (200_000, 5.0, {"head": "flat"}, Flat),
        (2, None, {"head": Sampling()}, Sampling),
    ],
)
def test_auto_goes_by_the_labels_and_the_width_of_the_features(
    n_labels, labels_per_sample, params, head
):
    code = LabelCode(np.arange(n_labels), labels_per_sample is not None, True, float)
    code = replace(code, labels_per_sample=labels_per_sample or 1.0)
    clf = MultiHeadClassifier(**params)
    settings = Settings(clf.get_params(deep=False), clf._parts)
    assert type(clf._head_part_for(settings, code)) is head


@pytest.mark.parametrize(
    "name, lengths, kind",
    [
        ("product", [4, 6], ProductHead),
        ("cascade", (3, 2, 4), None),
        ("sampling", (5, 5), SamplingHead),
    ],
)
def test_lengths_of_heads_are_used(name, lengths, kind):
    X, y = make_learnable(False)
    clf = quick(name, head__lengths=lengths, max_epochs=1).fit(X, y)
    assert (clf.head_.lengths, clf.head_.n_heads) == (tuple(lengths), len(lengths))
    assert clf.settings_["head__lengths"] == tuple(lengths)
    head = clf.net_.module_.head
    if kind is not None:
        assert type(head) is kind
    if name == "product":
        assert head.linear.out_features == 10


def test_one_output_per_label_has_no_lengths():
    assert not hasattr(quick("flat", max_epochs=1).fit(*make_learnable(False)).head_, "lengths")


def test_lengths_as_an_array_without_dimensions():
    with pytest.raises(ValueError, match=r"lengths=\(3,\) is not valid"):
        MultiHeadClassifier(Product(lengths=np.array(3))).fit(np.eye(4), np.arange(4))


def test_sub_heads_of_samples_are_those_of_the_head():
    """MHS-S by parameters is the head that is tested against the paper's formula."""
    X, y = make_learnable(False)
    own = partial(SamplingHead, length=5, n_sampled_heads=2, shared_heads=False)
    params = {"head__lengths": (5, 5), "head__n_sampled_heads": 2, "max_epochs": 3}
    named = quick("sampling-own", **params).fit(X, y)
    given = quick("flat", head=own, max_epochs=3).fit(X, y)
    shared = quick("sampling", **params).fit(X, y)
    assert torch.equal(named.net_.module_.head.weight, given.net_.module_.head.weight)
    assert not torch.equal(named.net_.module_.head.weight, shared.net_.module_.head.weight)


def test_product_of_an_indicator_has_heads_of_blocks_of_labels():
    X, Y = make_learnable(True)
    clf = quick("powerset", max_epochs=1).fit(X, Y)
    assert clf.head_.lengths == (16,) * 5 + (8,)
    assert type(clf.net_.module_.head) is PowersetHead
    clf.set_params(head__lengths=[32] * 6).fit(X, Y)
    assert clf.head_.lengths == (32,) * 4 + (8,)
    assert clf.net_.module_.head.linear.out_features == 4 * 32 + 8


# --- labels and their order -------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "name, multilabel, order",  # one of each kind of head clusters labels: the order is found alike
    [
        pytest.param(*case, order, marks=() if is_quick else pytest.mark.slow)
        for case in ORDERED
        for order in ("given", "random", "clustered", "reversed")
        for is_quick in [order == "reversed" or (order == "clustered" and "-" not in case[0])]
    ],
)
def test_label_order_moves_places_not_names(name, multilabel, order):
    X, y = make_learnable(multilabel)
    reversed_places = np.arange(N_LABELS)[::-1]
    label_order = reversed_places if order == "reversed" else order
    clf = quick(name, head__label_order=label_order, max_epochs=9, learning_rate=0.15).fit(X, y)
    np.testing.assert_array_equal(np.sort(clf.label_order_), np.arange(N_LABELS))
    if order == "reversed":
        np.testing.assert_array_equal(clf.label_order_, reversed_places)
    if order == "given":
        np.testing.assert_array_equal(clf.label_order_, np.arange(N_LABELS))
    best = clf.predict_topk(X, k=1)[0][:, 0]
    hits = np.asarray(y[np.arange(150), best]).ravel() if multilabel else best == y
    assert np.mean(hits) > 0.85
    scores = clf.decision_function(X)
    np.testing.assert_array_equal(clf.predict_topk(X, k=1)[0][:, 0], scores.argmax(1))


def test_clustered_labels_share_a_block():
    """Labels 0 and 3 are copies of each other, as are 1 and 4, and 2 and 5."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = np.tile((X > 0).astype(int), 2)
    clf = quick("powerset", head__lengths=(4, 4, 4), head__label_order="clustered", max_epochs=2)
    blocks = clf.fit(X, Y).label_order_ // 2
    np.testing.assert_array_equal(blocks[:3], blocks[3:])


# --- the estimator as a citizen of scikit-learn -----------------------------------------------


def test_parameters_can_be_set_and_cloned():
    order = np.arange(N_LABELS)[::-1]
    clf = quick("cascade", encoder=torch.nn.Linear(60, 4), head__label_order=order, max_epochs=1)
    copy = clone(clf)
    assert copy.get_params().keys() == clf.get_params().keys()
    assert copy.encoder is not clf.encoder
    copy.set_params(head__beam_width=3, loss="focal")
    assert (copy.head.beam_width, copy.loss) == (3, "focal")
    assert (clf.head.beam_width, clf.loss) == (30, "auto")
    X, y = make_learnable(False)
    fitted = clf.fit(X, y)
    assert not hasattr(clone(fitted), "net_")
    assert "MultiHeadClassifier(" in repr(fitted)


# --- low rank ---------------------------------------------------------------------------------


LOW_RANK = {"head__rank": 5, "batch_size": 50, "max_epochs": 10, "ranker": None}


@pytest.mark.parametrize(
    "params", [{}, {"head__n_negatives": 8}, {"precision": "bfloat16"}], ids=str
)
@pytest.mark.parametrize("multilabel", [True, False])
def test_weights_of_low_rank_are_a_product(multilabel, params):
    X, y = make_learnable(multilabel)
    clf = quick("flat", **LOW_RANK, **params)
    losses = clf.fit(X, y).partial_fit(X, y).loss_curve_
    assert losses[-1] < 0.9 * losses[0]
    head = clf.net_.module_.head
    inner, outer, bias = (p.detach() for p in (head.projection.weight, head.weight, head.bias))
    assert (inner.shape, outer.shape) == ((5, 16), (N_LABELS, 5))
    encoder = 60 * 16 + 16 + 2 * 16  # with its normalisation
    assert clf.n_parameters_ == encoder + 16 * 5 + (5 + 1) * N_LABELS
    features = torch.from_numpy(clf.transform(X)).to(inner.dtype)
    expected = (features @ (outer @ inner).T + bias).numpy()
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-4, atol=1e-4)
    best = np.argsort(-clf.decision_function(X), axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(clf.predict_topk(X, k=3)[0], clf.classes_[best])


def test_both_matrices_of_a_low_rank_are_rounded(monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.state.SMALL", 1)
    X, y = make_learnable(False, dtype=np.float32)
    clf = quick("flat", **LOW_RANK).fit(X, y)
    small = compress(clf)
    assert np.mean(small.predict(X) == clf.predict(X)) > 0.9
    heads = [each.net_.module_.head for each in (small, clf)]
    for name in ("projection.weight", "weight"):
        rounded, exact = (head.get_parameter(name).detach() for head in heads)
        assert not torch.equal(rounded, exact)
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02 * float(exact.abs().max()))


# --- ensembles --------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["cascade", "product", FlatHead])
def test_ensembles_are_of_plain_networks(head):
    X, y = make_learnable(False)
    with pytest.raises(ValueError, match="n_members=2 needs .*(?i:flat)"):
        quick("ensemble", head=head).fit(X, y)


@pytest.mark.parametrize("multilabel", [True, False])
def test_scores_of_an_ensemble_are_the_mean_of_its_members(multilabel):
    X, y = make_learnable(multilabel)
    widths = {"encoder__hidden_layer_sizes": (8, 6), "encoder__n_members": 3}
    clf = quick("flat", **widths, max_epochs=5, ranker=None).fit(X, y)
    features, head = clf.transform(X), clf.net_.module_.head
    assert features.shape == (150, 18)
    assert head.weight.shape == (N_LABELS, 18)
    bias = head.bias.detach().numpy()
    weight = head.weight.detach().numpy()
    scores = [features[:, part] @ weight[:, part].T + bias for part in np.split(np.arange(18), 3)]
    np.testing.assert_allclose(clf.decision_function(X), np.mean(scores, 0), rtol=1e-5, atol=1e-5)
    different = [np.corrcoef(one.ravel(), scores[0].ravel())[0, 1] for one in scores[1:]]
    assert max(different) < 0.9999
    exact = np.argsort(-clf.decision_function(X), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(clf.predict_topk(X, k=5)[0], clf.classes_[exact])


def test_one_member_is_the_plain_network():
    X, y = make_learnable(True)
    plain = quick("flat", max_epochs=5).fit(X, y)
    one = quick("flat", max_epochs=5, encoder__n_members=1).fit(X, y)
    assert [name for name, _ in one.net_.module_.named_parameters()] == [
        *("encoder.input.weight", "encoder.input.bias"),
        *("encoder.layers.0.weight", "encoder.layers.0.bias", "head.weight", "head.bias"),
    ]
    np.testing.assert_array_equal(one.decision_function(X), plain.decision_function(X))


def test_number_of_members_can_be_searched():
    X, y = make_learnable(False)
    grid = {"encoder__n_members": [1, 2]}
    search = GridSearchCV(quick("flat", max_epochs=3), grid, cv=2).fit(X, y)
    n_members = search.best_params_["encoder__n_members"]
    assert search.best_estimator_.transform(X).shape[1] == 16 * n_members


# --- accuracy of heads ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["product", "cascade-3-heads", "sampling", "flat"])
def test_accuracy_of_digits_of_classes(name):
    X, y = make_learnable(False)
    order = {"head__label_order": "random"} if name != "flat" else {}
    clf = quick(name, max_epochs=3, **order).fit(X, y)
    code = MixedRadix(N_LABELS, clf.head_.lengths if order else (N_LABELS,))
    found, true = (
        code.encode(clf.label_order_[np.searchsorted(clf.classes_, labels)])
        for labels in (clf.predict(X), y)
    )
    accuracy, combined = clf.score_heads(X, y, return_combined=True)
    np.testing.assert_allclose(accuracy, (found == true).mean(0))
    assert combined == pytest.approx(clf.score(X, y))
    weight = np.arange(150.0)
    with pytest.raises(ValueError, match="sample_weight must be .*, got -1.0 in row 1"):
        clf.score_heads(X, y, sample_weight=-weight)
    weighted = clf.score_heads(X, y, sample_weight=weight)
    np.testing.assert_allclose(weighted, weight @ (found == true) / weight.sum())


def test_accuracy_of_digits_refuses_classes_of_another_type():
    X, y = make_learnable(False)
    clf = quick("product", max_epochs=1).fit(X, y.astype(str))
    with pytest.raises(ValueError, match="class labels of dtype int64 cannot be compared to the"):
        clf.score_heads(X, y)
    assert clf.score_heads(X, np.full(len(y), "none")).max() == 0  # not seen in fit


@pytest.mark.parametrize("decision", ["auto", "topk"])
def test_accuracy_of_digits_of_label_sets(decision):
    X, Y = make_learnable(True)
    head = Product(lengths=(32, 8, 256, 256), label_order="random")
    with config_context(working_memory=1):
        clf = quick("powerset", head=head, decision=decision, max_epochs=3).fit(X, Y)
    code, order = LabelBlocks(N_LABELS, clf.head_.lengths), np.argsort(clf.label_order_)
    best = clf.predict_topk_sets(X, k=1)[0][0]
    found, true = (code.encode(sets.toarray()[:, order]) for sets in (best, Y))
    with config_context(working_memory=1):
        accuracy, combined = clf.score_heads(X, Y, return_combined=True)
    np.testing.assert_allclose(accuracy, (found == true).mean(0))
    assert combined == pytest.approx((found == true).all(1).mean())
    assert combined <= accuracy.min()
    dense = clf.score_heads(X.toarray(), Y.toarray())
    np.testing.assert_allclose(dense, accuracy)


def test_accuracy_of_heads_by_tags():
    X, Y = make_learnable(True)
    tags = [[f"tag {label:02}" for label in row.indices] for row in Y]
    clf = quick("powerset", max_epochs=3).fit(X, tags)
    accuracy = clf.score_heads(X, tags)
    seen = [int(name[4:]) for name in clf.classes_]  # label 5 has no sample
    plain = quick("powerset", max_epochs=3).fit(X, Y[:, seen])
    np.testing.assert_allclose(accuracy, plain.score_heads(X, Y[:, seen]))
    unseen = [[*names, "another tag"] for names in tags]
    np.testing.assert_allclose(clf.score_heads(X, unseen), accuracy)
    best = clf.predict_topk_sets(X, k=2)[0][0]
    found = [tuple(clf.classes_[row.indices]) for row in best]
    assert found == [tuple(names) for names in clf.predict(X)]


def test_classes_that_were_not_seen_are_wrong_in_every_head():
    X, y = make_learnable(False)
    clf = quick("product", max_epochs=3).fit(X, y)
    expected = clf.score_heads(X[10:], y[10:]) * 140 / 150
    np.testing.assert_allclose(clf.score_heads(X, np.r_[np.full(10, 99), y[10:]]), expected)


def test_labels_of_another_form_than_in_fit_have_no_accuracy():
    X, Y = make_learnable(True)
    _, y = make_learnable(False)
    clf = quick("product", max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="y was 1-D class labels in the first fit"):
        clf.score_heads(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.score_heads(X, y[:9])
    clf = quick("powerset", max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="y must be an indicator with 23 columns"):
        clf.score_heads(X, y)
    assert not hasattr(quick("flat", max_epochs=1).fit(X, Y), "score_heads")
