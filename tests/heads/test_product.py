"""The product head against brute force over all labels."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import head_lengths
from sklearn_xlc.heads import ProductHead

CASES = [(7, 1), (7, 2), (12, 2), (13, 3), (30, 3), (31, 4)]
N_FEATURES = 3


def make(n_labels, n_heads, scale=3.0, **kwargs):
    torch.manual_seed(n_labels + n_heads)
    head = ProductHead(N_FEATURES, n_labels, False, head_lengths(n_labels, n_heads), **kwargs)
    head = head.double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head, torch.randn(6, N_FEATURES, dtype=torch.float64, requires_grad=True)


def brute_force(head, features):
    """Log of the mixture of products of softmaxes for every label, renormalised."""
    outputs = features @ head.linear.weight.T + head.linear.bias
    width, n_groups = sum(head.code.lengths), head.n_groups
    mixing = outputs[:, n_groups * width :].log_softmax(1)
    rows = []
    for row in range(len(features)):
        labels = []
        for label in range(head.n_labels):
            digits = head.code.encode([label])[0]
            terms = []
            for group in range(n_groups):
                logits = outputs[row, group * width : (group + 1) * width]
                term = mixing[row, group] if n_groups > 1 else 0.0
                for part, digit in zip(logits.split(head.code.lengths), digits):
                    term = term + part.log_softmax(0)[digit]
                terms.append(term)
            labels.append(torch.stack(terms).logsumexp(0))
        rows.append(torch.stack(labels))
    return torch.stack(rows)


@pytest.mark.parametrize("n_groups", [1, 2, 4])
@pytest.mark.parametrize(("n_labels", "n_heads"), CASES)
def test_scores_and_topk_equal_brute_force(n_labels, n_heads, n_groups):
    head, features = make(n_labels, n_heads, n_groups=n_groups)
    joint = brute_force(head, features).detach()
    expected = joint - joint.logsumexp(1, keepdim=True)
    torch.testing.assert_close(head.scores(features), expected)
    torch.testing.assert_close(
        head.scores(features).exp().sum(1), torch.ones(6, dtype=torch.float64)
    )
    for k in (1, 3, n_labels):
        scores, ids = head.topk(features, k)
        torch.testing.assert_close(scores, expected.topk(k, dim=1).values)
        torch.testing.assert_close(expected.gather(1, ids), scores)
        assert all(len(set(row)) == k for row in ids.tolist())


@pytest.mark.parametrize("n_groups", [1, 3])
def test_ce_is_the_negative_log_of_the_unnormalised_product(n_groups):
    head, features = make(13, 3, n_groups=n_groups)
    targets = Targets(torch.arange(7), torch.tensor([0, 12, 5, 7, 7, 1]))
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0, 3.0, 1.0], dtype=torch.float64)
    rows = -brute_force(head, features).gather(1, targets.ids[:, None])[:, 0]
    expected = (weight * rows).mean()
    torch.testing.assert_close(head.loss(features, targets, weight), expected)
    assert gradcheck(lambda x: head.loss(x, targets, weight), (features,))


def test_bce_is_the_mean_over_the_concatenated_logits():
    head, features = make(12, 2, loss="bce")
    targets = Targets(torch.arange(7), torch.tensor([0, 11, 5, 7, 7, 1]))
    logits = features @ head.linear.weight.T + head.linear.bias
    digits = torch.as_tensor(head.code.encode(targets.ids.numpy()))
    hot = torch.zeros_like(logits)
    hot[torch.arange(6), digits[:, 0]] = 1.0
    hot[torch.arange(6), head.code.lengths[0] + digits[:, 1]] = 1.0
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, hot)
    torch.testing.assert_close(head.loss(features, targets), expected)


def test_joint_ce_has_the_floor_h_log_h():
    head, features = make(12, 2, loss="joint_ce")
    targets = Targets(torch.arange(7), torch.zeros(6, dtype=torch.int64))
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.fill_(-1000.0)
        head.linear.bias[[0, head.code.lengths[0]]] = 0.0
    assert head.loss(features, targets).item() == pytest.approx(2 * math.log(2), abs=1e-12)


@pytest.mark.parametrize(
    "loss, squash",
    [("bce", torch.nn.functional.logsigmoid), ("joint_ce", lambda part: part.log_softmax(1))],
)
def test_labels_rank_by_products_of_positive_numbers(loss, squash):
    """Of the digits' sigmoids or softmaxes; Theorem 1 does not hold for raw logits."""
    head, features = make(13, 2, loss=loss)
    logits = features @ head.linear.weight.T + head.linear.bias
    first, second = (squash(part) for part in logits.split(head.code.lengths, dim=1))
    expected = (first[:, :, None] + second[:, None]).flatten(1)[:, :13]
    torch.testing.assert_close(head.scores(features), expected)
    scores, ids = head.topk(features, 5)
    torch.testing.assert_close(scores, expected.topk(5, dim=1).values)
    torch.testing.assert_close(ids, expected.topk(5, dim=1).indices)


