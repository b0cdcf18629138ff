"""The flat head: fused steps, precision, ranking, first logits; `test_losses` has its gradients."""

import pytest
import torch

from _factories import ONE_EACH, ROW_WEIGHT, SEVERAL, plain_loss
from sklearn_xlc.heads import FlatHead, chunked
from sklearn_xlc.training import RowOptimizer

N_LABELS, N_FEATURES = 11, 4


def make(multilabel, dtype=torch.float64, **kwargs):
    torch.manual_seed(0)
    head = FlatHead(N_FEATURES, N_LABELS, multilabel, **kwargs).to(dtype)
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)
    features = torch.randn(4, N_FEATURES, dtype=dtype, requires_grad=True)
    return head, features, SEVERAL if multilabel else ONE_EACH


def definition(head, features, targets, weight):
    logits = features @ head.weight.T + head.bias
    return plain_loss(logits, targets, weight, head.multilabel)


@pytest.mark.parametrize("rule", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_fused_step_equals_the_unfused_step(monkeypatch, multilabel, rule):
    results = []
    for fused in (True, False):
        monkeypatch.setattr(chunked, "CHUNK", 4 if fused else 4096)
        head, features, targets = make(multilabel)
        group = {"params": list(head.parameters()), "rule": rule, "fused": fused}
        optimizer = RowOptimizer([group], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = head.loss(features, targets, None, optimizer.update if fused else None)
            loss.backward()
            optimizer.step()
        results.append([p.detach().clone() for p in head.parameters()])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_half_precision_is_close_and_keeps_the_weights_type():
    head, features, targets = make(True, torch.float32, precision="bfloat16")
    exact = definition(head, features, targets, torch.ones(4))
    seen = []
    loss = head.loss(features, targets, None, lambda p, rows, gradient: seen.append(gradient.dtype))
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0)
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("k", [1, 4, N_LABELS])
def test_topk_is_the_order_of_the_scores(monkeypatch, k):
    monkeypatch.setattr(chunked, "CHUNK", 3)
    head, features, _ = make(True)
    scores, ids = head.topk(features, k)
    expected, expected_ids = head.scores(features).topk(k, dim=1)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(ids, expected_ids)


@pytest.mark.parametrize("multilabel", [True, False])
def test_prior_is_what_zero_features_predict(multilabel):
    head, _, _ = make(multilabel)
    frequency = torch.rand(N_LABELS, dtype=torch.float64) * 0.2 + 0.01
    frequency = frequency if multilabel else frequency / frequency.sum()
    head.set_prior(frequency)
    scores = head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64))[0]
    probabilities = scores.sigmoid() if multilabel else scores.softmax(0)
    torch.testing.assert_close(probabilities, frequency)


@pytest.mark.parametrize("multilabel", [True, False])
def test_bottleneck_without_biases_is_a_product_of_two_matrices(multilabel):
    head, features, targets = make(multilabel, width=2, with_bias=False)
    head.set_prior(torch.rand(N_LABELS, dtype=torch.float64))
    inputs = features @ head.projection.weight.T + head.projection.bias
    expected = inputs @ head.weight.T
    torch.testing.assert_close(head.scores(features), expected)
    head.loss(features, targets, ROW_WEIGHT).backward()
    ours = [features.grad.clone(), *(p.grad.clone() for p in head.parameters())]
    head.zero_grad()
    features.grad = None
    head.bias = torch.zeros(N_LABELS, dtype=torch.float64)
    head.projection, linear = torch.nn.Identity(), head.projection
    definition(head, linear(features), targets, ROW_WEIGHT).backward()
    theirs = [features.grad, head.weight.grad, linear.weight.grad, linear.bias.grad]
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)
