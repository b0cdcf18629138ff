"""What heads of digits share: losses that suit them, the search of mixtures, room for labels."""

import numpy as np
import pytest
import torch

from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.heads import PowersetHead, ProductHead
from sklearn_xlc.heads.digits import MAX_CANDIDATES, DigitHead

N_FEATURES = 3


def make(kind, n_labels=300, lengths=(20, 15), scale=1.0, **params):
    torch.manual_seed(0)
    head = kind(N_FEATURES, n_labels, kind is PowersetHead, lengths, **params).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head, torch.randn(6, N_FEATURES, dtype=torch.float64)


def best_sets(head, features, k):
    scores, sets = head.topk_sets(features, k)
    return scores, sets.ids


@pytest.mark.parametrize("kind, lengths", [(ProductHead, (3, 4)), (PowersetHead, (8, 4))])
@pytest.mark.parametrize("n_groups", [1, 3])
def test_outputs_are_those_of_all_digits_and_of_the_mixing(kind, lengths, n_groups):
    head, features = make(kind, 12 if kind is ProductHead else 5, lengths, n_groups=n_groups)
    assert isinstance(head, DigitHead)
    assert type(head.code) is (MixedRadix if kind is ProductHead else LabelBlocks)
    n_outputs = n_groups * sum(lengths)
    assert head.linear.out_features == n_outputs + (n_groups if n_groups > 1 else 0)
    logits, mixing = head._outputs(features)
    assert logits.shape == (6, n_groups, sum(lengths))
    assert mixing.shape == (6, n_groups)
    if n_groups > 1:
        torch.testing.assert_close(mixing.exp().sum(1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("kind", [ProductHead, PowersetHead])
@pytest.mark.parametrize(
    "loss, suits",
    [
        ("ce", True),
        ("bce", True),
        ("focal", True),
        ("asymmetric", True),
        ("joint_ce", True),
        ("propensity_bce", False),  # which has weights of labels
        ("arcface", False),  # which needs cosines
    ],
)
def test_losses_that_suit_digits(kind, loss, suits):
    lengths = (3, 4) if kind is ProductHead else (8, 4)
    n_labels = 12 if kind is ProductHead else 5
    if suits:
        head, _ = make(kind, n_labels, lengths, loss=loss)
        assert head.joint == (loss == "joint_ce")
    else:
        with pytest.raises(ValueError, match=f"loss={loss!r}"):
            make(kind, n_labels, lengths, loss=loss)


def test_the_search_of_a_mixture_ends_at_the_most_candidates(monkeypatch):
    """From there on a label may be missed, but the scores of those that are found are right."""
    head, features = make(ProductHead, scale=5.0, n_groups=8)
    scores = head.scores(features)
    exact = head.topk(features, 3)
    torch.testing.assert_close(exact[0], scores.topk(3, dim=1).values)
    monkeypatch.setattr("sklearn_xlc.heads.digits.MAX_CANDIDATES", 1)
    asked = []
    topk = type(head.code).topk
    monkeypatch.setattr(
        type(head.code), "topk", lambda s, heads, k: asked.append(k) or topk(s, heads, k)
    )
    found, ids = head.topk(features, 3)
    assert asked == [16] * 8
    torch.testing.assert_close(found, scores.gather(1, ids))
    assert (found <= exact[0] + 1e-12).all()
    assert MAX_CANDIDATES > 1


def test_the_search_of_a_mixture_finds_a_label_that_is_second_to_many_in_each_group():
    head, features = make(ProductHead, 100, (100,), n_groups=2)
    logits = torch.full((2, 100), -10.0, dtype=torch.float64)
    logits[0, :20] = logits[1, 20:40] = 1.0  # more labels than a first search looks at
    logits[:, 50] = 0.9
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias[:200] = logits.flatten()
        head.linear.bias[200:] = 0.0
    assert head.topk(features, 1)[1][:, 0].tolist() == [50] * len(features)


@pytest.mark.parametrize("n_groups", [1, 8])
def test_the_search_of_a_mixture_of_sets_is_exact(n_groups):
    head, features = make(PowersetHead, 9, (8, 8, 8), scale=5.0, n_groups=n_groups)
    scores, _ = best_sets(head, features, 2**9)
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(6, dtype=torch.float64))
    few, _ = best_sets(head, features, 5)
    torch.testing.assert_close(few, scores[:, :5])


@pytest.mark.parametrize(
    "kind, n_labels, lengths, more, longer",
    [
        (ProductHead, 12, (3, 4), 14, (4, 4)),
        (ProductHead, 12, (3, 4), 30, (8, 4)),
        (PowersetHead, 5, (8, 4), 7, (8, 4, 4)),
    ],
)
def test_room_for_more_labels_keeps_the_rows_of_those_it_has(kind, n_labels, lengths, more, longer):
    head, features = make(kind, n_labels, lengths)
    before = head.scores(features).detach()
    (weight, origin), (bias, same) = head.room_for(more)
    assert weight is head.linear.weight
    assert bias is head.linear.bias
    assert torch.equal(origin, same)
    assert len(origin) == sum(longer)
    np.testing.assert_array_equal(np.sort(origin[origin >= 0]), np.arange(sum(lengths)))
    head.set_n_labels(more)
    assert (head.n_labels, head.code.lengths) == (more, longer)
    rows = origin >= 0
    for name in ("weight", "bias"):
        old = getattr(head.linear, name).detach()
        new = torch.zeros(len(origin), *old.shape[1:], dtype=old.dtype)
        new[rows] = old[origin[rows]]
        setattr(head.linear, name, torch.nn.Parameter(new))
    scores = head.scores(features).detach()[:, :n_labels]
    difference = scores - before
    if kind is ProductHead:  # of which the softmax has more outputs
        difference = difference - difference[:, :1]
    torch.testing.assert_close(difference, torch.zeros_like(difference), rtol=0, atol=1e-9)


def test_codes_to_spare_need_no_more_room():
    head, _ = make(ProductHead, 10, (3, 4))
    assert head.room_for(12) == []
    head.set_n_labels(12)
    assert (head.n_labels, head.code.lengths) == (12, (3, 4))
