"""Accuracy of each head, against digits computed one by one."""

import numpy as np
import pytest

from _factories import N_LABELS, make_learnable, quick
from sklearn_xlc import config_context
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.heads import Product


@pytest.mark.parametrize("name", ["product", "cascade-3-heads", "sampling", "flat"])
def test_digits_of_classes(name):
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
    weighted = clf.score_heads(X, y, sample_weight=weight)
    np.testing.assert_allclose(weighted, weight @ (found == true) / weight.sum())


@pytest.mark.parametrize("decision", ["auto", "topk"])
def test_digits_of_label_sets(decision):
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


def test_tags():
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


def test_bad_arguments():
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
