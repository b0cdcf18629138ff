"""The powerset head against brute force over all label sets."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from _factories import make_targets
from sklearn_xlc.heads import PowersetHead, SoftmaxCrossEntropy

N_FEATURES, N_LABELS = 3, 7
LENGTHS = [(16, 8), (128,), (2,) * 7, (4, 2, 8, 4), (8, 32, 32)]
TARGETS = make_targets([[0, 3], [], [6], [0, 1, 2, 3, 4, 5, 6], [2, 5]])
WEIGHT = torch.tensor([1.0, 2.0, 0.0, 1.5, 3.0], dtype=torch.float64)


def make(lengths=None, scale=2.0, n_labels=N_LABELS, **kwargs):
    torch.manual_seed(n_labels)
    head = PowersetHead(N_FEATURES, n_labels, True, lengths, **kwargs).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head, torch.randn(5, N_FEATURES, dtype=torch.float64, requires_grad=True)


def all_sets(n_labels=N_LABELS):
    """Every label set, in the order of their binary numbers."""
    return torch.arange(2**n_labels)[:, None] >> torch.arange(n_labels).flip(0) & 1


def brute_force(head, features):
    """Log probability of every label set: one softmax a block, by the labels of the block."""
    logits = features @ head.linear.weight.T + head.linear.bias
    sets, column, groups = all_sets(head.n_labels), 0, []
    for _ in range(head.n_groups):
        start, total = 0, 0.0
        for length in head.code.lengths:
            size = length.bit_length() - 1
            place_values = 2 ** torch.arange(size).flip(0)
            digit = (sets[:, start : start + size] * place_values).sum(1)
            total = total + logits[:, column : column + length].log_softmax(1)[:, digit]
            start, column = start + size, column + length
        groups.append(total)
    if head.n_groups == 1:
        return groups[0]
    mixing = logits[:, column:].log_softmax(1)
    return (torch.stack(groups, dim=2) + mixing[:, None]).logsumexp(2)


def indicator(targets, n_labels=N_LABELS):
    hot = torch.zeros(len(targets), n_labels, dtype=torch.int64)
    hot[targets.rows, targets.ids] = 1
    return hot


def numbers(targets):
    """Binary numbers of label sets."""
    return (indicator(targets) * 2 ** torch.arange(N_LABELS).flip(0)).sum(1)


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_scores_are_the_log_odds_of_marginals(lengths, n_groups):
    head, features = make(lengths, n_groups=n_groups)
    joint = brute_force(head, features).detach().exp()
    torch.testing.assert_close(joint.sum(1), torch.ones(5, dtype=torch.float64))
    marginals = joint @ all_sets().double()
    scores = head.scores(features)
    torch.testing.assert_close(scores, torch.logit(marginals))
    torch.testing.assert_close(head.probabilities(scores), marginals.clamp(1e-7, 1 - 1e-7))
    for k in (1, 4, N_LABELS):
        best, ids = head.topk(features, k)
        torch.testing.assert_close(best, scores.topk(k, dim=1).values)
        torch.testing.assert_close(scores.gather(1, ids), best)


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_best_label_sets_are_those_of_all(lengths, n_groups):
    head, features = make(lengths, n_groups=n_groups)
    joint = brute_force(head, features).detach()
    for k in (1, 2, 5, 2**N_LABELS):
        scores, sets = head.topk_sets(features, k)
        torch.testing.assert_close(scores, joint.topk(k, dim=1).values)
        assert len(sets) == 5 * k
        torch.testing.assert_close(joint.gather(1, numbers(sets).view(5, k)), scores)


def test_a_mixture_searches_until_no_other_set_can_be_better(monkeypatch):
    """Of nearly equal sets in many blocks, the best of the mixture are far down in every group."""
    head, features = make((2,) * 12, scale=0.3, n_labels=12, n_groups=3)
    joint = brute_force(head, features).detach()
    search, numbers_of_rows = head._mixture_topk, []

    def counted(groups, mixing, *arguments):
        numbers_of_rows.append(len(mixing))
        return search(groups, mixing, *arguments)

    monkeypatch.setattr(head, "_mixture_topk", counted)
    scores, _ = head.topk_sets(features, 3)
    torch.testing.assert_close(scores, joint.topk(3, dim=1).values)
    assert len(numbers_of_rows) > 1  # more candidates, for the rows that need them


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_ce_is_minus_the_log_probability_of_the_label_set(lengths, n_groups):
    head, features = make(lengths, n_groups=n_groups)
    rows = -brute_force(head, features).gather(1, numbers(TARGETS)[:, None])[:, 0]
    torch.testing.assert_close(head.loss(features, TARGETS, WEIGHT), (WEIGHT * rows).mean())
    torch.testing.assert_close(head.loss(features, TARGETS), rows.mean())
    assert gradcheck(lambda x: head.loss(x, TARGETS, WEIGHT), (features,))


def true_digits(head):
    """Mask of the outputs of the true digits, of shape (n_rows, sum(lengths))."""
    digits = head.code.encode(indicator(TARGETS).numpy())
    offsets = np.concatenate([[0], np.cumsum(head.code.lengths)[:-1]])
    hot = torch.zeros(5, sum(head.code.lengths), dtype=torch.float64)
    hot[torch.arange(5)[:, None], torch.as_tensor(digits + offsets)] = 1.0
    return hot


def test_bce_and_joint_ce_are_over_the_concatenated_logits():
    """Algorithm 2 of the paper, and one softmax over the digits of all heads."""
    bce, features = make((16, 8), loss="bce")
    logits = features @ bce.linear.weight.T + bce.linear.bias
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, true_digits(bce))
    torch.testing.assert_close(bce.loss(features, TARGETS), expected)
    joint, features = make((16, 8), loss="joint_ce")
    logits = features @ joint.linear.weight.T + joint.linear.bias
    rows = -(logits.log_softmax(1) * true_digits(joint)).sum(1)
    torch.testing.assert_close(joint.loss(features, TARGETS, WEIGHT), (WEIGHT * rows).mean())
    assert bce.link is joint.link is None


@pytest.mark.parametrize(("loss", "n_groups"), [("bce", 1), ("joint_ce", 1), ("ce", 1), ("ce", 2)])
def test_memory_limits_change_nothing(loss, n_groups):
    head, features = make((16, 8), loss=loss, n_groups=n_groups)
    parameters = (features, *head.parameters())
    value = head.loss(features, TARGETS, WEIGHT)
    slopes = torch.autograd.grad(value, parameters)
    head.memory_limit = 2 * 4 * 24 * 8 * n_groups  # logits of two samples
    cut = head.loss(features, TARGETS, WEIGHT)
    torch.testing.assert_close(cut, value)
    torch.testing.assert_close(torch.autograd.grad(cut, parameters), slopes)
    assert head._rows_at_once() == 2


@pytest.mark.parametrize("n_groups", [1, 2])
def test_prior_is_what_zero_features_predict(n_groups):
    head, _ = make((16, 8), n_groups=n_groups)
    frequency = torch.rand(N_LABELS, dtype=torch.float64) * 0.4 + 0.1
    head.set_prior(frequency)
    zeros = torch.zeros(1, N_FEATURES, dtype=torch.float64)
    torch.testing.assert_close(head.scores(zeros).sigmoid()[0], frequency)
    with torch.no_grad():
        torch.testing.assert_close(
            head.linear.bias[:16].exp().sum(), torch.ones((), dtype=torch.float64)
        )


def test_extreme_weights_give_finite_scores():
    head, features = make((16, 8), scale=1e15)
    assert torch.isfinite(head.scores(features)).all()
    assert torch.isfinite(head.float().scores(features.float())).all()


def test_losses():
    for name in ("auto", "ce"):
        assert type(make(loss=name)[0].criterion) is SoftmaxCrossEntropy
    for name in ("pick_all_labels", "propensity_bce", "arcface"):
        with pytest.raises(ValueError, match=r"multi-label y; use one of .*'auto', 'bce', 'ce', "):
            make(loss=name)


def test_soft_targets_have_no_digits():
    head, features = make()
    soft = make_targets([[0], [], [1], [], []])
    soft.values = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="targets must be label sets"):
        head.loss(features, soft)
