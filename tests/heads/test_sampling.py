"""The sampling head against the full softmax."""

import math

import pytest
import torch
from torch.nn import functional as F

from sklearn_xlc.batches import Targets
from sklearn_xlc.heads import ArcFace, SamplingHead

N_FEATURES, N_LABELS, LENGTH = 4, 14, 4  # sub-heads of 4, the last of 2
IDS = torch.tensor([13, 0, 5, 5, 9])
TARGETS = Targets(torch.arange(6), IDS)
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0], dtype=torch.float64)


def make(**kwargs):
    torch.manual_seed(0)
    head = SamplingHead(N_FEATURES, N_LABELS, False, LENGTH, **kwargs).double()
    features = torch.randn(5, N_FEATURES, dtype=torch.float64, requires_grad=True)
    return head, features


def full_weight(head):
    return head.weight.view(-1, N_FEATURES)[:N_LABELS]


@pytest.mark.parametrize("correction", [False, True])
def test_all_sub_heads_give_the_full_softmax_and_its_gradients(correction):
    head, features = make(n_sampled_heads=4, correction=correction)
    loss = head.loss(features, TARGETS, WEIGHT)
    loss.backward()
    gradient, feature_gradient = head.weight.grad.to_dense(), features.grad
    head.weight.grad = features.grad = None
    rows = F.cross_entropy(features @ full_weight(head).T, IDS, reduction="none")
    expected = (WEIGHT * rows).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, head.weight.grad)
    torch.testing.assert_close(feature_gradient, features.grad)


def test_without_negatives_only_the_sub_heads_of_the_batch_compete():
    head, features = make()
    targets = Targets(torch.arange(3), torch.tensor([1, 9]))
    features = features[:2]
    logits = features @ full_weight(head).T
    allowed = torch.tensor([0, 1, 2, 3, 8, 9, 10, 11])
    expected = F.cross_entropy(logits[:, allowed], torch.tensor([1, 5]))
    loss = head.loss(features, targets)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert head.weight.grad.is_sparse
    assert head.weight.grad.coalesce().indices()[0].tolist() == [0, 2]


def test_negatives_are_distinct_random_and_not_of_the_batch():
    head, _ = make(n_sampled_heads=2)
    heads = torch.tensor([1])
    seen = set()
    for _ in range(30):
        drawn = head._draw_negatives(heads).tolist()
        assert drawn == sorted(set(drawn))
        assert len(drawn) == 3
        assert 1 in drawn
        seen.update(drawn)
    assert seen == {0, 1, 2, 3}
    head.eval()
    assert head._draw_negatives(heads).tolist() == [1]


@pytest.mark.parametrize("shared", [False, True])
def test_a_scale_may_be_a_large_integer(shared):
    """torch multiplies by integers of 64 bits only."""
    losses = []
    for scale in (2**70, 2.0**70):
        head, features = make(shared_heads=shared, loss=ArcFace(scale=scale), n_sampled_heads=2)
        losses.append(head.loss(features, TARGETS, WEIGHT).item())
    assert losses[0] == losses[1] < 2.0**80


@pytest.mark.parametrize("loss", ["ce", ArcFace(scale=8.0)], ids=["ce", "arcface"])
@pytest.mark.parametrize("n_others", [0, 1, 2, 3])
def test_own_heads_are_the_concatenation_of_the_paper(monkeypatch, n_others, loss):
    """Eq. 13 row by row: O = O^h and the O^j of the drawn heads, the true label among O^h."""
    head, features = make(shared_heads=False, n_sampled_heads=n_others, loss=loss)
    rows = head._draw_for_rows(IDS // LENGTH)
    monkeypatch.setattr(head, "_draw_for_rows", lambda own: rows)
    value = head.loss(features, TARGETS, WEIGHT)
    value.backward()
    gradient, feature_gradient = head.weight.grad.to_dense(), features.grad
    head.weight.grad = features.grad = None
    losses = []
    for x, label, heads in zip(features, IDS.tolist(), rows.tolist()):
        assert heads[0] == label // LENGTH
        assert len(set(heads)) == 1 + n_others
        labels = [y for h in heads for y in range(h * LENGTH, min((h + 1) * LENGTH, N_LABELS))]
        W, y = full_weight(head)[labels], labels.index(label)
        if loss == "ce":
            logits = W @ x
        else:
            logits = F.normalize(W) @ F.normalize(x, dim=0)
            logits = 8.0 * torch.where(
                torch.arange(len(W)) == y, torch.cos(torch.arccos(logits) + 0.5), logits
            )
        losses.append(F.cross_entropy(logits[None], torch.tensor([y])))
    expected = (WEIGHT * torch.stack(losses)).mean()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, head.weight.grad)
    torch.testing.assert_close(feature_gradient, features.grad)