@pytest.mark.parametrize("loss", ["ce", "bce", "joint_ce"])
def test_codes_without_a_label_are_never_named(loss):
    head, features = make(31, 2, loss=loss)  # 6 x 6 codes for 31 labels
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias[:] = torch.arange(len(head.linear.bias), dtype=torch.float64)
    _, ids = head.topk(features, 31)
    assert ids.max() == 30


def test_prior_is_what_zero_features_predict_for_independent_digits():
    head, _ = make(12, 2)
    first = torch.rand(head.code.lengths[0], dtype=torch.float64)
    second = torch.rand(head.code.lengths[1], dtype=torch.float64)
    frequency = torch.outer(first / first.sum(), second / second.sum()).reshape(-1)
    head.set_prior(frequency)
    scores = head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64))[0]
    torch.testing.assert_close(scores.exp(), frequency)


@pytest.mark.parametrize(("n_labels", "n_heads"), CASES)
def test_vectors_of_labels_add_up_the_weights_of_their_digits(n_labels, n_heads):
    head, features = make(n_labels, n_heads)
    two, _ = make(n_labels, n_heads, n_groups=2)
    scores = features @ head.linear.weight.T
    parts = scores.split(head.code.lengths, dim=1)
    digits = torch.tensor(head.code.encode(range(n_labels)))
    expected = sum(part[:, digits[:, h]] for h, part in enumerate(parts))
    torch.testing.assert_close(features @ head.label_vectors().T, expected)
    assert two.label_vectors().shape == (n_labels, 2 * N_FEATURES)


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("n_free", [1, 9])
def test_positions_without_a_label_do_not_count(n_groups, n_free):
    head, features = make(12, 2, n_groups=n_groups)
    free = torch.isin(torch.arange(12), torch.randperm(12)[:n_free])
    head.set_free(free)
    joint = brute_force(head, features).masked_fill(free, -torch.inf)
    expected = joint - joint.logsumexp(1, keepdim=True)
    torch.testing.assert_close(head.scores(features), expected.detach())
    k = 12 - n_free
    scores, ids = head.topk(features, k)
    torch.testing.assert_close(scores, expected.detach().topk(k, dim=1).values)
    assert not free[ids].any()
    torch.testing.assert_close(head.scores_at(features, ids), expected.gather(1, ids))


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("n_labels, n_heads", [(12, 2), (30, 3)])
def test_dense_scores_are_those_of_the_ranking_to_the_bit(n_labels, n_heads, n_groups):
    head, features = make(n_labels, n_heads, n_groups=n_groups)
    with torch.no_grad():
        assert torch.equal(
            head.scores(features).sort(1, descending=True)[0], head.topk(features, n_labels)[0]
        )
        torch.testing.assert_close(head._traced_scores(features), head.scores(features))
