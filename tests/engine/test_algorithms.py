"""Heads by name: which one a fit uses, their lengths, what each refuses."""

from functools import partial

import numpy as np
import pytest
import torch

from _factories import make_learnable, quick
from sklearn_xlc.heads import Cascade, Flat, FlatHead, PowersetHead, SamplingHead


def test_auto_takes_the_head_that_suits_the_labels(monkeypatch):
    X, y = make_learnable(False)
    _, Y = make_learnable(True)
    assert type(quick("flat", head="auto").fit(X, y).head_) is Flat
    monkeypatch.setattr("sklearn_xlc.engine.searched.WORTH", -(10**9))
    assert type(quick("flat", head="auto").fit(X, y).head_) is Cascade
    assert type(quick("flat", head="auto").fit(X, Y).head_) is Cascade


def test_head_lengths_are_used():
    X, y = make_learnable(False)
    clf = quick("product", head__lengths=[4, 6]).fit(X, y)
    assert clf.head_.lengths == (4, 6)
    assert clf.net_.module_.head.linear.out_features == 10
    assert quick("cascade", head__lengths=(3, 2, 4)).fit(X, y).head_.lengths == (3, 2, 4)
    assert quick("sampling", head__lengths=(5, 5)).fit(X, y).head_.lengths == (5, 5)
    assert not hasattr(quick("flat").fit(X, y).head_, "lengths")


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


@pytest.mark.parametrize("head", ["cascade", "product", FlatHead])
def test_ensembles_are_of_plain_networks(head):
    X, y = make_learnable(False)
    with pytest.raises(ValueError, match="n_members=2 needs .*(?i:flat)"):
        quick("ensemble", head=head).fit(X, y)


def test_product_of_an_indicator_has_heads_of_blocks_of_labels():
    X, Y = make_learnable(True)
    clf = quick("powerset").fit(X, Y)
    assert clf.head_.lengths == (16,) * 5 + (8,)
    assert type(clf.net_.module_.head) is PowersetHead
    clf.set_params(head__lengths=[32] * 6).fit(X, Y)
    assert clf.head_.lengths == (32,) * 4 + (8,)
    assert clf.net_.module_.head.linear.out_features == 4 * 32 + 8


def test_clustered_labels_share_a_block():
    """Labels 0 and 3 are copies of each other, as are 1 and 4, and 2 and 5."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = np.tile((X > 0).astype(int), 2)
    clf = quick("powerset", head__lengths=(4, 4, 4), head__label_order="clustered", max_epochs=2)
    blocks = clf.fit(X, Y).label_order_ // 2
    np.testing.assert_array_equal(blocks[:3], blocks[3:])