def test_heads_drawn_for_a_row_are_uniform():
    head, _ = make(shared_heads=False, n_sampled_heads=2)
    rows = head._draw_for_rows(torch.arange(4).repeat(3000))
    for own in range(4):
        others, counts = rows[own::4, 1:].sort(1).values.unique(dim=0, return_counts=True)
        assert len(others) == 3
        assert own not in others
        assert (counts - 1000).abs().max() < 120
    head.eval()
    assert head._draw_for_rows(torch.tensor([2])).tolist() == [[2]]


@pytest.mark.parametrize("shared_heads", [False, True])
def test_all_heads_are_the_full_softmax_whoever_draws_them(shared_heads):
    for correction in (False, True):
        head, features = make(n_sampled_heads=3, shared_heads=shared_heads, correction=correction)
        expected = F.cross_entropy(features @ full_weight(head).T, IDS)
        torch.testing.assert_close(head.loss(features, TARGETS), expected)


def test_correction_of_own_heads_is_the_rate_at_which_they_are_drawn():
    head, _ = make(n_sampled_heads=1, shared_heads=False, correction=True)
    own = torch.tensor([0, 3])
    chance = head._log_expected_count(torch.tensor([0, 1, 3]), 2, torch.tensor([0, 2])).exp()
    rows = torch.cat([head._draw_for_rows(own) for _ in range(3000)])
    seen = torch.stack([(rows == h).any(1).view(-1, 2).double().mean(0) for h in (0, 1, 3)], 1)
    torch.testing.assert_close(chance, seen, atol=0.03, rtol=0)


def test_correction_subtracts_the_log_chance_of_the_sub_head_from_the_logits():
    head, features = make(correction=True)
    head.set_prior(torch.linspace(0.01, 0.12, N_LABELS, dtype=torch.float64))
    labels, allowed = torch.tensor([1, 9]), torch.tensor([0, 1, 2, 3, 8, 9, 10, 11])
    share = torch.linspace(0.01, 0.12, N_LABELS, dtype=torch.float64)
    chance = torch.stack([1 - (1 - share[4 * h : 4 * h + 4].sum()) ** 2 for h in (0, 2)])
    logits = features[:2] @ full_weight(head)[allowed].T - chance.log().repeat_interleave(LENGTH)
    expected = F.cross_entropy(logits, torch.tensor([1, 5]))
    torch.testing.assert_close(head.loss(features[:2], Targets(torch.arange(3), labels)), expected)


def test_arcface_equals_its_definition_on_both_branches():
    head, features = make(loss=ArcFace(margin=0.5, scale=8.0), n_sampled_heads=4)
    with torch.no_grad():  # row 0 opposite to its label: beyond pi - margin
        features[0] = -full_weight(head)[13]
    cosine = F.normalize(features) @ F.normalize(full_weight(head)).T
    logits = cosine.clone()
    for row, label in enumerate(IDS.tolist()):
        value = cosine[row, label]
        if value > math.cos(math.pi - 0.5):
            logits[row, label] = torch.cos(torch.arccos(value) + 0.5)
        else:
            logits[row, label] = value - 0.5 * math.sin(math.pi - 0.5)
    assert cosine[0, 13] <= math.cos(math.pi - 0.5)
    expected = F.cross_entropy(8.0 * logits, IDS)
    torch.testing.assert_close(head.loss(features, TARGETS), expected)


def test_expected_counts_agree_with_simulation():
    head, _ = make(n_sampled_heads=1, correction=True)
    frequency = torch.tensor([0.3] + [0.02] * 7 + [0.1] + [0.4 / 5] * 5, dtype=torch.float64)
    frequency = frequency / frequency.sum()
    head.set_prior(frequency)
    counts, n_batches = torch.zeros(head.n_heads), 4000
    torch.manual_seed(1)
    for _ in range(n_batches):
        labels = torch.multinomial(frequency, 3, replacement=True)
        counts[torch.unique(labels // LENGTH)] += 1
    absent = 1 - counts / n_batches
    expected = 1 - absent * (1 - 1 / head.n_heads)
    chance = head._log_expected_count(torch.arange(head.n_heads), 3, None).exp()
    torch.testing.assert_close(chance.float(), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("loss", ["ce", "arcface"])
def test_topk_is_the_order_of_the_scores_of_existing_labels(loss):
    head, features = make(loss=loss)
    scores = head.scores(features)
    assert scores.shape == (5, N_LABELS)
    best, ids = head.topk(features, N_LABELS)
    torch.testing.assert_close(best, scores.sort(dim=1, descending=True).values)
    torch.testing.assert_close(scores.gather(1, ids), best)


def test_vectors_of_labels_give_the_scores():
    head, features = make()
    torch.testing.assert_close(features @ head.label_vectors().T, head.scores(features))
