"""Losses with weights of labels, against definitions that share no code with them."""

import pytest
import torch
from torch.nn import functional as F

from _factories import ROW_WEIGHT, SEVERAL
from sklearn_xlc.batches import Targets
from sklearn_xlc.heads import (
    AsymmetricLoss,
    BinaryCrossEntropy,
    FlatHead,
    FocalLoss,
    PickAllLabels,
    PickAllSquaredError,
    PointwiseLoss,
    PropensityBinaryCrossEntropy,
    chunked,
)
from sklearn_xlc.heads.label_weights import with_label_weight

N_LABELS, N_FEATURES = 11, 3
WEIGHTS = torch.tensor([1, 0.5, 3, 0, 20, 1, 1, 2, 0.1, 1, 7], dtype=torch.float64)
COUNTS = torch.tensor([9, 3, 1, 4, 1, 2, 7, 5, 1, 6, 2], dtype=torch.float64)
SOFT = torch.tensor([0.3, 1.0, 0.8, 0.05, 0.6, 0.9], dtype=torch.float64)


class Hinge(PointwiseLoss):
    """A loss of a user's own, of values only."""

    link = None

    def negative(self, logits):
        return (1 + logits).relu().square()

    def positive(self, logits, labels):
        return (1 - logits).relu().square()


POINTWISE = [
    BinaryCrossEntropy(),
    AsymmetricLoss(),
    FocalLoss(),
    PropensityBinaryCrossEntropy(),
    Hinge(),
]


def pointwise(loss):
    """The loss without weights, and with them, both fitted."""
    weighted = with_label_weight(loss, WEIGHTS).double()
    weighted.fit(COUNTS, 12.0)
    return weighted.loss, weighted


@pytest.mark.parametrize("loss", POINTWISE, ids=lambda loss: type(loss).__name__)
def test_the_weight_of_a_label_multiplies_its_loss_where_a_sample_has_it(loss):
    plain, weighted = pointwise(loss)
    torch.manual_seed(0)
    z = (3 * torch.randn(4, N_LABELS, dtype=torch.float64)).requires_grad_()
    y = torch.rand(4, N_LABELS, dtype=torch.float64).round(decimals=1)
    labels = slice(None)
    expected = WEIGHTS * y * plain.positive(z, labels) + (1 - y) * plain.negative(z)
    torch.testing.assert_close(weighted(z, y), expected)
    torch.testing.assert_close(weighted.positive(z, labels), WEIGHTS * plain.positive(z, labels))
    ids = torch.arange(N_LABELS).expand_as(z)
    without = plain.negative(z)
    torch.testing.assert_close(weighted.excess(z, y, ids), expected - without)
    value, slope = weighted.correction(z.detach(), y, ids)
    torch.testing.assert_close(value, (expected - without).detach())
    (by_autograd,) = torch.autograd.grad((expected - without).sum(), z)
    torch.testing.assert_close(slope, by_autograd)


def test_the_cross_entropy_is_that_of_torch():
    _, weighted = pointwise(BinaryCrossEntropy())
    z, y = torch.randn(5, N_LABELS).double(), torch.rand(5, N_LABELS).double()
    expected = F.binary_cross_entropy_with_logits(z, y, pos_weight=WEIGHTS, reduction="none")
    torch.testing.assert_close(weighted(z, y), expected)


def test_heads_start_where_the_weighted_loss_of_a_constant_is_least():
    _, weighted = pointwise(BinaryCrossEntropy())
    frequency = torch.linspace(0.01, 0.6, N_LABELS).double()
    z = weighted.prior(frequency)[WEIGHTS > 0].requires_grad_()
    frequency, weight = frequency[WEIGHTS > 0], WEIGHTS[WEIGHTS > 0]
    loss = frequency * weight * F.softplus(-z) + (1 - frequency) * F.softplus(z)
    (slope,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-12, rtol=0)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("chunk", [2, 4096])
@pytest.mark.parametrize("loss", ["bce", "propensity_bce", "sum", "mean", "smooth", "squared"])
def test_through_a_head(monkeypatch, loss, chunk, soft):
    """Value and gradients in chunks equal those of the dense definition."""
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    torch.manual_seed(0)
    given = {
        "sum": PickAllLabels(),
        "mean": PickAllLabels(reduction="mean"),
        "smooth": PickAllLabels(smoothing=0.2),
        "squared": PickAllSquaredError(),
    }.get(loss, loss)
    head = FlatHead(N_FEATURES, N_LABELS, True, memory_limit=1, loss=given).double()
    torch.nn.init.normal_(head.weight)
    head.criterion = with_label_weight(head.criterion, WEIGHTS).double()
    head.criterion.fit(COUNTS, 12.0)
    head.set_prior(torch.linspace(0.01, 0.6, N_LABELS).double())
    targets = Targets(SEVERAL.indptr, SEVERAL.ids, SOFT) if soft else SEVERAL
    features = torch.randn(4, N_FEATURES, dtype=torch.float64, requires_grad=True)
    logits = features @ head.weight.T + head.bias
    y = torch.zeros_like(logits)
    y[targets.rows, targets.ids] = targets.values_like(logits)
    mass, log_p = y.sum(1), logits.log_softmax(1)
    if loss in ("sum", "mean", "smooth"):
        smoothed = 0.8 * log_p + 0.2 * log_p.mean(1, keepdim=True) if loss == "smooth" else log_p
        rows = -(WEIGHTS * y * smoothed).sum(1)
        rows = rows / mass.clamp_min(1e-9) if loss == "mean" else rows
    elif loss == "squared":  # w y l1 + (1 - y) l0 with y shared between the labels of a sample
        y = y / mass.clamp_min(1e-9)[:, None]
        rows = mass * (WEIGHTS * y * (1 - logits) ** 2 + (1 - y) * logits**2).sum(1) / 2
    else:
        rows = pointwise(PropensityBinaryCrossEntropy() if "_" in loss else BinaryCrossEntropy())[1]
        rows = rows(logits, y).sum(1)
    expected = (ROW_WEIGHT * rows).mean()
    result = head.loss(features, targets, ROW_WEIGHT)
    torch.testing.assert_close(result, expected)
    variables = [features, head.weight, head.bias]
    ours, theirs = (torch.autograd.grad(value, variables) for value in (result, expected))
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("loss", [BinaryCrossEntropy(), PickAllLabels(0.5)])
def test_weights_replace_weights_and_may_be_taken_away(loss):
    once = with_label_weight(loss, WEIGHTS)
    again = with_label_weight(once, 2 * WEIGHTS)
    assert again.loss is loss
    assert (again.label_weight == 2 * WEIGHTS).all()
    assert (once.label_weight == WEIGHTS).all()
    assert with_label_weight(again, None) is loss
    assert again.link == loss.link
