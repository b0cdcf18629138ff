"""MultiHeadClassifier: its heads, their lengths of its heads, the order of labels."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from _factories import EVERY, N_LABELS, make_learnable, quick
from sklearn_xlc import MultiHeadClassifier, compress
from sklearn_xlc.heads import Product

every_order = pytest.mark.parametrize(
    "name, multilabel",
    [
        (name, multilabel)
        for name, multilabel in EVERY
        if name.startswith(("product", "powerset", "cascade", "sampling"))
        and name != "cascade-narrow"
    ],
)


# --- labels and their order -------------------------------------------------------------------


@every_order
@pytest.mark.parametrize("order", ["given", "random", "clustered", "reversed"])
def test_label_order_moves_places_not_names(name, multilabel, order):
    X, y = make_learnable(multilabel)
    reversed_places = np.arange(N_LABELS)[::-1]
    label_order = reversed_places if order == "reversed" else order
    clf = quick(name, head__label_order=label_order, max_epochs=30, learning_rate=0.05).fit(X, y)
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


# --- the estimator as a citizen of scikit-learn -----------------------------------------------


def test_parameters_can_be_set_and_cloned():
    clf = quick(
        "cascade", encoder=torch.nn.Linear(60, 4), head__label_order=np.arange(N_LABELS)[::-1]
    )
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


def test_head_lengths_as_an_array_without_dimensions():
    with pytest.raises(ValueError, match=r"lengths=\(3,\) is not valid"):
        MultiHeadClassifier(Product(lengths=np.array(3))).fit(np.eye(4), np.arange(4))


# --- low rank ---------------------------------------------------------------------------------


LOW_RANK = {"head__rank": 5, "batch_size": 50, "max_epochs": 10}


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


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_both_matrices_of_a_low_rank_are_rounded(monkeypatch, storage):
    monkeypatch.setattr("sklearn_xlc.engine.packing.SMALL", 1)
    X, y = make_learnable(False, dtype=np.float32)
    clf = quick("flat", **LOW_RANK).fit(X, y)
    small = compress(clf, storage)
    assert np.mean(small.predict(X) == clf.predict(X)) > 0.9
    heads = [each.net_.module_.head for each in (small, clf)]
    for name in ("projection.weight", "weight"):
        rounded, exact = (head.get_parameter(name).detach() for head in heads)
        assert not torch.equal(rounded, exact)
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0.01 * float(exact.abs().max()))


# --- ensembles --------------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [True, False])
def test_scores_of_an_ensemble_are_the_mean_of_its_members(multilabel):
    X, y = make_learnable(multilabel)
    clf = quick("flat", encoder__hidden_layer_sizes=(8, 6), encoder__n_members=3).fit(X, y)
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
